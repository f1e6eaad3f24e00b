"""Metarank's events: JSON lines with ``ranking`` and ``interaction`` among them.

==============  ====================================================================
``query_id``    the field ``query`` of the ranking
``session``     the ``id`` of the ranking: one page of results
``item_id``     each of its ``items``
``position``    its place in that list, from 1
``event``       the ``type`` of an interaction that names the ranking and the item
``timestamp``   of the ranking
==============  ====================================================================

Interactions without a ranking happened elsewhere, and are left out. ``fields.NAME`` and ``user`` of
the ranking can be mapped: ``context=fields.source``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from countersample.clicks.impressions.files import find_files, first_line
from countersample.clicks.impressions.formats import JsonLines
from countersample.clicks.impressions.readers.base import SqlReader, literal, quoted
from countersample.clicks.impressions.readers.pages import impressions_of
from countersample.errors import DataError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from countersample.clicks.impressions.engines import DuckDB
    from countersample.clicks.impressions.preparing import Preparation

_KINDS = ("item", "user", "ranking", "interaction")
_TEXTS = ("event", "id", "timestamp", "user", "ranking", "type", "item")
_FORMAT = JsonLines("jsonl", (".jsonl", ".ndjson", ".json"))
_FIELDS = "fields."

_PAGES = """
    select id as page, json_extract_string(items, '$[*].id') as items, 0 as skipped,
           {query} as query_id, timestamp {more}
    from metarank where event = 'ranking'
"""
_EVENTS = """
    select ranking as page, item, type as event, false as is_impression, null::int as ordinal
    from metarank where event = 'interaction' and ranking is not null
"""


class Metarank(SqlReader):
    """Events as Metarank reads them."""

    title = "Metarank"

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
        own = [name for name in preparation.own_names if name.startswith(_FIELDS)]
        own += ["user"] if "user" in preparation.own_names else []
        more = "".join(f", {_expression(name)} as {quoted(name)}" for name in own)
        return impressions_of(
            engine,
            _PAGES.format(query=_expression(f"{_FIELDS}query"), more=more),
            _EVENTS,
            preparation,
            of_pages=("query_id", "timestamp", *own),
        )


def _expression(name: str) -> str:
    if not name.startswith(_FIELDS):
        return quoted(name)
    field = literal(name.removeprefix(_FIELDS))
    return (
        "list_extract(json_extract_string(fields, '$[*].value'), "
        f"list_position(json_extract_string(fields, '$[*].name'), {field}))"
    )


def _check(line: str) -> None:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or event.get("event") not in _KINDS:
        raise DataError(
            "the first line is no event of Metarank: expected a JSON object a line with 'event' "
            f"one of {', '.join(_KINDS)}, found {line[:60]!r}"
        )
