"""What a ranker's file says, checked before it scores: its parts have to fit together."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import number, whole_number
from countersample.data.normalize import Normalizer
from countersample.errors import DataError
from countersample.evaluation.ranking import ranks_of
from countersample.rankers import _tables as tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.scorers import Scorer


@dataclass(frozen=True)
class SavedScorer:
    """What serves of a ranker's file: it scores and ranks datasets as the ranker does, to the bit.

    It needs nothing of scikit-learn, which takes a second to import.
    """

    scorer: Scorer
    normalizer: Normalizer | None
    n_features: int
    feature_names: tuple[str, ...] | None

    @classmethod
    def of(cls, content: Mapping[str, Any], scorer_type: type[Scorer]) -> SavedScorer:
        """Take what serves out of a file's content; whatever is not as `save` writes is refused."""
        kept, names = entry(content, "normalizer"), entry(content, "feature_names")
        n_features = entry(entry(content, "statistics"), "n_features_in_")
        whole_number("n_features_in_", n_features, least=1)
        scorer = scorer_type.from_dict(entry(entry(content, "learned"), "scorer"))
        normalizer = None if kept is None else Normalizer.from_dict(kept)
        counts = {"scorer": scorer.n_features}
        if normalizer is not None:
            counts["normalizer"] = normalizer.n_features
        if names is not None:
            texts("feature_names", names)
            counts["list of feature names"] = len(names)
        for part, count in counts.items():
            if count != n_features:
                raise DataError(f"its {part} is for {count} features, expected {n_features}")
        return cls(scorer, normalizer, n_features, None if names is None else tuple(names))

    def predict(self, dataset: RankingDataset) -> Floats:
        """Return the score of each item, float64 (n_items,)."""
        features = tables.own_features(dataset, self.n_features, self.feature_names)
        tables.check_finite(features)
        return scores_by(self.scorer, self.normalizer, features, dataset.offsets)

    def rank(self, dataset: RankingDataset) -> Ints:
        """Return the rank of each item within its query, int64 (n_items,), from 1."""
        return ranks_of(self.predict(dataset), dataset.offsets)


def scores_by(
    scorer: Scorer,
    normalizer: Normalizer | None,
    features: Any,  # noqa: ANN401 (array or codes)
    offsets: Ints,
) -> Floats:
    """Return scorer(normalizer(x)) of each row, float64 (n_rows,); all are finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # told below
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


def entry(values: Any, name: str) -> Any:  # noqa: ANN401 (JSON)
    """Return the entry of this name."""
    if not isinstance(values, dict) or name not in values:
        raise DataError(f"it has no entry {name}")
    return values[name]


def text(name: str, value: object) -> None:
    """Refuse what is not text."""
    _check(name, value, isinstance(value, str), "text")


def texts(name: str, value: object) -> None:
    """Refuse what is not a list of texts."""
    good = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
    _check(name, value, good, "a list of texts")


def _texts_by_name(name: str, value: object) -> None:
    good = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    _check(name, value, good, "texts by name")


def _figure(name: str, value: object) -> None:
    """Refuse what is not a number; a file may say that one is not known, or infinite."""
    good = isinstance(value, float) or (type(value) is int and abs(value) < 2**63)
    _check(name, value, good, "a number")


def _figures(*, texts: tuple[str, ...], figures: tuple[str, ...]) -> Callable[[str, Any], None]:
    """Return a check of an object that has these texts and numbers."""

    def check(name: str, value: object) -> None:
        _check(name, value, isinstance(value, dict), "an object")
        for each in (*texts, *figures):
            (text if each in texts else _figure)(f"{each} of {name}", entry(value, each))

    return check


def _log(name: str, value: object) -> None:
    _check(name, value, isinstance(value, dict), "an object")
    for each, said in value.items():  # type: ignore[attr-defined] # checked
        if each in {"file", "last_day"}:
            text(f"{each} of {name}", said)
        elif said is not None:
            _figure(f"{each} of {name}", said)


def _previous(name: str, value: object) -> None:
    _check(name, value, isinstance(value, dict), "an object")
    number(f"n_clicks of {name}", entry(value, "n_clicks"), least=0)
    whole_number(f"updates of {name}", entry(value, "updates"), least=1)


_NEEDED = ("n_clicks", "n_items", "mean_weight", "max_weight")
_PROVENANCE: dict[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(_NEEDED, _figure),
    **dict.fromkeys(("choice", "data", "propensities", "verdict"), text),
    "versions": _texts_by_name,
    "log": _log,
    "gain": _figures(
        texts=("metric", "per"),
        figures=("relative", "confidence", "relative_low", "relative_high", "new", "logged"),
    ),
    "warnings": texts,
    "previous": _previous,
}


def provenance(name: str, value: object) -> None:
    """Refuse an origin that a model card could not tell."""
    _check(name, value, isinstance(value, dict), "an object")
    needed = (*_NEEDED, *(["warnings"] if "verdict" in value else []))  # type: ignore[operator] # checked
    for each in needed:
        entry(value, each)
    for each, check in _PROVENANCE.items():
        if each in value:  # type: ignore[operator] # checked
            check(f"{each} of {name}", entry(value, each))


def _check(name: str, value: object, is_good: bool, expected: str) -> None:
    if not is_good:
        raise DataError(f"{name} is {reprlib.repr(value)}, expected {expected}")
