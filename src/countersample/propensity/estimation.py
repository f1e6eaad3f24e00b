"""Estimate propensities from a log, and report which methods the log supports.

`estimate` returns one value per position, `estimate_trust` adds trust bias, `estimate_gamma` fits a
power law. Intervals are quantiles over resampled logs: queries are drawn with replacement, each
with all its impressions, and the estimate is repeated. `supported` tests every method without
estimating. Both go through the same `Request`, so they always agree.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.clicks.bias import PositionBias
from countersample.defaults import CONFIDENCE
from countersample.errors import DataError, ParameterError
from countersample.logs.tally import tally
from countersample.propensity.cells import Cells, UnsupportedError, cells_of
from countersample.propensity.curves import TRUST, Propensities, TrustPropensities
from countersample.propensity.estimators import METHODS, Estimator
from countersample.propensity.trust import Affine, level_of_irrelevance, no_trust_p_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.logs import Impressions, LogCheck, PositionCounts
    from countersample.propensity.cells import QueryDraws

_ESTIMATORS = METHODS | {TRUST: Affine}  # the curves of the last have α and β side by side
_AUTO = ("randomized", "all-pairs", "regression-em")  # the first that the log supports
_ALTERNATIVE = "all-pairs"  # the method to suggest instead
_MIN_BOOTSTRAP = 20
_FEW_QUERIES = 50
_SUPPORT_DRAWS = 200  # resamples for the share that loses a position


def estimate(
    counts: PositionCounts,
    *,
    method: str = "auto",
    n_bootstrap: int = 200,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator | int | None = None,
    depth: int | None = None,
    **options: Any,  # noqa: ANN401 (the options of the method)
) -> Propensities:
    """Estimate P(examine k) / P(examine 1) for each position k, with intervals.

    All estimators assume the position-based model: P(click) = p_position · r, with r the relevance
    of the item to the query. In a log with contexts, positions are compared within each context,
    and the result is one curve for all of them; `estimate_by_context` returns one per context. A
    log that does not support the method raises `DataError`, which names what is missing.

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
    depth : int, optional
        The last position to estimate; by default the last one in the log.
    **options
        Options of the method: ``declared`` (whether results were shuffled, if the log cannot show
        it) of randomized; ``weighting`` ("harmonic" or "equal") of pivot, adjacent-chain and
        all-pairs; ``features`` of regression-em, one row per pair in the order of `pair_ids`.

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
        counts, method=method, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng, depth=depth,
        **options,
    )  # fmt: skip
    notes = [f"{note}: estimate_by_context gives each its own" for note in _contexts_note(counts)]
    return replace(curve, notes=(*curve.notes, *notes))


def _contexts_note(counts: PositionCounts) -> list[str]:
    """Return a note if a log has several contexts, which one curve is between; else nothing."""
    n_contexts = len(np.unique(counts.context))
    note = f"the log has {n_contexts} contexts, and this curve is between theirs"
    return [note] if n_contexts > 1 else []


def resample(
    counts: PositionCounts,
    *,
    method: str = "auto",
    **settings: Any,  # noqa: ANN401 (the parameters of bootstrap)
) -> tuple[Propensities, Floats]:
    """Return the curve of `estimate`, and the curve of each resampled log, (n_bootstrap, K).

    A resample has NaN where it does not connect a position to the first. `bootstrap` explains the
    settings.
    """
    choice("method", method, ("auto", *METHODS))
    fields, resamples = bootstrap(counts, method=method, **settings)
    return Propensities(**fields), resamples


def bootstrap(
    counts: PositionCounts,
    *,
    method: str,
    n_bootstrap: int = 200,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator | int | None = None,
    depth: int | None = None,
    draws: QueryDraws | None = None,
    **options: Any,  # noqa: ANN401 (the options of the method)
) -> tuple[dict[str, Any], Floats]:
    """Return the fields of `Propensities`, and the curve of each resampled log, by any method.

    With trust bias, curves have α and β side by side, 2K numbers. `estimate` explains the
    parameters; `draws` are resampled logs that something else is estimated from as well.
    """
    whole_number("n_bootstrap", n_bootstrap, least=_MIN_BOOTSTRAP)
    number("confidence", confidence, above=0, below=1)
    name, cells, estimator = _fit_first(_requests(counts, method, depth, options))
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
    fields = {
        "value": curve,
        "low": np.minimum(low, curve),
        "high": np.maximum(high, curve),
        "n_impressions": cells.by_position(cells.impressions).astype(np.int64),
        "method": name,
        "confidence": confidence,
        "notes": tuple(notes),
    }
    return fields, resamples


def estimate_trust(
    counts: PositionCounts,
    *,
    depth: int | None = None,
    **settings: Any,  # noqa: ANN401 (n_bootstrap, confidence and rng of estimate)
) -> TrustPropensities:
    """Estimate α and β of P(click at k) = β_k + α_k·r from items shown at several positions.

    For each two positions, the click rates of the same items lie on a line, rate at k = β_k +
    (α_k/α_j)·(rate at j − β_j), with noise of known size in both: α and β solve the equations of
    all these lines (`countersample.propensity.trust`). The origin of r is the r of irrelevant
    items, assuming that items are either relevant or not.

    This needs more than propensities alone: items must have been shown at least twice at each of
    two positions, in 20 queries or more, and must differ in relevance. A log that does not support
    it raises `DataError`, with the reason and the largest depth at which it does.

    The settings are ``n_bootstrap``, ``confidence`` and ``rng`` of `estimate`; β is 0 at the last
    position, `depth`.

    Examples
    --------
    Half of the items are relevant. At position 1 they are clicked 8 times in 10 and others 3
    times; at position 2 they are clicked 4 times and others never.

    >>> import numpy as np
    >>> from countersample.logs import PositionCounts
    >>> from countersample.propensity import estimate_trust
    >>> query = np.repeat(np.arange(40), 4)
    >>> counts = PositionCounts.from_columns(
    ...     query, item_id=np.tile([0, 0, 1, 1], 40), position=np.tile([1, 2], 80),
    ...     click=np.tile([800, 400, 300, 0], 40), impressions=np.full(160, 1000),
    ... )
    >>> trust = estimate_trust(counts, rng=0)
    >>> trust.alpha.round(2), trust.beta.round(2)
    (array([1. , 0.8]), array([0.3, 0. ]))
    """
    result, resamples = bootstrap(counts, method=TRUST, depth=depth, **settings)
    columns: dict[str, Any] = {}
    for end, name in (("", "value"), ("_low", "low"), ("_high", "high")):
        columns[f"alpha{end}"], columns[f"beta{end}"] = np.split(result[name], 2)
    alpha, beta = columns["alpha"], columns["beta"]
    return TrustPropensities(
        **columns,
        n_impressions=result["n_impressions"],
        p_value=no_trust_p_value(beta[:-1], resamples[:, len(alpha) : -1]),
        origin=level_of_irrelevance(cells_of(counts, depth), alpha, beta),
        confidence=result["confidence"],
        notes=(*result["notes"], *_contexts_note(counts)),
    )


# -- a power law


@dataclass(frozen=True)
class PowerLaw:
    """P(examine k) ∝ (1 / (k + offset))^gamma, with an interval of gamma."""

    gamma: float
    low: float
    high: float
    offset: int
    method: str  # the estimator whose curve the law was fitted to
    confidence: float
    is_within: bool  # whether the law is within the interval of every position of that curve
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


def estimate_gamma(
    counts: PositionCounts,
    *,
    offset: int = 0,
    **settings: Any,  # noqa: ANN401 (the parameters of estimate)
) -> PowerLaw:
    """γ = Σ_k u_k·x_k·y_k / Σ_k u_k·x_k², the least squares of y on x through 0, where ::

        y_k = −log(p_k / p_1)       x_k = log((k + offset) / (1 + offset))

    p is the curve of any estimator and u_k = 1/variance of log p_k over resampled logs. The
    interval has the quantiles of gamma over the same resampled logs.

    The offset has the same meaning as in `PositionBias`: 0 is the equation of the paper, 1 the
    curve of its authors' code. `estimate` explains the other parameters.

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
    curve, resamples = resample(counts, **settings)
    x = np.log((curve.position + offset) / (1 + offset))
    with np.errstate(divide="ignore"):
        logs = np.log(resamples)
    logs = logs[np.isfinite(logs).all(axis=1)]  # without those that had no click at a position
    if len(logs) < len(resamples) / 2:
        raise DataError(
            f"{len(resamples) - len(logs)} of {len(resamples)} resamples have no click at some "
            "position, too many for a law: take a longer log"
        )
    spread = logs.var(axis=0)
    spread[0] = 1.0  # x is 0 there
    weights = 1 / np.maximum(spread, 1e-12)
    slopes = -(np.vstack([np.log(curve.value), logs]) * weights * x).sum(axis=1)
    gamma, *others = slopes / (weights * x**2).sum()
    tail = (1 - curve.confidence) / 2
    low, high = np.quantile(others, [tail, 1 - tail])
    law = np.exp(-gamma * x)
    rounding = 1e-9  # matters if an interval is a point
    is_within = (law >= curve.low * (1 - rounding)) & (law <= curve.high * (1 + rounding))
    return PowerLaw(
        gamma=float(gamma),
        low=float(min(low, gamma)),
        high=float(max(high, gamma)),
        offset=offset,
        method=curve.method,
        confidence=curve.confidence,
        is_within=bool(is_within.all()),
        notes=curve.notes,
    )


# -- which methods a log supports


@dataclass(frozen=True)
class Support:
    """Whether a log supports a method, as returned by `supported`."""

    method: str
    is_supported: bool  # whether `estimate` returns a curve down to the requested depth
    reason: str | None  # why not, and the remedy, in one sentence; None if it is supported
    depth: int | None  # the largest depth at which `estimate` returns a curve, if any


def supported(
    counts: PositionCounts,
    *,
    features: ArrayLike | None = None,
    depth: int | None = None,
    declared: bool = False,
) -> dict[str, Support]:
    """Return for each method whether this log supports it, why not, and down to which depth.

    The methods are `METHODS` and ``"trust"``, which is `estimate_trust`. A method is
    supported if the log connects the positions as the method needs it, and if at least half of the
    resampled logs do so, too. `estimate` explains the parameters; without features, methods
    that need them are not supported.

    Examples
    --------
    Item 7 was clicked at positions 1 and 2, in two queries; position 3 has no click.

    >>> from countersample.logs import PositionCounts
    >>> from countersample.propensity import supported
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a", "a", "a", "b", "b"], item_id=[7] * 5, position=[1, 2, 3, 1, 2],
    ...     click=[1, 1, 0, 1, 1],
    ... )
    >>> pivot = supported(counts)["pivot"]
    >>> pivot.is_supported, pivot.depth
    (False, 2)
    >>> pivot.reason[:59]
    'position 3 has no click, so its propensity would be 0, whic'
    """
    options = {"features": features, "declared": declared}
    return {name: _Request(counts, name, depth, options).find_support() for name in _ESTIMATORS}


def needs_features(method: str) -> bool:
    """Return whether a method needs the features of query-item pairs."""
    return "features" in _ESTIMATORS[method].options


def find_deepest(
    counts: PositionCounts,
    method: str,
    depth: int | None = None,
    **options: Any,  # noqa: ANN401 (the options of the method)
) -> tuple[str, int] | None:
    """Return the method and the largest depth at which it accepts a log that it rejects now."""
    supports = [each.find_support() for each in _requests(counts, method, depth, options)]
    depths = [
        (each.method, each.depth) for each in supports if each.depth and not each.is_supported
    ]
    return max(depths, key=lambda each: each[1], default=None)


@dataclass(frozen=True, eq=False)
class _Request:
    """One method, to be applied to one log; of the options, it uses those that it has."""

    counts: PositionCounts
    method: str
    depth: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def fit(self) -> tuple[Cells, Estimator]:
        """Return the cells of the log and the estimator; or raise `UnsupportedError`."""
        cells = cells_of(self._select_items(), self.depth)
        kind = _ESTIMATORS[self.method]
        options = {name: self.options[name] for name in kind.options if name in self.options}
        estimator = kind(cells, **options)
        _check_resamples(estimator, cells)
        return cells, estimator

    def _select_items(self) -> PositionCounts:
        """Return what the method needs of a log that counts all unclicked items together.

        Pages are compared as a whole. If an item is compared with itself at another position, items
        without a click contain no information; a model of clicks needs each of them.
        """
        counts, estimator = self.counts, _ESTIMATORS[self.method]
        if counts.rest is None or estimator.compares_pages:
            return counts
        if estimator.needs_all_items:
            raise UnsupportedError(
                f"{self.method} needs each item that was shown, and the log has so many that those "
                "without a click are counted together: take a part of the log",
                deepest=0,
            )
        return counts.take(counts.item != counts.rest)

    def find_support(self) -> Support:
        """Return whether the log supports the method."""
        try:
            cells, _ = self.fit()
        except UnsupportedError as error:
            return self.explain(error)
        except (DataError, ParameterError) as error:  # the features, which may be missing
            if not needs_features(self.method):
                raise
            return Support(self.method, False, str(error), None)
        return Support(self.method, True, None, cells.n_positions)

    def explain(self, error: UnsupportedError) -> Support:
        """Return the reason of an error, with a remedy that was tried and works."""
        advice, depth, bound = "", None, error.deepest
        while depth is None and bound >= 2:
            try:
                replace(self, depth=bound).fit()
                depth, advice = bound, f", or estimate down to depth={bound} (--depth {bound})"
            except UnsupportedError as deeper:
                bound = min(deeper.deepest, bound - 1)
            except (DataError, ParameterError):  # features that are missing, at every depth
                break
        if self.method not in {_ALTERNATIVE, TRUST}:
            try:
                replace(self, method=_ALTERNATIVE, options={}).fit()
                advice += f", or by method='{_ALTERNATIVE}' (--propensity-method {_ALTERNATIVE})"
            except UnsupportedError:
                pass
        return Support(self.method, False, f"{error}{advice}", depth)


def _requests(
    counts: PositionCounts, method: str, depth: int | None, options: dict[str, Any]
) -> list[_Request]:
    """Return the methods to be tried in turn; reject an option that none of them has."""
    methods = _AUTO if method == "auto" else (method,)
    names = sorted({name for each in methods for name in _ESTIMATORS[each].options})
    for name in options:
        if name not in names:
            expected = ", ".join(names) or "no options"
            raise ParameterError(f"method {method!r} has no option {name!r}, expected {expected}")
    return [
        _Request(counts, each, depth, options)
        for each in methods
        if method != "auto" or "features" in options or not needs_features(each)
    ]


def _fit_first(requests: list[_Request]) -> tuple[str, Cells, Estimator]:
    """Return the first method that the log supports, fitted; raise the error of the last one."""
    for request in requests[:-1]:
        try:
            return request.method, *request.fit()
        except UnsupportedError:
            continue
    try:
        return requests[-1].method, *requests[-1].fit()
    except UnsupportedError as error:
        raise DataError(requests[-1].explain(error).reason) from None


def _check_resamples(estimator: Estimator, cells: Cells) -> None:
    """Reject a log if more than half of the resamples lose a position.

    The resamples are always the same, so that the result is, too.
    """
    if estimator.is_always_known():
        return
    draws = cells.draws(_SUPPORT_DRAWS, np.random.default_rng(0)).blocks(cells.n_positions**2)
    is_unknown = np.concatenate([estimator.find_unknown(weights) for weights in draws])
    share = float(is_unknown.any(axis=1).mean())
    if share > 0.5:
        raise UnsupportedError(
            f"{share:.0%} of resampled logs leave a position without connection, too many for "
            "intervals: take a longer log",
            deepest=cells.n_positions - 1,
        )


def support_of_log(
    log: Impressions, check: LogCheck, *, declared: bool = False
) -> dict[str, Support]:
    """Return what `supported` does; randomized is tested on the rows that were shuffled, if any."""
    answers = supported(check.counts)
    if check.shuffled:
        counts = tally(log.of_policy(*check.shuffled)).counts
        if counts is not None:
            answers["randomized"] = supported(counts, declared=declared)["randomized"]
    return answers


def summarize_support(supports: Iterable[Support], shuffled: Sequence[str] = ()) -> str:
    """Return which methods a log supports and why, for a terminal."""
    lines = ["  propensities that this log can give"]
    for support in supports:
        lines.append(f"    {'yes' if support.is_supported else 'no '}  {support.method}")
        reason = f"down to position {support.depth}"
        if support.reason is not None:
            reason = support.reason
            if needs_features(support.method):
                reason = "fit and log propensity give it, with --features"
        elif support.method == "randomized" and shuffled:
            reason += f", from the rows of {' and '.join(shuffled)}"
        lines.append(textwrap.fill(f"{reason}.", 92, initial_indent=" " * 9,
                                   subsequent_indent=" " * 9))  # fmt: skip
    return "\n".join(lines)
