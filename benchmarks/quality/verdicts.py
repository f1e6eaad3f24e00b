"""How often the interval of a gain holds the truth, and how often "better" is said in error.

``python benchmarks/quality/verdicts.py`` makes logs whose truth is known, gives each to
`fit_from_impressions` as anyone would, and compares what it says with the true gain of the ranker
it writes, over what was logged, on thousands of queries that are in no log. In every log features,
what makes items relevant, rankers, users and sessions are drawn anew. A condition changes one
thing of a log of 200 queries and 4,000 sessions; `CONDITIONS` has all of them.

Other methods are not asked for their propensities (the cross-check), which changes no number and
takes half of the time. A log is a line of JSON in the results file, so that a stopped run goes on;
``--table`` only prints, ``--markdown`` in Markdown.
"""

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import beta
from top_k_log import AsLabelled

from countersample import CounterSampleError, PositionBias, RankingDataset
from countersample.clicks import Shuffled, simulate_impressions
from countersample.fitting import fit_from_impressions, weighted_log
from countersample.fitting.propensity_source import find_propensities
from countersample.logs import FeatureTable, read_impressions

N_FEATURES, N_FRESH, CUT = 10, 3000, 10
BIAS = {"": PositionBias(1.0), "phone": PositionBias(1.5), "desktop": PositionBias(0.7)}


@dataclass(frozen=True)
class Condition:
    """What a log is like, and how it is fitted."""

    policy: str = "weak"  # weak: one feature; strong: nearly what is relevant; random; none
    propensities: str = "estimated"  # or known, contextual
    top: int | None = None  # how many items a page shows; all by default
    features: str = "true"  # or noise: they tell nothing
    relevance: str = "varied"  # or equal: nothing can be gained
    queries: int = 200
    sessions: int = 4000
    items: int = 15
    days: int = 0  # with timestamps over so many days, so that it is judged by time


CONDITIONS = {
    "weak policy": Condition(),
    "weak policy, known": Condition(propensities="known"),
    "strong policy": Condition(policy="strong"),
    "strong policy, known": Condition(policy="strong", propensities="known"),
    "random policy": Condition(policy="random"),
    "two devices": Condition(propensities="contextual", sessions=8000),
    "top 10 of 30": Condition(top=10, items=30),
    "top 10 of 30, known": Condition(top=10, items=30, propensities="known"),
    "few clicks": Condition(sessions=600),
    "few clicks, known": Condition(sessions=600, propensities="known"),
    "noise features": Condition(policy="none", features="noise"),
    "noise features, known": Condition(policy="none", features="noise", propensities="known"),
    "nothing to gain": Condition(relevance="equal"),
    "by time": Condition(days=10),
    "by time, noise features": Condition(policy="none", features="noise", days=10),
}


def population(condition, n_queries, weights, rng):
    """Return queries of a world: a dataset labelled with relevance, and what ranked them."""
    shape = n_queries, condition.items
    hidden = rng.random((*shape, N_FEATURES), dtype=np.float32)
    scores = hidden @ weights["relevance"]
    spread = (scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True)
    relevance = 0.05 + 0.6 / (1 + np.exp(-1.5 * spread))
    if condition.relevance == "equal":
        relevance[:] = 0.35
    features = hidden
    if condition.features == "noise":
        features = rng.random((*shape, N_FEATURES), dtype=np.float32)
    rankers = {
        "weak": lambda: hidden[..., 0],
        "strong": lambda: hidden @ (weights["relevance"] + 0.3 * weights["error"]),
        "none": lambda: rng.random(shape),
        "random": lambda: rng.random(shape),
    }
    old = rankers[condition.policy]().ravel()
    # What one in ten sessions saw, as search engines try things: it is no better.
    tried = (old.reshape(shape) + 0.5 * old.std() * rng.normal(size=shape)).ravel()
    dataset = RankingDataset(
        features.reshape(-1, N_FEATURES), relevance.ravel(),
        np.arange(n_queries + 1) * condition.items, np.arange(n_queries),
    )  # fmt: skip
    return dataset, {"old": old, "tried": tried}


def served(condition, scores):
    if condition.policy == "random":
        return Shuffled(scores["old"])
    return scores


def simulated(condition, dataset, scores, rng):
    more = {"bias": BIAS[""]}
    if condition.propensities == "contextual":
        more = {"contexts": {name: (0.5, BIAS[name]) for name in ("phone", "desktop")}}
    if condition.policy != "random":
        more["shares"] = {"old": 0.9, "tried": 0.1}
    table = simulate_impressions(
        dataset, served(condition, scores), condition.sessions, top=condition.top,
        click_model=AsLabelled, relevant=0.01, rng=rng, **more,  # labels are relevance
    )  # fmt: skip
    if condition.days:
        import pyarrow as pa

        session = table["session"].to_numpy()
        day = np.random.default_rng(0).permutation(session.max() + 1)[session]
        seconds = day * (condition.days * 86_400) // (session.max() + 1)
        stamps = np.datetime64("2026-01-05", "s") + seconds.astype("timedelta64[s]")
        table = table.append_column("timestamp", pa.array(stamps))
    return table


def value(dataset, ranks, cut):
    """Return the mean DCG of rankings, with labels as relevance."""
    gains = np.where(ranks <= cut, 1 / np.log2(1 + ranks), 0.0) * dataset.labels
    return float(gains.sum() / dataset.n_queries)


def ranks_of(scores, dataset):
    by_query = scores.reshape(dataset.n_queries, -1)
    return (np.argsort(np.argsort(-by_query, axis=1), axis=1) + 1).ravel()


def true_gain(condition, fresh, scores, ranker):
    cut = min(CUT, condition.items, condition.top or CUT)
    if condition.policy == "random":
        old = float((1 / np.log2(1 + np.arange(1, cut + 1))).sum() * fresh.labels.mean())
    else:
        of = {name: value(fresh, ranks_of(each, fresh), cut) for name, each in scores.items()}
        old = 0.9 * of["old"] + 0.1 * of["tried"]
    return value(fresh, ranker.rank(fresh), cut) / old - 1


def run(name, seed, index):
    """Return what is told and what is true of a log."""
    condition = CONDITIONS[name]
    rng = np.random.default_rng([seed, index])
    weights = {part: rng.normal(size=N_FEATURES) for part in ("relevance", "error")}
    dataset, scores = population(condition, condition.queries, weights, rng)
    fresh, of_fresh = population(condition, N_FRESH, weights, rng)
    if condition.days:  # later sessions of the same queries
        fresh, of_fresh = dataset, scores
    table = simulated(condition, dataset, scores, rng)
    features = FeatureTable(
        RankingDataset(dataset.features, np.zeros(dataset.n_items), dataset.offsets,
                       dataset.query_ids),
        np.tile(np.arange(condition.items), condition.queries), has_labels=False,
    )  # fmt: skip
    how = {"propensities": BIAS[""]} if condition.propensities == "known" else {}
    row = {"condition": name, "log": index, "seed": seed, **asdict(condition)}
    weighted_log.find_propensities = partial(find_propensities, is_checked=False)
    begin = time.process_time()
    try:
        with read_impressions(table) as log:
            found = fit_from_impressions(log, features, seed=index, **how)
    except CounterSampleError as error:
        return row | {"error": str(error)}
    gain = found.gain
    return row | {
        "claimed": gain.relative, "low": gain.relative_low, "high": gain.relative_high,
        "true": true_gain(condition, fresh, of_fresh, found.ranker),
        "better": found.is_better, "estimator": found.estimator.name,
        "source": found.propensity_source.source,
        "seconds": round(time.process_time() - begin, 2),
    }  # fmt: skip


def read(options):
    """Return the rows of what is asked for, by condition and number of the log."""
    if not options.out.exists():
        return {}
    rows = map(json.loads, options.out.read_text("utf-8").splitlines())
    return {
        (row["condition"], row["log"]): row
        for row in rows
        if row["seed"] == options.seed
        and row["condition"] in options.conditions
        and asdict(CONDITIONS[row["condition"]]).items() <= row.items()
    }


def run_all(options):
    done = read(options)
    left = [
        (name, index)
        for index in range(options.logs)
        for name in options.conditions
        if (name, index) not in done
    ]
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawned) as pool:
        futures = [pool.submit(run, name, options.seed, index) for name, index in left]
        for n_done, future in enumerate(as_completed(futures), 1):
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(future.result()) + "\n")
            if n_done % 20 == 0 or n_done == len(left):
                print(f"{n_done:,} of {len(left):,} fits", flush=True)


def between(n, of):
    """Return the 95 % interval of a share (Clopper and Pearson)."""
    low, high = beta.ppf([0.025, 0.975], [n, n + 1], [of - n + 1, of - n])
    return (0.0 if n == 0 else low), (1.0 if n == of else high)


def show(options):
    rows = list(read(options).values())
    head = ["condition", "logs", "holds the truth", "too low", "too high", "falsely better",
            "better", "claimed", "true", "CPU s"]  # fmt: skip
    lines = []
    for name in options.conditions:
        found = [row for row in rows if row["condition"] == name and "error" not in row]
        if not found:
            continue
        low, high, true, claimed, seconds = (
            np.array([row[key] for row in found])
            for key in ("low", "high", "true", "claimed", "seconds")
        )
        better = np.array([row["better"] for row in found])
        n, held = len(found), (low <= true) & (true <= high)
        false = better & (true <= 0)
        ends = between(held.sum(), n)
        lines.append([
            name, f"{n}", f"{held.mean():.1%} ({ends[0]:.0%} to {ends[1]:.0%})",
            f"{np.mean(high < true):.1%}", f"{np.mean(true < low):.1%}", f"{false.mean():.1%}",
            f"{better.mean():.0%}", f"{claimed.mean():+.1%}", f"{true.mean():+.1%}",
            f"{np.median(seconds):.1f}",
        ])  # fmt: skip
    if options.markdown:
        print("| " + " | ".join(head) + " |\n|---|" + "--:|" * (len(head) - 1))
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
    else:
        widths = [max(len(line[k]) for line in [head, *lines]) for k in range(len(head))]
        for line in [head, *lines]:
            cells = [line[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
            print("  ".join(cells))
    errors = {row["error"] for row in rows if "error" in row}
    for error in sorted(errors):
        n = sum(row.get("error") == error for row in rows)
        print(f"{n} logs refused: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("verdicts.jsonl"))
    parser.add_argument("--logs", type=int, default=200, help="of each condition")
    parser.add_argument("--conditions", nargs="*", default=list(CONDITIONS), choices=CONDITIONS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if not options.table:
        run_all(options)
    show(options)


if __name__ == "__main__":
    main()
