"""The cache of compiled kernels: never stale, private, bounded, and not needed."""

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
from countersample._kernels import compiling, sampling

PACKAGE = Path(countersample.__file__).parent
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
    yield tmp_path / "numba" / "countersample" / "kernels"
    compiling.open_folder.cache_clear()


def is_loaded():
    """Decorate a kernel as a new process does and call it; return whether it was not compiled."""
    compiling.open_folder.cache_clear()
    draw, indices = compiling.kernel()(sampling.draw.py_func), np.zeros(3, np.int64)
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


def test_kernels_call_nothing_outside_their_package():
    """Otherwise the hash of the package would miss code that is compiled into them."""
    others = ("_arrays", "_environment", "_version")  # types, and plain Python
    allowed = {f"countersample.{name}" for name in others}
    for path in (PACKAGE / "_kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("countersample"):
                assert node.module.startswith("countersample._kernels") or node.module in allowed


@pytest.mark.parametrize(("name", "value"), [("BOUNDSCHECK", 1), ("CPU_NAME", "generic")])
def test_settings_and_cpus_are_separate(name, value, monkeypatch):
    assert not is_loaded()
    assert is_loaded()
    monkeypatch.setattr(config, name, value)
    assert not is_loaded()


def test_the_cache_of_other_packages_stays_where_it_was(monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", "theirs")
    compiling.kernel()(sampling.draw.py_func)
    assert config.CACHE_DIR == "theirs"


def test_only_a_private_folder_is_used(root):
    is_loaded()
    (folder,) = root.iterdir()
    assert [each.stat().st_mode & 0o777 for each in (root, folder)] == [0o700, 0o700]
    folder.chmod(0o702)
    with pytest.warns(UserWarning, match=r"other users may write to it; set NUMBA_CACHE_DIR to"):
        assert not is_loaded()


@pytest.mark.parametrize("place", ["no home", "zipped"])
def test_kernels_run_without_a_folder(place, tmp_path):
    if place == "no home":
        reason = "there is no home folder"
        start = "import pwd; pwd.getpwuid = {}.__getitem__\n"  # no user has an entry
        variables = {"HOME": None, "NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": None}
    else:
        start, reason = "", "the package is not installed as a folder of files"
        with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
            for path in PACKAGE.rglob("*.py"):
                archive.write(path, path.relative_to(PACKAGE.parent))
        variables = {"PYTHONPATH": tmp_path / "package.zip"}
    process = run(start + DRAW, PWD=tmp_path, **variables)
    assert process.stdout == "[0 0 1]\n", process.stderr
    assert process.stderr.count("compiled code cannot be stored") == 1
    assert reason in process.stderr


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


def test_folders_that_were_not_used_for_long_are_removed(root):
    old = [root / str(days) for days in range(1, compiling.MAX_FOLDERS + 3)]
    now = time.time()  # noqa: TID251 (files are dated by this clock)
    for days, folder in enumerate(old, start=1):
        folder.mkdir(parents=True, mode=0o700)
        os.utime(folder, (now, now - 86_400 * days))
    root.chmod(0o700)
    is_loaded()
    assert [path.exists() for path in old] == [True] * (compiling.MAX_FOLDERS - 1) + [False] * 3
