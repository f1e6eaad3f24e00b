"""What SECURITY.md promises of files from strangers, as far as a test can tell."""

import ast
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import countersample
from countersample import RankingDataset, simulate_clicks, synthetic
from countersample.errors import DataError
from countersample.training import train

SOURCE = Path(countersample.__file__).parent
TREES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(SOURCE.rglob("*.py"))
}


class Trap:
    """Unpickled, it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path):
    """An array that would run code if its file were unpickled."""
    ran = tmp_path / "ran"
    file = io.BytesIO()
    np.save(file, np.array([Trap(ran)], dtype=object), allow_pickle=True)
    np.load(io.BytesIO(file.getvalue()), allow_pickle=True)
    assert ran.exists()  # so it would
    ran.unlink()
    yield file.getvalue()
    assert not ran.exists()


@pytest.fixture
def data():
    return synthetic("tiny", n_queries=8, rng=0)


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def who_imports(*modules):
    return {
        path
        for path, tree in TREES.items()
        if any(f"{name}.".startswith(tuple(f"{m}." for m in modules)) for name in imports(tree))
    }


# -- code ----------------------------------------------------------------------------------------


def test_nothing_is_unpickled():
    """numba unpickles compiled kernels, in a private folder."""
    unpickling = ("pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml")
    assert who_imports(*unpickling) == set()


def test_nothing_is_evaluated():
    called = {
        (path, node.func.id)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert len(called) > 1000
    assert not [each for each in called if each[1] in {"eval", "exec", "compile", "__import__"}]


def test_arrays_are_read_by_one_function():
    """`read_npy_header` accepts numbers only: no objects, which numpy would unpickle."""
    loads = [
        node
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("np.load", "torch.load"))
    ]
    assert loads == []


def test_nothing_is_connected_to():
    """But by DuckDB, for an address in place of a path, and by Spark."""
    network = ("aiohttp", "ftplib", "http", "httpx", "requests", "socket", "urllib.request")
    assert who_imports(*network) == set()


def test_no_program_is_started():
    assert who_imports("subprocess", "multiprocessing", "os.system") == set()


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["features.npy", "labels.npy", "offsets.npy", "query_ids.npy"])
def test_a_dataset_folder_with_objects(name, data, trap, tmp_path):
    folder = tmp_path / "data"
    data.save(folder)
    (folder / name).write_bytes(trap)
    _believe(folder, name)
    with pytest.raises(DataError, match="a damaged dataset folder"):
        RankingDataset.open(folder)


def _believe(folder, name):
    """Give the header the size and time of a file, as a forger would."""
    header = json.loads((folder / "header.json").read_text())
    state = (folder / name).stat()
    header["files"][name] = [state.st_size, state.st_mtime_ns]
    (folder / "header.json").write_text(json.dumps(header))


def test_the_state_of_a_run_with_objects(data, trap, tmp_path):
    log = simulate_clicks(data, data.features[:, 0], 50, rng=0)
    path = tmp_path / "state.npz"
    train(data, log, learning_rate=0.1, steps=10, rng=0, resume=path)
    with zipfile.ZipFile(path) as archive:
        members = dict.fromkeys(archive.namelist(), trap)
    with zipfile.ZipFile(path, "w") as forged:
        for name, content in members.items():
            forged.writestr(name, content)
    with pytest.raises(DataError, match="not the state of a training run"):
        train(data, log, learning_rate=0.1, steps=10, rng=0, resume=path)
