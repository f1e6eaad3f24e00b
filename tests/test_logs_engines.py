"""One suite over every engine of `ENGINES`: the same log gives the same counts, exactly.

Spark runs on a real local cluster, two worker processes beside the driver.
"""

import json
import lzma
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, dataset, feather, parquet
from small_spark import CLUSTER
from twins_impressions import as_dict, count, in_full, random_log, rows_of, sessions_of

from countersample._environment import MissingExtraError
from countersample.data.sources import COMPRESSED_SUFFIXES, open_for_writing
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.logs import read_impressions
from countersample.logs.files import FORMATS


def write(table, path, suffix=""):
    """Write a table as the format that the path ends in, and compress it."""
    sink = pa.BufferOutputStream()
    if path.suffix in {".parquet", ".pq"}:
        parquet.write_table(table, sink)
    elif path.suffix == ".feather":
        feather.write_feather(table, sink, compression="uncompressed")
    elif path.suffix in {".jsonl", ".ndjson", ".json"}:
        sink.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
    else:
        delimiter = {".csv": ",", ".tsv": "\t"}[path.suffix]
        csv.write_csv(table, sink, csv.WriteOptions(delimiter=delimiter))
    packed = path.with_name(path.name + suffix)
    with open_for_writing(packed, like=packed.name) as file:
        file.write(sink.getvalue().to_pybytes())
    return packed


@pytest.mark.parametrize(
    ("text", "aggregated"), [(False, True), (True, False)], ids=["integers", "text"]
)
def test_counts_are_those_of_the_twin(engine, tmp_path, rng, text, aggregated):
    table = random_log(rng, text=text, aggregated=aggregated)
    path = write(table, tmp_path / "log.parquet")
    counts = read_impressions(path, engine=engine).counts()
    expected = count(rows_of(table))
    assert as_dict(counts) == expected
    assert list(as_dict(counts)) == list(expected)  # in the same order
    assert counts.query_ids.dtype.kind == ("U" if text else "i")
    assert (counts.query.dtype, counts.item.dtype, counts.position.dtype) == (np.int32,) * 3
    assert (counts.impressions.dtype, counts.clicks.dtype) == (np.int64,) * 2


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_files_of_every_format(engine, tmp_path, rng, form):
    table = random_log(rng, 300)
    path = write(table, tmp_path / f"log{form.endings[0]}")
    with read_impressions(path, engine=engine) as log:
        assert as_dict(log.counts()) == count(rows_of(table))


@pytest.mark.parametrize(
    ("ending", "suffix"),
    [(ending, "") for form in FORMATS for ending in form.endings[1:]]
    + [(".csv", suffix) for suffix in COMPRESSED_SUFFIXES]
    + [(".parquet", ".gz")],
)
def test_files_of_every_ending_and_compression(tmp_path, rng, ending, suffix):
    table = random_log(rng, 30)
    log = read_impressions(write(table, tmp_path / f"log{ending}", suffix))
    assert as_dict(log.counts()) == count(rows_of(table))


def test_partitions_globs_and_folders(engine, tmp_path, rng):
    table = random_log(rng)
    dataset.write_dataset(
        table, tmp_path / "log", format="parquet", partitioning=["policy"],
        partitioning_flavor="hive",
    )  # fmt: skip
    (tmp_path / "log" / "_temporary.parquet").touch()  # not of the log, as its name says
    log = read_impressions(tmp_path / "log", engine=engine)
    assert "policy" in log.columns
    assert as_dict(log.counts()) == count(rows_of(table))
    shuffled = table.filter(pa.compute.equal(table["policy"], "random"))
    assert as_dict(log.of_policy("random").counts()) == count(rows_of(shuffled))
    one = read_impressions(f"{tmp_path}/log/policy=random/*.parquet", engine=engine)
    assert as_dict(one.counts()) == count(rows_of(shuffled))


def test_check_counts_what_is_wrong(engine):
    table = pa.table(
        {
            "session": [1, 1, 1, 2, 2, 3, 3, None, 3],
            "query_id": ["a", "a", None, "a", "b", "b", "b", "b", "b"],
            "item_id": [1, 1, 1, None, 2, 2, 2, 2, 3],
            "position": [1.0, 1.0, 1.0, 2.0, 0.0, 1.5, float("nan"), None, 4.0],
            "click": [1, 1, 0, 0, 0, 1, 0, 0, 2],
        }
    )
    log = read_impressions(table, engine=engine)
    figures = log.check()
    problems = figures.problems
    assert (problems.n_rows, problems.n_invalid) == (9, 7)
    assert (problems.no_query_id, problems.no_item_id) == (1, 1)
    assert (problems.bad_position, problems.bad_click) == (4, 1)
    assert problems.example_position == 0
    assert (figures.n_sessions, figures.n_without_session) == (3, 1)
    assert figures.suspicious.duplicates == 1
    assert as_dict(figures.counts) == {("a", 1, 1): (2, 2)}
    with pytest.raises(DataError, match=r"7 of 9 rows are impossible: 1 with no query_id, .*"
                       r"such as 0.*, 1 with a click that is not 0 or 1"):  # fmt: skip
        log.counts()


def test_clicks_without_impressions_are_counted():
    table = pa.table({
        "query_id": [1] * 6, "item_id": [1, 2, 3, 4, 5, 6], "position": [1] * 6,
        "click": [3.0, 1.0, 0.5, -1.0, None, 3.0], "impressions": [3.0, 0.0, 2.0, 2.0, 2.0, 2.0],
    })  # fmt: skip
    figures = read_impressions(table).check()
    assert figures.problems.bad_click == figures.problems.n_invalid == 5
    assert as_dict(figures.counts) == {(1, 1, 1): (3, 3)}
    assert "more clicks than impressions" in figures.warnings[0]


def test_logged_propensities_pass_over_impossible_rows():
    table = pa.table(
        {"query_id": [1, 1, None], "item_id": [1, 1, 1], "position": [1, 1, 1], "click": [1, 2, 1],
         "propensity": [0.5, 0.1, 0.1]}
    )  # fmt: skip
    log = read_impressions(table)
    assert log.logged_propensities(log.check().counts).value.tolist() == [0.5]


def test_sessions_and_duplicates_and_policies(engine, rng):
    table = random_log(rng, 1000)
    keys = list(zip(*(table[n].to_pylist() for n in ("session", "query_id", "item_id", "position")),
                    strict=True))  # fmt: skip
    figures = read_impressions(table, engine=engine).check()
    assert figures.n_sessions == figures.counts.n_sessions == len({key[0] for key in keys})
    served = table["policy"].to_pylist()
    assert figures.suspicious.duplicates == len(keys) - len(set(zip(keys, served, strict=True)))
    assert figures.policies == {name: served.count(name) for name in ("production", "random")}
    pairs = {}
    for _, query, item, position in keys:
        pairs.setdefault((query, item), set()).add(position)
    assert figures.n_pairs == len(pairs)
    assert figures.n_moved == sum(len(positions) > 1 for positions in pairs.values())


def test_logged_propensities_keep_the_weight_of_each_row(engine, rng):
    table = random_log(rng, 500, aggregated=True)
    propensity = rng.uniform(0.1, 1, len(table))
    table = table.append_column("propensity", [propensity])
    log = read_impressions(table, engine=engine)
    counts = log.counts()
    expected = {}
    for (query, item, position, click, _), p in zip(rows_of(table), propensity, strict=True):
        key = query, item, position
        expected[key] = expected.get(key, 0.0) + click / p
    weights = counts.clicks / log.logged_propensities(counts).value
    for key, weight in zip(as_dict(counts), weights, strict=True):
        if expected[key]:
            assert weight == pytest.approx(expected[key], rel=1e-9)
        else:
            assert np.isnan(weight)


def by_page(counts):
    """The impressions of each query, position and context, whatever the item."""
    totals = Counter()
    for (query, _, position, context), (shown, _, _) in in_full(counts).items():
        totals[query, position, context] += shown
    return totals


def test_items_that_were_never_clicked_are_merged_where_there_are_too_many(engine, rng):
    table = random_log(rng, 1500, text=True)
    table = table.append_column("context", [rng.choice(["phone", "desktop"], 1500)])
    click = np.where(table["item_id"].combine_chunks().dictionary_encode().indices.to_numpy() % 3,
                     table["click"].to_numpy(), 0)  # fmt: skip
    table = table.set_column(table.column_names.index("click"), "click", [click])
    log = read_impressions(table, engine=engine)
    every, check = log.counts(), log.check(max_groups=0)
    merged = check.counts
    assert (every.rest, len(every)) == (None, len(log.counts(max_groups=len(every))))
    clicked = {key[:2] for key, (_, clicks, _) in in_full(every).items() if clicks}
    merged_rows = {key: row for key, row in in_full(merged).items() if key[:2] in clicked}
    assert merged_rows == {key: row for key, row in in_full(every).items() if key[:2] in clicked}
    rest = merged.item_ids[merged.rest]
    assert {key[1] for key in in_full(merged)} == {rest, *(item for _, item in clicked)}
    assert not merged.clicks[merged.item == merged.rest].any()
    assert by_page(merged) == by_page(every)
    assert sessions_of(merged) == sessions_of(every)
    whole = log.check()
    for name in ("n_items", "n_pairs", "n_moved", "n_repeated", "problems"):
        assert getattr(check, name) == getattr(whole, name), name
    assert (whole.n_items, whole.n_pairs) == (len(every.item_ids), len(every.pair_starts) - 1)


@pytest.mark.slow
def test_the_real_log(shared):
    path = shared / "sogou_clicks" / "impressions.tsv.xz"
    counts = read_impressions(path).counts()
    with lzma.open(path) as file:  # by Arrow alone
        rows = csv.read_csv(file, parse_options=csv.ParseOptions(delimiter="\t"))
    assert (counts.n_impressions, counts.n_clicks) == (88_090, 9_495)
    assert as_dict(counts) == count(rows_of(rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl", "log.csv.gz"])
def test_a_damaged_file_is_a_sentence(engine, tmp_path, rng, name):
    path = tmp_path / name
    path.write_bytes(b"\x1f\x8b" + rng.bytes(500))
    with pytest.raises(CounterSampleError) as caught:
        read_impressions(path, engine=engine).counts()
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_ids_have_one_type_whether_or_not_their_items_were_clicked(engine, tmp_path):
    for last, kind in (("x", "U"), ("9", "i")):
        rows = [f"{q},{item},{k},{int(k == 1)}" for q in (1, 2)
                for k, item in enumerate(("7", "8", last), 1)]  # fmt: skip
        path = tmp_path / f"{last}.csv"
        path.write_text("query_id,item_id,position,click\n" + "\n".join(rows) + "\n")
        log = read_impressions(path, engine=engine)
        every, merged = log.counts(), log.counts(max_groups=0)
        assert (every.item_ids.dtype.kind, merged.item_ids.dtype.kind) == (kind, kind)
        assert (merged.query_ids.tolist(), len(merged.item_ids)) == ([1, 2], 2)
        assert every.item_ids[0] in merged.item_ids


# -- Spark alone


def test_a_running_session_is_used_and_left_alone(cluster, rng):
    table = random_log(rng, 50)
    with read_impressions(table, engine="spark", master=CLUSTER) as log:
        log.counts()
    assert cluster.range(3).count() == 3
    with pytest.raises(ParameterError, match=r"runs already, not on local\[1\]"):
        read_impressions(table, engine="spark", master="local[1]")


def test_without_pyspark(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r'pip install "countersample\[spark\]"'):
        read_impressions(random_log(np.random.default_rng(0), 5), engine="spark")
