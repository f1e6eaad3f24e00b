"""Laws of position bias."""

import numpy as np
import pytest

from countersample.clicks import PositionBias, TableBias
from countersample.errors import ParameterError


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.75, 1.0, 1.5])
@pytest.mark.parametrize("offset", [0, 1])
def test_the_law_is_its_formula(gamma, offset):
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


@pytest.mark.parametrize("bias", [PositionBias(), TableBias([0.5])])
@pytest.mark.parametrize("ranks", [0, [1, 0], [np.nan]])
def test_ranks_count_from_one(bias, ranks):
    with pytest.raises(ParameterError, match="expected ranks counted from 1"):
        bias.propensity(ranks)


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
def test_a_law_that_is_none_is_refused(options, message):
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
