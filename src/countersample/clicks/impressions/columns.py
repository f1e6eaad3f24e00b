"""The columns of a log: canonical names, other names mapped to them, and types made alike."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUIRED = ("query_id", "item_id", "position", "click")
OPTIONAL = ("session", "timestamp", "policy", "impressions", "propensity")
CANONICAL = (*REQUIRED, *OPTIONAL)
IDS = ("query_id", "item_id")
_NUMBERS = ("position", "click", "impressions", "propensity")
MIXED = "{name} has values of mixed types, expected all integers or all text: make them one"


def resolve(columns: Mapping[str, str] | None, found: Sequence[str]) -> dict[str, str]:
    """Return the log's own name of each canonical column it has."""
    columns = columns or {}
    for name in columns:
        if name not in CANONICAL:
            raise ParameterError(
                f"columns has {name!r}, expected names of {', '.join(CANONICAL)}, each with the "
                "log's own name for it"
            )
    names = {name: columns.get(name, name) for name in CANONICAL}
    missing = [
        name for name in CANONICAL if names[name] not in found and name in {*REQUIRED, *columns}
    ]
    if missing:
        raise DataError(_missing(missing, names, found))
    return {name: own for name, own in names.items() if own in found}


def select(frame: nw.LazyFrame[Any], names: Mapping[str, str]) -> nw.LazyFrame[Any]:
    """Return the canonical columns of a log under their canonical names."""
    return frame.select(*(nw.col(own).alias(name) for name, own in names.items()))


def typed(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the columns with ids as integers or text, and numbers as numbers."""
    schema = frame.collect_schema()
    made = {}
    for name, dtype in schema.items():
        if name in IDS:
            made[name] = typed_id(name, name, dtype)
        elif name in _NUMBERS:
            made[name] = _as_number(name, dtype)
        elif name == "policy":
            made[name] = nw.col(name).cast(nw.String)
        else:
            made[name] = nw.col(name)
    return frame.select(**made)


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


def _as_number(name: str, dtype: nw.dtypes.DType) -> nw.Expr:
    column = nw.col(name)
    if dtype.is_integer() or dtype.is_float():
        return column
    if dtype == nw.Boolean:
        return column.cast(nw.Int64)
    if dtype.is_decimal():
        return column.cast(nw.Float64)
    if dtype == nw.String:
        text = column.str.strip_chars().str.to_lowercase()
        false = nw.when(text == "false").then(nw.lit("0")).otherwise(text)
        return nw.when(text == "true").then(nw.lit("1")).otherwise(false).cast(nw.Float64)
    raise DataError(f"{name} is {dtype}, expected numbers")


def _missing(missing: list[str], names: Mapping[str, str], found: Sequence[str]) -> str:
    said = " and ".join(repr(names[name]) for name in missing)
    shown = ", ".join(found[:12]) + (", …" if len(found) > 12 else "")
    examples = {name: (difflib.get_close_matches(name, found, n=1) or ["…"])[0] for name in missing}
    mapped = ",".join(f"{name}={own}" for name, own in examples.items())
    plural = "s" if len(missing) > 1 else ""
    return (
        f"no column{plural} {said}: the columns are {shown}; if it has another name, say so with "
        f"columns={examples!r} (--columns {mapped})"
    )
