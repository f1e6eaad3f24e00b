"""One suite over every engine of `ENGINES`: the same log gives the same counts, exactly.

Spark runs on a real local cluster, two worker processes beside the driver.
"""

import json
import lzma
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, dataset, feather, parquet
from small_spark import CLUSTER
from twins_impressions import as_dict, count, in_full, random_log, rows_of, sessions_of

from countersample.clicks.impressions import files, read_impressions
from countersample.clicks.impressions.formats import FORMATS, Format
from countersample.data.sources import COMPRESSED_SUFFIXES, open_for_writing
from countersample.errors import CounterSampleError, DataError, ParameterError


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


@pytest.mark.parametrize("text", [False, True], ids=["integers", "text"])
@pytest.mark.parametrize("aggregated", [False, True], ids=["rows", "aggregated"])
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


@pytest.mark.parametrize(
    ("ending", "suffix"),
    [(ending, "") for known in FORMATS for ending in known.endings]
    + [(".csv", suffix) for suffix in COMPRESSED_SUFFIXES]
    + [(".parquet", ".gz")],
)
def test_files_of_every_format_and_compression(engine, tmp_path, rng, ending, suffix):
    table = random_log(rng, 300)
    path = write(table, tmp_path / f"log{ending}", suffix)
    with read_impressions(path, engine=engine) as log:
        assert as_dict(log.counts()) == count(rows_of(table))


class Feather(Format):
    """A format of somebody's own: it only knows how to come into memory."""

    def read(self, files, *, as_text=None):  # noqa: ARG002 (as in Format)
        return pa.concat_tables([feather.read_table(path) for path in files.paths])


def test_a_new_format_is_read_by_every_engine(engine, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(files, "FORMATS", (*FORMATS, Feather("feather", (".arrow",))))
    table = random_log(rng, 100)
    feather.write_feather(table, tmp_path / "log.arrow", compression="uncompressed")
    log = read_impressions(tmp_path / "log.arrow", engine=engine)
    assert as_dict(log.counts()) == count(rows_of(table))


def test_text_ids_of_a_csv_keep_their_zeros(engine, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("query_id,item_id,position,click\n007,1,1,true\n7,2,1.0,False\n7,2,2,0\n")
    counts = read_impressions(path, engine=engine).counts()
    assert as_dict(counts) == {("007", 1, 1): (1, 1), ("7", 2, 1): (1, 0), ("7", 2, 2): (1, 0)}


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


def test_other_names_are_mapped(engine, tmp_path, rng):
    table = random_log(rng, 100)
    own = table.rename_columns({"query_id": "q", "click": "was clicked"})
    path = write(own, tmp_path / "log.parquet")
    log = read_impressions(path, columns={"query_id": "q", "click": "was clicked"}, engine=engine)
    assert as_dict(log.counts()) == count(rows_of(table))


def test_a_boolean_or_float_click_is_a_click(engine, rng):
    table = random_log(rng, 200)
    for kind in (pa.bool_(), pa.float64(), pa.int8()):
        cast = table.set_column(
            table.column_names.index("click"), "click", table["click"].cast(kind)
        )
        assert as_dict(read_impressions(cast, engine=engine).counts()) == count(rows_of(table))


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
    assert problems.position_found == 0
    assert (figures.n_sessions, figures.n_without_session) == (3, 1)
    assert figures.suspicious.duplicates == 1
    assert as_dict(figures.counts) == {("a", 1, 1): (2, 2)}
    with pytest.raises(DataError, match=r"7 of 9 rows are impossible: 1 with no query_id, .*"
                       r"such as 0.*, 1 with a click that is not 0 or 1"):  # fmt: skip
        log.counts()


def test_clicks_without_impressions_are_counted(engine):
    table = pa.table(
        {
            "query_id": [1, 1, 1, 1, 1, 1],
            "item_id": [1, 2, 3, 4, 5, 6],
            "position": [1, 1, 1, 1, 1, 1],
            "click": [3.0, 1.0, 0.5, -1.0, None, 3.0],
            "impressions": [3.0, 0.0, 2.0, 2.0, 2.0, 2.0],
        }
    )
    figures = read_impressions(table, engine=engine).check()
    assert figures.problems.bad_click == figures.problems.n_invalid == 5
    assert as_dict(figures.counts) == {(1, 1, 1): (3, 3)}
    assert "more clicks than impressions" in figures.warnings[0]


def test_sessions_and_duplicates_and_policies(engine, rng):
    table = random_log(rng, 1000)
    keys = list(zip(*(table[n].to_pylist() for n in ("session", "query_id", "item_id", "position")),
                    strict=True))  # fmt: skip
    figures = read_impressions(table, engine=engine).check()
    assert figures.n_sessions == figures.counts.n_sessions == len({key[0] for key in keys})
    assert figures.suspicious.duplicates == len(keys) - len(set(keys))
    served = table["policy"].to_pylist()
    assert figures.policies == {name: served.count(name) for name in ("production", "random")}
    pairs = {}
    for _, query, item, position in keys:
        pairs.setdefault((query, item), set()).add(position)
    assert figures.n_pairs == len(pairs)
    assert figures.n_moved == sum(len(positions) > 1 for positions in pairs.values())


def test_a_timestamp_tells_rows_apart(engine):
    table = pa.table(
        {
            "session": [1, 1, 1],
            "query_id": [1, 1, 1],
            "item_id": [1, 1, 1],
            "position": [1, 1, 1],
            "click": [0, 0, 0],
            "timestamp": ["10:00", "10:01", "10:01"],
        }
    )
    assert read_impressions(table, engine=engine).check().suspicious.duplicates == 1
    without = table.drop_columns(["timestamp"])
    assert read_impressions(without, engine=engine).check().suspicious.duplicates == 2


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


def test_logged_propensities_pass_over_impossible_rows(engine):
    table = pa.table(
        {"query_id": [1, 1, None], "item_id": [1, 1, 1], "position": [1, 1, 1], "click": [1, 2, 1],
         "propensity": [0.5, 0.1, 0.1]}
    )  # fmt: skip
    log = read_impressions(table, engine=engine)
    assert log.logged_propensities(log.check().counts).value.tolist() == [0.5]


def test_logged_propensities_of_zero_are_refused(engine):
    table = pa.table(
        {"query_id": [1, 1], "item_id": [1, 2], "position": [1, 2], "click": [1, 1],
         "propensity": [1.0, 0.0]}
    )  # fmt: skip
    log = read_impressions(table, engine=engine)
    with pytest.raises(DataError, match="the propensity is missing, 0 or beyond 1 in 1 of"):
        log.logged_propensities(log.counts())


def by_page(counts):
    """The impressions of each query, position and context, whatever the item."""
    found = Counter()
    for (query, _, position, context), (shown, _, _) in in_full(counts).items():
        found[query, position, context] += shown
    return found


@pytest.mark.parametrize("text", [False, True], ids=["integers", "text"])
def test_items_that_were_never_clicked_are_merged_where_there_are_too_many(engine, rng, text):
    table = random_log(rng, 1500, text=text)
    table = table.append_column("context", [rng.choice(["phone", "desktop"], 1500)])
    click = np.where(table["item_id"].combine_chunks().dictionary_encode().indices.to_numpy() % 3,
                     table["click"].to_numpy(), 0)  # fmt: skip
    table = table.set_column(table.column_names.index("click"), "click", [click])
    log = read_impressions(table, engine=engine)
    every, check = log.counts(), log.check(most_groups=0)
    merged = check.counts
    assert (every.rest, len(every)) == (None, len(log.counts(most_groups=len(every))))
    clicked = {key[:2] for key, (_, clicks, _) in in_full(every).items() if clicks}
    kept = {key: row for key, row in in_full(merged).items() if key[:2] in clicked}
    assert kept == {key: row for key, row in in_full(every).items() if key[:2] in clicked}
    rest = merged.item_ids[merged.rest]
    assert {key[1] for key in in_full(merged)} == {rest, *(item for _, item in clicked)}
    assert not merged.clicks[merged.item == merged.rest].any()
    assert by_page(merged) == by_page(every)
    assert sessions_of(merged) == sessions_of(every)
    whole = log.check()
    for name in ("n_items", "n_pairs", "n_moved", "n_repeated", "problems"):
        assert getattr(check, name) == getattr(whole, name), name
    assert (whole.n_items, whole.n_pairs) == (len(every.item_ids), len(every.pair_starts) - 1)


def test_a_log_without_a_click_is_one_item_a_query_where_there_are_too_many(engine, rng):
    table = random_log(rng, 200)
    table = table.set_column(table.column_names.index("click"), "click", [np.zeros(200, int)])
    counts = read_impressions(table, engine=engine).counts(most_groups=0)
    assert (len(counts.item_ids), counts.rest, counts.n_impressions) == (1, 0, 200)


def test_the_real_log(engine, shared):
    path = shared / "sogou_clicks" / "impressions.tsv.xz"
    with read_impressions(path, engine=engine) as log:
        counts = log.counts()
    with lzma.open(path) as file:  # by Arrow alone
        rows = csv.read_csv(file, parse_options=csv.ParseOptions(delimiter="\t"))
    assert (counts.n_impressions, counts.n_clicks) == (88_090, 9_495)
    assert as_dict(counts) == count(rows_of(rows))


def test_a_value_that_is_no_number_is_a_sentence(engine, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("query_id,item_id,position,click\n1,1,first,0\n")
    with pytest.raises(DataError, match="1 of 1 rows are impossible: 1 with a position that is"):
        read_impressions(path, engine=engine).counts()


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl", "log.csv.gz"])
def test_a_damaged_file_is_a_sentence(engine, tmp_path, rng, name):
    path = tmp_path / name
    path.write_bytes(b"\x1f\x8b" + rng.bytes(500))
    with pytest.raises(CounterSampleError) as caught:
        read_impressions(path, engine=engine).counts()
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mixed_ids_in_two_files_are_refused(engine, tmp_path, rng):
    write(random_log(rng, 10), tmp_path / "a.parquet")
    write(random_log(rng, 10, text=True), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"query_id is integers in .*a.parquet and text in .*b.par"):
        read_impressions(tmp_path, engine=engine)


def test_numbers_that_name_policies_are_written_alike(engine):
    rows = {"query_id": [1] * 5, "item_id": [1] * 5, "position": [1] * 5, "click": [0] * 5}
    table = pa.table({**rows, "policy": [1.0, 10.0, 0.5, None, float("nan")]})
    log = read_impressions(table, engine=engine)
    assert log.check().policies == {"(none)": 2, "0.5": 1, "1": 1, "10": 1}
    assert log.of_policy("10").counts().n_impressions == 1


def test_ids_have_one_type_whether_or_not_their_items_were_clicked(engine, tmp_path):
    for last, kind in (("x", "U"), ("9", "i")):
        rows = [f"{q},{item},{k},{int(k == 1)}" for q in (1, 2)
                for k, item in enumerate(("7", "8", last), 1)]  # fmt: skip
        path = tmp_path / f"{last}.csv"
        path.write_text("query_id,item_id,position,click\n" + "\n".join(rows) + "\n")
        log = read_impressions(path, engine=engine)
        every, merged = log.counts(), log.counts(most_groups=0)
        assert (every.item_ids.dtype.kind, merged.item_ids.dtype.kind) == (kind, kind)
        assert (merged.query_ids.tolist(), len(merged.item_ids)) == ([1, 2], 2)
        assert every.item_ids[0] in merged.item_ids


# -- Spark alone


def executors(session):
    """The process ids of the workers' executors."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
            found[int(entry.name)] = (parent, command)
    own = {session.sparkContext._gateway.proc.pid}
    while more := {pid for pid, (parent, _) in found.items() if parent in own} - own:
        own |= more
    return {pid for pid in own if "CoarseGrainedExecutorBackend" in found.get(pid, (0, ""))[1]}


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_killed_worker_does_not_change_the_counts(cluster):
    n_rows, slow = 2000, "0 * aggregate(sequence(0, 4999), 0L, (sum, x) -> sum + x)"
    rows = cluster.range(0, n_rows, 1, 40).selectExpr(
        "id % 50 as query_id", "id % 7 as item_id", f"1 + id % 5 + {slow} as position",
        "int(id % 3 = 0 and id % 7 < 5) as click", "id div 5 as session",
    )  # fmt: skip
    log = read_impressions(rows)
    assert log.engine == "spark"
    result = []
    counting = threading.Thread(target=lambda: result.append(log.counts(most_groups=0)))
    before = executors(cluster)
    assert len(before) == 2
    tracker = cluster.sparkContext.statusTracker()
    counting.start()

    def done():
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    while done() < 4:
        assert counting.is_alive(), "the job ended before a worker could be killed"
        time.sleep(0.02)
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    counting.join(timeout=300)
    assert not counting.is_alive()
    ids = np.arange(n_rows)
    never = np.iinfo(np.int64).min
    item = np.where(ids % 7 < 5, ids % 7, never)  # two of them are never clicked
    clicked = (ids % 3 == 0) & (ids % 7 < 5)
    expected = count(zip(*(c.tolist() for c in (ids % 50, item, 1 + ids % 5, clicked)),
                         strict=True))  # fmt: skip
    assert as_dict(result[0]) == expected
    visits = {(row % 50, row // 5) for row in ids.tolist()}
    assert sessions_of(result[0]) == Counter(query for query, _ in visits)
    assert victim not in executors(cluster)


def test_a_running_session_is_used_and_left_alone(cluster, rng):
    table = random_log(rng, 50)
    with read_impressions(table, engine="spark", master=CLUSTER) as log:
        log.counts()
    assert cluster.range(3).count() == 3
    with pytest.raises(ParameterError, match=r"runs already, not on local\[1\]"):
        read_impressions(table, engine="spark", master="local[1]")
