"""The verdict on how weights grow with the position bias."""

import numpy as np
import pytest

from countersample.study.weights import weights_verdicts

GAMMAS = (0.5, 0.75, 1.0, 1.25, 1.5)


def flat(ratios):
    """Weights with M̄ = 2 and these M/M̄ by γ, under both curves."""
    return {
        ("tiny", offset, gamma): np.array([(2.0, 2.0 * ratio)] * 2)
        for offset in (0, 1)
        for gamma, ratio in zip(GAMMAS, ratios, strict=True)
    }


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ((2, 3, 4, 5, 6), "confirmed"),
        ((2, 3, 2, 5, 6), "in part"),
        ((0.9, 0.8, 0.7, 0.6, 0.5), "not confirmed"),
    ],
)
def test_growth(ratios, outcome):
    (growth,) = weights_verdicts(flat(ratios))
    assert growth.outcome == outcome
    assert f"from {ratios[0]} at γ = 0.5 to {ratios[-1]} at γ = 1.5" in growth.evidence
