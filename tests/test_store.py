"""Dataset folders and the cache of `load_letor`: written atomically, checked when opened."""

import gc
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from conftest import SEED
from numpy.testing import assert_array_equal

from countersample import RankingDataset, load_letor, load_ranker, save_letor, simulate_clicks
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


@contextmanager
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


class TestFolder:
    def test_round_trip(self, data, tmp_path):
        data.save(tmp_path / "data")
        back = RankingDataset.open(tmp_path / "data")
        assert back == data
        assert back.fingerprint == data.fingerprint
        assert isinstance(back.features, np.memmap)
        assert not back.features.flags.writeable

    def test_without_features(self, tmp_path):
        data = RankingDataset.from_arrays(X=np.empty((3, 0)), y=[1, 2, 3], qid=[1, 1, 2])
        data.save(tmp_path / "data")
        assert RankingDataset.open(tmp_path / "data") == data

    def test_replaces_a_dataset_only(self, data, tmp_path):
        data.subset([0]).save(tmp_path / "data")
        data.save(tmp_path / "data")
        assert RankingDataset.open(tmp_path / "data") == data
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "chapter").write_text("years of work")
        with pytest.raises(DataError, match="exists and is not a dataset folder"):
            data.save(tmp_path / "thesis")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "thesis"]

    def test_a_copy_is_verified_and_opened(self, data, tmp_path):
        data.save(tmp_path / "data")
        shutil.copytree(tmp_path / "data", tmp_path / "copy", copy_function=shutil.copyfile)
        assert RankingDataset.open(tmp_path / "copy") == data

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

    def test_threads_open_folders_while_garbage_is_collected(self, data, tmp_path):
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

    def test_a_failure_leaves_nothing_behind(self, data, tmp_path, monkeypatch):
        def fail(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "save", fail)
        with pytest.raises(CounterSampleError, match="cannot be written: No space left on device"):
            data.save(tmp_path / "data")
        assert list(tmp_path.iterdir()) == []


# -- The cache -------------------------------------------------------------------------------------


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


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


class TestCache:
    def test_the_text_is_read_once(self, text, cache, reads):
        plain = load_letor(text)
        first = load_letor(text, cache=cache)
        second = load_letor(text, cache=cache, threads=1)
        assert first == plain
        assert second == plain
        assert len(reads) == 1
        assert isinstance(second.features, np.memmap)

    def test_a_changed_source_is_read_again(self, text, cache, reads):
        load_letor(text, cache=cache)
        text.write_text(text.read_text() + "1 qid:999 1:1\n")
        assert load_letor(text, cache=cache) == load_letor(text)
        assert len(reads) == 2
        assert len(list(cache.iterdir())) == 1

    def test_other_options_are_other_entries(self, text, cache, reads):
        assert load_letor(text, cache=cache).n_features == 4
        assert load_letor(text, cache=cache, n_features=5).n_features == 5
        assert load_letor(text, cache=cache).n_features == 4
        assert len(reads) == 2

    def test_a_group_file_is_part_of_the_source(self, tmp_path, cache, reads):
        path, groups = tmp_path / "rank.train", tmp_path / "rank.train.query"
        path.write_text("1 1:1\n0 1:2\n2 1:3\n")
        groups.write_text("2\n1\n")
        assert load_letor(path, cache=cache).offsets.tolist() == [0, 2, 3]
        groups.write_text("1\n2\n")
        os.utime(groups, ns=(0, 0))
        assert load_letor(path, cache=cache).offsets.tolist() == [0, 1, 3]
        assert len(reads) == 2

    def test_an_error_in_the_text_leaves_no_entry(self, tmp_path, cache):
        path = tmp_path / "bad.txt"
        path.write_text("1 qid:1 1:1\n1 qid:1 1;1\n")
        with pytest.raises(DataError, match=r"bad\.txt:2:9: expected index:value"):
            load_letor(path, cache=cache)
        assert list(cache.iterdir()) == []

    @pytest.mark.parametrize("damage", ["array", "header", "of floats"])
    def test_a_damaged_entry_is_written_again(self, text, cache, damage):
        load_letor(text, cache=cache, bits=8)
        (entry,) = cache.iterdir()
        if damage == "of floats":
            shutil.rmtree(entry)
            load_letor(text).save(entry)
        else:
            path = entry / ("features.npy" if damage == "array" else "header.json")
            path.write_bytes(path.read_bytes()[:-4])
        assert load_letor(text, cache=cache, bits=8) == load_letor(text, bits=8)
        assert list(cache.iterdir()) == [entry]

    def test_sources_that_cannot_be_found_again(self, text, cache):
        with (
            text.open("rb") as file,
            pytest.raises(CounterSampleError, match="cache= goes with paths"),
        ):
            load_letor(file, cache=cache)

    def test_a_place_that_cannot_be_a_folder(self, text):
        with pytest.raises(DataError, match="cannot be created as a cache"):
            load_letor(text, cache=text / "cache")

    def test_a_killed_writer_leaves_no_entry(self, tmp_path, cache):
        """Kill a process in the middle of filling the cache; the next one reads the source."""
        text = tmp_path / "large.txt"
        text.write_text("".join(f"{k % 5} qid:{k // 10} 1:{k / 7:.6f}\n" for k in range(20_000)))
        code = (
            "import os, signal, sys\n"
            "from countersample import load_letor\n"
            "from countersample.data import store\n"
            "store._write_files = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
            "load_letor(sys.argv[1], cache=sys.argv[2])\n"
        )
        command = [sys.executable, "-c", code, str(text), str(cache)]
        assert subprocess.run(command, check=False).returncode != 0
        assert load_letor(text, cache=cache) == load_letor(text)


# -- Codes in folders and in the cache -------------------------------------------------------------


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
def test_codes_of_the_cache_and_of_converted_text(text, cache, tmp_path, reads, bits):
    assert_is_compact(load_letor(text, bits=bits), text, bits)
    for _ in range(2):
        dataset = load_letor(text, bits=bits, cache=cache)
        assert_is_compact(dataset, text, bits)
        assert is_mapped(dataset)
    assert len(reads) == 1
    (entry,) = cache.iterdir()
    assert not (entry / "numbers.npy").exists()
    size = (entry / "features.npy").stat().st_size
    assert size == 128 + dataset.features.size * dataset.bits // 8
    converted = convert(text, tmp_path / "folder", bits=bits)
    assert_is_compact(converted, text, bits)
    assert is_mapped(converted)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_a_full_disk_is_an_error_not_a_crash(text, cache, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(CounterSampleError, match="cannot be written: No space left on device"):
        load_letor(text, bits=8, cache=cache)
    assert list(cache.iterdir()) == []


def test_a_folder_of_splits(text, tmp_path, cache, reads):
    """Splits have the features of the widest; each is what `compact` makes of it."""
    folder = tmp_path / "set"
    folder.mkdir()
    text.rename(folder / "train.txt")
    (folder / "test.txt").write_text("1 qid:1 1:1 2:3\n0 qid:1 1:2\n")
    plain = {name: part.compact(8) for name, part in load_letor(folder).items()}
    assert plain["test"].n_features == plain["train"].n_features == 4
    for _ in range(2):
        parts = load_letor(folder, bits=8, cache=cache)
        assert parts == plain
        assert all(map(is_mapped, parts.values()))
    assert len(reads) == 3  # the narrow one is read again, with the width of the other
    assert load_train(folder, bits=8, cache=cache) == plain["train"]
    assert load(folder, bits=8) == plain


@pytest.mark.slow
def test_the_cache_on_the_command_line(text, cache, run, reads, tmp_path, monkeypatch):
    """The same ranker with the cache and without, of all features and of some."""
    monkeypatch.chdir(tmp_path)
    numbers = load_letor(text)
    simulate_clicks(numbers, numbers.features[:, 0], 2000, rng=SEED).save("log.parquet")
    train = ("train", text, "log.parquet", "--no-evaluation", "--bits", "auto", "-o")
    for more, n_reads in (([], 1), (["--exclude", "4"], 2)):  # of codes, of numbers
        run(*train, "plain.json", *more)
        expected = load_ranker("plain.json")
        for _ in range(2):
            run(*train, "cached.json", "--cache", cache, *more)
            ranker = load_ranker("cached.json")
            assert_array_equal(ranker.weights_, expected.weights_)
            assert ranker.fingerprint_ == expected.fingerprint_
        assert len(reads) == n_reads
    run("simulate", text, "-o", "clicks.parquet", "--clicks", "100", "--cache", cache)
    run("rank", "plain.json", text, "-o", "ranks.parquet", "--cache", cache)
    printed = run("evaluate", "plain.json", text, "--cache", cache, "--json")
    assert printed == run("evaluate", "plain.json", text, "--json")
    assert len(reads) == 2
