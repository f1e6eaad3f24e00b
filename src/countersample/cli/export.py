"""``countersample export``: a ranker for another system, with its model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countersample.cli import _show
from countersample.cli._options import Json  # noqa: TC001 (typer reads it)
from countersample.cli.ranker import RankerPath  # noqa: TC001 (typer reads it)


def export(
    ranker: RankerPath,
    *,
    to: Annotated[str, typer.Option(help="onnx, elasticsearch, opensearch, solr or sql.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file of the model; its card goes beside it.")
    ],
    name: Annotated[
        str | None, typer.Option(help="The model's name there; by default that of the file.")
    ] = None,
    feature_names: Annotated[
        str | None,
        typer.Option(
            help="Names of features there: separated by commas, or @FILE with one name per line."
        ),
    ] = None,
    model_type: Annotated[
        str | None,
        typer.Option(
            help="Elasticsearch, OpenSearch: linear, xgboost+json or ranklib; by default the first "
            "that fits."
        ),
    ] = None,
    feature_store: Annotated[
        str | None,
        typer.Option(help="Solr's feature store, or Elasticsearch's and OpenSearch's feature set."),
    ] = None,
    one_query: Annotated[
        bool,
        typer.Option(
            "--one-query",
            help="ONNX, for query-minmax: call the graph with the items of one query.",
        ),
    ] = False,
    dialect: Annotated[
        str | None,
        typer.Option(help="SQL: duckdb (default), postgres, spark, bigquery or snowflake."),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="SQL: the table of the features; by default features.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(help="SQL: the column of the query; with it the view also has the rank."),
    ] = None,
    card: Annotated[
        str, typer.Option(help="The card's format: markdown, or html for a browser.")
    ] = "markdown",
    json: Json = False,
) -> None:
    """Write a ranker for ONNX, Elasticsearch, OpenSearch, Solr or SQL, and its model card."""
    from countersample.export import export as write
    from countersample.rankers import load_ranker

    files = write(
        load_ranker(ranker),
        out,
        to=to,
        name=name,
        feature_names=_names(feature_names),
        model_type=model_type,
        feature_store=feature_store,
        one_query=one_query,
        dialect=dialect,
        table=table,
        query=query,
        card=card,
    )
    if json:
        paths: dict[str, str | None] = {"path": str(files.path), "card": str(files.card)}
        paths["features"] = None if files.features is None else str(files.features)
        _show.as_json({**vars(files), **paths, "limits": list(files.limits)})
        return
    _show.pairs(
        [
            ("model", f"{files.name}, {files.n_features:,} features"),
            ("for", f"{files.system}, {files.form}"),
            ("checked", files.checked),
        ],
        indent=0,
    )
    for limit in files.limits:
        _show.paragraph(f"Note: {limit}")
    if files.features is not None:
        _show.line(f"Its features are defined in {files.features}: fill it in")
    _show.line(f"The model is in {files.path}; how to load it is in {files.card}")


def _names(option: str | None) -> list[str] | None:
    """Return the names of an option: separated by commas, or in a file."""
    from countersample.errors import DataError

    if option is None:
        return None
    if not option.startswith("@"):
        return [name.strip() for name in option.split(",")]
    path = Path(option[1:])
    try:
        return [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as names of features: {error}") from error
