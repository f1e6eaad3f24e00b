"""Rankers as SQL views: the columns of a table, and a score.

The view computes what `predict` computes, in the same steps: it reads each feature as float32,
fills in missing values, normalises in float64 and rounds to float32 as `Normalizer.transform` does,
and adds up in float64. Each step is a layer of columns (`Rows`); `Dialect` writes what differs
between databases.
"""

from __future__ import annotations

from shlex import quote as shell_quote
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import pages
from countersample._version import __version__
from countersample.errors import DataError, ParameterError
from countersample.export.specification import Code, Translation
from countersample.export.sql_dialects import (
    DIALECTS,
    PREFIX,
    Rows,
    in_groups,
    join_terms,
)
from countersample.export.trees import fold, on_raw_features
from countersample.scorers import LEAF, LinearScorer, NetworkScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from countersample.data.preprocessing import Normalizer
    from countersample.export.specification import ModelSpecification
    from countersample.export.sql_dialects import Dialect

TABLE = "features"  # the default name of the table
SCORE, RANK = "score", "rank"
_MIN_SIZE, _MAX_SIZE = 1e-100, 1e100  # of weights: products stay within float64
_TREES_PER_STEP = 50
_MAX_LEVELS = 100  # of a tree: parsers recurse once per level


def translate(
    spec: ModelSpecification,
    *,
    dialect: str = "duckdb",
    table: str = TABLE,
    query: str | None = None,
) -> Translation:
    """Write a ranker as a view; for the options see `countersample.export.export`."""
    to = DIALECTS[dialect]
    if spec.is_by_query and query is None:
        raise ParameterError(
            "this ranker normalises by query (normalize='query-minmax'), so the view needs the "
            "column of the query: name it with query (--query)"
        )
    _check_numbers(spec)
    view, source = to.path(spec.name, option="name"), to.path(table, option="table")
    _check_columns(_table_columns(spec), to, query)
    selected = _select(spec, Rows.of(to, source), None if query is None else to.name(query))
    text = (
        f"-- The score of a {spec.kind} ranker, for {to.system}, by countersample {__version__}\n"
        f"CREATE OR REPLACE VIEW {view} AS\n{selected};\n"
    )
    _check_length(text, to)
    best = f"SELECT * FROM {view} ORDER BY {to.name(SCORE)} DESC NULLS LAST LIMIT 10;\n"  # noqa: S608 (for people)
    return Translation(
        content=text.encode(),
        form=f"a view for {to.system}",
        loading=(
            _describe_table(spec, table),
            Code("sh", to.load.format(file=shell_quote(spec.file))),
            "Then the best items come first with",
            Code("sql", best),
        ),
        limits=_limits(spec, to, query),
        checked=f"It is written in {to.system}'s documented syntax and was not run in a database.",
    )


def _describe_table(spec: ModelSpecification, table: str) -> str:
    subject = f"The table {pages.code_span(table)} has"
    if spec.encoder is None:
        return f"{subject} a column for each feature below that counts."
    columns = ", ".join(pages.code_span(name) for name in spec.encoder.column_names)
    return f"{subject} the columns of training: {columns}."


# -- the score -------------------------------------------------------------------------------------


def _select(spec: ModelSpecification, rows: Rows, query: str | None) -> str:
    """Return the query that defines the view."""
    rows, score = _score(spec, rows, query)
    name = rows.dialect.name(SCORE)
    if query is None:
        return rows.select({name: score})
    rows = rows.with_columns({f"{PREFIX}score": score}, keep=())
    order = f"PARTITION BY t.{query} ORDER BY {PREFIX}score DESC NULLS LAST"
    rank = f"rank() OVER ({order})"
    return rows.select({name: f"{PREFIX}score", rows.dialect.name(RANK): rank})


def _score(spec: ModelSpecification, rows: Rows, query: str | None) -> tuple[Rows, str]:
    """Add the steps before the score; return the score, NULL for rows that `predict` rejects."""
    scorer, to = spec.scorer, rows.dialect
    if isinstance(scorer, LinearScorer) and scorer.missing is not None:
        scorer = _as_trees(scorer)
    if isinstance(scorer, TreesScorer):
        return _score_by_trees(spec, scorer, rows, query)
    first = scorer.weights if isinstance(scorer, LinearScorer) else scorer.weights[0]
    rows, columns = _read(rows, spec, _used_features(spec, first))
    if spec.is_by_query and query is not None:
        rows, columns = _transform(rows, spec.normalizer, columns)
        rows, _ = _add_ranges(rows, columns, query)
    rows, columns = _normalize(rows, spec.normalizer, columns)
    if isinstance(scorer, NetworkScorer):
        rows, score = _score_by_network(scorer, rows, columns)
    else:
        score = _weighted_sum(scorer.weights, columns, to)
    if not spec.takes_missing:
        return rows, score
    rows = rows.with_columns({f"{PREFIX}sum": score}, keep=())
    return rows, f"CASE WHEN {PREFIX}sum <= {to.infinity} THEN {PREFIX}sum END"  # NaN is not


def _as_trees(scorer: LinearScorer) -> TreesScorer:
    """Return a linear scorer that takes missing values as trees without a tree."""
    roots, nodes = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return TreesScorer(
        scorer.n_features, roots, nodes, np.zeros(0, np.float32), nodes, nodes, np.zeros(0),
        scorer.weights, np.zeros(0, np.bool_), scorer.missing,
    )  # fmt: skip


def _used_features(
    spec: ModelSpecification,
    weights: NDArray[np.floating],
    missing: NDArray[np.float64] | None = None,
) -> list[int]:
    """Return the features that have a weight, also if only where missing, and are not constant."""
    is_used = np.atleast_2d(weights).any(axis=0) & ~spec.is_constant
    if missing is not None:
        is_used |= missing != 0
    return [int(feature) for feature in np.flatnonzero(is_used)]


def _weighted_sum(
    weights: NDArray[np.floating],
    columns: dict[int, str],
    to: Dialect,
    missing: NDArray[np.float64] | None = None,
) -> str:
    """Return w·x; a missing feature adds its number in `missing` instead."""
    terms = []
    for feature, column in columns.items():
        term = f"{to.number(weights[feature])} * {column}"
        if missing is not None:
            terms.append(f"coalesce({term}, {to.number(missing[feature])})")
        elif weights[feature]:
            terms.append(term)
    return join_terms(terms, "+") or to.number(0)


def _score_by_network(
    network: NetworkScorer, rows: Rows, columns: dict[int, str]
) -> tuple[Rows, str]:
    """Add the hidden layers; return the output.

    A hidden value counts as 0 from 10⁻¹⁰⁰ down: PostgreSQL makes an error of a product that is too
    small for float64. NULL stays NULL.
    """
    to = rows.dialect
    layers = list(zip(network.weights, network.biases, strict=True))
    for number, (matrix, bias) in enumerate(layers[:-1]):
        sums = {
            f"{PREFIX}a{number}_{unit}": (
                f"{_weighted_sum(weights, columns, to)} + {to.number(bias[unit])}"
            )
            for unit, weights in enumerate(matrix)
        }
        rows = rows.with_columns(sums, keep=())
        columns = {unit: f"{PREFIX}h{number}_{unit}" for unit in range(len(bias))}
        least, zero = to.number(_MIN_SIZE), to.number(0)
        hidden = [f"CASE WHEN {each} <= {least} THEN {zero} ELSE {each} END" for each in sums]
        rows = rows.with_columns(dict(zip(columns.values(), hidden, strict=True)), keep=())
    matrix, bias = layers[-1]
    return rows, f"{_weighted_sum(matrix[0], columns, to)} + {to.number(bias[0])}"


def _score_by_trees(
    spec: ModelSpecification, trees: TreesScorer, rows: Rows, query: str | None
) -> tuple[Rows, str]:
    """Add the sum over trees in the order of `predict`, some trees per step.

    Unless features are normalised by query, the trees compare values before normalisation.
    """
    to, base, rejected = rows.dialect, trees.base, f"{PREFIX}rejected"
    raw_trees = on_raw_features(trees, None if spec.is_by_query else spec.normalizer)
    _check_depth(raw_trees, to)
    splits = set(raw_trees.feature[raw_trees.feature != LEAF].tolist())
    weighted = [] if base is None else _used_features(spec, base, trees.base_missing)
    rows, columns = _read(rows, spec, sorted(splits.union(weighted)))
    if spec.is_by_query and query is not None:
        rows, columns = _transform(rows, spec.normalizer, columns)
        rows, largest = _add_ranges(rows, columns, query)
        condition = _is_rejected(spec, [*columns.values(), *largest], to)
        rows = rows.with_columns({rejected: f"{condition} OR t.{query} IS NULL"})
        rows, columns = _normalize(rows, spec.normalizer, columns, keep=[rejected])
    else:
        rows = rows.with_columns({rejected: _is_rejected(spec, columns.values(), to) or "FALSE"})
    keep = [*columns.values(), rejected]
    sums: list[str] = []
    if base is not None:
        linear = {feature: columns[feature] for feature in weighted}
        if not spec.is_by_query:
            rows, linear = _normalize(rows, spec.normalizer, linear, keep=keep)
        sums = [_weighted_sum(base, linear, to, trees.base_missing)]
    cases = _write_trees(raw_trees, columns, to)
    if to.ordered_sum is not None:
        sums = [to.ordered_sum.format(", ".join([*sums, *cases]))] if cases else sums
    else:
        for number, group in enumerate(in_groups(cases, _TREES_PER_STEP)):
            rows = rows.with_columns({f"{PREFIX}s{number}": " + ".join([*sums, *group])}, keep=keep)
            sums = [f"{PREFIX}s{number}"]
    return rows, f"CASE WHEN {rejected} THEN NULL ELSE {sums[0] if sums else to.number(0)} END"


def _write_trees(trees: TreesScorer, columns: dict[int, str], to: Dialect) -> list[str]:
    """Return each tree as nested cases; no comparison with NULL holds, so it takes the ELSE."""
    missing_left = trees.missing_left

    def split(node: int, left: str, right: str) -> str:
        column, threshold = columns[int(trees.feature[node])], to.number(trees.threshold[node])
        if missing_left is not None and missing_left[node]:
            return f"CASE WHEN {column} > {threshold} THEN {right} ELSE {left} END"
        return f"CASE WHEN {column} <= {threshold} THEN {left} ELSE {right} END"

    return fold(trees, lambda node: to.number(trees.value[node]), split)


# -- the features ----------------------------------------------------------------------------------


def _table_columns(spec: ModelSpecification) -> tuple[str, ...]:
    """Return the names of the table's columns that features are computed from."""
    if spec.encoder is None:
        return spec.names
    if spec.feature_names != tuple(spec.encoder.feature_names):
        raise ParameterError(
            "feature_names is given, expected it left out: this ranker computes its features from "
            "the columns of a table, which the view reads by their names of training"
        )
    return tuple(column.name for column in spec.encoder.columns)


def _read(
    rows: Rows, spec: ModelSpecification, features: Sequence[int]
) -> tuple[Rows, dict[int, str]]:
    """Add the features that a ranker uses, as float32 numbers; missing ones are NULL, or imputed.

    Values that `predict` rejects are NULL, too, or NaN if the ranker takes missing values.

    Returns
    -------
    rows : Rows
    columns : dict
        The column of each feature, as the normalizer takes it.
    """
    imputer, to = spec.imputer, rows.dialect
    n, indicators = spec.n_features, () if imputer is None else imputer.indicators
    used = sorted({f if f < n else indicators[f - n] for f in features})
    values = _values(spec, to)
    columns = {feature: f"{PREFIX}x{feature}" for feature in used}
    expressions = {}
    for feature, column in columns.items():
        value, is_exact = values[feature]
        otherwise = f" WHEN abs({value}) <= {to.infinity} THEN {to.nan}"
        rounded = to.rounded(value, otherwise if spec.takes_missing else "")
        expressions[column] = value if is_exact else rounded
    rows = rows.with_columns(expressions)
    if imputer is None:
        return rows, columns
    imputed = {}
    for feature in features:
        if feature < n:
            fill = to.number(imputer.fill[feature])
            imputed[f"{PREFIX}z{feature}"] = f"coalesce({columns[feature]}, {fill})"
        else:
            is_missing = f"{columns[indicators[feature - n]]} IS NULL"
            imputed[f"{PREFIX}z{feature}"] = _indicator(is_missing, to)
    return rows.with_columns(imputed, keep=()), {f: f"{PREFIX}z{f}" for f in features}


def _indicator(condition: str, to: Dialect) -> str:
    return f"CASE WHEN {condition} THEN {to.number(1)} ELSE {to.number(0)} END"


def _is_rejected(spec: ModelSpecification, columns: Iterable[str], to: Dialect) -> str:
    """Return the condition under which `predict` rejects a row; "" if there is no column.

    NaN is not at most infinity in any database, however it compares NaN with itself.
    """
    if spec.takes_missing:
        return join_terms([f"NOT {column} <= {to.infinity}" for column in columns], "OR")
    return join_terms([f"{column} IS NULL" for column in columns], "OR")


def _values(spec: ModelSpecification, to: Dialect) -> list[tuple[str, bool]]:
    """Return each feature before it is float32, and whether it needs no rounding."""
    if spec.encoder is None:
        return [(to.as_double(f"t.{to.name(name)}"), False) for name in spec.names]
    return [
        value
        for column in spec.encoder.columns
        for value in _encode(column, f"t.{to.name(column.name)}", to)
    ]


def _encode(column: Any, value: str, to: Dialect) -> list[tuple[str, bool]]:  # noqa: ANN401
    """Return the features that an encoder computes from one column."""
    if column.kind == "category":
        text = to.as_text(value)
        return [(_indicator(f"{text} = {to.string(each)}", to), True) for each in column.values]
    if column.kind == "date":
        return [(to.days_before(column.reference, value), False)]
    return [(to.as_double(value), False)]


def _normalize(
    rows: Rows, normalizer: Normalizer | None, columns: dict[int, str], keep: Iterable[str] = ()
) -> tuple[Rows, dict[int, str]]:
    """Add (x − shift) / scale of each feature in float64, then rounded to float32.

    Other columns are dropped unless in `keep`. By query, `_add_ranges` comes first.
    """
    if normalizer is None:
        return rows, columns
    to = rows.dialect
    by_query = normalizer.how == "query-minmax"
    exact = {
        f"{PREFIX}y{f}": _scaled_by_query(x, f, to) if by_query else _scaled(x, normalizer, f, to)
        for f, x in columns.items()
    }
    rounded = {f"{PREFIX}n{feature}": to.rounded(f"{PREFIX}y{feature}") for feature in columns}
    rows = rows.with_columns(exact, keep).with_columns(rounded, keep)
    return rows, {feature: f"{PREFIX}n{feature}" for feature in columns}


def _transform(
    rows: Rows, normalizer: Normalizer | None, columns: dict[int, str]
) -> tuple[Rows, dict[int, str]]:
    """Add the transform of each feature, rounded to float32, before its range by query."""
    if normalizer is None or normalizer.transform_name is None:
        return rows, columns
    to = rows.dialect
    exact = {f"{PREFIX}u{f}": _transformed(x, normalizer, f, to) for f, x in columns.items()}
    rounded = {f"{PREFIX}b{feature}": to.rounded(f"{PREFIX}u{feature}") for feature in columns}
    rows = rows.with_columns(exact, keep=()).with_columns(rounded, keep=())
    return rows, {feature: f"{PREFIX}b{feature}" for feature in columns}


def _add_ranges(rows: Rows, columns: dict[int, str], query: str) -> tuple[Rows, list[str]]:
    """Add the smallest and the largest value of each feature per query; return the largest.

    NULL is neither. A NaN makes the largest one NaN.
    """
    ends = {}
    for feature, column in columns.items():
        ends[f"{PREFIX}low{feature}"] = f"min({column})"
        ends[f"{PREFIX}high{feature}"] = f"max({column})"
    return rows.with_aggregates(query, ends), list(ends)[1::2]


def _scaled(column: str, normalizer: Normalizer, feature: int, to: Dialect) -> str:
    """Return what `Normalizer.transform` computes of one feature before it is float32."""
    if normalizer.shift is None or normalizer.scale is None:
        raise TypeError(f"{normalizer.how} has no shift and scale")
    value, scale = _transformed(column, normalizer, feature, to), normalizer.scale[feature]
    factor = float(np.float64(1) / scale) if scale else 0.0
    return f"(({value}) - {to.number(normalizer.shift[feature])}) * {to.number(factor)}"


def _scaled_by_query(column: str, feature: int, to: Dialect) -> str:
    low, high = f"{PREFIX}low{feature}", f"{PREFIX}high{feature}"
    return (
        f"CASE WHEN {high} > {low} THEN ({column} - {low}) * ({to.number(1)} / ({high} - {low})) "
        f"ELSE ({column} - {low}) * {to.number(0)} END"
    )


def _transformed(column: str, normalizer: Normalizer, feature: int, to: Dialect) -> str:
    """Return the transform of one feature; NULL and NaN stay so."""
    if normalizer.roots is not None and (times := normalizer.roots[feature]):
        return _with_sign(column, times * "sqrt(" + "{}" + times * ")", to)
    if normalizer.logs is not None and (size := normalizer.logs[feature]):
        return _with_sign(column, f"ln({to.number(1)} + {{}} / {to.number(size)})", to)
    if normalizer.knots is not None and (knots := normalizer.knots[feature]):
        return _interpolated(column, knots[0], knots[1], to)
    return column


def _with_sign(column: str, function: str, to: Dialect) -> str:
    """Return f(|x|) with the sign of x."""
    negative, positive = function.format(f"-{column}"), function.format(column)
    return f"CASE WHEN {column} < {to.number(0)} THEN -{negative} ELSE {positive} END"


def _interpolated(column: str, knots: Sequence[float], shares: Sequence[float], to: Dialect) -> str:
    """Return share_i + slope_i·(x − knot_i), at most the next share; NULL and NaN stay so."""
    cases = [f"WHEN {column} < {to.number(knots[0])} THEN {to.number(shares[0])}"]
    for i in range(len(knots) - 1):
        run = np.float64(knots[i + 1]) - knots[i]
        slope = float((np.float64(shares[i + 1]) - shares[i]) / run)
        line = f"{to.number(shares[i])} + {to.number(slope)} * ({column} - {to.number(knots[i])})"
        value = f"least({line}, {to.number(shares[i + 1])})"
        cases.append(f"WHEN {column} < {to.number(knots[i + 1])} THEN {value}")
    cases.append(f"WHEN {column} <= {to.infinity} THEN {to.number(shares[-1])}")
    return f"CASE {' '.join(cases)} ELSE {column} END"


# -- checks and limits -----------------------------------------------------------------------------


def _check_numbers(spec: ModelSpecification) -> None:
    """Reject numbers whose products could leave float64, which is an error in PostgreSQL."""
    scorer, normalizer = spec.scorer, spec.normalizer
    numbers = {}
    if isinstance(scorer, LinearScorer):
        numbers["a weight"] = scorer.weights
    elif isinstance(scorer, TreesScorer):
        numbers["a leaf"] = scorer.value
        if scorer.base is not None:
            numbers["a weight"] = scorer.base
        if scorer.base_missing is not None:
            numbers["a weight of a missing value"] = scorer.base_missing
    if normalizer is not None and normalizer.shift is not None and normalizer.scale is not None:
        numbers |= {"a shift": np.array(normalizer.shift), "a scale": np.array(normalizer.scale)}
    for name, values in numbers.items():
        sizes = np.abs(values[values != 0])
        outside = sizes[(sizes < _MIN_SIZE) | (sizes > _MAX_SIZE)]
        if len(outside):
            raise DataError(
                f"the ranker has {name} of size {outside[0]:.3g}, expected 0 or between "
                f"{_MIN_SIZE:.0e} and {_MAX_SIZE:.0e}, so that no product leaves what a database "
                "computes with: rescale the features before training"
            )


def _check_columns(columns: tuple[str, ...], to: Dialect, query: str | None) -> None:
    """Reject columns that have the name of a column of the view, or that share a name."""
    if query == "":
        raise ParameterError("query is '', expected the name of the column that has the query")
    added = (SCORE, RANK) if query is not None else (SCORE,)
    fold_case = str.lower if to.folds_case else str
    names: dict[str, str] = {}
    for name in columns:
        folded = fold_case(name)
        if folded in added or name.lower().startswith(PREFIX):
            raise ParameterError(
                f"a feature is called {name!r}, expected another name: the view adds a column of "
                "that name; rename it with feature_names (--feature-names)"
            )
        if folded in names:
            raise ParameterError(
                f"features are called {names[folded]!r} and {name!r}, which are the same name in "
                f"{to.system}: rename one with feature_names (--feature-names)"
            )
        names[folded] = name


def _check_depth(trees: TreesScorer, to: Dialect) -> None:
    levels = max(fold(trees, lambda _: 0, lambda _, left, right: 1 + max(left, right)), default=0)
    if levels > _MAX_LEVELS:
        raise ParameterError(
            f"a tree has {levels} levels, expected at most {_MAX_LEVELS}, as {to.system} reads "
            "nested expressions with a stack: export to ONNX (--to onnx), or train with fewer "
            "leaves"
        )


def _check_length(text: str, to: Dialect) -> None:
    if to.max_characters is not None and len(text) > to.max_characters:
        raise ParameterError(
            f"the view has {len(text):,} characters, expected at most {to.max_characters:,}, the "
            f"longest view in {to.system}: train with fewer features, trees or units, or export to "
            "ONNX (--to onnx)"
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
        f"The score is NULL if a feature that counts {missing}is infinite. A feature with a weight "
        "of 0, or without a split, is not read."
    )
    if spec.takes_missing:
        limits.append("NULL and NaN both are a missing value.")
    if query is not None:
        limits.append(
            "Items of a query with the same score have the same rank; items without a score come "
            "last."
        )
    if spec.is_by_query:
        limits.append(
            "Features are normalised among the items of the query that are in the table: a "
            "condition on the view does not change them. An item without a query has no score."
        )
    if spec.encoder is not None and any(each.kind == "date" for each in spec.encoder.columns):
        limits.append(
            "Dates are read as the database reads timestamps without a zone: store them in UTC, as "
            "the ranker reads times that have a zone."
        )
    if not to.folds_case:
        limits.append(f"Names are quoted, so {to.system} distinguishes capital letters in them.")
    return tuple(limits)
