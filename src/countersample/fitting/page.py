"""A fit as one HTML page that needs no network: `write_page`."""

from __future__ import annotations

import platform
from html import escape
from importlib import metadata, resources
from typing import TYPE_CHECKING

import numpy as np

from countersample._files import atomic_path
from countersample._version import __version__
from countersample.fitting.drawing import (
    Series,
    bars_figure,
    interval_figure,
    line_figure,
    points_figure,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from countersample.fitting.pipeline import Fit

N_FEATURES = 15  # the largest weights that are shown
N_POSITIONS = 10  # that have a line in the table
_ENGINES = ("duckdb", "polars", "pandas", "pyspark")
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "narwhals", "pyarrow")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<p class="eyebrow">countersample fit</p>
<h1>{title}</h1>
<div class="verdict {sign}"><p>{verdict}</p></div>
{warnings}
<div class="cards">
{cards}
</div>
<h2>To repeat it</h2>
<pre>{command}</pre>
<p class="small">{versions}</p>
</body>
</html>
"""


def write_page(
    path: str | PathLike[str], fit: Fit, *, command: str, show_ids: bool = False
) -> None:
    """Write what a fit found as one page, atomically.

    Parameters
    ----------
    path : path
    fit : Fit
    command : str
        What repeats it.
    show_ids : bool
        Whether the rows with the most weight are told by their query and item id. Else the page
        has no id at all.
    """
    gain = fit.gain
    sign = "good" if fit.is_better else "bad" if gain.high < 0 else "unsure"
    page = _PAGE.format(
        title=f"A ranker from {fit.check.counts.n_clicks:,} clicks",
        css=resources.files("countersample.fitting").joinpath("page.css").read_text("utf-8"),
        sign=sign,
        verdict=escape(fit.verdict),
        warnings=_warnings(fit.warnings),
        cards="\n".join(
            _card(title, text, *content)
            for title, text, *content in (
                _gain(fit),
                _positions(fit),
                _learning(fit),
                _weights(fit),
                _features(fit),
                _heaviest(fit, show_ids=show_ids),
                _log(fit),
                _settings(fit),
            )
        ),
        command=escape(command),
        versions=escape(_versions()),
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


Card = tuple[str, ...]  # a title, a text, and what follows as HTML


def _gain(fit: Fit) -> Card:
    gain = fit.gain
    rows = [
        ("", "estimate", "low", "high"),
        ("logged", *_numbers(gain.logged.value, gain.logged.low, gain.logged.high)),
        ("new ranker", *_numbers(gain.new.value, gain.new.low, gain.new.high)),
        ("gain", *_numbers(gain.value, gain.low, gain.high)),
        ("gain, relative", *(f"{share:+.1%}" for share in
                             (gain.relative, gain.relative_low, gain.relative_high))),
    ]  # fmt: skip
    text = (
        f"{gain.new.metric} a {gain.new.per}, from clicks weighted by 1/propensity. Each query is "
        f"ranked by a ranker that was trained without it. The {gain.new.confidence:.0%} interval "
        f"is a bootstrap over {gain.new.resampled}. The value rests on as much as "
        f"{gain.new.effective_clicks:,.0f} clicks of equal weight. {_if_wrong(fit)}"
    )
    drawn = interval_figure(gain.relative, gain.relative_low, gain.relative_high)
    return "The gain over what was logged", text, drawn, _table(rows[0], rows[1:])


def _if_wrong(fit: Fit) -> str:
    if fit.gain_at_ends is None:
        return "The interval takes the propensities as they are."
    low, high = fit.gain_at_ends
    return (
        "The interval takes the propensities as they are; with all of them at the lower ends of "
        f"their intervals the gain would be {low:+.1%}, at the upper ends {high:+.1%}."
    )


def _positions(fit: Fit) -> Card:
    curve, check = fit.looks.curve, fit.looks.cross_check
    title = "Where users look"
    if curve is None:
        known = _mean_propensities(fit)
        drawn = points_figure([known], x_label="position", y_label="propensity")
        text = (
            f"Propensities: {fit.looks.source}. Shown is their mean over the clicks of a position."
        )
        return title, text, drawn
    places = curve.position.tolist()
    main = Series(
        curve.method, places, curve.value.tolist(), curve.low.tolist(), curve.high.tolist()
    )
    others = [] if check is None else [
        Series(name, each.position.tolist(), each.value.tolist())
        for name, each in check.estimates.items() if name != curve.method
    ]  # fmt: skip
    drawn = points_figure([main, *others], x_label="position", y_label="propensity")
    text = (
        f"The probability to be looked at, relative to position {curve.reference}: {curve.method}, "
        f"{fit.looks.source}, with {curve.confidence:.0%} intervals."
    )
    if check is None:
        return title, text, drawn
    faint = " Faint: the other methods." if others else ""
    names = list(check.estimates)
    rows = [
        [str(place), *(f"{check.estimates[name].value[place - 1]:.3f}" for name in names)]
        for place in places[:N_POSITIONS]
    ]
    return title, f"{text}{faint} {check.sentence}", drawn, _table(["position", *names], rows)


def _mean_propensities(fit: Fit) -> Series:
    """Return clicks / Σ clicks/propensity by position."""
    log = fit.shown
    assert log.position is not None  # noqa: S101 (it has them)
    clicks = np.bincount(log.position, log.clicks)
    weights = np.bincount(log.position, log.weights)
    places = np.flatnonzero(weights > 0)
    return Series("", places.tolist(), (clicks[places] / weights[places]).tolist())


def _learning(fit: Fit) -> Card:
    steps = [steps for steps, _ in fit.learning_curve]
    found = [each for _, each in fit.learning_curve]
    line = Series(
        "held-out queries", steps, [each.value for each in found],
        [each.low for each in found], [each.high for each in found],
    )  # fmt: skip
    metric = fit.gain.new.metric
    drawn = line_figure(line, ("logged", fit.gain.logged.value), x_label="steps", y_label=metric)
    text = (
        f"{metric} of held-out queries in the course of training, estimated from clicks, with its "
        "interval."
    )
    return "Learning", text, drawn


def _weights(fit: Fit) -> Card:
    figures = fit.weights
    bars = [(f"{low:g}", clicks) for low, _, clicks in figures.histogram]
    drawn = bars_figure(
        bars, x_label="weight, 1/propensity: from this to twice as much", y_label="clicks"
    )
    text = (
        f"The mean weight of a click is {figures.mean_weight:.3g}, the largest "
        f"{figures.max_weight:.3g}; as much as {figures.effective_clicks:,.0f} of "
        f"{figures.n_clicks:,.0f} clicks of equal weight. {fit.clip.sentence}"
    )
    return "How clicks are weighted", text, drawn


def _features(fit: Fit) -> Card:
    ranker = fit.ranker
    names = getattr(ranker, "feature_names_in_", None)
    largest = np.argsort(-np.abs(ranker.weights_), kind="stable")[:N_FEATURES]
    rows = [
        (f"feature {k + 1}" if names is None else str(names[k]), f"{ranker.weights_[k]:+.4g}")
        for k in largest
    ]
    text = "The largest weights of the ranker, for features brought to [0, 1]."
    return "What it learned", text, _table(("feature", "weight"), rows)


def _heaviest(fit: Fit, *, show_ids: bool) -> Card:
    header = [*(["query", "item"] if show_ids else []), "position", "clicks", "weight", "of all"]
    rows = [
        [*([str(row.query_id), str(row.item_id)] if show_ids else []), str(row.position),
         f"{row.clicks:,}", f"{row.weight:,.1f}", f"{row.share:.2%}"]
        for row in fit.heaviest
    ]  # fmt: skip
    text = "The rows of the log that have the most weight."
    return "What counts most", text, _table(header, rows)


def _log(fit: Fit) -> Card:
    check, counts = fit.check, fit.check.counts
    rows = [
        ("rows", f"{check.problems.n_rows:,}"),
        ("impossible rows", f"{check.problems.n_invalid:,}"),
        ("impressions", f"{counts.n_impressions:,}"),
        ("clicks", f"{counts.n_clicks:,}"),
        ("clicks used", f"{fit.join.n_joined:,}"),
        ("sessions", "not logged" if check.n_sessions is None else f"{check.n_sessions:,}"),
        ("queries", f"{len(counts.query_ids):,}"),
        ("items", f"{len(counts.item_ids):,}"),
        ("query-item pairs", f"{check.n_pairs:,}"),
        ("at several positions", f"{check.n_moved / check.n_pairs:.1%}"),
        ("counted by", check.engine),
    ]
    return "The log", "", _table(("", ""), rows)


def _settings(fit: Fit) -> Card:
    tuning, ranker = fit.tuning, fit.ranker
    rows = [
        ("method", f"{ranker.method}, by {ranker.unit}"),
        ("propensities", fit.looks.source),
        ("learning rate", f"{tuning.learning_rate:.3g}"),
        ("steps", f"{tuning.steps:,}"),
        ("clip", "none" if tuning.clip is None else f"{tuning.clip:.3g}"),
        ("settings tried", f"{len(tuning.trials)}"),
        ("judged by", f"{tuning.metric} of {tuning.n_queries:,} held-out queries"),
        *((name, str(value)) for name, value in fit.settings.items() if value is not None
          and name not in {"metric", "method"}),
    ]  # fmt: skip
    text = "Learning rate, steps and clipping were chosen by the clicks of held-out queries."
    return "Settings", text, _table(("", ""), rows)


def _card(title: str, text: str, *content: str) -> str:
    told = f"<p>{escape(text)}</p>" if text else ""
    return f'<section class="card"><h2>{escape(title)}</h2>{told}{"".join(content)}</section>'


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return f'<div class="warnings"><b>Look at this first</b><ul>{items}</ul></div>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    top = f"<thead><tr>{head}</tr></thead>" if any(header) else ""
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table>{top}<tbody>{body}</tbody></table></div>'


def _numbers(*values: float) -> tuple[str, ...]:
    return tuple(f"{value:.4g}" for value in values)


def _versions() -> str:
    found = [f"countersample {__version__}", f"Python {platform.python_version()}"]
    for name in (*_PACKAGES, *_ENGINES):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # an engine that is not installed
            continue
    return ", ".join(found)
