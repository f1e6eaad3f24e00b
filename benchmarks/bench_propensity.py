"""Time of each estimator by size of log, and what few impressions a pair do to em.

``python benchmarks/bench_propensity.py`` prints both; the second part needs the real click log
beside the project (see docs/propensity.md) and is left out without it. With ``--coverage`` it
prints instead how often the intervals of contexts and of trust contain the truth.
"""

import lzma
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from output import make_parser, output, table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
REAL = ROOT.parent / "shared" / "data" / "sogou_clicks" / "impressions.tsv.xz"
LOGS = 100
TITLES = {
    "seconds": "seconds for an estimate with 200 resamples, 10 positions, 50 sessions a query, "
    "20 features",
    "ratio to the truth": "estimate / truth by position, geometric mean over 20 logs with the "
    "cells of the sample",
    "share": f"share of {LOGS} logs whose intervals of 95 % contain the truth, by position",
}


def times():
    from scipy.special import expit
    from twins_propensity import served

    from countersample.propensity import estimate, pair_ids

    theta = 1 / np.arange(1, 11)
    rows = []
    for n_queries in (200, 2_000, 20_000):
        rng = np.random.default_rng(0)
        features = rng.standard_normal((n_queries, 10, 20))
        relevance = expit(features @ np.repeat([0.5, 0], 10) - 1)
        counts, _ = served(rng, theta, n_queries=n_queries, sessions=50, relevance=relevance)
        row = {"impressions": counts.n_impressions, "cells": len(counts)}
        for method in ("pivot", "adjacent-chain", "all-pairs", "em", "regression-em"):
            given = {"features": features[pair_ids(counts)]} if method == "regression-em" else {}
            begin = time.perf_counter()
            estimate(counts, method=method, rng=0, **given)
            row[method] = time.perf_counter() - begin
        rows.append(row)
    return rows


def real_cells():
    """Draw logs from the model with the cells of the real log and the curve of all-pairs."""
    from countersample.logs import PositionCounts
    from countersample.propensity import METHODS, estimate
    from countersample.propensity.cells import cells_of

    with lzma.open(REAL, "rt") as file:
        names = file.readline().split()
        columns = dict(zip(names, np.loadtxt(file, np.int64).T, strict=True))
    columns.pop("session")
    counts = PositionCounts.from_columns(**columns)
    theta = estimate(counts, method="all-pairs", rng=0).value
    cells = cells_of(counts)
    examined = np.bincount(cells.pair, cells.impressions * theta[cells.position])
    relevance = (np.bincount(cells.pair, cells.clicks) + 1) / (examined + 3)
    chance = theta[cells.position] * np.minimum(relevance, 0.95)[cells.pair]
    rng = np.random.default_rng(0)
    logs = [cells_of(replace(counts, clicks=rng.binomial(counts.impressions, chance)))
            for _ in range(20)]  # fmt: skip
    rows = []
    for method in ("adjacent-chain", "all-pairs", "em"):
        found = [METHODS[method](log).curves(np.ones((1, log.n_queries)))[0] for log in logs]
        ratio = np.exp(np.mean(np.log(np.array(found) / theta), axis=0))
        rows.append({"method": method, "by position": ratio.tolist()})
    return rows


def coverage():
    """Draw logs of two devices, and of users with and without trust."""
    from test_propensity_contexts import DEVICES, two_devices
    from test_propensity_trust import moved, normalize, users_of

    from countersample.propensity import estimate_by_context, estimate_trust

    seeds = np.random.SeedSequence(0).spawn(LOGS)
    rows = []
    hits = {name: [] for name in DEVICES}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        found = estimate_by_context(two_devices(rng, n_queries=300, sessions=150), rng=rng)
        for name, theta in DEVICES.items():
            curve = found.curves[name]
            hits[name].append(((curve.low <= theta) & (theta <= curve.high))[1:])
    for name, hit in hits.items():
        rows.append(_shares(name, hit))
    for has_trust in (True, False):
        alpha, beta = normalize(*users_of(5, has_trust=has_trust))
        in_alpha, in_beta, seen = [], [], []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            users = users_of(5, has_trust=has_trust)
            relevance = None if has_trust else rng.beta(1, 3, (1000, 5))
            counts = moved(rng, *users, n_queries=1000, sessions=60, relevance=relevance)
            found = estimate_trust(counts, rng=rng)
            in_alpha.append(((found.alpha_low <= alpha) & (alpha <= found.alpha_high))[1:])
            in_beta.append(((found.beta_low <= beta) & (beta <= found.beta_high))[:-1])
            seen.append(found.has_trust_bias)
        name = "trust" if has_trust else "no trust"
        rows.append(_shares(f"{name}, alpha", in_alpha))
        rows.append(_shares(f"{name}, beta", in_beta, np.mean(seen)))
    return rows


def _shares(name, hits, seen=None):
    by_position = np.mean(hits, axis=0).tolist()
    together = float(np.mean(hits))
    return {"of": name, "by position": by_position, "together": together, "trust seen": seen}


def text(report):
    tables = (table([{key: shown(x) for key, x in row.items()} for row in rows])
              for rows in report.values())  # fmt: skip
    return "\n\n".join(f"{TITLES[key]}\n{each}" for key, each in zip(report, tables, strict=True))


def shown(cell):
    if isinstance(cell, list):
        return " ".join(f"{value:5.2f}" for value in cell)
    if isinstance(cell, float):
        return f"{cell:.3f}"
    return "–" if cell is None else cell


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--coverage", action="store_true", help="of intervals, instead of times")
    options = parser.parse_args()
    if options.coverage:
        report = {"share": coverage()}
    else:
        report = {"seconds": times()}
        report |= {"ratio to the truth": real_cells()} if REAL.exists() else {}
    output(report, text, as_json=options.json)


if __name__ == "__main__":
    main()
