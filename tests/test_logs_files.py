"""Files of logs: dialects compared with Python's csv and json, names, partitions, pipes, DuckDB."""

import json
import os
from pathlib import Path

import compared_logs
import duckdb
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from twins_impressions import as_dict

from countersample.errors import DataError, ParameterError
from countersample.logs import count_days, read_features, read_impressions
from countersample.logs.files import find_files

HEADER = "query_id,item_id,position,click\n"


def rows_of(*ids, header=HEADER):
    """A row for each id, as it is written in the file."""
    return header + "".join(f"{q},i{k},{k + 1},{k % 2}\n" for k, q in enumerate(ids))


def with_columns(more, *rows):
    return HEADER.strip() + f",{more}\n" + "".join(f"{row}\n" for row in rows)


def lines_of(*rows):
    """JSON lines of rows that are nothing but awkward in what is given."""
    plain = {"query_id": "q", "item_id": 1, "position": 1, "click": 0}
    return "".join(json.dumps(plain | row) + "\n" for row in rows)


CSV = {
    "quotes after many rows": HEADER
    + "q,i,1,0\n" * 30_000
    + '"abc",i,1,1\n"a,b",i,1,0\n"a""c",i,1,0\n',
    "quotes at once": rows_of('"abc"', '"a,b"', '"a""c"', '""""', '"é"'),
    "single quotes": rows_of("'a0", "b0'", "'c'"),
    "quotes within": rows_of('a"b', 'a""b', '5"'),
    "after a quote": rows_of('"a"b'),
    "zeros": rows_of("007", "7", "7.0"),
    "like numbers": rows_of("1e5", "100000", "0x10", "16", "1_0", "+7"),
    "zero with a sign": rows_of("-0", "0"),
    "integers": rows_of("-1", "0", "999999999999999999"),
    "wide integers": rows_of("9223372036854775807", "9223372036854775808"),
    "words for nothing": rows_of("NULL", "NA", "nan", "None", "null", "n/a", "#N/A", "\\N", "-"),
    "nothing": rows_of("", '""', "a"),
    "lines of Windows": rows_of("a", "b").replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + rows_of("a", "b"),
    "blank lines": "\n\n" + rows_of("a", "b").replace("\n", "\n\n"),
    "comma at the end": rows_of("a", "b").replace("\n", ",\n"),
    "comma at the end of a row": HEADER + "a,i,1,0,\n",
    "short row": HEADER + "a,i,1,0\na,i,1\n",
    "unicode": rows_of("é", "e\u0301", "日本", "😀", "\u00a0x", "ß", "\u2028"),
    "blanks": rows_of(" a", "a", "a ", "\ta"),
    "comments": rows_of("#a", "%b", "//c"),
    "backslash": rows_of("a\\", "\\a", "\\"),
    "newlines": rows_of('"a\nb"', '"a\r\nb"'),
    "long": rows_of("x" * 999, "x" * 999 + "y"),
    "NUL within": rows_of("a\0b", "ab"),
    "names twice": HEADER.strip() + ",click\nq,i,1,0,1\n",
    "quoted names": '"query_id","item_id","position","click"\nq,i,1,0\n',
    "no rows": HEADER,
    "not UTF-8": b"query_id,item_id,position,click\na,i,1,0\n\xff,i,1,0\n",
    "names that are not UTF-8": b"query_id,item_id,position,click\xff\na,i,1,0\n",
    "no last newline": rows_of("a", "b").strip(),
    "numbers": HEADER
    + "".join(
        f"q,i,{position},{click}\n"
        for position, click in [
            ("1.0", "true"), (" 2 ", "FALSE"), ("1e0", "0"), ("+3", "-0"), ("1.", "1.0"),
            ("1_0", "0"), ("0x1", "0"), ("inf", "0"), ("nan", "0"), ("1e400", "0"), ("٣", "0"),
            ("1", "2"), ("1", ""), ("", "1"), ("0", "0"), ("100000", "0"), ("100001", "0"),
            ("1.5", "0"), ("first", "0"), ("1d", "0"), ("1f", "0"), ("1 000", "0"), ("1", "nan"),
        ]
    ),
    "propensities": with_columns("propensity", "q,a,1,1,0.1", "q,a,1,1,1e-3", "q,b,2,0,nan"),
    "no propensity": with_columns("propensity", "q,a,1,1,0.1", "q,b,1,1,nan"),
    "propensity too small": with_columns("propensity", "q,a,1,1,0." + "0" * 98 + "1e-99"),
    "values": with_columns("value", "q,a,1,1,2.5", "q,a,1,1,inf", "q,a,1,1,-1", "q,a,1,0,"),
    "most impressions": with_columns("impressions", "q,a,1,1,9007199254740992"),
    "too many at once": with_columns("impressions", "q,a,1,1,9007199254740994", "q,a,1,1,3"),
    "too many together": with_columns("impressions", *["q,a,1,1,9007199254740992"] * 1100),
}  # fmt: skip
JSON = {
    "like UUIDs": lines_of(
        {"query_id": "3f2504e0-4f89-11d3-9a0c-0305e82c3301"},
        {"query_id": "3F2504E0-4F89-11D3-9A0C-0305E82C3301"},
    ),
    "like days": lines_of({"query_id": "2020-01-01"}, {"query_id": "2020-1-1"}),
    "like moments": lines_of({"query_id": "2020-01-01 00:00:00"}, {"query_id": "2020-01-01"}),
    "like times": lines_of({"query_id": "10:00:00"}, {"query_id": "10:00:00.0"}),
    "like numbers": lines_of({"query_id": "7"}, {"query_id": "007"}, {"query_id": "1e5"}),
    "words for nothing": lines_of({"query_id": "NULL"}, {"query_id": "nan"}, {"query_id": ""}),
    "nothing": lines_of({"query_id": None}, {"query_id": "a"}),
    "integers": lines_of({"query_id": 2**63 - 1}, {"query_id": -1}),
    "wide integers": lines_of({"query_id": 2**63}, {"query_id": -1}),
    "fractions": lines_of({"query_id": 1.5}),
    "positions as text": lines_of({"position": "1"}, {"position": " 2.0 "}),
    "positions of two types": lines_of({"position": "1"}, {"position": 2}),
    "numbers": lines_of({"position": 1.0, "click": True}, {"position": 2**40}, {"position": 1.5}),
    "NaN": lines_of({"position": float("nan")}, {}),
    "NUL within": lines_of({"query_id": "a\0b"}, {"query_id": "ab"}),
    "names twice": '{"query_id": 1, "query_id": 2, "item_id": 1, "position": 1, "click": 0}\n',
    "pairs of surrogates": lines_of({"query_id": "😀"}),
    "blank lines": "\n" + lines_of({}, {"query_id": "b"}).replace("\n", "\n\n"),
    "lines of Windows": lines_of({}, {"query_id": "b"}).replace("\n", "\r\n"),
    "cut off": lines_of({}, {"query_id": "b"})[:-10],
    "a list": "[" + lines_of({}).strip() + "]\n",
    "another column of two types": lines_of({"x": {"y": 1}}, {"x": "t"}),
    "a column that is missing": lines_of({}) + '{"query_id": "b", "position": 1, "click": 0}\n',
    "propensities": lines_of({"click": 1, "propensity": 0.1}, {"click": 1, "propensity": 1}),
}


def write_csv(folder, name):
    text, path = CSV[name], folder / "log.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", CSV)
def test_csv_is_read_alike(tmp_path, name):
    compared_logs.check(write_csv(tmp_path, name), ["duckdb"])


@pytest.mark.slow
@pytest.mark.parametrize("name", JSON)
def test_json_lines_are_read_alike(tmp_path, name):
    path = tmp_path / "log.jsonl"
    path.write_text(JSON[name])
    compared_logs.check(path, ["duckdb"])


# -- numbers of files with types


def table_of(n, **columns):
    plain = {"query_id": ["q"] * n, "item_id": ["i"] * n, "position": [1] * n, "click": [1] * n}
    return pa.table(plain | columns)


@pytest.mark.slow
def test_nan_is_no_number_wherever_it_comes_from(tmp_path):
    """DuckDB trusts the statistics of a Parquet file, in which NaN does not count."""
    nan, inf = float("nan"), float("inf")
    table = table_of(4, item_id=[1, 2, 3, 4], propensity=[0.5, nan, 1.0, inf])
    path = tmp_path / "log.parquet"
    parquet.write_table(table, path)
    for source in (path, table):
        log = read_impressions(source)
        with pytest.raises(DataError, match="missing, 0 or beyond 1 in 2 of"):
            log.logged_propensities(log.counts())
    odd = table_of(4, position=[1.0, nan, inf, 2.0], value=[nan, 1.0, 1.0, 3.0])
    parquet.write_table(odd, path)
    check = read_impressions(path).check()
    assert (check.problems.bad_position, check.problems.bad_value) == (2, 1)
    assert (as_dict(check.counts), check.counts.value.tolist()) == ({("q", "i", 2): (1, 1)}, [3.0])


# -- a path that is there is that file


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("name", ["a[1]", "b*", "c?", "d{1,2}", "~", "http:"])
def test_a_name_is_no_pattern(tmp_path, monkeypatch, name, ending):
    monkeypatch.chdir(tmp_path)
    plain = name.translate({ord(c): None for c in "[]*?{},~:"}) + "1"
    for stem, item in ((name, "right"), (plain, "wrong"), ("b2", "wrong"), ("d2", "wrong")):
        table = table_of(1, item_id=[item])
        path = tmp_path / f"{stem}{ending}"
        if ending == ".parquet":
            parquet.write_table(table, path)
        elif ending == ".csv":
            path.write_text(f"{HEADER}q,{item},1,1\n")
        else:
            path.write_text(lines_of({"item_id": item}))
    for source in (f"{name}{ending}", tmp_path / f"{name}{ending}"):
        counts = read_impressions(source).counts()
        assert counts.item_ids.tolist() == ["right"]
        assert counts.n_impressions == 1


# -- files of one table whose types differ


def write_both(folder, one, other, reverse):
    """Write two files, the first one under the first name or the last."""
    names = ["a.parquet", "b.parquet"]
    for name, table in zip(reversed(names) if reverse else names, (one, other), strict=True):
        parquet.write_table(table, folder / name)


BOTH_ORDERS = pytest.mark.parametrize("reverse", [False, True], ids=["in order", "reversed"])


@BOTH_ORDERS
def test_numbers_of_several_files_become_the_widest(engine, tmp_path, reverse):
    whole = table_of(1, propensity=[1], value=[2], position=[1])
    fractions = table_of(1, propensity=[0.6], value=[2.4], position=[1.0])
    write_both(tmp_path, whole, fractions, reverse)
    with read_impressions(tmp_path, engine=engine) as log:
        counts = log.counts()
        weight = 2 / 1 + 2.4 / 0.6
        assert as_dict(counts) == {("q", "i", 1): (2, 2)}
        assert counts.value.tolist() == [4.4]
        assert log.logged_propensities(counts).value == pytest.approx([4.4 / weight])


@BOTH_ORDERS
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("click", ["yes"]),
        ("click", [True]),
        ("query_id", [7]),
        ("timestamp", pa.array([0], pa.timestamp("us", "UTC"))),
    ],
)
def test_files_with_types_that_do_not_fit_are_rejected(tmp_path, column, values, reverse):
    plain = table_of(1, timestamp=pa.array([0], pa.timestamp("ms")))
    write_both(tmp_path, plain, table_of(1, **{column: values}), reverse)
    message = rf"b\.parquet does not fit .*Field {column} has incompatible types: .*, expected one"
    with pytest.raises(DataError, match=message):
        read_impressions(tmp_path)


@BOTH_ORDERS
def test_a_column_of_a_log_is_missing_in_files_without_it(tmp_path, reverse):
    write_both(tmp_path, table_of(1), table_of(1, policy=["new"]), reverse)
    assert read_impressions(tmp_path).check().policies == {"(none)": 1, "new": 1}


def features_of(query, **columns):
    return pa.table({"query_id": [query], "item_id": [1]} | columns)


@BOTH_ORDERS
def test_features_of_several_files_have_one_type(tmp_path, reverse):
    write_both(tmp_path, features_of("q", x=[2]), features_of("r", x=[0.6]), reverse)
    table = read_features(tmp_path)
    found = dict(zip(table.dataset.query_ids, table.dataset.features[:, 0].tolist(), strict=True))
    assert found == pytest.approx({"q": 2, "r": 0.6})


@BOTH_ORDERS
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [True]}, r"b\.parquet does not fit .* x has incompatible types: .*, expected one"),
        ({"x": [0.5], "y": [1.0]}, r"\.parquet has no column 'y', which others have"),
    ],
)
def test_features_that_do_not_fit_are_rejected(tmp_path, columns, message, reverse):
    write_both(tmp_path, features_of("q", x=[0.6]), features_of("r", **columns), reverse)
    with pytest.raises(DataError, match=message):
        read_features(tmp_path)


# -- partitions


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_partitions_are_integers_if_all_are_written_so(engine, tmp_path, ending):
    table = table_of(1).drop_columns(["query_id", "item_id"])
    for item in ("7", "8"):
        folder = tmp_path / f"query_id={'007' if item == '7' else '7'}" / f"item_id={item}"
        folder.mkdir(parents=True)
        if ending == ".parquet":
            parquet.write_table(table, folder / "log.parquet")
        elif ending == ".csv":
            csv.write_csv(table, folder / "log.csv")
        else:
            (folder / "log.jsonl").write_text(json.dumps(table.to_pylist()[0]) + "\n")
    with read_impressions(tmp_path, engine=engine) as log:
        assert as_dict(log.counts()) == {("007", 7, 1): (1, 1), ("7", 8, 1): (1, 1)}


def test_a_column_that_a_csv_file_lacks_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text(HEADER + "q,i,1,1\n")
    (tmp_path / "b.csv").write_text("item_id,query_id,position,click\nj,q,1,0\n")
    counts = read_impressions(tmp_path).counts()  # in another order they are the same
    assert as_dict(counts) == {("q", "i", 1): (1, 1), ("q", "j", 1): (1, 0)}
    (tmp_path / "b.csv").write_text(HEADER.strip() + ",more\nq,j,1,0,0\n")
    with pytest.raises(DataError, match=r"a.csv has no column 'more', which others have"):
        read_impressions(tmp_path)


# -- long ids


def test_ids_of_features_have_a_limit(tmp_path):
    path = tmp_path / "features.csv"
    path.write_text(rows_of("long" * 25_000, "short"))
    message = "starts with 'longlong.*has 100,000 characters, expected at most 1,000: shorten it"
    with pytest.raises(DataError, match=message):
        read_features(path)


def test_rows_with_ids_that_no_array_can_have_are_impossible(engine, tmp_path):
    table = pa.table(
        {
            "query_id": ["q" * 1_001, "q" * 1_000, "q", "q", "q"],
            "item_id": ["i", "i\0i", "i" * 1_001, "i", "i\0"],
            "position": [1, 1, 1, 1, 1],
            "click": [1, 1, 1, 0, 0],
            "device": ["a", "a", "a", "d" * 1_001, "a"],
            "session": ["s" * 5_000, "s" * 5_000, "t", "t", "t"],
        }
    )
    log = read_impressions(table, context=("device",), engine=engine)
    with pytest.raises(DataError, match="4 with an id or context of over 1,000 characters, or NUL"):
        log.counts()
    check = log.check()
    assert (check.problems.n_invalid, check.problems.bad_id) == (4, 4)
    assert check.counts.query_ids.tolist() == ["q" * 1_000]
    assert log.visits(check.counts).n_sessions == 1  # sessions have no limit
    with pytest.raises(DataError, match=r"on 2026-03-09, 4 of 5 rows are impossible: 4 with an id"):
        count_days(log, tmp_path, day="2026-03-09")
    (day,) = count_days(log, tmp_path, day="2026-03-09", skip_impossible=True)
    assert day.n_clicks == 1
    assert read_impressions(tmp_path).counts().n_clicks == 1


def test_ids_of_features_do_not_end_with_a_character_that_numpy_drops(tmp_path):
    path = tmp_path / "features.csv"
    path.write_text(rows_of("a", "a\0"))  # in an array of text, both are "a"
    with pytest.raises(DataError, match="ends with the character NUL"):
        read_features(path)
    path.write_text(rows_of("a", "a\0b"))
    read_features(path)


# -- what is no file


@pytest.fixture
def log_file(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(rows_of("a", "b"))
    return path


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    ends = os.pipe()
    try:
        for source in (pipe, f"/dev/fd/{ends[0]}", f"{tmp_path}/*.csv", tmp_path):
            with pytest.raises(DataError, match="a pipe, a device or a link to nothing"):
                read_impressions(source)
        with pytest.raises(DataError, match="a pipe, a device or a link to nothing"):
            read_features(pipe)
    finally:
        for end in ends:
            os.close(end)


def test_no_file_is_read_twice(tmp_path, log_file):
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "a.csv").write_bytes(log_file.read_bytes())
    (folder / "again.csv").symlink_to("a.csv")
    assert read_impressions(folder).counts().n_impressions == 2
    assert read_impressions(f"{folder}/*.csv").counts().n_impressions == 2


# -- DuckDB keeps to itself


def settings_of(query):
    """What a connection is set to, and what it has loaded; `query` runs SQL there."""
    loaded = "select extension_name from duckdb_extensions() where loaded or installed"
    return (
        dict(query("select name, value from duckdb_settings()").fetchall()),
        query(loaded).fetchall(),
    )


def test_duckdb_loads_nothing_by_itself_and_spills_where_others_do(tmp_path, log_file, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with read_impressions(log_file) as log:
        relation = log.frame.to_native()
        settings, loaded = settings_of(lambda sql: relation.query("own", sql))
        assert log.counts().n_rows == 2
    assert settings["autoinstall_known_extensions"] == "false"
    assert settings["autoload_known_extensions"] == "false"
    assert Path(settings["temp_directory"]).parent == tmp_path
    assert loaded == settings_of(duckdb.connect().sql)[1]
    assert list(tmp_path.iterdir()) == [log_file]


def test_an_address_needs_an_extension_that_is_there(monkeypatch):
    asked = []

    def refuse(_, name):
        asked.append(name)
        raise duckdb.IOException("not found")

    monkeypatch.setattr(duckdb.DuckDBPyConnection, "load_extension", refuse)
    for address, name in (("s3://a/b.parquet", "httpfs"), ("az://a/b.jsonl", "azure")):
        with pytest.raises(ParameterError, match=f"its extension {name}, which is not installed"):
            read_impressions(address)
    assert asked == ["httpfs", "azure"]


# -- batches, for tables larger than memory


def read_batches(source, columns):
    return pa.Table.from_batches(find_files(str(source)).batches(columns)).to_pylist()


def test_batches_of_parquet_files(tmp_path):
    """Files may have integers and fractions; a column that one file lacks is an error."""
    parquet.write_table(pa.table({"id": [1, 2], "price": [1, 2]}), tmp_path / "a.parquet")
    later = tmp_path / "b.parquet"
    parquet.write_table(pa.table({"id": [3], "price": [3.5]}), later)
    prices = [batch["price"][0].as_py() for batch in find_files(str(tmp_path)).batches(["price"])]
    assert prices == [1, 3.5]
    parquet.write_table(pa.table({"id": [3]}), later)
    with pytest.raises(DataError, match=r"b\.parquet has no column 'price', which others have"):
        read_batches(tmp_path, ["id", "price"])


def test_a_link_to_another_folder_is_rejected(tmp_path):
    for name in ("other", "log"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text(rows_of("a"))
    (tmp_path / "log" / "day=2").symlink_to(tmp_path / "other")
    with pytest.raises(DataError, match="a link to another folder, which is not followed"):
        read_impressions(tmp_path / "log")
