"""Is full supervision the ceiling? Linear rankers trained on labels beside those trained on clicks.

``python benchmarks/bench_supervision.py --data yahoo-like istella-like PATH/mq2008 PATH/ohsumed``

nDCG@10 on test labels, mean over cases: the folds of a set, or seeds of a synthetic one. All have
the same features and are tuned on the same validation labels:

- *clicks*: CounterSample by query on simulated clicks with known propensities, as in the studies;
- *labels, plain*: an item counts its label, the rank objective, eight learning rates;
- *labels*: what the studies call full supervision (`supervised`).

The last column is *labels* minus *clicks*, with the 95 % interval of its mean over cases.
"""

import numpy as np
from output import make_parser, output
from scipy import stats

from countersample import ClickLog, simulate_clicks, synthetic, train_many
from countersample.clicks.relevance import smallest_relevant
from countersample.data.preprocessing import Normalizer
from countersample.data.synthetic import SHAPES
from countersample.evaluation import learning_curve
from countersample.study.references import METRIC, logging_policy, supervised
from countersample.study.sources import find_source, load_fold

RATES = [float(f"{digit}e{power}") for power in range(-6, 0) for digit in (1, 3)]
PLAIN_RATES = (3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def cases(name, n_queries, seeds):
    """Yield training, validation and test data: each fold, or each seed."""
    if name in SHAPES:
        for seed in seeds:
            yield synthetic(name, n_queries=n_queries, rng=seed).split(0.7, 0.1, 0.2, rng=seed)
    else:
        for fold in find_source(name).folds:
            yield load_fold(fold.config)


def ndcg(weights, dataset):
    return learning_curve(np.atleast_2d(weights), dataset, METRIC, no_relevant="skip")


def best_on(vali, runs):
    sound = np.array([run.average_coef for run in runs if run.diverged_at is None])
    return sound[ndcg(sound, vali).argmax()]


def measure(parts, case, n_clicks, n_draws):
    """Return nDCG@10 on test data by what was trained."""
    normalizer = Normalizer.fit(parts[0], "query-minmax")
    train, vali, test = map(normalizer, parts)
    steps = int(np.clip(20 * train.n_queries, 20_000, 300_000))  # as in the studies
    policy = logging_policy(train, fraction=0.001, seed=case)
    log = simulate_clicks(
        train, train.features @ policy.astype(np.float32), n_clicks,
        relevant=smallest_relevant(train), rng=case,
    )  # fmt: skip
    shared = {"seeds": [case], "unit": "query"}
    clicked = train_many(train, log, learning_rates=RATES, steps=n_draws, **shared)
    labelled = train_many(
        train, ClickLog.from_labels(train), learning_rates=PLAIN_RATES, steps=steps, **shared
    )
    weights = {
        "logging policy": policy,
        "clicks": best_on(vali, clicked),
        "labels, plain": best_on(vali, labelled),
        "labels": supervised(train, vali, steps=steps, seed=case),
    }
    return {name: float(ndcg(each, test)[0]) for name, each in weights.items()}


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", default=["yahoo-like", "istella-like"])
    parser.add_argument("--queries", type=int, default=1000, help="of a synthetic set")
    parser.add_argument("--seeds", type=int, default=5, help="of a synthetic set")
    parser.add_argument("--first-seed", type=int, default=0, help="of a synthetic set")
    parser.add_argument("--clicks", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=60_000, help="steps of training on clicks")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    rows = []
    for name in given.data:
        found = []
        for case, parts in enumerate(cases(name, given.queries, seeds)):
            found.append(measure(parts, case, given.clicks, given.draws))
            if given.json is not True:
                print("#", name, case, {key: round(value, 4) for key, value in found[-1].items()},
                      flush=True)  # fmt: skip
        lead = np.array([each["labels"] - each["clicks"] for each in found])
        half = stats.t.ppf(0.975, len(lead) - 1) * lead.std(ddof=1) / len(lead) ** 0.5
        means = {key: np.mean([each[key] for each in found]) for key in found[0]}
        title = find_source(name).name
        rows.append({"data": title, "cases": len(lead)} | means | {"lead": lead.mean(), "±": half})
    output(rows, text, as_json=given.json)


def text(rows):
    """Return lines of a Markdown table."""
    lines = []
    for row in rows:
        data, cases, *means, lead, half = row.values()
        told = " | ".join(f"{mean:.4f}" for mean in means)
        lines.append(f"| {data} | {cases} | {told} | {lead:+.4f} ± {half:.4f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
