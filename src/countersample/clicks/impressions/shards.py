"""Logs and features that outgrow a machine: weighted and joined by Spark, written as shards.

A shard is a Parquet file with a row for each item that was shown, and all rows of its queries. A
click's weight needs the sessions of its query and nothing of others, so any cut by query is exact.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import narwhals as nw
import numpy as np

from countersample._extras import need
from countersample._params import choice, whole_number
from countersample.clicks.impressions import aggregation
from countersample.clicks.impressions.columns import typed_id
from countersample.clicks.impressions.counts import NO_CONTEXT, PositionCounts
from countersample.clicks.impressions.engines import find_engine
from countersample.clicks.impressions.explaining import explained
from countersample.clicks.impressions.exposure import examination_of_rows, weigh_pairs
from countersample.clicks.impressions.files import find_files
from countersample.clicks.impressions.joining import JoinReport, RowPropensities, refuse_useless
from countersample.clicks.impressions.tallying import check_total, problems_of_rows
from countersample.clicks.log import ClickLog
from countersample.data.dataset import RankingDataset
from countersample.data.frames import as_narwhals, check_column
from countersample.data.rows import group_rows
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from os import PathLike

    import pyarrow as pa

    from countersample.clicks.impressions.exposure import ClickProbabilities, Examination
    from countersample.clicks.impressions.handle import Impressions
    from countersample.clicks.impressions.joining import Examinable

_IDS = ("query_id", "item_id")
_WEIGHT = ("clicks", "propensity", "by_chance")
OWN = (*_IDS, *_WEIGHT)  # the columns of a shard that are not features
_NOT_FEATURES = ("label",)  # as in `read_features`


def write_training_shards(
    log: Impressions,
    features: Any,  # noqa: ANN401 (a data frame of Spark)
    propensities: Examinable,
    path: str | PathLike[str],
    *,
    n_shards: int = 16,
    missing: Literal["error", "skip"] = "error",
) -> JoinReport:
    """Weigh the clicks of a log, join the features of its items, write Parquet: all by Spark.

    ρ is that of `join_features`, and nothing comes to the driver but counts by position, totals and
    the report. Each query that was clicked is in one file, with all of its items that were shown
    and have features.

    Parameters
    ----------
    log : Impressions
        A log that Spark counts: ``read_impressions(…, engine="spark")``, or of its data frame.
    features : Spark data frame
        ``query_id``, ``item_id`` and the features, which are numbers; ``label`` is not read.
    propensities : array-like, PositionBiasCurve, Propensities, ContextPropensities, …
        As for `join_features`, but for the log's own. Estimate them from a sample of the queries:
        see `Impressions.sample_queries`.
    path : path or address
        A new folder that all workers can write to.
    n_shards : int
        How many files: at least as many as processes will read them, each of which reads whole
        files.
    missing : {"error", "skip"}
        Whether impossible rows, and clicks without features or a propensity, are refused, or left
        out and reported.

    Returns
    -------
    JoinReport
        What became of the clicks.

    Notes
    -----
    Columns are ``query_id``, ``item_id``, ``clicks`` (what is counted of them), ``propensity`` (ρ),
    with trust bias ``by_chance``, and the features in 32 bits. The weight of a row is
    (clicks − by_chance) / propensity.
    """
    choice("missing", missing, ("error", "skip"))
    whole_number("n_shards", n_shards, least=1)
    if log.engine != "spark":
        raise ParameterError(
            f"the log is counted by {log.engine}, expected spark: read it with engine='spark', or "
            "join it in memory with join_features"
        )
    if isinstance(propensities, RowPropensities):
        raise ParameterError(
            "propensities are the log's own, expected those of positions: estimate them"
        )
    log.check_no_half_life("shards")
    check_total(log)
    engine = find_engine(log.engine)
    known_items, names = _features(features, has_text_ids=log.has_text_ids)
    with ExitStack() as kept:
        groups = kept.enter_context(engine.store(aggregation.group(log.frame), log.source))
        said = problems_of_rows(log, groups).sentence(has_impressions="impressions" in log.columns)
        if said is not None and missing == "error":
            raise DataError(f"{log.source}: {said}; correct them, or take missing='skip'")
        _check_ids(groups, known_items)
        examined, found = _examined(log, groups, propensities)
        report = _report(log, groups, examined, known_items, found.last_position)
        if report.n_skipped and missing == "error":
            raise DataError(
                f"{report.sentence()}; add them, or leave those clicks out with missing='skip'"
            )
        pairs = weigh_pairs(groups, _sessions(log, groups), examined, _worth(log, groups))
        if not (found.beta > 0).any():
            pairs = pairs.drop("by_chance")
        with engine.explained(os.fspath(path)):
            _write(pairs.to_native(), known_items.to_native(), names, os.fspath(path), n_shards)
    return report


def read_training_shards(
    path: str | PathLike[str], *, rank: int = 0, world_size: int = 1
) -> tuple[RankingDataset, ClickLog]:
    """Read every `world_size`-th shard, beginning with number `rank`, into memory.

    Parameters
    ----------
    path : path or address
        What `write_training_shards` wrote.
    rank, world_size : int
        Which of how many processes this is.

    Returns
    -------
    dataset : RankingDataset
        The items that were shown, with labels of 0.
    log : ClickLog
        A row for each item that has clicks.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import dataset as arrow  # noqa: PLC0415

    whole_number("world_size", world_size, least=1)
    if whole_number("rank", rank, least=0) >= world_size:
        raise ParameterError(f"rank is {rank}, expected below {world_size}, the world_size")
    name = os.fspath(path)
    with explained(name, (pa.ArrowException,)):
        system, paths = find_files(name).located()
        where = paths[0] if len(paths) == 1 else paths
        files = sorted(arrow.dataset(where, format="parquet", filesystem=system).files)
        if len(files) < world_size:
            raise DataError(
                f"{len(files)} files for {world_size} processes, expected at least one for each: "
                "write more shards (n_shards), or start fewer processes"
            )
        mine = arrow.dataset(files[rank::world_size], format="parquet", filesystem=system)
        return _of_table(mine.to_table())


# -- writing


def _features(
    frame: Any,  # noqa: ANN401 (a data frame of Spark)
    *,
    has_text_ids: bool,
) -> tuple[nw.LazyFrame[Any], list[str]]:
    """Return the features with ids as a log has them, and the names of the features."""
    native = as_narwhals(frame)
    if not isinstance(native, nw.LazyFrame) or "PYSPARK" not in native.implementation.name:
        raise ParameterError("features are not a data frame of Spark: read them with it")
    schema = native.collect_schema()
    for name in _IDS:
        check_column(name, list(schema), "; rename the columns of the ids")
    names = [name for name in schema if name not in {*_IDS, *_NOT_FEATURES}]
    taken = [name for name in names if name in OWN]
    if taken:
        raise DataError(
            f"a feature is called {taken[0]!r}, which is a column of the shards: rename it"
        )
    odd = [name for name in names if not (schema[name].is_numeric() or schema[name] == nw.Boolean)]
    if odd or not names:
        told = f"{odd[0]!r} is {schema[odd[0]]}" if odd else "there are none"
        raise DataError(f"features have to be numbers, and {told}: leave others out")
    ids = {name: typed_id(name, name, schema[name]) for name in _IDS}
    if has_text_ids:  # of a log that came as text, whose numbers are text as well
        ids = {name: column.cast(nw.String) for name, column in ids.items()}
    return native.select(**ids, **{n: nw.col(n).cast(nw.Float32) for n in names}), names


def _check_ids(groups: nw.LazyFrame[Any], items: nw.LazyFrame[Any]) -> None:
    for name in _IDS:
        kinds = [
            "text" if frame.collect_schema()[name] == nw.String else "integers"
            for frame in (groups, items)
        ]
        if kinds[0] != kinds[1]:
            raise DataError(
                f"{name} is {kinds[0]} in the log and {kinds[1]} in the features, expected one "
                "type: make them one"
            )


def _sessions(log: Impressions, groups: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    by_ids = log.sessions_of_queries()
    return aggregation.group_first_position(groups) if by_ids is None else by_ids


def _worth(log: Impressions, groups: nw.LazyFrame[Any]) -> float:
    """Return what a click is worth on average: 1, unless the log says more."""
    if "value" not in log.columns:
        return 1.0
    total = log.collect(groups.select(nw.col("value").sum(), nw.col("clicks").sum()))
    return float(total["value"][0].as_py()) / max(1, int(total["clicks"][0].as_py()))


def _examined(
    log: Impressions,
    groups: nw.LazyFrame[Any],
    propensities: ClickProbabilities | Any,  # noqa: ANN401 (or a curve, or numbers)
) -> tuple[nw.LazyFrame[Any], Examination]:
    """Return α and β of each position and context that is known, where the log is."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    by = [name for name in aggregation.keys(log.frame) if name not in _IDS]
    places = log.collect(groups.select(*by).unique()).to_pydict()
    n = len(places["position"])
    if not n:
        raise DataError(f"{log.source}: the log has no rows, expected at least one impression")
    # Counts of one impression at each place, an item each: rows stay in this order.
    counts = PositionCounts.from_columns(
        np.zeros(n, np.int64), np.arange(n), places["position"], np.zeros(n, np.int64),
        context=places.get("context"),
    )  # fmt: skip
    found = examination_of_rows(propensities, counts)
    is_known = ~np.isnan(found.alpha)
    table = pa.table(
        {"position": pa.array(places["position"], pa.int32())}
        | {name: pa.array(places[name], pa.string()) for name in by if name == "context"}
        | {"alpha": found.alpha, "beta": found.beta}
    ).filter(pa.array(is_known))
    session = groups.to_native().sparkSession
    return nw.from_native(session.createDataFrame(table)).lazy(), found


def _report(
    log: Impressions,
    groups: nw.LazyFrame[Any],
    examined: nw.LazyFrame[Any],
    items: nw.LazyFrame[Any],
    last_position: int,
) -> JoinReport:
    """Say what became of the clicks; refuse features of a pair twice, and a log without use."""
    pairs = items.group_by(*_IDS).agg(features=nw.len())
    told = log.collect(_fates(groups, examined, pairs)).to_pylist()
    if sum(int(each["twice"]) for each in told):
        raise DataError(
            "the features have several rows of a query and item that the log showed, expected one: "
            "drop the duplicates"
        )
    shown = groups.select(*_IDS).unique().join(pairs, on=[*_IDS], how="left")
    marks = shown.select(n=nw.lit(1), without=aggregation.mark(nw.col("features").is_null()))
    of_pairs = log.collect(marks.select(nw.col("n").sum(), nw.col("without").sum())).to_pylist()[0]
    no_curve = [each for each in told if each["asked"] and not each["known"]]

    def total(name: str, fates: list[dict[str, Any]]) -> int:
        return sum(int(each[name]) for each in fates)

    report = JoinReport(
        n_clicks=total("clicked", told),
        n_joined=total("joined", told),
        no_query=total("no_query", told),
        no_item=total("no_item", told),
        no_propensity=total("unknown", told) - total("unknown", no_curve),
        no_context=total("unknown", no_curve),
        n_pairs=int(of_pairs["n"]),
        n_pairs_without_features=int(of_pairs["without"]),
        last_position=last_position,
        contexts=tuple(sorted(each["place"] for each in no_curve)),
    )
    refuse_useless(report)
    return report


def _fates(
    groups: nw.LazyFrame[Any], examined: nw.LazyFrame[Any], pairs: nw.LazyFrame[Any]
) -> nw.LazyFrame[Any]:
    """Return what becomes of the clicks of each context, a row each, lazily.

    ``asked`` and ``known`` count groups whose item has features, and those among them whose
    examination is known; ``twice`` those whose item has features several times.
    """
    by = [name for name in ("position", "context") if name in examined.collect_schema()]
    queries = pairs.select("query_id").unique().with_columns(found=nw.lit(1))
    rows = (
        groups.join(examined.select(*by, "alpha"), on=by, how="left")
        .join(pairs, on=[*_IDS], how="left")
        .join(queries, on="query_id", how="left")
    )
    has_query, has_item = ~nw.col("found").is_null(), ~nw.col("features").is_null()
    is_known, clicks = ~nw.col("alpha").is_null(), nw.col("clicks").cast(nw.Int64)

    def clicks_where(condition: nw.Expr) -> nw.Expr:
        return nw.when(condition).then(clicks).otherwise(nw.lit(0))

    marked = rows.select(
        place=nw.col("context") if "context" in by else nw.lit(NO_CONTEXT),
        clicked=clicks,
        joined=clicks_where(has_item & is_known),
        no_query=clicks_where(~has_query),
        no_item=clicks_where(has_query & ~has_item),
        unknown=clicks_where(has_item & ~is_known),
        asked=aggregation.mark(has_item),
        known=aggregation.mark(has_item & is_known),
        twice=aggregation.mark(nw.col("features") > 1),
    )
    names = [name for name in marked.collect_schema().names() if name != "place"]
    return marked.group_by("place").agg(**{name: nw.col(name).sum() for name in names})


def _write(pairs: Any, items: Any, names: list[str], path: str, n_shards: int) -> None:  # noqa: ANN401 (Spark's)
    """Join the features of clicked queries, and write each query into one of the files."""
    functions, window = need("pyspark.sql.functions"), need("pyspark.sql").Window
    counted = [column for column in _WEIGHT if column in pairs.columns and column != "propensity"]
    has_weight = functions.greatest(*counted) if len(counted) > 1 else functions.col(counted[0])
    of_query = functions.max(has_weight).over(window.partitionBy("query_id"))
    clicked = pairs.withColumn("\0weight", of_query).where(functions.col("\0weight") > 0)
    own = [column for column in OWN if column in pairs.columns]
    joined = (
        clicked.select(*own)
        .join(items, on=[*_IDS], how="inner")
        .select(*own, *(functions.col(f"`{name}`") for name in names))
    )
    parts = joined.repartition(n_shards, "query_id").sortWithinPartitions(*_IDS)
    parts.write.parquet(path)


# -- reading


def _of_table(table: pa.Table) -> tuple[RankingDataset, ClickLog]:
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    columns = table.column_names
    for name in (*_IDS, "clicks", "propensity"):
        check_column(name, columns, "; expected what write_training_shards wrote")
    names = [name for name in columns if name not in OWN]
    for name in (*names, *(c for c in _WEIGHT if c in columns)):
        if not pa.types.is_floating(table.schema.field(name).type):
            raise DataError(f"{name!r} is {table.schema.field(name).type}, expected numbers")
    if not table.num_rows or not names:
        raise DataError("no rows or no features, expected both: write fewer shards, or more data")
    if any(table[name].null_count for name in columns):
        raise DataError("values are missing, expected none: fill or drop them before writing")
    matrix = np.empty((table.num_rows, len(names)), np.float32)
    with np.errstate(over="ignore"):  # infinite then, and refused below
        for column, name in enumerate(names):
            matrix[:, column] = table[name].to_numpy()
    if np.isnan(matrix).any():
        raise DataError("values are missing, expected none: fill or drop them before writing")
    ids = np.asarray(table["query_id"].to_numpy())
    labels = np.zeros(len(ids), np.float32)
    dataset = RankingDataset.from_arrays(matrix, labels, ids, feature_names=names)
    order = group_rows(ids)[0]
    numbers = {name: table[name].to_numpy() for name in _WEIGHT if name in columns}
    if order is not None:
        numbers = {name: column[order] for name, column in numbers.items()}
    query = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
    log = ClickLog(
        query, np.arange(len(ids)) - dataset.offsets[query], numbers["propensity"],
        numbers["clicks"], by_chance=numbers.get("by_chance"), fingerprint=dataset.fingerprint,
    )  # fmt: skip
    return dataset, log.weighted()
