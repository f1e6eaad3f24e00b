"""Queries that are held out: the one way in which candidates are judged by clicks.

Queries are cut into parts. What is trained without the clicks of a part is judged by them. Where
all parts judge, that is by the `snips` estimate of `countersample.evaluation`:

    value = Σ_clicks λ(rank)/p  /  Σ_clicks 1/p

Where only some of the queries judge, the others still tell how many clicks there are in a query
and how much they weigh. So the value is that of `beta-ips` with the whole log as control, divided
by the mean weight X of all queries: with ȳ and x̄ for a judged query,

    value = (ȳ − β*·(x̄ − X)) / X

It is `snips` with β = ȳ/x̄, and where x̄ = X; its variance is at most that of `snips`, of a
difference between two candidates as well. See `countersample.evaluation.control_variates`.

All sums are kept by group of queries, so that values have intervals and two candidates can be
compared pair by pair. A candidate is anything that scores items: see `Scorer`. What was logged is
a candidate as well, where it is known where the log showed the clicked items.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import number
from countersample.data.scoring import scores_of
from countersample.evaluation.control_variates import (
    best_beta,
    control_moments,
    controlled_mean,
    outcome_moments,
)
from countersample.evaluation.ranking import parse_additive, rank_values, ranks_of
from countersample.evaluation.resampling import MOST_GROUPS, add_up, interval, resample
from countersample.options import CONFIDENCE, HOLDOUT, METRIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

__all__ = ["Fold", "HeldOut", "Scorer"]

VALIDATION_QUERIES = 1_000  # so many parts are held out in turn that there are as many
FEWEST_FOR_BETA = 500  # queries that judge; of fewer, estimating β* costs what it gains
N_BOOTSTRAP = 200

# Scores of the items of a dataset, a function that gives them, or a ranker with `predict`.
Scorer = Any


@dataclass(frozen=True, eq=False)
class Fold:
    """A log to train on, and the clicks of other queries to judge by.

    Attributes
    ----------
    train : ClickLog
        All queries that are not held out.
    validation : RankingDataset
        The queries that are held out.
    queries : int64 (n_queries,)
        Which queries of the whole dataset these are.
    weights : float64 (n_clicked,)
        Σ clicks / propensity of each item of them that was clicked.
    """

    train: ClickLog
    validation: RankingDataset
    queries: Ints
    weights: Floats
    metric: str
    order: Ints  # the items of `validation`, shuffled within queries: so ties favour no row
    rows: Ints  # the index in that order of each item that was clicked
    group: Ints  # of each: what is resampled together
    n_groups: int
    logged: Floats  # Σ λ/p over the clicks of each, as they were shown; empty where not known

    def reward(self, scorer: Scorer) -> Floats:
        """Return Σ λ(rank)/p of each clicked item, where a scorer ranks, (n_clicked,)."""
        scores = np.asarray(scores_of(scorer, self.validation))
        ranks = ranks_of(scores[self.order], self.validation.offsets)[self.rows]
        return rank_values(self.metric, ranks) * self.weights

    def value(self, scorer: Scorer) -> float:
        """Return Σ λ(rank)/p / Σ 1/p, the ``snips`` estimate."""
        return float(self.reward(scorer).sum() / self.weights.sum())

    def sums(self, scorer: Scorer) -> Floats:
        """Return Σ λ(rank)/p over the clicks of each group, (n_groups,)."""
        return add_up(self.group, self.reward(scorer), self.n_groups)

    @property
    def weight_sums(self) -> Floats:
        """Σ 1/p over the clicks of each group, (n_groups,)."""
        return add_up(self.group, self.weights, self.n_groups)


class HeldOut:
    """Queries cut into parts, which are held out in turn and judge what was trained without them.

    A log with clicks on one query only is judged by what was trained on.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
        What was clicked; with rows of what was shown and not clicked, the queries of those are in
        the parts as well, to be scored.
    metric : {"dcg@k", "dcg", "precision@k", "arp"}
        See `countersample.evaluation.ranking.rank_values`.
    holdout : float in (0, 0.5]
        The share of the queries in a part, as the nearest of 1/2, 1/3, …; a query at least.
    least_queries : int or None
        As many parts are held out in turn as are needed for so many clicked queries; None holds out
        each of them, 1 a single one.
    parts : sequence of int arrays, optional
        The queries of each part that is held out, where they are cut already; see `cut`.
    logged : float array (n_rows,), optional
        λ of what was logged, for each row of the log: see `logged_values`. For `logged_sums`.
    rng : numpy Generator

    Attributes
    ----------
    folds : list of Fold
    n_queries : int
        How many clicked queries are held out, in all folds.

    Examples
    --------
    A ranker is trained on the clicks of each fold and judged by those it has not seen:

    >>> import numpy as np
    >>> from countersample import ClickLog, synthetic, train
    >>> from countersample.evaluation import HeldOut
    >>> data = synthetic("tiny", rng=0)
    >>> log = ClickLog.from_labels(data)
    >>> held_out = HeldOut(data, log, "dcg@10", rng=np.random.default_rng(0))
    >>> len(held_out.folds), held_out.n_queries
    (5, 99)
    >>> trained = [train(data, fold.train, learning_rate=0.01, steps=500, rng=0)
    ...            for fold in held_out.folds]
    >>> by_chance = [np.zeros(fold.validation.n_items) for fold in held_out.folds]
    >>> held_out.z_score(held_out.sums(trained), held_out.sums(by_chance)) > 2
    True
    """

    def __init__(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        metric: str = METRIC,
        *,
        holdout: float = HOLDOUT,
        least_queries: int | None = VALIDATION_QUERIES,
        parts: Sequence[Ints] | None = None,
        logged: Floats | None = None,
        rng: np.random.Generator,
    ) -> None:
        number("holdout", holdout, above=0, most=0.5)
        self.metric = metric
        parse_additive(metric)  # refuses what is not additive
        clicked = log.weighted()
        queries = rng.permutation(np.unique(clicked.query))
        group_of_query = np.zeros(dataset.n_queries, np.int64)
        group_of_query[queries] = np.arange(len(queries)) % MOST_GROUPS
        self._query_sizes = dataset.query_sizes
        others = np.setdiff1d(log.query, queries)
        shown_at = None if logged is None else (logged * log.weights)[log.weights != 0]
        self.folds = [
            _fold(dataset, log, clicked, shown_at, part, metric, group_of_query)
            for part in parts or _parts(queries, others, holdout, least_queries)
        ]
        self._clicked, self._queries, self._group_of_query = clicked, queries, group_of_query
        self._count()

    def _count(self) -> None:
        """Count what judges, by group of queries."""
        held_out = np.concatenate([fold.queries for fold in self.folds])
        judges = self._queries[np.isin(self._queries, held_out)]
        self.n_queries = len(judges)
        # Of each group, (n_groups, 3): queries, weights, clicks.
        self._judged = _known(self._clicked, judges, self._group_of_query)
        self._all = self._judged
        if FEWEST_FOR_BETA <= len(judges) < len(self._queries):
            self._all = _known(self._clicked, self._queries, self._group_of_query)

    def with_features(self, dataset: RankingDataset) -> HeldOut:
        """Return the same judge for candidates that rank the same items by other features.

        Examples
        --------
        >>> import numpy as np
        >>> from countersample import ClickLog, synthetic
        >>> from countersample.evaluation import HeldOut
        >>> data = synthetic("tiny", rng=0)
        >>> held_out = HeldOut(data, ClickLog.from_labels(data), rng=np.random.default_rng(0))
        >>> other = held_out.with_features(data.with_features(-data.features))
        >>> by_first = [fold.validation.features[:, 0] for fold in other.folds]
        >>> by_last = [-fold.validation.features[:, 0] for fold in held_out.folds]
        >>> bool((other.sums(by_first) == held_out.sums(by_last)).all())
        True
        """
        other = copy(self)
        other.folds = [
            replace(fold, validation=dataset.subset(fold.queries)) for fold in self.folds
        ]
        return other

    @property
    def weight_sums(self) -> Floats:
        """Σ 1/p over the clicks of each group that judge, (n_groups,)."""
        return self._judged[:, 1]

    @staticmethod
    def cut(log: ClickLog, n_parts: int, rng: np.random.Generator) -> list[Ints]:
        """Cut the queries of a log into parts of the same size, those with clicks and others."""
        queries = rng.permutation(np.unique(log.weighted().query))
        others = np.setdiff1d(log.query, queries)
        parts = np.array_split(queries, n_parts)
        return [np.append(part, others[k::n_parts]) for k, part in enumerate(parts)]

    def sums(self, scorers: Sequence[Scorer]) -> Floats:
        """Return Σ λ(rank)/p over the clicks of each group, (n_groups,); a scorer for each fold."""
        by_fold = [fold.sums(scorer) for fold, scorer in zip(self.folds, scorers, strict=True)]
        total: Floats = np.sum(by_fold, axis=0)
        return total

    def logged_sums(self) -> Floats:
        """Return Σ λ/p over the clicks of each group as the log showed them, (n_groups,)."""
        by_fold = [add_up(fold.group, fold.logged, fold.n_groups) for fold in self.folds]
        total: Floats = np.sum(by_fold, axis=0)
        return total

    def value(self, sums: Floats) -> float:
        """Return the estimate that has these sums."""
        return float(_value(*(part.sum(axis=0) for part in self._columns(sums))))

    def z_score(self, sums: Floats, others: Floats) -> float:
        """Return how many standard errors the estimate of one ranker is above another's."""
        value, adds = self.difference(sums, others)
        return value / (float(np.sqrt(adds @ adds)) or np.inf)

    def difference(self, sums: Floats, others: Floats) -> tuple[float, Floats]:
        """Return how much the estimate of one ranker is above another's, and what each group adds.

        The difference has the β* of its own. Its error is √Σ_groups u², with u what a group adds
        to it: with m queries that judge, N in all, and R the value,

            u = ((e − β·z)/m + (β − R)·(x − X·n of all queries)/N) / X

        where e = y − ȳ·n and z = x − x̄·n are of the queries that judge, and R is subtracted from
        the β of the weights. Where all judge that is (y − R·x) / Σx, as of any ratio.
        """
        known, outcome, everything = self._columns(sums - others)
        value = float(_value(known.sum(axis=0), outcome.sum(axis=0), everything.sum(axis=0)))
        beta = best_beta(known.sum(axis=0), outcome.sum(axis=0))
        excess = beta - [value, 0.0]
        errors = _residuals(outcome[:, :1], known[:, :1])[:, 0]
        errors -= _residuals(known[:, 1:3], known[:, :1]) @ beta
        of_all = _residuals(everything[:, 1:], everything[:, :1]) @ excess
        adds: Floats = (errors / known[:, 0].sum() + of_all / everything[:, 0].sum()) / (
            everything[:, 1].sum() / everything[:, 0].sum()
        )
        return value, adds

    def intervals(self, sums: Floats, rng: np.random.Generator) -> Floats:
        """Return the bootstrap interval over queries of each ranker, (n_rankers, 2)."""
        known, _, everything = self._columns(sums[0])
        outcomes = [self._columns(each)[1] for each in sums]
        columns = np.hstack([known, everything, *outcomes])
        drawn = resample(columns, n_bootstrap=N_BOOTSTRAP, rng=rng)
        ends = np.cumsum([part.shape[1] for part in (known, everything, *outcomes)])[:-1]
        of_known, of_all, *of_outcomes = np.split(drawn, ends, axis=1)
        return np.array(
            [interval(_value(of_known, each, of_all), CONFIDENCE) for each in of_outcomes]
        )

    def _columns(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what `_value` takes, of each group."""
        n, controls = self._judged[:, 0], self._judged[:, 1:]
        return control_moments(n, controls), outcome_moments(sums, n, controls), self._all

    def scores(self, scorers: Sequence[Scorer]) -> Floats:
        """Return the score of each item by the scorer of the fold that holds it out, (n_items,).

        0 for the items of queries that no fold holds out.
        """
        scores = np.zeros(self._query_sizes.sum())
        is_held_out = np.zeros(len(self._query_sizes), bool)
        for fold, scorer in zip(self.folds, scorers, strict=True):
            is_held_out[:] = False
            is_held_out[fold.queries] = True
            scores[np.repeat(is_held_out, self._query_sizes)] = scores_of(scorer, fold.validation)
        return scores


def _known(log: ClickLog, queries: Ints, group_of_query: Ints) -> Floats:
    """Return how many of the queries a group has, their weights and their clicks, (n_groups, 3)."""
    n_groups = int(group_of_query.max()) + 1
    counts = np.zeros(len(group_of_query))
    counts[queries] = 1
    group, is_counted = group_of_query[log.query], counts[log.query]
    size = add_up(group_of_query[queries], np.ones(len(queries)), n_groups)
    columns = (log.weights * is_counted, log.clicks * is_counted)
    return np.column_stack([size, *(add_up(group, column, n_groups) for column in columns)])


def _value(known: Floats, outcome: Floats, everything: Floats) -> Floats:
    """(ȳ − β*·(x̄ − X)) / X, (...,), from sums over groups; X is of the weights and the clicks."""
    means = everything[..., 1:] / everything[..., :1]
    value: Floats = controlled_mean(known, outcome, means) / means[..., 0]
    return value


def _residuals(sums: Floats, sizes: Floats) -> Floats:
    """Return sums − mean·sizes, (n_groups, p): what is above that of any group of the size."""
    above: Floats = sums - sums.sum(axis=0) / sizes.sum() * sizes
    return above


def _parts(
    clicked: Ints, others: Ints, holdout: float, least_queries: int | None
) -> list[Ints | None]:
    """Cut queries into parts; None where there is only one, and none to hold out."""
    if len(clicked) == 1:
        return [None]
    n_parts = min(round(1 / holdout), len(clicked))
    parts = np.array_split(clicked, n_parts)
    if least_queries is not None:
        parts = parts[: -(-least_queries // len(parts[0]))]
    return [np.append(part, others[k::n_parts]) for k, part in enumerate(parts)]


def _fold(
    dataset: RankingDataset,
    log: ClickLog,
    clicked: ClickLog,
    shown_at: Floats | None,
    part: Ints | None,
    metric: str,
    group_of_query: Ints,
) -> Fold:
    """Hold out the queries of a part; None trains on everything, and judges by it.

    `shown_at` is Σ λ/p of each row of `clicked`, the rows of the log that have a weight.
    """
    queries = np.unique(log.query if part is None else part)
    is_held_out = np.isin(clicked.query, queries)
    validation = dataset.subset(queries)
    query = np.searchsorted(queries, clicked.query[is_held_out])
    rows = validation.offsets[query] + clicked.item[is_held_out]
    clicked_rows, pair = np.unique(rows, return_inverse=True)
    query_of_row = np.repeat(np.arange(validation.n_queries), validation.query_sizes)
    order = np.lexsort((np.random.default_rng(0).random(validation.n_items), query_of_row))
    logged = np.empty(0)
    if shown_at is not None:
        logged = add_up(pair, shown_at[is_held_out], len(clicked_rows))
    return Fold(
        train=log if part is None else log.of_queries(part, exclude=True),
        validation=validation,
        queries=queries.astype(np.int64),
        weights=add_up(pair, clicked.weights[is_held_out], len(clicked_rows)),
        metric=metric,
        order=order,
        rows=np.argsort(order)[clicked_rows],
        group=group_of_query[queries[query_of_row[clicked_rows]]],
        n_groups=int(group_of_query.max()) + 1,
        logged=logged,
    )
