"""What a reader is: it turns somebody's files into rows with the canonical columns.

Everything after (names that the user maps, contexts, values of events, types, counting) is common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import narwhals as nw

from countersample.clicks.impressions.engines import DuckDB
from countersample.clicks.impressions.sql import quoted
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample.clicks.impressions.engines import Engine
    from countersample.clicks.impressions.preparing import Preparation


class Opened(NamedTuple):
    """Rows with the canonical columns, from the log's own ones where the user mapped them.

    ``has_text_ids`` says whether ids are text of files that know no types, so that "7" may mean
    the number.
    """

    frame: nw.LazyFrame[Any]
    has_text_ids: bool


class Reader(ABC):
    """A kind of log, as its owners write it."""

    @abstractmethod
    def open(
        self, source: str, engine: Engine, preparation: Preparation, cleanup: ExitStack
    ) -> Opened:
        """Open the files on an engine, lazily; what that leaves behind is removed by `cleanup`."""


class SqlReader(Reader):
    """A reader whose rows are made by DuckDB; another engine gets them through memory."""

    has_text_ids: ClassVar[bool] = False

    @abstractmethod
    def relation(
        self, source: str, engine: DuckDB, preparation: Preparation, cleanup: ExitStack
    ) -> Any:  # noqa: ANN401 (a relation)
        """Return the rows as a relation of DuckDB."""

    def open(  # noqa: D102 (as in Reader)
        self, source: str, engine: Engine, preparation: Preparation, cleanup: ExitStack
    ) -> Opened:
        if isinstance(engine, DuckDB):
            made = self._select(source, engine, preparation, cleanup)
        else:
            with ExitStack() as own, DuckDB.explained(source):
                table = DuckDB.collect(self._select(source, DuckDB(own), preparation, own), source)
            made = nw.from_native(engine.from_arrow(table)).lazy()
        return Opened(made, self.has_text_ids)

    def _select(
        self, source: str, engine: DuckDB, preparation: Preparation, cleanup: ExitStack
    ) -> nw.LazyFrame[Any]:
        relation = self.relation(source, engine, preparation, cleanup)
        renamed = ", ".join(
            f"{quoted(name)} as {quoted(_plain(name))}" for name in relation.columns
        )
        plain = replace(
            preparation,
            columns={name: _plain(own) for name, own in preparation.columns.items()},
            context=tuple(_plain(own) for own in preparation.context),
        )
        return plain.select(nw.from_native(relation.project(renamed)).lazy())


def _plain(name: str) -> str:
    """Return the path of a field as a name: dots in names mean something to some engines."""
    return name.replace(".", "/")


def need_columns(title: str, expected: Sequence[str], found: Sequence[str]) -> None:
    """Refuse files whose header is not that of the log they are read as."""
    missing = [name for name in expected if name not in found]
    if missing:
        shown = ", ".join(found[:12]) + (", …" if len(found) > 12 else "")
        raise DataError(
            f"no column {' and '.join(map(repr, missing))}, which {title} has: expected "
            f"{', '.join(expected)} among the columns, found {shown}"
        )
