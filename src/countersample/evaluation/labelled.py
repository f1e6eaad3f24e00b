"""How good a ranker is: means of metrics over judged queries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from countersample._cores import available_cores
from countersample.data.scoring import scores_of
from countersample.errors import DataError
from countersample.metrics import get_metric

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from countersample.data import RankingDataset

__all__ = ["Ranker", "evaluate", "learning_curve"]

_SCORES_AT_ONCE = 1 << 24  # 64 MB


class Ranker(Protocol):
    """Anything that scores items by their features."""

    def predict(self, features: NDArray[np.float32], /) -> ArrayLike:
        """Return a score for each row of features, (n_items,); larger ranks higher."""


def evaluate(
    scores_or_ranker: ArrayLike | Ranker,
    dataset: RankingDataset,
    metrics: str | Iterable[str],
    **options: Any,  # noqa: ANN401 (of any metric)
) -> dict[str, float]:
    """Return (1/|Q|) · Σ_{q∈Q} metric(q) for each metric, with Q the queries it does not skip.

    Parameters
    ----------
    scores_or_ranker : array-like (n_items,) or Ranker
        Scores of the items, or a ranker whose ``predict`` gives them.
    dataset : RankingDataset
    metrics : str or iterable of str
        Names such as ``"ndcg@10"``: see `countersample.metrics`.
    **options
        Handed to each metric, which must take it: see `countersample.metrics`.

    Returns
    -------
    dict of str to float
        The means by the names given, in their order.

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
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    functions = {name: get_metric(name, **options) for name in names}
    scores = scores_of(scores_or_ranker, dataset)
    return {
        name: _mean(function(dataset.labels, scores, dataset.offsets), name)
        for name, function in functions.items()
    }


def _mean(values: NDArray[np.float64], name: str) -> float:
    counted = values[~np.isnan(values)]
    if not len(counted):
        raise DataError(
            f"{name} has no query to average: of {len(values)} queries, none has a relevant item"
        )
    return float(counted.mean())


def learning_curve(
    coefs: NDArray[np.float64],
    dataset: RankingDataset,
    metric: str,
    *,
    no_relevant: str = "skip",
) -> NDArray[np.float64]:
    """Return the mean of a metric for each of many linear rankers, (n_rankers,).

    Their scores are one matrix product, X·Wᵀ, taken by blocks of rankers.

    Parameters
    ----------
    coefs : float64 (n_rankers, n_features)
        Weights, such as `History.average_coef` has them.
    dataset : RankingDataset
    metric : str
        A name such as ``"ndcg@10"``.
    no_relevant : str
        As in `countersample.metrics`; by default queries without a relevant item are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import RankingDataset
    >>> from countersample.evaluation import learning_curve
    >>> data = RankingDataset.from_arrays(X=[[1, 0], [0, 1]], y=[1, 0], qid=[1, 1])
    >>> learning_curve(np.array([[1.0, 0.0], [0.0, 1.0]]), data, "mrr")
    array([1. , 0.5])
    """
    function = get_metric(metric, no_relevant=no_relevant)
    weights = coefs.astype(np.float32)
    step = max(1, _SCORES_AT_ONCE // max(1, dataset.n_items))

    def mean_of(scores: NDArray[np.float32]) -> float:
        return _mean(function(dataset.labels, scores, dataset.offsets), metric)

    means: list[float] = []
    with ThreadPoolExecutor(available_cores()) as pool:
        for first in range(0, len(weights), step):
            scores = weights[first : first + step] @ dataset.features.T
            means += pool.map(mean_of, scores)
    return np.array(means)
