"""What was served, as a linear scorer: where a path starts, and what a ranker must beat.

Of what ranked the items only its rankings are known, from the positions in the log or from scores
(`baseline`). Its imitation is the w that makes the pairs of a query come out as they were shown:

    min_w Σ_pairs λ · log(1 + exp(−w·(x_upper − x_lower)))

with λ = 1/log2(1 + the upper position), so that the top counts most. A policy that is linear in the
features is found again nearly exactly; of any other the agreement says how well this holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample._ranked import ratio
from countersample.data.scoring import linear_scores
from countersample.errors import DataError
from countersample.evaluation.ranking import ranks_of
from countersample.evaluation.resampling import add_up

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

MOST_PAIRS = 10_000
MOST_VALUES = 2**23  # of features, in the pairs: 32 MB
HELD_OUT = 5  # one in so many queries tells how well the imitation holds
DECAY = 1e-4  # of the weights, for features at variance 1: enough for a best answer to exist
MOST_ITERATIONS = 100


@dataclass(frozen=True, eq=False)
class Served:
    """A linear scorer that ranks as what was logged, as far as features tell.

    Attributes
    ----------
    weights : float64 (n_features,)
        Scaled so that scores of items of one query have a standard deviation of about 1.
    agreement : float
        The share of pairs of items, of queries that it was not fitted on, that it puts in the order
        in which they were shown. By chance it is ½.
    source : {"baseline", "impressions", "clicks"}
        What tells the rankings: scores that were given, the positions of all that was shown, or
        those of what was clicked, which tell less.
    """

    weights: Floats
    agreement: float
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Return what is said of it, in plain values."""
        return {name: value for name, value in asdict(self).items() if name != "weights"}


class _Pairs(NamedTuple):
    upper: Ints  # rows of the dataset
    lower: Ints
    share: Floats  # how often it is so: 1 where both positions are known
    weight: Floats


def check_baseline(baseline: ArrayLike | None, dataset: RankingDataset) -> Floats | None:
    """Return the scores of what is served, float64 (n_items,), checked."""
    if baseline is None:
        return None
    scores = np.asarray(baseline)
    if scores.dtype.kind not in "fiub" or scores.shape != (dataset.n_items,):
        raise DataError(
            f"baseline is of type {scores.dtype} and shape {scores.shape}, expected the score of "
            f"each item by what is served, numbers of shape ({dataset.n_items},)"
        )
    if not np.isfinite(scores).all():
        row = int(np.isfinite(scores).argmin())
        raise DataError(f"baseline is {scores[row]} in row {row}, expected a finite number")
    return scores.astype(np.float64)


def imitate(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    baseline: Floats | None = None,
    scale: Floats | None = None,
    seed: int = 0,
) -> Served | None:
    """Return the imitation of what ranked the items of a log; None where nothing tells it.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
        With positions, unless there is a baseline.
    baseline : float array (n_items,), optional
        Scores by what is served.
    scale : float array (n_features,), optional
        What features are multiplied by before.
    seed : int
        Chooses the pairs.

    Examples
    --------
    >>> from countersample import simulate_clicks, synthetic
    >>> from countersample.rankers.served import imitate
    >>> data = synthetic("tiny", rng=0)
    >>> scores = data.features @ [1.0, 0.0, -2.0, 0.5, 0.0]
    >>> log = simulate_clicks(data, scores, n_clicks=1000, rng=0)
    >>> served = imitate(data, log, baseline=scores)
    >>> served.agreement > 0.95, served.source
    (True, 'baseline')
    >>> imitate(data, log).source
    'clicks'
    """
    rng = np.random.default_rng(seed)
    position, source = _positions(dataset, log, baseline)
    if position is None:
        return None
    most = min(MOST_PAIRS, MOST_VALUES // max(1, dataset.n_features))
    pairs = _pairs(dataset, position, log.impressions is not None, most, rng)
    if not len(pairs.upper):
        return None
    differences = dataset.features[pairs.upper] - dataset.features[pairs.lower]
    if scale is not None:
        differences *= scale.astype(np.float32)
    query = np.searchsorted(dataset.offsets, pairs.upper, side="right")
    judges = query % HELD_OUT == 0
    if judges.all() or not judges.any():
        judges = np.zeros(len(query), bool)
    weights = _logistic(differences[~judges], pairs.share[~judges], pairs.weight[~judges])
    judged = judges if judges.any() else ~judges
    if (pairs.share[judged] == 1).any():
        judged = judged & (pairs.share == 1)  # whose order is known for sure
    scores = linear_scores(weights[None], differences)[0]
    right = np.where(scores[judged] == 0, 0.5, scores[judged] > 0)  # ties: half of the time
    share = pairs.share[judged]
    agreement = float(np.average(share * right + (1 - share) * (1 - right)))
    spread = float(np.sqrt(np.mean(np.square(scores, dtype=np.float64)) / 2))
    return Served(weights / (spread or 1.0), agreement, source)


def _positions(
    dataset: RankingDataset, log: ClickLog, baseline: Floats | None
) -> tuple[Floats | None, str]:
    """Return the mean position of each item, (n_items,), NaN where it is not known."""
    if baseline is not None:
        return ranks_of(baseline, dataset.offsets).astype(np.float64), "baseline"
    if log.position is None:
        return None, ""
    rows = dataset.offsets[log.query] + log.item
    times = log.clicks if log.impressions is None else log.impressions
    n_times = add_up(rows, times, dataset.n_items)
    position = ratio(add_up(rows, times * log.position, dataset.n_items), n_times)
    position[n_times == 0] = np.nan
    return position, "clicks" if log.impressions is None else "impressions"


def _pairs(
    dataset: RankingDataset,
    position: Floats,
    others_are_below: bool,
    most: int,
    rng: np.random.Generator,
) -> _Pairs:
    """Draw pairs: an item whose position is known, with the next one and with any other.

    An item whose position is not known was not shown, and is below. Or nobody knows: then at most
    as many of the others are above as the position says, and a pair counts for both orders.
    """
    query = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
    is_known = ~np.isnan(position)
    order = np.lexsort((np.where(is_known, position, np.inf), query))
    end = np.repeat(dataset.offsets[1:], dataset.query_sizes)
    start = np.repeat(dataset.offsets[:-1], dataset.query_sizes)
    at = np.flatnonzero(is_known[order])
    at = at[end[at] - start[at] > 1]
    if 2 * len(at) > most:
        at = np.sort(rng.choice(at, most // 2, replace=False))
    following = np.minimum(at + 1, end[at] - 1)
    any_other = start[at] + (rng.random(len(at)) * (end[at] - start[at] - 1)).astype(np.int64)
    any_other += any_other >= at
    upper, lower = order[np.tile(at, 2)], order[np.append(following, any_other)]
    own, other = position[upper], position[lower]
    swapped = other < own
    upper, lower = np.where(swapped, lower, upper), np.where(swapped, upper, lower)
    top = np.where(swapped, other, own)
    share = np.ones(len(upper))
    if not others_are_below:
        n_others = (end - start)[order.argsort()][upper] - 1
        share = np.where(np.isnan(other), 1 - np.minimum(own - 1, n_others) / n_others, share)
    is_told = (own != other) & (upper != lower)
    return _Pairs(upper[is_told], lower[is_told], share[is_told], 1 / np.log2(1 + top[is_told]))


def _logistic(differences: NDArray[np.float32], share: Floats, weight: Floats) -> Floats:
    """Return the weights of pairwise logistic regression, (n_features,)."""
    from scipy.optimize import minimize  # noqa: PLC0415 (heavy, only where used)
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 (the same)

    size = np.sqrt(np.einsum("ij,ij->j", differences, differences, dtype=np.float64))
    size /= np.sqrt(len(differences))
    size[size == 0] = np.inf
    scaled = differences / size.astype(np.float32)
    weight = weight / weight.sum()

    def loss(w: Floats) -> tuple[float, Floats]:
        margin = linear_scores(w[None], scaled)[0].astype(np.float64)
        wrong = np.exp(-np.logaddexp(0, margin))  # σ(−margin)
        value = weight @ (np.logaddexp(0, -margin) + (1 - share) * margin)
        slope = weight * (1 - share - wrong)
        gradient = linear_scores(slope[None], scaled.T)[0].astype(np.float64)
        decay = DECAY / len(w)
        return float(value + decay / 2 * (w @ w)), gradient + decay * w

    with threadpool_limits(1):  # products so small take longer on several threads
        found = minimize(
            loss, np.zeros(differences.shape[1]), jac=True, method="L-BFGS-B",
            options={"maxiter": MOST_ITERATIONS},
        )  # fmt: skip
    weights: Floats = found.x / size
    return weights
