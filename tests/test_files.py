"""Files are written whole or not at all, and never over an input, a device or a pipe."""

import contextlib
import io
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from countersample import _cleanup
from countersample._files import (
    atomic_path,
    check_outputs,
    read_npy_header,
    temporary_folder,
)
from countersample.errors import CounterSampleError, DataError, ParameterError


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


def test_a_folder_replaces_a_folder(tmp_path):
    for text in ("old", "new"):
        with atomic_path(tmp_path / "out") as temporary:
            temporary.mkdir()
            (temporary / "content").write_text(text)
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "content").read_text() == "new"


def test_an_old_folder_comes_back_if_the_new_one_cannot_be_renamed(tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.mkdir()
    original = type(target).replace

    def replace(path, to):
        if path.suffix == ".tmp":
            raise OSError(5, "Input/output error")
        return original(path, to)

    monkeypatch.setattr(type(target), "replace", replace)
    failure = pytest.raises(CounterSampleError, match="cannot be written: Input/output error")
    with failure, atomic_path(target) as temporary:
        temporary.mkdir()
    assert names(tmp_path) == ["out"]


def test_an_old_folder_that_cannot_come_back_is_not_removed(tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.mkdir()
    (target / "content").write_text("old")
    original = type(target).replace

    def replace(path, to):
        if path != target:
            raise OSError(5, "Input/output error")
        return original(path, to)

    monkeypatch.setattr(type(target), "replace", replace)
    with pytest.raises(CounterSampleError), atomic_path(target) as temporary:
        temporary.mkdir()
    (left,) = tmp_path.iterdir()
    assert (left / "content").read_text() == "old"


def test_a_folder_that_an_interrupt_abandons_is_as_it_was(tmp_path, monkeypatch):
    """Between the two renames that put a new folder in the place of an old one."""
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").touch()
    original = type(target).replace

    def stop(path, to):
        if path.suffix == ".tmp":
            monkeypatch.undo()
            _cleanup.put_in_order()
            raise InterruptedError
        return original(path, to)

    with contextlib.suppress(Exception), atomic_path(target) as temporary:
        temporary.mkdir()
        monkeypatch.setattr(type(target), "replace", stop)
    assert (names(tmp_path), names(target)) == (["out"], ["old"])


def test_a_temporary_folder_is_private_and_removed(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder() as folder:
        (folder / "file").touch()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not names(tmp_path)
    with temporary_folder() as folder:
        (folder / "file").touch()
        _cleanup.put_in_order()
        assert not names(tmp_path)


# -- headers of arrays ---------------------------------------------------------------------------


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    file.seek(0)
    return file


ARRAYS = [
    (np.zeros((3, 2), np.float32), "C"),
    (np.zeros((3, 2), order="F"), "F"),
    (np.zeros((0, 4), np.int64), "C"),
    (np.zeros(3, ">i2"), "C"),
]


@pytest.mark.parametrize(("array", "order"), ARRAYS)
def test_the_header_of_an_array(array, order):
    file = npy(array)
    header = read_npy_header(file)
    assert (np.dtype(header.dtype), header.shape, header.order) == (array.dtype, array.shape, order)
    assert len(file.read()) == array.nbytes


@pytest.mark.parametrize("content", [b"", b"text", npy(np.zeros(3, "i4,f8")).read()])
def test_no_header_of_an_array(content):
    with pytest.raises(DataError, match="array"):
        read_npy_header(io.BytesIO(content))


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")


@needs_pipes
def test_a_pipe_is_written_into_and_stays_one(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write(pipe)
    reader.join()
    assert received == ["new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe"]


@needs_pipes
def test_a_device_stays_one_also_behind_a_link(tmp_path):
    (tmp_path / "link").symlink_to(os.devnull)
    for path in (Path(os.devnull), tmp_path / "link"):
        write(path)
        assert stat.S_ISCHR(path.stat().st_mode)
    assert (tmp_path / "link").is_symlink()


def test_a_folder_is_not_written_into_a_device():
    failure = pytest.raises(CounterSampleError, match="a device or a pipe, expected the name of")
    with failure, atomic_path(os.devnull) as temporary:
        temporary.mkdir()


@pytest.fixture
def logs(tmp_path):
    """Write a folder with a file in a folder, which has two more names."""
    file = tmp_path / "logs" / "day=1" / "a.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("rows")
    (tmp_path / "hard").hardlink_to(file)
    (tmp_path / "soft").symlink_to(file)
    return tmp_path / "logs"


@pytest.mark.parametrize("source", ["logs", "logs/day=1/a.parquet", "logs/*/*.parquet", "lo*"])
@pytest.mark.parametrize("output", ["logs/day=1/a.parquet", "logs/../hard", "soft"])
def test_an_output_is_no_part_of_an_input(source, output, logs, monkeypatch):
    monkeypatch.chdir(logs.parent)
    with pytest.raises(ParameterError, match="is an input of this command"):
        check_outputs([Path(output)], ["logged", source])


@pytest.mark.parametrize("output", ["logs/new.parquet", "logs/page.html", "other.parquet", "new"])
def test_other_outputs_are_accepted(output, logs, monkeypatch):
    """Also a page or a figure of before beside the files of the log, which are no data."""
    monkeypatch.chdir(logs.parent)
    (logs / "page.html").touch()
    (logs.parent / "other.parquet").touch()
    check_outputs([Path(output), Path(os.devnull)], ["logs", "nothing*", os.devnull, "a\0b"])


def test_a_folder_does_not_replace_itself(logs):
    with pytest.raises(ParameterError, match="is an input of this command"):
        check_outputs([logs], [logs.parent / "logs" / "."])
