"""What report.html says and how it is built, apart from what a browser makes of it."""

import numpy as np
import pytest
from conftest import SEED
from html_pages import Page
from made_report import made_report

from countersample.study.claims import Verdict
from countersample.study.grids import Grid
from countersample.study.report import (
    Report,
    Section,
    SettingLine,
    render_report,
    write_report,
)
from countersample.study.tables import Entry, Group, Row, Table


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return made_report(np.random.default_rng(SEED), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(report):
    return Page(render_report(report))


def section_with(**parts):
    section = Section(Grid("mine", "My study", "About it.", "regret"), **parts)
    return Report(title="A report", summary=("Short.",), sections=(section,))


class TestPage:
    def test_nothing_is_fetched(self, page):
        assert not page.all("link")
        assert not page.all("script")
        assert all(
            image["src"].startswith("data:image/svg+xml;base64,") for image in page.all("img")
        )
        css = page.all("style")[0]["text"]
        assert "url(" not in css
        assert "@import" not in css

    def test_names_are_used_once_and_contents_lead_somewhere(self, page):
        ids = [element["id"] for element in page.elements if "id" in element]
        assert len(ids) == len(set(ids))
        links = [a["href"][1:] for a in page.all("a") if a["href"].startswith("#")]
        assert len(links) > 9
        assert set(links) <= set(ids)

    def test_tables_have_captions_and_pictures_descriptions(self, page):
        assert page.all("html")[0]["lang"] == "en"
        assert len(page.all("caption")) == len(page.all("table")) > 3
        assert all(image["alt"] for image in page.all("img"))
        assert all("scope" in th for th in page.all("th"))

    def test_every_part_is_there(self, report, page):
        titles = [h["text"] for h in page.all("h2")]
        studies = [section.grid.title for section in report.sections]
        assert titles == ["Summary", "The paper’s claims", "Beyond the paper", *studies,
                          "How it was run"]  # fmt: skip
        text = page.all("main")[0]["text"]
        assert all(expected in text for expected in (*report.summary, *report.commands, "3.11.2"))

    def test_parts_that_are_not_given_leave_no_trace(self):
        page = Page(render_report(section_with()))
        assert [h["text"] for h in page.all("h2")] == ["Summary", "My study", "How it was run"]
        assert not page.all("table")

    def test_texts_are_escaped(self):
        nasty = '<b onclick="x">&</b></script><!--'
        group = Group(nasty, (Row(nasty, (Entry(1.0, note=nasty),)),))
        section = Section(
            Grid("mine", nasty, nasty, "regret", nasty),
            tables=(Table(nasty, nasty, nasty, (nasty,), (group,), (nasty,)),),
            notes=(nasty,),
            files={nasty: [nasty]},
            verdicts=(Verdict("mine", nasty, nasty, "paper", "in part", nasty),),
        )
        report = Report(
            nasty,
            (nasty,),
            (section,),
            settings=(SettingLine(nasty, nasty, ""),),
            versions={nasty: nasty},
            commands=(nasty,),
        )
        page = Page(render_report(report))  # balanced, so nothing broke out
        assert not [e for e in page.elements if "onclick" in e]
        assert page.all("h1")[0]["text"] == nasty


class TestVerdicts:
    def test_each_claim_has_its_verdict_on_every_dataset(self, report, page):
        verdicts = [verdict for section in report.sections for verdict in section.verdicts]
        claims = [p["text"] for p in page.all("p", **{"class": "claim"})]
        assert claims == list(dict.fromkeys(verdict.claim for verdict in verdicts))
        chips = [e["text"].split(" ", 1) for e in page.elements if "chip" in e.get("class", "")]
        assert [outcome for _, outcome in chips] == [v.outcome for v in verdicts]
        signs = {"confirmed": "✓", "in part": "◐", "not confirmed": "✗", "open": "○"}
        assert all(sign == signs[outcome] for sign, outcome in chips)

    def test_a_verdict_may_be_about_no_dataset(self):
        toy = Verdict("toy", "", "It is nearer.", "paper", "confirmed", "By 2.")
        page = Page(render_report(section_with(verdicts=(toy,))))
        items = [" ".join(li["text"].split()) for li in page.all("li")]
        assert "✓ confirmed By 2." in items


class TestTables:
    def entry(self, entry):
        table = Table(
            "t", "Caption", "Axis", ("c",), (Group("", (Row("r", (entry,)),)),), ("Note.",)
        )
        page = Page(render_report(section_with(tables=(table,))))
        (cell,) = page.all("td")
        spans = {
            s["class"]: s["text"] for s in page.all("span") if s.get("class", "mark") != "mark"
        }
        assert cell["text"] == "".join(spans.values())
        return spans

    def test_the_papers_number_stands_below_ours(self):
        entry = Entry(0.336, 2, half_width=0.021, mark="▽", paper_mark="▽", published=0.41,
                      published_mark="△", note="2 of 5 runs diverged")  # fmt: skip
        assert self.entry(entry) == {
            "ours": "0.34▽",
            "spread": "±0.02 t▽",
            "paper": "paper 0.41△",
            "note": "2 of 5 runs diverged",
        }

    def test_only_the_first_table_of_a_study_is_unfolded(self, page):
        (folded,) = page.all("details")
        assert folded["text"].strip().startswith("One more table")
        assert "learning rates chosen on validation data" in folded["text"]
        assert "average regret" not in folded["text"]


class TestHowItWasRun:
    def test_differences_from_the_paper_are_marked(self, page):
        (row,) = [tr["text"] for tr in page.all("tr") if "100,000" in tr["text"]]
        assert row == "clicks of a log100,0001,000,000 ≠the paper"
        assert "1 of 3 settings differs from the paper’s" in " ".join(
            page.all("main")[0]["text"].split()
        )

    def test_links_to_files_are_relative_and_quoted(self, page):
        hrefs = {a["text"]: a["href"] for a in page.all("a")}
        assert hrefs["csv"] == "tables/regret.csv"
        assert hrefs["pdf"] == "figures/regret%20%26%20more.pdf"

    def test_formats_of_one_file_stand_together(self, page):
        items = [li["text"] for li in page.all("li")]
        assert "tables/regret: csv, tex" in items
        assert "every evaluation point as Parquet" in items


class TestWriting:
    def test_the_file_is_the_page_byte_by_byte_each_time(self, report, tmp_path):
        write_report(report, tmp_path / "report.html")
        assert (tmp_path / "report.html").read_bytes().decode() == render_report(report)
