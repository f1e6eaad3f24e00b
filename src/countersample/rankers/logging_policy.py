"""The logging policy, imitated by a linear scorer: a start of training, and a candidate to beat.

Only the rankings of the logging policy are known, from positions in the log or from scores
(`baseline`). Its imitation is the w that orders the pairs of a query as they were shown:

    min_w Σ_pairs λ · log(1 + exp(−w·(x_upper − x_lower)))

with λ = 1/log2(1 + the upper position), so that the top counts most. A policy that is linear in the
features is recovered almost exactly; for any other, the agreement measures how well this works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample.data.compact import linear_scores
from countersample.errors import DataError
from countersample.evaluation.bootstrap import add_up
from countersample.metrics import ranks_of, ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

MAX_PAIRS = 10_000
MAX_VALUES = 2**23  # feature values in the pairs: 32 MB
TEST_EVERY = 5  # every fifth query measures how well the imitation works
DECAY = 1e-4  # of the weights, for features at variance 1: enough for a best answer to exist
MAX_ITERATIONS = 100


@dataclass(frozen=True, eq=False)
class PolicyImitation:
    """A linear scorer that ranks like the logging policy, as far as features allow.

    `agreement` is the share of pairs of items, of queries that it was not fitted on, that it puts
    in the order in which they were shown; by chance it is ½. The `source` of the rankings is
    "baseline" (scores), "impressions" (the positions of all items shown), or "clicks" (the
    positions of clicked items, which contain less).
    """

    weights: Floats  # (n_features,); scores within a query have a standard deviation of about 1
    agreement: float
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Return agreement and source, in plain values."""
        return {"agreement": self.agreement, "source": self.source}


class _Pairs(NamedTuple):
    upper: Ints  # rows of the dataset
    lower: Ints
    share: Floats  # of sessions in which this is the order: 1 if both positions are known
    weight: Floats


def imitate(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    baseline: Floats | None = None,
    scale: Floats | None = None,
    seed: int = 0,
) -> PolicyImitation | None:
    """Return the imitation of the logging policy; None if neither positions nor scores are known.

    `baseline` are scores by the current ranker, (n_items,), `scale` factors of the features,
    (n_features,). The seed chooses the pairs.
    """
    rng = np.random.default_rng(seed)
    position, source = _mean_positions(dataset, log, baseline)
    if position is None:
        return None
    max_pairs = min(MAX_PAIRS, MAX_VALUES // max(1, dataset.n_features))
    pairs = _draw_pairs(dataset, position, log.impressions is not None, max_pairs, rng)
    if not len(pairs.upper):
        return None
    with np.errstate(over="ignore"):  # checked below
        differences = dataset.features[pairs.upper] - dataset.features[pairs.lower]
    if scale is not None:
        differences *= scale.astype(np.float32)
    check_size(differences)
    query = np.searchsorted(dataset.offsets, pairs.upper, side="right")
    is_test = query % TEST_EVERY == 0
    if is_test.all() or not is_test.any():
        is_test = np.zeros(len(query), bool)
    weights = _fit_logistic(differences[~is_test], pairs.share[~is_test], pairs.weight[~is_test])
    compared = is_test if is_test.any() else ~is_test
    if (pairs.share[compared] == 1).any():
        compared = compared & (pairs.share == 1)  # pairs whose order is certain
    scores = linear_scores(weights[None], differences)[0]
    is_right = np.where(scores[compared] == 0, 0.5, scores[compared] > 0)  # ties: half of the time
    share = pairs.share[compared]
    agreement = float(np.average(share * is_right + (1 - share) * (1 - is_right)))
    spread = float(np.sqrt(np.mean(np.square(scores, dtype=np.float64)) / 2))
    return PolicyImitation(weights / (spread or 1.0), agreement, source)


def check_size(values: NDArray[np.floating]) -> None:
    """Reject differences or weights of features, (…, n_features), that float32 cannot hold."""
    is_finite = np.isfinite(values).reshape(-1, values.shape[-1]).all(axis=0)
    if not is_finite.all():
        raise DataError(
            f"feature {is_finite.argmin()} has values whose differences float32 cannot hold, "
            "expected smaller ones: normalize the features (normalize='minmax'), or divide this "
            "one by a constant"
        )


def _mean_positions(
    dataset: RankingDataset, log: ClickLog, baseline: Floats | None
) -> tuple[Floats | None, str]:
    """Return the mean position of each item, (n_items,), NaN if unknown, and the source."""
    if baseline is not None:
        return ranks_of(baseline, dataset.offsets).astype(np.float64), "baseline"
    if log.position is None:
        return None, ""
    rows = dataset.offsets[log.query] + log.item
    counts = log.clicks if log.impressions is None else log.impressions
    totals = add_up(rows, counts, dataset.n_items)
    position = ratio(add_up(rows, counts * log.position, dataset.n_items), totals)
    position[totals == 0] = np.nan
    return position, "clicks" if log.impressions is None else "impressions"


def _draw_pairs(
    dataset: RankingDataset,
    position: Floats,
    others_are_below: bool,
    max_pairs: int,
    rng: np.random.Generator,
) -> _Pairs:
    """Draw pairs: each item whose position is known, with the next one and with any other.

    An item whose position is unknown was not shown, and is below (`others_are_below`). If only
    clicks have positions, the others may have been anywhere: at most as many of them are above as
    the position leaves room for, and a pair counts for both orders in proportion.
    """
    query = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
    is_known = ~np.isnan(position)
    order = np.lexsort((np.where(is_known, position, np.inf), query))
    end = np.repeat(dataset.offsets[1:], dataset.query_sizes)
    start = np.repeat(dataset.offsets[:-1], dataset.query_sizes)
    at = np.flatnonzero(is_known[order])
    at = at[end[at] - start[at] > 1]
    if 2 * len(at) > max_pairs:
        at = np.sort(rng.choice(at, max_pairs // 2, replace=False))
    following = np.minimum(at + 1, end[at] - 1)
    any_other = start[at] + (rng.random(len(at)) * (end[at] - start[at] - 1)).astype(np.int64)
    any_other += any_other >= at
    upper, lower = order[np.tile(at, 2)], order[np.append(following, any_other)]
    first, second = position[upper], position[lower]
    swapped = second < first
    upper, lower = np.where(swapped, lower, upper), np.where(swapped, upper, lower)
    top = np.where(swapped, second, first)
    share = np.ones(len(upper))
    if not others_are_below:
        n_others = (end - start)[order.argsort()][upper] - 1
        room = np.minimum(first - 1, n_others) / n_others
        share = np.where(np.isnan(second), 1 - room, share)
    has_order = (first != second) & (upper != lower)
    top = top[has_order]
    return _Pairs(upper[has_order], lower[has_order], share[has_order], 1 / np.log2(1 + top))


def _fit_logistic(differences: NDArray[np.float32], share: Floats, weight: Floats) -> Floats:
    """Return the weights of pairwise logistic regression, (n_features,)."""
    from scipy.optimize import minimize  # noqa: PLC0415 (heavy, only where used)
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 (the same)

    size = np.sqrt(np.einsum("ij,ij->j", differences, differences, dtype=np.float64))
    size /= np.sqrt(len(differences))
    size[size == 0] = np.inf
    scaled = differences / size.astype(np.float32)
    weight = weight / weight.sum()

    def compute_loss(w: Floats) -> tuple[float, Floats]:
        margin = linear_scores(w[None], scaled)[0].astype(np.float64)
        wrong = np.exp(-np.logaddexp(0, margin))  # σ(−margin)
        value = weight @ (np.logaddexp(0, -margin) + (1 - share) * margin)
        slope = weight * (1 - share - wrong)
        gradient = linear_scores(slope[None], scaled.T)[0].astype(np.float64)
        decay = DECAY / len(w)
        return float(value + decay / 2 * (w @ w)), gradient + decay * w

    with threadpool_limits(1):  # products this small take longer on several threads
        result = minimize(
            compute_loss, np.zeros(differences.shape[1]), jac=True, method="L-BFGS-B",
            options={"maxiter": MAX_ITERATIONS},
        )  # fmt: skip
    weights: Floats = result.x / size
    return weights
