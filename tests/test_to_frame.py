"""Everything with columns: as a frame of any library, and in a notebook."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from countersample import ClickLog, RankingDataset
from countersample._frames import BACKENDS, make_frame
from countersample.clicks import diagnose
from countersample.errors import DataError, ParameterError
from countersample.logs import PositionCounts, read_impressions
from countersample.propensity import CrossCheck, Propensities

DATA = RankingDataset.from_arrays(
    X=[[0.5, 1], [1.5, 0], [2.5, 3]], y=[0, 2, 1], qid=["a", "a", "b"], feature_names=["x", "y"]
)
LOG = ClickLog(query=[0, 0, 1], item=[1, 0, 0], propensity=[0.5, 1, 0.25], position=[2, 1, 3])
COLUMNS = {
    "query_id": ["a", "a", "b"],
    "item_id": [7, 8, 7],
    "position": [1, 2, 1],
    "click": [1, 0, 1],
}
CURVE = Propensities(
    [1, 0.5], low=[1, 0.4], high=[1, 0.6], n_impressions=[9, 8], method="all-pairs"
)
TABULAR = {
    "dataset": (DATA, {"qid": ["a", "a", "b"], "label": [0, 2, 1], "x": [0.5, 1.5, 2.5],
                       "y": [1, 0, 3]}),
    "log": (LOG, {"query": [0, 0, 1], "item": [1, 0, 0], "propensity": [0.5, 1, 0.25],
                  "position": [2, 1, 3]}),
    "counts": (PositionCounts.from_columns(**COLUMNS),
               {"query_id": ["a", "a", "b"], "item_id": [7, 8, 7], "position": [1, 2, 1],
                "impressions": [1, 1, 1], "clicks": [1, 0, 1]}),
    "check": (read_impressions(pa.table(COLUMNS)).check(),
              {"position": [1, 2], "impressions": [2, 1], "clicks": [2, 0],
               "click_rate": [1, 0]}),
    "propensities": (CURVE, {"position": [1, 2], "value": [1, 0.5], "low": [1, 0.4],
                             "high": [1, 0.6], "n_impressions": [9, 8]}),
    "cross-check": (CrossCheck({"em": CURVE, "pivot": CURVE}, {}, is_agreed=True, sentence="yes"),
                    {"method": ["em", "em", "pivot", "pivot"], "position": [1, 2, 1, 2],
                     "value": [1, 0.5, 1, 0.5], "low": [1, 0.4, 1, 0.4],
                     "high": [1, 0.6, 1, 0.6], "n_impressions": [9, 8, 9, 8]}),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TABULAR)
def test_columns_have_names_and_values(name, backend):
    made, expected = TABULAR[name]
    frame = made.to_frame(backend)
    assert type(frame).__module__.partition(".")[0] == backend
    columns = frame.column_names if backend == "pyarrow" else list(frame.columns)
    assert columns == list(expected)
    for column, values in expected.items():
        assert np.asarray(frame[column]).tolist() == values


@pytest.mark.parametrize("made", [DATA.describe(), diagnose(LOG)])
def test_statistics_have_a_row_each(made):
    frame = made.to_frame("pandas").set_index("statistic")["value"]
    assert frame["n_queries"] == 2
    assert all(frame[name] == getattr(made, name) for name in frame.index)


def test_the_frame_is_of_pandas_where_it_is_installed(monkeypatch):
    assert isinstance(CURVE.to_frame(), pd.DataFrame)
    assert isinstance(CURVE.to_frame("polars"), pl.DataFrame)
    monkeypatch.setattr("countersample._frames.find_spec", lambda _: None)
    assert isinstance(CURVE.to_frame(), pa.Table)
    with pytest.raises(ParameterError, match="backend is 'dask', expected one of pandas, polars"):
        make_frame({"a": [1]}, "dask")


def cells_of(made):
    """The texts of the table that a notebook shows, beginning with the caption."""
    return re.findall(r"<(?:caption|th|td|span)[^>]*>([^<]+)<", made._repr_html_())


@pytest.mark.parametrize("name", TABULAR)
def test_a_notebook_shows_a_table(name):
    made, expected = TABULAR[name]
    caption, *cells = cells_of(made)
    assert caption == type(made).__name__
    header = ["statistic", "value"] if name == "dataset" else list(expected)
    assert cells[: len(header)] == header


def test_a_notebook_shows_the_first_rows():
    log = ClickLog(query=[0] * 1234, item=[0] * 1234, propensity=[0.5] * 1234)
    caption, *cells = cells_of(log)
    assert caption == "ClickLog: the first 10 of 1,234 rows"
    assert cells == ["query", "item", "propensity"] + ["0", "0", "0.5"] * 10


# -- logs put together


def test_concat_keeps_rows_and_weights():
    other = ClickLog(query=[1], item=[2], propensity=[0.125], position=[4])
    both = ClickLog.concat([LOG, other])
    assert both.query.tolist() == [0, 0, 1, 1]
    assert both.position.tolist() == [2, 1, 3, 4]
    assert both.n_clicks == LOG.n_clicks + 1
    assert both.weights.tolist() == [*LOG.weights, 8]
    with pytest.raises(DataError, match=r"click log 1 .* has the columns query, item, propensity"):
        ClickLog.concat([LOG, other.replace(count=[3])])
