"""What features in 16 and 8 bits cost: nDCG@10 beside float32, with the same settings and draws.

    python benchmarks/quality/compact.py [--logs 5] [--queries 1000]

MQ2008 and OHSUMED (a fold a log, from the folder that holds the data), both synthetic shapes; by
each log a ranker is trained on float32 features, and on codes of 16 and of 8 bits: CounterSample by
query, 20,000 steps without a learning rate (`dog`), features brought to [0, 1], 50,000 clicks on a
logging policy of twenty labelled queries. All are tested on features as they are, of queries that
were not learned from. "off" is the largest error of a value as a share of the standard deviation of
its feature.
"""

import argparse

import numpy as np
from worlds import FOLDERS, joined

from countersample import (
    ClickLog,
    PositionBias,
    evaluate,
    load_letor,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.data.preprocessing import Normalizer

SHAPES = ("yahoo-like", "istella-like")
CLICKS, STEPS, TESTED = 50_000, 20_000, 300


def data_of(name, case, n_queries):
    """Return queries to learn from and to test on, and what is relevant."""
    if name in FOLDERS:
        parts = [load_letor(FOLDERS[name] / f"S{k + 1}.txt.xz") for k in range(5)]
        turned = [parts[(case + k) % 5] for k in range(5)]
        return joined(turned[:-1]), turned[-1], 1
    dataset = synthetic(name, n_queries=n_queries + TESTED, rng=500 + case)
    ends = np.split(np.arange(dataset.n_queries), [n_queries])
    return (*(dataset.subset(queries) for queries in ends), 3)


def one(name, case, n_queries):
    """Return nDCG@10 by 32, 16 and 8 bits, and the largest share that 16 and 8 bits are off."""
    learned, test, relevant = data_of(name, case, n_queries)
    scale = Normalizer.fit(learned, "minmax").foldable_scale()
    few = learned.subset(np.arange(20))
    labels = ClickLog.from_labels(few, relevant=relevant)
    settings = {"unit": "query", "optimizer": "dog", "scale": scale, "rng": case}
    policy = train(few, labels, steps=1000, **settings).weights * scale
    log = simulate_clicks(
        learned, learned.features @ policy, CLICKS, bias=PositionBias(1.0), relevant=relevant,
        rng=case,
    )  # fmt: skip
    found = []
    for dataset in (learned, learned.compact(16), learned.compact(8)):
        weights = train(dataset, log, steps=STEPS, **settings).weights * scale
        found.append(evaluate(test.features @ weights, test, "ndcg@10")["ndcg@10"])
    return found, [learned.compact_report(bits).worst for bits in (16, 8)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=5)
    parser.add_argument("--queries", type=int, default=1000, help="of the synthetic shapes")
    args = parser.parse_args()
    print(f"{'data':13} {'float32':>8} {'16 bits':>9} {'8 bits':>9} {'off, 16':>9} {'off, 8':>8}")
    for name in (*(name for name, folder in FOLDERS.items() if folder.is_dir()), *SHAPES):
        both = [one(name, case, args.queries) for case in range(args.logs)]
        values, off = (np.array(each) for each in zip(*both, strict=True))
        plain, by_16, by_8 = values.mean(axis=0)
        print(
            f"{name:13} {plain:8.4f} {by_16 / plain - 1:+9.3%} {by_8 / plain - 1:+9.3%} "
            f"{off[:, 0].max():9.2g} {off[:, 1].max():8.2g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
