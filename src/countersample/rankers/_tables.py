"""Tables with a row for each query and item, checked and gathered by query."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import ClickLog
from countersample.data import RankingDataset
from countersample.data._arrays import check_features, first_nan, has_nan
from countersample.data.rows import group_rows
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints


def gather(qid: ArrayLike | None, n_rows: int) -> tuple[Ints, Ints, NDArray[Any]]:
    """Return the rows query by query, where each query starts among them, and the query ids."""
    if qid is None:
        return np.arange(n_rows), np.array([0, n_rows]), np.zeros(1, np.int64)
    ids = np.asarray(qid)
    if ids.shape != (n_rows,):
        raise DataError(f"qid has shape {ids.shape}, expected ({n_rows},): one for each row of X")
    order, offsets, query_ids = group_rows(ids)
    return np.arange(n_rows) if order is None else order, offsets, query_ids


def put_back(rows: Ints, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values in the order of the table; `rows` says which row each one is of."""
    out = np.empty_like(values)
    out[rows] = values
    return out


class WrongTypeError(DataError, TypeError):
    """A value that is not of a type that numbers can be made of."""


def as_counts(y: ArrayLike) -> Floats:
    """Return clicks as numbers of at least 0, one of them above, float64 (n_rows,)."""
    counts = _as_numbers("y", y)
    _check_rows("y", counts, counts >= 0, "a number of clicks, at least 0")
    if not counts.any():
        raise DataError("y is all 0, expected at least one click: there is nothing to learn from")
    return counts


def as_propensities(propensity: ArrayLike | None, counts: Floats) -> Floats:
    """Return propensities in (0, 1], float64 (n_rows,); 1 by default, and where no clicks are."""
    if propensity is None:
        return np.ones_like(counts)
    given = np.where(counts > 0, _as_column("propensity", propensity, len(counts)), 1.0)
    is_good = (given > 0) & (given <= 1)
    _check_rows("propensity", given, is_good, "a number above 0 and at most 1, as it has clicks")
    return given


def as_sample_weights(sample_weight: ArrayLike, counts: Floats) -> Floats:
    """Return weights of at least 0, one of a clicked row above, float64 (n_rows,)."""
    given = _as_column("sample_weight", sample_weight, len(counts))
    is_good = (given >= 0) & np.isfinite(given)
    _check_rows("sample_weight", given, is_good, "a finite number of at least 0")
    if not given[counts > 0].any():
        raise DataError("sample_weight is 0 for all rows with clicks, expected one above 0")
    return given


def as_baseline(baseline: ArrayLike, n_rows: int) -> Floats:
    """Return the scores of what is served, float64 (n_rows,)."""
    given = _as_column("baseline", baseline, n_rows)
    _check_rows("baseline", given, np.isfinite(given), "a finite number")
    return given


def as_log(
    features: NDArray[np.float32],
    counts: Floats,
    propensities: Floats,
    qid: ArrayLike | None,
    *,
    names: tuple[str, ...] | None,
) -> tuple[RankingDataset, ClickLog]:
    """Return the table as a dataset, whose labels are the clicks, and its click log."""
    rows, offsets, query_ids = gather(qid, len(features))
    labels = counts[rows].astype(np.float32)
    dataset = RankingDataset(features[rows], labels, offsets, query_ids, names)
    clicked = np.flatnonzero(counts[rows])
    query = np.searchsorted(offsets, clicked, side="right") - 1
    chosen = rows[clicked]
    log = ClickLog(query, clicked - offsets[query], propensities[chosen], counts[chosen])
    return dataset, log


def check_missing(
    features: Any,  # noqa: ANN401 (array or codes)
    names: tuple[str, ...] | None,
    *,
    takes_missing: bool,
) -> None:
    """Refuse infinity, and what is missing (NaN) where a ranker was trained without any."""
    check_features(features, "X")
    if not takes_missing and has_nan(features):
        raise DataError(
            f"{missing_in(features, names)}, and this ranker was trained on features of which none "
            "was missing: fill it in, or train on rows in which values are missing, too"
        )


def missing_in(features: NDArray[Any], names: tuple[str, ...] | None) -> str:
    """Say where a value is missing; there is one."""
    row, column = first_nan(features)
    called = "" if names is None else f", of {names[column]!r}"
    return f"X has NaN in row {row}, column {column} (both counted from 0){called}"


def own_features(dataset: RankingDataset, n_features: int, names: tuple[str, ...] | None) -> Any:  # noqa: ANN401 (array or codes)
    """Return the features of training: by their names where a dataset has more, (n_items, n).

    Refuse another number of features, or other names where both have names.
    """
    if names is not None and dataset.n_features != n_features:
        known = dataset.names_of_features
        if dataset.feature_names is not None or set(names) <= set(known):
            return dataset.select_features(names).features
    given = dataset.feature_names
    if dataset.n_features != n_features:
        raise DataError(
            f"X has {dataset.n_features} features, expected {n_features} as in training"
        )
    if names is not None and given is not None and names != given:
        index = next(k for k in range(n_features) if names[k] != given[k])
        raise DataError(
            f"feature {index} of X is {given[index]!r}, expected {names[index]!r}: give the "
            "features the names and the order of training"
        )
    return dataset.features


@contextmanager
def own_errors() -> Iterator[None]:
    """Turn what scikit-learn's checks raise into errors of this package."""
    try:
        with np.errstate(over="ignore"):  # what overflows is said to be infinite
            yield
    except (TypeError, ValueError) as error:
        kind = WrongTypeError if isinstance(error, TypeError) else DataError
        raise kind(" ".join(str(error).split())) from error


def _as_column(name: str, values: ArrayLike, n_rows: int) -> Floats:
    given = _as_numbers(name, values)
    if given.shape != (n_rows,):
        raise DataError(
            f"{name} has shape {given.shape}, expected ({n_rows},): one for each row of X"
        )
    return given


def _as_numbers(name: str, values: ArrayLike) -> Floats:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers ({error})") from error


def _check_rows(name: str, values: Floats, is_good: NDArray[np.bool_], expected: str) -> None:
    if not is_good.all():
        row = int(is_good.argmin())
        raise DataError(f"{name} is {values[row]:g} in row {row}, expected {expected}")
