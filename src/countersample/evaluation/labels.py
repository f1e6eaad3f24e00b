"""Evaluation on labelled queries: means of metrics."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from countersample._environment import available_cores
from countersample._frames import Tabular
from countersample.data.compact import linear_scores
from countersample.data.dataset import Ranker, scores_of
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
    """The values of metrics per query: see `evaluate`."""

    query_ids: NDArray[Any]  # in the order of the dataset, (n_queries,)
    values: dict[str, Floats]  # by the name of the metric; NaN for a query that a metric skips

    def __getitem__(self, metric: str) -> Floats:
        return self.values[metric]

    @property
    def means(self) -> dict[str, float]:
        """The mean of each metric over the queries that it does not skip."""
        return {name: _mean(values, name) for name, values in self.values.items()}

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: ``query``, and one per metric."""
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
        Scores of the items, a ranker (anything with ``predict``, also the result of `train`), or a
        function of the dataset.
    dataset : RankingDataset
    metrics : str or iterable of str
        Names such as ``"ndcg@10"``: see `countersample.metrics`.
    per_query : bool
        Whether to return the values per query instead of their means.
    **options
        Passed to each metric, which must take it: see `countersample.metrics`. ``no_relevant`` is
        the value of a query without a relevant item: by default 0, and arp skips such a query.

    Examples
    --------
    >>> from countersample import RankingDataset, evaluate
    >>> data = RankingDataset.from_arrays(
    ...     X=[[0.1], [0.9], [0.5], [0.4]], y=[0, 2, 0, 1], qid=["a", "a", "b", "b"]
    ... )
    >>> evaluate(data.features[:, 0], data, ["precision@1", "mrr", "arp"])
    {'precision@1': 0.5, 'mrr': 0.75, 'arp': 1.5}
    >>> values = evaluate(data.features[:, 0], data, "mrr", per_query=True)
    >>> values["mrr"], values.means
    (array([1. , 0.5]), {'mrr': 0.75})
    >>> values.to_frame("pyarrow").to_pylist()
    [{'query': 'a', 'mrr': 1.0}, {'query': 'b', 'mrr': 0.5}]
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    functions = {name: get_metric(name, **options) for name in names}
    values = _values(functions, scores_of(scores_or_ranker, dataset), dataset)
    return values if per_query else values.means


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
    """Return the mean of a metric for each of many linear rankers, (n_rankers,).

    Their scores are one matrix product, X·Wᵀ, in blocks of rankers, with `coefs` of shape
    (n_rankers, n_features), such as `History.average_coef`. For the options see `evaluate`.

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
