"""A propensity for each position, with an interval: what an estimate gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from countersample._frames import Tabular
from countersample._params import number
from countersample.clicks.bias import TableBias, check_weightable
from countersample.errors import DataError
from countersample.options import CONFIDENCE
from countersample.propensity._columns import set_columns, set_notes
from countersample.propensity.saving import SCHEMA_VERSION, Saved, entries

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats

_COLUMNS = ("value", "low", "high", "n_impressions")


@dataclass(frozen=True, eq=False)
class Propensities(Saved, Tabular):
    """value[k − 1] = P(examine position k) / P(examine the reference position), k = 1..K.

    Clicks tell propensities up to a common factor, so they are given relative to one position, the
    first unless another was asked for. A factor leaves what a ranker learns as it is.

    An object of this class is a position-bias curve: it can be given as ``bias=`` wherever
    `PositionBias` can.

    Parameters
    ----------
    value : float array (K,)
    low, high : float arrays (K,)
        The ends of the interval of each position.
    n_impressions : array (K,)
        The impressions of each position that the estimate is made of.
    method : str
        The name of the estimator.
    confidence : float
        The share of logs whose intervals should contain the truth, position by position.
    reference : int
        The position whose value is 1.
    notes : tuple of str
        What a reader should know about this estimate.

    Examples
    --------
    >>> from countersample.propensity import Propensities
    >>> curve = Propensities([1, 0.5, 0.2], low=[1, 0.4, 0.1], high=[1, 0.6, 0.3],
    ...                      n_impressions=[100, 100, 100], method="all-pairs")
    >>> curve.at([3, 1])
    array([0.2, 1. ])
    >>> curve.clip(0.25).value
    array([1.  , 0.5 , 0.25])
    >>> curve.bias
    TableBias(table=(1.0, 0.5, 0.2))
    """

    value: Floats
    low: Floats
    high: Floats
    n_impressions: NDArray[np.int64]
    method: str
    confidence: float = CONFIDENCE
    reference: int = 1
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        set_columns(self, _COLUMNS)
        check_weightable(self.value)
        ordered = (self.low <= self.value) & (self.value <= self.high)
        if not ordered.all():
            index = int(ordered.argmin())
            raise DataError(
                f"the interval of position {index + 1} is {self.low[index]:g} to "
                f"{self.high[index]:g}, expected one around {self.value[index]:g}"
            )
        set_notes(self)

    @property
    def position(self) -> NDArray[np.int64]:
        """The positions, 1..K."""
        return np.arange(1, len(self.value) + 1)

    @property
    def bias(self) -> TableBias:
        """The position-bias curve P(examine k) = value[k − 1] / max(1, largest value).

        Only the ratios are known. Where a value is above 1, all are divided by the largest, so
        that each is a probability.
        """
        return TableBias(tuple((self.value / max(1.0, self.value.max())).tolist()))

    def at(self, positions: ArrayLike) -> Floats:
        """Return the value at each position; a position beyond the table is refused."""
        asked = np.asarray(positions)
        good = (asked >= 1) & (asked <= len(self.value)) & (asked == np.floor(asked))
        if not good.all():
            wrong = np.atleast_1d(asked)[~np.atleast_1d(good)][0]
            raise DataError(
                f"position {wrong:g} has no propensity, expected positions from 1 to "
                f"{len(self.value)}: leave its impressions out, or take a curve for all positions "
                "from estimate_gamma"
            )
        return self.value[asked.astype(np.int64) - 1]

    def propensity(self, ranks: ArrayLike) -> Floats:
        """Return P(examine rank), as `bias` has it; a rank beyond the table is refused."""
        return self.at(ranks) / max(1.0, float(self.value.max()))

    def clip(self, min_propensity: float) -> Propensities:
        """Return max(value, min_propensity): less variance of what is weighted, some bias."""
        least = number("min_propensity", min_propensity, above=0, most=1)
        columns = {name: np.maximum(getattr(self, name), least) for name in _COLUMNS[:3]}
        note = f"clipped at {least:g}"
        return replace(self, **columns, notes=(*self.notes, note))

    # -- frames and files

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return position, value, the ends of the interval, and impressions."""
        return {name: getattr(self, name) for name in ("position", *_COLUMNS)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        columns = {name: np.asarray(c).tolist() for name, c in self.columns_of_frame().items()}
        return {
            "schema_version": SCHEMA_VERSION,
            "method": self.method,
            "reference": self.reference,
            "confidence": self.confidence,
            **columns,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Self:
        """Return the estimate that `to_dict` gave these values of."""
        names = (*_COLUMNS, "method", "confidence", "reference", "notes")
        return cls(**dict(zip(names, entries(kept, names), strict=True)))
