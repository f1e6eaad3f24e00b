"""Propensities from a log of impressions: `estimate`, one interface to all estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.errors import DataError, ParameterError
from countersample.propensity.cells import Cells, Method, cells_of
from countersample.propensity.curve import Propensities
from countersample.propensity.em import TabularEM
from countersample.propensity.interventions import AdjacentChain, AllPairs, Pivot, Randomized, Swaps
from countersample.propensity.regression import RegressionEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks.impressions import PositionCounts

# A new estimator is one class as `Method` describes, and one line here; one that takes features of
# query-item pairs says so with `needs_features = True`.
METHODS: dict[str, Callable[..., Method]] = {
    "randomized": Randomized,
    "swaps": Swaps,
    "pivot": Pivot,
    "adjacent-chain": AdjacentChain,
    "all-pairs": AllPairs,
    "em": TabularEM,
    "regression-em": RegressionEM,
}
_AUTO = ("randomized", "all-pairs", "regression-em")  # the first that the log supports
_BLOCK = 4_000_000  # numbers in an array of resamples
_FEWEST = 20  # resamples
_FEW_QUERIES = 50


def estimate(
    counts: PositionCounts,
    *,
    method: str = "auto",
    n_bootstrap: int = 200,
    confidence: float = 0.95,
    rng: np.random.Generator | int | None = None,
    reference: int = 1,
    depth: int | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> Propensities:
    """Estimate P(examine k) / P(examine the reference) for each position k, with intervals.

    All estimators assume the position-based model: P(click) = p_position · r, with r the relevance
    of the item to the query. Intervals are quantiles over resampled logs: queries are drawn with
    replacement, each with all its impressions, and the estimate is made again.

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
        Of the method: ``weighting`` ("harmonic" or "equal") of pivot, adjacent-chain and
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
    return found


def supported(
    counts: PositionCounts,
    *,
    features: ArrayLike | None = None,
    reference: int = 1,
    depth: int | None = None,
) -> dict[str, str | None]:
    """Return, for each method, why this log does not support it, or None if it does.

    Examples
    --------
    >>> from countersample.clicks.impressions import PositionCounts
    >>> from countersample.propensity import supported
    >>> counts = PositionCounts.from_columns(["a", "b"], [7, 7], [1, 2], [1, 1])
    >>> supported(counts)["pivot"][:70]
    'no query-item pair was shown both in position 1 and in position 2, so '
    """
    try:
        cells = cells_of(counts, reference=reference, depth=depth)
    except DataError as error:
        return dict.fromkeys(METHODS, str(error))
    reasons: dict[str, str | None] = dict.fromkeys(METHODS)
    for name, method in METHODS.items():
        options = {"features": features} if needs_features(name) else {}
        try:
            method(cells, **options)
        except (DataError, ParameterError) as error:
            reasons[name] = str(error)
    return reasons


def needs_features(method: str) -> bool:
    """Tell whether a method takes the features of query-item pairs."""
    return bool(getattr(METHODS[method], "needs_features", False))


def resample(
    counts: PositionCounts,
    *,
    method: str,
    n_bootstrap: int,
    confidence: float,
    rng: np.random.Generator | int | None,
    reference: int = 1,
    depth: int | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> tuple[Propensities, Floats]:
    """Return what `estimate` does, and the curve of each resampled log, (n_bootstrap, K).

    A resample has NaN where it does not connect a position to the reference.
    """
    whole_number("n_bootstrap", n_bootstrap, least=_FEWEST)
    number("confidence", confidence, above=0, below=1)
    choice("method", method, ("auto", *METHODS))
    cells = cells_of(counts, reference=reference, depth=depth)
    name, fitted = _given(cells, method, options)
    curve = fitted.curves(np.ones((1, cells.n_queries)))[0]
    rng = np.random.default_rng(rng)
    block = max(1, _BLOCK // max(cells.n_queries, cells.n_positions**2))
    sizes = [min(block, n_bootstrap - at) for at in range(0, n_bootstrap, block)]
    shown = np.bincount(cells.query, minlength=cells.n_queries) > 0
    n_shown = int(shown.sum())
    drawn = (rng.multinomial(n_shown, shown / n_shown, size).astype(np.float64) for size in sizes)
    resamples = np.concatenate([fitted.curves(weights) for weights in drawn])
    notes = list(fitted.notes)
    if n_shown < _FEW_QUERIES:
        notes.append(f"intervals come from {n_shown} queries only, and are rough")
    n_lost = int(np.isnan(resamples).any(axis=1).sum())
    if n_lost:
        notes.append(
            f"{n_lost} of {n_bootstrap} resamples left a position without connection: the "
            "intervals are too narrow there"
        )
        if n_lost > n_bootstrap / 2:
            raise DataError(
                f"{n_lost} of {n_bootstrap} resamples left a position without connection, too many "
                "for intervals: take a longer log, or a smaller depth"
            )
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(resamples, [tail, 1 - tail], axis=0)
    found = Propensities(
        value=curve,
        low=np.minimum(low, curve),
        high=np.maximum(high, curve),
        n_impressions=cells.by_position(cells.impressions).astype(np.int64),
        method=name,
        confidence=confidence,
        reference=reference,
        notes=tuple(notes),
    )
    return found, resamples


def _given(cells: Cells, method: str, options: dict[str, Any]) -> tuple[str, Method]:
    """Return the name of the method and the method, given its log."""
    if method != "auto":
        return method, _made(method, cells, options)
    reasons = []
    for name in _AUTO:
        if needs_features(name) and "features" not in options:
            continue
        mine = options if needs_features(name) else {}
        try:
            return name, _made(name, cells, mine)
        except DataError as error:
            reasons.append(str(error))
    raise DataError(reasons[-1])


def _made(name: str, cells: Cells, options: dict[str, Any]) -> Method:
    try:
        return METHODS[name](cells, **options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise ParameterError(f"method {name!r} has no such option: {error}") from error
