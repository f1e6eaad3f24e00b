"""The list of faults (`tests/mutations.toml`) fits the sources.

`tests/mutate.py` applies the faults one at a time and runs their tests, which takes minutes. These
tests take a few seconds. They check that the list cannot rot: each old text occurs exactly once in
its file, the fault changes it, the changed file still parses, and the tests that should catch it
exist. The last tests run the program itself on a project of one function.

If code moves, edit ``file`` and ``old`` of its entries, and run ``python tests/mutate.py``.
"""

import re

import mutate
import pytest

MUTATIONS = mutate.read_mutations()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_a_fault_fits_the_sources(mutation):
    source = (mutate.ROOT / mutation.file).read_text(encoding="utf-8")
    mutation.apply(source)  # raises: not exactly once, no change, or a syntax error
    assert mutation.fault.strip(), "a fault has a description"
    assert mutation.tests, "some test should catch it"
    for test in mutation.tests:
        assert_is_there(f"tests/{test}")


def assert_is_there(test):
    """Check a test by its file and the names of its class and function."""
    name, *parts = test.partition("[")[0].split("::")
    text = (mutate.ROOT / name).read_text(encoding="utf-8")
    assert "def test_" in text
    for part in parts:
        assert re.search(rf"^ *(def|class) {part}\b", text, re.MULTILINE), f"no {part} in {name}"


def test_every_part_of_the_package_has_faults():
    assert len(MUTATIONS) >= 85
    names = {each.file.removeprefix("src/countersample/").partition("/")[0] for each in MUTATIONS}
    assert {"plans.py", "theory.py", "metrics.py", "_kernels", "clicks", "data", "evaluation",
            "export", "fitting", "propensity", "training", "tuning"} <= names  # fmt: skip


# -- the program -----------------------------------------------------------------------------------

FAULTS = """
[[mutation]]
id = "caught"
room = "toy"
file = "src/toy.py"
fault = "a sign"
old = "a + b"
new = "a - b"
tests = ["test_toy.py"]

[[mutation]]
id = "survives"
room = "toy"
file = "src/toy.py"
fault = "nobody looks"
old = "UNUSED = 1"
new = "UNUSED = 2"
tests = ["test_toy.py"]

[[mutation]]
id = "breaks"
room = "toy"
file = "src/toy.py"
fault = "an import error"
old = "import math"
new = "import maths"
tests = ["test_toy.py"]
"""


@pytest.fixture
def toy(tmp_path):
    """A project of one function, one test and three faults."""
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "src" / "toy.py").write_text(
        "import math\n\nUNUSED = 1\n\n\ndef add(a, b):\n    return math.floor(a + b)\n"
    )
    (tmp_path / "tests" / "test_toy.py").write_text(
        "import toy\n\n\ndef test_nothing():\n    pass\n\n\n"
        "def test_add():\n    assert toy.add(1, 2) == 3\n"
    )
    (tmp_path / mutate.LIST).write_text(FAULTS)
    return tmp_path


def test_results(toy, capsys):
    before = {path: path.read_bytes() for path in toy.rglob("*.py")}
    assert mutate.main([], root=toy) == 1
    printed = capsys.readouterr()
    assert re.search(r"caught +caught .*tests/test_toy.py::test_add", printed.err)
    assert "1 of 3 faults were caught." in printed.out
    assert "Not caught: survives (survived), breaks (broken)." in printed.out
    assert {path: path.read_bytes() for path in toy.rglob("*.py")} == before
    assert mutate.main(["--only", "caught"], root=toy) == 0
    assert "1 of 1 faults were caught." in capsys.readouterr().out


def test_shares_have_each_fault_once():
    shares = [mutate.choose(MUTATIONS, None, 8, first) for first in range(1, 9)]
    assert sorted(each.id for share in shares for each in share) == sorted(
        each.id for each in MUTATIONS
    )


def test_what_cannot_run_is_an_error(toy, capsys):
    assert mutate.main(["--only", "nothing"], root=toy) == 2
    assert "no fault has the id 'nothing'" in capsys.readouterr().err
    path = toy / "tests" / "test_toy.py"
    broken = "def test_fails():\n    assert toy.add(1, 1) == 3\n\n\ndef test_nothing"
    path.write_text(path.read_text().replace("def test_nothing", broken))
    assert mutate.main(["--only", "caught"], root=toy) == 2  # fails without a fault
    assert "test_fails" in capsys.readouterr().err
    source = (toy / "src" / "toy.py").read_text()
    (toy / "src" / "toy.py").write_text(source.replace("a + b", "b + a"))
    assert mutate.main([], root=toy) == 2
    assert "occurs 0 times in src/toy.py, expected once" in capsys.readouterr().err
