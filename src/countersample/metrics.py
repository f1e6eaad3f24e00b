"""Metrics of ranked lists, and the rules for ties: labels and scores in, one value per query out.

A new metric is a function and a name in `METRICS`. All have the same arguments, and a name for
`get_metric` (``"ndcg@10"``)::

    metric(labels, scores, offsets, k=None, **options) -> float64 array (n_queries,)

labels : array (n_items,)
    Relevance grades, finite and not negative (binary metrics take any finite number).
scores : array (n_items,)
    Items are ranked by score, largest first; infinities are fine, NaN raises an error.
offsets : integer array (n_queries + 1,)
    The items of query q are the rows ``offsets[q]:offsets[q + 1]``, at least one.
k : int, optional
    Only ranks 1..k count; the whole list by default.

Options, and the metrics that take them:

gain : {"exponential", "linear"} — `ndcg`, `dcg`
    The gain of a label y: 2^y − 1 (the default) or y.
discount : {"log2", "letor"} — `ndcg`, `dcg`
    The weight of rank r: 1/log2(1 + r) (the default), or 1 at ranks 1 and 2 and then 1/log2(r), as
    in the published LETOR results.
relevant : float — `precision`, `average_precision`, `mrr`
    The smallest label that counts as relevant, by default 1. For the other metrics, an item is
    relevant if its label is above 0.
max_label : float — `err`
    The top of the grading scale, by default the largest label.
ties : {"file", "best", "worst", "expected"} — all
    The order of items with equal scores: the order of rows (the default), the most relevant first,
    the least relevant first, or, as "expected", the exact mean over all their orders.
no_relevant : {"zero", "one", "skip"} — all
    The value of a query without relevant items: 0 (the default), 1, or NaN, which `evaluate` leaves
    out of the mean. `dcg` takes no "one", as 1 is no perfect score there, and `arp` only "skip".

Examples
--------
Two queries, of three items and of two:

>>> import numpy as np
>>> from countersample.metrics import get_metric, ndcg
>>> labels, scores, offsets = [0, 1, 2, 0, 0], [0.1, 0.2, 0.3, 0.2, 0.1], [0, 3, 5]
>>> ndcg(labels, scores, offsets, k=10)
array([1., 0.])
>>> get_metric("precision@2", no_relevant="skip")(labels, scores, offsets)
array([ 1., nan])
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._arrays import as_column, as_numbers
from countersample._params import choice, number, whole_number
from countersample.data.dataset import scores_of
from countersample.defaults import TIES
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.data.dataset import Ranker

__all__ = [
    "METRICS",
    "arp",
    "average_precision",
    "dcg",
    "err",
    "get_metric",
    "mrr",
    "ndcg",
    "precision",
]

GAINS: dict[str, Callable[[Floats], Floats]] = {
    "exponential": lambda labels: np.exp2(labels) - 1,
    "linear": lambda labels: labels,
}
DISCOUNTS: dict[str, Callable[[Floats], Floats]] = {
    "log2": lambda ranks: 1 / np.log2(1 + ranks),
    "letor": lambda ranks: 1 / np.maximum(1, np.log2(ranks)),
}
TIE_RULES = {  # the arguments favour and average of _kernels.metrics
    "file": (0, False),
    "best": (1, False),
    "worst": (-1, False),
    "expected": (0, True),
}
NO_RELEVANT = {"zero": 0.0, "one": 1.0, "skip": np.nan}

MAX_EXPONENT = 1000.0  # 2^y, and sums of it, stay finite up to here
MAX_LABEL = float(np.finfo(np.float32).max)
# λ(rank) of additive metrics, before the cut-off at k, which is None for the whole list
REWARDS: dict[str, Callable[[Floats, int | None], Floats]] = {
    "dcg": lambda ranks, _: DISCOUNTS["log2"](ranks),
    "precision": lambda ranks, k: np.full(len(ranks), 1 / (k or 1)),
    "arp": lambda ranks, _: ranks,
}


def dcg(
    labels: ArrayLike, scores: ArrayLike, offsets: ArrayLike, k: int | None = None, *,
    gain: str = "exponential", discount: str = "log2", ties: str = TIES, no_relevant: str = "zero",
) -> Floats:  # fmt: skip
    """DCG@k = Σ_{r≤k} discount(r) · gain(label at rank r).

    Discounted cumulative gain (Järvelin and Kekäläinen, TOIS 2002). Arguments and options: see
    `countersample.metrics`.

    Examples
    --------
    Grades 1 and 2 at ranks 1 and 3: (2^1 − 1) / log2(2) + (2^2 − 1) / log2(4) = 1 + 3/2.

    >>> from countersample.metrics import dcg
    >>> dcg([1, 0, 2], [0.9, 0.5, 0.1], [0, 3])
    array([2.5])
    """
    if no_relevant == "one":
        raise ParameterError(
            "no_relevant is 'one', expected 'zero' or 'skip' for dcg, where 1 is no perfect score"
        )
    lists = RankedLists(labels, scores, offsets, k, ties=ties, no_relevant=no_relevant)
    gains = lists.gains(gain)
    return lists.settle(lists.measure("additive", gains, lists.discounts(discount)), gains)


def ndcg(
    labels: ArrayLike, scores: ArrayLike, offsets: ArrayLike, k: int | None = None, *,
    gain: str = "exponential", discount: str = "log2", ties: str = TIES, no_relevant: str = "zero",
) -> Floats:  # fmt: skip
    """nDCG@k = DCG@k / (DCG@k of the items ranked by label).

    Arguments and options: see `countersample.metrics`; `dcg` is the sum above the line.

    Examples
    --------
    Grades 1 and 2 at ranks 1 and 2, where 2 and 1 were ideal, with linear gains:
    (1 + 2/log2(3)) / (2 + 1/log2(3)) = 0.8597.

    >>> from countersample.metrics import ndcg
    >>> ndcg([1, 2], [0.9, 0.5], [0, 2], gain="linear").round(4)
    array([0.8597])
    """
    lists = RankedLists(labels, scores, offsets, k, ties=ties, no_relevant=no_relevant)
    gains, discounts = lists.gains(gain), lists.discounts(discount)
    result = lists.measure("additive", gains, discounts)
    ideal = lists.measure("additive", gains, discounts, ideal=True)
    return lists.settle(ratio(result, ideal), gains)


def arp(
    labels: ArrayLike, scores: ArrayLike, offsets: ArrayLike, k: None = None, *, ties: str = TIES,
    no_relevant: str = "skip",
) -> Floats:  # fmt: skip
    """ARP = Σ_r r · (label at rank r) / Σ labels; smaller is better.

    Average relevant position: the mean rank of the relevant items, each weighted by its label. It
    has no cut-off, as a ranker could then gain by moving relevant items out of sight. Arguments and
    options: see `countersample.metrics`.

    Examples
    --------
    Grades 1 and 2 at ranks 1 and 3: (1·1 + 3·2) / (1 + 2) = 7/3.

    >>> from countersample.metrics import arp
    >>> arp([1, 0, 2], [0.9, 0.5, 0.1], [0, 3]).round(4)
    array([2.3333])
    """
    if k is not None:
        raise ParameterError(f"k is {k}, expected None for arp, which has no cut-off")
    if no_relevant != "skip":
        raise ParameterError(
            f"no_relevant is {no_relevant!r}, expected 'skip' for arp: there is no position to "
            "average"
        )
    lists = RankedLists(labels, scores, offsets, k, ties=ties, no_relevant=no_relevant)
    weights = lists.gains("linear")
    positions = lists.measure("additive", weights, lists.ranks)
    return lists.settle(ratio(positions, lists.total(weights)), weights)


def precision(
    labels: ArrayLike, scores: ArrayLike, offsets: ArrayLike, k: int | None = None, *,
    relevant: float = 1, ties: str = TIES, no_relevant: str = "zero",
) -> Floats:  # fmt: skip
    """P@k = (number of relevant items at ranks 1..k) / k.

    The divisor is k even if a query has fewer than k items, and the number of items without k.
    Arguments and options: see `countersample.metrics`.

    Examples
    --------
    One of the first two is relevant:

    >>> from countersample.metrics import precision
    >>> precision([1, 0, 2], [0.9, 0.5, 0.1], [0, 3], k=2)
    array([0.5])
    """
    lists = RankedLists(labels, scores, offsets, k, ties=ties, no_relevant=no_relevant)
    relevance = lists.relevance(relevant)
    count = lists.measure("additive", relevance, np.ones_like(lists.ranks))
    return lists.settle(count / (k or np.diff(lists.offsets)), relevance)


def average_precision(
    labels: ArrayLike, scores: ArrayLike, offsets: ArrayLike, k: int | None = None, *,
    relevant: float = 1, ties: str = TIES, no_relevant: str = "zero",
) -> Floats:  # fmt: skip
    """AP@k = (1/R) · Σ_{r≤k, item at r relevant} P@r, with R all relevant items of the query.

    Its mean over queries is known as MAP. With k it is still divided by R, as in trec_eval.
    Arguments and options: see `countersample.metrics`.

    Examples
    --------
    Relevant items at ranks 1 and 3: (1/1 + 2/3) / 2 = 5/6.

    >>> from countersample.metrics import average_precision
    >>> average_precision([1, 0, 2], [0.9, 0.5, 0.1], [0, 3]).round(4)
    array([0.8333])
    """
    lists = RankedLists(labels, scores, offsets, k, ties=ties, no_relevant=no_relevant)
    relevance = lists.relevance(relevant)
    precisions = lists.measure("precision_sum", relevance, 1 / lists.ranks)
    return lists.settle(ratio(precisions, lists.total(relevance)), relevance)


def mrr(
    labels: ArrayLike, scores: ArrayLike, offsets: ArrayLike, k: int | None = None, *,
    relevant: float = 1, ties: str = TIES, no_relevant: str = "zero",
) -> Floats:  # fmt: skip
    """RR@k = 1 / (rank of the first relevant item), or 0 if that rank is beyond k.

    Its mean over queries is the mean reciprocal rank. Arguments and options: see
    `countersample.metrics`.

    Examples
    --------
    The first relevant item is at rank 2:

    >>> from countersample.metrics import mrr
    >>> mrr([0, 1, 2], [0.9, 0.5, 0.1], [0, 3])
    array([0.5])
    """
    lists = RankedLists(labels, scores, offsets, k, ties=ties, no_relevant=no_relevant)
    relevance = lists.relevance(relevant)
    return lists.settle(lists.measure("cascade", relevance, 1 / lists.ranks), relevance)


def err(
    labels: ArrayLike, scores: ArrayLike, offsets: ArrayLike, k: int | None = None, *,
    max_label: float | None = None, ties: str = TIES, no_relevant: str = "zero",
) -> Floats:  # fmt: skip
    """ERR@k = Σ_{r≤k} (1/r) · p_r · Π_{i<r} (1 − p_i), where p = (2^label − 1) / 2^max_label.

    Expected reciprocal rank (Chapelle et al., CIKM 2009): the mean of 1/r, with r the rank at
    which a user stops. The user goes down the list and is satisfied by an item with probability p.
    Give max_label if the labels may lack the top grade. Arguments and options: see
    `countersample.metrics`.

    Examples
    --------
    Grades 1 and 2 of at most 2, p = 1/4 and 3/4: 1/4 + (1/2) · (3/4) · (1 − 1/4) = 17/32.

    >>> from countersample.metrics import err
    >>> err([1, 2], [0.9, 0.5], [0, 2])
    array([0.53125])
    """
    lists = RankedLists(labels, scores, offsets, k, ties=ties, no_relevant=no_relevant)
    satisfaction = lists.satisfaction(max_label)
    return lists.settle(lists.measure("cascade", satisfaction, 1 / lists.ranks), satisfaction)


METRICS: dict[str, Callable[..., Floats]] = {
    function.__name__: function
    for function in (arp, average_precision, dcg, err, mrr, ndcg, precision)
}


def get_metric(name: str, **options: Any) -> Callable[..., Floats]:  # noqa: ANN401 (of any metric)
    """Return the metric of a name such as ``"ndcg"`` or ``"ndcg@10"``, with its options set.

    Parameters
    ----------
    name : str
        One of `METRICS`, and optionally a cut-off after ``@``.
    **options
        Options of the metric: see `countersample.metrics`.

    Returns
    -------
    callable (labels, scores, offsets) -> float64 array (n_queries,)

    Raises
    ------
    ParameterError
        For an unknown name, or an option that this metric does not take.

    Examples
    --------
    >>> from countersample.metrics import get_metric
    >>> get_metric("dcg@2", gain="linear")([3, 1, 2], [0.9, 0.5, 0.1], [0, 3]).round(4)
    array([3.6309])
    """
    metric, at, cut = name.partition("@")
    if metric not in METRICS or (at and not cut.isdecimal()):
        raise ParameterError(
            f"metric {name!r} is not known, expected one of {', '.join(METRICS)}, optionally with "
            "a cut-off, as in 'ndcg@10'"
        )
    parameters = inspect.signature(METRICS[metric]).parameters.values()
    names = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for option in options:
        if option not in names:
            raise ParameterError(f"{metric} takes no {option!r}, its options: {', '.join(names)}")
    return partial(METRICS[metric], k=int(cut) if at else None, **options)


def ranks_of(scores: Floats, offsets: Ints) -> Ints:
    """Return the rank of each row within its query, int64 (n_rows,), from 1.

    This is how rankers rank. Ties are broken by the default rule, `defaults.TIES`.
    """
    from countersample._kernels.metrics import rank  # noqa: PLC0415 (imports numba)

    sizes = np.diff(offsets)
    scores = np.ascontiguousarray(scores, np.float64)  # for other types it would compile again
    order, ranks = np.empty((2, len(scores)), np.int64)
    favour, _ = TIE_RULES[TIES]
    rank(scores, scores, offsets, int(sizes.max(initial=1)), favour, order)
    ranks[order] = np.arange(1, len(scores) + 1) - np.repeat(offsets[:-1], sizes)
    return ranks


def item_ranks(ranker_or_scores: ArrayLike | Ranker, dataset: RankingDataset) -> Ints:
    """Return the rank of each item of a dataset by a ranker or by scores, (n_items,)."""
    scores = scores_of(ranker_or_scores, dataset)
    lists = RankedLists(dataset.labels, scores, dataset.offsets)
    return ranks_of(lists.scores, lists.offsets)


def parse_additive(metric: str) -> tuple[str, int | None]:
    """Return the name and the cut-off of an additive metric; others raise an error."""
    get_metric(metric)  # rejects unknown names
    name, at, cut = metric.partition("@")
    takes_cut = {"arp": False, "precision": True}.get(name, bool(at))
    if name not in REWARDS or bool(at) != takes_cut:
        raise ParameterError(
            f"metric {metric!r} cannot be estimated from clicks, expected 'dcg', 'dcg@k', "
            "'precision@k' or 'arp': a sum over relevant items of rewards of their ranks"
        )
    return name, int(cut) if at else None


def rank_values(metric: str, ranks: NDArray[np.integer[Any]]) -> Floats:
    """λ(rank), the reward of an additive metric for a relevant item at each of these ranks.

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
        err, average_precision) need all labels of a query and raise an error.
    ranks : int array (n,)
        From 1.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.metrics import rank_values
    >>> rank_values("dcg@2", np.array([1, 2, 3])).round(3)
    array([1.   , 0.631, 0.   ])
    >>> rank_values("precision@2", np.array([1, 2, 3]))
    array([0.5, 0.5, 0. ])
    """
    name, k = parse_additive(metric)
    values = REWARDS[name](ranks.astype(np.float64), k)
    return values if k is None else np.where(ranks <= k, values, 0.0)


class RankedLists:
    """Labels and scores of queries, checked, with a cut-off and a tie rule.

    A metric turns labels into values (`gains`, `relevance`), adds these up over the ranking with a
    weight per rank (`measure`), and replaces the values of queries without relevant items
    (`settle`). `ranks` are 1..k, at most to the length of the longest query, (depth,).
    """

    def __init__(
        self, labels: ArrayLike, scores: ArrayLike, offsets: ArrayLike, k: int | None = None, *,
        ties: str = TIES, no_relevant: str = "zero",
    ) -> None:  # fmt: skip
        self._favour, self._average = TIE_RULES[choice("ties", ties, TIE_RULES)]
        self._without_relevant = NO_RELEVANT[choice("no_relevant", no_relevant, NO_RELEVANT)]
        self.labels = np.ascontiguousarray(as_numbers(labels, "labels"))
        self.scores = np.ascontiguousarray(as_numbers(scores, "scores"))
        if self.scores.shape != self.labels.shape:
            raise DataError(
                f"scores have shape {self.scores.shape}, expected {self.labels.shape}: one for "
                "each label"
            )
        self.offsets = _checked_offsets(offsets, len(self.labels))
        self._longest = int(np.max(np.diff(self.offsets), initial=0))
        if np.isnan(self.scores).any():
            row = int(np.isnan(self.scores).argmax())
            raise DataError(
                f"scores have NaN at {self._where(row)}, expected numbers to rank by: check their "
                "source (missing features, or a ranker that diverged)"
            )
        if k is not None:
            whole_number("k", k, least=1, or_else="None for all ranks")
        self.ranks = np.arange(1, min(k or self._longest, self._longest) + 1.0)

    def gains(self, gain: str) -> Floats:
        """Return the gain of each label, (n_items,)."""
        gain_of = GAINS[choice("gain", gain, GAINS)]
        self._check_labels(0, MAX_EXPONENT if gain == "exponential" else MAX_LABEL)
        return gain_of(self.labels)

    def discounts(self, discount: str) -> Floats:
        """Return the weight of each rank, (depth,)."""
        return DISCOUNTS[choice("discount", discount, DISCOUNTS)](self.ranks)

    def relevance(self, relevant: float) -> Floats:
        """Return 1 for each label of at least ``relevant`` and else 0, (n_items,)."""
        number("relevant", relevant, least=-MAX_LABEL, most=MAX_LABEL)
        self._check_labels(-MAX_LABEL, MAX_LABEL)
        # In float32, as in datasets: the label 0.7 is then at least 0.7.
        return (self.labels.astype(np.float32) >= np.float32(relevant)).astype(np.float64)

    def satisfaction(self, max_label: float | None) -> Floats:
        """Return (2^label − 1) / 2^max_label, the probability to stop at an item, (n_items,)."""
        if max_label is None:
            max_label = float(np.max(self.labels, initial=0))
        else:
            number("max_label", max_label, least=0, most=MAX_EXPONENT)
            self._check_labels(0, max_label)
        satisfaction: Floats = self.gains("exponential") / np.exp2(max_label)
        return satisfaction

    def measure(self, kind: str, values: Floats, weights: Floats, *, ideal: bool = False) -> Floats:
        """Rank by score (ideal: by value) and return this kind of sum per query, (n_queries,)."""
        from countersample._kernels import metrics as kernels  # noqa: PLC0415 (numba takes 0.5 s)

        scores = values if ideal else self.scores
        average = self._average and not ideal
        depth = self._longest if average else len(weights)
        order = np.empty(len(scores), np.int64)
        kernels.rank(values, scores, self.offsets, depth, self._favour, order)
        result = np.empty(len(self.offsets) - 1)
        if kind == "cascade":
            kernels.cascade(values, scores, self.offsets, order, weights, average, result)
        else:
            is_cumulative = kind == "precision_sum"
            kernels.add_up(
                values, scores, self.offsets, order, weights, average, is_cumulative, result
            )
        return result

    def total(self, values: Floats) -> Floats:
        """Return the sum of the values per query, (n_queries,)."""
        return np.add.reduceat(values, self.offsets[:-1])

    def settle(self, result: Floats, values: Floats) -> Floats:
        """Return the result, with the value of ``no_relevant`` if no value is above zero."""
        relevant = np.maximum.reduceat(values, self.offsets[:-1]) > 0
        return np.where(relevant, result, self._without_relevant)

    def _check_labels(self, lowest: float, highest: float) -> None:
        within = (self.labels >= lowest) & (self.labels <= highest)
        if not within.all():
            row = int(within.argmin())
            raise DataError(
                f"labels have {self.labels[row]:g} at {self._where(row)}, expected grades from "
                f"{lowest:g} to {highest:g}"
            )

    def _where(self, row: int) -> str:
        query = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return f"row {row} (query {query}, both counted from 0)"


def ratio(above: Floats, below: Floats) -> Floats:
    """Return above / below, or 0 if below is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _checked_offsets(values: ArrayLike, n_items: int) -> Ints:
    array = as_column(values, "offsets")
    if array.dtype.kind not in "iu" or not array.size:
        raise DataError(
            f"offsets are {len(array)} numbers of type {array.dtype}, expected integers, one more "
            "than there are queries"
        )
    offsets = np.ascontiguousarray(array, dtype=np.int64)
    if offsets[0] != 0 or offsets[-1] != n_items:
        raise DataError(
            f"offsets run from {offsets[0]} to {offsets[-1]}, expected 0 to {n_items}, the number "
            "of labels"
        )
    if np.min(np.diff(offsets), initial=1) < 1:
        query = int(np.diff(offsets).argmin())
        raise DataError(
            f"offsets give query {query} the rows {offsets[query]}:{offsets[query + 1]}, expected "
            "at least one row per query"
        )
    return offsets
