"""Do the intervals of judgements hold the true relevance? Logs of known relevance, counted.

    python benchmarks/quality/judgements.py --logs 40

Eight items of 60 queries are each shown at one position, and in a tenth of the sessions at the next
one, where users examine position k with probability 1/k. Relevance is drawn from a beta
distribution of mean 0.3. "Taken as they are": the same intervals, without the uncertainty of
propensities.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from output import make_parser, output, table

from countersample import PositionBias
from countersample.defaults import CONFIDENCE
from countersample.fitting.judgements import MIN_EXPOSURE, estimate_relevance
from countersample.fitting.propensity_source import PropensitySource
from countersample.fitting.weighted_log import estimate_propensities
from countersample.logs import read_impressions
from countersample.options import PropensityOptions

THETA = 1 / np.arange(1, 9)
N_QUERIES = 60


def make_log(rng, sessions):
    """Return a log, and the relevance of each query and item."""
    n = len(THETA)
    relevance = np.minimum(1.2 * rng.beta(1, 3, (N_QUERIES, n)), 1)
    query, place = (each.ravel() for each in np.indices((N_QUERIES, n)))
    item = np.concatenate([rng.permutation(n) for _ in range(N_QUERIES)])
    other = place + np.where((place + query) % 2, -1, 1)
    other = np.where((other >= 0) & (other < n), other, place)
    few = sessions // 10
    position = np.concatenate([place, other])
    shown = np.repeat([sessions - few, few], len(place))
    query, item = np.tile(query, 2), np.tile(item, 2)
    clicks = rng.binomial(shown, THETA[position] * relevance[query, item])
    columns = {"query_id": query, "item_id": item, "position": position + 1, "click": clicks,
               "impressions": shown}  # fmt: skip
    return read_impressions(pa.table(columns)), relevance


def sources(log, rng):
    """Return the counts of a log, and what propensities may be taken for it, by name."""
    check, found = estimate_propensities(log, None, PropensityOptions(method="all-pairs"), rng=rng)
    return check.counts, {
        "known": PropensitySource(PositionBias(1.0), "given"),
        "estimated": found,
        "estimated, taken as they are": replace(found, draws=None),
    }


def held(counts, relevance, source):
    """Return which intervals hold the truth, and how wide they are."""
    found, _ = estimate_relevance(counts, source, confidence=CONFIDENCE)
    first = counts.pair_starts[:-1]
    truth = relevance[counts.query[first], counts.item[first]]
    kept = found.exposure >= MIN_EXPOSURE
    return ((found.low <= truth) & (truth <= found.high))[kept], (found.high - found.low)[kept]


def run(n_logs, seed):
    """Return a row for each number of sessions and source of propensities."""
    rows = []
    for sessions in (100, 1000, 10_000):
        told = {}
        for log in range(n_logs):
            rng = np.random.default_rng([seed, sessions, log])
            impressions, relevance = make_log(rng, sessions)
            counts, found = sources(impressions, rng)
            for name, source in found.items():
                told.setdefault(name, []).append(held(counts, relevance, source))
        for name, found in told.items():
            is_held, widths = (np.concatenate(each) for each in zip(*found, strict=True))
            rows.append({
                "propensities": name, "sessions of a query": sessions, "intervals": len(is_held),
                "hold the truth %": round(100 * float(is_held.mean()), 1),
                "mean width": round(float(widths.mean()), 3),
            })  # fmt: skip
    return rows


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--logs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    output(run(asked.logs, asked.seed), lambda rows: table(rows, left=1), as_json=asked.json)


if __name__ == "__main__":
    main()
