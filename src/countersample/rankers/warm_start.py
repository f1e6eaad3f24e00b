"""Warm starts: training that continues from an earlier ranker.

Weights mean something only together with the preprocessing before them, so both are kept, and the
features have to be the same. Values that are missing for the first time are filled in, without new
indicators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from sklearn.base import clone

from countersample.data.preprocessing import IMPUTATIONS, Imputer, check_scaling
from countersample.errors import DataError, ParameterError
from countersample.scorers import TreesScorer

if TYPE_CHECKING:
    from countersample.data import RankingDataset
    from countersample.data.preprocessing import Preprocessing
    from countersample.rankers.base import ClickRanker
    from countersample.scorers import Scorer

    R = TypeVar("R", bound=ClickRanker)

MAX_NAMES = 5  # of features in a message


@dataclass(frozen=True, eq=False)
class WarmStart:
    """The state that training continues from.

    Attributes
    ----------
    scorer : Scorer
    preprocessing : Preprocessing
    n_features : int
    feature_names : tuple of str or None
    n_clicks : float
        The clicks of all trainings so far.
    updates : int
        The number of earlier updates.
    last_day : str or None
        The last day of the log that it learned from, if known.
    """

    scorer: Scorer
    preprocessing: Preprocessing
    n_features: int
    feature_names: tuple[str, ...] | None
    n_clicks: float
    updates: int
    last_day: str | None = None

    @classmethod
    def of(cls, ranker: ClickRanker) -> WarmStart:
        """Return the state of a fitted ranker."""
        names = getattr(ranker, "feature_names_in_", None)
        provenance = ranker.provenance_
        previous = provenance.get("previous", {"n_clicks": 0, "updates": 0})
        return cls(
            ranker.scorer_,
            ranker.preprocessing_,
            ranker.n_features_in_,
            None if names is None else tuple(map(str, names)),
            n_clicks=previous["n_clicks"] + provenance["n_clicks"],
            updates=int(previous["updates"]),
            last_day=provenance.get("log", {}).get("last_day"),
        )

    @classmethod
    def next_of(cls, ranker: ClickRanker) -> WarmStart | None:
        """Return the start of the ranker's next training; None if it starts from scratch."""
        if not ranker.warm_start:
            return None
        return cls.of(ranker) if hasattr(ranker, "scorer_") else ranker._warm_start  # noqa: SLF001

    def to_dict(self) -> dict[str, float]:
        """Return plain values for the provenance."""
        return {"n_clicks": self.n_clicks, "updates": self.updates + 1}

    def check(self, dataset: RankingDataset, ranker: ClickRanker) -> None:
        """Reject other features, and parameters that would preprocess them in another way."""
        names, new_names = self.feature_names, dataset.feature_names
        if dataset.n_features != self.n_features or (
            names is not None and new_names is not None and names != new_names
        ):
            raise DataError(
                f"the data has {_describe(dataset.n_features, new_names)}, expected "
                f"{_describe(self.n_features, names)}, as the ranker of the warm start: give it "
                "the same features in the same order, or train from scratch"
            )
        imputer, normalizer = self.preprocessing.imputer, self.preprocessing.normalizer
        old_how = None if normalizer is None or normalizer.how == "none" else normalizer.how
        old_transform = self.preprocessing.transform_name
        how, transform = ranker.normalize, ranker.feature_transform
        if transform == "auto":
            transform = old_transform
        if how is not None:
            how, transform = check_scaling(how, transform)
        has_no_root = transform == "root" and old_how == "root-minmax"  # no feature needed any
        old_impute = IMPUTATIONS[0] if imputer is not None and imputer.indicators else None
        for name, old, is_same in (
            ("feature_transform", old_transform, transform == old_transform or has_no_root),
            ("normalize", old_how, how == old_how),
            ("impute", old_impute, old_impute in {None, getattr(ranker, "impute", None)}),
        ):
            if not is_same:
                raise ParameterError(
                    f"{name} is {getattr(ranker, name)!r} where the ranker of the warm start has "
                    f"{old!r}, expected the same: its weights are for such features"
                )

    def imputer_for(self, dataset: RankingDataset, how: str) -> Imputer | None:
        """Return the imputer of the ranker, or one without indicators for new missing values."""
        if self.preprocessing.imputer is not None or not dataset.has_missing:
            return self.preprocessing.imputer
        return Imputer.fit(dataset, "median" if how == IMPUTATIONS[0] else how)

    def scorer_for(self, dataset: RankingDataset) -> Scorer:
        """Return the scorer; trees that know no missing values score them as the median."""
        scorer = self.scorer
        if isinstance(scorer, TreesScorer) and dataset.has_missing and scorer.missing_left is None:
            normalizer = self.preprocessing.normalizer
            scaled = dataset if normalizer is None else normalizer(dataset)
            return scorer.fill_missing(np.array(Imputer.fit(scaled, "median").fill))
        return scorer


def make_successor(ranker: R) -> R:
    """Return an untrained copy, which continues from the ranker if `warm_start` is set."""
    return _copy(ranker, WarmStart.next_of(ranker))


def make_untrained(ranker: R) -> R:
    """Return the ranker before its last training: a copy that starts where it started."""
    return _copy(ranker, ranker._warm_start)  # noqa: SLF001 (of this package)


def _copy(ranker: R, warm_start: WarmStart | None) -> R:
    copied: R = clone(ranker)
    copied._warm_start = warm_start  # noqa: SLF001 (of this package)
    return copied


def _describe(n_features: int, names: tuple[str, ...] | None) -> str:
    if names is None:
        return f"{n_features} features"
    n_others = n_features - MAX_NAMES
    more = f" and {n_others} more" if n_others > 0 else ""
    return f"the features {', '.join(names[:MAX_NAMES])}{more}"
