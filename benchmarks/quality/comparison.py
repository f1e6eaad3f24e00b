"""nDCG@10 on true labels of every ranker, learned from the same biased clicks.

``python benchmarks/quality/comparison.py`` runs what is not in its results file yet (a line of JSON
for each run, so that a stopped comparison goes on), and prints a table. ``--table`` only prints,
``--markdown`` in Markdown. What is compared is in `methods.py`, on which data in `worlds.py`.
"""

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np
from methods import METHODS
from worlds import MQ2008, make

from countersample import evaluate

METRIC = "ndcg@10"
GAMMAS = (1.0, 1.5)


def cases(options):
    """Yield the worlds of the comparison: name, case, γ."""
    for name in options.data:
        if name == "MQ2008" and not MQ2008.is_dir():
            print("MQ2008 is not beside the project (../shared/data): left out")
            continue
        yield from product([name], range(5 if name == "MQ2008" else options.seeds), GAMMAS)


def read(path):
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return {(row["data"], row["case"], row["gamma"], row["method"]): row for row in rows}


def run(options):
    done = read(options.out)
    for name, case, gamma in cases(options):
        left = [each for each in options.methods if (name, case, gamma, each) not in done]
        if not left:
            continue
        world = make(
            name, case=case, gamma=gamma, n_sessions=options.sessions, n_queries=options.queries
        )
        for method in left:
            begin = time.perf_counter()
            scores = METHODS[method](world, case)
            seconds = time.perf_counter() - begin
            row = {
                "data": name, "case": case, "gamma": gamma, "method": method,
                METRIC: evaluate(scores, world.test, METRIC)[METRIC], "seconds": round(seconds, 2),
            }  # fmt: skip
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{name} {case} γ={gamma:g} {method}: {row[METRIC]:.4f} ({seconds:.1f} s)",
                  flush=True)  # fmt: skip


def show(options):
    rows = list(read(options.out).values())
    names = [name for name in options.data if any(row["data"] == name for row in rows)]
    columns = list(product(names, GAMMAS))
    head = ["nDCG@10 (seconds)", *(f"{name}, γ = {gamma:g}" for name, gamma in columns)]
    lines = []
    for method in METHODS:
        line = [method]
        for name, gamma in columns:
            found = [
                row for row in rows
                if (row["data"], row["gamma"], row["method"]) == (name, gamma, method)
            ]  # fmt: skip
            if not found:
                line.append("–")
                continue
            mean = np.mean([row[METRIC] for row in found])
            seconds = np.mean([row["seconds"] for row in found])
            line.append(f"{mean:.4f} ({seconds:.1f})")
        lines.append(line)
    if options.markdown:
        print("| " + " | ".join(head) + " |\n|---|" + "--:|" * len(columns))
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
        return
    widths = [max(len(line[k]) for line in [head, *lines]) for k in range(len(head))]
    for line in [head, *lines]:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("comparison.jsonl"))
    parser.add_argument("--data", nargs="*", default=["MQ2008", "yahoo-like", "istella-like"])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1500, help="of synthetic data")
    parser.add_argument("--seeds", type=int, default=3, help="of synthetic data")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if not options.table:
        run(options)
    show(options)


if __name__ == "__main__":
    main()
