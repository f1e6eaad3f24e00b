"""score(x) = the sum of what regression trees give, and of a linear part where there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from countersample._schemas import Finite, check_schema
from countersample.errors import DataError
from countersample.scorers._checks import check_width
from countersample.scorers.linear import LinearScorer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

LEAF = -1  # in place of a feature
MAX_FEATURES = 2**20  # in a file, which has no row of that length
Index = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


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


@dataclass(frozen=True, eq=False)
class TreesScorer:
    """score(x) = base·x + Σ_trees value of the leaf that x falls into, in float64.

    Trees are lists of nodes, one after the other. In node i, x goes to node ``left[i]`` if
    x[feature[i]] ≤ threshold[i], and to ``right[i]`` if not; a leaf has the feature −1. What is
    missing (NaN) goes left where ``missing_left[i]`` is set, and right if not. The nodes of a tree
    are numbered among the nodes of all trees, and those of a node's children are larger than its
    own.

    Attributes
    ----------
    n_features : int
    roots : int64 (n_trees,)
        The first node of each tree.
    feature : int32 (n_nodes,)
    threshold : float32 (n_nodes,)
    left, right : int32 (n_nodes,)
    value : float64 (n_nodes,)
        Of leaves; 0 elsewhere.
    base : float64 (n_features,), optional
        The weights of what the trees were boosted from; None where that is 0.
    missing_left : bool (n_nodes,), optional
        None where nothing was missing in training: then the trees do not know where to go.
    base_missing : float64 (n_features,), optional
        What a feature that is missing adds to the linear part, in place of base·x; there where base
        and missing_left are.

    Examples
    --------
    One tree: 2 if x₁ ≤ 0.5, else 7.

    >>> import numpy as np
    >>> from countersample.scorers import TreesScorer
    >>> scorer = TreesScorer.from_dict({
    ...     "n_features": 2, "roots": [0], "feature": [1, -1, -1], "threshold": [0.5, 0, 0],
    ...     "left": [1, 0, 0], "right": [2, 0, 0], "value": [0, 2, 7],
    ... })
    >>> scorer.predict(np.array([[9.0, 0.5], [9.0, 0.6]], np.float32))
    array([2., 7.])

    The same, boosted from 10·x₀:

    >>> TreesScorer.from_dict(scorer.to_dict() | {"base": [10.0, 0.0]}).predict(
    ...     np.array([[9.0, 0.5], [9.0, 0.6]], np.float32)
    ... )
    array([92., 97.])
    """

    n_features: int
    roots: NDArray[np.int64]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    base: NDArray[np.float64] | None = None
    missing_left: NDArray[np.bool_] | None = None
    base_missing: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        n_nodes = len(self.feature)
        columns = (self.feature, self.threshold, self.left, self.right, self.value)
        node = np.arange(n_nodes)
        is_sound = (
            all(column.shape == (n_nodes,) for column in columns)
            and self.roots.ndim == 1
            and ((self.roots >= 0) & (self.roots < n_nodes)).all()
            and ((self.feature >= LEAF) & (self.feature < self.n_features)).all()
            and all(
                ((c > node) & (c < n_nodes))[self.feature != LEAF].all()
                for c in (self.left, self.right)
            )
        )
        if not is_sound:
            raise DataError("trees have a node that leads nowhere, expected each to end in leaves")
        if self.base is not None and self.base.shape != (self.n_features,):
            raise DataError(
                f"the linear part of trees has the shape {self.base.shape}, expected "
                f"({self.n_features},): a weight for each feature"
            )
        if self.missing_left is not None and self.missing_left.shape != (n_nodes,):
            raise DataError(
                f"missing_left of trees has the shape {self.missing_left.shape}, expected "
                f"({n_nodes},): one for each node"
            )
        needs = self.base is not None and self.missing_left is not None
        shape = None if self.base_missing is None else self.base_missing.shape
        if shape != ((self.n_features,) if needs else None):
            raise DataError(
                f"base_missing of trees has the shape {shape}, expected ({self.n_features},) where "
                "there are base and missing_left, and none elsewhere"
            )

    @property
    def n_trees(self) -> int:
        """The number of trees."""
        return len(self.roots)

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the score of each row, float64 (n_rows,)."""
        from countersample._kernels.trees import add_up  # noqa: PLC0415 (numba)

        check_width(features, self.n_features)
        scores = np.zeros(len(features))
        if self.base is not None:
            scores = LinearScorer(self.base, self.base_missing).predict(features)
        missing_left = self.missing_left
        if missing_left is None:
            missing_left = np.zeros(len(self.feature), np.bool_)
        add_up(
            np.ascontiguousarray(features, np.float32), self.roots, self.feature, self.threshold,
            missing_left, self.left, self.right, self.value, scores,
        )  # fmt: skip
        return scores

    def arranged(self, order: NDArray[np.int64]) -> TreesScorer:
        """Return the scorer of other features: `order` says which each was, −1 if it is new.

        A feature that trees split at has to be among them.
        """
        now = np.full(self.n_features, -1)
        now[order[order >= 0]] = np.flatnonzero(order >= 0)
        inner = self.feature != LEAF
        feature = np.where(inner, now[self.feature], LEAF)
        if (feature[inner] < 0).any():
            raise DataError(
                "trees split at a feature that is no longer there, or was constant, expected all "
                "that they split at: give them that feature, or train anew"
            )
        scorer = replace(
            self, n_features=len(order), feature=feature.astype(np.int32), base=None,
            base_missing=None, missing_left=None,
        )  # fmt: skip
        if self.base is None:
            return replace(scorer, missing_left=self.missing_left)
        base = LinearScorer(self.base, self.base_missing).arranged(order)
        return replace(
            scorer, base=base.weights, base_missing=base.missing, missing_left=self.missing_left
        )

    @property
    def counting(self) -> NDArray[np.int64]:
        """The features that trees ask for, or that count where they are missing."""
        asked = np.unique(self.feature[self.feature != LEAF]).astype(np.int64)
        missing = np.zeros(0, np.int64)
        if self.base_missing is not None:
            missing = np.flatnonzero(self.base_missing)
        return np.union1d(asked, missing).astype(np.int64)

    def filling(self, fill: NDArray[np.float64]) -> TreesScorer:
        """Return the scorer that takes a missing value for that of its feature in `fill`."""
        inner = self.feature != LEAF
        return replace(
            self,
            missing_left=inner & (fill[self.feature] <= self.threshold),
            base_missing=None if self.base is None else self.base * fill,
        )

    def plus(self, other: TreesScorer) -> TreesScorer:
        """Return the scorer whose score is the sum of both; the other has no linear part.

        It takes missing values where this one does, or where it has no linear part and the other
        does.

        Examples
        --------
        >>> import numpy as np
        >>> from countersample.scorers import TreesScorer
        >>> one, two = (
        ...     TreesScorer.from_dict({
        ...         "n_features": 1, "roots": [0], "feature": [0, -1, -1], "threshold": [at, 0, 0],
        ...         "left": [1, 0, 0], "right": [2, 0, 0], "value": [0, 0, 1],
        ...     })
        ...     for at in (1.5, 2.5)
        ... )
        >>> one.plus(two).predict(np.array([[1], [2], [3]], np.float32))
        array([0., 1., 2.])
        """
        n_nodes, inner = len(self.feature), other.feature != LEAF
        moved = {
            "roots": other.roots + n_nodes,
            "left": (other.left + n_nodes * inner).astype(np.int32),
            "right": (other.right + n_nodes * inner).astype(np.int32),
        }
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), moved.get(name, getattr(other, name))])
            for name in ("roots", "feature", "threshold", "left", "right", "value")
        }
        knows = self.missing_left is not None or (
            self.base is None and other.missing_left is not None
        )
        if knows:
            joined["missing_left"] = np.concatenate([
                np.zeros(len(each.feature), np.bool_) if each.missing_left is None
                else each.missing_left
                for each in (self, other)
            ])  # fmt: skip
        return replace(self, **joined)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON stores exactly."""
        arrays = {name: getattr(self, name) for name in _TYPES}
        values = {name: each.tolist() for name, each in arrays.items() if each is not None}
        return {"n_features": self.n_features} | values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TreesScorer:
        """Return the scorer that `to_dict` wrote."""
        trees = check_schema(values, TreesSchema, "a scorer")
        lists = {name: getattr(trees, name) for name in _TYPES}
        with np.errstate(over="ignore"):  # a large threshold is infinite
            arrays: dict[str, Any] = {
                name: None if each is None else np.array(each, _TYPES[name])
                for name, each in lists.items()
            }
        scorer = cls(trees.n_features, **arrays)
        if np.isnan(scorer.threshold).any():
            raise DataError("threshold of a scorer has NaN, expected numbers")
        scorer._check_layout()
        return scorer

    def _check_layout(self) -> None:
        """Reject nodes that are not one tree after the other, with one parent per node."""
        inner = self.feature != LEAF
        parents = np.flatnonzero(inner)
        below = np.concatenate([self.left[inner], self.right[inner]])
        tree_of = np.searchsorted(self.roots, np.arange(len(self.feature)), side="right")
        every = np.sort(np.concatenate([self.roots, below]))
        is_sound = (
            (np.diff(self.roots) > 0).all()
            and np.array_equal(every, np.arange(len(self.feature)))
            and (tree_of[below] == np.tile(tree_of[parents], 2)).all()
        )
        if not is_sound:
            raise DataError(
                "trees share nodes or have nodes without a tree, expected one tree after the other"
            )


_TYPES: dict[str, type[np.generic]] = {
    "roots": np.int64, "feature": np.int32, "threshold": np.float32, "left": np.int32,
    "right": np.int32, "value": np.float64, "base": np.float64, "missing_left": np.bool_,
    "base_missing": np.float64,
}  # fmt: skip
