"""Files are written whole or not at all, and what was killed on the way is cleared away."""

import os
import subprocess
import sys

import pytest

from countersample import _files
from countersample._files import atomic_path
from countersample.errors import CounterSampleError

needs_linux = pytest.mark.skipif(_files._place() is None, reason="no /proc: nothing is cleaned")

KILLED = """
import os, signal, sys
from countersample._files import atomic_path
with atomic_path(sys.argv[1]) as path:
    if sys.argv[2] == "folder":
        path.mkdir()
        path = path / "part"
    path.write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""
ALIVE = """
import sys
from countersample._files import atomic_path
with atomic_path(sys.argv[1]) as path:
    path.write_text("whole")
    print("begun", flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _as_a_new_process():
    """A folder is cleaned once in the life of a process: each test is one."""
    _files._clean_once.cache_clear()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, text="new"):
    with atomic_path(path) as temporary:
        temporary.write_text(text)


@needs_linux
@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("target", ["out", "another"])
def test_what_a_killed_process_left_is_removed(tmp_path, kind, target):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "out"), kind]
    assert subprocess.run(command, check=False).returncode == -9
    (left,) = names(tmp_path)
    assert left.startswith(".out.")
    write(tmp_path / target)
    assert names(tmp_path) == [target]


@needs_linux
def test_what_another_process_is_writing_is_left_alone(tmp_path):
    command = [sys.executable, "-c", ALIVE, str(tmp_path / "out")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as other:
        assert other.stdout.readline() == "begun\n"
        write(tmp_path / "out", "mine")
        assert len(names(tmp_path)) == 2
        other.communicate("\n")
    assert other.returncode == 0
    assert (tmp_path / "out").read_text() == "whole"


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@needs_linux
def test_names_of_others_are_left_alone(tmp_path, dead):
    other_place = f"{int(_files._place(), 16) ^ 1:08x}"
    here = _files._place()
    kept = [
        f".out.{dead}-{other_place}-00000000.tmp",  # another machine or container
        f".out.{dead}-00000000.tmp",  # of a release before
        f"out.{dead}-{here}-00000000.tmp",
        f".out.{dead}-{here}-00000000.tmp.txt",
        f".out.{os.getpid()}-{here}-00000000.tmp",
        f".out.1-{here}-00000000.tmp",
        ".out.tmp",
    ]
    for name in kept:
        (tmp_path / name).write_text("kept")
    (tmp_path / f".a\nb.{dead}-{here}-00000000.tmp").write_text("not kept")
    write(tmp_path / "out")
    assert names(tmp_path) == sorted([*kept, "out"])


@needs_linux
@pytest.mark.parametrize("has_target", [True, False])
def test_a_folder_that_stepped_aside_comes_back(tmp_path, dead, has_target):
    """A process killed between two renames leaves the old folder under another name."""
    aside = tmp_path / f".data.{dead}-{_files._place()}-00000000.old"
    aside.mkdir()
    (aside / "content").write_text("old")
    if has_target:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "content").write_text("newer")
    write(tmp_path / "another")
    assert names(tmp_path) == ["another", "data"]
    assert (tmp_path / "data" / "content").read_text() == ("newer" if has_target else "old")


@needs_linux
def test_links_are_removed_not_followed(tmp_path, dead):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis").write_text("years of work")
    (tmp_path / f".out.{dead}-{_files._place()}-00000000.tmp").symlink_to(tmp_path / "precious")
    write(tmp_path / "out")
    assert names(tmp_path) == ["out", "precious"]
    assert (tmp_path / "precious" / "thesis").exists()


def test_a_folder_is_looked_at_once(tmp_path, monkeypatch):
    looked = []
    original = type(tmp_path).iterdir
    monkeypatch.setattr(
        type(tmp_path), "iterdir", lambda path: looked.append(path) or original(path)
    )
    for name in "abc":
        write(tmp_path / name)
    assert looked == [tmp_path]


def test_without_what_tells_processes_apart_nothing_is_removed(tmp_path, dead, monkeypatch):
    monkeypatch.setattr(_files, "_place", lambda: None)
    (tmp_path / f".out.{dead}-00000000-00000000.tmp").write_text("kept")
    write(tmp_path / "out")
    assert len(names(tmp_path)) == 2


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CounterSampleError, match="cannot be written: No such file"):
        write(tmp_path / "none" / "out")


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis").write_text("years of work")
    with pytest.raises(CounterSampleError, match="out: cannot be written: Is a directory"):
        write(tmp_path / "out")
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "thesis").exists()


@pytest.mark.parametrize("times", [1, 2, 100])
def test_folders_written_by_several_at_once(tmp_path, monkeypatch, times):
    """As soon as a folder steps aside, that of another process is at its place."""
    target = tmp_path / "out"
    original = type(target).replace
    left = iter(range(times))

    def replace(path, to):
        found = original(path, to)
        if path == target and next(left, None) is not None:
            path.mkdir()
            (path / "content").write_text("of another")
        return found

    def put():
        with atomic_path(target) as temporary:
            temporary.mkdir()
            (temporary / "content").write_text("mine")

    put()
    monkeypatch.setattr(type(target), "replace", replace)
    if times == 100:
        with pytest.raises(CounterSampleError, match="cannot be written: Directory not empty"):
            put()
    else:
        put()
    is_mine = times != 100
    assert (target / "content").read_text() == ("mine" if is_mine else "of another")
    assert names(tmp_path) == ["out"] or not is_mine
