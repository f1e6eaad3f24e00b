"""Exports of User Behavior Insights: ``ubi_queries`` and ``ubi_events``.

A query document has the text of the query and the ids of the hits in the order they were shown; an
event document tells what was done with one of them. Joined they are impressions:

===============  ========================================================================
``query_id``     ``user_query``: the same text is the same query, whoever asks
``session``      ``query_id`` of UBI: one page of results, shown once
``item_id``      each of ``query_response_hit_ids``
``position``     its rank in that list, from 1; for a click on an item that is not in the
                 list, ``event_attributes.position.ordinal``
``click``        1 if a click event names the session and the item
``impressions``  1; 0 for a click on an item that was not shown, which is then reported
===============  ========================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample.clicks.impressions.engines import DuckDB
from countersample.clicks.impressions.files import Files, find_files, format_of
from countersample.errors import DataError

if TYPE_CHECKING:
    from contextlib import ExitStack


ENGINE = DuckDB  # the statements below are in its SQL
CLICK_ACTIONS = ("click", "click_through", "item_click", "product_click")

_QUERIES = """
    select {id} as session, {text} as query, {hits} as hits, {time} as timestamp
    from {source}
"""
_EVENTS = """
    select {session} as session, {item} as item, min({ordinal}) as ordinal
    from {source} where {action} in {actions} and {item} is not null
    group by all
"""
_IMPRESSIONS = """
    with queries as ({queries}), events as ({events}),
    shown as (
        select session, query, timestamp, unnest(hits) as item,
               generate_subscripts(hits, 1) as position
        from queries
    ),
    known as (select distinct session, query, timestamp from queries)
    select coalesce(shown.query, known.query) as query_id,
           coalesce(shown.item, events.item) as item_id,
           coalesce(shown.position, events.ordinal) as position,
           case when events.item is null then 0 else 1 end as click,
           case when shown.item is null then 0 else 1 end as impressions,
           coalesce(shown.session, events.session) as session,
           coalesce(shown.timestamp, known.timestamp) as timestamp
    from shown
    full outer join events on shown.session = events.session and shown.item = events.item
    left join known on known.session = events.session
"""


def find_exports(source: str) -> tuple[Files, Files] | None:
    """Find ``ubi_queries`` and ``ubi_events`` in a folder; None where neither is there."""
    folder = Path(source)
    if not folder.is_dir():
        return None
    found = {name: _export(folder, name) for name in ("ubi_queries", "ubi_events")}
    missing = [name for name, path in found.items() if path is None]
    if len(missing) == 2:
        return None
    if missing:
        raise DataError(f"{source}: no {missing[0]} beside the other, expected both exports")
    return find_files(str(found["ubi_queries"])), find_files(str(found["ubi_events"]))


def impressions_of(engine: DuckDB, exports: tuple[Files, Files], cleanup: ExitStack) -> Any:  # noqa: ANN401 (a relation)
    """Join queries and events to a relation of impressions."""
    queries = _Index(engine, exports[0], "ubi_queries", cleanup)
    events = _Index(engine, exports[1], "ubi_events", cleanup)
    hits = queries.get("query_response_hit_ids")
    ordinal = events.get("event_attributes.position.ordinal", "null")
    return engine.connection.sql(
        _IMPRESSIONS.format(
            queries=_QUERIES.format(
                id=queries.text("query_id"),
                text=queries.text("user_query"),
                hits=f"cast({hits} as varchar[])",
                time=queries.text("timestamp", "null::varchar"),
                source=queries.name,
            ),
            events=_EVENTS.format(
                session=events.text("query_id"),
                item=events.text("event_attributes.object.object_id"),
                ordinal=f"try_cast({ordinal} as int)",
                action=events.text("action_name"),
                actions=CLICK_ACTIONS,
                source=events.name,
            ),
        )
    )


class _Index:
    """One exported index as a view: its documents, bare or under ``_source``."""

    def __init__(self, engine: DuckDB, files: Files, name: str, cleanup: ExitStack) -> None:
        self.name = name
        self._files = files
        relation = engine.scan(files.unpacked(engine.unpacks, cleanup))
        relation.create_view(name)
        self._types = dict(zip(relation.columns, relation.types, strict=True))
        self._prefix = "_source." if "_source" in self._types else ""

    def get(self, path: str, default: str | None = None) -> str:
        """Return the expression of a field by its path, or `default` where there is none."""
        parts = (self._prefix + path).split(".")
        dotted = ".".join(parts)
        if dotted in self._types:  # flattened, as in exports to CSV
            return f'"{dotted}"'
        fields: Any = self._types
        for part in parts:
            if part not in fields:
                if default is not None:
                    return default
                raise DataError(
                    f"{self._files.name}: no field {path!r}, which an export of {self.name} has; "
                    f"the fields are {', '.join(self._types)}"
                )
            kind = fields[part]
            fields = dict(kind.children) if kind.id == "struct" else {}
        return ".".join(f'"{part}"' for part in parts)

    def text(self, path: str, default: str | None = None) -> str:
        return f"cast({self.get(path, default)} as varchar)"


def _export(folder: Path, name: str) -> Path | None:
    """Return the file or folder of an index: ``ubi_queries.jsonl.gz``, ``ubi_queries/``."""
    for path in sorted(folder.iterdir()):
        bare = path.name.split(".")[0]
        if bare == name and (path.is_dir() or format_of(path.name)):
            return path
    return None
