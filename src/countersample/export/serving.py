"""What a card says of serving: what a ranker needs, an example in numbers, the time of a query."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import pages
from countersample._cores import available_cores
from countersample._machine import cpu_name
from countersample.export.blocks import Grid
from countersample.export.trees import on_raw_features
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from countersample.export.blocks import Block
    from countersample.export.specification import ModelSpecification

    Features = NDArray[np.float32]

MOST_LISTED = 20  # features, where a table has them all
HEAVIEST = 10  # features, where it has not
_ITEMS = 100  # of the query whose time is taken
_CALLS, _SECONDS = 20, 0.2  # at most
_BY_COLUMN = ("minmax", "standard", "root-minmax")  # (value − shift) / scale, after roots


# -- what it needs ---------------------------------------------------------------------------------


def needs(spec: ModelSpecification) -> Grid:
    """Return what has to be there for an item to be scored."""
    return Grid(list(_needs(spec)))


def _needs(spec: ModelSpecification) -> Iterable[tuple[str, str]]:
    n = spec.n_features
    known = "without names" if spec.feature_names is None else "with the names below"
    yield "features", f"{n:,} numbers for each item, {known}"
    yield "units", "those of training; none are recorded"
    for column in () if spec.encoder is None else spec.encoder.columns:
        if column.kind == "date":
            yield f"{column.name}", f"a date, as its age in days before {column.reference}"
        elif column.kind == "category":
            yield (
                f"{column.name}",
                f"a category: a feature of 0 or 1 for {len(column.values):,} values",
            )
    yield "missing values", _missing(spec)
    yield "normalisation", _normalisation(spec)
    yield "score", "higher is better; it tells items of one query apart, and nothing else"


def _missing(spec: ModelSpecification) -> str:
    if spec.imputer is not None:
        told = "each becomes the number that was learned for its feature"
        n = len(spec.imputer.indicators)
        more = f"{n:,} more features are" if n > 1 else "one more feature is"
        return f"{told}, and {more} 1 where one was missing" if n else told
    if spec.takes_missing:
        return "each question of a tree has a branch for them"
    return (
        "refused by the ranker, which has learned from none: it wants a number for each feature; "
        f"the limits below say what {spec.system} does"
    )


def _normalisation(spec: ModelSpecification) -> str:
    normalizer = spec.normalizer
    if normalizer is None:
        return "none: features count as they are"
    if spec.is_by_query:
        return f"{normalizer.label}: within each query, so that all its items are scored together"
    told = f"{normalizer.label}, which is a part of the model: send features as they are"
    if normalizer.how in _BY_COLUMN:
        value = "value" if normalizer.transform_name is None else normalizer.transform_name
        told += f"; each is ({value} − less) / divided by"
    n_constant = int(spec.is_constant.sum())
    return f"{told}; {n_constant:,} that did not vary are left out" if n_constant else told


# -- an example ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Example:
    """An item whose score can be checked: the last row, among those of its query.

    Attributes
    ----------
    shown : int array
        The features that are told of one by one; the value of others is 0.
    raw, filled, normalised : float32 (n_rows, …)
        As they are sent; with missing values filled in; as the scorer takes them.
    score : float
    """

    shown: NDArray[np.int64]
    raw: Features
    filled: Features
    normalised: Features
    score: float

    @classmethod
    def of(cls, spec: ModelSpecification) -> Example:
        """Return a row of numbers within the range of training."""
        shown = np.sort(heaviest(spec)[:HEAVIEST])
        n_raw = spec.n_features
        if n_raw <= MOST_LISTED:
            shown = np.arange(spec.scorer.n_features)
        values = np.zeros((1, n_raw))
        own = shown[shown < n_raw]
        values[0, own] = _within(spec)[own]
        if spec.is_by_query:  # beside the least and the largest of the query
            ends = np.zeros((2, n_raw))
            ends[1, own] = 1
            values = np.vstack([ends, values])
        with np.errstate(over="ignore"):
            raw = np.nan_to_num(values.astype(np.float32))
        filled = raw if spec.imputer is None else spec.imputer.transform(raw)
        normalised = normalise(spec, filled)
        return cls(shown, raw, filled, normalised, float(spec.scorer.predict(normalised)[-1]))


def _within(spec: ModelSpecification) -> NDArray[np.float64]:
    """Return a value of each feature, a quarter, half or three quarters up its range."""
    values = (1 + np.arange(spec.scorer.n_features) % 3) / 4
    normalizer = spec.normalizer
    if normalizer is not None and normalizer.how in _BY_COLUMN:
        values = np.array(normalizer.shift) + np.array(normalizer.scale) * values
        values = normalizer.transformed(values[None], back=True)[0]
    values = np.array([float(f"{value:.4g}") for value in values])
    first = 0
    for column in () if spec.encoder is None else spec.encoder.columns:
        last = first + len(column.feature_names)
        if column.kind == "category":  # an item has one value of it
            values[first:last] = np.arange(last - first) == 0
        first = last
    return values


def normalise(spec: ModelSpecification, features: Features) -> Features:
    """Return features of one query as the scorer takes them."""
    if spec.normalizer is None:
        return features
    return spec.normalizer.transform(features, [0, len(features)])


def example(spec: ModelSpecification) -> list[Block]:
    """Return an item with its score, in numbers to check by hand."""
    found = Example.of(spec)
    blocks: list[Block] = []
    if spec.is_by_query:
        blocks.append(
            "Of a query of three items: one has 0 for each of these features, one has 1, and this "
            "is the third."
        )
    blocks.append(_table(spec, found))
    if isinstance(spec.scorer, TreesScorer):
        blocks += _path(spec, spec.scorer, found)
    rest = spec.n_features - int((found.shown < spec.n_features).sum())
    others = f" All other {rest:,} features are 0." if rest else ""
    blocks.append(f"Its score is **{found.score:.6g}**.{others}")
    return blocks


def _table(spec: ModelSpecification, found: Example) -> Grid:
    names, shown = _names(spec), found.shown
    weights = linear_weights(spec)
    columns = {"feature": [names[i] for i in shown], "value": _texts(found.filled[-1, shown])}
    if spec.normalizer is not None:
        columns["normalised"] = _texts(found.normalised[-1, shown])
    rows: list[tuple[str, ...]] = []
    if weights is not None:
        products = found.normalised[-1] * weights
        columns |= {"weight": _texts(weights[shown]), "product": _texts(products[shown])}
        empty = [""] * (len(columns) - 2)
        if (rest := len(products) - len(shown)) > 0:
            rows.append((f"{rest:,} others", *empty, f"{np.delete(products, shown).sum():.6g}"))
        rows.append(("sum", *empty, f"{products.sum():.6g}"))
    listed = [tuple(row) for row in zip(*columns.values(), strict=True)]
    return Grid([*listed, *rows], tuple(columns), "An item, from its features to its score")


def _path(spec: ModelSpecification, scorer: TreesScorer, found: Example) -> list[Block]:
    """Return the way of the item through the first tree that asks something."""
    trees, row = scorer, found.normalised[-1]
    if not spec.is_by_query:
        trees, row = on_raw_features(scorer, spec.normalizer), found.filled[-1]
    asking = np.flatnonzero(trees.feature[trees.roots] != LEAF)
    if not len(asking):
        return []
    names, node, asked = _names(spec), int(trees.roots[asking[0]]), []
    while (feature := int(trees.feature[node])) != LEAF:
        is_left = bool(row[feature] <= trees.threshold[node])
        question = f"{names[feature]} ≤ {trees.threshold[node]:.6g}"
        asked.append((question, f"{row[feature]:.6g}", "yes" if is_left else "no"))
        node = int((trees.left if is_left else trees.right)[node])
    added = "is its score" if scorer.base is None else "is added to the sum above"
    told = (
        f"There it ends with {trees.value[node]:.6g}, and the sum over all {trees.n_trees:,} trees "
        f"{added}."
    )
    caption = f"The item in tree {asking[0] + 1:,}"
    return [Grid(asked, ("is", "the item has", "so"), caption), told]


def heaviest(spec: ModelSpecification) -> NDArray[np.int64]:
    """Return the features by how much they count: by weights, or splits."""
    scorer = spec.scorer
    if isinstance(scorer, NetworkScorer):
        load = np.abs(scorer.weights[0]).sum(axis=0).astype(np.float64)
    else:
        weights = linear_weights(spec)
        load = np.zeros(scorer.n_features) if weights is None else np.abs(weights)
        if isinstance(scorer, TreesScorer):  # what is asked for most often, then by weight
            load = splits(scorer) + load / (load.max(initial=0.0) * 2 + 1e-300)
    load = np.where(spec.is_constant, 0.0, load)
    return np.argsort(-load, kind="stable")


def splits(trees: TreesScorer) -> NDArray[np.int64]:
    """Return how many nodes of the trees ask for each feature."""
    return np.bincount(trees.feature[trees.feature != LEAF], minlength=trees.n_features)


def linear_weights(spec: ModelSpecification) -> NDArray[np.float64] | None:
    """Return the weights of a linear scorer, or of the linear part of trees."""
    if isinstance(spec.scorer, LinearScorer):
        return spec.scorer.weights
    return None if isinstance(spec.scorer, NetworkScorer) else spec.scorer.base


def _names(spec: ModelSpecification) -> list[str]:
    """Return what the scorer's columns are called, by their number where they have no names."""
    if spec.column_names is not None:
        return list(spec.column_names)
    names = tuple(f"feature {index}" for index in range(spec.n_features))
    return list(names if spec.imputer is None else spec.imputer.names(names))


def _texts(values: NDArray[Any]) -> list[str]:
    return [f"{value + 0.0:.6g}" for value in values]  # no −0


# -- how long it takes -----------------------------------------------------------------------------


def time_of_query(spec: ModelSpecification) -> str:
    """Return how long the ranker takes to score a query of 100 items here."""
    rows = np.resize(Example.of(spec).filled, (_ITEMS, spec.scorer.n_features))
    taken: list[float] = []
    spec.scorer.predict(normalise(spec, rows))  # what is compiled, or read, is now
    while len(taken) < _CALLS and sum(taken) < _SECONDS:
        started = perf_counter()
        spec.scorer.predict(normalise(spec, rows))
        taken.append(perf_counter() - started)
    cpu = pages.escape_markdown(cpu_name())
    cores = available_cores()
    return (
        f"{1000 * float(np.median(taken)):.2g} ms to score a query of {_ITEMS} items: the median "
        f"of {len(taken)} calls of this ranker in Python, when it was exported, on {cpu} "
        f"({cores} core{'s' * (cores > 1)}). What {spec.system} takes, and the time to compute "
        "features, is not in it."
    )
