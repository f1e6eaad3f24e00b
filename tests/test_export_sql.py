"""SQL views score as the ranker does, in every database.

Views for BigQuery and Snowflake run in DuckDB, after sqlglot has translated them.
"""

import re
import sys
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import cycle

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from made_rankers import (
    KINDS,
    NAMES,
    a_chain,
    made,
    made_missing,
    predict,
    ranker_of,
    some_features,
    some_trees,
)

from countersample.data.encoder import learn_encoder
from countersample.data.preprocessing import Imputer, Normalizer
from countersample.errors import ParameterError
from countersample.export import export
from countersample.export.sql_dialects import DIALECTS
from countersample.scorers import LinearScorer

HOWS = [None, "minmax", "standard", "root-minmax", "query-minmax"]
PAIRS = list(zip(cycle(KINDS), HOWS))
WIDE = 5  # the feature with the largest scale
MOST = float(np.finfo(np.float32).max)


TYPES = {
    "double": "double precision", "float": "real", "int64": "bigint", "string": "text",
    "date32[day]": "date", "timestamp[us]": "timestamp", "bool": "boolean",
    "decimal128(6, 2)": "numeric(6, 2)",
}  # fmt: skip


class DuckDB:
    def __init__(self, _):
        self._connection = duckdb.connect()

    def score(self, table, view):
        self._connection.register("given", table)
        self._connection.execute("CREATE OR REPLACE TABLE features AS FROM given")
        self._connection.execute(view)
        return self._connection.sql("SELECT * FROM v ORDER BY item").to_arrow_table()


class PostgreSQL:
    def __init__(self, request):
        self._server = request.getfixturevalue("postgres")

    def score(self, table, view):
        kinds = [TYPES[str(kind)] for kind in table.schema.types]
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        self._server.fill("features", table.column_names, kinds, rows)
        self._server.run(view)
        return self._server.read("SELECT * FROM v ORDER BY item")


class Spark:
    def __init__(self, request):
        self._session = request.getfixturevalue("cluster")
        self._folder = request.getfixturevalue("tmp_path")

    def score(self, table, view):
        path = self._folder / "features.parquet"
        pq.write_table(table, path)
        for statement in (
            "DROP VIEW IF EXISTS v",
            "DROP TABLE IF EXISTS features",
            f"CREATE TABLE features USING parquet LOCATION '{path}'",
            view.rstrip().removesuffix(";"),
        ):
            self._session.sql(statement)
        return self._session.sql("SELECT * FROM v ORDER BY item").toArrow()


class Translated(DuckDB):
    """DuckDB in place of a database that cannot be started here."""

    def __init__(self, request):
        super().__init__(request)
        self._dialect = request.getfixturevalue("dialect")

    def score(self, table, view):
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(10_000)  # sqlglot's parser takes some calls per level of a tree
        try:
            (statement,) = sqlglot.transpile(view, read=self._dialect, write="duckdb")
        finally:
            sys.setrecursionlimit(limit)
        statement = re.sub(r'CAST\((t\."\w+") AS VARIANT\)', r"\1", statement)  # for its type
        return super().score(table, statement)


DATABASES = {
    "duckdb": DuckDB, "postgres": PostgreSQL, "spark": Spark, "bigquery": Translated,
    "snowflake": Translated,
}  # fmt: skip


@pytest.fixture(params=DIALECTS)
def dialect(request):
    return request.param


@pytest.fixture
def database(dialect, request):
    return DATABASES[dialect](request)


def a_table(rows, names=NAMES, queries=None):
    """Return features with what else a table has; items are numbered as rows."""
    queries = np.zeros(len(rows), np.int64) if queries is None else queries
    columns = {"query": queries, "item": np.arange(len(rows))}
    return pa.table(columns | dict(zip(names, np.array(rows).T, strict=True)))


def numbers(column):
    return np.array(column.to_pylist(), np.float64)  # NULL is NaN


def written(ranker, dialect, tmp_path, **options):
    path = tmp_path / "v.sql"
    export(ranker, path, to="sql", dialect=dialect, **options)
    return path.read_text("utf-8")


def assert_same(kind, found, expected):
    """Trees to the bit, linear sums up to their order, networks up to float32."""
    share = {"boosted": 0, "linear": 1e-14, "neural": 2e-6}[kind]
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


class TestScores:
    @pytest.mark.slow
    @pytest.mark.parametrize(("kind", "how"), [*PAIRS, *((kind, HOWS[-1]) for kind in KINDS[:2])])
    def test_of_rankers(self, kind, how, dialect, database, rng, tmp_path):
        ranker, rows = made(kind, how, rng)
        table = database.score(a_table(rows), written(ranker, dialect, tmp_path, query="query"))
        assert table.column_names == ["query", "item", *NAMES, "score", "rank"]
        scores = numbers(table["score"])
        assert_same(kind, scores, predict(ranker, rows))
        ranks = [1 + (scores > score).sum() for score in scores]
        assert table["rank"].to_pylist() == ranks

    def test_by_query(self, dialect, database, rng, tmp_path):
        """Queries of several sizes, one of them constant in every feature; one item has none."""
        ranker, rows = made("linear", "query-minmax", rng)
        rows[50:60] = rows[50]
        starts = np.array([0, 1, 3, 50, 60, 150])
        queries = np.searchsorted(starts, np.arange(150), side="right").tolist()
        table = a_table(rows[:151], queries=pa.array([*queries, None], pa.int64()))
        view = written(ranker, dialect, tmp_path, query="query")
        scores = numbers(database.score(table, view)["score"])
        assert_same("linear", scores[:150], ranker._scores(rows[:150], starts))
        assert np.isnan(scores[150])

    @pytest.mark.slow
    def test_of_many_trees_and_features(self, dialect, database, rng, tmp_path):
        """As many as a database reads only in parts: up to 500 trees of 7 splits."""
        names = [f"f{index}" for index in range(60)]
        rows = rng.random((20, len(names)), np.float32)
        n_trees = {"bigquery": 300}.get(dialect, 500)  # its views are short
        scorer = some_trees(rng, [rng.random(5) for _ in names], n_trees=n_trees, depth=3)
        ranker = ranker_of("boosted", scorer, names=names)
        found = database.score(a_table(rows, names), written(ranker, dialect, tmp_path))
        assert_same("boosted", numbers(found["score"]), predict(ranker, rows))

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["linear", "boosted"])
    def test_of_wide_tables(self, kind, dialect, database, rng, tmp_path):
        """PostgreSQL has at most 1,600 columns in a table, and 1,664 in any step.

        Others have no such limit, and take long to read so long a view: they get a short one.
        """
        width = 1500 if kind == "linear" else 750
        names = [f"f{index}" for index in range(width if dialect in {"duckdb", "postgres"} else 50)]
        rows = rng.random((5, len(names)), np.float32)
        shape = {"shift": (0.1,) * len(names), "scale": (2.0,) * len(names)}
        scorer = LinearScorer(rng.standard_normal(len(names)))
        if kind == "boosted":
            trees = some_trees(rng, [[0.5]] * len(names), n_trees=3, depth=2)
            scorer = replace(trees, base=scorer.weights)
        normalizer = Normalizer("standard", len(names), **shape)
        ranker = ranker_of(kind, scorer, names=names, normalizer=normalizer)
        view = written(ranker, dialect, tmp_path)
        found = database.score(a_table(rows, names), view)
        assert_same("linear", numbers(found["score"]), predict(ranker, rows))

    def test_of_the_deepest_tree(self, dialect, database, tmp_path):
        ranker = ranker_of("boosted", a_chain(100), names=("a",))
        rows = np.array([[-1.0], [0.0], [50.0], [98.5], [99.0], [1000.0]], np.float32)
        found = database.score(a_table(rows, ["a"]), written(ranker, dialect, tmp_path))
        assert numbers(found["score"]).tolist() == [0.0, 0.0, 50.0, 99.0, 99.0, 100.0]


# Values of float64 columns, and the float32 that `predict` reads; None if it rejects them.
TOO_LARGE = (2 - 2.0**-24) * 2.0**127  # half way to 2^128, to which it is rounded
VALUES = {
    0.1: np.float32(0.1), -0.0: 0, 1e-60: 0, -(2.0**-150): 0, 1.5 * 2.0**-150: 2.0**-149,
    2.0**-149: 2.0**-149, 1.1e-38: np.float32(1.1e-38), MOST: MOST, -MOST: -MOST,
    float(np.nextafter(TOO_LARGE, 0)): MOST, TOO_LARGE: None, 1e300: None,
    np.inf: None, -np.inf: None, np.nan: None, None: None, 16777217.0: 16777216,
}  # fmt: skip


class TestValues:
    @pytest.mark.slow
    @pytest.mark.parametrize(("kind", "how"), [("linear", "root-minmax"), ("boosted", None)])
    def test_of_any_size(self, kind, how, dialect, database, rng, tmp_path):
        ranker, _ = made(kind, how, rng)
        if kind == "boosted":
            read = np.array([x for x in VALUES.values() if x is not None], np.float32)
            scorer = some_trees(rng, [read] * len(NAMES))
            ranker = ranker_of(kind, scorer, names=NAMES)
        columns = {"item": range(len(VALUES))} | dict.fromkeys(NAMES, [1.5] * len(VALUES))
        columns[NAMES[WIDE]] = list(VALUES)
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        scores = numbers(database.score(table, written(ranker, dialect, tmp_path))["score"])
        is_read = np.array([x is not None for x in VALUES.values()])
        rows = np.full((len(VALUES), len(NAMES)), 1.5, np.float32)
        rows[is_read, WIDE] = [x for x in VALUES.values() if x is not None]
        assert_same(kind, scores[is_read], predict(ranker, rows)[is_read])
        assert np.isnan(scores[~is_read]).all()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("kind", "how"),
        [("linear", "minmax"), ("neural", "query-minmax"), ("boosted", None),
         ("linear part", "query-minmax"), ("linear part", "minmax"), ("linear part alone", None)],
    )  # fmt: skip
    def test_missing(self, kind, how, dialect, database, rng, tmp_path):
        """NULL and NaN both are missing: filled in, with an indicator, or a branch of trees.

        The trees may add to a linear scorer, which has other weights for missing values.
        """
        is_plain = kind in KINDS
        ranker, rows = made_missing(kind if is_plain else "boosted", how, rng)
        if not is_plain:
            trees = ranker.scorer_
            if kind == "linear part alone":
                trees = some_trees(rng, [[0]] * len(NAMES), n_trees=0)
                trees = replace(trees, missing_left=np.zeros(0, bool))
            base, missing = rng.standard_normal((2, len(NAMES)))
            base[0] = 0  # counts only if it is missing
            ranker.scorer_ = replace(trees, base=base, base_missing=missing)
        rows = rows[:60]
        view = written(ranker, dialect, tmp_path, query="query")
        is_null = np.isnan(rows) & (rng.random(rows.shape) < 0.5)
        values = np.where(is_null, None, rows.astype(float))
        table = a_table(np.zeros((len(rows), 0)), ())
        for name, column in zip(NAMES, values.T, strict=True):
            table = table.append_column(name, pa.array(column, pa.float64(), from_pandas=False))
        scores = numbers(database.score(table, view)["score"])
        assert_same(kind if is_plain else "linear", scores, predict(ranker, rows))
        if how != "query-minmax":  # infinity is rejected, and not taken for a missing value
            infinite = a_table(np.full((2, len(NAMES)), np.inf) * [[1], [-1]])
            assert database.score(infinite, view)["score"].to_pylist() == [None, None]

    def test_of_trees_without_a_split(self, dialect, database, rng, tmp_path):
        """No feature is read, so none has a range. An item without a query has no score."""
        ranker, rows = made("boosted", "query-minmax", rng)
        ranker.scorer_ = some_trees(rng, [[0]] * len(NAMES), n_trees=2, depth=0)
        view = written(ranker, dialect, tmp_path, query="query")
        table = a_table(rows[:2], queries=pa.array([1, None], pa.int64()))
        expected = [sum(ranker.scorer_.value), None]
        assert database.score(table, view)["score"].to_pylist() == expected

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("kind", "transform", "how"),
        [("linear", "log", "query-minmax"), ("linear", "quantile", None),
         ("neural", "root", "standard"), ("boosted", "quantile", "standard"),
         ("boosted", "root", "query-minmax")],
    )  # fmt: skip
    def test_transformed(self, kind, transform, how, dialect, database, rng, tmp_path):
        ranker, rows = made(kind, how, rng, transform=transform)
        view = written(ranker, dialect, tmp_path, query="query")
        found = numbers(database.score(a_table(rows), view)["score"])
        expected = predict(ranker, rows)
        # logarithms of databases and of NumPy differ in the last bit, which float32 may show
        share = 1e-6 if transform == "log" else {"boosted": 0, "linear": 1e-7, "neural": 2e-6}[kind]
        if kind == "boosted":  # a value on a threshold may then go the other way
            assert (found == expected).mean() >= (1 if how != "query-minmax" else 0.9)
        else:
            assert np.abs(found - expected).max() <= share * np.abs(expected).max()


COLUMNS = {  # of 60 rows; the first four are categories
    "integer": pa.array([2020, 2021, None] * 20),
    "float": pa.array([2020.0, -3.0, None] * 20),
    "decimal": pa.array([Decimal("2020.00"), Decimal("0.00"), None] * 20),
    "text": pa.array(["it's", "a\\b", "${x}"] * 20),  # which a view must quote
    "bool": pa.array([True, False, None] * 20),
    "date": pa.array([date(2026, 3, 1), date(2026, 3, 31), date(2025, 3, 31)] * 20),
    "time": pa.array(["2026-03-01", "2026-03-31", "2025-03-31"] * 20),
}


def test_columns_of_every_type_are_read_as_the_encoder_reads_them(dialect, database, tmp_path):
    """BigQuery writes whole floats without a point, so DuckDB cannot stand in for it there."""
    left_out = {"float", "decimal"} if dialect == "bigquery" else set()
    names = [name for name in COLUMNS if name not in left_out]
    table = pa.table({name: COLUMNS[name] for name in names} | {"item": range(60)})
    categories = [name for name in names if name not in {"bool", "date", "time"}]
    encoder = learn_encoder(dict.fromkeys(names, table), categorical=categories).encoder
    scorer = LinearScorer(1.5 ** np.arange(encoder.n_features))
    ranker = ranker_of("linear", scorer, names=encoder.feature_names)
    imputer = Imputer((0.0,) * encoder.n_features, ())
    ranker.preprocessing_ = replace(ranker.preprocessing_, encoder=encoder, imputer=imputer)
    scores = numbers(database.score(table, written(ranker, dialect, tmp_path))["score"])
    expected = ranker._scores(encoder.transform(table), np.array([0, 60]))
    np.testing.assert_allclose(scores, expected, rtol=1e-14)
    assert len(set(expected)) == 3


class TestWarehouses:
    """BigQuery and Snowflake have neither a server here nor a type for float32."""

    @pytest.mark.parametrize("dialect", ["bigquery", "snowflake"])
    def test_float32_by_arithmetic(self, dialect, rng):
        """Random bits, ties between neighbours, subnormal numbers, and the ends."""
        bits = rng.integers(0, 2**32, 20_000, np.uint32).view(np.float32)
        bits = bits[np.isfinite(bits)].astype(np.float64)
        with np.errstate(over="ignore"):
            above = np.nextafter(bits.astype(np.float32), np.float32(np.inf)).astype(np.float64)
        ties = (bits + above) / 2
        values = np.concatenate([
            bits, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf),
            bits * rng.uniform(0.5, 1, len(bits)), rng.standard_normal(10_000),
        ])  # fmt: skip
        values = values[np.isfinite(values.astype(np.float32))]
        rounded = sqlglot.transpile(
            "SELECT " + DIALECTS[dialect].rounded("x"), read=dialect, write="duckdb"
        )[0]
        numbers = pa.table({"x": values})  # noqa: F841 (DuckDB reads it)
        found = duckdb.sql(f"{rounded} AS y FROM numbers").fetchnumpy()["y"]
        np.testing.assert_array_equal(found, values.astype(np.float32).astype(np.float64))


NASTY = (
    'a"b', "a`b", "a'b", "a\\b", "a;DROP TABLE features;--", "/* a */", "sélect ☃", "select", "a.b",
    " a ", "%s {0}", "$1 :a", "a\nb", "T",
)  # fmt: skip


class TestNames:
    def test_any_is_read_as_it_is(self, dialect, database, rng, tmp_path):
        names = [name for name in NASTY if dialect != "bigquery" or name.isalnum()]
        rows = some_features(rng, 20)[:, [2] * len(names)] + np.arange(len(names), dtype=np.float32)
        ranker = ranker_of("linear", LinearScorer(rng.standard_normal(len(names))), names=names)
        found = database.score(a_table(rows, names), written(ranker, dialect, tmp_path))
        assert_same("linear", numbers(found["score"]), predict(ranker, rows))

    def test_of_table_view_and_query(self, rng, tmp_path):
        ranker, _ = made("linear", None, rng)
        options = {"name": "shop.best", "table": "raw.my features", "query": 'q"'}
        view = written(ranker, "postgres", tmp_path, **options)
        assert 'CREATE OR REPLACE VIEW "shop"."best" AS' in view
        assert 'FROM "raw"."my features" AS t' in view
        assert 'rank() OVER (PARTITION BY t."q""" ORDER BY' in view
        assert "rank()" not in written(ranker, "postgres", tmp_path)


@pytest.mark.parametrize(
    ("dialect", "options", "message"),
    [
        ("oracle", {}, "dialect is 'oracle', expected one of duckdb, postgres, spark"),
        ("duckdb", {"feature_names": ["a", "A", *"cdefg"]}, "'a' and 'A', which are the same"),
        ("spark", {"feature_names": ["Score", *"bcdefg"]}, "a feature is called 'Score'"),
        ("spark", {"feature_names": ["${x}", *"bcdefg"]}, "'${x}' cannot be quoted in Spark"),
        ("duckdb", {"feature_names": ["a\0", *"bcdefg"]}, "cannot be quoted in DuckDB"),
        ("postgres", {"table": "a..b"}, "table is 'a..b', expected a name"),
        ("postgres", {"query": ""}, "query is '', expected the name of the column"),
        ("duckdb", {"query": "Score"}, "query is 'Score', expected another name: the view"),
    ],
)
def test_bad_options_are_rejected_before_writing(dialect, options, message, rng, tmp_path):
    ranker, _ = made("linear", None, rng)
    with pytest.raises(ParameterError) as error:
        written(ranker, dialect, tmp_path, **options)
    assert message in str(error.value)
    assert not any(tmp_path.iterdir())
