"""What roots of features with heavy tails change: nDCG@10 in 8 bits and in float32.

    python benchmarks/quality/heavy_tails.py [--logs 5] [--queries 300]

The four sets of `compact.py`, with its clicks and training, and four made of the Istella shape, in
which every feature has a heavy tail, with the ranks of its values as they were: log-normal (σ = 2),
1/p with p uniform ("pareto"), sinh of a normal value ("two-sided"), and log-normal with labels that
are linear in the features as they are ("linear"). Each is brought to [0, 1] as it is (`minmax`),
after roots (`root-minmax`), and after features with heavy tails were clipped at their quantiles of
.001 and .999, or of .01 and .99. "heavy" is the number of features of which 8 bits lose more than a
twentieth of the deviation.
"""

import argparse

import numpy as np
from compact import CLICKS, SHAPES, STEPS, data_of
from scipy.stats import norm, rankdata
from worlds import FOLDERS

from countersample import ClickLog, PositionBias, evaluate, simulate_clicks, train
from countersample.data.preprocessing import Normalizer

TAILS = {
    "log-normal": lambda z: np.exp(2 * z),
    "pareto": lambda z: 1 / norm.sf(z),
    "two-sided": lambda z: np.sinh(2 * z),
    "linear": lambda z: np.exp(2 * z),
}
GRADES = (0.5, 0.75, 0.9, 0.97)  # shares of a query's items below each, where labels are linear


def with_tails(parts, name, rng):
    """Return both parts with features of this tail, by the ranks of their values together."""
    values = np.concatenate([part.features for part in parts])
    ranks = rankdata(values, axis=0)
    made = TAILS[name](norm.ppf(ranks / (len(ranks) + 1))).astype(np.float32)
    useful = made / made.std(axis=0) @ rng.exponential(size=made.shape[1])
    ends = np.cumsum([0] + [part.n_items for part in parts])
    found = []
    for part, start, end in zip(parts, ends[:-1], ends[1:], strict=True):
        part = part.with_features(made[start:end])  # noqa: PLW2901
        if name == "linear":
            part.labels[:] = np.concatenate([
                np.searchsorted(GRADES, rankdata(items) / len(items))
                for items in np.split(useful[start:end], part.offsets[1:-1])
            ])  # fmt: skip
        found.append(part)
    return found


def scales_of(learned):
    """Yield, by each scale, the normalizer, and the range that features are cut to."""
    heavy = list(learned.compact_report(8).heavy)
    for how in ("minmax", "root-minmax"):
        yield Normalizer.fit(learned, how), None
    for share in (0.001, 0.01):
        low, high = np.full((2, learned.n_features), [[-np.inf], [np.inf]])
        low[heavy] = np.quantile(learned.features[:, heavy], share, axis=0)
        high[heavy] = np.quantile(learned.features[:, heavy], 1 - share, axis=0)
        clipped = learned.with_features(np.clip(learned.features, low, high).astype(np.float32))
        yield Normalizer.fit(clipped, "minmax"), (low, high)


def world(name, case, n_queries):
    """Return queries to learn from and to test on, clicks, and how rankers are trained."""
    learned, test, relevant = data_of("istella-like" if name in TAILS else name, case, n_queries)
    if name in TAILS:
        learned, test = with_tails([learned, test], name, np.random.default_rng(case))
    scale = Normalizer.fit(learned, "minmax").foldable_scale()
    few = learned.subset(np.arange(20))
    labels = ClickLog.from_labels(few, relevant=relevant)
    settings = {"unit": "query", "optimizer": "dog", "rng": case}
    policy = train(few, labels, steps=1000, scale=scale, **settings).weights * scale
    log = simulate_clicks(
        learned, learned.features @ policy, CLICKS, bias=PositionBias(1.0), relevant=relevant,
        rng=case,
    ).detached()  # fmt: skip
    return learned, test, log, settings


def one(name, case, n_queries):
    """Return nDCG@10 by each scale, in float32 and in 8 bits, and the number of heavy tails."""
    learned, test, log, settings = world(name, case, n_queries)
    found = []
    for normalizer, between in scales_of(learned):
        cut = learned, test
        if between is not None:
            cut = [x.with_features(np.clip(x.features, *between).astype(np.float32)) for x in cut]
        codes = normalizer(cut[0]).compact(8)
        for dataset in (normalizer(cut[0]), codes):
            weights = train(dataset, log, steps=STEPS, **settings).weights
            scores = normalizer(cut[1]).features @ weights
            found.append(evaluate(scores, test, "ndcg@10")["ndcg@10"])
    return found, len(learned.compact_report(8).heavy)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=5)
    parser.add_argument("--queries", type=int, default=300, help="of the synthetic shapes")
    args = parser.parse_args()
    scales = ("minmax", "root-minmax", "clipped .001", "clipped .01")
    print(f"{'':13} {'heavy':>5} " + " ".join(f"{scale:>16}" for scale in scales))
    print(f"{'data':19} " + " ".join(f"{'float32':>8}{'8 bits':>8}" for _ in scales))
    for name in (*(name for name, folder in FOLDERS.items() if folder.is_dir()), *SHAPES, *TAILS):
        both = [one(name, case, args.queries) for case in range(args.logs)]
        values, heavy = (np.array(each) for each in zip(*both, strict=True))
        shown = values.mean(axis=0).reshape(-1, 2)
        print(
            f"{name:13} {heavy.mean():5.0f} " + " ".join(f"{a:8.4f}{b:8.4f}" for a, b in shown),
            flush=True,
        )


if __name__ == "__main__":
    main()
