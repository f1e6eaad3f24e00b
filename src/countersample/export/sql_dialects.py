"""What SQL is called in DuckDB, PostgreSQL and Spark: names, texts, numbers, rows with new columns.

A `Dialect` writes the smallest pieces. `Rows` puts them together: a table, and columns that are
computed from it step by step, each step once for each row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OWN = "countersample_"  # how the names of columns begin that are computed on the way
_MOST_TERMS = 50  # that are joined by one operator: parsers go down once for each
# The largest number that rounds to a finite float32, and the largest that rounds to 0.
_LARGEST = float(np.nextafter((2 - 2.0**-24) * 2.0**127, 0))
_NOTHING = 2.0**-150


@dataclass(frozen=True)
class Dialect:
    """How one database writes names, types and numbers.

    Attributes
    ----------
    system : str
        As it is called in sentences.
    quote : str
        What a name stands between; within a name it is doubled.
    double, real, text : str
        The types of float64, of float32 and of text.
    literal : str
        A float64, given its shortest text that has an exponent.
    days : str
        The days between a date and a column, as a float64.
    without : str or None
        How ``SELECT t.*`` leaves columns out; None where it cannot.
    folds_case : bool
        Whether names that differ only in case are the same.
    summed : str or None
        The sum of terms in their order, where one expression can have any number of them.
    most_bytes : int or None
        The longest name.
    most_columns : int or None
        Of a row.
    forbidden : tuple of str
        What no name may have.
    """

    system: str
    quote: str
    double: str
    real: str
    text: str
    literal: str
    days: str
    without: str | None
    folds_case: bool
    summed: str | None = None
    most_bytes: int | None = None
    most_columns: int | None = None
    forbidden: tuple[str, ...] = ("\0",)

    def name(self, name: str) -> str:
        """Return a name in quotes, refused where the database would read another one."""
        for text in self.forbidden:
            if text in name:
                raise ParameterError(
                    f"the name {name!r} has {text!r}, expected none of that in {self.system}: "
                    "rename it"
                )
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise ParameterError(f"the name {name!r} is not valid Unicode: rename it") from error
        if self.most_bytes is not None and size > self.most_bytes:
            raise ParameterError(
                f"the name {name!r} has {size} bytes, expected at most {self.most_bytes}, as "
                f"{self.system} cuts off the rest: rename it"
            )
        return f"{self.quote}{name.replace(self.quote, 2 * self.quote)}{self.quote}"

    def path(self, path: str, *, option: str) -> str:
        """Return the name of a table or view in quotes, each part between points by itself."""
        parts = path.split(".")
        if not all(parts):
            raise ParameterError(
                f"{option} is {path!r}, expected a name, or names with points between them "
                "(schema.table)"
            )
        return ".".join(map(self.name, parts))

    def string(self, text: str) -> str:
        """Return a text in quotes; Spark and PostgreSQL differ in what a backslash is."""
        if self.system == "Spark" and ("\\" in text or "'" in text or "$" in text):
            return f"CAST(X'{text.encode().hex()}' AS STRING)"
        doubled = text.replace("'", "''")
        if self.system == "PostgreSQL" and "\\" in text:
            return "E'" + doubled.replace("\\", "\\\\") + "'"
        return f"'{doubled}'"

    def number(self, value: float) -> str:
        """Return a float64 that is read without loss."""
        text = repr(float(value))
        return self.literal.format(text if "e" in text else f"{text}e0")

    def special(self, value: str) -> str:
        """Return NaN or Infinity."""
        return f"CAST('{value}' AS {self.double})"

    def as_double(self, expression: str) -> str:
        """Return a column as float64."""
        return f"CAST({expression} AS {self.double})"

    def rounded(self, value: str, otherwise: str = "") -> str:
        """Return the nearest float32, as a float64; what is missing, NaN or too large is NULL.

        PostgreSQL makes an error of a number that rounds to 0 or to infinity, DuckDB of the latter.
        """
        nearest = self.as_double(f"CAST({value} AS {self.real})")
        nothing, largest = self.number(_NOTHING), self.number(_LARGEST)
        return (
            f"CASE WHEN abs({value}) <= {nothing} THEN {self.number(0)} "
            f"WHEN abs({value}) <= {largest} THEN {nearest}{otherwise} END"
        )


DIALECTS = {
    "duckdb": Dialect(
        "DuckDB", quote='"', double="DOUBLE", real="REAL", text="VARCHAR", literal="({})",
        days="(epoch_us(CAST({later} AS TIMESTAMP)) - epoch_us(CAST({earlier} AS TIMESTAMP)))"
             " / 86400e6",
        without="EXCLUDE", folds_case=True,
    ),
    "postgresql": Dialect(
        "PostgreSQL", quote='"', double="DOUBLE PRECISION", real="REAL", text="TEXT",
        literal="float8 '{}'",
        days="CAST(extract(epoch FROM CAST({later} AS TIMESTAMP) - CAST({earlier} AS TIMESTAMP))"
             " AS DOUBLE PRECISION) / float8 '86400'",
        without=None, folds_case=False, most_bytes=63, most_columns=1600,
    ),
    "spark": Dialect(
        "Spark", quote="`", double="DOUBLE", real="FLOAT", text="STRING", literal="({}D)",
        days="CAST(timestampdiff(MICROSECOND, CAST({earlier} AS TIMESTAMP_NTZ), "
             "CAST({later} AS TIMESTAMP_NTZ)) AS DOUBLE) / 86400e6D",
        without="EXCEPT", folds_case=True, summed="aggregate(array({}), 0e0D, (a, b) -> a + b)",
        forbidden=("\0", "${"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """The rows of a table, which is called ``t``, with columns that were computed from them.

    Where a ``SELECT`` can leave columns out, each step is a ``SELECT`` around the one before. In
    PostgreSQL the steps are in a ``LATERAL`` beside the table: so conditions on the view reach the
    table, and ``OFFSET 0`` keeps a step from being written out wherever its columns are used.

    Attributes
    ----------
    source : str
        What stands after ``FROM``.
    steps : str
        What is to become a ``LATERAL``.
    own : tuple of str
        The columns that were computed and are there.
    """

    dialect: Dialect
    source: str
    steps: str = ""
    own: tuple[str, ...] = ()

    @classmethod
    def of(cls, dialect: Dialect, table: str) -> Rows:
        """Return the rows of a table."""
        return cls(dialect, f"{table} AS t")

    def having(self, columns: Mapping[str, str], keep: Iterable[str] | None = None) -> Rows:
        """Return the rows with new columns, by name, beside those that are kept; or beside all."""
        if not columns:
            return self
        kept = self.own if keep is None else tuple(keep)
        told = ",\n".join([*kept, *_named(columns)])
        own = (*kept, *columns)
        self._check_width(len(own))
        if self.dialect.without is None:
            inner = f"\nFROM ({self.steps}) AS s" if self.steps else ""
            return replace(self, steps=f"SELECT\n{told}{inner}\nOFFSET 0", own=own)
        new = ",\n".join([self._star(kept), *_named(columns)])
        return replace(self, source=f"(SELECT {new}\nFROM {self.source}) AS t", own=own)

    def by_query(self, query: str, ends: Mapping[str, str]) -> Rows:
        """Return the rows with what the items of each query have in common."""
        told, key, rows = ",\n".join(_named(ends)), f"{OWN}query", self._joined("r")
        source = (
            f"{rows}\nLEFT JOIN (SELECT t.{query} AS {key},\n{told}\nFROM {rows}\n"
            f"GROUP BY t.{query}) AS q ON q.{key} = t.{query}"
        )
        own = (*self.own, *ends)
        self._check_width(len(own) + len(self.own))  # the table's own pass here, too
        if self.dialect.without is not None:
            source = f"(SELECT t.*, {', '.join(ends)}\nFROM {source}) AS t"
        return replace(self, source=source, steps="", own=own)

    def select(self, columns: Mapping[str, str]) -> str:
        """Return the query for the columns of the table and these."""
        return f"SELECT {', '.join([self._star(()), *_named(columns)])}\nFROM {self._joined('s')}"

    def _star(self, kept: Sequence[str]) -> str:
        """Return the columns of the table, and of its own those that are kept."""
        left_out = [name for name in self.own if name not in set(kept)]
        if self.dialect.without is None or not left_out:
            return "t.*"
        return f"t.* {self.dialect.without} ({', '.join(left_out)})"

    def _check_width(self, width: int) -> None:
        most = self.dialect.most_columns
        if most is not None and width > most:
            raise ParameterError(
                f"the view would have {width:,} columns on its way, expected at most {most:,}, as "
                f"{self.dialect.system} has no more: train with fewer features, or export to ONNX "
                "(--to onnx)"
            )

    def _joined(self, name: str) -> str:
        if not self.steps:
            return self.source
        return f"{self.source}\nCROSS JOIN LATERAL ({self.steps}) AS {name}"


def _named(columns: Mapping[str, str]) -> list[str]:
    return [f"{expression} AS {name}" for name, expression in columns.items()]


def joined(terms: Sequence[str], operator: str) -> str:
    """Return the terms with an operator between them, in groups, so that no parser goes deep.

    >>> joined(["a", "b", "c"], "+")
    'a + b + c'
    """
    while len(terms) > _MOST_TERMS:
        terms = [f"({joined(group, operator)})" for group in groups(terms)]
    return f" {operator} ".join(terms)


def groups(terms: Sequence[str], size: int = _MOST_TERMS) -> Iterable[Sequence[str]]:
    """Return the terms, some at a time."""
    return [terms[first : first + size] for first in range(0, len(terms), size)]
