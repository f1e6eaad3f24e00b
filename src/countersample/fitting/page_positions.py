"""How likely positions are examined, as a card of a fit's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample import pages
from countersample.pages.drawing import MAIN, MARKED, figure_style, inline_figure, new_axes
from countersample.plotting import plot_propensities

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from countersample.fitting.propensity_source import PropensitySource
    from countersample.fitting.results import Fit
    from countersample.propensity import Propensities, TrustPropensities

N_POSITIONS = 10  # that have a line in the table
SIZE = (4.0, 2.5)  # of a plot, in inches: text can be read on a phone


@figure_style()
def positions_card(fit: Fit) -> str:
    """Return the curve in use, drawn and in numbers; those of other methods are folded away."""
    source = fit.propensity_source
    figure, axes = new_axes(*SIZE)
    if source.contexts is not None:
        plot_propensities(source.contexts.curves, ax=axes)
        first = next(iter(source.contexts.curves.values()))
        text = (
            "The probability to be examined, relative to position 1 of each context: "
            f"{source.source}, with {first.confidence:.0%} intervals."
        )
        header, rows = _table_of_contexts(source.contexts.curves)
    elif source.trust is not None:
        text, header, rows = _of_trust(source.trust, axes)
    elif source.curve is None:
        positions, mean = _mean_propensities(fit)
        axes.plot(positions, mean, "o-", color=MAIN, ms=4)
        axes.set(xlabel="position", ylabel="propensity", ylim=(0, None))
        text = f"Propensities: {source.source}. Shown is their mean over a position."
        rows = [[str(k), f"{value:.3g}"] for k, value in zip(positions, mean, strict=True)]
        header = ["position", "propensity"]
    else:
        text, header, rows = _of_curve(source.curve, source, axes)
    drawn = inline_figure(figure, "Propensity by position")
    table = pages.table(header, rows[:N_POSITIONS], caption="Propensity by position")
    others = _other_methods(source)
    return pages.card("Examination by position", pages.paragraphs([text]), drawn, table, others)


def _of_curve(
    curve: Propensities, source: PropensitySource, axes: Axes
) -> tuple[str, list[str], list[list[str]]]:
    """Draw a curve beside those of other methods; return the text, and the table."""
    check, others = source.cross_check, _others(source)
    plot_propensities(curve, ax=axes)
    for (colour, _), (name, other) in zip(MARKED, others.items(), strict=False):
        axes.plot(other.position, other.value, color=colour, lw=0.8, alpha=0.8, label=name)
    axes.legend()
    thin = "; thin: the other methods" if others else ""
    text = (
        f"The probability to be examined, relative to position {curve.reference}: "
        f"{curve.method}, {source.source}, with {curve.confidence:.0%} intervals{thin}. "
        f"{'' if check is None else check.sentence}"
    )
    rows = [
        [str(k + 1), f"{curve.value[k]:.3f}", f"{curve.low[k]:.3f} to {curve.high[k]:.3f}"]
        for k in range(len(curve.value))
    ]
    return text, ["position", curve.method, "interval"], rows


def _others(source: PropensitySource) -> dict[str, Propensities]:
    """Return the curves of the methods that are not in use."""
    found = {} if source.cross_check is None else dict(source.cross_check.estimates)
    if source.curve is not None:
        found.pop(source.curve.method, None)
    return found


def _other_methods(source: PropensitySource) -> str:
    others = _others(source)
    if not others:
        return ""
    n = min(N_POSITIONS, *(len(curve.value) for curve in others.values()))
    rows = [[str(k + 1), *(f"{c.value[k]:.3f}" for c in others.values())] for k in range(n)]
    caption = "Propensity by position, by the methods that are not in use"
    return pages.details(
        "What other methods say", pages.table(["position", *others], rows, caption=caption)
    )


def _of_trust(found: TrustPropensities, axes: Axes) -> tuple[str, list[str], list[list[str]]]:
    """Draw α and β; return the text, and the table."""
    for (colour, marker), name in zip(MARKED, ("alpha", "beta"), strict=False):
        value, low, high = (getattr(found, name + end) for end in ("", "_low", "_high"))
        error = np.abs(np.stack([low, high]) - value)
        axes.errorbar(found.position, value, error, label="αβ"[name == "beta"], color=colour,
                      marker=marker, ms=4, lw=1.2, elinewidth=0.9, capsize=2)  # fmt: skip
    axes.set(xlabel="position", ylabel="α and β", xticks=found.position)
    axes.legend()
    text = (
        "P(click) = β + α·relevance at each position, estimated from items that moved, with "
        f"{found.confidence:.0%} intervals; α is 1 at position {found.reference}, β 0 at the last. "
        f"{found.sentence}"
    )
    values = zip(
        *(
            getattr(found, name + end)
            for name in ("alpha", "beta")
            for end in ("", "_low", "_high")
        ),
        strict=True,
    )
    rows = [
        [
            str(k),
            f"{a:.3f}",
            f"{a_low:.3f} to {a_high:.3f}",
            f"{b:.3f}",
            f"{b_low:.3f} to {b_high:.3f}",
        ]
        for k, (a, a_low, a_high, b, b_low, b_high) in enumerate(values, 1)
    ]
    return text, ["position", "α", "interval", "β", "interval"], rows


def _table_of_contexts(
    curves: dict[str, Propensities],
) -> tuple[list[str], list[list[str]]]:
    """Return a row a position with the value and the interval of each context."""
    rows = []
    for k in range(max(len(curve.value) for curve in curves.values())):
        cells = [
            f"{c.value[k]:.3f} ({c.low[k]:.3f} to {c.high[k]:.3f})" if k < len(c.value) else "–"
            for c in curves.values()
        ]
        rows.append([str(k + 1), *cells])
    return ["position", *curves], rows


def _mean_propensities(fit: Fit) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the positions, and the mean of θ over what was shown at each.

    Of a log with its own propensities, clicks / Σ clicks/propensity.
    """
    log = fit.shown
    assert log.position is not None  # noqa: S101 (it has both)
    assert log.impressions is not None  # noqa: S101
    above, below = log.clicks, log.clicks / log.propensity
    if log.examination is not None:
        above, below = log.impressions * log.examination, log.impressions
    total = np.bincount(log.position, below)
    positions = np.flatnonzero(total > 0)
    return positions, np.bincount(log.position, above)[positions] / total[positions]
