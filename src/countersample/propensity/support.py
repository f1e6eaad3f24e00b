"""Can this log tell? One test of each method, which estimation itself passes through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError, ParameterError
from countersample.propensity.cells import Cells, Method, cells_of
from countersample.propensity.connections import UnsupportedError
from countersample.propensity.methods import AFFINE, METHODS, make_method, needs_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample.clicks.impressions import PositionCounts

_N_DRAWS = 200  # resamples in which it is seen how often a position is lost
_OF_PAGES = ("randomized",)  # methods that compare pages, not items with themselves
_INSTEAD = "all-pairs"  # the method to name where another is not supported and it is


@dataclass(frozen=True)
class Support:
    """Whether a log supports a method, as `supported` says.

    Attributes
    ----------
    method : str
    is_supported : bool
        Whether `estimate` gives a curve down to the depth that was asked for.
    reason : str, optional
        Why not, and what to do, in one sentence; None where it is supported.
    depth : int, optional
        The largest depth at which `estimate` gives a curve; None where there is none.
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
    """Return, for each method, whether this log supports it, why not, and down to which depth.

    The methods are those of `METHODS` and ``"trust"``, which is `estimate_trust`. The answer is
    that of `estimate`, which passes through the same test: the positions must be
    connected as the method needs it, and must stay so in at least half of the logs that are drawn
    for intervals.

    Parameters
    ----------
    counts : PositionCounts
    features, reference, depth
        As in `estimate`; without features, methods that need them are not supported.
    declared : bool
        Whether results are said to be shuffled, which randomized believes where no item was shown
        twice for a query, so that it cannot be seen.

    Examples
    --------
    Item 7 was clicked at positions 1 and 2, in two queries; position 3 has no click.

    >>> from countersample.clicks.impressions import PositionCounts
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
    found = {}
    for name in (*METHODS, *AFFINE):
        options: dict[str, Any] = {"features": features} if needs_features(name) else {}
        options |= {"declared": declared} if name == "randomized" else {}
        asked: dict[str, Any] = {"reference": reference, "options": options}
        try:
            cells, _ = given(counts, name, depth=depth, **asked)
            found[name] = Support(name, True, None, cells.n_positions)
        except UnsupportedError as error:
            found[name] = refusal(error, counts, name, depth=depth, **asked)
        except (DataError, ParameterError) as error:  # features that are missing, or none
            if not needs_features(name):
                raise
            found[name] = Support(name, False, str(error), None)
    return found


def given(
    counts: PositionCounts,
    name: str,
    *,
    reference: int,
    depth: int | None,
    options: dict[str, Any],
) -> tuple[Cells, Method]:
    """Return the cells of a log and the method that was given them; or raise `UnsupportedError`."""
    if counts.rest is not None:
        counts = _of_clicked(counts, name)
    cells = cells_of(counts, reference=reference, depth=depth)
    method = make_method(name, cells, options)
    _refuse_lost(method, cells)
    return cells, method


def _of_clicked(counts: PositionCounts, name: str) -> PositionCounts:
    """Return what a method asks of a log that counts items without a click together.

    Pages are compared as they are. Where an item is compared with itself at another position, one
    without a click says nothing; a model of clicks needs each.
    """
    if name in AFFINE or needs_features(name):
        raise UnsupportedError(
            f"{name} needs each item that was shown, and the log has so many that those without a "
            "click are counted together: take a part of the log",
            deepest=0,
        )
    return counts if name in _OF_PAGES else counts.take(counts.item != counts.rest)


def _refuse_lost(method: Method, cells: Cells) -> None:
    """Refuse a log of which more than half of the resamples lose a position.

    The resamples are always the same, so that the answer is, too.
    """
    if method.is_sure:
        return
    drawn = cells.draws(_N_DRAWS, np.random.default_rng(0)).blocks(cells.n_positions**2)
    lost = np.concatenate([method.lost(weights) for weights in drawn])
    share = float(lost.any(axis=1).mean())
    if share > 0.5:
        raise UnsupportedError(
            f"{share:.0%} of resampled logs leave a position without connection, too many for "
            "intervals: take a longer log",
            deepest=cells.n_positions - 1,
        )


def refusal(
    error: UnsupportedError,
    counts: PositionCounts,
    name: str,
    *,
    reference: int,
    depth: int | None,
    options: dict[str, Any],
) -> Support:
    """Return what a log supports of a method that has refused it, having tried what it advises."""
    asked: dict[str, Any] = {"reference": reference, "options": options}
    bound = error.deepest
    advice, found = "", None
    while found is None and bound >= max(2, reference):
        try:
            given(counts, name, depth=bound, **asked)
            found = bound
            advice = f", or estimate down to depth={bound}"
        except UnsupportedError as again:
            bound = min(again.deepest, bound - 1)
        except (DataError, ParameterError):  # features that are missing, at every depth
            break
    if name not in {_INSTEAD, *AFFINE} and _is_given(counts, _INSTEAD, reference, depth):
        advice += f", or by method='{_INSTEAD}'"
    return Support(name, False, f"{error}{advice}", found)


def _is_given(counts: PositionCounts, name: str, reference: int, depth: int | None) -> bool:
    try:
        given(counts, name, reference=reference, depth=depth, options={})
    except UnsupportedError:
        return False
    return True
