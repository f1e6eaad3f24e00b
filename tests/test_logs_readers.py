"""Readers of logs of other systems: one suite over `READERS`, then each of them."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from public_logs import (
    LOGS,
    event,
    made_expedia,
    query,
    write_baidu_parts,
    write_csv,
    write_lines,
)
from pyarrow import feather, parquet
from shops import load_example
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
    with pytest.raises(DataError, match=r"no (column|field) 'nowhere': the (columns|fields).* are"):
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


# -- Metarank


def test_metarank_without_queries_asks_for_what_repeats(tmp_path):
    ranking = {"event": "ranking", "id": "r1", "timestamp": 1, "items": [{"id": 7}, {"id": "b"}]}
    path = write_lines(tmp_path / "e.jsonl", [ranking])
    with pytest.raises(DataError, match=r"with a field 'query', expected one: .*query_id=fields"):
        read_impressions(path, reader="metarank")
    log = read_impressions(path, reader="metarank", columns={"query_id": "session"})
    assert as_dict(log.counts()) == {("r1", "7", 1): (1, 0), ("r1", "b", 2): (1, 0)}


def test_a_click_on_an_item_that_its_page_lists_twice_is_at_the_first_position(tmp_path):
    path = tmp_path / "train"
    path.write_text("0\tM\t1\t5\n0\t0\tQ\t0\t8\t3\t10,1\t11,1\t10,1\n0\t5\tC\t0\t10\n")
    found = as_dict(read_impressions(path, reader="yandex").counts())
    assert found == {(8, 10, 1): (1, 1), (8, 10, 3): (1, 0), (8, 11, 2): (1, 0)}


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


def exported(folder, queries, events):
    write_lines(folder / "ubi_queries.jsonl", queries)
    write_lines(folder / "ubi_events.jsonl", events)
    return folder


def positions(folder, queries, **asked):
    """Return {item: position} of exports with a page for each of the queries."""
    log = read_impressions(exported(folder, queries, [event("none", "z", "hover")]), **asked)
    return {item: position for _, item, position in as_dict(log.counts())}


@pytest.mark.slow
def test_a_folder_with_exports_needs_no_reader(tmp_path):
    with read_impressions(LOGS["ubi"].write(tmp_path)) as log:
        assert as_dict(log.counts()) == LOGS["ubi"].counts


def test_documents_may_be_wrapped_and_packed(tmp_path):
    LOGS["ubi"].write(tmp_path)
    for path in list(tmp_path.iterdir()):
        lines = [
            json.dumps({"_source": json.loads(line)}) for line in path.read_text().splitlines()
        ]
        path.with_name(path.name + ".gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        path.unlink()
    log = read_impressions(tmp_path, context="query_attributes.device")
    assert as_dict(log.counts()) == LOGS["ubi"].counts
    assert log.counts().context_ids.tolist() == ["desk", "phone"]


def test_exports_to_csv_are_flat(tmp_path):
    queries = [{"query_id": "u1", "user_query": "x", "query_attributes.from": 10,
                "query_response_hit_ids": '"[a, b]"'}]  # fmt: skip
    events = [{"query_id": "u1", "action_name": "click",
               "event_attributes.object.object_id": "b"}]  # fmt: skip
    write_csv(tmp_path / "ubi_queries.csv", list(queries[0]), queries)
    write_csv(tmp_path / "ubi_events.csv", list(events[0]), events)
    counts = read_impressions(tmp_path).counts()
    assert as_dict(counts) == {("x", "a", 11): (1, 0), ("x", "b", 12): (1, 1)}


def test_clicks_on_items_that_were_not_shown_are_reported(tmp_path):
    log = read_impressions(
        exported(tmp_path, [query("u1", "x", ["a"])], [event("u1", "z"), event("u1", "a")])
    )
    assert log.check().problems.bad_position == 1
    assert as_dict(log.check().counts) == {("x", "a", 1): (1, 1)}
    with pytest.raises(DataError, match="1 of 2 rows are impossible"):
        log.counts()


def test_an_event_on_an_item_that_is_listed_twice_is_at_one_position(tmp_path):
    def clicked(*events, skipped=0):
        hits = [query("u1", "x", ["a", "b", "a", "c"], **{"from": skipped})]
        found = read_impressions(exported(tmp_path, hits, events)).counts()
        assert found.impressions.tolist() == [1, 1, 1, 1]
        return [place for (_, _, place), (_, clicks) in as_dict(found).items() if clicks]

    assert clicked(event("u1", "a", ordinal=3)) == [3]
    assert clicked(event("u1", "a", ordinal=1)) == [1]
    assert clicked(event("u1", "a", ordinal=3), skipped=10) == [13]
    assert clicked(event("u1", "a", ordinal=None)) == [1]  # which one is not told
    assert clicked(event("u1", "a", ordinal=2)) == [1]  # where b is
    assert clicked(event("u1", "a", ordinal=1), event("u1", "a", ordinal=3)) == [1, 3]
    assert clicked(event("u1", "b", ordinal=7), event("u1", "b", ordinal=2)) == [2]


# -- pages beyond the first


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"page": 1}, {"page": 2}),
        ({"page": 0}, {"page": 1}),
        ({"page": 1, "size": 2}, {"page": 2, "size": 2}),
        ({"page": "1", "rows": 2}, {"page": "2", "rows": 2}),
        ({"from": 0, "size": 2}, {"from": 2, "size": 2}),
        ({}, {"start": 2}),
        ({"page": 1, "from": 0}, {"page": 9, "from": 2}),  # what is exact goes first
    ],
)
def test_positions_go_on_from_page_to_page(tmp_path, first, second):
    queries = [query("u1", "x", ["a", "b"], **first), query("u2", "x", ["c"], **second)]
    assert positions(tmp_path, queries) == {"a": 1, "b": 2, "c": 3}


def test_two_pages_of_one_search_are_one_session_if_their_ids_say_so(tmp_path):
    pages = [query("u1", "x", ["a"], page=1, visit="v"), query("u2", "x", ["b"], page=2, visit="v")]
    exported(tmp_path, pages, [event("u2", "b")])
    assert sessions_of(read_impressions(tmp_path).counts()) == {"x": 2}
    asked = {"session": "query_attributes.visit"}
    assert sessions_of(read_impressions(tmp_path, columns=asked).counts()) == {"x": 1}
    exported(tmp_path, [page | {"query_id": "u1"} for page in pages], [event("u1", "b")])
    counts = read_impressions(tmp_path).counts()
    assert sessions_of(counts) == {"x": 1}
    assert as_dict(counts) == {("x", "a", 1): (1, 0), ("x", "b", 2): (1, 1)}


# -- documents without hits


def without_hits(document):
    return {name: value for name, value in document.items() if name != "query_response_hit_ids"}


@pytest.mark.parametrize("listed", [True, False], ids=["an empty list", "no such field"])
def test_impressions_come_from_events_where_no_hits_are_listed(tmp_path, listed):
    asked = query("u1", "x", [], page=2, size=10)
    exported(
        tmp_path,
        [asked if listed else without_hits(asked)],
        [
            event("u1", "a", "impression", 1),
            event("u1", "b", "impression", 2),
            event("u1", "b", "impression", 2),  # seen again after scrolling
            event("u1", "b", "click", 2),
        ],
    )
    counts = read_impressions(tmp_path).counts()
    assert as_dict(counts) == {("x", "a", 11): (1, 0), ("x", "b", 12): (1, 1)}


# -- attributes


@pytest.mark.slow
def test_attributes_are_context_policy_and_kind_of_event(tmp_path):
    exported(
        tmp_path,
        [
            query("u1", "x", ["a"], ranker="new", layout=1),
            query("u2", "x", ["a"], ranker="old", layout="grid"),  # of another type
        ],
        [event("u1", "a", "tap") | {"message_type": "CONVERSION"}, event("u2", "a", "click")],
    )
    log = read_impressions(
        tmp_path,
        columns={"policy": "query_attributes.ranker", "event": "message_type"},
        context=["query_attributes.device", "query_attributes.layout"],
        values={"CONVERSION": 5},
    )
    assert log.check().policies == {"new": 1, "old": 1}
    assert in_full(log.counts()) == {
        ("x", "a", 1, "desk / 1"): (1, 1, 5.0),
        ("x", "a", 1, "desk / grid"): (1, 0, 0.0),
    }


def test_a_field_of_events_can_be_a_column(tmp_path):
    priced = event("u1", "a")
    priced["event_attributes"]["price"] = 12.5
    exported(tmp_path, [query("u1", "x", ["a", "b"])], [priced])
    log = read_impressions(tmp_path, columns={"value": "event_attributes.price"})
    assert log.counts().value.tolist() == [12.5, 0]


# -- exports that are not whole


def test_exports_that_are_not_whole(tmp_path):
    exported(tmp_path, [without_hits(query("u1", "x", []))], [event("u1", "a")])
    with pytest.raises(DataError, match=r"no field 'query_response_hit_ids', and no event"):
        read_impressions(tmp_path)
    (tmp_path / "ubi_events.jsonl").unlink()
    with pytest.raises(DataError, match=r"no ubi_events beside the other"):
        read_impressions(tmp_path)
    exported(tmp_path, [query("u1", "x", ["a"])], [{"query_id": "u1", "action_name": "click"}])
    with pytest.raises(DataError, match=r"ubi_events.jsonl: no field 'event_attributes\.object"):
        read_impressions(tmp_path)


@pytest.mark.slow
def test_shuffled_pages_prefer_weights(tmp_path, capsys):
    path = made_expedia(tmp_path / "train.csv", np.random.default_rng(SEED), searches=6000)
    found = load_example("judge_on_expedia").judge(str(path), depth=8)
    n_shuffled = int(
        read_impressions(path, reader="expedia").of_policy("random").check().n_sessions
    )
    assert {len(value) for value in found.values()} == {n_shuffled}
    gain = found["with weights"] - found["without weights"]
    assert gain.mean() > 0  # about four standard errors
    assert found["with weights"].mean() > found["cheapest first"].mean()
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[1:9]]
    assert [int(row[0]) for row in rows] == [1, 2, 3, 4, 6, 7, 8, 9]  # 5 is kept for other offers
    for place, value, _, _, _, rate in rows[:4]:
        assert float(value) * int(place) == pytest.approx(1, abs=0.5)
        assert float(rate) * int(place) == pytest.approx(1, abs=0.5)


def test_metarank_clicks_on_what_was_not_shown_are_reported(tmp_path):
    path = LOGS["metarank"].write(tmp_path)
    stray = '{"event": "interaction", "ranking": "r1", "type": "click", "item": "z"}\n'
    path.write_text(path.read_text() + stray)
    log = read_impressions(path, reader="metarank")
    assert log.check().problems.bad_position == 1
    assert as_dict(log.check().counts) == LOGS["metarank"].counts


def test_an_event_on_an_item_of_two_pages_of_a_session_is_at_its_place_on_one(tmp_path):
    pages = [query("u1", "x", ["a", "b"]), query("u1", "x", ["c", "a"], **{"from": 2})]
    exported(tmp_path, pages, [event("u1", "a", ordinal=2)])
    counts = read_impressions(tmp_path).counts()
    assert as_dict(counts) == {
        ("x", "a", 1): (1, 0), ("x", "a", 4): (1, 1), ("x", "b", 2): (1, 0), ("x", "c", 3): (1, 0),
    }  # fmt: skip
