"""What the log knows of: the items that were shown, of the queries that were asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.data import RankingDataset
from countersample.data.rows import rows_of

if TYPE_CHECKING:
    from countersample.clicks.log import ClickLog


def only_shown(dataset: RankingDataset, log: ClickLog) -> tuple[RankingDataset, ClickLog]:
    """Return the items that the log says were shown, and its rows on them.

    A page shows 10 of 40 items. Of the other 30 no click tells anything: taken for irrelevant, they
    teach a ranker to repeat what chose the ten. So a click is compared with what was shown beside
    it. A log without impressions does not say what was shown, and everything is kept.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog

    Returns
    -------
    dataset : RankingDataset
        Of the shown items, of queries that have any; the same dataset where that is all of them.
    log : ClickLog
        Of no dataset in particular (no fingerprint).

    Examples
    --------
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.clicks.shown import only_shown
    >>> data = RankingDataset.from_arrays(
    ...     X=[[1.0], [2.0], [3.0], [4.0]], y=[0, 0, 0, 0], qid=["a", "b", "b", "b"])
    >>> log = ClickLog(query=[1, 1], item=[2, 0], propensity=[1.0, 0.5], count=[1, 0],
    ...                position=[1, 2], impressions=[5, 5])
    >>> shown, of_shown = only_shown(data, log)
    >>> shown.features.ravel(), of_shown.query, of_shown.item
    (array([2., 4.], dtype=float32), array([0, 0], dtype=int32), array([1, 0], dtype=int32))
    """
    if log.impressions is None:
        return dataset, log.replace(fingerprint=None)
    row = dataset.offsets[log.query] + log.item
    is_shown = np.zeros(dataset.n_items, bool)
    is_shown[row] = True
    if is_shown.all():
        return dataset, log.replace(fingerprint=None)
    rows = np.flatnonzero(is_shown)
    sizes = np.add.reduceat(is_shown, dataset.offsets[:-1], dtype=np.int64)
    asked = np.flatnonzero(sizes)
    offsets = np.append(0, np.cumsum(sizes[asked]))
    query = np.searchsorted(asked, log.query)
    item = np.searchsorted(rows, row) - offsets[query]
    shown = RankingDataset(
        rows_of(dataset.features, rows), dataset.labels[rows], offsets, dataset.query_ids[asked],
        dataset.feature_names,
    )  # fmt: skip
    return shown, log.replace(query=query, item=item, fingerprint=None)
