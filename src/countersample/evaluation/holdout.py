"""Held-out queries: the one way in which candidates are evaluated during training.

Queries are split into folds. A ranker that is trained without the clicks of a fold is evaluated by
them. If all folds are held out in turn, the value is the `snips` estimate:

    value = Σ_clicks λ(rank)/p  /  Σ_clicks 1/p

If only some of the queries evaluate, the others still contain information on the number of clicks
per query and their weight. So the value is `beta-ips` with the whole log as control, divided by
the mean weight X of all queries: with ȳ and x̄ per held-out query,

    value = (ȳ − β*·(x̄ − X)) / X

It is `snips` for β = ȳ/x̄, and if x̄ = X. Its variance is at most the variance of `snips`, also
for the difference between two candidates. See `countersample.evaluation.control_variates`.

All sums are per group of queries, so that values have intervals and two candidates can be compared
pairwise. A candidate is anything that scores items: see `Scorer`. The logging policy is a candidate
as well, if the log has positions.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import number
from countersample.data.dataset import scores_of
from countersample.defaults import CONFIDENCE, HOLDOUT, METRIC
from countersample.evaluation.bootstrap import MAX_GROUPS, add_up, interval, resample
from countersample.evaluation.control_variates import (
    best_beta,
    control_moments,
    controlled_mean,
    outcome_moments,
)
from countersample.metrics import parse_additive, rank_values, ranks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

VALIDATION_QUERIES = 1_000  # hold out enough folds to reach this many queries
MIN_QUERIES_FOR_BETA = 500  # held-out queries; with fewer, estimating β* costs what it gains
BOOTSTRAP_DRAWS = 200

# Scores of the items of a dataset, a function that gives them, or a ranker with `predict`.
Scorer = Any


@dataclass(frozen=True, eq=False)
class Fold:
    """A log to train on, and the clicks of other queries to evaluate by."""

    train: ClickLog  # the clicks of all queries that are not held out
    validation: RankingDataset  # the held-out queries
    queries: Ints  # their indices in the whole dataset, (n_queries,)
    weights: Floats  # Σ clicks / propensity per clicked item of these queries, (n_clicked,)
    metric: str
    order: Ints  # the items of `validation`, shuffled within queries, so that ties are random
    rows: Ints  # the index in that order of each clicked item
    group: Ints  # the group of each clicked item: groups are resampled as a whole
    n_groups: int
    logged: Floats  # Σ λ/p per clicked item at its logged positions; empty if these are not known

    def reward(self, scorer: Scorer) -> Floats:
        """Return Σ λ(rank)/p per clicked item, ranked by a scorer, (n_clicked,)."""
        scores = np.asarray(scores_of(scorer, self.validation))
        ranks = ranks_of(scores[self.order], self.validation.offsets)[self.rows]
        return rank_values(self.metric, ranks) * self.weights

    def sums(self, scorer: Scorer) -> Floats:
        """Return Σ λ(rank)/p over the clicks per group, (n_groups,)."""
        return add_up(self.group, self.reward(scorer), self.n_groups)


class HeldOut:
    """Folds of queries, held out in turn to evaluate rankers that are trained without them.

    If a log has clicks on one query only, the training clicks evaluate.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
        Its clicks evaluate. Queries that were shown and not clicked are in the folds as well, so
        that they are scored.
    metric : {"dcg@k", "dcg", "precision@k", "arp"}
        See `countersample.metrics.rank_values`.
    holdout : float in (0, 0.5]
        The share of the queries per fold, as the nearest of 1/2, 1/3, …; at least one query.
    least_queries : int or None
        Hold out enough folds to reach this many clicked queries; None holds out all folds, 1 a
        single one.
    parts : sequence of int arrays, optional
        The queries of each fold, if they are split already: see `split`.
    logged : float array (n_rows,), optional
        λ of the logged ranking per row of the log, for `logged_sums`: see `logged_values`.
    rng : numpy Generator

    The attribute `folds` has the list of `Fold`, `n_queries` the number of clicked queries that are
    held out in all folds.

    Examples
    --------
    A ranker is trained on the clicks of each fold and evaluated by the others:

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
        parse_additive(metric)  # rejects metrics that are not additive
        clicked = log.weighted()
        queries = rng.permutation(np.unique(clicked.query))
        group_of_query = np.zeros(dataset.n_queries, np.int64)
        group_of_query[queries] = np.arange(len(queries)) % MAX_GROUPS
        self._query_sizes = dataset.query_sizes
        others = np.setdiff1d(log.query, queries)
        logged_rewards = None if logged is None else (logged * log.weights)[log.weights != 0]
        self.folds = [
            _make_fold(dataset, log, clicked, logged_rewards, part, metric, group_of_query)
            for part in parts or _split_queries(queries, others, holdout, least_queries)
        ]
        all_held_out = np.concatenate([fold.queries for fold in self.folds])
        held_out = queries[np.isin(queries, all_held_out)]
        self.n_queries = len(held_out)
        # Per group, (n_groups, 3): queries, weights, clicks.
        self._held_out = self._all = _group_sums(clicked, held_out, group_of_query)
        if MIN_QUERIES_FOR_BETA <= len(held_out) < len(queries):
            self._all = _group_sums(clicked, queries, group_of_query)

    def with_features(self, dataset: RankingDataset) -> HeldOut:
        """Return the same folds for candidates that rank the same items by other features."""
        other = copy(self)
        other.folds = [
            replace(fold, validation=dataset.subset(fold.queries)) for fold in self.folds
        ]
        return other

    @property
    def weight_sums(self) -> Floats:
        """Σ 1/p over the held-out clicks per group, (n_groups,)."""
        return self._held_out[:, 1]

    @staticmethod
    def split(log: ClickLog, n_parts: int, rng: np.random.Generator) -> list[Ints]:
        """Split queries into folds of equal size, with equally many clicked queries."""
        queries = rng.permutation(np.unique(log.weighted().query))
        return _deal_out(queries, np.setdiff1d(log.query, queries), n_parts)

    def sums(self, scorers: Sequence[Scorer]) -> Floats:
        """Return Σ λ(rank)/p over the clicks per group, (n_groups,), with one scorer per fold."""
        by_fold = [fold.sums(scorer) for fold, scorer in zip(self.folds, scorers, strict=True)]
        total: Floats = np.sum(by_fold, axis=0)
        return total

    def logged_sums(self) -> Floats:
        """Return Σ λ/p over the clicks per group at their logged positions, (n_groups,)."""
        by_fold = [add_up(fold.group, fold.logged, fold.n_groups) for fold in self.folds]
        total: Floats = np.sum(by_fold, axis=0)
        return total

    def value(self, sums: Floats) -> float:
        """Return the estimate from these sums."""
        return float(_value(*(part.sum(axis=0) for part in self._columns(sums))))

    def z_score(self, sums: Floats, others: Floats) -> float:
        """Return the difference of two rankers' estimates in standard errors."""
        value, parts = self.difference(sums, others)
        return value / (float(np.sqrt(parts @ parts)) or np.inf)

    def difference(self, sums: Floats, others: Floats) -> tuple[float, Floats]:
        """Return the difference of two rankers' estimates, and the part of each group in its error.

        The difference has its own β*. Its standard error is √Σ_groups u², with u the part of a
        group: with m held-out queries, N in all, and R the value,

            u = ((e − β·z)/m + (β − R)·(x − X·n of all queries)/N) / X

        where e = y − ȳ·n and z = x − x̄·n are of the held-out queries, and R is subtracted from the
        β of the weights. If all are held out, that is (y − R·x) / Σx, as for any ratio.
        """
        held_out, outcome, all_queries = self._columns(sums - others)
        value = float(_value(held_out.sum(axis=0), outcome.sum(axis=0), all_queries.sum(axis=0)))
        beta = best_beta(held_out.sum(axis=0), outcome.sum(axis=0))
        excess = beta - [value, 0.0]
        errors = _residuals(outcome[:, :1], held_out[:, :1])[:, 0]
        errors -= _residuals(held_out[:, 1:3], held_out[:, :1]) @ beta
        of_all = _residuals(all_queries[:, 1:], all_queries[:, :1]) @ excess
        parts: Floats = (errors / held_out[:, 0].sum() + of_all / all_queries[:, 0].sum()) / (
            all_queries[:, 1].sum() / all_queries[:, 0].sum()
        )
        return value, parts

    def intervals(self, sums: Floats, rng: np.random.Generator) -> Floats:
        """Return the bootstrap interval over queries of each ranker, (n_rankers, 2)."""
        held_out, _, all_queries = self._columns(sums[0])
        outcomes = [self._columns(each)[1] for each in sums]
        columns = np.hstack([held_out, all_queries, *outcomes])
        draws = resample(columns, n_bootstrap=BOOTSTRAP_DRAWS, rng=rng)
        ends = np.cumsum([part.shape[1] for part in (held_out, all_queries, *outcomes)])[:-1]
        of_held_out, of_all, *of_outcomes = np.split(draws, ends, axis=1)
        return np.array(
            [interval(_value(of_held_out, each, of_all), CONFIDENCE) for each in of_outcomes]
        )

    def _columns(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the arguments of `_value` per group."""
        n, controls = self._held_out[:, 0], self._held_out[:, 1:]
        return control_moments(n, controls), outcome_moments(sums, n, controls), self._all

    def scores(self, scorers: Sequence[Scorer]) -> Floats:
        """Return the score of each item by the scorer of the fold that holds it out, (n_items,).

        Items of queries that no fold holds out score 0.
        """
        scores = np.zeros(self._query_sizes.sum())
        for fold, scorer in zip(self.folds, scorers, strict=True):
            is_held_out = np.zeros(len(self._query_sizes), bool)
            is_held_out[fold.queries] = True
            scores[np.repeat(is_held_out, self._query_sizes)] = scores_of(scorer, fold.validation)
        return scores


def _group_sums(log: ClickLog, queries: Ints, group_of_query: Ints) -> Floats:
    """Return the number of these queries per group, their weights and clicks, (n_groups, 3)."""
    n_groups = int(group_of_query.max()) + 1
    counts = np.zeros(len(group_of_query))
    counts[queries] = 1
    group, is_counted = group_of_query[log.query], counts[log.query]
    size = add_up(group_of_query[queries], np.ones(len(queries)), n_groups)
    columns = (log.weights * is_counted, log.clicks * is_counted)
    return np.column_stack([size, *(add_up(group, column, n_groups) for column in columns)])


def _value(held_out: Floats, outcome: Floats, all_queries: Floats) -> Floats:
    """(ȳ − β*·(x̄ − X)) / X, (...,), from sums over groups; X is of the weights and the clicks."""
    means = all_queries[..., 1:] / all_queries[..., :1]
    value: Floats = controlled_mean(held_out, outcome, means) / means[..., 0]
    return value


def _residuals(sums: Floats, sizes: Floats) -> Floats:
    """Return sums − mean·sizes, (n_groups, p): the excess over an average group of the size."""
    excess: Floats = sums - sums.sum(axis=0) / sizes.sum() * sizes
    return excess


def _split_queries(
    clicked: Ints, others: Ints, holdout: float, least_queries: int | None
) -> list[Ints] | list[None]:
    """Split queries into folds; None if there is only one query, and none to hold out."""
    if len(clicked) == 1:
        return [None]
    parts = _deal_out(clicked, others, min(round(1 / holdout), len(clicked)))
    if least_queries is None:
        return parts
    size = -(-len(clicked) // len(parts))  # of the first fold, which is the largest
    return parts[: -(-least_queries // size)]


def _deal_out(clicked: Ints, others: Ints, n_parts: int) -> list[Ints]:
    parts = np.array_split(clicked, n_parts)
    return [np.append(part, others[k::n_parts]) for k, part in enumerate(parts)]


def _make_fold(
    dataset: RankingDataset,
    log: ClickLog,
    clicked: ClickLog,
    logged_rewards: Floats | None,
    part: Ints | None,
    metric: str,
    group_of_query: Ints,
) -> Fold:
    """Hold out the queries of a part; None trains on everything, and evaluates by it.

    `logged_rewards` is Σ λ/p per row of `clicked`, the rows of the log that have a weight.
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
    if logged_rewards is not None:
        logged = add_up(pair, logged_rewards[is_held_out], len(clicked_rows))
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
