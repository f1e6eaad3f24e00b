"""Steps a second of training, on one core, beside PyTorch, JAX, NumPy and a bare read of memory.

    .venv/bin/python benchmarks/bench_training.py [--queries N] [--largest N] [--json]

All take the same steps, but where a row says otherwise: CounterSample by click, SGD, batch size 1,
on data of the shape of Yahoo and Istella that is far larger than the cache. They take turns in
short bursts, and the best burst of each counts, so a busy machine disturbs all alike; every burst
reads as many rows of features as expected, to one percent, so that none is lucky. Ours also draws,
and keeps the averaged iterate, which the peers do not.

PyTorch is autograd on the rows of a query (a tensor made beforehand: no loader, no padding). JAX is
one compiled scan over all steps of a burst, on queries padded to the longest. NumPy is the obvious
loop. The bare read adds up the float32 feature blocks of the same draws and does nothing else; "16
bits" and "8 bits" read codes instead (`RankingDataset.compact`). JAX and PyTorch are left out where
they are not installed.

The second table: how the cost of a step changes with the number of clicks (`--largest`), with the
time and the memory that it takes to build the plan.
"""

from __future__ import annotations

import gc
import os
import time
from typing import TYPE_CHECKING, Any

if hasattr(os, "sched_setaffinity"):  # before any library counts the cores
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numba
import numpy as np
from output import make_parser, output

from countersample import simulate_clicks, synthetic
from countersample.clicks import ClickLog
from countersample.training import TrainingOptions, runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from countersample import RankingDataset

SHAPES = ("yahoo-like", "istella-like")
RATE = 1e-3
RATES: list[float | None] = [1e-4 * 2.0**k for k in range(8)]
BURST = 256  # steps
ROUNDS = 60
# What must hold: the figure, what it is divided by, and at least how often
BARS = (
    ("ours", "PyTorch", 40.0),
    ("ours", "NumPy", 2.5),
    ("ours", "bare read", 0.6),
    ("ours, by query", "ours", 0.6),
    ("ours, DoG", "ours", 0.9),
    ("ours, 8 rates at once", "ours", 5.0),
    ("ours, 16 bits", "ours", 1.25),
    ("ours, 8 bits", "ours", 1.9),  # of the Yahoo shape; 1.6 of the other
    ("ours, 8 bits", "bare read", 1.3),
)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=4000, help="of each shape")
    parser.add_argument("--clicks", type=int, default=1_000_000)
    parser.add_argument("--largest", type=int, default=10**7, help="clicks of the second table")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report: dict[str, Any] = {"steps/s": {}, "ratios": [], "clicks": []}
    for shape in SHAPES:
        data = synthetic(shape, n_queries=options.queries, rng=options.seed).normalized()
        scores = data.features @ np.random.default_rng(options.seed).normal(size=data.n_features)
        log = simulate_clicks(data, scores, options.clicks, rng=options.seed)
        speeds = measure(data, log, options.rounds, options.seed)
        report["steps/s"][shape] = speeds
        report["ratios"] += ratios(shape, speeds)
        if shape == SHAPES[0]:
            report["clicks"] = by_clicks(data, options.largest, options.rounds, options.seed)
    output(report, text, as_json=options.json)


# -- what takes part: functions of the queries and items drawn, each a burst of steps -----------


class Ours:
    """Runs of the package, which draw for themselves."""

    def __init__(
        self, data: RankingDataset, log: ClickLog, rates: list[float | None], **settings: Any
    ) -> None:
        options = TrainingOptions(**settings, steps=10**12, checkpoints=0)
        (self.setup,) = runs.Setup.of(data, log, options)
        self.run = runs.Run(self.setup, rates, np.random.default_rng(len(rates)))

        sizes = data.query_sizes[self.setup.examples.query]
        self.rows = float(self.setup.plan.probabilities @ sizes) * BURST

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw the examples of a burst; the generator then is where it was just before."""
        while True:
            state = rng.bit_generator.state
            drawn = self.setup.plan.draw(BURST, rng)
            queries = self.setup.examples.query[drawn]
            if abs(self.setup.dataset.query_sizes[queries].sum() / self.rows - 1) < 0.01:
                rng.bit_generator.state = state
                return drawn

    def __call__(self) -> None:
        """Take the steps of a burst."""
        self.run.advance()


def numpy_loop(data: RankingDataset) -> Callable[..., None]:
    blocks = [data.features[a:b] for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
    w = np.zeros(data.n_features, np.float32)

    def burst(queries: Any, items: Any, scale: float) -> None:
        nonlocal w
        for query, item in zip(queries.tolist(), items.tolist(), strict=True):
            x = blocks[query]
            s = x @ w
            coefficients = (s[item] - s < 1).astype(np.float32)
            coefficients[item] -= coefficients.sum()
            w -= np.float32(RATE * scale) * (coefficients @ x)

    return burst


def pytorch(data: RankingDataset) -> Callable[..., None]:
    import torch

    torch.set_num_threads(1)
    rows = torch.from_numpy(data.features)
    blocks = [rows[a:b] for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
    w = torch.zeros(data.n_features, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=RATE)

    def burst(queries: Any, items: Any, scale: float) -> None:
        for query, item in zip(queries.tolist(), items.tolist(), strict=True):
            optimizer.zero_grad()
            scores = blocks[query] @ w
            loss = scale * torch.clamp(1 - (scores[item] - scores), min=0).sum()
            loss.backward()
            optimizer.step()

    return burst


def jax_scan(data: RankingDataset) -> Callable[..., None]:
    import jax
    import jax.numpy as jnp

    longest = int(data.query_sizes.max())
    flat = jnp.asarray(np.concatenate([data.features, np.zeros((longest, data.n_features), "f4")]))
    offsets, sizes = jnp.asarray(data.offsets[:-1]), jnp.asarray(data.query_sizes)

    @jax.jit
    def steps(flat: Any, w: Any, queries: Any, items: Any, scale: Any) -> Any:
        def loss(w: Any, x: Any, size: Any, item: Any) -> Any:
            scores = x @ w
            hinges = jnp.maximum(0, 1 - (scores[item] - scores))
            return scale * jnp.sum(jnp.where(jnp.arange(longest) < size, hinges, 0))

        def step(w: Any, drawn: Any) -> Any:
            query, item = drawn
            x = jax.lax.dynamic_slice(flat, (offsets[query], 0), (longest, flat.shape[1]))
            return w - RATE * jax.grad(loss)(w, x, sizes[query], item), None

        return jax.lax.scan(step, w, (queries, items))[0]

    w = jnp.zeros(data.n_features)

    def burst(queries: Any, items: Any, scale: float) -> None:
        nonlocal w
        w = steps(flat, w, queries, items, scale).block_until_ready()

    return burst


@numba.njit(fastmath=True)
def _read(features: Any, offsets: Any, queries: Any) -> float:
    total = np.float32(0)
    for query in queries:
        for row in range(offsets[query], offsets[query + 1]):
            x = features[row]
            for column in range(len(x)):
                total += x[column]
    return total


# -- measuring ---------------------------------------------------------------------------------


def measure(data: RankingDataset, log: ClickLog, rounds: int, seed: int) -> dict[str, float | None]:
    """Return the steps a second of each."""
    ours = {
        "ours": Ours(data, log, [RATE]),
        "ours, by query": Ours(data, log, [RATE], unit="query"),
        "ours, DoG": Ours(data, log, [None], optimizer="dog"),
        "ours, 8 rates at once": Ours(data, log, RATES),
        "ours, 16 bits": Ours(data.compact(16), log, [RATE]),
        "ours, 8 bits": Ours(data.compact(8), log, [RATE]),
    }
    peers: dict[str, Callable[..., object]] = {
        "bare read": lambda queries, *_: _read(data.features, data.offsets, queries),
        "NumPy": numpy_loop(data),
    }
    for name, make in (("PyTorch", pytorch), ("JAX", jax_scan)):
        try:
            peers[name] = make(data)
        except ImportError:
            continue  # and shown as not installed
    setup = ours["ours"].setup
    scale = float(setup.plan.multipliers[0])
    rng = np.random.default_rng(seed)
    best: dict[str, float] = {}

    def clock(name: str, burst: Callable[..., object], *arguments: Any) -> None:
        start = time.perf_counter()
        burst(*arguments)
        best[name] = min(best.get(name, np.inf), (time.perf_counter() - start) / BURST)

    for number in range(rounds + 1):
        for name, run in ours.items():
            run.draw(run.run.rng)  # and the run draws the same again
            clock(name, run)
        for name, burst in peers.items():
            drawn = ours["ours"].draw(rng)
            rng.random(1)  # to draw others next time
            queries, items = setup.examples.query[drawn], setup.examples.item[drawn]
            clock(name, burst, queries, items, scale)
        if number == 0:  # which has compiled
            best.clear()
    best["ours, 8 rates at once"] /= 8  # each takes the steps of eight runs
    return {name: 1 / best[name] if name in best else None
            for name in (*ours, "bare read", "NumPy", "PyTorch", "JAX")}  # fmt: skip


def ratios(shape: str, speeds: dict[str, float | None]) -> list[dict[str, Any]]:
    rows = []
    for name, other, bar in BARS:
        top, below = speeds[name], speeds[other]
        ratio = top / below if top and below else None
        rows.append({"shape": shape, "ratio": f"{name} / {other}", "found": ratio, "bar": bar})
    return rows


def by_clicks(data: RankingDataset, largest: int, rounds: int, seed: int) -> list[dict[str, Any]]:
    """Return the cost of a step by the number of clicks, on random logs."""
    rng = np.random.default_rng(seed)
    rows = []
    n_clicks = 10**5
    while n_clicks <= largest:
        query = rng.integers(0, data.n_queries, n_clicks, dtype=np.int32)
        item = (rng.random(n_clicks, dtype=np.float32) * data.query_sizes[query]).astype(np.int32)
        log = ClickLog(query, item, 1 / (1.0 + item))
        start = time.perf_counter()
        ours = Ours(data, log, [RATE])
        seconds = time.perf_counter() - start
        best = np.inf
        for _ in range(rounds):
            ours.draw(ours.run.rng)
            start = time.perf_counter()
            ours()
            best = min(best, (time.perf_counter() - start) / BURST)
        rows.append(
            {"clicks": n_clicks, "µs a step": best * 1e6, "plan s": seconds, "plan MB": size(ours)}
        )
        del log, ours, query, item
        gc.collect()
        n_clicks *= 10
    return rows


def size(ours: Ours) -> float:
    """Return the megabytes of what a plan and its examples keep."""
    owners = [ours.setup, ours.setup.plan, ours.setup.examples]
    table = vars(ours.setup.plan).get("_table")
    owners += [table] if table is not None else []
    arrays = {id(x): x for o in owners for x in vars(o).values() if isinstance(x, np.ndarray)}
    return sum(array.nbytes for array in arrays.values()) / 1e6


# -- showing -----------------------------------------------------------------------------------


def text(report: dict[str, Any]) -> str:
    names = list(next(iter(report["steps/s"].values())))
    speeds = [
        {"steps/s": name, **{shape: of[name] for shape, of in report["steps/s"].items()}}
        for name in names
    ]
    return "\n\n".join(map(table, (speeds, report["ratios"], report["clicks"])))


def table(rows: list[dict[str, Any]]) -> str:
    cells = [list(rows[0]), *([shown(x) for x in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in cells)


def shown(x: object) -> str:
    if x is None:
        return "not installed"
    if isinstance(x, str):
        return x
    return f"{x:,.0f}" if isinstance(x, int) or x >= 1000 else f"{x:,.2f}"


if __name__ == "__main__":
    runs.CHUNK = BURST
    main()
