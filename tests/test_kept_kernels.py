"""Compiled kernels on disk: of the code that runs, of nobody else's making, or done without."""

import ast
import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import countersample
from countersample._kernels import keeping
from countersample._kernels.keeping import DAY, HOUR, OTHERS, Kept

PACKAGE = Path(countersample.__file__).parent
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
KERNEL, TYPES, CODE = "module.kernel", "(int64) on some CPU", bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where kernels are kept in this test."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(keeping, "_told", [])
    return tmp_path / "kept" / "countersample" / "kernels"


@pytest.fixture
def kept():
    return Kept("some-tools")


@pytest.fixture
def written(kept, folder):
    """The file of a kernel that was kept."""
    kept.write(KERNEL, TYPES, CODE)
    (file,) = folder.glob("*/*")
    return file


def run(code, **variables):
    """Run code in a process of its own, with variables set, or unset where they are None."""
    given = {"PYTHONPATH": str(PACKAGE.parent)} | os.environ | variables
    return subprocess.run(
        [sys.executable, "-c", code],
        env={name: str(value) for name, value in given.items() if value is not None},
        cwd=variables.get("PWD"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def owned_by_another(path, monkeypatch):
    """Give a file away; who is not root cannot, and takes another name instead."""
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)


# --- what is kept goes by the content of all kernels ---------------------------------------------


TRAIN = """
import countersample
from countersample import ClickLog, RankingDataset, train
dataset = RankingDataset.from_arrays(X=[[0.0], [1.0]], y=[0, 1], qid=[0, 0])
found = train(dataset, ClickLog.from_labels(dataset), learning_rate=0.5, steps=20, rng=0)
print(countersample.__file__, float(found.weights[0]))
"""


def install(site, change):
    """Install the package as pip does: what is in its list is replaced, all else stays there.

    pip knows nothing of what numba may have written into ``__pycache__``.
    """
    target = site / "countersample"
    for old in [*target.rglob("*.py"), *target.rglob("*.pyc")]:
        old.unlink()
    shutil.copytree(
        PACKAGE, target, copy_function=shutil.copyfile, dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    change(target)


def as_it_is(_):
    """Change nothing."""


def stand_still(package):
    """Change plain SGD, a part in another file than the kernel that it is compiled into."""
    path = package / "_kernels" / "updates.py"
    text = path.read_text("utf-8")
    step = "g, run, scale, rate, l2)"
    assert text.count(step) == 1
    path.write_text(text.replace(step, "g, run, scale, 0.0 * rate, l2)"), "utf-8")


def test_an_upgrade_runs_its_own_kernels(tmp_path):
    site, home = tmp_path / "site", tmp_path / "home"
    home.mkdir()
    own = {"PYTHONPATH": site, "NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": None, "HOME": home}
    own["NUMBA_OPT"] = 0  # compiles sooner
    weights = []
    for change in (as_it_is, stand_still):
        install(site, change)
        found = run(TRAIN, **own)
        assert found.returncode == 0, found.stderr
        assert found.stderr == ""
        source, weight = found.stdout.split()
        assert Path(source).is_relative_to(site)
        weights.append(float(weight))
    assert weights[0] > 0
    assert weights[1] == 0
    assert len(list((home / ".cache" / "countersample" / "kernels").iterdir())) == 2
    assert list(site.rglob("*.nb?")) == []  # nothing that pip would leave behind


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of the kernels, taken for those that run."""
    copied = tmp_path / "_kernels"
    shutil.copytree(PACKAGE / "_kernels", copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(keeping, "__file__", str(copied / "keeping.py"))
    return copied


def test_an_edit_of_any_kernel_is_noticed(checkout):
    files = sorted(checkout.glob("*.py"))
    assert len(files) > 20
    for path in files:
        times, content = path.stat(), path.read_bytes()
        path.write_bytes(content[:-1] + b" ")  # of the same size, and of the same time
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert keeping.fingerprint() != keeping.FINGERPRINT, path.name
        path.write_bytes(content)
        assert keeping.fingerprint() == keeping.FINGERPRINT
    (checkout / "another.py").touch()
    assert keeping.fingerprint() != keeping.FINGERPRINT
    (checkout / "another.py").rename(checkout / "another.txt")
    assert keeping.fingerprint() == keeping.FINGERPRINT


def test_a_release_has_kernels_of_its_own(monkeypatch):
    monkeypatch.setattr(keeping, "__version__", "0.0.0")
    assert keeping.fingerprint() != keeping.FINGERPRINT


def test_nothing_is_kept_of_files_that_were_edited_since_they_were_imported(checkout, kept, folder):
    (checkout / "updates.py").write_text("", "utf-8")
    kept.write(KERNEL, TYPES, CODE)
    assert not folder.exists()


def test_kernels_are_made_of_nothing_but_kernels():
    """Else the content of their folder would not tell all that is compiled into them."""
    names = (
        "_arrays",
        "_cores",
        "_home",
        "_leaving",
        "_version",
    )  # types, and what runs around kernels
    allowed = {f"countersample.{name}" for name in names}
    for path in (PACKAGE / "_kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("countersample"):
                assert node.module.startswith("countersample._kernels") or node.module in allowed


def test_other_types_other_tools_and_other_kernels_are_told_apart(kept, written):
    assert kept.read(KERNEL, TYPES) == CODE
    assert kept.read(KERNEL, "(float64) on some CPU") is None
    assert kept.read("module.other", TYPES) is None
    assert Kept("newer-tools").read(KERNEL, TYPES) is None
    moved = written.with_name(written.name.replace("kernel", "other"))
    written.rename(moved)
    assert kept.read("module.other", TYPES) is None  # it is not in its place


DRAW = """
import numpy as np
from countersample._kernels import compiling
from countersample._kernels.alias import draw
indices = np.zeros(3, np.int64)
draw(np.array([0.5, 1.0]), np.array([1, 1]), indices, np.array([0.1, 0.3, 0.8]))
print(indices, sum(draw.stats.cache_hits.values()))
"""


def test_settings_of_the_compiler_are_told_apart():
    """Code that looks at bounds is no code that does not."""
    assert run(DRAW).stdout == "[0 0 1] 0\n"
    assert run(DRAW).stdout == "[0 0 1] 1\n"
    assert run(DRAW, NUMBA_BOUNDSCHECK=1).stdout == "[0 0 1] 0\n"


def test_where_others_compile_nothing_is_changed(tmp_path):
    """Whoever uses numba beside this package finds its folder and its classes as they were."""
    (tmp_path / "theirs.py").write_text(
        "from numba import njit\n\n\n@njit(cache=True)\ndef one():\n    return 1\n", "utf-8"
    )
    code = DRAW + "from theirs import one; one(); print(one.stats.cache_path)"
    paths = f"{tmp_path}{os.pathsep}{PACKAGE.parent}"
    found = run(code, PYTHONPATH=paths, NUMBA_CACHE_DIR=None, XDG_CACHE_HOME=tmp_path)
    assert found.stdout.splitlines()[-1] == str(tmp_path / "__pycache__"), found.stderr


# --- it is trusted only where nobody else could have written it ----------------------------------


def test_it_is_private(written, folder):
    for path in (folder, written.parent):
        assert path.stat().st_mode & 0o777 == 0o700
    assert written.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used(mode, kept, written):
    written.parent.chmod(mode)
    assert kept.read(KERNEL, TYPES) is None
    with pytest.warns(UserWarning, match="compiles anew: .*: other users may write to it; "):
        kept.write(KERNEL, TYPES, CODE)
    kept.write(KERNEL, TYPES, CODE)  # it is told once
    assert len(list(written.parent.iterdir())) == 1


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_belongs_to_another_is_not_used(what, kept, written, monkeypatch):
    owned_by_another(written if what == "file" else written.parent, monkeypatch)
    assert kept.read(KERNEL, TYPES) is None


def test_a_folder_of_another_is_told(kept, written, monkeypatch):
    owned_by_another(written.parent, monkeypatch)
    with pytest.warns(UserWarning, match="compiles anew: .*: it belongs to another user; "):
        kept.write(KERNEL, TYPES, CODE)


def test_a_file_that_others_may_write_to_is_replaced(kept, written):
    written.chmod(0o666)
    assert kept.read(KERNEL, TYPES) is None
    kept.write(KERNEL, TYPES, CODE)
    assert kept.read(KERNEL, TYPES) == CODE
    assert written.stat().st_mode & 0o777 == 0o600


def test_a_pickle_of_another_is_not_opened(folder, tmp_path):
    """From end to end: a kernel that runs code when it is loaded is compiled instead."""
    trap = tmp_path / "sprung"
    planted = (
        "from pathlib import Path\n"
        "class Trap:\n"
        f"    def __reduce__(self): return Path.touch, (Path({str(trap)!r}),)\n"
        "compiling.dumps = lambda result: __import__('pickle').dumps(Trap())\n"
    )
    before = DRAW.replace(
        "from countersample._kernels.alias", planted + "from countersample._kernels.alias"
    )
    assert run(before).returncode == 0
    assert run(DRAW).returncode != 0
    assert trap.exists()  # the trap works
    trap.unlink()
    (file,) = folder.glob("*/*")
    file.chmod(0o620)
    found = run(DRAW)
    assert found.stdout == "[0 0 1] 0\n", found.stderr
    assert not trap.exists()


# --- what is broken is made anew ----------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 31, 32, 5000, -1])
def test_one_bit_that_differs_is_noticed(at, kept, written):
    content = bytearray(written.read_bytes())
    content[at] ^= 1
    written.write_bytes(content)
    assert kept.read(KERNEL, TYPES) is None


@pytest.mark.parametrize("size", [0, 10, 32, 5000])
def test_a_file_that_was_cut_is_noticed(size, kept, written):
    os.truncate(written, size)
    assert kept.read(KERNEL, TYPES) is None
    kept.write(KERNEL, TYPES, CODE)
    assert kept.read(KERNEL, TYPES) == CODE


def test_a_folder_in_the_place_of_a_file(kept, written):
    written.unlink()
    written.mkdir()
    assert kept.read(KERNEL, TYPES) is None
    with pytest.warns(UserWarning, match="Is a directory"):
        kept.write(KERNEL, TYPES, CODE)


# --- it is done without where there is no room for it --------------------------------------------


def test_a_full_disk_leaves_what_was_there(kept, written, monkeypatch):
    def full(descriptor, _):
        os.close(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeping.os, "fdopen", full)
    with pytest.warns(UserWarning, match=rf"{written.parent}: No space left on device; NUMBA_CAC"):
        kept.write(KERNEL, TYPES, CODE[::-1])
    assert list(written.parent.iterdir()) == [written]
    assert kept.read(KERNEL, TYPES) == CODE


def test_a_disk_that_fills_up_in_the_middle(folder):
    """The limit of the process stands for that of the disk: a write ends in the middle."""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n{DRAW}"
    found = run(code)
    assert found.stdout == "[0 0 1] 0\n"
    assert "compiles anew" in found.stderr
    assert "File too large" in found.stderr
    assert "Traceback" not in found.stderr
    assert list(folder.glob("*/*")) == []
    assert run(DRAW).stderr == ""  # there is room again
    assert len(list(folder.glob("*/*.nbc"))) == 1


@pytest.mark.parametrize("place", ["a file", "no home", "unwritable"])
def test_no_place_to_keep_it(place, tmp_path):
    """The results, a sentence, and no more."""
    (tmp_path / "file").touch()
    given = {"NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": None, "PWD": tmp_path}
    start = ""
    if place == "a file":
        given["NUMBA_CACHE_DIR"] = tmp_path / "file" / "kept"
        said = "Not a directory"
    elif place == "no home":
        given["HOME"], said = None, "there is no home folder"
        start = "import pwd; pwd.getpwuid = {}.__getitem__\n"  # nobody is known
    else:
        (tmp_path / "home").mkdir(mode=0o555)
        given["HOME"], said = tmp_path / "home", "Permission denied"
        # Root may write anywhere. Who it becomes may not read Python itself, perhaps: numba
        # compiles once before, and has imported what it needs then.
        start = f"""
import os, numba, numpy
numba.njit(lambda a: a[0] + 1.5)(numpy.zeros(1))
from countersample._kernels import alias
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""
    found = run(start + DRAW, **given)
    assert found.stdout == "[0 0 1] 0\n", found.stderr
    assert found.stderr.count("compiles anew") == 1
    assert said in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "~").exists()


def test_the_command_line_says_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "data.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.25\n", "utf-8")
    code = (
        "import sys; from countersample.cli import main\n"
        "sys.argv[1:] = ['data', 'info', 'data.txt']; main()"
    )
    found = run(code, NUMBA_CACHE_DIR=tmp_path / "file", PWD=tmp_path)
    assert found.returncode == 0
    assert "queries" in found.stdout
    (line,) = [line for line in found.stderr.splitlines() if not line.startswith("reading ")]
    assert line.startswith(
        "countersample: compiled code cannot be kept, so that each run compiles "
    )
    assert line.endswith("; NUMBA_CACHE_DIR may name a folder that is yours alone")


def test_what_cannot_be_read_is_not_kept(kept, monkeypatch):
    """A package in an archive, which Python can import, has no files of its own."""
    monkeypatch.setattr(keeping, "__file__", "/does/not/exist.zip/keeping.py")
    assert keeping.fingerprint() == ""
    monkeypatch.setattr(keeping, "FINGERPRINT", "")
    assert kept.read(KERNEL, TYPES) is None
    assert not keeping.has_kept(KERNEL)
    with pytest.warns(UserWarning, match="its files cannot be read"):
        kept.write(KERNEL, TYPES, CODE)


# --- it does not grow for ever -------------------------------------------------------------------


def make_old(folder, days):
    when = time.time() - days * DAY  # noqa: TID251 (as files are dated)
    os.utime(folder, (when, when))


def other_folders(folder, days):
    """Make folders of other kernels, last used so many days ago."""
    made = [folder / f"{n:020x}-some-tools" for n in range(len(days))]
    for path, ago in zip(made, days, strict=True):
        path.mkdir(parents=True, mode=0o700)
        (path / "kernel.nbc").touch()
        make_old(path, ago)
    return made


def test_the_folders_last_used_stay(kept, folder):
    folder.mkdir(parents=True, mode=0o700)
    made = other_folders(folder, [2 + n for n in range(OTHERS + 2)])
    (folder / "notes-of-another-kind").mkdir()
    make_old(folder / "notes-of-another-kind", 99)
    (folder / ("f" * 20 + "-linked")).symlink_to(made[0])
    kept.write(KERNEL, TYPES, CODE)
    assert [path.exists() for path in made] == [True] * OTHERS + [False] * 2
    assert (folder / "notes-of-another-kind").exists()
    assert (folder / ("f" * 20 + "-linked")).exists()
    assert kept.read(KERNEL, TYPES) == CODE


def test_what_is_in_use_stays(kept, folder):
    folder.mkdir(parents=True, mode=0o700)
    made = other_folders(folder, [0.5] * (OTHERS + 3))
    kept.write(KERNEL, TYPES, CODE)
    assert all(path.exists() for path in made)


def test_use_is_noted_once_a_day(kept, written):
    make_old(written.parent, 3)
    assert kept.read(KERNEL, TYPES) == CODE
    noted = written.parent.stat().st_mtime_ns
    assert time.time() - noted / 1e9 < HOUR  # noqa: TID251 (as files are dated)
    kept.read(KERNEL, TYPES)
    assert written.parent.stat().st_mtime_ns == noted


def test_what_was_removed_meanwhile_is_made_anew(kept, written):
    shutil.rmtree(written.parent.parent)
    assert kept.read(KERNEL, TYPES) is None
    kept.write(KERNEL, TYPES, CODE)
    assert kept.read(KERNEL, TYPES) == CODE


def test_what_killed_writers_left_is_removed(kept, written):
    left, under_way = written.with_name("left.tmp"), written.with_name("under-way.tmp")
    for path in (left, under_way):
        path.touch()
    os.utime(left, (time.time() - 2 * HOUR,) * 2)  # noqa: TID251 (as files are dated)
    kept.write(KERNEL, TYPES, CODE)
    assert not left.exists()
    assert under_way.exists()


def test_many_processes_at_once(folder):
    """Each reads a whole file or none, whoever writes it meanwhile."""
    code = (
        "import sys; from countersample._kernels.keeping import Kept\n"
        "kept, seen = Kept('some-tools'), 0\n"
        "for n in range(40):\n"
        "    for types in 'ab':\n"
        "        content = types.encode() * 100_000\n"
        "        kept.write('module.kernel', types, content)\n"
        "        assert kept.read('module.kernel', types) in (content, None)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-W", "error", "-c", code]) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0] * 4
    assert len(list(folder.glob("*/*"))) == 2
