"""What a table's columns become as features: numbers, ages of dates, indicators of categories."""

from __future__ import annotations

import reprlib
from collections import Counter
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.arrow_values import as_days, as_floats, as_texts
from countersample.data.frames import check_column
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

KINDS = ("number", "date", "category")
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class EncodedColumn:
    """A column of a table, and the features it becomes.

    Parameters
    ----------
    name : str
    kind : {"number", "date", "category"}
        A number is a feature as it is, NaN where it is missing; so are booleans, as 0 and 1. A date
        is its age in days, ``reference − date``. A category has one indicator for each of its
        `values`: 1 where it has that value, else 0; where it has another, or none, all are 0.
    values : tuple of str
        Of a category.
    reference : str
        The day that ages are counted from, as ISO 8601 writes it; of a date.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    reference: str = ""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name of each feature: that of the column, or ``name=value`` of a category."""
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.values)
        return (self.name,)

    def encode(self, column: pa.ChunkedArray) -> NDArray[np.float32]:
        """Return the features of each row, float32 (n_rows, n_features)."""
        if self.kind == "category":
            return self._indicators(column)
        if self.kind == "date":
            reference = (date.fromisoformat(self.reference) - _EPOCH).days
            found = reference - as_days(self.name, column)
        else:
            found = as_floats(self.name, column)
        with np.errstate(over="ignore"):  # what overflows is found, and said, as not finite
            return found.astype(np.float32)[:, None]

    def _indicators(self, column: pa.ChunkedArray) -> NDArray[np.float32]:
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import compute  # noqa: PLC0415

        known = pa.array(self.values, pa.large_string())
        index = compute.index_in(as_texts(self.name, column), value_set=known)
        place = compute.fill_null(index, -1).to_numpy()
        found = np.zeros((len(place), len(self.values)), np.float32)
        rows = np.flatnonzero(place >= 0)
        found[rows, place[rows]] = 1.0
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        kept: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind == "category":
            kept["values"] = list(self.values)
        elif self.kind == "date":
            kept["reference"] = self.reference
        return kept

    @classmethod
    def from_dict(cls, kept: Any) -> EncodedColumn:  # noqa: ANN401 (JSON of anyone)
        """Check and take what `to_dict` returned; anything else is a DataError."""
        if not isinstance(kept, dict):
            raise DataError(f"a column of the encoder is {reprlib.repr(kept)}, expected an object")
        name, kind = _text("name", kept.get("name")), kept.get("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            raise DataError(
                f"the kind of the column {reprlib.repr(name)} is {reprlib.repr(kind)}, expected "
                f"one of {', '.join(KINDS)}"
            )
        more = {"category": {"values"}, "date": {"reference"}}.get(kind, set())
        if set(kept) != {"name", "kind", *more}:
            raise DataError(
                f"the column {reprlib.repr(name)} of the encoder has the entries "
                f"{reprlib.repr(sorted(map(str, kept)))}, expected those of a {kind}"
            )
        values: tuple[str, ...] = ()
        if kind == "category":
            given = kept["values"]
            if not isinstance(given, list) or not given:
                raise DataError(
                    f"the values of a category are {reprlib.repr(given)}, expected some"
                )
            values = tuple(_text("value", value) for value in given)
            _check_once(values, "value")
        reference = _day(kept["reference"]) if kind == "date" else ""
        return cls(name, kind, values, reference)


@dataclass(frozen=True)
class FeatureEncoder:
    """How the columns of a table become features: it is learned once, and saved with a ranker.

    Parameters
    ----------
    columns : tuple of EncodedColumn

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.data.encoding import EncodedColumn, FeatureEncoder
    >>> encoder = FeatureEncoder((
    ...     EncodedColumn("price", "number"),
    ...     EncodedColumn("since", "date", reference="2026-03-31"),
    ...     EncodedColumn("color", "category", values=("blue", "red")),
    ... ))
    >>> encoder.feature_names
    ('price', 'since', 'color=blue', 'color=red')
    >>> table = pyarrow.table({
    ...     "color": ["red", "green"], "price": [9.5, None], "since": ["2026-03-30", "2026-03-01"],
    ... })
    >>> encoder.transform(table)
    array([[ 9.5,  1. ,  0. ,  1. ],
           [ nan, 30. ,  0. ,  0. ]], dtype=float32)
    """

    columns: tuple[EncodedColumn, ...]

    def __post_init__(self) -> None:
        _check_once([column.name for column in self.columns], "column")
        _check_once(self.feature_names, "feature")

    @classmethod
    def of_numbers(cls, names: Iterable[str]) -> FeatureEncoder:
        """Return the encoder of columns that are all numbers."""
        return cls(tuple(EncodedColumn(name, "number") for name in names))

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns that it reads."""
        return tuple(column.name for column in self.columns)

    @property
    def categories(self) -> list[str]:
        """The names of the columns that are categories."""
        return [column.name for column in self.columns if column.kind == "category"]

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, (n_features,)."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.feature_names)

    @property
    def has_only_numbers(self) -> bool:
        """Whether features are columns as they are: then a ranker's feature names say it all."""
        return all(column.kind == "number" for column in self.columns)

    def transform(self, table: pa.Table) -> NDArray[np.float32]:
        """Return the features of each row, float32 (n_rows, n_features); NaN is missing.

        Columns are taken by name, whatever their order and whatever else the table has.
        """
        for name in self.column_names:
            check_column(name, table.column_names)
        sources = dict.fromkeys(self.column_names, (table, None))
        return encode_columns(self, table.num_rows, sources)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"columns": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_dict(cls, kept: Any) -> FeatureEncoder:  # noqa: ANN401 (JSON of anyone)
        """Check and take what `to_dict` returned; anything else is a DataError."""
        columns = kept.get("columns") if isinstance(kept, dict) else None
        if not isinstance(columns, list) or not columns:
            raise DataError(f"the encoder is {reprlib.repr(kept)}, expected one with columns")
        return cls(tuple(EncodedColumn.from_dict(column) for column in columns))


def encode_columns(
    encoder: FeatureEncoder,
    n_rows: int,
    sources: Mapping[str, tuple[pa.Table, NDArray[np.int64] | None]],
) -> NDArray[np.float32]:
    """Return the features of rows, float32 (n_rows, n_features), column after column.

    Parameters
    ----------
    encoder : FeatureEncoder
    n_rows : int
    sources : mapping of (table, rows), by the name of the column
        Where each column is, and which row of that table each row is, −1 for none of them; None
        where they are the same. So what is known of an item is encoded once, not for each query
        that the item is of.
    """
    matrix = np.empty((n_rows, encoder.n_features), np.float32)
    start = 0
    for column in encoder.columns:
        table, rows = sources[column.name]
        block = column.encode(table[column.name])
        _check_block(column.name, block)
        end = start + block.shape[1]
        matrix[:, start:end] = block if rows is None else block[rows]
        if rows is not None and (rows < 0).any():
            matrix[rows < 0, start:end] = 0.0 if column.kind == "category" else np.nan
        start = end
    return matrix


def _check_block(name: str, block: NDArray[np.float32]) -> None:
    """Refuse infinity, with the row of the table that has it: rows have another order later."""
    is_bad = np.isinf(block)
    if is_bad.any():
        row, column = np.argwhere(is_bad)[0]
        raise DataError(
            f"column {name!r} has {block[row, column]} in row {row} (counted from 0), expected "
            "finite float32 numbers, or NaN for what is missing: replace or drop such rows"
        )


def _text(name: str, value: object) -> str:
    """Return text that can be written as UTF-8."""
    try:
        if isinstance(value, str) and value:
            value.encode()
            return value
    except UnicodeEncodeError:
        pass
    raise DataError(f"a {name} of the encoder is {reprlib.repr(value)}, expected text")


def _day(value: object) -> str:
    try:
        if isinstance(value, str) and date.fromisoformat(value).isoformat() == value:
            return value
    except ValueError:
        pass
    raise DataError(f"the reference of a date is {reprlib.repr(value)}, expected YYYY-MM-DD")


def _check_once(names: Sequence[str], what: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"two {what}s are called {reprlib.repr(twice[0])}, expected names that differ: rename "
            "or drop a column"
        )
