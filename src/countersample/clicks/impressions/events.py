"""Logs of events: what happened to an item that was shown, and what that is worth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGE = ("session", "query_id", "item_id", "position")


def check_values(values: Mapping[str, float] | None) -> dict[str, float]:
    """Return what events are worth; refuse what is no number of at least 0."""
    if values is None:
        return {}
    if not values:
        raise ParameterError("values is empty, expected what events are worth, such as click=1")
    for event, value in values.items():
        if not (isinstance(value, int | float) and value >= 0 and math.isfinite(value)):
            raise ParameterError(
                f"the value of {event!r} is {value!r}, expected a number of at least 0"
            )
    return {str(event): float(value) for event, value in values.items()}


def with_values(frame: nw.LazyFrame[Any], values: Mapping[str, float]) -> nw.LazyFrame[Any]:
    """Return impressions with ``click`` and ``value`` for rows with an ``event``, lazily.

    An event of `values` is a click that is worth so much; others (an impression, a view) are none.
    Rows of one session, query, item and position are one impression: its value is the sum over its
    distinct events. Rows without a session are an impression each.
    """
    columns = frame.collect_schema().names()
    if "event" not in columns:
        raise DataError(
            "no column 'event', which tells what the values of events are of: name it with "
            "columns={'event': '…'} (--columns event=…)"
        )
    of_event = {f"event_{k}": event for k, event in enumerate(values)}
    marks = {
        name: nw.when(nw.col("event") == event).then(nw.lit(1)).otherwise(nw.lit(0))
        for name, event in of_event.items()
    }
    kept = [name for name in columns if name not in {"event", "click", "value"}]
    rows = frame.select(*kept, **marks)
    if "session" in columns:
        others = {
            name: nw.col(name).min() if name == "timestamp" else nw.col(name).max()
            for name in (*kept, *marks)
            if name not in _PAGE
        }
        merged = rows.filter(~nw.col("session").is_null()).group_by(*_PAGE).agg(**others)
        alone = rows.filter(nw.col("session").is_null())
        order = [*kept, *marks]
        rows = nw.concat([merged.select(*order), alone.select(*order)])
    happened = [nw.col(name) for name in of_event]
    worth = [nw.col(name) * values[event] for name, event in of_event.items()]
    return rows.select(
        *kept,
        click=nw.max_horizontal(nw.lit(0), *happened),  # Spark wants two at least
        value=nw.sum_horizontal(*worth),
    )
