"""Which estimators a log supports, and down to which position.

`supported` answers for every estimator. `estimate` goes through the same `Request`, so both always
agree.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError, ParameterError
from countersample.logs.tally import tally
from countersample.propensity.affine import Affine
from countersample.propensity.cells import Cells, UnsupportedError, cells_of
from countersample.propensity.estimators import METHODS, Estimator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from countersample.logs import Impressions, LogCheck, PositionCounts

AFFINE: dict[str, type[Estimator]] = {"trust": Affine}  # their curves have α and β side by side
_ESTIMATORS = METHODS | AFFINE
_N_DRAWS = 200  # resamples for the share that loses a position
_ALTERNATIVE = "all-pairs"  # the method to suggest instead


@dataclass(frozen=True)
class Support:
    """Whether a log supports a method, as returned by `supported`.

    Attributes
    ----------
    method : str
    is_supported : bool
        Whether `estimate` returns a curve down to the requested depth.
    reason : str, optional
        Why not, and the remedy, in one sentence; None if it is supported.
    depth : int, optional
        The largest depth at which `estimate` returns a curve, if any.
    """

    method: str
    is_supported: bool
    reason: str | None
    depth: int | None


def supported(
    counts: PositionCounts,
    *,
    features: ArrayLike | None = None,
    reference: int = 1,
    depth: int | None = None,
    declared: bool = False,
) -> dict[str, Support]:
    """Return for each method whether this log supports it, why not, and down to which depth.

    The methods are those of `METHODS` and ``"trust"``, which is `estimate_trust`. A method is
    supported if the log connects the positions as the method needs it, and if at least half of the
    resampled logs do so, too.

    Parameters
    ----------
    counts : PositionCounts
    features, reference, depth
        As in `estimate`; without features, methods that need them are not supported.
    declared : bool
        Whether results were shuffled uniformly, if the log itself cannot show it because no item
        was shown twice for a query.

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
    return {
        name: Request(counts, name, reference, depth, select_options(name, options)).find_support()
        for name in _ESTIMATORS
    }


def needs_features(method: str) -> bool:
    """Return whether a method needs the features of query-item pairs."""
    return _ESTIMATORS[method].needs_features


def select_options(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that a method has, if options are given for several methods at once."""
    if method == "randomized":
        return {name: value for name, value in options.items() if name == "declared"}
    if needs_features(method):
        return {name: value for name, value in options.items() if name != "declared"}
    return {}


@dataclass(frozen=True, eq=False)
class Request:
    """One method, to be applied to one log."""

    counts: PositionCounts
    method: str
    reference: int = 1
    depth: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def fit(self) -> tuple[Cells, Estimator]:
        """Return the cells of the log and the estimator; or raise `UnsupportedError`."""
        cells = cells_of(self._select_items(), reference=self.reference, depth=self.depth)
        try:
            estimator = _ESTIMATORS[self.method](cells, **self.options)
        except TypeError as error:
            if "unexpected keyword" not in str(error):
                raise
            reason = f"method {self.method!r} has no such option: {error}"
            raise ParameterError(reason) from error
        _check_resamples(estimator, cells)
        return cells, estimator

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
        while depth is None and bound >= max(2, self.reference):
            try:
                replace(self, depth=bound).fit()
                depth, advice = bound, f", or estimate down to depth={bound}"
            except UnsupportedError as deeper:
                bound = min(deeper.deepest, bound - 1)
            except (DataError, ParameterError):  # features that are missing, at every depth
                break
        if self.method not in {_ALTERNATIVE, *AFFINE}:
            alternative = replace(self, method=_ALTERNATIVE, options={})
            try:
                alternative.fit()
                advice += f", or by method='{_ALTERNATIVE}'"
            except UnsupportedError:
                pass
        return Support(self.method, False, f"{error}{advice}", depth)

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
            is_blind = needs_features(support.method)
            reason = "it needs the features of items (--features)" if is_blind else support.reason
        elif support.method == "randomized" and shuffled:
            reason += f", from the rows of {' and '.join(shuffled)}"
        lines.append(textwrap.fill(f"{reason}.", 92, initial_indent=" " * 9,
                                   subsequent_indent=" " * 9))  # fmt: skip
    return "\n".join(lines)


def _check_resamples(estimator: Estimator, cells: Cells) -> None:
    """Reject a log if more than half of the resamples lose a position.

    The resamples are always the same, so that the result is, too.
    """
    if estimator.is_always_known():
        return
    draws = cells.draws(_N_DRAWS, np.random.default_rng(0)).blocks(cells.n_positions**2)
    is_unknown = np.concatenate([estimator.find_unknown(weights) for weights in draws])
    share = float(is_unknown.any(axis=1).mean())
    if share > 0.5:
        raise UnsupportedError(
            f"{share:.0%} of resampled logs leave a position without connection, too many for "
            "intervals: take a longer log",
            deepest=cells.n_positions - 1,
        )
