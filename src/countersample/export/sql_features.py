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


def takes_missing(spec: ModelSpecification) -> bool:
    """Whether a missing value has a score: it is imputed, or trees know where it goes."""
    return spec.imputer is not None or getattr(spec.scorer, "missing_left", None) is not None


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
    n = spec.n_features if imputer is None else imputer.n_features
    used = sorted({f if f < n else imputer.indicators[f - n] for f in features})
    values = _values(spec, to)
    marked = f" WHEN abs({{0}}) <= {to.special('Infinity')} THEN {to.special('NaN')}"
    columns = {feature: f"{OWN}x{feature}" for feature in used}
    expressions = {}
    for feature, column in columns.items():
        value, is_exact = values[feature]
        otherwise = marked.format(value) if takes_missing(spec) else ""
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
            source = columns[imputer.indicators[feature - n]]
            one, zero = to.number(1), to.number(0)
            imputed[f"{OWN}z{feature}"] = f"CASE WHEN {source} IS NULL THEN {one} ELSE {zero} END"
    return rows.having(imputed, keep=()), {f: f"{OWN}z{f}" for f in features}


def is_refused(spec: ModelSpecification, columns: Iterable[str], to: Dialect) -> str:
    """Return the condition under which `predict` refuses a row; "" where it never does."""
    test = f"= {to.special('NaN')}" if takes_missing(spec) else "IS NULL"
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


def ends_by_query(
    rows: Rows, normalizer: Normalizer | None, columns: dict[int, str], query: str
) -> tuple[Rows, dict[int, str], list[str]]:
    """Add the smallest and the largest value of each feature in the query, once transformed.

    Of those that are there: NULL is neither. NaN is larger than any number. The columns of the
    features are returned, and those of the largest values.
    """
    to = rows.dialect
    shapes = {f: _transformed(column, normalizer, f, to) for f, column in columns.items()}
    changed = [f for f, column in columns.items() if shapes[f] != column]
    rows = rows.having({f"{OWN}v{f}": shapes[f] for f in changed})
    rows = rows.having({f"{OWN}w{f}": to.rounded(f"{OWN}v{f}") for f in changed})
    columns = columns | {f: f"{OWN}w{f}" for f in changed}
    ends = {}
    for feature, column in columns.items():
        ends[f"{OWN}low{feature}"] = f"min({column})"
        ends[f"{OWN}high{feature}"] = f"max({column})"
    return rows.by_query(query, ends), columns, list(ends)[1::2]


def _normalised(column: str, normalizer: Normalizer, feature: int, to: Dialect) -> str:
    """Return what `Normalizer.transform` makes of one feature before it is float32."""
    if normalizer.shift is None or normalizer.scale is None:
        raise TypeError(f"{normalizer.how} has no shift and scale")
    value = _transformed(column, normalizer, feature, to)
    shift, factor = normalizer.shift[feature], float(np.float64(1) / normalizer.scale[feature])
    return f"(({value}) - {to.number(shift)}) * {to.number(factor)}"


def _transformed(column: str, normalizer: Any, feature: int, to: Dialect) -> str:  # noqa: ANN401
    """Return sign(x)·√|x|, sign(x)·ln(1 + |x|/s), or straight lines between knots."""
    roots, logs, knots = (getattr(normalizer, each, None) for each in ("roots", "logs", "knots"))
    if knots is not None and knots[feature]:
        at, shares = knots[feature]
        return _between(column, at, shares, to)
    if roots is not None and roots[feature]:
        before, after = roots[feature] * "sqrt(", roots[feature] * ")"
    elif logs is not None and logs[feature]:
        before, after = f"ln({to.number(1)} + (", f") / {to.number(logs[feature])})"
    else:
        return column
    return (
        f"CASE WHEN {column} < {to.number(0)} THEN -{before}-{column}{after} "
        f"ELSE {before}{column}{after} END"
    )


def _between(column: str, at: Sequence[float], shares: Sequence[float], to: Dialect) -> str:
    """Return share_i + slope_i·(x − knot_i), at most the next share; NULL and NaN have none."""
    cases = [f"WHEN {column} < {to.number(at[0])} THEN {to.number(shares[0])}"]
    for i in range(len(at) - 1):
        slope = float((np.float64(shares[i + 1]) - shares[i]) / (np.float64(at[i + 1]) - at[i]))
        line = f"{to.number(shares[i])} + {to.number(slope)} * ({column} - {to.number(at[i])})"
        value = f"least({line}, {to.number(shares[i + 1])})"
        cases.append(f"WHEN {column} < {to.number(at[i + 1])} THEN {value}")
    cases.append(f"WHEN {column} <= {to.special('Infinity')} THEN {to.number(shares[-1])}")
    return f"CASE {' '.join(cases)} END"


def _by_query(column: str, feature: int, to: Dialect) -> str:
    low, high = f"{OWN}low{feature}", f"{OWN}high{feature}"
    one, zero = to.number(1), to.number(0)
    return (
        f"CASE WHEN {high} > {low} THEN ({column} - {low}) * ({one} / ({high} - {low})) "
        f"ELSE ({column} - {low}) * {zero} END"
    )
