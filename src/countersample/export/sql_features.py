"""Features in SQL, step by step as a ranker takes them: read, encoded, imputed, normalised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import ParameterError
from countersample.export.sql_dialects import OWN, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countersample.data.normalize import Normalizer
    from countersample.export.specification import ModelSpecification
    from countersample.export.sql_dialects import Dialect, Rows


def columns_of(spec: ModelSpecification) -> tuple[str, ...]:
    """Return the columns of the table that the features are made of, by name."""
    if spec.encoder is None:
        return spec.names
    if spec.feature_names != tuple(spec.encoder.feature_names):
        raise ParameterError(
            "feature_names is given, expected it left out: this ranker makes its features of the "
            "columns of a table, which the view knows by the names they had in training"
        )
    return tuple(column.name for column in spec.encoder.columns)


def read(
    rows: Rows, spec: ModelSpecification, features: Sequence[int]
) -> tuple[Rows, dict[int, str]]:
    """Add the features that a ranker uses, as float32 numbers; what is missing is NULL, or imputed.

    What `predict` refuses is NULL, too, or NaN where a missing value is not refused.

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
    marked = f" WHEN abs({{0}}) <= {to.special('Infinity')} THEN {to.special('NaN')}"
    columns = {feature: f"{OWN}x{feature}" for feature in used}
    expressions = {}
    for feature, column in columns.items():
        value, is_exact = values[feature]
        otherwise = marked.format(value) if spec.takes_missing else ""
        expressions[column] = value if is_exact else to.rounded(value, otherwise)
    rows = rows.having(expressions)
    if imputer is None:
        return rows, columns
    imputed = {}
    for feature in features:
        if feature < n:
            fill = to.number(imputer.fill[feature])
            imputed[f"{OWN}z{feature}"] = f"coalesce({columns[feature]}, {fill})"
        else:
            source = columns[indicators[feature - n]]
            one, zero = to.number(1), to.number(0)
            imputed[f"{OWN}z{feature}"] = f"CASE WHEN {source} IS NULL THEN {one} ELSE {zero} END"
    return rows.having(imputed, keep=()), {f: f"{OWN}z{f}" for f in features}


def is_refused(spec: ModelSpecification, columns: Iterable[str], to: Dialect) -> str:
    """Return the condition under which `predict` refuses a row; "" where it never does."""
    test = f"= {to.special('NaN')}" if spec.takes_missing else "IS NULL"
    return joined([f"{column} {test}" for column in columns], "OR")


def _values(spec: ModelSpecification, to: Dialect) -> list[tuple[str, bool]]:
    """Return each feature before it is float32, and whether it needs no rounding."""
    if spec.encoder is None:
        return [(to.as_double(f"t.{to.name(name)}"), False) for name in spec.names]
    found: list[tuple[str, bool]] = []
    for column in spec.encoder.columns:
        found += _encoded(column, f"t.{to.name(column.name)}", to)
    return found


def _encoded(column: Any, value: str, to: Dialect) -> list[tuple[str, bool]]:  # noqa: ANN401
    """Return the features that an encoder makes of one column."""
    if column.kind == "category":
        text, one, zero = f"CAST({value} AS {to.text})", to.number(1), to.number(0)
        return [
            (f"CASE WHEN {text} = {to.string(each)} THEN {one} ELSE {zero} END", True)
            for each in column.values
        ]
    if column.kind == "date":
        return [(to.days.format(later=to.string(column.reference), earlier=value), False)]
    return [(to.as_double(value), False)]


def normalise(
    rows: Rows, normalizer: Normalizer | None, columns: dict[int, str], keep: Iterable[str] = ()
) -> tuple[Rows, dict[int, str]]:
    """Add (x − shift) / scale of each feature in float64, then that as float32.

    Other columns are gone, unless they are to be kept. By query, `ends_by_query` comes before.
    """
    if normalizer is None:
        return rows, columns
    to = rows.dialect
    by_query = normalizer.how == "query-minmax"
    exact = {
        f"{OWN}y{f}": _by_query(x, f, to) if by_query else _normalised(x, normalizer, f, to)
        for f, x in columns.items()
    }
    rounded = {f"{OWN}n{feature}": to.rounded(f"{OWN}y{feature}") for feature in columns}
    rows = rows.having(exact, keep).having(rounded, keep)
    return rows, {feature: f"{OWN}n{feature}" for feature in columns}


def bend(
    rows: Rows, normalizer: Normalizer | None, columns: dict[int, str]
) -> tuple[Rows, dict[int, str]]:
    """Add the transform of each feature as float32, of which the ends are found by query."""
    if normalizer is None or normalizer.transform_name is None:
        return rows, columns
    to = rows.dialect
    exact = {f"{OWN}u{f}": _transformed(x, normalizer, f, to) for f, x in columns.items()}
    rounded = {f"{OWN}b{feature}": to.rounded(f"{OWN}u{feature}") for feature in columns}
    rows = rows.having(exact, keep=()).having(rounded, keep=())
    return rows, {feature: f"{OWN}b{feature}" for feature in columns}


def ends_by_query(rows: Rows, columns: dict[int, str], query: str) -> tuple[Rows, list[str]]:
    """Add the smallest and the largest value of each feature in the query; return the largest.

    Of those that are there: NULL is neither. NaN is larger than any number.
    """
    ends = {}
    for feature, column in columns.items():
        ends[f"{OWN}low{feature}"] = f"min({column})"
        ends[f"{OWN}high{feature}"] = f"max({column})"
    return rows.by_query(query, ends), list(ends)[1::2]


def _normalised(column: str, normalizer: Normalizer, feature: int, to: Dialect) -> str:
    """Return what `Normalizer.transform` makes of one feature before it is float32."""
    if normalizer.shift is None or normalizer.scale is None:
        raise TypeError(f"{normalizer.how} has no shift and scale")
    value, scale = _transformed(column, normalizer, feature, to), normalizer.scale[feature]
    factor = float(np.float64(1) / scale) if scale else 0.0
    return f"(({value}) - {to.number(normalizer.shift[feature])}) * {to.number(factor)}"


def _transformed(column: str, normalizer: Normalizer, feature: int, to: Dialect) -> str:
    """Return t(x) of one feature; what is NULL or NaN stays so."""
    if normalizer.roots is not None and (times := normalizer.roots[feature]):
        return _odd(column, times * "sqrt(" + "{}" + times * ")", to)
    if normalizer.logs is not None and (size := normalizer.logs[feature]):
        return _odd(column, f"ln({to.number(1)} + {{}} / {to.number(size)})", to)
    if normalizer.knots is not None and (knots := normalizer.knots[feature]):
        return _between(column, knots[0], knots[1], to)
    return column


def _odd(column: str, of_size: str, to: Dialect) -> str:
    """Return f(|x|) with the sign of x."""
    below, above = of_size.format(f"-{column}"), of_size.format(column)
    return f"CASE WHEN {column} < {to.number(0)} THEN -{below} ELSE {above} END"


def _between(column: str, at: Sequence[float], shares: Sequence[float], to: Dialect) -> str:
    """Return share_i + slope_i·(x − knot_i), at most the next share; NULL and NaN stay so."""
    cases = [f"WHEN {column} < {to.number(at[0])} THEN {to.number(shares[0])}"]
    for i in range(len(at) - 1):
        slope = float((np.float64(shares[i + 1]) - shares[i]) / (np.float64(at[i + 1]) - at[i]))
        line = f"{to.number(shares[i])} + {to.number(slope)} * ({column} - {to.number(at[i])})"
        value = f"least({line}, {to.number(shares[i + 1])})"
        cases.append(f"WHEN {column} < {to.number(at[i + 1])} THEN {value}")
    cases.append(f"WHEN {column} <= {to.special('Infinity')} THEN {to.number(shares[-1])}")
    return f"CASE {' '.join(cases)} ELSE {column} END"


def _by_query(column: str, feature: int, to: Dialect) -> str:
    low, high = f"{OWN}low{feature}", f"{OWN}high{feature}"
    one, zero = to.number(1), to.number(0)
    return (
        f"CASE WHEN {high} > {low} THEN ({column} - {low}) * ({one} / ({high} - {low})) "
        f"ELSE ({column} - {low}) * {zero} END"
    )
