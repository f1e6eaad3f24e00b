"""Warm starts: what a ranker that goes on from an earlier one takes over from it.

`what_it_brings` is the one place that says what that is. Weights mean something only together with
what comes before them, so all of it is taken over: features that both know keep the scale of then.
A feature that is new has no weight, so that nothing changes at first, and its scale is of today's
data; one that is no longer there goes, with its weight.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from sklearn.base import clone

from countersample.data.normalize import Normalizer
from countersample.errors import DataError, ParameterError

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
    n_features: int
    feature_names: tuple[str, ...] | None
    n_clicks: float
    updates: int
    last_day: str | None = None

    def to_dict(self) -> dict[str, float]:
        """Return what is said of it, in plain values."""
        return {"n_clicks": self.n_clicks, "updates": self.updates + 1}

    def taken_over(
        self, dataset: RankingDataset, normalize: str | None
    ) -> tuple[Normalizer | None, Scorer]:
        """Return the normalizer and the scorer for the features of a dataset.

        They score as before, but for what a lost feature had to say.
        """
        how = None if self.normalizer is None else self.normalizer.how
        if how != normalize:
            raise ParameterError(
                f"normalize is {normalize!r} where the ranker to go on from has {how!r}, expected "
                "the same: its weights are for features of that scale"
            )
        order = self._order(dataset)
        normalizer = None
        if self.normalizer is not None:
            if self.normalizer.scale is not None:  # of what was constant nothing was learned
                constant = np.array(self.normalizer.scale) == 0
                order[constant[order] & (order >= 0)] = -1
            normalizer = _with_scales(self.normalizer, dataset, order)
        return normalizer, self.scorer.arranged(order)

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
    if np.array_equal(order, np.arange(known.n_features)):
        return known
    if known.shift is None or known.scale is None:  # by query
        return Normalizer(known.how, dataset.n_features)
    fresh = known if (order >= 0).all() else Normalizer.fit(dataset, known.how)

    def mixed(old: Sequence[float], new: Sequence[float] | None) -> tuple[float, ...]:
        return tuple(
            old[k] if k >= 0 else 0 if new is None else new[j] for j, k in enumerate(order.tolist())
        )

    none = (0,) * known.n_features
    roots = tuple(int(each) for each in mixed(known.roots or none, fresh.roots))
    return Normalizer(
        known.how, dataset.n_features, mixed(known.shift, fresh.shift),
        mixed(known.scale, fresh.scale), roots if any(roots) else None,
    )  # fmt: skip


def _named(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
