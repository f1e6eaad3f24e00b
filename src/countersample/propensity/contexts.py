"""Estimate one curve per context (device, layout): users examine a phone and a desktop differently.

Positions are compared within a context only. A context with too few clicks takes the pooled curve
of the others if these agree; else it is estimated down to the depth that it supports.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from countersample.defaults import CONFIDENCE
from countersample.errors import DataError
from countersample.propensity.curves import ContextPropensities, Propensities
from countersample.propensity.estimation import find_deepest, resample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.logs import PositionCounts
    from countersample.propensity.cells import QueryDraws

    _Estimate = tuple[Propensities, Floats]  # a curve, and the curves of resampled logs

_MAX_WIDTH = 4.0  # of an interval, as a factor: beyond, the context has too few clicks
_MAX_DISTANCE = 3.3  # standard errors: curves within so many of one curve agree


def estimate_by_context(
    counts: PositionCounts,
    *,
    method: str = "auto",
    **settings: Any,  # noqa: ANN401 (the other parameters of estimate)
) -> ContextPropensities:
    """Estimate P(examine k) / P(examine 1) in each context, from its own rows alone.

    If at least two contexts have curves and these agree (one curve is within 3.3 standard errors of
    each), the *pooled* curve is estimated from all of them. A context without a curve takes the
    pooled one; so does a context whose intervals are wider than a factor of 4, which keeps its
    intervals. Without a pooled curve, a context keeps its own, however wide; one that does not
    support all its positions is estimated down to the depth that it supports, or is listed in
    `unsupported` with the reason. `notes` has what was done. If no context has a curve, a
    `DataError` is raised. `estimate` explains the parameters.

    Examples
    --------
    >>> from countersample.logs import PositionCounts
    >>> from countersample.propensity import estimate_by_context
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a", "a", "b", "b"] * 2, item_id=[7] * 8, position=[1, 2] * 4,
    ...     click=[60, 30, 20, 10, 50, 10, 40, 8], impressions=[100] * 8,
    ...     context=["desktop"] * 4 + ["phone"] * 4,
    ... )
    >>> by_device = estimate_by_context(counts, method="all-pairs", rng=0)
    >>> {name: curve.value.round(6).tolist() for name, curve in by_device.curves.items()}
    {'desktop': [1.0, 0.5], 'phone': [1.0, 0.2]}
    """
    return resample_by_context(counts, method, **settings)[0]


def resample_by_context(
    counts: PositionCounts,
    method: str,
    *,
    n_bootstrap: int = 200,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator | int | None = None,
    depth: int | None = None,
    features: ArrayLike | None = None,
    draws: QueryDraws | None = None,
    **options: Any,  # noqa: ANN401 (the options of the method)
) -> tuple[ContextPropensities, dict[str, Floats]]:
    """Return the result of `estimate_by_context`, and the curves of resampled logs by context.

    These are (n_bootstrap, K) each, as in `resample`; `draws` are logs that are resampled already.
    """
    settings: dict[str, Any] = options | {
        "n_bootstrap": n_bootstrap, "confidence": confidence, "draws": draws,
        "rng": np.random.default_rng(rng),
    }  # fmt: skip
    codes = np.unique(counts.context)
    logs = {str(counts.context_ids[code]): _select_log(counts, [code], features) for code in codes}
    single: dict[str, _Estimate] = {}
    reasons: dict[str, str] = {}
    for name, (log, columns) in logs.items():
        try:
            single[name] = resample(log, method=method, depth=depth, **columns, **settings)
        except DataError as error:
            reasons[name] = str(error)
    pooled = None

    def is_wide(name: str) -> bool:
        return bool((_log_width(single[name][0]) > np.log(_MAX_WIDTH)).any())

    poor = [name for name in logs if name in reasons or is_wide(name)]
    if poor and len(single) > 1 and _agree([curve for curve, _ in single.values()]):
        enough = [code for code in codes if counts.context_ids[code] in single]
        log, columns = _select_log(counts, enough, features)
        with suppress(DataError):  # a method may need more of all contexts than of each
            pooled = resample(log, method=method, depth=depth, **columns, **settings)
    results: dict[str, _Estimate] = {}
    unsupported = {}
    for name, (log, columns) in logs.items():
        reason = reasons.get(name)
        if name not in poor or (pooled is None and reason is None):
            results[name] = single[name]
        elif pooled is not None:
            results[name] = _from_pooled(pooled, single.get(name), log, reason)
        elif below := find_deepest(log, method, depth, **columns, **options):
            curve, again = resample(log, method=below[0], depth=below[1], **columns, **settings)
            problem = str(reason).partition(": ")[0]  # the remedy, a smaller depth, is applied here
            note = f"positions beyond {below[1]} have no estimate: {problem}"
            results[name] = replace(curve, notes=(*curve.notes, note)), again
        else:
            unsupported[name] = str(reason)
    if not results:
        name, reason = next(iter(unsupported.items()))
        raise DataError(f"no context of the log supports an estimate: in {name!r}, {reason}")
    curves = {name: curve for name, (curve, _) in results.items()}
    resamples = {name: again for name, (_, again) in results.items()}
    return ContextPropensities(curves, unsupported), resamples


def _select_log(
    counts: PositionCounts, codes: list[int], features: ArrayLike | None
) -> tuple[PositionCounts, dict[str, Any]]:
    """Return the counts of some contexts, and the features of their pairs as an option."""
    rows = np.isin(counts.context, codes)
    log = counts.take(rows)
    if features is None:
        return log, {}
    starts = counts.pair_starts
    pair = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return log, {"features": np.asarray(features)[np.unique(pair[rows])]}


def _log_width(curve: Propensities) -> Floats:
    """Return the width of each interval as a logarithm, (K,)."""
    with np.errstate(divide="ignore"):
        width: Floats = np.log(curve.high) - np.log(curve.low)
    return width


def _agree(curves: list[Propensities]) -> bool:
    """Return whether one curve is within 3.3 standard errors of each, at the shared positions.

    The standard error of log p is taken from a normal distribution with the same interval.
    """
    n_shared = min(len(curve.value) for curve in curves)
    values = np.log([curve.value[:n_shared] for curve in curves])
    halves = np.array([
        _MAX_DISTANCE * _log_width(curve)[:n_shared] / (2 * ndtri((1 + curve.confidence) / 2))
        for curve in curves
    ])  # fmt: skip
    return bool(((values - halves).max(axis=0) <= (values + halves).min(axis=0) + 1e-9).all())


def _from_pooled(
    pooled: _Estimate, single: _Estimate | None, log: PositionCounts, reason: str | None
) -> _Estimate:
    """Return the pooled curve for a context, with the intervals of its own curve if it has one.

    Positions of the context that the pooled curve lacks stay without an estimate.
    """
    curve, resamples = pooled
    last = min(int(log.position.max()), len(curve.value))
    note = f"pooled over contexts: {reason}"
    if single is not None:
        note = "pooled over contexts: its own intervals, which it keeps, are wide"
        last = min(last, len(single[0].value))
    value, low, high = (column[:last] for column in (curve.value, curve.low, curve.high))
    if single is not None:
        low, high = np.minimum(low, single[0].low[:last]), np.maximum(high, single[0].high[:last])
    n_impressions = np.bincount(log.position, log.impressions, last + 1)[1 : last + 1]
    return replace(
        curve, value=value, low=low, high=high, n_impressions=n_impressions,
        notes=(*curve.notes, note),
    ), resamples[:, :last]  # fmt: skip
