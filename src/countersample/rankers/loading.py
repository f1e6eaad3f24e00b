"""Rankers of any kind from their files: to train on with scikit-learn, or to score only."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from countersample import scorers
from countersample.data.normalize import Normalizer
from countersample.errors import DataError
from countersample.evaluation.ranking import ranks_of
from countersample.rankers import _tables as tables
from countersample.rankers._files import read_ranker

if TYPE_CHECKING:
    from os import PathLike

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.rankers.base import ClickRanker

# Where the class of each kind is. To score, none of them needs the library it was trained with.
KINDS = {
    "linear": ("countersample.rankers.linear", "CounterSampleRanker"),
    "neural": ("countersample.torch.ranker", "NeuralRanker"),
    "boosted": ("countersample.gbdt.ranker", "GBDTRanker"),
}
_SCORERS: dict[str, type[scorers.Scorer]] = {
    "linear": scorers.LinearScorer,
    "neural": scorers.NetworkScorer,
    "boosted": scorers.TreesScorer,
}


def load_ranker(path: str | PathLike[str]) -> ClickRanker:
    """Read a ranker of any kind that ``save`` wrote; it scores as it did then, to the bit.

    Raises
    ------
    DataError
        For a file that is missing, not a ranker, of another version, or damaged.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from countersample import CounterSampleRanker
    >>> from countersample.rankers import load_ranker
    >>> ranker = CounterSampleRanker(random_state=0).fit([[0.2], [0.9]], [0, 3], qid=[1, 1])
    >>> with TemporaryDirectory() as folder:
    ...     ranker.save(f"{folder}/ranker.json")
    ...     loaded = load_ranker(f"{folder}/ranker.json")
    >>> loaded.rank([[0.5], [0.7]])
    array([2, 1])
    """
    kind, content = _read(path)
    module, name = KINDS[kind]
    ranker: ClickRanker = getattr(import_module(module), name)._of(content, path)  # noqa: SLF001
    return ranker


@dataclass(frozen=True)
class SavedScorer:
    """What serves of a ranker's file: it scores and ranks datasets as the ranker does, to the bit.

    It needs nothing of scikit-learn, which takes a second to import.
    """

    scorer: scorers.Scorer
    normalizer: Normalizer | None
    n_features: int
    feature_names: tuple[str, ...] | None

    def predict(self, dataset: RankingDataset) -> Floats:
        """Return the score of each item, float64 (n_items,)."""
        features = tables.own_features(dataset, self.n_features, self.feature_names)
        tables.check_finite(features)
        if self.normalizer is not None:
            features = self.normalizer.features(features, dataset.offsets)
        return self.scorer.predict(features)

    def rank(self, dataset: RankingDataset) -> Ints:
        """Return the rank of each item within its query, int64 (n_items,), from 1."""
        return ranks_of(self.predict(dataset), dataset.offsets)


def load_scorer(path: str | PathLike[str]) -> SavedScorer:
    """Read what serves of a ranker's file; errors are those of `load_ranker`."""
    kind, content = _read(path)
    try:
        names, kept = content["feature_names"], content["normalizer"]
        return SavedScorer(
            _SCORERS[kind].from_dict(content["learned"]["scorer"]),
            None if kept is None else Normalizer.from_dict(kept),
            content["statistics"]["n_features_in_"],
            None if names is None else tuple(map(str, names)),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a ranker that this release can read ({error})") from error


def _read(path: str | PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return the kind of the ranker in a file, and what the file has."""
    content = read_ranker(path)
    kind = content.get("kind")
    if kind not in KINDS:
        raise DataError(
            f"{path}: a ranker of the kind {kind!r}, expected one of {', '.join(KINDS)}"
        )
    return kind, content
