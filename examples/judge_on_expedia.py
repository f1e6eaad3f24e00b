# ruff: noqa: INP001, T201 (a program)
"""Learn from the pages that Expedia ranked, and be judged by those that it shuffled.

python judge_on_expedia.py train.csv

On a shuffled page the position says nothing about the hotel. So clicks there tell without any
weights which of two rankers is better: the one that puts higher what was clicked. No row of a
shuffled page is used for anything else.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from countersample import CounterSampleRanker
from countersample.logs import join_features, read_features, read_impressions
from countersample.metrics import dcg
from countersample.propensity import estimate

if TYPE_CHECKING:
    from countersample.logs import PositionCounts
    from countersample.propensity import Propensities

VALUES = {"click": 1, "booking": 5}
HOTELS = """
    select srch_id as query_id, prop_id as item_id,
           if(booking_bool = 1, 5, click_bool) as label,
           prop_starrating, prop_brand_bool, prop_location_score1, prop_log_historical_price,
           coalesce(prop_review_score::double, 0) as prop_review_score,
           coalesce(prop_location_score2::double, 0) as prop_location_score2,
           ln(1 + price_usd) as log_price, promotion_flag
    from read_csv($path, nullstr = ['NULL', ''])
"""


def judge(path: str, *, depth: int = 10, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the DCG of what was clicked on each shuffled page, as each ranker would rank it."""
    # How likely is a position examined? Hotels of a destination that Expedia's ranker moved tell.
    log = read_impressions(path, reader="expedia").of_policy("expedia")
    places, counts = without_gaps(log.counts())
    curve = estimate(counts, method="all-pairs", depth=depth, rng=seed)

    # From here on a search is a query: its hotels, at the prices of its dates, are the candidates.
    log = read_impressions(path, reader="expedia", columns={"query_id": "srch_id"}, values=VALUES)
    _, ranked = without_gaps(log.of_policy("expedia").counts())
    shuffled = log.of_policy("random").counts()
    hotels = read_features(duckdb.sql(HOTELS, params={"path": path}).to_arrow_table())
    data = hotels.dataset.normalized("query-minmax")

    # The same clicks, without weights and with.
    scores = {"cheapest first": -data.features[:, data.feature_names.index("log_price")]}
    for name, examined in (("without weights", np.ones(depth)), ("with weights", curve)):
        clicks, _ = join_features(ranked, examined, data, hotels.item_ids, missing="skip")
        scores[name] = CounterSampleRanker(random_state=seed).fit_log(data, clicks).predict(data)

    # The judge: labels, what was clicked and booked, are read of the shuffled pages only.
    judged = np.isin(data.query_ids, shuffled.query_ids)
    found = {
        name: dcg(data.labels, score, data.offsets, gain="linear", ties="expected")[judged]
        for name, score in scores.items()
    }
    show(places, curve, shuffled)
    base = found["without weights"]
    print(f"DCG of the clicks on {len(base):,} shuffled pages:")
    for name, value in found.items():
        gain = value - base
        error = 1.96 * gain.std() / np.sqrt(len(gain))
        print(f"  {name:16} {value.mean():.4f}, {gain.mean():+.4f} ± {error:.4f}")
    return found


def without_gaps(counts: PositionCounts) -> tuple[np.ndarray, PositionCounts]:
    """Return the positions that occur, and counts in which they are numbered 1, 2, …."""
    places, number = np.unique(counts.position, return_inverse=True)
    return places, replace(counts, position=number.astype(np.int32) + 1)


def show(places: np.ndarray, curve: Propensities, shuffled: PositionCounts) -> None:
    """Print the propensities beside the click rates of shuffled pages."""
    positions, shown, clicks = shuffled.by_position
    rate = dict(zip(positions.tolist(), clicks / shown, strict=True))
    print("position  examined, estimated      clicked, shuffled")
    for k, value, low, high in zip(places, curve.value, curve.low, curve.high, strict=False):
        print(f"{k:8}  {value:.3f} ({low:.3f} to {high:.3f})  {rate.get(k, np.nan) / rate[1]:.3f}")


def main() -> None:
    """Read the arguments, and judge."""
    parser = argparse.ArgumentParser(description="Learn from Expedia's log, and be judged by it.")
    parser.add_argument("path")
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    judge(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
