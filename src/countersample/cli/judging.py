"""``countersample estimate`` and ``compare``: rankers that there are, judged by a raw log."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countersample.cli import _show
from countersample.cli._options import (
    NOT_BETTER,
    WORSE,
    AcceptFeatures,
    Columns,
    Context,
    Depth,
    Engine,
    Exclude,
    Exposure,
    Features,
    Gamma,
    HoldoutFrom,
    HoldoutLast,
    Include,
    ItemFeatures,
    JoinQueries,
    Json,
    LogFeatures,
    Master,
    MemoryLimit,
    Metric,
    Missing,
    PositionsFrom,
    PropensityMethod,
    QueryFeatures,
    Randomized,
    Reader,
    SavedPropensities,
    Seed,
    Suspicious,
    TempDir,
    Values,
    parse_names,
)
from countersample.cli.logs import LOG_HELP, open_log

if TYPE_CHECKING:
    from countersample.fitting import JudgedCandidates

Log = Annotated[str, typer.Option("--log", help=LOG_HELP)]
Estimator = Annotated[
    str,
    typer.Option(
        help="ips, snips, clipped or dr, by which values are estimated; auto takes what the log "
        "supports."
    ),
]


def estimate(
    ranker: Annotated[Path, typer.Argument(help="A ranker written by fit or train.")],
    *,
    log: Log,
    features: Features = None,
    item_features: ItemFeatures = None,
    query_features: QueryFeatures = None,
    log_features: LogFeatures = None,
    include: Include = None,
    exclude: Exclude = None,
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
    estimator: Estimator = "auto",
    metric: Metric = None,
    holdout_from: HoldoutFrom = None,
    holdout_last: HoldoutLast = None,
    accept_features: AcceptFeatures = None,
    fail_unless_better: Annotated[
        bool,
        typer.Option(
            "--fail-unless-better",
            help="Exit with 3 where it is not shown to be better, and with 4 where it is worse.",
        ),
    ] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Estimate the value of a ranker, and its gain over what was logged, from clicks."""
    _judge([str(ranker)], "logged", json, fail_unless_better, **_named(locals()))


def compare(
    rankers: Annotated[
        list[str],
        typer.Argument(help="Rankers written by fit or train; 'logged' is what was logged."),
    ],
    *,
    log: Log,
    features: Features = None,
    item_features: ItemFeatures = None,
    query_features: QueryFeatures = None,
    log_features: LogFeatures = None,
    reference: Annotated[
        str, typer.Option(help="The one that all others are compared with, or what was logged.")
    ] = "logged",
    include: Include = None,
    exclude: Exclude = None,
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
    estimator: Estimator = "auto",
    metric: Metric = None,
    holdout_from: HoldoutFrom = None,
    holdout_last: HoldoutLast = None,
    accept_features: AcceptFeatures = None,
    fail_unless_better: Annotated[
        bool,
        typer.Option(
            "--fail-unless-better",
            help="Exit with 3 where none is shown to be better, and with 4 where all are worse.",
        ),
    ] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compare rankers by the same clicks, which none of them was trained on."""
    _judge(rankers, reference, json, fail_unless_better, **_named(locals()))


def _named(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that both commands have."""
    own = {"ranker", "rankers", "reference", "json", "fail_unless_better"}
    return {name: value for name, value in given.items() if name not in own}


def _judge(
    rankers: list[str],
    reference: str,
    json: bool,
    fail_unless_better: bool,
    *,
    log: str,
    features: Path | None,
    item_features: Path | None,
    query_features: Path | None,
    log_features: str | None,
    include: str | None,
    exclude: str | None,
    propensity_method: str,
    randomized: str | None,
    depth: int | None,
    gamma: float | None,
    propensities: Path | None,
    missing: Any,  # noqa: ANN401 (checked by the library)
    exposure: str,
    estimator: str,
    metric: str | None,
    holdout_from: str | None,
    holdout_last: str | None,
    accept_features: str | None,
    seed: int,
    **of_log: Any,  # noqa: ANN401 (of open_log)
) -> None:
    from countersample._progress import share_progress
    from countersample.clicks.impressions import read_features
    from countersample.evaluation.comparing import LOGGED
    from countersample.fitting import compare_from_impressions
    from countersample.options import EvaluationOptions, PropensityOptions
    from countersample.rankers import load_ranker

    candidates = {name: None if name == LOGGED else load_ranker(name) for name in rankers}
    propensity_options = PropensityOptions(
        method=propensity_method, randomized=randomized, depth=depth, gamma=gamma,
        file=propensities, missing=missing, exposure=exposure,
    )  # type: ignore[arg-type] # fmt: skip
    evaluation = EvaluationOptions(
        metric=metric, estimator=estimator, holdout_from=holdout_from, holdout_last=holdout_last,
        accept_features=parse_names(accept_features),
    )  # type: ignore[arg-type] # fmt: skip
    of_log["features"] = parse_names(log_features) or ()
    with open_log(log, **of_log) as opened, share_progress("judging") as progress:
        table = read_features(
            features, include=parse_names(include), exclude=parse_names(exclude),
            items=item_features, queries=query_features, log=opened,
            join_queries=of_log["join_queries"],
            rankers=[each for each in candidates.values() if each is not None],
        )  # fmt: skip
        found = compare_from_impressions(
            opened, table, candidates, reference=reference, propensities=propensity_options,
            evaluation=evaluation, seed=seed, progress=progress,
        )  # fmt: skip
    if json:
        _show.as_json(found.to_dict())
    else:
        _show_judged(found)
        if reference == LOGGED and len(candidates.keys() - {LOGGED}) > 1:
            _show.line("To compare the rankers with each other, give one of them as --reference")
    verdicts = set(found.verdicts.values())
    if fail_unless_better and "better" not in verdicts:
        raise typer.Exit(WORSE if verdicts == {"worse"} else NOT_BETTER)


def _show_judged(found: JudgedCandidates) -> None:
    log, compared = found.log, found.comparison
    counts = log.check.counts
    size = (
        f"{counts.n_impressions:,} impressions, {counts.n_clicks:,} clicks, "
        f"{len(counts.query_ids):,} queries"
    )
    how = "estimated again in each draw" if found.is_joint else "taken as they are"
    _show.pairs(
        [
            ("log", size),
            ("clicks used", f"{log.join.n_joined:,} of {log.join.n_clicks:,}"),
            ("propensities", f"{log.source.source}; in the intervals {how}"),
            ("estimator", f"{found.estimator.name}: {found.estimator.reason}"),
        ],
        indent=0,
    )
    _show.line()
    first = compared.estimates[compared.reference]
    differences = {each.candidate: each for each in compared.differences}
    rows: list[list[str]] = []
    for name, each in compared.estimates.items():
        row = [name, f"{each.value:.4g}", f"{each.low:.4g} to {each.high:.4g}"]
        if name == compared.reference:
            rows.insert(0, [*row, "", ""])
            continue
        one = differences[name]
        within = f"{one.relative_low:+z.1%} to {one.relative_high:+z.1%}"
        rows.append([*row, f"{one.relative:+z.1%}", within])
    together = "interval" if len(differences) == 1 else "intervals, all at once"
    _show.table(
        [
            f"{first.metric} a {first.per}",
            "estimate",
            f"{first.confidence:.0%} interval",
            f"over {compared.reference}",
            f"{compared.confidence:.0%} {together}",
        ],
        rows,
    )
    _show.line()
    for text in found.sentences:
        _show.paragraph(text)
    _show.paragraph(f"The intervals speak of {found.population}.")
    for warning in found.warnings:
        _show.paragraph(f"Warning: {warning}")
