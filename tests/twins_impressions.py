"""The slow, obvious counting of a log, row by row; and logs to count."""

from collections import Counter

import pyarrow as pa

from countersample.logs import PositionCounts


def count(rows):
    """Return {(query, item, position): (impressions, clicks)} of (q, i, p, c[, n]) rows."""
    shown, clicked = Counter(), Counter()
    for query, item, position, click, *n in rows:
        shown[query, item, int(position)] += n[0] if n else 1
        clicked[query, item, int(position)] += int(click)
    return {key: (shown[key], clicked[key]) for key in sorted(shown)}


def as_dict(counts: PositionCounts):
    """Return counts in the same form, and in the order of their rows."""
    keys = zip(
        counts.query_ids[counts.query].tolist(),
        counts.item_ids[counts.item].tolist(),
        counts.position.tolist(),
        strict=True,
    )
    return dict(
        zip(
            keys, zip(counts.impressions.tolist(), counts.clicks.tolist(), strict=True), strict=True
        )
    )


def in_full(counts: PositionCounts):
    """Return {(query, item, position, context): (impressions, clicks, value)}, in order."""
    names = ("query", "item", "context")
    ids = [getattr(counts, f"{name}_ids")[getattr(counts, name)].tolist() for name in names]
    keys = zip(ids[0], ids[1], counts.position.tolist(), ids[2], strict=True)
    numbers = (counts.impressions, counts.clicks, counts.value)
    return dict(zip(keys, zip(*(n.tolist() for n in numbers), strict=True), strict=True))


def sessions_of(counts: PositionCounts):
    """Return {query: sessions}."""
    return dict(zip(counts.query_ids.tolist(), counts.sessions.tolist(), strict=True))


def rows_of(table: pa.Table):
    names = [n for n in ("query_id", "item_id", "position", "click", "impressions")
             if n in table.column_names]  # fmt: skip
    return list(zip(*(table[n].to_pylist() for n in names), strict=True))


def random_log(rng, n_rows=2000, *, text=False, aggregated=False):
    """A log with sessions and policies; ids of several lengths, some not ASCII."""
    query, item = rng.integers(0, 40, n_rows), rng.integers(-5, 25, n_rows)
    columns = {
        "session": rng.integers(0, n_rows // 5, n_rows),
        "query_id": [f"q{'é' * (k % 3)}{k}" for k in query] if text else query,
        "item_id": [f"{k:03d}" for k in item] if text else item,
        "position": rng.integers(1, 8, n_rows),
        "click": (rng.random(n_rows) < 0.2).astype(int),
        "policy": rng.choice(["random", "production"], n_rows),
    }
    if aggregated:
        columns["impressions"] = rng.integers(1, 1000, n_rows)
        columns["click"] = rng.integers(0, columns["impressions"] + 1)
    return pa.table(columns)
