"""The documentation as a whole: links, names, formulas, pictures and CONTRIBUTING's table."""

import re
import runpy
import tomllib
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules, resolve_name

import pytest
from conftest import ROOT

import countersample

DOCS = ROOT / "docs"
WRITTEN = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
        ROOT / "examples" / "README.md",
        *DOCS.rglob("*.md"),
    ]
)
FENCE = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
NOT_DOCUMENTED = {"cli", "pages", "study"}  # what programs are not meant to import


def name_of(path):
    return str(path.relative_to(ROOT))


def hook(name):
    return runpy.run_path(str(DOCS / "_hooks" / f"{name}.py"))


def prose(page):
    """The text of a page without its code."""
    return FENCE.sub("", page.read_text())


# -- links ---------------------------------------------------------------------------------------


def anchors(page):
    """The anchors of a page's headings, as MkDocs and GitHub make them."""
    headings = re.findall(r"^#+ (.*?)(?: #+)?$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\]\([^)]*\)|[`*\[]", "", heading) for heading in headings]
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in plain}


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_links_lead_somewhere(page):
    samples = set(hook("made_pages")["SAMPLES"])
    for target in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", prose(page))):
        if "://" in target or target in samples:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), target


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"- (?:[\w ]+: )?([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert len(listed) == len(set(listed))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    outside = {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"}
    assert pages == set(listed) - outside


def test_the_index_leads_to_every_page():
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - linked == {"index.md"}


# -- formulas ------------------------------------------------------------------------------------


def formulas(page):
    text = CODE.sub("", prose(page))
    blocks = re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL)
    text = re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL)
    return [*blocks, *re.findall(r"\$([^$\n]+)\$", text)]


def test_every_formula_becomes_mathml():
    pytest.importorskip("latex2mathml")
    mathml = hook("formulas")["mathml"]
    pages = [page for page in WRITTEN if DOCS in page.parents]
    sources = [latex for page in pages for latex in formulas(page)]
    assert len(sources) > 150
    for latex in sources:
        markup = mathml(latex)
        assert "<merror" not in markup, latex
        assert not re.search(r"\\[a-zA-Z]", markup), f"{latex}: {markup}"  # an unknown command


# -- names ---------------------------------------------------------------------------------------


def public_modules():
    """The modules that have a page: those at the root, and `logs`."""
    top = (f"countersample.{module.name}" for module in iter_modules(countersample.__path__))
    hidden = ("countersample._", *(f"countersample.{name}" for name in NOT_DOCUMENTED))
    shown = [name for name in top if not name.startswith(hidden)]
    return [*shown, "countersample.logs"]


def documented():
    text = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    return set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))


@pytest.mark.parametrize("module", public_modules())
def test_every_public_module_has_a_page(module):
    assert module in documented()


def test_the_reference_names_what_exists():
    for name in documented():
        assert resolve_name(name) is not None


def test_the_index_of_the_reference_has_the_names_of_the_root():
    names = set(re.findall(r"`(\w+)`", (DOCS / "reference" / "index.md").read_text()))
    assert set(countersample.__all__) <= names


def glossary():
    rows = re.findall(r"^\|.*\| (`.*`) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    return sorted({name for row in rows for name in re.findall(r"`([^`]+)`", row)})


@pytest.mark.parametrize("name", glossary())
def test_the_glossary_names_what_exists(name):
    path, argument, key = re.fullmatch(r'([\w.]+)(?:\((\w+)\))?(?:\["([\w-]+)"\])?', name).groups()
    owner, _, last = f"countersample.{path}".rpartition(".")
    try:
        thing = resolve_name(f"{owner}.{last}")
    except (AttributeError, ImportError):
        assert last in resolve_name(owner).__annotations__  # a field without a default
        return
    if argument:
        assert argument in signature(thing).parameters
    if key:
        assert key in thing


# -- the gallery ---------------------------------------------------------------------------------


def scripts(*, exclude=()):
    return sorted(s for s in (DOCS / "gallery").glob("*.py") if s.stem not in exclude)


@pytest.mark.parametrize("script", scripts(exclude=["learning_curves"]), ids=lambda s: s.stem)
def test_the_gallery_draws(script):
    assert hook("made_pages")["drawn"](script).startswith(b"<?xml")


def test_every_picture_of_a_page_is_drawn_by_a_script():
    drawn = {script.stem for script in scripts()}
    assert {path.stem for path in (DOCS / "pictures").glob("*.svg")} <= drawn


# -- what to install, who to cite, and where a change belongs ----------------------------------


def test_the_extras_are_documented():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (DOCS / "quickstart.md").read_text()
    assert set(project["optional-dependencies"]) == set(re.findall(r"\[(\w+)\]`", text))


@pytest.mark.parametrize(("page", "at_least"), [("CONTRIBUTING.md", 60), ("docs/design.md", 30)])
def test_paths_that_are_named_exist(page, at_least):
    text = (ROOT / page).read_text()
    paths = set(re.findall(r"`([\w./*-]+(?:/|\.(?:py|md|toml|yml|yaml|cff|css)))`", text))
    assert len(paths) >= at_least
    package = ROOT / "src" / "countersample"
    folders = (ROOT, package, package / "study", package / "logs")
    for path in paths:
        assert any(list(folder.glob(path.rstrip("/"))) for folder in folders), path


def test_contributing_names_registries_that_exist():
    rows = re.findall(r"`([A-Z_]{3,})` in `([\w/.]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(rows) > 10
    for name, path in rows:
        module = path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        assert hasattr(import_module(f"countersample.{module}"), name), f"{name} in {path}"


def test_tests_that_contributing_names_run_over_the_registry():
    """Or the row says that a line or a test of one's own is needed."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = [row for row in text.splitlines() if re.search(r"`[A-Z_]{3,}` in `[\w/.]+`", row)]
    for row in rows:
        *_, registry, tests = row.strip("| ").split(" | ")
        names = re.findall(r"`([A-Z_]{3,})`", registry + tests)
        files = re.findall(r"`(tests/test_\w+\.py)`", tests)
        assert files, row
        sources = "".join((ROOT / file).read_text() for file in files)
        of_its_own = tests.startswith(("a line in", "a test in"))
        assert of_its_own or any(re.search(rf"\b{n}\b", sources) for n in names), row
