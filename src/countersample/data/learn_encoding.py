"""What to make of the columns of a table, learned from its types and values: `learn_encoder`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice
from countersample.data.arrow_values import ISO_TIME, as_days, as_floats, as_texts, kind_of
from countersample.data.encoding import EncodedColumn, FeatureEncoder
from countersample.data.frames import check_column
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

MOST_VALUES = 20  # of a category that nobody named
FEWEST_ROWS = 10  # that a value of such a category needs for an indicator of its own
MOST_NAMED_VALUES = 200  # of one that was named
LONGEST_VALUE = 100  # characters; what is longer is free text
_MOST_TOLD = 8  # columns that are left out
_EPOCH = date(1970, 1, 1)
OTHER_COLUMNS = ("skip", "error")


@dataclass(frozen=True)
class Learned:
    """What was learned of a table's columns.

    Attributes
    ----------
    encoder : FeatureEncoder
    left_out : dict of str
        The columns that are no features, and what they are instead.
    """

    encoder: FeatureEncoder
    left_out: dict[str, str]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to tell of the columns that are left out, in a sentence."""
        if not self.left_out:
            return ()
        told = (
            f"Left out of the features: {_told(self.left_out)}. Indicators are made of a column "
            "that is named (--categorical); a column that is excluded (--exclude) is not listed."
        )
        return (told,)


class _NotUsableError(Exception):
    """A column that no features can be made of, and why."""


def learn_encoder(
    tables: Mapping[str, pa.Table],
    *,
    categorical: Sequence[str] = (),
    other_columns: str = "skip",
    is_chosen: bool = False,
    reference: str | None = None,
    beside: bool = False,
) -> Learned:
    """Learn what to make of columns: numbers, ages of dates, indicators of categories.

    Parameters
    ----------
    tables : mapping of table, by the name of the column
        Where each column is, in the order of the features.
    categorical : sequence of str
        Columns of text or integers of which indicators are made, one for each of up to 200 values.
        Of other columns of text they are made where there are up to 20 values, for those that at
        least 10 rows have.
    other_columns : {"skip", "error"}
        What to do with columns that are none of these: ids, free text, lists, columns of nothing.
    is_chosen : bool
        Whether somebody named the columns: then such a column is refused, too.
    reference : str, optional
        The day that ages are counted from, such as ``"2026-03-31"``; by default the latest of each
        column, the end of that day where it has times.
    beside : bool
        Whether there are other features, so that none of these is needed.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.data.learn_encoding import learn_encoder
    >>> table = pyarrow.table({"price": [1, None], "title": ["a lamp", "a chair"]})
    >>> learned = learn_encoder({name: table for name in table.column_names})
    >>> learned.encoder.feature_names
    ('price',)
    >>> learned.left_out
    {'title': 'text, no value in 10 rows or more'}
    """
    choice("other_columns", other_columns, OTHER_COLUMNS)
    if reference is not None:
        _check_day(reference)
    for name in categorical:
        check_column(name, list(tables), what="feature")
    found, left_out = [], {}
    for name, table in tables.items():
        try:
            found.append(_column(name, table[name], name in categorical, reference))
        except _NotUsableError as error:
            left_out[name] = str(error)
    if left_out and (is_chosen or other_columns == "error"):
        raise DataError(
            f"no features can be made of {_told(left_out)}: name columns of few values with "
            "categorical= (--categorical), and leave the others out"
            f"{'' if is_chosen else ' (--exclude, or --other-columns skip)'}"
        )
    if not found and not beside:
        raise DataError(f"no feature is left, expected at least one: {_told(left_out)}")
    return Learned(FeatureEncoder(tuple(found)), left_out)


def _column(
    name: str, column: pa.ChunkedArray, is_category: bool, reference: str | None
) -> EncodedColumn:
    kind = kind_of(column.type)
    if is_category:
        return _named_category(name, column, kind)
    if kind == "nothing" or column.null_count == len(column):
        raise _NotUsableError("no value at all")
    if kind in {"number", "boolean"}:
        if np.isnan(as_floats(name, column)).all():
            raise _NotUsableError("no value at all")
        return EncodedColumn(name, "number")
    if kind == "date":
        return _date(name, column, reference)
    if kind == "text":
        return _text_column(name, column, reference)
    raise _NotUsableError(f"of type {column.type}")


def _text_column(name: str, column: pa.ChunkedArray, reference: str | None) -> EncodedColumn:
    from pyarrow import compute  # noqa: PLC0415 (heavy, only where used)

    texts = as_texts(name, column)
    counted = _counts(texts)
    if not counted:
        raise _NotUsableError("no value at all")
    if compute.all(compute.match_substring_regex(texts, ISO_TIME)).as_py():
        try:
            return _date(name, texts, reference)
        except DataError:  # the 30th of February
            pass
    if len(counted) > MOST_VALUES:
        raise _NotUsableError(f"text of {len(counted):,} values")
    if max(map(len, counted)) > LONGEST_VALUE:
        raise _NotUsableError("text of long values")
    often = tuple(sorted(value for value, count in counted.items() if count >= FEWEST_ROWS))
    if not often:
        raise _NotUsableError(f"text, no value in {FEWEST_ROWS} rows or more")
    return EncodedColumn(name, "category", often)


def _named_category(name: str, column: pa.ChunkedArray, kind: str) -> EncodedColumn:
    expected = "expected a column of text or of integers"
    if kind == "boolean":
        raise DataError(f"{name!r} is named as categorical and has true and false, which are 1 and "
                        "0 as they are: leave it out of categorical")  # fmt: skip
    if kind not in {"number", "text", "nothing"}:
        raise DataError(f"{name!r} is named as categorical and is {column.type}, {expected}")
    if kind == "number":
        floats = as_floats(name, column)
        floats = floats[~np.isnan(floats)]
        if (np.floor(floats) != floats).any() or not np.isfinite(floats).all():
            raise DataError(f"{name!r} is named as categorical and has fractions, {expected}")
    values = sorted(_counts(as_texts(name, column)))
    if not values or len(values) > MOST_NAMED_VALUES:
        raise DataError(
            f"{name!r} is named as categorical and has {len(values):,} values, expected 1 to "
            f"{MOST_NAMED_VALUES}: join values that are rare, or leave it out (--exclude)"
        )
    long = next((value for value in values if len(value) > LONGEST_VALUE), None)
    if long is not None:
        raise DataError(
            f"{name!r} is named as categorical and has a value of {len(long):,} characters, "
            f"expected at most {LONGEST_VALUE}: shorten it, or leave the column out (--exclude)"
        )
    return EncodedColumn(name, "category", tuple(values))


def _date(name: str, column: pa.ChunkedArray, reference: str | None) -> EncodedColumn:
    days = as_days(name, column)
    if reference is None:
        try:
            reference = (_EPOCH + timedelta(days=float(np.ceil(np.nanmax(days))))).isoformat()
        except OverflowError:
            raise _NotUsableError("dates beyond the year 9999") from None
    return EncodedColumn(name, "date", reference=reference)


def _counts(texts: pa.ChunkedArray) -> dict[str, int]:
    """Return how many rows have each value."""
    counted: list[dict[str, Any]] = texts.value_counts().to_pylist()
    return {each["values"]: each["counts"] for each in counted if each["values"] is not None}


def _check_day(reference: str) -> None:
    try:
        date.fromisoformat(reference)
    except (TypeError, ValueError):
        raise ParameterError(
            f"the day that ages are counted from is {reference!r}, expected one such as 2026-03-31"
        ) from None


def _told(left_out: Mapping[str, str]) -> str:
    told = [f"{name!r} ({why})" for name, why in left_out.items()]
    more = len(told) - _MOST_TOLD
    return ", ".join(told[:_MOST_TOLD]) + (f" and {more:,} more" if more > 0 else "")
