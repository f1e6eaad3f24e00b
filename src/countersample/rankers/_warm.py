"""Warm starts: what a ranker that goes on from an earlier one takes over from it.

`what_it_brings` is the one place that says what that is. Weights mean something only together with
what comes before them, so all of it is taken over: features that both know keep the scale of then.
A feature that is new has no weight, so that nothing changes at first, and its scale is of today's
data; one that is no longer there goes, with its weight.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.base import clone

from countersample.data.imputing import METHODS, Imputer
from countersample.data.normalize import Normalizer, named_how
from countersample.errors import DataError, ParameterError
from countersample.scorers import TreesScorer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Ints
    from countersample.data import RankingDataset
    from countersample.rankers.base import ClickRanker
    from countersample.scorers import Scorer

    R = TypeVar("R", bound=ClickRanker)

MOST_NAMES = 5  # of features, in a sentence


class LostFeatureWarning(UserWarning):
    """Features that a ranker knew and that the data it goes on with has not."""


@dataclass(frozen=True, eq=False)
class Beginning:
    """What training goes on from.

    Attributes
    ----------
    scorer : Scorer
    normalizer : Normalizer or None
    imputer : Imputer or None
    n_features : int
    feature_names : tuple of str or None
    n_clicks : float
        The clicks that it has learned from, in all trainings one after the other.
    updates : int
        How many trainings went on from another before.
    last_day : str or None
        The last day of the log that it learned from, where that has days.
    """

    scorer: Scorer
    normalizer: Normalizer | None
    imputer: Imputer | None
    n_features: int
    feature_names: tuple[str, ...] | None
    n_clicks: float
    updates: int
    last_day: str | None = None

    def to_dict(self) -> dict[str, float]:
        """Return what is said of it, in plain values."""
        return {"n_clicks": self.n_clicks, "updates": self.updates + 1}

    def taken_over(
        self, dataset: RankingDataset, ranker: ClickRanker, fresh: Imputer | None
    ) -> tuple[Imputer | None, Normalizer | None, Scorer]:
        """Return the imputer, the normalizer and the scorer for the features of a dataset.

        They score as before, but for what a lost feature had to say. `ranker` is the one that goes
        on, and `fresh` the imputer that it would learn from the dataset alone.
        """
        self._check_scales(ranker.normalize, ranker.feature_transform)
        if self.imputer is not None and self.imputer.indicators and ranker.impute != METHODS[0]:
            raise ParameterError(
                f"impute is {ranker.impute!r} where the ranker to go on from has indicators of "
                f"what is missing, expected {METHODS[0]!r}: train anew to change it"
            )
        order = self._order(dataset)
        if fresh is None and self.imputer is not None and (order < 0).any():
            fresh = Imputer.fit(dataset, "median")
        imputer = self._imputer(order, fresh)
        if imputer is not None:
            order = self._wide(order, imputer)
        whole = dataset if imputer is None else imputer(dataset)
        normalizer = None
        if self.normalizer is not None:
            if self.normalizer.scale is not None:  # of what was constant nothing was learned
                constant = np.array(self.normalizer.scale) == 0
                if isinstance(self.scorer, TreesScorer):  # but that it was missing
                    constant[self.scorer.counting] = False
                order[constant[order] & (order >= 0)] = -1
            normalizer = _with_scales(self.normalizer, whole, order)
        scorer = self.scorer.arranged(order)
        if isinstance(scorer, TreesScorer) and dataset.has_missing and scorer.missing_left is None:
            seen = dataset if normalizer is None else normalizer(dataset)
            scorer = scorer.filling(np.array(Imputer.fit(seen, "median").fill))
        return imputer, normalizer, scorer

    def _check_scales(self, normalize: str | None, transform: str | None) -> None:
        """Refuse to go on where features would be brought to another scale."""
        known = self.normalizer
        before = None if known is None or known.how == "none" else known.how
        taken = None if known is None else known.transform_name
        how, asked = normalize, taken if transform == "auto" else transform
        if normalize is not None:
            how, asked = named_how(normalize, asked)
        no_feature_took_any = asked == "root" and before == "root-minmax"
        for name, was, given, is_same in (
            ("feature_transform", taken, transform, asked == taken or no_feature_took_any),
            ("normalize", before, normalize, how == before),
        ):
            if not is_same:
                raise ParameterError(
                    f"{name} is {given!r} where the ranker to go on from has {was!r}, expected "
                    "the same: its weights are for features of that scale"
                )

    def _imputer(self, order: Ints, fresh: Imputer | None) -> Imputer | None:
        """Return the imputer of before for features in another order, with what is missing now."""
        known = self.imputer
        if known is None:
            return fresh
        fill, indicators = [], []
        for now, before in enumerate(order.tolist()):
            own, index = (known, before) if before >= 0 else (fresh, now)
            fill.append(0.0 if own is None else own.fill[index])
            is_told = own is not None and index in own.indicators
            is_new = fresh is not None and now in fresh.indicators
            if is_told or is_new:
                indicators.append(now)
        return Imputer(len(order), tuple(fill), tuple(indicators))

    def _wide(self, order: Ints, imputer: Imputer) -> Ints:
        """Return the order of what the imputer makes of features: those, then the indicators."""
        place: dict[int, int] = {}
        if self.imputer is not None:
            place = {f: self.n_features + k for k, f in enumerate(self.imputer.indicators)}
        told = [place.get(int(order[index]), -1) for index in imputer.indicators]
        return np.append(order, told).astype(np.int64)

    def _order(self, dataset: RankingDataset) -> Ints:
        """Return which feature of before each of the dataset is, -1 for a new one, (n_features,).

        By name, where both have names; else by their places.
        """
        names = self.feature_names
        same_number = dataset.n_features == self.n_features
        if names is None or (dataset.feature_names is None and same_number):
            if not same_number:
                raise DataError(
                    f"the data has {dataset.n_features} features, expected {self.n_features}, as "
                    "the ranker to go on from, whose features have no names: give it the same "
                    "features, or train anew"
                )
            return np.arange(self.n_features)
        place = {name: k for k, name in enumerate(names)}
        found = dataset.names_of_features
        order = np.array([place.get(name, -1) for name in found], np.int64)
        if (order < 0).all():
            raise DataError(
                f"none of the features of the ranker to go on from ({_named(names)}) is in the "
                f"data, which has {_named(found)}: give it the same features, or train anew"
            )
        lost = [name for name in names if name not in set(found)]
        if lost:
            warnings.warn(
                f"the ranker to go on from knows features that the data has not, and goes on "
                f"without them: {_named(lost)}",
                LostFeatureWarning, stacklevel=2,
            )  # fmt: skip
        return order


def what_it_brings(ranker: ClickRanker) -> Beginning:
    """Return what training goes on from: all of a fitted ranker that its scores hang on."""
    names = getattr(ranker, "feature_names_in_", None)
    before = ranker.provenance_.get("previous", {"n_clicks": 0, "updates": 0})
    return Beginning(
        ranker.scorer_,
        ranker.normalizer_,
        ranker.imputer_,
        ranker.n_features_in_,
        None if names is None else tuple(map(str, names)),
        n_clicks=before["n_clicks"] + ranker.provenance_["n_clicks"],
        updates=int(before["updates"]),
        last_day=ranker.provenance_.get("log", {}).get("last_day"),
    )


def beginning_of(ranker: ClickRanker) -> Beginning | None:
    """Return what the next training of a ranker goes on from; None where it begins anew."""
    if not ranker.warm_start:
        return None
    return what_it_brings(ranker) if hasattr(ranker, "scorer_") else ranker._began_at  # noqa: SLF001


def going_on(ranker: R) -> R:
    """Return a copy that is to be trained, and goes on from the ranker where that is asked for."""
    return _copy(ranker, beginning_of(ranker))


def untrained(ranker: R) -> R:
    """Return the ranker as it was before it was trained: a copy that begins where it began."""
    return _copy(ranker, ranker._began_at)  # noqa: SLF001


def _copy(ranker: R, begin: Beginning | None) -> R:
    copied: R = clone(ranker)
    copied._began_at = begin  # noqa: SLF001
    return copied


def _with_scales(known: Normalizer, dataset: RankingDataset, order: Ints) -> Normalizer:
    """Return the normalizer of before, with features that are new as those of today."""
    if (order >= 0).all():
        return known.take(order.tolist())
    how = None if known.how == "none" else known.how
    transform = None if known.how == "root-minmax" else known.transform_name
    fresh = Normalizer.fit(dataset, how, transform)

    def mixed(name: str) -> tuple[Any, ...] | None:
        old, new = getattr(known, name), getattr(fresh, name)
        if old is None and new is None:
            return None
        nothing = () if name == "knots" else 0  # the feature as it is
        return tuple(
            (nothing if old is None else old[k]) if k >= 0 else nothing if new is None else new[j]
            for j, k in enumerate(order.tolist())
        )

    done = {name: mixed(name) for name in ("roots", "logs", "knots")}
    taken = {name: each for name, each in done.items() if each is not None and any(each)}
    return Normalizer(known.how, dataset.n_features, mixed("shift"), mixed("scale"), **taken)


def _named(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
