"""What settings chosen from clicks alone cost in nDCG@10, beside a choice made with labels.

``python benchmarks/quality/tuning.py`` prints, for each data set, nDCG@10 on test data of rankers
that were trained on the same simulated clicks with settings chosen in four ways:

labels
    the best of the paper's 22 learning rates (1e-10, 3e-10, … 1, 3) on labels of validation data
auto
    ``learning_rate="auto"``: clicks of held-out queries, no label
tune
    ``tune``: learning rate, steps and clipping, by the same clicks
hindsight
    the best of the 22 on the test data itself, run by run: what nobody can choose

The differences are in percent of the choice with labels, with a 95 % interval over runs. MQ2008 is
looked for beside the project (../shared/data) and left out where it is not.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from scipy import stats

from countersample import (
    ClickLog,
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    evaluate,
    load_letor,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.evaluation import learning_curve
from countersample.training import train_many
from countersample.tuning import tune

RATES = [m * 10.0**e for e in range(-10, 1) for m in (1, 3)]
CLIPS = (None, 0.02, 0.1)
METRIC = "ndcg@10"
MQ2008 = Path(__file__).resolve().parents[3] / "shared" / "data" / "mq2008"


def joined(parts):
    sizes = np.concatenate([part.query_sizes for part in parts])
    return RankingDataset(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.append(0, np.cumsum(sizes)),
        np.concatenate([part.query_ids for part in parts]),
    )


def splits_of_mq2008(seeds):
    """LETOR's five folds: three parts to train on, one to choose by, one to test on."""
    parts = [load_letor(MQ2008 / f"S{k}.txt.xz") for k in range(1, 6)]
    for seed in range(seeds):
        for fold in range(5):
            turned = [parts[(fold + k) % 5] for k in range(5)]
            yield 10 * seed + fold, joined(turned[:3]), turned[3], turned[4], 1


def splits_of_synthetic(shape, n_queries, seeds):
    for seed in range(seeds):
        dataset = synthetic(shape, n_queries=n_queries, rng=seed)
        yield (seed, *dataset.split(0.6, 0.2, 0.2, rng=seed), 3)


def make_log(dataset, relevant, n_clicks, seed):
    """Simulate the paper's clicks: γ = 1, ranked by a policy trained on 0.1 % of the queries."""
    scaled = dataset.normalized("minmax")
    labelled = np.unique(ClickLog.from_labels(dataset, relevant=relevant).query)
    n_few = max(2, dataset.n_queries // 1000)
    few = scaled.subset(np.random.default_rng(seed).choice(labelled, n_few, replace=False))
    labels = ClickLog.from_labels(few, relevant=relevant)
    policy = train(few, labels, learning_rate=0.01, steps=1000, rng=seed).weights
    return simulate_clicks(
        dataset, scaled.features @ policy, n_clicks, bias=PositionBias(1.0), relevant=relevant,
        rng=seed,
    )  # fmt: skip


def run(seed, train_set, validation, test, relevant, n_clicks):
    """nDCG@10 on test data of each way to choose, and the seconds that the label-free ones took."""
    log = make_log(train_set, relevant, n_clicks, seed)
    begin = time.perf_counter()
    ranker = CounterSampleRanker(random_state=seed).fit_log(train_set, log)
    auto_seconds = time.perf_counter() - begin
    scaled, labelled, tested = map(ranker.normalizer_, (train_set, validation, test))
    log = ClickLog(log.query, log.item, log.propensity)
    results = train_many(
        scaled, log, learning_rates=RATES, unit="query", steps=ranker.n_steps_, seeds=[seed]
    )
    sound = np.array([result.weights for result in results if result.diverged_at is None])
    by_labels = learning_curve(sound, labelled, METRIC, no_relevant="skip")
    on_test = learning_curve(sound, tested, METRIC, no_relevant="skip")
    begin = time.perf_counter()
    best = tune(scaled, log, clips=CLIPS, rng=seed)
    tuned = train(
        scaled, log, learning_rate=best.learning_rate, steps=best.steps, clip=best.clip,
        unit="query", rng=seed,
    )  # fmt: skip
    tune_seconds = time.perf_counter() - begin
    auto = evaluate(ranker.predict(test), test, METRIC, no_relevant="skip")[METRIC]
    (of_tuned,) = learning_curve(tuned.weights[None], tested, METRIC, no_relevant="skip")
    values = (on_test[by_labels.argmax()], auto, of_tuned, on_test.max())
    return values, (auto_seconds, tune_seconds)


def show(name, values, seconds):
    labels, auto, tuned, hindsight = np.array(values).T

    def against(other):
        differences = 100 * (other - labels) / labels.mean()
        half = stats.t.ppf(0.975, len(labels) - 1) * stats.sem(differences)
        return f"{differences.mean():+6.2f} % ± {half:.2f}"

    took = " ".join(f"{each:6.1f} s" for each in np.mean(seconds, axis=0))
    print(
        f"{name:13} {len(labels):4} {labels.mean():8.4f} {against(auto):>17} {against(tuned):>17} "
        f"{against(hindsight):>17}  {took}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--clicks", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3, help="at least 2")
    parser.add_argument("--data", nargs="*", help="some of them, such as MQ2008; all by default")
    options = parser.parse_args()
    print(
        f"{'data':13} {'runs':>4} {'labels':>8} {'auto':>17} {'tune':>17} {'hindsight':>17}  "
        f"{'auto':>8} {'tune':>8}"
    )
    sources = {
        "tiny": splits_of_synthetic("tiny", 250, 4 * options.seeds),
        "yahoo-like": splits_of_synthetic("yahoo-like", options.queries, options.seeds),
        "istella-like": splits_of_synthetic("istella-like", options.queries, options.seeds),
    }
    if MQ2008.is_dir():
        sources["MQ2008"] = splits_of_mq2008(options.seeds)
    for name in options.data or sources:
        values, seconds = zip(
            *(run(*split, options.clicks) for split in sources[name]), strict=True
        )
        show(name, values, seconds)


if __name__ == "__main__":
    main()
