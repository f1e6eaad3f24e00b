"""Compare the speed of two revisions of this repository, in turns: a step, and the default fit.

``python benchmarks/bench_revisions.py --before REVISION`` checks the revision out into a temporary
folder. Processes of the two source trees then take turns, with the same interpreter and libraries:

step
    training of the linear ranker with CounterSample, batch size 1, on the Yahoo shape
fit
    ``CounterSampleRanker().fit_log`` with default options, on the Yahoo shape

The fastest of all rounds counts, because other work on the machine only adds time. A ratio above
one means that the present tree is faster.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from output import make_parser, output, table

ROOT = Path(__file__).resolve().parents[1]
# Only public names that both revisions have.
WORK = """
import json, sys, time
from countersample import CounterSampleRanker, PositionBias, simulate_clicks, synthetic, train
data = synthetic("yahoo-like", n_queries=int(sys.argv[1]), rng=1)
log = simulate_clicks(data, data.features[:, 0], 50_000, bias=PositionBias(1.0), relevant=3, rng=0)
options = {"learning_rate": 1e-5, "rng": 0}
train(data, log, steps=100, **options)  # compile
small = synthetic("yahoo-like", n_queries=30, rng=1)
CounterSampleRanker(random_state=0).fit_log(
    small, simulate_clicks(small, small.features[:, 0], 500, rng=0)
)
seconds = {}
begin = time.perf_counter()
train(data, log, steps=int(sys.argv[2]), **options)
seconds["step"] = (time.perf_counter() - begin) / int(sys.argv[2])
begin = time.perf_counter()
CounterSampleRanker(random_state=0).fit_log(data, log)
seconds["fit"] = time.perf_counter() - begin
print(json.dumps(seconds))
"""


def run(source: Path, queries: int, steps: int) -> dict[str, float]:
    """Return the seconds of each piece of work with one source tree."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, "-c", WORK, str(queries), str(steps)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measure(before: Path, rounds: int, queries: int, steps: int) -> list[dict]:
    trees = {"before": before / "src", "now": ROOT / "src"}
    best: dict[str, dict[str, float]] = {name: {} for name in trees}
    for _ in range(rounds):
        for name, source in trees.items():
            for work, seconds in run(source, queries, steps).items():
                best[name][work] = min(seconds, best[name].get(work, seconds))
    return [
        {
            "work": work,
            "before, s": float(f"{best['before'][work]:.3g}"),
            "now, s": float(f"{seconds:.3g}"),
            "ratio": round(best["before"][work] / seconds, 2),
        }
        for work, seconds in best["now"].items()
    ]


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--before", default="HEAD~1", help="the revision to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=300_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "before")
        git = shutil.which("git") or "git"
        subprocess.run([git, "clone", "-q", str(ROOT), str(tree)], check=True)
        subprocess.run([git, "-C", str(tree), "checkout", "-q", args.before], check=True)
        rows = measure(tree, args.rounds, args.queries, args.steps)
    output(rows, lambda rows: table(rows, left=1), as_json=args.json)


if __name__ == "__main__":
    main()
