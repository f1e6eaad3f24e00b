"""The snippets of the documentation run, and print what the pages show."""

import csv
import doctest
import re
import shlex

import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from pyarrow import csv as arrow_csv
from requirements import need
from shops import load_example

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+(\.\d+)?(e-?\d+)?")
NEED_TORCH = {"torch.md"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The shop of `examples/make_shop_log.py` as the CSV files that the first pages show."""
    folder = tmp_path_factory.mktemp("shop")
    load_example("make_shop_log").write_shop(folder, queries=400, sessions=20_000, seed=0)
    log = pq.read_table(folder / "impressions.parquet").drop_columns(["policy"])
    arrow_csv.write_csv(log, folder / "log.csv")
    features = pq.read_table(folder / "features.parquet").drop_columns(["label"])
    arrow_csv.write_csv(features, folder / "features.csv")
    return folder


def skip_without_torch(page):
    if page.name in NEED_TORCH:
        need("torch")


def blocks(page, *languages):
    """The code of a page in some languages, in order: pairs of language and text."""
    return [(name, text) for name, text in FENCE.findall(page.read_text()) if name in languages]


@pytest.mark.rounding
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page, tmp_path, monkeypatch):
    skip_without_torch(page)
    monkeypatch.chdir(tmp_path)
    source = "\n\n".join(text for _, text in blocks(page, "python"))
    test = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.failed == 0
    assert result.attempted == source.count(">>> ")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console(page, run, shop, tmp_path):
    """The commands of a page run in order in one folder, and print the text below them."""
    skip_without_torch(page)
    for name in ("log.csv", "features.csv"):
        (tmp_path / name).symlink_to(shop / name)
    output = ""
    for language, text in blocks(page, "console", "text"):
        if language == "console":
            output = "".join(map(run_command(run), text.splitlines()))
        elif output:
            check_output(text, output)


@pytest.mark.slow
def test_the_page_on_studies_shows_what_the_demo_prints(run):
    """The same lines, whatever the numbers: a small demo has other ones."""
    shown = blocks(ROOT / "docs" / "study.md", "text")[0][1]
    small = ("queries=80", "clicks=2000", "epochs=2", "seeds=2", "learning_rates=[1e-3]")
    settings = [word for setting in small for word in ("--set", setting)]
    printed = run("demo", *settings)
    assert words_of(shown.replace("not reached", "")) == words_of(
        printed.replace("not reached", "")
    )


def run_command(run):
    def run_line(line):
        words = shlex.split(line.removeprefix("$ "), comments=True)
        return run(*words[1:]) if words and words[0] == "countersample" else ""

    return run_line


def check_output(shown, output):
    """Each line that a page shows is printed, whatever its numbers; … stands for other lines."""
    printed = words_of(output)
    for line in shown.splitlines():
        assert words_of(line) in printed, line


def words_of(text):
    return " ".join(re.findall(r"[A-Za-z]{2,}", text))


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_rows_that_are_shown_are_rows_of_the_shop(page, shop):
    tables = [text.splitlines() for _, text in blocks(ROOT / page, "csv")]
    assert len(tables) == 2
    for name, shown in zip(("log.csv", "features.csv"), tables, strict=True):
        with (shop / name).open(newline="") as file:
            rows = set(map(values_of, csv.reader(file)))
        assert set(map(values_of, csv.reader(shown))) <= rows


def values_of(row):
    """The cells of a row: text, or numbers to six digits, since formats of float32 differ."""
    return tuple(f"{float(cell):.6g}" if NUMBER.fullmatch(cell) else cell for cell in row)
