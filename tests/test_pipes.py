"""Labelled data from a pipe: it is read once, from its first byte; what cannot be, says so."""

import gzip
import io
import os
import threading
from contextlib import contextmanager

import numpy as np
import pyarrow.parquet as pq
import pytest

from countersample import RankingDataset, load_letor, save_letor
from countersample.data.labelled_files import convert, load
from countersample.errors import DataError

if not hasattr(os, "mkfifo"):
    pytest.skip("this system has no named pipes", allow_module_level=True)


@pytest.fixture
def data(rng):
    """Some data whose text is longer than what a pipe holds (64 kB)."""
    return RankingDataset.from_arrays(
        rng.normal(size=(4000, 3)), rng.integers(0, 5, 4000), np.arange(4000) // 4
    )


@pytest.fixture
def text(data, tmp_path):
    path = tmp_path / "data.txt"
    save_letor(data, path)
    assert path.stat().st_size > 2 << 16
    return path


@contextmanager
def piped(content, path):
    """Give the content to whoever opens the pipe at `path`, once."""

    def write():
        with path.open("wb") as file:
            file.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    yield path
    thread.join()


@contextmanager
def named(content, folder, name="fifo"):
    path = folder / name
    os.mkfifo(path)
    with piped(content, path):
        yield path
    path.unlink()


@contextmanager
def numbered(content, _folder):
    """As a shell's process substitution: /dev/fd/N."""
    end, start = os.pipe()

    def write():
        with os.fdopen(start, "wb") as file:
            file.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    yield f"/dev/fd/{end}"
    thread.join()
    os.close(end)


@pytest.mark.parametrize("pipe", [named, numbered])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_all_of_it_is_read(text, data, tmp_path, pipe, pack):
    content = pack(text.read_bytes())
    with pipe(content, tmp_path) as path:
        assert load_letor(path) == data
    with pipe(content, tmp_path) as path:
        assert list(load(path).values()) == [data]
    for target in ("folder", "out.txt", "out.parquet"):
        with pipe(content, tmp_path) as path:
            convert(path, tmp_path / target)
        found = load(tmp_path / target)[target]
        assert found.features.tobytes() == data.features.tobytes()
        assert found.query_ids.tolist() == data.query_ids.tolist()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_tables(data, tmp_path, suffix):
    frame = data.to_frame("pyarrow")
    if suffix == "parquet":
        pq.write_table(frame, tmp_path / "table")
    else:
        separator = "\t" if suffix == "tsv" else ","
        data.to_frame("pandas").to_csv(tmp_path / "table", index=False, sep=separator)
    expected = (tmp_path / "table").rename(tmp_path / f"table.{suffix}")
    with named(expected.read_bytes(), tmp_path, f"fifo.{suffix}") as path:
        assert load(path)[path.name] == load(expected)[expected.name]


class Slow(io.RawIOBase):
    """A stream that gives a byte at a time."""

    def __init__(self, content):
        self._content = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._content.readinto(memoryview(buffer)[:1])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_stream_of_single_bytes(pack):
    text = b"1 qid:7 1:0.5\n0 qid:7 2:1\n"
    assert load_letor(Slow(pack(text))) == load_letor(io.BytesIO(text))


def test_a_stream_that_does_not_wait():
    end, start = os.pipe()
    os.set_blocking(end, False)
    with os.fdopen(end, "rb", buffering=0) as file, pytest.raises(DataError, match="O_NONBLOCK"):
        load_letor(file)
    os.close(start)
