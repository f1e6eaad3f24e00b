"""Tables ranked: files as streams, frames of every library, on Spark's workers."""

import json
import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import duckdb
import invoking
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from countersample import CounterSampleRanker, RankingDataset
from countersample.clicks import ClickLog
from countersample.errors import DataError, ParameterError
from countersample.logs import files as formats
from countersample.logs import read_features
from countersample.rankers.files import load_scorer
from countersample.rankers.rank_tables import TableColumns, rank_batches

N_QUERIES, N_ITEMS = 30, 7


def features_table(rng, n_queries=N_QUERIES):
    n = n_queries * N_ITEMS
    return pa.table(
        {
            "query_id": [f'q{row // N_ITEMS}, "é"' for row in range(n)],
            "item_id": rng.permutation(n),
            "price": rng.random(n),
            "color": rng.choice(["red", "blue, \n", "teal"], n),
            "since": np.datetime64("2026-01-01") + rng.integers(0, 100, n),
            "used": rng.random(n) < 0.5,
            "title": [f"title {row}" for row in range(n)],
        }
    )


def fitted(table, normalize="minmax"):
    """Return a ranker that learned from random clicks on the items of a table."""
    features = read_features(table)
    rng = np.random.default_rng(0)
    data = features.dataset
    query = np.arange(data.n_queries)
    log = ClickLog(query, rng.integers(0, N_ITEMS, data.n_queries), np.ones(data.n_queries))
    ranker = CounterSampleRanker(learning_rate=0.1, steps=200, normalize=normalize, random_state=0)
    ranker.fit_log(data, log)
    ranker.preprocessing_ = replace(ranker.preprocessing_, encoder=features.encoder_to_save)
    return ranker


@pytest.fixture(scope="module")
def table():
    return features_table(np.random.default_rng(1))


@pytest.fixture(scope="module")
def ranker(table):
    return fitted(table)


def expected(ranker, table):
    """Return score and rank of each pair, a query at a time: by `predict`, and by sorting."""
    data = read_features(table, encoder=ranker.preprocessing_.encoder)
    scores = ranker.predict(data.dataset)
    result = {}
    for query in range(data.dataset.n_queries):
        own = slice(*data.dataset.offsets[query : query + 2])
        ranks = 1 + np.argsort(np.argsort(-scores[own], kind="stable"), kind="stable")
        key = data.dataset.query_ids[query]
        for item, score, rank in zip(data.item_ids[own], scores[own], ranks, strict=True):
            result[str(key), int(item)] = float(score), int(rank)
    return result


def in_full(table):
    rows = table.to_pylist() if isinstance(table, pa.Table) else table
    assert list(rows[0]) == ["query_id", "item_id", "score", "rank"]
    result = {(row["query_id"], int(row["item_id"])): (row["score"], row["rank"]) for row in rows}
    assert len(result) == len(rows)
    return result


@pytest.fixture
def run(tmp_path, monkeypatch, ranker):
    monkeypatch.chdir(tmp_path)
    ranker.save("ranker.json")

    def invoke(*arguments, fails=False):
        result = invoking.invoke("rank", "ranker.json", *arguments)
        assert (result.exit_code != 0) == fails, result.output
        return str(result.exception) if fails else result.stdout

    return invoke


def write(table, path):
    if path.endswith(".parquet"):
        parquet.write_table(table, path, row_group_size=50)
    elif path.endswith(".feather"):
        feather.write_feather(table, path)
    elif path.endswith(".jsonl"):
        lines = [json.dumps(row, default=str) + "\n" for row in table.to_pylist()]
        Path(path).write_text("".join(lines))
    else:
        csv.write_csv(table, path, csv.WriteOptions(delimiter="\t" if "tsv" in path else ","))


@pytest.mark.parametrize(
    ("name", "is_shuffled"),
    [("f.parquet", False), ("f.csv", True), ("f.jsonl", True), ("f.feather", False)],
)
def test_the_table_that_was_fitted_on(run, ranker, table, name, is_shuffled, rng, monkeypatch):
    monkeypatch.setattr(formats, "BATCH_ROWS", 16)  # queries go on in the next batch
    rows = table.take(rng.permutation(len(table))) if is_shuffled else table
    write(rows, name)
    said = json.loads(run(name, "-o", "out.parquet", "--json"))
    assert said == {"out": "out.parquet", "rows": len(table)}
    result = parquet.read_table("out.parquet")
    assert in_full(result) == expected(ranker, rows)
    if not is_shuffled:
        assert [int(item) for item in result["item_id"].to_pylist()] == rows["item_id"].to_pylist()


@pytest.mark.parametrize("out", ["o.csv", "o.jsonl", "o.parquet"])
def test_formats_of_the_result(run, ranker, table, out):
    write(table, "f.parquet")
    run("f.parquet", "-o", out, "--top", 2)
    if out.endswith("jsonl"):
        rows = [json.loads(line) for line in Path(out).read_text().splitlines()]
    elif out.endswith("parquet"):
        rows = parquet.read_table(out).to_pylist()
    else:
        rows = csv.read_csv(out).to_pylist()
    best = {pair: each for pair, each in expected(ranker, table).items() if each[1] <= 2}
    assert in_full(rows) == best
    assert [row["rank"] for row in rows] == [1, 2] * N_QUERIES  # the best first


def test_other_names_of_ids_and_items_without(run, table, ranker):
    own = table.rename_columns(["q", "doc", *table.column_names[2:]])
    write(own, "own.parquet")
    assert "no column 'query_id': the columns are q, doc, price" in run(
        "own.parquet", "-o", "o.csv", fails=True
    )
    run("own.parquet", "-o", "o.parquet", "--columns", "query_id=q,item_id=doc")
    result = parquet.read_table("o.parquet")
    assert result.column_names == ["q", "doc", "score", "rank"]
    write(own.rename_columns(["qid", *own.column_names[1:]]), "numbered.parquet")
    run("numbered.parquet", "-o", "n.parquet")
    numbered = parquet.read_table("n.parquet")
    assert numbered.column_names == ["qid", "item", "score", "rank"]
    assert numbered["item"].to_pylist() == [row % N_ITEMS for row in range(len(table))]
    assert numbered["score"].to_pylist() == result["score"].to_pylist()
    frame = ranker.rank_frame(own, query="q")
    assert frame["item"].to_pylist() == numbered["item"].to_pylist()


def test_a_folder_and_a_compressed_file(run, ranker, table):
    Path("parts").mkdir()
    write(table.slice(0, 100), "parts/a.parquet")
    write(table.slice(100), "parts/b.parquet")
    table.to_pandas().to_csv("f.csv.xz", index=False)
    for source in ("parts", "f.csv.xz"):
        run(source, "-o", "o.parquet")
        assert in_full(parquet.read_table("o.parquet")) == expected(ranker, table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["price"]), "f.parquet: no column 'price' .*: the columns are"),
        (lambda t: t.slice(0, 0), "f.parquet: has no rows, expected at least one"),
        (lambda t: t.set_column(0, "query_id", pa.nulls(len(t), pa.string())),
         "f.parquet: a row has no query_id, expected one in each"),
        (lambda t: t.set_column(0, "query_id", pa.array([0.5] * len(t))),
         "column 'query_id' is double, expected ids: integers or text"),
        (lambda t: t.set_column(2, "price", pa.array(["dear"] * len(t))),
         "of rows 0 to .*: column 'price' has 'dear' in row 0 .counted from 0., expected a n"),
        (lambda t: t.set_column(2, "price", pa.array([float("inf")] * len(t))), "has inf in row"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_ranked(run, table, change, message):
    write(change(table), "f.parquet")
    assert re.search(message, run("f.parquet", "-o", "o.csv", fails=True))
    assert not Path("o.csv").exists()


def test_arguments_that_are_rejected(run, table):
    names = [*table.column_names[:-1], "rank"]
    write(table.rename_columns(names), "f.parquet")
    for arguments, message in {
        ("-o", "o.onnx"): "scores are not written as .onnx, expected .parquet, .csv, .tsv or",
        ("-o", "o.csv", "--fold", 1): "is a table: leave out --fold, which is",
        ("-o", "o.csv", "--columns", "clik=c"): "--columns has 'clik', expected query_id=… and",
        ("-o", "o.csv", "--columns", "item_id=no"): "no column 'no'",
        ("-o", "o.csv", "--columns", "item_id=rank"): "ids are called score or rank, like columns",
    }.items():
        assert message in run("f.parquet", *arguments, fails=True)


def test_a_ranker_without_names_takes_as_many_columns():
    data = RankingDataset.from_arrays(np.eye(4), [0, 1, 0, 1], [1, 1, 2, 2])
    log = ClickLog([0, 1], [1, 0], [1.0, 1.0])
    ranker = CounterSampleRanker(random_state=0).fit_log(data, log)
    frame = pa.table({"qid": [5, 5], "label": [0, 1], "a": [1, 0], "b": [0, 1], "c": [0, 0],
                      "d": [0, 0]})  # fmt: skip
    assert ranker.rank_frame(frame)["score"].to_pylist() == ranker.predict(
        np.eye(4)[:2], qid=[5, 5]
    ).tolist()  # fmt: skip
    with pytest.raises(DataError, match="the table has 3 features, expected 4 as in training"):
        ranker.rank_frame(frame.drop_columns(["d"]))


def test_features_are_scaled_by_query(table, rng):
    ranker = fitted(table, "query-minmax")
    rows = table.take(rng.permutation(len(table)))
    assert in_full(ranker.rank_frame(rows)) == expected(ranker, rows)


# -- frames --------------------------------------------------------------------------------------

FRAMES = {
    "pyarrow": (lambda t: t, lambda f: f),
    "pandas": (lambda t: t.to_pandas().set_index(np.arange(len(t))[::-1]),
               lambda f: pa.Table.from_pandas(f, preserve_index=False)),
    "polars": (pl.from_arrow, lambda f: f.to_arrow()),
    "polars, lazy": (lambda t: pl.from_arrow(t).lazy(), lambda f: f.collect().to_arrow()),
    "duckdb": (duckdb.from_arrow, lambda f: pa.RecordBatchReader.from_stream(f).read_all()),
}  # fmt: skip


@pytest.mark.parametrize("library", FRAMES)
def test_frames_of_every_library(ranker, table, library, rng):
    rows = table.take(rng.permutation(len(table)))
    to, back = FRAMES[library]
    frame = to(rows)
    result = ranker.rank_frame(frame)
    assert type(result) is type(frame)
    if isinstance(frame, pd.DataFrame):
        assert result.index.tolist() == frame.index.tolist()
    result = back(result)
    assert in_full(result) == expected(ranker, rows)
    assert result["item_id"].to_pylist() == rows["item_id"].to_pylist()
    best = back(ranker.rank_frame(frame, top=3))
    assert best["rank"].to_pylist() == [1, 2, 3] * N_QUERIES


def test_frames_that_cannot_be_ranked(ranker, table):
    with pytest.raises(DataError, match="a list is not a data frame: expected one of pandas"):
        ranker.rank_frame([1])
    with pytest.raises(DataError, match="the data frame has no rows"):
        ranker.rank_frame(table.slice(0, 0))
    with pytest.raises(ParameterError, match="top is 0, expected a whole number of at least 1"):
        ranker.rank_frame(table, top=0)
    frame = table.to_pandas()
    frame["price"] = pd.Series([object()] * len(frame), dtype=object)
    with pytest.raises(DataError, match="'price' has values of mixed or unknown types"):
        ranker.rank_frame(frame)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")  # which it imports
@pytest.mark.slow
def test_spark_ranks_on_its_workers(ranker, table, rng, monkeypatch, cluster):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(cluster.sparkContext, "pythonExec", sys.executable)
    rows = table.take(rng.permutation(len(table)))
    frame = cluster.createDataFrame(rows)
    result = ranker.rank_frame(frame)
    assert type(result) is type(frame)
    assert in_full([row.asDict() for row in result.collect()]) == expected(ranker, rows)
    assert ranker.rank_frame(frame, top=2).count() == 2 * N_QUERIES
    with pytest.raises(ParameterError, match="rows of Spark have no order that could number them"):
        ranker.rank_frame(frame.drop("item_id"))


def test_ranks_are_those_of_whole_queries_whatever_the_batches(ranker, table, rng, tmp_path):
    ranker.save(tmp_path / "ranker.json")
    serving = load_scorer(tmp_path / "ranker.json")
    reading = TableColumns.find(serving, table.column_names, None, None)
    want = expected(ranker, table)
    for _ in range(20):
        cuts = np.sort(rng.integers(0, len(table) + 1, 12))
        bounds = [0, *cuts.tolist(), len(table)]
        batches = [batch for first, last in pairwise(bounds)
                   for batch in table.slice(first, last - first).to_batches()]  # fmt: skip
        assert in_full(pa.concat_tables(rank_batches(serving, reading, batches))) == want
