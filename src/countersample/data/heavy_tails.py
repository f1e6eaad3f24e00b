"""Features with heavy tails on a root scale, and which of them: `rooted`, `choose_roots`.

Where a few values are very large, most others share a few codes of 8 bits, and a few weights of a
linear ranker do all the work. A square root keeps every order, needs no setting, and is rounded the
same way by every CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.columns import ends, moments

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Roots = tuple[int, ...]

#: A tail is heavy where a value in 8 bits can be off by more than this share of the standard
#: deviation of its feature. Below it, rounding adds less than a thousandth to the variance.
SHARE = 0.05
MOST_ROOTS = 5  # the 32nd root of the largest float32 is 16: no tail is left after that
_BITS = 8


def rooted(values: ArrayLike, roots: ArrayLike) -> Floats:
    """sign(x)·√|x|, `roots` times, column by column: float64 (…, n_features).

    Parameters
    ----------
    values : array (…, n_features)
    roots : int array (n_features,)

    Examples
    --------
    >>> rooted([[16.0, -16.0, 16.0]], roots=[0, 1, 2])
    array([[16., -4.,  2.]])
    """
    out, times = np.array(values, np.float64), np.asarray(roots)
    for done in range(times.max(initial=0)):
        columns = times > done
        chosen = out[..., columns]
        out[..., columns] = np.copysign(np.sqrt(np.abs(chosen)), chosen)
    return out


def unrooted(values: ArrayLike, roots: ArrayLike) -> Floats:
    """x·|x|, `roots` times: the way back from `rooted`.

    Examples
    --------
    >>> unrooted([[16.0, -4.0, 2.0]], roots=[0, 1, 2])
    array([[ 16., -16.,  16.]])
    """
    out, times = np.array(values, np.float64), np.asarray(roots)
    for done in range(times.max(initial=0)):
        columns = times > done
        out[..., columns] *= np.abs(out[..., columns])
    return out


@dataclass(frozen=True, eq=False)
class RootScale:
    """Some columns of features, on a root scale: an index of rows gives float64 numbers."""

    features: Any  # NDArray[np.float32] | CompactFeatures
    roots: NDArray[np.int64]  # of those columns
    columns: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """(n_items, n_columns)."""
        return len(self.features), len(self.columns)

    def __getitem__(self, rows: int | slice) -> Floats:
        return rooted(self.features[rows][..., self.columns], self.roots)


def share_lost(low: Floats, high: Floats, deviation: Floats, bits: int) -> tuple[Floats, Floats]:
    """Return the most that a value is off in so many bits, and that over the standard deviation.

    Codes are even between the ends, so that the first is (high − low) / (2^bits − 1) / 2. The
    second is 0 for a feature that is constant.
    """
    error = (high - low) / (2**bits - 1) / 2
    return error, np.divide(error, deviation, out=np.zeros_like(error), where=deviation > 0)


def choose_roots(features: Any) -> Roots | None:  # noqa: ANN401 (array or codes)
    """Return how many square roots each feature takes, 0 to 5; None where none takes any.

    A feature takes the fewest with which its share lost in 8 bits is at most a twentieth. Where
    five are not enough it takes five, if they halve the share, else none: what is lost by values
    that are rare, not large, roots do not bring back. Each root reads the features that may take it
    once more, block by block.

    Examples
    --------
    >>> even = np.arange(1.0, 10_001.0)
    >>> choose_roots(np.stack([even, 10_000 / even, even == 1], axis=1).astype(np.float32))
    (0, 2, 0)
    """
    low, high = ends(features)
    _, share = share_lost(low, high, moments(features)[1], _BITS)
    roots = np.zeros(len(share), np.int64)
    columns = np.flatnonzero(share > SHARE)  # that are not decided
    for times in range(1, MOST_ROOTS + 1):
        if not len(columns):
            break
        view = RootScale(features, np.full(len(columns), times), columns)
        lowest, highest = (rooted(end[columns], view.roots) for end in (low, high))
        _, less = share_lost(lowest, highest, moments(view)[1], _BITS)
        is_enough = less <= SHARE
        if times == MOST_ROOTS:
            is_enough |= less <= share[columns] / 2
        roots[columns[is_enough]] = times
        columns = columns[~is_enough]
    return tuple(roots.tolist()) if roots.any() else None
