"""The doubly robust estimate: clicks where there are enough, a model of relevance for the rest.

Of query q there were n_q sessions. Item d was shown in some of them, where it was examined with
probability θ, and clicked in some. Its clicks and its exposure are

    C = Σ clicks        E = Σ θ, over all times it was shown

so that C/E estimates its relevance r (the probability of a click, once examined). With r̂ what a
model of relevance says of it, and a clip τ ≥ 0 on the mean propensity E/n_q,

    r̃ = r̂ + (C − E·r̂) / max(E, τ·n_q)            V = (1/S) Σ_q n_q Σ_d λ(rank of d) · r̃

This is the estimator of Oosterhuis (TOIS 2023) for the position-based model, with the logging
policy's propensity taken from the log. Since the mean of C is E·r, the mean of r̃ is
r + (r̂ − r) · (1 − E/max(E, τ·n_q)). So it is unbiased

- where E ≥ τ·n_q, whatever the model says: r̃ is C/E there, and
- where r̂ = r, whatever was shown: also for items that nobody was ever shown (E = 0, r̃ = r̂), which
  every weighted sum over clicks takes for irrelevant.

What was examined is not in the log. So where an item was always shown at the same rank and τ is 0,
nothing is left for a model to correct, and this is ips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._ranked import ratio
from countersample.data.columns import row_blocks
from countersample.data.imputing import filled
from countersample.data.normalize import Normalizer
from countersample.errors import DataError
from countersample.evaluation.resampling import Clusters, add_up

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

FOLDS = 5
PENALTIES = np.geomspace(1e-3, 1e5, 81)  # α / p


def exposure(log: ClickLog, dataset: RankingDataset) -> tuple[Floats, Floats]:
    """Return E = Σ impressions·θ and C = Σ (clicks − by chance) of each item, both (n_items,)."""
    if log.impressions is None:
        raise DataError(
            "the log has no impressions, expected a row with impressions for everything that was "
            "shown, clicked or not: doubly robust estimates and training need them "
            "(ClickLog.from_impressions with keep='shown' keeps them)"
        )
    rows = dataset.offsets[log.query] + log.item
    seen = add_up(rows, log.impressions * theta_of(log), dataset.n_items)
    return seen, add_up(rows, log.weights * log.propensity, dataset.n_items)


def theta_of(log: ClickLog) -> Floats:
    """Return θ of each row, the probability that it was examined where it was shown, (n_rows,)."""
    return log.propensity if log.examination is None else log.examination


def sessions_of_item(clusters: Clusters, dataset: RankingDataset) -> Floats:
    """Return how many sessions there were of the query of each item, (n_items,)."""
    assert clusters.visits is not None  # noqa: S101 (only called where it is)
    _, query, n_sessions = clusters.visits
    return np.repeat(add_up(query, n_sessions, dataset.n_queries), dataset.query_sizes)


def relevance_model(
    log: ClickLog, dataset: RankingDataset, *, served: bool = False, rng: np.random.Generator
) -> Floats:
    """r̂(x) = b + w·x, by least squares: min Σ_d v_d (C_d/E_d − b − w·x_d)² + α‖w‖², (n_items,).

    The position-based model with a relevance that is linear in the p features, which are brought
    to variance 1. The noise of C/E is made of that of clicks, which falls with E, and of what
    features do not tell, which does not; where relevance is 0 or 1 both are as large about where
    E = 1. So an item counts v = E/(1 + E). α is the one of highest evidence (the marginal
    likelihood, with w normal and the noise unknown): where clicks do not tell, r̂ is a constant. It
    stays within [0, 1], or below the most that an impression was worth. Features that are missing
    are filled in, with an indicator more (`countersample.data.imputing.filled`).

    It is cross-fitted: the queries are cut into five parts, and what is said of one part was
    learned from the others, so that no item is judged by its own clicks.

    Parameters
    ----------
    log : ClickLog
        With impressions.
    dataset : RankingDataset
    served : bool
        Whether z = ln(E/n), how much of an item was seen in a session of its query, is one more
        feature, which may explain as much as all others together: what ranked the items knew
        something of relevance, too. Where that is not known, and is what is asked, leave it out.
    rng : numpy Generator
        Cuts the queries into parts.
    """
    seen, clicks = exposure(log, dataset)
    n_folds = min(FOLDS, len(np.unique(log.query)))
    if n_folds < 2:
        return np.zeros(dataset.n_items)  # nothing else to learn from
    fold_of_query = rng.permutation(dataset.n_queries) % n_folds
    fold = np.repeat(fold_of_query, dataset.query_sizes)
    dataset = filled(dataset)
    scaler = Normalizer.fit(dataset, "standard")
    z = np.zeros(dataset.n_items)
    if served:
        z += _served(seen, sessions_of_item(Clusters.of(log), dataset))
        z *= np.sqrt(dataset.n_features)
    rates = ratio(clicks, seen)
    moments = np.stack(
        [_moments(dataset, scaler, z, rates, seen, fold == k) for k in range(n_folds)]
    )
    n_seen = np.array([np.count_nonzero(seen[fold == k]) for k in range(n_folds)])
    weights = np.stack(
        [
            _regression(moments.sum(axis=0) - own, n_seen.sum() - n)
            for own, n in zip(moments, n_seen.tolist(), strict=True)
        ]
    )
    relevance = np.empty(dataset.n_items)
    for rows in row_blocks(dataset.features):
        by_fold = weights @ _columns(dataset.features[rows], scaler, z[rows]).T
        relevance[rows] = np.take_along_axis(by_fold, fold[None, rows], axis=0)[0]
    assert log.impressions is not None  # noqa: S101 (exposure refused a log without them)
    most = max(1.0, float(ratio(log.clicks, log.impressions).max()))  # where clicks are worth more
    bounded: Floats = np.clip(relevance, 0.0, most)
    return bounded


def _served(seen: Floats, sessions: Floats) -> Floats:
    """Return ln(E/n) of each item at mean 0 and variance 1, (n_items,); the least for no E."""
    mean = ratio(seen, sessions)
    asked = sessions > 0
    if not mean.any():
        return np.zeros(len(mean))
    served = np.log(np.maximum(mean, mean[mean > 0].min()))
    served = np.where(asked, served - served[asked].mean(), 0.0)
    return served / (float(np.sqrt(np.mean(served[asked] ** 2))) or 1.0)


def _columns(features: NDArray[np.float32], scaler: Normalizer, z: Floats) -> Floats:
    """Return what r̂ is linear in, (n, p + 2): features at variance 1, z, ones."""
    return np.column_stack([scaler.transform(features), z, np.ones(len(features))])


def _moments(
    dataset: RankingDataset,
    scaler: Normalizer,
    z: Floats,
    rates: Floats,
    seen: Floats,
    is_in: NDArray[np.bool_],
) -> Floats:
    """Return Σ v·c·cᵀ over the items of a part, c being its columns and C/E, (p + 3, p + 3)."""
    width = dataset.n_features + 3
    moments = np.zeros((width, width))
    for block in row_blocks(dataset.features):
        rows = np.flatnonzero(is_in[block] & (seen[block] > 0)) + block.start
        columns = _columns(dataset.features[rows], scaler, z[rows])
        columns = np.column_stack([columns, rates[rows]])
        columns *= np.sqrt(seen[rows] / (1 + seen[rows]))[:, None]
        moments += columns.T @ columns
    return moments


def _regression(moments: Floats, n_items: int) -> Floats:
    """Return w, that of z, and b of highest evidence, (p + 2,): see `relevance_model`.

    With λ and q the eigenvalues and the products with C/E, both less what b explains, twice the
    logarithm of the evidence is Σ log(α/(α + λ)) − (n − 1)·log(Σ v·(C/E)² − Σ q²/(α + λ)).
    """
    p = len(moments) - 2
    if not moments[p, p] > 0:
        return np.zeros(p + 1)
    centred = moments - np.outer(moments[p], moments[p]) / moments[p, p]
    eigenvalues, directions = np.linalg.eigh(centred[:p, :p])
    eigenvalues = np.maximum(eigenvalues, 0.0)
    products = directions.T @ centred[:p, p + 1]
    with_penalty = PENALTIES[:, None] * p + eigenvalues
    left = centred[p + 1, p + 1] - (products**2 / with_penalty).sum(axis=1)
    evidence = np.log(PENALTIES[:, None] * p / with_penalty).sum(axis=1)
    evidence -= (n_items - 1) * np.log(np.maximum(left, np.finfo(np.float64).tiny))
    weights = directions @ (products / with_penalty[np.argmax(evidence)])
    constant = (moments[p, p + 1] - moments[p, :p] @ weights) / moments[p, p]
    return np.append(weights, constant)


def check_relevance(name: str, relevance: ArrayLike, dataset: RankingDataset) -> Floats:
    """Return r̂ of each item as the user gives it, (n_items,), or refuse it under its name."""
    given: Any = np.asarray(relevance)
    if given.dtype.kind not in "fiub" or given.shape != (dataset.n_items,):
        raise DataError(
            f"{name} is of type {given.dtype} and shape {given.shape}, expected the relevance "
            f"of each item, numbers of shape ({dataset.n_items},)"
        )
    if not np.isfinite(given).all():
        row = int(np.isfinite(given).argmin())
        raise DataError(f"{name} is {given[row]} in row {row}, expected a finite number")
    checked: Floats = given.astype(np.float64)
    return checked
