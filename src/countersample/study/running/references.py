"""The two rankers a study starts from, both trained on labels: w* and the logging policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.clicks import ClickLog
from countersample.evaluation import learning_curve
from countersample.training import train, train_many

if TYPE_CHECKING:
    from countersample._arrays import Floats
    from countersample._progress import Progress, Show
    from countersample.data import RankingDataset

METRIC = "ndcg@10"
_RATES = (3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def supervised(
    dataset: RankingDataset,
    vali: RankingDataset,
    *,
    steps: int,
    seed: int,
    progress: Progress | Show | None = None,
) -> Floats:
    """Return w*: trained on all labels, at the learning rate that is best on validation data."""
    runs = train_many(
        dataset,
        ClickLog.from_labels(dataset),
        learning_rates=_RATES,
        seeds=[seed],
        unit="query",
        steps=steps,
        progress=progress,
    )
    sound = [run.average_coef for run in runs if run.diverged_at is None]
    return sound[int(learning_curve(np.array(sound), vali, METRIC, no_relevant="skip").argmax())]


def logging_policy(dataset: RankingDataset, *, fraction: float, seed: int) -> Floats:
    """Return the weights of a ranker trained on the labels of a small share of the queries."""
    rng = np.random.default_rng(seed)
    has_relevant = np.maximum.reduceat(dataset.labels, dataset.offsets[:-1]) > 0
    queries = np.flatnonzero(has_relevant)
    n_queries = max(2, round(fraction * dataset.n_queries))
    few = dataset.subset(np.sort(rng.choice(queries, min(n_queries, len(queries)), replace=False)))
    log = ClickLog.from_labels(few)
    return train(few, log, learning_rate=1e-3, unit="query", steps=5000, rng=rng).average_coef
