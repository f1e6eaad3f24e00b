"""A ranker from a log with so many items that those without a click are counted together."""

from functools import partialmethod

import numpy as np
import pytest
from conftest import SEED
from shops import make, opened

from countersample import PositionBias
from countersample.clicks.impressions import Impressions
from countersample.errors import DataError
from countersample.fitting import fit_from_impressions
from countersample.options import EvaluationOptions


@pytest.fixture(scope="module")
def shop():
    return make(SEED, sessions=1500)


def fitted(shop, estimator):
    return fit_from_impressions(
        *opened(*shop),
        propensities=PositionBias(1.0),
        seed=SEED,
        evaluation=EvaluationOptions(estimator=estimator),
    )


def test_the_gain_that_clicks_tell_is_the_same(shop, monkeypatch):
    every = fitted(shop, "ips")
    monkeypatch.setattr(Impressions, "check", partialmethod(Impressions.check, most_groups=0))
    large = fitted(shop, "auto")
    assert large.check.counts.rest is not None
    assert (large.estimator.name, large.join.n_joined) == ("ips", every.join.n_joined)
    assert "too large to tell each item without a click" in large.estimator.reason
    assert any("those without a click are counted together" in text for text in large.warnings)
    assert large.gain.new.never_shown is None
    assert not any("never shown" in text for text in large.warnings)
    assert large.check.counts.n_impressions == every.check.counts.n_impressions
    np.testing.assert_allclose(large.gain.logged.value, every.gain.logged.value, rtol=1e-9)
    np.testing.assert_allclose(large.weights.mean_weight, every.weights.mean_weight, rtol=1e-9)
    with pytest.raises(DataError, match="estimator 'dr' needs each item that was shown"):
        fitted(shop, "dr")
