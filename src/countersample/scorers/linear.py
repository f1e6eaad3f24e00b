"""score(x) = w·x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from countersample._schemas import Finite, check_schema
from countersample.data.columns import row_blocks
from countersample.data.scoring import linear_scores
from countersample.scorers._checks import check_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class LinearSchema(msgspec.Struct):
    """A linear scorer in a file."""

    weights: list[Finite]


@dataclass(frozen=True, eq=False)
class LinearScorer:
    """score(x) = w·x, in float64.

    Attributes
    ----------
    weights : float64 (n_features,)
    missing : float64 (n_features,), optional
        What a missing feature (NaN) adds in place of w·x, if trees are boosted from this scorer;
        None if features are filled in before.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.scorers import LinearScorer
    >>> LinearScorer(np.array([1.0, -2.0])).predict(np.array([[3.0, 1.0]], np.float32))
    array([1.])
    """

    weights: NDArray[np.float64]
    missing: NDArray[np.float64] | None = None

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.weights)

    def predict(self, features: Any) -> NDArray[np.float64]:  # noqa: ANN401 (array or codes)
        """Return the score of each row, float64 (n_rows,)."""
        check_width(features, self.n_features)
        if not isinstance(features, np.ndarray):
            by_codes: NDArray[np.float64] = linear_scores(self.weights[None], features)[0].astype(
                np.float64
            )
            return by_codes
        scores = np.empty(len(features))
        for rows in row_blocks(features):  # the product copies to float64
            block = features[rows]
            scores[rows] = (block if self.missing is None else np.nan_to_num(block)) @ self.weights
            if self.missing is not None:
                scores[rows] += np.isnan(block) @ self.missing
        return scores

    def arranged(self, order: NDArray[np.int64]) -> LinearScorer:
        """Return the scorer of other features: `order` has their old indices, −1 for a new one.

        A new feature has the weight 0.
        """
        missing = None if self.missing is None else np.where(order >= 0, self.missing[order], 0.0)
        return LinearScorer(np.where(order >= 0, self.weights[order], 0.0), missing)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON stores exactly."""
        return {"weights": self.weights.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinearScorer:
        """Return the scorer that `to_dict` wrote."""
        return cls(np.array(check_schema(values, LinearSchema, "a scorer").weights, np.float64))
