"""``countersample log sample`` and ``sample-size``: some of the queries, and how many suffice."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads it)
from typing import TYPE_CHECKING, Annotated

import typer

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._models import Model, make_ranker
from countersample.cli._options import (
    Columns,
    Context,
    Drop,
    Engine,
    FeatureColumns,
    Features,
    Gamma,
    JoinQueries,
    Json,
    Master,
    MemoryLimit,
    Metric,
    PositionsFrom,
    Reader,
    SavedPropensities,
    Seed,
    Suspicious,
    TempDir,
    Values,
    given_propensities,
    parse_names,
)
from countersample.cli.logs import LOG_HELP, open_log

if TYPE_CHECKING:
    from countersample.fitting import SampleSizes


def sample(
    path: Annotated[str, typer.Argument(help=LOG_HELP)],
    *,
    queries: Annotated[int, typer.Option(help="How many queries.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The log to write (.parquet).")],
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
) -> None:
    """Write all rows of some queries, drawn at random: click weights stay as they are."""
    from countersample.errors import ParameterError

    if out.suffix != ".parquet":
        raise ParameterError(f"--out is {out}, expected a name that ends with .parquet")
    check_writable(out)
    with open_log(
        path, reader=reader, columns=columns, context=context, values=values,
        join_queries=join_queries, positions_from=positions_from, suspicious=suspicious,
        engine=engine, master=master, memory_limit=memory_limit, temp_dir=temp_dir,
    ) as log:  # fmt: skip
        n_rows = log.sample_queries(queries, seed=seed).write(out)
    _show.line(f"{n_rows:,} rows, all of at most {queries:,} queries, are in {out}")


def sample_size(
    path: Annotated[str, typer.Argument(help=LOG_HELP)],
    *,
    features: Features,
    of_queries: Annotated[
        int | None,
        typer.Option(
            help="How many queries with clicks there are, where the log is a sample; else its own."
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="How much of the value a sample may cost, as a share.")
    ] = 0.01,
    feature_columns: FeatureColumns = None,
    drop: Drop = None,
    model: Model = "linear",
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
    gamma: Gamma = None,
    propensities: SavedPropensities = None,
    metric: Metric = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Say what training on a sample of the queries costs in accuracy, and how many are enough."""
    compile_ahead()
    from countersample._progress import share_progress
    from countersample.clicks.impressions import read_features
    from countersample.fitting import sample_sizes

    ranker = None  # a linear one
    if model != "linear":
        ranker = make_ranker(model, {} if metric is None else {"metric": metric}, seed)
    given = given_propensities(gamma, propensities)
    table = read_features(
        features, features=parse_names(feature_columns), drop=parse_names(drop),
        join_queries=join_queries,
    )  # fmt: skip
    with (
        open_log(
            path, reader=reader, columns=columns, context=context, values=values,
            join_queries=join_queries, positions_from=positions_from, suspicious=suspicious,
            engine=engine, master=master, memory_limit=memory_limit, temp_dir=temp_dir,
        ) as log,
        share_progress("trying samples") as show,
    ):  # fmt: skip
        found = sample_sizes(
            log, table, of_queries=of_queries, tolerance=tolerance, ranker=ranker,
            propensities=given, metric=metric, seed=seed, progress=show,
        )  # fmt: skip
    if json:
        _show.as_json(found.to_dict())
    else:
        _show_sizes(found)


def _show_sizes(found: SampleSizes) -> None:
    rows = [
        [
            f"{each.n_queries:,}",
            "–" if each.n_clicks is None else f"{each.n_clicks:,.0f}",
            "not tried" if each.value is None else f"{each.value:.4f}",
            "" if each.low is None else f"{each.low:.4f} to {each.high:.4f}",
            f"{each.cost:.2%}",
            f"{each.cost_low:.2%} to {each.cost_high:.2%}",
        ]
        for each in found.sizes
    ]
    header = ["queries", "clicks", found.metric, "95 % interval",
              f"cost against {found.of_queries:,}", "95 % interval"]  # fmt: skip
    _show.table(header, rows, text_columns=0)
    _show.line()
    a, b, c = found.curve
    _show.paragraph(f"The curve is {a:.4f} - {b:.4g} / queries^{c:.2f}. {found.sentence}")
