"""What databases write differently: names, texts, numbers, casts, and rows with computed columns.

sqlglot writes the small pieces in each dialect: quoted names, texts, casts, days between dates. The
rest of a view is `SELECT`, `CASE` and arithmetic, which all dialects share. It is put together as
text, because sqlglot takes longer to build and write 500 trees than all other work of an export.

`Dialect` writes the pieces. `Rows` is a table with columns that are computed from it step by step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._environment import need
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PREFIX = "countersample_"  # of the names of computed columns
_MAX_TERMS = 50  # joined by one operator: parsers recurse once per term
# The largest float64 that rounds to a finite float32, and the largest that rounds to 0.
_MAX_FINITE = float(np.nextafter((2 - 2.0**-24) * 2.0**127, 0))
_MAX_ZERO = 2.0**-150


@dataclass(frozen=True)
class Dialect:
    """How one database writes names, types and numbers.

    Attributes
    ----------
    system : str
        The database's name in sentences.
    key : str
        sqlglot's name of the dialect.
    load : str
        The command that runs a file.
    literal : str or None
        A float64 literal, given its shortest text with an exponent; None if it needs a cast.
    has_float32 : bool
        Whether it has a type for float32.
    has_star_except : bool
        Whether ``SELECT t.*`` can leave columns out.
    folds_case : bool
        Whether quoted names that differ only in case are the same.
    ordered_sum : str or None
        The sum of terms in their order, if one expression can have any number of them.
    max_name_bytes, max_columns, max_characters : int or None
        The longest name, the widest row and the longest definition of a view.
    forbidden : tuple of str
        Texts that no name may have.
    """

    system: str
    key: str
    load: str
    literal: str | None = "{}"
    has_float32: bool = True
    has_star_except: bool = True
    folds_case: bool = True
    ordered_sum: str | None = None
    max_name_bytes: int | None = None
    max_columns: int | None = None
    max_characters: int | None = None
    forbidden: tuple[str, ...] = ("\0",)

    def name(self, name: str) -> str:
        """Return a quoted name; raise an error if the database would read another name."""
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
        if self.max_name_bytes is not None and size > self.max_name_bytes:
            raise ParameterError(
                f"the name {name!r} has {size} bytes, expected at most {self.max_name_bytes}, the "
                f"longest name in {self.system}: rename it"
            )
        return self._write(need("sqlglot").exp.to_identifier(name, quoted=True))

    def path(self, path: str, *, option: str) -> str:
        """Return the quoted name of a table or view; each part between points is quoted."""
        parts = path.split(".")
        if not all(parts):
            raise ParameterError(
                f"{option} is {path!r}, expected a name, or names with points between them "
                "(schema.table)"
            )
        return ".".join(map(self.name, parts))

    def string(self, text: str) -> str:
        """Return a quoted text."""
        exp = need("sqlglot").exp
        if self.key == "spark" and any(each in text for each in "\\'$"):
            # A setting changes what a backslash is, and spark-sql replaces ${…} within texts.
            return self._write(exp.cast(exp.HexString(this=text.encode().hex()), "TEXT"))
        return self._write(exp.Literal.string(text))

    def number(self, value: float) -> str:
        """Return a float64 that is read without loss."""
        text = repr(float(value))
        text = text if "e" in text else f"{text}e0"
        if self.literal is None:
            return self._fill("CAST('x' AS DOUBLE PRECISION)").replace("'x'", f"'{text}'")
        literal = self.literal.format(text)
        return f"({literal})" if literal.startswith("-") else literal

    @property
    def nan(self) -> str:
        """NaN as a float64."""
        return self._fill("CAST('NaN' AS DOUBLE PRECISION)")

    @property
    def infinity(self) -> str:
        """Infinity as a float64."""
        return self._fill("CAST('inf' AS DOUBLE PRECISION)")

    def as_double(self, value: str) -> str:
        """Return a value as float64."""
        return self._fill("CAST(x AS DOUBLE PRECISION)", value)

    def as_text(self, value: str) -> str:
        """Return a value as text."""
        return self._fill("CAST(x AS TEXT)", value)

    def days_before(self, day: str, value: str) -> str:
        """Return the days from a column to a day, as a float64."""
        exp = need("sqlglot").exp
        # only this one is written for PostgreSQL; BigQuery's takes no times
        difference = exp.DateDiff if self.key == "postgres" else exp.DatetimeDiff
        start, end = (exp.cast(each, "TIMESTAMPNTZ", dialect="snowflake")
                      for each in (exp.var("{0}"), exp.var("{1}")))  # fmt: skip
        unit = exp.var("MICROSECOND")
        template = self._write(difference(this=end, expression=start, unit=unit))
        microseconds = template.format(value, self.string(day))
        return f"{self.as_double(microseconds)} / {self.number(86_400_000_000)}"

    def rounded(self, value: str, otherwise: str = "") -> str:
        """Return the nearest float32, as a float64; NULL for NULL, NaN and what is too large.

        PostgreSQL makes an error of a number that rounds to 0 or to infinity, DuckDB of the latter.
        """
        zero, largest = self.number(_MAX_ZERO), self.number(_MAX_FINITE)
        return (
            f"CASE WHEN abs({value}) <= {zero} THEN {self.number(0)} "
            f"WHEN abs({value}) <= {largest} THEN {self._nearest_float32(value)}{otherwise} END"
        )

    def _nearest_float32(self, value: str) -> str:
        """Return the nearest float32, ties to even, of a number that has a finite one.

        Without a type for it, x is moved to where neighbouring float64 numbers are as far apart as
        float32 numbers are around x, and back: (x + m) − m with m = 1.5·2⁵²·u and
        u = max(2^⌊log₂|x|⌋ · 2⁻²³, 2⁻¹⁴⁹). The power of two is |q − (1 − 2⁻⁵³)·q| with
        q = (2⁵² + 1)·x, by Rump's algorithm for the unit in the first place, which is exact.
        """
        if self.has_float32:
            return self._fill("CAST(CAST(x AS REAL) AS DOUBLE PRECISION)", value)
        scaled = f"{value} * {self.number(2**52 + 1)}"
        power = f"abs({scaled} - {scaled} * {self.number(1 - 2**-53)})"
        least = self.number(1.5 * 2.0**-97)
        shift = f"greatest({power} * {self.number(1.5 * 2**29)}, {least})"
        return f"({value} + {shift}) - {shift}"

    def star(self, without: Sequence[str]) -> str:
        """Return the columns of ``t`` without some of them."""
        exp = need("sqlglot").exp
        if not self.has_star_except or not without:
            return "t.*"
        names = [exp.to_identifier(name) for name in without]
        return self._write(exp.Column(this=exp.Star(except_=names), table=exp.to_identifier("t")))

    def _write(self, expression: Any) -> str:  # noqa: ANN401 (an expression of sqlglot)
        text: str = expression.sql(dialect=self.key)
        return text

    def _fill(self, sql: str, value: str = "") -> str:
        """Return SQL that is written in PostgreSQL's dialect, with a value in place of ``x``."""
        return _template(sql, self.key).replace("{x}", value)


@cache
def _template(sql: str, key: str) -> str:
    """Return SQL of PostgreSQL in another dialect, with ``{x}`` in place of the column ``x``."""
    sqlglot = need("sqlglot")
    expression = sqlglot.parse_one(sql, dialect="postgres")
    for column in list(expression.find_all(sqlglot.exp.Column)):
        column.replace(sqlglot.exp.var("{x}"))
    text: str = expression.sql(dialect=key)
    return text


DIALECTS = {
    "duckdb": Dialect("DuckDB", "duckdb", "duckdb shop.duckdb -f {file}\n"),
    "postgres": Dialect(
        "PostgreSQL", "postgres", "psql --set ON_ERROR_STOP=1 --dbname shop --file {file}\n",
        literal=None, has_star_except=False, folds_case=False, max_name_bytes=63, max_columns=1600,
    ),
    "spark": Dialect(
        "Spark", "spark", "spark-sql -f {file}\n", literal="{}D",
        ordered_sum="aggregate(array({}), 0e0D, (a, b) -> a + b)", forbidden=("\0", "${"),
    ),
    "bigquery": Dialect(
        "BigQuery", "bigquery", "bq query --use_legacy_sql=false < {file}\n",
        has_float32=False, max_name_bytes=300, max_characters=256_000,
        forbidden=("\0", *'!"$()*,./;?@[\\]^`{}~'),
    ),
    "snowflake": Dialect(
        "Snowflake", "snowflake", "snow sql --filename {file}\n", literal=None, has_float32=False,
        folds_case=False, max_name_bytes=255, max_characters=1_000_000,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """The rows of a table, which is called ``t``, with columns that are computed from it.

    If a ``SELECT`` can leave columns out, each step is a ``SELECT`` around the one before. In
    PostgreSQL the steps are in a ``LATERAL`` beside the table: so conditions on the view reach the
    table, and ``OFFSET 0`` keeps a step from being written out wherever its columns are used.

    Attributes
    ----------
    source : str
        What stands after ``FROM``.
    steps : str
        What is to become a ``LATERAL``.
    computed : tuple of str
        The names of the computed columns.
    """

    dialect: Dialect
    source: str
    steps: str = ""
    computed: tuple[str, ...] = ()

    @classmethod
    def of(cls, dialect: Dialect, table: str) -> Rows:
        """Return the rows of a table."""
        return cls(dialect, f"{table} AS t")

    def with_columns(self, columns: Mapping[str, str], keep: Iterable[str] | None = None) -> Rows:
        """Return the rows with new columns, by name; earlier ones are dropped unless in `keep`.

        By default all earlier columns stay.
        """
        if not columns:
            return self
        earlier = self.computed if keep is None else tuple(keep)
        computed = (*earlier, *columns)
        self._check_width(len(computed))
        if not self.dialect.has_star_except:
            selected = ",\n".join([*earlier, *_named(columns)])
            inner = f"\nFROM ({self.steps}) AS s" if self.steps else ""
            return replace(self, steps=f"SELECT\n{selected}{inner}\nOFFSET 0", computed=computed)
        selected = ",\n".join([self._star(earlier), *_named(columns)])
        source = f"(SELECT {selected}\nFROM {self.source}) AS t"
        return replace(self, source=source, computed=computed)

    def with_aggregates(self, query: str, aggregates: Mapping[str, str]) -> Rows:
        """Return the rows with aggregates over the items of each query."""
        selected, key, rows = ",\n".join(_named(aggregates)), f"{PREFIX}query", self._joined("r")
        source = (
            f"{rows}\nLEFT JOIN (SELECT t.{query} AS {key},\n{selected}\nFROM {rows}\n"
            f"GROUP BY t.{query}) AS q ON q.{key} = t.{query}"
        )
        computed = (*self.computed, *aggregates)
        self._check_width(len(computed) + len(self.computed))  # the columns pass here a second time
        if self.dialect.has_star_except:
            source = f"(SELECT t.*, {', '.join(aggregates)}\nFROM {source}) AS t"
        return replace(self, source=source, steps="", computed=computed)

    def select(self, columns: Mapping[str, str]) -> str:
        """Return the query for the table's columns and these."""
        return f"SELECT {', '.join([self._star(()), *_named(columns)])}\nFROM {self._joined('s')}"

    def _star(self, keep: Sequence[str]) -> str:
        return self.dialect.star([name for name in self.computed if name not in set(keep)])

    def _check_width(self, width: int) -> None:
        limit = self.dialect.max_columns
        if limit is not None and width > limit:
            raise ParameterError(
                f"a step of the view would have {width:,} columns, expected at most {limit:,}, the "
                f"limit of {self.dialect.system}: train with fewer features, or export to ONNX "
                "(--to onnx)"
            )

    def _joined(self, name: str) -> str:
        if not self.steps:
            return self.source
        return f"{self.source}\nCROSS JOIN LATERAL ({self.steps}) AS {name}"


def _named(columns: Mapping[str, str]) -> list[str]:
    return [f"{expression} AS {name}" for name, expression in columns.items()]


def join_terms(terms: Sequence[str], operator: str) -> str:
    """Return the terms with an operator between them, in nested groups that no parser finds deep.

    >>> join_terms(["a", "b", "c"], "+")
    'a + b + c'
    """
    while len(terms) > _MAX_TERMS:
        terms = [f"({join_terms(group, operator)})" for group in in_groups(terms, _MAX_TERMS)]
    return f" {operator} ".join(terms)


def in_groups(terms: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    """Return the terms in groups of this size."""
    return [terms[first : first + size] for first in range(0, len(terms), size)]
