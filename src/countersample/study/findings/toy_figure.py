"""The figure of the two-weight example: paths over the contours of the risk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.pages.drawing import (
    add_legend,
    figure_style,
    new_panels,
    save_figure,
    style_of,
)
from countersample.study.findings.tables import column_title, show_number
from countersample.study.findings.toy import COMPARED, START, STEPS, trajectories

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from countersample.study.findings.toy import Toy

    Floats = NDArray[np.float64]

RATES = (0.01, 0.03, 0.06)
RUNS = 20


@figure_style()
def draw_toy(toy: Toy, stem: Path, *, rng: np.random.Generator) -> None:
    """Draw the paths of both methods over the contours of the risk, a panel a learning rate.

    Each method has several runs as thin lines, and as a thick one that whose end is the median. A
    path that leaves its panel goes on outside; how many stray is said in the panel.

    Parameters
    ----------
    toy : Toy
    stem : Path
    rng : numpy Generator
        Of the samples drawn; the same ones at every learning rate.
    """
    figure, (panels,) = new_panels(1, len(RATES), width=8.4, height=3.4, sharey="row")
    state = rng.bit_generator.state
    rows: list[tuple[object, ...]] = []
    for axes, rate in zip(panels, RATES, strict=True):
        rng.bit_generator.state = state
        runs = trajectories(toy, rate, (RUNS, STEPS), rng)
        _draw_paths(axes, toy, runs)
        axes.set_title(f"learning rate {column_title(rate)}")
        axes.set_xlabel("$w_1$")
        rows += [
            (rate, name, run, step, *w)
            for name, paths in runs.items()
            for run, path in enumerate(paths)
            for step, w in enumerate(path)
        ]
    panels[0].set_ylabel("$w_2$")
    add_legend(figure, panels[0])
    save_figure(figure, stem, ("learning rate", "method", "run", "step", "w1", "w2"), rows)


def _draw_paths(axes: Axes, toy: Toy, runs: Mapping[str, Floats]) -> None:
    reach = 1.05 * START
    sides = [np.linspace(centre - reach, centre + reach, 121) for centre in toy.optimum / 2]
    risk = toy.risk(np.stack(np.meshgrid(*sides), axis=-1))
    levels = toy.risk(np.zeros(2)) * np.geomspace(0.01, 4, 9)
    axes.contour(*sides, risk, levels, colors="black", linewidths=0.4, alpha=0.35)
    said = [f"strayed of {RUNS}, median distance left"]
    for method in COMPARED:
        paths, style = runs[method.name], style_of(method.plan, method.unit)
        away = np.nan_to_num(np.linalg.norm(paths - toy.optimum, axis=-1), nan=np.inf)
        typical = paths[np.argsort(away[:, -1])[RUNS // 2]]
        axes.plot(*paths.T, color=style.colour, lw=0.5, alpha=0.35)
        axes.plot(*typical.T, color=style.colour, lw=1.5, ls=style.dash, marker=".", ms=4,
                  label=method.name)  # fmt: skip
        n_strayed = int((away.max(axis=1) > START).sum())
        end = show_number(float(np.median(away[:, -1])))
        said.append(f"{method.name}: {n_strayed}, {end}")
    axes.plot(*toy.optimum, "*", color="black", ms=9, mec="white", mew=0.6, ls="none",
              label="optimum w*")  # fmt: skip
    axes.plot(0, 0, "o", color="black", mfc="white", ms=5, ls="none", label="start")
    axes.annotate("\n".join(said), (0.03, 0.03), xycoords="axes fraction", va="bottom", fontsize=7,
                  bbox={"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1.5})  # fmt: skip
    axes.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]], aspect="equal")
    axes.grid(visible=False)
