"""Write the reports of a fit and of drift as HTML pages that need no network.

The text and the order of the cards are in ``templates/fit.html`` and ``templates/drift.html``; this
module computes their tables and draws their charts.
"""

from __future__ import annotations

import platform
import shlex
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import pages
from countersample._version import __version__
from countersample.export.targets import TARGETS
from countersample.fitting import drift as drifting
from countersample.pages.charts import MAIN, MARKED, figure_style, inline_figure, new_axes
from countersample.plotting import (
    plot_gain,
    plot_learning_curve,
    plot_propensities,
    plot_weights,
)
from countersample.scorers import LEAF, LinearScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from matplotlib.axes import Axes

    from countersample.fitting.drift import Change, Drift
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.fitting.results import Fit
    from countersample.propensity import Propensities, TrustPropensities
    from countersample.tuning import PathChoice

    Table = tuple[str, list[str], list[list[str]]]  # the text above, the header, the rows

MAX_FEATURES = 15  # largest weights of a ranker that are shown
MAX_POSITIONS = 10  # rows of the table of propensities
MAX_DRIFT_FEATURES = 30  # with the largest changes
MIN_P_VALUE = 0.001  # smaller ones are not distinguished
CHART_SIZE = (4.0, 2.5)  # inches: text is readable on a phone
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "narwhals", "pyarrow", "duckdb", "pyspark")
_EXPOSURES = {
    "as logged": "A click weighs 1/propensity, as in the log.",
    "policy-aware": "A click weighs 1/ρ, with ρ the probability that its item is examined in a "
    "session of its query, over everything that was shown.",
    "position-only": "A click weighs 1/θ of its position, as if every session showed it there.",
}
_SESSIONS = {
    "sessions": "their ids",
    "first position": "the impressions of the first position, as the log has no session ids",
}
_STARTS = {"served": "your current ranker", "linear": "the linear ranker"}


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
    sign = "good" if fit.is_better else "bad" if fit.is_worse else "unsure"
    positions = _position_table(fit)
    column, feature_rows, feature_caption = _feature_table(fit)
    chosen = [name.replace("_", " ") for name in fit.chosen if name != "clip"]
    page = pages.render_template(
        "countersample.fitting", "fit.html",
        title=f"A ranker from {fit.check.counts.n_clicks:,} clicks",
        kind="countersample fit",
        fit=fit, gain=fit.gain, source=fit.propensity_source, sign=sign, command=command,
        gain_rows=_gain_rows(fit),
        positions=positions,
        charts=_fit_charts(fit) | {"positions": positions["chart"]},
        exposure=_EXPOSURES[fit.exposure],
        sessions=_SESSIONS[fit.check.counts.sessions_from],
        feature_header=["feature", column], feature_rows=feature_rows,
        feature_caption=feature_caption,
        show_ids=show_ids, heavy_rows=_heavy_rows(fit, show_ids=show_ids),
        log_rows=_log_rows(fit),
        setting_rows=_setting_rows(fit), chosen=", ".join(chosen),
        versions=_versions(),
        export=_export_command(fit, ranker),
    )  # fmt: skip
    pages.write_page(path, page)


@figure_style()
def _fit_charts(fit: Fit) -> dict[str, str]:
    """Return the charts of the gain, the learning curve and the weights; "" if there is none."""
    charts = dict.fromkeys(("gain", "learning", "weights"), "")
    gain = fit.gain
    if not fit.is_withheld:
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


def _gain_rows(fit: Fit) -> list[list[str]]:
    gain = fit.gain
    values: dict[str, Any] = {"logged": gain.logged, "new ranker": gain.new, "gain": gain}
    relative = (gain.relative, gain.relative_low, gain.relative_high)
    return [
        *([name, *(f"{number:.4g}" for number in (each.value, each.low, each.high))]
          for name, each in values.items()),
        ["gain, relative", *(f"{share:+.1%}" for share in relative)],
    ]  # fmt: skip


def _feature_table(fit: Fit) -> tuple[str, list[list[str]], str]:
    """Return the column, the rows and the caption of a linear or boosted ranker's features.

    There are no rows for a network, whose weights have no such meaning.
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
        return "", [], ""
    names = [f"feature {k + 1}" for k in range(fit.ranker.n_features_in_)]
    names = list(map(str, getattr(fit.ranker, "feature_names_in_", names)))
    names = list(fit.ranker.preprocessing_.names(names))
    largest = np.argsort(-np.abs(sizes), kind="stable")[:MAX_FEATURES]
    return column, [[names[k], f"{sizes[k]:{form}}"] for k in largest], caption


def _heavy_rows(fit: Fit, *, show_ids: bool) -> list[list[str]]:
    return [
        [*([str(pair.query_id), str(pair.item_id)] if show_ids else []), pair.positions,
         f"{pair.impressions:,}", f"{pair.clicks:,.4g}", f"{pair.weight:,.1f}", f"{pair.share:.2%}"]
        for pair in fit.heaviest
    ]  # fmt: skip


def _log_rows(fit: Fit) -> list[tuple[str, str]]:
    check, counts = fit.check, fit.check.counts
    return [
        ("rows", f"{check.problems.n_rows:,}"),
        ("impossible rows", f"{check.problems.n_invalid:,}"),
        ("impressions", f"{counts.n_impressions:,}"),
        ("clicks", f"{counts.n_clicks:,}"),
        ("clicks used", f"{fit.join.n_joined:,}"),
        ("sessions", "not logged" if check.n_sessions is None else f"{check.n_sessions:,}"),
        ("queries", f"{len(counts.query_ids):,}"),
        ("items", f"{check.n_items:,}"),
        ("query-item pairs", f"{check.n_pairs:,}"),
        ("at several positions", f"{check.n_moved / check.n_pairs:.1%}"),
        ("counted by", check.engine),
    ]


def _setting_rows(fit: Fit) -> list[tuple[str, str]]:
    path, params, chosen = fit.path, fit.ranker.get_params(), dict(fit.chosen)
    clip, normalizer = chosen.pop("clip"), fit.ranker.preprocessing_.normalizer
    unit = f", by {params['unit']}" if "unit" in params else ""
    rows = [
        ("method", f"{params['method']}{unit}"),
        ("propensities", fit.propensity_source.source),
        *((name.replace("_", " "), _format(value)) for name, value in chosen.items()),
        ("features", "as they are" if normalizer is None else normalizer.label),
        ("clip", "none" if clip is None else f"{clip:.3g}"),
    ]
    if path is not None:
        rows += [
            ("candidates", f"{len(path.candidates)}, on paths from {_list_starts(path)}"),
            ("share of your current ranker", f"{path.kept:.0%}"),
            ("selected by", f"{path.metric} of {path.n_queries:,} held-out queries"),
        ]
    settings = {name: value for name, value in fit.settings.items() if value not in (None, [])}
    return rows + [
        (name.replace("_", " "), str(value))
        for name, value in settings.items()
        if name not in {"metric", "method"}
    ]


def _format(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _list_starts(path: PathChoice) -> str:
    starts = dict.fromkeys(each.start for each in path.candidates)
    return " and from ".join(_STARTS.get(start, start) for start in starts)


def _export_command(fit: Fit, ranker: str | PathLike[str]) -> dict[str, str]:
    """Return the command that exports the ranker, and the other targets."""
    target = "onnx" if fit.ranker.kind == "neural" else "elasticsearch"
    others = [name for name, each in TARGETS.items() if fit.ranker.kind in each.kinds]
    others.remove(target)
    model = "model.onnx" if target == "onnx" else "model.json"
    command = f"countersample export {shlex.quote(str(ranker))} --to {target} -o {model}"
    return {"command": command, "others": ", ".join(others)}


def _versions() -> str:
    versions = [f"countersample {__version__}", f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # an engine that is not installed
            continue
    return ", ".join(versions)


# -- propensities by position ---------------------------------------------------------------------


@figure_style()
def _position_table(fit: Fit) -> dict[str, Any]:
    """Return the curve in use, as a chart, a text and a table, and those of other methods."""
    source = fit.propensity_source
    figure, axes = new_axes(*CHART_SIZE)
    if source.contexts is not None:
        text, header, rows = _tabulate_contexts(source, axes)
    elif source.trust is not None:
        text, header, rows = _tabulate_trust(source.trust, axes)
    elif source.curve is None:
        text, header, rows = _tabulate_means(fit, axes)
    else:
        text, header, rows = _tabulate_curve(source.curve, source, axes)
    others = _other_curves(source)
    n = min(MAX_POSITIONS, *(len(curve.value) for curve in others.values())) if others else 0
    return {
        "text": text,
        "chart": inline_figure(figure, "Propensity by position"),
        "header": header,
        "rows": rows[:MAX_POSITIONS],
        "other_header": ["position", *others],
        "other_rows": [
            [str(k + 1), *(f"{curve.value[k]:.3f}" for curve in others.values())] for k in range(n)
        ],
    }


def _other_curves(source: PropensitySource) -> dict[str, Propensities]:
    """Return the curves of the methods that are not in use."""
    curves = {} if source.cross_check is None else dict(source.cross_check.estimates)
    if source.curve is not None:
        curves.pop(source.curve.method, None)
    return curves


def _tabulate_curve(curve: Propensities, source: PropensitySource, axes: Axes) -> Table:
    check, others = source.cross_check, _other_curves(source)
    plot_propensities(curve, ax=axes)
    for (colour, _), (name, other) in zip(MARKED, others.items(), strict=False):
        axes.plot(other.position, other.value, color=colour, lw=0.8, alpha=0.8, label=name)
    axes.legend()
    thin = "; thin lines are other methods" if others else ""
    text = (
        "The probability to be examined, relative to position 1: "
        f"{curve.method}, {source.source}, with {curve.confidence:.0%} intervals{thin}. "
        f"{'' if check is None else check.sentence}"
    )
    columns = (curve.value, curve.low, curve.high)
    rows = [
        [str(k), f"{value:.3f}", f"{low:.3f} to {high:.3f}"]
        for k, (value, low, high) in enumerate(zip(*columns, strict=True), 1)
    ]
    return text, ["position", curve.method, "interval"], rows


def _tabulate_contexts(source: PropensitySource, axes: Axes) -> Table:
    curves = source.curves
    plot_propensities(curves, ax=axes)
    confidence = next(iter(curves.values())).confidence
    text = (
        "The probability to be examined, relative to position 1 of each context: "
        f"{source.source}, with {confidence:.0%} intervals."
    )
    rows = []
    for k in range(max(len(curve.value) for curve in curves.values())):
        cells = [
            f"{c.value[k]:.3f} ({c.low[k]:.3f} to {c.high[k]:.3f})" if k < len(c.value) else "–"
            for c in curves.values()
        ]
        rows.append([str(k + 1), *cells])
    return text, ["position", *curves], rows


def _tabulate_trust(trust: TrustPropensities, axes: Axes) -> Table:
    symbols = {"alpha": "α", "beta": "β"}
    ends = ("", "_low", "_high")
    columns = {name: [getattr(trust, name + end) for end in ends] for name in symbols}
    for (colour, marker), (name, (value, low, high)) in zip(MARKED, columns.items(), strict=False):
        error = np.abs(np.stack([low, high]) - value)
        axes.errorbar(trust.position, value, error, label=symbols[name], color=colour,
                      marker=marker, ms=4, lw=1.2, elinewidth=0.9, capsize=2)  # fmt: skip
    axes.set(xlabel="position", ylabel="α and β", xticks=trust.position)
    axes.legend()
    text = (
        "P(click) = β + α·relevance at each position, estimated from items that moved, with "
        f"{trust.confidence:.0%} intervals; α is 1 at position 1, β 0 at the last. "
        f"{trust.sentence}"
    )
    rows = []
    for k in range(len(trust.alpha)):
        cells = []
        for value, low, high in columns.values():
            cells += [f"{value[k]:.3f}", f"{low[k]:.3f} to {high[k]:.3f}"]
        rows.append([str(k + 1), *cells])
    return text, ["position", "α", "interval", "β", "interval"], rows


def _tabulate_means(fit: Fit, axes: Axes) -> Table:
    """Return the mean of θ over what was shown at each position.

    For a log with its own propensities, clicks / Σ clicks/propensity.
    """
    log, source = fit.shown, fit.propensity_source
    assert log.position is not None  # noqa: S101 (a log of impressions has both)
    assert log.impressions is not None  # noqa: S101
    numerator, denominator = log.clicks, log.clicks / log.propensity
    if log.examination is not None:
        numerator, denominator = log.impressions * log.examination, log.impressions
    total = np.bincount(log.position, denominator)
    positions = np.flatnonzero(total > 0)
    means = np.bincount(log.position, numerator)[positions] / total[positions]
    axes.plot(positions, means, "o-", color=MAIN, ms=4)
    axes.set(xlabel="position", ylabel="propensity", ylim=(0, None))
    rows = [[str(k), f"{value:.3g}"] for k, value in zip(positions, means, strict=True)]
    text = f"Propensities: {source.source}. The chart shows their mean per position."
    return text, ["position", "propensity"], rows


# -- the page of drift ----------------------------------------------------------------------------


def write_drift_page(path: str | PathLike[str], drift: Drift, *, command: str) -> None:
    """Write the report of drift as one page, atomically."""
    features = sorted(
        drift.of_kind("feature"),
        key=lambda each: (not each.is_drift, -np.nan_to_num(abs(each.change))),
    )
    rows = {
        "relevant": [_change_row(each, prefix=f"{each.kind}: ")
                     for each in drift.relevant_changes],
        "clicks": _change_rows(drift.of_kind("clicks")),
        "examination": _change_rows(drift.of_kind("examination")),
        "shares": _change_rows(drift.of_kind("policy", "context")),
        "queries": _change_rows(drift.of_kind("queries", "pages")),
        "features": [
            [*_change_row(each), "–" if each.stability_index is None
             else f"{each.stability_index:.3g}"]
            for each in features[:MAX_DRIFT_FEATURES]
        ],
    }  # fmt: skip
    charts = {
        "clicks": _plot_changes(drift.of_kind("clicks"), "click rate"),
        "examination": _plot_changes(drift.of_kind("examination"), "propensity"),
    }
    margins = {
        "rate": drifting.RATE_MARGIN, "share": drifting.SHARE_MARGIN,
        "query": drifting.QUERY_MARGIN, "feature": drifting.FEATURE_MARGIN,
    }  # fmt: skip
    page = pages.render_template(
        "countersample.fitting", "drift.html", title="What changed between two logs",
        kind="countersample log check", drift=drift, rows=rows, charts=charts, margins=margins,
        n_more_features=len(features) - MAX_DRIFT_FEATURES, command=command,
    )  # fmt: skip
    pages.write_page(path, page)


def _change_rows(changes: Iterable[Change]) -> list[list[str]]:
    rows = []
    for change in changes:
        row = _change_row(change)
        row[0] = row[0].replace("position ", "").removesuffix(" positions")
        rows.append(row)
    return rows


def _change_row(change: Change, *, prefix: str = "") -> list[str]:
    """Return a row of the table of changes; relevant ones have a mark."""

    def show(value: float) -> str:
        if not np.isfinite(value):
            return "–"
        return f"{value:.3g}" if change.kind in {"pages", "examination"} else f"{100 * value:.2f} %"

    p = "–" if change.adjusted is None else f"{change.adjusted:.2g}"
    if change.adjusted is not None and change.adjusted < MIN_P_VALUE:
        p = f"< {MIN_P_VALUE:g}"
    mark = "● " if change.is_drift else ""
    values = (show(change.before), show(change.after))
    return [f"{mark}{prefix}{change.name}", *values, change.size, change.interval, p]


@figure_style()
def _plot_changes(changes: list[Change], label: str) -> str:
    """Return the chart of a rate by position, before and after; "" for one position."""
    changes = [change for change in changes if change.name != drifting.ALL_POSITIONS]
    if not changes:
        return ""
    figure, axes = new_axes(*CHART_SIZE)
    positions = [int(change.name.split()[-1]) for change in changes]
    for (colour, marker), side in zip(MARKED, ("before", "after"), strict=False):
        values = [getattr(change, side) for change in changes]
        line = "--" if side == "before" else "-"
        axes.plot(positions, values, line, color=colour, marker=marker, ms=4, lw=1.2, label=side)
    axes.set(xlabel="position", ylabel=label, ylim=(0, None))
    axes.legend()
    return inline_figure(figure, f"{label} by position, before and after")
