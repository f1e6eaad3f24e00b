"""Doubly robust training: clicks where there are enough, a model of relevance for the rest.

Training on clicks weighs item d of query q with v = C/ρ, which is n_q·r on average: so often it
would be clicked, if all n_q sessions examined it. Where ρ is small so is the number of clicks, and
the weight is 0 or huge. Clipping ρ at τ makes it smaller, and too small on average. Doubly robust
training gives back what clipping takes, as far as a model r̂ of relevance knows it:

    v = n_q · r̃,    r̃ = r̂ + (C − E·r̂) / max(E, τ·n_q)

with C, E and r̃ those of `countersample.evaluation.doubly_robust`. Where ρ = E/n_q is at least τ
that is C/ρ, whatever the model says. Elsewhere it is C/τ + n_q·r̂·(1 − ρ/τ), and n_q·r̂ for an item
that was never shown. The mean of v is n_q·r where either of both is right: propensities with τ = 0,
or the model with any τ.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from countersample._params import number
from countersample._ranked import ratio
from countersample.clicks.log import ClickLog
from countersample.errors import DataError
from countersample.evaluation.doubly_robust import (
    check_relevance,
    exposure,
    relevance_model,
    sessions_of_item,
)
from countersample.evaluation.resampling import Clusters

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample.data import RankingDataset

ROUNDING = 1e-9


def doubly_robust_log(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    clip: float | None = None,
    relevance: ArrayLike | None = None,
    rng: np.random.Generator | int | None = None,
) -> ClickLog:
    """Weights v = n_q·(r̂ + (C − E·r̂) / max(E, τ·n_q)), as a log that any ranker learns from.

    A row for each item of a query that was asked and whose weight is not 0, clicked or not, shown
    or not. As many clicks as the log has, N, are divided among the rows in proportion to their
    weights: all have the propensity N/Σv, so that the mean weight M̄ = Σv/N and the objective
    R = (1/N) Σ v·f mean what they always do, and every plan draws by v.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
        With `impressions`: a row for all that was shown, clicked or not.
    clip : float in [0, 1], optional
        τ, the propensity below which the model speaks too. By default 10/√S, with S sessions, and
        at most 1: of a mean over S sessions clipping takes about τ, and leaves a variance of about
        1/(S·τ). With 0 the model speaks for items that were never shown, and no others.
    relevance : array-like (n_items,), optional
        r̂ of each item by a model of your own, fitted on other clicks than these. By default
        `relevance_model`, by features and what was served.
    rng : numpy Generator or seed
        For `relevance_model`.

    Returns
    -------
    ClickLog
        Where clicks are fewer than expected by chance a weight may be below 0, as in every log.

    Raises
    ------
    DataError
        For a log without impressions: what was not clicked, and how likely it was examined, cannot
        be told from clicks.

    Examples
    --------
    Of two items, ten sessions showed one, at a propensity of 0.1, and it got one click. With a clip
    of 0.5 its weight is not 1/0.1 but 1/0.5 + 10·0.4·(1 − 0.1/0.5); that of the other is 10·0.2.

    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.evaluation import doubly_robust_log
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 0], qid=["a", "a"])
    >>> log = ClickLog([0], [0], [0.1], [1], impressions=[10])
    >>> robust = doubly_robust_log(data, log, clip=0.5, relevance=[0.4, 0.2])
    >>> robust.item, robust.weights.round(6), round(robust.n_clicks, 6)
    (array([0, 1], dtype=int32), array([5.2, 2. ]), 1.0)
    """
    log.check(dataset)
    seen, clicks = exposure(log, dataset)
    if relevance is None:
        relevance = relevance_model(log, dataset, served=True, rng=np.random.default_rng(rng))
    model = check_relevance("relevance", relevance, dataset)
    sessions = sessions_of_item(Clusters.of(log), dataset)
    clip = default_clip(log) if clip is None else number("clip", clip, least=0, most=1)
    below = np.maximum(seen, clip * sessions)
    weights = sessions * (model + ratio(clicks - seen * model, below))
    rows = np.flatnonzero(weights)
    above = np.maximum(weights[rows], 0.0)
    if not above.any():
        raise DataError(
            "no item has a weight above 0: clicks are fewer than are expected by chance, and the "
            "model of relevance knows of no relevant item; look at the propensities"
        )
    query = np.searchsorted(dataset.offsets, rows, side="right") - 1
    share = log.n_clicks / above.sum()
    propensity = min(1.0, share)
    by_chance = None
    if (weights[rows] < 0).any() or share > 1 + ROUNDING:  # as ClickLog writes what is below 0
        by_chance = np.maximum(above * share - weights[rows] * propensity, 0.0)
    return ClickLog(
        query=query,
        item=rows - dataset.offsets[query],
        propensity=np.full(len(rows), propensity),
        count=above * share,
        by_chance=by_chance,
        fingerprint=log.fingerprint,
    )


def default_clip(log: ClickLog) -> float:
    """τ = 10/√S, at most 1, with S the sessions of a log that has impressions; else its clicks."""
    return min(1.0, 10 / sqrt(Clusters.of(log).n_sessions or log.n_clicks))
