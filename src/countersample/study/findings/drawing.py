"""What all figures share: colours, looks, bands, and the files they are written to.

``stem`` is a path without suffix: a figure is written as stem.png, stem.svg and stem.pdf, and what
it draws as stem.csv. The same results give the same bytes.
"""

from __future__ import annotations

import csv
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from countersample._files import atomic_path
from countersample.study.findings.statistics import independent, interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from countersample.study.design.grids import Method

    Floats = NDArray[np.float64]


class Style(NamedTuple):
    """How a method is drawn everywhere: an "#rrggbb" colour and a dash pattern of matplotlib."""

    colour: str
    dash: Any


# Okabe and Ito's colours, told apart by colour-blind readers too; and a dash pattern each, for
# print without colour.
STYLES = {
    ("naive", "click"): Style("#6E6E6E", (0, (1, 1.2))),
    ("ips", "click"): Style("#D55E00", (0, (5, 1.8))),
    ("ips", "pair"): Style("#E69F00", (0, (5, 1.8, 1, 1.8))),
    ("ips", "query"): Style("#CC79A7", (0, (5, 1.8, 1, 1.8, 1, 1.8))),
    ("countersample", "click"): Style("#0072B2", "-"),
    ("countersample", "pair"): Style("#56B4E9", (0, (9, 1.5))),
    ("countersample", "query"): Style("#009E73", (0, (9, 1.5, 2, 1.5))),
}
_OTHER = Style("#000000", (0, (2, 2)))
_SMALL = 8  # points: what is not a title
_METADATA = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "countersample",  # the same names of clips and markers in every file
    "pdf.fonttype": 42,  # TrueType, as publishers ask
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.labelsize": _SMALL,
    "ytick.labelsize": _SMALL,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.fontsize": _SMALL,
    "legend.frameon": False,
}


def style_of(method: Method) -> Style:
    """Return how a method is drawn.

    Examples
    --------
    >>> from countersample.study.design.grids import Method
    >>> style_of(Method("CounterSample", "countersample", "click"))
    Style(colour='#0072B2', dash='-')
    """
    return STYLES.get((method.plan, method.unit), _OTHER)


# -- files ---------------------------------------------------------------------------------------


@contextmanager
def looks() -> Iterator[None]:
    """Give what is drawn within, or by the function it decorates, the looks of all figures."""
    from matplotlib import rc_context  # noqa: PLC0415 (heavy)

    with rc_context(_SETTINGS):
        yield


def new_panels(
    rows: int,
    columns: int,
    *,
    width: float,
    height: float,
    sharey: Literal["none", "row"] = "none",
) -> tuple[Figure, NDArray[Any]]:
    """Return a figure and its panels, (rows, columns); those of a column share their x axis.

    Parameters
    ----------
    rows, columns : int
    width, height : float
        Of the figure, in inches.
    sharey : {"none", "row"}
        Whether the panels of a row share their y axis.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (heavy)

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex="col", sharey=sharey)


def save_figure(
    figure: Figure, stem: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Write stem.png, .svg and .pdf, and the rows that the figure draws as stem.csv.

    Parameters
    ----------
    figure : Figure
        Made by `new_panels`.
    stem : Path
    columns : sequence of str
        The header of the rows.
    rows : iterable of sequences
        Floats are written with 6 digits that count.
    """
    for suffix, metadata in _METADATA.items():
        with atomic_path(_with_suffix(stem, suffix)) as temporary:
            figure.savefig(temporary, format=suffix, dpi=150, metadata=metadata)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_plain(cell) for cell in row] for row in rows)
    with atomic_path(_with_suffix(stem, "csv")) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


def _with_suffix(stem: Path, suffix: str) -> Path:
    return stem.with_name(f"{stem.name}.{suffix}")  # a name may have a dot of its own


def _plain(cell: object) -> object:
    return f"{cell:.6g}" if isinstance(cell, float | np.floating) else cell


class Band(NamedTuple):
    """A mean over runs and its 95 % interval (Student's); low = high = mean for a single run."""

    mean: Floats
    low: Floats
    high: Floats


def band(values: Floats, runs: Sequence[tuple[str, int]]) -> Band:
    """Mean ± t·s/√n over the runs, or over the means of folds where there are several.

    Parameters
    ----------
    values : float64 (n_runs, n)
    runs : sequence of (fold, seed)

    Returns
    -------
    Band of float64 (n,)

    Examples
    --------
    >>> band(np.array([[0.25, 1.0], [0.75, 1.0]]), [("", 0), ("", 1)]).mean
    array([0.5, 1. ])
    """
    columns = [independent(column, runs) for column in values.T]
    mean = np.array([column.mean() for column in columns])
    half = np.nan_to_num([interval(column) for column in columns])
    return Band(mean, mean - half, mean + half)


def add_legend(figure: Figure, axes: Axes) -> None:
    """Add the one legend of a figure above its panels, from the lines of one of them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", handlelength=2.8, columnspacing=1.4,
                  ncols=_legend_columns(labels, figure.get_figwidth()))  # fmt: skip


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """Return the most columns that fit into `width` inches: matplotlib fills one after another."""
    for n_columns in range(len(labels), 1, -1):
        columns = np.array_split([0.6 + 0.065 * len(label) for label in labels], n_columns)
        if sum(column.max() for column in columns) <= width:
            return n_columns
    return 1
