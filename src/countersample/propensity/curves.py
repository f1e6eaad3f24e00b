"""Estimates of propensities, with intervals: per position, per context, and with trust bias.

They are frozen, can be saved as JSON with one schema per kind, and are accepted by whatever weights
clicks: `examination_of` or `propensity` returns the probability of examination per row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from countersample import _text
from countersample._files import atomic_path, read_at_most
from countersample._frames import Tabular
from countersample._json import check_schema, parse_json
from countersample._params import number
from countersample.clicks.bias import TableBias, check_weightable
from countersample.data.sources import reading
from countersample.defaults import CONFIDENCE
from countersample.errors import DataError
from countersample.propensity.cells import positions_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats

SCHEMA_VERSION = 1
MAX_BYTES = 2**28  # of a file: a million positions take 100 MB
SHOWN_POSITIONS = 20  # in a summary; files and JSON have all
TRUST = "trust"  # the method of `estimate_trust`
_MAX_P_VALUE = 0.05  # at which trust bias is considered present
_OWNER = "a file of propensities"
_TRUST_COLUMNS = ("alpha", "alpha_low", "alpha_high", "beta", "beta_low", "beta_high")


class SavedPropensities(Tabular):
    """Base of all estimates: a dataclass that is saved as JSON, its fields as plain values."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = {each.name: _plain_value(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **values}

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON, atomically; `load_propensities` reads it."""
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    def _set_columns(self, *names: str) -> None:
        """Make fields read-only arrays (K,), all as long as the first; check the other fields."""
        for name in (*names, "n_impressions"):
            kind = np.int64 if name == "n_impressions" else np.float64
            try:
                column = np.array(getattr(self, name), kind)
            except (TypeError, ValueError, OverflowError) as error:
                raise DataError(f"{name} must be numbers ({error})") from error
            column.setflags(write=False)
            object.__setattr__(self, name, column)
            first = getattr(self, names[0])
            if column.ndim != 1 or column.shape != first.shape or not len(column):
                raise DataError(
                    f"{name} has shape {column.shape}, expected {(max(1, first.size),)}: one "
                    "number per position"
                )
            if kind is np.int64 and (column < 0).any():
                raise DataError(f"{name} has {column.min()}, expected numbers of at least 0")
        number("confidence", self.confidence, above=0, below=1)  # type: ignore[attr-defined]
        object.__setattr__(self, "notes", tuple(self.notes))  # type: ignore[attr-defined]


def _plain_value(value: Any) -> Any:  # noqa: ANN401 (a field)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain_value(each) for name, each in value.items()}
    if isinstance(value, SavedPropensities):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def stack_columns(label: str, curves: dict[str, Propensities]) -> dict[str, ArrayLike]:
    """Return the columns of several curves below each other, with a column of their names."""
    tables = [curve.columns_of_frame() for curve in curves.values()]
    sizes = [len(curve.value) for curve in curves.values()]
    return {label: np.repeat(list(curves), sizes)} | {
        name: np.concatenate([table[name] for table in tables]) for name in tables[0]
    }


def _table(headers: list[str], rows: Iterable[list[str]], n_positions: int) -> str:
    """Return a table of the first positions for a terminal."""
    text = _text.table(headers, list(islice(rows, SHOWN_POSITIONS)))
    more = n_positions - SHOWN_POSITIONS
    return f"{text}\nand {more:,} more positions" if more > 0 else text


@dataclass(frozen=True, eq=False)
class Propensities(SavedPropensities):
    """value[k − 1] = P(examine position k) / P(examine position 1), k = 1..K.

    Clicks determine propensities up to a common factor, so they are relative to the first position.
    A factor does not change what a ranker learns. An object of this class is a position-bias curve:
    it can be passed as ``bias=`` wherever `PositionBias` can.

    Parameters
    ----------
    value : float array (K,)
    low, high : float arrays (K,)
        The ends of the interval of each position.
    n_impressions : array (K,)
        The impressions of each position in the log.
    method : str
        The name of the estimator.
    confidence : float
        The share of logs whose intervals should contain the truth, position by position.
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

    kind = "positions"

    value: Floats
    low: Floats
    high: Floats
    n_impressions: NDArray[np.int64]
    method: str
    confidence: float = CONFIDENCE
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._set_columns("value", "low", "high")
        check_weightable(self.value)
        is_ordered = (self.low <= self.value) & (self.value <= self.high)
        if not is_ordered.all():
            index = int(is_ordered.argmin())
            raise DataError(
                f"the interval of position {index + 1} is {self.low[index]:g} to "
                f"{self.high[index]:g}, expected one around {self.value[index]:g}"
            )

    @property
    def position(self) -> NDArray[np.int64]:
        """The positions, 1..K."""
        return np.arange(1, len(self.value) + 1)

    @property
    def bias(self) -> TableBias:
        """The position-bias curve P(examine k) = value[k − 1] / max(1, largest value).

        Only the ratios are known. If a value is above 1, all are divided by the largest, so that
        each is a probability.
        """
        return TableBias(tuple((self.value / max(1.0, self.value.max())).tolist()))

    def at(self, positions: ArrayLike) -> Floats:
        """Return the value at each position; a position beyond the table raises an error."""
        index = np.asarray(positions)
        is_valid = (index >= 1) & (index <= len(self.value)) & (index == np.floor(index))
        if not is_valid.all():
            wrong = np.atleast_1d(index)[~np.atleast_1d(is_valid)][0]
            raise DataError(
                f"position {wrong:g} has no propensity, expected positions from 1 to "
                f"{len(self.value)}: leave its impressions out, or take a curve for all positions "
                "from estimate_gamma"
            )
        return self.value[index.astype(np.int64) - 1]

    def propensity(self, ranks: ArrayLike) -> Floats:
        """Return P(examine rank) as in `bias`; a rank beyond the table raises an error."""
        return self.at(ranks) / max(1.0, float(self.value.max()))

    def clip(self, min_propensity: float) -> Propensities:
        """Return max(value, min_propensity): weights vary less, with some bias."""
        least = number("min_propensity", min_propensity, above=0, most=1)
        columns = {
            name: np.maximum(getattr(self, name), least) for name in ("value", "low", "high")
        }
        return replace(self, **columns, notes=(*self.notes, f"clipped at {least:g}"))

    def summary(self, context: str = "", others: Mapping[str, Propensities] | None = None) -> str:
        """Return a table of the first positions, beside the estimates of other methods."""
        beside = {name: each for name, each in (others or {}).items() if name != self.method}
        rows = (
            [f"{k + 1}", f"{self.value[k]:.4g}", f"{self.low[k]:.4g} to {self.high[k]:.4g}",
             f"{self.n_impressions[k]:,}",
             *(f"{each.value[k]:.4g}" if k < len(each.value) else "" for each in beside.values())]
            for k in range(len(self.value))
        )  # fmt: skip
        first = f"{context}: position" if context else "position"
        interval = f"{self.confidence:.0%} interval"
        headers = [first, self.method, interval, "impressions", *beside]
        return _table(headers, rows, len(self.value))

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return position, value, the ends of the interval, and impressions."""
        names = ("position", "value", "low", "high", "n_impressions")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class ContextPropensities(SavedPropensities):
    """curves[c].value[k − 1] = P(examine position k in context c) / P(examine position 1 in c).

    Clicks do not determine how the first positions of two contexts compare: examining all positions
    of one context twice as often looks the same as items twice as relevant there. Wherever clicks
    of several contexts are added up, their first positions are assumed to be examined equally.

    Parameters
    ----------
    curves : dict of Propensities, by context
    unsupported : dict of str, by context
        Why a context has no curve.

    Examples
    --------
    >>> from countersample.propensity import ContextPropensities, Propensities
    >>> one = {"low": [1, 0.1], "high": [1, 0.9], "n_impressions": [9, 9], "method": "all-pairs"}
    >>> by_device = ContextPropensities(
    ...     {"desktop": Propensities([1, 0.6], **one), "phone": Propensities([1, 0.2], **one)}
    ... )
    >>> by_device.examination_of([2, 2, 3], ["desktop", "phone", "phone"])
    (array([0.6, 0.2, nan]), array([0., 0., 0.]))
    """

    kind = "by context"

    curves: dict[str, Propensities]
    unsupported: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        curves: dict[str, Any] = {
            name: _from_dict(curve, Propensities.kind) if isinstance(curve, dict) else curve
            for name, curve in self.curves.items()
        }
        object.__setattr__(self, "curves", curves)

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the estimates, one per context."""
        notes = [f"{c}: {note}" for c, curve in self.curves.items() for note in curve.notes]
        return (*notes, *(f"{c}: no curve: {reason}" for c, reason in self.unsupported.items()))

    def examination_of(
        self, position: ArrayLike, context: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return α and β of P(click) = β + α·r for each row, each (n,): the curve's value, and 0.

        A position without an estimate in its context has NaN. If a value is above 1, all are
        divided by the largest, so that each is a probability.
        """
        positions, contexts = np.asarray(position, np.int64), np.asarray(context, np.str_)
        depth = max(len(curve.value) for curve in self.curves.values())
        names = np.array(sorted(self.curves))
        table = np.full((len(names) + 1, depth + 1), np.nan)  # the last row and column are unknown
        for curve, name in zip(table, names, strict=False):
            curve[: len(self.curves[name].value)] = self.curves[name].value
        row = np.minimum(np.searchsorted(names, contexts), len(names) - 1)
        row = np.where(names[row] == contexts, row, len(names))
        column = np.where((positions >= 1) & (positions <= depth), positions - 1, depth)
        alpha = table[row, column] / max(1.0, np.nanmax(table))
        return alpha, np.zeros(alpha.shape)

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the curves of all contexts below each other, with their intervals."""
        return stack_columns("context", self.curves)


@dataclass(frozen=True, eq=False)
class TrustPropensities(SavedPropensities):
    """P(click at position k) = beta[k − 1] + alpha[k − 1]·r, with an interval of each.

    Items that moved determine α and β up to r → a·r + b, which does not change the order of items.
    The scale is fixed by α = 1 at the first position; the origin by β = 0 at the last, where users
    have the least reason to click an item for its rank. `origin` is the r of irrelevant items;
    `examination_of` returns β shifted by it.

    Parameters
    ----------
    alpha, alpha_low, alpha_high, beta, beta_low, beta_high : float arrays (K,)
    n_impressions : array (K,)
        The impressions of each position in the log.
    p_value : float
        The probability of clicks as far from β = 0 as in this log if there is no trust bias.
    origin : float
        The r of irrelevant items, where r is 0 for items that are not clicked at the last position.
    confidence : float
        The confidence of the intervals.
    notes : tuple of str

    Examples
    --------
    >>> from countersample.propensity import TrustPropensities
    >>> trust = TrustPropensities(
    ...     alpha=[1, 0.8], alpha_low=[1, 0.7], alpha_high=[1, 0.9], beta=[0.3, 0],
    ...     beta_low=[0.2, 0], beta_high=[0.4, 0], n_impressions=[100, 100], p_value=0.001,
    ... )
    >>> trust.examination_of([2, 1, 3], ["", "", ""])
    (array([0.8, 1. , nan]), array([0. , 0.3, nan]))
    >>> trust.sentence
    'Users trust high ranks: β is above 0 at position 1.'
    """

    kind = "with trust"
    method: ClassVar[str] = TRUST

    alpha: Floats
    alpha_low: Floats
    alpha_high: Floats
    beta: Floats
    beta_low: Floats
    beta_high: Floats
    n_impressions: NDArray[np.int64]
    p_value: float
    origin: float = 0.0
    confidence: float = CONFIDENCE
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._set_columns(*_TRUST_COLUMNS)
        for name in _TRUST_COLUMNS:
            if not np.isfinite(getattr(self, name)).all():
                raise DataError(f"{name} has a value that is not finite, expected numbers")
        number("p_value", self.p_value, least=0, most=1)
        number("origin", self.origin)
        check_weightable(self.alpha)

    @property
    def position(self) -> NDArray[np.int64]:
        """The positions, 1..K."""
        return np.arange(1, len(self.alpha) + 1)

    @property
    def has_trust_bias(self) -> bool:
        """Whether β = 0 at all positions is ruled out, with a p-value of at most 0.05."""
        return self.p_value <= _MAX_P_VALUE

    @property
    def sentence(self) -> str:
        """Whether there is trust bias, and at which positions, in words."""
        if not self.has_trust_bias:
            return (
                "No trust bias is detected: every β may be 0 "
                f"(p = {self.p_value:.2g}), and a method without it has narrower intervals."
            )
        above = np.flatnonzero(self.beta_low > 0)
        if len(above):
            return f"Users trust high ranks: β is above 0 at {positions_text(above)}."
        return (
            f"Not every β is 0 (p = {self.p_value:.2g}), but none is surely above it: users do not "
            "click as the position-based model has it."
        )

    def examination_of(self, position: ArrayLike, context: ArrayLike) -> tuple[Floats, Floats]:  # noqa: ARG002 (one curve for all contexts)
        """Return α and β of each row, each (n,); NaN if a position has no estimate.

        β is β + origin·α, so that an irrelevant item has a relevance of 0, like one that was never
        shown; the origin is increased if needed so that no β is below 0. If an α is above 1, all
        are divided by the largest.
        """
        positions = np.asarray(position, np.int64)
        depth = len(self.alpha)
        index = np.where((positions >= 1) & (positions <= depth), positions - 1, depth)
        slope = np.append(self.alpha / max(1.0, float(self.alpha.max())), np.nan)
        origin = (-self.beta / self.alpha).max(initial=self.origin)
        by_chance = np.maximum(self.beta + origin * self.alpha, 0.0)
        return slope[index], np.append(by_chance, np.nan)[index]

    def summary(self) -> str:
        """Return a table of α and β at the first positions, for a terminal."""
        rows = (
            [f"{k + 1}", f"{self.alpha[k]:.4g}",
             f"{self.alpha_low[k]:.4g} to {self.alpha_high[k]:.4g}", f"{self.beta[k]:.4g}",
             f"{self.beta_low[k]:.4g} to {self.beta_high[k]:.4g}", f"{self.n_impressions[k]:,}"]
            for k in range(len(self.alpha))
        )  # fmt: skip
        interval = f"{self.confidence:.0%} interval"
        headers = ["position", "α", interval, "β", interval, "impressions"]
        text = f"{_table(headers, rows, len(self.alpha))}\n"
        # That there is no trust bias is a note of the estimate, and so among the warnings.
        return f"{text}\n{_text.paragraph(self.sentence)}" if self.has_trust_bias else text

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return position, α and β with the ends of their intervals, and impressions."""
        names = ("position", *_TRUST_COLUMNS, "n_impressions")
        return {name: getattr(self, name) for name in names}


# -- files

AnyPropensities = Propensities | ContextPropensities | TrustPropensities
_KINDS = {each.kind: each for each in (Propensities, ContextPropensities, TrustPropensities)}
_FILE_TYPES = {  # by the annotation of a field; the constructors check the values
    "Floats": list[float],
    "NDArray[np.int64]": list[Annotated[int, Meta(ge=0, le=2**63 - 1)]],
    "float": float,
    "str": str,
    "tuple[str, ...]": list[str],
    "dict[str, str]": dict[str, str],
    "dict[str, Propensities]": Annotated[dict[str, dict[str, Any]], Meta(min_length=1)],
}


class _Header(msgspec.Struct):
    schema_version: int
    kind: str


def load_propensities(path: str | PathLike[str]) -> AnyPropensities:
    """Read propensities of any kind that `save` wrote.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from countersample.propensity import Propensities, load_propensities
    >>> curve = Propensities([1, 0.5], [1, 0.4], [1, 0.6], n_impressions=[9, 9], method="pivot")
    >>> with TemporaryDirectory() as folder:
    ...     curve.save(f"{folder}/curve.json")
    ...     load_propensities(f"{folder}/curve.json").value
    array([1. , 0.5])
    """
    with reading(path, "not propensities in JSON ({})", ValueError):
        return _from_dict(parse_json(read_at_most(Path(path), MAX_BYTES)), *_KINDS)


def _from_dict(values: dict[str, Any], *kinds: str) -> AnyPropensities:
    """Return the estimate that `to_dict` wrote, of one of these kinds."""
    header = check_schema(values, _Header, _OWNER)
    if header.schema_version != SCHEMA_VERSION or header.kind not in kinds:
        raise DataError(
            f"propensities of schema version {header.schema_version} and of the kind "
            f"{header.kind!r}, expected {SCHEMA_VERSION} and one of {', '.join(kinds)}: read them "
            "with the release that wrote them"
        )
    cls: Any = _KINDS[header.kind]
    columns = [(each.name, _FILE_TYPES[str(each.type)]) for each in fields(cls)]
    schema = msgspec.defstruct(cls.__name__, columns)
    estimate: AnyPropensities = cls(**msgspec.structs.asdict(check_schema(values, schema, _OWNER)))
    return estimate
