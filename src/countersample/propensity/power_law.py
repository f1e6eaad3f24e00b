"""A power law for all positions, from the estimates of some: `estimate_gamma`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import number
from countersample.clicks.bias import PositionBias
from countersample.errors import DataError
from countersample.options import CONFIDENCE
from countersample.propensity.estimation import resample

if TYPE_CHECKING:
    from countersample._arrays import Floats
    from countersample.clicks.impressions import PositionCounts


@dataclass(frozen=True)
class PowerLaw:
    """P(examine k) ∝ (1 / (k + offset))^gamma, with an interval of gamma.

    Attributes
    ----------
    gamma, low, high : float
        How steep it is, and the ends of its interval.
    offset : int
    method : str
        The estimator whose curve the law was fitted to.
    confidence : float
    is_within : bool
        Whether the law is within the interval of every position of that curve.
    notes : tuple of str
    """

    gamma: float
    low: float
    high: float
    offset: int
    method: str
    confidence: float
    is_within: bool
    notes: tuple[str, ...]

    @property
    def bias(self) -> PositionBias:
        """The law, to be given as ``bias=``: it has a propensity for every position."""
        if self.gamma < 0:
            raise DataError(
                f"gamma is {self.gamma:.3g}: users would examine more the lower the position, "
                "expected at least 0: take the curve itself"
            )
        return PositionBias(gamma=self.gamma, offset=self.offset)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"notes": list(self.notes)}


def estimate_gamma(
    counts: PositionCounts,
    *,
    method: str = "auto",
    offset: int = 0,
    n_bootstrap: int = 200,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator | int | None = None,
    **options: Any,  # noqa: ANN401 (those of estimate)
) -> PowerLaw:
    """γ = Σ_k u_k·x_k·y_k / Σ_k u_k·x_k², the least squares of y on x through 0, where ::

        y_k = −log(p_k / p_reference)       x_k = log((k + offset) / (reference + offset))

    p is the curve of any estimator and u_k = 1/variance of log p_k over resampled logs. The
    interval has the quantiles of gamma over the same resampled logs.

    Parameters
    ----------
    counts : PositionCounts
    method : str
        Any of `estimate`.
    offset : int
        As in `PositionBias`: 0 is the equation of the paper, 1 the curve of its authors' code.
    n_bootstrap, confidence, rng, **options
        As in `estimate`.

    Examples
    --------
    An item was clicked 60, 30 and 20 times of 100 at positions 1, 2 and 3: 1/k.

    >>> from countersample.clicks.impressions import PositionCounts
    >>> from countersample.propensity import estimate_gamma
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a"] * 3 + ["b"] * 3, item_id=[7] * 6, position=[1, 2, 3] * 2,
    ...     click=[60, 30, 20] * 2, impressions=[100] * 6,
    ... )
    >>> law = estimate_gamma(counts, method="all-pairs", rng=0)
    >>> round(law.gamma, 6), law.is_within
    (1.0, True)
    """  # noqa: D400 (the formula is the summary)
    number("offset", offset, least=0)
    drawn, resamples = resample(
        counts, method=method, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng, **options
    )
    reference = options.get("reference", 1)
    x = np.log((drawn.position + offset) / (reference + offset))
    with np.errstate(divide="ignore"):
        logs = np.log(resamples)
    logs = logs[np.isfinite(logs).all(axis=1)]  # without those that had no click at a position
    if len(logs) < n_bootstrap / 2:
        raise DataError(
            f"{n_bootstrap - len(logs)} of {n_bootstrap} resamples have no click at some position, "
            "too many for a law: take a longer log"
        )
    spread = logs.var(axis=0)
    spread[reference - 1] = 1.0  # x is 0 there
    weights = 1 / np.maximum(spread, 1e-12)
    slopes = _slope(x, -logs, weights)
    gamma = float(_slope(x, -np.log(drawn.value), weights))
    tail = (1 - confidence) / 2
    low, high = np.quantile(slopes, [tail, 1 - tail])
    law = np.exp(-gamma * x)
    near = 1e-9  # rounding, where an interval is a point
    is_within = (law >= drawn.low * (1 - near)) & (law <= drawn.high * (1 + near))
    return PowerLaw(
        gamma=gamma,
        low=min(float(low), gamma),
        high=max(float(high), gamma),
        offset=offset,
        method=drawn.method,
        confidence=confidence,
        is_within=bool(is_within.all()),
        notes=drawn.notes,
    )


def _slope(x: Floats, y: Floats, weights: Floats) -> Floats:
    slope: Floats = (y * weights * x).sum(axis=-1) / (weights * x**2).sum()
    return slope
