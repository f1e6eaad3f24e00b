"""Every snippet of the documentation runs, and shows what it says."""

import doctest
import re
import shlex

import pytest
from conftest import ROOT
from requirements import need

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


NEED_TORCH = {"distributed.md", "torch.md"}


def skip_without_torch(page):
    if page.name in NEED_TORCH:
        need("torch")


def blocks(page, language):
    return [text for name, text in FENCE.findall(page.read_text()) if name == language]


@pytest.mark.rounding
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page, tmp_path, monkeypatch):
    skip_without_torch(page)
    monkeypatch.chdir(tmp_path)
    source = "\n\n".join(blocks(page, "python"))
    test = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.failed == 0
    assert result.attempted == source.count(">>> ")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console(page, run):
    """The countersample commands of a page, in order, in one empty folder."""
    skip_without_torch(page)
    for text in blocks(page, "console"):
        for line in text.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if not words or words[0] != "countersample":
                continue
            run(*words[1:])


@pytest.mark.slow
def test_the_readme_shows_what_the_demo_prints(run):
    """The same lines, whatever the numbers: those of a small demo differ."""
    (shown,) = blocks(ROOT / "README.md", "text")
    small = ("queries=80", "clicks=2000", "epochs=2", "seeds=2", "learning_rates=[1e-3]")
    settings = [word for setting in small for word in ("--set", setting)]
    assert words(shown) == words(run("demo", *settings))


def words(text):
    return re.findall(r"[A-Za-z]{2,}", text.replace("not reached", ""))
