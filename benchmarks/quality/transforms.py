"""What transforms of features buy a linear ranker: nDCG@10 with each, and with the one chosen.

    python benchmarks/quality/transforms.py [--logs 3] [--queries 300]

The worlds of `heavy_tails.py`, with its clicks: real judgements where they are, both synthetic
shapes, and four made of the Istella shape, in which every feature has a heavy tail. By each log
`CounterSampleRanker` is trained as it is (`normalize="minmax"`), with each transform, and with
``"auto"``, which chooses by held-out clicks. "auto chose" counts what was chosen, and
"times" is how many times the CPU seconds of no transform that took.
"""

import argparse
import time
from collections import Counter

import numpy as np
from compact import SHAPES
from heavy_tails import TAILS, world
from worlds import FOLDERS

from countersample import CounterSampleRanker, evaluate
from countersample.data.preprocessing import CANDIDATES


def one(name, case, n_queries):
    """Return nDCG@10 with each transform and with the chosen one, its name, and the times."""
    learned, test, log, _ = world(name, case, n_queries)
    found, seconds = [], []
    for transform in (*CANDIDATES, "auto"):
        begin = time.process_time()
        ranker = CounterSampleRanker(feature_transform=transform, random_state=case).fit_log(
            learned, log
        )
        seconds.append(time.process_time() - begin)
        found.append(evaluate(ranker, test, "ndcg@10")["ndcg@10"])
    return found, ranker.path_.transform or "none", seconds[-1] / seconds[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=3)
    parser.add_argument("--queries", type=int, default=300, help="of the synthetic shapes")
    parser.add_argument("--data", nargs="*", help="some of the worlds")
    args = parser.parse_args()
    shown = [*("none" if name is None else name for name in CANDIDATES), "auto"]
    print(f"{'data':13} " + " ".join(f"{name:>8}" for name in shown) + "  times  auto chose")
    real = [name for name, folder in FOLDERS.items() if folder.is_dir()]
    for name in args.data or (*real, *SHAPES, *TAILS):
        each = [one(name, case, args.queries) for case in range(args.logs)]
        values, chosen, times = zip(*each, strict=True)
        told = ", ".join(f"{what} {n}" for what, n in Counter(chosen).most_common())
        print(
            f"{name:13} " + " ".join(f"{value:8.4f}" for value in np.mean(values, axis=0))
            + f"  {np.mean(times):5.1f}  {told}",
            flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
