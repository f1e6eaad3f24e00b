"""pandas with Arrow columns; the whole log is in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample._extras import need
from countersample.clicks.impressions.engines.base import Engine, in_memory

if TYPE_CHECKING:
    from contextlib import ExitStack

    import pyarrow as pa
    from pyarrow.dataset import Dataset


class Pandas(Engine):
    """Frames of pandas; every format comes through Arrow."""

    name = "pandas"
    implementations = (nw.Implementation.PANDAS, nw.Implementation.MODIN)
    unpacks = (".gz", ".bz2", ".zst")

    def __init__(self, cleanup: ExitStack) -> None:  # noqa: ARG002 (nothing to close)
        self.pandas = need("pandas")

    def from_arrow(self, table: pa.Table | Dataset) -> Any:  # noqa: ANN401, D102 (as in Engine)
        return in_memory(table).to_pandas(types_mapper=self.pandas.ArrowDtype)

    @classmethod
    def errors(cls) -> tuple[type[Exception], ...]:
        """Return ValueError, which it raises for text that is no number."""
        return (ValueError,)
