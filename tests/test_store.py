"""Dataset folders: written atomically, checked when opened."""

import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from countersample import RankingDataset, load_letor, save_letor
from countersample.data.labelled_files import convert, load, load_train
from countersample.errors import CounterSampleError, DataError

BITS = (8, 16, "auto")


@pytest.fixture
def data(rng):
    return RankingDataset.from_arrays(
        X=rng.normal(size=(50, 4)),
        y=rng.integers(0, 5, 50),
        qid=[f"query {k // 5}" for k in range(50)],
        feature_names=["a", "b", "c", "d"],
    )


class TestFolder:
    def test_round_trip(self, data, tmp_path):
        data.save(tmp_path / "data")
        shutil.copytree(tmp_path / "data", tmp_path / "copy", copy_function=shutil.copyfile)
        back = RankingDataset.open(tmp_path / "copy")
        assert back == data
        assert back.fingerprint == data.fingerprint
        assert isinstance(back.features, np.memmap)
        assert not back.features.flags.writeable

    def test_replaces_a_dataset_only(self, data, tmp_path):
        data.subset([0]).save(tmp_path / "data")
        data.save(tmp_path / "data")
        assert RankingDataset.open(tmp_path / "data") == data
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "chapter").write_text("years of work")
        with pytest.raises(DataError, match="exists and is not a dataset folder"):
            data.save(tmp_path / "thesis")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "thesis"]

    @pytest.mark.parametrize("damage", ["flip", "cut", "remove", "shape"])
    def test_damaged_arrays_are_rejected(self, data, tmp_path, damage):
        """fuzz_folders.py damages every file of a folder at any byte."""
        data.save(tmp_path / "data")
        path = tmp_path / "data" / "labels.npy"
        content = bytearray(path.read_bytes())
        path.unlink()
        if damage == "shape":
            with path.open("wb") as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (10**15,)}
                np.lib.format.write_array_header_1_0(file, header)
                file.write(content[128:])
        elif damage != "remove":
            content[-1] ^= 1
            path.write_bytes(content if damage == "flip" else content[:-1])
        with pytest.raises(DataError, match="a damaged dataset folder"):
            RankingDataset.open(tmp_path / "data")

    @pytest.mark.parametrize("header", [None, "{not json", "[" * 100_000, "[]"])
    def test_folders_of_something_else(self, tmp_path, header):
        if header is not None:
            (tmp_path / "header.json").write_text(header)
        with pytest.raises(DataError, match="not a dataset folder"):
            RankingDataset.open(tmp_path)

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("version", 99, "format version 99, expected 1"),
            ("files", {}, r"a damaged dataset folder \(.+\): write it again"),
        ],
    )
    def test_headers_of_another_form(self, data, tmp_path, key, value, message):
        data.save(tmp_path / "data")
        path = tmp_path / "data" / "header.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
        with pytest.raises(DataError, match=message):
            RankingDataset.open(tmp_path / "data")

    def test_a_failure_leaves_nothing_behind(self, data, tmp_path, monkeypatch):
        def fail(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "save", fail)
        with pytest.raises(CounterSampleError, match="cannot be written: No space left on device"):
            data.save(tmp_path / "data")
        assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def garbage_that_switches_threads():
    """Collect garbage all the time; each collection lets other threads run."""
    before = gc.get_threshold()
    is_on = True

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            time.sleep(1e-5)
            if is_on:
                Cycle()

    gc.set_threshold(1)
    Cycle()
    try:
        yield
    finally:
        is_on = False
        gc.set_threshold(*before)
        gc.collect()


def test_threads_open_folders_while_garbage_is_collected(data, tmp_path):
    """CPython 3.11 fails if two threads parse Python at once, as `numpy.load` does."""
    data.save(tmp_path / "data")
    errors = []

    def open_at_depth(depth):
        if depth:  # the failure needs threads that are not equally deep
            open_at_depth(depth - 1)
        for _ in range(0 if depth else 30):
            try:
                RankingDataset.open(tmp_path / "data")
            except DataError as error:
                errors.append(error)

    threads = [threading.Thread(target=open_at_depth, args=(20 * k,)) for k in range(6)]
    with garbage_that_switches_threads():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


# -- Converted text --------------------------------------------------------------------------------


@pytest.fixture
def text(rng, tmp_path):
    """Text with a feature that has a heavy tail."""
    features = rng.normal(size=(400, 4))
    features[:, 3] = rng.random(400) ** -1.5
    path = tmp_path / "train.txt"
    save_letor(
        RankingDataset.from_arrays(features, rng.integers(0, 5, 400), np.arange(400) // 8), path
    )
    return path


# -- Codes in folders ------------------------------------------------------------------------------


def assert_is_compact(dataset, text, bits):
    """The dataset is what `compact` makes of the text, with the same fingerprint."""
    numbers = load_letor(text)
    expected = numbers.compact(bits)
    assert dataset == expected
    assert dataset.fingerprint == expected.fingerprint == numbers.fingerprint
    assert dataset.content_hash() == expected.content_hash()
    assert dataset.compact_report(8) == expected.compact_report(8)


def is_mapped(dataset):
    return isinstance(dataset.features.codes, np.memmap)


@pytest.mark.parametrize("bits", BITS)
def test_codes_of_converted_text(text, tmp_path, bits):
    folder = tmp_path / "folder"
    converted = convert(text, folder, bits=bits)
    assert_is_compact(converted, text, bits)
    assert isinstance(converted.features.codes, np.memmap)
    assert not (folder / "numbers.npy").exists()
    size = (folder / "features.npy").stat().st_size
    assert size == 128 + converted.features.size * converted.bits // 8


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_a_full_disk_is_an_error_not_a_crash(text, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(CounterSampleError, match="cannot be written: No space left on device"):
        convert(text, tmp_path / "folder", bits=8)
    assert list(tmp_path.iterdir()) == [text]


def test_a_killed_writer_leaves_no_folder(text, tmp_path):
    code = (
        "import os, signal, sys\n"
        "from countersample.data import labelled_files, store\n"
        "store._write_files = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "labelled_files.convert(sys.argv[1], sys.argv[2])\n"
    )
    folder = tmp_path / "folder"
    command = [sys.executable, "-c", code, str(text), str(folder)]
    assert subprocess.run(command, check=False).returncode != 0
    assert not folder.exists()
    assert convert(text, folder) == load_letor(text)


def test_a_folder_of_splits(text, tmp_path):
    """Splits have the features of the widest."""
    folder = tmp_path / "set"
    folder.mkdir()
    text.rename(folder / "train.txt")
    (folder / "test.txt").write_text("1 qid:1 1:1 2:3\n0 qid:1 1:2\n")
    plain = load_letor(folder)
    assert plain["test"].n_features == plain["train"].n_features == 4
    assert load_train(folder) == plain["train"]
    assert load(folder) == plain
