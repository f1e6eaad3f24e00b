"""The model of relevance behind the doubly robust estimate."""

import numpy as np
import pytest
from conftest import SEED
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import Ridge

from countersample import ClickLog, PositionBias, RankingDataset, synthetic
from countersample.clicks import simulate_impressions
from countersample.errors import DataError
from countersample.evaluation import relevance_model
from countersample.evaluation.doubly_robust import exposure


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


def test_it_is_a_rising_function_of_a_ridge_regression_on_the_other_queries(tiny, log):
    """The same by scikit-learn, for the queries of each part in turn.

    But for items next to a step of the function, which rounding may put on its other side.
    """
    found = relevance_model(log, tiny, rng=np.random.default_rng(SEED))
    part = np.random.default_rng(SEED).permutation(tiny.n_queries) % 5
    part = np.repeat(part, tiny.query_sizes)
    scaled = (tiny.features - tiny.features.mean(axis=0)) / tiny.features.std(axis=0)
    seen, clicks = exposure(log, tiny)
    for k in range(5):
        rows = (part != k) & (seen > 0)
        model = Ridge(alpha=tiny.n_features)
        model.fit(scaled[rows], clicks[rows] / seen[rows], sample_weight=seen[rows])
        rates = clicks[rows] / seen[rows]
        rising = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        rising.fit(model.predict(scaled[rows]), rates, sample_weight=seen[rows])
        expected = rising.predict(model.predict(scaled[part == k]))
        assert np.quantile(abs(found[part == k] - expected), 0.98) < 1e-4


def test_no_item_is_judged_by_its_own_clicks(tiny, log):
    query = int(log.query[0])
    changed = log.clicks.copy()
    changed[log.query == query] = 1
    other = ClickLog(log.query, log.item, log.propensity, changed, impressions=log.impressions)
    a, b = (relevance_model(each, tiny, rng=np.random.default_rng(SEED)) for each in (log, other))
    rows = slice(tiny.offsets[query], tiny.offsets[query + 1])
    np.testing.assert_allclose(a[rows], b[rows], rtol=1e-9)
    assert abs(a - b).max() > 1e-4


def test_it_knows_more_than_nothing(tiny, log):
    relevance = np.where(tiny.labels >= 3, 1.0, 0.1)
    found = relevance_model(log, tiny, rng=np.random.default_rng(SEED))
    assert np.corrcoef(found, relevance)[0, 1] > 0.1
    assert found.mean() == pytest.approx(relevance.mean(), rel=0.25)


def test_a_constant_feature_and_a_single_query():
    data = RankingDataset.from_arrays(
        X=[[1.0, 5.0], [2.0, 5.0], [1.0, 5.0], [3.0, 5.0]], y=[0, 0, 0, 0], qid=[1, 1, 2, 2]
    )
    two = ClickLog([0, 0, 1], [0, 1, 0], [1, 0.5, 1], [1, 0, 1], impressions=[2, 2, 3])
    found = relevance_model(two, data, rng=np.random.default_rng(0))
    assert ((found >= 0) & (found <= 1)).all()
    one = two.of_queries([0])
    assert relevance_model(one, data, rng=np.random.default_rng(0)).tolist() == [0, 0, 0, 0]


def test_it_needs_impressions(tiny):
    with pytest.raises(DataError, match="the log has no impressions, expected a row"):
        relevance_model(ClickLog.from_labels(tiny), tiny, rng=np.random.default_rng(0))
