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
from countersample.data.normalize import Normalizer, row_blocks
from countersample.errors import DataError
from countersample.evaluation.resampling import add_up

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

FOLDS = 5


def exposure(log: ClickLog, dataset: RankingDataset) -> tuple[Floats, Floats]:
    """Return E = Σ impressions·θ and C = Σ (clicks − by chance) of each item, both (n_items,)."""
    if log.impressions is None:
        raise DataError(
            "the log has no impressions, expected a row with impressions for everything that was "
            "shown, clicked or not: estimator 'dr' needs them"
        )
    rows = dataset.offsets[log.query] + log.item
    seen = add_up(rows, log.impressions * theta_of(log), dataset.n_items)
    return seen, add_up(rows, log.weights * log.propensity, dataset.n_items)


def theta_of(log: ClickLog) -> Floats:
    """Return θ of each row, the probability that it was examined where it was shown, (n_rows,)."""
    return log.propensity if log.examination is None else log.examination


def relevance_model(log: ClickLog, dataset: RankingDataset, *, rng: np.random.Generator) -> Floats:
    """r̂(x) = g(b + w·x), by least squares: min Σ_d E_d (C_d/E_d − r̂(x_d))², (n_items,).

    The position-based model with a relevance that rises along one direction of the features. First
    b and w, with a penalty α‖w‖² and no g; then g, the best function that never falls and stays
    within [0, 1], or below the most that an impression was worth (isotonic regression). Features
    are brought to variance 1, and α is their number, so that the weights are as large as noise and
    signal of the same size would make them. It is cross-fitted: the queries are cut into five
    parts, and what is said of one part was learned from the others, so that no item is judged by
    its own clicks.

    Parameters
    ----------
    log : ClickLog
        With impressions.
    dataset : RankingDataset
    rng : numpy Generator
        Cuts the queries into parts.
    """
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415 (heavy, only where used)

    seen, clicks = exposure(log, dataset)
    n_folds = min(FOLDS, len(np.unique(log.query)))
    if n_folds < 2:
        return np.zeros(dataset.n_items)  # nothing else to learn from
    fold_of_query = rng.permutation(dataset.n_queries) % n_folds
    fold = np.repeat(fold_of_query, dataset.query_sizes)
    scaler = Normalizer.fit(dataset, "standard")
    parts = [_normal_equations(dataset, fold == k, seen, clicks, scaler) for k in range(n_folds)]
    squares, products = (np.sum([part[i] for part in parts], axis=0) for i in range(2))
    ridge = np.append(np.full(dataset.n_features, float(dataset.n_features)), 1e-9)
    weights = np.stack(
        [
            np.linalg.solve(squares - own + np.diag(ridge), products - target)
            for own, target in parts
        ]
    )
    assert log.impressions is not None  # noqa: S101 (exposure refused a log without them)
    most = max(1.0, float(ratio(log.clicks, log.impressions).max()))  # where clicks are worth more
    linear = np.empty((n_folds, dataset.n_items))
    for rows in row_blocks(dataset.features):
        linear[:, rows] = weights @ _scaled(dataset.features[rows], scaler).T
    relevance = np.empty(dataset.n_items)
    for k in range(n_folds):
        own, others = fold == k, (fold != k) & (seen > 0)
        rising = IsotonicRegression(y_min=0.0, y_max=most, out_of_bounds="clip")
        rates = clicks[others] / seen[others]
        rising.fit(linear[k, others], rates, sample_weight=seen[others])
        relevance[own] = rising.predict(linear[k, own])
    return relevance


def relevance_of_model(
    baseline: ArrayLike | None, log: ClickLog, dataset: RankingDataset, rng: np.random.Generator
) -> Floats:
    """Return r̂ of each item: what the user gives, checked, or else `relevance_model`."""
    if baseline is None:
        return relevance_model(log, dataset, rng=rng)
    given: Any = np.asarray(baseline)
    if given.dtype.kind not in "fiub" or given.shape != (dataset.n_items,):
        raise DataError(
            f"baseline is of type {given.dtype} and shape {given.shape}, expected the relevance "
            f"of each item, numbers of shape ({dataset.n_items},)"
        )
    if not np.isfinite(given).all():
        row = int(np.isfinite(given).argmin())
        raise DataError(f"baseline is {given[row]} in row {row}, expected a finite number")
    relevance: Floats = given.astype(np.float64)
    return relevance


def _scaled(features: NDArray[np.float32], scaler: Normalizer) -> Floats:
    """Return the features at mean 0 and variance 1, and a last column of ones."""
    return np.column_stack([scaler.transform(features), np.ones(len(features))])


def _normal_equations(
    dataset: RankingDataset,
    is_in: NDArray[np.bool_],
    seen: Floats,
    clicks: Floats,
    scaler: Normalizer,
) -> tuple[Floats, Floats]:
    """Return Σ E·x·xᵀ and Σ C·x over the items of a part."""
    width = dataset.n_features + 1
    squares, products = np.zeros((width, width)), np.zeros(width)
    for block in row_blocks(dataset.features):
        rows = np.flatnonzero(is_in[block] & (seen[block] > 0)) + block.start
        scaled = _scaled(dataset.features[rows], scaler)
        squares += (scaled * seen[rows, None]).T @ scaled
        products += clicks[rows] @ scaled
    return squares, products
