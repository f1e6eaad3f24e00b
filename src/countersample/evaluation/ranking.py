"""What the estimates share: scores of a ranker, ranks, and the reward of a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._ranked import DISCOUNTS, RankedLists
from countersample.data.scoring import scores_of
from countersample.errors import ParameterError
from countersample.metrics import get_metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.data.scoring import Ranker

# λ(rank), before the cut-off at k, which is None for the whole list.
REWARDS: dict[str, Callable[[Floats, int | None], Floats]] = {
    "dcg": lambda ranks, _: DISCOUNTS["log2"](ranks),
    "precision": lambda ranks, k: np.full(len(ranks), 1 / (k or 1)),
    "arp": lambda ranks, _: ranks,
}


def ranks_of(scores: Floats, offsets: Ints) -> Ints:
    """Return the rank of each row within its query, int64 (n_rows,), from 1; ties in row order."""
    from countersample._kernels.metrics import rank  # noqa: PLC0415 (imports numba)

    sizes = np.diff(offsets)
    scores = np.ascontiguousarray(scores, np.float64)  # of other types it would be compiled anew
    order, ranks = np.empty((2, len(scores)), np.int64)
    rank(scores, scores, offsets, int(sizes.max(initial=1)), 0, order)
    ranks[order] = np.arange(1, len(scores) + 1) - np.repeat(offsets[:-1], sizes)
    return ranks


def item_ranks(ranker_or_scores: ArrayLike | Ranker, dataset: RankingDataset) -> Ints:
    """Return the rank that a ranker, or its scores, gives each item of a dataset, (n_items,)."""
    scores = scores_of(ranker_or_scores, dataset)
    lists = RankedLists(
        dataset.labels, scores, dataset.offsets, k=None, ties="file", no_relevant="zero"
    )
    return ranks_of(lists.scores, lists.offsets)


def parse_additive(metric: str) -> tuple[str, int | None]:
    """Return the name and the cut-off of a metric that is additive; refuse any other."""
    get_metric(metric)  # refuses what is not known
    name, at, cut = metric.partition("@")
    takes_cut = {"arp": False, "precision": True}.get(name, bool(at))
    if name not in REWARDS or bool(at) != takes_cut:
        raise ParameterError(
            f"metric {metric!r} cannot be estimated from clicks, expected 'dcg', 'dcg@k', "
            "'precision@k' or 'arp': a sum over relevant items of rewards of their ranks"
        )
    return name, int(cut) if at else None


def rank_values(metric: str, ranks: NDArray[np.integer[Any]]) -> Floats:
    """λ(rank), what an additive metric gives for a relevant item at each of these ranks.

    =================  ===========================================================
    ``dcg``            1/log2(1 + rank)
    ``dcg@k``          the same up to rank k, and 0 below
    ``precision@k``    1/k up to rank k, and 0 below
    ``arp``            rank (smaller is better)
    =================  ===========================================================

    Parameters
    ----------
    metric : str
        A metric is additive if it is a sum of λ(rank) over the relevant items. Others (ndcg, mrr,
        err, average_precision) need all labels of a query, which clicks do not give: refused.
    ranks : int array (n,)
        From 1.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.evaluation.ranking import rank_values
    >>> rank_values("dcg@2", np.array([1, 2, 3])).round(3)
    array([1.   , 0.631, 0.   ])
    >>> rank_values("precision@2", np.array([1, 2, 3]))
    array([0.5, 0.5, 0. ])
    """
    name, k = parse_additive(metric)
    values = REWARDS[name](ranks.astype(np.float64), k)
    return values if k is None else np.where(ranks <= k, values, 0.0)
