"""Features of query-item pairs, items, queries and of the log itself: `read_features`.

How a column becomes features is in `data.encoder`, scaling in `data.preprocessing`. Each table
stays in memory as it is. No table of all pairs is made: for each pair there is the row of each
table, so an item's columns are encoded once, however many queries show it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from countersample import _text
from countersample.data.dataset import RankingDataset, choose_features, group_rows
from countersample.data.encoder import FeatureEncoder, encode_columns, learn_encoder
from countersample.data.letor import find_layout
from countersample.data.store import is_dataset_folder
from countersample.data.tables import as_floats, check_column, collect_frame
from countersample.errors import DataError, ParameterError
from countersample.logs import aggregation
from countersample.logs.columns import as_id, check_text_ids, join_query_ids
from countersample.logs.counts import check_id_kinds, find_ids, row_keys
from countersample.logs.files import decode_dictionaries, find_format, open_tables
from countersample.logs.tally import encode
from countersample.options import FeatureOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample.logs.impressions import Impressions

LABEL = "label"
_PAIR = ("query_id", "item_id")
# The tables: their name in errors, and the ids of their rows.
_TABLES = {
    "pairs": ("the features of pairs", _PAIR),
    "items": ("the features of items", ("item_id",)),
    "queries": ("the features of queries", ("query_id",)),
}
_NOTABLE_SHARE = 0.01  # of the pairs: a feature that changes in more of them causes a warning


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Items with their features, and their ids in a log.

    Parameters
    ----------
    dataset : RankingDataset
        Its labels are 0 if the table has none.
    item_ids : array (n_items,), int64 or str
        The id of each row.
    has_labels : bool
        Whether the labels came with the table.
    encoder : FeatureEncoder, optional
        How the columns of the table became features; None for LETOR text.
    warnings : tuple of str
        Warnings about columns, such as those that were left out.
    encodings : dict of RankingDataset, by encoder
        The same rows for rankers that read the columns in another way.
    """

    dataset: RankingDataset
    item_ids: NDArray[Any]
    has_labels: bool
    encoder: FeatureEncoder | None = None
    warnings: tuple[str, ...] = ()
    encodings: Mapping[FeatureEncoder, RankingDataset] = field(default_factory=dict)

    @property
    def encoder_to_save(self) -> FeatureEncoder | None:
        """The encoder, unless the names of the features are enough to read the columns."""
        return None if self.encoder is None or self.encoder.has_only_numbers else self.encoder

    def to_dict(self) -> dict[str, Any]:
        """Return a description of the features as plain values for JSON."""
        columns = () if self.encoder is None else self.encoder.columns
        return {
            **self.dataset.describe().to_dict(),
            "fingerprint": self.dataset.fingerprint,
            "warnings": self.warnings,
            "has_labels": self.has_labels,
            "columns": [asdict(each) for each in columns],
        }

    def summary(self) -> str:
        """Return a description of the features and their columns, for a terminal."""
        kinds = {"category": "a category, {} indicators", "date": "a date, days before {}"}
        columns = () if self.encoder is None else self.encoder.columns
        rows = [
            (each.name, kinds.get(each.kind, "a number").format(each.reference or len(each.values)))
            for each in columns
        ]
        blocks = [self.dataset.describe().summary(has_labels=self.has_labels)]
        if rows:
            blocks += ["  columns that become features", _text.pairs(rows, indent=4)]
        return "\n".join(blocks)

    def dataset_for(self, ranker: object) -> RankingDataset:
        """Return the rows with the features of a ranker, read as it was trained."""
        encoder = encoder_of(ranker)
        if encoder is None or self.encoder is None:
            return self.dataset
        if set(encoder.columns) <= set(self.encoder.columns):
            return self.dataset
        if encoder in self.encodings:
            return self.encodings[encoder]
        if set(encoder.column_names) <= set(self.encoder.column_names):
            raise DataError(
                "the table was not read in the way that the ranker reads its columns: read "
                "it with read_features(…, rankers=[ranker])"
            )
        return self.dataset  # the ranker will raise an error that names the missing feature


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
    """Read the features of items, one row per query and item.

    Numbers and booleans are features as they are, dates become their age in days, text with few
    values becomes indicators; other columns are left out, and listed in `FeatureTable.warnings`.

    Parameters
    ----------
    source : path or data frame, optional
        Parquet, CSV, TSV or JSON lines with columns ``query_id``, ``item_id`` and the features, or
        a data frame with them; LETOR text or a saved dataset, whose items are numbered from 0 in
        each query. A column ``label`` is not a feature.
    options : FeatureOptions, optional
        Which columns are features, and how they are read.
    log : Impressions, optional
        Without a `source`, the table has the query-item pairs that the log shows. The features of
        the log (see `LogOptions`) are among the features.
    encoder : FeatureEncoder, optional
        Read the columns as this encoder of another table does: nothing is learned, and only its
        columns are read.
    rankers : sequence of rankers
        Read the columns also as each of these was trained on them, see `FeatureTable.dataset_for`.
    warm_start : ranker, optional
        The ranker that training continues from: columns that it has are read as it reads them, with
        the same values of categories and ages from the same day.
    join_queries : bool
        Whether queries that differ only in case and blanks are one, as in `LogOptions`. If several
        of them have an item, the first row is used.
    **settings
        Single fields of `FeatureOptions`, by keyword.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.logs import read_features
    >>> table = pyarrow.table({"query_id": [1, 1], "item_id": ["x", "y"], "bm25": [0.2, 0.7]})
    >>> read_features(table).item_ids
    array(['x', 'y'], dtype='<U1')
    """
    options = FeatureOptions.of(options, **settings)
    if is_labelled_data(source):
        _check_labelled(source, options, log, encoder)
        return _read_labelled(Path(source), options)
    start = encoder_of(warm_start)
    others = [each for each in map(encoder_of, rankers) if each]
    as_text = {name for each in (encoder, start, *others) if each for name in each.categories}
    sources = _open_sources(source, options, log, join_queries, (*options.categorical, *as_text))
    pairs = _Pairs.join(sources, options.include, join_queries=join_queries)
    chosen, warnings = list(pairs.homes), pairs.warnings
    if encoder is None:
        chosen = choose_features(chosen, options.include or None, options.exclude or None)
        encoder, new_warnings = _learn(pairs.tables(chosen), chosen, options, start)
        warnings = (*new_warnings, *warnings)
    # A ranker that lacks a column raises an error when it scores.
    others = [
        each
        for each in dict.fromkeys(others)
        if not set(encoder.columns).issuperset(each.columns)
        and set(chosen).issuperset(each.column_names)
    ]
    return FeatureTable(
        pairs.encode(encoder),
        pairs.item_ids,
        pairs.labels is not None,
        encoder,
        pairs.warnings if rankers else warnings,  # rankers have chosen their columns before
        {each: pairs.encode(each) for each in others},
    )


def encoder_of(ranker: object) -> FeatureEncoder | None:
    """Return how a ranker reads the columns of a table; None if it has no names of features."""
    preprocessing = getattr(ranker, "preprocessing_", None)
    encoder: FeatureEncoder | None = None if preprocessing is None else preprocessing.encoder
    names = getattr(ranker, "feature_names_in_", None)
    if encoder is not None or names is None:
        return encoder
    return FeatureEncoder.of_numbers(map(str, names))


def columns_of(source: str) -> tuple[str, ...]:
    """Return the names of the columns of a table in files, without reading it; () for other files.

    >>> columns_of("no such file.parquet")
    ()
    """
    if is_labelled_data(source) or not Path(source).exists():
        return ()
    with open_tables(source) as files:
        return tuple(files.column_names())


def _learn(
    tables: dict[str, pa.Table],
    chosen: Sequence[str],
    options: FeatureOptions,
    start: FeatureEncoder | None,
) -> tuple[FeatureEncoder, tuple[str, ...]]:
    """Learn how the chosen columns become features; columns of `start` stay as they are there."""
    columns = {} if start is None else {each.name: each for each in start.columns}
    learned = learn_encoder(
        {name: tables[name] for name in chosen if name not in columns},
        categorical=[name for name in options.categorical if name not in columns],
        other_columns=options.other_columns,
        is_chosen=bool(options.include),
        reference=options.age_at,
        beside=any(name in columns for name in chosen),
    )
    columns |= {each.name: each for each in learned.encoder.columns}
    encoder = FeatureEncoder(tuple(columns[name] for name in chosen if name in columns))
    return encoder, learned.warnings


# -- tables with ids


@dataclass(frozen=True, eq=False)
class _Source:
    """A table in memory, and the ids of its rows."""

    title: str  # its name in errors
    frame: nw.DataFrame[Any]
    id_names: tuple[str, ...]  # in the frame
    ids: dict[str, NDArray[Any]]  # query_id, item_id, or both, each (n_rows,)
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        frame: Any,  # noqa: ANN401 (any frame narwhals knows)
        names: Mapping[str, str],
        title: str,
        *,
        join_queries: bool = False,
        has_text_ids: bool = False,
        warnings: tuple[str, ...] = (),
    ) -> _Source:
        """Take the ids of a frame; `names` has their names in the frame, or the canonical ones."""
        table = collect_frame(frame, "neither a path nor a data frame")
        ids, id_names = {}, []
        for name, own in names.items():
            id_name = name if own not in table.columns and name in table.columns else own
            check_column(
                id_name, table.columns, "; name the ids with query= and item= (--columns "
                "query_id=…,item_id=…)"
            )  # fmt: skip
            id_names.append(id_name)
            rows = _decode_column(table, id_name)
            column = rows.select(as_id(id_name, name, rows.schema[id_name])).to_arrow()[name]
            if column.null_count:
                raise DataError(
                    f"{column.null_count:,} rows have no {id_name}, expected one in each"
                )
            if not pa.types.is_integer(column.type):
                check_text_ids(column)
            # Joined first: then it is known whether all ids are integers.
            if join_queries and name == "query_id" and not pa.types.is_integer(column.type):
                column = pa.chunked_array([join_query_ids(column.to_numpy())])
            code, distinct = encode(column, has_text_ids=has_text_ids)
            ids[name] = distinct[code]
        return cls(title, table, tuple(id_names), ids, warnings)

    def to_arrow(self, names: Sequence[str]) -> pa.Table:
        """Return columns as an Arrow table."""
        columns = {}
        for name in names:
            try:
                columns[name] = self.frame.select(name).to_arrow()[name]
            except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
                raise DataError(
                    f"column {name!r} has values of mixed or unknown types, expected one type: "
                    "convert them, or leave it out (--exclude)"
                ) from error
        return pa.table(columns)

    def find_rows(self, pairs: Mapping[str, NDArray[Any]]) -> Ints:
        """Return the row of the table for each pair, −1 if it has none, (n_pairs,)."""
        n_rows = len(self.frame)
        if not n_rows:
            return np.full(len(pairs["item_id"]), -1)
        codes = []
        for name, known in self.ids.items():
            wanted = ("the query-item pairs", pairs[name].dtype.kind in "OUT")
            check_id_kinds(name, wanted, (self.title, known.dtype.kind in "OUT"))
            codes.append(np.unique(np.concatenate([known, pairs[name]]), return_inverse=True)[1])
        keys = row_keys(*codes)
        order = np.argsort(keys[:n_rows], kind="stable")
        known_keys = keys[:n_rows][order]
        twice = np.flatnonzero(known_keys[1:] == known_keys[:-1])
        if len(twice) and len(self.ids) == 1:
            ((name, known),) = self.ids.items()
            raise DataError(
                f"{self.title} have {name} {known[order[twice[0]]].item()!r} twice, expected one "
                "row for each: drop the duplicates"
            )
        place = find_ids(keys[n_rows:], known_keys)
        return np.where(place < 0, -1, order[place])


def _decode_column(table: nw.DataFrame[Any], name: str) -> nw.DataFrame[Any]:
    """Return one column, with the values of categories, which may be text or integers."""
    column = table.select(name)
    if table.schema[name] not in {nw.Categorical, nw.Enum}:
        return column
    return nw.from_native(decode_dictionaries(column.to_arrow()), eager_only=True)


def _open_sources(
    source: Any,  # noqa: ANN401 (any frame narwhals knows)
    options: FeatureOptions,
    log: Impressions | None,
    join_queries: bool,
    as_text: Sequence[str],
) -> dict[str, _Source]:
    """Open the tables; without one of pairs, the pairs of the log are used, and come first.

    In files without types, the columns `as_text` stay text.
    """
    inputs = {"pairs": source, "items": options.items, "queries": options.queries}
    names = {"query_id": options.query, "item_id": options.item}
    sources: dict[str, _Source] = {}
    for part, (title, ids) in _TABLES.items():
        table, id_names = inputs[part], {name: names[name] for name in ids}
        if isinstance(table, str | os.PathLike):
            with open_tables(os.fspath(table)) as files:
                rows = files.read(as_text=(*ids, *id_names.values(), *as_text))
                sources[part] = _Source.of(
                    rows, id_names, title, join_queries=join_queries,
                    has_text_ids=files.has_text_ids,
                )  # fmt: skip
        elif table is not None:
            sources[part] = _Source.of(table, id_names, title, join_queries=join_queries)
    has_log_features = log is not None and bool(log.features)
    if not sources and not has_log_features:
        raise ParameterError(
            "no features are given: expected a table of them (--features), or features of items "
            "(--item-features), of queries (--query-features) or of the log (--log-features)"
        )
    if log is not None and "pairs" not in sources:
        return {"log": _read_log_features(log), **sources}
    if log is not None and has_log_features:
        return {**sources, "log": _read_log_features(log)}
    if "pairs" not in sources:
        raise ParameterError(
            "features of items or of queries alone do not define the items of a query: give "
            "log=, whose pairs are used, or a table with one row per query and item"
        )
    return sources


# -- features of the log


def _read_log_features(log: Impressions) -> _Source:
    """Return the pairs that a log shows, sorted by ids, with the log's own features.

    A feature is the mean over the impressions of the pair that have a value. Warnings name features
    for which the mean hides much.
    """
    sums = log.collect(aggregation.pairs(log.frame))
    sums = sums.sort_by([(name, "ascending") for name in _PAIR])
    table, warnings = sums.select(list(_PAIR)), []
    for number, name in enumerate(log.features):
        total, n, low, high = (
            sums[f"{column}_{number}"].cast(pa.float64()).to_numpy()
            for column in ("sum", "n", "low", "high")
        )
        if not n.any():
            raise DataError(f"{log.source}: the feature {name!r} of the log has no number in it")
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(n > 0, total / n, np.nan)
        if name in table.column_names:
            raise DataError(f"{log.source}: {name!r} is an id of the log, expected a feature")
        table = table.append_column(name, pa.array(mean, from_pandas=True))
        warnings += _warn_if_changing(name, mean, high - low)
    names = dict(zip(_PAIR, _PAIR, strict=True))
    return _Source.of(
        table, names, "the log", has_text_ids=log.has_text_ids, warnings=tuple(warnings)
    )


def _warn_if_changing(name: str, mean: Floats, spread: Floats) -> list[str]:
    """Warn if a feature differs between impressions of the same query and item."""
    has_value = ~np.isnan(mean)
    is_changing = spread[has_value] > 0
    if is_changing.mean() <= _NOTABLE_SHARE:
        return []
    warning = (
        f"The log's own {name!r} differs between impressions of the same query and item in "
        f"{is_changing.mean():.0%} of the pairs. A pair has the mean: changes from user to user or "
        "from day to day are not learned."
    )
    return [warning]


# -- all tables together


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Query-item pairs, sorted by query, with the row of each table that has their features."""

    sources: dict[str, _Source]
    homes: dict[str, str]  # the source of each column that may be a feature
    rows: dict[str, Ints]  # of each source, (n_pairs,); −1 if it has none
    query_ids: NDArray[Any]
    item_ids: NDArray[Any]
    warnings: tuple[str, ...]

    @classmethod
    def join(
        cls, sources: dict[str, _Source], include: Sequence[str], *, join_queries: bool
    ) -> _Pairs:
        """Match the rows of tables; the first table has the pairs."""
        homes = _find_homes(sources, include)
        first, *others = sources
        ids = sources[first].ids
        rows = {first: np.arange(len(ids["item_id"]))}
        if join_queries:  # the first row of each pair
            codes = (np.unique(column, return_inverse=True)[1] for column in ids.values())
            rows[first] = np.sort(np.unique(row_keys(*codes), return_index=True)[1])
        pairs = {name: ids[name][rows[first]] for name in _PAIR}
        is_complete = np.ones(len(rows[first]), np.bool_)
        for name in others:
            rows[name] = sources[name].find_rows(pairs)
            if len(sources[name].ids) == 1:  # a table of pairs may lack some: they are missing
                is_complete &= rows[name] >= 0
        if not is_complete.any():
            raise DataError(
                "no pair of query and item has all features: check that the ids of the tables match"
            )
        warnings = [text for source in sources.values() for text in source.warnings]
        if not is_complete.all():
            warnings.append(
                f"{(~is_complete).sum():,} of {len(is_complete):,} pairs of query and item have no "
                "row in the features of items or of queries, and are left out."
            )
        chosen = np.flatnonzero(is_complete)
        order, _, _ = group_rows(pairs["query_id"][chosen])
        chosen = chosen if order is None else chosen[order]
        rows = {name: each[chosen] for name, each in rows.items()}
        ids = {name: each[chosen] for name, each in pairs.items()}
        return cls(sources, homes, rows, ids["query_id"], ids["item_id"], tuple(warnings))

    def tables(self, names: Iterable[str]) -> dict[str, pa.Table]:
        """Return the table of each column."""
        names = dict.fromkeys(names)
        for name in names:
            check_column(name, list(self.homes), what="feature")
        tables = {
            part: source.to_arrow([name for name in names if self.homes[name] == part])
            for part, source in self.sources.items()
        }
        return {name: tables[self.homes[name]] for name in names}

    @cached_property
    def labels(self) -> NDArray[np.float32] | None:
        """The labels of pairs, if their table has labels that are no feature."""
        source = self.sources.get("pairs")
        if source is None or LABEL in self.homes or LABEL not in source.frame.columns:
            return None
        labels = as_floats(LABEL, source.to_arrow([LABEL])[LABEL])
        if np.isnan(labels).any():
            row = int(np.isnan(labels).argmax())
            raise DataError(f"column {LABEL!r} has no value in row {row}, expected one")
        return labels.astype(np.float32)[self.rows["pairs"]]

    def encode(self, encoder: FeatureEncoder) -> RankingDataset:
        """Return the pairs with the features that an encoder makes of the columns."""
        tables = self.tables(encoder.column_names)
        columns = {name: (table, self.rows[self.homes[name]]) for name, table in tables.items()}
        matrix = encode_columns(encoder, len(self.item_ids), columns)
        labels = np.zeros(len(matrix), np.float32) if self.labels is None else self.labels
        return RankingDataset.from_arrays(
            matrix, labels, self.query_ids, feature_names=encoder.feature_names
        )


def _find_homes(sources: Mapping[str, _Source], include: Sequence[str]) -> dict[str, str]:
    """Return the source of each column that may be a feature; ids and labels if included."""
    homes: dict[str, str] = {}
    for part, source in sources.items():
        for name in source.frame.columns:
            is_other = name in source.id_names or (name == LABEL and part == "pairs")
            if is_other and name not in include:
                continue
            if name in homes:
                raise DataError(
                    f"{source.title} and {sources[homes[name]].title} both have a column "
                    f"{name!r}, expected names that differ: rename one"
                )
            homes[name] = part
    return homes


# -- labelled data: LETOR text and saved datasets


def is_labelled_data(source: Any) -> bool:  # noqa: ANN401 (any frame narwhals knows)
    """Return whether a path has LETOR text, in files of any name, or a saved dataset."""
    if not isinstance(source, str | os.PathLike) or not Path(source).exists():
        return False
    path = Path(source)
    if not path.is_dir():
        return find_format(path.name) is None
    if is_dataset_folder(path):
        return True
    try:
        parts = find_layout(path).files(None)  # by names such as train.txt, S1.txt
    except DataError:
        return not any(find_format(each.name) for each in path.rglob("*"))
    return not any(find_format(each.name) for paths in parts.values() for each in paths)


def _check_labelled(
    source: str | PathLike[str],
    options: FeatureOptions,
    log: Impressions | None,
    encoder: FeatureEncoder | None,
) -> None:
    has_more = options.items is not None or options.queries is not None
    if has_more or (log is not None and log.features):
        raise ParameterError(
            f"{source}: numbers its items by query, and other features are by id: expected a "
            "table with query_id and item_id beside them"
        )
    if options.categorical or encoder is not None:
        raise ParameterError(
            f"{source}: has numbers without names, expected a table for categorical="
        )


def _read_labelled(path: Path, options: FeatureOptions) -> FeatureTable:
    from countersample.data.labelled_files import load_train  # noqa: PLC0415 (reads LETOR text)

    dataset = load_train(path).select_features(
        options.include or None, drop=options.exclude or None
    )
    starts = np.repeat(dataset.offsets[:-1], dataset.query_sizes)
    return FeatureTable(dataset, np.arange(dataset.n_items) - starts, has_labels=True)
