"""Data frames and tables with named columns: pandas, polars, pyarrow, DuckDB; Parquet and CSV."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from countersample._files import atomic_path
from countersample.data.dataset import RankingDataset
from countersample.data.sources import check_unchanged, reading
from countersample.errors import DataError

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

TABLE_SUFFIXES = (".parquet", ".csv", ".tsv")


def as_narwhals(
    frame: Any,  # noqa: ANN401 (any frame narwhals knows)
    what: str = "not a data frame",
) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    """Return the frame of any library as one of narwhals; `what` says what else it is not."""
    try:
        return nw.from_native(frame)  # type: ignore[no-any-return]
    except TypeError as error:
        raise DataError(
            f"a {type(frame).__name__} is {what}: expected one of pandas, polars, pyarrow, DuckDB "
            "or Spark"
        ) from error


def collected(frame: Any, what: str = "not a data frame") -> nw.DataFrame[Any]:  # noqa: ANN401 (as above)
    """Return the frame of any library in memory."""
    native = as_narwhals(frame, what)
    return native.collect() if isinstance(native, nw.LazyFrame) else native


def read_table(path: str | PathLike[str]) -> RankingDataset:
    """Read a Parquet, CSV or TSV file with named columns; see `RankingDataset.from_frame`."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import csv, parquet  # noqa: PLC0415

    path = Path(path)
    with reading(path, f"cannot be read as {path.suffix[1:]}: {{}}", pa.ArrowException):
        before = path.stat()
        # Arrow moves about in a file, which a pipe does not allow.
        source = path if path.is_file() else pa.BufferReader(path.read_bytes())
        if path.suffix == ".parquet":
            table = parquet.read_table(source)
        else:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            table = csv.read_csv(source, parse_options=csv.ParseOptions(delimiter=delimiter))
        found = RankingDataset.from_frame(table)
        after = path.stat()
    check_unchanged(path, before, after)
    return found


def write_parquet(dataset: RankingDataset, path: str | PathLike[str]) -> None:
    """Write a dataset as Parquet: columns ``qid``, ``label`` and one a feature (``f1`` …)."""
    from pyarrow import parquet  # noqa: PLC0415 (heavy, only where used)

    with atomic_path(path) as temporary:
        parquet.write_table(dataset.to_frame("pyarrow"), temporary)


def check_column(
    column: str, columns: list[str], advice: str = "", *, what: str = "column"
) -> None:
    """Refuse a column that is not there; name those that are."""
    if column in columns:
        return
    close = difflib.get_close_matches(column, columns, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    shown = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
    raise DataError(f"no {what} {column!r}{hint}: the {what}s are {shown}{advice}")


def check_no_nulls(series: nw.Series[Any]) -> None:
    """Refuse a column that has no value in some row."""
    if series.null_count():
        row = int(np.flatnonzero(series.is_null().to_numpy())[0])
        raise DataError(f"column {series.name!r} has no value in row {row}, expected one")


def numbers(series: nw.Series[Any], *, is_chosen: bool) -> NDArray[Any]:
    """Return a column of numbers, none of which is missing; `is_chosen`: the user named it."""
    _check_numbers(series, is_chosen=is_chosen)
    check_no_nulls(series)
    return series.to_numpy()


def features(series: nw.Series[Any], *, is_chosen: bool) -> NDArray[Any]:
    """Return a column of numbers with NaN where there is none; `is_chosen` as above."""
    _check_numbers(series, is_chosen=is_chosen)
    if series.null_count():
        series = series.cast(nw.Float64).fill_null(float("nan"))
    return series.to_numpy()


def _check_numbers(series: nw.Series[Any], *, is_chosen: bool) -> None:
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        hint = (
            ""
            if is_chosen
            else ": name the feature columns with include= (--include), or leave it out (--exclude)"
        )
        raise DataError(f"column {series.name!r} is {series.dtype}, expected numbers{hint}")
