"""Rankers as SQL views: the columns of a table, and a score.

The view computes what `predict` computes, in the same steps: it reads each feature as float32,
fills in missing values, normalises in float64 and rounds to float32 as `Normalizer.transform` does,
and adds up in float64. Each step is a layer of columns (`Rows`); `Dialect` writes what differs
between databases.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from countersample import pages
from countersample._version import __version__
from countersample.errors import ParameterError
from countersample.export.specification import Translation
from countersample.export.sql_dialects import DIALECTS, PREFIX, Rows, in_groups, join_terms
from countersample.export.trees import fold, on_raw_features
from countersample.scorers import LEAF, LinearScorer, NetworkScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from countersample.data.encoder import EncodedColumn
    from countersample.data.preprocessing import Normalizer
    from countersample.export.specification import ModelSpecification
    from countersample.export.sql_dialects import Dialect

TABLE = "features"  # the default name of the table
SCORE, RANK = "score", "rank"
_MIN_HIDDEN = 1e-100  # smaller hidden values of a network count as 0
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
    if spec.preprocessing.is_by_query and query is None:
        raise ParameterError(
            "this ranker normalises by query (normalize='query-minmax'), so the view needs the "
            "column of the query: name it with query (--query)"
        )
    view = to.path(spec.name, option="name")
    rows = Rows(to, to.path(table, option="table"))
    _check_columns(_table_columns(spec), to, query)
    score = _score(spec, rows, None if query is None else to.name(query))
    name = rows.add("score", {0: score})[0]
    columns = {to.name(SCORE): name}
    if query is not None:
        order = f"PARTITION BY t.{to.name(query)} ORDER BY {name} DESC NULLS LAST"
        columns[to.name(RANK)] = f"rank() OVER ({order})"
    text = (
        f"-- The score of a {spec.kind} ranker, for {to.system}, by countersample {__version__}\n"
        f"CREATE OR REPLACE VIEW {view} AS\n{rows.select(columns)};\n"
    )
    return Translation(
        content=text.encode(),
        form=f"a view for {to.system}",
        loading=pages.render_markdown(
            str(__package__), "sql.md", spec=spec, table=table, view=view, score=to.name(SCORE),
            command=to.command.format(quote(spec.file)),
        ),
        limits=spec.limits(dialect=to, query=query),
        checked=f"It is written in {to.system}'s documented syntax and was not run in a database.",
    )  # fmt: skip


# -- the score -------------------------------------------------------------------------------------


def _score(spec: ModelSpecification, rows: Rows, query: str | None) -> str:
    """Add the steps before the score; return the score, NULL for rows that `predict` rejects."""
    scorer, to = spec.scorer, rows.dialect
    if isinstance(scorer, TreesScorer):
        return _score_by_trees(spec, scorer, scorer.linear_part, rows, query)
    if isinstance(scorer, LinearScorer) and scorer.missing is not None:
        return _score_by_trees(spec, None, scorer, rows, query)
    weights = scorer.weights if isinstance(scorer, LinearScorer) else scorer.weights[0]
    columns = _read(rows, spec, _used_features(spec, weights))
    if query is not None and spec.preprocessing.is_by_query:
        columns = _transform(rows, spec.preprocessing.normalizer, columns)
        _add_ranges(rows, columns, query)
    columns = _normalize(rows, spec.preprocessing.normalizer, columns)
    if isinstance(scorer, NetworkScorer):
        score = _score_by_network(scorer, rows, columns)
    else:
        score = _weighted_sum(scorer.weights, columns, to)
    if not spec.takes_missing:
        return score
    total = rows.add("sum", {0: score})[0]
    return f"CASE WHEN {total} <= {to.infinity} THEN {total} END"  # NaN is not


def _used_features(
    spec: ModelSpecification,
    weights: NDArray[np.floating],
    missing: NDArray[np.float64] | None = None,
) -> list[int]:
    """Return the features that have a weight, also only if missing, and are not constant."""
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


def _score_by_network(network: NetworkScorer, rows: Rows, columns: dict[int, str]) -> str:
    """Add the hidden layers; return the output.

    A hidden value counts as 0 from 10⁻¹⁰⁰ down: PostgreSQL rejects a product that is too
    small for float64. NULL stays NULL.
    """
    to = rows.dialect
    *hidden, (matrix, bias) = zip(network.weights, network.biases, strict=True)
    for layer, (weights, biases) in enumerate(hidden):
        sums = {
            unit: f"{_weighted_sum(row, columns, to)} + {to.number(biases[unit])}"
            for unit, row in enumerate(weights)
        }
        least, zero = to.number(_MIN_HIDDEN), to.number(0)
        columns = rows.add(f"h{layer}_", {
            unit: f"CASE WHEN {column} <= {least} THEN {zero} ELSE {column} END"
            for unit, column in rows.add(f"a{layer}_", sums).items()
        })  # fmt: skip
    return f"{_weighted_sum(matrix[0], columns, to)} + {to.number(bias[0])}"


def _score_by_trees(
    spec: ModelSpecification,
    trees: TreesScorer | None,
    linear: LinearScorer | None,
    rows: Rows,
    query: str | None,
) -> str:
    """Add the sum over trees in the order of `predict`, some trees per step, after a linear part.

    Unless features are normalised by query, the trees compare values before normalisation.
    """
    to, by_query = rows.dialect, spec.preprocessing.is_by_query
    features = set() if linear is None else {*_used_features(spec, linear.weights, linear.missing)}
    weighted = sorted(features)
    if trees is not None:
        trees = on_raw_features(trees, None if by_query else spec.preprocessing.normalizer)
        features.update(trees.feature[trees.feature != LEAF].tolist())
    columns = _read(rows, spec, sorted(features))
    if query is not None and by_query:
        columns = _transform(rows, spec.preprocessing.normalizer, columns)
        largest = _add_ranges(rows, columns, query)
        conditions = [_is_rejected(spec, [*columns.values(), *largest], to), f"t.{query} IS NULL"]
        rejected = rows.add("rejected", {0: " OR ".join(filter(None, conditions))})[0]
        columns = _normalize(rows, spec.preprocessing.normalizer, columns)
    else:
        rejected = rows.add("rejected", {0: _is_rejected(spec, columns.values(), to) or "FALSE"})[0]
    sums: list[str] = []
    if linear is not None:
        values = {feature: columns[feature] for feature in weighted}
        if not by_query:
            values = _normalize(rows, spec.preprocessing.normalizer, values)
        sums = [_weighted_sum(linear.weights, values, to, linear.missing)]
    cases = [] if trees is None else _write_trees(trees, columns, to)
    if to.ordered_sum is not None:
        sums = [to.ordered_sum.format(", ".join([*sums, *cases]))] if cases else sums
    else:
        for number, group in enumerate(in_groups(cases, _TREES_PER_STEP)):
            sums = [rows.add("s", {number: " + ".join([*sums, *group])})[number]]
    return f"CASE WHEN {rejected} THEN NULL ELSE {sums[0] if sums else to.number(0)} END"


def _write_trees(trees: TreesScorer, columns: dict[int, str], to: Dialect) -> list[str]:
    """Return each tree as nested cases; no comparison with NULL holds, so it takes the ELSE."""
    missing_left = trees.missing_left

    def split(node: int, left: str, right: str) -> str:
        column, threshold = columns[int(trees.feature[node])], to.number(trees.threshold[node])
        if missing_left is not None and missing_left[node]:
            return f"CASE WHEN {column} > {threshold} THEN {right} ELSE {left} END"
        return f"CASE WHEN {column} <= {threshold} THEN {left} ELSE {right} END"

    return fold(trees, lambda node: to.number(trees.value[node]), split, _MAX_LEVELS)


# -- the features ----------------------------------------------------------------------------------


def _table_columns(spec: ModelSpecification) -> tuple[str, ...]:
    """Return the names of the table's columns that features are computed from."""
    if spec.preprocessing.encoder is None:
        return spec.names
    if spec.feature_names != tuple(spec.preprocessing.encoder.feature_names):
        raise ParameterError(
            "feature_names is given: leave it out, because the view computes the features of this "
            "ranker from columns that have the same names as in training"
        )
    return tuple(column.name for column in spec.preprocessing.encoder.columns)


def _read(rows: Rows, spec: ModelSpecification, features: Sequence[int]) -> dict[int, str]:
    """Add the features that a ranker uses, as float32 numbers; missing ones are NULL, or imputed.

    Values that `predict` rejects are NULL, too, or NaN if the ranker takes missing values. Return
    the column of each feature, as the normalizer takes it.
    """
    imputer, to = spec.preprocessing.imputer, rows.dialect
    n, indicators = spec.n_features, () if imputer is None else imputer.indicators
    values = _values(spec, to)
    nan, otherwise = to.as_double("'NaN'"), ""
    expressions = {}
    for feature in sorted({f if f < n else indicators[f - n] for f in features}):
        value, is_exact = values[feature]
        if spec.takes_missing:
            otherwise = f" WHEN abs({value}) <= {to.infinity} THEN {nan}"
        expressions[feature] = value if is_exact else to.rounded(value, otherwise)
    columns = rows.add("x", expressions)
    if imputer is None:
        return columns
    imputed = {}
    for feature in features:
        if feature < n:
            fill = to.number(imputer.fill[feature])
            imputed[feature] = f"coalesce({columns[feature]}, {fill})"
        else:
            imputed[feature] = _indicator(f"{columns[indicators[feature - n]]} IS NULL", to)
    return rows.add("z", imputed)


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
    if spec.preprocessing.encoder is None:
        return [(to.as_number(f"t.{to.name(name)}"), False) for name in spec.names]
    return [
        value
        for column in spec.preprocessing.encoder.columns
        for value in _encode(column, f"t.{to.name(column.name)}", to)
    ]


def _encode(column: EncodedColumn, value: str, to: Dialect) -> list[tuple[str, bool]]:
    """Return the features that an encoder computes from one column."""
    if column.kind == "category":
        return [(_indicator(to.is_category(value, each), to), True) for each in column.values]
    if column.kind == "date":
        return [(to.days_before(column.reference, value), False)]
    return [(to.as_number(value), False)]


def _normalize(
    rows: Rows, normalizer: Normalizer | None, columns: dict[int, str]
) -> dict[int, str]:
    """Add (x − shift) / scale of each feature in float64, then rounded to float32.

    By query, `_add_ranges` comes first.
    """
    if normalizer is None:
        return columns
    to, scaled = rows.dialect, {}
    for feature, column in columns.items():
        if normalizer.shift is None or normalizer.scale is None:
            low, high = f"{PREFIX}low{feature}", f"{PREFIX}high{feature}"
            inverse = f"({to.number(1)} / ({high} - {low}))"
            scaled[feature] = (
                f"CASE WHEN {high} > {low} THEN ({column} - {low}) * {inverse} "
                f"ELSE ({column} - {low}) * {to.number(0)} END"
            )
        else:
            value, scale = _transformed(column, normalizer, feature, to), normalizer.scale[feature]
            factor = to.number(float(np.float64(1) / scale) if scale else 0.0)
            scaled[feature] = f"(({value}) - {to.number(normalizer.shift[feature])}) * {factor}"
    exact = rows.add("y", scaled)
    return rows.add("n", {feature: to.rounded(column) for feature, column in exact.items()})


def _transform(
    rows: Rows, normalizer: Normalizer | None, columns: dict[int, str]
) -> dict[int, str]:
    """Add the transform of each feature, rounded to float32, before its range by query."""
    if normalizer is None or normalizer.transform_name is None:
        return columns
    to = rows.dialect
    exact = rows.add("u", {f: _transformed(x, normalizer, f, to) for f, x in columns.items()})
    return rows.add("b", {feature: to.rounded(column) for feature, column in exact.items()})


def _add_ranges(rows: Rows, columns: dict[int, str], query: str) -> list[str]:
    """Add the smallest and the largest value of each feature per query; return the largest.

    NULL is neither. A NaN makes the largest one NaN. Trees without a split need no range.
    """
    if not columns:
        return []
    ends = {}
    for feature, column in columns.items():
        ends[f"{PREFIX}low{feature}"] = f"min({column})"
        ends[f"{PREFIX}high{feature}"] = f"max({column})"
    rows.add_aggregates(query, ends)
    return list(ends)[1::2]


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


# -- checks -----------------------------------------------------------------------------


def _check_columns(columns: tuple[str, ...], to: Dialect, query: str | None) -> None:
    """Reject columns that have the name of a column of the view, or that share a name."""
    if query == "":
        raise ParameterError("query is '', expected the name of the column of the query")
    added = (SCORE, RANK) if query is not None else (SCORE,)

    def is_added(name: str) -> bool:
        return (name.lower() if to.folds_case else name) in added or name.lower().startswith(PREFIX)

    if query is not None and is_added(query):
        raise ParameterError(
            f"query is {query!r}, expected another name: the view adds a column of that name; "
            "rename the column of the query in the table"
        )
    names: dict[str, str] = {}
    for name in columns:
        folded = name.lower() if to.folds_case else name
        if is_added(name):
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
