"""Small public click logs with the columns or lines of the real ones, and what they hold."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import feather

EXPEDIA = [
    "srch_id", "date_time", "site_id", "visitor_location_country_id", "visitor_hist_starrating",
    "visitor_hist_adr_usd", "prop_country_id", "prop_id", "prop_starrating",
    "prop_review_score", "prop_brand_bool", "prop_location_score1", "prop_location_score2",
    "prop_log_historical_price", "position", "price_usd", "promotion_flag",
    "srch_destination_id", "srch_length_of_stay", "srch_booking_window", "srch_adults_count",
    "srch_children_count", "srch_room_count", "srch_saturday_night_bool",
    "srch_query_affinity_score", "orig_destination_distance", "random_bool",
    *(f"comp{k}_{what}" for k in range(1, 9) for what in ("rate", "inv", "rate_percent_diff")),
    "click_bool", "gross_bookings_usd", "booking_bool",
]  # fmt: skip
OPEN_BANDIT = (
    ["", "timestamp", "item_id", "position", "click", "propensity_score"]
    + [f"user_feature_{k}" for k in range(4)]
    + [f"user-item_affinity_{k}" for k in range(80)]
)


@dataclass(frozen=True)
class Log:
    """How a log is written, and what a reader finds in it."""

    write: Any  # folder -> path
    counts: dict  # {(query, item, position): (impressions, clicks)}
    sessions: dict | None = None  # {query: sessions}; None where the log has no sessions
    context: str = ""  # a column of its own
    contexts: tuple = ()
    values: dict = field(default_factory=dict)
    worth: dict = field(default_factory=dict)  # {(query, item, position): value}, if not 0


def write_lines(path, documents):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def write_csv(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(header)] + [",".join(str(row.get(n, "NULL")) for n in header) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def query(query_id, text, hits, **attributes):
    made = {"query_id": query_id, "user_query": text, "query_response_hit_ids": hits}
    return made | {"query_attributes": {"device": "desk", **attributes}, "client_id": "c1"}


def event(query_id, item, action="click", ordinal=1):
    attributes = {"object": {"object_id": item}, "position": {"ordinal": ordinal}}
    return {"action_name": action, "query_id": query_id, "event_attributes": attributes}


def write_ubi(folder):
    queries = [
        query("u1", "laptop", ["a", "b"]),
        query("u2", "laptop", ["b", "a"], device="phone"),
        query("u3", "phone", []),
    ]
    events = [event("u1", "b"), event("u1", "b", ordinal=2), event("u1", "b", "purchase")]
    events += [event("u2", "a", "purchase"), event("u2", "b"), event("u2", "b", "hover")]
    write_lines(folder / "ubi_queries.ndjson", queries)
    write_lines(folder / "ubi_events.ndjson", events)
    return folder


def write_metarank(folder):
    def ranking(name, text, *items, source="search"):
        fields = [{"name": "source", "value": source}, {"name": "query", "value": text}]
        return {
            "event": "ranking", "id": name, "timestamp": "1599391467000", "user": "user1",
            "session": "session1", "fields": fields,
            "items": [{"id": item, "relevancy": 2.0} for item in items],
        }  # fmt: skip

    def interaction(kind, item, **more):
        return {
            "event": "interaction", "id": "0f4c", "timestamp": "1599391467000", "user": "user1",
            "session": "session1", "type": kind, "item": item, "fields": [], **more,
        }  # fmt: skip

    item = {
        "event": "item", "id": "81f4", "timestamp": "1599391467000", "item": "item1",
        "fields": [{"name": "color", "value": ["white", "black"]}, {"name": "cute", "value": True}],
    }  # fmt: skip
    events = [
        item,
        ranking("r1", "cat", "item3", "item1"),
        interaction("click", "item1", ranking="r1"),
        interaction("purchase", "item1", ranking="r1"),
        ranking("r2", "cat", "item1", "item3", source="home"),
        interaction("click", "item3"),  # on a page that is no ranking
        interaction("purchase", "item1", ranking="r2"),
    ]
    return write_lines(folder / "events.jsonl", events)


def write_baidu(folder):
    """Write a row for each page, with lists."""
    pages = [("10", ["u", "v"], [0, 1]), ("11", ["w"], [0]), ("10", ["v", "u"], [1, 0])]
    vectors = [[np.zeros(768, np.float16)] * len(items) for _, items, _ in pages]
    table = pa.table(
        {
            "query_id": [query for query, _, _ in pages],
            "n": pa.array([len(items) for _, items, _ in pages], pa.int32()),
            "url_md5": [items for _, items, _ in pages],
            "query_document_embedding": pa.array(vectors, pa.list_(pa.list_(pa.float16()))),
            "click": pa.array([clicks for _, _, clicks in pages], pa.list_(pa.int32())),
            "position": pa.array([[1, 2], [1], [1, 2]], pa.list_(pa.int32())),
            "media_type": pa.array([[7, 8], [7], [8, 8]], pa.list_(pa.int32())),
            "bm25": pa.nulls(3, pa.list_(pa.float32())),
        }
    )
    feather.write_feather(table, folder / "clicks.feather", compression="uncompressed")
    return folder / "clicks.feather"


def write_baidu_parts(folder):
    """Write a row for each document, as in the published files, beside what has no clicks."""
    (folder / "parts").mkdir()
    for split, clicks in enumerate(([0, 1, 0], [1, 0, 0])):
        table = pa.table(
            {
                "query_no": [0, 0, 1], "query_id": ["10", "10", "10"],
                "query_md5": ["a", "a", "a"], "url_md5": ["u", "v", "u"], "click": clicks,
                "position": [1, 2, 1],
                "query_document_embedding": pa.nulls(3, pa.list_(pa.float16())),
            }
        )  # fmt: skip
        target = folder / "parts" / f"part-0_split-{split}.feather"
        feather.write_feather(table, target, compression="uncompressed")
    without = table.drop_columns(["click", "query_no"])
    feather.write_feather(without, folder / "parts" / "validation.feather")
    return folder / "parts"


def write_yandex(folder):
    lines = [
        "744899\tM\t23\t123123123",
        "744899\t0\tQ\t0\t192902\t4857,3847,2939\t632428,2384\t309585,28374",
        "744899\t1403\tC\t0\t632428",
        "744899\t1500\tC\t0\t632428",
        "744899\t1600\tQ\t1\t192902\t4857,3847,2939\t309585,28374\t632428,2384",
        "744900\tM\t24\t123123124",
        "744900\t0\tT\t0\t192902\t4857,3847,2939\t632428,2384\t309585,28374",
    ]
    (folder / "train").write_text("\n".join(lines) + "\n")
    return folder / "train"


def write_open_bandit(folder):
    rows = {
        ("random", "all"): [(14, 3, 0), (0, 1, 1), (0, 1, 0)],
        ("bts", "all"): [(0, 1, 1)],
        ("bts", "men"): [(0, 2, 0)],
    }
    for (policy, campaign), found in rows.items():
        path = folder / policy / campaign / f"{campaign}.csv"
        header = OPEN_BANDIT if campaign == "all" else OPEN_BANDIT[:44]  # men have 34 items
        write_csv(path, header, [_bandit(*row) for row in found])
        items = ["", "item_id", "item_feature_0", "item_feature_1"]
        write_csv(path.with_name("item_context.csv"), items, [{"item_id": 0}])
    return folder


def _bandit(item, position, click):
    return {
        "timestamp": "2019-11-24 00:00:01.092257+00:00", "item_id": item, "position": position,
        "click": click, "propensity_score": 0.0125, "user_feature_0": f"f{position}",
    }  # fmt: skip


def write_expedia(folder):
    rows = [
        (1, 893, 1, 23246, 1, 0, 0),
        (1, 10404, 2, 23246, 1, 1, 1),
        (4, 893, 2, 23246, 0, 1, 0),
        (4, 10404, 1, 23246, 0, 0, 0),
        (6, 893, 1, 8347, 0, 0, 0),
    ]
    names = ("srch_id", "prop_id", "position", "srch_destination_id", "random_bool", "click_bool")
    made = [dict(zip((*names, "booking_bool"), row, strict=True)) for row in rows]
    made = [row | {"date_time": "2013-04-04 08:32:15", "site_id": row["srch_id"]} for row in made]
    return write_csv(folder / "train.csv", EXPEDIA, made)


LOGS = {
    "ubi": Log(
        write_ubi,
        {
            ("laptop", "a", 1): (1, 0),
            ("laptop", "a", 2): (1, 0),
            ("laptop", "b", 1): (1, 1),
            ("laptop", "b", 2): (1, 1),
        },
        {"laptop": 2},
        context="query_attributes.device",
        contexts=("desk", "phone"),
        values={"click": 1, "purchase": 10},
        worth={("laptop", "b", 2): 11, ("laptop", "a", 2): 10, ("laptop", "b", 1): 1},
    ),
    "metarank": Log(
        write_metarank,
        {
            ("cat", "item1", 1): (1, 0),
            ("cat", "item1", 2): (1, 1),
            ("cat", "item3", 1): (1, 0),
            ("cat", "item3", 2): (1, 0),
        },
        {"cat": 2},
        context="fields.source",
        contexts=("home", "search"),
        values={"click": 1, "purchase": 10},
        worth={("cat", "item1", 1): 10, ("cat", "item1", 2): 11},
    ),
    "baidu-ultr": Log(
        write_baidu,
        {
            ("10", "u", 1): (1, 0),
            ("10", "u", 2): (1, 0),
            ("10", "v", 1): (1, 1),
            ("10", "v", 2): (1, 1),
            ("11", "w", 1): (1, 0),
        },
        {"10": 2, "11": 1},
        context="media_type",
        contexts=("7", "8"),
    ),
    "yandex": Log(
        write_yandex,
        {
            (192902, 309585, 1): (1, 0),
            (192902, 309585, 2): (1, 0),
            (192902, 632428, 1): (1, 1),
            (192902, 632428, 2): (1, 0),
        },
        {192902: 2},
        context="TimePassed",
        contexts=("0", "1600"),
        values={"click": 2},
        worth={(192902, 632428, 1): 2},
    ),
    "open-bandit": Log(
        write_open_bandit,
        {("all", 0, 1): (3, 2), ("all", 14, 3): (1, 0), ("men", 0, 2): (1, 0)},
        context="user_feature_0",
        contexts=("f1", "f2", "f3"),
    ),
    "expedia": Log(
        write_expedia,
        {
            (8347, 893, 1): (1, 0),
            (23246, 893, 1): (1, 0),
            (23246, 893, 2): (1, 1),
            (23246, 10404, 1): (1, 0),
            (23246, 10404, 2): (1, 1),
        },
        {8347: 1, 23246: 2},
        context="site_id",
        contexts=("1", "4", "6"),
        values={"click": 1, "booking": 5},
        worth={(23246, 893, 2): 1, (23246, 10404, 2): 5},
    ),
}


def made_expedia(path, rng, *, searches=4000, destinations=60, hotels=12, shown=8):
    """Write a file with Expedia's header of users who examine position k with probability 1/k.

    Hotels differ in stars, location and price. Expedia ranks by price and a taste that changes
    from search to search, and keeps position 5 for other offers; users want the location. A third
    of the pages is shuffled.
    """
    stars, location, price = rng.random((3, destinations, hotels))
    rows = []
    for search in range(searches):
        place = rng.integers(destinations)
        shuffled = rng.random() < 1 / 3
        score = price[place] - 0.5 * location[place] + 0.6 * rng.random(hotels)
        order = np.argsort(rng.random(hotels) if shuffled else -score)[:shown]
        for number, hotel in enumerate(order, 1):
            position = number + (number >= 5 and not shuffled)
            wanted = 0.05 + 0.75 * location[place, hotel] ** 2
            clicked = rng.random() < wanted / position
            rows.append(
                {
                    "srch_id": search, "date_time": "2013-04-04 08:32:15", "position": position,
                    "srch_destination_id": place, "prop_id": place * hotels + hotel,
                    "random_bool": int(shuffled), "click_bool": int(clicked),
                    "booking_bool": int(clicked and rng.random() < 0.3),
                    "prop_starrating": round(5 * stars[place, hotel]), "prop_brand_bool": 0,
                    "prop_location_score1": f"{location[place, hotel] + rng.normal(0, 0.05):.3f}",
                    "prop_log_historical_price": 0, "promotion_flag": rng.integers(2),
                    "price_usd": f"{np.exp(4 + price[place, hotel]):.2f}",
                }
            )  # fmt: skip
    return write_csv(path, EXPEDIA, rows)
