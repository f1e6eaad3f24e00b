"""nDCG@10 on true labels of every ranker, learned from the same biased clicks.

``python benchmarks/quality/comparison.py`` runs what is not in its results file yet (a line of JSON
for each ranking, so that a stopped comparison goes on), and prints a table: the mean over logs with
its 95 % interval, and the seconds of one core. ``--table`` only prints, ``--markdown`` in Markdown;
``--against`` prints differences to the best of the libraries' own, log by log. What is compared is
in `methods.py` and `libraries.py`, on which data in `worlds.py`. ``--order shown`` hands the
libraries their held-out rows in the order shown, ``--growth whole`` grows their trees on all rows
and features, ``--budget`` gives them other seconds, to see what that does.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from itertools import product
from pathlib import Path

for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):  # before anything reads them
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from libraries import GROWTHS  # noqa: E402
from methods import BUDGET, FROM_CLICKS, FROM_LABELS, METHODS, WITH_UNSHOWN  # noqa: E402
from scipy import stats  # noqa: E402
from worlds import is_here, make  # noqa: E402

from countersample import evaluate  # noqa: E402

METRIC = "ndcg@10"
DATA = ("MQ2008", "OHSUMED", "yahoo-like", "istella-like")
CONDITIONS = {  # γ, and how many items are shown
    "all, γ = 1": (1.0, None),
    "all, γ = 1.5": (1.5, None),
    "top 10, γ = 1": (1.0, 10),
}
LABELS = "labels"  # the condition of full supervision, which looks at no click
PEERS = ("LightGBM lambdarank", "XGBoost")
SETTINGS = ("order", "growth", "budget")  # of the libraries
KEY = ("data", "case", "condition", *SETTINGS, "method")


def read(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def run(options):
    done = {tuple(row[name] for name in KEY) for row in read(options.out)}
    settings = {name: getattr(options, name) for name in SETTINGS}
    # Log by log, so that columns have equally many wherever it is stopped
    for data, case in sorted(product(options.data, range(options.logs)), key=lambda each: each[1]):
        if not is_here(data):
            print(f"{data} is not beside the project (../shared/data): left out")
            continue
        for condition in options.conditions:
            gamma, top = CONDITIONS[condition]
            todo = [(condition, each) for each in FROM_CLICKS if top or each not in WITH_UNSHOWN]
            if condition == options.conditions[0]:
                todo += [(LABELS, each) for each in FROM_LABELS]
            todo = [
                (under, each) for under, each in todo
                if each in options.methods
                and (data, case, under, *settings.values(), each) not in done
            ]  # fmt: skip
            if todo:
                world = make(data, case=case, gamma=gamma, top=top)
                for under, method in todo:
                    rank(world, data, case, under, method, settings, options.out)


def rank(world, data, case, condition, method, settings, out):
    begin = time.process_time()
    found = METHODS[method](world, case, **settings)
    seconds = round(time.process_time() - begin, 2)
    for way, ranked in found.items():
        value = evaluate(ranked.scores, world.test, METRIC, ties="expected")[METRIC]
        row = {
            "data": data, "case": case, "condition": condition, **settings,
            "method": method, "way": way, METRIC: round(value, 5), "seconds": seconds,
        } | ranked.chosen  # fmt: skip
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(*row.values(), flush=True)


def table_of(rows, settings):
    """Return the values of each log by name of the row, data and condition; and the seconds."""
    values, seconds = defaultdict(dict), defaultdict(list)
    rows = [row for row in rows if all(row[name] == settings[name] for name in SETTINGS)]
    columns = {(row["data"], row["condition"]) for row in rows if row["method"].startswith(PEERS)}
    names = list(METHODS)
    for row in sorted(rows, key=lambda row: names.index(row["method"])):
        name = row["method"] + (f", trees {row['way']}" if row["way"] else "")
        for condition in CONDITIONS if row["condition"] == LABELS else [row["condition"]]:
            if (row["data"], condition) in columns:
                values[name, row["data"], condition][row["case"]] = row[METRIC]
                seconds[name, row["data"], condition].append(row["seconds"])
    return values, seconds


def with_interval(values, sign=""):
    """Write the mean, ± half of its 95 % interval (Student's t, over logs)."""
    if len(values) < 2:
        return f"{np.mean(values):{sign}.4f}"
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{np.mean(values):{sign}.4f} ± {half:.4f}".replace("-", "−")


def best_peer(values, data, condition):
    """Return the row of the libraries' own that has the best mean in a column."""
    means = {
        name: np.mean(list(found.values()))
        for (name, *column), found in values.items()
        if column == [data, condition] and name.startswith(PEERS)
    }
    return max(means, key=means.get)


def against(values, name, data, condition):
    """Write the difference to the best of the libraries' own, paired by log."""
    own = values[name, data, condition]
    other = values[best_peer(values, data, condition), data, condition]
    return with_interval([own[case] - other[case] for case in own if case in other], sign="+")


def show(options):
    values, seconds = table_of(read(options.out), vars(options))
    for data in options.data:
        conditions = [each for each in options.conditions if any(
            column == [data, each] for _, *column in values)]  # fmt: skip
        if not conditions:
            continue
        wanted = dict.fromkeys(name for name, of, _ in values if of == data)
        names = [each for each in wanted if each.split(", trees by")[0] in options.methods]
        lines = [[data, *conditions]]
        for name in names:
            line = [name]
            for condition in conditions:
                key = name, data, condition
                if key not in values:
                    line.append("–")
                elif options.against:
                    line.append(against(values, *key))
                else:
                    mean = np.mean(seconds[key])
                    line.append(f"{with_interval(list(values[key].values()))} ({mean:.1f})")
            lines.append(line)
        if options.against:
            best = [best_peer(values, data, each) for each in conditions]
            lines.append(["the best of the libraries", *best])
        write(lines, markdown=options.markdown)


def write(lines, *, markdown):
    if markdown:
        print(f"| {' | '.join(lines[0])} |\n|---|{'--:|' * (len(lines[0]) - 1)}")
        print("\n".join(f"| {' | '.join(line)} |" for line in lines[1:]), end="\n\n")
        return
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells))
    print()


def warm_up(names):
    """Compile and import what a first run would pay for."""
    world = make("tiny", case=0, gamma=1.0)
    for name in names:
        METHODS[name](world, 0, order="shuffled", growth="sampled", budget=BUDGET)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("comparison.jsonl"))
    parser.add_argument("--data", nargs="*", default=DATA, choices=DATA)
    parser.add_argument("--conditions", nargs="*", default=list(CONDITIONS), choices=CONDITIONS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--logs", type=int, default=5, help="folds of real data, at most 5")
    parser.add_argument("--order", choices=["shuffled", "shown"], default="shuffled")
    parser.add_argument("--growth", choices=GROWTHS, default="sampled")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of the libraries")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--against", action="store_true", help="differences to the best library")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if not options.table:
        warm_up(options.methods)
        run(options)
    show(options)


if __name__ == "__main__":
    main()
