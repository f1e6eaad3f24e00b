"""Settings chosen from clicks: what is tried, and what is chosen."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import SEED

from countersample import (
    ClickLog,
    CounterSampleRanker,
    PositionBias,
    evaluate,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.errors import CounterSampleError, ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.tuning import choose_clip, choosing, clips_to_try, number_of_steps, rates, tune
from countersample.tuning.rates import RateGrid
from countersample.tuning.search import Attempt, Search, best_of

pytestmark = pytest.mark.rounding  # nothing here may hang on the last bits


@pytest.fixture(scope="module")
def data():
    return synthetic("tiny", rng=SEED)


@pytest.fixture(scope="module")
def log(data):
    return simulate_clicks(data, data.features[:, 0], 5000, bias=PositionBias(1.0), rng=SEED)


@pytest.fixture(scope="module")
def found(data, log):
    return tune(data, log, clips=[None, 0.3], steps=1000, rng=SEED)


# -- what is chosen --------------------------------------------------------------------------------


def test_the_best_is_chosen(found):
    of_its_clip = [trial.value for trial in found.trials if trial.clip == found.clip]
    assert found.best.value == max(of_its_clip)
    assert found.best in found.trials
    best = found.best
    assert (found.learning_rate, found.steps, found.clip) == (
        best.learning_rate, best.steps, best.clip,
    )  # fmt: skip
    assert {trial.clip for trial in found.trials} == {None, 0.3}
    for trial in found.trials:
        assert 0 < trial.low <= trial.value <= trial.high <= 1
    assert found.n_queries == 100  # all of them, a fifth at a time


def test_the_better_half_goes_on(found):
    by_steps = {
        steps: [trial for trial in found.trials if trial.steps == steps]
        for steps in (250, 500, 1000)
    }
    assert sum(map(len, by_steps.values())) == len(found.trials)
    for few, more in ((250, 500), (500, 1000)):
        before = sorted(by_steps[few], key=lambda trial: -trial.value)
        went_on = {(trial.learning_rate, trial.clip) for trial in by_steps[more]}
        better = before[: -(-len(before) // 2)]
        others = {None, 0.3} - {t.clip for t in better}  # the best of a clip goes on as well
        better += [next(t for t in before if t.clip == clip) for clip in others]
        values = [t.value for t in before if (t.learning_rate, t.clip) in went_on]
        assert values == [t.value for t in better]


def test_a_clip_has_to_be_better_by_a_standard_error(data, log, rng):
    """Σ d / √Σ (d − b·Σd/Σb)² over groups, d the difference and b what both are divided by."""
    held_out = HeldOut(data, log, "dcg@10", rng=rng)
    n = len(held_out.weight_sums)
    plain = 0.5 * held_out.weight_sums
    noise = rng.standard_normal(n) * held_out.weight_sums
    noise -= (
        held_out.weight_sums * noise.sum() / held_out.weight_sums.sum()
    )  # without effect on the value
    error = np.sqrt(noise @ noise) / held_out.weight_sums.sum()

    def choice(errors_above):
        sums = plain + noise + errors_above * error * held_out.weight_sums
        assert held_out.z_score(sums, plain) == pytest.approx(errors_above)
        attempts = [
            Attempt(RateGrid(clip), 0, 10, sums[None], held_out.value(sums))
            for clip, sums in ((None, plain), (0.1, sums))
        ]
        return best_of(attempts, [0, 1], held_out)

    assert choice(1.1) == 1
    assert choice(0.9) == 0
    assert choice(-2.0) == 0


def test_a_grid_goes_on_at_the_end_where_the_best_is():
    grid = RateGrid(clip=None, centre=0.5)
    assert [grid.rate(k) for k in (-2, 0, 2)] == [0.05, 0.5, 5.0]
    assert grid.more({-2: 0.1, -1: 0.3, 0: 0.2}) == range(0)
    assert grid.more({-2: 0.1, -1: 0.2, 0: 0.3}) == range(1, 9)


def test_clips_that_change_nothing_are_not_tried(data, log, monkeypatch):
    assert clips_to_try(log) == [None, *(clip for clip in (0.03, 0.1) if clip > 1 / log.max_weight)]
    scaled = data.with_features(1000 * data.features)
    choice = choose_clip(scaled, log.take(slice(None)), rng=SEED)
    assert [trial.clip for trial in choice.trials] == clips_to_try(log)
    assert choice.clip in clips_to_try(log)
    monkeypatch.setattr(choosing, "tune", None)  # nothing to try
    plain = choose_clip(data, log.clip(0.5))
    assert (plain.clip, plain.trials) == (None, ())
    assert plain.sentence == "Propensities are not clipped."


def test_the_choice_of_a_clip_says_what_was_tried(found):
    choice = found.clip_choice
    assert choice.clip == found.clip
    best = {clip: max(t.value for t in found.trials if t.clip == clip) for clip in (None, 0.3)}
    values = {trial.clip: trial.value for trial in choice.trials}
    assert list(values) == [None, 0.3]
    assert values == best | {found.clip: found.best.value}
    told = replace(choice, clip=None).sentence
    assert told.startswith("Propensities are not clipped: clipping (tried: 0.3) is not better")
    told = replace(choice, clip=0.3).sentence
    assert told.startswith("Propensities are clipped at 0.3: on held-out clicks dcg@10 is ")
    assert replace(choice, clip=0.3, trials=choice.trials[1:]).sentence == (
        "Propensities are clipped at 0.3."
    )


def test_trials_as_a_frame(found):
    frame = found.to_frame("pandas")
    assert list(frame.columns) == ["learning_rate", "steps", "clip", "value", "low", "high"]
    assert frame["value"].max() == max(trial.value for trial in found.trials)
    assert frame["clip"].isna().sum() == sum(trial.clip is None for trial in found.trials)
    assert len(found.clip_choice.to_frame("pyarrow")) == 2
    assert "learning_rate" in found._repr_html_()


@pytest.mark.parametrize("learning_rate", ["auto", 0.001])
def test_a_ranker_finds_its_clip(data, log, learning_rate):
    settings = {"learning_rate": learning_rate, "steps": 500, "random_state": SEED}
    found = CounterSampleRanker(clip="auto", **settings).fit_log(data, log)
    assert {trial.clip for trial in found.tuning_.trials} == set(clips_to_try(log))
    assert found.clip_ == found.tuning_.clip
    with pytest.raises(ParameterError, match="clip is 'some', expected None, 'auto' or a number"):
        CounterSampleRanker(clip="some", **settings).fit_log(data, log)


def test_the_same_seed_gives_the_same_choice(data, log, found):
    again = tune(data, log, clips=[None, 0.3], steps=1000, rng=SEED)
    assert again == found
    assert tune(data, log, clips=[None, 0.3], steps=1000, rng=SEED + 1) != found


def test_all_steps_where_no_fewer_are_wanted(data, log):
    found = tune(data, log, steps=1000, fewer_steps=False, rng=SEED)
    assert found.steps == 1000
    assert found.best.value == max(t.value for t in found.trials if t.steps == 1000)


def test_only_the_rates_given_are_tried(data, log):
    found = tune(data, log, learning_rates=[1e-2, 1e-9], steps=400, rng=SEED)
    assert {trial.learning_rate for trial in found.trials} == {1e-2, 1e-9}
    assert found.best.value == max(trial.value for trial in found.trials)
    assert [trial.steps for trial in found.trials] == [100, 100, 200, 400]


def test_a_clip_that_hides_what_matters_is_not_chosen(data):
    """With the logged order as good as random, propensities of 1 repeat it."""
    log = simulate_clicks(data, -data.features[:, 0], 20_000, bias=PositionBias(2.0), rng=SEED)
    found = tune(data, log, clips=[None, 1.0], steps=2000, rng=SEED)
    assert found.clip is None


def test_what_is_chosen_ranks_well(data, log):
    found = tune(data, log, clips=[None, 0.1], steps=2000, rng=SEED)
    ranker = train(
        data, log, learning_rate=found.learning_rate, steps=found.steps, clip=found.clip,
        unit="query", rng=SEED,
    )  # fmt: skip
    chance = np.random.default_rng(SEED).random(data.n_items)
    learned, random = (
        evaluate(scores, data, "ndcg@10", no_relevant="skip")["ndcg@10"]
        for scores in (data.features @ ranker.weights, chance)
    )
    assert learned > random + 0.05


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"method": "ips", "unit": "click"},
        {"objective": "dcg", "batch_size": 4},
        {"metric": "precision@3", "average": False},
    ],
)
def test_every_setting_can_be_tuned(data, log, options):
    assert tune(data, log, steps=100, rng=SEED, **options).best.value > 0


# -- the rates -------------------------------------------------------------------------------------


def test_it_goes_on_while_the_best_is_at_an_end(data, log, monkeypatch):
    monkeypatch.setattr(rates, "theoretical_rate", lambda *_: 1.0)

    def tried(peak):
        def run(search, chosen, steps, _progress):
            sums = np.zeros((len(search.held_out.folds), search.held_out.n_queries))
            return [
                Attempt(grid, k, steps, sums, -abs(np.log10(grid.rate(k)) - peak))
                for grid, k in chosen
            ]

        monkeypatch.setattr(Search, "run", run)
        found = tune(data, log, steps=8, rng=SEED)
        first = [trial.learning_rate for trial in found.trials if trial.steps == 2]
        assert first == sorted(first)
        return found.learning_rate, len(first)

    assert tried(0.5) == (pytest.approx(10**0.5), 8)  # 10^-1 … 10^2.5
    assert tried(-4) == (pytest.approx(1e-4), 16)
    assert tried(5) == (pytest.approx(1e5), 16)
    assert tried(100) == (pytest.approx(10**10.5), 24)  # three times eight, then it ends


def test_a_rate_that_diverges_is_never_chosen(data, log):
    found = tune(data, log, l2=1e3, steps=2000, rng=SEED)
    exploded = [trial for trial in found.trials if trial.value == -np.inf]
    assert exploded
    assert all(trial.low == trial.high == -np.inf for trial in exploded)
    assert found.best.value > 0


def test_rates_that_all_diverge_are_followed_by_smaller_ones(data, log, monkeypatch):
    monkeypatch.setattr(rates, "theoretical_rate", lambda *_: 1e4)
    found = tune(data, log, l2=1e3, steps=400, rng=SEED)
    assert found.best.value > 0
    assert found.learning_rate < 1e3


def test_what_was_shown_but_not_clicked_does_not_matter(data, log):
    some = log.of_queries(range(60))
    n = len(some)
    shown = ClickLog(
        np.append(some.query, [0, 70]), np.append(some.item, [0, 1]),
        np.append(some.propensity, [1, 1]), np.append(np.ones(n), [0, 0]),
        impressions=np.ones(n + 2), n_sessions=10 * n,
    )  # fmt: skip
    a, b = (tune(data, each, steps=400, rng=SEED) for each in (some, shown))
    assert a == b


# -- the rest --------------------------------------------------------------------------------------


def test_it_tells_how_far_it_is(data, log):
    told = []
    tune(data, log, clips=[None, 0.5], steps=100, rng=SEED,
         progress=lambda _what, share: told.append(share))  # fmt: skip
    assert told == sorted(told)
    assert told[0] > 0
    assert told[-1] == 1


@pytest.mark.parametrize(
    ("n", "batch_size", "steps"),
    [(1, 1, 30_000), (1, 7, 4286), (20_000, 1, 60_000), (400_000, 1, 1_000_000)],
)
def test_number_of_steps(n, batch_size, steps):
    log = ClickLog(np.arange(n), np.zeros(n, int), np.ones(n))
    assert number_of_steps(log, unit="query", batch_size=batch_size) == steps


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"clips": []}, "clips are empty"),
        ({"clips": [0.0]}, "clip is 0.0, expected a number above 0"),
        ({"learning_rates": []}, "learning_rates are empty"),
        ({"learning_rates": [-1.0]}, "learning_rate is -1.0"),
        ({"learning_rate": 0.1}, "tune takes no learning_rate, expected learning_rates"),
        ({"clip": 0.1}, "tune takes no clip, expected clips"),
        ({"epochs": 1}, "tune takes no epochs, expected steps"),
        ({"holdout": 0.7}, "holdout is 0.7, expected a number above 0 and at most 0.5"),
        ({"metric": "arp"}, "metric is 'arp', of which less is better"),
        ({"metric": "ndcg@10"}, "'ndcg@10' cannot be estimated from clicks"),
        ({"steps": 0}, "steps is 0"),
        ({"method": "magic"}, "is 'magic', expected one of"),
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
    ],
)
def test_bad_arguments(data, log, options, sentence):
    with pytest.raises(CounterSampleError, match=sentence):
        tune(data, log, **{"steps": 100, "rng": SEED} | options)
