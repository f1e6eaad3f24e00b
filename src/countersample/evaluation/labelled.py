"""How good a ranker is: means of metrics over labelled (judged) queries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from countersample._cores import available_cores
from countersample._frames import Tabular
from countersample.data.scoring import Ranker, linear_scores, scores_of
from countersample.errors import DataError
from countersample.metrics import get_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.data import RankingDataset

_SCORES_AT_ONCE = 1 << 24  # 64 MB


@dataclass(frozen=True, eq=False)
class QueryValues(Tabular):
    """What metrics are of each query: see `evaluate`.

    Attributes
    ----------
    query_ids : array (n_queries,)
        In the order of the dataset.
    values : dict of str to float64 (n_queries,)
        By the names of the metrics; NaN for a query that a metric skips.
    """

    query_ids: NDArray[Any]
    values: dict[str, Floats]

    def __getitem__(self, metric: str) -> Floats:
        return self.values[metric]

    @property
    def means(self) -> dict[str, float]:
        """The mean of each metric over the queries that it does not skip, as of `evaluate`."""
        return {name: _mean(values, name) for name, values in self.values.items()}

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: ``query``, and one for each metric."""
        return {"query": self.query_ids, **self.values}


@overload
def evaluate(
    scores_or_ranker: ArrayLike | Ranker,
    dataset: RankingDataset,
    metrics: str | Iterable[str],
    *,
    per_query: Literal[False] = False,
    **options: Any,  # noqa: ANN401 (of any metric)
) -> dict[str, float]: ...
@overload
def evaluate(
    scores_or_ranker: ArrayLike | Ranker,
    dataset: RankingDataset,
    metrics: str | Iterable[str],
    *,
    per_query: Literal[True],
    **options: Any,  # noqa: ANN401 (of any metric)
) -> QueryValues: ...
def evaluate(
    scores_or_ranker: ArrayLike | Ranker,
    dataset: RankingDataset,
    metrics: str | Iterable[str],
    *,
    per_query: bool = False,
    **options: Any,
) -> dict[str, float] | QueryValues:
    """Return (1/|Q|) · Σ_{q∈Q} metric(q) for each metric, with Q the queries it does not skip.

    Parameters
    ----------
    scores_or_ranker : array-like (n_items,) or Ranker
        Scores of the items, or what gives them: a ranker (anything with ``predict``, also what
        `train` returns) or a function of the dataset.
    dataset : RankingDataset
    metrics : str or iterable of str
        Names such as ``"ndcg@10"``: see `countersample.metrics`.
    per_query : bool
        Whether to return the values of each query instead of their means.
    **options
        Handed to each metric, which must take it: see `countersample.metrics`. ``no_relevant`` says
        what a query without a relevant item counts: by default 0, and for arp such a query is
        skipped.

    Returns
    -------
    dict of str to float, or QueryValues
        The means by the names given, in their order; or the values of each query.

    Raises
    ------
    ParameterError
        For a name or an option that is not known.
    DataError
        For scores that do not fit the dataset, or where no query is left to average.

    Examples
    --------
    >>> from countersample import RankingDataset, evaluate
    >>> data = RankingDataset.from_arrays(
    ...     X=[[0.1], [0.9], [0.5], [0.4]], y=[0, 2, 0, 1], qid=["a", "a", "b", "b"]
    ... )
    >>> evaluate(data.features[:, 0], data, ["precision@1", "mrr", "arp"])
    {'precision@1': 0.5, 'mrr': 0.75, 'arp': 1.5}
    >>> found = evaluate(data.features[:, 0], data, "mrr", per_query=True)
    >>> found["mrr"], found.means
    (array([1. , 0.5]), {'mrr': 0.75})
    >>> found.to_frame("pyarrow").to_pylist()
    [{'query': 'a', 'mrr': 1.0}, {'query': 'b', 'mrr': 0.5}]
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    functions = {name: get_metric(name, **options) for name in names}
    found = _values(functions, scores_of(scores_or_ranker, dataset), dataset)
    return found if per_query else found.means


def _values(
    functions: Mapping[str, Callable[..., Floats]], scores: ArrayLike, dataset: RankingDataset
) -> QueryValues:
    values = {
        name: function(dataset.labels, scores, dataset.offsets)
        for name, function in functions.items()
    }
    return QueryValues(dataset.query_ids, values)


def _mean(values: Floats, name: str) -> float:
    counted = values[~np.isnan(values)]
    if not len(counted):
        raise DataError(
            f"{name} has no query to average: of {len(values)} queries, none has a relevant item"
        )
    return float(counted.mean())


def learning_curve(
    coefs: Floats,
    dataset: RankingDataset,
    metric: str,
    **options: Any,  # noqa: ANN401 (of the metric)
) -> Floats:
    """Return the mean of a metric for each of many linear rankers, (n_rankers,): their `evaluate`.

    Their scores are one matrix product, X·Wᵀ, taken by blocks of rankers.

    Parameters
    ----------
    coefs : float64 (n_rankers, n_features)
        Weights, such as `History.average_coef` has them.
    dataset : RankingDataset
    metric : str
        A name such as ``"ndcg@10"``.
    **options
        As for `evaluate`: ``no_relevant="skip"`` leaves out queries without a relevant item.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import RankingDataset
    >>> from countersample.evaluation import learning_curve
    >>> data = RankingDataset.from_arrays(X=[[1, 0], [0, 1]], y=[1, 0], qid=[1, 1])
    >>> learning_curve(np.array([[1.0, 0.0], [0.0, 1.0]]), data, "mrr")
    array([1. , 0.5])
    """
    functions = {metric: get_metric(metric, **options)}
    weights = coefs.astype(np.float32)
    step = max(1, _SCORES_AT_ONCE // max(1, dataset.n_items))

    def mean_of(scores: NDArray[np.float32]) -> float:
        return _values(functions, scores, dataset).means[metric]

    means: list[float] = []
    with ThreadPoolExecutor(available_cores()) as pool:
        for first in range(0, len(weights), step):
            scores = linear_scores(weights[first : first + step], dataset.features)
            means += pool.map(mean_of, scores)
    return np.array(means)
