"""Propensities from a log of impressions: `estimate`, one interface to all estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.errors import DataError
from countersample.options import CONFIDENCE
from countersample.propensity.connections import UnsupportedError
from countersample.propensity.curve import Propensities
from countersample.propensity.methods import METHODS, needs_features
from countersample.propensity.support import given, refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample.clicks.impressions import PositionCounts
    from countersample.propensity.cells import Cells, Method, QueryDraws

_AUTO = ("randomized", "all-pairs", "regression-em")  # the first that the log supports
_FEWEST = 20  # resamples
_FEW_QUERIES = 50


def estimate(
    counts: PositionCounts,
    *,
    method: str = "auto",
    n_bootstrap: int = 200,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator | int | None = None,
    reference: int = 1,
    depth: int | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> Propensities:
    """Estimate P(examine k) / P(examine the reference) for each position k, with intervals.

    All estimators assume the position-based model: P(click) = p_position · r, with r the relevance
    of the item to the query. Intervals are quantiles over resampled logs: queries are drawn with
    replacement, each with all its impressions, and the estimate is made again.

    In a log with contexts, positions are compared within each of them, over all of them at once:
    one curve, between theirs. `estimate_by_context` gives each its own.

    Parameters
    ----------
    counts : PositionCounts
    method : str
        A name in `METHODS`, or ``"auto"``: ``"randomized"`` if results were shuffled, else
        ``"all-pairs"`` if positions are connected, else ``"regression-em"`` if there are features.
    n_bootstrap : int
        How many logs are drawn for the intervals, at least 20.
    confidence : float
    rng : numpy Generator or seed
    reference : int
        The position whose propensity is 1; also the pivot of ``"pivot"``.
    depth : int, optional
        The last position to estimate; by default the last one in the log.
    **options
        Of the method: ``declared`` (whether results are said to be shuffled, where that cannot be
        seen) of randomized; ``weighting`` ("harmonic" or "equal") of pivot, adjacent-chain and
        all-pairs; ``max_rounds`` and ``tolerance`` of em; ``features``, ``model`` ("logistic" or
        "boosting") and ``n_trees`` of regression-em.

    Raises
    ------
    DataError
        For a log that does not say what was asked, naming what is missing.

    Examples
    --------
    Item 7 was shown 100 times at each of two positions, in two queries:

    >>> from countersample.clicks.impressions import PositionCounts
    >>> from countersample.propensity import estimate
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a", "a", "b", "b"], item_id=[7, 7, 7, 7], position=[1, 2, 1, 2],
    ...     click=[60, 30, 20, 10], impressions=[100, 100, 100, 100],
    ... )
    >>> estimate(counts, method="all-pairs", rng=0).value
    array([1. , 0.5])
    """
    found, _ = resample(
        counts, method=method, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng,
        reference=reference, depth=depth, **options,
    )  # fmt: skip
    if several := contexts_note(counts):
        note = f"{several}: estimate_by_context gives each its own"
        found = replace(found, notes=(*found.notes, note))
    return found


def contexts_note(counts: PositionCounts) -> str:
    """Say that a log has several contexts, which one curve is between; else nothing."""
    n_contexts = len(np.unique(counts.context))
    if n_contexts < 2:
        return ""
    return f"the log has {n_contexts} contexts, and this curve is between theirs"


def resample(
    counts: PositionCounts,
    *,
    method: str,
    n_bootstrap: int,
    confidence: float,
    rng: np.random.Generator | int | None,
    reference: int = 1,
    depth: int | None = None,
    draws: QueryDraws | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> tuple[Propensities, Floats]:
    """Return what `estimate` does, and the curve of each resampled log, (n_bootstrap, K).

    A resample has NaN where it does not connect a position to the reference. `draws` are resampled
    logs that something else is estimated from as well.
    """
    choice("method", method, ("auto", *METHODS))
    drawn = draw(
        counts, method=method, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng,
        reference=reference, depth=depth, draws=draws, **options,
    )  # fmt: skip
    found = Propensities(
        value=drawn.curve,
        low=drawn.low,
        high=drawn.high,
        n_impressions=drawn.n_impressions,
        method=drawn.method,
        confidence=confidence,
        reference=reference,
        notes=drawn.notes,
    )
    return found, drawn.resamples


class Drawn(NamedTuple):
    """What a method says of a log, and of the logs that are drawn from it."""

    method: str
    curve: Floats
    low: Floats
    high: Floats
    resamples: Floats  # (n_bootstrap, K), or for both α and β (n_bootstrap, 2K)
    n_impressions: NDArray[np.int64]
    notes: tuple[str, ...]


def draw(
    counts: PositionCounts,
    *,
    method: str,
    n_bootstrap: int,
    confidence: float,
    rng: np.random.Generator | int | None,
    reference: int,
    depth: int | None,
    draws: QueryDraws | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> Drawn:
    """Return what any method says, with intervals; the arguments are those of `estimate`."""
    whole_number("n_bootstrap", n_bootstrap, least=_FEWEST)
    number("confidence", confidence, above=0, below=1)
    name, cells, fitted = _given(counts, method, reference, depth, options)
    curve = fitted.curves(np.ones((1, cells.n_queries)))[0]
    if draws is None:
        draws = cells.draws(n_bootstrap, np.random.default_rng(rng))
    weights = draws.blocks(cells.n_positions**2)
    resamples = np.concatenate([fitted.curves(block) for block in weights])
    notes = list(fitted.notes)
    n_shown = int(cells.is_drawn.sum())
    if n_shown < _FEW_QUERIES:
        notes.append(f"intervals come from {n_shown} queries only, and are rough")
    n_lost = int(np.isnan(resamples).any(axis=1).sum())
    if n_lost:
        notes.append(
            f"{n_lost} of {draws.n} resamples left a position without connection: the "
            "intervals are too narrow there"
        )
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(resamples, [tail, 1 - tail], axis=0)
    return Drawn(
        method=name,
        curve=curve,
        low=np.minimum(low, curve),
        high=np.maximum(high, curve),
        resamples=resamples,
        n_impressions=cells.by_position(cells.impressions).astype(np.int64),
        notes=tuple(notes),
    )


def deepest_of(
    counts: PositionCounts,
    method: str,
    *,
    reference: int = 1,
    depth: int | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> tuple[str, int] | None:
    """Return the method and the largest depth at which a log that it refuses has an estimate."""
    found: list[tuple[int, str]] = []
    for name, mine in _candidates(method, options):
        asked: dict[str, Any] = {"reference": reference, "depth": depth, "options": mine}
        try:
            given(counts, name, **asked)
        except UnsupportedError as error:
            deepest = refusal(error, counts, name, **asked).depth
            found += [] if deepest is None else [(deepest, name)]
    if not found:
        return None
    last, name = max(found, key=lambda each: each[0])
    return name, last


def _candidates(method: str, options: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the methods to be tried in turn, each with its options."""
    if method != "auto":
        return [(method, options)]
    told = {name: options[name] for name in options if name == "declared"}
    others = {name: options[name] for name in options if name != "declared"}
    return [
        (name, others if needs_features(name) else told if name == "randomized" else {})
        for name in _AUTO
        if "features" in options or not needs_features(name)
    ]


def _given(
    counts: PositionCounts,
    method: str,
    reference: int,
    depth: int | None,
    options: dict[str, Any],
) -> tuple[str, Cells, Method]:
    """Return the name of the method, the cells and the method that was given them."""
    candidates = _candidates(method, options)
    for name, mine in candidates:
        asked: dict[str, Any] = {"reference": reference, "depth": depth, "options": mine}
        try:
            return name, *given(counts, name, **asked)
        except UnsupportedError as error:
            if name == candidates[-1][0]:
                raise DataError(refusal(error, counts, name, **asked).reason) from None
    raise AssertionError  # the loop returns or raises
