"""Weighted draws from n weights: this package's alias table, PyTorch's samplers and NumPy's choice.

    .venv/bin/python benchmarks/bench_alias.py [--largest 100_000_000] [--json]

"build" is what is done once; the peers have nothing to keep and go through all weights again in
each call. "first draw" is build and a call for one draw; "draws/s" is the rate of a call for
1,000,000, without build. Weights are those of clicks at ranks 1 to 139 with a position bias of
1/rank. Times are the best of three after a first call. 10⁸ weights need 3 GB of memory.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from output import make_parser, output

from countersample import AliasTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Draw = Callable[[int], object]
    Weights = NDArray[np.float64]

N_DRAWS = 1_000_000
SMALLEST = 100_000
REPEATS = 3


def alias_table(weights: Weights) -> Draw:
    table, rng = AliasTable(weights), np.random.default_rng(0)
    return lambda size: table.sample(size, rng)


def numpy_choice(weights: Weights) -> Draw:
    rng = np.random.default_rng(0)
    probabilities = weights / weights.sum()
    return lambda size: rng.choice(len(weights), size, p=probabilities)


def torch_multinomial(weights: Weights) -> Draw:
    import torch

    tensor = torch.from_numpy(weights)
    return lambda size: torch.multinomial(tensor, size, replacement=True)


def torch_sampler(weights: Weights) -> Draw:
    import torch

    tensor = torch.from_numpy(weights)
    return lambda size: list(torch.utils.data.WeightedRandomSampler(tensor, size))


SAMPLERS: dict[str, tuple[str, Callable[[Weights], Draw]]] = {
    "countersample AliasTable": ("countersample", alias_table),
    "numpy Generator.choice(p=)": ("numpy", numpy_choice),
    "torch.multinomial": ("torch", torch_multinomial),
    "torch WeightedRandomSampler": ("torch", torch_sampler),
}


def timed(call: Callable[..., Any], *arguments: object) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - start, result


def measure(build: Callable[[Weights], Draw], weights: Weights) -> dict[str, float]:
    build(weights[:2])(1)  # imports and compiled code
    figures = []
    for _ in range(REPEATS):
        draw = None  # never two of them in memory
        to_build, draw = timed(build, weights)
        figures.append((to_build, to_build + timed(draw, 1)[0], timed(draw, N_DRAWS)[0]))
    to_build, to_first, to_draw = map(min, zip(*figures, strict=True))
    return {"build": to_build, "first draw": to_first, "draws/s": N_DRAWS / to_draw}


def run(largest: int) -> list[dict[str, Any]]:
    rows = []
    n = SMALLEST
    while n <= largest:
        weights = np.random.default_rng(0).integers(1, 140, n).astype(np.float64)
        for name, (module, build) in SAMPLERS.items():
            row: dict[str, Any] = {"weights": n, "sampler": name}
            if not find_spec(module):
                row["reason"] = "not installed"
            else:
                try:
                    row |= measure(build, weights)
                except (RuntimeError, ValueError, MemoryError) as error:
                    row["reason"] = f"refused: {str(error).splitlines()[0]}"
            rows.append(row)
        n *= 10
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'weights':>11}  {'sampler':28}{'build':>11}{'first draw':>13}{'draws/s':>14}")
    for row in rows:
        start = f"{row['weights']:>11,}  {row['sampler']:28}"
        if "reason" in row:
            print(f"{start}  {row['reason']}")
            continue
        times = f"{1000 * row['build']:>8,.1f} ms{1000 * row['first draw']:>10,.1f} ms"
        print(f"{start}{times}{row['draws/s']:>14,.0f}")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--largest", type=int, default=10_000_000, help="the largest n, up to 10⁸")
    arguments = parser.parse_args()
    rows = run(arguments.largest)
    output(rows, show, as_json=arguments.json)


if __name__ == "__main__":
    main()
