"""Estimates from clicks: unbiased by enumeration, equal to slow twins, covering by simulation."""

from itertools import product

import numpy as np
import pytest
from conftest import SEED

from countersample import ClickLog, PositionBias, RankingDataset, synthetic
from countersample.clicks import simulate_impressions
from countersample.errors import DataError, ParameterError
from countersample.evaluation import ESTIMATORS, estimate, estimate_gain
from countersample.evaluation.bootstrap import MAX_GROUPS, resample
from countersample.metrics import item_ranks, rank_values

# -- by enumeration -------------------------------------------------------------------------------

SMALL = RankingDataset.from_arrays(
    X=np.arange(6)[:, None], y=np.zeros(6), qid=["a", "a", "a", "b", "b", "b"]
)
RELEVANCE = np.array([1.0, 0.3, 0.8, 1.0, 0.1, 0.5])  # P(click), once looked at
LOOKS = np.array([1.0, 0.5, 0.25])  # by position
NEW = np.array([0.2, 0.1, 0.9, 0.3, 0.8, 0.7])
WRONG = np.array([0.2, 0.9, 0.1, 0.5, 0.5, 0.0])  # a model that knows nothing


def outcomes_of_a_session(rankings, n_shown=3):
    """Every (probability, rows) of a session: a query, a ranking of its items, clicks on them.

    The first item of each query is always on top and always clicked, so that no log is empty.
    """
    for query, ranking in product(range(2), rankings):
        shown = ranking[:n_shown]
        probability = LOOKS[: len(shown)] * RELEVANCE[3 * query + np.array(shown)]
        for clicks in product((0, 1), repeat=len(shown)):
            likely = np.prod(np.where(clicks, probability, 1 - probability))
            if likely:
                rows = [(query, d, k + 1, clicks[k]) for k, d in enumerate(shown)]
                yield likely / 2 / len(rankings), rows


def mean_estimate(rankings, metric="dcg", *, n_shown=3, is_logged=False, **options):
    """Return the exact mean of an estimate over all logs of two sessions."""
    options |= {"metric": metric, "n_bootstrap": 1, "rng": 0}
    mean = 0.0
    for sessions in product(outcomes_of_a_session(rankings, n_shown), repeat=2):
        rows = [(s, *row) for s, (_, some) in enumerate(sessions) for row in some]
        session, query, item, position, click = np.array(rows).T
        log = ClickLog(
            query, item, LOOKS[position - 1], click, session=session, position=position,
            impressions=np.ones(len(rows)), n_sessions=2,
        )  # fmt: skip
        value = estimate(NEW, log, SMALL, **options).value
        if is_logged:
            gain = estimate_gain(NEW, log, SMALL, **options)
            assert gain.value == pytest.approx(gain.new.value - gain.logged.value)
            value = gain.logged.value
        mean += np.prod([p for p, _ in sessions]) * value
    return mean


def true_value(metric="dcg", rewards=None):
    rewards = rank_values(metric, item_ranks(NEW, SMALL)) if rewards is None else rewards
    return (rewards * RELEVANCE).sum() / 2  # two queries, equally likely


ONE_RANKING, TWO_RANKINGS = [(0, 1, 2)], [(0, 1, 2), (0, 2, 1)]


@pytest.mark.parametrize(
    ("rankings", "options"),
    [
        *product([ONE_RANKING, TWO_RANKINGS], [{"metric": m} for m in ("dcg@2", "dcg", "arp")]),
        (TWO_RANKINGS, {"metric": "precision@1"}),
        # dr, whatever its model
        (ONE_RANKING, {"estimator": "dr", "baseline": WRONG}),
        (TWO_RANKINGS, {"estimator": "dr", "baseline": WRONG}),
        (TWO_RANKINGS, {"estimator": "dr"}),
        # dr with the right model, whatever was shown
        *(
            (TWO_RANKINGS, {"estimator": "dr", "baseline": RELEVANCE, "n_shown": n, "clip": clip})
            for n, clip in [(2, None), (2, 0.9), (3, 0.9), (1, 0.5)]
        ),
    ],
)
def test_estimates_are_unbiased(rankings, options):
    expected = true_value(options.get("metric", "dcg"))
    assert mean_estimate(rankings, **options) == pytest.approx(expected, rel=1e-12)


def test_the_bias_of_dr_and_of_clipping():
    """n·λ·(r̂ − r)·(1 − θ/max(θ, τ)), and λ·r·θ/max(θ, τ)."""
    clip = 0.4  # above the last position's propensity of 1/4
    rewards = rank_values("dcg", item_ranks(NEW, SMALL))
    share = np.tile(LOOKS / np.maximum(LOOKS, clip), 2)
    bias = (rewards * (WRONG - RELEVANCE) * (1 - share)).sum() / 2
    assert abs(bias) > 0.01
    value = mean_estimate(ONE_RANKING, estimator="dr", baseline=WRONG, clip=clip)
    assert value == pytest.approx(true_value() + bias, rel=1e-12)
    value = mean_estimate(ONE_RANKING, estimator="clipped", clip=clip)
    assert value == pytest.approx(true_value(rewards=rewards * share), rel=1e-12)


@pytest.mark.parametrize("estimator", ["ips", "dr"])
@pytest.mark.parametrize("rankings", [ONE_RANKING, TWO_RANKINGS])
def test_the_value_of_the_logged_ranking_is_unbiased(rankings, estimator):
    """Positions determine it, also where the ranking differed between sessions."""
    rewards = np.mean([rank_values("dcg", np.argsort(r) + 1) for r in rankings], axis=0)
    value = mean_estimate(rankings, estimator=estimator, is_logged=True)
    assert value == pytest.approx(true_value(rewards=np.tile(rewards, 2)), rel=1e-12)


# -- on simulated logs ----------------------------------------------------------------------------

BIAS = PositionBias(1.0)


@pytest.fixture(scope="module")
def tiny():
    return synthetic("tiny", rng=SEED)


def shown_log(dataset, n_sessions, seed, top=None):
    """A log of everything that was shown, ranked by the first feature."""
    table = simulate_impressions(
        dataset, dataset.features[:, 0], n_sessions, bias=BIAS, top=top, rng=seed
    )
    query = np.searchsorted(dataset.query_ids, table["query_id"].to_numpy())
    position = table["position"].to_numpy()
    return ClickLog(
        query, table["item_id"].to_numpy(), BIAS.propensity(position), table["click"].to_numpy(),
        session=table["session"].to_numpy(), position=position, impressions=np.ones(len(query)),
        n_sessions=n_sessions,
    )  # fmt: skip


def added(log):
    """The same log, a row for each query, item and position; sessions are not told apart."""
    key = np.stack([log.query, log.item, log.position])
    (query, item, position), member = np.unique(key, axis=1, return_inverse=True)
    member = member.ravel()
    return ClickLog(
        query, item, BIAS.propensity(position), np.bincount(member, log.clicks),
        position=position, impressions=np.bincount(member), n_sessions=log.n_sessions,
    )  # fmt: skip


def clicks_alone(log, **columns):
    rows = log.clicks > 0
    return ClickLog(log.query[rows], log.item[rows], log.propensity[rows], **columns)


def relevance_of(dataset):
    return np.where(dataset.labels >= 3, 1.0, 0.1)


def other_scores(dataset):
    return dataset.features @ np.random.default_rng(7).normal(size=dataset.n_features)


def truth(dataset, scores, estimator="ips", metric="dcg@10"):
    """By labels: the mean over queries of Σ λ(rank)·r; for snips divided by that of Σ r."""
    worth = rank_values(metric, item_ranks(scores, dataset))
    relevance = relevance_of(dataset)
    total = (worth * relevance).sum()
    return total / (relevance.sum() if estimator == "snips" else dataset.n_queries)


N_LOGS, N_SESSIONS = 400, 500


@pytest.fixture(scope="module")
def logs(tiny):
    return [shown_log(tiny, N_SESSIONS, seed) for seed in range(SEED, SEED + N_LOGS)]


def coverage(logs, interval_of, expected):
    intervals = np.array([interval_of(seed, log) for seed, log in enumerate(logs)])
    return np.mean((intervals[:, 0] <= expected) & (expected <= intervals[:, 1]))


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_the_interval_covers_the_truth_as_often_as_it_says(tiny, logs, estimator):
    scores = other_scores(tiny)

    def interval_of(seed, log):
        found = estimate(scores, log, tiny, estimator=estimator, n_bootstrap=200, rng=seed)
        return found.low, found.high

    assert 0.91 <= coverage(logs, interval_of, truth(tiny, scores, estimator)) <= 0.98


@pytest.mark.slow
def test_the_interval_of_the_gain_covers_the_true_gain(tiny, logs):
    scores = other_scores(tiny)

    def interval_of(seed, log):
        found = estimate_gain(scores, log, tiny, n_bootstrap=200, rng=seed)
        return found.relative_low, found.relative_high

    expected = truth(tiny, scores) / truth(tiny, tiny.features[:, 0]) - 1
    assert 0.91 <= coverage(logs, interval_of, expected) <= 0.98


def test_dr_speaks_of_what_was_never_shown(tiny):
    """With only the top 5 shown, ips misses what is below; a model makes up for most."""
    scores = other_scores(tiny)
    log = shown_log(tiny, 4000, SEED, top=5)
    ips = estimate(scores, log, tiny, rng=SEED)
    dr = estimate(scores, log, tiny, estimator="dr", rng=SEED)
    expected = truth(tiny, scores)
    assert abs(dr.value - expected) < 0.4 * abs(ips.value - expected)
    assert any("never shown: they count as irrelevant" in told for told in ips.warnings)
    assert any("never shown: their relevance comes from the model" in told for told in dr.warnings)
    assert not estimate(scores, shown_log(tiny, 4000, SEED), tiny, rng=SEED).warnings


def test_a_paired_gain_is_surer_than_two_estimates(tiny, logs):
    gain = estimate_gain(other_scores(tiny), logs[0], tiny, rng=SEED)
    apart = np.hypot(gain.new.high - gain.new.low, gain.logged.high - gain.logged.low)
    assert gain.high - gain.low < 0.9 * apart
    scores = tiny.features[:, 0]
    none = estimate_gain(scores, logs[0], tiny, rng=SEED)
    assert (none.value, none.low, none.high) == pytest.approx((0, 0, 0), abs=1e-12)
    named = estimate_gain(scores, logs[0], tiny, logging=other_scores(tiny), rng=SEED)
    assert named.logged.value == gain.new.value


# -- twins and the same thing twice ---------------------------------------------------------------


def twin(estimator, scores, log, dataset, metric, clip, model):
    """The formulas, as loops."""
    worth = rank_values(metric, item_ranks(scores, dataset))
    top = bottom = 0.0
    if estimator == "dr":
        for query in np.unique(log.query):
            n = len(np.unique(log.session[log.query == query]))
            for item in range(dataset.query_sizes[query]):
                row = dataset.offsets[query] + item
                mine = (log.query == query) & (log.item == item)
                clicks, seen = log.clicks[mine].sum(), log.propensity[mine].sum()
                below = max(seen, clip * n)
                correction = (clicks - seen * model[row]) / below if below else 0
                top += n * worth[row] * (model[row] + correction)
        return top / log.n_sessions
    for query, item, p, count in zip(log.query, log.item, log.propensity, log.clicks, strict=True):
        p_used = max(p, clip) if estimator == "clipped" else p
        top += count * worth[dataset.offsets[query] + item] / p_used
        bottom += count / p
    if estimator == "beta-ips":
        y, x = np.zeros((2, int(log.n_sessions)))
        for row, (session, weight) in enumerate(zip(log.session, log.weights, strict=True)):
            y[session] += weight * worth[dataset.offsets[log.query[row]] + log.item[row]]
            x[session] += weight
        (_, between), (_, spread) = np.cov(y, x)
        return y.mean() - between / spread * (x.mean() - CONTROL)
    return top / (bottom if estimator == "snips" else log.n_sessions)


CONTROL = 1.7


@pytest.mark.parametrize("metric", ["dcg@10", "precision@3", "arp"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_it_is_its_formula(tiny, estimator, metric, rng):
    log = shown_log(tiny, 150, SEED, top=4)
    scores, model = rng.normal(size=tiny.n_items), rng.random(tiny.n_items)
    extra = {"baseline": model} if estimator == "dr" else {}
    extra |= {"clip": 0.3} if estimator in {"dr", "clipped"} else {}
    extra |= {"control": CONTROL} if estimator == "beta-ips" else {}
    found = estimate(scores, log, tiny, metric=metric, estimator=estimator, rng=0, **extra)
    expected = twin(estimator, scores, log, tiny, metric, 0.3, model)
    assert found.value == pytest.approx(expected, rel=1e-10)
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_counts_say_the_same_as_sessions(tiny, logs, estimator):
    scores = other_scores(tiny)
    options = {"baseline": np.full(tiny.n_items, 0.3)} if estimator == "dr" else {}
    options |= {"control": logs[0]} if estimator == "beta-ips" else {}
    by_session = estimate(scores, logs[0], tiny, estimator=estimator, rng=0, **options)
    by_count = estimate(scores, added(logs[0]), tiny, estimator=estimator, rng=0, **options)
    assert by_count.value == pytest.approx(by_session.value, rel=1e-10)
    assert by_count.effective_clicks == pytest.approx(by_session.effective_clicks, rel=1e-10)
    assert (by_session.resampled, by_count.resampled) == ("sessions", "queries")


def test_what_a_value_is_per(tiny, logs):
    scores, log = other_scores(tiny), logs[0]
    found = estimate(scores, log, tiny, rng=0)
    sessions = log.session[log.clicks > 0]
    known = clicks_alone(log, session=sessions, n_sessions=log.n_sessions)
    bare = clicks_alone(log, n_sessions=log.n_sessions)
    for other, resampled in ((known, "sessions"), (bare, "queries")):
        again = estimate(scores, other, tiny, rng=0)
        assert (again.per, again.n_sessions, again.resampled) == ("session", N_SESSIONS, resampled)
        assert again.value == pytest.approx(found.value, rel=1e-12)
    by_click = estimate(scores, clicks_alone(log), tiny, rng=0)
    assert (by_click.per, by_click.n_sessions) == ("click", None)
    assert by_click.value * log.n_clicks == pytest.approx(found.value * N_SESSIONS, rel=1e-12)
    by_item = estimate(scores, clicks_alone(log), tiny, estimator="snips", rng=0)
    assert (by_item.per, by_item.value <= 1) == ("relevant item", True)
    assert str(found).startswith("dcg@10 is ")
    assert "bootstrap over sessions" in str(found)


# -- the bootstrap --------------------------------------------------------------------------------


def test_the_interval_is_that_of_sessions_drawn_again(tiny, logs):
    """The ordinary bootstrap, written out."""
    scores, log = other_scores(tiny), logs[0]
    found = estimate(scores, log, tiny, n_bootstrap=4000, rng=SEED)
    worth = rank_values("dcg@10", item_ranks(scores, tiny))[tiny.offsets[log.query] + log.item]
    sums = np.bincount(log.session, log.weights * worth, N_SESSIONS)
    again = np.random.default_rng([SEED, 1])
    means = [again.choice(sums, N_SESSIONS).mean() for _ in range(4000)]
    low, high = np.percentile(means, [2.5, 97.5])
    assert found.value == pytest.approx(sums.mean(), rel=1e-12)
    assert found.low == pytest.approx(low, abs=0.08 * (high - low))
    assert found.high == pytest.approx(high, abs=0.08 * (high - low))


@pytest.mark.parametrize("n", [100, 5 * MAX_GROUPS])
def test_the_spread_is_that_of_the_delta_method(n, rng):
    top, bottom = rng.exponential(size=n), rng.uniform(0.5, 1.5, size=n)
    n_empty = n / 2
    columns, empty = np.column_stack([bottom, top]), np.array([1.0, 0.0])
    below, above = resample(columns, empty, n_empty, n_bootstrap=2000, rng=rng).T
    drawn = above / below
    ratio = top.sum() / (bottom.sum() + n_empty)
    variance = ((top - ratio * bottom) ** 2).sum() + n_empty * ratio**2
    assert drawn.std() == pytest.approx(np.sqrt(variance) / (bottom.sum() + n_empty), rel=0.08)
    assert drawn.mean() == pytest.approx(ratio, rel=0.02)


# -- warnings and errors --------------------------------------------------------------------------


def test_thin_support_is_told(tiny):
    log = clicks_alone(shown_log(tiny, 40, SEED))
    found = estimate(other_scores(tiny), log, tiny, rng=0)
    assert found.effective_clicks < 100
    assert any(
        told.startswith("few effective clicks: the value depends on") for told in found.warnings
    )
    assert any("queries: the interval is rough" in told for told in found.warnings)


def test_effective_clicks_by_hand():
    log = ClickLog(query=[0, 0, 1], item=[0, 1, 0], propensity=[1.0, 0.5, 0.25], count=[2, 1, 0])
    found = estimate([3, 2, 1, 3, 2, 1], log, SMALL, metric="precision@2", rng=0)
    # weights of 1/2, 1/2 (a row of two clicks) and 1
    assert found.effective_clicks == pytest.approx(2**2 / (1 / 4 + 1 / 4 + 1))


CLICKS = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.5])


class Slow:
    def predict(self, _features):
        raise AssertionError("scores were computed before the arguments were checked")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "ndcg@10"}, "'ndcg@10' cannot be estimated from clicks"),
        ({"metric": "precision"}, "'precision' cannot be estimated"),
        ({"metric": "best"}, "metric 'best' is not known"),
        ({"estimator": "dm"}, "estimator is 'dm', expected one of ips"),
        ({"clip": 0.1}, "'ips' takes no clip"),
        ({"clip": 2, "estimator": "clipped"}, "clip is 2, expected a number above 0 and at most 1"),
        ({"baseline": np.zeros(6)}, "'ips' takes no baseline"),
        ({"estimator": "dr"}, "the log has no impressions"),
        ({"control": 2.0}, "'ips' takes no control, expected 'beta-ips'"),
        ({"estimator": "beta-ips"}, "needs control, the mean of Σ 1/p per click or a longer log"),
        ({"estimator": "beta-ips", "control": 0}, "control is 0, expected a number above 0"),
        (
            {"estimator": "beta-ips", "control": ClickLog([0], [0], [1.0], n_sessions=9)},
            "control log is counted per session and the log itself per click",
        ),
    ],
)
def test_bad_arguments_are_rejected_before_the_ranker_scores(options, message):
    for function in (estimate, estimate_gain):
        with pytest.raises((ParameterError, DataError), match=message):
            function(Slow(), CLICKS, SMALL, **options)
