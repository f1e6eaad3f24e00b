"""Features of pairs, of items, of queries, of the log itself: joined, read, and judged by."""

import gzip
import html
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shops
from pyarrow import csv, parquet

from countersample import CounterSampleRanker, load_ranker
from countersample.data.encoder import EncodedColumn
from countersample.errors import DataError, ParameterError
from countersample.fitting import compare_from_impressions, fit_from_impressions
from countersample.logs import read_features, read_impressions
from countersample.options import FeatureOptions

GAMMA = ["--gamma", "1"]


def pairs_table(n_queries=4, n_items=6):
    """Return features of pairs; an item is of several queries."""
    query = np.repeat(np.arange(n_queries), n_items)
    item = np.tile(np.arange(n_items), n_queries)
    return pa.table(
        {
            "query_id": [f"q{q}" for q in query],
            "item_id": 10 + item,
            "match": np.sin(1 + query + 7.0 * item),
        }
    )


ITEMS = pa.table(
    {
        "item_id": np.arange(15, 9, -1),  # in another order
        "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "brand": ["a", "b", "a", "b", "a", None],
    }
)
QUERIES = pa.table({"query_id": ["q3", "q2", "q1", "q0"], "length": [3, 2, 1, 0]})


def by_hand(pairs, items, queries):
    """Join with pandas: every pair has a row of everything."""
    joined = pairs.to_pandas().merge(items.to_pandas(), on="item_id").merge(
        queries.to_pandas(), on="query_id"
    )  # fmt: skip
    return joined.set_index(["query_id", "item_id"])


def in_full(table):
    """Return the features of each pair, by its ids."""
    data = table.dataset
    queries = np.repeat(data.query_ids, data.query_sizes)
    frame = pd.DataFrame(data.features, columns=list(data.feature_names))
    return frame.set_index([queries, table.item_ids])


def test_features_of_items_and_queries_are_joined(rng):
    pairs = pairs_table()
    pairs = pairs.take(rng.permutation(len(pairs)))
    table = read_features(pairs, items=ITEMS, queries=QUERIES, categorical=["brand"])
    expected = by_hand(pairs, ITEMS, QUERIES)
    result = in_full(table)
    assert list(result.columns) == ["match", "price", "brand=a", "brand=b", "length"]
    assert len(result) == len(expected) == 24
    for pair, row in result.iterrows():
        expected_row = expected.loc[pair]
        brands = [float(expected_row["brand"] == brand) for brand in "ab"]
        assert row.tolist() == [np.float32(expected_row["match"]), expected_row["price"], *brands,
                                expected_row["length"]]  # fmt: skip


def test_pairs_without_features_of_their_item_are_left_out():
    table = read_features(pairs_table(), items=ITEMS.slice(1), exclude=["brand"])
    assert 15 not in table.item_ids
    assert len(table.item_ids) == 20
    (warning,) = table.warnings
    assert warning.startswith("4 of 24 pairs of query and item have no row in the features")
    with pytest.raises(DataError, match="no pair of query and item has all features: check that"):
        read_features(pairs_table(), queries=pa.table({"query_id": ["x"], "a": [1]}))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"items": pa.concat_tables([ITEMS, ITEMS])}, "features of items have item_id 10 twice"),
        ({"items": ITEMS.rename_columns(["item_id", "match", "brand"])},
         "the features of items and the features of pairs both have a column 'match'"),
        ({"items": ITEMS.set_column(0, "item_id", pa.array(list("abcdef")))},
         "item_id is integers in the query-item pairs and text in the features of items, expect"),
        ({"items": ITEMS.drop_columns(["item_id"])}, "no column 'item_id'"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_joined(tables, message):
    with pytest.raises(DataError, match=message):
        read_features(pairs_table(), categorical=["brand"], **tables)


def test_encoded_ids_are_what_their_values_are():
    """Categories of pandas and dictionaries of Arrow may have integers, or text."""
    pairs = pairs_table()
    for name, kind in (("item_id", "i"), ("query_id", "U")):
        place = pairs.column_names.index(name)
        pairs = pairs.set_column(place, name, pairs[name].dictionary_encode())
        for frame in (pairs, pairs.to_pandas()):
            table = read_features(frame)
            ids = table.item_ids if name == "item_id" else table.dataset.query_ids
            assert ids.dtype.kind == kind


def test_features_of_items_alone_do_not_tell_the_pairs(tmp_path):
    with pytest.raises(ParameterError, match="define the items of a query: give log="):
        read_features(items=ITEMS)
    (tmp_path / "letor.txt").write_text("0 qid:1 1:5 2:6\n1 qid:1 1:8 2:9\n")
    with pytest.raises(ParameterError, match="numbers its items by query, and other features are"):
        read_features(tmp_path / "letor.txt", items=ITEMS)
    with pytest.raises(ParameterError, match="has numbers without names, expected a table"):
        read_features(tmp_path / "letor.txt", categorical=["1"])


def log_table(rng, n=400):
    item = rng.integers(10, 16, n)
    return pa.table(
        {
            "query_id": [f"q{q}" for q in rng.integers(0, 4, n)],
            "item_id": item,
            "position": rng.integers(1, 4, n),
            "click": (rng.random(n) < 0.3).astype(np.int64),
            "price": item + rng.integers(0, 5, n) / 4,  # sums are exact
            "stock": pa.array([None if value < 0.2 else value < 0.6 for value in rng.random(n)]),
        }
    )


def test_features_of_the_log_are_means_over_impressions(engine, rng, tmp_path):
    table = log_table(rng)
    parquet.write_table(table, tmp_path / "log.parquet")
    csv.write_csv(table, tmp_path / "log.csv")
    frame = table.to_pandas().astype({"stock": "float"})
    expected = frame.groupby(["query_id", "item_id"])[["price", "stock"]].mean()
    sources = [tmp_path / "log.parquet"] if engine == "spark" else [
        table, tmp_path / "log.parquet", tmp_path / "log.csv",
    ]  # fmt: skip
    for source in sources:
        log = read_impressions(source, features=["price", "stock"], engine=engine)
        assert log.columns == ("query_id", "item_id", "position", "click")
        assert log.counts().n_impressions == len(table)
        result = read_features(log=log, items=ITEMS.select(["item_id", "brand"]),
                              categorical=["brand"])  # fmt: skip
        full = in_full(result)
        assert len(full) == len(expected)
        for pair, row in full.iterrows():
            assert row[["price", "stock"]].tolist() == pytest.approx(expected.loc[pair].tolist())
        assert result.dataset.feature_names[-2:] == ("brand=a", "brand=b")
        warnings = " ".join(result.warnings)
        assert re.search(r"The log's own 'price' differs .* in 100% of the pairs", warnings)
        log.close()


def test_rows_that_stand_for_several_impressions():
    columns = {"query_id": [1, 1], "item_id": [1, 1], "position": [1, 2], "click": [0, 1]}
    table = pa.table({**columns, "impressions": [3, 1], "price": [1.0, 5.0]})
    log = read_impressions(table, features=["price"])
    assert read_features(log=log).dataset.features.tolist() == [[2]]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["prce"], "no column 'prce' for a feature of the log: the columns are query_id"),
        (["when"], "the feature 'when' of the log is .*, expected numbers: give it in a table"),
        (["text"], "the feature 'text' of the log has no number in it"),
        (["item_id"], "'item_id' is an id of the log, expected a feature"),
    ],
)
def test_features_of_the_log_that_are_none(rng, features, message):
    table = log_table(rng, 20)
    table = table.append_column("when", pa.array([pd.Timestamp("2026-01-01")] * 20))
    table = table.append_column("text", pa.array(["red"] * 20))
    with pytest.raises(DataError, match=message):
        read_features(log=read_impressions(table, features=features))


def test_features_of_the_log_beside_a_table(rng):
    log = read_impressions(log_table(rng), features=["price"])
    with pytest.raises(DataError, match="the log and the features of pairs both have a column 'p"):
        read_features(pairs_table().append_column("price", pa.array([0.0] * 24)), log=log)
    result = in_full(read_features(pairs_table(), log=log))
    own = in_full(read_features(log=log))
    assert result.loc[own.index, "price"].tolist() == own["price"].tolist()


def test_somebody_elses_log_has_no_features_of_its_own(tmp_path):
    (tmp_path / "log.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ParameterError, match="the reader expedia has none"):
        read_impressions(tmp_path / "log.csv", reader="expedia", features=["a"])


def test_categories_of_text_files_stay_as_they_are_written(tmp_path):
    text = "query_id,item_id,zip,size\n1,7,007,1\n1,8,12,2\n"
    (tmp_path / "features.csv.gz").write_bytes(gzip.compress(text.encode()))
    table = read_features(tmp_path / "features.csv.gz", categorical=["zip"])
    assert table.dataset.feature_names == ("zip=007", "zip=12", "size")


# -- rankers that read tables --------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop():
    """A log, and features with a category that matters, text, numbers that are names, and dates."""
    log, features = shops.make(3, queries=60, sessions=2500)
    rng = np.random.default_rng(0)
    n = len(features)
    stars = (features["reviews"].to_numpy() * 3).astype(int)
    features = features.drop_columns(["reviews"])
    for name, values in {
        "stars": np.array(["few", "some, or so", "many"])[stars],
        "title": [f"item {row}" for row in range(n)],
        "year": 2015 + rng.integers(0, 4, n),
        "since": np.datetime64("2026-01-01") + rng.integers(0, 300, n),
    }.items():
        features = features.append_column(name, pa.array(values))
    return log, features


@pytest.mark.slow
def test_fit_takes_the_table_and_says_what_it_leaves_out(shop, run, tmp_path):
    for name, table in zip(("log", "features"), shop, strict=True):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    printed = run("fit", "log.parquet", "--features", "features.parquet", "-o", "ranker.json",
                  "--categorical", "year", *GAMMA, "--json")  # fmt: skip
    left_out = "Left out of the features: 'title' (text of 600 values)"
    assert json.loads(printed)["warnings"][0].startswith(left_out)
    assert left_out in html.unescape((tmp_path / "ranker.html").read_text())
    ranker = load_ranker(tmp_path / "ranker.json")
    assert any(left_out in warning for warning in ranker.provenance_["warnings"])
    assert ranker.preprocessing_.encoder.columns[-1] == EncodedColumn(
        "since", "date", reference="2026-10-27"
    )
    weights = dict(zip(ranker.feature_names_in_, ranker.coef_, strict=True))
    assert weights["stars=many"] > weights["stars=few"]


@pytest.mark.slow
def test_rankers_that_read_the_same_table_in_different_ways(shop):
    log, features = read_impressions(shop[0]), shop[1]
    ways = {
        "a": {"categorical": ["year"]},
        "b": {"age_at": "2026-01-01", "exclude": ["stars"]},
        "c": {"include": ["price", "year"]},
    }
    known = 1 / np.arange(1.0, 11)
    rankers, scores = {}, {}
    for name, options in ways.items():
        table = read_features(features, **options)
        rankers[name] = fit_from_impressions(log, table, propensities=known, seed=0).ranker
        scores[name] = rankers[name].predict(table.dataset)
    table = read_features(features, rankers=list(rankers.values()))
    assert not table.warnings
    by_rankers, by_scores = (
        compare_from_impressions(log, table, each, propensities=known).comparison.estimates
        for each in (rankers, scores)
    )
    for name in ways:
        assert by_rankers[name].value == by_scores[name].value
    with pytest.raises(DataError, match="not read in the way that the ranker reads its columns"):
        read_features(features).dataset_for(rankers["a"])


@pytest.mark.slow
def test_features_of_items_and_of_the_log_on_the_command_line(shop, run, tmp_path):
    log, features = shop
    items = features.select(["item_id", "stars", "since"])
    parquet.write_table(items, tmp_path / "items.parquet")
    price = dict(zip(features["item_id"].to_pylist(), features["price"].to_pylist(), strict=True))
    prices = pa.array([price[item] for item in log["item_id"].to_pylist()])
    parquet.write_table(log.append_column("price", prices), tmp_path / "log.parquet")
    tables = ("--item-features", "items.parquet", "--log-features", "price")
    run("fit", "log.parquet", *tables, "-o", "own.json", *GAMMA)
    ranker = load_ranker(tmp_path / "own.json")
    assert list(ranker.feature_names_in_) == [
        "price", "stars=few", "stars=many", "stars=some, or so", "since",
    ]  # fmt: skip
    assert ranker.provenance_["data"] == "items.parquet"
    assert "own.json" in run("compare", "own.json", "--log", "log.parquet", *tables, *GAMMA)
    error = run("fit", "log.parquet", "-o", "x.json", fails=True)
    assert "no features are given: expected a table of them (--features), or features of" in error


@pytest.mark.parametrize("command", [("fit", "x", "--features", "y"), ("train", "x", "y")])
@pytest.mark.parametrize("name", ["model.onnx", "model.PARQUET"])
def test_a_ranker_is_not_written_under_the_name_of_something_else(run, command, name):
    error = run(*command, "-o", name, fails=True)
    assert f"{name}: a ranker is written as JSON, expected a name such as model.json; from" in error


def test_columns_that_a_ranker_knows_are_read_as_it_reads_them():
    """Categories keep their values on a day that has few of them, and dates their reference."""
    first = pa.table({
        "query_id": ["a"] * 40, "item_id": range(40), "brand": [f"b{k % 4}" for k in range(40)],
        "since": ["2026-03-30"] * 40,
    })  # fmt: skip
    table = read_features(first)
    ranker = CounterSampleRanker(random_state=0)
    ranker.preprocessing_ = replace(ranker.preprocessing_, encoder=table.encoder)
    small = first.slice(0, 3).append_column("price", pa.array([1.0, 2.0, 3.0]))
    small = small.set_column(3, "since", pa.array(["2026-04-30"] * 3))
    result = read_features(small, warm_start=ranker)
    assert result.encoder.columns[:2] == table.encoder.columns
    assert result.dataset.feature_names == (*table.dataset.feature_names, "price")
    alone = read_features(small)
    assert "brand=b0" not in alone.dataset.feature_names


@pytest.mark.parametrize(
    "names", [("query_id", "item_id"), ("phrase", "item_id"), ("phrase", "sku")]
)
def test_ids_have_the_names_of_the_log_or_the_canonical_ones(names):
    table = pa.table({names[0]: ["a", "a"], names[1]: [7, 9], "price": [1.0, 2.0]})
    options = FeatureOptions().named_as({"query_id": "phrase", "item_id": "sku", "position": "k"})
    features = read_features(table, options)
    assert features.item_ids.tolist() == [7, 9]
    assert features.dataset.feature_names == ("price",)
