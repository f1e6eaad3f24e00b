"""The features of a table's columns: numbers, ages of dates, indicators of categories.

Values are parsed in `tables`; filling in, transforms and scaling follow in `preprocessing`.
`learn_encoder` decides from a column's type and values which features it becomes. The result, a
`FeatureEncoder`, is saved with a ranker, so that serving computes the same features:

==========  ===========================================================================  ==========
kind        features                                                                     if missing
==========  ===========================================================================  ==========
number      the number; booleans are 0 and 1                                             NaN
date        one: the age in days, reference − date                                       NaN
category    one indicator per value: 1 if the column has that value, else 0              all 0
==========  ===========================================================================  ==========
"""

from __future__ import annotations

import reprlib
from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice
from countersample.data.tables import (
    ISO_TIME,
    as_days,
    as_floats,
    as_texts,
    check_column,
    kind_of,
)
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

KINDS = ("number", "date", "category")
MAX_VALUES = 20  # of a text column that is not listed in `categorical`
MIN_ROWS = 10  # with a value of such a column, for an indicator
MAX_CATEGORICAL_VALUES = 200  # of a column in `categorical`
MAX_VALUE_LENGTH = 100  # characters; longer values are free text
OTHER_COLUMNS = ("skip", "error")
_MAX_LISTED = 8  # columns in a message
_EPOCH = date(1970, 1, 1)
_NO_VALUE = "no value at all"


@dataclass(frozen=True)
class EncodedColumn:
    """A column of a table and its features.

    Parameters
    ----------
    name : str
    kind : {"number", "date", "category"}
        See the table at the top of this module.
    values : tuple of str
        The values of a category that have an indicator.
    reference : str
        The day, in ISO 8601, from which the ages of a date are counted.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    reference: str = ""

    def __post_init__(self) -> None:
        is_valid = bool(self.name) and all(self.values) and self.kind in KINDS
        if self.kind == "category":
            is_valid = is_valid and 0 < len(set(self.values)) == len(self.values)
        elif self.kind == "date":
            is_valid = is_valid and _is_day(self.reference)
        if not is_valid:
            raise DataError(
                f"a column of the encoder has the name {self.name!r}, the kind {self.kind!r}, the "
                f"values {reprlib.repr(self.values)} and the day {self.reference!r}, expected a "
                "name, one of the "
                f"kinds {', '.join(KINDS)}, different values of a category, a YYYY-MM-DD of a date"
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name of each feature: the column's name, or ``name=value`` for a category."""
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.values)
        return (self.name,)

    def encode(self, column: pa.ChunkedArray) -> NDArray[np.float32]:
        """Return the features of each row, float32 (n_rows, n_features)."""
        if self.kind == "category":
            return self._indicators(column)
        if self.kind == "date":
            reference = (date.fromisoformat(self.reference) - _EPOCH).days
            numbers = reference - as_days(self.name, column)
        else:
            numbers = as_floats(self.name, column)
        with np.errstate(over="ignore"):  # an overflow is rejected below, as infinity
            feature = numbers.astype(np.float32)
        is_infinite = np.isinf(feature)
        if is_infinite.any():  # checked here: later the rows are in another order
            row = int(is_infinite.argmax())
            raise DataError(
                f"column {self.name!r} has {feature[row]} in row {row} (counted from 0), expected "
                "finite float32 numbers, or NaN for a missing value: replace or drop such rows"
            )
        return feature[:, None]

    def _indicators(self, column: pa.ChunkedArray) -> NDArray[np.float32]:
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import compute  # noqa: PLC0415

        values = pa.array(self.values, pa.large_string())
        index = compute.index_in(as_texts(self.name, column), value_set=values)
        place = compute.fill_null(index, -1).to_numpy()
        indicators: NDArray[np.bool_] = place[:, None] == np.arange(len(values))
        return indicators.astype(np.float32)


@dataclass(frozen=True)
class FeatureEncoder:
    """The features of a table's columns: learned once, and saved with a ranker.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.data.encoder import EncodedColumn, FeatureEncoder
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
        for what, names in (("column", self.column_names), ("feature", self.feature_names)):
            (name, count), *_ = Counter(names).most_common(1) or [("", 0)]
            if count > 1:
                raise DataError(
                    f"two {what}s are called {reprlib.repr(name)}, expected different names: "
                    "rename or drop a column"
                )

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

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, (n_features,)."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.feature_names)

    @property
    def has_only_numbers(self) -> bool:
        """Whether each column is one feature, unchanged: then feature names are enough."""
        return all(column.kind == "number" for column in self.columns)

    def transform(self, table: pa.Table) -> NDArray[np.float32]:
        """Return the features of each row, float32 (n_rows, n_features); NaN is missing.

        Columns are selected by name; their order, and other columns, do not matter.
        """
        for name in self.column_names:
            check_column(name, table.column_names)
        sources = dict.fromkeys(self.column_names, (table, None))
        return encode_columns(self, table.num_rows, sources)


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
    sources : mapping of column name to (table, rows)
        The table of each column, and the row of that table for each output row: −1 if it has none,
        None if rows are the same. So an item's column is encoded once, not once per query.
    """
    matrix = np.empty((n_rows, encoder.n_features), np.float32)
    start = 0
    for column in encoder.columns:
        table, rows = sources[column.name]
        block = column.encode(table[column.name])
        end = start + block.shape[1]
        matrix[:, start:end] = block if rows is None else block[rows]
        if rows is not None and (rows < 0).any():
            matrix[rows < 0, start:end] = 0.0 if column.kind == "category" else np.nan
        start = end
    return matrix


# -- Learning --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LearnedEncoder:
    """The result of `learn_encoder`: the encoder, and the reason for each column left out."""

    encoder: FeatureEncoder
    left_out: dict[str, str]

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence about the columns that are left out, if there are any."""
        if not self.left_out:
            return ()
        sentence = (
            f"Left out of the features: {_list_columns(self.left_out)}. Use --categorical to make "
            "indicators of a column's values, or --exclude to drop it without this message."
        )
        return (sentence,)


def learn_encoder(
    tables: Mapping[str, pa.Table],
    *,
    categorical: Sequence[str] = (),
    other_columns: str = "skip",
    is_chosen: bool = False,
    reference: str | None = None,
    beside: bool = False,
) -> LearnedEncoder:
    """Learn the features of columns: numbers, ages of dates, indicators of categories.

    Parameters
    ----------
    tables : mapping of column name to table
        The table of each column, in the order of the features.
    categorical : sequence of str
        Columns of text or integers that become indicators, one for each of up to 200 values. Other
        text columns become indicators if they have up to 20 values, of which those in at least 10
        rows count.
    other_columns : {"skip", "error"}
        What to do with other columns: ids, free text, lists, empty columns.
    is_chosen : bool
        Whether the user listed the columns: then a column without features is an error, too.
    reference : str, optional
        The day from which ages are counted, such as ``"2026-03-31"``. By default each column's
        latest day, or the day after if it has times.
    beside : bool
        Whether there are other features, so that having none here is fine.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.data.encoder import learn_encoder
    >>> table = pyarrow.table({"price": [1, None], "title": ["a lamp", "a chair"]})
    >>> learned = learn_encoder({name: table for name in table.column_names})
    >>> learned.encoder.feature_names, learned.left_out
    (('price',), {'title': 'text, no value in 10 rows or more'})
    """
    choice("other_columns", other_columns, OTHER_COLUMNS)
    if reference is not None and not _is_day(reference):
        raise ParameterError(
            f"the day that ages are counted from is {reference!r}, expected one such as 2026-03-31"
        )
    for name in categorical:
        check_column(name, list(tables), what="feature")
    columns, left_out = [], {}
    for name, table in tables.items():
        if name in categorical:
            columns.append(_learn_category(name, table[name]))
            continue
        column = _learn_column(name, table[name], reference)
        if isinstance(column, EncodedColumn):
            columns.append(column)
        else:
            left_out[name] = column
    if left_out and (is_chosen or other_columns == "error"):
        raise DataError(
            f"no features can be made of {_list_columns(left_out)}: list columns of few values "
            "with categorical= (--categorical), and leave the others out"
            f"{'' if is_chosen else ' (--exclude, or --other-columns skip)'}"
        )
    if not columns and not beside:
        raise DataError(f"no feature is left, expected at least one: {_list_columns(left_out)}")
    return LearnedEncoder(FeatureEncoder(tuple(columns)), left_out)


def _learn_column(name: str, column: pa.ChunkedArray, reference: str | None) -> EncodedColumn | str:
    """Return the features of a column, or the reason why it has none."""
    kind = kind_of(column.type)
    if kind == "nothing" or column.null_count == len(column):
        return _NO_VALUE
    if kind in {"number", "boolean"}:
        is_empty = np.isnan(as_floats(name, column)).all()
        return _NO_VALUE if is_empty else EncodedColumn(name, "number")
    if kind == "date":
        return _learn_date(name, column, reference)
    return _learn_text(name, column, reference) if kind == "text" else f"of type {column.type}"


def _learn_text(name: str, column: pa.ChunkedArray, reference: str | None) -> EncodedColumn | str:
    from pyarrow import compute  # noqa: PLC0415 (heavy, only where used)

    texts = as_texts(name, column)
    counts = _count_values(texts)
    if not counts:
        return _NO_VALUE
    if compute.all(compute.match_substring_regex(texts, ISO_TIME)).as_py():
        try:
            return _learn_date(name, texts, reference)
        except DataError:  # the 30th of February
            pass
    if len(counts) > MAX_VALUES:
        return f"text of {len(counts):,} values"
    if max(map(len, counts)) > MAX_VALUE_LENGTH:
        return "text of long values"
    values = tuple(sorted(value for value, count in counts.items() if count >= MIN_ROWS))
    if not values:
        return f"text, no value in {MIN_ROWS} rows or more"
    return EncodedColumn(name, "category", values)


def _learn_category(name: str, column: pa.ChunkedArray) -> EncodedColumn:
    """Return the indicators of a column that the user listed as categorical."""
    kind, expected = kind_of(column.type), "expected a column of text or of integers"
    problem = ""
    if kind == "boolean":
        problem = "is boolean, which is 0 and 1 already: leave it out of categorical"
    elif kind not in {"number", "text", "nothing"}:
        problem = f"is {column.type}, {expected}"
    elif kind == "number":
        floats = as_floats(name, column)
        is_whole = np.isnan(floats) | (np.isfinite(floats) & (np.floor(floats) == floats))
        problem = "" if is_whole.all() else f"has fractions, {expected}"
    values = () if problem else tuple(sorted(_count_values(as_texts(name, column))))
    length = max(map(len, values), default=0)
    if not problem and not 0 < len(values) <= MAX_CATEGORICAL_VALUES:
        problem = (
            f"has {len(values):,} values, expected 1 to {MAX_CATEGORICAL_VALUES}: join rare "
            "values, or leave it out (--exclude)"
        )
    elif length > MAX_VALUE_LENGTH:
        problem = (
            f"has a value of {length:,} characters, expected at most {MAX_VALUE_LENGTH}: shorten "
            "it, or leave it out (--exclude)"
        )
    if problem:
        raise DataError(f"{name!r} is listed as categorical and {problem}")
    return EncodedColumn(name, "category", values)


def _learn_date(name: str, column: pa.ChunkedArray, reference: str | None) -> EncodedColumn | str:
    days = as_days(name, column)  # raises an error for text that is not a date
    try:
        day = reference or (_EPOCH + timedelta(days=float(np.ceil(np.nanmax(days))))).isoformat()
    except OverflowError:
        return "dates beyond the year 9999"
    return EncodedColumn(name, "date", reference=day)


def _count_values(texts: pa.ChunkedArray) -> dict[str, int]:
    """Return the number of rows with each value."""
    counts: list[dict[str, Any]] = texts.value_counts().to_pylist()
    return {each["values"]: each["counts"] for each in counts if each["values"] is not None}


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except (TypeError, ValueError):
        return False


def _list_columns(left_out: Mapping[str, str]) -> str:
    reasons = [f"{name!r} ({why})" for name, why in left_out.items()]
    n_more = len(reasons) - _MAX_LISTED
    return ", ".join(reasons[:_MAX_LISTED]) + (f" and {n_more:,} more" if n_more > 0 else "")
