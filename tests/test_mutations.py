"""The list of faults (`tests/mutations.toml`) fits the sources, and its table says all are caught.

`tests/mutate.py` applies the faults one at a time and runs their tests, which takes half an hour or
more. These tests take a few seconds. They check that the list cannot rot: each old text occurs
exactly once in its file, the fault changes it, the changed file still parses, and the tests that
should catch it exist. The committed table (`tests/mutations.csv`) has one row per fault, and none
survived. The last tests run the program itself on a project of one function.

If code moves, edit ``file`` and ``old`` of its entries; then ``python tests/mutate.py`` runs what
has changed and updates the table.
"""

import re

import mutate
import pytest

MUTATIONS = mutate.read_mutations()
ROWS = mutate.read_table(mutate.ROOT / mutate.TABLE)


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


def test_the_table_has_every_fault_and_none_survived():
    assert list(ROWS) == [each.id for each in MUTATIONS]
    for each in MUTATIONS:
        row = ROWS[each.id]
        assert (row["room"], row["file"], row["fault"]) == (each.room, each.file, each.fault)
        assert each.is_caught(row), f"{each.id}: {row['result']}"
        assert_is_there(row["caught_by"])


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


def test_results_and_a_second_run(toy, capsys):
    before = {path: path.read_bytes() for path in toy.rglob("*.py")}
    assert mutate.main(["--jobs", "2"], root=toy) == 1
    rows = mutate.read_table(toy / mutate.TABLE)
    assert {name: (row["result"], row["caught_by"]) for name, row in rows.items()} == {
        "caught": ("caught", "tests/test_toy.py::test_add"),
        "survives": ("survived", ""),
        "breaks": ("broken", "tests/test_toy.py"),
    }
    assert "Not caught: survives, breaks." in capsys.readouterr().out
    assert {path: path.read_bytes() for path in toy.rglob("*.py")} == before
    assert mutate.main(["--only", "caught"], root=toy) == 0
    assert "0 faults to run, 1 have a result already" in capsys.readouterr().err
    source = toy / "src" / "toy.py"
    source.write_text(source.read_text() + "\nMORE = 1\n")
    assert mutate.main(["--only", "caught"], root=toy) == 0
    assert "1 faults to run, 0 have a result already" in capsys.readouterr().err


def test_what_cannot_run_is_an_error(toy, capsys):
    assert mutate.main(["--only", "nothing"], root=toy) == 2
    assert "no fault has the id 'nothing'" in capsys.readouterr().err
    with (toy / "tests" / "test_toy.py").open("a") as file:
        file.write("\n\ndef test_fails():\n    assert toy.add(1, 1) == 3\n")
    assert mutate.main(["--only", "caught"], root=toy) == 2  # fails without a fault
    assert "test_fails" in capsys.readouterr().err
    source = (toy / "src" / "toy.py").read_text()
    (toy / "src" / "toy.py").write_text(source.replace("a + b", "b + a"))
    assert mutate.main([], root=toy) == 2
    assert "occurs 0 times in src/toy.py, expected once" in capsys.readouterr().err
