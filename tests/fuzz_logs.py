"""Fuzz the readers of raw logs against Python's own csv and json, for a bounded time.

    python tests/fuzz_logs.py SECONDS [SEED]

Texts are made of awkward pieces and then damaged. CSV, TSV and JSON lines are read as they are
opened for the engines, hundreds per second; whole logs, Parquet and exports of User Behavior
Insights are counted by DuckDB, a few per second. Any disagreement, and any error that
is not a sentence, ends it with the input shown.
"""

import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import compared_logs
import duckdb
import pyarrow as pa
import twins_logs
import twins_ubi
from pyarrow import parquet

from countersample.errors import DataError
from countersample.logs import engines, read_impressions
from countersample.logs.engines import DuckDB
from countersample.logs.files import check_json_types, explained, find_files
from countersample.options import LogOptions

engines.available_cores = lambda: 1
pa.set_cpu_count(1)
pa.set_io_thread_count(1)

ENGINES = ("duckdb",)
IDS = ["a", "b", "7", "007", "-0", "-3", "1e5", "NULL", "nan", "", '"a,b"', '"a""c"', '"', "'a",
       "é", "a\0", "a\0b", " a", "a ", "#", "\\", '"x\ny"', '"x\r\ny"', "😀", "\u2028", "x" * 300,
       "2020-01-01", "10:00:00", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "9223372036854775808",
       "true", "[1]", "{}", "a\tb", '""', '"a"b', 'a"b']  # fmt: skip
NUMBERS = ["1", "2", "1", "0", "1.0", "2.", ".5", "1e0", "-1", "+1", "-0", "true", "False", "nan",
           "inf", "1_0", "0x1", "", " 1 ", "1e99", "1e400", "100000", "100001", "one", "٣",
           "9007199254740992", "9007199254740993", "0.1", "1d", "1f", "1,5"]  # fmt: skip
# By what an input takes: values that Arrow reads are quick, logs that are counted are not.
KINDS = ["arrow"] * 400 + ["lines"] * 400 + ["duckdb"] * 20
KINDS += ["csv", "json", "parquet"] * 3 + ["ubi"]
OPTIONAL = ["propensity", "impressions", "value"]
DAMAGE = [b'"', b",", b"\n", b"\r\n", b"\r", b"\t", b"\xff", b"\xef\xbb\xbf", b"\\", b"'",
          b"{", b"}", b"[", b"]", b":", b"1", b" ", b"null", b"\\ud800", b"-",
          b"."]  # fmt: skip


def some_columns(rng):
    more = rng.sample(OPTIONAL, rng.choice([0, 0, 1, 2]))
    return [*twins_logs.NEEDED, *more]


def some_csv(rng, delimiter):
    columns = some_columns(rng)
    rng.shuffle(columns)
    ids = rng.sample(IDS, rng.randint(1, 4))
    numbers = rng.sample(NUMBERS, rng.randint(1, 3)) + ["1"] * rng.randint(0, 9)
    lines = [delimiter.join(columns)]
    for _ in range(rng.randint(0, 8)):
        row = [rng.choice(ids if name in twins_logs.IDS else numbers) for name in columns]
        lines.append(delimiter.join(row))
    ending = rng.choice(["\n", "\n", "\r\n", "\n\n"])
    return damaged(rng, (ending.join(lines) + rng.choice(["", ending])).encode())


def some_json(rng):
    columns = some_columns(rng)
    ids = [rng.sample(IDS, 3), [0, 7, -3, 2**63 - 1], [1, "1"], [None, "a"], [2**63, 1], [1.5, 1]]
    ids = rng.choice([ids[0], ids[0], ids[1], rng.choice(ids)])
    numbers = rng.choice(
        [[1, 0], [1, 0], [1, 1.0, 0.5, 0], [True, False], ["1", "0", "x"], [1, 2**40, 2**64],
         [1, float("nan")], [1, None], [1, "1"]]
    )  # fmt: skip
    lines = []
    for _ in range(rng.randint(0, 6)):
        row = {n: rng.choice(ids if n in twins_logs.IDS else numbers) for n in columns}
        if rng.random() < 0.1:
            row.pop(rng.choice(columns))
        if rng.random() < 0.1:
            row["more"] = rng.choice([1, "x", {"y": 1}, [1], [[[]]], None])
        lines.append(json.dumps(row, ensure_ascii=rng.random() < 0.5))
    return damaged(rng, "".join(f"{line}\n" for line in lines).encode())


def damaged(rng, data):
    """Return the text as it is, every other time, else with a few bytes put in or taken away."""
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        at = rng.randint(0, len(data))
        cut = rng.choice([0, 0, 0, 1, 3, len(data)])
        data = data[:at] + rng.choice(DAMAGE) * rng.choice([0, 1, 1, 1, 2]) + data[at + cut :]
    return data


class Opened:
    """DuckDB, which stays open, and Arrow, which read text files as the package opens them.

    To open DuckDB takes ten times as long as to read a few lines.
    """

    def __init__(self, folder, cleanup):
        self.path = folder / "log"
        self.duckdb = DuckDB(cleanup, LogOptions())
        self.lines = cleanup.enter_context(duckdb.connect(config={"threads": 1}))

    def rows(self, data, ending, name):
        """Return the rows as dicts, or None where they are refused."""
        path = self.path.with_suffix(ending)
        path.write_bytes(data)
        try:
            with explained(str(path)):
                files = find_files(str(path))
                if name == "arrow":
                    return files.open().to_table().to_pylist()
                if name == "lines":
                    lines = files.scan(self.lines)
                    check_json_types(lines)
                    return lines.to_arrow_table().to_pylist()
                return self.duckdb.scan(files).to_arrow_table().to_pylist()
        except DataError:
            return None


def check_values(opened, data, ending, name):
    """Compare the values of a CSV or TSV file, one by one."""
    try:
        right = twins_logs.read_csv(data, "," if ending == ".csv" else "\t")
    except twins_logs.Refused:
        right = None
    if right == []:  # which columns there are is not told
        return
    found, right = (_in_order(rows) for rows in (opened.rows(data, ending, name), right))
    assert found == right, f"{name} read {found}, expected {right}"


def check_lines(opened, data):
    """Compare the values of JSON lines, one by one, but for what is within others."""
    found = opened.rows(data, ".jsonl", "lines")
    try:
        right, may_refuse = twins_logs.read_json_lines(data)
    except twins_logs.Refused:
        right, may_refuse = None, True
    if found is None:
        assert may_refuse or not any(right) or _has_wide(right), f"refused, expected {right}"
        return
    assert right is not None, f"read {found}"
    if _has_wide(right):  # such columns become floats, and no ids
        return
    names = {name for row in right for name in row}
    flat = [{name: _flat(row.get(name)) for name in names} for row in right]
    read = [{name: _flat(value) for name, value in row.items()} for row in found]
    assert read == flat, f"read {read}, expected {flat}"


def _flat(value):
    if isinstance(value, dict | list):
        return type(value).__name__
    return "NaN" if value != value else value  # noqa: PLR0124 (which tells it)


def _has_wide(rows):
    values = [value for row in rows for value in row.values()]
    return any(isinstance(value, int) and abs(value) >= 2**53 for value in values)


def _in_order(rows):
    if rows is None:
        return None
    return sorted(repr({name: row[name] for name in sorted(row) if name}) for row in rows)


def check_log(folder, data, ending):
    path = folder / f"whole{ending}"
    path.write_bytes(data)
    compared_logs.check(path, ENGINES)


def some_table(rng):
    """A table with types that a log may have, and its rows."""
    n = rng.randint(1, 30)
    wide = [0, 1, 2, 2**31, 2**53, -1, None]
    columns = {}
    text = rng.sample([i for i in IDS if i], 4)
    for name in twins_logs.IDS:
        kinds = [(pa.string(), text), (pa.large_string(), text), (pa.int64(), [1, -3, 2**63 - 1]),
                 (pa.int32(), [1, -3]), (pa.dictionary(pa.int32(), pa.string()), text)]  # fmt: skip
        kind, values = rng.choice(kinds)
        some = [*values, *([None] if rng.random() < 0.2 else [])]
        columns[name] = pa.array([rng.choice(some) for _ in range(n)], kind)
    odd = [0.5, float("nan"), float("inf"), -0.0, None]
    for name in some_columns(rng)[2:]:
        kinds = [(pa.int64(), wide), (pa.uint64(), [0, 1, 2**53]), (pa.int8(), [0, 1, -1]),
                 (pa.float64(), odd), (pa.float32(), odd), (pa.bool_(), [True, False, None]),
                 (pa.string(), rng.sample(NUMBERS, 3)), (pa.uint8(), [1])]  # fmt: skip
        kind, values = rng.choice(kinds)
        some = rng.choice([[1], [1, 1, 1, *values], [1, 1, *values]])
        if pa.types.is_string(kind):
            some = [str(value) for value in some]
        elif pa.types.is_boolean(kind):
            some = [value and bool(value) for value in some]
        columns[name] = pa.array([rng.choice(some) for _ in range(n)], kind)
    return pa.table(columns)


def check_table(folder, table):
    path = folder / "log.parquet"
    parquet.write_table(table, path, row_group_size=7)
    right = compared_logs.expected_of_rows(table.to_pylist(), has_text_ids=False)
    for engine in ENGINES:
        found = compared_logs.found(path, engine)
        assert compared_logs.alike(found, right), f"{engine} found {found}, expected {right}"


def check_ubi(folder, queries, events):
    for name, documents in (("ubi_queries", queries), ("ubi_events", events)):
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{name}.jsonl").write_text(lines)
    right = twins_ubi.count(queries, events)
    try:
        counts = read_impressions(folder).check().counts
        found = compared_logs.as_dict(counts)
    except DataError:
        found = {}
    assert found == right, f"found {found}, expected {right}"


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)  # noqa: S311 (no secret)
    done = Counter()
    stop = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name, ExitStack() as cleanup:
        folder = Path(name)
        (folder / "ubi").mkdir()
        opened = Opened(folder, cleanup)
        while time.monotonic() < stop:
            kind = rng.choice(KINDS)
            ending = rng.choice([".csv", ".tsv"])
            given = ""
            try:
                if kind in {"arrow", "duckdb"}:
                    given = some_csv(rng, "," if ending == ".csv" else "\t")
                    check_values(opened, given, ending, kind)
                elif kind == "lines":
                    given = some_json(rng)
                    check_lines(opened, given)
                elif kind == "csv":
                    given = some_csv(rng, ",")
                    check_log(folder, given, ".csv")
                elif kind == "json":
                    given = some_json(rng)
                    check_log(folder, given, ".jsonl")
                elif kind == "parquet":
                    given = some_table(rng)
                    check_table(folder, given)
                else:
                    given = twins_ubi.some_documents(rng)
                    check_ubi(folder / "ubi", *given)
            except BaseException:
                shown = given.to_pydict() if isinstance(given, pa.Table) else given
                sys.stderr.write(f"after {done.total():,} inputs, {kind} {ending}:\n{shown!r}\n")
                raise
            done[kind] += 1
    told = ", ".join(f"{n:,} {kind}" for kind, n in done.items())
    sys.stdout.write(f"fuzzed {done.total():,} inputs: {told}\n")


if __name__ == "__main__":
    main()
