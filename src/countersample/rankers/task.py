"""The task of a ranker: items and clicks to learn from, and how candidates are evaluated.

Items that were never shown are left out of training (unless it is doubly robust), and kept for the
evaluation: a candidate ranks all items. Training starts from zero or from a linear base, mostly the
imitation of the logging policy. Of that policy only the order of items is known. How far apart
their scores are decides how much training has to do to change that order, and the training clicks
decide it (`scale_base`): if the base explains them well, its scores are far apart; if it explains
nothing, they are nearly equal, and training starts almost from zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.clicks import ClickLog
from countersample.clicks.log import only_shown
from countersample.data.preprocessing import Imputer
from countersample.errors import DataError
from countersample.evaluation.bootstrap import Clusters
from countersample.evaluation.doubly_robust import (
    doubly_robust_log,
    relevance_model,
    sessions_of_item,
)
from countersample.evaluation.estimators import logged_values
from countersample.evaluation.holdout import VALIDATION_QUERIES, HeldOut
from countersample.metrics import parse_additive, rank_values, ranks_of
from countersample.objectives import score_space
from countersample.plans import Examples
from countersample.rankers.logging_policy import check_baseline, imitate
from countersample.scorers import LinearScorer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.data.preprocessing import Normalizer
    from countersample.evaluation.holdout import Fold
    from countersample.objectives import AnyLoss
    from countersample.rankers.logging_policy import PolicyImitation
    from countersample.scorers import Scorer

BASE_SPREADS = np.geomspace(0.03, 10, 18)  # standard deviations of scores within a query


class Robust(NamedTuple):
    """How clicks are made doubly robust."""

    clip: float  # τ
    seed: int  # of the relevance model


@dataclass(frozen=True, eq=False)
class Task:
    """Items and clicks that a ranker learns from and is evaluated by.

    Attributes
    ----------
    dataset : RankingDataset
        The items that were shown, as far as the log contains it, with features as trained on.
    log : ClickLog
        The clicks on them.
    full, full_log : RankingDataset, ClickLog
        All items, and the same rows of the log for them.
    baseline : float64 (n_items,) or None
        Scores of all items by the current ranker.
    scale : float64 (n_features,) or None
        Factors that training still has to multiply features by.
    robust : Robust or None
        Set if training is doubly robust: it learns from all items, by the weights of
        `countersample.evaluation.doubly_robust_log`. The evaluation is the same.
    imputer : Imputer or None
        Fills in missing features for the linear scorer that trees are boosted from. Only trees are
        trained on missing features.
    normalizer : Normalizer or None
        Scales features, before or in training.
    transform : str or None
        The feature transform of the normalizer.
    previous : Scorer or None
        The scorer of a warm start, for features as trained on and scaled.
    """

    dataset: RankingDataset
    log: ClickLog
    full: RankingDataset
    full_log: ClickLog
    baseline: Floats | None = None
    scale: Floats | None = None
    robust: Robust | None = None
    imputer: Imputer | None = None
    normalizer: Normalizer | None = None
    transform: str | None = None
    previous: Scorer | None = None

    @classmethod
    def of(
        cls,
        dataset: RankingDataset,
        log: ClickLog,
        baseline: ArrayLike | None = None,
        normalizer: Normalizer | None = None,
        *,
        takes_scale: bool = False,
        keeps_missing: bool = False,
        robust: Robust | None = None,
        transform: str | None = None,
        previous: Scorer | None = None,
    ) -> Task:
        """Leave out items that were never shown, and scale features.

        Training that can multiply by a scale (`takes_scale`) needs no scaled copy of the features,
        if that is exact. `keeps_missing` is for trees whose features are missing at times.
        """
        scores = check_baseline(baseline, dataset)
        scale, full = None, dataset
        if normalizer is not None:
            scale = normalizer.foldable_scale() if takes_scale else None
            if scale is None:
                full = normalizer(dataset)
        shown, shown_log = (full, log) if robust is not None else only_shown(full, log)
        return cls(
            shown, shown_log.replace(fingerprint=None), full, log.replace(fingerprint=None),
            scores, scale, robust, Imputer.fit(full) if keeps_missing else None, normalizer,
            transform, previous,
        )  # fmt: skip

    @cached_property
    def filled(self) -> RankingDataset:
        """`dataset`, without missing values."""
        return self.dataset if self.imputer is None else self.imputer(self.dataset)

    @cached_property
    def clicks(self) -> ClickLog:
        """The training clicks: the rows of the log that have a weight."""
        return self._training_clicks(slice(None))

    def _training_clicks(self, rows: NDArray[np.bool_] | slice) -> ClickLog:
        if self.robust is None:
            return self.log.take(rows).weighted()
        clip, seed = self.robust
        return doubly_robust_log(self.full, self.full_log.take(rows), clip=clip, rng=seed)

    @cached_property
    def served(self) -> PolicyImitation | None:
        """The imitation of the logging policy; None if neither positions nor scores are known."""
        full = self.full if self.imputer is None else self.imputer(self.full)
        return imitate(full, self.full_log, baseline=self.baseline, scale=self.scale)

    @property
    def has_positions(self) -> bool:
        """Whether the ranks of the logging policy are known."""
        return self.baseline is not None or self.log.position is not None

    # -- evaluation

    def held_out(
        self,
        metric: str,
        *,
        holdout: float,
        rng: np.random.Generator,
        least_queries: int = VALIDATION_QUERIES,
    ) -> tuple[HeldOut, list[ClickLog]]:
        """Return the held-out evaluation, and the training clicks without each of its folds.

        A candidate ranks all items. For items that were never shown, a relevance model counts the
        clicks that it expects, as in the estimator ``dr``. The model also learns from which items
        the logging policy left out. The ranks of the policy are known for its page only, so the
        metric ends with the page.
        """
        parts = self._cut_queries(holdout, least_queries, rng)
        if (self.dataset is self.full and self.robust is None) or parts is None:
            held_out = HeldOut(
                self.full, self.full_log, metric, holdout=holdout, parts=parts,
                logged=self._logged_values(metric), rng=rng,
            )  # fmt: skip
        else:
            metric = self._limit_to_page(metric)
            log, logged = self._add_never_shown(metric, rng)
            held_out = HeldOut(self.full, log, metric, parts=parts, logged=logged, rng=rng)
            clicked = np.unique(self.full_log.weighted().query)  # by users, not by the model
            held_out.n_queries = int(np.isin(clicked, np.concatenate(parts)).sum())
        return held_out, self.clicks_without(held_out)

    def clicks_without(self, held_out: HeldOut) -> list[ClickLog]:
        """Return the training clicks without the queries of each fold."""
        if self._n_clicked == 1:
            return [self.clicks]  # the only query cannot be held out
        return [
            self._training_clicks(~np.isin(self.full_log.query, fold.queries))
            for fold in held_out.folds
        ]

    def without_fold(self, fold: Fold, clicks: ClickLog) -> Task:
        """Return the task without the queries of a fold; `clicks` are those of `clicks_without`."""
        if clicks is self.clicks:
            return self
        full_log = self.full_log.of_queries(fold.queries, exclude=True)
        return replace(self, log=clicks, full_log=full_log, robust=None)

    @property
    def _n_clicked(self) -> int:
        """The number of queries with clicks."""
        return len(np.unique(self.full_log.weighted().query))

    def _cut_queries(
        self, holdout: float, least_queries: int, rng: np.random.Generator
    ) -> list[Ints] | None:
        """Cut the queries into parts by their clicks; None if only one query has any."""
        n_clicked = self._n_clicked
        if n_clicked == 1:
            return None
        n_parts = min(round(1 / holdout), n_clicked)
        n_needed = -(-least_queries * n_parts // n_clicked)
        return HeldOut.split(self.full_log, n_parts, rng)[:n_needed]

    def _limit_to_page(self, metric: str) -> str:
        """Return the metric down to the last position of most pages, if it goes deeper."""
        log, (name, k) = self.full_log, parse_additive(metric)
        if self.baseline is not None or log.position is None or name == "arp":
            return metric
        last = np.zeros(self.full.n_queries, np.int64)
        np.maximum.at(last, log.query, log.position)
        depth = int(np.median(last[last > 0]))
        return metric if k is not None and k <= depth else f"{name}@{depth}"

    def _logged_values(self, metric: str) -> Floats | None:
        """Return λ of the logged ranks for each row of the log, (n_rows,); None if unknown."""
        if self.baseline is not None:
            rows = self.full.offsets[self.full_log.query] + self.full_log.item
            return rank_values(metric, ranks_of(self.baseline, self.full.offsets)[rows])
        if self.full_log.position is None:
            return None
        return logged_values(self.full_log, self.full, metric)

    def _add_never_shown(
        self, metric: str, rng: np.random.Generator
    ) -> tuple[ClickLog, Floats | None]:
        """Return the log with a row per item that was never shown, and λ of the logged ranks.

        Without a baseline an item that was never shown has no rank, and λ = 0.
        """
        log, full, logged = self.full_log, self.full, self._logged_values(metric)
        has_row = np.zeros(full.n_items, bool)
        has_row[full.offsets[log.query] + log.item] = True
        sessions = sessions_of_item(Clusters.of(log), full)
        expected = sessions * relevance_model(log, full, served=True, rng=rng)
        rows = np.flatnonzero(np.where(has_row, 0.0, expected))
        query = np.searchsorted(full.offsets, rows, side="right") - 1
        values = zeros = np.zeros(len(rows))
        if self.baseline is not None:
            values = rank_values(metric, ranks_of(self.baseline, full.offsets)[rows])
        longer = ClickLog(
            np.append(log.query, query),
            np.append(log.item, rows - full.offsets[query]),
            np.append(log.propensity, zeros + 1),
            np.append(log.clicks, expected[rows]),
            by_chance=None if log.by_chance is None else np.append(log.by_chance, zeros),
        )
        return longer, None if logged is None else np.append(logged, values)


# -- starts and weights


def list_starts(start: str, task: Task, *, has_holdout: bool) -> tuple[str, ...]:
    """Return the starts to try. "auto" is the imitation of the logging policy, if known, and zero.

    If nothing is held out to compare them, "auto" is zero. A warm start is the only one.
    """
    if task.previous is not None:
        return ("previous",)
    if start == "auto":
        return ("served", "zero") if has_holdout and task.served is not None else ("zero",)
    if start == "served" and task.served is None:
        raise DataError(
            "start is 'served', and the logging policy is unknown, expected positions in the log "
            "or a baseline"
        )
    return (start,)


def weigh_clicks(clicks: ClickLog, *, clip: float | None, temper: float) -> ClickLog:
    """Return clicks with their training weights 1/p^temper, p clipped from below."""
    return (clicks if clip is None else clicks.clip(clip)).temper(temper)


def scale_base(
    base: Floats, dataset: RankingDataset, clicks: ClickLog, *, objective: AnyLoss
) -> Floats:
    """c·base, with c = argmin Σ_clicks f(c·base·x) / p over spreads of scores within queries.

    Parameters
    ----------
    base : float64 (n_features,)
    dataset : RankingDataset
    clicks : ClickLog
        The training clicks, with their training weights.
    objective : str, Objective or Loss
        f, as `countersample.objectives.score_space` takes it.

    Returns
    -------
    float64 (n_features,)

    Examples
    --------
    All clicks are on the item with the larger x, or half of them:

    >>> import numpy as np
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.rankers.task import scale_base
    >>> data = RankingDataset.from_arrays(X=[[1], [-1]], y=[0, 0], qid=[7, 7])
    >>> for clicked in ([0, 0], [0, 1]):
    ...     log = ClickLog(query=[0, 0], item=clicked, propensity=[1.0, 1.0])
    ...     print(scale_base(np.array([1.0]), data, log, objective="smooth-rank").round(2))
    [10.]
    [0.03]
    """
    queries, index = np.unique(clicks.query, return_inverse=True)
    clicked = dataset.subset(queries)
    scores = LinearScorer(base).predict(clicked.features)
    means = np.add.reduceat(scores, clicked.offsets[:-1]) / clicked.query_sizes
    spread = float(np.std(scores - np.repeat(means, clicked.query_sizes)))
    if spread == 0:
        return base
    examples = Examples.of(clicks.replace(query=index, fingerprint=None), "query")

    def compute_risk(size: float) -> float:
        losses = score_space(
            scores * (size / spread), clicked.offsets, examples.starts, examples.item,
            examples.weight, objective=objective,
        )  # fmt: skip
        return float(losses.values.sum())

    return base * float(min(BASE_SPREADS, key=compute_risk) / spread)
