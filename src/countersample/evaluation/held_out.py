"""Queries that are held out, and what their clicks say of rankers trained on the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.errors import ParameterError
from countersample.evaluation.ranking import parse_additive, rank_values, ranks_of
from countersample.evaluation.resampling import MOST_GROUPS, add_up, interval, resample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.training import TrainingResult

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

JUDGED = 1_000  # queries: so many parts are held out in turn that there are as many
CONFIDENCE = 0.95
N_BOOTSTRAP = 200


class Fold(NamedTuple):
    """A log to learn from, and the clicks of other queries to judge by."""

    learned: ClickLog
    judged: RankingDataset
    order: Ints  # the items of `judged`, shuffled within queries: so ties favour no row
    rows: Ints  # the place in that order of the item that each click is on
    weights: Floats  # clicks / propensity
    group: Ints  # what is resampled together

    def worth(self, scores: Floats, metric: str) -> Floats:
        """Return λ(rank)/p of each click, (n_clicks,), for scores of the items of `judged`."""
        ranks = ranks_of(scores[self.order], self.judged.offsets)[self.rows]
        return rank_values(metric, ranks) * self.weights

    def value(self, scores: Floats, metric: str) -> float:
        """Return Σ λ(rank)/p / Σ 1/p, the ``snips`` estimate."""
        return float(self.worth(scores, metric).sum() / self.weights.sum())


class HeldOut:
    """The clicks of held-out queries: value = Σ λ(rank)/p / Σ 1/p, the ``snips`` estimate.

    Queries are cut into parts, and as many parts are held out in turn as are needed for 1,000
    queries. A log of fewer queries than parts is judged by what was learned from.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
        Without rows that have no clicks.
    metric : str
        See `countersample.evaluation.ranking.rank_values`.
    holdout : float in (0, 0.5]
        The share of the queries in a part.
    rng : numpy Generator

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import ClickLog, synthetic
    >>> from countersample._held_out import HeldOut
    >>> data = synthetic("tiny", rng=0)
    >>> log = ClickLog.from_labels(data)
    >>> held_out = HeldOut(data, log, "dcg@10", 0.2, np.random.default_rng(0))
    >>> len(held_out.folds), held_out.n_queries
    (5, 99)
    """

    def __init__(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        metric: str,
        holdout: float,
        rng: np.random.Generator,
    ) -> None:
        queries = _shuffled_queries(log, holdout, rng)
        parse_additive(metric)  # refuses what is not additive
        self._metric = metric
        n_parts = round(1 / holdout)
        group_of_query = np.zeros(dataset.n_queries, np.int64)
        group_of_query[queries] = np.arange(len(queries)) % MOST_GROUPS
        self.folds = [
            _fold(dataset, log, part, group_of_query) for part in _held_out(queries, n_parts)
        ] or [_fold(dataset, log, None, group_of_query)]
        self._n_groups = min(len(queries), MOST_GROUPS)
        self._bottom = np.zeros(self._n_groups)
        for fold in self.folds:
            self._bottom += add_up(fold.group, fold.weights, self._n_groups)
        self.n_queries = sum(fold.judged.n_queries for fold in self.folds)

    def sums(self, rankers: Sequence[Sequence[TrainingResult]]) -> Floats:
        """Return Σ λ/p over the clicks of each group, for each ranker, (n_rankers, n_groups).

        Parameters
        ----------
        rankers : sequence of sequences
            For each ranker, what training gave on what each fold learned.
        """
        sums = np.zeros((len(rankers), self._n_groups))
        for fold, of_fold in zip(self.folds, zip(*rankers, strict=True), strict=False):
            weights = np.array([result.weights for result in of_fold], np.float32)
            scores = (weights @ fold.judged.features.T).astype(np.float64)
            for ranker, of_ranker in enumerate(scores):
                worth = fold.worth(of_ranker, self._metric)
                sums[ranker] += add_up(fold.group, worth, self._n_groups)
        return sums

    def value(self, sums: Floats) -> float:
        """Return the estimate that has these sums."""
        return float(sums.sum() / self._bottom.sum())

    def z_score(self, sums: Floats, others: Floats) -> float:
        """Return how many standard errors the estimate of one ranker is above another's.

        The difference is Σ_groups (sums − others) / Σ_groups bottom, and its error that of a ratio.
        """
        difference = sums - others
        left = difference - difference.sum() / self._bottom.sum() * self._bottom
        return float(difference.sum() / (np.sqrt(left @ left) or np.inf))

    def intervals(self, sums: Floats, rng: np.random.Generator) -> Floats:
        """Return the bootstrap interval over queries of each ranker, (n_rankers, 2)."""
        columns = np.column_stack([sums.T, self._bottom])
        drawn = resample(columns, 0, n_bootstrap=N_BOOTSTRAP, rng=rng)
        return np.array([interval(ratios, CONFIDENCE) for ratios in drawn.T])


def hold_out(
    dataset: RankingDataset, log: ClickLog, holdout: float, rng: np.random.Generator
) -> Fold:
    """Return one part of the clicked queries to judge by, and the log of the others.

    A log of fewer queries than parts is judged by what was learned from.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
        Without rows that have no clicks.
    holdout : float in (0, 0.5]
        The share of the queries in the part.
    rng : numpy Generator

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import ClickLog, synthetic
    >>> from countersample._held_out import hold_out
    >>> data = synthetic("tiny", rng=0)
    >>> fold = hold_out(data, ClickLog.from_labels(data), 0.2, np.random.default_rng(0))
    >>> fold.judged.n_queries, len(np.unique(fold.learned.query))
    (20, 79)
    """
    queries = _shuffled_queries(log, holdout, rng)
    parts = _held_out(queries, round(1 / holdout))
    return _fold(dataset, log, parts[0] if parts else None, np.zeros(dataset.n_queries, np.int64))


def _shuffled_queries(log: ClickLog, holdout: float, rng: np.random.Generator) -> Ints:
    if not 0 < holdout <= 0.5:
        raise ParameterError(f"holdout is {holdout}, expected a share above 0, at most 0.5")
    return rng.permutation(np.unique(log.query))


def _held_out(queries: Ints, n_parts: int) -> list[Ints]:
    if len(queries) < n_parts:
        return []
    parts = np.array_split(queries, n_parts)
    return parts[: -(-JUDGED // len(parts[0]))]


def _fold(dataset: RankingDataset, log: ClickLog, part: Ints | None, group_of_query: Ints) -> Fold:
    """Hold out the queries of a part; None learns from everything, and judges by it."""
    learned, held_out = log, log
    if part is not None:
        learned, held_out = log.of_queries(part, exclude=True), log.of_queries(part)
    queries, place = np.unique(held_out.query, return_inverse=True)
    judged = dataset.subset(queries)
    query = np.repeat(np.arange(judged.n_queries), judged.query_sizes)
    order = np.lexsort((np.random.default_rng(0).random(judged.n_items), query))
    place_of_item = np.empty_like(order)
    place_of_item[order] = np.arange(len(order))
    return Fold(
        learned,
        judged,
        order,
        place_of_item[judged.offsets[place] + held_out.item],
        held_out.weights,
        group_of_query[held_out.query],
    )
