"""What databases write differently: names, texts, numbers, casts, and rows with computed columns.

sqlglot writes the small pieces in each dialect: quoted names, texts, casts, days between dates. The
rest of a view is `SELECT`, `CASE` and arithmetic, which all dialects share. It is put together as
text, because sqlglot takes longer to build and write 500 trees than all other work of an export.

`Dialect` writes the pieces. `Rows` is a table with columns that are computed from it step by step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from countersample._environment import need
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PREFIX = "countersample_"  # of the names of computed columns
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,15}")  # categories that may be numbers, exact in float64
_NUMBER_TYPES = ("double", "real", "float", "decimal", "numeric")  # their text may have a point
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
    command : str
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
    type_of : str or None
        The name of a value's type; None if numbers become text as Python writes integers.
    number_of : str
        A feature as float64, from a column of numbers or of booleans.
    """

    system: str
    key: str
    command: str
    literal: str | None = "{}"
    has_float32: bool = True
    has_star_except: bool = True
    folds_case: bool = True
    ordered_sum: str | None = None
    type_of: str | None = None
    number_of: str = "CAST(x AS DOUBLE PRECISION)"

    def name(self, name: str) -> str:
        """Return a quoted name."""
        if "\0" in name or (self.key == "spark" and "${" in name):  # spark-sql replaces ${…}
            raise ParameterError(
                f"the name {name!r} cannot be quoted in {self.system}, expected one without NUL "
                "and '${': rename it"
            )
        text: str = need("sqlglot").exp.to_identifier(name, quoted=True).sql(dialect=self.key)
        return text

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
        literal = exp.Literal.string(text)
        if self.key == "spark" and any(each in text for each in "\\'$"):
            # A setting changes what a backslash is, and spark-sql replaces ${…} within texts.
            literal = exp.cast(exp.HexString(this=text.encode().hex()), "TEXT")
        sql: str = literal.sql(dialect=self.key)
        return sql

    def number(self, value: float) -> str:
        """Return a float64 that is read without loss."""
        text = repr(float(value))
        text = text if "e" in text else f"{text}e0"
        if self.literal is None:
            return self.as_double(f"'{text}'")
        literal = self.literal.format(text)
        return f"({literal})" if literal.startswith("-") else literal

    def as_double(self, value: str) -> str:
        """Return a value as float64."""
        return self._fill("CAST(x AS DOUBLE PRECISION)", value)

    def as_text(self, value: str) -> str:
        """Return a value as text."""
        return self._fill("CAST(x AS TEXT)", value)

    def as_number(self, value: str) -> str:
        """Return a feature as float64: a number, or 0 and 1 for a boolean."""
        return self._fill(self.number_of, value)

    def is_category(self, value: str, category: str) -> str:
        """Return the condition that a column has this value, as `FeatureEncoder` compares them.

        There whole numbers are text without a point: 2021.0 and the decimal 2021.00 are '2021'.
        Text is compared as it is, so the type of the column decides. It is known when the view
        runs, not when it is written.
        """
        condition = f"{self.as_text(value)} = {self.string(category)}"
        if self.type_of is None or not _WHOLE.fullmatch(category):
            return condition
        kind = self.type_of.format(value)
        is_number = " OR ".join(f"{kind} LIKE '{each}%'" for each in _NUMBER_TYPES)
        # Any type can be cast to text. Snowflake may cast texts for which the condition is false.
        cast = "TRY_CAST" if self.key == "snowflake" else "CAST"
        number = self._fill(f"{cast}(CAST(x AS TEXT) AS DOUBLE PRECISION)", value)
        return (
            f"CASE WHEN {is_number} THEN {number} = {self.number(int(category))} "
            f"ELSE {condition} END"
        )

    @property
    def infinity(self) -> str:
        """Infinity as a float64."""
        return self.as_double("'inf'")

    def days_before(self, day: str, value: str) -> str:
        """Return the days from a column to a day, as a float64."""
        exp = need("sqlglot").exp
        # only DateDiff is written for PostgreSQL; BigQuery's takes no times
        difference = exp.DateDiff if self.key == "postgres" else exp.DatetimeDiff
        start, end = (exp.cast(exp.var(name), "TIMESTAMPNTZ", dialect="snowflake")
                      for name in ("{0}", "{1}"))  # fmt: skip
        template = difference(this=end, expression=start, unit=exp.var("MICROSECOND"))
        microseconds = template.sql(dialect=self.key).format(value, self.string(day))
        return f"{self.as_double(microseconds)} / {self.number(86_400_000_000)}"

    def rounded(self, value: str, otherwise: str = "") -> str:
        """Return the nearest float32, as a float64; NULL for NULL, NaN and what is too large.

        PostgreSQL rejects numbers that round to 0 or to infinity; DuckDB rejects only infinity.
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

    def _fill(self, sql: str, value: str) -> str:
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
    "duckdb": Dialect(
        "DuckDB", "duckdb", "duckdb shop.duckdb -f {}", type_of="lower(typeof({}))"
    ),
    "postgres": Dialect(
        "PostgreSQL", "postgres", "psql --set ON_ERROR_STOP=1 --dbname shop --file {}",
        literal=None, has_star_except=False, folds_case=False,
        type_of="CAST(pg_typeof({}) AS TEXT)",
        number_of="CAST(CASE CAST(x AS TEXT) WHEN 'true' THEN '1' WHEN 'false' THEN '0' "
        "ELSE CAST(x AS TEXT) END AS DOUBLE PRECISION)",
    ),
    "spark": Dialect(
        "Spark", "spark", "spark-sql -f {}", literal="{}D",
        ordered_sum="aggregate(array({}), 0e0D, (a, b) -> a + b)", type_of="typeof({})",
    ),
    "bigquery": Dialect(
        "BigQuery", "bigquery", "bq query --use_legacy_sql=false < {}", has_float32=False,
    ),
    "snowflake": Dialect(
        "Snowflake", "snowflake", "snow sql --filename {}", literal=None, has_float32=False,
        folds_case=False, type_of="lower(typeof(to_variant({})))",
    ),
}  # fmt: skip


class Rows:
    """The rows of a table, which is called ``t``, with columns that are computed in steps.

    If a ``SELECT`` can leave columns out, each step is a ``SELECT`` around the one before. In
    PostgreSQL the steps are joined in a ``LATERAL`` beside the table: so conditions on the view
    reach the table, and ``OFFSET 0`` keeps a step from being written out wherever its columns are
    used. Only the columns of the last step leave the ``LATERAL``, as rows have at most 1,664.
    """

    def __init__(self, dialect: Dialect, table: str) -> None:
        self.dialect = dialect
        self._source = f"{table} AS t"
        self._steps: list[str] = []  # of PostgreSQL
        self._computed: list[str] = []

    def add(self, letter: str, expressions: Mapping[int, str]) -> dict[int, str]:
        """Add a step with computed columns; return their names, which begin with the letter."""
        names = {key: f"{PREFIX}{letter}{key}" for key in expressions}
        if expressions:
            selected = _alias({names[key]: each for key, each in expressions.items()})
            if self.dialect.has_star_except:
                self._source = f"(SELECT t.*,\n{selected}\nFROM {self._source}) AS t"
            else:
                self._steps.append(f"(SELECT\n{selected}\nOFFSET 0) AS s{len(self._steps)}")
            self._computed += names.values()
        return names

    def add_aggregates(self, query: str, aggregates: Mapping[str, str]) -> None:
        """Add aggregates over the items of each query, of columns of the last step."""
        key, rows = f"{PREFIX}query", self._join_steps("r")
        self._source = (
            f"{rows}\nLEFT JOIN (SELECT t.{query} AS {key},\n{_alias(aggregates)}\nFROM {rows}\n"
            f"GROUP BY t.{query}) AS q ON q.{key} = t.{query}"
        )
        if self.dialect.has_star_except:
            self._source = f"(SELECT t.*, {', '.join(aggregates)}\nFROM {self._source}) AS t"
        self._steps = []
        self._computed += aggregates

    def select(self, columns: Mapping[str, str]) -> str:
        """Return the query for the table's columns and these, of columns of the last step."""
        star = "t.*"
        if self.dialect.has_star_except and self._computed:
            exp = need("sqlglot").exp
            names = [exp.to_identifier(name) for name in self._computed]
            table = exp.to_identifier("t")
            star = exp.Column(this=exp.Star(except_=names), table=table).sql(self.dialect.key)
        return f"SELECT {star},\n{_alias(columns)}\nFROM {self._join_steps('s')}"

    def _join_steps(self, name: str) -> str:
        if not self._steps:
            return self._source
        steps = "\nCROSS JOIN LATERAL ".join(self._steps)
        last = f"SELECT s{len(self._steps) - 1}.*\nFROM {steps}\nOFFSET 0"
        return f"{self._source}\nCROSS JOIN LATERAL ({last}) AS {name}"


def _alias(columns: Mapping[str, str]) -> str:
    return ",\n".join(f"{expression} AS {name}" for name, expression in columns.items())


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
