"""The page: what it shows, and its parts on the page kit with its program and its data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from countersample import pages
from countersample.study.report.data import curves_data, toy_data
from countersample.study.report.parts import (
    diagnoses,
    file_list,
    render_table,
    settings_table,
    verdict_lists,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from countersample.clicks import Diagnosis
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Table
    from countersample.study.results import StudyResult

_SCRIPTS = ("scales.js", "panel.js", "curves.js", "toy.js", "main.js")  # in the order they need
_CITE = (
    '<p class="cite">The paper: Rolf Jagerman and Maarten de Rijke. '
    '<a href="https://doi.org/10.1145/3397271.3401069">Accelerated Convergence for Counterfactual '
    "Learning to Rank</a>. SIGIR 2020.</p>"
)
_NO_SCRIPT = (
    '<noscript><p class="notice unsure">Without JavaScript this page shows its text and tables; '
    "the curves and the toy example stay empty. The files linked below each study have the "
    "figures.</p></noscript>"
)


class Link(NamedTuple):
    """A file beside the page: its path from there, and what it is in a few words."""

    path: str
    text: str


class Figure(NamedTuple):
    """A picture that is put into the page: an SVG or PNG file, what it shows, and its caption."""

    file: Path
    alt: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One study; all texts are plain: the page escapes them."""

    name: str  # this and the next three are those of its grid
    title: str
    about: str  # a blank line begins a new paragraph
    paper: str = ""
    tables: tuple[Table, ...] = ()
    # Drawn as interactive learning curves and, where the axis is numeric, as regret against it.
    curves: StudyResult | None = None
    toy: Mapping[str, Any] | None = None  # see `toy_for_page`
    figures: tuple[Figure, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    logs: tuple[LogDiagnosis, ...] = ()  # of its click logs
    files: tuple[Link, ...] = ()  # its tables, figures and data beside the page
    notes: tuple[str, ...] = ()


class LogDiagnosis(NamedTuple):
    """A click log by name and the statistics of its weights."""

    title: str
    diagnosis: Diagnosis


class SettingLine(NamedTuple):
    """A setting in words: what it was here, what it is in the paper, and who says so."""

    setting: str
    here: str
    paper: str
    origin: str = "paper"  # or "code", its authors', or "ours", where neither says

    @property
    def differs(self) -> bool:
        """Whether this run departs from the paper."""
        return self.here != self.paper


@dataclass(frozen=True)
class Report:
    """The whole page."""

    title: str
    summary: tuple[str, ...]  # paragraphs; see `summarize`
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
    diagnoses: tuple[LogDiagnosis, ...] = ()
    settings: tuple[SettingLine, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()  # what repeats this report
    files: tuple[Link, ...] = ()  # those that belong to no section


def write_report(report: Report, path: str | PathLike[str]) -> None:
    """Write the page to `path`; an older one stays as it was until the new one is complete."""
    pages.write_page(path, render_report(report))


def render_report(report: Report) -> str:
    """Return the page: one file that asks the network for nothing."""
    parts = _parts(report)
    return pages.render_page(
        report.title,
        [_NO_SCRIPT, *(pages.section(title, text, name=name) for name, title, text in parts)],
        kind="Reproduction report",
        lead=_CITE,
        contents={name: title for name, title, _ in parts},
        css=_resource("report.css"),
        data=_data(report),
        js="\n".join(map(_resource, _SCRIPTS)),
    )


def _parts(report: Report) -> list[tuple[str, str, str]]:
    """Return the sections of the page: anchor, title, content."""
    titles = {section.name: section.title for section in report.sections}
    parts = [("summary", "Summary", pages.paragraphs(report.summary))]
    for source, name, title in (
        ("paper", "claims", "The paper’s claims"),
        ("beyond", "questions", "Beyond the paper"),
    ):
        given = [verdict for verdict in report.verdicts if verdict.source == source]
        if given:
            parts.append((name, title, verdict_lists(given, titles)))
    parts += [(f"study-{each.name}", each.title, _section(each)) for each in report.sections]
    if report.diagnoses:
        parts.append(("logs", "The click logs", diagnoses(report.diagnoses)))
    how = settings_table(report.settings) + versions(report.versions, report.commands)
    parts.append(("run", "How it was run", how + file_list(report.files)))
    return parts


def _section(section: Section) -> str:
    repeats = f"Repeats {section.paper} of the paper." if section.paper else "Beyond the paper."
    name = escape(section.name)
    parts = [
        f'<p class="source">{escape(repeats)}</p>',
        pages.paragraphs(section.about.split("\n\n")),
        f'<div class="curves" data-section="{name}"></div>' if section.curves is not None else "",
        f'<div class="toy" data-section="{name}"></div>' if section.toy is not None else "",
        *(pages.picture(*each) for each in section.figures),
        _tables(section.tables),
        pages.paragraphs(section.notes),
        file_list(section.files),
    ]
    return "\n".join(part for part in parts if part)


def _tables(tables: Sequence[Table]) -> str:
    """Return the first table, and the others folded away."""
    rendered = [render_table(table) for table in tables]
    if len(tables) < 2:
        return "".join(rendered)
    title = "One more table" if len(tables) == 2 else f"{len(tables) - 1} more tables"
    return f"{rendered[0]}\n{pages.details(title, *rendered[1:])}"


def _data(report: Report) -> str:
    curves = {s.name: curves_data(s.curves) for s in report.sections if s.curves}
    toys = {s.name: toy_data(s.toy) for s in report.sections if s.toy}
    return json.dumps(
        {"curves": curves, "toys": toys},
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
