"""The paper's table of weights: M̄ and M by γ, under both position-bias curves.

The paper's equation is (1/rank)^γ; its authors' code has (1/(rank + 1))^γ. A weight is 1 over that,
so M^(1/γ) is the rank of the largest one, or that rank plus 1. The paper's table shows which.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from countersample.data.synthetic import SHAPES
from countersample.errors import ParameterError
from countersample.pages.charts import add_legend, figure_style, new_panels, save_figure, set_log
from countersample.study.claims import State, Verdict
from countersample.study.grids import PAPER_DATASETS
from countersample.study.kinds import Done, Drawing, Kind
from countersample.study.statistics import band
from countersample.study.tables import Entry, Group, Row, Table, column_title, show_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from countersample._arrays import Floats
    from countersample.study.grids import Grid, Published, Value
    from countersample.study.jobs import WorkList
    from countersample.study.report import Section
    from countersample.study.sources import Source, Study

    # (M̄, M) of each click log, by dataset, offset and γ
    Weights = Mapping[tuple[str, int, float], Sequence[tuple[float, float]]]

STUDY = "propensities"
CURVES = ("(1/rank)^γ", "(1/(rank + 1))^γ")  # by offset: the paper's equation, its authors' code
QUANTITIES = ("M̄", "M")  # in the order of the pairs
# The longest list of each set of the paper; our synthetic ones have the same.
_LONGEST = {"yahoo": SHAPES["yahoo-like"].items[-1], "istella-s": SHAPES["istella-like"].items[-1]}
_STYLES = (("#0072B2", "-"), ("#D55E00", (0, (5, 1.8))))  # by offset
_PAPER_MARKERS = ("s", "D")  # by quantity


class WeightsStudy(Kind):
    """The paper's table of weights."""

    name = STUDY

    def check(self, grid: Grid) -> None:
        """Raise a `ParameterError` for a grid that varies anything but γ."""
        if {*grid.varied} != {"gamma"}:
            raise ParameterError("a study of propensities needs values of gamma alone in [vary]")

    def plan(self, study: Study, work: WorkList) -> None:
        """Plan the click logs of every γ, under both curves."""
        for source, offset, gamma in _settings(study):
            config = study.config.with_settings({"gamma": gamma, "bias_offset": offset})
            for fold, seed in product(source.folds, range(config.seeds)):
                log = work.diagnosis(fold, config, seed)
                work.keep((study.name, source.name, offset, gamma), log)

    def write_up(self, study: Study, done: Done) -> Section:
        """Write the table, the figure and the verdicts."""
        weights = {
            (source.name, offset, float(gamma)): [
                (log["mean_weight"], log["max_weight"])
                for log in done.read(study.name, source.name, offset, gamma)
            ]
            for source, offset, gamma in _settings(study)
        }
        draw_weights(weights, done.published, done.figures / study.name)
        drawing = Drawing(
            study.name,
            "The largest and the mean weight against γ, on a logarithmic axis",
            "M and M̄ against γ, under the paper's equation and under its authors' code.",
        )
        tables = (weights_table(weights, done.published),)
        verdicts = tuple(weights_verdicts(weights, done.published))
        return done.section(study, tables, (drawing,), verdicts=verdicts)


def _settings(study: Study) -> Iterator[tuple[Source, int, Value]]:
    return product(study.sources, range(len(CURVES)), study.grid.values)


# -- table and verdicts --------------------------------------------------------------------------


def weights_table(weights: Weights, published: Published) -> Table:
    """Return the paper's table of M̄ and M: one row for each under each curve, one column per γ."""
    gammas = _gammas(weights)

    def entry(dataset: str, offset: int, gamma: float, quantity: int) -> Entry:
        sample = np.array(weights[dataset, offset, gamma])[:, quantity]
        number = _find_published(published, dataset, QUANTITIES[quantity], gamma)
        return Entry.of_sample(sample, published=number)

    groups = tuple(
        Group(
            dataset,
            tuple(
                Row(f"{name}, {curve}", tuple(entry(dataset, offset, g, quantity) for g in gammas))
                for offset, curve in enumerate(CURVES)
                for quantity, name in enumerate(QUANTITIES)
            ),
        )
        for dataset in _datasets(weights)
    )
    curves = f"{CURVES[0]} is the paper's equation, {CURVES[1]} the curve of its authors' code."
    notes = ("±: half the width of the 95 % interval of the mean over click logs.", curves)
    return Table(
        STUDY, "Mean weight M̄ and largest weight M", "Position bias (γ)",
        tuple(map(column_title, gammas)), groups, notes,
    )  # fmt: skip


def _find_published(
    published: Published, dataset: str, quantity: str, gamma: float
) -> float | None:
    number = published.number(STUDY, dataset, quantity, gamma)
    return number.value if number else None


def _datasets(weights: Weights) -> list[str]:
    return list(dict.fromkeys(dataset for dataset, _, _ in weights))


def _gammas(weights: Weights) -> list[float]:
    return sorted({gamma for _, _, gamma in weights})


def _means(weights: Weights, dataset: str, offset: int) -> Floats:
    """Return M̄ and M by γ, the means over click logs, (n_gammas, 2)."""
    return np.array(
        [np.mean(weights[dataset, offset, gamma], axis=0) for gamma in _gammas(weights)]
    )


def weights_verdicts(weights: Weights, published: Published) -> list[Verdict]:
    """Test whether M outgrows M̄, and which curve the paper's table has."""
    verdicts = []
    for dataset in _datasets(weights):
        verdicts.append(_test_growth(weights, dataset))
        if any(_find_published(published, dataset, "M", gamma) for gamma in _gammas(weights)):
            verdicts.append(_test_curve(weights, published, dataset))
    return verdicts


def _test_growth(weights: Weights, dataset: str) -> Verdict:
    gammas = _gammas(weights)
    states, parts = [], []
    for offset, curve in enumerate(CURVES):
        mean, largest = _means(weights, dataset, offset).T
        ratios = largest / mean
        grows = [ratios[0] > 1, *(np.diff(ratios) > 0)]
        states += [State.HOLDS if one else State.ABSENT for one in grows]
        parts.append(
            f"from {show_number(float(ratios[0]))} at γ = {gammas[0]:g} to "
            f"{show_number(float(ratios[-1]))} at γ = {gammas[-1]:g} under {curve}"
        )
    return Verdict.of(
        (STUDY, dataset),
        "The largest weight M is above the mean weight M̄, and the more so the larger γ.",
        "paper",
        states,
        f"M/M̄ {'grows' if min(states) > 0 else 'changes'} {' and '.join(parts)}.",
    )


def _test_curve(weights: Weights, published: Published, dataset: str) -> Verdict:
    """Test which curve the paper's M has: M^(1/γ) is a rank, or a rank plus 1."""
    gamma, largest, reciprocal = largest_reciprocal(published, dataset, _gammas(weights))
    longest = _LONGEST[PAPER_DATASETS[dataset]]
    is_decided = reciprocal > longest
    reason = "the equation has no weight that large" if is_decided else "either curve may have it"
    return Verdict.of(
        (STUDY, dataset),
        f"The paper's table of weights has the curve of its authors' code, {CURVES[1]}, not "
        f"of its equation, {CURVES[0]}.",
        "beyond",
        [State.HOLDS if is_decided else State.OPEN],
        f"The paper's M at γ = {gamma:g} is {largest:.2f} = {reciprocal}^{gamma:g}, and the "
        f"longest list has {longest} items: {reason}.",
    )


def largest_reciprocal(
    published: Published, dataset: str, gammas: Sequence[float]
) -> tuple[float, float, int]:
    """Return γ, M and M^(1/γ) at the γ whose M^(1/γ) is largest in the paper.

    Examples
    --------
    >>> from countersample.study.grids import Published, PublishedNumber
    >>> paper = Published({("propensities", "yahoo", "M", 0.75): PublishedNumber(40.70)})
    >>> largest_reciprocal(paper, "yahoo-like", [0.5, 0.75])
    (0.75, 40.7, 140)
    """
    numbers = [(gamma, _find_published(published, dataset, "M", gamma)) for gamma in gammas]
    reciprocal, gamma, largest = max(
        (round(m ** (1 / gamma)), gamma, m) for gamma, m in numbers if m is not None
    )
    return gamma, largest, reciprocal


# -- the figure ----------------------------------------------------------------------------------


@figure_style()
def draw_weights(weights: Weights, published: Published, stem: Path) -> None:
    """Draw M and M̄ against γ by logarithm, under both curves, the paper's as hollow markers."""
    datasets, gammas = _datasets(weights), _gammas(weights)
    figure, (panels,) = new_panels(
        1, len(datasets), width=max(4.5, 3.4 * len(datasets)), height=3.4, sharey="row"
    )
    for axes, dataset in zip(panels, datasets, strict=True):
        _draw_weights(axes, weights, published, dataset)
        axes.set_xticks(gammas, [column_title(gamma) for gamma in gammas])
        axes.set(title=dataset, xlabel="position bias γ")
        set_log(axes, "y")
    panels[0].set_ylabel("weight")
    add_legend(figure, panels[0])
    rows = [
        (dataset, offset, gamma, name, *limits, _find_published(published, dataset, name, gamma))
        for dataset, offset, gamma in product(datasets, range(len(CURVES)), gammas)
        for name, *limits in zip(
            QUANTITIES, *band(np.array(weights[dataset, offset, gamma])), strict=True
        )
    ]
    columns = ("dataset", "offset", "gamma", "quantity", "mean", "low", "high", "paper")
    save_figure(figure, stem, columns, rows)


def _draw_weights(axes: Axes, weights: Weights, published: Published, dataset: str) -> None:
    gammas = _gammas(weights)
    for quantity in (1, 0):
        name = QUANTITIES[quantity]
        for offset, (curve, (colour, dash)) in enumerate(zip(CURVES, _STYLES, strict=True)):
            bands = [band(np.array(weights[dataset, offset, gamma])) for gamma in gammas]
            mean, _, high = np.array(bands)[:, :, quantity].T
            axes.errorbar(gammas, mean, high - mean, color=colour, ls=dash,
                          lw=1.8 if quantity else 1.0, marker="o", ms=3, capsize=2, elinewidth=0.9,
                          label=f"{name}, {curve}")  # fmt: skip
        numbers = np.array(
            [_find_published(published, dataset, name, g) for g in gammas], np.float64
        )
        axes.plot(gammas, numbers, ls="none", mfc="none", mec="black", ms=7,
                  marker=_PAPER_MARKERS[quantity], label=f"{name}, the paper")  # fmt: skip
