"""`CounterSampler` beside PyTorch's `WeightedRandomSampler`: the wait for an index, speed, memory.

    .venv/bin/python benchmarks/bench_sampler.py [--largest 100_000_000] [--json]

Both get the same weights and make n draws an epoch, those of a log of n clicks at ranks 1 to 139
with a position bias of 1/rank. "build" is what is done once: from the log to the table. "first" is
the wait for the first index of an epoch after that, which PyTorch has in every epoch; "with build"
is both. "draws/s" is that of a whole epoch, one index at a time, its wait included. Times are the
best of three rounds in one process, the two in turns. "memory" is the peak of one epoch on top of
the log (of the weights, for PyTorch), in a process of its own. PyTorch takes at most 2²⁴ weights.
10⁸ clicks need 4 GB of memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import deque
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from output import make_parser, output

from countersample import ClickLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SIZES = (1_000_000, 10_000_000, 16_000_000, 100_000_000)
TORCH_TAKES = 2**24
ROUNDS = 3


def from_log(log: ClickLog) -> Iterable[int]:
    from countersample.torch import CounterSampler

    return CounterSampler(log, unit="click")


def from_weights(weights: Any) -> Iterable[int]:
    from torch.utils.data import WeightedRandomSampler

    return WeightedRandomSampler(weights, len(weights))


def weights_of(log: ClickLog) -> Any:
    import torch

    return torch.from_numpy(log.weights)


# What each is given, and what makes it
SAMPLERS: dict[str, tuple[Callable[[ClickLog], Any], Callable[[Any], Iterable[int]]]] = {
    "countersample CounterSampler": (lambda log: log, from_log),
    "torch WeightedRandomSampler": (weights_of, from_weights),
}


def samplers_for(n: int) -> list[str]:
    return [name for name in SAMPLERS if n <= TORCH_TAKES or not name.startswith("torch")]


def make_log(n: int) -> ClickLog:
    ranks = np.random.default_rng(0).integers(1, 140, n, dtype=np.int32)
    return ClickLog(np.arange(n, dtype=np.int32), np.zeros(n, np.int32), 1 / ranks)


def timed(call: Callable[..., Any], *arguments: object) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - start, result


def one_round(make: Callable[[Any], Iterable[int]], given: object) -> tuple[float, float, float]:
    to_build, sampler = timed(make, given)
    to_first, _ = timed(lambda: next(iter(sampler)))
    to_draw, _ = timed(lambda: deque(sampler, maxlen=0))
    return to_build, to_first, to_draw


def measure(n: int) -> list[dict[str, Any]]:
    log = make_log(n)
    names = samplers_for(n)
    given = {name: SAMPLERS[name][0](log) for name in names}
    rounds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            rounds[name].append(one_round(SAMPLERS[name][1], given[name]))
    rows = []
    for name in names:
        to_build, to_first, to_draw = map(min, zip(*rounds[name], strict=True))
        times = {"build": to_build, "first": to_first, "draws/s": n / to_draw}
        rows.append({"clicks": n, "sampler": name, **times})
    return rows


def peak_memory(n: int, name: str) -> int:
    """Return the bytes of one epoch in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, "--largest", str(n)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory_of(name: str, n: int) -> int:
    prepare, make = SAMPLERS[name]
    deque(make(prepare(make_log(2))), maxlen=0)  # imports and compiled code
    given = prepare(make_log(n))
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of making the log
    before = memory("VmRSS")
    deque(make(given), maxlen=0)
    return memory("VmHWM") - before


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'clicks':>11}  {'sampler':28}{'build':>13}{'first':>13}{'with build':>14}", end="")
    print(f"{'draws/s':>12}{'memory':>11}")
    for row in rows:
        build, first = 1000 * row["build"], 1000 * row["first"]
        print(f"{row['clicks']:>11,}  {row['sampler']:28}{build:>10,.1f} ms", end="")
        print(f"{first:>10,.1f} ms{build + first:>11,.1f} ms{row['draws/s']:>12,.0f}", end="")
        print(f"{row['memory'] / 2**20:>8,.0f} MB" if "memory" in row else f"{'–':>11}")
    print("\nTo the first index, times as fast as torch:")
    for ours, torchs in pairwise(rows):
        if ours["clicks"] == torchs["clicks"]:
            built = torchs["first"] / ours["first"]
            in_all = (torchs["build"] + torchs["first"]) / (ours["build"] + ours["first"])
            print(f"{ours['clicks']:>11,}  {built:,.0f} with the table built, {in_all:.1f} without")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--largest", type=int, default=16_000_000, help="the largest n, up to 10⁸")
    parser.add_argument("--memory-of", choices=SAMPLERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not find_spec("torch"):
        print("torch is not installed")
        return
    if arguments.memory_of:
        print(memory_of(arguments.memory_of, arguments.largest))
        return
    sizes = [n for n in SIZES if n <= arguments.largest]
    measure(2)  # imports and compiled code
    rows = []
    for n in sizes:
        rows += measure(n)
    if Path("/proc/self/clear_refs").exists():
        for row in rows:
            row["memory"] = peak_memory(row["clicks"], row["sampler"])
    output(rows, show, as_json=arguments.json)


if __name__ == "__main__":
    main()
