"""Files are written whole or not at all."""

import pytest

from countersample._files import atomic_path
from countersample.errors import CounterSampleError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, text="new"):
    with atomic_path(path) as temporary:
        temporary.write_text(text)


def test_a_failure_leaves_the_old_file(tmp_path):
    write(tmp_path / "out", "old")
    with pytest.raises(AttributeError), atomic_path(tmp_path / "out") as temporary:
        temporary.write_text("half").fail()
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "old"


def test_a_missing_folder(tmp_path):
    with pytest.raises(CounterSampleError, match="cannot be written: No such file"):
        write(tmp_path / "none" / "out")


def test_a_file_does_not_replace_a_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis").write_text("years of work")
    with pytest.raises(CounterSampleError, match="out: cannot be written: Is a directory"):
        write(tmp_path / "out")
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "thesis").exists()


@pytest.mark.parametrize("times", [1, 2, 100])
def test_folders_written_by_several_at_once(tmp_path, monkeypatch, times):
    """As soon as a folder is moved aside, that of another process is in its place."""
    target = tmp_path / "out"
    original = type(target).replace
    races = iter(range(times))

    def replace(path, to):
        result = original(path, to)
        if path == target and next(races, None) is not None:
            path.mkdir()
            (path / "content").write_text("of another")
        return result

    def put():
        with atomic_path(target) as temporary:
            temporary.mkdir()
            (temporary / "content").write_text("mine")

    put()
    monkeypatch.setattr(type(target), "replace", replace)
    if times == 100:
        with pytest.raises(CounterSampleError, match="cannot be written: Directory not empty"):
            put()
        assert (target / "content").read_text() == "of another"
    else:
        put()
        assert (target / "content").read_text() == "mine"
        assert names(tmp_path) == ["out"]
