"""A fit as one HTML page that needs no network: `write_page`."""

from __future__ import annotations

import platform
import shlex
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from countersample import pages
from countersample._version import __version__
from countersample.export.exporting import TARGETS
from countersample.fitting.page_positions import SIZE, positions_card
from countersample.pages.drawing import inline_figure, new_axes
from countersample.plotting import plot_gain, plot_learning_curve, plot_weights
from countersample.scorers import LinearScorer, TreesScorer
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from os import PathLike

    from countersample.fitting.results import Fit
    from countersample.tuning import PathChoice

N_FEATURES = 15  # the largest weights that are shown
_ENGINES = ("duckdb", "pyspark")
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "narwhals", "pyarrow")
WITHHELD = (
    "Ask where the feature comes from that is named above. If it was computed from these clicks, "
    "fit again without it (--exclude), or with one from earlier days. If it was not, say so "
    "(--accept-features), and there is a verdict."
)
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


def write_page(
    path: str | PathLike[str],
    fit: Fit,
    *,
    command: str,
    ranker: str | PathLike[str] = "ranker.json",
    show_ids: bool = False,
) -> None:
    """Write what a fit found as one page, atomically.

    Parameters
    ----------
    path : path
    fit : Fit
    command : str
        What repeats it.
    ranker : path
        Where the ranker is saved: the command that exports it names that file.
    show_ids : bool
        Whether the rows with the most weight are told by their query and item id. Else the page
        has no id at all.
    """
    content = [
        pages.notice(fit.verdict, _sign(fit)),
        pages.facts(_rests_on(fit)),
        pages.warning_list(fit.warnings),
        pages.cards(
            _gain(fit),
            positions_card(fit),
            *([_learning(fit)] if fit.learning_curve else []),
            _weights(fit),
            _features(fit),
            _heaviest(fit, show_ids=show_ids),
            _log(fit),
            _settings(fit),
        ),
        pages.section("To repeat it", pages.code(command), pages.small(_versions()), name="repeat"),
        _next(fit, ranker),
    ]
    title = f"A ranker from {fit.check.counts.n_clicks:,} clicks"
    pages.write_page(path, pages.render_page(title, content, kind="countersample fit"))


def _sign(fit: Fit) -> pages.Sign:
    if fit.is_better:
        return "good"
    return "bad" if fit.is_worse else "unsure"


def _rests_on(fit: Fit) -> list[tuple[str, str]]:
    """Return what the verdict rests on, in a few lines: it is read on the first screen."""
    alike = f"{fit.gain.new.effective_clicks:,.0f}"
    again = ", estimated again in each draw" if fit.is_joint else ""
    return [
        ("judged by", f"{fit.judged_by.n_clicks:,} clicks, worth {alike} of equal weight"),
        ("speaks of", fit.judged_by.population),
        ("propensities", f"{fit.propensity_source.source}{again}"),
    ]


def _next(fit: Fit, ranker: str | PathLike[str]) -> str:
    """Return what to do now: serve it, in an A/B test that is long enough; or not."""
    if fit.is_withheld:
        return pages.section("What to do next", pages.paragraphs([WITHHELD]), name="next")
    target = "onnx" if fit.ranker.kind == "neural" else "elasticsearch"
    others = [name for name, each in TARGETS.items() if fit.ranker.kind in each.kinds]
    others.remove(target)
    model = "model.onnx" if target == "onnx" else "model.json"
    command = f"countersample export {shlex.quote(str(ranker))} --to {target} -o {model}"
    return pages.section(
        "What to do next",
        pages.paragraphs([_advice(fit)]),
        pages.code(command),
        pages.small(f"Also --to {', '.join(others)}. The card beside it says this verdict, too."),
        pages.paragraphs([f"An A/B test tells for sure. {fit.ab_plan.sentence}"]),
        pages.small(
            "Sessions are taken as independent: where the same users come back, plan for more."
        ),
        name="next",
    )


def _advice(fit: Fit) -> str:
    if fit.is_better:
        return "Export the ranker, and show it to a part of the users first."
    if fit.is_worse:
        return "Do not use this ranker: what was logged is better. To look at it all the same:"
    return "Log more clicks before you use it, or let an A/B test decide. To try it in one:"


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
        f"{gain.new.metric} a {gain.new.per}, from clicks weighted by 1/propensity. "
        f"{fit.judged_by.sentence} The estimator is {fit.estimator.name}: {fit.estimator.reason}. "
        f"The {gain.new.confidence:.0%} interval is a bootstrap. {if_wrong}."
    )
    drawn, doubt = "", ""
    if fit.is_withheld:
        doubt = "These are the numbers that a feature has which knows the clicks: do not use them."
    else:
        figure, axes = new_axes(SIZE[0], 0.9)
        plot_gain(gain, ax=axes)
        ends = f"{gain.relative_low:+.1%} to {gain.relative_high:+.1%}"
        drawn = inline_figure(figure, f"{gain.relative:+.1%}, interval {ends}")
    caption = f"{gain.new.metric} a {gain.new.per}"
    table = pages.table(("", "estimate", "low", "high"), rows, caption=caption)
    told = pages.paragraphs([doubt, text])
    return pages.card("The gain over what was logged", told, drawn, table)


def _learning(fit: Fit) -> str:
    metric = fit.gain.new.metric
    found = [each for _, each in fit.learning_curve]
    figure, axes = new_axes(*SIZE)
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
    figure, axes = new_axes(*SIZE)
    plot_weights(found, ax=axes)
    text = (
        f"{EXPOSED[fit.exposure]} Sessions are counted by "
        f"{SESSIONS[fit.check.counts.sessions_from]}. The mean weight of a click is "
        f"{found.mean_weight:.3g}, the largest {found.max_weight:.3g}; as much as "
        f"{found.effective_clicks:,.0f} of {found.n_clicks:,.0f} clicks of equal weight."
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
    known = getattr(fit.ranker, "feature_names_in_", None)
    names = [f"feature {k + 1}" for k in range(fit.ranker.n_features_in_)]
    names = names if known is None else list(map(str, known))
    if fit.ranker.imputer_ is not None:
        names = list(fit.ranker.imputer_.names(names))
    largest = np.argsort(-np.abs(sizes), kind="stable")[:N_FEATURES]
    rows = [(names[k], f"{sizes[k]:{form}}") for k in largest]
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
    path, params, chosen = fit.path, fit.ranker.get_params(), fit.chosen
    clip, normalizer = chosen.pop("clip"), fit.ranker.normalizer_
    by_unit = f", by {params['unit']}" if "unit" in params else ""
    rows = [
        ("method", f"{params['method']}{by_unit}"),
        ("propensities", fit.propensity_source.source),
        *((name.replace("_", " "), f"{value:,}" if isinstance(value, int) else _text(value))
          for name, value in chosen.items()),
        ("features", "as they are" if normalizer is None else normalizer.label),
        ("clip", "none" if clip is None else f"{clip:.3g}"),
        *(() if path is None else (
            ("candidates", f"{len(path.candidates)}, on paths from {_starts(path)}"),
            ("kept of what was logged", f"{path.kept:.0%}"),
            ("judged by", f"{path.metric} of {path.n_queries:,} held-out queries"),
        )),
        *((name, str(value)) for name, value in fit.settings.items() if value is not None
          and name not in {"metric", "method"}),
    ]  # fmt: skip
    by_clicks = ", ".join(name.replace("_", " ") for name in chosen)
    text = [f"Chosen by the clicks of held-out queries: {by_clicks}."]
    text += [] if path is None else [path.sentence]
    return pages.card("Settings", pages.paragraphs(text), pages.facts(rows))


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _starts(path: PathChoice) -> str:
    named = {"served": "what was served", "linear": "the linear ranker"}
    starts = dict.fromkeys(each.start for each in path.candidates)
    return " and from ".join(named.get(start, start) for start in starts)


def _versions() -> str:
    found = [f"countersample {__version__}", f"Python {platform.python_version()}"]
    for name in (*_PACKAGES, *_ENGINES):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # an engine that is not installed
            continue
    return ", ".join(found)
