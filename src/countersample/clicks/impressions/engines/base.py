"""What an engine is: it opens files, takes tables, keeps and collects frames, explains errors.

The counting itself is written once, in `aggregation`, and runs on every engine through narwhals.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from countersample.clicks.impressions.explaining import explained, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager, ExitStack

    import narwhals as nw
    import pyarrow as pa
    from pyarrow.dataset import Dataset

    from countersample.clicks.impressions.files import Files
    from countersample.clicks.impressions.formats import Format

    Readers = Mapping[type[Format], Callable[[Files], Any]]


class Engine(ABC):
    """What reads and counts a log.

    Making one starts it, with those of its `settings` that the user gave (or None); what it opens
    is closed by `cleanup`. Its library is imported then, and no earlier.
    """

    name: ClassVar[str]
    #: The frames that it counts where they are.
    implementations: ClassVar[tuple[nw.Implementation, ...]]
    #: The settings of `read_impressions` that it takes.
    settings: ClassVar[tuple[str, ...]] = ()
    #: The endings of compressed text that it reads by itself.
    unpacks: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def __init__(self, cleanup: ExitStack, **settings: str | None) -> None:
        """Start it."""

    @abstractmethod
    def from_arrow(self, table: pa.Table | Dataset) -> Any:  # noqa: ANN401 (the engine's own frame)
        """Take a table from memory, or what Arrow reads when it is asked for."""

    def readers(self) -> Readers:
        """Return how it opens the formats that it reads by itself, lazily where it can."""
        return {}

    def scan(self, files: Files) -> Any:  # noqa: ANN401 (the engine's own frame)
        """Open files by its own reader, or else through Arrow."""
        reader = self.readers().get(type(files.format))
        return self.from_arrow(files.format.open(files)) if reader is None else reader(files)

    def check_types(self, frame: Any) -> None:  # noqa: ANN401, B027 (few do)
        """Refuse columns that it could not give one type."""

    @classmethod
    def collect(cls, frame: nw.LazyFrame[Any], source: str) -> pa.Table:
        """Compute a lazy frame where its data is; return the result as an Arrow table."""
        with cls.explained(source):
            return frame.collect(backend="pyarrow").to_arrow()

    @classmethod
    def batches(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[pa.RecordBatch]:
        """Compute a lazy frame; return the result in pieces, which need not be there at once."""
        yield from cls.collect(frame, source).to_batches()

    @classmethod
    @contextmanager
    def kept(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[nw.LazyFrame[Any]]:
        """Compute a lazy frame once, where its data is, for what is made of it in the block."""
        with cls.explained(source):
            found = frame.collect()
        yield found.lazy()

    @classmethod
    def first_by_digest(
        cls, ids: nw.LazyFrame[Any], n: int, prefix: str, source: str
    ) -> nw.LazyFrame[Any]:
        """Return the n distinct ids, one column, whose md5 of prefix and id comes first.

        The same ids in every engine, and those of a smaller n are among those of a larger.
        """
        with cls.explained(source):
            found = ids.collect()
        column = found.get_column(found.columns[0])
        digests = [
            hashlib.md5(f"{prefix}{each}".encode(), usedforsecurity=False).hexdigest()
            for each in column.to_list()
        ]
        last = sorted(digests)[: n + 1]
        chosen = [len(last) <= n or digest < last[-1] for digest in digests]
        return found.filter(chosen).lazy()

    @classmethod
    def errors(cls) -> tuple[type[Exception], ...]:
        """Return what it raises for files and values, beside the errors of Arrow and narwhals."""
        return ()

    @classmethod
    def sentence(cls, error: Exception) -> str:
        """Say what went wrong."""
        return unreadable(error)

    @classmethod
    def explained(cls, source: str) -> AbstractContextManager[None]:
        """Turn its errors into one sentence that names the source."""
        return explained(source, cls.errors(), cls.sentence)


def in_memory(table: pa.Table | Dataset) -> pa.Table:
    """Return a table with its rows there."""
    return table.to_table() if hasattr(table, "to_table") else table
