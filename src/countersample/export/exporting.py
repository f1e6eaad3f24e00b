"""Write a ranker for another system, with a model card: `export`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from countersample._files import atomic_path
from countersample._logging import get_logger
from countersample._params import choice
from countersample.errors import ParameterError
from countersample.export import elasticsearch, onnx, solr, sql
from countersample.export.card import CARDS, MARK, card_of
from countersample.export.feature_sets import has_definition
from countersample.export.specification import ModelSpecification, check_name
from countersample.rankers._files import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from countersample.export.specification import Translation
    from countersample.rankers import ClickRanker

logger = get_logger(__name__)
_SEARCH = frozenset({"model_type", "feature_store"})


@dataclass(frozen=True)
class Target:
    """A system to export to, with the options it takes and the kinds of rankers it can express.

    ``translate`` is a function of a `ModelSpecification` and those options.
    """

    system: str
    translate: Callable[..., Translation]
    options: frozenset[str]
    kinds: tuple[str, ...] = ("linear", "neural", "boosted")


TARGETS = {
    "onnx": Target("ONNX", onnx.translate, frozenset({"one_query"})),
    "elasticsearch": Target(
        "Elasticsearch", elasticsearch.translate, _SEARCH, ("linear", "boosted")
    ),
    "opensearch": Target("OpenSearch", elasticsearch.translate, _SEARCH, ("linear", "boosted")),
    "solr": Target("Solr", solr.translate, frozenset({"feature_store"})),
    "sql": Target("SQL", sql.translate, frozenset({"dialect", "table", "query"})),
}


@dataclass(frozen=True)
class Exported:
    """The files of an export.

    Attributes
    ----------
    path, card : Path
        The model and its card.
    features : Path, optional
        The definition of its features, to be filled in (Elasticsearch, OpenSearch and Solr).
    name : str
        The model's name.
    system, form : str
        The system that reads it, and its format there: ``Elasticsearch``, ``model/linear``.
    n_features : int
    limits : tuple of str
        Differences between that system and the ranker, one sentence each.
    checked : str
        How the file was checked, in a sentence.
    """

    path: Path
    card: Path
    features: Path | None
    name: str
    system: str
    form: str
    n_features: int
    limits: tuple[str, ...]
    checked: str


def export(
    ranker: ClickRanker,
    path: str | PathLike[str],
    *,
    to: str,
    name: str | None = None,
    feature_names: Sequence[str] | None = None,
    model_type: str | None = None,
    feature_store: str | None = None,
    one_query: bool = False,
    dialect: str | None = None,
    table: str | None = None,
    query: str | None = None,
    card: str = "markdown",
) -> Exported:
    """Write a ranker for another system, and a model card beside it (``<stem>.md`` or ``.html``).

    For Elasticsearch, OpenSearch and Solr it also writes a definition of the features, to be filled
    in (``<stem>.features.json``), unless there is one.

    The scores there are the ranker's, up to the arithmetic of that system. A ranker that the system
    cannot express raises an error before anything is written. Files are written atomically.

    Parameters
    ----------
    ranker : ClickRanker
        Fitted, of any kind.
    path : path
        The file to write; an existing export is replaced.
    to : {"onnx", "elasticsearch", "opensearch", "solr", "sql"}
    name : str, optional
        The model's name there; by default the stem of the file's name.
    feature_names : sequence of str, optional
        The names of the features there, in the order of training; by default those of training.
        ONNX needs none.
    model_type : {"linear", "xgboost+json", "ranklib"}, optional
        Elasticsearch and OpenSearch: boosted rankers are ``xgboost+json`` (the default) or
        ``ranklib``.
    feature_store : str, optional
        Where features are defined: Solr's feature store (written into the model) or the feature set
        of Elasticsearch and OpenSearch (named in the card's command).
    one_query : bool
        ONNX, for a ranker with ``normalize="query-minmax"``: a call has one query's items.
    dialect : {"duckdb", "postgres", "spark", "bigquery", "snowflake"}, optional
        SQL: the database that reads the view, by default DuckDB. ``"postgresql"`` is
        ``"postgres"``.
    table : str, optional
        SQL: the table that has the features, by default ``features``. A point separates a schema
        from a table, also in `name`, which is the name of the view.
    query : str, optional
        SQL: the column of the query; with it the view also has the rank. A ranker with
        ``normalize="query-minmax"`` needs it.
    card : {"markdown", "html"}
        The format of the card: Markdown, or a page for a browser.

    Raises
    ------
    ParameterError
        If the target cannot express the ranker, with the remedy.
    MissingExtraError
        For ONNX and SQL if a library they need is not installed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from countersample import CounterSampleRanker
    >>> from countersample.export import export
    >>> ranker = CounterSampleRanker(random_state=0).fit([[0.2], [0.9]], [0, 3], qid=[1, 1])
    >>> with TemporaryDirectory() as folder:
    ...     written = export(ranker, f"{folder}/shop.json", to="solr", feature_names=["price"])
    ...     text = written.path.read_text()
    >>> written.form, written.card.name
    ('LinearModel', 'shop.md')
    >>> text[:66]
    '{"class": "org.apache.solr.ltr.model.LinearModel", "name": "shop",'
    """
    target = TARGETS[choice("to", to, TARGETS)]
    ending, render = CARDS[choice("card", card, CARDS)]
    options = {
        "model_type": model_type, "feature_store": feature_store, "one_query": one_query,
        "dialect": dialect, "table": table, "query": query,
    }  # fmt: skip
    options = {option: value for option, value in options.items() if value not in (None, False)}
    for option in options.keys() - target.options:
        raise ParameterError(f"{option} is given, expected it left out: {to} has no such choice")
    if feature_store is not None:
        check_name(feature_store, option="feature_store")
    path = Path(path)
    card_path = _card_path(path, ending)
    spec = ModelSpecification.of(
        ranker,
        system=target.system,
        name=path.stem if name is None else name,
        file=path.name,
        feature_names=feature_names,
    )
    _check_kind(spec.kind, target)
    translation = target.translate(spec, **options)
    text = render(card_of(ranker, spec, translation))
    files, features = {card_path: text.encode(), path: translation.content}, None
    if translation.features is not None:
        features = path.with_name(spec.features_file)
        if not has_definition(features, translation.features):
            files[features] = translation.features
    _write(files)
    logger.info(
        "%s ranker with %d features exported for %s", spec.kind, spec.n_features, spec.system,
        extra={"to": to, "form": translation.form, "n_bytes": len(translation.content)},
    )  # fmt: skip
    return Exported(
        path=path,
        card=card_path,
        features=features,
        name=spec.name,
        system=spec.system,
        form=translation.form,
        n_features=spec.n_features,
        limits=translation.limits,
        checked=translation.checked,
    )


def _write(files: Mapping[Path, bytes]) -> None:
    """Write all files, or none."""
    with ExitStack() as stack:
        for path, content in files.items():
            stack.enter_context(atomic_path(path)).write_bytes(content)


def _check_kind(kind: str, target: Target) -> None:
    if kind not in target.kinds:
        others = {name: other.system for name, other in TARGETS.items() if kind in other.kinds}
        raise ParameterError(
            f"{target.system} cannot express a {kind} ranker: export it to "
            f"{' or '.join(others.values())} ({', '.join(f'--to {name}' for name in others)}), or "
            f"train a {' or '.join(target.kinds)} one"
        )


def _card_path(path: Path, ending: str) -> Path:
    """Return the path of the card; reject paths that cannot be written, or have another file."""
    try:
        if path.is_dir():
            raise ParameterError(f"{path} is a folder, expected the name of a file")
        card = path.with_suffix(ending)
        if path == card:
            raise ParameterError(
                f"{path}: the model's card is to be there, expected another ending"
            )
        if not path.parent.is_dir():
            raise ParameterError(f"{path}: the folder {path.parent} is not there: make it first")
        if card.is_dir():
            raise ParameterError(f"{card} is a folder, expected the name of a file")
        if path.is_file() and path.read_bytes().startswith(BEGINNING):
            raise ParameterError(
                f"{path} is a ranker, expected another name: the export would replace it"
            )
        if card.exists() and MARK.encode() not in card.read_bytes():
            raise ParameterError(
                f"{card}: the model's card is to be there, but another text is: give the model "
                "another name, or move that text"
            )
    except OSError as error:
        raise ParameterError(f"{path}: cannot be written: {error.strerror}") from error
    return card
