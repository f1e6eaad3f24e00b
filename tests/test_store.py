"""Dataset folders and the cache of `load_letor`: atomic, checked, never trusted blindly."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from countersample import RankingDataset, load_letor, save_letor
from countersample.data import cache as cache_module
from countersample.data import store
from countersample.errors import CounterSampleError, DataError


@pytest.fixture
def data(rng):
    return RankingDataset.from_arrays(
        X=rng.normal(size=(50, 4)),
        y=rng.integers(0, 5, 50),
        qid=[f"query {k // 5}" for k in range(50)],
        feature_names=["a", "b", "c", "d"],
    )


@contextmanager
def changed_header(folder):
    path = folder / "header.json"
    header = json.loads(path.read_text())
    yield header
    path.write_text(json.dumps(header))


def change_in_the_middle(path, at, byte=None):
    """Change a byte in a way that leaves size and time of change as they were."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[at] = content[at] ^ 1 if byte is None else byte
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_size == before.st_size


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
        state = (tmp_path / "data" / "query_ids.npy").stat()
        with changed_header(tmp_path / "data") as header:
            header["files"]["query_ids.npy"][0] = state.st_size
            header["checksum"] = store._checksum(
                {key: value for key, value in header.items() if key != "checksum"}
            )
        with pytest.raises(DataError, match="a damaged dataset folder"):
            RankingDataset.open(tmp_path / "data")

    @pytest.mark.parametrize("bits", [None, 8])
    def test_bits_of_the_headers_of_arrays(self, data, tmp_path, bits):
        """numpy reads them as Python, and raises what Python raises."""
        kept = data if bits is None else data.compact(bits)
        kept.save(tmp_path / "data")
        path = tmp_path / "data" / ("features.npy" if bits is None else "codes.npy")
        content = path.read_bytes()
        for bit in range(0, 8 * 70, 5):  # magic, length, dictionary; each of the eight in turn
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            try:
                found = RankingDataset.open(tmp_path / "data")
            except DataError as error:
                assert re.search(r"data: a damaged dataset folder \(.+\)", str(error))  # noqa: PT017
            else:
                assert found == kept  # such as a blank that became another one
        path.write_bytes(content)
        assert RankingDataset.open(tmp_path / "data") == kept

    @pytest.mark.parametrize("shape", [(10**15,), (2**70,), (-2, -25), (50, 1)])
    def test_a_shape_that_the_file_has_no_room_for(self, data, tmp_path, shape):
        data.save(tmp_path / "data")
        path = tmp_path / "data" / "labels.npy"
        content = path.read_bytes()
        with path.open("wb") as file:
            described = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, described)
            file.write(content[128:])
        with pytest.raises(DataError, match="a damaged dataset folder"):
            RankingDataset.open(tmp_path / "data")

    @pytest.mark.parametrize("kind", [b"|a4", b"|O4", b">f4", b"<i4", b"|V4", b"<U1", b"<M4"])
    def test_arrays_of_another_kind(self, data, tmp_path, kind):
        data.save(tmp_path / "data")
        path = tmp_path / "data" / "labels.npy"
        content = path.read_bytes()
        assert b"<f4" in content
        path.write_bytes(content.replace(b"<f4", kind))
        with pytest.raises(DataError, match="a damaged dataset folder"):
            RankingDataset.open(tmp_path / "data")

    def test_numbers_that_are_none(self, data, tmp_path):
        data.save(tmp_path / "data")
        path = tmp_path / "data" / "features.npy"
        content = path.read_bytes()
        path.write_bytes(content[:-4] + b"\x01\x00\x80\x7f")  # a NaN that numpy warns of
        with pytest.raises(DataError, match="its content is not what was written"):
            RankingDataset.open(tmp_path / "data")

    def test_ids_that_are_no_text(self, data, tmp_path):
        data.save(tmp_path / "data")
        path = tmp_path / "data" / "query_ids.npy"
        content = bytearray(path.read_bytes())
        content[-1] = 0x80
        path.write_bytes(content)
        with pytest.raises(DataError, match="query ids have what is no character"):
            RankingDataset.open(tmp_path / "data")

    @pytest.mark.parametrize("name", ["header.json", "features.npy", "labels.npy"])
    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
    def test_pipes_are_not_waited_for(self, data, tmp_path, name):
        data.save(tmp_path / "data")
        (tmp_path / "data" / name).unlink()
        os.mkfifo(tmp_path / "data" / name)
        with pytest.raises(DataError, match=r"not a dataset folder|is not a file"):
            RankingDataset.open(tmp_path / "data")

    def test_a_change_that_keeps_size_and_time(self, data, tmp_path):
        data.save(tmp_path / "data")
        path = tmp_path / "data" / "features.npy"
        change_in_the_middle(path, path.stat().st_size - 3)
        with pytest.raises(DataError, match="its content is not what was written"):
            RankingDataset.open(tmp_path / "data")


class TestHeader:
    @pytest.fixture
    def folder(self, data, tmp_path):
        data.save(tmp_path / "data")
        return tmp_path / "data"

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("fingerprint", "0" * 32), ("feature_names", ["a", "b", "c", "e"]), ("notes", {"a": 1}),
            ("content", "0" * 32), ("n_items", 51), ("checksum", "0" * 32), ("checksum", []),
        ],
    )  # fmt: skip
    def test_another_value(self, folder, key, value):
        with changed_header(folder) as header:
            header[key] = value
        with pytest.raises(
            DataError, match=r"damaged dataset folder \(header.json is not what was"
        ):
            RankingDataset.open(folder)

    def test_only_laid_out_anew(self, data, folder):
        with changed_header(folder):
            pass
        assert RankingDataset.open(folder).fingerprint == data.fingerprint

    def test_without_a_checksum(self, folder):
        with changed_header(folder) as header:
            del header["checksum"]
        with pytest.raises(DataError, match=r"header.json is not what was written"):
            RankingDataset.open(folder)

    @pytest.mark.parametrize(
        "text", ["[" * 100_000, '{"a":' * 100_000, '{"format": ' + "9" * 5000 + "}", "null", "[]"]
    )
    def test_what_is_no_header(self, folder, text):
        (folder / "header.json").write_text(text)
        with pytest.raises(DataError, match="not a dataset folder"):
            RankingDataset.open(folder)

    def test_nested_notes(self, folder):
        text = (folder / "header.json").read_text()
        deep = text.replace('"notes": {}', '"notes": ' + "[" * 900 + "]" * 900)
        assert deep != text
        (folder / "header.json").write_text(deep)
        with pytest.raises(DataError, match=r"(a damaged|not a) dataset folder"):
            RankingDataset.open(folder)

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

    @pytest.mark.parametrize("how", ["in place", "replaced"])
    def test_a_change_in_the_middle_that_keeps_size_and_time(self, tmp_path, reads, how):
        text = tmp_path / "large.txt"
        text.write_text("".join(f"{k % 5} qid:{k // 10} 1:0.{k:06}\n" for k in range(15_000)))
        load_letor(text, cache=tmp_path / "cache")
        before = text.stat()
        if how == "replaced":
            (tmp_path / "new.txt").write_bytes(text.read_bytes())
            os.utime(tmp_path / "new.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
            (tmp_path / "new.txt").replace(text)
        middle = text.read_bytes().index(b"\n", before.st_size // 2) - 1
        change_in_the_middle(text, middle)
        assert load_letor(text, cache=tmp_path / "cache") == load_letor(text)
        assert len(reads) == 2

    @pytest.mark.parametrize("damage", ["array", "deep", "file", "link", "dangling"])
    def test_whatever_is_at_its_name_is_made_again(self, text, tmp_path, damage):
        cache = tmp_path / "cache"
        load_letor(text, cache=cache)
        (entry,) = cache.iterdir()
        if damage == "array":
            content = bytearray((entry / "features.npy").read_bytes())
            content[10] ^= 1  # numpy's parser of Python raises a SyntaxError
            (entry / "features.npy").write_bytes(content)
        elif damage == "deep":
            (entry / "header.json").write_text("[" * 100_000)
        else:
            shutil.rmtree(entry)
            if damage == "file":
                entry.write_text("a file")
            else:
                entry.symlink_to(tmp_path if damage == "link" else "nowhere")
        assert load_letor(text, cache=cache) == load_letor(text)
        assert isinstance(load_letor(text, cache=cache).features, np.memmap)
        assert list(cache.iterdir()) == [entry]
        assert text.exists()

    @pytest.mark.parametrize("times", [1, 100])
    def test_an_entry_that_another_process_removes(self, text, tmp_path, monkeypatch, times):
        left = iter(range(times))
        original = cache_module.write_folder

        def write_folder(entry, *args, **options):
            original(entry, *args, **options)
            if next(left, None) is not None:
                shutil.rmtree(entry)

        monkeypatch.setattr(cache_module, "write_folder", write_folder)
        if times == 100:
            with pytest.warns(UserWarning, match="what is kept there does not last: the text is"):
                found = load_letor(text, cache=tmp_path / "cache")
        else:
            found = load_letor(text, cache=tmp_path / "cache")
        assert found == load_letor(text)

    def test_a_long_name(self, text, tmp_path):
        long = text.rename(tmp_path / ("ä" * 120 + ".txt"))
        found = load_letor(long, cache=tmp_path / "cache")
        assert isinstance(found.features, np.memmap)

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


class TestCacheOfOthers:
    """What others may write to is not trusted; what cannot be written is done without."""

    @pytest.fixture
    def text(self, tmp_path):
        path = tmp_path / "train.txt"
        path.write_text("1 qid:1 1:2\n0 qid:1 2:3\n")
        return path

    @pytest.fixture
    def cache(self, text, tmp_path):
        load_letor(text, cache=tmp_path / "cache")
        return tmp_path / "cache"

    @pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
    def test_a_folder_that_others_may_write_to(self, text, cache, mode):
        cache.chmod(mode)
        with pytest.warns(UserWarning, match=r"not used as a cache, since others may write to it"):
            found = load_letor(text, cache=cache, bits=8)
        assert found == load_letor(text, bits=8)
        assert not isinstance(found.features.codes, np.memmap)
        assert len(list(cache.iterdir())) == 1  # nothing new is kept there

    def test_a_folder_of_another(self, text, cache, monkeypatch):
        if os.geteuid() == 0:  # whose files are trusted, and who may give them away
            os.chown(cache, 12345, -1)
        else:
            monkeypatch.setattr(cache_module.os, "geteuid", lambda: 12345)
        with pytest.warns(UserWarning, match=r"not used as a cache, since others may write to it"):
            assert load_letor(text, cache=cache) == load_letor(text)

    @pytest.mark.parametrize("part", [".", "header.json", "features.npy"])
    def test_an_entry_that_others_may_write_to_is_made_again(self, text, cache, part, reads):
        (entry,) = cache.iterdir()
        (entry / part).chmod(0o777)
        for _ in range(2):
            assert load_letor(text, cache=cache) == load_letor(text)
        assert len(reads) == 1
        assert (entry / part).stat().st_mode & 0o022 == 0

    def test_what_is_made_only_its_owner_may_write_to(self, text, tmp_path, reads):
        before = os.umask(0)
        try:
            for _ in range(2):
                load_letor(text, cache=tmp_path / "new")
                load_letor(text, cache=tmp_path / "new", bits=8)
        finally:
            os.umask(before)
        assert len(reads) == 2
        for path in (tmp_path / "new").rglob("**/*"):
            assert path.stat().st_mode & 0o022 == 0

    @pytest.mark.parametrize("bits", [None, 8])
    @pytest.mark.parametrize("name", [".", "cache", "c" * 5000, "\0"])
    def test_a_place_that_cannot_be_a_folder(self, text, bits, name):
        with pytest.warns(
            UserWarning, match="cannot be made a cache: .*: the text is read without"
        ):
            found = load_letor(text, cache=text / name, bits=bits)
        assert found == load_letor(text, bits=bits)

    def test_a_folder_that_cannot_be_written(self, text, tmp_path, monkeypatch):
        def read_only(path, *_, **__):
            raise OSError(30, "Read-only file system", str(path))

        (tmp_path / "cache").mkdir(mode=0o755)
        monkeypatch.setattr(Path, "mkdir", read_only)
        monkeypatch.setattr(cache_module, "_make_folder", lambda _: None)
        with pytest.warns(UserWarning, match="Read-only file system: the text is read without a"):
            assert load_letor(text, cache=tmp_path / "cache") == load_letor(text)

    def test_an_entry_in_a_folder_that_cannot_be_written_is_used(self, text, cache, reads):
        (entry,) = cache.iterdir()
        entry.chmod(0o555)
        cache.chmod(0o555)
        assert isinstance(load_letor(text, cache=cache).features, np.memmap)
        assert not reads
        cache.chmod(0o755)
        entry.chmod(0o755)

    @pytest.mark.filterwarnings("default")
    def test_the_command_line_says_it_in_one_sentence(self, text, cache, run):
        cache.chmod(0o777)
        told = run("data", "info", text, "--cache", cache, told=True)
        (line,) = told.splitlines()
        assert line.startswith(f"countersample: {cache}: not used as a cache")
