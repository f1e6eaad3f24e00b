"""The mean corrected by known means: β* by enumeration, by the paper, by least squares."""

from itertools import product

import numpy as np
import pytest
from conftest import SEED
from test_estimators import other_scores, relevance_of, shown_log, truth

from countersample import ClickLog, PositionBias, RankingDataset, simulate_clicks, synthetic
from countersample.evaluation import HeldOut, estimate
from countersample.evaluation.bootstrap import Clusters
from countersample.evaluation.control_variates import (
    Controls,
    best_beta,
    control_moments,
    controlled_mean,
    outcome_moments,
)
from countersample.evaluation.holdout import MIN_QUERIES_FOR_BETA
from countersample.metrics import item_ranks, rank_values


def moments(n, y, x, often=None):
    """The sums over clusters, each of which is there so often."""
    n, y, x = (np.asarray(column, float) for column in (n, y, x))
    x = x.reshape(len(n), -1)
    often = np.ones(len(n)) if often is None else often
    return often @ control_moments(n, x), often @ outcome_moments(y, n, x)


# -- by enumeration --------------------------------------------------------------------------------

# A session has one of two relevant items, at propensities of 1 and 1/4 and with rewards of λ.
OUTCOMES = [  # probability, y = Σ λ/p, x = Σ 1/p
    (0.5 * 1.0, 0.9 / 1.0, 1 / 1.0),
    (0.5 * 0.25, 0.3 / 0.25, 1 / 0.25),
    (0.5 * 0.75, 0.0, 0.0),
]
VALUE, MEAN = 0.5 * 0.9 + 0.5 * 0.3, 1.0


def exact(of, n_sessions=4):
    """Return bias, variance and mean squared error of of(y, x), over all logs."""
    found = []
    for log in product(OUTCOMES, repeat=n_sessions):
        likely, y, x = np.array(log).T
        found.append((likely.prod(), of(y, x)))
    likely, values = np.array(found).T
    mean = likely @ values
    return mean - VALUE, likely @ (values - mean) ** 2, likely @ (values - VALUE) ** 2


def best_of_outcomes():
    often, y, x = np.array(OUTCOMES).T
    return float(best_beta(*moments(np.ones(3), y, x, often))[0])


def test_any_fixed_beta_is_unbiased_and_the_best_is_best():
    def of(beta):
        return lambda y, x: y.mean() - beta * (x.mean() - MEAN)

    best = best_of_outcomes()
    variances = {}
    for beta in (best - 0.2, best - 0.01, best, best + 0.01, best + 0.2, 0.0, VALUE / MEAN):
        bias, variances[beta], _ = exact(of(beta))
        assert bias == pytest.approx(0, abs=1e-12)
    assert min(variances, key=variances.get) == best
    # A parabola around it, as high as the variance of x: Var(x̄)·(β − β*)².
    often, _, x = np.array(OUTCOMES).T
    spread = (often @ x**2 - (often @ x) ** 2) / 4
    for beta, variance in variances.items():
        expected = variances[best] + spread * (beta - best) ** 2
        assert variance == pytest.approx(expected, rel=1e-9)


def test_it_is_the_baseline_of_the_paper():
    """E[(w² − w)·r] / E[w² − w], of Gupta et al. (RecSys 2024), for weights of mean 1."""
    often, y, w = np.array(OUTCOMES).T
    assert often @ w == 1
    r = np.divide(y, w, out=np.zeros(3), where=w > 0)
    paper = (often @ ((w**2 - w) * r)) / (often @ (w**2 - w))
    assert best_of_outcomes() == pytest.approx(paper, rel=1e-12)


def test_a_search_for_one_thing_is_their_bandit(rng):
    """One relevant item a session: V = β + mean of w·(r − β), with w = 1/p for a click, else 0."""
    n = 400
    data = RankingDataset.from_arrays(X=np.arange(2)[:, None], y=[0, 0], qid=["a", "a"])
    wanted = rng.integers(2, size=n)
    p = np.array([1.0, 0.25])[wanted]
    clicked = rng.random(n) < p
    log = ClickLog(np.zeros(clicked.sum(), int), wanted[clicked], p[clicked],
                   session=np.flatnonzero(clicked), n_sessions=n)  # fmt: skip
    found = estimate([2, 1], log, data, metric="dcg", estimator="beta-ips", control=1, rng=0)
    w, r = clicked / p, np.array([1.0, 1 / np.log2(3)])[wanted]
    beta = np.cov(w * r, w)[0, 1] / np.var(w, ddof=1)
    assert found.value == pytest.approx(beta + np.mean(w * (r - beta)), rel=1e-12)
    assert (found.per, found.resampled, found.n_sessions) == ("session", "sessions", n)
    truth = (1 + 1 / np.log2(3)) / 2
    ips = estimate([2, 1], log, data, metric="dcg", rng=0)
    assert found.high - found.low < 0.5 * (ips.high - ips.low)
    assert abs(found.value - truth) < 0.1


@pytest.mark.parametrize(("z_score", "is_doubtful"), [(3.8, False), (4.2, True)])
def test_sessions_without_a_row_count_in_the_standard_error(z_score, is_doubtful):
    """100 of 400 sessions have a click of weight 2: x̄ = 1/2, Var(x̄) = Σ(x − x̄)²/400².

    The 300 others have x = 0. Without them the standard error would be 0.0375, not 0.0433.
    """
    log = ClickLog(np.zeros(100, int), np.zeros(100, int), np.full(100, 0.5),
                   session=np.arange(100), n_sessions=400)  # fmt: skip
    standard_error = np.sqrt(100 * (2 - 0.5) ** 2 + 300 * 0.5**2) / 400
    controls = Controls.of(log, Clusters.of(log), 0.5 + z_score * standard_error)
    assert (controls.doubt is not None) == is_doubtful


# -- against least squares -------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3])
def test_it_is_least_squares(p, rng):
    for m in (p + 2, 30):
        n, x = rng.integers(1, 5, m).astype(float), rng.exponential(size=(m, p))
        y, expected = rng.exponential(size=m) + x.sum(axis=1), rng.random(p)
        mean_y, mean_x = y.sum() / n.sum(), x.sum(axis=0) / n.sum()
        e, z = y - mean_y * n, x - np.outer(n, mean_x)
        beta = np.linalg.lstsq(z, e, rcond=None)[0]
        sums = moments(n, y, x)
        np.testing.assert_allclose(best_beta(*sums), beta, rtol=1e-8, atol=1e-10)
        value = mean_y - beta @ (mean_x - expected)
        assert controlled_mean(*sums, expected) == pytest.approx(value, rel=1e-8)


# -- as an estimator -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    return synthetic("tiny", rng=SEED)


@pytest.fixture(scope="module")
def logs(tiny):
    return [shown_log(tiny, 300, seed) for seed in range(SEED, SEED + 300)]


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_the_interval_covers_the_truth_and_is_short(tiny, logs, known):
    """Where X is known, and where a log of three times as many sessions tells it."""
    scores = other_scores(tiny)
    expected = truth(tiny, scores)
    mean = relevance_of(tiny).sum() / tiny.n_queries
    covered, widths, errors = [], [], []
    for k, log in enumerate(logs):
        control = mean
        if not known:
            control = ClickLog.concat([log, logs[k - 1], logs[k - 2]])
        found = estimate(scores, log, tiny, estimator="beta-ips", control=control,
                         n_bootstrap=200, rng=k)  # fmt: skip
        ips = estimate(scores, log, tiny, n_bootstrap=200, rng=k)
        snips = estimate(scores, log, tiny, estimator="snips", n_bootstrap=1, rng=k).value
        covered.append(found.low <= expected <= found.high)
        widths.append((found.high - found.low) / (ips.high - ips.low))
        errors.append([found.value - expected, snips * mean - expected, ips.value - expected])
    assert 0.90 <= np.mean(covered) <= 0.98
    assert np.mean(widths) < (0.65 if known else 0.85)
    of_beta, of_snips, of_ips = (np.array(errors) ** 2).mean(axis=0)
    assert of_beta < (0.4 if known else 0.75) * of_ips
    if known:
        assert of_beta < 1.1 * of_snips  # 0.97, and what β* costs


def test_a_control_that_cannot_be_of_the_same_sessions_is_doubted(tiny, logs):
    log, scores = logs[0], other_scores(tiny)
    mean = log.weights.sum() / log.n_sessions
    x = np.bincount(log.session, log.weights, int(log.n_sessions))
    error = x.std() / np.sqrt(log.n_sessions)
    options = {"estimator": "beta-ips", "rng": 0, "n_bootstrap": 1}
    for apart, doubted in ((3.9, False), (4.1, True), (-4.1, True)):
        found = estimate(scores, log, tiny, control=mean + apart * error, **options)
        assert any("4 standard errors apart" in told for told in found.warnings) == doubted

    def doubts(control):
        found = estimate(scores, log, tiny, control=control, **options)
        return [told for told in found.warnings if "hardly the same kind of sessions" in told]

    longer = ClickLog.concat(logs[:20])
    assert not doubts(longer)
    assert doubts(longer.replace(propensity=np.minimum(1, 2 * longer.propensity)))


# -- candidates judged by a part of the queries ----------------------------------------------------


@pytest.fixture(scope="module")
def many():
    return synthetic("tiny", n_queries=3000, rng=SEED)


@pytest.fixture(scope="module")
def log(many):
    return simulate_clicks(many, many.features[:, 0], 24_000, bias=PositionBias(1.0), rng=SEED)


def part_of(many, log, seed, *candidates):
    held_out = HeldOut(many, log, "dcg@10", least_queries=1, rng=np.random.default_rng(seed))
    (fold,) = held_out.folds
    query = np.repeat(np.arange(many.n_queries), many.query_sizes)
    rows = np.isin(query, fold.queries)
    return held_out, [held_out.sums([scores[rows]]) for scores in candidates]


def by_query(many, log, scores):
    worth = rank_values("dcg@10", item_ranks(scores, many))[many.offsets[log.query] + log.item]
    columns = (worth * log.weights, log.weights, log.clicks)
    return [np.bincount(log.query, column, many.n_queries) for column in columns]


def test_its_value_is_beta_ips_with_the_whole_log_as_control(many, log):
    scores = other_scores(many)
    scores += 1e-9 * np.random.default_rng(SEED).random(many.n_items)  # no ties
    held_out, (sums,) = part_of(many, log, SEED, scores)
    (fold,) = held_out.folds
    y, x, c = by_query(many, log, scores)
    clicked, judges = np.unique(log.query), fold.queries
    assert len(judges) == held_out.n_queries == -(-len(clicked) // 5) >= MIN_QUERIES_FOR_BETA
    known = np.column_stack([x, c])
    z = known[judges] - known[judges].mean(axis=0)
    beta = np.linalg.lstsq(z, y[judges] - y[judges].mean(), rcond=None)[0]
    means = known[clicked].mean(axis=0)
    value = y[judges].mean() - beta @ (known[judges].mean(axis=0) - means)
    assert held_out.value(sums) == pytest.approx(value / means[0], rel=1e-9)


def test_the_error_of_a_difference_is_that_of_the_bootstrap(many, log):
    held_out, (a, b) = part_of(many, log, SEED, other_scores(many), many.features[:, 0])
    difference = held_out.value(a) - held_out.value(b)
    assert held_out.value(a - b) == pytest.approx(difference, rel=1e-9)  # β* is linear in y
    low, high = held_out.intervals((a - b)[None], np.random.default_rng(SEED))[0]
    error = difference / held_out.z_score(a, b)
    assert error == pytest.approx((high - low) / 2 / 1.96, rel=0.25)
    assert held_out.z_score(b, a) == pytest.approx(-held_out.z_score(a, b), rel=1e-9)
    assert held_out.z_score(a, a) == 0
