"""Metarank's events: JSON lines with ``ranking`` and ``interaction`` among them.

==============  ====================================================================
``query_id``    the field ``query`` of the ranking
``session``     the ``id`` of the ranking: one page of results
``item_id``     each of its ``items``
``position``    its place in that list, from 1
``event``       the ``type`` of an interaction that names the ranking and the item
``client``      the ``user`` of the ranking
``timestamp``   of the ranking
==============  ====================================================================

Interactions without a ranking happened elsewhere, and are left out. Metarank's own ``session`` is
not read. ``fields.NAME`` of the ranking can be mapped: ``context=fields.source``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countersample._json import parse_json
from countersample.clicks.impressions.files import find_files, first_line
from countersample.clicks.impressions.formats import JsonLines
from countersample.clicks.impressions.readers.base import SqlReader
from countersample.clicks.impressions.readers.pages import impressions_of
from countersample.clicks.impressions.sql import literal, quoted
from countersample.errors import DataError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from countersample.clicks.impressions.engines import DuckDB
    from countersample.clicks.impressions.preparing import Preparation

_KINDS = ("item", "user", "ranking", "interaction")
_TEXTS = ("event", "id", "timestamp", "user", "ranking", "type", "item")
_FORMAT = JsonLines("jsonl", (".jsonl", ".ndjson", ".json"))
_FIELDS = "fields."
_QUERY = "fields.query"

_PAGES = """
    select id as page, json_extract_string(items, '$[*].id') as items, 0 as skipped,
           {query} as query_id, "user" as client, timestamp {more}
    from metarank where event = 'ranking'
"""
_EVENTS = """
    select ranking as page, item, type as event, false as is_impression, null::int as ordinal
    from metarank where event = 'interaction' and ranking is not null
"""
_WITH_QUERY = "select 1 from metarank where event = 'ranking' and {query} is not null limit 1"


class Metarank(SqlReader):
    """Events as Metarank reads them."""

    def relation(  # noqa: D102 (as in SqlReader)
        self, source: str, engine: DuckDB, preparation: Preparation, cleanup: ExitStack
    ) -> Any:  # noqa: ANN401 (a relation)
        files = find_files(source, _FORMAT).unpacked(engine.unpacks, cleanup)
        _check(first_line(files.paths[0]))
        engine.connection.read_json(
            list(files.paths),
            format="newline_delimited",
            columns=dict.fromkeys(_TEXTS, "VARCHAR") | {"items": "JSON", "fields": "JSON"},
        ).create_view("metarank")
        if "query_id" not in preparation.columns:
            _need_queries(engine)
        own = [name for name in preparation.own_names if name.startswith(_FIELDS)]
        more = "".join(f", {_expression(name)} as {quoted(name)}" for name in own)
        return impressions_of(
            engine,
            _PAGES.format(query=_expression(_QUERY), more=more),
            _EVENTS,
            preparation,
            of_pages=("query_id", "client", "timestamp", *own),
        )


def _expression(name: str) -> str:
    """Return the value of ``fields.NAME``, null where there is none."""
    field = literal(name.removeprefix(_FIELDS))
    return (
        "list_extract(json_extract_string(fields, '$[*].value'), "
        f"list_position(json_extract_string(fields, '$[*].name'), {field}))"
    )


def _need_queries(engine: DuckDB) -> None:
    """Refuse rankings of which none tells its query, as those of recommendations."""
    found = engine.connection.sql(_WITH_QUERY.format(query=_expression(_QUERY)))
    if not found.fetchall():
        raise DataError(
            "no ranking has a field 'query': say which one tells rankings of the same kind with "
            "columns={'query_id': 'fields.…'} (--columns query_id=fields.…), or 'session' for "
            "rankings that are each of their own"
        )


def _check(line: str | None) -> None:
    if line is None:
        return
    try:
        event = parse_json(line)
    except DataError:
        event = None
    if not isinstance(event, dict) or event.get("event") not in _KINDS:
        raise DataError(
            "the first line is no event of Metarank: expected a JSON object a line with 'event' "
            f"one of {', '.join(_KINDS)}, found {line[:60]!r}"
        )
