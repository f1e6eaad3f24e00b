"""Every thing that can be wrong with LETOR text has its sentence, with the place."""

import io

import pytest
from packing import PACKERS

from countersample import load_letor
from countersample.data import letor_reader
from countersample.data.labelled_files import convert, layout_of, load
from countersample.errors import DataError, ParameterError

GOOD = "2 qid:1 1:0.5 3:1\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1 qid:1 1:0.5 12;0.5", "2:15: expected index:value, found '12;0.5'"),
        ("1 qid:1 qid:2", "2:9: expected index:value, found 'qid:2'"),
        ("1 qid:1 1:", "2:11: expected a number after 1:, found the end of the line"),
        ("1 qid:1 1:abc # c", "2:11: expected a number after 1:, found 'abc'"),
        ("1 qid:1 7:1.2.3", "2:11: expected a number after 7:, found '1.2.3'"),
        ("1 qid:1 1:nan", "2:11: expected a finite number, found 'nan'"),
        ("1 qid:1 1:-Infinity", "2:11: expected a finite number, found '-Infinity'"),
        ("nan qid:1 1:1", "2:1: expected a finite number, found 'nan'"),
        ("1 qid:1 1:1e39", "2:11: '1e39' is beyond float32"),
        ("1 qid:1 3:1 2:1", "2:13: feature 2 after feature 3: expected rising feature numbers"),
        ("1 qid:1 3:1 3:2", "2:13: feature 3 is given twice"),
        ("1 qid:1 2000000:1", "2:9: feature number '2000000' is above 1,000,000"),
        ("1 1:0.5", "2:3: expected qid:ID after the label, found '1:0.5'"),
        ("1", "2:2: expected qid:ID after the label, found the end of the line"),
        ("1 qid: 1:0.5", "2:3: expected qid:ID after the label, found 'qid:'"),
        ("good qid:1 1:1", "2:1: expected a label (a number), found 'good'"),
        ("  ,1 qid:1 1:1", "2:3: expected a label (a number), found ',1'"),
        ("1 qid:é 1:1 x", "2:13: expected index:value, found 'x'"),
        ("1 qid:1 1:0.5\rx", "2:14: expected index:value, found "),
    ],
)
def test_the_place_and_what_was_expected(tmp_path, line, expected):
    path = tmp_path / "train.txt"
    path.write_bytes((GOOD + line + "\n" + GOOD).encode())
    with pytest.raises(DataError) as caught:
        load_letor(path)
    assert str(caught.value).startswith(f"{path}:{expected}")
    assert "\n" not in str(caught.value)


def test_the_first_error_of_all_blocks_is_reported_with_its_line(monkeypatch):
    monkeypatch.setattr(letor_reader, "BLOCK", 64)
    text = b"1 qid:1 1:1\n# c\n\n" * 100 + b"1 qid:1 1;1\n" + GOOD.encode() * 50 + b"1 qid:1 1:y\n"
    with pytest.raises(DataError, match=r"<file>:301:9: expected index:value, found '1;1'"):
        load_letor(io.BytesIO(text), threads=4)


NO_ROWS = "no rows, expected lines 'label qid:ID"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", NO_ROWS),
        (b"\n\n", NO_ROWS),
        (b"# only a comment\n", NO_ROWS),
        (b"\xef\xbb\xbf", NO_ROWS),
        (bytes(range(256)) * 10, "1: a zero byte: this is a binary file"),
        (b"1 qid:\xff\xfe 1:1\n", "is not UTF-8"),
        (b"PK\x03\x04" + bytes(100), "an archive of several files, expected one: unpack it"),
    ],
    ids=["empty", "blank", "comment", "mark", "binary", "id", "zip"],
)
def test_files_without_letor_text(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_letor(path)


@pytest.mark.parametrize("compress", PACKERS)
def test_damaged_archives(tmp_path, compress):
    content = compress("".join(f"1 qid:{k} 1:{k / 7}\n" for k in range(20_000)).encode())
    middle = len(content) // 2
    path = tmp_path / "train.txt.z"
    for cut in (content[:-9], content[:middle]):
        path.write_bytes(cut)
        with pytest.raises(DataError, match="the compressed file ends too soon: it was cut off"):
            load_letor(path)
    path.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])
    with pytest.raises(DataError, match=r"damaged|ends too soon|expected"):
        load_letor(path)


def test_sources_that_cannot_be_read(tmp_path):
    for source, message in (
        (tmp_path / "none.txt", r"none\.txt: no such file"),
        (3, "cannot read from a int: expected a path or a file"),
        (["."], r"\.: cannot be read: Is a directory"),
    ):
        with pytest.raises(DataError, match=message):
            load_letor(source)


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "loop"])
def test_names_that_the_system_does_not_take(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    for read in (load_letor, load, layout_of, lambda path: convert(path, tmp_path / "out")):
        with pytest.raises(DataError, match="cannot be used as a path: "):
            read(f"{tmp_path}/{name}")
    with pytest.raises(DataError, match="cannot be used as a path: "):
        convert(__file__, f"{tmp_path}/{name}")


@pytest.mark.parametrize("value", [-1, 0, 2.5, "3", True])
def test_options_that_are_not_whole_numbers(value):
    for option in ("n_features", "threads"):
        with pytest.raises(ParameterError, match=rf"{option} is .*, expected a whole number"):
            load_letor(io.BytesIO(b"1 qid:1 1:1\n"), **{option: value})


def test_a_long_id_among_many():
    """All ids take the room of the longest: 2 MB of text would need 24 GB."""
    text = b"1 qid:%s 1:1\n" % (b"a" * 2_000_000)
    text += b"".join(b"1 qid:b%d 1:1\n" % k for k in range(3000))
    with pytest.raises(DataError, match=r"query id 'a+…' has 2,000,000 bytes, expected at most"):
        load_letor(io.BytesIO(text))
    assert load_letor(io.BytesIO(b"1 qid:%s 1:1\n" % (b"a" * 1000))).n_queries == 1
