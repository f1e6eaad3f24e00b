"""The content of a ranker file: its schema, and the scorer in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from countersample._schemas import Figure, NotNegative, PositiveCount, check_schema
from countersample.data.encoding import FeatureEncoder
from countersample.data.imputing import Imputer
from countersample.data.normalize import Normalizer
from countersample.errors import DataError
from countersample.evaluation.ranking import ranks_of
from countersample.rankers import _tables as tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.scorers import Scorer

Part = TypeVar("Part")
OptionalText = str | UnsetType


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

    Each scorer, normalizer, imputer and encoder has a schema of its own; ``learned`` and ``params``
    are checked by the class of the ranker.
    """

    kind: str
    params: dict[str, Any]
    statistics: StatisticsSchema
    feature_names: list[str] | None
    normalizer: dict[str, Any] | None
    learned: dict[str, Any]
    imputer: dict[str, Any] | None = None
    encoder: Any = None


def check_content(content: Mapping[str, Any]) -> None:
    """Reject content of a file that `save` never writes, up to the parts with their own checks."""
    provenance = check_schema(content, RankerSchema, "the ranker").statistics.provenance_
    if provenance.verdict is not UNSET and provenance.warnings is UNSET:
        raise DataError("the ranker has a verdict without warnings, expected a list of them")


@dataclass(frozen=True)
class SavedScorer:
    """The scorer of a ranker file: it scores and ranks datasets as the ranker does, to the bit.

    It does without scikit-learn, which takes a second to import.
    """

    scorer: Scorer
    normalizer: Normalizer | None
    n_features: int
    feature_names: tuple[str, ...] | None
    imputer: Imputer | None = None
    encoder: FeatureEncoder | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any], scorer_type: type[Scorer]) -> SavedScorer:
        """Return the scorer in a file's content; content that `save` never writes is rejected."""
        check_content(content)
        n_features = content["statistics"]["n_features_in_"]
        if "scorer" not in content["learned"]:
            raise DataError("the ranker has no learned.scorer, expected one")
        scorer = scorer_type.from_dict(content["learned"]["scorer"])
        parts = {"imputer": None, "encoder": None} | dict(content)
        normalizer = _restore(Normalizer.from_dict, parts["normalizer"])
        imputer = _restore(Imputer.from_dict, parts["imputer"])
        encoder = _restore(FeatureEncoder.from_dict, parts["encoder"])
        names = None if content["feature_names"] is None else tuple(content["feature_names"])
        n_outputs = n_features if imputer is None else imputer.n_outputs
        counts = {"scorer": (scorer.n_features, n_outputs)}
        if imputer is not None:
            counts["imputer"] = imputer.n_features, n_features
        if normalizer is not None:
            counts["normalizer"] = normalizer.n_features, n_outputs
        if names is not None:
            counts["list of feature names"] = len(names), n_features
        for part, (count, expected) in counts.items():
            if count != expected:
                raise DataError(f"its {part} is for {count} features, expected {expected}")
        if encoder is not None and encoder.feature_names != names:
            raise DataError("its encoder makes other features than those that it names")
        return cls(scorer, normalizer, n_features, names, imputer, encoder)

    def predict(self, dataset: RankingDataset) -> Floats:
        """Return the score of each item, float64 (n_items,)."""
        features = tables.own_features(dataset, self.n_features, self.feature_names)
        return self.scores(features, dataset.offsets)

    def scores(self, features: Any, offsets: Ints) -> Floats:  # noqa: ANN401 (array or codes)
        """Return the score of each row of features; the rows of a query are side by side."""
        tables.check_missing(
            features, self.feature_names, takes_missing=takes_missing(self.scorer, self.imputer)
        )
        return scores_by(self.scorer, self.normalizer, self.imputer, features, offsets)

    def rank(self, dataset: RankingDataset) -> Ints:
        """Return the rank of each item within its query, int64 (n_items,), from 1."""
        return ranks_of(self.predict(dataset), dataset.offsets)


def _restore(from_dict: Callable[[Any], Part], values: Any) -> Part | None:  # noqa: ANN401 (JSON)
    return None if values is None else from_dict(values)


def takes_missing(scorer: Scorer, imputer: Imputer | None) -> bool:
    """Return whether features may be missing: an imputer fills them in, or trees take them."""
    return imputer is not None or getattr(scorer, "missing_left", None) is not None


def scores_by(
    scorer: Scorer,
    normalizer: Normalizer | None,
    imputer: Imputer | None,
    features: Any,  # noqa: ANN401 (array or codes)
    offsets: Ints,
) -> Floats:
    """Return scorer(normalizer(imputer(x))) of each row, float64 (n_rows,); all are finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        if imputer is not None:
            features = imputer.features(features)
        if normalizer is not None:
            features = normalizer.features(features, offsets)
        scores = scorer.predict(features)
    if not np.isfinite(scores).all():
        row = int(np.isfinite(scores).argmin())
        raise DataError(
            f"the score of row {row} (counted from 0) is {scores[row]}, expected a finite number: "
            "its features, or the ranker's weights, are too large to be multiplied"
        )
    return scores
