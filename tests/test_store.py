"""Dataset folders and the cache of `load_letor`: atomic, checked, never trusted blindly."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import SEED
from numpy.testing import assert_array_equal

from countersample import RankingDataset, load_letor, load_ranker, save_letor, simulate_clicks
from countersample.data import store
from countersample.data.labelled_files import convert, load, load_train
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

    @pytest.mark.parametrize("kind", [b"|O4", b">f4", b"<i4"])
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
        with pytest.raises(DataError, match="query ids have numbers that are not"):
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
            ("fingerprint", "0" * 32), ("notes", {"a": 1}), ("n_items", 51), ("checksum", []),
            ("checksum", None),
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

    def test_a_changed_source_is_read_again(self, text, tmp_path, reads):
        load_letor(text, cache=tmp_path / "cache")
        text.write_text(text.read_text() + "1 qid:999 1:1\n")
        again = load_letor(text, cache=tmp_path / "cache")
        assert again == load_letor(text)
        assert len(reads) == 2
        assert len(list((tmp_path / "cache").iterdir())) == 1

    def test_other_options_are_other_entries(self, text, tmp_path, reads):
        cache = tmp_path / "cache"
        assert load_letor(text, cache=cache).n_features == 3
        assert load_letor(text, cache=cache, n_features=5).n_features == 5
        assert load_letor(text, cache=cache).n_features == 3
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
        original = store.write_folder

        def write_folder(entry, *args, **options):
            original(entry, *args, **options)
            if next(left, None) is not None:
                shutil.rmtree(entry)

        monkeypatch.setattr(store, "write_folder", write_folder)
        if times == 100:
            with pytest.warns(UserWarning, match="does not last: the text is"):
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
            "store._file_state = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
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

    @pytest.mark.parametrize("mode", [0o775, 0o757])
    def test_a_folder_that_others_may_write_to(self, text, cache, mode):
        cache.chmod(mode)
        with pytest.warns(UserWarning, match=r"others can write to it"):
            found = load_letor(text, cache=cache, bits=8)
        assert found == load_letor(text, bits=8)
        assert not isinstance(found.features.codes, np.memmap)
        assert len(list(cache.iterdir())) == 1  # nothing new is kept there

    def test_a_folder_of_another(self, text, cache, monkeypatch):
        if os.geteuid() == 0:  # whose files are trusted, and who may give them away
            os.chown(cache, 12345, -1)
        else:
            monkeypatch.setattr(store.os, "geteuid", lambda: 12345)
        with pytest.warns(UserWarning, match=r"others can write to it"):
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

    @pytest.mark.parametrize(("name", "bits"), [(".", 8), ("c" * 5000, None), ("\0", 8)])
    def test_a_place_that_cannot_be_a_folder(self, text, bits, name):
        with pytest.warns(UserWarning, match="cannot be created as a cache"):
            found = load_letor(text, cache=text / name, bits=bits)
        assert found == load_letor(text, bits=bits)

    def test_a_folder_that_cannot_be_written(self, text, tmp_path, monkeypatch):
        def read_only(path, *_, **__):
            raise OSError(30, "Read-only file system", str(path))

        (tmp_path / "cache").mkdir(mode=0o755)
        monkeypatch.setattr(Path, "mkdir", read_only)
        monkeypatch.setattr(store, "_create_cache", lambda _: None)
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


# -- codes in the cache --------------------------------------------------------------------------

BITS = (8, 16, "auto")


@pytest.fixture
def text(rng, tmp_path):
    """Text with a feature that has a long tail."""
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


def assert_is_compact(found, text, bits):
    """What is read is what `compact` makes of the text, and says the same of itself."""
    numbers = load_letor(text)
    expected = numbers.compact(bits)
    assert found == expected
    assert found.bits == expected.bits
    assert found.fingerprint == expected.fingerprint == numbers.fingerprint
    assert found.content_hash() == expected.content_hash()
    for asked in BITS:
        assert found.compact_report(asked) == expected.compact_report(asked)


def is_mapped(dataset):
    return isinstance(dataset.features.codes, np.memmap)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.slow
def test_first_and_second_read_are_those_of_compact(text, cache, reads, bits):
    assert_is_compact(load_letor(text, bits=bits), text, bits)
    for _ in range(2):
        found = load_letor(text, bits=bits, cache=cache)
        assert_is_compact(found, text, bits)
        assert is_mapped(found)
        assert not found.features.codes.flags.writeable
    assert len(reads) == 1
    (entry,) = cache.iterdir()
    assert sorted(path.name for path in entry.iterdir()) == [
        "codes.npy", "features.npy", "header.json", "labels.npy", "offsets.npy", "query_ids.npy",
    ]  # fmt: skip
    matrix = found.features
    assert (entry / "features.npy").stat().st_size == 128 + matrix.size * found.bits // 8


@pytest.mark.slow
def test_the_second_read_makes_no_numbers(text, cache, monkeypatch):
    load_letor(text, bits=8, cache=cache)

    def fail(*_, **__):
        raise AssertionError("the numbers of all features were asked for")

    monkeypatch.setattr(store, "write_folder", fail)
    monkeypatch.setattr("countersample.data.letor.read_letor", fail)
    monkeypatch.setattr("countersample.data.compact.CompactFeatures.__array__", fail)
    monkeypatch.setattr("countersample.data.compact.CompactFeatures.of", fail)
    found = load_letor(text, bits=8, cache=cache)
    assert found.fingerprint
    assert found.features.nbytes == found.features.size


def test_each_number_of_bits_has_its_entry(text, cache, reads):
    for _ in range(2):
        for bits in (None, *BITS, np.int64(8)):
            expected = load_letor(text) if bits is None else load_letor(text).compact(bits)
            assert load_letor(text, bits=bits, cache=cache) == expected
    assert len(reads) == len(list(cache.iterdir())) == 4


@pytest.mark.parametrize("damage", ["codes", "scale", "cut", "of floats"])
def test_a_damaged_entry_is_made_again(text, cache, reads, damage):
    load_letor(text, bits=8, cache=cache)
    (entry,) = cache.iterdir()
    if damage == "of floats":
        shutil.rmtree(entry)
        load_letor(text).save(entry)
        reads.pop()  # `save` writes a folder, too
    else:
        path = entry / ("codes.npy" if damage == "scale" else "features.npy")
        content = bytearray(path.read_bytes())
        content[150] ^= 1
        path.write_bytes(content[:-4] if damage == "cut" else content)
    assert_is_compact(load_letor(text, bits=8, cache=cache), text, 8)
    assert len(reads) == 2


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_a_full_disk_is_an_error_not_a_crash(text, cache, tmp_path, monkeypatch):
    compact = load_letor(text, bits=8)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(CounterSampleError, match="cannot be written: No space left on device"):
        compact.save(tmp_path / "codes")
    with pytest.warns(UserWarning, match="No space left on device: the text is read without a"):
        assert load_letor(text, bits=8, cache=cache) == compact
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
        found = load_letor(folder, bits=8, cache=cache)
        assert found == plain
        assert all(map(is_mapped, found.values()))
    assert len(reads) == 3  # that of the narrow one, and again with the width of the other
    assert load_train(folder, bits=8, cache=cache) == plain["train"]
    assert load(folder, bits=8) == plain


def test_folders_and_tables_of_bits(text, tmp_path):
    numbers = load_letor(text)
    numbers.save(tmp_path / "numbers")
    assert load(tmp_path / "numbers", bits=8) == {"numbers": numbers.compact(8)}
    numbers.compact(8).save(tmp_path / "codes")
    with pytest.raises(DataError, match="has 8 bits a feature already"):
        load(tmp_path / "codes", bits=8)


@pytest.mark.parametrize("bits", BITS)
def test_converted_text_is_that_of_compact(text, tmp_path, bits):
    found = convert(text, tmp_path / "folder", bits=bits)
    assert_is_compact(found, text, bits)
    assert is_mapped(found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "train.txt"]
    assert not (tmp_path / "folder" / "numbers.npy").exists()


@pytest.mark.slow
def test_codes_of_the_cache_on_the_command_line(text, cache, run, reads, tmp_path, monkeypatch):
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
            found = load_ranker("cached.json")
            assert_array_equal(found.weights_, expected.weights_)
            assert found.fingerprint_ == expected.fingerprint_
        assert len(reads) == n_reads
    run("simulate", text, "-o", "clicks.parquet", "--clicks", "100", "--cache", cache)
    run("rank", "plain.json", text, "-o", "ranks.parquet", "--cache", cache)
    printed = run("evaluate", "plain.json", text, "--cache", cache, "--json")
    assert printed == run("evaluate", "plain.json", text, "--json")
    assert len(reads) == 2
