"""How far to clip weights: a little bias for less variance, by their estimated sum."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.log import ClickLog
from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_MOST = 200  # propensities tried


@dataclass(frozen=True)
class ClipChoice:
    """The choice of `choose_clip`, with all that were tried.

    Attributes
    ----------
    min_propensity : float
        For `ClickLog.clip` and `Propensities.clip`.
    is_clipping : bool
        Whether that changes any weight.
    candidates : tuple of (min_propensity, squared bias, variance)
        Of the weighted mean over clicks; the first does not clip.
    sentence : str
        The choice, in words.
    """

    min_propensity: float
    is_clipping: bool
    candidates: tuple[tuple[float, float, float], ...]
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def choose_clip(log: ClickLog | ArrayLike, *, values: ArrayLike | None = None) -> ClipChoice:
    """Choose the clipping τ with the least estimated mean squared error, bias² + variance, where ::

        v^τ = min(1/p, 1/τ)
        variance(τ) = Σ (v^τ·f)² / N²
        bias²(τ)    = max(0, (Σ (v − v^τ)·f)² − Σ ((v − v^τ)·f)²) / N²

    Sums are over the N clicks. What is estimated is the weighted mean (1/N)·Σ v·f over clicks, for
    which clicks are taken to come independently, so that a sum over them has the variance Σ (v·f)².
    The square of the estimated bias is too large by its own variance, which is therefore taken off.
    Bias stays and variance goes as 1/N, so long logs are clipped less, or not at all.

    Parameters
    ----------
    log : ClickLog, or array-like of propensities, one a click
    values : array-like (n_rows,), optional
        f, what a click is worth, as 1/rank; 1 by default, as for the mean weight.

    Examples
    --------
    >>> from countersample.propensity import choose_clip
    >>> choice = choose_clip([1.0] * 50 + [0.001])
    >>> choice.is_clipping, choice.min_propensity
    (True, 1.0)
    >>> choose_clip([1.0] * 50 + [0.5] * 50).is_clipping
    False
    """  # noqa: D400 (the formula is the summary)
    if not isinstance(log, ClickLog):
        propensity = np.asarray(log, np.float64)
        nowhere = np.zeros(propensity.shape, np.int64)
        log = ClickLog(query=nowhere, item=nowhere, propensity=propensity)
    worth = np.ones(log.n_rows) if values is None else np.asarray(values, np.float64)
    if worth.shape != (log.n_rows,) or not np.isfinite(worth).all():
        raise DataError(
            f"values have shape {worth.shape}, expected a finite number for each of {log.n_rows} "
            "rows of the log"
        )
    clicked = log.clicks > 0
    propensity, worth, clicks = log.propensity[clicked], worth[clicked], log.clicks[clicked]
    levels = np.unique(propensity)
    if len(levels) > _MOST:
        levels = np.quantile(levels, np.linspace(0, 1, _MOST))
    candidates = tuple(
        (float(level), *_errors(propensity, worth, clicks, float(level))) for level in levels
    )
    best = min(candidates, key=lambda candidate: candidate[1] + candidate[2])
    is_clipping = best[0] > candidates[0][0]
    return ClipChoice(best[0], is_clipping, candidates, _sentence(best, candidates[0]))


def _errors(propensity: Floats, worth: Floats, clicks: Floats, level: float) -> tuple[float, float]:
    """Return bias² and variance."""
    clipped = worth / np.maximum(propensity, level)
    lost = worth / propensity - clipped
    squared_bias = max(0.0, float((clicks @ lost) ** 2 - clicks @ lost**2))
    n_squared = float(clicks.sum()) ** 2
    return squared_bias / n_squared, float(clicks @ clipped**2) / n_squared


def _sentence(best: tuple[float, float, float], plain: tuple[float, float, float]) -> str:
    if best[0] == plain[0]:
        return "No clipping: any would add more bias than it takes away variance."
    saved = 1 - (best[1] + best[2]) / plain[2]
    return (
        f"Clip propensities at {best[0]:.3g}, which is estimated to take away {saved:.0%} of the "
        "mean squared error of the weighted mean."
    )
