"""The columns of a log: canonical names, a mapping of other names, and common types."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUIRED = ("query_id", "item_id", "position", "click")
OPTIONAL = (
    "session", "client", "timestamp", "policy", "impressions", "propensity", "context", "value",
    "event", "sessions", "session_policies",
)  # fmt: skip
#: Columns of an aggregated log alone: ignored in a log without ``impressions``.
AGGREGATED = ("sessions", "session_policies")
CANONICAL = (*REQUIRED, *OPTIONAL)
IDS = ("query_id", "item_id")
INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"  # ids of a text file that may mean numbers: 7, not 07
_DIGITS = r"^[0-9]{1,9}$"
# A number as text, in lower case, of which no engine makes another one than Python does.
_NUMBER = r"^[+-]?(?:[0-9]{1,99}(?:\.[0-9]{0,99})?|\.[0-9]{1,99})(?:e[+-]?[0-9]{1,2})?$"
_BLANKS = " \t\n\r\f\v"
NONE = "(none)"  # the context, or the policy, of a row that has none
FEATURE = "feature_"  # what the log's own features are called within, with their numbers
_NUMBERS = ("position", "click", "impressions", "propensity", "value", "sessions")
_TEXTS = ("policy", "event", "session_policies")
MIXED = "{name} has values of mixed types, expected all integers or all text: make them one"


def resolve(
    columns: Mapping[str, str] | None,
    present: Sequence[str],
    *,
    context: Sequence[str] = (),
    has_values: bool = False,
) -> dict[str, str]:
    """Return the log's own name of each canonical column it has.

    `context` are its own columns that make up the context; with values of events, the column
    ``event`` is needed, and says what is a click.
    """
    columns = columns or {}
    for name in columns:
        if name not in CANONICAL:
            raise ParameterError(
                f"columns has {name!r}, expected names of {', '.join(CANONICAL)}, each with the "
                "log's own name for it"
            )
    if context and "context" in columns:
        raise ParameterError("context is given beside columns['context'], expected one of them")
    required = [name for name in REQUIRED if name != "click" or not has_values]
    required += ["event"] if has_values else []
    names = {name: columns.get(name, name) for name in CANONICAL}
    missing = [
        name for name in CANONICAL if names[name] not in present and name in {*required, *columns}
    ]
    if missing:
        raise DataError(_missing(missing, names, present))
    unknown = [repr(own) for own in context if own not in present]
    if unknown:
        raise DataError(
            f"no column {' and '.join(unknown)} for the context: the columns are {_listed(present)}"
        )
    if has_values and names["impressions"] in present:
        raise DataError(
            f"values are for a log with one row per event, and this log is aggregated: it has "
            f"impressions ({names['impressions']!r}). Leave out the values, and give the value of "
            "the clicks of a row in a column 'value'"
        )
    left_out = {"click", "value"} if has_values else set()
    left_out |= {"context"} if context else set()
    left_out |= set() if names["impressions"] in present else {*AGGREGATED}
    return {name: own for name, own in names.items() if own in present and name not in left_out}


def select(
    frame: nw.LazyFrame[Any],
    names: Mapping[str, str],
    context: Sequence[str] = (),
    features: Sequence[str] = (),
) -> nw.LazyFrame[Any]:
    """Return the canonical columns of a log under their canonical names, and its features."""
    columns = {name: nw.col(own) for name, own in names.items()}
    for number, own in enumerate(features):
        columns[f"{FEATURE}{number}"] = _as_feature(own, frame.collect_schema())
    if context:
        schema = frame.collect_schema()
        parts = [_as_context(own, schema[own]) for own in context]
        columns["context"] = parts[0] if len(parts) == 1 else nw.concat_str(*parts, separator=" / ")
    return frame.select(**columns)


def typed(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the columns with ids as integers or text, and numbers as numbers."""
    schema = frame.collect_schema()
    columns = {}
    for name, dtype in schema.items():
        if name in IDS:
            columns[name] = typed_id(name, name, dtype)
        elif name in _NUMBERS or name.startswith(FEATURE):
            columns[name] = as_number(name, dtype)
        elif name == "context":
            columns[name] = _as_context(name, dtype)
        elif name in _TEXTS:
            columns[name] = _as_text(name, dtype)
        else:
            columns[name] = nw.col(name)
    return frame.select(**columns)


def typed_id(column_name: str, name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    """Return a column as ids under a name: integers or text; other types are refused."""
    column = nw.col(column_name).alias(name)
    if dtype in {nw.UInt64, nw.Int128, nw.UInt128}:
        return column.cast(nw.Int64)  # the engine says so where one does not fit
    if dtype == nw.String or dtype.is_integer():
        return column
    if dtype in {nw.Categorical, nw.Enum}:
        return column.cast(nw.String)
    if dtype.is_float():
        raise DataError(
            f"{name} is {dtype}, expected integers or text: whole numbers with gaps become that in "
            "pandas, so drop the rows without an id or make the column text"
        )
    if dtype in {nw.Object, nw.Unknown}:
        raise DataError(MIXED.format(name=name))
    raise DataError(f"{name} is {dtype}, expected integers or text: make it text")


def as_number(name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    """Return a column as numbers, null where there is none: NaN and infinity are none.

    They are of 64 bits, as sums of less differ between engines, and what is written as a number is
    told here, as engines take more than one another ("1_000", "0x10", "infinity").
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
        # Nearly all are plain digits, and engines work this out wherever a number is asked for.
        return nw.when(column.str.contains(_DIGITS)).then(column).otherwise(number).cast(nw.Float64)
    raise DataError(f"{name} is {dtype}, expected numbers")


def _as_text(name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    """Return a column as text; whole numbers that became floats are written as such."""
    column = nw.col(name)
    if not dtype.is_float():
        return column.cast(nw.String)
    text = column.cast(nw.String).str.replace_all(r"\.0$", "")  # which some engines write, some not
    return nw.when(column.is_finite()).then(text)


def _as_feature(own: str, schema: nw.Schema) -> nw.Expr:
    """Return a column of the log that is a feature; refuse one that has no numbers."""
    if own not in schema:
        raise DataError(
            f"no column {own!r} for a feature of the log: the columns are {_listed(schema.names())}"
        )
    dtype = schema[own]
    if not (dtype.is_numeric() or dtype in {nw.Boolean, nw.String}):
        raise DataError(
            f"the feature {own!r} of the log is {dtype}, expected numbers: give it in a table of "
            "features (--features), or as a number"
        )
    return nw.col(own)


def _as_context(name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    """Return a column as contexts: text, `NONE` where it is null."""
    column = nw.col(name)
    if dtype == nw.Boolean:  # which engines write in different ways
        text = nw.when(column).then(nw.lit("true")).otherwise(nw.lit("false"))
        return nw.when(column.is_null()).then(nw.lit(NONE)).otherwise(text)
    if dtype in {nw.String, nw.Categorical, nw.Enum} or dtype.is_integer():
        return column.cast(nw.String).fill_null(NONE)
    raise DataError(f"the context {name} is {dtype}, expected text or integers: make it text")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def _missing(missing: list[str], names: Mapping[str, str], present: Sequence[str]) -> str:
    quoted = " and ".join(repr(names[name]) for name in missing)
    examples = {
        name: (difflib.get_close_matches(name, present, n=1) or ["…"])[0] for name in missing
    }
    mapped = ",".join(f"{name}={own}" for name, own in examples.items())
    plural = "s" if len(missing) > 1 else ""
    events = (
        "; if its events tell what was clicked, say what they are worth with values={'click': 1} "
        "(--values click=1)"
        if "click" in missing and names["event"] in present
        else ""
    )
    return (
        f"no column{plural} {quoted}: the columns are {_listed(present)}; if it has another name, "
        f"say so with columns={examples!r} (--columns {mapped}){events}"
    )
