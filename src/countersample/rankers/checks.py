"""Checks of a ranker's input: its parameters, the columns of a table, and the features.

A parameter of the same name is checked alike in all kinds of ranker (`CHECKS`). A table has one row
per query and item; its rows are grouped by query here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.clicks import ClickLog
from countersample.data import RankingDataset
from countersample.data.dataset import group_rows
from countersample.data.matrices import check_features, first_nan, has_nan
from countersample.data.preprocessing import (
    IMPUTATIONS,
    REJECT_MISSING,
    SCALINGS,
    TRANSFORMS,
    check_scaling,
)
from countersample.errors import DataError, ParameterError
from countersample.metrics import parse_additive
from countersample.objectives import get_loss
from countersample.plans import UNITS
from countersample.tuning.safety import check_safety

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints

Check = Callable[[str, Any], object]  # of a name and a value: raises an error for a bad value
# For scikit-learn's validate_data; `check_missing` finds values that are not finite.
VALIDATION = {"dtype": np.float32, "order": "C", "ensure_all_finite": False}


class WrongTypeError(DataError, TypeError):
    """A value of a type that is not a number."""


# -- Parameters ------------------------------------------------------------------------------------


def check_parameters(values: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """Reject values by the checks of a kind of ranker, or else by the checks of all rankers."""
    for name, check in (CHECKS | dict(checks)).items():
        if name in values:
            check(name, values[name])
    transform = values.get("feature_transform")
    if transform == "auto" and values["normalize"] == "root-minmax":
        raise ParameterError(
            "normalize is 'root-minmax' with feature_transform='auto', expected 'minmax', which "
            "the roots are tried with: 'root-minmax' is 'minmax' after feature_transform='root'"
        )
    if transform not in {None, "auto"}:
        check_scaling(values["normalize"], transform)


def either(*words: str | None, check: Callable[..., object], **bounds: float) -> Check:
    """Return a check that takes a number within bounds, or one of these words."""

    def check_either(name: str, value: object) -> None:
        is_word = (value is None or isinstance(value, str)) and value in words
        if not is_word:
            check(name, value, or_else=", ".join(map(repr, words)), **bounds)

    return check_either


def as_generator(name: str, random_state: Any) -> np.random.Generator:  # noqa: ANN401 (anything)
    """Return the generator of a seed, or the generator itself."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"{name} is {random_state!r}, expected an integer of at least 0, a numpy Generator or "
            "None"
        ) from error


def check_flag(name: str, value: object) -> None:
    """Reject a value that is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} is {value!r}, expected True or False")


def _check_metric(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ParameterError(f"{name} is {value!r}, expected the name of one, such as 'dcg@10'")
    parse_additive(value)


def _optional_choice(*options: str) -> Check:
    return lambda name, value: None if value is None else choice(name, value, options)


# Checks of learned attributes in a file, for more than one kind of ranker
COUNT: Check = partial(whole_number, least=0)
MIN_PROPENSITY = either(None, check=number, above=0)

CHECKS: dict[str, Check] = {
    "method": partial(choice, options=("countersample", "ips", "naive")),
    "unit": partial(choice, options=UNITS),
    "objective": lambda _, value: get_loss(value),
    "learning_rate": partial(number, above=0),
    "batch_size": partial(whole_number, least=1),
    "l2": partial(number, least=0),
    "patience": either(None, check=whole_number, least=1),
    "holdout": partial(number, above=0, most=0.5),
    "metric": _check_metric,
    "clip": either(None, check=number, above=0, most=1),
    "doubly_robust": check_flag,
    "temper": either("auto", check=number, least=0, most=1),
    "safety": check_safety,
    "normalize": _optional_choice(*SCALINGS),
    "impute": partial(choice, options=(*IMPUTATIONS, REJECT_MISSING)),
    "feature_transform": _optional_choice(*TRANSFORMS, "auto"),
    "warm_start": check_flag,
    "random_state": as_generator,
}


# -- Columns ---------------------------------------------------------------------------------------


def as_counts(y: ArrayLike) -> Floats:
    """Return clicks of at least 0, at least one above, float64 (n_rows,)."""
    counts = _as_column("y", y)
    _check_rows("y", counts, counts >= 0, "a number of clicks, at least 0")
    if not counts.any():
        raise DataError("y is all 0, expected at least one click: there is nothing to learn from")
    return counts


def as_propensities(propensity: ArrayLike | None, counts: Floats) -> Floats:
    """Return propensities in (0, 1], float64 (n_rows,); 1 by default, and without clicks."""
    if propensity is None:
        return np.ones_like(counts)
    values = np.where(counts > 0, _as_column("propensity", propensity, len(counts)), 1.0)
    is_valid = (values > 0) & (values <= 1)
    _check_rows("propensity", values, is_valid, "a number above 0 and at most 1, as it has clicks")
    return values


def as_sample_weights(sample_weight: ArrayLike, counts: Floats) -> Floats:
    """Return weights of at least 0, above 0 for some clicked row, float64 (n_rows,)."""
    values = _as_column("sample_weight", sample_weight, len(counts))
    is_valid = (values >= 0) & np.isfinite(values)
    _check_rows("sample_weight", values, is_valid, "a finite number of at least 0")
    if not values[counts > 0].any():
        raise DataError("sample_weight is 0 for all rows with clicks, expected one above 0")
    return values


def as_baseline(baseline: ArrayLike, n_rows: int) -> Floats:
    """Return the scores of the current ranker, float64 (n_rows,)."""
    values = _as_column("baseline", baseline, n_rows)
    _check_rows("baseline", values, np.isfinite(values), "a finite number")
    return values


def _as_column(name: str, values: ArrayLike, n_rows: int | None = None) -> Floats:
    try:
        column = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers ({error})") from error
    if n_rows is not None and column.shape != (n_rows,):
        raise DataError(
            f"{name} has shape {column.shape}, expected ({n_rows},): one number per row"
        )
    return column


def _check_rows(name: str, values: Floats, is_valid: NDArray[np.bool_], expected: str) -> None:
    if not is_valid.all():
        row = int(is_valid.argmin())
        raise DataError(f"{name} is {values[row]:g} in row {row}, expected {expected}")


# -- Queries ---------------------------------------------------------------------------------------


def group_queries(qid: ArrayLike | None, n_rows: int) -> tuple[Ints, Ints, NDArray[Any]]:
    """Return the rows query by query, the offset of each query among them, and the query ids."""
    if qid is None:
        return np.arange(n_rows), np.array([0, n_rows]), np.zeros(1, np.int64)
    ids = np.asarray(qid)
    if ids.shape != (n_rows,):
        raise DataError(f"qid has shape {ids.shape}, expected ({n_rows},): one for each row of X")
    order, offsets, query_ids = group_rows(ids)
    return np.arange(n_rows) if order is None else order, offsets, query_ids


def restore_order(rows: Ints, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values in the order of the table; `rows` has the row of each value."""
    restored = np.empty_like(values)
    restored[rows] = values
    return restored


def as_log(
    features: NDArray[np.float32],
    counts: Floats,
    propensities: Floats,
    qid: ArrayLike | None,
    *,
    names: tuple[str, ...] | None,
) -> tuple[RankingDataset, ClickLog, Ints]:
    """Return the table as a dataset, whose labels are the clicks, its click log, and its rows."""
    rows, offsets, query_ids = group_queries(qid, len(features))
    labels = counts[rows].astype(np.float32)
    dataset = RankingDataset(features[rows], labels, offsets, query_ids, names)
    clicked = np.flatnonzero(counts[rows])
    query = np.searchsorted(offsets, clicked, side="right") - 1
    table_rows = rows[clicked]
    log = ClickLog(query, clicked - offsets[query], propensities[table_rows], counts[table_rows])
    return dataset, log, rows


# -- Features --------------------------------------------------------------------------------------


def check_missing(
    features: Any,  # noqa: ANN401 (array or codes)
    names: tuple[str, ...] | None,
    *,
    is_allowed: bool,
) -> None:
    """Reject infinite values, and missing ones (NaN) if a ranker was trained without any."""
    check_features(features, "X")
    if not is_allowed and has_nan(features):
        raise DataError(
            f"{describe_missing(features, names)}, and this ranker was trained on features of "
            "which none was missing: fill it in, or train on data with missing values"
        )


def describe_missing(features: NDArray[Any], names: tuple[str, ...] | None) -> str:
    """Return the place of the first missing value; there is one."""
    row, column = first_nan(features)
    name = "" if names is None else f", of {names[column]!r}"
    return f"X has NaN in row {row}, column {column} (both counted from 0){name}"


def select_features(dataset: RankingDataset, n_features: int, names: tuple[str, ...] | None) -> Any:  # noqa: ANN401 (array or codes)
    """Return the features of training, (n_items, n_features); by name if a dataset has more.

    Another number of features, and other names if both have names, are rejected.
    """
    others = dataset.feature_names
    if dataset.n_features != n_features:
        if names is not None and (others or set(names) <= set(dataset.names_of_features)):
            return dataset.select_features(names).features
        raise DataError(
            f"X has {dataset.n_features} features, expected {n_features} as in training"
        )
    if names is not None and others is not None and names != others:
        index = next(k for k in range(n_features) if names[k] != others[k])
        raise DataError(
            f"feature {index} of X is {others[index]!r}, expected {names[index]!r}: give the "
            "features the names and the order of training"
        )
    return dataset.features
