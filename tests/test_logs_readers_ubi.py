"""Exports of User Behavior Insights: hits, events, pages and attributes become impressions."""

import gzip
import json

import pytest
from public_logs import LOGS, event, query, write_csv, write_lines
from twins_impressions import as_dict, in_full, sessions_of

from countersample.errors import DataError
from countersample.logs import read_impressions


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


def test_an_event_on_an_item_of_two_pages_of_a_session_is_at_its_place_on_one(tmp_path):
    pages = [query("u1", "x", ["a", "b"]), query("u1", "x", ["c", "a"], **{"from": 2})]
    exported(tmp_path, pages, [event("u1", "a", ordinal=2)])
    counts = read_impressions(tmp_path).counts()
    assert as_dict(counts) == {
        ("x", "a", 1): (1, 0), ("x", "a", 4): (1, 1), ("x", "b", 2): (1, 0), ("x", "c", 3): (1, 0),
    }  # fmt: skip


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
