"""Labelled data from a pipe: it is read once, from its first byte; what cannot be, says so."""

import gzip
import io
import os
import re
import threading
from contextlib import contextmanager

import numpy as np
import pyarrow.parquet as pq
import pytest

from countersample import RankingDataset, load_letor, save_letor, simulate_clicks
from countersample.data.load import convert, load
from countersample.data.sources import open_source
from countersample.errors import DataError, ParameterError

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


@pytest.mark.parametrize("with_qid", [True, False])
def test_a_group_file_beside_a_pipe(data, text, tmp_path, with_qid):
    """The first row tells whether the group file is used, and it is not lost for that."""
    content = text.read_bytes()
    (tmp_path / "fifo.query").write_text("8\n" * 500)
    if not with_qid:
        content = b"\n".join(
            b" ".join(line.split()[:1] + line.split()[2:]) for line in content.splitlines()
        )
    with named(b"\xef\xbb\xbf# comment\n" + content, tmp_path) as path:
        found = load_letor(path)
    assert found.features.tobytes() == data.features.tobytes()
    assert found.n_queries == (1000 if with_qid else 500)


def test_every_command_that_reads_labelled_data(data, text, tmp_path, run):
    simulate_clicks(data, data.features[:, 0], 500, rng=0).save("log.parquet")
    run("train", text, "log.parquet", "-o", "ranker.json", "--no-evaluation")
    for words in (
        ("data", "info", "DATA", "--json"),
        ("evaluate", "ranker.json", "DATA", "--json"),
        ("simulate", "DATA", "-o", "clicks.parquet", "--clicks", "500", "--json"),
        ("rank", "ranker.json", "DATA", "-o", "scores.parquet", "--json"),
        ("train", "DATA", "log.parquet", "-o", "again.json", "--no-evaluation", "--json"),
    ):
        expected = run(*(text if word == "DATA" else word for word in words))
        with named(text.read_bytes(), tmp_path, "pipe.txt") as path:
            found = run(*(path if word == "DATA" else word for word in words))
        found, expected = (re.sub(r'"seconds": .*', "", text) for text in (found, expected))
        assert found.replace("pipe.txt", "data.txt") == expected, words


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


def test_a_cache_does_not_go_with_a_pipe(tmp_path, run):
    os.mkfifo(tmp_path / "fifo")
    for refused in (
        lambda: load_letor(tmp_path / "fifo", cache=tmp_path / "cache"),
        lambda: load_letor(__file__, groups=tmp_path / "fifo", cache=tmp_path / "cache"),
    ):
        with pytest.raises(ParameterError, match=r"cache= goes with files, and .*fifo is none"):
            refused()
    assert "fifo is none" in run("data", "info", "fifo", "--cache", "cache", fails=True)


def test_a_study_reads_more_than_once(tmp_path, run):
    os.mkfifo(tmp_path / "fifo")
    for command in (("demo",), ("reproduce", "datasets")):
        line = run(*command, "--data", "fifo", fails=True)
        assert "fifo is neither a file nor a folder" in line


class Slow(io.RawIOBase):
    """A stream that gives a byte at a time."""

    def __init__(self, content):
        self._content = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._content.readinto(memoryview(buffer)[:1])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_at_a_time(pack):
    found = load_letor(Slow(pack(b"1 qid:1 1:5\n0 qid:1 2:1\n")))
    assert found.features.tolist() == [[5, 0], [0, 1]]


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_stream_that_does_not_wait_is_not_taken_for_ended(buffering):
    end, start = os.pipe()
    os.set_blocking(end, False)
    os.write(start, b"1 qid:1 1:5\n")
    with (
        os.fdopen(end, "rb", buffering=buffering) as file,
        pytest.raises(DataError, match=r"cannot be read: it does not wait for its data"),
    ):
        load_letor(file)
    os.close(start)


class TestFilesThatChange:
    @pytest.mark.parametrize("change", ["shrinks", "grows", "same size"])
    def test_while_text_is_read(self, text, change):
        def read_and_change():
            size = text.stat().st_size
            with open_source(text) as source:
                source.readinto(memoryview(bytearray(10)))
                if change == "shrinks":
                    os.truncate(text, size // 2)
                else:
                    with text.open("r+b") as file:
                        file.seek(0 if change == "same size" else size)
                        file.write(b"1")
                    os.utime(text, ns=(0, 0))

        with pytest.raises(DataError, match=r"data\.txt: changed while it was read: read it again"):
            read_and_change()

    def test_while_a_table_is_read(self, tmp_path, monkeypatch):
        path = tmp_path / "table.csv"
        path.write_text("qid,label,a\n1,0,2\n1,1,3\n")
        original = RankingDataset.from_frame

        def meanwhile(frame):
            with path.open("a") as file:
                file.write("1,1,4")
            return original(frame)

        monkeypatch.setattr(RankingDataset, "from_frame", meanwhile)
        with pytest.raises(DataError, match=r"^[^:]*table\.csv: changed while it was read"):
            load(path)

    def test_what_does_not_change_may_be_touched_by_others(self, text, data):
        with open_source(text) as source:
            source.readinto(memoryview(bytearray(10)))
            text.chmod(0o600)
        assert load_letor(text) == data
