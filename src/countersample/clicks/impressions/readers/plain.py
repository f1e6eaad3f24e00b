"""A log with a column for each thing: its names are canonical, or mapped by the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from countersample.clicks.impressions.files import find_files
from countersample.clicks.impressions.readers.base import Opened, Reader

if TYPE_CHECKING:
    from contextlib import ExitStack

    from countersample.clicks.impressions.engines import Engine
    from countersample.clicks.impressions.preparing import Preparation


class Plain(Reader):
    """What is read where no reader is named."""

    def open(  # noqa: D102 (as in Reader)
        self, source: str, engine: Engine, preparation: Preparation, cleanup: ExitStack
    ) -> Opened:
        files = find_files(source)
        files.format.check(files, preparation.columns)
        has_text_ids = files.format.may_have_numbers(files)
        native = engine.scan(files.unpacked(engine.unpacks, cleanup))
        rows = preparation.select(nw.from_native(native).lazy())
        return Opened(rows, has_text_ids)
