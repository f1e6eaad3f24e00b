"""Readers of logs of other systems: one suite over `READERS`, then each of them."""

import json

import pyarrow as pa
import pytest
from public_logs import EXPEDIA, LOGS, write_baidu_parts, write_csv, write_lines
from pyarrow import feather, parquet
from twins_impressions import as_dict, in_full, sessions_of

from countersample.data import catalogue
from countersample.errors import DataError, ParameterError
from countersample.logs import read_impressions
from countersample.logs.readers import READERS


@pytest.fixture(params=READERS)
def reader(request):
    return request.param


def test_every_reader_has_a_log_here_and_one_in_the_catalogue():
    assert list(LOGS) == list(READERS)
    assert {log.reader for log in catalogue.known_logs().values()} == {*READERS} - {"ubi"}


def test_a_log_is_counted(reader, tmp_path):
    known = LOGS[reader]
    with read_impressions(known.write(tmp_path), reader=reader) as log:
        counts = log.counts()
        assert as_dict(counts) == known.counts
        assert log.check().problems.n_invalid == 0
    assert counts.sessions_from == ("first position" if known.sessions is None else "sessions")
    if known.sessions is not None:
        assert sessions_of(counts) == known.sessions


def test_spark_gets_the_rows_through_memory(cluster, tmp_path):  # noqa: ARG001 (starts Spark)
    path = LOGS["expedia"].write(tmp_path)
    with read_impressions(path, reader="expedia", engine="spark") as log:
        assert as_dict(log.counts()) == LOGS["expedia"].counts


@pytest.mark.slow
def test_own_columns_can_be_mapped(reader, tmp_path):
    known = LOGS[reader]
    path = known.write(tmp_path)
    mapped = {"columns": {"context": known.context}}, {"context": [known.context]}
    for asked in mapped:
        counts = read_impressions(path, reader=reader, **asked).counts()
        assert tuple(counts.context_ids) == known.contexts
        assert counts.impressions.sum() == sum(shown for shown, _ in known.counts.values())


@pytest.mark.slow
@pytest.mark.parametrize("reader", [name for name, log in LOGS.items() if log.values])
def test_events_have_values(reader, tmp_path):
    known = LOGS[reader]
    log = read_impressions(known.write(tmp_path), reader=reader, values=known.values)
    counts = log.counts()
    worth = {key[:3]: value for key, (_, _, value) in in_full(counts).items() if value}
    assert worth == known.worth
    assert counts.impressions.sum() == sum(shown for shown, _ in known.counts.values())
    assert counts.clicks.sum() == len(known.worth)  # no impression here is clicked twice


def test_an_unknown_column_is_refused_with_those_there_are(reader, tmp_path):
    path = LOGS[reader].write(tmp_path)
    with pytest.raises(
        DataError, match=r"no (column|field) 'nowhere': the (columns|fields).* are "
    ):
        read_impressions(path, reader=reader, columns={"policy": "nowhere"})


def test_a_log_of_another_kind_is_rejected(reader, tmp_path):
    names = list(READERS)
    path = LOGS[names[names.index(reader) - 1]].write(tmp_path)
    with pytest.raises(DataError, match=r"expected|cannot be read") as error:
        read_impressions(path, reader=reader).counts()
    assert str(error.value).startswith(str(path))


def test_a_reader_is_of_files_and_has_a_name(tmp_path):
    with pytest.raises(ParameterError, match=r"reader is 'expedai', expected one of .*expedia"):
        read_impressions(tmp_path, reader="expedai")
    with pytest.raises(ParameterError, match="reader is for files"):
        read_impressions(pa.table({"srch_id": [1]}), reader="expedia")


def test_logs_of_several_files(tmp_path):
    """A folder, or a pattern: rankings in one file, interactions in another."""
    lines = LOGS["metarank"].write(tmp_path).read_text().splitlines(keepends=True)
    (tmp_path / "events.jsonl").unlink()
    for kind in ("ranking", "interaction"):
        chosen = [line for line in lines if json.loads(line)["event"] == kind]
        (tmp_path / f"{kind}.jsonl").write_text("".join(chosen))
    for source in (tmp_path, tmp_path / "*.jsonl"):
        assert as_dict(read_impressions(source, reader="metarank").counts()) == (
            LOGS["metarank"].counts
        )
    (tmp_path / "yandex").mkdir()
    LOGS["yandex"].write(tmp_path / "yandex").rename(tmp_path / "yandex" / "test")
    LOGS["yandex"].write(tmp_path / "yandex")
    counts = read_impressions(tmp_path / "yandex", reader="yandex").counts()
    assert counts.n_impressions == 8


# -- Metarank


def test_metarank_without_queries_asks_for_what_repeats(tmp_path):
    ranking = {"event": "ranking", "id": "r1", "timestamp": 1, "items": [{"id": 7}, {"id": "b"}]}
    path = write_lines(tmp_path / "e.jsonl", [ranking])
    with pytest.raises(DataError, match=r"no ranking has a field 'query': .*query_id=fields"):
        read_impressions(path, reader="metarank")
    log = read_impressions(path, reader="metarank", columns={"query_id": "session"})
    assert as_dict(log.counts()) == {("r1", "7", 1): (1, 0), ("r1", "b", 2): (1, 0)}


def test_a_click_on_an_item_that_its_page_lists_twice_is_at_the_first_position(tmp_path):
    path = tmp_path / "train"
    path.write_text("0\tM\t1\t5\n0\t0\tQ\t0\t8\t3\t10,1\t11,1\t10,1\n0\t5\tC\t0\t10\n")
    found = as_dict(read_impressions(path, reader="yandex").counts())
    assert found == {(8, 10, 1): (1, 1), (8, 10, 3): (1, 0), (8, 11, 2): (1, 0)}


def test_metarank_clicks_on_what_was_not_shown_are_reported(tmp_path):
    path = LOGS["metarank"].write(tmp_path)
    stray = '{"event": "interaction", "ranking": "r1", "type": "click", "item": "z"}\n'
    path.write_text(path.read_text() + stray)
    log = read_impressions(path, reader="metarank")
    assert log.check().problems.bad_position == 1
    assert as_dict(log.check().counts) == LOGS["metarank"].counts


# -- Baidu-ULTR


def test_baidu_files_have_a_row_for_each_document(tmp_path):
    log = read_impressions(write_baidu_parts(tmp_path), reader="baidu-ultr")
    counts = log.counts()
    assert as_dict(counts) == {("10", "u", 1): (4, 1), ("10", "v", 2): (2, 1)}
    assert sessions_of(counts) == {"10": 4}  # query_no starts anew in each file


def test_baidu_pages_may_be_in_parquet(tmp_path):
    table = feather.read_table(LOGS["baidu-ultr"].write(tmp_path))
    for name in ("url_md5", "click", "position"):  # as polars writes lists
        index, kind = table.column_names.index(name), pa.large_list(table[name].type.value_type)
        table = table.set_column(index, name, table[name].cast(kind))
    parquet.write_table(table, tmp_path / "clicks.parquet")
    log = read_impressions(tmp_path / "clicks.parquet", reader="baidu-ultr")
    assert as_dict(log.counts()) == LOGS["baidu-ultr"].counts
    with pytest.raises(DataError, match="a csv file, expected Feather or Parquet"):
        read_impressions(LOGS["expedia"].write(tmp_path), reader="baidu-ultr")


# -- Open Bandit


def test_open_bandit_policies_come_from_folders(tmp_path):
    folder = LOGS["open-bandit"].write(tmp_path)
    log = read_impressions(folder, reader="open-bandit")
    assert log.check().policies == {"bts": 2, "random": 3}
    assert as_dict(log.of_policy("bts").counts()) == {("all", 0, 1): (1, 1), ("men", 0, 2): (1, 0)}
    one = read_impressions(folder / "random" / "all" / "all.csv", reader="open-bandit")
    assert one.check().policies == {"random": 3}


# -- Expedia


def test_expedia_random_rows_are_a_policy_that_says_so(tmp_path):
    log = read_impressions(LOGS["expedia"].write(tmp_path), reader="expedia")
    found = log.check()
    assert found.policies == {"expedia": 3, "random": 2}
    assert found.shuffled == ("random",)  # by the name
    by_search = read_impressions(
        tmp_path / "train.csv", reader="expedia", columns={"query_id": "srch_id"}
    )
    assert sessions_of(by_search.counts()) == {1: 1, 4: 1, 6: 1}


def test_expedia_test_file_has_no_clicks(tmp_path):
    header = [n for n in EXPEDIA if n not in {"position", "click_bool", "booking_bool"}]
    path = write_csv(tmp_path / "test.csv", header, [])
    with pytest.raises(DataError, match="no column 'position' and 'click_bool' and 'booking_bool'"):
        read_impressions(path, reader="expedia")
