# ruff: noqa: INP001, T201 (a program)
"""Make the click log of a shop, with the truth known: impressions.parquet and features.parquet.

Four rankers served the searches of a shop in turn: by price, by sales, by both, by reviews. Users
examine position k with probability (1/k)^gamma, and click what they examine and want. Whether they
want an item depends on its text match, its reviews and its price, which no single ranker knew.

features.parquet has a column ``label``: how likely the item is wanted by those who examine it.
Learning never reads it. It is there to compare with at the end.

    python make_shop_log.py shop --sessions 20000 --seed 0
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

FEATURES = ("text_match", "reviews", "price", "sales", "is_new")
WANTED = np.array([2.6, 1.6, -1.4, 0.3, 0.2])
POLICIES = {
    "by-price": np.array([0.0, 0.0, -1.0, 0.0, 0.0]),
    "by-sales": np.array([0.0, 0.0, 0.0, 1.0, 0.0]),
    "by-both": np.array([0.2, 0.0, -0.7, 0.7, 0.0]),
    "by-reviews": np.array([0.0, 1.0, 0.0, 0.3, 0.0]),
}
ITEMS = 10  # of a query, all on one page
GAMMA = 1.0


def make_shop(n_queries: int, rng: np.random.Generator) -> tuple[pa.Table, np.ndarray]:
    """Return the features of each query and item, and how likely each is wanted."""
    features = rng.random((n_queries * ITEMS, len(FEATURES)))
    features[:, FEATURES.index("is_new")] = rng.random(len(features)) < 0.2
    scores = features @ WANTED + 0.5 * rng.normal(size=len(features))
    wanted = 1 / (1 + np.exp(4.2 - 2 * scores))
    query = np.repeat(np.arange(n_queries), ITEMS)
    columns = {
        "query_id": [f"q{q:05d}" for q in query],
        "item_id": [f"item-{i:06d}" for i in range(len(query))],
        **{
            name: column.astype(np.float32)
            for name, column in zip(FEATURES, features.T, strict=True)
        },
        "label": wanted.astype(np.float32),
    }
    return pa.table(columns), wanted


def make_log(
    features: pa.Table, wanted: np.ndarray, n_sessions: int, gamma: float, rng: np.random.Generator
) -> pa.Table:
    """Return what was shown in each session, and what was clicked."""
    matrix = np.column_stack([features[name].to_numpy() for name in FEATURES])
    n_queries = len(wanted) // ITEMS
    popularity = 1 / (1 + np.arange(n_queries)) ** 0.6
    query = rng.choice(n_queries, n_sessions, p=popularity / popularity.sum())
    policy = rng.integers(0, len(POLICIES), n_sessions)
    pages = np.stack([_pages(matrix @ weights, n_queries) for weights in POLICIES.values()])
    rows = pages[policy, query]  # (n_sessions, ITEMS)
    examined = (1 / np.arange(1, ITEMS + 1)) ** gamma
    clicks = rng.random(rows.shape) < examined * wanted[rows]
    session = np.repeat(np.arange(n_sessions), ITEMS)
    return pa.table(
        {
            "session": session,
            "policy": pa.array(np.array(list(POLICIES))[np.repeat(policy, ITEMS)]),
            "query_id": features["query_id"].take(rows.ravel()),
            "item_id": features["item_id"].take(rows.ravel()),
            "position": np.tile(np.arange(1, ITEMS + 1), n_sessions),
            "click": clicks.ravel().astype(np.int8),
        }
    )


def _pages(scores: np.ndarray, n_queries: int) -> np.ndarray:
    """Return the rows of the items on the page of each query, (n_queries, ITEMS)."""
    order = np.argsort(-scores.reshape(n_queries, ITEMS), axis=1, kind="stable")
    return order + ITEMS * np.arange(n_queries)[:, None]


def write_shop(
    folder: Path, *, queries: int = 400, sessions: int = 20_000, gamma: float = GAMMA, seed: int = 0
) -> None:
    """Write impressions.parquet and features.parquet into a folder."""
    rng = np.random.default_rng(seed)
    features, wanted = make_shop(queries, rng)
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(features, folder / "features.parquet")
    log = make_log(features, wanted, sessions, gamma, rng)
    parquet.write_table(log, folder / "impressions.parquet")
    print(
        f"{folder}: {sessions:,} sessions of {queries:,} queries, {log.num_rows:,} impressions, "
        f"{log['click'].to_numpy().sum():,} clicks"
    )


def main() -> None:
    """Read the arguments, and write."""
    parser = argparse.ArgumentParser(description="Make the click log of a shop.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--gamma", type=float, default=GAMMA)
    parser.add_argument("--seed", type=int, default=0)
    write_shop(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
