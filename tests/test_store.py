"""Dataset folders and the cache of `load_letor`: atomic, checked, never trusted blindly."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from countersample import RankingDataset, load_letor, save_letor
from countersample.errors import CounterSampleError, DataError


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

    @pytest.mark.parametrize("name", ["features.npy", "labels.npy", "offsets.npy", "query_ids.npy"])
    @pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
    def test_damage_is_found(self, data, tmp_path, name, damage):
        data.save(tmp_path / "data")
        path = tmp_path / "data" / name
        content = bytearray(path.read_bytes())
        if damage == "remove":
            path.unlink()
        else:
            content[-1] ^= 1
            path.write_bytes(content if damage == "flip" else content[:-1])
        with pytest.raises(DataError, match="a damaged dataset folder"):
            RankingDataset.open(tmp_path / "data")

    def test_foreign_folders(self, tmp_path):
        with pytest.raises(DataError, match="not a dataset folder"):
            RankingDataset.open(tmp_path / "none")
        (tmp_path / "header.json").write_text("{not json")
        with pytest.raises(DataError, match="not a dataset folder"):
            RankingDataset.open(tmp_path)

    def test_another_version(self, data, tmp_path):
        data.save(tmp_path / "data")
        header = json.loads((tmp_path / "data" / "header.json").read_text())
        header["version"] = 99
        (tmp_path / "data" / "header.json").write_text(json.dumps(header))
        with pytest.raises(DataError, match="format version 99, expected 1"):
            RankingDataset.open(tmp_path / "data")

    def test_no_pickle_is_loaded(self, data, tmp_path):
        data.save(tmp_path / "data")
        np.save(tmp_path / "data" / "query_ids.npy", np.array([{}], object), allow_pickle=True)
        header = json.loads((tmp_path / "data" / "header.json").read_text())
        state = (tmp_path / "data" / "query_ids.npy").stat()
        header["files"]["query_ids.npy"] = [state.st_size, state.st_mtime_ns]
        (tmp_path / "data" / "header.json").write_text(json.dumps(header))
        with pytest.raises(DataError, match="a damaged dataset folder"):
            RankingDataset.open(tmp_path / "data")

    def test_a_failure_leaves_nothing_behind(self, data, tmp_path, monkeypatch):
        def fail(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "save", fail)
        with pytest.raises(CounterSampleError, match="cannot be written: No space left on device"):
            data.save(tmp_path / "data")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
    def test_a_full_disk_is_an_error_not_a_crash(self, data, tmp_path, monkeypatch):
        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", fail)
        with pytest.raises(CounterSampleError, match="cannot be written: No space left on device"):
            data.save(tmp_path / "data")
        assert list(tmp_path.iterdir()) == []

    def test_parent_that_is_not_there(self, data, tmp_path):
        with pytest.raises(CounterSampleError, match="cannot be written: No such file"):
            data.save(tmp_path / "none" / "data")


class TestCache:
    @pytest.fixture
    def text(self, rng, tmp_path):
        path = tmp_path / "train.txt"
        data = RankingDataset.from_arrays(
            X=rng.normal(size=(40, 3)), y=rng.integers(0, 5, 40), qid=np.arange(40) // 4
        )
        save_letor(data, path)
        return path

    def test_second_time_is_not_read(self, text, tmp_path, reads):
        plain = load_letor(text)
        first = load_letor(text, cache=tmp_path / "cache")
        second = load_letor(text, cache=tmp_path / "cache", threads=1)
        assert first == plain
        assert second == plain
        assert len(reads) == 1
        assert isinstance(second.features, np.memmap)

    def test_nothing_is_kept_unless_asked_for(self, text, tmp_path):
        load_letor(text)
        assert [path.name for path in tmp_path.iterdir()] == ["train.txt"]

    def test_a_changed_source_is_read_again(self, text, tmp_path, reads):
        load_letor(text, cache=tmp_path / "cache")
        text.write_text(text.read_text() + "1 qid:999 1:1\n")
        again = load_letor(text, cache=tmp_path / "cache")
        assert again == load_letor(text)
        assert len(reads) == 2
        assert len(list((tmp_path / "cache").iterdir())) == 1

    def test_same_size_other_time(self, text, tmp_path, reads):
        load_letor(text, cache=tmp_path / "cache")
        text.write_text(text.read_text().replace("1 qid:", "2 qid:"))
        os.utime(text, ns=(time.time_ns(), time.time_ns() + 10**9))
        assert load_letor(text, cache=tmp_path / "cache") == load_letor(text)
        assert len(reads) == 2

    def test_other_options_are_other_entries(self, text, tmp_path, reads):
        cache = tmp_path / "cache"
        assert load_letor(text, cache=cache).n_features == 3
        assert load_letor(text, cache=cache, n_features=5).n_features == 5
        assert load_letor(text, cache=cache).n_features == 3
        assert len(reads) == 2

    @pytest.mark.parametrize("damage", ["flip", "cut", "header", "empty"])
    def test_a_damaged_entry_is_made_again(self, text, tmp_path, reads, damage):
        cache = tmp_path / "cache"
        load_letor(text, cache=cache)
        (entry,) = cache.iterdir()
        if damage == "header":
            (entry / "header.json").write_text("{")
        elif damage == "empty":
            shutil.rmtree(entry)
            entry.mkdir()
        else:
            content = bytearray((entry / "features.npy").read_bytes())
            content[150] ^= 1
            (entry / "features.npy").write_bytes(content if damage == "flip" else content[:-4])
        assert load_letor(text, cache=cache) == load_letor(text)
        assert len(reads) == 2

    def test_a_group_file_is_part_of_the_source(self, tmp_path, reads):
        path = tmp_path / "rank.train"
        path.write_text("1 1:1\n0 1:2\n2 1:3\n")
        groups = tmp_path / "rank.train.query"
        groups.write_text("2\n1\n")
        assert load_letor(path, cache=tmp_path / "cache").offsets.tolist() == [0, 2, 3]
        groups.write_text("1\n2\n")
        os.utime(groups, ns=(0, 0))
        assert load_letor(path, cache=tmp_path / "cache").offsets.tolist() == [0, 1, 3]
        assert len(reads) == 2

    def test_folder_of_splits(self, text, tmp_path, reads):
        folder = tmp_path / "fold"
        folder.mkdir()
        text.rename(folder / "train.txt")
        (folder / "test.txt").write_text("1 qid:1 1:1\n")
        plain = load_letor(folder)
        assert load_letor(folder, cache=tmp_path / "cache") == plain
        n_reads = len(reads)
        assert load_letor(folder, cache=tmp_path / "cache") == plain
        assert len(reads) == n_reads

    def test_an_error_in_the_text_leaves_no_entry(self, tmp_path):
        path = tmp_path / "bad.txt"
        path.write_text("1 qid:1 1:1\n1 qid:1 1;1\n")
        with pytest.raises(DataError, match=r"bad\.txt:2:9: expected index:value"):
            load_letor(path, cache=tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []

    def test_file_objects_are_refused(self, text, tmp_path):
        with (
            text.open("rb") as file,
            pytest.raises(CounterSampleError, match="cache= goes with paths"),
        ):
            load_letor(file, cache=tmp_path / "cache")

    def test_a_killed_writer_leaves_no_entry_that_is_trusted(self, tmp_path):
        """Kill a process in the middle of filling the cache; the next one reads the source."""
        text = tmp_path / "large.txt"
        rows = "".join(
            f"{k % 5} qid:{k // 10} 1:{k / 7:.6f} 2:{k / 11:.6f}\n" for k in range(60_000)
        )
        text.write_text(rows)
        cache = tmp_path / "cache"
        code = (
            "import os, signal, sys\n"
            "from countersample import load_letor\n"
            "from countersample.data import store\n"
            "store._state = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
            "load_letor(sys.argv[1], cache=sys.argv[2])\n"
        )
        command = [sys.executable, "-c", code, str(text), str(cache)]
        assert subprocess.run(command, check=False).returncode != 0
        assert load_letor(text, cache=cache) == load_letor(text)
