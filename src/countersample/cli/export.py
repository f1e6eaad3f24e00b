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
        Path, typer.Option("--out", "-o", help="The model to write; its card is beside it.")
    ],
    name: Annotated[
        str | None, typer.Option(help="What the model is called there; as the file, if left out.")
    ] = None,
    feature_names: Annotated[
        str | None,
        typer.Option(
            help="What features are called there: names with commas, or @FILE with a name a line."
        ),
    ] = None,
    model_type: Annotated[
        str | None,
        typer.Option(
            help="Of Elasticsearch and OpenSearch: linear, xgboost+json or ranklib; what fits, if "
            "left out."
        ),
    ] = None,
    feature_store: Annotated[
        str | None,
        typer.Option(help="Where features are defined: Solr's store, Elasticsearch's feature set."),
    ] = None,
    one_query: Annotated[
        bool,
        typer.Option(
            "--one-query",
            help="Of ONNX, for query-minmax: the graph is called with one query's items.",
        ),
    ] = False,
    dialect: Annotated[
        str | None,
        typer.Option(help="SQL: duckdb (default), postgres, spark, bigquery or snowflake."),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Of SQL: the table of the features; features, if left out.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(help="Of SQL: the column of the query; with it the view has the rank, too."),
    ] = None,
    card: Annotated[
        str, typer.Option(help="The card's format: markdown, or html for a browser.")
    ] = "markdown",
    json: Json = False,
) -> None:
    """Write a ranker for ONNX, Elasticsearch, OpenSearch, Solr or SQL, and its model card."""
    from countersample.export import export as write
    from countersample.rankers import load_ranker

    written = write(
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
        paths: dict[str, str | None] = {"path": str(written.path), "card": str(written.card)}
        paths["features"] = None if written.features is None else str(written.features)
        _show.as_json({**vars(written), **paths, "limits": list(written.limits)})
        return
    _show.pairs(
        [
            ("model", f"{written.name}, {written.n_features:,} features"),
            ("for", f"{written.system}, {written.form}"),
            ("checked", written.checked),
        ],
        indent=0,
    )
    for limit in written.limits:
        _show.paragraph(f"Note: {limit}")
    if written.features is not None:
        _show.line(f"Its features are defined in {written.features}, which is to be filled in")
    _show.line(f"The model is in {written.path}; how to load it is in {written.card}")


def _names(given: str | None) -> list[str] | None:
    """Return the names that were given, with commas or in a file."""
    from countersample.errors import DataError

    if given is None:
        return None
    if not given.startswith("@"):
        return [name.strip() for name in given.split(",")]
    path = Path(given[1:])
    try:
        return [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as names of features: {error}") from error
