"""The loop that reads LETOR text: blocks of whole lines, parsed by all cores, rows on a tape."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from countersample.data._letor_errors import EXPECTED_ROW, letor_error
from countersample.data.sources import OpenSource, Source, open_source
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from countersample.data._tape import Tape

BLOCK = 4 << 20  # bytes of text in work at a time; a second block is read meanwhile
PADDING = 16  # bytes after a block: room for a line feed, and for the eight that the kernel reads
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LONGEST_LINE = 256 << 20
_HEADROOM = 1.02  # reserve this much more than the rows seen so far promise
_PIECE = 1 << 19  # bytes that a core parses at a time: one that also reads ahead takes fewer
_WINDOW = 1 << 17  # bytes searched at a time for line feeds
_UNKNOWN_SHARE = 0.8  # of a stream of unknown length, assumed read: it grows by a quarter


@dataclass
class LetorRows:
    """What was read: a matrix, a label a row, and the query of each run of adjacent rows."""

    features: NDArray[np.float32]
    labels: NDArray[np.float32]
    run_starts: NDArray[np.int64]
    run_queries: NDArray[np.int64]
    query_ids: list[bytes]
    zero_based: bool


@dataclass
class _Piece:
    """Some whole lines of a block, and what the kernel found in them."""

    start: int
    stop: int
    n_lines: int
    labels: NDArray[np.float32] = field(init=False)
    runs: NDArray[np.int64] = field(init=False)
    n_rows: int = 0
    min_index: int = 0
    max_index: int = 0
    status: int = 0
    at: int = 0


@dataclass
class _Block:
    """Some whole lines, ``raw[start:end]``: bytes to search in; `text` is the same as an array."""

    raw: bytearray
    text: NDArray[np.uint8]
    start: int
    end: int
    share: float  # of the source that was read by then
    pieces: list[_Piece] = field(default_factory=list)

    @property
    def n_lines(self) -> int:
        return sum(piece.n_lines for piece in self.pieces)

    def split(self, threads: int) -> None:
        """Cut the block into about equal pieces of whole lines, several for each of the threads."""
        parts = max(threads, (self.end - self.start) // _PIECE) if threads > 1 else 1
        start = self.start
        for part in range(1, parts + 1):
            stop = self.start + (self.end - self.start) * part // parts
            if stop > start:
                stop = self.raw.find(b"\n", stop - 1) + 1
                self.pieces.append(_Piece(start, stop, _count_lines(self.text[start:stop])))
                start = stop


@dataclass(kw_only=True)
class LetorReader:
    """Reads one or several sources, one after the other, onto one tape; see `load_letor`."""

    tape: Tape  # where the rows go
    with_qid: bool  # whether each row must name its query or must not
    zero_based: bool | None
    n_features: int | None
    clip: bool
    threads: int
    progress: Callable[[float], None]  # is told the number of bytes read so far

    def __post_init__(self) -> None:
        from countersample._kernels import letor  # noqa: PLC0415 (imports numba)

        self._kernel = letor
        self._base = 0 if self.zero_based else 1
        self._width = self.n_features or 0
        self._highest = -1
        self._n_rows = 0
        self._labels: list[NDArray[np.float32]] = []
        self._run_starts: list[int] = []
        self._run_queries: list[int] = []
        self._query_of: dict[bytes, int] = {}

    def read(self, sources: Sequence[Source]) -> LetorRows:
        """Read all sources and end the tape."""
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
        return LetorRows(
            features=self.tape.matrix(self._n_rows, self._width),
            labels=np.concatenate(self._labels),
            run_starts=np.array(self._run_starts, np.int64),
            run_queries=np.array(self._run_queries, np.int64),
            query_ids=list(self._query_of),
            zero_based=self._base == 0,
        )

    def _read_source(
        self, source: OpenSource, pool: ThreadPoolExecutor, done: int, sources_left: int
    ) -> None:
        lines_before = 0
        rows_before = self._n_rows
        for block in _blocks(source, pool, self.threads):
            # guess that what is to come, and the files after this one, are like what was read
            rows = (self._n_rows - rows_before + block.n_lines) / block.share
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
            room = (self._n_rows + block.n_lines) * self._width
            if len(self.tape.flat) < room:
                self.tape.resize(max(room, expected_rows * self._width))
            self._run_kernel(block, pool)
            for piece in block.pieces:
                if piece.status != self._kernel.OK:
                    raise self._error(name, lines_before, block, piece)
            if self._fits(name, block.pieces):
                break
        self._keep(block)

    def _run_kernel(self, block: _Block, pool: ThreadPoolExecutor) -> None:
        rows = self.tape.flat[self._n_rows * self._width :]
        work = []
        first = 0
        for piece in block.pieces:
            last = first + piece.n_lines
            slab = rows[first * self._width : last * self._width]
            work.append(pool.submit(self._run_piece, block, piece, slab))
            first = last
        for piece_work in work:
            piece_work.result()

    def _run_piece(self, block: _Block, piece: _Piece, slab: NDArray[np.float32]) -> None:
        labels = np.empty(piece.n_lines, np.float32)
        runs = np.empty((piece.n_lines, 3), np.int64)
        uncertain = np.empty((piece.n_lines, 2), np.int64)
        features = np.asarray(slab).reshape(piece.n_lines, self._width)
        (
            piece.n_rows, n_runs, n_uncertain,
            piece.min_index, piece.max_index, piece.status, piece.at,
        ) = self._kernel.parse_rows(
            block.text, piece.start, piece.stop, self.with_qid, self._base, self.clip,
            features, labels, runs, uncertain,
        )  # fmt: skip
        piece.labels = labels[: piece.n_rows]
        piece.runs = runs[:n_runs].copy()
        has_room = self._base <= piece.min_index and piece.max_index - self._base < self._width
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
        """Read a row that the kernel found right in form but too close to call in value."""
        line = block.raw[start : block.raw.find(b"\n", start)].split(b"#")[0]
        for position, token in enumerate(re.finditer(rb"[^ \t\r\n]+", line)):
            if position == 1 and self.with_qid:
                continue
            index, _, number = token[0].rpartition(b":")
            with np.errstate(over="ignore"):
                value = np.float32(float(number)) + np.float32(0)  # -0 is 0, as in the kernel
            if np.isinf(value):
                value = np.copysign(np.finfo(np.float32).max, value)
                if not self.clip and piece.status == self._kernel.OK:
                    piece.status = self._kernel.NOT_FINITE
                    piece.at = start + token.end() - len(number)
            if position == 0:
                label[0] = value
            else:
                row[int(index) - self._base] = value

    def _fits(self, name: str, pieces: list[_Piece]) -> bool:
        """Tell whether all columns had room; if not, make room."""
        self._highest = max(self._highest, *(piece.max_index for piece in pieces))
        base = self._base
        if min(piece.min_index for piece in pieces) < base:
            if self.zero_based is not None:
                raise DataError(f"{name}: a feature with number 0, expected numbers from 1")
            base = 0
        shift = self._base - base
        needed = self._highest - base + 1
        width = self.n_features or max(self._width + shift, needed)
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
        self._base = base
        return False

    def _keep(self, block: _Block) -> None:
        """Take over the rows of a block: close gaps, number the queries."""
        width, flat = self._width, self.tape.flat
        first = self._n_rows
        for piece in block.pieces:
            if first != self._n_rows and piece.n_rows:  # lines without a row left a gap
                flat[self._n_rows * width : (self._n_rows + piece.n_rows) * width] = flat[
                    first * width : (first + piece.n_rows) * width
                ].copy()
            first += piece.n_lines
            for row, at, length in piece.runs.tolist():
                query_id = bytes(block.raw[at : at + length])
                query = self._query_of.setdefault(query_id, len(self._query_of))
                if not self._run_queries or query != self._run_queries[-1]:
                    self._run_starts.append(self._n_rows + row)
                    self._run_queries.append(query)
            self._labels.append(piece.labels)
            self._n_rows += piece.n_rows

    def _error(self, name: str, lines_before: int, block: _Block, piece: _Piece) -> DataError:
        start = max(block.start, block.raw.rfind(b"\n", block.start, piece.at) + 1)
        line = lines_before + block.raw.count(b"\n", block.start, piece.at) + 1
        return letor_error(name, line, block.text, start, piece.at, piece.status)


def _count_lines(text: NDArray[np.uint8]) -> int:
    """Return the number of line feeds, counted in windows that stay in cache."""
    return sum(
        int(np.count_nonzero(text[at : at + _WINDOW] == ord("\n")))
        for at in range(0, len(text), _WINDOW)
    )


def _blocks(source: OpenSource, pool: ThreadPoolExecutor, threads: int) -> Iterator[_Block]:
    """Yield blocks of whole lines, cut into pieces, reading and cutting ahead by one.

    A block ends with a line feed, added where the last line has none. A byte-order mark is left
    out. Two buffers take turns: a block is good until the next one is asked for.
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
