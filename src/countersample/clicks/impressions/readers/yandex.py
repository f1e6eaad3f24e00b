"""Yandex' personalised web search (Kaggle, 2013): tab-separated lines of three kinds.

==========  =================================================================
M           SessionID, M, Day, USERID
Q           SessionID, TimePassed, Q, SERPID, QueryID, ListOfTerms, and
            URLID,DomainID of each result in the order shown
T           as Q, for a query of the challenge whose clicks are withheld
C           SessionID, TimePassed, C, SERPID, URLID
==========  =================================================================

A Q is a page, its ``session`` is SessionID/SERPID. A T is left out: what was clicked there is not
told. ``timestamp`` is TimePassed, in units that Yandex does not tell. ``SessionID`` and
``TimePassed`` can be mapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countersample.clicks.impressions.files import find_files, first_line
from countersample.clicks.impressions.formats import Delimited
from countersample.clicks.impressions.readers.base import SqlReader
from countersample.clicks.impressions.readers.pages import impressions_of
from countersample.errors import DataError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from countersample.clicks.impressions.engines import DuckDB
    from countersample.clicks.impressions.preparing import Preparation

_FORMAT = Delimited("tsv", ("", ".tsv", ".txt"), "\t")
_PAGES = """
    select f[1] || '/' || f[4] as page, [split_part(pair, ',', 1) for pair in f[7:]] as items,
           0 as skipped, f[5] as query_id, f[2] as timestamp, f[1] as "SessionID",
           f[2] as "TimePassed"
    from yandex where f[3] = 'Q'
"""
_EVENTS = """
    select f[1] || '/' || f[4] as page, f[5] as item, 'click' as event, false as is_impression,
           null::int as ordinal
    from yandex where f[3] = 'C'
"""


class Yandex(SqlReader):
    """The files ``train`` and ``test`` of the challenge."""

    has_text_ids = True

    def relation(  # noqa: D102 (as in SqlReader)
        self, source: str, engine: DuckDB, preparation: Preparation, cleanup: ExitStack
    ) -> Any:  # noqa: ANN401 (a relation)
        files = find_files(source, _FORMAT).unpacked(engine.unpacks, cleanup)
        _check(first_line(files.paths[0]))
        lines = engine.connection.read_csv(
            list(files.paths),
            sep="\x01",  # occurs in no line, so that a line is one value
            quotechar="",
            escapechar="",
            header=False,
            auto_detect=False,
            columns={"line": "VARCHAR"},
        )
        lines.project("string_split(line, chr(9)) as f").create_view("yandex")
        own = ("SessionID", "TimePassed")
        return impressions_of(
            engine, _PAGES, _EVENTS, preparation, of_pages=("query_id", "timestamp", *own)
        )


def _check(line: str | None) -> None:
    if line is None:
        return
    parts = line.split("\t")
    if parts[1:2] != ["M"] and parts[2:3] not in (["Q"], ["T"], ["C"]):
        raise DataError(
            "the first line is none of Yandex' log: expected tab-separated values with M second, "
            f"or Q, T or C third, found {line[:60]!r}"
        )
