"""A curve for each context (device, layout): users look elsewhere on a phone than on a desktop."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from countersample._frames import Tabular
from countersample.errors import DataError
from countersample.options import CONFIDENCE
from countersample.propensity.curve import Propensities
from countersample.propensity.estimation import deepest_of, resample
from countersample.propensity.saving import SCHEMA_VERSION, Saved, entries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks.impressions import PositionCounts
    from countersample.propensity.cells import QueryDraws

    _Told = tuple[Propensities, Floats]  # a curve, and those of resampled logs

KIND = "by context"
_WIDE = 4.0  # the ends of an interval are so far apart, as a factor, that the curve is too little
_APART = 3.3  # standard errors: curves within so many of one curve are taken to agree


@dataclass(frozen=True, eq=False)
class ContextPropensities(Saved, Tabular):
    """curves[c].value[k − 1] = P(examine position k in context c) / P(examine position 1 in c).

    Clicks do not tell how the first positions of two contexts compare: to examine all of one twice
    as often looks the same as items twice as relevant there. That all are examined equally is
    assumed where clicks of several contexts are added up.

    Parameters
    ----------
    curves : dict of Propensities, by context
    refused : dict of str, by context
        Why a context has no curve.

    Examples
    --------
    >>> from countersample.propensity import ContextPropensities, Propensities
    >>> one = {"low": [1, 0.1], "high": [1, 0.9], "n_impressions": [9, 9], "method": "all-pairs"}
    >>> found = ContextPropensities(
    ...     {"desktop": Propensities([1, 0.6], **one), "phone": Propensities([1, 0.2], **one)}
    ... )
    >>> found.examination_of([2, 2, 3], ["desktop", "phone", "phone"])
    (array([0.6, 0.2, nan]), array([0., 0., 0.]))
    """

    curves: dict[str, Propensities]
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, context by context."""
        of_curves = [f"{c}: {note}" for c, curve in self.curves.items() for note in curve.notes]
        return (*of_curves, *(f"{c}: no curve: {why}" for c, why in self.refused.items()))

    def examination_of(
        self, position: ArrayLike, context: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return α and β of P(click) = β + α·r for each row, each (n,): the curve's value, and 0.

        NaN where a position has no estimate in its context. Where a value is above 1, all are
        divided by the largest, so that each is a probability.
        """
        asked, where = np.asarray(position, np.int64), np.asarray(context, np.str_)
        depth = max(len(curve.value) for curve in self.curves.values())
        names = np.array(sorted(self.curves))
        table = np.full((len(names) + 1, depth + 1), np.nan)  # the last of each for what is unknown
        for curve, name in zip(table, names, strict=False):
            curve[: len(self.curves[name].value)] = self.curves[name].value
        row = np.minimum(np.searchsorted(names, where), len(names) - 1)
        row = np.where(names[row] == where, row, len(names))
        column = np.where((asked >= 1) & (asked <= depth), asked - 1, depth)
        alpha = table[row, column] / max(1.0, np.nanmax(table))
        return alpha, np.zeros(alpha.shape)

    # -- frames and files

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the curves of all contexts below each other, with their intervals."""
        tables = [curve.columns_of_frame() for curve in self.curves.values()]
        sizes = [len(curve.value) for curve in self.curves.values()]
        return {"context": np.repeat(list(self.curves), sizes)} | {
            name: np.concatenate([table[name] for table in tables]) for name in tables[0]
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        curves = {name: curve.to_dict() for name, curve in self.curves.items()}
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "curves": curves,
            "refused": self.refused,
        }

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Self:
        """Return the estimate that `to_dict` gave these values of."""
        curves, refused = entries(kept, ("curves", "refused"), KIND)
        if not isinstance(curves, dict) or not curves or not isinstance(refused, dict):
            raise DataError("not propensities of this package: curves must be by context")
        if not all(isinstance(why, str) for why in refused.values()):
            raise DataError("not propensities of this package: refused must be texts by context")
        return cls({name: Propensities.from_dict(each) for name, each in curves.items()}, refused)


def estimate_by_context(
    counts: PositionCounts,
    *,
    method: str = "auto",
    n_bootstrap: int = 200,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator | int | None = None,
    depth: int | None = None,
    features: ArrayLike | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> ContextPropensities:
    """Estimate P(examine k) / P(examine 1) in each context, from its own rows alone.

    An item shown at position 1 on phones and at 5 on desktops tells nothing: positions are
    compared within a context. Where at least two contexts tell their curves and these agree (one
    curve is within 3.3 standard errors of each), what they tell together is the *pooled* curve, and
    it is taken by a context that cannot tell its own, and by one whose own intervals are wider than
    a factor of 4, which keeps these intervals. Else a context keeps what it tells, however wide;
    one that cannot tell all its positions is estimated down to the depth that it supports, or
    refused, with the reason. `notes` has what was done.

    Parameters
    ----------
    counts : PositionCounts
    method, n_bootstrap, confidence, rng, depth, features, **options
        As in `estimate`.

    Raises
    ------
    DataError
        For a log none of whose contexts tells a curve.

    Examples
    --------
    >>> from countersample.clicks.impressions import PositionCounts
    >>> from countersample.propensity import estimate_by_context
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a", "a", "b", "b"] * 2, item_id=[7] * 8, position=[1, 2] * 4,
    ...     click=[60, 30, 20, 10, 50, 10, 40, 8], impressions=[100] * 8,
    ...     context=["desktop"] * 4 + ["phone"] * 4,
    ... )
    >>> found = estimate_by_context(counts, method="all-pairs", rng=0)
    >>> {name: curve.value.round(6).tolist() for name, curve in found.curves.items()}
    {'desktop': [1.0, 0.5], 'phone': [1.0, 0.2]}
    """
    return resample_by_context(
        counts, method=method, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng, depth=depth,
        features=features, **options,
    )[0]  # fmt: skip


def resample_by_context(
    counts: PositionCounts,
    *,
    method: str,
    n_bootstrap: int,
    confidence: float,
    rng: np.random.Generator | int | None,
    depth: int | None = None,
    features: ArrayLike | None = None,
    draws: QueryDraws | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> tuple[ContextPropensities, dict[str, Floats]]:
    """Return what `estimate_by_context` does, and the curves of resampled logs by context.

    These are (n_bootstrap, K) each, as in `resample`; with `draws`, those of these logs.
    """
    asked: dict[str, Any] = {
        "n_bootstrap": n_bootstrap, "confidence": confidence, "draws": draws,
        "rng": np.random.default_rng(rng),
    }  # fmt: skip
    codes = np.unique(counts.context)
    logs = {str(counts.context_ids[code]): _log_of(counts, [code], features) for code in codes}
    own: dict[str, _Told] = {}
    reasons: dict[str, str] = {}
    for name, (log, mine) in logs.items():
        try:
            own[name] = resample(log, **asked, method=method, depth=depth, **mine, **options)
        except DataError as error:
            reasons[name] = str(error)
    pooled = None
    is_poor = [name for name in logs if name in reasons or _is_wide(own[name][0])]
    if is_poor and len(own) > 1 and _agree(curve for curve, _ in own.values()):
        told = [code for code in codes if counts.context_ids[code] in own]
        log, mine = _log_of(counts, told, features)
        with suppress(DataError):  # a method may ask more of all contexts than of each
            pooled = resample(log, **asked, method=method, depth=depth, **mine, **options)
    found: dict[str, _Told] = {}
    refused = {}
    for name, (log, mine) in logs.items():
        reason = reasons.get(name)
        if name not in is_poor or (pooled is None and reason is None):
            found[name] = own[name]
        elif pooled is not None:
            found[name] = _from_pooled(pooled, own.get(name), log, reason)
        elif (below := deepest_of(log, method, depth=depth, **mine, **options)) is not None:
            which, last = below
            curve, again = resample(log, **asked, method=which, depth=last, **mine, **options)
            note = f"positions beyond {last} have no estimate: {reason}"
            found[name] = replace(curve, notes=(*curve.notes, note)), again
        else:
            refused[name] = str(reason)
    if not found:
        name, reason = next(iter(refused.items()))
        raise DataError(f"no context of the log tells its propensities: in {name!r}, {reason}")
    curves = {name: curve for name, (curve, _) in found.items()}
    return ContextPropensities(curves, refused), {name: again for name, (_, again) in found.items()}


def _log_of(
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


def _log_ends(curve: Propensities) -> tuple[Floats, Floats]:
    with np.errstate(divide="ignore"):
        return np.log(curve.low), np.log(curve.high)


def _is_wide(curve: Propensities) -> bool:
    low, high = _log_ends(curve)
    return bool((high - low > np.log(_WIDE)).any())


def _agree(curves: Iterable[Propensities]) -> bool:
    """Tell whether one curve is within 3.3 standard errors of each, at the positions that all have.

    A standard error in log p is that of the interval, were it normal.
    """
    from scipy.special import ndtri  # noqa: PLC0415 (heavy, only where used)

    floors, ceilings = [], []
    curves = list(curves)
    shared = min(len(curve.value) for curve in curves)
    for curve in curves:
        low, high = _log_ends(curve)
        half = _APART * (high - low) / (2 * ndtri((1 + curve.confidence) / 2))
        floors.append((np.log(curve.value) - half)[:shared])
        ceilings.append((np.log(curve.value) + half)[:shared])
    return bool((np.max(floors, axis=0) <= np.min(ceilings, axis=0) + 1e-9).all())


def _from_pooled(
    pooled: _Told, own: _Told | None, log: PositionCounts, reason: str | None
) -> _Told:
    """Return the pooled curve as that of a context, with the intervals of its own if it has some.

    Positions of the context that the pooled curve has not stay without an estimate.
    """
    curve, again = pooled
    last = min(int(log.position.max()), len(curve.value))
    note = f"pooled over contexts: {reason}"
    if own is not None:
        note = "pooled over contexts: its own intervals, which it keeps, are wide"
        last = min(last, len(own[0].value))
    value, low, high = (column[:last] for column in (curve.value, curve.low, curve.high))
    if own is not None:
        low, high = np.minimum(low, own[0].low[:last]), np.maximum(high, own[0].high[:last])
    shown = np.bincount(log.position, log.impressions, last + 1)[1 : last + 1]
    return replace(
        curve, value=value, low=low, high=high, n_impressions=shown, notes=(*curve.notes, note)
    ), again[:, :last]
