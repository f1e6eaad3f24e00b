"""Paths without a learning rate, what was served, and safety: never worse than what was logged."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import SEED

from countersample import (
    ClickLog,
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    choose_path,
    evaluate,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.clicks.shown import only_shown
from countersample.errors import DataError, ParameterError
from countersample.evaluation import HeldOut
from countersample.evaluation.estimators import logged_values
from countersample.evaluation.ranking import ranks_of
from countersample.rankers._task import make_task
from countersample.rankers.served import imitate
from countersample.training import TrainingOptions
from countersample.tuning import Candidate, PathChoice, number_of_steps, paths
from countersample.tuning.paths import checkpoints_of
from countersample.tuning.safety import compare_with


def make_world(n_queries=150, *, seed=SEED):
    """Return queries of 12 items whose label is a noisy sum of five of eight features."""
    rng = np.random.default_rng(seed)
    features = rng.random((n_queries * 12, 8)).astype(np.float32)
    good = np.array([3.0, 2.0, 1.0, -2.0, 1.0, 0.0, 0.0, 0.0])
    noisy = features @ good + 0.7 * rng.normal(size=len(features))
    query = np.repeat(np.arange(n_queries), 12)
    return RankingDataset.from_arrays(features, noisy > np.quantile(noisy, 0.8), query), good


def log_of(dataset, scores, n_sessions, *, top=None, seed=SEED):
    """Return all that was shown: as many sessions of each query, by the position-based model."""
    rng = np.random.default_rng(seed)
    rank = ranks_of(np.asarray(scores, float), dataset.offsets)
    rows = np.flatnonzero(rank <= (top or len(rank)))
    query = np.searchsorted(dataset.offsets, rows, side="right") - 1
    theta = 1 / rank[rows]
    clicks = rng.binomial(n_sessions, theta * np.where(dataset.labels[rows] > 0, 1.0, 0.1))
    times = np.full(len(rows), n_sessions)
    return ClickLog(
        query, rows - dataset.offsets[query], theta, clicks,
        position=rank[rows], impressions=times, examination=theta, sessions=times,
        n_sessions=n_sessions * dataset.n_queries,
    )  # fmt: skip


def ndcg(scores, dataset):
    return evaluate(scores, dataset, "ndcg@10", no_relevant="skip")["ndcg@10"]


@pytest.fixture(scope="module")
def world():
    return make_world()


# -- what was served


@pytest.mark.parametrize("source", ["baseline", "impressions", "clicks"])
@pytest.mark.parametrize("top", [None, 4])
def test_a_linear_policy_is_found_again(world, source, top):
    dataset, _ = world
    policy = np.array([1.0, -1.0, 0.5, 2.0, 0.0, 0.3, -0.7, 0.0])
    scores = dataset.features @ policy
    log = log_of(dataset, scores, 40, top=top)
    if source == "clicks":
        log = log.weighted().replace(impressions=None)
    served = imitate(dataset, log, baseline=scores if source == "baseline" else None)
    assert served.source == source
    angle = served.weights @ policy / np.linalg.norm(served.weights) / np.linalg.norm(policy)
    assert angle > (0.9 if source == "clicks" else 0.98)
    assert served.agreement > (0.8 if source == "clicks" else 0.93)
    within = dataset.features @ served.weights
    within -= np.repeat(within.reshape(-1, 12).mean(axis=1), 12)
    assert 0.7 < within.std() < 1.4


def test_its_agreement_tells_what_features_do_not_know(world, rng):
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 0], 5)
    by_chance = imitate(dataset, log, baseline=rng.random(dataset.n_items))
    assert 0.4 < by_chance.agreement < 0.6
    half = imitate(dataset, log, baseline=dataset.features[:, 0] + rng.random(dataset.n_items))
    assert by_chance.agreement + 0.1 < half.agreement < 0.9


def test_a_scale_is_that_of_scaled_features(world):
    dataset, _ = world
    scale = 2.0 ** np.arange(8)
    log = log_of(dataset, dataset.features[:, 1], 5)
    a = imitate(dataset, log, scale=scale)
    b = imitate(dataset.with_features(dataset.features * scale.astype(np.float32)), log)
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-3, atol=1e-4)


def test_nothing_tells_what_was_served(world):
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 0], 5).replace(position=None)
    assert imitate(dataset, log) is None
    ranker = CounterSampleRanker(random_state=SEED, steps=300).fit_log(dataset, log)
    path = ranker.path_
    assert path.reference == "naive"
    assert sum(path.shares) == pytest.approx(1)  # naive training has what is kept
    with pytest.raises(DataError, match="start is 'served', and nothing tells what was served"):
        CounterSampleRanker(start="served").fit_log(dataset, log)


@pytest.mark.parametrize(
    ("baseline", "match"),
    [
        ([1.0], r"shape \(1,\), expected the score of each item"),
        (["a"] * 24, "baseline is of type <U1"),
        ([np.nan] * 24, "baseline is nan in row 0, expected a finite number"),
    ],
)
def test_bad_baselines(baseline, match):
    dataset, _ = make_world(2)
    log = ClickLog([0, 1], [1, 2], [0.5, 0.5])
    with pytest.raises(DataError, match=match):
        CounterSampleRanker().fit_log(dataset, log, baseline=baseline)


def test_a_baseline_of_a_table_goes_with_its_rows(world):
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 20)
    clicks = np.bincount(dataset.offsets[log.query] + log.item, log.clicks, dataset.n_items)
    propensity = np.ones(dataset.n_items)
    propensity[dataset.offsets[log.query] + log.item] = log.propensity
    qid = np.repeat(np.arange(dataset.n_queries), 12)
    turned = np.random.default_rng(SEED).permutation(dataset.n_items)
    scores = dataset.features @ good
    ranker = CounterSampleRanker(random_state=0, steps=200).fit(
        dataset.features[turned], clicks[turned], qid=qid[turned], propensity=propensity[turned],
        baseline=scores[turned],
    )  # fmt: skip
    assert ranker.served_.agreement > 0.95


# -- items that were never shown


def test_only_what_was_shown_is_left():
    dataset, _ = make_world(4)
    everything = log_of(dataset, dataset.features[:, 0], 5)
    same, log = only_shown(dataset, everything)
    assert same is dataset
    assert log.fingerprint is None
    top = log_of(dataset, dataset.features[:, 0], 5, top=3).of_queries([1, 3])
    shown, log = only_shown(dataset, top)
    assert shown.query_sizes.tolist() == [3, 3]
    assert shown.query_ids.tolist() == [1, 3]
    for before, after in (
        (dataset.features[dataset.offsets[top.query] + top.item],
         shown.features[shown.offsets[log.query] + log.item]),
        (top.weights, log.weights),
    ):  # fmt: skip
        np.testing.assert_array_equal(before, after)
    clicked = top.weighted().replace(impressions=None)  # does not say what was shown
    assert only_shown(dataset, clicked)[0] is dataset


def test_a_page_of_few_items_does_not_teach_to_repeat_it():
    """Clicks on the top 4 of 12, in an order by chance: what was not shown is not irrelevant."""
    dataset, _ = make_world(300)
    by_chance = np.random.default_rng(SEED).random(dataset.n_items)
    log = log_of(dataset, by_chance, 200, top=4)
    test, _ = make_world(100, seed=SEED + 1)
    ranker = CounterSampleRanker(random_state=SEED).fit_log(dataset, log)
    everything = CounterSampleRanker(random_state=SEED).fit_log(
        dataset, log_of(dataset, by_chance, 200)
    )
    assert ndcg(ranker, test) > 0.97 * ndcg(everything, test)


# -- safety


def test_what_is_better_in_every_draw_is_taken_and_what_is_not_is_not(world, rng):
    dataset, good = world
    log = log_of(dataset, dataset.features[:, 0], 50)
    held_out = HeldOut(dataset, log, logged=logged_values(log, dataset, "dcg@10"), rng=rng)
    folds, logged = held_out.folds, held_out.logged_sums()
    better, worse = (
        held_out.sums([sign * fold.validation.features @ good for fold in folds])
        for sign in (1, -1)
    )
    found = compare_with(held_out, [worse, better], logged, safety=0.95, rng=rng)
    assert found.share.tolist() == [0.0, 1.0]
    assert found.kept == 0
    assert found.low[1] > 0 > found.low[0]
    assert compare_with(held_out, [worse], logged, safety=0.95, rng=rng).kept == 1
    assert compare_with(held_out, [worse], logged, safety=0, rng=rng).kept == 0


def test_the_lower_end_is_that_of_the_confidence(world, rng):
    """One candidate that is as good as what was logged, on average: kept as often as stated.

    Its gain over many logs has mean 0; its lower end is above 0 in about 5 of 100 of them.
    """
    dataset, _ = world
    above = []
    for seed in range(200):
        scores = np.random.default_rng(seed).random((2, dataset.n_items))
        log = log_of(dataset, scores[0], 4, seed=seed)
        held_out = HeldOut(dataset, log, logged=logged_values(log, dataset, "dcg@10"), rng=rng)
        other = held_out.sums(
            [scores[1][np.isin(np.repeat(np.arange(150), 12), f.queries)] for f in held_out.folds]
        )
        found = compare_with(held_out, [other], held_out.logged_sums(), safety=0.95, rng=rng)
        above.append(found.low[0] > 0)
    assert np.mean(above) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_that_some_candidate_is_better_is_rarely_shown_where_none_is(world, rng):
    """All at once: 30 rankings by chance, of which some nearly always look better."""
    dataset, _ = world
    n_logs, looks, shown = 100, 0, 0
    for seed in range(n_logs):
        scores = np.random.default_rng([SEED, seed]).random((31, dataset.n_items))
        log = log_of(dataset, scores[0], 4, seed=seed)
        held_out = HeldOut(dataset, log, logged=logged_values(log, dataset, "dcg@10"), rng=rng)
        rows = [np.isin(np.repeat(np.arange(150), 12), fold.queries) for fold in held_out.folds]
        others = [held_out.sums([by[each] for each in rows]) for by in scores[1:]]
        found = compare_with(held_out, others, held_out.logged_sums(), safety=0.95, rng=rng)
        looks += found.low.max() > 0
        shown += found.is_shown
    assert looks > n_logs / 4
    assert shown / n_logs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_logs)


def test_clicks_are_the_judge(world):
    """Users click what is irrelevant: by their clicks there is no loss, by the labels a large one.

    Nothing in the log tells, so that no bound is promised.
    """
    dataset, good = world
    inverted = RankingDataset.from_arrays(
        dataset.features, 1 - dataset.labels, np.repeat(np.arange(150), 12)
    )
    scores = dataset.features @ good
    log = log_of(inverted, scores, 50)  # the best ranker was served
    ranker = CounterSampleRanker(random_state=SEED).fit_log(dataset, log)
    assert ranker.path_.is_shown
    assert ndcg(ranker, inverted) > ndcg(scores, inverted)
    assert ndcg(ranker, dataset) < ndcg(scores, dataset)


@pytest.mark.parametrize("top", [None, 5])
def test_the_best_policy_is_not_lost_with_few_clicks(top):
    losses = []
    for seed in range(SEED, SEED + 5):
        dataset, good = make_world(seed=seed)
        test, _ = make_world(seed=seed + 1000)
        log = log_of(dataset, dataset.features @ good, 2, top=top, seed=seed)
        ranker = CounterSampleRanker(random_state=seed).fit_log(dataset, log)
        losses.append(ndcg(ranker, test) - ndcg(test.features @ good, test))
        assert ranker.served_.agreement > 0.9
    assert np.mean(losses) > -0.01
    assert min(losses) > -0.03


def test_a_poor_policy_is_left_with_many_clicks(world):
    dataset, good = world
    test, _ = make_world(seed=SEED + 1000)
    log = log_of(dataset, dataset.features[:, 7], 200)
    ranker = CounterSampleRanker(random_state=SEED).fit_log(dataset, log)
    assert ranker.path_.kept == 0
    assert ndcg(ranker, test) > 0.95 * ndcg(test.features @ good, test)
    assert ranker.path_.value > ranker.path_.reference_value


def test_what_was_logged_is_kept_as_it_is(world):
    """Where no draw shows anything better, the ranker is the imitation."""
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 100)
    ranker = CounterSampleRanker(
        random_state=SEED, safety=1 - 1e-15, start="zero", temper=0.0, steps=20
    ).fit_log(dataset, log)
    assert ranker.path_.kept == 1
    np.testing.assert_allclose(
        np.corrcoef(ranker.weights_, ranker.served_.weights)[0, 1], 1, rtol=1e-9
    )
    assert ranker.path_.sentence.startswith("Nothing was shown to be better than what was logged")


def test_what_was_logged_does_not_beat_itself_on_a_short_page(world):
    """Its own scores as a candidate: no gain, whatever the page leaves out, and with a baseline."""
    dataset, good = world
    scores = (dataset.features @ good).astype(float)
    log = log_of(dataset, scores, 30, top=4)
    for baseline in (None, scores):
        task = make_task(dataset, log, baseline, None, takes_scale=False)
        held_out, _ = task.held_out("dcg@10", holdout=0.2, rng=np.random.default_rng(SEED))
        assert held_out.metric == ("dcg@4" if baseline is None else "dcg@10")
        rows = [np.isin(np.repeat(np.arange(150), 12), fold.queries) for fold in held_out.folds]
        own = held_out.sums([scores[each] for each in rows])
        assert held_out.value(own) == pytest.approx(held_out.value(held_out.logged_sums()))


def test_what_was_shown_where_no_propensity_is_known_is_not_taken_for_hidden(world):
    dataset, good = world
    scores = (dataset.features @ good).astype(float)
    log = log_of(dataset, scores, 30, top=8)
    known = np.where(log.position <= 5, log.examination, 0.0)
    log = log.replace(examination=known, count=np.where(known > 0, log.clicks, 0.0))
    task = make_task(dataset, log, None, None, takes_scale=False)
    held_out, _ = task.held_out("dcg@8", holdout=0.2, rng=np.random.default_rng(SEED))
    rows = [np.isin(np.repeat(np.arange(150), 12), fold.queries) for fold in held_out.folds]
    own = held_out.sums([scores[each] for each in rows])
    assert held_out.value(own) == pytest.approx(held_out.value(held_out.logged_sums()))


def test_a_handful_of_queries_shows_nothing(world):
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 5, top=6)
    few = log.of_queries([3, 5])
    assert CounterSampleRanker(random_state=0).fit_log(dataset, few).path_.kept == 1
    one = log.replace(count=np.where(log.query == 3, log.clicks + 1, 0))
    ranker = CounterSampleRanker(random_state=0).fit_log(dataset, one)
    assert ranker.path_.kept == 1
    assert ranker.n_steps_ == 0
    assert ranker.path_.sentence.startswith("Nothing can be shown to be better")


def test_queries_that_a_model_speaks_for_are_not_counted_as_clicked(world):
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 5, top=6)
    few = log.replace(count=np.where(log.query < 6, log.clicks + 1, 0))
    path = CounterSampleRanker(random_state=0).fit_log(dataset, few).path_
    assert (path.n_queries, path.kept) == (6, 1)


@pytest.mark.parametrize("holdout", [0.05, 0.1, 0.5])
def test_nothing_is_judged_by_what_it_learned_from(world, holdout):
    """Nine clicked queries: fewer than there are parts of a twentieth."""
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 20).of_queries(np.arange(9))
    task = make_task(dataset, log, None, None, takes_scale=False)
    held_out, learned = task.held_out("dcg@10", holdout=holdout, rng=np.random.default_rng(0))
    assert len(held_out.folds) == min(9, round(1 / holdout))
    for fold, clicks in zip(held_out.folds, learned, strict=True):
        assert len(clicks.query)
        assert not np.isin(clicks.query, fold.queries).any()


@pytest.mark.parametrize("radius", [0.1, 0.3, 0.7, 1.3, 1.9])
def test_a_start_is_brought_within_the_radius(world, radius):
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 5)
    ranker = CounterSampleRanker(radius=radius, steps=50, random_state=0).fit_log(dataset, log)
    assert np.linalg.norm(ranker.weights_) <= radius * (1 + 1e-9)


@pytest.mark.parametrize("safety", [0.3, -0.1, 1, 1.5, None, "0.9"])
def test_safety_that_is_none(world, safety):
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 5)
    with pytest.raises(ParameterError, match=r"safety is .*, expected 0 or a number of"):
        CounterSampleRanker(safety=safety).fit_log(dataset, log)


def test_what_is_kept_is_judged_where_it_is_no_start(world):
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 20)
    path = CounterSampleRanker(start="zero", random_state=0).fit_log(dataset, log).path_
    assert path.imitation_value == pytest.approx(path.reference_value, rel=0.05)


def test_what_cannot_be_imitated_is_not_kept_at_any_price(rng):
    """What was served knows the labels, features know little: a poor imitation gives way."""
    dataset, _ = make_world(300)
    served = dataset.labels - 0.3 * dataset.features[:, 0] + 0.01 * rng.random(dataset.n_items)
    log = log_of(dataset, served, 30).weighted().replace(impressions=None)
    ranker = CounterSampleRanker(random_state=SEED).fit_log(dataset, log)
    anyway = CounterSampleRanker(random_state=SEED, safety=0).fit_log(dataset, log)
    assert ndcg(ranker, dataset) > ndcg(anyway, dataset) - 0.05
    assert ndcg(ranker, dataset) > ndcg(dataset.features @ ranker.served_.weights, dataset) - 0.01


# -- paths


def test_the_ranker_is_the_mean_of_what_is_chosen(world):
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 1], 20)
    ranker = CounterSampleRanker(random_state=SEED, steps=400, normalize=None).fit_log(dataset, log)
    path = ranker.path_
    chosen = [each for each in path.candidates if each.share]
    assert sum(each.share for each in chosen) + path.kept == pytest.approx(1)
    assert len(path.candidates) == 2 * 3 * len(checkpoints_of(400))
    assert ranker.n_steps_ == max(each.steps for each in chosen)
    assert ranker.history_.steps[-1] == ranker.n_steps_
    np.testing.assert_array_equal(ranker.history_.coef[-1], ranker.weights_)
    assert path.to_frame()["share"].sum() == pytest.approx(1 - path.kept)
    assert path.best in path.candidates


@pytest.mark.parametrize("is_scaled", [False, True])
def test_paths_are_brought_to_a_deviation_of_1_within_queries(world, rng, is_scaled):
    """By a loop over queries: what their scores have in common does not count."""
    dataset, _ = world
    scale = rng.uniform(0.5, 2.0, dataset.n_features) if is_scaled else None
    weights = rng.standard_normal((3, dataset.n_features)) * [[0.1], [1.0], [30.0]]
    even = paths._Spread.of(dataset, scale).evened(np.vstack([weights, 0 * weights[:1]]))
    features = dataset.features.astype(np.float64) * (1.0 if scale is None else scale)
    queries = np.split(features, dataset.offsets[1:-1])
    apart = np.concatenate([(rows - rows.mean(axis=0)) @ even.T for rows in queries])
    np.testing.assert_allclose(np.sqrt((apart**2).mean(axis=0)), [1, 1, 1, 0], rtol=1e-9)
    factors = even[:3] / weights
    np.testing.assert_allclose(factors, factors[:, :1] * np.ones_like(weights), rtol=1e-9)


def test_a_single_path_is_a_run_of_dog(world):
    """With one start and one temper, followed on everything, it is `train` up to a factor."""
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 1], 50)
    ranker = CounterSampleRanker(
        random_state=SEED, start="zero", temper=1.0, safety=0, normalize=None, steps=50
    ).fit_log(dataset, log)
    steps = ranker.n_steps_
    found = [
        train(dataset, log.weighted(), optimizer="dog", unit="query", steps=steps, rng=seed)
        for seed in range(20)
    ]
    mean = np.mean([each.weights / np.linalg.norm(each.weights) for each in found], axis=0)
    assert ranker.weights_ @ mean / np.linalg.norm(ranker.weights_) > 0.85


def test_the_same_seed_gives_the_same_choice(world):
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 0], 5)
    logged = logged_values(log, dataset, "dcg@10")
    a, b, c = (
        choose_path(dataset, log, logged=logged, options=options, rng=rng)
        for options, rng in zip([TrainingOptions(unit="query", optimizer="dog", steps=100)] * 3,
                                (SEED, SEED, SEED + 1), strict=True)
    )  # fmt: skip
    assert replace(a, seconds=0) == replace(b, seconds=0)
    assert a.candidates != c.candidates


@pytest.mark.parametrize(
    ("n_queries", "batch_size", "steps"),
    [(2, 1, 5000), (2, 7, 715), (1001, 1, 5005), (1001, 10, 501), (2, 5000, 1), (2, 5001, 1)],
)
def test_steps_are_enough_for_all_draws(n_queries, batch_size, steps):
    """⌈max(5·n, 5,000) / batch size⌉: the last batch may draw more than are needed, never fewer."""
    log = ClickLog(np.arange(n_queries), np.zeros(n_queries, int), np.ones(n_queries))
    assert number_of_steps(log, unit="query", batch_size=batch_size) == steps


def test_checkpoints_rise_to_the_last_step():
    assert checkpoints_of(1).tolist() == [1]
    points = checkpoints_of(10_000)
    assert (points[0], points[-1], len(points)) == (20, 10_000, 13)
    assert (np.diff(points) > 0).all()


def test_start_and_temper_are_as_asked(world):
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 0], 5)
    ranker = CounterSampleRanker(start="zero", temper=0.5, steps=100, random_state=0)
    found = ranker.fit_log(dataset, log).path_.candidates
    assert {(each.start, each.temper) for each in found} == {("zero", 0.5)}
    found = ranker.set_params(start="served", temper="auto").fit_log(dataset, log).path_.candidates
    assert {each.start for each in found} == {"served"}
    assert {each.temper for each in found} == {0.0, 0.5, 1.0}


def test_a_radius_holds_from_the_start_on(world):
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 0], 5)
    ranker = CounterSampleRanker(radius=0.1, steps=100, random_state=0).fit_log(dataset, log)
    assert np.linalg.norm(ranker.weights_) <= 0.1 + 1e-12


def test_sentences():
    one = Candidate("zero", 1.0, 100, value=0.5, gain=0.1, low=0.05, share=0.5)
    found = PathChoice((one,), 0.5, "logged", 0.4, 0.4, "dcg@10", 0.95, True, 10, 0.1)
    assert found.sentence.startswith("Better than what was logged with 95% confidence: the choice")
    assert "the choice of 50% of the draws" in found.sentence
    unsure = replace(found, is_shown=False, safety=0.999).sentence
    assert unsure.startswith("Not shown to be better than what was logged with 99.9% confidence: ")
    single = replace(found, candidates=(replace(one, share=1.0),), kept=0.0).sentence
    assert single.startswith("Better than what was logged with 95% confidence: dcg@10 is 0.5 where")
    few = replace(found, n_queries=3).sentence
    assert few.endswith("3 held-out queries have clicks, expected 8 or more.")
    assert replace(found, kept=1.0).keeps_logged
    assert not replace(found, kept=1.0, reference="naive").keeps_logged
    assert found.value == pytest.approx(0.45)
    naive = replace(found, reference="naive", kept=0.0, safety=0)
    assert naive.sentence.startswith("What looks best on held-out queries")
    assert found.to_dict()["candidates"][0]["share"] == 0.5


def test_what_choose_path_refuses(world):
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 0], 5)
    with pytest.raises(ParameterError, match="safety is 1, expected 0 or a number"):
        choose_path(dataset, log, safety=1)
    with pytest.raises(ParameterError, match="metric is 'arp'"):
        choose_path(dataset, log, metric="arp")


def test_folded_features_rank_as_scaled_ones():
    """Features of very different scale; one far from 0 is brought to scale in a copy instead."""
    dataset, _ = make_world()
    wide = dataset.features * np.float32(10.0) ** np.arange(-3, 5, dtype=np.float32)
    wide = dataset.with_features(wide.astype(np.float32))
    log = log_of(dataset, dataset.features[:, 1], 30)
    a, b = (
        CounterSampleRanker(random_state=SEED, steps=500).fit_log(each, log)
        for each in (wide, dataset)
    )
    assert ndcg(a, wide) == pytest.approx(ndcg(b, dataset), abs=0.01)
    far = wide.features.copy()
    far[:, 3] += 1e4
    c = CounterSampleRanker(random_state=SEED, steps=500).fit_log(wide.with_features(far), log)
    assert c.normalizer_.foldable_scale() is None
    assert ndcg(c, wide.with_features(far)) > 0.9 * ndcg(b, dataset)


def test_clicks_on_one_query_alone():
    dataset = synthetic("tiny", rng=0)
    log = simulate_clicks(dataset, dataset.features[:, 0], 500, bias=PositionBias(1.0), rng=0)
    one = log.of_queries([log.query[0]])
    ranker = CounterSampleRanker(random_state=0, steps=100).fit_log(dataset, one)
    assert np.isfinite(ranker.weights_).all()
