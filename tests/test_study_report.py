"""What report.html says, and that a browser shows it in silence."""

import pytest
from html_pages import Page

from countersample.study.claims import Verdict
from countersample.study.grids import Grid
from countersample.study.report import (
    Figure,
    Report,
    Section,
    SettingLine,
    render_report,
    write_report,
)
from countersample.study.tables import Entry, Group, Row, Table

PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 120" width="400">
<polyline points="20,100 150,60 380,40" fill="none" stroke="#0072B2" stroke-width="2"/></svg>"""
OUTCOMES = {"confirmed": "✓", "in part": "◐", "not confirmed": "✗", "open": "○"}
FULL = Entry(0.336, 2, half_width=0.021, mark="▽", paper_mark="▽", published=0.41,
             published_mark="△", note="2 of 5 runs diverged")  # fmt: skip


def table_of(entry, columns=1):
    header = tuple(f"column {k}" for k in range(columns))
    rows = (Row("r", (entry,) * columns),)
    return Table("t", "Caption", "Axis", header, (Group("", rows),), ("Note.",))


def section_of(name, **parts):
    return Section(Grid(name, f"Study {name}", f"About {name}.", "regret"), **parts)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two studies: one with a verdict of each outcome and a wide table, one with a picture."""
    picture = tmp_path_factory.mktemp("report") / "weights.svg"
    picture.write_text(PICTURE)
    verdicts = tuple(
        Verdict("one", f"set {k}", "It is lower.", "paper", outcome, "By 2.")
        for k, outcome in enumerate(OUTCOMES)
    )
    files = {"figures/regret & more": ["figures/regret & more.pdf"]}
    return Report(
        title="Measured again",
        summary=("Short.",),
        sections=(
            section_of("one", verdicts=verdicts, tables=(table_of(FULL, 20),), files=files),
            section_of("two", figures=(Figure(picture, "A line that falls", "Curves."),)),
        ),
        settings=(SettingLine("clicks", "100,000", "1,000,000"), SettingLine("seeds", "5", "5")),
        versions={"Python": "3.11.2"},
        commands=("countersample reproduce",),
    )


@pytest.fixture(scope="module")
def page(report):
    return Page(render_report(report))


def test_every_part_is_there(report, page):
    titles = [h["text"] for h in page.all("h2")]
    assert titles == ["Summary", "The paper’s claims", "Study one", "Study two", "How it was run"]
    text = page.all("main")[0]["text"]
    assert all(expected in text for expected in (*report.summary, *report.commands, "3.11.2"))


def test_texts_are_escaped():
    nasty = '<b onclick="x">&</b></script><!--'
    table = Table(nasty, nasty, nasty, (nasty,), (Group(nasty, (Row(nasty, (FULL,)),)),), (nasty,))
    section = Section(
        Grid("mine", nasty, nasty, "regret", nasty), tables=(table,), notes=(nasty,),
        files={nasty: [nasty]}, verdicts=(Verdict("one", nasty, nasty, "paper", "open", nasty),),
    )  # fmt: skip
    report = Report(nasty, (nasty,), (section,), settings=(SettingLine(nasty, nasty, ""),),
                    versions={nasty: nasty}, commands=(nasty,))  # fmt: skip
    page = Page(render_report(report))  # balanced, so nothing broke out
    assert not [element for element in page.elements if "onclick" in element]
    assert page.all("h1")[0]["text"] == nasty


def test_each_claim_has_its_verdict_on_every_dataset(page):
    (claim,) = page.all("p", **{"class": "claim"})
    assert claim["text"] == "It is lower."
    chips = [e["text"] for e in page.elements if "chip" in e.get("class", "")]
    assert chips == [f"{sign} {outcome}" for outcome, sign in OUTCOMES.items()]


def test_the_papers_number_stands_below_ours():
    report = Report("A report", ("Short.",), (section_of("mine", tables=(table_of(FULL),)),))
    page = Page(render_report(report))
    spans = {s["class"]: s["text"] for s in page.all("span") if s.get("class", "mark") != "mark"}
    assert spans == {
        "ours": "0.34▽",
        "spread": "±0.02 t▽",
        "paper": "paper 0.41△",
        "note": "2 of 5 runs diverged",
    }


def test_differences_from_the_paper_are_marked(page):
    (row,) = [tr["text"] for tr in page.all("tr") if "100,000" in tr["text"]]
    assert row == "clicks100,0001,000,000 ≠the paper"


def test_links_to_files_are_relative_and_quoted(page):
    assert page.all("a", href="figures/regret%20%26%20more.pdf")


@pytest.mark.parametrize("width", [320, 1920])
def test_a_browser_shows_all_of_it_without_a_request(open_page, report, tmp_path, width):
    write_report(report, tmp_path / "report.html")
    page = open_page((tmp_path / "report.html").as_uri(), viewport={"width": width, "height": 800})
    widths = page.locator("img").evaluate_all("all => all.map(image => image.naturalWidth)")
    assert min(widths) > 0  # the policy of the page allows them
    assert page.evaluate("document.documentElement.scrollWidth") <= width
