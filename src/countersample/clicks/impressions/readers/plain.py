"""Read a log with canonical columns, or with columns that the user maps to them."""

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
    """The reader of logs without a named reader."""

    def open(  # noqa: D102 (as in Reader)
        self, source: str, engine: Engine, preparation: Preparation, cleanup: ExitStack
    ) -> Opened:
        files = find_files(source)
        files.format.check(files, preparation.columns)
        files = files.unpacked(engine.unpacks, cleanup)
        rows = preparation.select(nw.from_native(engine.scan(files)).lazy())
        return Opened(rows, files.format.may_have_numbers(files))
