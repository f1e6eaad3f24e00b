"""How the rows of a log, as they were written, become impressions: `Preparation`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample._params import whole_number
from countersample.clicks.impressions.columns import resolve, select, typed
from countersample.clicks.impressions.events import check_values, with_values
from countersample.clicks.impressions.queries import joined_queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Preparation:
    """What the user said about the rows of a log.

    Attributes
    ----------
    columns : mapping
        The log's own names of canonical columns.
    context : tuple of str
        The log's own columns that make up the context.
    values : dict
        What events are worth; empty where the log has clicks.
    join_queries : bool
        Whether queries that differ in case and blanks only are one.
    positions_from : int
        The number of the first position in the log: 1 or 0.
    features : tuple of str
        The log's own columns that are features of what was shown.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    context: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    join_queries: bool = False
    positions_from: int = 1
    features: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        columns: Mapping[str, str] | None = None,
        context: str | Sequence[str] | None = None,
        values: Mapping[str, float] | None = None,
        *,
        join_queries: bool = False,
        positions_from: int = 1,
        features: Sequence[str] = (),
    ) -> Preparation:
        """Check what was given to `read_impressions`."""
        whole_number("positions_from", positions_from, least=0, most=1)
        named = (context,) if isinstance(context, str) else tuple(context or ())
        own = tuple(dict.fromkeys((features,) if isinstance(features, str) else features))
        return cls(columns or {}, named, check_values(values), join_queries, positions_from, own)

    @property
    def own_names(self) -> tuple[str, ...]:
        """The log's own names that the user gave, each once."""
        return tuple(dict.fromkeys((*self.columns.values(), *self.context, *self.features)))

    def names(self, found: Sequence[str]) -> dict[str, str]:
        """Return the log's own name of each canonical column it has."""
        return resolve(self.columns, found, context=self.context, has_values=bool(self.values))

    def select(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Return the columns that are needed, under their canonical names."""
        names = self.names(frame.collect_schema().names())
        return select(frame, names, self.context, self.features)

    def finish(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Return canonical columns as impressions: types made alike, events merged."""
        frame = typed(frame)
        if self.positions_from == 0:
            frame = frame.with_columns(nw.col("position") + 1)
        if self.join_queries:
            frame = joined_queries(frame)
        return with_values(frame, self.values) if self.values else frame
