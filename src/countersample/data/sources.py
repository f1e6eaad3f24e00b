"""Sources of bytes: paths and file objects, decompressed by their content.

The readers of what is in them are elsewhere: `letor_reader`, `logs.files`.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Readable(Protocol):
    """A file object: anything with ``read(n)``, bytes or text."""

    def read(self, size: int = -1, /) -> Any:  # noqa: ANN401 (bytes or str)
        """Read up to `size` bytes or characters."""


Source = str | os.PathLike[str] | Readable

# suffix: (first bytes of such a file, how it is opened)
_COMPRESSIONS: dict[str, tuple[bytes, Callable[..., Any]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".bz2": (b"BZh", bz2.open),
    ".xz": (b"\xfd7zXZ\x00", lzma.open),
    ".zst": (b"\x28\xb5\x2f\xfd", zstd.open),
}
COMPRESSED_SUFFIXES = tuple(_COMPRESSIONS)
_MAGIC_BYTES = max(len(magic) for magic, _ in _COMPRESSIONS.values())
_DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_QUOTED = 40
_ARCHIVES = (b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!")


class _CountingFile(io.RawIOBase):
    """A file object for Python's buffered readers that counts the bytes read."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (a writable buffer)
        count = 0
        # A pipe may give its first bytes one by one, and they show the compression.
        while not count or self.position < _MAGIC_BYTES:
            # A text file may return up to 4 bytes per character.
            data = self._file.read((len(buffer) - count) // 4 or 1)
            if data is None:  # no data yet, which is not the end
                raise BlockingIOError(errno.EAGAIN, "it does not wait for its data (O_NONBLOCK)")
            if not data:
                break
            data = data.encode() if isinstance(data, str) else data
            buffer[count : count + len(data)] = data
            count += len(data)
            self.position += len(data)
        return count


class OpenSource:
    """An open source of bytes: its name, its decompressed stream, and the bytes read so far."""

    def __init__(self, name: str, raw: _CountingFile, size: int | None) -> None:
        self.name = name
        self.size = size
        self._raw = raw
        buffered = io.BufferedReader(raw, 1 << 18)
        try:
            start = buffered.peek(_MAGIC_BYTES)
        except OSError as error:
            raise DataError(f"{name}: cannot be read: {error.strerror}") from error
        if start.startswith(_ARCHIVES):
            raise DataError(f"{name}: an archive of several files, expected one: unpack it first")
        self._stream: IO[bytes] = buffered
        for magic, opener in _COMPRESSIONS.values():
            if start.startswith(magic):
                self._stream = opener(buffered, "rb")

    @property
    def position(self) -> int:
        """The number of bytes read of the source itself, before decompression."""
        return self._raw.position

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer with decompressed bytes; return their number, 0 at the end."""
        n_bytes = 0
        try:
            while n_bytes < len(buffer):
                count = self._stream.readinto(buffer[n_bytes:])  # type: ignore[attr-defined]
                if not count:
                    break
                n_bytes += count
        except EOFError as error:
            raise DataError(
                f"{self.name}: the compressed file ends too soon: it was cut off, get it again"
            ) from error
        except _DAMAGED as error:
            raise DataError(f"{self.name}: the compressed file is damaged ({error})") from error
        except OSError as error:
            # bz2 has no error class
            is_damaged = error.errno is None
            why = "the compressed file is damaged" if is_damaged else error.strerror
            raise DataError(f"{self.name}: cannot be read: {why}") from error
        return n_bytes


@contextmanager
def reading(path: str | os.PathLike[str], cannot: str, kind: type[Exception]) -> Iterator[None]:
    """Turn errors of reading a file into a DataError with its path; `cannot` words one kind.

    ``with reading("a.json", "not JSON ({})", ValueError):`` raises "a.json: not JSON (line 1 …)".
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (OSError, kind) as error:
        raise DataError(f"{path}: {cannot.format(error)}") from error


def as_path(name: str | os.PathLike[str]) -> Path:
    """Return a path; reject one that the system does not accept, or does not allow to inspect."""
    path = Path(name)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # reported by the caller, if it needs the file
    except (OSError, ValueError) as error:  # a ValueError for a zero byte
        why = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{quote(str(path))}: cannot be used as a path: {why}") from error
    return path


@contextmanager
def open_source(source: Source) -> Iterator[OpenSource]:
    """Open a path or a file object for reading; a file object is not closed.

    A path is opened once, since it may be a pipe.
    """
    if isinstance(source, str | os.PathLike):
        path = as_path(source)
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such file") from error
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        with file:
            yield OpenSource(str(path), _CountingFile(file), os.fstat(file.fileno()).st_size)
    elif hasattr(source, "read"):
        name = getattr(source, "name", None)
        yield OpenSource(name if isinstance(name, str) else "<file>", _CountingFile(source), None)
    else:
        raise DataError(
            f"cannot read from a {type(source).__name__}: expected a path or a file object"
        )


def quote(token: str) -> str:
    """Return a token for a message: in quotes, shortened if long, escaped if not printable."""
    if len(token) > _MAX_QUOTED:
        token = token[:_MAX_QUOTED] + "…"
    return f"'{token}'" if token.isprintable() else ascii(token)


def join_words(words: Iterable[str], last: str) -> str:
    """Return "a, b and c"; `last` is the word before the last one."""
    *first, final = words
    return f"{', '.join(first)} {last} {final}" if first else final


def open_for_writing(path: Path, *, like: str) -> IO[bytes]:
    """Open `path` for writing bytes, compressed by the suffix of the name `like`."""
    for suffix, (_, opener) in _COMPRESSIONS.items():
        if like.endswith(suffix):
            return opener(path, "wb")  # type: ignore[no-any-return]
    return path.open("wb")
