"""Learning curves as a picture, with the numbers it draws beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample._files import atomic_path

if TYPE_CHECKING:
    from pathlib import Path

    from countersample.study.demo.comparison import Comparison

# Okabe and Ito's colours, told apart by colour-blind readers too; and a dash pattern each.
STYLES = (("#999999", ":"), ("#D55E00", "--"), ("#0072B2", "-."), ("#009E73", "-"))


def write_curves(comparison: Comparison, path: Path) -> None:
    """Write ``path`` (.csv): a row an evaluation point, method and seed."""
    lines = ["method,seed,step,ndcg@10"]
    for result in comparison.results:
        for seed, curve in zip(comparison.settings["seeds"], result.curves, strict=True):
            lines += [
                f"{result.method.name},{seed},{step},{value:.6f}"
                for step, value in zip(comparison.points, curve, strict=True)
            ]
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n")


def draw_curves(comparison: Comparison, path: Path) -> None:
    """Draw nDCG@10 against steps into ``path`` (.png): the mean over seeds, in its range."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (heavy)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for result, (colour, dash) in zip(comparison.results, STYLES, strict=False):
        title = result.method.name
        axes.plot(comparison.points, result.mean_curve, dash, color=colour, label=title, lw=2)
        low, high = result.curves.min(axis=0), result.curves.max(axis=0)
        axes.fill_between(comparison.points, low, high, color=colour, alpha=0.15, lw=0)
    axes.axhline(comparison.best, color="black", lw=1)
    axes.annotate("full supervision", (1, comparison.best), xycoords=("axes fraction", "data"),
                  ha="right", va="bottom", fontsize=9, textcoords="offset points",
                  xytext=(-4, 2))  # fmt: skip
    axes.set_xlabel("steps")
    axes.set_ylabel("nDCG@10 on held-out queries")
    lowest = min(result.mean_curve[0] for result in comparison.results)
    axes.set_ylim(lowest - 0.005, comparison.best + 0.01)
    axes.set_xlim(0, comparison.points[-1])
    axes.xaxis.set_major_formatter(lambda x, _: f"{np.int64(x):,}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
