"""``countersample export``: a ranker for another system, with its model card."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from countersample.cli import _show
from countersample.cli._options import Json, Out  # noqa: TC001 (cyclopts reads them)


def export(
    ranker: Path,
    /,
    *,
    to: Literal["onnx", "elasticsearch", "opensearch", "solr", "sql"],
    out: Out,
    name: str | None = None,
    feature_names: str | None = None,
    model_type: Literal["linear", "xgboost+json", "ranklib"] | None = None,
    feature_store: str | None = None,
    one_query: bool = False,
    dialect: Literal["duckdb", "postgres", "spark", "bigquery", "snowflake"] | None = None,
    table: str | None = None,
    query: str | None = None,
    card: Literal["markdown", "html"] = "markdown",
    json: Json = False,
) -> None:
    """Write a ranker for ONNX, Elasticsearch, OpenSearch, Solr or SQL, and its model card.

    Parameters
    ----------
    ranker
        A ranker that fit or train wrote.
    to
        The system.
    out
        The model to write; its card is beside it.
    name
        The name of the model there; that of the file by default.
    feature_names
        The names of the features there: with commas, or @FILE with one name per line.
    model_type
        For Elasticsearch and OpenSearch; what fits the ranker by default.
    feature_store
        The place that defines features: Solr's store, Elasticsearch's feature set.
    one_query
        For ONNX and query-minmax: the graph is called with the items of one query.
    dialect
        For SQL; duckdb by default.
    table
        For SQL: the table of the features; features by default.
    query
        For SQL: the column of the query, which adds the rank to the view.
    card
        The format of the model card.
    """
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
