"""score(x) = a fully connected network with one output."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from countersample._schemas import Float32, check_schema
from countersample.data.columns import row_blocks
from countersample.errors import DataError
from countersample.scorers._checks import check_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]


class NetworkSchema(msgspec.Struct):
    """A network in a file: the weights and biases of each layer."""

    weights: Annotated[list[list[list[Float32]]], msgspec.Meta(min_length=1)]
    biases: Annotated[list[list[Float32]], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, eq=False)
class NetworkScorer:
    """h₀ = x, h_k = max(0, W_k·h_{k−1} + b_k), score = W_K·h_{K−1} + b_K.

    Attributes
    ----------
    weights : tuple of float32 (n_out, n_in)
        W of each layer; the last has one row.
    biases : tuple of float32 (n_out,)

    Examples
    --------
    max(0, x₀ − x₁) + max(0, x₁ − x₀), which is |x₀ − x₁|:

    >>> import numpy as np
    >>> from countersample.scorers import NetworkScorer
    >>> first, last = np.array([[1, -1], [-1, 1]], np.float32), np.array([[1, 1]], np.float32)
    >>> scorer = NetworkScorer((first, last), (np.zeros(2, np.float32), np.zeros(1, np.float32)))
    >>> scorer.predict(np.array([[3.0, 1.0], [1.0, 1.5]], np.float32))
    array([2. , 0.5])
    """

    weights: tuple[Matrix, ...]
    biases: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        widths = [self.weights[0].shape[1], *(len(bias) for bias in self.biases)]
        shapes = [(out, into) for into, out in pairwise(widths)]
        if [matrix.shape for matrix in self.weights] != shapes or widths[-1] != 1:
            raise DataError(
                f"layers of a network have shapes {[m.shape for m in self.weights]}, expected each "
                "to fit the output of the one before, and one output of the last"
            )

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self.weights[0].shape[1])

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the score of each row, computed in float32, as float64 (n_rows,)."""
        check_width(features, self.n_features)
        scores = np.empty(len(features))
        for rows in row_blocks(features):
            hidden = features[rows]
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                hidden = np.maximum(hidden @ weight.T + bias, 0)
            scores[rows] = (hidden @ self.weights[-1].T + self.biases[-1])[:, 0]
        return scores

    def plus_linear(self, base: NDArray[np.float64]) -> NetworkScorer:
        """Return the network whose score is base·x more, up to float32.

        max(0, z) − max(0, −z) = z: two units more in each hidden layer carry base·x to the end.

        Parameters
        ----------
        base : float64 (n_features,)

        Examples
        --------
        |x₀ − x₁| + 10·x₀:

        >>> import numpy as np
        >>> from countersample.scorers import NetworkScorer
        >>> first, last = np.array([[1, -1], [-1, 1]], np.float32), np.array([[1, 1]], np.float32)
        >>> biases = np.zeros(2, np.float32), np.zeros(1, np.float32)
        >>> scorer = NetworkScorer((first, last), biases).plus_linear(np.array([10.0, 0.0]))
        >>> scorer.weights[0].shape, scorer.predict(np.array([[3.0, 1.0]], np.float32))
        ((4, 2), array([32.]))
        """
        row = np.asarray(base, np.float32)[None]
        *hidden, last = self.weights
        if not hidden:
            return NetworkScorer((last + row,), self.biases)
        weights = [np.vstack([hidden[0], row, -row])]
        for matrix in hidden[1:]:
            wide = np.zeros((matrix.shape[0] + 2, matrix.shape[1] + 2), np.float32)
            wide[:-2, :-2], wide[-2:, -2:] = matrix, np.eye(2)
            weights.append(wide)
        weights.append(np.append(last, np.array([[1, -1]], np.float32), axis=1))
        biases = [np.append(bias, np.zeros(2, np.float32)) for bias in self.biases[:-1]]
        return NetworkScorer(tuple(weights), (*biases, self.biases[-1]))

    def arranged(self, order: NDArray[np.int64]) -> NetworkScorer:
        """Return the scorer of other features: `order` has their old indices, −1 for a new one.

        A new feature has the weight 0.
        """
        first = np.where(order >= 0, self.weights[0][:, order], np.float32(0))
        return NetworkScorer((np.ascontiguousarray(first), *self.weights[1:]), self.biases)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON stores exactly."""
        return {
            "weights": [matrix.tolist() for matrix in self.weights],
            "biases": [bias.tolist() for bias in self.biases],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NetworkScorer:
        """Return the scorer that `to_dict` wrote."""
        layers = check_schema(values, NetworkSchema, "a scorer")
        return cls(
            tuple(_as_matrix(rows) for rows in layers.weights),
            tuple(np.array(bias, np.float32) for bias in layers.biases),
        )


def _as_matrix(rows: list[list[float]]) -> Matrix:
    if len({len(row) for row in rows}) != 1:
        raise DataError(
            f"weights of a scorer are {reprlib.repr(rows)}, expected rows of equal length"
        )
    return np.array(rows, np.float32)
