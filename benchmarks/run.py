"""Run benchmarks one after the other, keep their results, and tell what changed since the last run.

    python benchmarks/run.py                                     all of them
    python benchmarks/run.py bench_alias bench_simulation        some
    python benchmarks/run.py bench_alias -- --largest 1000000    with options of the script

A run is compared with the last one of the same benchmark and options: all figures on the same
machine (CPU and cores), only ratios on another. The exit code is 1 if a benchmark failed or gave no
results, whatever changed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import history
from history import LIMITS
from output import table

from countersample.errors import CounterSampleError

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results" / "history.jsonl"


def parse(given: list[str], scripts: dict[str, Path]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and what follows "--", which is for the scripts."""
    parser = argparse.ArgumentParser(
        usage="run.py [--results FILE] [BENCHMARK ...] [-- OPTION ...]",
        description=__doc__,
        epilog="\n".join(["benchmarks:", *(f"  {name}" for name in scripts)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="BENCHMARK", help="such as bench_alias; or all")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FILE",
        help=f"the JSON lines that results are added to (default: {shown(RESULTS)})",
    )  # fmt: skip
    cut = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:cut])
    options.names = [Path(name).stem for name in options.names] or list(scripts)
    if unknown := [name for name in options.names if name not in scripts]:
        parser.error(f"no benchmark {' '.join(unknown)}, expected some of: {' '.join(scripts)}")
    return options, given[cut + 1 :]


def run(script: Path, arguments: list[str]) -> tuple[dict | None, str | None]:
    """Run a script, which prints its table; return what it told, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "told.json")
        done = subprocess.run(
            [sys.executable, str(script), *arguments, f"--json={told}"],
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        results = json.loads(told.read_text("utf-8")) if told.exists() else None
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    if done.returncode:
        return results, f"{lines[-1]} (python {shown(script)} says more)"
    print(done.stderr, end="", file=sys.stderr)  # warnings
    return results, None if results else "it gave no results"


def main(given: list[str]) -> int:
    scripts = {path.stem: path for path in sorted(FOLDER.glob("bench_*.py"))}
    options, arguments = parse(given, scripts)
    try:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.touch()  # fails before the work, not after it
        earlier = history.read(options.results)
    except OSError as error:
        raise CounterSampleError(f"{error}: name another file with --results") from error
    summary, changes, failed = [], [], []
    for name in options.names:
        print(f"\n== {name}", flush=True)
        told, problem = run(scripts[name], arguments)
        if problem:
            print(f"{name} failed: {problem}", flush=True)
            failed.append(name)
        if told:
            now = history.keep(options.results, name, arguments, told)
            row, changed = judge(history.run_before(earlier, now), now)
            earlier.append(now)
            summary.append(row)
            changes += changed
    if summary:
        print(f"\n== compared with the runs before\n{table(summary, left=2)}")
    if any(row["figures"] for row in summary):
        print(f"\n{'Changed' if changes else 'Nothing changed'} by more than {LIMITS}")
    if changes:
        print(table(changes, left=2))
    if failed:
        print(f"\n{len(failed)} of {len(options.names)} failed: {', '.join(failed)}")
    print(f"\nThe results are in {shown(options.results)}")
    return 1 if failed else 0


def judge(before: history.Record | None, now: history.Record) -> tuple[dict, list[dict]]:
    """Return a row of the summary, and rows of what changed."""
    if before is None:
        row = {"compared with": "nothing: the first run", "figures": "", "changed": ""}
        return {"benchmark": now["benchmark"], **row}, []
    compared, changed = history.compare(before, now)
    of = f"{before['date'][:16].replace('T', ' ')} UTC"
    of += f", commit {before['commit']}" if before["commit"] else ""
    of += "" if history.is_same_machine(before, now) else ", another machine: only ratios"
    row = {"compared with": of, "figures": compared, "changed": len(changed)}
    return {"benchmark": now["benchmark"], **row}, changed


def shown(path: Path) -> str:
    """Return a path as it is shortest from here."""
    return min(str(path), os.path.relpath(path), key=len)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CounterSampleError as error:
        sys.exit(f"run.py: {error}")
    except KeyboardInterrupt:
        sys.exit("\nStopped; what had ended is kept.")
