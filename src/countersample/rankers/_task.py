"""What a ranker learns from and is judged by: what was shown, its clicks, and what ranked it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.clicks import ClickLog
from countersample.clicks.shown import only_shown
from countersample.data.imputing import Imputer
from countersample.evaluation.doubly_robust import relevance_model, sessions_of_item
from countersample.evaluation.estimators import logged_values
from countersample.evaluation.held_out import VALIDATION_QUERIES, HeldOut
from countersample.evaluation.ranking import parse_additive, rank_values, ranks_of
from countersample.evaluation.resampling import Clusters
from countersample.evaluation.robust_weights import doubly_robust_log
from countersample.rankers.served import check_baseline, imitate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.data.normalize import Normalizer
    from countersample.rankers.served import Served
    from countersample.scorers import Scorer


class Robust(NamedTuple):
    """How clicks are made doubly robust."""

    clip: float  # τ
    seed: int  # of the model of relevance


@dataclass(frozen=True, eq=False)
class Task:
    """What a ranker learns from and is judged by.

    Attributes
    ----------
    dataset : RankingDataset
        The items that were shown, as far as the log tells, with features as they are trained on.
    log : ClickLog
        Of them.
    whole, whole_log : RankingDataset, ClickLog
        All items, and the same rows of the log, of them.
    baseline : float64 (n_items,) or None
        Scores of what is served, of all items.
    scale : float64 (n_features,) or None
        What features are still to be multiplied by.
    robust : Robust or None
        Where training is doubly robust: all items are learned from, by the weights of
        `countersample.evaluation.doubly_robust_log`. What judges is the same.
    imputer : Imputer or None
        Where features are missing, which only trees are trained on: what fills them in for the
        linear scorer that trees are boosted from.
    normalizer : Normalizer or None
        What brought features to scale, or is still to.
    transform : str or None
        What was asked of it beside scaling.
    previous : Scorer or None
        What training goes on from, for features as they are trained on, brought to scale.
    """

    dataset: RankingDataset
    log: ClickLog
    whole: RankingDataset
    whole_log: ClickLog
    baseline: Floats | None = None
    scale: Floats | None = None
    robust: Robust | None = None
    imputer: Imputer | None = None
    normalizer: Normalizer | None = None
    transform: str | None = None
    previous: Scorer | None = None

    @cached_property
    def filled(self) -> RankingDataset:
        """`dataset`, without missing values."""
        return self.dataset if self.imputer is None else self.imputer(self.dataset)

    @cached_property
    def clicks(self) -> ClickLog:
        """The rows that have a weight."""
        return self._learned_from(slice(None))

    def _learned_from(self, rows: NDArray[np.bool_] | slice) -> ClickLog:
        """Return what is learned from these rows of the log."""
        if self.robust is None:
            return self.log.take(rows).weighted()
        clip, seed = self.robust
        return doubly_robust_log(self.whole, self.whole_log.take(rows), clip=clip, rng=seed)

    @cached_property
    def served(self) -> Served | None:
        """The imitation of what was served; None where nothing tells it."""
        whole = self.whole if self.imputer is None else self.imputer(self.whole)
        return imitate(whole, self.whole_log, baseline=self.baseline, scale=self.scale)

    def held_out(
        self,
        metric: str,
        *,
        holdout: float,
        rng: np.random.Generator,
        least_queries: int = VALIDATION_QUERIES,
    ) -> tuple[HeldOut, list[ClickLog]]:
        """Return who judges, and the log of `dataset` without the queries of each of its folds.

        A candidate ranks all items. Of those that were never shown a model of relevance speaks:
        each counts as often as it would be clicked by it, as in the estimator ``dr``. The model
        knows what was served: that an item was left out says something of it, too. Where what was
        logged ranks below the page is not known, so the metric ends with the page.
        """
        parts = self._parts(holdout, least_queries, rng)
        if (self.dataset is self.whole and self.robust is None) or parts is None:
            held_out = HeldOut(
                self.whole, self.whole_log, metric, holdout=holdout, parts=parts,
                logged=self._logged(metric), rng=rng,
            )  # fmt: skip
        else:
            metric = self._within_page(metric)
            log, logged = self._with_never_shown(metric, rng)
            held_out = HeldOut(self.whole, log, metric, parts=parts, logged=logged, rng=rng)
            clicked = np.unique(self.whole_log.weighted().query)  # in earnest, not by a model
            held_out.n_queries = int(np.isin(clicked, np.concatenate(parts)).sum())
        return held_out, self.without(held_out)

    def without(self, held_out: HeldOut) -> list[ClickLog]:
        """Return the log of `dataset` without the queries of each fold."""
        if self._n_clicked == 1:
            return [self.clicks]  # of one query none can be held out
        return [
            self._learned_from(~np.isin(self.whole_log.query, fold.queries))
            for fold in held_out.folds
        ]

    @property
    def _n_clicked(self) -> int:
        """How many queries have clicks."""
        return len(np.unique(self.whole_log.weighted().query))

    def _parts(
        self, holdout: float, least_queries: int, rng: np.random.Generator
    ) -> list[Ints] | None:
        """Cut the queries into parts by their clicks; None where only one has any."""
        n_clicked = self._n_clicked
        if n_clicked == 1:
            return None
        n_parts = min(round(1 / holdout), n_clicked)
        n_needed = -(-least_queries * n_parts // n_clicked)
        return HeldOut.cut(self.whole_log, n_parts, rng)[:n_needed]

    def _within_page(self, metric: str) -> str:
        """Return the metric down to the last position of most pages, if it goes deeper."""
        log, (name, k) = self.whole_log, parse_additive(metric)
        if self.baseline is not None or log.position is None or name == "arp":
            return metric
        last = np.zeros(self.whole.n_queries, np.int64)
        np.maximum.at(last, log.query, log.position)
        depth = int(np.median(last[last > 0]))
        return metric if k is not None and k <= depth else f"{name}@{depth}"

    @property
    def knows_logged(self) -> bool:
        """Whether it is known where items were shown, or would be."""
        return self.baseline is not None or self.log.position is not None

    def _logged(self, metric: str) -> Floats | None:
        """Return λ of what was served for each row of the log, (n_rows,); None if not known."""
        if self.baseline is not None:
            rows = self.whole.offsets[self.whole_log.query] + self.whole_log.item
            return rank_values(metric, ranks_of(self.baseline, self.whole.offsets)[rows])
        if self.whole_log.position is None:
            return None
        return logged_values(self.whole_log, self.whole, metric)

    def _with_never_shown(
        self, metric: str, rng: np.random.Generator
    ) -> tuple[ClickLog, Floats | None]:
        """Return the log with a row for each item that was never shown, and λ of what was served.

        What was never shown was at no rank, unless a baseline tells one.
        """
        log, whole, logged = self.whole_log, self.whole, self._logged(metric)
        has_row = np.zeros(whole.n_items, bool)
        has_row[whole.offsets[log.query] + log.item] = True
        sessions = sessions_of_item(Clusters.of(log), whole)
        expected = sessions * relevance_model(log, whole, served=True, rng=rng)
        rows = np.flatnonzero(np.where(has_row, 0.0, expected))
        query = np.searchsorted(whole.offsets, rows, side="right") - 1
        none = np.zeros(len(rows))
        more = none
        if self.baseline is not None:
            more = rank_values(metric, ranks_of(self.baseline, whole.offsets)[rows])
        added = ClickLog(
            np.append(log.query, query),
            np.append(log.item, rows - whole.offsets[query]),
            np.append(log.propensity, none + 1),
            np.append(log.clicks, expected[rows]),
            by_chance=None if log.by_chance is None else np.append(log.by_chance, none),
        )
        return added, None if logged is None else np.append(logged, more)


def make_task(
    dataset: RankingDataset,
    log: ClickLog,
    baseline: ArrayLike | None,
    normalizer: Normalizer | None,
    *,
    takes_scale: bool,
    keeps_missing: bool = False,
    robust: Robust | None = None,
    transform: str | None = None,
    previous: Scorer | None = None,
) -> Task:
    """Leave out what was never shown, and bring features to scale: folded in, where that is exact.

    Doubly robust training learns from what was never shown, too. Training that multiplies features
    by a scale needs no copy of them. `keeps_missing` says that features are missing, for trees.
    """
    scores = check_baseline(baseline, dataset)
    scale, whole = None, dataset
    if normalizer is not None:
        scale = normalizer.foldable_scale(dataset.features) if takes_scale else None
        if scale is None:
            whole = normalizer(dataset)
        elif normalizer.roots is not None:
            whole = dataset.with_features(dataset.features.linear)
    shown, own = (whole, log) if robust is not None else only_shown(whole, log)
    return Task(
        shown, own.replace(fingerprint=None), whole, log.replace(fingerprint=None), scores, scale,
        robust, Imputer.fit(whole) if keeps_missing else None, normalizer, transform, previous,
    )  # fmt: skip
