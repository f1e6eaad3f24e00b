"""Columns of data frames (pandas, polars, pyarrow, DuckDB), and values of Arrow columns as numbers.

Which features a column becomes is decided in `encoder`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from countersample.data.sources import quote
from countersample.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from countersample._arrays import Floats

_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_MAX_EXACT = 2**53  # larger whole numbers are not exact in a float
#: A day, or a time, in ISO 8601.
ISO_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?$"  # noqa: E501


# -- Frames ----------------------------------------------------------------------------------------


def as_narwhals(
    frame: Any,  # noqa: ANN401 (any frame narwhals supports)
    problem: str = "not a data frame",
) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    """Return the frame of any library as a narwhals frame; `problem` goes into the error."""
    try:
        return nw.from_native(frame)  # type: ignore[no-any-return]
    except TypeError as error:
        raise DataError(
            f"a {type(frame).__name__} is {problem}: expected one of pandas, polars, pyarrow, "
            "DuckDB or Spark"
        ) from error


def collect_frame(frame: Any, problem: str = "not a data frame") -> nw.DataFrame[Any]:  # noqa: ANN401 (as above)
    """Return the frame of any library in memory."""
    native = as_narwhals(frame, problem)
    return native.collect() if isinstance(native, nw.LazyFrame) else native


def check_column(
    column: str, columns: list[str], advice: str = "", *, what: str = "column"
) -> None:
    """Reject a column that does not exist; the error lists the existing ones."""
    if column in columns:
        return
    close = difflib.get_close_matches(column, columns, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    names = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
    raise DataError(f"no {what} {column!r}{hint}: the {what}s are {names}{advice}")


def check_no_nulls(series: nw.Series[Any]) -> None:
    """Reject a column with a null."""
    if series.null_count():
        row = int(np.flatnonzero(series.is_null().to_numpy())[0])
        raise DataError(f"column {series.name!r} has no value in row {row}, expected one")


def number_column(series: nw.Series[Any], *, is_feature: bool) -> NDArray[Any]:
    """Return a column of numbers; nulls become NaN."""
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        hint = ": drop the column, or convert it" if is_feature else ""
        raise DataError(f"column {series.name!r} is {series.dtype}, expected numbers{hint}")
    if series.null_count():
        series = series.cast(nw.Float64).fill_null(float("nan"))
    return series.to_numpy()


# -- Arrow values ----------------------------------------------------------------------------------

_TYPE_TESTS = {  # functions of pyarrow.types
    "boolean": ("is_boolean",),
    "number": ("is_integer", "is_floating", "is_decimal"),
    "date": ("is_date", "is_timestamp"),
    "text": ("is_string", "is_large_string", "is_string_view"),
    "nothing": ("is_null",),
}


def kind_of(dtype: pa.DataType) -> str:
    """Return the kind of a type: number, boolean, date, text, nothing or other."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    if pa.types.is_dictionary(dtype):
        return kind_of(dtype.value_type)
    for kind, names in _TYPE_TESTS.items():
        if any(getattr(pa.types, name)(dtype) for name in names):
            return kind
    return "other"


def as_floats(name: str, column: pa.ChunkedArray) -> Floats:
    """Return a column of numbers, float64 (n,), with NaN for nulls; text is parsed."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    column, kind = _plain(name, column, ("number", "boolean", "text", "nothing"), "numbers")
    if kind == "text":
        return _parse_numbers(name, column)
    floats: Floats = column.cast(pa.float64(), safe=False).to_numpy()
    return floats


def as_days(name: str, column: pa.ChunkedArray) -> Floats:
    """Return dates and times as days since 1970 in UTC, float64 (n,); text is ISO 8601.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.data.tables import as_days
    >>> as_days("since", pyarrow.chunked_array([["1970-01-02", "1970-01-01T12:00:00Z", None]]))
    array([1. , 0.5, nan])
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    column, kind = _plain(name, column, ("date", "text", "nothing"), "dates or times")
    if kind == "text":
        column = _parse_times(name, column)
    elif kind == "nothing":
        return np.full(len(column), np.nan)
    if pa.types.is_date32(column.type):
        per_day, whole = 1, column.cast(pa.int32())
    else:
        unit = "ms" if pa.types.is_date64(column.type) else column.type.unit
        per_day, whole = _PER_DAY[unit], column.cast(pa.int64())
    floats: Floats = whole.cast(pa.float64(), safe=False).to_numpy() / per_day
    return floats


def as_texts(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a category as text; whole numbers are written as integers."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute  # noqa: PLC0415

    kinds = ("number", "boolean", "text", "nothing")
    column, kind = _plain(name, column, kinds, "text or integers")
    if kind == "number" and not pa.types.is_integer(column.type):
        floats = as_floats(name, column)
        is_whole = (np.abs(floats) <= _MAX_EXACT) & (np.floor(floats) == floats)
        integers = pa.array(np.where(is_whole, floats, 0).astype(np.int64)).cast(pa.large_string())
        others = pa.array(floats, from_pandas=True).cast(pa.large_string())
        column = pa.chunked_array([compute.if_else(pa.array(is_whole), integers, others)])
    return _replace(column.cast(pa.large_string()), [""], None)


def _plain(
    name: str,
    column: Any,  # noqa: ANN401 (array, chunked or not)
    kinds: tuple[str, ...],
    expected: str,
) -> tuple[pa.ChunkedArray, str]:
    """Return a chunked column without a dictionary, and its kind, which must be one of `kinds`."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.cast(chunked.type.value_type)
    kind = kind_of(chunked.type)
    if kind not in kinds:
        raise DataError(f"column {name!r} is {chunked.type}, expected {expected}")
    return chunked, kind


def _replace(text: pa.ChunkedArray, values: list[str], new: str | None) -> pa.ChunkedArray:
    """Return text with some of its values replaced."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute  # noqa: PLC0415

    is_old = compute.is_in(text, value_set=pa.array(values, pa.large_string()))
    return compute.if_else(is_old, pa.scalar(new, pa.large_string()), text)


def _parse_numbers(name: str, column: pa.ChunkedArray) -> Floats:
    """Parse text as Arrow parses the numbers of CSV files."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute, csv  # noqa: PLC0415

    spellings = csv.ConvertOptions()
    text = compute.utf8_trim_whitespace(column.cast(pa.large_string()))
    text = _replace(text, spellings.null_values, None)
    text = _replace(text, spellings.true_values, "1")
    text = _replace(text, spellings.false_values, "0")
    try:
        floats: Floats = text.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise DataError(f"{_first_bad(name, text, pa.float64())}, expected a number") from error
    return floats


def _parse_times(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Parse ISO 8601; times without a zone are UTC, digits beyond microseconds are dropped."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute  # noqa: PLC0415

    text = _replace(compute.utf8_trim_whitespace(column.cast(pa.large_string())), [""], None)
    text = compute.replace_substring_regex(text, r"([.][0-9]{6})[0-9]+", r"\1")
    has_zone = compute.match_substring_regex(text, "[T ].*(Z|[+-][0-9]{2}:?[0-9]{2})$")
    null = pa.scalar(None, pa.large_string())
    try:
        zoned = compute.if_else(has_zone, text, null).cast(pa.timestamp("us", "UTC"))
        plain = compute.if_else(has_zone, null, text).cast(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        value = _first_bad(name, text, pa.timestamp("us"))
        raise DataError(f"{value}, expected a date such as 2026-03-31") from error
    return compute.coalesce(zoned.cast(pa.int64()), plain.cast(pa.int64())).cast(pa.timestamp("us"))


def _first_bad(name: str, text: pa.ChunkedArray, dtype: pa.DataType) -> str:
    """Describe the first value that cannot be parsed as a type."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    for value in text.unique():
        try:
            value.cast(dtype)
        except pa.ArrowInvalid:
            row = text.index(value).as_py()
            return f"column {name!r} has {quote(value.as_py())} in row {row} (counted from 0)"
    return f"column {name!r} has a value that cannot be read"
