"""``countersample judgements``: how relevant items are, from clicks, for other people's tools."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads it)
from typing import TYPE_CHECKING, Annotated

import typer

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._options import (
    Columns,
    Context,
    Depth,
    Engine,
    Gamma,
    JoinQueries,
    Json,
    Master,
    MemoryLimit,
    Missing,
    PositionsFrom,
    PropensityMethod,
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
from countersample.options import CONFIDENCE

if TYPE_CHECKING:
    from countersample.fitting import Judgements


def judgements(
    log: Annotated[str, typer.Argument(help=LOG_HELP)],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The judgements to write.")],
    to: Annotated[
        str,
        typer.Option(
            help="table (all columns, .parquet or .csv), quepid, opensearch or qrels: who reads "
            "them."
        ),
    ] = "table",
    grades: Annotated[
        str | None,
        typer.Option(
            help="The least relevance of grade 1, 2, …: 0.05,0.1,0.3; by default odds of ½, 1 and "
            "2 times those of the mean."
        ),
    ] = None,
    min_exposure: Annotated[
        float,
        typer.Option(help="Leave out items that were examined less often, as is expected."),
    ] = 10.0,
    confidence: Annotated[
        float, typer.Option(help="The confidence level of the intervals.")
    ] = CONFIDENCE,
    features: Annotated[
        Path | None,
        typer.Option(help="The features of items, by query_id and item_id: for regression-em."),
    ] = None,
    propensity_method: PropensityMethod = "auto",
    randomized: Randomized = None,
    depth: Depth = None,
    gamma: Gamma = None,
    propensities: SavedPropensities = None,
    missing: Missing = "error",
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
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Estimate how relevant each item is to its query, with intervals, and grade it."""
    from countersample._params import choice
    from countersample.clicks.impressions import read_features
    from countersample.fitting import judgements_from_impressions
    from countersample.fitting.judgement_files import JUDGEMENT_FORMATS, check_table_name
    from countersample.options import PropensityOptions

    check_writable(out)
    if choice("to", to, JUDGEMENT_FORMATS) == "table":
        check_table_name(out)
    options = PropensityOptions(
        method=propensity_method, randomized=randomized, depth=depth, gamma=gamma,
        file=propensities, missing=missing,
    )  # type: ignore[arg-type] # fmt: skip
    table = None if features is None else read_features(features, join_queries=join_queries)
    with open_log(
        log, reader=reader, columns=columns, context=context, values=values,
        join_queries=join_queries, positions_from=positions_from, suspicious=suspicious,
        engine=engine, master=master, memory_limit=memory_limit, temp_dir=temp_dir,
    ) as opened:  # fmt: skip
        found = judgements_from_impressions(
            opened, features=table, propensities=options,
            confidence=confidence, min_exposure=min_exposure,
            grades=parse_names(grades),  # type: ignore[arg-type] # numbers as text
            seed=seed,
        )  # fmt: skip
    found.write(out, to=to)
    if json:
        _show.as_json({"out": str(out), "to": to, **found.to_dict()})
        return
    _show_found(found)
    for warning in found.warnings:
        _show.paragraph(f"Warning: {warning}")
    _show.line(f"The judgements are in {out}")


def _show_found(found: Judgements) -> None:
    judged = f"{len(found):,} items of {found.n_queries:,} queries"
    if found.n_left_out:
        judged += (
            f"; {found.n_left_out:,} were examined less than {found.min_exposure:g} times, and "
            "are left out"
        )
    if found.n_together:
        judged += (
            f"; items of {found.n_together:,} queries that were never clicked are counted "
            "together, and are not judged"
        )
    width = (found.high - found.low).mean()
    _show.pairs(
        [
            ("judged", judged),
            ("propensities", found.source),
            ("intervals", f"{found.confidence:.0%}, {width:.3g} wide on average"),
        ],
        indent=0,
    )
    _show.line()
    ends = ["0", *(f"{each:.3g}" for each in found.cut_offs)]
    rows = [
        [f"{grade}", f"from {low}", f"{count:,}", f"{count / len(found):.0%}"]
        for grade, (low, count) in enumerate(zip(ends, found.of_grade, strict=True))
    ]
    _show.table(["grade", "relevance", "items", "share"], rows)
    _show.line()
