"""Score rows in a database by the view of a ranker with 700 features, and as `predict` does.

    .venv/bin/python benchmarks/bench_sql.py [--rows 100_000] [--dialects duckdb postgres spark]

Rankers: linear; 500 trees of 32 leaves; a network of 700, 32, 16 and 1; all with ``minmax``. "all"
is a query for the sum of all scores, "one query" is one for scores and ranks of 100 items.
PostgreSQL is a server that is started here, without just-in-time compilation; Spark runs on two
cores of this machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from output import make_parser, output, table

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
import requirements
import small_postgres
from made_rankers import NetworkScorer, Normalizer, predict, ranker_of, some_trees

from countersample.export import export
from countersample.scorers import LinearScorer

N_FEATURES = 700
NAMES = [f"f{index}" for index in range(N_FEATURES)]
ALL = "SELECT sum(score), count(score) FROM v"
ONE = "SELECT item, score, rank FROM v WHERE query = 7"


class DuckDB:
    """In this process."""

    def __init__(self, path: Path, _: ExitStack) -> None:
        import duckdb

        self._connection = duckdb.connect()
        self.run("CREATE TABLE features AS FROM '" + str(path) + "'")

    def run(self, statement: str) -> None:
        """Run a statement to its end."""
        self._connection.execute(statement).fetchall()


class PostgreSQL:
    """A server that is started here."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        programs = requirements.find_postgres()
        if programs is None:
            raise SystemExit("no PostgreSQL server is installed")
        self._server = stack.enter_context(small_postgres.serving(programs))
        data = pq.read_table(path)
        kinds = ["bigint", "bigint"] + ["real"] * N_FEATURES
        columns = [column.to_numpy().tolist() for column in data.columns]
        rows = zip(*columns, strict=True)
        self._server.fill("features", data.column_names, kinds, rows)
        self.run("CREATE INDEX ON features (query); ANALYZE features;")

    def run(self, statement: str) -> None:
        """Run a statement to its end."""
        self._server.run(statement)


class Spark:
    """On two cores of this machine."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_SUBMIT_ARGS"] = "--driver-memory 4g pyspark-shell"
        self._session = SparkSession.builder.master("local[2]").getOrCreate()
        self._session.sparkContext.setLogLevel("OFF")
        stack.callback(self._session.stop)
        self.run("CREATE TABLE features USING parquet LOCATION '" + str(path) + "'")

    def run(self, statement: str) -> None:
        """Run a statement to its end."""
        self._session.sql(statement.rstrip().removesuffix(";")).collect()


DATABASES = {"duckdb": DuckDB, "postgres": PostgreSQL, "spark": Spark}


def rankers(rng: np.random.Generator) -> dict[str, Any]:
    widths = [(32, N_FEATURES), (16, 32), (1, 16)]
    scorers = {
        "linear": LinearScorer(rng.standard_normal(N_FEATURES)),
        "boosted": some_trees(rng, [rng.random(9) for _ in NAMES], n_trees=501, depth=5),
        "neural": NetworkScorer(
            tuple((rng.standard_normal(w) / w[1] ** 0.5).astype(np.float32) for w in widths),
            tuple(rng.standard_normal(w[0]).astype(np.float32) for w in widths),
        ),
    }
    normalizer = Normalizer("minmax", N_FEATURES, (0.1,) * N_FEATURES, (0.5,) * N_FEATURES)
    return {
        kind: ranker_of(kind, scorer, names=NAMES, normalizer=normalizer)
        for kind, scorer in scorers.items()
    }


def seconds(call: Any, *arguments: object) -> float:
    start = time.perf_counter()
    call(*arguments)
    return round(time.perf_counter() - start, 2)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dialects", nargs="+", choices=DATABASES, default=list(DATABASES))
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    features = rng.random((arguments.rows, N_FEATURES), np.float32)
    made = rankers(rng)
    predict(made["boosted"], features[:10])  # compiled code
    ours = {kind: seconds(predict, ranker, features) for kind, ranker in made.items()}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "features.parquet")
        items = np.arange(arguments.rows)
        columns = {"query": items // 100, "item": items} | dict(zip(NAMES, features.T, strict=True))
        pq.write_table(pa.table(columns), path, row_group_size=10_000)
        for dialect in arguments.dialects:
            with ExitStack() as stack:
                database = DATABASES[dialect](path, stack)
                for kind, ranker in made.items():
                    view = Path(folder, "v.sql")
                    export(ranker, view, to="sql", dialect=dialect, query="query")
                    text = view.read_text("utf-8")
                    found.append(
                        {"database": dialect, "ranker": kind, "kB": len(text) // 1000,
                         "create s": seconds(database.run, text),
                         "all s": seconds(database.run, ALL),
                         "one query s": seconds(database.run, ONE), "predict s": ours[kind]}
                    )  # fmt: skip
                    print(found[-1], file=sys.stderr, flush=True)
    output(found, lambda rows: table(rows, left=2), as_json=arguments.json)


if __name__ == "__main__":
    main()
