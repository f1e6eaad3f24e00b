"""Logs of other systems: a reader is a function, a line in `READERS` and a choice in `options`.

A reader turns the files of a system into rows with canonical columns, in SQL that DuckDB runs;
Spark gets the rows through memory. Columns that the user maps, contexts, values of events, types
and counting are the same for all logs, and come after it. docs/logs.md lists the fields that
become columns.

Two kinds of systems differ in more than names. Some log *pages* and *events*: a page lists the
items that it showed, an event names one of them. `_join_events` makes impressions of both. A page
is a session. An event is a click, or with values of events any event that has a value. If a page
shows an item at several positions, the event belongs to the position that it names, or else to the
first. An event on an item that its page did not show becomes a row without a query and a position,
which is reported as impossible.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa

from countersample._params import choice
from countersample.errors import DataError
from countersample.logs.columns import find_mapped_names, select_columns
from countersample.logs.engines import DuckDB, collect
from countersample.logs.files import (
    FORMATS,
    Files,
    Format,
    explained,
    find_files,
    find_format,
    quote_name,
    quote_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from countersample.logs.engines import Engine
    from countersample.options import LogOptions

    # Returns a relation, and whether text ids may mean numbers, as in files without types.
    Reader = Callable[["_Log"], tuple[Any, bool]]

CLICKS = ("click", "click_through", "item_click", "product_click")
IMPRESSION = "impression"  # the event of an item that was shown


@dataclass(frozen=True)
class _Log:
    """A log to be opened: its source, the engine and options; `cleanup` removes its files."""

    source: str
    engine: DuckDB
    options: LogOptions
    cleanup: ExitStack

    def find_files(self, file_format: Format | None = None) -> Files:
        return find_files(self.source, file_format).unpack(self.cleanup)


def find_reader(name: str | None, source: str) -> str | None:
    """Return the name of the reader of a source, None for a log with plain columns."""
    if name is not None:
        return choice("reader", name, READERS)
    return "ubi" if any(_find_exports(source).values()) else None


def open_with_reader(
    name: str, source: str, engine: Engine, options: LogOptions, cleanup: ExitStack
) -> tuple[nw.LazyFrame[Any], bool]:
    """Return the rows of a source in the engine, and whether text ids may mean numbers."""
    if isinstance(engine, DuckDB):
        return _select(name, _Log(source, engine, options, cleanup))
    with ExitStack() as temporary, explained(source):
        duckdb = DuckDB(temporary, replace(options, master=None))
        log = _Log(source, duckdb, options, temporary)
        rows, has_text_ids = _select(name, log)
        table = collect(rows, source)
    return nw.from_native(engine.from_arrow(table)).lazy(), has_text_ids


def _select(name: str, log: _Log) -> tuple[nw.LazyFrame[Any], bool]:
    """Select canonical columns; dots in names of nested fields mean something to some engines."""

    def undot(path: str) -> str:
        return path.replace(".", "/")

    relation, has_text_ids = READERS[name](log)
    columns = (f"{quote_name(each)} as {quote_name(undot(each))}" for each in relation.columns)
    rows = nw.from_native(relation.project(", ".join(columns))).lazy()
    plain = replace(
        log.options,
        columns={each: undot(column) for each, column in log.options.columns.items()},
        context=tuple(map(undot, log.options.context)),
    )
    return select_columns(rows, plain), has_text_ids


def _append(expressions: Iterable[str]) -> str:
    return "".join(f", {expression}" for expression in expressions)


# -- pages and events

_IMPRESSIONS = """
    with pages as ({pages}), events as ({events}),
    listed as (
        select * exclude items, unnest(items) as item,
               skipped + generate_subscripts(items, 1) as position
        from pages
    ),
    seen as (
        select distinct pages.* exclude items, item, skipped + ordinal as position
        from pages join events using (page)
        where is_impression and item is not null and len(items) = 0
    ),
    shown as not materialized (select * from listed union all by name select * from seen),
    counted as (select * from events where event in ({kinds}) and item is not null),
    places as (
        select page, item, list(position order by position) as positions,
               list(position - skipped order by position) as ordinals
        from shown semi join counted using (page, item)
        group by page, item
    ),
    placed as (
        select counted.*,
               coalesce(positions[list_position(ordinals, ordinal)], positions[1]) as position
        from counted left join places using (page, item)
    ),
    acted as (
        select page, item, position, {event} as event {max_of_events}
        from placed
        group by page, item, position {by_event}
    )
    select coalesce(shown.page, acted.page) as session,
           coalesce(shown.item, acted.item) as item_id,
           shown.position as position,
           case when acted.item is null then 0 else 1 end as click,
           acted.event as event {page_columns} {event_columns}
    from shown
    full outer join acted on shown.page = acted.page and shown.item = acted.item
         and shown.position is not distinct from acted.position
"""


def _join_events(
    log: _Log,
    pages: str,
    events: str,
    page_columns: Sequence[str],
    event_columns: Sequence[str] = (),
) -> Any:  # noqa: ANN401 (a relation)
    """Return impressions, or one row per event if events have values.

    Parameters
    ----------
    log : _Log
        Its values define which events count; by default events that are called clicks.
    pages : str
        SQL with one row per page: ``page``, ``items`` (a list of text, in the order shown),
        ``skipped`` (the number of items on earlier pages) and the `page_columns`.
    events : str
        SQL with one row per event: ``page``, ``item``, ``event``, ``is_impression`` (whether a page
        without a list showed this item), ``ordinal`` (where on the page) and the `event_columns`.
    page_columns, event_columns : sequence of str
        Columns to pass on, under their names.
    """
    values = log.options.values
    of_page = map(quote_name, page_columns)
    of_event = [*map(quote_name, event_columns)]
    return log.engine.connection.sql(
        _IMPRESSIONS.format(
            pages=pages,
            events=events,
            event="event" if values else "min(event)",
            by_event=", event" if values else "",
            kinds=", ".join(map(quote_text, values or CLICKS)),
            max_of_events=_append(f"max({name}) as {name}" for name in of_event),
            page_columns=_append(f"shown.{name} as {name}" for name in of_page),
            event_columns=_append(f"acted.{name} as {name}" for name in of_event),
        )
    )


# -- User Behavior Insights

_UBI_CLIENT = "client_id"
_UBI_HITS = "query_response_hit_ids"
_UBI_ORDINAL = "event_attributes.position.ordinal"
_UBI_COLUMNS = (
    "query_id", "item_id", "position", "click", "event", "session", "timestamp", "client",
)  # fmt: skip
_UBI_PAGES = """
    select {id} as page, {hits} as items, {skipped} as skipped, {text} as query_id,
           {time} as timestamp {client} {mapped}
    from ubi_queries
"""
_UBI_EVENTS = """
    select {page} as page, {item} as item, {event} as event, {ordinal} as ordinal,
           {action} = '{impression}' as is_impression {mapped}
    from ubi_events
"""
_UBI_SKIPPED = """
    ({page} - (select least(1, min({page})) from ubi_queries))
    * coalesce({sizes}, (select max(len({hits})) from ubi_queries))
"""
_UBI_SHOWN = """
    select 1 from ubi_events where {action} = '{impression}' and {ordinal} is not null limit 1
"""


def _read_ubi(log: _Log) -> tuple[Any, bool]:
    """Read exports of User Behavior Insights: a folder with ``ubi_queries`` and ``ubi_events``.

    A query document has the text of the query and the hits in the order they were shown; an event
    document has an action on one of them. Documents are bare or under ``_source``. Earlier pages
    are found from ``query_attributes``: ``from`` or ``start`` (hits that were skipped), or ``page``
    (from 1, or from 0 if one is 0) with ``size`` or ``rows`` (hits per page; the longest list of
    the log by default). If a document lists no hits, events called ``impression`` have them.
    """
    exports = _find_exports(log.source)
    missing = [name for name, path in exports.items() if path is None]
    if missing:
        beside = " beside the other" if len(missing) == 1 else ""
        raise DataError(f"no {missing[0]}{beside}, expected a folder with both exports")
    queries, events = (_UbiIndex(replace(log, source=str(exports[name])), name) for name in exports)
    page_columns, event_columns = _find_ubi_fields(log.options, queries, events)
    action, ordinal = events.text("action_name"), events.number(_UBI_ORDINAL)
    if not queries.find(_UBI_HITS):
        shown = _UBI_SHOWN.format(action=action, impression=IMPRESSION, ordinal=ordinal)
        if not log.engine.connection.sql(shown).fetchall():
            raise DataError(
                f"{queries.source}: no field {_UBI_HITS!r}, and no event {IMPRESSION!r} with a "
                f"{_UBI_ORDINAL}, so the results shown are unknown; the fields are "
                f"{queries.fields}"
            )
    client = ["client"] if queries.find(_UBI_CLIENT) else []
    pages = _UBI_PAGES.format(
        id=queries.text("query_id"),
        hits=_ubi_hits(queries),
        skipped=_ubi_skipped(queries),
        text=queries.text("user_query"),
        time=queries.text("timestamp", "null::varchar"),
        client=f", {queries.text(_UBI_CLIENT)} as client" if client else "",
        mapped=queries.select(page_columns),
    )
    actions = _UBI_EVENTS.format(
        page=events.text("query_id"),
        item=events.text("event_attributes.object.object_id"),
        event=events.text(log.options.columns.get("event", "action_name")),
        ordinal=ordinal,
        action=action,
        impression=IMPRESSION,
        mapped=events.select(event_columns),
    )
    page_columns = ["query_id", "timestamp", *client, *page_columns]
    return _join_events(log, pages, actions, page_columns, event_columns), False


class _UbiIndex:
    """One exported index as a view of DuckDB: its documents, bare or under ``_source``."""

    def __init__(self, log: _Log, name: str) -> None:
        self.name, self.source = name, log.source
        relation = log.engine.scan(log.find_files())
        relation.create_view(name)
        self._types = dict(zip(relation.columns, relation.types, strict=True))
        self._prefix = "_source." if "_source" in self._types else ""
        self.fields = ", ".join(self._types)

    def get(self, path: str, default: str | None = None) -> str:
        """Return the SQL expression of a field, or `default` if there is none."""
        expression = self.find(path) or default
        if expression is None:
            raise DataError(
                f"{self.source}: no field {path!r}, which an export of {self.name} has; the "
                f"fields are {self.fields}"
            )
        return expression

    def text(self, path: str, default: str | None = None) -> str:
        return f"cast({self.get(path, default)} as varchar)"

    def number(self, path: str) -> str:
        """Return an integer, null if the field is missing or no integer."""
        return f"try_cast({self.get(path, 'null')} as bigint)"

    def select(self, paths: Iterable[str]) -> str:
        return _append(f"{self.text(path)} as {quote_name(path)}" for path in paths)

    def find(self, path: str) -> str | None:
        """Return the SQL expression of a field, None if there is none."""
        parts = (self._prefix + path).split(".")
        dotted = ".".join(parts)
        if dotted in self._types:  # flattened, as in exports to CSV
            return quote_name(dotted)
        fields: Any = self._types
        kind: Any = None
        for depth, part in enumerate(parts):
            if str(kind) == "JSON":  # a field whose type differs between documents
                keys = ".".join(map(quote_name, parts[depth:]))
                parent = ".".join(map(quote_name, parts[:depth]))
                return f"json_extract_string({parent}, {quote_text('$.' + keys)})"
            if part not in fields:
                return None
            kind = fields[part]
            fields = dict(kind.children) if kind.id == "struct" else {}
        column = ".".join(map(quote_name, parts))
        return f"json_extract_string({column}, '$')" if str(kind) == "JSON" else column


def _ubi_hits(queries: _UbiIndex) -> str:
    return f"coalesce(cast({queries.get(_UBI_HITS, 'null')} as varchar[]), [])"


def _ubi_skipped(queries: _UbiIndex) -> str:
    """Return the number of hits on the pages before a document."""
    offsets = [queries.number(f"query_attributes.{name}") for name in ("from", "start")]
    if queries.find("query_attributes.page"):
        page = queries.number("query_attributes.page")
        sizes = ", ".join(queries.number(f"query_attributes.{name}") for name in ("size", "rows"))
        offsets.append(_UBI_SKIPPED.format(page=page, sizes=sizes, hits=_ubi_hits(queries)))
    return f"coalesce({', '.join(offsets)}, 0)"


def _find_ubi_fields(
    options: LogOptions, queries: _UbiIndex, events: _UbiIndex
) -> tuple[list[str], list[str]]:
    """Return the fields that the user mapped: of the queries, and of the events."""
    page_columns: list[str] = []
    event_columns: list[str] = []
    for name in find_mapped_names(options):
        if name in _UBI_COLUMNS:
            continue
        if queries.find(name):
            page_columns.append(name)
        elif events.find(name):
            event_columns.append(name)
        else:
            raise DataError(
                f"no field {name!r}: the fields of {queries.name} are {queries.fields}, those "
                f"of {events.name} are {events.fields} (a field within one is written a.b)"
            )
    return page_columns, event_columns


def _find_exports(source: str) -> dict[str, Path | None]:
    """Return the file or folder of each index: ``ubi_queries.jsonl.gz``, ``ubi_events/``."""
    exports: dict[str, Path | None] = {"ubi_queries": None, "ubi_events": None}
    folder = Path(source)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        name = path.name.split(".")[0]
        if name in exports and exports[name] is None and (path.is_dir() or find_format(path.name)):
            exports[name] = path
    return exports


# -- Metarank

_METARANK_TEXTS = ("event", "id", "timestamp", "user", "ranking", "type", "item")
_METARANK_FORMAT = next(each for each in FORMATS if each.name == "jsonl")
_METARANK_PAGES = """
    select id as page, json_extract_string(items, '$[*].id') as items, 0 as skipped,
           {query} as query_id, "user" as client, timestamp {mapped}
    from metarank where event = 'ranking'
"""
_METARANK_EVENTS = """
    select ranking as page, item, type as event, false as is_impression, null::int as ordinal
    from metarank where event = 'interaction' and ranking is not null
"""


def _read_metarank(log: _Log) -> tuple[Any, bool]:
    """Read events of Metarank: JSON lines with ``ranking`` and ``interaction`` among them.

    Interactions without a ranking happened elsewhere, and are left out. Metarank's ``session`` is
    not read. ``fields.NAME`` of the ranking can be mapped: ``context=fields.source``.
    """
    files, connection = log.find_files(_METARANK_FORMAT), log.engine.connection
    connection.read_json(
        list(files.paths),
        format="newline_delimited",
        columns=dict.fromkeys(_METARANK_TEXTS, "VARCHAR") | {"items": "JSON", "fields": "JSON"},
    ).create_view("metarank")
    query = _metarank_field("fields.query")
    if "query_id" not in log.options.columns:
        with_query = f"from metarank where event = 'ranking' and {query} is not null limit 1"
        if not connection.sql(f"select 1 {with_query}").fetchall():
            raise DataError(
                "no event is a ranking of Metarank with a field 'query', expected one: name the "
                "field that rankings of the same kind share with columns={'query_id': 'fields.…'} "
                "(--columns query_id=fields.…), or 'session' if each ranking is its own query"
            )
    mapped = [name for name in find_mapped_names(log.options) if name.startswith("fields.")]
    select = _append(f"{_metarank_field(name)} as {quote_name(name)}" for name in mapped)
    pages = _METARANK_PAGES.format(query=query, mapped=select)
    columns = ("query_id", "client", "timestamp", *mapped)
    return _join_events(log, pages, _METARANK_EVENTS, columns), False


def _metarank_field(name: str) -> str:
    """Return the value of ``fields.NAME``, null if there is none."""
    field = quote_text(name.removeprefix("fields."))
    return (
        "list_extract(json_extract_string(fields, '$[*].value'), "
        f"list_position(json_extract_string(fields, '$[*].name'), {field}))"
    )


# -- Yandex

_YANDEX_FORMAT = Format("tsv", ("", ".tsv", ".txt"), "\t")
_YANDEX_PAGES = """
    select f[1] || '/' || f[4] as page, [split_part(pair, ',', 1) for pair in f[7:]] as items,
           0 as skipped, f[5] as query_id, f[2] as timestamp, f[1] as "SessionID",
           f[2] as "TimePassed"
    from yandex where f[3] = 'Q'
"""
_YANDEX_EVENTS = """
    select f[1] || '/' || f[4] as page, f[5] as item, 'click' as event, false as is_impression,
           null::int as ordinal
    from yandex where f[3] = 'C'
"""


def _read_yandex(log: _Log) -> tuple[Any, bool]:
    """Read Yandex' personalised web search (Kaggle, 2013): ``train`` and ``test``.

    A line has SessionID, TimePassed, its kind (Q for a page, C for a click), SERPID, and then
    QueryID, terms and results of a page, or the URLID of a click. Pages whose clicks are withheld
    (T) are left out.
    """
    files = log.find_files(_YANDEX_FORMAT)
    lines = log.engine.connection.read_csv(
        list(files.paths),
        sep="\x01",  # occurs in no line, so that a line is one value
        quotechar="",
        escapechar="",
        header=False,
        auto_detect=False,
        columns={"line": "VARCHAR"},
    )
    lines.project("string_split(line, chr(9)) as f").create_view("yandex")
    columns = ("query_id", "timestamp", "SessionID", "TimePassed")
    return _join_events(log, _YANDEX_PAGES, _YANDEX_EVENTS, columns), True


# -- logs with one row per result shown


def _check_columns(title: str, expected: Sequence[str], present: Sequence[str]) -> None:
    missing = [name for name in expected if name not in present]
    if missing:
        shown = ", ".join(present[:12]) + (", …" if len(present) > 12 else "")
        raise DataError(
            f"no column {' and '.join(map(repr, missing))}, which {title} has: expected "
            f"{', '.join(expected)} among the columns, found {shown}"
        )


_BAIDU_NAMES = {
    "query_id": "query_id", "item_id": "url_md5", "position": "position", "click": "click",
}  # fmt: skip
_BAIDU_PAGE = "query_no"  # of a file, in which query_id may come again


def _read_baidu_ultr(log: _Log) -> tuple[Any, bool]:
    """Read Baidu-ULTR as the University of Amsterdam publishes it: Feather files of clicks.

    The files ``part-*_split-*.feather`` have one row per document; the library ``datasets`` turns
    them into one row per page, with lists. Both are read, and Parquet too.
    """
    files = log.find_files()
    if files.format.name not in {"feather", "parquet"}:
        raise DataError(f"a {files.format.name} file, expected Feather or Parquet")
    parts = [path for path in files.paths if Path(path).name.startswith("part-")]
    mapped = find_mapped_names(log.options)
    selects = []
    for number, path in enumerate(parts or files.paths):  # not validation.feather beside them
        data = replace(files, paths=(path,)).open()
        _check_columns("Baidu-ULTR", tuple(_BAIDU_NAMES.values()), data.schema.names)
        # DuckDB cannot read the vectors of other columns.
        needed = {*_BAIDU_NAMES.values(), _BAIDU_PAGE, *mapped}
        schema = pa.schema([field for field in data.schema if field.name in needed])
        view = f"baidu_{number}"
        log.engine.connection.register(view, data.replace_schema(schema))
        is_list = {field.name: "list" in str(field.type) for field in schema}
        names = _BAIDU_NAMES | {name: name for name in mapped if name in is_list}
        columns = [
            (f"unnest({quote_name(column)})" if is_list[column] else quote_name(column))
            + f" as {quote_name(name)}"
            for name, column in names.items()
        ]
        if is_list[_BAIDU_NAMES["click"]]:
            columns.append(f"'{number}/' || page as session")
            view = f"(select *, row_number() over () as page from {view})"  # noqa: S608 (our view)
        elif _BAIDU_PAGE in is_list:
            columns.append(f"'{number}/' || {_BAIDU_PAGE} as session")
        selects.append(f"select {', '.join(columns)} from {view}")  # noqa: S608 (quoted names)
    return log.engine.connection.sql(" union all by name ".join(selects)), False


_BANDIT_EXPECTED = ("timestamp", "item_id", "position", "click", "propensity_score")
_BANDIT_POLICIES = ("random", "bts")
_BANDIT_ITEMS = "item_context"  # the file of the items' features


def _read_open_bandit(log: _Log) -> tuple[Any, bool]:
    """Read the Open Bandit Dataset (ZOZO, 2020): ``random/all/all.csv`` and the like.

    The name of the file is the campaign, which is the query; its folder is the policy.
    ``propensity_score`` is the probability that the policy chose the item for the position, not
    that a user examined it, and is not read.
    """
    files = log.find_files()
    selects: list[str] = []
    original_paths = map(Path, find_files(log.source).paths)
    for path, original in zip(files.paths, original_paths, strict=True):
        campaign = original.name.split(".")[0]
        if campaign == _BANDIT_ITEMS:
            continue
        rows = log.engine.scan(replace(files, paths=(path,)))
        _check_columns("the Open Bandit Dataset", _BANDIT_EXPECTED, rows.columns)
        folders = [each for each in original.parent.parts if each in _BANDIT_POLICIES]
        if not folders:
            raise DataError(
                f"{original} is in no folder {' or '.join(_BANDIT_POLICIES)}, which names the "
                "policy: keep the folders of the archive"
            )
        values = f"{quote_text(campaign)} as query_id, {quote_text(folders[-1])} as policy"
        view = f"bandit_{len(selects)}"
        rows.project(f"*, {values}").create_view(view)
        selects.append(f"from {view}")
    if not selects:
        raise DataError("only item_context, expected impressions such as random/all/all.csv")
    return log.engine.connection.sql(" union all by name ".join(selects)), files.has_text_ids


_EXPEDIA_EXPECTED = (
    "srch_id", "date_time", "prop_id", "position", "srch_destination_id", "random_bool",
    "click_bool", "booking_bool",
)  # fmt: skip
_EXPEDIA_SELECT = """
    *, srch_destination_id as query_id, prop_id as item_id, srch_id as session,
    date_time as timestamp, click_bool as click,
    case when try_cast(booking_bool as double) = 1 then 'booking'
         when try_cast(click_bool as double) = 1 then 'click' end as event,
    case when try_cast(random_bool as double) = 1 then 'random' else 'expedia' end as policy
"""


def _read_expedia(log: _Log) -> tuple[Any, bool]:
    """Read Expedia's hotel searches (Kaggle, ICDM 2013): ``train.csv``, one row per hotel shown.

    A destination is a query, which many searches share; a search is a session.
    """
    files = log.find_files()
    rows = log.engine.scan(files)
    _check_columns("Expedia's train.csv", _EXPEDIA_EXPECTED, rows.columns)
    return rows.project(_EXPEDIA_SELECT), files.has_text_ids


READERS: dict[str, Reader] = {
    "ubi": _read_ubi,
    "metarank": _read_metarank,
    "baidu-ultr": _read_baidu_ultr,
    "yandex": _read_yandex,
    "open-bandit": _read_open_bandit,
    "expedia": _read_expedia,
}
