"""Rankers as views of SQL, for DuckDB, PostgreSQL and Spark: the columns of a table, and a score.

The view reads each feature as `predict` does, as float32, and computes in float64 from there on.
Normalised features are rounded to float32, as they are in `Normalizer.transform`.
"""

from __future__ import annotations

from shlex import quote as shell_quote
from typing import TYPE_CHECKING

import numpy as np

from countersample import pages
from countersample._params import choice
from countersample._version import __version__
from countersample.errors import DataError, ParameterError
from countersample.export.specification import Code, Translation
from countersample.export.sql_dialects import DIALECTS, OWN, Rows, groups, joined
from countersample.export.sql_features import (
    bend,
    columns_of,
    ends_by_query,
    is_refused,
    normalise,
    read,
)
from countersample.export.trees import fold, on_raw_features
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample.export.specification import ModelSpecification
    from countersample.export.sql_dialects import Dialect

TABLE = "features"  # where no other is named
SCORE, RANK = "score", "rank"
_SMALLEST, _LARGEST = 1e-100, 1e100  # of weights: products stay within float64
_TREES = 50  # in one step
_MOST_LEVELS = 100  # of a tree: parsers go down once for each

_LOADING = {
    "duckdb": "duckdb shop.duckdb -f {file}\n",
    "postgresql": "psql --set ON_ERROR_STOP=1 --dbname shop --file {file}\n",
    "spark": "spark-sql -f {file}\n",
}


def translate(
    spec: ModelSpecification,
    *,
    dialect: str = "duckdb",
    table: str = TABLE,
    query: str | None = None,
) -> Translation:
    """Write a ranker as a view; for the options see `countersample.export.export`."""
    to = DIALECTS[choice("dialect", dialect, DIALECTS)]
    if spec.is_by_query and query is None:
        raise ParameterError(
            "this ranker normalises by query (normalize='query-minmax'), so the view has to know "
            "which items belong together: name the column of the query with query (--query)"
        )
    _check_numbers(spec)
    view, source = to.path(spec.name, option="name"), to.path(table, option="table")
    _check_columns(columns_of(spec), to, query)
    selected = _selected(spec, Rows.of(to, source), None if query is None else to.name(query))
    text = (
        f"-- The score of a {spec.kind} ranker, for {to.system}, by countersample {__version__}\n"
        f"CREATE OR REPLACE VIEW {view} AS\n{selected};\n"
    )
    best = f"SELECT * FROM {view} ORDER BY {to.name(SCORE)} DESC NULLS LAST LIMIT 10;\n"  # noqa: S608 (for people)
    return Translation(
        content=text.encode(),
        form=f"a view for {to.system}",
        loading=(
            _table_has(spec, table),
            Code("sh", _LOADING[dialect].format(file=shell_quote(spec.file))),
            "Then the best items come first with",
            Code("sql", best),
        ),
        limits=_limits(spec, to, query),
        checked=f"It was written in {to.system}'s documented syntax; no database was asked.",
    )


def _table_has(spec: ModelSpecification, table: str) -> str:
    named = f"The table {pages.code_span(table)} has"
    if spec.encoder is None:
        return f"{named} a column for each feature below that counts."
    columns = ", ".join(pages.code_span(name) for name in spec.encoder.column_names)
    return f"{named} the columns of training: {columns}."


# -- what is computed ----------------------------------------------------------------------------


def _selected(spec: ModelSpecification, rows: Rows, query: str | None) -> str:
    """Return the query that the view stands for."""
    rows, score = _scored(spec, rows, query)
    to = rows.dialect
    name = to.name(SCORE)
    if query is None:
        return rows.select({name: score})
    rows = rows.having({f"{OWN}score": score}, keep=())
    order = f"PARTITION BY t.{query} ORDER BY {OWN}score DESC NULLS LAST"
    return rows.select({name: f"{OWN}score", to.name(RANK): f"rank() OVER ({order})"})


def _scored(spec: ModelSpecification, rows: Rows, query: str | None) -> tuple[Rows, str]:
    """Add what the score is computed from; return the score, NULL where `predict` refuses."""
    scorer, to = spec.scorer, rows.dialect
    if isinstance(scorer, LinearScorer) and scorer.missing is not None:
        scorer = _without_trees(scorer)
    if isinstance(scorer, TreesScorer):
        return _trees(spec, scorer, rows, query)
    first = scorer.weights if isinstance(scorer, LinearScorer) else scorer.weights[0]
    rows, columns = read(rows, spec, _counting(spec, first))
    if spec.is_by_query and query is not None:
        rows, columns = bend(rows, spec.normalizer, columns)
        rows, _ = ends_by_query(rows, columns, query)
    rows, columns = normalise(rows, spec.normalizer, columns)
    if isinstance(scorer, NetworkScorer):
        rows, score = _network(scorer, rows, columns)
    else:
        score = _product(scorer.weights, columns, to)
    return rows, f"nullif({score}, {to.special('NaN')})" if spec.takes_missing else score


def _without_trees(scorer: LinearScorer) -> TreesScorer:
    """Return what trees were boosted from as the sum of no trees and that."""
    whole, nodes = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return TreesScorer(
        scorer.n_features, whole, nodes, np.zeros(0, np.float32), nodes, nodes, np.zeros(0),
        scorer.weights, np.zeros(0, np.bool_), scorer.missing,
    )  # fmt: skip


def _counting(
    spec: ModelSpecification,
    weights: NDArray[np.floating],
    missing: NDArray[np.float64] | None = None,
) -> list[int]:
    """Return the features that count: they have a weight and were not constant in training.

    So does one that counts where it is missing.
    """
    counts = np.atleast_2d(weights).any(axis=0) & ~spec.is_constant
    if missing is not None:
        counts |= missing != 0
    return [int(feature) for feature in np.flatnonzero(counts)]


def _product(
    weights: NDArray[np.floating],
    columns: dict[int, str],
    to: Dialect,
    missing: NDArray[np.float64] | None = None,
) -> str:
    """Return w·x over the features that are there, and what a missing one counts instead."""
    terms = []
    for feature, column in columns.items():
        term = f"{to.number(weights[feature])} * {column}"
        if missing is not None:
            terms.append(f"coalesce({term}, {to.number(missing[feature])})")
        elif weights[feature]:
            terms.append(term)
    return joined(terms, "+") or to.number(0)


def _network(network: NetworkScorer, rows: Rows, columns: dict[int, str]) -> tuple[Rows, str]:
    """Add the hidden layers; return the last.

    A hidden value counts as 0 from 10⁻¹⁰⁰ down: PostgreSQL makes an error of a product that is too
    small for float64. NULL stays NULL.
    """
    to = rows.dialect
    layers = list(zip(network.weights, network.biases, strict=True))
    for number, (matrix, bias) in enumerate(layers[:-1]):
        sums = {
            f"{OWN}a{number}_{unit}": f"{_product(weights, columns, to)} + {to.number(bias[unit])}"
            for unit, weights in enumerate(matrix)
        }
        rows = rows.having(sums, keep=())
        columns = {unit: f"{OWN}h{number}_{unit}" for unit in range(len(bias))}
        least, zero = to.number(_SMALLEST), to.number(0)
        hidden = [f"CASE WHEN {each} <= {least} THEN {zero} ELSE {each} END" for each in sums]
        rows = rows.having(dict(zip(columns.values(), hidden, strict=True)), keep=())
    matrix, bias = layers[-1]
    return rows, f"{_product(matrix[0], columns, to)} + {to.number(bias[0])}"


def _trees(
    spec: ModelSpecification, trees: TreesScorer, rows: Rows, query: str | None
) -> tuple[Rows, str]:
    """Add the sum over trees in their order, so that it is `predict`'s; some trees a step.

    Trees ask for values before they are normalised, where that is by feature.
    """
    to, base, refused = rows.dialect, trees.base, f"{OWN}refused"
    asked = on_raw_features(trees, None if spec.is_by_query else spec.normalizer)
    _check_depth(asked, to)
    splits = set(asked.feature[asked.feature != LEAF].tolist())
    weighted = [] if base is None else _counting(spec, base, trees.base_missing)
    rows, columns = read(rows, spec, sorted(splits.union(weighted)))
    if spec.is_by_query and query is not None:
        rows, columns = bend(rows, spec.normalizer, columns)
        rows, largest = ends_by_query(rows, columns, query)
        condition = is_refused(spec, [*columns.values(), *largest], to)
        rows = rows.having({refused: f"{condition} OR t.{query} IS NULL"})
        rows, columns = normalise(rows, spec.normalizer, columns, keep=[refused])
    else:
        rows = rows.having({refused: is_refused(spec, columns.values(), to) or "FALSE"})
    used = [*columns.values(), refused]
    sums: list[str] = []
    if base is not None:
        linear = {feature: columns[feature] for feature in weighted}
        if not spec.is_by_query:
            rows, linear = normalise(rows, spec.normalizer, linear, keep=used)
        sums = [_product(base, linear, to, trees.base_missing)]
    written = _written(asked, columns, to)
    if to.summed is not None:
        sums = [to.summed.format(", ".join([*sums, *written]))] if written else sums
    else:
        for number, group in enumerate(groups(written, _TREES)):
            rows = rows.having({f"{OWN}s{number}": " + ".join([*sums, *group])}, keep=used)
            sums = [f"{OWN}s{number}"]
    return rows, f"CASE WHEN {refused} THEN NULL ELSE {sums[0] if sums else to.number(0)} END"


def _written(trees: TreesScorer, columns: dict[int, str], to: Dialect) -> list[str]:
    """Return each tree; NULL is not at most anything, so it goes right, or is asked otherwise."""
    missing_left = trees.missing_left

    def split(node: int, left: str, right: str) -> str:
        asked, threshold = columns[int(trees.feature[node])], to.number(trees.threshold[node])
        if missing_left is not None and missing_left[node]:
            return f"CASE WHEN {asked} > {threshold} THEN {right} ELSE {left} END"
        return f"CASE WHEN {asked} <= {threshold} THEN {left} ELSE {right} END"

    return fold(trees, lambda node: to.number(trees.value[node]), split)


# -- what is refused -----------------------------------------------------------------------------


def _check_numbers(spec: ModelSpecification) -> None:
    """Refuse numbers whose products could leave float64, which PostgreSQL does not forgive."""
    scorer, normalizer = spec.scorer, spec.normalizer
    numbers = {}
    if isinstance(scorer, LinearScorer):
        numbers["a weight"] = scorer.weights
    elif isinstance(scorer, TreesScorer):
        numbers["a leaf"] = scorer.value
        if scorer.base is not None:
            numbers["a weight"] = scorer.base
        if scorer.base_missing is not None:
            numbers["a weight of what is missing"] = scorer.base_missing
    if normalizer is not None and normalizer.shift is not None and normalizer.scale is not None:
        numbers |= {"a shift": np.array(normalizer.shift), "a scale": np.array(normalizer.scale)}
    for what, values in numbers.items():
        sizes = np.abs(values[values != 0])
        outside = sizes[(sizes < _SMALLEST) | (sizes > _LARGEST)]
        if len(outside):
            raise DataError(
                f"the ranker has {what} of size {outside[0]:.3g}, expected 0 or between "
                f"{_SMALLEST:.0e} and {_LARGEST:.0e}, so that no product leaves what a database "
                "computes with: rescale the features before training"
            )


def _check_columns(columns: tuple[str, ...], to: Dialect, query: str | None) -> None:
    """Refuse columns of the table that the view could not tell from its own, or from another."""
    if query == "":
        raise ParameterError("query is '', expected the name of the column that has the query")
    added = (SCORE, RANK) if query is not None else (SCORE,)
    fold_case = str.lower if to.folds_case else str
    seen: dict[str, str] = {}
    for name in columns:
        folded = fold_case(name)
        if folded in added or folded.startswith(OWN):
            raise ParameterError(
                f"a feature is called {name!r}, expected another name: the view has a column of "
                "its own that is called so; rename it with feature_names (--feature-names)"
            )
        if folded in seen:
            raise ParameterError(
                f"features are called {seen[folded]!r} and {name!r}, which are the same name in "
                f"{to.system}: rename one with feature_names (--feature-names)"
            )
        seen[folded] = name


def _check_depth(trees: TreesScorer, to: Dialect) -> None:
    levels = max(fold(trees, lambda _: 0, lambda _, left, right: 1 + max(left, right)), default=0)
    if levels > _MOST_LEVELS:
        raise ParameterError(
            f"a tree has {levels} levels, expected at most {_MOST_LEVELS}, as {to.system} reads "
            "nested expressions with a stack: export to ONNX (--to onnx), or train with fewer "
            "leaves"
        )


def _limits(spec: ModelSpecification, to: Dialect, query: str | None) -> tuple[str, ...]:
    limits = []
    if isinstance(spec.scorer, NetworkScorer):
        limits.append(
            "The ranker computes in float32 and the view in float64, so scores differ from the "
            "ranker's in the last digits."
        )
    elif isinstance(spec.scorer, LinearScorer) or spec.scorer.base is not None:
        limits.append("Scores are the ranker's up to the order in which float64 numbers are added.")
    else:
        limits.append("Scores are the ranker's to the last bit.")
    missing = "" if spec.takes_missing else "is missing (NULL or NaN) or "
    limits.append(
        f"The score is NULL where a feature that counts {missing}is infinite; a feature with a "
        "weight of 0, or that no tree asks for, is not read."
    )
    if spec.takes_missing:
        limits.append("NULL and NaN both are a missing value.")
    if query is not None:
        limits.append(
            "Items of a query with the same score have the same rank; those without a score come "
            "last."
        )
    if spec.is_by_query:
        limits.append(
            "Features are normalised among the items of the query that are in the table: a "
            "condition on the view does not change them. An item without a query has no score."
        )
    if spec.encoder is not None and any(each.kind == "date" for each in spec.encoder.columns):
        limits.append(
            "Dates are read as the database reads timestamps without a zone: keep them in UTC, as "
            "the ranker takes times that have one."
        )
    if not to.folds_case:
        limits.append(f"Names are in quotes, so {to.system} takes capital letters as they are.")
    return tuple(limits)
