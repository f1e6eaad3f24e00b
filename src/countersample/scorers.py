"""Scorers: the function from (preprocessed) features to scores that a fitted ranker keeps.

A scorer is plain arrays. It needs neither PyTorch nor a boosting library, is saved in the ranker's
file (each class has a schema of its part), and is what `countersample.export` translates.

===============  ===================================================
`LinearScorer`   w·x
`NetworkScorer`  a fully connected network with one output
`TreesScorer`    a sum of regression trees, plus a linear part if any
===============  ===================================================
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from countersample._json import Finite, Float32, check_schema
from countersample.data.compact import linear_scores
from countersample.data.matrices import row_blocks
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

__all__ = ["LEAF", "LinearScorer", "NetworkScorer", "Scorer", "TreesScorer"]

LEAF = -1  # the feature of a node that is a leaf
MAX_FEATURES = 2**20  # of trees in a file: no list in it has that length, so it is bounded here
Index = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


def _check_width(features: Any, n_features: int) -> None:  # noqa: ANN401 (array or codes)
    shape = tuple(features.shape)
    if len(shape) != 2 or shape[1] != n_features:
        raise DataError(f"features have shape {shape}, expected (n_rows, {n_features})")


# -- Linear ----------------------------------------------------------------------------------------


class LinearSchema(msgspec.Struct):
    """A linear scorer in a file."""

    weights: list[Finite]


@dataclass(frozen=True, eq=False)
class LinearScorer:
    """score(x) = w·x, in float64.

    If trees are boosted from this scorer, `missing` has what a missing feature (NaN) adds in place
    of w·x; None if features are filled in before.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.scorers import LinearScorer
    >>> LinearScorer(np.array([1.0, -2.0])).predict(np.array([[3.0, 1.0]], np.float32))
    array([1.])
    """

    weights: NDArray[np.float64]  # (n_features,)
    missing: NDArray[np.float64] | None = None  # (n_features,)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.weights)

    def predict(self, features: Any) -> NDArray[np.float64]:  # noqa: ANN401 (array or codes)
        """Return the score of each row, float64 (n_rows,)."""
        _check_width(features, self.n_features)
        if not isinstance(features, np.ndarray):
            scores: NDArray[Any] = linear_scores(self.weights[None], features)[0]
            return scores.astype(np.float64)
        scores = np.empty(len(features))
        for rows in row_blocks(features):  # the product copies to float64
            block = features[rows]
            scores[rows] = (block if self.missing is None else np.nan_to_num(block)) @ self.weights
            if self.missing is not None:
                scores[rows] += np.isnan(block) @ self.missing
        return scores

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON stores exactly."""
        return {"weights": self.weights.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinearScorer:
        """Return the scorer that `to_dict` wrote."""
        return cls(np.array(check_schema(values, LinearSchema, "a scorer").weights, np.float64))


# -- Networks --------------------------------------------------------------------------------------


class NetworkSchema(msgspec.Struct):
    """A network in a file: the weights and biases of each layer."""

    weights: Annotated[list[list[list[Float32]]], msgspec.Meta(min_length=1)]
    biases: Annotated[list[list[Float32]], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, eq=False)
class NetworkScorer:
    """h₀ = x, h_k = max(0, W_k·h_{k−1} + b_k), score = W_K·h_{K−1} + b_K.

    Examples
    --------
    max(0, x₀ − x₁) + max(0, x₁ − x₀), which is |x₀ − x₁|, and 10·x₀ more:

    >>> import numpy as np
    >>> from countersample.scorers import NetworkScorer
    >>> first, last = np.array([[1, -1], [-1, 1]], np.float32), np.array([[1, 1]], np.float32)
    >>> scorer = NetworkScorer((first, last), (np.zeros(2, np.float32), np.zeros(1, np.float32)))
    >>> rows = np.array([[3.0, 1.0], [1.0, 1.5]], np.float32)
    >>> scorer.predict(rows), scorer.add_linear(np.array([10.0, 0.0])).predict(rows)
    (array([2. , 0.5]), array([32. , 10.5]))
    """

    weights: tuple[Matrix, ...]  # W of each layer, (n_out, n_in); the last has one row
    biases: tuple[Matrix, ...]  # b of each layer, (n_out,)

    def __post_init__(self) -> None:
        widths = [self.weights[0].shape[1], *(len(bias) for bias in self.biases)]
        shapes = [(n_out, n_in) for n_in, n_out in pairwise(widths)]
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
        _check_width(features, self.n_features)
        scores = np.empty(len(features))
        for rows in row_blocks(features):
            hidden = features[rows]
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                hidden = np.maximum(hidden @ weight.T + bias, 0)
            scores[rows] = (hidden @ self.weights[-1].T + self.biases[-1])[:, 0]
        return scores

    def add_linear(self, base: NDArray[np.float64]) -> NetworkScorer:
        """Return the network whose score is base·x more, up to float32; `base` is (n_features,).

        max(0, z) − max(0, −z) = z: two more units per hidden layer carry base·x to the output.
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
        for rows in layers.weights:
            if len({len(row) for row in rows}) != 1:
                raise DataError(
                    f"weights of a scorer are {reprlib.repr(rows)}, expected rows of equal length"
                )
        return cls(
            tuple(np.array(rows, np.float32) for rows in layers.weights),
            tuple(np.array(bias, np.float32) for bias in layers.biases),
        )


# -- Trees -----------------------------------------------------------------------------------------


class TreesSchema(msgspec.Struct):
    """Trees in a file."""

    n_features: Annotated[int, msgspec.Meta(ge=0, le=MAX_FEATURES)]
    roots: list[Index]
    feature: list[Index]
    threshold: list[float]  # may be infinite
    left: list[Index]
    right: list[Index]
    value: list[Finite]
    base: list[Finite] | None = None
    missing_left: list[bool] | None = None
    base_missing: list[Finite] | None = None


_TREE_TYPES: dict[str, type[np.generic]] = {
    "roots": np.int64, "feature": np.int32, "threshold": np.float32, "left": np.int32,
    "right": np.int32, "value": np.float64, "base": np.float64, "missing_left": np.bool_,
    "base_missing": np.float64,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class TreesScorer:
    """score(x) = base·x + Σ_trees value of the leaf that x falls into, in float64.

    Trees are lists of nodes, one after the other. In node i, x goes to node ``left[i]`` if
    x[feature[i]] ≤ threshold[i], and to ``right[i]`` if not; a leaf has the feature −1. A missing
    value (NaN) goes left if ``missing_left[i]`` is set, and right if not. Nodes are numbered over
    all trees, and children have larger numbers than their parent.

    A linear scorer that the trees were boosted from is `base`; a missing feature adds
    `base_missing` in place of base·x.

    Examples
    --------
    One tree: 2 if x₁ ≤ 0.5, else 7; and the same, boosted from 10·x₀.

    >>> import numpy as np
    >>> from countersample.scorers import TreesScorer
    >>> scorer = TreesScorer.from_dict({
    ...     "n_features": 2, "roots": [0], "feature": [1, -1, -1], "threshold": [0.5, 0, 0],
    ...     "left": [1, 0, 0], "right": [2, 0, 0], "value": [0, 2, 7],
    ... })
    >>> rows = np.array([[9.0, 0.5], [9.0, 0.6]], np.float32)
    >>> scorer.predict(rows)
    array([2., 7.])
    >>> TreesScorer.from_dict(scorer.to_dict() | {"base": [10.0, 0.0]}).predict(rows)
    array([92., 97.])
    """

    n_features: int
    roots: NDArray[np.int64]  # (n_trees,), the first node of each tree
    feature: NDArray[np.int32]  # (n_nodes,), as the next four
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]  # of leaves; 0 for other nodes
    base: NDArray[np.float64] | None = None  # (n_features,)
    missing_left: NDArray[np.bool_] | None = None  # (n_nodes,); None if training missed nothing
    base_missing: NDArray[np.float64] | None = None  # (n_features,), with base and missing_left

    @property
    def n_trees(self) -> int:
        """The number of trees."""
        return len(self.roots)

    @property
    def is_inner(self) -> NDArray[np.bool_]:
        """Whether each node has children, (n_nodes,)."""
        is_inner: NDArray[np.bool_] = self.feature != LEAF
        return is_inner

    @property
    def linear_part(self) -> LinearScorer | None:
        """The scorer that the trees were boosted from; None if there is none."""
        return None if self.base is None else LinearScorer(self.base, self.base_missing)

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the score of each row, float64 (n_rows,)."""
        from countersample._kernels.features import add_up_trees  # noqa: PLC0415 (numba)

        _check_width(features, self.n_features)
        linear, missing_left = self.linear_part, self.missing_left
        scores = np.zeros(len(features)) if linear is None else linear.predict(features)
        if missing_left is None:
            missing_left = np.zeros(len(self.feature), np.bool_)
        add_up_trees(
            np.ascontiguousarray(features, np.float32), self.roots, self.feature, self.threshold,
            missing_left, self.left, self.right, self.value, scores,
        )  # fmt: skip
        return scores

    def fill_missing(self, fill: NDArray[np.float64]) -> TreesScorer:
        """Return the scorer that scores a missing value as the value of its feature in `fill`."""
        return replace(
            self,
            missing_left=self.is_inner & (fill[self.feature] <= self.threshold),
            base_missing=None if self.base is None else self.base * fill,
        )

    def add_trees(self, other: TreesScorer) -> TreesScorer:
        """Return the scorer whose score is the sum of both; `other` has no linear part.

        It takes missing values if this scorer does, or if this one has no linear part and `other`
        does.
        """
        n_nodes = len(self.feature)
        shifted = {
            "roots": other.roots + n_nodes,
            "left": (other.left + n_nodes * other.is_inner).astype(np.int32),
            "right": (other.right + n_nodes * other.is_inner).astype(np.int32),
        }
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), shifted.get(name, getattr(other, name))])
            for name in ("roots", "feature", "threshold", "left", "right", "value")
        }
        if self.missing_left is not None or (self.base is None and other.missing_left is not None):
            arrays["missing_left"] = np.concatenate([
                np.zeros(len(each.feature), np.bool_) if each.missing_left is None
                else each.missing_left
                for each in (self, other)
            ])  # fmt: skip
        return replace(self, **arrays)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON stores exactly."""
        arrays = {name: getattr(self, name) for name in _TREE_TYPES}
        values = {name: each.tolist() for name, each in arrays.items() if each is not None}
        return {"n_features": self.n_features} | values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TreesScorer:
        """Return the scorer that `to_dict` wrote."""
        trees = check_schema(values, TreesSchema, "a scorer")
        lists = {name: getattr(trees, name) for name in _TREE_TYPES}
        with np.errstate(over="ignore"):  # a large threshold is infinite
            arrays: dict[str, Any] = {
                name: None if each is None else np.array(each, _TREE_TYPES[name])
                for name, each in lists.items()
            }
        scorer = cls(trees.n_features, **arrays)
        scorer._check()
        return scorer

    def _check(self) -> None:
        """Reject arrays that would lead the compiled loop out of bounds, or in circles."""
        n_nodes, n_features = len(self.feature), self.n_features
        has_both = self.base is not None and self.missing_left is not None
        for name, shape in {
            **dict.fromkeys(("threshold", "left", "right", "value"), (n_nodes,)),
            "base": None if self.base is None else (n_features,),
            "missing_left": None if self.missing_left is None else (n_nodes,),
            "base_missing": (n_features,) if has_both else None,
        }.items():
            array = getattr(self, name)
            if (None if array is None else array.shape) != shape:
                raise DataError(
                    f"{name} of trees has the shape {None if array is None else array.shape}, "
                    f"expected {shape}"
                )
        if np.isnan(self.threshold).any():
            raise DataError("threshold of a scorer has NaN, expected numbers")
        nodes = np.arange(n_nodes)
        parents = np.flatnonzero(self.is_inner)
        children = np.concatenate([self.left[parents], self.right[parents]])
        is_sound = (
            ((self.feature >= LEAF) & (self.feature < n_features)).all()
            and (children > np.tile(parents, 2)).all()
            # One tree after the other, with one parent per node
            and (np.diff(self.roots) > 0).all()
            and np.array_equal(np.sort(np.concatenate([self.roots, children])), nodes)
        )
        if is_sound:
            tree = np.searchsorted(self.roots, nodes, side="right")
            is_sound = (tree[children] == np.tile(tree[parents], 2)).all()
        if not is_sound:
            raise DataError(
                "trees share nodes, or have a node that leads nowhere, expected one tree after the "
                "other, each node with one parent"
            )


Scorer = LinearScorer | NetworkScorer | TreesScorer
