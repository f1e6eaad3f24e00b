"""How good a ranker is: means of metrics over judged queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from countersample.errors import DataError
from countersample.metrics import get_metric

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from countersample.data import RankingDataset

__all__ = ["Ranker", "evaluate"]


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
    if hasattr(scores_or_ranker, "predict"):
        scores = scores_or_ranker.predict(dataset.features)
    else:
        scores = scores_or_ranker
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
