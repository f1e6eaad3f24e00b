"""How the rows of a log, as they were written, become impressions: `Preparation`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from countersample.clicks.impressions.columns import resolve, select, typed
from countersample.clicks.impressions.events import check_values, with_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import narwhals as nw


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
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    context: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        columns: Mapping[str, str] | None = None,
        context: str | Sequence[str] | None = None,
        values: Mapping[str, float] | None = None,
    ) -> Preparation:
        """Check what was given to `read_impressions`."""
        named = (context,) if isinstance(context, str) else tuple(context or ())
        return cls(columns or {}, named, check_values(values))

    def names(self, found: Sequence[str]) -> dict[str, str]:
        """Return the log's own name of each canonical column it has."""
        return resolve(self.columns, found, context=self.context, has_values=bool(self.values))

    def select(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Return the columns that are needed, under their canonical names."""
        return select(frame, self.names(frame.collect_schema().names()), self.context)

    def finish(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Return canonical columns as impressions: types made alike, events merged."""
        frame = typed(frame)
        return with_values(frame, self.values) if self.values else frame
