"""``countersample fit``: from a raw log to a ranker, and the gain to expect."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._models import Model, WarmStart
from countersample.cli._options import (
    NOT_BETTER,
    WORSE,
    AcceptFeatures,
    AgeAt,
    Categorical,
    Columns,
    Context,
    Depth,
    Engine,
    Exclude,
    Exposure,
    Features,
    Gamma,
    HalfLife,
    HoldoutFrom,
    HoldoutLast,
    Impute,
    Include,
    ItemFeatures,
    JoinQueries,
    Json,
    LogFeatures,
    Master,
    MemoryLimit,
    Metric,
    Missing,
    OtherColumns,
    PositionsFrom,
    PropensityMethod,
    QueryFeatures,
    Randomized,
    Reader,
    Safety,
    SavedPropensities,
    Seed,
    Suspicious,
    TempDir,
    Transform,
    Values,
    parse_names,
)
from countersample.cli.logs import LOG_HELP, open_log
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from countersample.fitting import Fit

MOST_CONTEXTS = 3  # that the summary tells of; the page has all


def fit(
    impressions: Annotated[
        str,
        typer.Argument(help=LOG_HELP),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The ranker to write (.json).")],
    report: Annotated[
        Path | None, typer.Option(help="The page to write; beside the ranker where left out.")
    ] = None,
    features: Features = None,
    item_features: ItemFeatures = None,
    query_features: QueryFeatures = None,
    log_features: LogFeatures = None,
    include: Include = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    other_columns: OtherColumns = "skip",
    age_at: AgeAt = None,
    model: Model = None,
    warm_start: WarmStart = None,
    impute: Impute = None,
    safety: Safety = None,
    transform: Transform = None,
    reader: Reader = None,
    columns: Columns = None,
    context: Context = None,
    values: Values = None,
    join_queries: JoinQueries = False,
    positions_from: PositionsFrom = 1,
    suspicious: Suspicious = "keep",
    engine: Engine = None,
    master: Master = None,
    memory_limit: MemoryLimit = None,
    temp_dir: TempDir = None,
    propensity_method: PropensityMethod = "auto",
    randomized: Randomized = None,
    depth: Depth = None,
    gamma: Gamma = None,
    propensities: SavedPropensities = None,
    missing: Missing = "error",
    exposure: Exposure = "policy-aware",
    estimator: Annotated[
        str,
        typer.Option(
            help="ips, snips or dr, by which the gain is estimated; auto takes what the log "
            "supports."
        ),
    ] = "auto",
    metric: Metric = None,
    holdout_by: Annotated[
        str,
        typer.Option(
            help="time or queries: evaluate on the last days, or on held-out queries; auto is time "
            "if the log has several days."
        ),
    ] = "auto",
    holdout_from: HoldoutFrom = None,
    holdout_last: HoldoutLast = None,
    accept_features: AcceptFeatures = None,
    half_life: HalfLife = None,
    show_ids: Annotated[
        bool, typer.Option("--show-ids", help="Let the page show ids of queries and items.")
    ] = False,
    fail_unless_better: Annotated[
        bool,
        typer.Option(
            "--fail-unless-better",
            help="Exit with 3 where the ranker is not shown to be better, and with 4 where it is "
            "worse.",
        ),
    ] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make a ranker from a raw log: check, propensities, training, and the gain."""
    compile_ahead()
    from countersample._progress import share_progress
    from countersample.clicks.impressions import read_features
    from countersample.fitting import fit_from_impressions, write_page
    from countersample.fitting.models import make_ranker
    from countersample.options import EvaluationOptions, PropensityOptions, RankerOptions
    from countersample.rankers._files import check_name

    ranker_options = RankerOptions(
        model=model, warm_start=warm_start, impute=impute, safety=safety, transform=transform
    )  # type: ignore[arg-type] # checked there
    ranker = make_ranker(ranker_options, seed=seed)
    propensity_options = PropensityOptions(
        method=propensity_method, randomized=randomized, depth=depth, gamma=gamma,
        file=propensities, missing=missing, exposure=exposure,
    )  # type: ignore[arg-type] # fmt: skip
    evaluation = EvaluationOptions(
        metric=metric, estimator=estimator, holdout_by=holdout_by, holdout_from=holdout_from,
        holdout_last=holdout_last, accept_features=parse_names(accept_features),
    )  # type: ignore[arg-type] # fmt: skip
    page = out.with_suffix(".html") if report is None else report
    if out == page:
        raise ParameterError(f"the ranker and the report are both {out}, expected two files")
    check_name(out)
    for path in (out, page):
        check_writable(path)
    log = open_log(
        impressions, reader=reader, columns=columns, context=context, values=values,
        join_queries=join_queries, positions_from=positions_from, suspicious=suspicious,
        features=parse_names(log_features) or (),
        engine=engine, master=master, memory_limit=memory_limit, temp_dir=temp_dir,
    )  # fmt: skip
    with log, share_progress(f"fitting {out.name}") as progress:
        table = read_features(
            features, include=parse_names(include), exclude=parse_names(exclude),
            categorical=parse_names(categorical), other_columns=other_columns, age_at=age_at,
            items=item_features, queries=query_features, log=log, join_queries=join_queries,
            warm_start=None if warm_start is None else ranker,
        )  # fmt: skip
        found = fit_from_impressions(
            log if half_life is None else log.with_half_life(half_life), table,
            ranker=ranker_options, propensities=propensity_options, evaluation=evaluation,
            seed=seed, progress=progress,
        )  # fmt: skip
    command = shlex.join(["countersample", *sys.argv[1:]])
    write_page(page, found, command=command, ranker=out, show_ids=show_ids)
    sources = [path.name for path in (features, item_features, query_features) if path]
    found.ranker.provenance_["data"] = ", ".join(sources or [Path(impressions).name])
    found.ranker.save(out)
    if json:
        _show.as_json({"out": str(out), "report": str(page), **found.to_dict()})
    else:
        _show_fit(found)
        _show.line(f"The ranker is in {out}; the report is in {page}")
    if fail_unless_better and not found.is_better:
        raise typer.Exit(WORSE if found.is_worse else NOT_BETTER)


def _show_fit(found: Fit) -> None:
    counts = found.check.counts
    size = (
        f"{counts.n_impressions:,} impressions, {counts.n_clicks:,} clicks, "
        f"{len(counts.query_ids):,} queries"
    )
    _show.pairs(
        [
            ("log", size),
            ("clicks used", f"{found.join.n_joined:,} of {found.join.n_clicks:,}"),
            ("propensities", f"{found.propensity_source.source}{_curve_text(found)}"),
            ("exposure", f"{found.exposure}; {_sessions_text(found)}"),
            (
                "weights",
                f"mean {found.weights.mean_weight:.3g}, largest {found.weights.max_weight:.3g}",
            ),
            ("settings", _settings_text(found)),
            ("estimator", f"{found.estimator.name}: {found.estimator.reason}"),
            ("judged by", _judge_text(found)),
        ],
        indent=0,
    )
    _show.line()
    _show.gain(found.gain)
    _show.line()
    _show.paragraph(found.verdict)
    _show.paragraph(found.judged_by.sentence)
    if found.is_better:
        _show.paragraph(f"An A/B test tells for sure. {found.ab_plan.sentence}")
    for warning in found.warnings:
        _show.paragraph(f"Warning: {warning}")


def _sessions_text(found: Fit) -> str:
    """Return how many sessions there are, and what they were counted by."""
    counts = found.check.counts
    by = {
        "sessions": "counted by their ids",
        "first position": "counted by the first position, as the log has no ids of them",
    }
    return f"{counts.sessions.sum():,.0f} sessions of a query, {by[counts.sessions_from]}"


def _judge_text(found: Fit) -> str:
    """Return whose clicks judge: the days from 2026-03-31 on, 1,234 clicks."""
    by = found.judged_by
    whose = "queries, held out in turn" if by.since is None else f"the days from {by.since} on"
    return f"{whose}; {by.n_clicks:,} clicks"


def _settings_text(found: Fit) -> str:
    """Return what was chosen in words: 500 steps, 20 % as logged, no clipping."""
    chosen = found.chosen
    told = [f"learning rate {chosen['learning_rate']:.3g}"] if "learning_rate" in chosen else []
    told += [f"{chosen[name]:,} {name}" for name in ("steps", "trees") if name in chosen]
    if "transform" in chosen:
        told.append(f"transform {chosen['transform']}")
    if found.path is not None:
        told.append(f"{found.path.kept:.0%} kept of what was logged")
    before = found.ranker.provenance_.get("previous")
    if before is not None:
        told.append(f"going on from a ranker of {before['n_clicks']:,.0f} clicks")
    if found.half_life is not None:
        told.append(f"half-life {found.half_life:g} days")
    clip = chosen["clip"]
    return ", ".join([*told, "no clipping" if clip is None else f"clipped at {clip:.3g}"])


def _curve_text(found: Fit) -> str:
    """Return the last value of each curve that was estimated."""
    told = []
    for context, curve in found.propensity_source.curves.items():
        value, low, high = (column[-1] for column in (curve.value, curve.low, curve.high))
        where = f"position {len(curve.value)}{f' in {context}' if context else ''}"
        told.append(f"; {value:.3g} at {where} ({low:.3g} to {high:.3g})")
    return "".join(told[:MOST_CONTEXTS])
