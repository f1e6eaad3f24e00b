"""Small figures as SVG text: points with intervals, lines with a band, bars."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 44


@dataclass(frozen=True)
class Series:
    """Values with intervals, over x; `name` is for the legend."""

    name: str
    x: Sequence[float]
    value: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class _Scale:
    """Numbers to places: from `first` to `last` between two ends in the picture."""

    first: float
    last: float
    begin: float
    end: float

    def __call__(self, number: float) -> float:
        share = (number - self.first) / ((self.last - self.first) or 1.0)
        return self.begin + share * (self.end - self.begin)


def points_figure(series: Sequence[Series], *, x_label: str, y_label: str) -> str:
    """Draw the first series as points with error bars and the others as faint lines; y from 0."""
    x, y = _scales(series, y_from=0.0)
    drawn = [
        f'<polyline class="other" points="{_points(each, x, y)}"><title>{escape(each.name)}'
        "</title></polyline>"
        for each in series[1:]
    ]
    main = series[0]
    drawn.append(f'<polyline class="line" points="{_points(main, x, y)}"/>')
    for place, value in enumerate(main.value):
        at, told = x(main.x[place]), f"{main.x[place]:g}: {value:.3g}"
        if main.low is not None and main.high is not None:
            low, high = main.low[place], main.high[place]
            told += f" ({low:.3g} to {high:.3g})"
            drawn.append(_rule(at, y(low), at, y(high), "error"))
        drawn.append(f'<circle class="dot" cx="{at:.1f}" cy="{y(value):.1f}" r="3.5"><title>{told}'
                     "</title></circle>")  # fmt: skip
    every = -(-len(main.x) // 12)
    marks = [(place, f"{place:g}") for place in main.x[::every]]
    return _figure(drawn, x, y, marks, x_label, y_label)


def line_figure(series: Series, rule: tuple[str, float], *, x_label: str, y_label: str) -> str:
    """Draw a line within a band, and a level to compare it with."""
    name, level = rule
    x, y = _scales([series, Series(name, [series.x[0]], [level])])
    drawn = []
    if series.low is not None and series.high is not None:
        ends = [f"{x(at):.1f},{y(low):.1f}" for at, low in zip(series.x, series.low, strict=True)]
        back = [
            f"{x(at):.1f},{y(high):.1f}" for at, high in zip(series.x, series.high, strict=True)
        ]
        drawn.append(f'<polygon class="band" points="{" ".join(ends + back[::-1])}"/>')
    drawn += [
        f'<polyline class="line" points="{_points(series, x, y)}"/>',
        _rule(x.begin, y(level), x.end, y(level), "rule"),
        f'<text class="end" x="{x.end:.1f}" y="{y(level) - 5:.1f}">{escape(name)}</text>',
    ]
    marks = [(place, f"{place:,.0f}") for place in (series.x[0], series.x[-1])]
    return _figure(drawn, x, y, marks, x_label, y_label)


def bars_figure(bars: Sequence[tuple[str, float]], *, x_label: str, y_label: str) -> str:
    """Draw a bar for each name and number."""
    x = _Scale(0, len(bars), LEFT, WIDTH - RIGHT)
    y = _Scale(0, _round_up(max(number for _, number in bars)), HEIGHT - BOTTOM, TOP)
    drawn = [
        f'<rect class="bar" x="{x(place + 0.1):.1f}" y="{y(number):.1f}" '
        f'width="{x(0.8) - x(0):.1f}" height="{y(0) - y(number):.1f}">'
        f"<title>{escape(name)}: {number:,.0f}</title></rect>"
        for place, (name, number) in enumerate(bars)
    ]
    marks = [(place + 0.5, name) for place, (name, _) in enumerate(bars)]
    return _figure(drawn, x, y, marks, x_label, y_label)


def interval_figure(value: float, low: float, high: float) -> str:
    """Draw a share with its interval beside 0."""
    reach = max(abs(low), abs(high), 0.01)
    x = _Scale(min(low, 0.0) - 0.12 * reach, max(high, 0.0) + 0.12 * reach, 10, WIDTH - 10)
    sign = "good" if low > 0 else "bad" if high < 0 else "unsure"
    drawn = [
        _rule(10, 34, WIDTH - 10, 34, "grid"),
        _rule(x(0), 12, x(0), 56, "rule"),
        f'<text class="middle" x="{x(0):.1f}" y="72">0</text>',
        _rule(x(low), 34, x(high), 34, f"gain {sign}"),
        f'<circle class="gain {sign}" cx="{x(value):.1f}" cy="34" r="6"/>',
    ]
    told = f"{value:+.1%}, interval {low:+.1%} to {high:+.1%}"
    return f'<svg viewBox="0 0 {WIDTH} 80" role="img" aria-label="{told}">{"".join(drawn)}</svg>'


def _scales(series: Sequence[Series], *, y_from: float | None = None) -> tuple[_Scale, _Scale]:
    xs = [place for each in series for place in each.x]
    ys = [
        number
        for each in series
        for column in (each.value, each.low, each.high)
        for number in (column if column is not None else ())
    ]
    low, high = (min(ys) if y_from is None else y_from), max(ys)
    room = 0.08 * (high - low or abs(high) or 1.0)
    bottom = low if y_from is not None else low - room
    side = 0.03 * (max(xs) - min(xs) or 1.0)
    return (
        _Scale(min(xs) - side, max(xs) + side, LEFT, WIDTH - RIGHT),
        _Scale(bottom, high + room, HEIGHT - BOTTOM, TOP),
    )


def _points(series: Series, x: _Scale, y: _Scale) -> str:
    return " ".join(
        f"{x(at):.1f},{y(value):.1f}" for at, value in zip(series.x, series.value, strict=True)
    )


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _figure(
    drawn: Sequence[str],
    x: _Scale,
    y: _Scale,
    x_marks: Sequence[tuple[float, str]],
    x_label: str,
    y_label: str,
) -> str:
    around = []
    for number in _ticks(y.first, y.last):
        around += [
            _rule(x.begin, y(number), x.end, y(number), "grid"),
            f'<text class="end" x="{LEFT - 7}" y="{y(number) + 4:.1f}">{_short(number)}</text>',
        ]
    around += [
        f'<text class="middle" x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 17}">{escape(mark)}</text>'
        for place, mark in x_marks
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    around += [
        _rule(LEFT, y.begin, WIDTH - RIGHT, y.begin, "axis"),
        f'<text class="middle" x="{middle}" y="{HEIGHT - 6}">{escape(x_label)}</text>',
    ]
    label = escape(f"{y_label} by {x_label}", quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(around)}{''.join(drawn)}</svg>"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return four to eight round numbers within a range.

    >>> _ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / 6
    power = 10 ** np.floor(np.log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [round(float(k * step), 12) for k in range(first, last + 1)]


def _round_up(number: float) -> float:
    return number * 1.05 or 1.0


def _short(number: float) -> str:
    """Write a number in a few letters.

    >>> _short(0.25), _short(120_000), _short(2_500_000)
    ('0.25', '120k', '2.5M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
