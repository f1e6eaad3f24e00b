"""Logs of pages and events: a page lists the items that it showed, an event names one of them.

Joined they are impressions. A page is a session. An event is a click, or with values of events
whatever is named there. Of an item that its page shows at several positions it is at the one that
it names, else at the first; on an item that its page did not show it is a row with neither query
nor position, which is reported as impossible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countersample.clicks.impressions.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countersample.clicks.impressions.engines import DuckDB
    from countersample.clicks.impressions.preparing import Preparation

CLICKS = ("click", "click_through", "item_click", "product_click")
IMPRESSION = "impression"  # the event that says that an item was shown

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
           acted.event as event {of_pages} {of_events}
    from shown
    full outer join acted on shown.page = acted.page and shown.item = acted.item
         and shown.position is not distinct from acted.position
"""


def impressions_of(
    engine: DuckDB,
    pages: str,
    events: str,
    preparation: Preparation,
    *,
    of_pages: Sequence[str],
    of_events: Sequence[str] = (),
) -> Any:  # noqa: ANN401 (a relation)
    """Join pages and events to impressions, a row for each event where events have values.

    Parameters
    ----------
    engine : DuckDB
    pages : str
        SQL of a row for each page: ``page``, ``items`` (a list of text, in the order shown),
        ``skipped`` (how many items came on pages before it) and the columns `of_pages`.
    events : str
        SQL of a row for each event: ``page``, ``item``, ``event``, ``is_impression`` (whether it
        says that a page which lists no items showed this one), ``ordinal`` (where on the page) and
        the columns `of_events`.
    preparation : Preparation
        Its values say which events count; without, those that are called clicks.
    of_pages, of_events : sequence of str
        Columns to pass on, under their names.
    """
    has_values = bool(preparation.values)
    on_page, on_event = [quoted(n) for n in of_pages], [quoted(n) for n in of_events]
    return engine.connection.sql(
        _IMPRESSIONS.format(
            pages=pages,
            events=events,
            event="event" if has_values else "min(event)",
            by_event=", event" if has_values else "",
            kinds=", ".join(literal(kind) for kind in preparation.values or CLICKS),
            max_of_events=_more(f"max({name}) as {name}" for name in on_event),
            of_pages=_more(f"shown.{name} as {name}" for name in on_page),
            of_events=_more(f"acted.{name} as {name}" for name in on_event),
        )
    )


def _more(expressions: Iterable[str]) -> str:
    return "".join(f", {expression}" for expression in expressions)
