"""The reader of LETOR text: blocks of whole lines, parsed by all cores, onto one tape.

The lines are parsed by a kernel (`_kernels.letor`), and files of a folder are found by `letor`.

1. A block of about 4 MB of text is read, cut after its last line feed, and cut into pieces of whole
   lines. The next block is read meanwhile.
2. All cores parse the pieces straight into the rows of the tape. If a block shows more columns than
   the tape has, the rows are spread out and the block is parsed again.
3. A value that the kernel cannot round with certainty is parsed again by Python.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._environment import available_cores
from countersample._params import whole_number
from countersample._progress import byte_progress
from countersample.data.dataset import RankingDataset
from countersample.data.sources import (
    BYTE_ORDER_MARK,
    OpenSource,
    Source,
    open_source,
    quote,
)
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from countersample.data.store import Tape

BLOCK = 4 << 20  # bytes of text in work at a time; a second block is read meanwhile
PADDING = 16  # bytes after a block: room for a line feed, and for the eight that the kernel reads
LONGEST_LINE = 256 << 20
EXPECTED_ROW = "label qid:ID index:value …"
_HEADROOM = 1.02  # reserve this much more than the rows seen so far promise
_PIECE = 1 << 19  # bytes that a core parses at a time: one that also reads ahead takes fewer
_UNKNOWN_SHARE = 0.8  # of a stream of unknown length, assumed read: it grows by a quarter
_MAX_FEATURES = 1_000_001  # of text, counted from 0
_MAX_ID = 1000  # bytes: in an array of ids, each takes the space of the longest


@dataclass(frozen=True)
class LetorOptions:
    """How LETOR text is read; `load_letor` explains each option."""

    n_features: int | None = None
    zero_based: bool | None = None
    clip: bool = False
    progress: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.n_features is not None:
            whole_number("n_features", self.n_features, least=1, most=_MAX_FEATURES)
        if self.threads is not None:
            whole_number("threads", self.threads, least=1)


def read_letor(
    sources: Sequence[Source], tape: Tape, options: LetorOptions
) -> tuple[RankingDataset, bool]:
    """Read sources onto a tape; also return whether feature numbers start at 0."""
    paths = [Path(s) for s in sources if isinstance(s, str | os.PathLike)]
    name = ", ".join(path.name for path in paths) or "text"
    total = sum(path.stat().st_size for path in paths if path.exists()) or None
    with byte_progress(f"reading {name}", total, show=options.progress) as report_bytes:
        reader = _Reader(options, tape, report_bytes)
        reader.read(sources)
    return reader.dataset(), reader.base == 0


@dataclass
class _Piece:
    """Some whole lines of a block, and the results of the kernel for them."""

    start: int
    stop: int
    n_lines: int
    n_rows: int
    labels: NDArray[np.float32] = field(init=False)
    runs: NDArray[np.int64] = field(init=False)
    min_index: int = 0
    max_index: int = 0
    status: int = 0
    at: int = 0


@dataclass
class _Block:
    """Whole lines of text as bytes, ``raw[start:end]``; `text` is the same as an array."""

    raw: bytearray
    text: NDArray[np.uint8]
    start: int
    end: int
    share: float  # of the source that was read by then
    pieces: list[_Piece] = field(default_factory=list)

    @property
    def n_lines(self) -> int:
        return sum(piece.n_lines for piece in self.pieces)

    @property
    def n_rows(self) -> int:
        return sum(piece.n_rows for piece in self.pieces)

    def split(self, threads: int) -> None:
        """Cut the block into about equal pieces of whole lines, several for each of the threads."""
        from countersample._kernels.letor import count_rows  # noqa: PLC0415 (imports numba)

        parts = max(threads, (self.end - self.start) // _PIECE) if threads > 1 else 1
        start = self.start
        for part in range(1, parts + 1):
            stop = self.start + (self.end - self.start) * part // parts
            if stop > start:
                stop = self.raw.find(b"\n", stop - 1) + 1
                self.pieces.append(_Piece(start, stop, *count_rows(self.text, start, stop)))
                start = stop


class _Reader:
    """Reads one or several sources, one after the other, onto one tape."""

    def __init__(
        self,
        options: LetorOptions,
        tape: Tape,
        progress: Callable[[float], None],  # receives the number of bytes read so far
    ) -> None:
        from countersample._kernels import letor  # noqa: PLC0415 (imports numba)

        self.options, self.tape, self.progress = options, tape, progress
        self.threads = options.threads or available_cores()
        self.base = 0 if options.zero_based else 1
        self._kernel = letor
        self._width = options.n_features or 0
        self._highest = -1
        self._n_rows = 0
        self._labels: list[NDArray[np.float32]] = []
        self._run_starts: list[int] = []
        self._run_queries: list[int] = []
        self._query_of: dict[bytes, int] = {}

    def read(self, sources: Sequence[Source]) -> None:
        """Read all sources."""
        done = 0
        with ThreadPoolExecutor(self.threads + 1) as pool:
            for position, source in enumerate(sources):
                with open_source(source) as opened:
                    before = self._n_rows
                    left = len(sources) - 1 - position
                    self._read_source(opened, pool, done, left)
                    done += opened.position
                    if self._n_rows == before:
                        raise DataError(f"{opened.name}: no rows, expected lines '{EXPECTED_ROW}'")

    def dataset(self) -> RankingDataset:
        """End the tape and gather its rows by query, in place."""
        features = self.tape.matrix(self._n_rows, self._width)
        labels = np.concatenate(self._labels)
        lengths = np.diff([*self._run_starts, self._n_rows])
        sizes = np.bincount(self._run_queries, weights=lengths).astype(np.int64)
        query_ids = query_id_array(list(self._query_of))
        if len(lengths) > len(sizes):
            order = np.argsort(np.repeat(self._run_queries, lengths), kind="stable")
            labels = labels[order]
            self._kernel.permute_rows(np.asarray(features), order)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return RankingDataset(features, labels, offsets, query_ids)

    def _read_source(
        self, source: OpenSource, pool: ThreadPoolExecutor, done: int, sources_left: int
    ) -> None:
        lines_before = 0
        rows_before = self._n_rows
        for block in _blocks(source, pool, self.threads):
            if block.n_rows:
                # Assume that the rest, and the files after this one, are like the text read so far.
                rows = (self._n_rows - rows_before + block.n_rows) / block.share
                expected = int((rows_before + rows * (1 + sources_left)) * _HEADROOM)
                self._parse(source.name, lines_before, block, pool, expected)
            lines_before += block.n_lines
            self.progress(done + source.position)

    def _parse(
        self,
        name: str,
        lines_before: int,
        block: _Block,
        pool: ThreadPoolExecutor,
        expected_rows: int,
    ) -> None:
        """Parse a block; again where it shows more columns than the tape has room for."""
        while True:
            room = (self._n_rows + block.n_rows) * self._width
            if len(self.tape.flat) < room:
                try:
                    self.tape.resize(max(room, expected_rows * self._width))
                except (MemoryError, OSError):  # no such room: as much as is needed now
                    self.tape.resize(room)
            self._run_kernel(block, pool)
            for piece in block.pieces:
                if piece.status != self._kernel.OK:
                    start = max(block.start, block.raw.rfind(b"\n", block.start, piece.at) + 1)
                    line = lines_before + block.raw.count(b"\n", block.start, piece.at) + 1
                    raise letor_error(name, line, block.text, start, piece.at, piece.status)
            if self._fits(name, block.pieces):
                break
        self._keep(block)

    def _run_kernel(self, block: _Block, pool: ThreadPoolExecutor) -> None:
        rows = self.tape.flat[self._n_rows * self._width :]
        work = []
        first = 0
        for piece in block.pieces:
            last = first + piece.n_rows
            slab = rows[first * self._width : last * self._width]
            work.append(pool.submit(self._run_piece, block, piece, slab))
            first = last
        for piece_work in work:
            piece_work.result()

    def _run_piece(self, block: _Block, piece: _Piece, slab: NDArray[np.float32]) -> None:
        labels = np.empty(piece.n_rows, np.float32)
        runs = np.empty((piece.n_rows, 3), np.int64)
        uncertain = np.empty((piece.n_rows, 2), np.int64)
        features = np.asarray(slab).reshape(piece.n_rows, self._width)
        (
            n_runs, n_uncertain,
            piece.min_index, piece.max_index, piece.status, piece.at,
        ) = self._kernel.parse_rows(
            block.text, piece.start, piece.stop, self.base, self.options.clip,
            features, labels, runs, uncertain,
        )  # fmt: skip
        piece.labels = labels
        piece.runs = runs[:n_runs].copy()
        has_room = self.base <= piece.min_index and piece.max_index - self.base < self._width
        if piece.status == self._kernel.OK and has_room:
            for row, start in uncertain[:n_uncertain]:
                self._read_exactly(block, piece, int(start), features[row], labels[row : row + 1])

    def _read_exactly(
        self,
        block: _Block,
        piece: _Piece,
        start: int,
        row: NDArray[np.float32],
        label: NDArray[np.float32],
    ) -> None:
        """Read a row of the right form with a value that the kernel cannot round for sure."""
        line = block.raw[start : block.raw.find(b"\n", start)].split(b"#")[0]
        for position, token in enumerate(re.finditer(rb"[^ \t\r\n]+", line)):
            if position == 1:
                continue
            index, _, number = token[0].rpartition(b":")
            with np.errstate(over="ignore"):
                value = np.float32(float(number)) + np.float32(0)  # −0 becomes 0, as in the kernel
            if np.isinf(value):
                value = np.copysign(np.finfo(np.float32).max, value)
                if not self.options.clip and piece.status == self._kernel.OK:
                    piece.status = self._kernel.NOT_FINITE
                    piece.at = start + token.end() - len(number)
            if position == 0:
                label[0] = value
            else:
                row[int(index) - self.base] = value

    def _fits(self, name: str, pieces: list[_Piece]) -> bool:
        """Return whether all columns had room; if not, make room."""
        self._highest = max(self._highest, *(piece.max_index for piece in pieces))
        base = self.base
        if min(piece.min_index for piece in pieces) < base:
            if self.options.zero_based is not None:
                raise DataError(f"{name}: a feature with number 0, expected numbers from 1")
            base = 0
        shift = self.base - base
        needed = self._highest - base + 1
        width = self.options.n_features or max(self._width + shift, needed)
        if needed > width:
            raise DataError(
                f"{name}: a feature with number {self._highest}, expected at most {width} "
                f"features counted from {base}"
            )
        if width == self._width and not shift:
            return True
        if self._n_rows:
            self.tape.resize(max(self._n_rows * width, len(self.tape.flat)))
            flat = np.asarray(self.tape.flat)
            self._kernel.widen_rows(flat, self._n_rows, self._width, width, shift)
        self._width = width
        self.base = base
        return False

    def _keep(self, block: _Block) -> None:
        """Add the rows of a block, and number their queries."""
        for piece in block.pieces:
            for row, at, length in piece.runs.tolist():
                query_id = bytes(block.raw[at : at + length])
                query = self._query_of.setdefault(query_id, len(self._query_of))
                if not self._run_queries or query != self._run_queries[-1]:
                    self._run_starts.append(self._n_rows + row)
                    self._run_queries.append(query)
            self._labels.append(piece.labels)
            self._n_rows += piece.n_rows


def _blocks(source: OpenSource, pool: ThreadPoolExecutor, threads: int) -> Iterator[_Block]:
    """Yield blocks of whole lines, cut into pieces, reading and cutting ahead by one.

    A block ends with a line feed, added where the last line has none. A byte-order mark is left
    out. Two buffers alternate: a block is valid until the next one is requested.
    """
    buffers = [bytearray(BLOCK + PADDING) for _ in range(2)]

    def fill(carried: bytes, mark: bytes) -> tuple[_Block, bytes | None]:
        block, rest = _fill(buffers, source, carried)
        if mark and block.raw.startswith(mark, 0, block.end):
            block.start = len(mark)
        block.split(threads)
        return block, rest

    mark = BYTE_ORDER_MARK
    block, rest = fill(b"", mark)
    while rest is not None:
        if block.end:  # else the first line goes on, and is carried with its mark
            mark = b""
        ahead = pool.submit(fill, rest, mark)
        if block.pieces:
            yield block
        block, rest = ahead.result()
    if block.pieces:
        yield block


def _fill(
    buffers: list[bytearray], source: OpenSource, carried: bytes
) -> tuple[_Block, bytes | None]:
    """Read a block: its whole lines, and the start of the line after them.

    `carried` is what the block before had of this one's first line. The start of the next line is
    None at the end of the source.
    """
    buffers.reverse()
    if len(buffers[0]) <= 2 * len(carried) + PADDING:  # a line that is longer than a block
        buffers[0] = bytearray(2 * len(buffers[0]))
    raw = buffers[0]
    text = np.frombuffer(raw, np.uint8)
    size = len(raw) - PADDING
    raw[: len(carried)] = carried
    end = len(carried) + source.readinto(memoryview(raw)[len(carried) : size])
    if end < size:
        if end > 0 and raw[end - 1] != ord("\n"):
            raw[end] = ord("\n")
            end += 1
        return _Block(raw, text, 0, end, 1.0), None
    whole = raw.rfind(b"\n", 0, end) + 1
    if whole == 0 and size > LONGEST_LINE:
        raise DataError(
            f"{source.name}: a line of more than {LONGEST_LINE >> 20} MB, expected lines "
            f"'{EXPECTED_ROW}'"
        )
    share = min(1.0, source.position / source.size) if source.size else _UNKNOWN_SHARE
    return _Block(raw, text, 0, whole, share), bytes(raw[whole:end])


def letor_error(
    name: str, line: int, text: NDArray[np.uint8], start: int, at: int, status: int
) -> DataError:
    """Return the error of the kernel's `status` at byte `at` of the line that begins at `start`."""
    from countersample._kernels import letor as kernel  # noqa: PLC0415 (imports numba)

    before = text[start:at].tobytes()
    rest = text[at : at + 1000].tobytes().split(b"\n")[0].rstrip(b"\r")
    if b"\0" in before + rest:
        return DataError(f"{name}:{line}: a zero byte: this is a binary file, expected LETOR text")
    column = len(before.decode(errors="replace")) + 1
    token = re.split(rb"[ \t#]", rest)[0].decode(errors="replace")
    excerpt = quote(token) if token else "the end of the line"
    number = token.split(":")[0]
    previous = re.findall(rb"[ \t](\d+):", before)
    last = previous[-1].decode() if previous else ""
    sentence = {
        kernel.BAD_LABEL: f"expected a label (a number), found {excerpt}",
        kernel.BAD_QID: f"expected qid:ID after the label, found {excerpt}",
        kernel.BAD_FEATURE: f"expected index:value, found {excerpt}",
        kernel.BAD_VALUE: f"expected a number after {last}:, found {excerpt}",
        kernel.NOT_FINITE: f"{excerpt} is beyond float32: expected a number below 3.4e38; "
        "clip=True (--clip) takes it as that",
        kernel.WRONG_ORDER: f"feature {number} after feature {last}: expected rising feature "
        "numbers",
        kernel.REPEATED: f"feature {number} is given twice",
        kernel.TOO_MANY_FEATURES: f"feature number {quote(number)} is above "
        f"{kernel.MAX_INDEX:,}, the most a dense row may have",
    }[status]
    is_not_finite = token.lower().lstrip("+-") in {"nan", "inf", "infinity"}
    if status in (kernel.BAD_LABEL, kernel.BAD_VALUE) and is_not_finite:
        sentence = (
            f"expected a finite number, found {excerpt}: replace it or leave the row out; "
            "Parquet, CSV and TSV can have missing values, and a value left out of LETOR text is 0"
        )
    return DataError(f"{name}:{line}:{column}: {sentence}")


# -- Queries ---------------------------------------------------------------------------------------


def query_id_array(ids: list[bytes]) -> NDArray[Any]:
    """Return ids as int64 if all are plain integers (``-7``, not ``007``), else as strings."""
    try:
        numbers = [int(i) for i in ids]
        if [b"%d" % number for number in numbers] == ids:
            return np.array(numbers, np.int64)
    except (ValueError, OverflowError):
        pass
    longest = max(ids, key=len, default=b"")
    if len(longest) > _MAX_ID:
        raise DataError(
            f"query id {quote(longest.decode(errors='replace'))} has {len(longest):,} bytes, "
            f"expected at most {_MAX_ID:,}"
        )
    try:
        return np.array([i.decode() for i in ids])
    except UnicodeDecodeError as error:
        raise DataError(f"query id {error.object!r} is not UTF-8") from error
