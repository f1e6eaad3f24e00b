"""Write the reports of a fit and of drift as HTML pages that need no network.

The text and most tables are in ``templates/fit.html`` and ``templates/drift.html``; this module
draws the charts, and selects the rows of tables that are too long.
"""

from __future__ import annotations

import platform
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample import pages
from countersample._version import __version__
from countersample.export.targets import TARGETS
from countersample.fitting.drift import ALL_POSITIONS, LIMITS
from countersample.pages.charts import MARKED, figure_style, inline_figure, new_axes
from countersample.plotting import (
    plot_gain,
    plot_learning_curve,
    plot_propensities,
    plot_weights,
)
from countersample.scorers import LEAF, LinearScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from countersample._arrays import Floats, Ints
    from countersample.fitting.drift import Change, Drift
    from countersample.fitting.results import Fit
    from countersample.propensity import Propensities

MAX_FEATURES = 15  # largest weights of a ranker that are shown
MAX_POSITIONS = 10  # rows of the table of propensities
MAX_DRIFT_FEATURES = 30  # with the largest changes
CHART_SIZE = (4.0, 2.5)  # inches: text is readable on a phone


# -- the page of a fit ----------------------------------------------------------------------------


def write_page(
    path: str | PathLike[str],
    fit: Fit,
    *,
    command: str,
    ranker: str | PathLike[str] = "ranker.json",
    show_ids: bool = False,
) -> None:
    """Write the report of a fit as one page, atomically.

    Parameters
    ----------
    path : path
    fit : Fit
    command : str
        The command that repeats it.
    ranker : path
        Where the ranker is saved, for the command that exports it.
    show_ids : bool
        Whether the pairs with the most weight have their query and item ids. By default the page
        has no id at all.
    """
    check, curves = fit.propensity_source.cross_check, _list_curves(fit)
    others = {} if check is None else dict(check.estimates)
    if fit.propensity_source.curve is not None:
        others.pop(fit.propensity_source.curve.method, None)
    page = pages.render_template(
        "countersample.fitting", "fit.html",
        title=f"A ranker from {fit.check.counts.n_clicks:,} clicks", kind="countersample fit",
        fit=fit, gain=fit.gain, source=fit.propensity_source, counts=fit.check.counts,
        command=command, show_ids=show_ids,
        versions=f"countersample {__version__}, Python {platform.python_version()}",
        charts=_draw_charts(fit) | {"positions": _draw_curves(fit, curves, others)},
        positions=_tabulate_curves(curves), others=_tabulate_curves(others),
        features=_tabulate_features(fit), setting_rows=_list_settings(fit),
        ranker_file=shlex.quote(str(ranker)),
        targets=[name for name, each in TARGETS.items() if fit.ranker.kind in each.kinds],
    )  # fmt: skip
    pages.write_page(path, page)


@figure_style()
def _draw_charts(fit: Fit) -> dict[str, str]:
    """Return the charts of the gain, the learning curve and the weights; "" if there is none."""
    charts = dict.fromkeys(("gain", "learning", "weights"), "")
    gain = fit.gain
    if not fit.decision.is_withheld:
        figure, axes = new_axes(CHART_SIZE[0], 0.9)
        plot_gain(gain, ax=axes)
        ends = f"{gain.relative_low:+.1%} to {gain.relative_high:+.1%}"
        charts["gain"] = inline_figure(figure, f"{gain.relative:+.1%}, interval {ends}")
    if fit.learning_curve:
        figure, axes = new_axes(*CHART_SIZE)
        steps, values = zip(*fit.learning_curve, strict=True)
        plot_learning_curve(
            steps, [each.value for each in values], low=[each.low for each in values],
            high=[each.high for each in values], label="held-out clicks", metric=gain.metric,
            levels={"logged": gain.logged.value}, ax=axes,
        )  # fmt: skip
        charts["learning"] = inline_figure(figure, f"{gain.metric} by steps")
    figure, axes = new_axes(*CHART_SIZE)
    plot_weights(fit.weights, ax=axes)
    charts["weights"] = inline_figure(figure, "Clicks by weight")
    return charts


def _tabulate_features(fit: Fit) -> dict[str, Any]:
    """Return the table of a linear or boosted ranker's features.

    It is empty for a network, whose weights have no such meaning.
    """
    scorer = fit.ranker.scorer_
    if isinstance(scorer, LinearScorer):
        column, sizes, form = "weight", scorer.weights, "+.4g"
        caption = "The largest weights of the ranker, for features scaled to [0, 1]"
    elif isinstance(scorer, TreesScorer):
        inner = scorer.feature[scorer.feature != LEAF]
        counts = np.bincount(inner, minlength=scorer.n_features)
        column, sizes, form = "splits", counts.astype(np.float64), ",.0f"
        caption = "The features with the most splits in the trees"
    else:
        return {}
    numbers = [f"feature {k + 1}" for k in range(fit.ranker.n_features_in_)]
    names = list(map(str, getattr(fit.ranker, "feature_names_in_", numbers)))
    names = list(fit.ranker.preprocessing_.names(names))
    largest = np.argsort(-np.abs(sizes), kind="stable")[:MAX_FEATURES]
    rows = [[names[k], f"{sizes[k]:{form}}"] for k in largest]
    return {"header": ["feature", column], "rows": rows, "caption": caption}


def _list_settings(fit: Fit) -> list[tuple[str, str]]:
    """Return the settings that were chosen, then those that were given."""
    normalizer = fit.ranker.preprocessing_.normalizer
    previous = fit.ranker.provenance_.get("previous")
    start = None if previous is None else f"from a ranker of {previous['n_clicks']:,.0f} clicks"
    rows = {
        **fit.chosen,
        "warm_start": start,
        "features": "as they are" if normalizer is None else normalizer.label,
        **{name: fit.ranker.get_params().get(name) for name in ("method", "unit")},
    }
    options = {name: value for name, value in fit.settings.items() if name not in rows}
    forms = {int: ",", float: ".3g"}
    return [
        (name.replace("_", " "), f"{value:{forms.get(type(value), '')}}")
        for name, value in (rows | options).items()
        if value not in (None, [])
    ]


# -- propensities by position ---------------------------------------------------------------------


class _Curve(NamedTuple):
    """Values by position; NaN ends are no interval."""

    position: Ints
    value: Floats
    low: Floats
    high: Floats


def _list_curves(fit: Fit) -> Mapping[str, Propensities | _Curve]:
    """Return the curves in use: by context, α and β of trust bias, or the mean per position."""
    source, log = fit.propensity_source, fit.shown
    if source.contexts is not None:
        return source.curves
    if source.curve is not None:
        return {source.curve.method: source.curve}
    if source.trust is not None:
        trust = source.trust
        alpha = _Curve(trust.position, trust.alpha, trust.alpha_low, trust.alpha_high)
        return {
            "α": alpha,
            "β": _Curve(trust.position, trust.beta, trust.beta_low, trust.beta_high),
        }
    assert log.position is not None  # noqa: S101 (a log of impressions has both)
    assert log.impressions is not None  # noqa: S101
    # A log with its own propensities has the mean clicks / Σ clicks/propensity.
    numerator, denominator = log.clicks, log.clicks / log.propensity
    if log.examination is not None:
        numerator, denominator = log.impressions * log.examination, log.impressions
    total = np.bincount(log.position, denominator)
    positions = np.flatnonzero(total > 0)
    means = np.bincount(log.position, numerator)[positions] / total[positions]
    return {"propensity": _Curve(positions, means, *np.full((2, len(means)), np.nan))}


@figure_style()
def _draw_curves(fit: Fit, curves: Mapping[str, Any], others: Mapping[str, Propensities]) -> str:
    """Return the chart of the curves in use; thin lines are the estimates of other methods."""
    figure, axes = new_axes(*CHART_SIZE)
    plot_propensities(curves, ax=axes)
    if fit.propensity_source.curve is not None:
        for (colour, _), (name, other) in zip(MARKED, others.items(), strict=False):
            axes.plot(other.position, other.value, color=colour, lw=0.8, alpha=0.8, label=name)
        axes.legend()
    elif fit.propensity_source.contexts is None:
        axes.set_ylabel(" and ".join(curves))
    return inline_figure(figure, "Propensity by position")


def _tabulate_curves(curves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header and the rows of a table of curves with their intervals."""
    if not curves:
        return {}
    header = ["position", *(cell for name in curves for cell in (name, "interval"))]
    longest = max(curves.values(), key=lambda curve: len(curve.value))
    rows = []
    for k, position in enumerate(longest.position[:MAX_POSITIONS]):
        row = [str(position)]
        for curve in curves.values():
            cells = ["–", "–"]
            if k < len(curve.value):
                cells[0] = f"{curve.value[k]:.3f}"
            if k < len(curve.value) and not np.isnan(curve.low[k]):
                cells[1] = f"{curve.low[k]:.3f} to {curve.high[k]:.3f}"
            row += cells
        rows.append(row)
    return {"header": header, "rows": rows}


# -- the page of drift ----------------------------------------------------------------------------


def write_drift_page(path: str | PathLike[str], drift: Drift, *, command: str) -> None:
    """Write the report of drift as one page, atomically."""
    features = sorted(
        drift.of_kind("feature"),
        key=lambda each: (not each.is_drift, -np.nan_to_num(abs(each.change))),
    )
    charts = {
        "clicks": _plot_changes(drift.of_kind("clicks"), "click rate"),
        "examination": _plot_changes(drift.of_kind("examination"), "propensity"),
    }
    page = pages.render_template(
        "countersample.fitting", "drift.html", title="What changed between two logs",
        kind="countersample log check", drift=drift, charts=charts, limits=LIMITS,
        features=features[:MAX_DRIFT_FEATURES], n_more_features=len(features) - MAX_DRIFT_FEATURES,
        command=command,
    )  # fmt: skip
    pages.write_page(path, page)


@figure_style()
def _plot_changes(changes: list[Change], label: str) -> str:
    """Return the chart of a rate by position, before and after; "" for one position."""
    changes = [change for change in changes if change.name != ALL_POSITIONS]
    if not changes:
        return ""
    figure, axes = new_axes(*CHART_SIZE)
    positions = [int(change.name.split()[-1]) for change in changes]
    for (colour, marker), side in zip(MARKED, ("before", "after"), strict=False):
        values = [getattr(change, side) for change in changes]
        line = "--" if side == "before" else "-"
        axes.plot(positions, values, line, color=colour, marker=marker, ms=4, lw=1.2, label=side)
    axes.set(xlabel="position", ylabel=label, xticks=positions, ylim=(0, None))
    axes.legend()
    return inline_figure(figure, f"{label} by position, before and after")
