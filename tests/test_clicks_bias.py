"""Position-bias curves: one suite over all of them, and each by its formula."""

import numpy as np
import pytest

from countersample import clicks, propensity
from countersample.clicks import PositionBias, TableBias, simulate_clicks
from countersample.data import RankingDataset
from countersample.errors import CounterSampleError, ParameterError
from countersample.logs import PositionCounts, join_features
from countersample.propensity import Propensities

# An example of each class that is a position-bias curve; one without an example fails.
EXAMPLES = {
    PositionBias: PositionBias(gamma=0.5),
    TableBias: TableBias([1.0, 0.6, 0.3]),
    Propensities: Propensities([1, 0.6, 0.3], [1, 0.5, 0.2], [1, 0.7, 0.4], [9, 9, 9], "em"),
}
CURVES = [
    each
    for module in (clicks, propensity)
    for each in map(vars(module).get, module.__all__)
    if hasattr(each, "propensity") and each is not clicks.PositionBiasCurve
]


@pytest.mark.parametrize("kind", CURVES)
def test_every_curve_conforms(kind):
    curve = EXAMPLES[kind]
    for ranks in (1, [1, 2, 3], [[3, 1], [2, 2]]):
        values = curve.propensity(ranks)
        assert (values.shape, values.dtype) == (np.shape(ranks), np.float64)
        assert ((values > 0) & (values <= 1)).all()
    for ranks in (0, [1, 0], [np.nan]):
        with pytest.raises(CounterSampleError, match="from 1"):
            curve.propensity(ranks)
    # It is accepted as bias and as propensities.
    data = RankingDataset.from_arrays(X=np.zeros((3, 1)), y=[4, 4, 4], qid=[0] * 3)
    expected = curve.propensity([1, 2, 3])
    log = simulate_clicks(data, [3, 2, 1], 50, bias=curve, rng=0)
    np.testing.assert_array_equal(log.propensity, expected[log.item])
    counts = PositionCounts.from_columns([0] * 3, [0, 1, 2], [1, 2, 3], [1, 1, 1])
    joined, _ = join_features(counts, curve, data)
    np.testing.assert_array_equal(joined.propensity, expected)


@pytest.mark.parametrize(("gamma", "offset"), [(0.0, 0), (0.5, 1), (1.0, 0), (1.5, 1)])
def test_the_power_law_is_its_formula(gamma, offset):
    ranks = np.arange(1, 140)
    expected = [(1 / (rank + offset)) ** gamma for rank in ranks.tolist()]
    np.testing.assert_allclose(PositionBias(gamma, offset).propensity(ranks), expected, rtol=1e-14)
    assert PositionBias() == PositionBias(gamma=1.0, offset=0)


def test_the_shifted_law_gives_the_papers_table():
    # M on Yahoo, whose longest list has 139 items, as printed: 40.70 at gamma = 0.75.
    largest = 1 / PositionBias(gamma=0.75, offset=1).propensity(139)
    assert round(float(largest), 2) == 40.70 == round(140**0.75, 2)


def test_a_table_has_its_entries_and_then_0():
    bias = TableBias([1.0, 0.6, 0.3])
    np.testing.assert_array_equal(bias.propensity([[3, 1], [4, 99]]), [[0.3, 1.0], [0.0, 0.0]])
    assert bias == TableBias(np.array([1.0, 0.6, 0.3]))
    assert hash(bias) == hash(TableBias((1.0, 0.6, 0.3)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PositionBias(gamma=-0.1), "gamma is -0.1"),
        (lambda: PositionBias(offset=np.nan), "offset is nan"),
        (lambda: TableBias([]), r"has shape \(0,\)"),
        (lambda: TableBias([1.0, 1.1]), "1.1 at rank 2"),
        (lambda: TableBias([np.nan]), "nan at rank 1"),
        (lambda: TableBias(["high", "low"]), "must be numbers"),
    ],
)
def test_bad_curves(make, message):
    with pytest.raises(ParameterError, match=message):
        make()
