"""What is served: scores by obvious loops, plain values there and back, damage refused."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from made_rankers import KINDS, some_scorer, with_holes

from countersample.errors import DataError
from countersample.scorers import NetworkScorer, TreesScorer


def by_hand(scorer, row):
    """The score of one row, by the formula of its scorer."""
    if isinstance(scorer, TreesScorer):
        total = 0.0
        for root in scorer.roots:
            node = root
            while scorer.feature[node] >= 0:
                x = row[scorer.feature[node]]
                goes_left = (
                    scorer.missing_left[node] if np.isnan(x) else x <= scorer.threshold[node]
                )
                node = scorer.left[node] if goes_left else scorer.right[node]
            total += scorer.value[node]
        if scorer.base is None:
            return total
        missing = np.zeros(5) if scorer.base_missing is None else scorer.base_missing
        return total + float(np.where(np.isnan(row), missing, row * scorer.base).sum())
    if isinstance(scorer, NetworkScorer):
        hidden = row.astype(np.float64)
        for layer, (weight, bias) in enumerate(zip(scorer.weights, scorer.biases, strict=True)):
            hidden = weight.astype(np.float64) @ hidden + bias
            if layer < len(scorer.weights) - 1:
                hidden = np.maximum(hidden, 0)
        return hidden[0]
    return sum(float(x) * w for x, w in zip(row, scorer.weights, strict=True))


@pytest.fixture(params=[*KINDS, "boosted from a linear one"])
def scorer(request, rng):
    kind, *from_linear = request.param.split(maxsplit=1)
    result = some_scorer(kind, rng, rng.random((200, 5), np.float32))
    return replace(result, base=rng.normal(size=5)) if from_linear else result


def test_scores(scorer, rng):
    rows = rng.random((300, 5), np.float32)
    if isinstance(scorer, TreesScorer):  # rows that lie on thresholds
        inner = np.flatnonzero(scorer.feature >= 0)[:100]
        rows[np.arange(len(inner)), scorer.feature[inner]] = scorer.threshold[inner]
    expected = [by_hand(scorer, row) for row in rows]
    np.testing.assert_allclose(scorer.predict(rows), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("base", [False, True])
def test_scores_of_what_is_missing(base, rng):
    result = some_scorer("boosted", rng, rng.random((200, 5), np.float32))
    scorer = replace(result, missing_left=rng.random(len(result.feature)) < 0.5)
    if base:
        scorer = replace(scorer, base=rng.normal(size=5), base_missing=rng.normal(size=5))
    rows = with_holes(rng.random((300, 5), np.float32), rng, share=0.4)
    expected = [by_hand(scorer, row) for row in rows]
    np.testing.assert_allclose(scorer.predict(rows), expected, rtol=1e-6, atol=1e-9)
    again = TreesScorer.from_dict(json.loads(json.dumps(scorer.to_dict())))
    np.testing.assert_array_equal(again.predict(rows), scorer.predict(rows))


def test_plain_values_there_and_back(scorer, rng):
    rows = rng.random((50, 5), np.float32)
    again = type(scorer).from_dict(json.loads(json.dumps(scorer.to_dict())))
    assert again.n_features == 5
    assert (again.predict(rows) == scorer.predict(rows)).all()


@pytest.mark.parametrize("widths", [(), (6,), (6, 4), (3, 2, 5)])
def test_a_network_with_a_linear_part(widths, rng):
    shapes = [(out, into) for into, out in pairwise((5, *widths, 1))]
    scorer = NetworkScorer(
        tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes),
        tuple(rng.normal(size=out).astype(np.float32) for out, _ in shapes),
    )
    base = rng.normal(size=5)
    result = scorer.add_linear(base)
    assert [len(bias) for bias in result.biases] == [*(width + 2 for width in widths), 1]
    rows = rng.normal(size=(300, 5)).astype(np.float32)
    expected = scorer.predict(rows) + rows @ base
    np.testing.assert_allclose(result.predict(rows), expected, rtol=1e-5, atol=1e-5)


TREE = {
    "n_features": 2, "roots": [0], "feature": [1, -1, -1], "threshold": [0.5, 0, 0],
    "left": [1, 0, 0], "right": [2, 0, 0], "value": [0, 2, 7],
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"base": [1.0, 2.0, 3.0]},
        {"missing_left": [True]},
        {"base_missing": [1.0, 2.0]},
        {"base": [1.0, 2.0], "missing_left": [True, False, False]},
    ],
)
def test_shapes_that_do_not_fit(change):
    with pytest.raises(DataError, match=r"of trees has the shape .*, expected"):
        TreesScorer.from_dict(TREE | change)
