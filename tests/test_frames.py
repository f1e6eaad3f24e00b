"""Datasets out of data frames and tables, by whatever library."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from countersample import RankingDataset
from countersample.data.labelled_files import read_table
from countersample.errors import DataError

COLUMNS = {
    "qid": [7, 7, 9],
    "label": [2, 0, 1],
    "bm25": [0.5, 0.25, 0.125],
    "clicks": [3, 2, 1],
    "fresh": [True, False, True],
}


FRAMES = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars-lazy": lambda: pl.LazyFrame(COLUMNS),
    "pyarrow": lambda: pa.table(COLUMNS),
    "duckdb": lambda: duckdb.from_arrow(pa.table(COLUMNS)),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_frames_of_every_library(make):
    data = RankingDataset.from_frame(make())
    assert data.feature_names == ("bm25", "clicks", "fresh")
    assert data.query_ids.tolist() == [7, 9]
    assert data.labels.tolist() == [2, 0, 1]
    assert data.features.tolist() == [[0.5, 3, 1], [0.25, 2, 0], [0.125, 1, 1]]
    with pytest.raises(DataError, match=r"no column 'labels' \(did you mean 'label'\?\)"):
        RankingDataset.from_frame(make(), label="labels")


HOLES = {"bm25": [0.5, None, 0.125], "clicks": [None, 2, 1], "fresh": [True, None, False]}
TYPES = {"bm25": pa.float64(), "clicks": pa.int64(), "fresh": pa.bool_()}


@pytest.mark.parametrize(
    "make",
    [
        lambda table: table,
        pl.from_arrow,
        lambda table: table.to_pandas(),
        lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
        lambda table: table.to_pandas().convert_dtypes(),
        duckdb.from_arrow,
    ],
    ids=["pyarrow", "polars", "pandas", "pandas-arrow", "pandas-nullable", "duckdb"],
)
def test_nulls_are_missing(make):
    columns = {name: pa.array(values, TYPES[name]) for name, values in HOLES.items()}
    table = pa.table({"qid": [7, 7, 9], "label": [2, 0, 1], **columns})
    if make.__name__ == "<lambda>":  # pandas has no type for some of them but object
        table = table.set_column(4, "fresh", table["fresh"].cast(pa.int8()))
    data = RankingDataset.from_frame(make(table))
    expected = [[0.5, np.nan, 1], [np.nan, 2, np.nan], [0.125, 1, 0]]
    np.testing.assert_array_equal(data.features, np.array(expected, np.float32))
    assert data.has_missing


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": ["a", "b", "c"]}, r"column 'url' is String, expected numbers: drop the column"),
        ({"label": [1, None, 0]}, r"column 'label' has no value in row 1"),
        ({"qid": [1, None, 1]}, r"column 'qid' has no value in row 1"),
        ({"label": ["good", "bad", "bad"]}, r"column 'label' is String, expected numbers$"),
        ({"bm25": [0.5, float("inf"), 1.0]}, r"X has inf in row 1, column 0"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(DataError, match=message):
        RankingDataset.from_frame(pl.DataFrame(COLUMNS | change))


def test_not_a_frame():
    with pytest.raises(DataError, match="a dict is not a data frame: expected one of pandas"):
        RankingDataset.from_frame(COLUMNS)


def test_csv_and_tsv(tmp_path):
    frame = pl.DataFrame(COLUMNS).with_columns(pl.col("fresh").cast(int))
    frame.write_csv(tmp_path / "data.csv")
    frame.write_csv(tmp_path / "data.tsv", separator="\t")
    expected = RankingDataset.from_frame(frame)
    assert read_table(tmp_path / "data.csv") == expected
    assert read_table(tmp_path / "data.tsv") == expected


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_files_that_are_not_tables(tmp_path, name):
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / name)
    (tmp_path / name).write_bytes(b"\x00\x01\x02")
    with pytest.raises(DataError, match=name):
        read_table(tmp_path / name)


def test_table_without_the_columns_names_the_file(tmp_path):
    pl.DataFrame({"a": [1]}).write_csv(tmp_path / "x.csv")
    with pytest.raises(DataError, match=r"x\.csv: no column 'label': the columns are a"):
        read_table(tmp_path / "x.csv")
