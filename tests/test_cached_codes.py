"""Codes in the cache of `load_letor`: those of `compact`, mapped, and never stale."""

import os
import shutil

import numpy as np
import pytest
from conftest import SEED
from numpy.testing import assert_array_equal

from countersample import RankingDataset, load_letor, load_ranker, save_letor, simulate_clicks
from countersample.data import cache as cache_module
from countersample.data.load import convert, load, load_train
from countersample.data.normalize import Normalizer
from countersample.errors import CounterSampleError, DataError, ParameterError

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


def test_the_second_read_makes_no_numbers(text, cache, monkeypatch):
    load_letor(text, bits=8, cache=cache)

    def fail(*_, **__):
        raise AssertionError("the numbers of all features were asked for")

    monkeypatch.setattr(cache_module, "write_folder", fail)
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


@pytest.mark.parametrize("bits", [4, 32, True, "8"])
def test_bits_that_there_are_not(text, tmp_path, cache, bits):
    load_letor(text, bits=8, cache=cache)
    for refused in (
        lambda: load_letor(text, bits=bits, cache=cache),
        lambda: load_letor("not there", bits=bits),
        lambda: convert(text, tmp_path / "folder", bits=bits),
    ):
        with pytest.raises(ParameterError, match=r"bits is .*, expected 8, 16 or 'auto'"):
            refused()
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("change", ["longer", "same size"])
def test_a_changed_source_is_read_again(text, cache, reads, bits, change):
    before = load_letor(text, bits=bits, cache=cache)
    if change == "longer":
        text.write_text(text.read_text() + "1 qid:999 1:1000\n")
    else:
        text.write_text(text.read_text().replace("1 qid:", "2 qid:"))
    os.utime(text, ns=(0, 10**18))
    after = load_letor(text, bits=bits, cache=cache)
    assert_is_compact(after, text, bits)
    assert after != before
    assert len(reads) == 2
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("damage", ["codes", "scale", "cut", "header", "empty", "of floats"])
def test_a_damaged_entry_is_made_again(text, cache, reads, damage):
    load_letor(text, bits=8, cache=cache)
    (entry,) = cache.iterdir()
    if damage == "header":
        (entry / "header.json").write_text("{")
    elif damage in {"empty", "of floats"}:
        shutil.rmtree(entry)
        entry.mkdir()
        if damage == "of floats":
            entry.rmdir()
            load_letor(text).save(entry)
    else:
        path = entry / ("codes.npy" if damage == "scale" else "features.npy")
        content = bytearray(path.read_bytes())
        content[150] ^= 1
        path.write_bytes(content[:-4] if damage == "cut" else content)
    assert_is_compact(load_letor(text, bits=8, cache=cache), text, 8)
    assert len(reads) == 2


def test_an_error_in_the_text_leaves_no_entry(tmp_path, cache):
    path = tmp_path / "bad.txt"
    path.write_text("1 qid:1 1:1\n1 qid:1 1;1\n")
    with pytest.raises(DataError, match=r"bad\.txt:2:9: expected index:value"):
        load_letor(path, bits=8, cache=cache)
    assert list(cache.iterdir()) == []


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


def test_text_without_features(tmp_path, cache):
    path = tmp_path / "train.txt"
    path.write_text("1 qid:1\n0 qid:1\n")
    plain = load_letor(path, bits=8)
    assert plain.n_features == 0
    for _ in range(2):
        assert load_letor(path, bits=8, cache=cache) == plain


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


@pytest.mark.parametrize("how", ["minmax", "standard", "query-minmax"])
def test_normalised_codes_of_the_cache(text, cache, how):
    found, expected = load_letor(text, bits=8, cache=cache), load_letor(text).compact(8)
    normalizer = Normalizer.fit(found, how)
    assert normalizer == Normalizer.fit(expected, how)
    assert normalizer(found) == normalizer(expected)


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


def test_on_the_command_line(text, cache, run, reads, tmp_path, monkeypatch):
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
