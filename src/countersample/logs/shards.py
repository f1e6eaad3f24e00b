"""Logs and features that outgrow a machine: weighted and joined by Spark, written as shards.

A shard is a Parquet file with one row per item that was shown, and all rows of its queries. The
weight of a click depends on the sessions of its query alone, so any cut by query is exact.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import narwhals as nw
import numpy as np
import pyarrow as pa

from countersample._environment import need
from countersample._params import choice, whole_number
from countersample.clicks.log import ClickLog
from countersample.data.dataset import RankingDataset, group_rows
from countersample.data.tables import as_narwhals, check_column
from countersample.errors import DataError, ParameterError
from countersample.logs import aggregation
from countersample.logs.columns import as_id
from countersample.logs.counts import NO_CONTEXT, PositionCounts, check_id_kinds
from countersample.logs.engines import find_engine
from countersample.logs.exposure import examination_of_rows, weigh_pairs
from countersample.logs.files import explained, find_files
from countersample.logs.joins import JoinReport, RowPropensities
from countersample.logs.tally import check_sessions, find_problems, find_sessions

if TYPE_CHECKING:
    from os import PathLike

    from countersample.logs.exposure import ClickProbabilities, Examination
    from countersample.logs.impressions import Impressions
    from countersample.logs.joins import Examinable

_IDS = ("query_id", "item_id")
_WEIGHTS = ("clicks", "propensity", "by_chance")
_SHARD_COLUMNS = (*_IDS, *_WEIGHTS)  # all others are features
_MISSING = "values are missing, expected none: fill or drop them before writing"


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

    ρ is the same as in `join_features`. Only counts by position, totals and the report come to the
    driver. Each query with a click is in one file, with all of its items that were shown and have
    features.

    Parameters
    ----------
    log : Impressions
        A log that Spark counts: ``read_impressions(…, engine="spark")``, or of its data frame.
    features : Spark data frame
        ``query_id``, ``item_id`` and the features, which are numbers; ``label`` is not read.
    propensities : array-like, PositionBiasCurve, Propensities, ContextPropensities, …
        As for `join_features`, but not the log's own. Estimate them from a sample of the queries:
        see `Impressions.sample_queries`.
    path : path or address
        A new folder that all workers can write to.
    n_shards : int
        The number of files: at least the number of processes that will read them, because each
        process reads whole files.
    missing : {"error", "skip"}
        Whether impossible rows, and clicks without features or a propensity, raise an error, or are
        left out and reported.

    Returns
    -------
    JoinReport
        How many clicks are in the shards, and why others are not.

    Notes
    -----
    Columns are ``query_id``, ``item_id``, ``clicks`` (the part of them that counts), ``propensity``
    (ρ), with trust bias ``by_chance``, and the features in 32 bits. The weight of a row is
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
            "propensities are the log's own, expected propensities by position: estimate them"
        )
    log.check_no_half_life("shards")
    check_sessions(log)
    engine = find_engine(log.engine)
    items, names = _select_features(features, log)
    with ExitStack() as stack:
        groups = stack.enter_context(engine.store(aggregation.group(log.frame), log.source))
        problems = find_problems(log, groups).sentence(has_impressions=log.is_aggregated)
        if problems is not None and missing == "error":
            raise DataError(f"{log.source}: {problems}; correct them, or take missing='skip'")
        examined, examination = _examine(log, groups, propensities)
        report = _report(log, groups, examined, items, examination.last_position)
        report.check(missing)
        sessions = find_sessions(log)
        if sessions is None:
            sessions = aggregation.group_first_position(groups)
        pairs = weigh_pairs(groups, sessions, examined, _mean_value(log, groups))
        if not (examination.beta > 0).any():
            pairs = pairs.drop("by_chance")
        with explained(os.fspath(path)):
            _write(pairs.to_native(), items.to_native(), names, os.fspath(path), n_shards)
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
        The number of this process, and of all processes.

    Returns
    -------
    dataset : RankingDataset
        The items that were shown, with labels of 0.
    log : ClickLog
        One row per item with clicks.
    """
    from pyarrow import dataset as arrow  # noqa: PLC0415 (imports pandas)

    whole_number("world_size", world_size, least=1)
    if whole_number("rank", rank, least=0) >= world_size:
        raise ParameterError(f"rank is {rank}, expected below {world_size}, the world_size")
    name = os.fspath(path)
    with explained(name):
        system, paths = find_files(name).locate()
        source = paths[0] if len(paths) == 1 else paths
        files = sorted(arrow.dataset(source, format="parquet", filesystem=system).files)
        if len(files) < world_size:
            raise DataError(
                f"{len(files)} files for {world_size} processes, expected at least one for each: "
                "write more shards (n_shards), or start fewer processes"
            )
        part = arrow.dataset(files[rank::world_size], format="parquet", filesystem=system)
        return _read_table(part.to_table())


# -- writing


def _select_features(
    frame: Any,  # noqa: ANN401 (a data frame of Spark)
    log: Impressions,
) -> tuple[nw.LazyFrame[Any], list[str]]:
    """Return the features with ids of the log's types, and the names of the features."""
    native = as_narwhals(frame)
    if not isinstance(native, nw.LazyFrame) or "PYSPARK" not in native.implementation.name:
        raise ParameterError("features are not a data frame of Spark: read them with it")
    schema, log_schema = native.collect_schema(), log.frame.collect_schema()
    ids = {}
    for name in _IDS:
        check_column(name, list(schema), "; rename the columns of the ids")
        ids[name] = as_id(name, name, schema[name])
        if log.has_text_ids:  # the log came as text, so its numbers are text as well
            ids[name] = ids[name].cast(nw.String)
        else:
            of_log = ("the log", log_schema[name] == nw.String)
            check_id_kinds(name, of_log, ("the features", schema[name] == nw.String))
    names = [name for name in schema if name not in {*_IDS, "label"}]
    reserved = [name for name in names if name in _SHARD_COLUMNS]
    if reserved:
        raise DataError(
            f"a feature is called {reserved[0]!r}, which is a column of the shards: rename it"
        )
    odd = [name for name in names if not (schema[name].is_numeric() or schema[name] == nw.Boolean)]
    if odd or not names:
        reason = f"{odd[0]!r} is {schema[odd[0]]}" if odd else "there are none"
        raise DataError(f"features have to be numbers, and {reason}: leave others out")
    return native.select(**ids, **{n: nw.col(n).cast(nw.Float32) for n in names}), names


def _mean_value(log: Impressions, groups: nw.LazyFrame[Any]) -> float:
    """Return the mean value of a click: 1 unless the log has values."""
    if "value" not in log.columns:
        return 1.0
    total = log.collect(groups.select(nw.col("value").sum(), nw.col("clicks").sum()))
    return float(total["value"][0].as_py()) / max(1, int(total["clicks"][0].as_py()))


def _examine(
    log: Impressions,
    groups: nw.LazyFrame[Any],
    propensities: ClickProbabilities | Any,  # noqa: ANN401 (or a curve, or numbers)
) -> tuple[nw.LazyFrame[Any], Examination]:
    """Return α and β of each position and context with a known examination, in Spark."""
    by = [name for name in aggregation.group_keys(log.frame) if name not in _IDS]
    places = log.collect(groups.select(*by).unique()).to_pydict()
    n = len(places["position"])
    if not n:
        raise DataError(f"{log.source}: the log has no rows, expected at least one impression")
    # One impression at each place, of one item each, so that rows stay in this order.
    counts = PositionCounts.from_columns(
        np.zeros(n, np.int64), np.arange(n), places["position"], np.zeros(n, np.int64),
        context=places.get("context"),
    )  # fmt: skip
    examination = examination_of_rows(propensities, counts)
    table = pa.table(
        {"position": pa.array(places["position"], pa.int32())}
        | {name: pa.array(places[name], pa.string()) for name in by if name == "context"}
        | {"alpha": examination.alpha, "beta": examination.beta}
    ).filter(pa.array(~np.isnan(examination.alpha)))
    session = groups.to_native().sparkSession
    return nw.from_native(session.createDataFrame(table)).lazy(), examination


def _report(
    log: Impressions,
    groups: nw.LazyFrame[Any],
    examined: nw.LazyFrame[Any],
    items: nw.LazyFrame[Any],
    last_position: int,
) -> JoinReport:
    """Count the clicks that can be used; reject features with several rows of a pair."""
    pairs = items.group_by(*_IDS).agg(features=nw.len())
    contexts = log.collect(_count_clicks(groups, examined, pairs)).to_pylist()
    if any(each["repeated"] for each in contexts):
        raise DataError(
            "the features have several rows of a query and item that the log showed, expected one: "
            "drop the duplicates"
        )
    shown = groups.select(*_IDS).unique().join(pairs, on=[*_IDS], how="left")
    marks = shown.select(n=nw.lit(1), without=aggregation.mark(nw.col("features").is_null()))
    (totals,) = log.collect(marks.select(**aggregation.sum_columns("n", "without"))).to_pylist()
    no_curve = [each for each in contexts if each["with_features"] and not each["examined"]]

    def total(name: str, rows: list[dict[str, Any]]) -> int:
        return sum(int(each[name]) for each in rows)

    return JoinReport(
        n_clicks=total("clicks", contexts),
        n_joined=total("joined", contexts),
        no_query=total("no_query", contexts),
        no_item=total("no_item", contexts),
        no_propensity=total("unknown", contexts) - total("unknown", no_curve),
        no_context=total("unknown", no_curve),
        n_pairs=int(totals["n"]),
        n_pairs_without_features=int(totals["without"]),
        last_position=last_position,
        contexts=tuple(sorted(each["place"] for each in no_curve)),
    )


def _count_clicks(
    groups: nw.LazyFrame[Any], examined: nw.LazyFrame[Any], pairs: nw.LazyFrame[Any]
) -> nw.LazyFrame[Any]:
    """Return the clicks of each context by what happens to them, one row per context, lazily.

    ``with_features`` counts groups whose item has features, ``examined`` such groups with a known
    examination, and ``repeated`` groups whose item has features several times.
    """
    by = [name for name in ("position", "context") if name in examined.collect_schema()]
    queries = pairs.select("query_id").unique().with_columns(query=nw.lit(1))
    rows = (
        groups.join(examined.select(*by, "alpha"), on=by, how="left")
        .join(pairs, on=[*_IDS], how="left")
        .join(queries, on="query_id", how="left")
    )
    has_query, has_item = ~nw.col("query").is_null(), ~nw.col("features").is_null()
    is_known, clicks = ~nw.col("alpha").is_null(), nw.col("clicks").cast(nw.Int64)
    columns = {
        "clicks": clicks,
        "joined": aggregation.choose(has_item & is_known, clicks),
        "no_query": aggregation.choose(~has_query, clicks),
        "no_item": aggregation.choose(has_query & ~has_item, clicks),
        "unknown": aggregation.choose(has_item & ~is_known, clicks),
        "with_features": aggregation.mark(has_item),
        "examined": aggregation.mark(has_item & is_known),
        "repeated": aggregation.mark(nw.col("features") > 1),
    }
    place = nw.col("context") if "context" in by else nw.lit(NO_CONTEXT)
    per_context = rows.select(place=place, **columns).group_by("place")
    return per_context.agg(**aggregation.sum_columns(*columns))


def _write(pairs: Any, items: Any, names: list[str], path: str, n_shards: int) -> None:  # noqa: ANN401 (of Spark)
    """Join the features of clicked queries, and write each query into one of the files."""
    functions, window = need("pyspark.sql.functions"), need("pyspark.sql").Window
    weights = [name for name in ("clicks", "by_chance") if name in pairs.columns]
    weight = functions.greatest(*weights) if len(weights) > 1 else functions.col(weights[0])
    of_query = functions.max(weight).over(window.partitionBy("query_id"))
    clicked = pairs.withColumn("\0weight", of_query).where(functions.col("\0weight") > 0)
    columns = [name for name in _SHARD_COLUMNS if name in pairs.columns]
    rows = (
        clicked.select(*columns)
        .join(items, on=[*_IDS], how="inner")
        .select(*columns, *(functions.col(f"`{name}`") for name in names))
    )
    parts = rows.repartition(n_shards, "query_id").sortWithinPartitions(*_IDS)
    parts.write.parquet(path)


# -- reading


def _read_table(table: pa.Table) -> tuple[RankingDataset, ClickLog]:
    for name in (*_IDS, "clicks", "propensity"):
        check_column(name, table.column_names, "; expected what write_training_shards wrote")
    weights = [name for name in _WEIGHTS if name in table.column_names]
    features = table.drop_columns(["item_id", *weights])
    if not table.num_rows or features.num_columns == 1:
        raise DataError("no rows or no features, expected both: write fewer shards, or more data")
    if any(table[name].null_count for name in (*_IDS, *weights)):
        raise DataError(_MISSING)
    labels = pa.array(np.zeros(table.num_rows, np.float32))
    dataset = RankingDataset.from_frame(features.append_column("label", labels), query="query_id")
    if dataset.has_missing:
        raise DataError(_MISSING)
    order = group_rows(np.asarray(table["query_id"].to_numpy()))[0]
    numbers = {name: table[name].to_numpy() for name in weights}
    if order is not None:
        numbers = {name: column[order] for name, column in numbers.items()}
    query = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
    log = ClickLog(
        query, np.arange(dataset.n_items) - dataset.offsets[query], numbers["propensity"],
        numbers["clicks"], by_chance=numbers.get("by_chance"), fingerprint=dataset.fingerprint,
    )  # fmt: skip
    return dataset, log.weighted()
