"""The package itself: its public names, and that importing it is cheap."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from conftest import ROOT

import countersample


@pytest.mark.parametrize("name", countersample.__all__)
def test_every_public_name_is_there(name):
    assert getattr(countersample, name) is not None
    assert name in dir(countersample)


@pytest.mark.parametrize(
    ("statement", "not_imported"),
    [
        ("import countersample", {"numpy", "numba", "pyarrow", "rich"}),
        ("from countersample import RankingDataset, load_letor, metrics, evaluate",
         {"numba", "pyarrow", "rich", "matplotlib"}),
    ],
)  # fmt: skip
def test_imports_are_cheap(statement, not_imported):
    code = f"{statement}; import sys; print(sorted({not_imported!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


EVERY_MODULE = """
import importlib, pkgutil, countersample
for module in pkgutil.walk_packages(countersample.__path__, "countersample."):
    if not module.name.endswith(".__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(error.name)
"""


def test_every_module_is_imported():
    """With the versions that are installed, the oldest allowed among them (`make oldest`)."""
    command = [sys.executable, "-c", EVERY_MODULE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= ({"torch"} if find_spec("torch") is None else set())


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert version("countersample") == countersample.__version__


def test_the_version_to_cite_is_this_one():
    assert f"\nversion: {countersample.__version__}\n" in (ROOT / "CITATION.cff").read_text()
