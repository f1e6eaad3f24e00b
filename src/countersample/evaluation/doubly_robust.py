"""Doubly robust: clicks where there are enough, a model of relevance for the rest.

**To evaluate.** Query q had n_q sessions. Item d was shown in some of them, examined there with
probability θ, and clicked in some. Its clicks and its exposure are

    C = Σ clicks        E = Σ θ, over all its impressions

so that C/E estimates its relevance r (the probability of a click, once examined). With r̂ its
relevance by a model, and a clip τ ≥ 0 on the mean propensity E/n_q,

    r̃ = r̂ + (C − E·r̂) / max(E, τ·n_q)            V = (1/S) Σ_q n_q Σ_d λ(rank of d) · r̃

This is the estimator of Oosterhuis (TOIS 2023) for the position-based model, with the logging
policy's propensity taken from the log. Since the mean of C is E·r, the mean of r̃ is
r + (r̂ − r) · (1 − E/max(E, τ·n_q)). So it is unbiased

- if E ≥ τ·n_q, whatever the model: r̃ is C/E then, and
- if r̂ = r, whatever was shown: also for items that were never shown (E = 0, r̃ = r̂), which every
  weighted sum over clicks counts as irrelevant.

The log does not contain which items were examined. So if an item was always shown at the same rank
and τ is 0, the model has nothing to correct, and this is ips.

**To train.** Training on clicks weighs item d of query q with v = C/ρ, which is n_q·r on average:
so often it would be clicked if all n_q sessions examined it. If ρ is small so is the number of
clicks, and the weight is 0 or huge. Clipping ρ at τ makes it smaller, and too small on average.
Doubly robust training replaces the part that clipping removes by the model:

    v = n_q · r̃

If ρ = E/n_q is at least τ, that is C/ρ, whatever the model. Otherwise it is
C/τ + n_q·r̂·(1 − ρ/τ), and n_q·r̂ for an item that was never shown. The mean of v is n_q·r if either
is right: the propensities with τ = 0, or the model with any τ.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample._params import number
from countersample.clicks.log import ClickLog
from countersample.data.matrices import row_blocks
from countersample.data.preprocessing import Normalizer, fill_missing
from countersample.errors import DataError
from countersample.evaluation.bootstrap import Clusters, add_up
from countersample.metrics import ratio

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.data import RankingDataset

FOLDS = 5
ROUNDING = 1e-9
PENALTIES = np.geomspace(1e-3, 1e5, 81)  # candidates for α / p


def exposure(log: ClickLog, dataset: RankingDataset) -> tuple[Floats, Floats]:
    """Return E = Σ impressions·θ and C = Σ (clicks − by chance) per item, both (n_items,)."""
    if log.impressions is None:
        raise DataError(
            "the log has no impressions, expected a row with impressions for every item that was "
            "shown, clicked or not: doubly robust estimates and training need them "
            "(join_features with keep='shown' keeps them)"
        )
    rows = dataset.offsets[log.query] + log.item
    seen = add_up(rows, log.impressions * examination_probabilities(log), dataset.n_items)
    return seen, add_up(rows, log.weights * log.propensity, dataset.n_items)


def examination_probabilities(log: ClickLog) -> Floats:
    """Return θ per row, the probability that it was examined where it was shown, (n_rows,)."""
    return log.propensity if log.examination is None else log.examination


def sessions_of_item(clusters: Clusters, dataset: RankingDataset) -> Floats:
    """Return the number of sessions of each item's query, (n_items,)."""
    assert clusters.visits is not None  # noqa: S101 (the caller checks it)
    _, query, n_sessions = clusters.visits
    return np.repeat(add_up(query, n_sessions, dataset.n_queries), dataset.query_sizes)


@dataclass(frozen=True, eq=False)
class RelevanceModel:
    """r̂ of each item, and the posterior covariance of the weights that predict it."""

    relevance: Floats  # r̂, (n_items,)
    dataset: RankingDataset  # without missing values
    scaler: Normalizer
    z: Floats  # how high the logging policy ranks, scaled, (n_items,)
    covariance: Floats  # of the weights of features and z, and of b, (p + 2, p + 2)

    def covariance_of_sums(self, shares: Floats) -> Floats:
        """Return the covariance of Σ_d shares_d · r̂_d, (k, k), for shares (k, n_items)."""
        totals = np.zeros((len(shares), len(self.covariance)))
        for rows in row_blocks(self.dataset.features):
            columns = _columns(self.dataset.features[rows], self.scaler, self.z[rows])
            totals += shares[:, rows] @ columns
        return totals @ self.covariance @ totals.T


def relevance_model(log: ClickLog, dataset: RankingDataset, *, rng: np.random.Generator) -> Floats:
    """Return r̂ of each item, (n_items,): see `fit_relevance`."""
    return fit_relevance(log, dataset, rng=rng).relevance


def fit_relevance(
    log: ClickLog, dataset: RankingDataset, *, rng: np.random.Generator
) -> RelevanceModel:
    """r̂(x) = b + w·x + u·z, by least squares: min Σ_d v_d (C_d/E_d − r̂_d)² + α(‖w‖² + u²/p).

    The position-based model with a relevance that is linear in the p features, scaled to variance
    1, and in z, the normal score of the rank that the logging policy gives the item. The policy
    knows something about relevance, often more than the features do: an item that it never showed
    is less relevant than one that it showed with the same features. So z may explain as much as all
    features together. If relevance and the scores of the policy are jointly normal, relevance is
    linear in z, also for items that were never shown: see `_logged_scores`.

    The noise of C/E has two parts: the noise of clicks, which falls with E, and the part of
    relevance that features do not explain, which does not. If relevance is 0 or 1, both are about
    equal at E = 1. So an item counts v = E/(1 + E). α has the highest evidence (the marginal
    likelihood, with w normal and the noise unknown): without information in the clicks, r̂ is a
    constant. r̂ is clipped to [0, 1], or to the highest value of an impression. Missing features
    are imputed, with an indicator.

    It is cross-fitted: the queries are split into five folds, and r̂ in a fold is learned from the
    others, so that no item is evaluated by its own clicks. The covariance is the mean over folds.
    """
    seen, clicks = exposure(log, dataset)
    width = dataset.n_features + 2
    n_folds = min(FOLDS, len(np.unique(log.query)))
    fold_of_query = rng.permutation(dataset.n_queries) % max(n_folds, 1)
    fold = np.repeat(fold_of_query, dataset.query_sizes)
    dataset = fill_missing(dataset)
    scaler = Normalizer.fit(dataset, "standard")
    z = _logged_scores(log, dataset, seen) * np.sqrt(dataset.n_features)
    if n_folds < 2:  # there are no other queries to learn from
        zeros = np.zeros(dataset.n_items)
        return RelevanceModel(zeros, dataset, scaler, z, np.zeros((width, width)))
    rates = ratio(clicks, seen)
    moments = np.stack(
        [_moments(dataset, scaler, z, rates, seen, fold == k) for k in range(n_folds)]
    )
    n_seen = np.array([np.count_nonzero(seen[fold == k]) for k in range(n_folds)])
    fits = [
        regression_by_evidence(moments.sum(axis=0) - fold_moments, n_seen.sum() - n)
        for fold_moments, n in zip(moments, n_seen.tolist(), strict=True)
    ]
    weights = np.stack([each.weights for each in fits])
    relevance = np.empty(dataset.n_items)
    for rows in row_blocks(dataset.features):
        by_fold = weights @ _columns(dataset.features[rows], scaler, z[rows]).T
        relevance[rows] = np.take_along_axis(by_fold, fold[None, rows], axis=0)[0]
    assert log.impressions is not None  # noqa: S101 (exposure rejects a log without them)
    most = max(1.0, float(ratio(log.clicks, log.impressions).max()))  # clicks may be worth more
    covariance = np.mean([each.covariance for each in fits], axis=0)
    return RelevanceModel(np.clip(relevance, 0.0, most), dataset, scaler, z, covariance)


def _logged_scores(log: ClickLog, dataset: RankingDataset, seen: Floats) -> Floats:
    """Return z, how high the logging policy ranks each item, at mean 0 and variance 1, (n_items,).

    Rank k of n has the normal score −Φ⁻¹((k − ½)/n), and an item the mean over the sessions of its
    query. The scores of all n ranks add up to 0. So in a session that does not show it, an item has
    the mean that is left for the ranks below the page. Without positions z is ln(E/n_q).
    """
    sessions = sessions_of_item(Clusters.of(log), dataset)
    if log.position is None:
        mean = ratio(seen, sessions)
        values = np.log(np.maximum(mean, mean[mean > 0].min())) if mean.any() else mean
    else:
        from scipy.special import ndtri  # noqa: PLC0415 (heavy, only where used)

        assert log.impressions is not None  # noqa: S101 (exposure rejects a log without them)
        longest = dataset.query_sizes.astype(np.int64)
        np.maximum.at(longest, log.query, log.position)
        scores = -ndtri((log.position - 0.5) / longest[log.query]) * log.impressions
        rows, n = dataset.offsets[log.query] + log.item, dataset.n_items
        shown, total = add_up(rows, log.impressions, n), add_up(rows, scores, n)
        query = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
        left = sessions * longest[query] - add_up(query, shown, dataset.n_queries)[query]
        below = -ratio(add_up(query, total, dataset.n_queries)[query], left)
        values = ratio(total + np.maximum(sessions - shown, 0.0) * below, sessions)
    has_sessions = sessions > 0
    if not has_sessions.any():
        return np.zeros(len(values))
    values = np.where(has_sessions, values - values[has_sessions].mean(), 0.0)
    return values / (float(np.sqrt(np.mean(values[has_sessions] ** 2))) or 1.0)


def _columns(features: NDArray[np.float32], scaler: Normalizer, z: Floats) -> Floats:
    """Return the columns of the regression, (n, p + 2): features at variance 1, z, ones."""
    return np.column_stack([scaler.transform(features), z, np.ones(len(features))])


def _moments(
    dataset: RankingDataset,
    scaler: Normalizer,
    z: Floats,
    rates: Floats,
    seen: Floats,
    is_in: NDArray[np.bool_],
) -> Floats:
    """Return Σ v·c·cᵀ over the items of a fold, with c its columns and C/E, (p + 3, p + 3)."""
    width = dataset.n_features + 3
    moments = np.zeros((width, width))
    for block in row_blocks(dataset.features):
        rows = np.flatnonzero(is_in[block] & (seen[block] > 0)) + block.start
        columns = _columns(dataset.features[rows], scaler, z[rows])
        columns = np.column_stack([columns, rates[rows]])
        columns *= np.sqrt(seen[rows] / (1 + seen[rows]))[:, None]
        moments += columns.T @ columns
    return moments


class Regression(NamedTuple):
    """A ridge regression whose penalty has the highest evidence."""

    weights: Floats  # of the columns and b, (p + 1,)
    covariance: Floats  # of the posterior of these weights, (p + 1, p + 1)
    penalty: float  # α


def regression_by_evidence(moments: Floats, n_items: int) -> Regression:
    """Return the ridge regression of highest evidence.

    The moments, (p + 2, p + 2), are Σ v·c·cᵀ of n items with the columns c = p features, 1, C/E.
    With λ and q the eigenvalues and the products with C/E, both after b is projected out, twice the
    logarithm of the evidence is Σ log(α/(α + λ)) − (n − 1)·log(Σ v·(C/E)² − Σ q²/(α + λ)).
    """
    p = len(moments) - 2
    if not moments[p, p] > 0:
        return Regression(np.zeros(p + 1), np.zeros((p + 1, p + 1)), 0.0)
    mean = moments[p, :p] / moments[p, p]
    centred = moments - np.outer(moments[p], moments[p]) / moments[p, p]
    eigenvalues, directions = np.linalg.eigh(centred[:p, :p])
    eigenvalues = np.maximum(eigenvalues, 0.0)
    products = directions.T @ centred[:p, p + 1]
    with_penalty = PENALTIES[:, None] * p + eigenvalues
    residual = centred[p + 1, p + 1] - (products**2 / with_penalty).sum(axis=1)
    residual = np.maximum(residual, np.finfo(np.float64).tiny)
    evidence = np.log(PENALTIES[:, None] * p / with_penalty).sum(axis=1)
    evidence -= (n_items - 1) * np.log(residual)
    best = int(np.argmax(evidence))
    weights = directions @ (products / with_penalty[best])
    constant = moments[p, p + 1] / moments[p, p] - mean @ weights
    # r̂ = mean of C/E + w·(x − mean of x): the two terms are independent.
    to_columns = np.vstack([np.eye(p), -mean]) @ directions
    covariance = to_columns / with_penalty[best] @ to_columns.T
    covariance[p, p] += 1 / moments[p, p]
    covariance *= residual[best] / max(1, n_items - 1)
    return Regression(np.append(weights, constant), covariance, float(PENALTIES[best] * p))


def check_relevance(name: str, relevance: ArrayLike, dataset: RankingDataset) -> Floats:
    """Return r̂ per item as a user gives it, (n_items,), or raise an error."""
    values: Any = np.asarray(relevance)
    if values.dtype.kind not in "fiub" or values.shape != (dataset.n_items,):
        raise DataError(
            f"{name} is of type {values.dtype} and shape {values.shape}, expected the relevance "
            f"of each item, numbers of shape ({dataset.n_items},)"
        )
    if not np.isfinite(values).all():
        row = int(np.isfinite(values).argmin())
        raise DataError(f"{name} is {values[row]} in row {row}, expected a finite number")
    checked: Floats = values.astype(np.float64)
    return checked


def doubly_robust_log(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    clip: float | None = None,
    relevance: ArrayLike | None = None,
    rng: np.random.Generator | int | None = None,
) -> ClickLog:
    """Weights v = n_q·(r̂ + (C − E·r̂) / max(E, τ·n_q)), as a log that any ranker learns from.

    The log has one row per item with a weight other than 0, clicked or not, shown or not. The N
    clicks of the log are divided among the rows in proportion to their weights. All rows have the
    propensity N/Σv, so that the mean weight M̄ = Σv/N and the objective R = (1/N) Σ v·f have their
    usual meaning, and every plan draws by v.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
        With `impressions`: one row per item that was shown, clicked or not.
    clip : float in [0, 1], optional
        τ, the propensity below which the model is used as well. By default 10/√S, with S sessions,
        and at most 1: clipping a mean over S sessions costs about τ, and leaves a variance of about
        1/(S·τ). With 0 the model is used for items that were never shown, and no others.
    relevance : array-like (n_items,), optional
        r̂ per item by your own model, fitted on other clicks than these. By default
        `fit_relevance`, which draws its folds by `rng`.

    Examples
    --------
    Ten sessions showed one of two items, at a propensity of 0.1, and it got one click. With a clip
    of 0.5 its weight is not 1/0.1 but 1/0.5 + 10·0.4·(1 − 0.1/0.5); the other's is 10·0.2.

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
        relevance = relevance_model(log, dataset, rng=np.random.default_rng(rng))
    model = check_relevance("relevance", relevance, dataset)
    sessions = sessions_of_item(Clusters.of(log), dataset)
    clip = default_clip(log) if clip is None else number("clip", clip, least=0, most=1)
    below = np.maximum(seen, clip * sessions)
    weights = sessions * (model + ratio(clicks - seen * model, below))
    rows = np.flatnonzero(np.abs(weights) > ROUNDING * sessions)
    above = np.maximum(weights[rows], 0.0)
    if not above.any():
        raise DataError(
            "no item has a weight above 0: clicks are fewer than are expected by chance, and the "
            "model predicts no relevant item; check the propensities"
        )
    query = np.searchsorted(dataset.offsets, rows, side="right") - 1
    share = log.n_clicks / above.sum()
    propensity = min(1.0, share)
    by_chance = None
    if (weights[rows] < 0).any() or share > 1 + ROUNDING:  # ClickLog's form of negative weights
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
    """τ = 10/√S, at most 1, with S the sessions of a log, or its clicks if they are unknown."""
    return min(1.0, 10 / sqrt(Clusters.of(log).n_sessions or log.n_clicks))
