"""``countersample fit``: from a raw log to a ranker, and the gain to expect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._options import (
    EVALUATION_OPTIONS,
    FEATURE_OPTIONS,
    LOG_OPTIONS,
    NOT_BETTER,
    OUTPUT,
    PROPENSITY_OPTIONS,
    RANKER,
    RANKER_OPTIONS,
    WORSE,
    Features,
    Json,
    Out,
    Seed,
)
from countersample.cli.app import command_line
from countersample.errors import ParameterError
from countersample.options import (  # noqa: TC001 (cyclopts reads them)
    EvaluationOptions,
    FeatureOptions,
    LogOptions,
    PropensityOptions,
    RankerOptions,
)

if TYPE_CHECKING:
    from countersample.fitting import Fit

MAX_CONTEXTS = 3  # in the summary; the page has all


def fit(
    log: str,
    /,
    *,
    out: Out,
    report: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    show_ids: Annotated[bool, Parameter(group=OUTPUT)] = False,
    fail_unless_better: Annotated[bool, Parameter(group=OUTPUT)] = False,
    json: Json = False,
    features: Features = None,
    half_life: Annotated[str | None, Parameter(group=RANKER)] = None,
    log_options: LogOptions = LOG_OPTIONS,
    feature_options: FeatureOptions = FEATURE_OPTIONS,
    propensities: PropensityOptions = PROPENSITY_OPTIONS,
    ranker: RankerOptions = RANKER_OPTIONS,
    evaluation: EvaluationOptions = EVALUATION_OPTIONS,
    seed: Seed = 0,
) -> int | None:
    """Train a ranker from a raw log, and estimate its gain over your current ranker.

    Parameters
    ----------
    log
        The log: Parquet, CSV, TSV or JSON lines (a file, a folder, a 'glob*'), or a folder with
        ubi_queries and ubi_events.
    out
        The ranker to write (.json).
    report
        The page to write; beside the ranker by default.
    show_ids
        Show ids of queries and items on the page.
    fail_unless_better
        Exit with 3 if the ranker is not shown to be better, and with 4 if it is worse.
    half_life
        The time after which a day counts half in training, such as 14d.
    """
    compile_ahead()
    from countersample._progress import share_progress
    from countersample.clicks.impressions import read_features, read_impressions
    from countersample.fitting import fit_from_impressions, write_page
    from countersample.fitting.models import make_ranker
    from countersample.rankers._files import check_name

    page = out.with_suffix(".html") if report is None else report
    if out == page:
        raise ParameterError(f"the ranker and the report are both {out}, expected two files")
    check_name(out)
    for path in (out, page):
        check_writable(path)
    start = make_ranker(ranker, seed=seed)  # errors come before the work
    opened = read_impressions(log, log_options)
    with opened, share_progress(f"fitting {out.name}") as progress:
        weighted = opened if half_life is None else opened.with_half_life(half_life)
        table = read_features(
            features, feature_options, log=opened, join_queries=log_options.join_queries,
            warm_start=None if ranker.warm_start is None else start,
        )  # fmt: skip
        result = fit_from_impressions(
            weighted, table, ranker=ranker, propensities=propensities, evaluation=evaluation,
            seed=seed, progress=progress,
        )  # fmt: skip
    write_page(page, result, command=command_line(), ranker=out, show_ids=show_ids)
    sources = [features, feature_options.items, feature_options.queries]
    names = [Path(path).name for path in sources if path is not None]
    result.ranker.provenance_["data"] = ", ".join(names or [Path(log).name])
    result.ranker.save(out)
    if json:
        _show.as_json({"out": str(out), "report": str(page), **result.to_dict()})
    else:
        _show_fit(result)
        _show.line(f"The ranker is in {out}; the report is in {page}")
    if fail_unless_better and not result.is_better:
        return WORSE if result.is_worse else NOT_BETTER
    return None


def _show_fit(result: Fit) -> None:
    _show.pairs(
        [
            ("log", _show.size_of_log(result.check.counts)),
            ("clicks used", f"{result.join.n_joined:,} of {result.join.n_clicks:,}"),
            ("propensities", f"{result.propensity_source.source}{_curve_text(result)}"),
            ("exposure", f"{result.exposure}; {_sessions_text(result)}"),
            (
                "weights",
                f"mean {result.weights.mean_weight:.3g}, largest {result.weights.max_weight:.3g}",
            ),
            ("settings", _settings_text(result)),
            ("estimator", f"{result.estimator.name}: {result.estimator.reason}"),
            ("judged by", _judge_text(result)),
        ],
        indent=0,
    )
    _show.line()
    _show.gain(result.gain)
    _show.line()
    _show.paragraph(result.verdict)
    _show.paragraph(result.judged_by.sentence)
    if result.is_better:
        _show.paragraph(f"Confirm it with an A/B test. {result.ab_plan.sentence}")
    _show.warnings(result.warnings)


def _sessions_text(result: Fit) -> str:
    """Return the number of sessions, and what they were counted by."""
    counts = result.check.counts
    by = {
        "sessions": "counted by their ids",
        "first position": "counted by the first position, as the log has no ids of them",
    }
    return f"{counts.sessions.sum():,.0f} sessions of a query, {by[counts.sessions_from]}"


def _judge_text(result: Fit) -> str:
    """Return whose clicks evaluate: the days from 2026-03-31 on; 1,234 clicks."""
    by = result.judged_by
    whose = "queries, held out in turn" if by.since is None else f"the days from {by.since} on"
    return f"{whose}; {by.n_clicks:,} clicks"


def _settings_text(result: Fit) -> str:
    """Return what was chosen in words: 500 steps, 20 % as logged, no clipping."""
    chosen = result.chosen
    parts = [f"learning rate {chosen['learning_rate']:.3g}"] if "learning_rate" in chosen else []
    parts += [f"{chosen[name]:,} {name}" for name in ("steps", "trees") if name in chosen]
    if "transform" in chosen:
        parts.append(f"transform {chosen['transform']}")
    if result.path is not None:
        parts.append(f"{result.path.kept:.0%} kept of what was logged")
    before = result.ranker.provenance_.get("previous")
    if before is not None:
        parts.append(f"going on from a ranker of {before['n_clicks']:,.0f} clicks")
    if result.half_life is not None:
        parts.append(f"half-life {result.half_life:g} days")
    clip = chosen["clip"]
    return ", ".join([*parts, "no clipping" if clip is None else f"clipped at {clip:.3g}"])


def _curve_text(result: Fit) -> str:
    """Return the last value of each curve that was estimated."""
    parts = []
    for context, curve in result.propensity_source.curves.items():
        value, low, high = (column[-1] for column in (curve.value, curve.low, curve.high))
        where = f"position {len(curve.value)}{f' in {context}' if context else ''}"
        parts.append(f"; {value:.3g} at {where} ({low:.3g} to {high:.3g})")
    return "".join(parts[:MAX_CONTEXTS])
