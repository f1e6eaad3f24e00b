"""The systems that a ranker can be exported to, `TARGETS`, and `export`.

A new target is a module with a function ``translate``, one line in `TARGETS`, and one choice in
`options`. For search engines `export` also writes a definition of the features, to be filled in: a
ranker has the names of its features, but not how an engine computes them. So each feature is
defined as the value of the document's field of its name.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample import _text
from countersample._files import atomic_path, check_writable
from countersample._json import parse_json
from countersample._progress import get_logger
from countersample.errors import DataError, ParameterError
from countersample.export import elasticsearch, onnx, solr, sql
from countersample.export.card import ENDINGS, MARK, render_card
from countersample.export.specification import ModelSpecification, check_name
from countersample.options import ExportOptions
from countersample.rankers.files import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from countersample.export.specification import Translation
    from countersample.rankers import ClickRanker

logger = get_logger(__name__)
_SEARCH = frozenset({"model_type", "feature_store"})
_CHOICES = ("model_type", "feature_store", "one_query", "dialect", "table", "query")


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
    """The files of an export, with notes on them."""

    path: Path
    card: Path
    features: Path | None
    """The definition of the features, to be filled in (Elasticsearch, OpenSearch and Solr)."""
    name: str
    """The model's name."""
    system: str
    form: str
    """Its format in the system: ``model/linear`` in ``Elasticsearch``."""
    n_features: int
    limits: tuple[str, ...]
    """Differences between the system and the ranker, one sentence each."""
    checked: str
    """How the file was checked, in a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        paths = {"path": self.path, "card": self.card, "features": self.features}
        texts = {name: None if path is None else str(path) for name, path in paths.items()}
        return {**vars(self), **texts, "limits": list(self.limits)}

    def summary(self) -> str:
        """Return what was written, for a terminal."""
        rows = [
            ("model", f"{self.name}, {self.n_features:,} features"),
            ("for", f"{self.system}, {self.form}"),
            ("checked", self.checked),
        ]
        blocks = [_text.pairs(rows, indent=0)]
        blocks += [_text.paragraph(f"Note: {limit}") for limit in self.limits]
        if self.features is not None:
            blocks.append(f"Its features are defined in {self.features}: fill it in")
        blocks.append(f"The model is in {self.path}; how to load it is in {self.card}")
        return "\n".join(blocks)


def export(
    ranker: ClickRanker,
    path: str | PathLike[str],
    options: ExportOptions | None = None,
    **settings: Any,  # noqa: ANN401 (fields of ExportOptions)
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
    options : ExportOptions, optional
        The system and the choices that it takes. ``to`` has no default.
    **settings
        Fields of `ExportOptions`, instead of `options` or changing them: ``to="onnx"``.

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
    options = ExportOptions.of(options, **settings)
    target = TARGETS[options.to]
    choices = {name: getattr(options, name) for name in _CHOICES}
    choices = {name: value for name, value in choices.items() if value not in (None, False)}
    for name in choices.keys() - target.options:
        raise ParameterError(
            f"{name} is given, which the target {options.to} does not have: leave it out"
        )
    if options.feature_store is not None:
        check_name(options.feature_store, option="feature_store")
    path = Path(path)
    card_path = _card_path(path, ENDINGS[options.card])
    name = path.stem if options.name is None else options.name
    spec = ModelSpecification.of(ranker, target.system, name, path.name, options.feature_names)
    _check_kind(spec.kind, target)
    translation = target.translate(spec, **choices)
    card = render_card(ranker, spec, translation, options.card)
    files, features = {card_path: card.encode(), path: translation.content}, None
    if translation.features is not None:
        features = path.with_name(spec.features_file)
        if features.exists():  # it stays: a person may have filled it in
            _check_definition(features, translation.features)
        else:
            text = json.dumps(translation.features, ensure_ascii=False, indent=2)
            files[features] = f"{text}\n".encode()
    with ExitStack() as stack:  # all files are written, or none
        for file, content in files.items():
            stack.enter_context(atomic_path(file)).write_bytes(content)
    logger.info(
        "%s ranker with %d features exported for %s", spec.kind, spec.n_features, spec.system,
        extra={"to": options.to, "form": translation.form, "n_bytes": len(translation.content)},
    )  # fmt: skip
    return Exported(
        path=path, card=card_path, features=features, name=spec.name, system=spec.system,
        form=translation.form, n_features=spec.n_features, limits=translation.limits,
        checked=translation.checked,
    )  # fmt: skip


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
    card = path.with_suffix(ending)
    if path == card:
        raise ParameterError(
            f"{path}: the model card is written to this file, expected another ending for the model"
        )
    for each in (path, card):
        check_writable(each)
    if path.is_file() and path.read_bytes().startswith(BEGINNING):
        raise ParameterError(
            f"{path} is a ranker, expected another name: the export would replace it"
        )
    if card.is_file() and MARK.encode() not in card.read_bytes():
        raise ParameterError(
            f"{card}: the model card is written to this file, which has another text: give the "
            "model another name, or move that file"
        )
    return card


def _check_definition(path: Path, definition: Any) -> None:  # noqa: ANN401 (JSON)
    """Reject a definition that lacks a feature of this ranker."""
    try:
        names = _feature_names(parse_json(path.read_bytes()))
    except (DataError, OSError, UnicodeDecodeError, ValueError):
        names = []
    missing = [name for name in _feature_names(definition) if name not in set(names)]
    if missing:
        problem = f"has no feature {missing[0]!r}" if names else "is no definition of features"
        raise ParameterError(
            f"{path}: {problem}, expected a definition of all features of this ranker: move the "
            "file away to have it written anew, or give the model another name"
        )


def _feature_names(definition: Any) -> list[str]:  # noqa: ANN401 (JSON)
    """Return the names of the features of a definition; none if it is not a definition."""
    if isinstance(definition, dict):  # Elasticsearch and OpenSearch
        inner = definition.get("featureset")
        definition = inner.get("features") if isinstance(inner, dict) else None
    features = definition if isinstance(definition, list) else []
    names = [each.get("name") for each in features if isinstance(each, dict)]
    return [name for name in names if isinstance(name, str)]
