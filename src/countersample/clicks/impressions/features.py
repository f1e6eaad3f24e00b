"""Tables of item features by query and item id: `read_features`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.impressions.feature_parts import FeatureParts
from countersample.clicks.impressions.feature_sources import open_features, open_features_of
from countersample.clicks.impressions.files import find_files, format_of, open_tables
from countersample.data.choosing import choose_features
from countersample.data.encoding import FeatureEncoder
from countersample.data.folders import find_layout
from countersample.data.learn_encoding import learn_encoder
from countersample.data.store import is_dataset_folder
from countersample.errors import DataError, ParameterError
from countersample.options import FeatureOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from countersample.clicks.impressions.handle import Impressions
    from countersample.data.dataset import RankingDataset

# What the tables are called, and the ids of their rows.
_PARTS = {
    "pairs": ("the features of pairs", ("query_id", "item_id")),
    "items": ("the features of items", ("item_id",)),
    "queries": ("the features of queries", ("query_id",)),
}


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Items with their features, and the ids a log knows them by.

    Parameters
    ----------
    dataset : RankingDataset
        Its labels are 0 where the table has none.
    item_ids : array (n_items,), int64 or str
        The id of each row.
    has_labels : bool
        Whether the labels came with the table.
    encoder : FeatureEncoder, optional
        How the columns of the table became features; None of LETOR text.
    warnings : tuple of str
        What to know of the columns: those that were left out.
    own : dict of RankingDataset, by encoder
        The same rows as rankers read them that read the columns in another way.
    """

    dataset: RankingDataset
    item_ids: NDArray[Any]
    has_labels: bool
    encoder: FeatureEncoder | None = None
    warnings: tuple[str, ...] = ()
    own: Mapping[FeatureEncoder, RankingDataset] = field(default_factory=dict)

    @property
    def encoder_to_save(self) -> FeatureEncoder | None:
        """How columns become features, where the names of the features do not say it."""
        return None if self.encoder is None or self.encoder.has_only_numbers else self.encoder

    def dataset_for(self, ranker: object) -> RankingDataset:
        """Return the rows with the features of a ranker, read as it was trained."""
        wanted = encoder_of(ranker)
        if wanted is None or self.encoder is None:
            return self.dataset
        if set(wanted.columns) <= set(self.encoder.columns):
            return self.dataset
        if wanted in self.own:
            return self.own[wanted]
        if set(wanted.column_names) <= set(self.encoder.column_names):
            raise DataError(
                "the ranker reads the columns of the table in another way than it was read: read "
                "it with read_features(…, rankers=[ranker])"
            )
        return self.dataset  # in which the ranker will miss a feature, and say which


def read_features(
    source: str | PathLike[str] | Any = None,  # noqa: ANN401 (any frame narwhals knows)
    options: FeatureOptions | None = None,
    *,
    log: Impressions | None = None,
    encoder: FeatureEncoder | None = None,
    rankers: Sequence[object] = (),
    warm_start: object = None,
    join_queries: bool = False,
    **settings: Any,  # noqa: ANN401 (fields of FeatureOptions)
) -> FeatureTable:
    """Read the features of items, a row for each query and item.

    Numbers and booleans are features as they are, dates are their age in days, text of few values
    becomes indicators; other columns are left out, and named in `FeatureTable.warnings`.

    Parameters
    ----------
    source : path or data frame, optional
        Parquet, CSV, TSV or JSON lines with columns ``query_id``, ``item_id`` and the features, or
        a data frame with them; LETOR text or a saved dataset, whose items are numbered from 0 in
        each query. A column ``label`` is not a feature.
    options : FeatureOptions, optional
        Which columns are features, and how they are read.
    log : Impressions, optional
        If there is no `source`, the table has the pairs of query and item that the log shows. The
        features of the log (see `LogOptions`) are among the features.
    encoder : FeatureEncoder, optional
        Read the columns as this encoder of another table does: nothing is learned, and only its
        columns are read.
    rankers : sequence of rankers
        Read the columns also as each of these was trained on them, see `FeatureTable.dataset_for`.
    warm_start : ranker, optional
        The ranker that training continues from: columns that it has are read as it reads them, with
        the same values of categories and ages from the same day.
    join_queries : bool
        Whether queries that differ in case and blanks only are one, as in `LogOptions`. If several
        of them have an item, the first row is taken.
    **settings
        Single fields of `FeatureOptions`, by keyword.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.clicks.impressions import read_features
    >>> table = pyarrow.table({"query_id": [1, 1], "item_id": ["x", "y"], "bm25": [0.2, 0.7]})
    >>> read_features(table).item_ids
    array(['x', 'y'], dtype='<U1')
    """
    options = FeatureOptions.of(options, **settings)
    items, queries, categorical = options.items, options.queries, options.categorical
    features, drop = options.include or None, options.exclude or None
    given = {"pairs": source, "items": items, "queries": queries}
    if is_labelled_data(source):
        if items is not None or queries is not None or (log is not None and log.features):
            raise ParameterError(
                f"{source}: numbers its items by query, and other features are by id: expected a "
                "table with query_id and item_id beside them"
            )
        if categorical or encoder is not None:
            raise ParameterError(
                f"{source}: has numbers without names, expected a table for categorical="
            )
        return _of_dataset(Path(source), features, drop)
    before = encoder_of(warm_start)
    categories = [name for each in (encoder, before, *map(encoder_of, rankers)) if each
                  for name in each.categories]  # fmt: skip
    parts = _open(
        given, {"query_id": options.query, "item_id": options.item}, log, join_queries=join_queries,
        as_text=(*categorical, *categories),
    )  # fmt: skip
    homes = parts.homes(features)
    warnings = parts.warnings
    if encoder is not None:
        chosen = list(homes)
        tables = parts.tables(homes, encoder.column_names)
    else:
        chosen = choose_features(list(homes), features, drop)
        tables = parts.tables(homes, chosen)
        known = {} if before is None else {each.name: each for each in before.columns}
        learned = learn_encoder(
            {name: tables[name] for name in chosen if name not in known},
            categorical=[name for name in categorical if name not in known],
            other_columns=options.other_columns, is_chosen=features is not None,
            reference=options.age_at,
            beside=any(name in known for name in chosen),
        )  # fmt: skip
        known |= {each.name: each for each in learned.encoder.columns}
        encoder = FeatureEncoder(tuple(known[name] for name in chosen if name in known))
        warnings = (*learned.warnings, *warnings)
    labels = parts.labels(homes)
    # A ranker that lacks a column is told so when it is asked for scores.
    others = {
        each
        for each in map(encoder_of, rankers)
        if each
        and not set(encoder.columns).issuperset(each.columns)
        and set(chosen).issuperset(each.column_names)
    }
    tables |= parts.tables(homes, [name for each in others for name in each.column_names])
    return FeatureTable(
        parts.dataset(encoder, homes, tables, labels),
        parts.item_ids,
        labels is not None,
        encoder,
        parts.warnings if rankers else warnings,  # which read the columns that they know
        {each: parts.dataset(each, homes, tables, labels) for each in others},
    )


def encoder_of(ranker: object) -> FeatureEncoder | None:
    """Return how a ranker reads the columns of a table; None where it has no names of features."""
    encoder: FeatureEncoder | None = getattr(ranker, "encoder_", None)
    names = getattr(ranker, "feature_names_in_", None)
    if encoder is not None or names is None:
        return encoder
    return FeatureEncoder.of_numbers(map(str, names))


def _open(
    given: Mapping[str, Any],
    ids: Mapping[str, str],
    log: Impressions | None,
    *,
    join_queries: bool,
    as_text: Sequence[str],
) -> FeatureParts:
    """Open the tables that are given; where there is none of pairs, they are those of the log."""
    sources = {
        part: open_features(
            given[part], {name: ids[name] for name in _PARTS[part][1]},
            what=_PARTS[part][0], join_queries=join_queries, as_text=as_text,
        )
        for part in _PARTS if given[part] is not None
    }  # fmt: skip
    if not sources and (log is None or not log.features):
        raise ParameterError(
            "no features are given: expected a table of them (--features), or features of items "
            "(--item-features), of queries (--query-features) or of the log (--log-features)"
        )
    if "pairs" not in sources:
        if log is None:
            raise ParameterError(
                "features of items or of queries alone do not tell which items a query has: give "
                "log=, whose pairs are taken, or a table with a row for each query and item"
            )
        sources = {"log": open_features_of(log), **sources}
    elif log is not None and log.features:
        sources["log"] = open_features_of(log)
    return FeatureParts.of(sources, join_queries=join_queries)


def is_labelled_data(source: Any) -> bool:  # noqa: ANN401 (any frame narwhals knows)
    """Tell whether a path is that of LETOR text, whose name may be anything, or of a dataset."""
    if not isinstance(source, str | os.PathLike):
        return False
    name = os.fspath(source)
    if is_dataset_folder(Path(name)) or _has_letor(Path(name)):
        return True
    try:
        find_files(name)
    except DataError:
        return Path(name).exists() and format_of(name) is None
    return False


def columns_of(source: str) -> tuple[str, ...]:
    """Return the names of the columns of a table in files, without reading it; () of other files.

    >>> columns_of("no such file.parquet")
    ()
    """
    if is_labelled_data(source) or not Path(source).exists():
        return ()
    with open_tables(source) as files:
        return tuple(files.format.names(files))


def _has_letor(path: Path) -> bool:
    """Tell whether a folder has LETOR text by its names (``train.txt``, ``S1.txt``), no tables."""
    if not path.is_dir():
        return False
    try:
        parts = find_layout(path).files(None)
    except DataError:
        return False
    return not any(format_of(each.name) for paths in parts.values() for each in paths)


def _of_dataset(
    path: Path, features: Sequence[str] | None, drop: Sequence[str] | None
) -> FeatureTable:
    from countersample.data.load import load_train  # noqa: PLC0415 (the reader of LETOR text)

    dataset = load_train(path).select_features(features, drop=drop)
    starts = np.repeat(dataset.offsets[:-1], dataset.query_sizes)
    return FeatureTable(dataset, np.arange(dataset.n_items) - starts, has_labels=True)
