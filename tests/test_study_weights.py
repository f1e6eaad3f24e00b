"""The tables of weights and of datasets, beside the paper's."""

import numpy as np
import pytest
from conftest import SEED
from scipy import stats

from countersample import simulate_clicks, synthetic
from countersample.clicks import PositionBias
from countersample.study.grids import load_published
from countersample.study.kinds import shapes_table
from countersample.study.weights import weights_table, weights_verdicts

GAMMAS = (0.5, 0.75, 1.0, 1.25, 1.5)


@pytest.fixture(scope="module")
def published():
    return load_published()


@pytest.fixture(scope="module")
def weights():
    """Of simulated clicks, each curve and γ three times, on two sets; the paper has no "tiny"."""
    weights = {}
    for name in ("yahoo-like", "tiny"):
        data = synthetic(name, n_queries=150, rng=SEED)
        scores = np.random.default_rng(SEED).random(data.n_items)
        for offset in (0, 1):
            for gamma in GAMMAS:
                bias = PositionBias(gamma, offset)
                logs = [simulate_clicks(data, scores, 2000, bias=bias, rng=s) for s in range(3)]
                weights[name, offset, gamma] = np.array(
                    [(log.mean_weight, log.max_weight) for log in logs]
                )
    return weights


def flat(dataset, ratios):
    """Weights with M̄ = 2 and these M/M̄ by γ, under both curves."""
    return {
        (dataset, offset, gamma): np.array([(2.0, 2.0 * ratio)] * 2)
        for offset in (0, 1)
        for gamma, ratio in zip(GAMMAS, ratios, strict=True)
    }


class TestTable:
    def test_means_intervals_and_the_papers_numbers(self, weights, published):
        table = weights_table(weights, published)
        assert table.columns == ("0.5", "0.75", "1", "1.25", "1.5")
        yahoo, tiny = table.groups
        assert [row.label for row in yahoo.rows] == [
            "M̄, (1/rank)^γ", "M, (1/rank)^γ", "M̄, (1/(rank + 1))^γ", "M, (1/(rank + 1))^γ",
        ]  # fmt: skip
        for row, (offset, quantity) in zip(
            yahoo.rows, [(0, 0), (0, 1), (1, 0), (1, 1)], strict=True
        ):
            for entry, gamma in zip(row.entries, GAMMAS, strict=True):
                sample = np.array(weights["yahoo-like", offset, gamma])[:, quantity]
                assert entry.value == pytest.approx(sample.mean())
                if sample.std():
                    low, high = stats.t.interval(0.95, 2, sample.mean(), stats.sem(sample))
                    assert entry.half_width == pytest.approx((high - low) / 2)
        assert [entry.published for entry in yahoo.rows[0].entries] == [
            3.14, 5.12, 7.92, 11.71, 16.66,
        ]  # fmt: skip
        assert yahoo.rows[3].entries[1].published == 40.70
        assert all(entry.published is None for row in tiny.rows for entry in row.entries)


class TestVerdicts:
    @pytest.mark.parametrize(
        ("ratios", "outcome"),
        [
            ((2, 3, 4, 5, 6), "confirmed"),
            ((2, 3, 2, 5, 6), "in part"),
            ((0.9, 0.8, 0.7, 0.6, 0.5), "not confirmed"),
        ],
    )
    def test_growth(self, ratios, outcome):
        (growth,) = weights_verdicts(flat("tiny", ratios))
        assert growth.outcome == outcome
        assert f"from {ratios[0]} at γ = 0.5 to {ratios[-1]} at γ = 1.5" in growth.evidence


def test_shapes(published):
    shapes = {
        "yahoo-like": {
            "queries": 200,
            "items": 4600,
            "longest": 139,
            "features": 700,
            "irrelevant": 1150,
        },
        "mine": {"queries": 2, "items": 5, "longest": 3, "features": 4, "irrelevant": 5},
    }
    table = shapes_table(shapes, published)
    paper, here = table.groups
    yahoo, mine = (row.entries for row in here.rows)
    assert [entry.value for entry in yahoo] == [200, 4600 / 200, 100 * 1150 / 4600, 139, 700]
    assert [entry.number for entry in mine] == ["2", "2.5", "100.0", "3", "4"]
    assert [row.label for row in paper.rows] == ["yahoo", "istella-s"]
    assert [entry.number for entry in paper.rows[0].entries] == ["36,251", "23", "26", "–", "–"]
