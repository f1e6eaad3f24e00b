"""The rule of safety beside another: exposure-based risk (Gupta, Oosterhuis, de Rijke, SIGIR 2023).

    python benchmarks/quality/exposure_risk.py

Both rules choose among the same checkpoints of the same paths, judged by the same held-out clicks,
in the same draws of held-out queries, and the ranker is the mean of what the draws choose.

ours
    the highest lower end of the gain, by its standard error, at 95 % confidence
risk δ
    the highest gain less a bound on its error that holds with probability 1 − δ: with N sessions,
    Z the exposure of a page, and ρ and ρ₀ the shares of it that an item has in the new and in the
    logged ranking, √(Z/N · (1 − δ)/δ · Σ ρ²/ρ₀), above that of what was logged

Worlds are those of never_worse.py, all items shown, with 300 to 10,000 clicks. Values are nDCG@10
on queries not learned from, less that of the logging policy: the mean, and the worst log.
"""

import argparse
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
from never_worse import SETS, clicks_on, data_of, policy_of

from countersample import metrics, train_many
from countersample._progress import Progress
from countersample.data.preprocessing import Normalizer
from countersample.evaluation import HeldOut
from countersample.evaluation.estimators import logged_values
from countersample.metrics import ranks_of
from countersample.rankers.logging_policy import imitate
from countersample.training import TrainingOptions
from countersample.tuning import TEMPERS
from countersample.tuning.paths import FIRST_DISTANCE, evaluate_paths, place_checkpoints
from countersample.tuning.safety import BOOTSTRAP_DRAWS as DRAWS

CLICKS = (300, 1_000, 3_000, 10_000)
DELTAS = (0.05, 0.5, 0.9)
STEPS = 5_000
Z = 1.645


def one(cell):
    """Return the value of each rule in a world."""
    name, strong, n_clicks, case = cell
    learned, test, labelled, relevant = data_of(name, case)
    normalizer = Normalizer.fit(learned, "minmax")
    data, scaled_test = normalizer(learned), normalizer(test)
    seed = np.random.default_rng([case, strong])
    policy = policy_of(normalizer(labelled), relevant, strong=strong, rng=seed)
    rng = np.random.default_rng([case, strong, n_clicks])
    log = clicks_on(data, data.features @ policy, n_clicks, relevant, None, rng)
    starts = {"zero": np.zeros(data.n_features), "served": imitate(data, log).weights}
    options = TrainingOptions(
        unit="query", optimizer="dog", steps=STEPS, first_distance=FIRST_DISTANCE
    )
    logged = logged_values(log, data, "dcg@10")
    held_out = HeldOut(data, log, "dcg@10", logged=logged, rng=rng)
    judged = evaluate_paths(
        data, [fold.train.weighted() for fold in held_out.folds], held_out, starts=starts,
        tempers=TEMPERS, options=options, seed=0, progress=Progress(),
    )  # fmt: skip
    weights = followed(data, log.weighted(), starts, options)
    by_candidate = np.array([weights[each.start, each.temper, each.steps] for each in judged])
    found = [held_out.difference(each.sums, held_out.logged_sums()) for each in judged]
    gain, adds = np.array([g for g, _ in found]), np.array([a for _, a in found])
    times = rng.multinomial(adds.shape[1], np.full(adds.shape[1], 1 / adds.shape[1]), DRAWS)
    drawn = gain + (times - 1) @ adds.T
    errors = np.sqrt((adds**2).sum(axis=1))
    bounds, a_session = exposure_bounds(data, log, by_candidate, held_out)
    rules = {"ours": drawn - Z * errors} | {
        f"risk {delta:g}": drawn * a_session - np.sqrt((1 - delta) / delta) * bounds
        for delta in DELTAS
    }

    def ndcg(scores):
        return float(np.nanmean(metrics.ndcg(test.labels, scores, test.offsets, k=10)))

    spread = (data.features @ by_candidate.T.astype(np.float32)).std(axis=0)
    even = np.vstack([by_candidate / spread[:, None], starts["served"]])
    base = ndcg((scaled_test.features @ policy).astype(np.float64))
    values = {}
    for rule, lows in rules.items():
        chosen = np.where(lows.max(axis=1) > 0, lows.argmax(axis=1), len(judged))
        values[rule] = ndcg(scaled_test.features @ even[chosen].mean(axis=0)) - base
    return cell, values


def followed(data, log, starts, options):
    """Return the weights of every candidate, learned from everything."""
    at = place_checkpoints(STEPS)
    found = {}
    for temper in TEMPERS:
        runs = train_many(
            data, log, starts=list(starts.values()), workers=1, temper=temper,
            checkpoints=at.tolist(), options=options,
        )  # fmt: skip
        for start, run in zip(starts, runs, strict=True):
            for steps, weights in zip(at.tolist(), run.history.average_coef, strict=True):
                found[start, temper, steps] = weights
    return found


def exposure_bounds(data, log, candidates, held_out):
    """Return √(Z/N·Σ ρ²/ρ₀) of each, less that of what was logged; and what a gain is a session."""
    logged = np.zeros(data.n_items)
    logged[data.offsets[log.query] + log.item] = log.propensity
    asked = np.add.reduceat(logged, data.offsets[:-1]) > 0
    exposure = np.add.reduceat(logged, data.offsets[:-1])[asked]
    ratios = []
    for weights in candidates:
        new = 1 / ranks_of((data.features @ weights).astype(np.float64), data.offsets)
        squares = np.divide(new**2, logged, out=np.zeros_like(new), where=logged > 0)
        ratios.append(np.mean(np.add.reduceat(squares, data.offsets[:-1])[asked] / exposure))
    sessions = log.n_sessions
    scale = exposure.mean() / sessions
    return np.sqrt(scale * np.array(ratios)) - np.sqrt(scale), held_out.weight_sums.sum() / sessions


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=4, help="of each cell")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    cells = list(product(SETS, (False, True), CLICKS, range(args.logs)))
    found = defaultdict(lambda: defaultdict(list))
    with ProcessPoolExecutor(args.workers) as pool:
        for (_, strong, n_clicks, _), values in pool.map(one, cells):
            for rule, value in values.items():
                found[strong, n_clicks][rule].append(value)
    rules = ["ours", *(f"risk {delta:g}" for delta in DELTAS)]
    print(f"{'policy':7} {'clicks':>7} {'logs':>5}" + "".join(f"{rule:>18}" for rule in rules))
    for (strong, n_clicks), values in sorted(found.items()):
        told = "".join(f"{np.mean(values[r]):+10.3f} {min(values[r]):+7.3f}" for r in rules)
        print(f"{'strong' if strong else 'weak':7} {n_clicks:7,} {len(values['ours']):5}{told}")


if __name__ == "__main__":
    main()
