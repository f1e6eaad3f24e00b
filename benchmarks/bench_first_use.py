"""How much longer each command takes on a machine where it never ran, and what it compiles there.

``python benchmarks/bench_first_use.py`` makes small data, runs each command with an empty cache of
numba, and again with what the first run left there, each in a process of its own, as a user does.
``python benchmarks/bench_first_use.py fit rank`` runs only those, and what they read.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from output import make_parser, output, table

SHOP = Path(__file__).parents[1] / "examples" / "make_shop_log.py"
FEATURES = ["--features", "shop/features.parquet"]
COMMANDS = {  # in an order in which each finds what it reads
    "data make": ["data", "make", "yahoo-like", "yahoo.txt", "--queries", "200"],
    "data list": ["data", "list"],
    "data info": ["data", "info", "yahoo.txt"],
    "data convert": ["data", "convert", "yahoo.txt", "yahoo.parquet"],
    "simulate": ["simulate", "yahoo.txt", "-o", "clicks.parquet", "--clicks", "20000"],
    "train": ["train", "yahoo.txt", "clicks.parquet", "-o", "ranker.json", "--no-evaluation"],
    "evaluate": ["evaluate", "ranker.json", "yahoo.txt"],
    "rank": ["rank", "ranker.json", "yahoo.txt", "-o", "scores.txt"],
    "log check": ["log", "check", "shop/impressions.parquet"],
    "propensity": ["propensity", "shop/impressions.parquet", "-o", "looks.json"],
    "fit": ["fit", "shop/impressions.parquet", *FEATURES, "-o", "shop.json"],
    "compare": ["compare", "shop.json", "logged", "--log", "shop/impressions.parquet", *FEATURES],
    "export": ["export", "shop.json", "--to", "solr", "-o", "solr.json"],
    "demo": ["demo"],
}


def run(command, folder, cache):
    """Run a command; return its seconds and its CPU seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def measure(name, command, folder):
    """Return a row of the table: seconds of the first and the second run, and what it compiled."""
    with tempfile.TemporaryDirectory() as cache:
        first, first_cpu = run(command, folder, cache)
        compiled = len(list(Path(cache).rglob("*.nbc")))  # a file for each kernel and signature
        second, second_cpu = run(command, folder, cache)
    return {
        "command": name,
        "first s": round(first, 2),
        "second s": round(second, 2),
        "longer by s": round(first - second, 2),
        "CPU, longer by s": round(first_cpu - second_cpu, 2),
        "compiled": compiled,
    }


def main():
    parser = make_parser(__doc__)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help="such as 'data info'")
    args = parser.parse_args()
    unknown = set(args.commands) - set(COMMANDS)
    if unknown:
        parser.error(f"no command {sorted(unknown)}, expected some of {list(COMMANDS)}")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        run([str(SHOP), "shop"], folder, folder / "cache")
        rows = []
        for name, arguments in COMMANDS.items():
            command = ["-m", "countersample", *arguments]
            if not args.commands or name in args.commands:
                rows.append(measure(name, command, folder))
            elif name in ("data make", "simulate", "train", "fit"):  # what others read
                run(command, folder, folder / "cache")
    output(rows, table, as_json=args.json)


if __name__ == "__main__":
    main()
