"""Draw every chart one way: colours of methods, settings of matplotlib, files, charts in pages.

Matplotlib is imported only when something is drawn. The same results give the same bytes.
"""

from __future__ import annotations

import csv
import io
import re
from contextlib import contextmanager
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from countersample._files import atomic_path
from countersample.errors import ParameterError
from countersample.pages.layout import render_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray


class Style(NamedTuple):
    """The look of a method: an "#rrggbb" colour and a dash pattern of matplotlib."""

    colour: str
    dash: Any


# Okabe and Ito's colours, which colour-blind readers can distinguish, and a dash pattern each, for
# print without colour. By plan and unit.
STYLES = {
    ("naive", "click"): Style("#6E6E6E", (0, (1, 1.2))),
    ("ips", "click"): Style("#D55E00", (0, (5, 1.8))),
    ("ips", "pair"): Style("#E69F00", (0, (5, 1.8, 1, 1.8))),
    ("ips", "query"): Style("#CC79A7", (0, (5, 1.8, 1, 1.8, 1, 1.8))),
    ("countersample", "click"): Style("#0072B2", "-"),
    ("countersample", "pair"): Style("#56B4E9", (0, (9, 1.5))),
    ("countersample", "query"): Style("#009E73", (0, (9, 1.5, 2, 1.5))),
}
OTHER = Style("#000000", (0, (2, 2)))
MAIN = STYLES["countersample", "click"].colour  # of a single line that is not a method
MARKED = (  # a colour and a marker each, for several lines that are not methods
    ("#000000", "o"), ("#E69F00", "s"), ("#56B4E9", "^"), ("#009E73", "v"),
    ("#0072B2", "D"), ("#D55E00", "P"), ("#CC79A7", "X"),
)  # fmt: skip
BAND_OPACITY, OUTLINE_OPACITY = 0.16, 0.6
SMALL = 8  # points: all text but titles
_SETTINGS = Path(__file__).with_name("figures.mplstyle")
_METADATA = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
# The variable of each colour in style.css, which has another shade in the dark.
_VARIABLES = {
    "#000000": "ink", "#b0b0b0": "muted", "#808080": "muted", "#ffffff": "ground",
    **{style.colour.lower(): "-".join(method) for method, style in STYLES.items()},
}  # fmt: skip
_ATTRIBUTES = re.compile(r"(fill|stroke|font|opacity|text-anchor)[\w-]*$")


def style_of(plan: str, unit: str) -> Style:
    """Return the look of a method.

    >>> style_of("countersample", "click")
    Style(colour='#0072B2', dash='-')
    """
    return STYLES.get((plan, unit), OTHER)


def short_number(number: float, _: object = None) -> str:
    """Return a number in a few characters, for the ticks of an axis.

    >>> short_number(0.25), short_number(120_000), short_number(2_500_000)
    ('0.25', '120k', '2.5M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return at most `most` round numbers within [low, high] for a logarithmic axis.

    They are 1, 2 and 5 times powers of ten, 1 and 3 times, or every first, second, … power of ten;
    evenly spaced numbers if the axis is too short for two of these.

    >>> log_ticks(300, 30_000), log_ticks(2_000, 9_000)
    ([300.0, 1000.0, 3000.0, 10000.0, 30000.0], [2000.0, 5000.0])
    >>> log_ticks(6_000, 9_000), log_ticks(1, 1e12)
    ([6000.0, 7000.0, 8000.0, 9000.0], [1.0, 1000.0, 1000000.0, 1000000000.0, 1000000000000.0])
    """
    first, last = floor(log10(low)), ceil(log10(high))
    rows = [((1, 2, 5), 1), ((1, 3), 1), *(((1,), every) for every in range(1, last - first + 2))]
    for factors, every in rows:
        powers = range(first - first % every, last + 1, every)
        ticks = [float(f"{factor}e{power}") for power in powers for factor in factors]
        within = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(within) < 2:
            break
        if len(within) <= most:
            return within
    steps = (
        float(f"{factor}e{power}") for power in range(first - 3, last + 1) for factor in (1, 2, 5)
    )
    spans = ((step, range(ceil(low / step), floor(high / step) + 1)) for step in steps)
    step, numbers = next((step, numbers) for step, numbers in spans if len(numbers) <= most)
    return [float(f"{n * step:.9g}") for n in numbers]


# -- figures -------------------------------------------------------------------------------------


@contextmanager
def figure_style() -> Iterator[None]:
    """Set the style of all figures for a block, or for a function that it decorates."""
    from matplotlib import rc_context  # noqa: PLC0415 (heavy)

    with rc_context(fname=_SETTINGS):
        yield


def new_panels(
    rows: int, columns: int, *, width: float, height: float, sharey: Literal["none", "row"] = "none"
) -> tuple[Figure, NDArray[Any]]:
    """Return a figure, in inches, and its panels (rows, columns), which share x by column."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (heavy)

    with figure_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex="col", sharey=sharey)
    return figure, panels


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of this size, in inches, and its Axes, without pyplot."""
    figure, panels = new_panels(1, 1, width=width, height=height)
    return figure, panels[0, 0]


def draw_band(
    axes: Axes,
    x: ArrayLike,
    middle: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    *,
    style: Style,
    label: str = "",
) -> None:
    """Draw a line in a method's style, and an outlined band between two others.

    A grey band is not filled: an orange and a blue band overlap in grey.
    """
    axes.plot(x, middle, color=style.colour, ls=style.dash, lw=1.5, label=label)
    if low is not None and high is not None:
        from matplotlib.colors import to_rgba  # noqa: PLC0415 (heavy)

        filled = to_rgba(style.colour, BAND_OPACITY) if has_hue(style.colour) else "none"
        axes.fill_between(x, low, high, facecolor=filled, lw=0.6,
                          edgecolor=to_rgba(style.colour, OUTLINE_OPACITY))  # fmt: skip


def has_hue(colour: str) -> bool:
    """Whether an "#rrggbb" colour is neither grey, black nor white.

    >>> has_hue("#0072B2"), has_hue("#6E6E6E")
    (True, False)
    """
    return len({colour[place : place + 2] for place in (1, 3, 5)}) > 1


def set_log(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, with a few round numbers that do not overlap: see `log_ticks`."""
    from matplotlib.ticker import Locator, NullFormatter  # noqa: PLC0415 (heavy)

    class RoundNumbers(Locator):
        def __call__(self) -> list[float]:
            return self.tick_values(*axis.get_view_interval())

        def tick_values(self, vmin: float, vmax: float) -> list[float]:
            return log_ticks(min(vmin, vmax), max(vmin, vmax))

    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(RoundNumbers())
    axis.set_major_formatter(short_number)
    axis.set_minor_formatter(NullFormatter())


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


# -- files ---------------------------------------------------------------------------------------


def save_figure(
    figure: Figure, stem: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Write stem.png, .svg and .pdf, and the rows of the figure as stem.csv, with 6 digits."""
    for suffix in _METADATA:
        save_picture(figure, f"{stem}.{suffix}")
    digits = ([f"{cell:.6g}" if isinstance(cell, float | np.floating) else cell for cell in row]
              for row in rows)  # fmt: skip
    write_csv(f"{stem}.csv", columns, digits)


def save_picture(figure: Figure, path: str | PathLike[str]) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of the path."""
    suffix = Path(path).suffix[1:]
    if suffix not in _METADATA:
        raise ParameterError(f"{path}: expected a name that ends in .png, .svg or .pdf")
    with figure_style(), atomic_path(path) as temporary:
        figure.savefig(temporary, format=suffix, dpi=150, metadata=_METADATA[suffix])


def write_csv(
    path: str | PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Write a header and rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    with atomic_path(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


# -- in pages ------------------------------------------------------------------------------------


def inline_figure(figure: Figure, label: str) -> str:
    """Return a figure as SVG for a page, in the page's colours and font.

    The label describes it for readers who cannot see it; it differs for each figure of a page.

    >>> figure, axes = new_axes(4, 2)
    >>> _ = axes.plot([1, 2], [3, 1], color="#0072B2")
    >>> 'stroke="var(--countersample-click)"' in inline_figure(figure, "a line that falls")
    True
    """
    from matplotlib import rc_context  # noqa: PLC0415 (heavy)

    file = io.StringIO()
    for axes in figure.axes:
        axes.set_facecolor("none")
    # Names of clips and markers come from the salt, so that they differ between figures.
    with figure_style(), rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(file, format="svg", facecolor="none", metadata={"Date": None})
    text = file.getvalue()
    view_box = re.search(r'viewBox="([^"]*)"', text)
    body = text[text.index("</defs>") + len("</defs>") : text.rindex("</svg>")]
    used_ids = set(re.findall(r"#(\w+)", body))
    body = re.sub(r"<!--.*?-->|\n", " ", body, flags=re.DOTALL)
    body = re.sub(r' id="([^"]*)"', lambda id_: id_[0] if id_[1] in used_ids else "", body)
    body = re.sub(r' style="([^"]*)"', _style_attributes, body)
    return render_part(
        "drawing", label, view_box and view_box[1], content=[re.sub(" +", " ", body)]
    )


def _style_attributes(style: re.Match[str]) -> str:
    """Return a style as attributes, which the policy of a page allows."""
    attributes = {}
    for declaration in style[1].split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font" and (size := re.search(r"[\d.]+px", value)):  # before matplotlib 3.10
            name, value = "font-size", size[0]
        if _ATTRIBUTES.match(name) and name != "font-family":
            attributes[name] = f"var(--{_VARIABLES[value]})" if value in _VARIABLES else value
    return "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
