"""Ranker files: one JSON file per ranker, written atomically, checked against a schema when read.

A file is never executed. Its checksum finds damage, and the schemas below reject content that
`save` never writes. `load_ranker` reads a ranker of any kind; `load_scorer` reads only what scoring
needs, without scikit-learn, which takes a second to import.
"""

from __future__ import annotations

import hashlib
import json
import platform
import reprlib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from countersample import scorers
from countersample._files import atomic_path
from countersample._json import Figure, NotNegative, PositiveCount, check_schema, parse_json
from countersample._version import __version__
from countersample.data.preprocessing import Preprocessing
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.metrics import ranks_of
from countersample.objectives import Loss, Objective
from countersample.rankers import checks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.rankers.base import ClickRanker
    from countersample.scorers import Scorer

FORMAT = "countersample-ranker"
VERSION = 1
BEGINNING = f'{{"format": "{FORMAT}"'.encode()  # of every ranker file
# The class of each kind of ranker, imported when one is loaded, and its scorer
KINDS: dict[str, tuple[str, str, type[Scorer]]] = {
    "linear": ("rankers.linear_ranker", "CounterSampleRanker", scorers.LinearScorer),
    "neural": ("torch.neural_ranker", "NeuralRanker", scorers.NetworkScorer),
    "boosted": ("gbdt.gbdt_ranker", "GBDTRanker", scorers.TreesScorer),
}
# Endings of other formats, which a ranker of such a name would be mistaken for
OTHER_ENDINGS = (
    ".csv", ".gz", ".html", ".joblib", ".jsonl", ".md", ".onnx", ".parquet", ".pickle", ".pkl",
    ".pt", ".safetensors", ".sql", ".tsv", ".xml", ".zip",
)  # fmt: skip
OptionalText = str | UnsetType


# -- Schemas ---------------------------------------------------------------------------------------


class GainSchema(msgspec.Struct):
    """The estimated gain, as the model card reports it."""

    metric: str
    per: str
    relative: Figure
    confidence: Figure
    relative_low: Figure
    relative_high: Figure
    new: Figure
    logged: Figure


class LogSchema(msgspec.Struct):
    """The log of the training clicks."""

    file: OptionalText = UNSET
    first_day: OptionalText = UNSET
    last_day: OptionalText = UNSET
    impressions: Figure | None = None
    clicks: Figure | None = None
    sessions: Figure | None = None


class PreviousSchema(msgspec.Struct):
    """The training before a warm start."""

    n_clicks: NotNegative
    updates: PositiveCount


class ProvenanceSchema(msgspec.Struct):
    """The training data and the verdict of a ranker."""

    n_clicks: Figure
    n_items: Figure
    mean_weight: Figure
    max_weight: Figure
    choice: OptionalText = UNSET
    data: OptionalText = UNSET
    propensities: OptionalText = UNSET
    verdict: OptionalText = UNSET
    warnings: list[str] | UnsetType = UNSET
    versions: dict[str, str] | UnsetType = UNSET
    log: LogSchema | UnsetType = UNSET
    gain: GainSchema | UnsetType = UNSET
    previous: PreviousSchema | UnsetType = UNSET


class StatisticsSchema(msgspec.Struct):
    """Attributes of every fitted ranker."""

    n_features_in_: PositiveCount
    n_queries_: PositiveCount
    fingerprint_: str
    provenance_: ProvenanceSchema


class RankerSchema(msgspec.Struct):
    """The content of a ranker file.

    The scorer and the preprocessing have schemas of their own; ``learned`` and ``params`` are
    checked by the class of the ranker.
    """

    kind: str
    params: dict[str, Any]
    statistics: StatisticsSchema
    feature_names: list[str] | None
    preprocessing: dict[str, Any]
    learned: dict[str, Any]


class FileSchema(msgspec.Struct):
    """A ranker file: the ranker, and the checksum of its text."""

    version: int
    checksum: str
    ranker: dict[str, Any]


# -- Scorers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedScorer:
    """The part of a ranker that scores and ranks: preprocessing and scorer.

    It gives the scores of the ranker to the bit, and needs no scikit-learn.
    """

    scorer: Scorer
    preprocessing: Preprocessing
    n_features: int
    feature_names: tuple[str, ...] | None

    @classmethod
    def from_content(cls, content: Mapping[str, Any], scorer_type: type[Scorer]) -> SavedScorer:
        """Return the scorer in a file's content; content that `save` never writes is rejected."""
        statistics = check_schema(content, RankerSchema, "the ranker").statistics
        provenance, n_features = statistics.provenance_, statistics.n_features_in_
        if provenance.verdict is not UNSET and provenance.warnings is UNSET:
            raise DataError("the ranker has a verdict without warnings, expected a list of them")
        if "scorer" not in content["learned"]:
            raise DataError("the ranker has no learned.scorer, expected one")
        scorer = scorer_type.from_dict(content["learned"]["scorer"])
        preprocessing = Preprocessing.from_dict(content["preprocessing"])
        names = None if content["feature_names"] is None else tuple(content["feature_names"])
        preprocessing.check_widths(n_features, names, scorer.n_features)
        return cls(scorer, preprocessing, n_features, names)

    def check_features(self, features: Any) -> None:  # noqa: ANN401 (array or codes)
        """Reject infinite values, and missing ones if training had none."""
        is_allowed = takes_missing(self.scorer, self.preprocessing)
        checks.check_missing(features, self.feature_names, is_allowed=is_allowed)

    def predict(self, dataset: RankingDataset) -> Floats:
        """Return the score of each item, float64 (n_items,)."""
        features = checks.select_features(dataset, self.n_features, self.feature_names)
        self.check_features(features)
        return self.scores(features, dataset.offsets)

    def rank(self, dataset: RankingDataset) -> Ints:
        """Return the rank of each item within its query, int64 (n_items,), from 1."""
        return ranks_of(self.predict(dataset), dataset.offsets)

    def scores(self, features: Any, offsets: Ints) -> Floats:  # noqa: ANN401 (array or codes)
        """Return scorer(preprocessing(x)) of each row, float64 (n_rows,); all are finite.

        The rows of a query are next to each other, from its offset on.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            scores = self.scorer.predict(self.preprocessing.features(features, offsets))
        if not np.isfinite(scores).all():
            row = int(np.isfinite(scores).argmin())
            raise DataError(
                f"the score of row {row} (counted from 0) is {scores[row]}, expected a finite "
                "number: its features, or the ranker's weights, are too large to be multiplied"
            )
        return scores


def takes_missing(scorer: Scorer, preprocessing: Preprocessing) -> bool:
    """Return whether features may be missing: an imputer fills them in, or trees take them."""
    return preprocessing.imputer is not None or getattr(scorer, "missing_left", None) is not None


# -- Loading ---------------------------------------------------------------------------------------


def load_ranker(path: str | PathLike[str]) -> ClickRanker:
    """Read a ranker of any kind that ``save`` wrote; it gives the same scores, to the bit.

    A file that is missing, not a ranker, of another version, or damaged raises DataError.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from countersample import CounterSampleRanker
    >>> from countersample.rankers import load_ranker
    >>> ranker = CounterSampleRanker(random_state=0).fit([[0.2], [0.9]], [0, 3], qid=[1, 1])
    >>> with TemporaryDirectory() as folder:
    ...     ranker.save(f"{folder}/ranker.json")
    ...     load_ranker(f"{folder}/ranker.json").rank([[0.5], [0.7]])
    array([2, 1])
    """
    kind, content = _read_kind(path)
    module, name, _ = KINDS[kind]
    ranker_type = getattr(import_module(f"countersample.{module}"), name)
    ranker: ClickRanker = ranker_type._from_content(content, path)  # noqa: SLF001 (of this package)
    return ranker


def load_scorer(path: str | PathLike[str]) -> SavedScorer:
    """Read the scorer of a ranker file; errors are the same as in `load_ranker`."""
    kind, content = _read_kind(path)
    with readable(path):
        return SavedScorer.from_content(content, KINDS[kind][2])


def _read_kind(path: str | PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return the kind of the ranker in a file, and the content."""
    content = read_ranker(path)
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise DataError(
            f"{path}: a ranker of the kind {reprlib.repr(kind)}, expected one of {', '.join(KINDS)}"
        )
    return kind, content


# -- Text ------------------------------------------------------------------------------------------


def check_name(path: str | PathLike[str]) -> None:
    """Reject a name with the ending of another format than JSON."""
    path = Path(path)
    if path.suffix.lower() in OTHER_ENDINGS:
        raise ParameterError(
            f"{path}: a ranker is written as JSON, expected a name such as "
            f"{path.with_suffix('.json')}; from it, countersample export writes other formats"
        )


def versions(*libraries: str) -> dict[str, str]:
    """Return the versions of Python, of the libraries of all rankers, and of `libraries`."""
    import sklearn  # noqa: PLC0415 (takes a second to import, and is not needed to read a file)

    return {
        "countersample": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "scikit-learn": sklearn.__version__,
    } | {name: str(import_module(name).__version__) for name in libraries}


def write_ranker(path: str | PathLike[str], content: Mapping[str, Any]) -> None:
    """Write plain values, with the versions of the libraries and a checksum, atomically."""
    check_name(path)
    text = _to_text({"written_by": versions(), **content})
    header = {"format": FORMAT, "version": VERSION, "checksum": _checksum(text)}
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(header)[:-1] + ',\n"ranker": ' + text + "}\n", "utf-8")


def read_ranker(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the values that `write_ranker` wrote; any other file raises DataError."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            begin = file.read(len(BEGINNING))
            rest = file.read() if begin == BEGINNING else b""  # other files may be endless
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if begin != BEGINNING:
        raise DataError(f"{path}: not a ranker file, expected one written by a ranker's save")
    try:
        saved = check_schema(parse_json(begin + rest), FileSchema, "the file")
    except DataError as error:
        raise DataError(f"{path}: a damaged ranker file ({error}): save it again") from error
    if saved.version != VERSION:
        raise DataError(
            f"{path}: has the format version {saved.version}, expected {VERSION}: read it with the "
            "release that wrote it"
        )
    if saved.checksum != _checksum(_to_text(saved.ranker)):
        raise DataError(f"{path}: a damaged ranker file (it was changed): save it again")
    return saved.ranker


@contextmanager
def readable(path: str | PathLike[str]) -> Iterator[None]:
    """Name the file in errors: it is undamaged, but has no ranker of this release."""
    try:
        yield
    except (CounterSampleError, TypeError) as error:  # an unknown parameter is a TypeError
        raise DataError(f"{path}: not a ranker that this release can read ({error})") from error


def _to_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, default=_to_plain)


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _to_plain(value: object) -> Any:  # noqa: ANN401 (what JSON takes)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Objective | Loss):
        return value.identity  # scoring does not need λ
    raise DataError(f"cannot save a {type(value).__name__}, expected plain values as parameters")
