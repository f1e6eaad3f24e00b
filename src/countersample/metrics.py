"""Metrics of ranked lists: labels, scores and offsets in, one value a query out.

Every metric is called alike, and by name through `get_metric` (``"ndcg@10"``)::

    metric(labels, scores, offsets, k=None, **options) -> float64 array (n_queries,)

What the arguments mean is said here once, for all of them.

labels : array (n_items,)
    Relevance grades, finite and not negative (binary metrics take any finite number).
scores : array (n_items,)
    Items are ranked by score, largest first; infinities are fine, NaN is refused.
offsets : integer array (n_queries + 1,)
    The items of query q are the rows ``offsets[q]:offsets[q + 1]``, at least one.
k : int, optional
    Only ranks 1..k count; the whole list where it is left out.

The options, and the metrics that take them; any other is refused.

gain : {"exponential", "linear"} — `ndcg`, `dcg`
    What a label y is worth: 2^y − 1 (the default) or y.
discount : {"log2", "letor"} — `ndcg`, `dcg`
    What rank r is worth: 1/log2(1 + r) (the default), or 1 at ranks 1 and 2 and then 1/log2(r), as
    in the published LETOR results.
relevant : float — `precision`, `average_precision`, `mrr`
    The smallest label that counts as relevant, by default 1. For the other metrics, an item is
    relevant if its label is above 0.
max_label : float — `err`
    The top of the grading scale, by default the largest of the labels given.
ties : {"file", "best", "worst", "expected"} — all
    How items of equal score are ranked: in the order of the rows (the default), the most relevant
    first, the least relevant first, or, as "expected", the exact mean over all their orders.
no_relevant : {"zero", "one", "skip"} — all
    What a query without relevant items scores: 0 (the default), 1, or NaN, which `evaluate` leaves
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

from countersample._ranked import RankedLists, ratio
from countersample.errors import ParameterError
from countersample.options import TIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats

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


def dcg(
    labels: ArrayLike,
    scores: ArrayLike,
    offsets: ArrayLike,
    k: int | None = None,
    *,
    gain: str = "exponential",
    discount: str = "log2",
    ties: str = TIES,
    no_relevant: str = "zero",
) -> Floats:
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
    lists = RankedLists(labels, scores, offsets, k=k, ties=ties, no_relevant=no_relevant)
    gains = lists.gains(gain)
    return lists.settle(lists.measure("additive", gains, lists.discounts(discount)), gains)


def ndcg(
    labels: ArrayLike,
    scores: ArrayLike,
    offsets: ArrayLike,
    k: int | None = None,
    *,
    gain: str = "exponential",
    discount: str = "log2",
    ties: str = TIES,
    no_relevant: str = "zero",
) -> Floats:
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
    lists = RankedLists(labels, scores, offsets, k=k, ties=ties, no_relevant=no_relevant)
    gains, discounts = lists.gains(gain), lists.discounts(discount)
    result = lists.measure("additive", gains, discounts)
    ideal = lists.measure("additive", gains, discounts, ideal=True)
    return lists.settle(ratio(result, ideal), gains)


def arp(
    labels: ArrayLike,
    scores: ArrayLike,
    offsets: ArrayLike,
    k: None = None,
    *,
    ties: str = TIES,
    no_relevant: str = "skip",
) -> Floats:
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
    lists = RankedLists(labels, scores, offsets, k=k, ties=ties, no_relevant=no_relevant)
    weights = lists.gains("linear")
    positions = lists.measure("additive", weights, lists.ranks)
    return lists.settle(ratio(positions, lists.total(weights)), weights)


def precision(
    labels: ArrayLike,
    scores: ArrayLike,
    offsets: ArrayLike,
    k: int | None = None,
    *,
    relevant: float = 1,
    ties: str = TIES,
    no_relevant: str = "zero",
) -> Floats:
    """P@k = (number of relevant items at ranks 1..k) / k.

    It is divided by k also where a query has fewer than k items, and by the number of items where
    k is left out. Arguments and options: see `countersample.metrics`.

    Examples
    --------
    One of the first two is relevant:

    >>> from countersample.metrics import precision
    >>> precision([1, 0, 2], [0.9, 0.5, 0.1], [0, 3], k=2)
    array([0.5])
    """
    lists = RankedLists(labels, scores, offsets, k=k, ties=ties, no_relevant=no_relevant)
    relevance = lists.relevance(relevant)
    found = lists.measure("additive", relevance, np.ones_like(lists.ranks))
    return lists.settle(found / (k or np.diff(lists.offsets)), relevance)


def average_precision(
    labels: ArrayLike,
    scores: ArrayLike,
    offsets: ArrayLike,
    k: int | None = None,
    *,
    relevant: float = 1,
    ties: str = TIES,
    no_relevant: str = "zero",
) -> Floats:
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
    lists = RankedLists(labels, scores, offsets, k=k, ties=ties, no_relevant=no_relevant)
    relevance = lists.relevance(relevant)
    precisions = lists.measure("precision_sum", relevance, 1 / lists.ranks)
    return lists.settle(ratio(precisions, lists.total(relevance)), relevance)


def mrr(
    labels: ArrayLike,
    scores: ArrayLike,
    offsets: ArrayLike,
    k: int | None = None,
    *,
    relevant: float = 1,
    ties: str = TIES,
    no_relevant: str = "zero",
) -> Floats:
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
    lists = RankedLists(labels, scores, offsets, k=k, ties=ties, no_relevant=no_relevant)
    relevance = lists.relevance(relevant)
    return lists.settle(lists.measure("cascade", relevance, 1 / lists.ranks), relevance)


def err(
    labels: ArrayLike,
    scores: ArrayLike,
    offsets: ArrayLike,
    k: int | None = None,
    *,
    max_label: float | None = None,
    ties: str = TIES,
    no_relevant: str = "zero",
) -> Floats:
    """ERR@k = Σ_{r≤k} (1/r) · p_r · Π_{i<r} (1 − p_i), where p = (2^label − 1) / 2^max_label.

    Expected reciprocal rank (Chapelle et al., CIKM 2009): the mean of 1/r over the rank r at which
    a user stops who goes down the list and is satisfied by an item with probability p. Give
    max_label where the labels at hand may lack the top grade. Arguments and options: see
    `countersample.metrics`.

    Examples
    --------
    Grades 1 and 2 of at most 2, p = 1/4 and 3/4: 1/4 + (1/2) · (3/4) · (1 − 1/4) = 17/32.

    >>> from countersample.metrics import err
    >>> err([1, 2], [0.9, 0.5], [0, 2])
    array([0.53125])
    """
    lists = RankedLists(labels, scores, offsets, k=k, ties=ties, no_relevant=no_relevant)
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
        One of `METRICS`, and a cut-off after ``@`` if wanted.
    **options
        As the metric takes them: see `countersample.metrics`.

    Returns
    -------
    callable (labels, scores, offsets) -> float64 array (n_queries,)

    Raises
    ------
    ParameterError
        For a name that is not known or an option that this metric does not take.

    Examples
    --------
    >>> from countersample.metrics import get_metric
    >>> get_metric("dcg@2", gain="linear")([3, 1, 2], [0.9, 0.5, 0.1], [0, 3]).round(4)
    array([3.6309])
    """
    metric, at, cut = name.partition("@")
    if metric not in METRICS or (at and not cut.isdecimal()):
        raise ParameterError(
            f"metric {name!r} is not known, expected one of {', '.join(METRICS)}, with a cut-off "
            "if wanted, as in 'ndcg@10'"
        )
    parameters = inspect.signature(METRICS[metric]).parameters.values()
    taken = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for option in options:
        if option not in taken:
            raise ParameterError(f"{metric} takes no {option!r}, its options: {', '.join(taken)}")
    return partial(METRICS[metric], k=int(cut) if at else None, **options)
