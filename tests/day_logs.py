"""Small logs of several days, with whatever a log may have, for tests of counts."""

import numpy as np
import pyarrow as pa


def day_log(seed, *, sessions=150, days=3, only=None, has_null_sessions=False, has_text=True):
    """Return a table: pages of up to 4 items, some of them interleaved by two of three policies.

    `only` are the optional columns that it has; all but impressions by default.
    """
    rng = np.random.default_rng(seed)
    rows = {name: [] for name in (
        "query_id", "item_id", "position", "click", "session", "client", "timestamp", "policy",
        "context", "value", "propensity",
    )}  # fmt: skip
    for session in range(sessions):
        n = int(rng.integers(1, 5))
        query, day, client = rng.integers(6), session % days, rng.integers(20)
        served = rng.choice(["a", "b", "random"], size=2)
        context = rng.choice(["desktop", "phone"])
        for position, item in enumerate(rng.permutation(5)[:n], start=1):
            click = int(rng.random() < 0.7 / position)
            rows["query_id"].append(f"q{query}" if has_text else int(query))
            rows["item_id"].append(int(item))
            rows["position"].append(position)
            rows["click"].append(click)
            nobody = has_null_sessions and session % 7 == 0
            rows["session"].append(None if nobody else f"s{session}")
            rows["client"].append(None if client == 0 else f"u{client}")
            rows["timestamp"].append(f"2026-03-{day + 1:02d}T0{position}:00:00")
            rows["policy"].append(str(served[0 if session % 3 else position % 2]))
            rows["context"].append(str(context))
            rows["value"].append(float(rng.integers(1, 4)) if click else 0.0)
            rows["propensity"].append(float(rng.choice([0.25, 0.5, 1.0])))
    needed = ("query_id", "item_id", "position", "click")
    kept = rows if only is None else (*needed, *only)
    return pa.table({name: rows[name] for name in kept})
