"""The columns of a log: canonical names, the log's own names, types, events and joined queries.

No file is read here (`files`), and no row is rejected (`aggregation`). `select_columns` takes the
columns that are needed, under canonical names. `prepare_rows` makes their types alike on all
engines, merges events into impressions and joins queries.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import compute

from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from countersample.options import LogOptions

REQUIRED = ("query_id", "item_id", "position", "click")
#: Columns of an aggregated log alone: ignored in a log without ``impressions``.
AGGREGATED = ("sessions", "session_policies")
CANONICAL = (
    *REQUIRED, "session", "client", "timestamp", "policy", "impressions", "propensity", "context",
    "value", "event", *AGGREGATED,
)  # fmt: skip
IDS = ("query_id", "item_id")
NONE = "(none)"  # the context, or the policy, of a row that has none
FEATURE = "feature_"  # features of the log are called feature_0, feature_1, … in its frame
#: Arrays of ids are as wide as the longest one, so that one long id would fill the memory.
MAX_ID_LENGTH = 1_000
INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"  # ids of a text file that may mean numbers: 7, not 07
MIXED = "{name} has values of mixed types, expected all integers or all text: convert them"
_NUMBERS = ("position", "click", "impressions", "propensity", "value", "sessions")
_TEXTS = ("policy", "event", "session_policies")
_PAGE = ("session", "query_id", "item_id", "position")
_BLANKS = " \t\n\r\f\v"
_DIGITS = r"^[0-9]{1,9}$"
# A number as text, in lower case, that no engine reads in another way than Python.
_NUMBER = r"^[+-]?(?:[0-9]{1,99}(?:\.[0-9]{0,99})?|\.[0-9]{1,99})(?:e[+-]?[0-9]{1,2})?$"
_BLANK_RUNS = "[ \t\n\r\f\v\u00a0]+"
# Engines write these in different ways in lower case: İ as two characters, Σ at the end of a word.
_LOWER_CASE_VARIANTS = {"i\u0307": "i", "ς": "σ"}


# -- names


def find_mapped_names(options: LogOptions) -> tuple[str, ...]:
    """Return the log's own names that the user gave, each once."""
    return tuple(dict.fromkeys((*options.columns.values(), *options.context, *options.features)))


def select_columns(frame: nw.LazyFrame[Any], options: LogOptions) -> nw.LazyFrame[Any]:
    """Return the columns that are needed, under their canonical names, lazily."""
    schema = frame.collect_schema()
    options = _rename_aggregated(options, schema.names())
    names = resolve_names(options, schema.names())
    columns = {name: nw.col(column) for name, column in names.items()}
    for number, column in enumerate(dict.fromkeys(options.features)):
        _check_feature(column, schema)
        columns[f"{FEATURE}{number}"] = nw.col(column)
    if options.context:
        parts = [_as_context(column, schema[column]) for column in options.context]
        columns["context"] = parts[0] if len(parts) == 1 else nw.concat_str(*parts, separator=" / ")
    return frame.select(**columns)


def _rename_aggregated(options: LogOptions, present: Sequence[str]) -> LogOptions:
    """Return options without the raw log's names of columns that an aggregated log lacks.

    Its columns have canonical names, so that one countersample.toml serves both logs.
    """
    if "impressions" not in present:
        return options
    columns = {
        name: own
        for name, own in options.columns.items()
        if own in present or name not in {*present, "session", "client"}
    }
    has_context = "context" in present and not {*options.context} <= {*present}
    return replace(options, columns=columns, context=() if has_context else options.context)


def list_unused(options: LogOptions, present: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table of impressions that no option names and no default takes."""
    if "impressions" in present:  # an aggregated log, whose columns are the package's own
        return ()
    used = {*resolve_names(options, present).values(), *options.features, *options.context}
    return tuple(column for column in present if column not in used)


def resolve_names(options: LogOptions, present: Sequence[str]) -> dict[str, str]:
    """Return the log's own name of each canonical column that it has.

    With values of events, the column ``event`` is needed and replaces ``click``.
    """
    columns, context, has_values = options.columns, options.context, bool(options.values)
    for name in columns:
        if name not in CANONICAL:
            raise ParameterError(
                f"columns has {name!r}, expected names of {', '.join(CANONICAL)}, each with the "
                "log's own name for it"
            )
    if context and "context" in columns:
        raise ParameterError("context is given beside columns['context'], expected one of them")
    required = {"event" if has_values and name == "click" else name for name in REQUIRED}
    names = {name: columns.get(name, name) for name in CANONICAL}
    missing = [
        name for name in CANONICAL if names[name] not in present and name in {*required, *columns}
    ]
    if missing:
        raise DataError(_describe_missing(missing, names, present))
    unknown = [repr(column) for column in context if column not in present]
    if unknown:
        raise DataError(
            f"no column {' and '.join(unknown)} for the context: the columns are "
            f"{_list_names(present)}"
        )
    is_aggregated = names["impressions"] in present
    if has_values and is_aggregated:
        raise DataError(
            f"values are for a log with one row per event, and this log is aggregated: it has "
            f"impressions ({names['impressions']!r}). Leave out the values, and give the value of "
            "the clicks of a row in a column 'value'"
        )
    unused = {"click", "value"} if has_values else set()
    unused |= {"context"} if context else set()
    unused |= set() if is_aggregated else {*AGGREGATED}
    return {
        name: column for name, column in names.items() if column in present and name not in unused
    }


def _check_feature(column: str, schema: nw.Schema) -> None:
    if column not in schema:
        raise DataError(
            f"no column {column!r} for a feature of the log: the columns are "
            f"{_list_names(schema.names())}"
        )
    if not (schema[column].is_numeric() or schema[column] in {nw.Boolean, nw.String}):
        raise DataError(
            f"the feature {column!r} of the log is {schema[column]}, expected numbers: give it in "
            "a table of features (--features), or as a number"
        )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def _describe_missing(missing: list[str], names: Mapping[str, str], present: Sequence[str]) -> str:
    quoted = " and ".join(repr(names[name]) for name in missing)
    examples = {
        name: (difflib.get_close_matches(name, present, n=1) or ["…"])[0] for name in missing
    }
    pairs = ",".join(f"{name}={column}" for name, column in examples.items())
    plural = "s" if len(missing) > 1 else ""
    events = (
        "; if the column 'event' has the clicks, give the value of each event with "
        "values={'click': 1} (--values click=1)"
        if "click" in missing and names["event"] in present
        else ""
    )
    return (
        f"no column{plural} {quoted}: the columns are {_list_names(present)}; if it has another "
        f"name, map it with columns={examples!r} (--columns {pairs}){events}"
    )


# -- types


def prepare_rows(frame: nw.LazyFrame[Any], options: LogOptions) -> nw.LazyFrame[Any]:
    """Return canonical columns as impressions: types made alike, events merged, queries joined."""
    frame = _unify_types(frame)
    if options.positions_from == 0:
        frame = frame.with_columns(nw.col("position") + 1)
    if options.join_queries:
        frame = _join_queries(frame)
    return _merge_events(frame, options.values) if options.values else frame


def _unify_types(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the columns with ids as integers or text, and numbers as numbers."""
    columns = {}
    for name, dtype in frame.collect_schema().items():
        if name in IDS:
            columns[name] = as_id(name, name, dtype)
        elif name in _NUMBERS or name.startswith(FEATURE):
            columns[name] = as_number(name, dtype)
        elif name == "context":
            columns[name] = _as_context(name, dtype)
        elif name in _TEXTS:
            columns[name] = _as_text(name, dtype)
        elif name == "timestamp" and (dtype.is_float() or dtype.is_decimal()):
            columns[name] = as_number(name, dtype)
        else:
            columns[name] = nw.col(name)
    return frame.select(**columns)


def as_id(column_name: str, name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    """Return a column as ids under a canonical name: integers or text."""
    column = nw.col(column_name).alias(name)
    if dtype in {nw.UInt64, nw.Int128, nw.UInt128}:
        return column.cast(nw.Int64)  # the engine raises an error if one does not fit
    if dtype == nw.String or dtype.is_integer():
        return column
    if dtype in {nw.Categorical, nw.Enum}:
        return column.cast(nw.String)
    if dtype.is_float():
        raise DataError(
            f"{name} is {dtype}, expected integers or text: pandas turns integers with gaps into "
            "floats, so drop the rows without an id or make the column text"
        )
    if dtype in {nw.Object, nw.Unknown}:
        raise DataError(MIXED.format(name=name))
    raise DataError(f"{name} is {dtype}, expected integers or text: convert it to text")


def check_text_ids(ids: pa.ChunkedArray) -> None:
    """Raise an error if a text id has more than `MAX_ID_LENGTH` characters or ends with NUL."""
    ids = ids.cast(pa.large_string())
    lengths = compute.utf8_length(ids)
    longest = compute.max(lengths).as_py() or 0
    if longest > MAX_ID_LENGTH:
        start = ids.filter(compute.greater(lengths, MAX_ID_LENGTH))[0].as_py()[:20]
        raise DataError(
            f"an id that starts with {start!r} has {longest:,} characters, expected at "
            f"most {MAX_ID_LENGTH:,}: shorten it, for example to a hash of it"
        )
    # NumPy's arrays of text drop such characters: "a" and "a\0" would be one id.
    if compute.any(compute.ends_with(ids, "\0")).as_py():
        raise DataError("an id ends with the character NUL, expected text without it")


def as_number(name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    """Return a column as numbers of 64 bits, null for any other value, NaN and infinity.

    Sums of narrower numbers differ between engines. Text is checked here, because engines accept
    different spellings ("1_000", "0x10", "infinity").
    """
    column = nw.col(name)
    if dtype in {nw.UInt64, nw.Int128, nw.UInt128}:
        fits = column <= 2**53
        fits = fits & (column >= -(2**53)) if dtype == nw.Int128 else fits
        return nw.when(fits).then(column).cast(nw.Int64)
    if dtype.is_decimal():
        return column.cast(nw.Float64)
    if dtype.is_integer():
        return column
    if dtype == nw.Boolean:
        return column.cast(nw.Int64)
    if dtype.is_float():
        wide = column.cast(nw.Float64)
        return nw.when(wide.is_finite()).then(wide)
    if dtype == nw.String:
        text = column.str.strip_chars(_BLANKS).str.to_lowercase()
        false = nw.when(text == "false").then(nw.lit("0")).otherwise(text)
        digits = nw.when(text == "true").then(nw.lit("1")).otherwise(false)
        number = nw.when(digits.str.contains(_NUMBER)).then(digits)
        # Nearly all values are plain digits, and engines evaluate this wherever it is used.
        return nw.when(column.str.contains(_DIGITS)).then(column).otherwise(number).cast(nw.Float64)
    raise DataError(f"{name} is {dtype}, expected numbers")


def _as_text(name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    """Return a column as text; integers that became floats are written as integers."""
    column = nw.col(name)
    if not dtype.is_float():
        return column.cast(nw.String)
    text = column.cast(nw.String).str.replace_all(r"\.0$", "")  # written by some engines
    return nw.when(column.is_finite()).then(text)


def _as_context(name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    """Return a column as contexts: text, `NONE` if it is null."""
    column = nw.col(name)
    if dtype == nw.Boolean:  # engines write booleans in different ways
        text = nw.when(column).then(nw.lit("true")).otherwise(nw.lit("false"))
        return nw.when(column.is_null()).then(nw.lit(NONE)).otherwise(text)
    if dtype in {nw.String, nw.Categorical, nw.Enum} or dtype.is_integer():
        return column.cast(nw.String).fill_null(NONE)
    raise DataError(f"the context {name} is {dtype}, expected text or integers: convert it to text")


# -- events and queries


def _merge_events(frame: nw.LazyFrame[Any], values: Mapping[str, float]) -> nw.LazyFrame[Any]:
    """Return impressions with ``click`` and ``value`` for rows with an ``event``, lazily.

    An event of `values` is a click with this value; other events (an impression, a view) are not.
    Rows of one session, query, item and position are one impression, and its value is the sum over
    its distinct events. Rows without a session are one impression each.
    """
    columns = frame.collect_schema().names()
    events = {f"event_{k}": event for k, event in enumerate(values)}
    marks = {
        name: nw.when(nw.col("event") == event).then(nw.lit(1)).otherwise(nw.lit(0))
        for name, event in events.items()
    }
    others = [name for name in columns if name not in {"event", "click", "value"}]
    rows = frame.select(*others, **marks)
    if "session" in columns:
        order = [*others, *marks]
        maxima = {
            name: nw.col(name).min() if name == "timestamp" else nw.col(name).max()
            for name in order
            if name not in _PAGE
        }
        merged = rows.filter(~nw.col("session").is_null()).group_by(*_PAGE).agg(**maxima)
        alone = rows.filter(nw.col("session").is_null())
        rows = nw.concat([merged.select(*order), alone.select(*order)])
    return rows.select(
        *others,
        # Spark needs at least two columns.
        click=nw.max_horizontal(nw.lit(0), *(nw.col(name) for name in events)),
        value=nw.sum_horizontal(*(nw.col(name) * values[event] for name, event in events.items())),
    )


def join_query_ids(ids: ArrayLike) -> NDArray[Any]:
    """Return ids of queries in lower case, with single blanks, and none at the ends.

    Integer ids stay as they are. ``read_impressions(join_queries=True)`` applies the same rule to
    the queries of a log; apply this one to the ids of features.

    Examples
    --------
    >>> from countersample.logs import join_query_ids
    >>> join_query_ids(["Red  Shoe", " red shoe"]).tolist()
    ['red shoe', 'red shoe']
    """
    array = np.asarray(ids)
    if array.dtype.kind not in "OUT":
        return array

    def join(text: str) -> str:
        text = text.lower()
        for written, like in _LOWER_CASE_VARIANTS.items():
            text = text.replace(written, like)
        return re.sub(_BLANK_RUNS, " ", text).strip(" ")

    return np.array([join(str(text)) for text in array.tolist()], dtype=np.str_)


def _join_queries(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return a log with the ids of its queries as `join_query_ids` writes them, lazily."""
    if frame.collect_schema()["query_id"] != nw.String:
        return frame
    text = nw.col("query_id").str.to_lowercase()
    for written, like in _LOWER_CASE_VARIANTS.items():
        text = text.str.replace_all(written, like, literal=True)
    text = text.str.replace_all(_BLANK_RUNS, " ").str.strip_chars(" ")
    return frame.with_columns(query_id=text)
