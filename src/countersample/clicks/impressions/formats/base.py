"""What a format is: endings, and a reader into memory that every engine can fall back on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from countersample.clicks.impressions.files import Files


@dataclass(frozen=True)
class Format(ABC):
    """A format of files.

    Parameters
    ----------
    name : str
    endings : tuple of str
        Those of its files, the usual one first.
    delimiter : str, optional
        What stands between two values of a line, where that is so.
    """

    name: str
    endings: tuple[str, ...]
    delimiter: str = ""
    #: Whether ids are text of a file that knows no types, so that "7" may mean the number.
    has_text_ids: ClassVar[bool] = False
    #: Whether it is read from start to end, so that an engine can unpack it on the way.
    is_stream: ClassVar[bool] = True

    @abstractmethod
    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:
        """Read files into memory.

        Parameters
        ----------
        files : Files
        as_text : collection of str, optional
            Of a format without types: the columns that stay text; all by default.
        """

    def check(self, files: Files, columns: Mapping[str, str] | None) -> None:  # noqa: B027 (few do)
        """Refuse files that do not fit together, before they are opened."""
