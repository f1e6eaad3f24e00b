"""The model of relevance behind the doubly robust estimate."""

import numpy as np
import pytest
from conftest import SEED

from countersample import ClickLog, PositionBias, RankingDataset, synthetic
from countersample.clicks import simulate_impressions
from countersample.evaluation import relevance_model
from countersample.evaluation.doubly_robust import PENALTIES, exposure


@pytest.fixture(scope="module")
def tiny():
    return synthetic("tiny", n_queries=200, rng=SEED)


@pytest.fixture(scope="module")
def log(tiny):
    bias = PositionBias(1.0)
    table = simulate_impressions(tiny, tiny.features[:, 0], 3000, bias=bias, top=6, rng=SEED)
    return ClickLog(
        np.searchsorted(tiny.query_ids, table["query_id"].to_numpy()),
        table["item_id"].to_numpy(),
        bias.propensity(table["position"].to_numpy()),
        table["click"].to_numpy(),
        impressions=np.ones(len(table)),
    )


def test_exposure_adds_up_by_item():
    data = RankingDataset.from_arrays(X=[[0.1], [0.9], [0.5]], y=[0, 0, 0], qid=["a", "a", "b"])
    columns = {"query": [0, 0, 0], "item": [0, 0, 1], "propensity": [1.0, 0.5, 0.5]}
    seen, clicks = exposure(ClickLog(**columns, count=[3, 0, 1], impressions=[4, 2, 4]), data)
    assert (seen.tolist(), clicks.tolist()) == ([5, 2, 0], [3, 1, 0])


def evidence(x, y, precision, alpha):
    """The density of y, up to a factor, and w: by the covariance of y as it is.

    y ~ N(b, φ·(diag(1/v) + x·xᵀ/α)), with b and φ those that make it most likely (b restricted).
    """
    covariance = np.diag(1 / precision) + x @ x.T / alpha
    inverse = np.linalg.inv(covariance)
    ones = np.ones(len(y))
    b = ones @ inverse @ y / inverse.sum()
    spread = (y - b) @ inverse @ (y - b)
    log_density = -np.linalg.slogdet(covariance)[1] - np.log(inverse.sum())
    return log_density - (len(y) - 1) * np.log(spread), x.T @ inverse @ (y - b) / alpha, b


def test_it_is_the_ridge_regression_of_highest_evidence_on_the_other_queries(tiny, log):
    """The slow twin: for the queries of each part in turn, with the covariance of all rates."""
    small = log.of_queries(np.arange(40))
    result = relevance_model(small, tiny, served=True, rng=np.random.default_rng(SEED))
    part = np.random.default_rng(SEED).permutation(tiny.n_queries) % 5
    part = np.repeat(part, tiny.query_sizes)
    scaled = (tiny.features - tiny.features.mean(axis=0)) / tiny.features.std(axis=0)
    seen, clicks = exposure(small, tiny)
    sessions = np.zeros(tiny.n_queries)
    for query in range(40):  # each session shows the item that is shown most often
        of_items = np.bincount(small.item[small.query == query], minlength=1)
        sessions[query] = of_items.max()
    n = np.repeat(sessions, tiny.query_sizes)
    rho = np.divide(seen, n, out=np.zeros(len(n)), where=n > 0)
    z = np.log(np.maximum(rho, rho[rho > 0].min()))
    z = np.where(n > 0, (z - z[n > 0].mean()) / z[n > 0].std(), 0)
    x = np.column_stack([scaled, z * np.sqrt(tiny.n_features)])
    for k in range(5):
        rows = (part != k) & (seen > 0)
        rates, precision = clicks[rows] / seen[rows], seen[rows] / (1 + seen[rows])
        tried = [evidence(x[rows], rates, precision, alpha * x.shape[1]) for alpha in PENALTIES]
        _, w, b = max(tried, key=lambda each: each[0])
        expected = np.clip(x[part == k] @ w + b, 0, 1)
        np.testing.assert_allclose(result[part == k], expected, rtol=1e-3, atol=1e-4)


def test_where_clicks_do_not_tell_it_is_a_constant(rng):
    """Clicks that know nothing of features: no more than a hundredth of them is explained."""
    n, items = 300, 8
    query, item = np.divmod(np.arange(n * items), items)
    data = RankingDataset.from_arrays(rng.normal(size=(n * items, 20)), np.zeros(n * items), query)
    clicks = rng.binomial(10, 0.3, n * items)
    log = ClickLog(query, item, np.ones(n * items), clicks, impressions=np.full(n * items, 10))
    result = relevance_model(log, data, rng=rng)
    assert result.mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / (n * items * 10)))
    assert result.var() < 0.01


def test_no_item_is_judged_by_its_own_clicks(tiny, log):
    query = int(log.query[0])
    changed = log.clicks.copy()
    changed[log.query == query] = 1
    other = ClickLog(log.query, log.item, log.propensity, changed, impressions=log.impressions)
    a, b = (relevance_model(each, tiny, rng=np.random.default_rng(SEED)) for each in (log, other))
    rows = slice(tiny.offsets[query], tiny.offsets[query + 1])
    np.testing.assert_allclose(a[rows], b[rows], rtol=1e-9)
    assert abs(a - b).max() > 1e-4
