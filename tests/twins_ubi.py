"""Exports of User Behavior Insights, joined document by document; and some of them, made up."""

from collections import defaultdict

_CLICKS = ("click", "click_through", "item_click", "product_click")
_TEXTS = ["shoe", "Shoe", "2020-01-01", "007", "é", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "a\\b"]
_ITEMS = ["i", "j", "10:00:00", "7", "2021-02-03", "k'", 'l"']
_ACTIONS = ["click", "item_click", "impression", "view", None]


def count(queries, events):
    """Return {(query, item, position): (impressions, clicks)} of rows that are possible."""
    clicked = defaultdict(list)
    for event in events:
        item = event["event_attributes"]["object"]["object_id"]
        if event["action_name"] in _CLICKS and item is not None:
            ordinal = event["event_attributes"]["position"]["ordinal"]
            clicked[event["query_id"], item].append(ordinal)
    groups = defaultdict(lambda: [0, 0])
    for query in queries:
        places = defaultdict(list)
        for position, item in enumerate(query["query_response_hit_ids"], 1):
            places[item].append(position)
        for item, positions in places.items():
            ordinals = clicked[query["query_id"], item]
            at = {o if o in positions else positions[0] for o in ordinals}
            for position in positions:
                if query["user_query"] is not None:
                    group = groups[query["user_query"], item, position]
                    group[0] += 1
                    group[1] += position in at
    return {key: tuple(groups[key]) for key in sorted(groups)}


def some_documents(rng):
    """Return queries, with a page each, and events on some of them."""
    queries = [
        {
            "query_id": f"page {number}",
            "user_query": rng.choice([*_TEXTS, None]) if number else "shoe",
            # Some: without hits, events tell what was shown, which is not for this twin.
            "query_response_hit_ids": rng.choices(_ITEMS, k=rng.randint(1, 4)),
            "timestamp": rng.choice(["2026-01-01T10:00:00Z", "2026-01-02"]),
        }
        for number in range(rng.randint(1, 5))
    ]
    events = [
        {
            "query_id": f"page {rng.randint(0, 5)}",
            "action_name": rng.choice(_ACTIONS) if number else "click",
            "event_attributes": {
                "object": {"object_id": rng.choice([*_ITEMS, None]) if number else "i"},
                "position": {"ordinal": rng.choice([None, 1, 2, 9]) if number else 1},
            },
        }
        for number in range(rng.randint(1, 6))
    ]
    return queries, events
