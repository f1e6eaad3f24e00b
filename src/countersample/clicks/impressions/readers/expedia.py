"""Expedia's hotel searches (Kaggle, ICDM 2013): a row for each hotel that a search showed.

=============  ====================================================================
``query_id``   ``srch_destination_id``: what is asked again and again
``session``    ``srch_id``: one page of results
``item_id``    ``prop_id``
``position``   as it is
``click``      ``click_bool``
``event``      ``booking`` where ``booking_bool``, else ``click`` where
               ``click_bool``: one event, so that a booking is worth what it is
``policy``     ``random`` where ``random_bool`` (the page was sorted at random), else
               ``expedia``
``timestamp``  ``date_time``
=============  ====================================================================

Any column can be mapped: ``query_id=srch_id`` makes each search a query of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from countersample.clicks.impressions.columns import as_number
from countersample.clicks.impressions.files import find_files
from countersample.clicks.impressions.readers.base import Opened, Reader, need_columns

if TYPE_CHECKING:
    from contextlib import ExitStack

    from countersample.clicks.impressions.engines import Engine
    from countersample.clicks.impressions.preparing import Preparation

_EXPECTED = (
    "srch_id", "date_time", "prop_id", "position", "srch_destination_id", "random_bool",
    "click_bool", "booking_bool",
)  # fmt: skip


class Expedia(Reader):
    """The file ``train.csv``; ``test.csv`` has neither positions nor clicks."""

    def open(  # noqa: D102 (as in Reader)
        self, source: str, engine: Engine, preparation: Preparation, cleanup: ExitStack
    ) -> Opened:
        files = find_files(source)
        frame = nw.from_native(engine.scan(files.unpacked(engine.unpacks, cleanup))).lazy()
        schema = frame.collect_schema()
        need_columns("Expedia's train.csv", _EXPECTED, schema.names())

        def is_one(name: str) -> nw.Expr:
            return as_number(name, schema[name]) == 1

        made = frame.with_columns(
            query_id=nw.col("srch_destination_id"),
            item_id=nw.col("prop_id"),
            session=nw.col("srch_id"),
            timestamp=nw.col("date_time"),
            click=nw.col("click_bool"),
            event=nw.when(is_one("booking_bool"))
            .then(nw.lit("booking"))
            .otherwise(nw.when(is_one("click_bool")).then(nw.lit("click"))),
            policy=nw.when(is_one("random_bool"))
            .then(nw.lit("random"))
            .otherwise(nw.lit("expedia")),
        )
        return Opened(preparation.select(made), files.format.has_text_ids)
