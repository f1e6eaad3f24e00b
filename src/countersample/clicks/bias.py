"""Position-bias curves: the probability that a rank is examined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from countersample._params import number
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class PositionBiasCurve(Protocol):
    """A position-bias curve: the examination probability of each rank."""

    def propensity(self, ranks: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that a user examines each rank; ranks count from 1."""


@dataclass(frozen=True)
class PositionBias:
    """P(examine rank r) = (1 / (r + offset))^gamma.

    Parameters
    ----------
    gamma : float
        The steepness: 0 is no bias, 1 the paper's usual setting.
    offset : int
        0 is the equation of the paper; 1 is the curve of its authors' code and its table.

    Examples
    --------
    >>> from countersample import PositionBias
    >>> PositionBias(gamma=1.0).propensity([1, 2, 4])
    array([1.  , 0.5 , 0.25])
    >>> PositionBias(gamma=0.5, offset=1).propensity([3])
    array([0.5])
    """

    gamma: float = 1.0
    offset: int = 0

    def __post_init__(self) -> None:
        number("gamma", self.gamma, least=0)
        number("offset", self.offset, least=0)

    def propensity(self, ranks: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that a user examines each rank; ranks count from 1."""
        return (1 / (_check_ranks(ranks) + self.offset)) ** self.gamma


@dataclass(frozen=True)
class TableBias:
    """P(examine rank r) = the r-th entry of a table; ranks beyond it are never examined.

    Parameters
    ----------
    table : sequence of float, each in [0, 1]
        One per rank, from 1.

    Examples
    --------
    >>> from countersample.clicks import TableBias
    >>> TableBias([1.0, 0.6, 0.3]).propensity([1, 3, 4])
    array([1. , 0.3, 0. ])
    """

    table: tuple[float, ...]

    def __post_init__(self) -> None:
        try:
            values = np.asarray(self.table, np.float64)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"a table of propensities must be numbers ({error})") from error
        if values.ndim != 1 or not len(values):
            raise ParameterError(
                f"a table of propensities has shape {values.shape}, expected one number per rank"
            )
        is_valid = (values >= 0) & (values <= 1)
        if not is_valid.all():
            rank = int(is_valid.argmin()) + 1
            raise ParameterError(
                f"a table of propensities has {values[rank - 1]} at rank {rank}, expected a number "
                "from 0 to 1"
            )
        object.__setattr__(self, "table", tuple(values.tolist()))

    def propensity(self, ranks: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that a user examines each rank; ranks count from 1."""
        table = np.append(np.array(self.table), 0.0)
        index = np.minimum(_check_ranks(ranks), len(self.table) + 1).astype(np.int64) - 1
        return table[index]


def check_weightable(values: NDArray[np.float64], most: float = np.inf) -> None:
    """Reject propensities by position that clicks cannot be weighted by."""
    is_valid = (values > 0) & (values <= most) & np.isfinite(values)
    if not is_valid.all():
        index = int(is_valid.argmin())
        bound = "" if most == np.inf else f" and at most {most:g}"
        raise DataError(
            f"the propensity of position {index + 1} is {values[index]:g}, expected a number above "
            f"0{bound}: a position that is never examined cannot be weighted; leave it out, or clip"
        )


def _check_ranks(ranks: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(ranks, np.float64)
    if not (array >= 1).all():
        raise ParameterError(f"a rank is {array.min()}, expected ranks counted from 1")
    return array
