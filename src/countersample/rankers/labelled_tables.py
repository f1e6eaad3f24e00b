"""Tables with labels, read as a ranker was trained on them: `read_labelled`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.clicks.impressions.files import open_tables
from countersample.data import RankingDataset
from countersample.data.arrow_values import as_floats
from countersample.data.frames import check_column
from countersample.errors import DataError
from countersample.rankers.serving import TableReading, check_ids

if TYPE_CHECKING:
    from os import PathLike

    from countersample.rankers._saved import SavedScorer

_LABEL = "label"


def read_labelled(serving: SavedScorer, path: str | PathLike[str]) -> RankingDataset:
    """Read a table with a column ``label`` and the ranker's features, in memory."""
    source = str(path)
    with open_tables(source) as files:
        categories = [] if serving.encoder is None else serving.encoder.categories
        table = files.format.read(files, as_text=categories)
        reading = TableReading.of(serving, table.column_names, None, None)
        check_column(_LABEL, table.column_names)
        check_ids(reading, table)
        labels = as_floats(_LABEL, table[_LABEL])
        if np.isnan(labels).any():
            row = int(np.isnan(labels).argmax())
            raise DataError(f"column {_LABEL!r} has no value in row {row}, expected one")
        return RankingDataset.from_arrays(
            reading.encoder.transform(table),
            labels,
            table[reading.query].to_numpy(),
            feature_names=reading.encoder.feature_names,
        )
