"""A fit as one HTML page that needs no network: `write_page`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from countersample import pages
from countersample._version import __version__
from countersample.pages.drawing import MAIN, MARKED, figure_style, inline_figure, new_axes
from countersample.plotting import (
    plot_gain,
    plot_learning_curve,
    plot_propensities,
    plot_weights,
)
from countersample.scorers import LinearScorer, TreesScorer
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from countersample.fitting.propensity_source import PropensitySource
    from countersample.fitting.results import Fit
    from countersample.propensity import Propensities, TrustPropensities

N_FEATURES = 15  # the largest weights that are shown
N_POSITIONS = 10  # that have a line in the table
_ENGINES = ("duckdb", "polars", "pandas", "pyspark")
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "narwhals", "pyarrow")
EXPOSED = {
    "as logged": "A click weighs 1/propensity, as the log has it.",
    "policy-aware": "A click weighs 1/ρ, with ρ the probability that its item is examined in a "
    "session of its query, over what was shown.",
    "position-only": "A click weighs 1/θ of its position, as if every session showed it there.",
}
SESSIONS = {
    "sessions": "their ids",
    "first position": "the impressions of the first position, as the log has no ids of them",
}
_SIZE = (4.0, 2.5)  # of a plot, in inches: text can be read on a phone


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
    sign: pages.Sign = "good" if fit.is_better else "bad" if fit.gain.high < 0 else "unsure"
    content = [
        pages.notice(fit.verdict, sign),
        pages.warning_list(fit.warnings),
        pages.cards(
            _gain(fit),
            _positions(fit),
            *([_learning(fit)] if fit.learning_curve else []),
            _weights(fit),
            _features(fit),
            _heaviest(fit, show_ids=show_ids),
            _log(fit),
            _settings(fit),
        ),
        pages.section("To repeat it", pages.code(command), pages.small(_versions()), name="repeat"),
    ]
    title = f"A ranker from {fit.check.counts.n_clicks:,} clicks"
    pages.write_page(path, pages.render_page(title, content, kind="countersample fit"))


def _gain(fit: Fit) -> str:
    gain = fit.gain
    rows = [
        *((name, *(f"{value:.4g}" for value in (each.value, each.low, each.high)))
          for name, each in (("logged", gain.logged), ("new ranker", gain.new), ("gain", gain))),
        ("gain, relative", *(f"{share:+.1%}" for share in
                             (gain.relative, gain.relative_low, gain.relative_high))),
    ]  # fmt: skip
    if_wrong = "The interval takes the propensities as they are"
    if fit.is_joint:
        if_wrong = "In each draw propensities are estimated again"
    if fit.gain_at_ends is not None:
        low, high = fit.gain_at_ends
        if_wrong += (
            "; with all of them at the lower ends of their intervals the gain would be "
            f"{low:+.1%}, at the upper ends {high:+.1%}"
        )
    text = (
        f"{gain.new.metric} a {gain.new.per}, from clicks weighted by 1/propensity. Each query is "
        f"ranked by a ranker that was trained without it. The estimator is {fit.estimator.name}: "
        f"{fit.estimator.reason}. The {gain.new.confidence:.0%} interval "
        f"is a bootstrap over {gain.new.resampled}. The value rests on as much as "
        f"{gain.new.effective_clicks:,.0f} clicks of equal weight. {if_wrong}."
    )
    figure, axes = new_axes(_SIZE[0], 0.9)
    plot_gain(gain, ax=axes)
    drawn = inline_figure(
        figure,
        f"{gain.relative:+.1%}, interval {gain.relative_low:+.1%} to {gain.relative_high:+.1%}",
    )
    caption = f"{gain.new.metric} a {gain.new.per}"
    table = pages.table(("", "estimate", "low", "high"), rows, caption=caption)
    return pages.card("The gain over what was logged", pages.paragraphs([text]), drawn, table)


@figure_style()
def _positions(fit: Fit) -> str:
    source = fit.propensity_source
    figure, axes = new_axes(*_SIZE)
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
    return pages.card("Examination by position", pages.paragraphs([text]), drawn, table)


def _of_curve(
    curve: Propensities, source: PropensitySource, axes: Axes
) -> tuple[str, list[str], list[list[str]]]:
    """Draw a curve beside those of other methods; return the text, and the table."""
    check = source.cross_check
    others = {} if check is None else dict(check.estimates)
    others.pop(curve.method, None)
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
        [str(k + 1), f"{curve.value[k]:.3f}", f"{curve.low[k]:.3f} to {curve.high[k]:.3f}",
         *(f"{other.value[k]:.3f}" for other in others.values())]
        for k in range(len(curve.value))
    ]  # fmt: skip
    return text, ["position", curve.method, "interval", *others], rows


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


def _learning(fit: Fit) -> str:
    metric = fit.gain.new.metric
    found = [each for _, each in fit.learning_curve]
    figure, axes = new_axes(*_SIZE)
    plot_learning_curve(
        [steps for steps, _ in fit.learning_curve], [each.value for each in found],
        low=[each.low for each in found], high=[each.high for each in found],
        label="held-out queries", metric=metric, levels={"logged": fit.gain.logged.value}, ax=axes,
    )  # fmt: skip
    text = (
        f"{metric} of held-out queries in the course of training, estimated from clicks, with its "
        "interval."
    )
    drawn = inline_figure(figure, f"{metric} by steps")
    return pages.card("Learning", pages.paragraphs([text]), drawn)


def _weights(fit: Fit) -> str:
    found = fit.weights
    figure, axes = new_axes(*_SIZE)
    plot_weights(found, ax=axes)
    text = (
        f"{EXPOSED[fit.exposure]} Sessions are counted by "
        f"{SESSIONS[fit.check.counts.sessions_from]}. The mean weight of a click is "
        f"{found.mean_weight:.3g}, the largest {found.max_weight:.3g}; as much as "
        f"{found.effective_clicks:,.0f} of {found.n_clicks:,.0f} clicks of equal weight. "
        f"{'' if fit.clip is None else fit.clip.sentence}"
    )
    drawn = inline_figure(figure, "Clicks by weight")
    return pages.card("How clicks are weighted", pages.paragraphs([text]), drawn)


def _features(fit: Fit) -> str:
    """Of a linear or boosted ranker; a network tells nothing by its weights."""
    scorer = fit.ranker.scorer_
    if isinstance(scorer, LinearScorer):
        column, sizes, form = "weight", scorer.weights, "+.4g"
        caption = "The largest weights of the ranker, for features brought to [0, 1]"
    elif isinstance(scorer, TreesScorer):
        inner = scorer.feature[scorer.feature != LEAF]
        counts = np.bincount(inner, minlength=scorer.n_features)
        column, sizes, form = "splits", counts.astype(np.float64), ",.0f"
        caption = "The features that the trees ask for most often"
    else:
        return ""
    names = getattr(fit.ranker, "feature_names_in_", None)
    largest = np.argsort(-np.abs(sizes), kind="stable")[:N_FEATURES]
    rows = [
        (f"feature {k + 1}" if names is None else str(names[k]), f"{sizes[k]:{form}}")
        for k in largest
    ]
    return pages.card("What it learned", pages.table(("feature", column), rows, caption=caption))


def _heaviest(fit: Fit, *, show_ids: bool) -> str:
    columns = ["positions", "impressions", "clicks", "weight", "of all"]
    header = [*(["query", "item"] if show_ids else []), *columns]
    rows = [
        [*([str(pair.query_id), str(pair.item_id)] if show_ids else []), pair.positions,
         f"{pair.impressions:,}", f"{pair.clicks:,.4g}", f"{pair.weight:,.1f}", f"{pair.share:.2%}"]
        for pair in fit.heaviest
    ]  # fmt: skip
    caption = "The query-item pairs that have the most weight"
    return pages.card("What counts most", pages.table(header, rows, caption=caption))


def _log(fit: Fit) -> str:
    check, counts = fit.check, fit.check.counts
    rows = [
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
    return pages.card("The log", pages.facts(rows))


def _settings(fit: Fit) -> str:
    tuning, params, chosen = fit.tuning, fit.ranker.get_params(), fit.chosen
    clip = chosen.pop("clip")
    by_unit = f", by {params['unit']}" if "unit" in params else ""
    rows = [
        ("method", f"{params['method']}{by_unit}"),
        ("propensities", fit.propensity_source.source),
        *((name.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:.3g}")
          for name, value in chosen.items()),
        ("clip", "none" if clip is None else f"{clip:.3g}"),
        *(() if tuning is None else (
            ("settings tried", f"{len(tuning.trials)}"),
            ("judged by", f"{tuning.metric} of {tuning.n_queries:,} held-out queries"),
        )),
        *((name, str(value)) for name, value in fit.settings.items() if value is not None
          and name not in {"metric", "method"}),
    ]  # fmt: skip
    by_clicks = [name.replace("_", " ") for name in chosen] + ([] if fit.clip is None else ["clip"])
    text = f"Chosen by the clicks of held-out queries: {', '.join(by_clicks)}."
    return pages.card("Settings", pages.paragraphs([text]), pages.facts(rows))


def _versions() -> str:
    found = [f"countersample {__version__}", f"Python {platform.python_version()}"]
    for name in (*_PACKAGES, *_ENGINES):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # an engine that is not installed
            continue
    return ", ".join(found)
