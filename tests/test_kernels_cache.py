"""The cache of compiled kernels: never stale, private, repaired if damaged, and not needed."""

import ast
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numba import config

import countersample
from countersample._kernels import cache, sampling
from countersample._kernels.compiling import kernel

PACKAGE = Path(countersample.__file__).parent
NOBODY = 65534
WARNING = "compiled code cannot be stored, so each run compiles again: .*: "
DRAW = """
import numpy as np
from countersample._kernels.sampling import draw
indices = np.zeros(3, np.int64)
draw(np.array([0.5, 1.0]), np.array([1, 1]), indices, np.array([0.1, 0.3, 0.8]))
print(indices)
"""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """The folder that holds the folders of all releases."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setattr(cache, "_warnings", [])
    cache.open_folder.cache_clear()
    yield tmp_path / "numba" / "countersample" / "kernels"
    cache.open_folder.cache_clear()


def is_loaded():
    """Decorate a kernel as a new process does and call it; return whether it was not compiled."""
    cache.open_folder.cache_clear()
    draw, indices = kernel()(sampling.draw.py_func), np.zeros(3, np.int64)
    draw(np.array([0.5, 1.0]), np.array([1, 1]), indices, np.array([0.1, 0.3, 0.8]))
    assert indices.tolist() == [0, 0, 1]
    return sum(draw.stats.cache_hits.values()) == 1


def run(code, **variables):
    """Run code in another process, with environment variables set, or removed if None."""
    environment = {"PYTHONPATH": str(PACKAGE.parent)} | os.environ | variables
    return subprocess.run(
        [sys.executable, "-c", code],
        env={name: str(value) for name, value in environment.items() if value is not None},
        cwd=variables.get("PWD"), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def assert_one_warning(process, reason):
    assert process.stdout == "[0 0 1]\n", process.stderr
    assert process.stderr.count("compiled code cannot be stored") == 1
    assert reason in process.stderr
    assert "Traceback" not in process.stderr


# --- never stale ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_upgrade_runs_its_own_kernels(tmp_path):
    """The edit is in another file than the kernel, in which numba alone would not notice it."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site / "countersample", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import numpy as np; from countersample._kernels.objectives import weightings\n"
        "values = np.zeros(1); weightings(0, np.array([8.0]), values, np.zeros(1)); print(values)"
    )
    home = {"PYTHONPATH": site, "HOME": tmp_path, "NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": None}
    before = run(code, **home)
    path = site / "countersample" / "_kernels" / "codes.py"
    text = path.read_text("utf-8").replace("RANK, LOG_RANK, DCG", "LOG_RANK, RANK, DCG")
    path.write_text(text, "utf-8")
    after = run(code, **home)
    assert (before.stdout, before.stderr) == ("[8.]\n", "")
    assert (after.stdout, after.stderr) == ("[2.07944154]\n", "")  # ln 8
    assert len(list((tmp_path / ".cache" / "countersample" / "kernels").iterdir())) == 2
    assert list(site.rglob("*.nb?")) == []  # pip would leave them behind


def test_an_edit_of_any_file_changes_the_hash(tmp_path, monkeypatch):
    copied = tmp_path / "_kernels"
    shutil.copytree(PACKAGE / "_kernels", copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "__file__", str(copied / "cache.py"))
    for path in sorted(copied.glob("*.py")):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b" ")
        assert cache.hash_files() != cache.FILES_HASH, path.name
        path.write_bytes(content)
        assert cache.hash_files() == cache.FILES_HASH
    monkeypatch.setattr(cache, "__version__", "0.0.0")
    assert cache.hash_files() != cache.FILES_HASH


def test_kernels_call_nothing_outside_their_package():
    """Otherwise the hash of the package would miss code that is compiled into them."""
    others = ("_arrays", "_environment", "_cleanup", "_version")  # types, and plain Python
    allowed = {f"countersample.{name}" for name in others}
    for path in (PACKAGE / "_kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("countersample"):
                assert node.module.startswith("countersample._kernels") or node.module in allowed


@pytest.mark.parametrize(("name", "value"), [("BOUNDSCHECK", 1), ("CPU_NAME", "generic")])
def test_settings_and_cpus_are_separate(name, value, monkeypatch):
    assert not is_loaded()
    assert is_loaded()
    with monkeypatch.context() as other:
        other.setattr(config, name, value)
        assert not is_loaded()
    assert is_loaded()
    monkeypatch.setattr(cache, "hash_files", lambda: "other")  # an upgrade since the start
    assert not is_loaded()


def test_the_cache_of_other_packages_stays_where_it_was(monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", "theirs")
    kernel()(sampling.draw.py_func)
    assert config.CACHE_DIR == "theirs"


# --- private -------------------------------------------------------------------------------------


def test_the_folders_are_private(root):
    is_loaded()
    for folder in (root, *root.iterdir()):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702])
@pytest.mark.parametrize("place", ["", "*"])
def test_a_folder_that_others_may_write_to_is_not_used(mode, place, root):
    is_loaded()
    (folder,) = root.glob(place) if place else [root]
    folder.chmod(mode)
    with pytest.warns(UserWarning, match=WARNING + "other users may write to it; set NUMBA_CACHE"):
        assert not is_loaded()
    assert not is_loaded()  # without a second warning


def test_a_folder_of_another_user_is_not_used(monkeypatch):
    is_loaded()
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.warns(UserWarning, match=WARNING + "it belongs to another user"):
        assert not is_loaded()


# --- damaged or full -----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["nbi", "nbc", "sum"])
@pytest.mark.parametrize("damage", [lambda _: b"", lambda old: old[:-9] + bytes(9)])
def test_a_damaged_file_is_replaced(suffix, damage, root):
    is_loaded()
    (path,) = root.glob(f"*/*/*.{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    assert not is_loaded()
    assert is_loaded()


def test_a_full_disk():
    """A limit on the size of files stands for the limit of the disk."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
    assert_one_warning(run(limit + DRAW), "File too large")
    assert not is_loaded()
    assert is_loaded()  # there was room again


@pytest.mark.slow
def test_many_processes_at_once():
    """All store the same kernel at the same time."""
    command = [sys.executable, "-W", "error", "-c", DRAW]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait(300) for process in processes] == [0] * 4
    assert is_loaded()


# --- not needed ----------------------------------------------------------------------------------


def test_no_home(tmp_path):
    start = "import pwd; pwd.getpwuid = {}.__getitem__\n"  # no user has an entry
    nowhere = {"HOME": None, "NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": None, "PWD": tmp_path}
    assert_one_warning(run(start + DRAW, **nowhere), "there is no home folder")
    assert list(tmp_path.iterdir()) == []


def test_a_zipped_package(tmp_path):
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for path in PACKAGE.rglob("*.py"):
            archive.write(path, path.relative_to(PACKAGE.parent))
    process = run(DRAW, PYTHONPATH=tmp_path / "package.zip")
    assert_one_warning(process, "the package is not installed as a folder of files")


@pytest.mark.slow
def test_the_command_line_prints_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "data.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.25\n", "utf-8")
    code = (
        "import sys; from countersample.cli import main\n"
        "sys.argv[1:] = ['data', 'info', 'data.txt']; main()"
    )
    process = run(code, NUMBA_CACHE_DIR=tmp_path / "file", NUMBA_OPT=0, PWD=tmp_path)
    assert process.returncode == 0
    assert "queries" in process.stdout
    (line,) = [line for line in process.stderr.splitlines() if not line.startswith("reading ")]
    assert line.startswith("countersample: compiled code cannot be stored, so each run compiles ")
    assert line.endswith("; set NUMBA_CACHE_DIR to a folder to which only you can write")


# --- it does not grow for ever -------------------------------------------------------------------


def test_folders_that_were_not_used_for_long_are_removed(root):
    n_old = cache.OTHER_FOLDERS + 2
    old = [root / f"{n:020x}-{0:020x}" for n in range(n_old)]
    recent, notes = root / f"{n_old:020x}-{0:020x}", root / "notes"
    for folder in (*old, recent, notes):
        folder.mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    now = time.time()  # noqa: TID251 (files are dated by this clock)
    for days, folder in enumerate([*old, notes], start=2):
        os.utime(folder, (now, now - days * cache.SECONDS_PER_DAY))
    is_loaded()
    assert [path.exists() for path in old] == [True] * (cache.OTHER_FOLDERS - 1) + [False] * 3
    assert recent.exists()
    assert notes.exists()
