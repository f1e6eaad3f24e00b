"""Queries judged by rankers that were trained without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.base import clone

from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.rankers import CounterSampleRanker

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

PARTS = 5


class HeldOutScores(NamedTuple):
    """The scores of items by rankers that have not seen the clicks on their query.

    Attributes
    ----------
    steps : int64 (n,)
        After how many steps of training.
    scores : float64 (n, n_items)
        0 for the items of queries that were never shown.
    """

    steps: Ints
    scores: Floats


def held_out_scores(
    ranker: CounterSampleRanker,
    dataset: RankingDataset,
    shown: ClickLog,
    *,
    rng: np.random.Generator,
    report: Callable[[float], None],
) -> HeldOutScores:
    """Cut the queries into five parts; score each by a ranker that is trained on the other four.

    Parameters
    ----------
    ranker : CounterSampleRanker
        With the settings to train with.
    dataset : RankingDataset
    shown : ClickLog
        What was shown, clicked or not.
    rng : numpy Generator
    report : function of the share that is done
    """
    clicked = rng.permutation(np.unique(shown.query[shown.clicks > 0]))
    if len(clicked) < 2:
        raise DataError(
            "the log has clicks on one query only, expected at least two: a ranker is judged by "
            "queries that it was not trained on"
        )
    n_parts = min(PARTS, len(clicked))
    others = np.setdiff1d(shown.query, clicked)
    part_of = np.full(dataset.n_queries, -1)
    for queries in (clicked, others):
        part_of[queries] = np.arange(len(queries)) % n_parts
    learned = shown.take(shown.clicks > 0)
    steps, scores = np.empty(0, np.int64), np.empty((0, dataset.n_items))
    for part in range(n_parts):
        trained = clone(ranker).set_params(random_state=int(rng.integers(2**31))).fit_log(
            dataset, learned.of_queries(np.flatnonzero(part_of == part), exclude=True),
            report=lambda _what, share, part=part: report((part + share) / n_parts),
        )  # fmt: skip
        history = trained.history_
        if not len(steps):
            steps, scores = history.steps, np.zeros((len(history.steps), dataset.n_items))
        queries = np.flatnonzero(part_of == part)
        judged = dataset.subset(queries)
        features = trained.normalizer_.transform(judged.features, judged.offsets)
        is_judged = np.repeat(part_of == part, dataset.query_sizes)
        scores[:, is_judged] = history.average_coef @ features.T
    return HeldOutScores(steps, scores)
