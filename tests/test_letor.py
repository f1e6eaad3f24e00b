"""`load_letor` and `save_letor`: what is read, in every form it is found in."""

import gzip
import io
import lzma

import numpy as np
import pytest
import twins_letor
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import PACKERS
from sklearn import datasets

from countersample import RankingDataset, load_letor, save_letor
from countersample.data import letor_reader
from countersample.data.sources import COMPRESSED_SUFFIXES
from countersample.errors import DataError

SMALL = b"2 qid:1 1:0.5 3:1 # doc 7\n0 qid:1 2:0.25\n1 qid:2 1:-1e-2\n"


def load(text, **options):
    return load_letor(io.BytesIO(text), **options)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.txt"
    path.write_bytes(SMALL)
    return path


def assert_is_small(data):
    np.testing.assert_array_equal(
        data.features, np.array([[0.5, 0, 1], [0, 0.25, 0], [-0.01, 0, 0]], np.float32)
    )
    np.testing.assert_array_equal(data.labels, [2, 0, 1])
    np.testing.assert_array_equal(data.offsets, [0, 2, 3])
    np.testing.assert_array_equal(data.query_ids, [1, 2])


def assert_equals_twin(data, expected):
    features, labels, offsets, ids = expected
    np.testing.assert_array_equal(data.features, features)
    np.testing.assert_array_equal(data.labels, labels)
    np.testing.assert_array_equal(data.offsets, offsets)
    assert [str(each) for each in data.query_ids.tolist()] == ids


class TestText:
    def test_plain(self, small):
        data = load_letor(small)
        assert_is_small(data)
        assert data.features.dtype == np.float32
        assert data.features.flags.c_contiguous
        assert data.query_ids.dtype == np.int64

    @pytest.mark.parametrize(
        "text",
        [
            SMALL.replace(b"\n", b"\r\n"),
            SMALL.rstrip(b"\n"),
            SMALL.rstrip(b"\n").replace(b"\n", b"\r\n") + b"\r",
            b"\xef\xbb\xbf" + SMALL,
            b"# a comment\n\n  \t\n" + SMALL.replace(b"\n", b"\n\n# more\n"),
            SMALL.replace(b" ", b" \t "),
            SMALL.replace(b"\n", b" \t\n"),
            SMALL.replace(b" # doc 7", b"#doc"),
        ],
        ids=[
            "crlf", "no-newline", "crlf-no-lf", "bom", "blank-lines", "tabs", "trailing-space",
            "tight-comment",
        ],
    )  # fmt: skip
    def test_forms_in_the_wild(self, text):
        if text.endswith(b"\r"):  # a carriage return alone at the end of the file
            text += b"\n"
        assert_is_small(load(text))

    @pytest.mark.parametrize("ids", [["café", "b-2"], ["007", "7"], ["9" * 20, "1"]])
    def test_ids_that_are_not_plain_integers_stay_text(self, ids):
        text = "".join(f"1 qid:{each} 1:1\n" for each in ids)
        assert load(text.encode()).query_ids.tolist() == ids

    def test_zero_based_can_be_said(self):
        assert load(b"1 qid:1 1:1\n", zero_based=True).features.tolist() == [[0, 1]]
        with pytest.raises(DataError, match="a feature with number 0, expected numbers from 1"):
            load(b"1 qid:1 0:1\n", zero_based=False)

    def test_n_features(self):
        assert load(b"1 qid:1 1:1\n", n_features=3).features.tolist() == [[1, 0, 0]]
        assert load(b"1 qid:1 2:1\n0 qid:1 0:2\n", n_features=3).features.tolist() == [
            [0, 0, 1],
            [2, 0, 0],
        ]
        with pytest.raises(DataError, match="number 4, expected at most 3 features counted from 1"):
            load(b"1 qid:1 4:1\n", n_features=3)

    @pytest.mark.parametrize(
        "number",
        [
            "0", "-0", "+1.5", "1.", ".5", "1e3", "1E-3", "2.5e+2", "1e-46", "1e-45", "1.5e-45",
            "3.4028235e38", "3.4028235677973e38", "1e-400", "0e999999999999", "0.1", "16777217",
            "16777217.0000000000000001", "16777216.9999999999999999999", "12345678901234567890123",
            "0.000000000000000000000000000123456789", "123456789012345678", "9007199254740993",
            "0.30000001192092895507812500001", "0.3000000119209289550781249999", "1e22", "1e23",
            "5.877471754111438e-39", "000000000000000000000000.5", "1" + "0" * 38,
        ],
    )  # fmt: skip
    def test_numbers_are_exact(self, number):
        data = load(f"{number} qid:1 1:{number}\n".encode())
        expected = np.float32(float(number))
        assert data.features[0, 0] == expected
        assert data.labels[0] == expected

    @pytest.mark.parametrize("number", ["1.1322211623191833", "1.0219081044197083"])
    def test_half_way_between_two_numbers(self, number):
        # The digits are beyond 2^53: divided in float64 they are on the other side of the middle.
        (value,) = load(f"0 qid:1 1:{number}\n".encode()).features[0]
        assert value == np.float32(float(number))

    @pytest.mark.parametrize("beside", ["7", "16777217.0000000000000001"])
    def test_zero_has_no_sign(self, beside):
        # the second is too close to call, so that its row is read again, by Python
        data = load(f"-0 qid:1 1:-0 2:-0.0 3:-1e-60 4:{beside}\n".encode())
        assert not np.signbit(data.features).any()
        assert not np.signbit(data.labels).any()

    @pytest.mark.parametrize("places", range(1, 10))
    def test_what_follows_the_decimals(self, places):
        number = b"0." + b"123456789"[:places]
        for end in (b" ", b"\t", b"\n", b"\r\n", b"#", b" 2:99999999"):
            row = load(b"0 qid:1 1:" + number + end + b"\n").features[0]
            assert row[0] == np.float32(float(number))
        # beside the digits in the table of characters, and those with a high bit
        for byte in (b"/", b":", b".", b"-", b"\x01", b"\x80", b"\xb0", b"\xb9", b"\xff"):
            with pytest.raises(DataError, match=r"<file>:1:11: expected a number"):
                load(b"0 qid:1 1:" + number + byte + b"5 2:1\n")

    def test_zeros_at_the_front_of_a_feature_number(self):
        data = load(b"0 qid:1 0000001:1 00000000000000000000000000002:2\n")
        assert data.features.tolist() == [[1, 2]]
        for number in (b"1000001", b"00001000001", b"18446744073709551617", b"9" * 30):
            with pytest.raises(DataError, match=r":1:9: feature number"):
                load(b"0 qid:1 " + number + b":1\n")

    def test_beyond_float32(self):
        with pytest.raises(DataError, match=r":1:11: '1.7e308' is beyond float32"):
            load(b"0 qid:1 1:1.7e308\n")
        largest = np.finfo(np.float32).max
        data = load(b"0 qid:1 1:1.7e308 2:-1e39 3:1e999\n", clip=True)
        assert data.features.tolist() == [[largest, -largest, largest]]

    def test_just_beyond_float32_in_many_digits(self):
        # Half-way between the largest float32 and 2^128: rounds to infinity.
        halfway = str((2**25 - 1) * 2**103) + ".0000"
        with pytest.raises(DataError, match="beyond float32"):
            load(f"0 qid:1 1:{halfway}\n".encode())
        clipped = load(f"0 qid:1 1:{halfway}\n".encode(), clip=True)
        assert clipped.features[0, 0] == np.finfo(np.float32).max
        below = str((2**25 - 1) * 2**103 - 2**76) + ".9999"
        assert load(f"0 qid:1 1:{below}\n".encode()).features[0, 0] == np.float32(float(below))


class TestSources:
    @pytest.mark.parametrize("compress", PACKERS)
    def test_compression_by_content(self, tmp_path, compress):
        path = tmp_path / "plain-name.txt"
        path.write_bytes(compress(SMALL))
        assert_is_small(load_letor(path))
        assert_is_small(load(compress(SMALL)))
        # several members one after the other, as `cat a.gz b.gz` makes
        first, rest = SMALL[:26], SMALL[26:]
        assert_is_small(load(compress(first) + compress(rest)))

    def test_text_and_byte_streams_and_lists(self, small, tmp_path):
        assert_is_small(load_letor(io.StringIO(SMALL.decode())))
        with small.open("rb") as file:
            assert_is_small(load_letor(file))
            assert not file.closed
        paths = [tmp_path / f"{number}.txt" for number in range(3)]
        for path, line in zip(paths, SMALL.splitlines(keepends=True), strict=True):
            path.write_bytes(line)
        assert_is_small(load_letor(paths))

    def test_folder(self, tmp_path):
        (tmp_path / "train.txt").write_bytes(SMALL)
        (tmp_path / "vali.txt.gz").write_bytes(gzip.compress(b"1 qid:8 2:1\n"))
        (tmp_path / "test.txt").write_bytes(b"1 qid:9 5:1\n")
        (tmp_path / "notes.md").write_text("not data")
        splits = load_letor(tmp_path)
        assert list(splits) == ["train", "vali", "test"]
        assert {data.n_features for data in splits.values()} == {5}
        assert splits["vali"].features.tolist() == [[0, 1, 0, 0, 0]]

    def test_folder_with_feature_zero_in_one_file(self, tmp_path):
        (tmp_path / "set1.train.txt").write_bytes(b"1 qid:1 0:7 1:1\n")
        (tmp_path / "set1.test.txt").write_bytes(b"1 qid:2 1:2\n")
        splits = load_letor(tmp_path)
        assert splits["train"].features.tolist() == [[7, 1]]
        assert splits["test"].features.tolist() == [[0, 2]]


class TestBlocks:
    """The text is cut into blocks and pieces; where must not matter."""

    @pytest.fixture
    def text(self, rng):
        lines = []
        for row in range(400):
            columns = np.sort(rng.choice(40, rng.integers(0, 9), replace=False)) + 1
            values = " ".join(f"{c}:{rng.normal():.{rng.integers(1, 20)}g}" for c in columns)
            lines.append(f"{rng.integers(5)} qid:{row // 3 % 50} {values}")
            if rng.random() < 0.1:
                lines.append(["", "# comment", "   "][rng.integers(3)])
        return "\n".join(lines).encode()

    @pytest.mark.parametrize(
        ("block", "threads", "make"),  # each pair of a block with threads, and each source
        [
            (300, 1, "object"), (300, 5, "path"), (1000, 2, "gz"), (4096, 5, "path"),
            (1 << 20, 2, "object"),
        ],
    )  # fmt: skip
    def test_cuts_do_not_matter(self, text, block, threads, make, tmp_path, monkeypatch):
        monkeypatch.setattr(letor_reader, "BLOCK", block)
        path = tmp_path / "data.txt"
        path.write_bytes(gzip.compress(text) if make == "gz" else text)
        source = io.BytesIO(text) if make == "object" else path
        data = load_letor(source, threads=threads)
        assert_equals_twin(data, twins_letor.read(text))

    def test_endless_line_is_refused(self, monkeypatch):
        monkeypatch.setattr(letor_reader, "BLOCK", 16)
        monkeypatch.setattr(letor_reader, "LONGEST_LINE", 1 << 20)
        with pytest.raises(DataError, match="a line of more than 1 MB"):
            load(b"1" * (4 << 20))


numbers = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,25}(e[+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["nan", "inf", "", "1..2", "0x1", "1_0", "1e", "--1", "٣"]),
)
tokens = st.one_of(
    st.tuples(st.integers(0, 30).map(str), st.just(":"), numbers).map("".join),
    st.sampled_from(["qid:1", "1:", ":1", "#", "# c", "1:2#c", "\r", "7", "1000001:1", "\x00"]),
)
lines = st.one_of(
    st.tuples(
        st.one_of(st.integers(0, 4).map(str), numbers),
        st.sampled_from(["qid:1", "qid:2", "qid:a", "qid:", "qid:007", "qid:é", ""]),
        st.lists(st.integers(0, 12), max_size=6, unique=True).map(sorted),
        st.lists(numbers, min_size=6, max_size=6),
    ).map(
        lambda row: " ".join(
            [row[0], row[1], *(f"{i}:{v}" for i, v in zip(row[2], row[3], strict=False))]
        )
    ),
    st.lists(tokens, max_size=5).map(" ".join),
)


class TestAgainstTheTwin:
    @pytest.mark.slow
    @given(
        st.lists(lines, max_size=8),
        st.sampled_from(["\n", "\r\n"]),
        st.sampled_from([b"", b"\xef\xbb\xbf"]),
        st.booleans(),
        st.integers(1, 3),
        st.sampled_from([16, 64, 1 << 20]),
    )
    @settings(max_examples=250)
    def test_same_matrix_or_both_refuse(self, rows, ending, mark, closed, threads, block):
        data = mark + (ending.join(rows) + (ending if closed else "")).encode()
        check_against_twin(data, threads, block)

    @pytest.mark.slow
    @given(st.binary(max_size=60), st.integers(1, 2))
    @settings(max_examples=300)
    def test_any_bytes(self, data, threads):
        check_against_twin(b"1 qid:1 1:1\n" + data, threads, 1 << 20)


def check_against_twin(data, threads, block):
    original, letor_reader.BLOCK = letor_reader.BLOCK, block
    try:
        expected = twins_letor.read(data)
    except twins_letor.Refused as refused:
        place = f"<file>:{refused.line}:" if refused.line else "no rows"
        with pytest.raises(DataError, match=place):
            load(data, threads=threads)
    else:
        try:
            result = load(data, threads=threads)
        except DataError as error:
            assert "is not UTF-8" in str(error)  # noqa: PT017 (an id the twin lets pass)
            return
        assert_equals_twin(result, expected)
    finally:
        letor_reader.BLOCK = original


def test_a_million_columns(tmp_path):
    path = tmp_path / "wide.txt"
    path.write_bytes(b"1 qid:1 1:2 1000000:3\n0 qid:1 500000:1e-3\n2 qid:2\n")
    data = load_letor(path)
    assert data.features.shape == (3, 1_000_000)
    assert np.argwhere(data.features).tolist() == [[0, 0], [0, 999_999], [1, 499_999]]
    save_letor(data, tmp_path / "again.txt")
    assert load_letor(tmp_path / "again.txt") == data


class TestSave:
    @pytest.mark.parametrize("suffix", ["", *COMPRESSED_SUFFIXES])
    def test_compressed_by_the_suffix(self, tmp_path, suffix):
        path = tmp_path / f"x.txt{suffix}"
        data = load(SMALL)
        save_letor(data, path)
        assert load_letor(path).fingerprint == data.fingerprint
        assert path.read_bytes().startswith(b"2 qid:1 ") == (not suffix)

    def test_every_kind_of_float32(self, tmp_path, rng, monkeypatch):
        monkeypatch.setattr("countersample.data.letor._NUMBERS_AT_ONCE", 100_000)  # two blocks
        bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
        values = bits[np.isfinite(bits)]
        values = values[: len(values) // 8 * 8].reshape(-1, 8)
        qid = np.arange(len(values)) // 10
        data = RankingDataset.from_arrays(X=values, y=values[:, 0], qid=qid)
        save_letor(data, tmp_path / "bits.txt")
        assert load_letor(tmp_path / "bits.txt") == data

    def test_zero_columns_at_the_end_are_kept(self, tmp_path):
        data = RankingDataset.from_arrays(X=[[1, 0, 0], [0, 0, 0]], y=[0, 1], qid=[1, 1])
        save_letor(data, tmp_path / "x.txt")
        assert (tmp_path / "x.txt").read_text() == "0 qid:1 1:1 3:0\n1 qid:1\n"
        assert load_letor(tmp_path / "x.txt") == data

    @pytest.mark.parametrize("query", ["a b", "a#b", "", "a\tb", "a\x01", "\x1f", "a\udc80"])
    def test_ids_that_cannot_be_written(self, tmp_path, query):
        data = RankingDataset.from_arrays(X=[[1]], y=[0], qid=[query])
        with pytest.raises(DataError, match="cannot be written as LETOR text"):
            save_letor(data, tmp_path / "x.txt")
        assert list(tmp_path.iterdir()) == []


def test_mq2008_has_its_published_figures(shared):
    data = load_letor(sorted((shared / "mq2008").glob("S*.txt.xz")))
    assert (data.n_items, data.n_queries, data.n_features) == (15_211, 784, 46)
    assert data.query_sizes.max() == 121
    assert np.bincount(data.labels.astype(int)).tolist() == [12_279, 2_001, 931]


def test_agrees_with_scikit_learn(shared):
    part = shared / "mq2008" / "S1.txt.xz"
    features, labels, qid = datasets.load_svmlight_file(
        io.BytesIO(lzma.decompress(part.read_bytes())), query_id=True, dtype=np.float32
    )
    data = load_letor(part)
    np.testing.assert_array_equal(data.features, features.toarray())
    np.testing.assert_array_equal(data.labels, labels)
    np.testing.assert_array_equal(np.repeat(data.query_ids, data.query_sizes), qid)
