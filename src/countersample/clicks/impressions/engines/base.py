"""The interface of an engine: it opens files, takes tables, stores and collects frames.

The counting itself is written once, in `aggregation`, and runs on every engine through narwhals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    """Read and count a log.

    The constructor starts the engine with the `settings` that the user gave (or None), and imports
    its library; `cleanup` closes what the engine opens.
    """

    name: ClassVar[str]
    #: The frames that the engine counts in place.
    implementations: ClassVar[tuple[nw.Implementation, ...]]
    #: The settings of `read_impressions` that the engine takes.
    settings: ClassVar[tuple[str, ...]] = ()
    #: The endings of compressed text that the engine reads by itself.
    unpacks: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def __init__(self, cleanup: ExitStack, **settings: str | None) -> None:
        """Start the engine."""

    @abstractmethod
    def from_arrow(self, table: pa.Table | Dataset) -> Any:  # noqa: ANN401 (the engine's own frame)
        """Scan a table in memory, or a dataset that Arrow reads on demand."""

    @abstractmethod
    def readers(self) -> Readers:
        """Return the engine's own readers of formats, lazy if possible."""

    def scan(self, files: Files) -> Any:  # noqa: ANN401 (the engine's own frame)
        """Open files with the engine's own reader, or else through Arrow."""
        reader = self.readers().get(type(files.format))
        return self.from_arrow(files.format.open(files)) if reader is None else reader(files)

    def check_types(self, frame: Any) -> None:  # noqa: ANN401, B027 (Spark raises its own error)
        """Reject columns that have no single type."""

    @classmethod
    def collect(cls, frame: nw.LazyFrame[Any], source: str) -> pa.Table:
        """Compute a lazy frame in the engine, and return the result as an Arrow table."""
        with cls.explained(source):
            return frame.collect(backend="pyarrow").to_arrow()

    @classmethod
    @abstractmethod
    def batches(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[pa.RecordBatch]:
        """Compute a lazy frame, and return the result in batches."""

    @classmethod
    @abstractmethod
    def store(
        cls, frame: nw.LazyFrame[Any], source: str
    ) -> AbstractContextManager[nw.LazyFrame[Any]]:
        """Compute a lazy frame once, in the engine, for all uses of it in the block."""

    @classmethod
    @abstractmethod
    def first_by_digest(
        cls, ids: nw.LazyFrame[Any], n: int, prefix: str, source: str
    ) -> nw.LazyFrame[Any]:
        """Return the n distinct ids, one column, whose md5 of prefix and id sorts first.

        All engines return the same ids, and the ids for a smaller n are among those for a larger n.
        """

    @classmethod
    @abstractmethod
    def errors(cls) -> tuple[type[Exception], ...]:
        """Return the errors that the engine raises for files and values."""

    @classmethod
    def sentence(cls, error: Exception) -> str:
        """Describe an error of the engine in one sentence."""
        return unreadable(error)

    @classmethod
    def explained(cls, source: str) -> AbstractContextManager[None]:
        """Turn errors of the engine into one sentence that names the source."""
        return explained(source, cls.errors(), cls.sentence)
