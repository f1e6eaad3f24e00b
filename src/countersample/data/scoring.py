"""Scores of the items of a dataset, as given or by a ranker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample.data.dataset import RankingDataset


def linear_scores(weights: NDArray[Any], features: Any) -> NDArray[np.float32]:  # noqa: ANN401 (array or codes)
    """W·xᵀ, float32 (n_weights, n_items), of weights (n_weights, n_features); codes stay codes.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.data.scoring import linear_scores
    >>> linear_scores(np.array([[1.0, -2.0]]), np.array([[3.0, 1.0]], np.float32))
    array([[1.]], dtype=float32)
    """
    if not isinstance(features, np.ndarray):
        scores: NDArray[np.float32] = features.scores(np.asarray(weights, np.float64))
        return scores
    with np.errstate(invalid="ignore"):  # OpenBLAS looks at memory beside narrow matrices, too
        product: NDArray[np.float32] = np.asarray(weights, np.float32) @ features.T
    return product


class Ranker(Protocol):
    """Anything that scores items by their features."""

    def predict(self, features: NDArray[np.float32], /) -> ArrayLike:
        """Return a score for each row of features, (n_items,); larger ranks higher."""


def scores_of(scores_or_ranker: Any, dataset: RankingDataset) -> Any:  # noqa: ANN401 (array-like)
    """Return the scores given, or those that a ranker's ``predict`` gives the items of a dataset.

    A ranker of this package gets the dataset itself, and with it the names of features and the
    queries; any other gets the features. A function gets the dataset.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.data.scoring import scores_of
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 1], qid=["a", "a"])
    >>> scores_of([2.0, 1.0], data)
    [2.0, 1.0]
    >>> scores_of(lambda items: -items.features[:, 0], data)
    array([-0.1, -0.9], dtype=float32)
    """
    if not hasattr(scores_or_ranker, "predict"):
        return scores_or_ranker(dataset) if callable(scores_or_ranker) else scores_or_ranker
    takes_datasets = getattr(scores_or_ranker, "takes_datasets", False)
    return scores_or_ranker.predict(dataset if takes_datasets else dataset.features)
