"""Exports of User Behavior Insights: ``ubi_queries`` and ``ubi_events``.

A query document has the text of the query and the ids of the hits in the order they were shown; an
event document tells what was done with one of them.

===============  ========================================================================
``query_id``     ``user_query``: the same text is the same query, whoever asks
``session``      ``query_id`` of UBI: one page of results, shown once
``item_id``      each of ``query_response_hit_ids``
``position``     its rank in that list, after the hits of the pages before it; where a
                 document lists no hits, events called ``impression`` tell what was shown, and
                 ``event_attributes.position.ordinal`` where
``event``        ``action_name`` of events on the session and the item
``client``       ``client_id`` of the query document, where it has one
``timestamp``    of the query document
===============  ========================================================================

The pages before a document are told by its ``query_attributes``: ``from`` or ``start`` (hits that
were skipped), or ``page`` (from 1, or from 0 where one is 0) with ``size`` or ``rows`` (hits on a
page; the longest list of the log where left out).

Any other field of either document can be mapped: ``context=query_attributes.device``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample.clicks.impressions.files import Files, find_files, format_of
from countersample.clicks.impressions.readers.base import SqlReader
from countersample.clicks.impressions.readers.pages import IMPRESSION, impressions_of
from countersample.clicks.impressions.sql import literal, quoted
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import ExitStack

    from countersample.clicks.impressions.engines import DuckDB
    from countersample.clicks.impressions.preparing import Preparation

_CLIENT = "client_id"
_HITS = "query_response_hit_ids"
_ORDINAL = "event_attributes.position.ordinal"
_MADE = ("query_id", "item_id", "position", "click", "event", "session", "timestamp", "client")

_PAGES = """
    select {id} as page, {hits} as items, {skipped} as skipped, {text} as query_id,
           {time} as timestamp {client} {own}
    from ubi_queries
"""
_EVENTS = """
    select {page} as page, {item} as item, {event} as event, {ordinal} as ordinal,
           {action} = '{impression}' as is_impression {own}
    from ubi_events
"""
_OF_PAGE = """
    ({page} - (select least(1, min({page})) from ubi_queries))
    * coalesce({sizes}, (select max(len({hits})) from ubi_queries))
"""
_SHOWN = """
    select 1 from ubi_events where {action} = '{impression}' and {ordinal} is not null limit 1
"""


class Ubi(SqlReader):
    """A folder with exports of both indices, documents bare or under ``_source``."""

    @staticmethod
    def is_there(source: str) -> bool:
        """Tell whether a folder has one of the exports."""
        return any(_exports(source).values())

    def relation(  # noqa: D102 (as in SqlReader)
        self, source: str, engine: DuckDB, preparation: Preparation, cleanup: ExitStack
    ) -> Any:  # noqa: ANN401 (a relation)
        exports = _exports(source)
        missing = [name for name, path in exports.items() if path is None]
        if missing:
            beside = " beside the other" if len(missing) == 1 else ""
            raise DataError(f"no {missing[0]}{beside}, expected a folder with both exports")
        queries, events = (
            _Index(engine, find_files(str(path)), name, cleanup) for name, path in exports.items()
        )
        of_pages, of_events = _own(preparation, queries, events)
        has_client = queries.has(_CLIENT)
        if not queries.has(_HITS):
            _need_impressions(engine, queries, events)
        pages = _PAGES.format(
            id=queries.text("query_id"),
            hits=_hits(queries),
            skipped=_skipped(queries),
            text=queries.text("user_query"),
            time=queries.text("timestamp", "null::varchar"),
            client=f", {queries.text(_CLIENT)} as client" if has_client else "",
            own=_named(queries, of_pages),
        )
        acts = _EVENTS.format(
            page=events.text("query_id"),
            item=events.text("event_attributes.object.object_id"),
            event=events.text(preparation.columns.get("event", "action_name")),
            ordinal=events.number(_ORDINAL),
            action=events.text("action_name"),
            impression=IMPRESSION,
            own=_named(events, of_events),
        )
        return impressions_of(
            engine,
            pages,
            acts,
            preparation,
            of_pages=("query_id", "timestamp", *(["client"] if has_client else []), *of_pages),
            of_events=of_events,
        )


class _Index:
    """One exported index as a view: its documents, bare or under ``_source``."""

    def __init__(self, engine: DuckDB, files: Files, name: str, cleanup: ExitStack) -> None:
        self.name = name
        self.source = files.name
        relation = engine.scan(files.unpacked(engine.unpacks, cleanup))
        relation.create_view(name)
        self._types = dict(zip(relation.columns, relation.types, strict=True))
        self._prefix = "_source." if "_source" in self._types else ""

    def has(self, path: str) -> bool:
        return self._find(path) is not None

    def get(self, path: str, default: str | None = None) -> str:
        """Return the expression of a field by its path, or `default` where there is none."""
        found = self._find(path) or default
        if found is None:
            raise DataError(
                f"{self.source}: no field {path!r}, which an export of {self.name} has; the "
                f"fields are {self.fields()}"
            )
        return found

    def text(self, path: str, default: str | None = None) -> str:
        return f"cast({self.get(path, default)} as varchar)"

    def number(self, path: str) -> str:
        """Return a whole number, null where the field is missing or none."""
        return f"try_cast({self.get(path, 'null')} as bigint)"

    def fields(self) -> str:
        return ", ".join(self._types)

    def _find(self, path: str) -> str | None:
        parts = (self._prefix + path).split(".")
        dotted = ".".join(parts)
        if dotted in self._types:  # flattened, as in exports to CSV
            return quoted(dotted)
        fields: Any = self._types
        kind: Any = None
        for depth, part in enumerate(parts):
            if str(kind) == "JSON":  # a field whose type changes from document to document
                keys = ".".join(quoted(key) for key in parts[depth:])
                return f"json_extract_string({_path(parts[:depth])}, {literal('$.' + keys)})"
            if part not in fields:
                return None
            kind = fields[part]
            fields = dict(kind.children) if kind.id == "struct" else {}
        return f"json_extract_string({_path(parts)}, '$')" if str(kind) == "JSON" else _path(parts)


def _path(parts: Iterable[str]) -> str:
    return ".".join(quoted(part) for part in parts)


def _hits(queries: _Index) -> str:
    return f"coalesce(cast({queries.get(_HITS, 'null')} as varchar[]), [])"


def _skipped(queries: _Index) -> str:
    """Return how many hits came on the pages before a document."""
    known = [queries.number(f"query_attributes.{name}") for name in ("from", "start")]
    if queries.has("query_attributes.page"):
        page = queries.number("query_attributes.page")
        sizes = [queries.number(f"query_attributes.{name}") for name in ("size", "rows")]
        known.append(_OF_PAGE.format(page=page, sizes=", ".join(sizes), hits=_hits(queries)))
    return f"coalesce({', '.join(known)}, 0)"


def _own(preparation: Preparation, queries: _Index, events: _Index) -> tuple[list[str], list[str]]:
    """Return the fields that the user mapped: of the queries, and of the events."""
    of_pages: list[str] = []
    of_events: list[str] = []
    for name in preparation.own_names:
        if name in _MADE:
            continue
        if queries.has(name):
            of_pages.append(name)
        elif events.has(name):
            of_events.append(name)
        else:
            raise DataError(
                f"no field {name!r}: the fields of {queries.name} are {queries.fields()}, those "
                f"of {events.name} are {events.fields()} (a field within one is written a.b)"
            )
    return of_pages, of_events


def _named(index: _Index, names: Iterable[str]) -> str:
    return "".join(f", {index.text(name)} as {quoted(name)}" for name in names)


def _need_impressions(engine: DuckDB, queries: _Index, events: _Index) -> None:
    """Refuse exports in which neither hits nor events tell what was shown."""
    shown = _SHOWN.format(
        action=events.text("action_name"), impression=IMPRESSION, ordinal=events.number(_ORDINAL)
    )
    if not engine.connection.sql(shown).fetchall():
        raise DataError(
            f"{queries.source}: no field {_HITS!r}, and no event {IMPRESSION!r} with a "
            f"{_ORDINAL}, so that nothing tells what was shown; the fields are {queries.fields()}"
        )


def _exports(source: str) -> dict[str, Path | None]:
    """Return the file or folder of each index: ``ubi_queries.jsonl.gz``, ``ubi_events/``."""
    found: dict[str, Path | None] = {"ubi_queries": None, "ubi_events": None}
    folder = Path(source)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        bare = path.name.split(".")[0]
        if bare in found and found[bare] is None and (path.is_dir() or format_of(path.name)):
            found[bare] = path
    return found
