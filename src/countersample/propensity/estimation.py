"""Estimate propensities from a log: `estimate` for each position, `estimate_gamma` for a power law.

Intervals are quantiles over resampled logs: queries are drawn with replacement, each with all its
impressions, and the estimate is repeated.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.clicks.bias import PositionBias
from countersample.errors import DataError
from countersample.options import CONFIDENCE
from countersample.propensity.cells import Cells, UnsupportedError
from countersample.propensity.curves import Propensities
from countersample.propensity.estimators import METHODS, Estimator
from countersample.propensity.support import Request, needs_features, select_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample.logs import PositionCounts
    from countersample.propensity.cells import QueryDraws

_AUTO = ("randomized", "all-pairs", "regression-em")  # the first that the log supports
_MIN_BOOTSTRAP = 20
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
    of the item to the query.

    In a log with contexts, positions are compared within each context, and the result is one curve
    for all of them. `estimate_by_context` returns one curve per context.

    Parameters
    ----------
    counts : PositionCounts
    method : str
        A name in `METHODS`, or ``"auto"``: ``"randomized"`` if results were shuffled, else
        ``"all-pairs"`` if positions are connected, else ``"regression-em"`` if there are features.
    n_bootstrap : int
        The number of resampled logs for the intervals, at least 20.
    confidence : float
    rng : numpy Generator or seed
    reference : int
        The position whose propensity is 1; also the pivot of ``"pivot"``.
    depth : int, optional
        The last position to estimate; by default the last one in the log.
    **options
        Options of the method: ``declared`` (whether results were shuffled, if the log cannot show
        it) of randomized; ``weighting`` ("harmonic" or "equal") of pivot, adjacent-chain and
        all-pairs; ``max_rounds`` and ``tolerance`` of em; ``features``, ``model`` ("logistic" or
        "boosting") and ``n_trees`` of regression-em.

    Raises
    ------
    DataError
        If the log does not support the method; the message names what is missing.

    Examples
    --------
    Item 7 was shown 100 times at each of two positions, in two queries:

    >>> from countersample.logs import PositionCounts
    >>> from countersample.propensity import estimate
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a", "a", "b", "b"], item_id=[7, 7, 7, 7], position=[1, 2, 1, 2],
    ...     click=[60, 30, 20, 10], impressions=[100, 100, 100, 100],
    ... )
    >>> estimate(counts, method="all-pairs", rng=0).value
    array([1. , 0.5])
    """
    curve, _ = resample(
        counts, method=method, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng,
        reference=reference, depth=depth, **options,
    )  # fmt: skip
    if several := contexts_note(counts):
        note = f"{several}: estimate_by_context gives each its own"
        curve = replace(curve, notes=(*curve.notes, note))
    return curve


def contexts_note(counts: PositionCounts) -> str:
    """Return a note if a log has several contexts, which one curve is between; else nothing."""
    n_contexts = len(np.unique(counts.context))
    if n_contexts < 2:
        return ""
    return f"the log has {n_contexts} contexts, and this curve is between theirs"


def resample(
    counts: PositionCounts,
    *,
    method: str = "auto",
    confidence: float = CONFIDENCE,
    reference: int = 1,
    **settings: Any,  # noqa: ANN401 (those of bootstrap)
) -> tuple[Propensities, Floats]:
    """Return the curve of `estimate`, and the curve of each resampled log, (n_bootstrap, K).

    A resample has NaN where it does not connect a position to the reference. The settings are those
    of `bootstrap`.
    """
    choice("method", method, ("auto", *METHODS))
    result = bootstrap(
        counts, method=method, confidence=confidence, reference=reference, **settings
    )
    curve = Propensities(
        value=result.curve,
        low=result.low,
        high=result.high,
        n_impressions=result.n_impressions,
        method=result.method,
        confidence=confidence,
        reference=reference,
        notes=result.notes,
    )
    return curve, result.resamples


class Bootstrap(NamedTuple):
    """The estimate of a method for a log, and for each of its resamples."""

    method: str
    curve: Floats
    low: Floats
    high: Floats
    resamples: Floats  # (n_bootstrap, K), or for both α and β (n_bootstrap, 2K)
    n_impressions: NDArray[np.int64]
    notes: tuple[str, ...]


def bootstrap(
    counts: PositionCounts,
    *,
    method: str,
    n_bootstrap: int,
    confidence: float,
    rng: np.random.Generator | int | None,
    reference: int,
    depth: int | None = None,
    draws: QueryDraws | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> Bootstrap:
    """Return the estimate of any method, also of trust bias, with intervals.

    The parameters are those of `estimate`; `draws` are resampled logs that something else is
    estimated from as well.
    """
    whole_number("n_bootstrap", n_bootstrap, least=_MIN_BOOTSTRAP)
    number("confidence", confidence, above=0, below=1)
    name, cells, estimator = _fit_first(_requests(counts, method, reference, depth, options))
    curve = estimator.curves(np.ones((1, cells.n_queries)))[0]
    if draws is None:
        draws = cells.draws(n_bootstrap, np.random.default_rng(rng))
    blocks = draws.blocks(cells.n_positions**2)
    resamples = np.concatenate([estimator.curves(weights) for weights in blocks])
    notes = list(estimator.notes)
    n_queries = int(cells.is_drawn.sum())
    if n_queries < _FEW_QUERIES:
        notes.append(f"intervals come from {n_queries} queries only, and are rough")
    n_unknown = int(np.isnan(resamples).any(axis=1).sum())
    if n_unknown:
        notes.append(
            f"{n_unknown} of {draws.n} resamples left a position without connection: the "
            "intervals are too narrow there"
        )
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(resamples, [tail, 1 - tail], axis=0)
    return Bootstrap(
        method=name,
        curve=curve,
        low=np.minimum(low, curve),
        high=np.maximum(high, curve),
        resamples=resamples,
        n_impressions=cells.by_position(cells.impressions).astype(np.int64),
        notes=tuple(notes),
    )


def _requests(
    counts: PositionCounts,
    method: str,
    reference: int,
    depth: int | None,
    options: dict[str, Any],
) -> list[Request]:
    """Return the methods to be tried in turn, each with its options."""
    if method != "auto":
        return [Request(counts, method, reference, depth, options)]
    return [
        Request(counts, name, reference, depth, select_options(name, options))
        for name in _AUTO
        if "features" in options or not needs_features(name)
    ]


def _fit_first(requests: list[Request]) -> tuple[str, Cells, Estimator]:
    """Return the first method that the log supports, fitted; raise the error of the last one."""
    for request in requests:
        try:
            return request.method, *request.fit()
        except UnsupportedError as error:
            if request is requests[-1]:
                raise DataError(request.explain(error).reason) from None
    raise AssertionError  # the loop returns or raises


def find_deepest(
    counts: PositionCounts,
    method: str,
    *,
    reference: int = 1,
    depth: int | None = None,
    **options: Any,  # noqa: ANN401 (those of the method)
) -> tuple[str, int] | None:
    """Return the method and the largest depth at which it accepts a log that it rejects now."""
    supports = [
        each.find_support() for each in _requests(counts, method, reference, depth, options)
    ]
    depths = [(each.depth, each.method) for each in supports
              if each.depth is not None and not each.is_supported]  # fmt: skip
    if not depths:
        return None
    last, name = max(depths, key=lambda each: each[0])
    return name, last


# -- a power law


@dataclass(frozen=True)
class PowerLaw:
    """P(examine k) ∝ (1 / (k + offset))^gamma, with an interval of gamma.

    Attributes
    ----------
    gamma, low, high : float
        The exponent, and the ends of its interval.
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
        """The law as a position-bias curve, which has a propensity for every position."""
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

    >>> from countersample.logs import PositionCounts
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
    curve, resamples = resample(
        counts, method=method, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng, **options
    )
    reference = options.get("reference", 1)
    x = np.log((curve.position + offset) / (reference + offset))
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
    gamma = float(_slope(x, -np.log(curve.value), weights))
    tail = (1 - confidence) / 2
    low, high = np.quantile(slopes, [tail, 1 - tail])
    law = np.exp(-gamma * x)
    rounding = 1e-9  # matters if an interval is a point
    is_within = (law >= curve.low * (1 - rounding)) & (law <= curve.high * (1 + rounding))
    return PowerLaw(
        gamma=gamma,
        low=min(float(low), gamma),
        high=max(float(high), gamma),
        offset=offset,
        method=curve.method,
        confidence=confidence,
        is_within=bool(is_within.all()),
        notes=curve.notes,
    )


def _slope(x: Floats, y: Floats, weights: Floats) -> Floats:
    slope: Floats = (y * weights * x).sum(axis=-1) / (weights * x**2).sum()
    return slope
