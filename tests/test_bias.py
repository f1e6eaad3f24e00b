"""Position-bias curves: one suite over all that the package has, and each by its formula."""

import numpy as np
import pytest

from countersample import clicks, propensity
from countersample.clicks import PositionBias, TableBias, simulate_clicks
from countersample.clicks.impressions import PositionCounts, join_features
from countersample.data import RankingDataset
from countersample.errors import CounterSampleError, ParameterError
from countersample.propensity import Propensities

# An example of each class that is a position-bias curve; one without an example fails.
EXAMPLES = {
    PositionBias: PositionBias(gamma=0.5),
    TableBias: TableBias([1.0, 0.6, 0.3]),
    Propensities: Propensities([1, 0.6, 0.3], [1, 0.5, 0.2], [1, 0.7, 0.4], [9, 9, 9], "em"),
}
CURVES = [
    found
    for module in (clicks, propensity)
    for found in map(vars(module).get, module.__all__)
    if hasattr(found, "propensity") and found is not clicks.PositionBiasCurve
]


@pytest.mark.parametrize("kind", CURVES)
class TestConformance:
    def test_propensities_are_probabilities_of_the_shape_of_the_ranks(self, kind):
        curve = EXAMPLES[kind]
        for ranks in (1, [1, 2, 3], [[3, 1], [2, 2]]):
            found = curve.propensity(ranks)
            assert found.shape == np.shape(ranks)
            assert found.dtype == np.float64
            assert ((found > 0) & (found <= 1)).all()

    @pytest.mark.parametrize("ranks", [0, [1, 0], [np.nan]])
    def test_ranks_count_from_one(self, kind, ranks):
        with pytest.raises(CounterSampleError, match="from 1"):
            EXAMPLES[kind].propensity(ranks)

    def test_it_can_be_given_as_bias_and_as_propensities(self, kind):
        curve = EXAMPLES[kind]
        data = RankingDataset.from_arrays(X=np.zeros((3, 1)), y=[4, 4, 4], qid=[0] * 3)
        expected = curve.propensity([1, 2, 3])
        log = simulate_clicks(data, [3, 2, 1], 50, bias=curve, rng=0)
        np.testing.assert_array_equal(log.propensity, expected[log.item])
        counts = PositionCounts.from_columns([0] * 3, [0, 1, 2], [1, 2, 3], [1, 1, 1])
        joined, _ = join_features(counts, curve, data)
        np.testing.assert_array_equal(joined.propensity, expected)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.75, 1.0, 1.5])
@pytest.mark.parametrize("offset", [0, 1])
def test_the_power_law_is_its_formula(gamma, offset):
    ranks = np.arange(1, 140)
    expected = [(1 / (rank + offset)) ** gamma for rank in ranks.tolist()]
    np.testing.assert_allclose(PositionBias(gamma, offset).propensity(ranks), expected, rtol=1e-14)


def test_the_defaults_are_the_equation_of_the_paper():
    assert PositionBias() == PositionBias(gamma=1.0, offset=0)
    np.testing.assert_array_equal(PositionBias().propensity([1, 2, 4]), [1, 1 / 2, 1 / 4])


def test_the_shifted_law_gives_the_papers_table():
    # M on Yahoo, whose longest list has 139 items, as printed: 40.70 at gamma = 0.75.
    largest = 1 / PositionBias(gamma=0.75, offset=1).propensity(139)
    assert round(float(largest), 2) == 40.70 == round(140**0.75, 2)


def test_a_table_gives_its_entries_and_then_nothing():
    bias = TableBias([1.0, 0.6, 0.3])
    np.testing.assert_array_equal(bias.propensity([[3, 1], [4, 99]]), [[0.3, 1.0], [0.0, 0.0]])
    assert bias == TableBias(np.array([1.0, 0.6, 0.3]))
    assert hash(bias) == hash(TableBias((1.0, 0.6, 0.3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": -0.1}, "gamma is -0.1"),
        ({"gamma": np.nan}, "gamma is nan"),
        ({"gamma": np.inf}, "gamma is inf"),
        ({"offset": -1}, "offset is -1"),
        ({"offset": np.nan}, "offset is nan"),
    ],
)
def test_a_power_law_that_is_none_is_refused(options, message):
    with pytest.raises(ParameterError, match=f"{message}, expected a number of at least 0"):
        PositionBias(**options)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], r"has shape \(0,\)"),
        (0.5, r"has shape \(\)"),
        ([[0.5]], r"has shape \(1, 1\)"),
        ([1.0, 1.1], "1.1 at rank 2"),
        ([1.0, 0.5, -0.1], "-0.1 at rank 3"),
        ([np.nan], "nan at rank 1"),
        (["high", "low"], "must be numbers"),
    ],
)
def test_a_table_that_is_none_is_refused(table, message):
    with pytest.raises(ParameterError, match=message):
        TableBias(table)
