"""`report.html`: verdicts, figures, tables and settings on one page that needs no network.

The data of the page is here, its layout in `templates/`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from countersample import pages
from countersample.study.tables import show_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from pathlib import Path

    from countersample.clicks import Diagnosis
    from countersample.study.claims import Verdict
    from countersample.study.tables import Table

_SIGNS = {"confirmed": "✓", "in part": "◐", "not confirmed": "✗", "open": "○"}
_ORIGINS = {"paper": "the paper", "code": "its code", "ours": "neither: ours"}
_SOURCES = {"paper": ("claims", "The paper’s claims"), "beyond": ("questions", "Beyond the paper")}


class Link(NamedTuple):
    """A file beside the page: its path from there, and a few words about it."""

    path: str
    text: str


class Figure(NamedTuple):
    """A picture in the page: an SVG or PNG file, a description, and its caption."""

    file: Path
    alt: str
    caption: str

    @property
    def html(self) -> str:
        """The picture as HTML that holds its data."""
        return pages.picture(self.file, self.alt, self.caption)


class LogDiagnosis(NamedTuple):
    """The statistics of the weights of a click log, and its title."""

    title: str
    diagnosis: Diagnosis

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The statistics, as names and texts."""
        log = self.diagnosis
        return [
            ("clicks", show_number(log.n_clicks, 0)),
            ("queries with a click", show_number(log.n_queries, 0)),
            ("query–item pairs", show_number(log.n_pairs, 0)),
            ("largest weight M", show_number(log.max_weight, 2)),
            ("mean weight M̄", show_number(log.mean_weight, 2)),
            (
                "(M/M̄)², ratio of the steps that the theorems need",
                show_number(log.predicted_gain, 1),
            ),
            (
                "clicks of equal weight with as much information",
                show_number(log.effective_clicks, 0),
            ),
            ("weight of the top 1 % of clicks", f"{100 * log.top_share:.1f} %"),
        ]

    @property
    def shares(self) -> list[tuple[str, str]]:
        """The share of the clicks per bin of weights; a share above 0 is not shown as 0."""
        rows = []
        for low, high, clicks in self.diagnosis.histogram:
            share = clicks / self.diagnosis.n_clicks
            text = "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
            rows.append((f"{low:,.0f}–{high:,.0f}", text))
        return rows


class SettingLine(NamedTuple):
    """A setting: its value here, its value in the paper, and the origin of the latter."""

    setting: str
    here: str
    paper: str
    origin: str = "paper"  # or "code", its authors', or "ours", if neither has it

    @property
    def differs(self) -> bool:
        """Whether this run departs from the paper."""
        return self.here != self.paper


@dataclass(frozen=True)
class Section:
    """One study; all texts are plain: the page escapes them."""

    name: str  # this and the next three are those of its grid
    title: str
    about: str  # a blank line begins a new paragraph
    paper: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    logs: tuple[LogDiagnosis, ...] = ()  # of its click logs
    files: tuple[Link, ...] = ()  # its tables, figures and data beside the page
    notes: tuple[str, ...] = ()

    @property
    def links(self) -> dict[str, list[Link]]:
        """The files by name."""
        return _group_links(self.files)


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
    commands: tuple[str, ...] = ()  # that repeat this report
    files: tuple[Link, ...] = ()  # those that belong to no section

    @property
    def links(self) -> dict[str, list[Link]]:
        """The files by name."""
        return _group_links(self.files)

    def setting_rows(self) -> list[tuple[str, str, str, str]]:
        """Return the settings here and in the paper, marked if they differ."""
        return [
            (line.setting, line.here, line.paper + " ≠" * line.differs, _ORIGINS[line.origin])
            for line in self.settings
        ]

    def count_differences(self) -> str:
        """Return a sentence on how many settings differ from the paper's."""
        n_different = sum(line.differs for line in self.settings)
        if not n_different:
            return "Every setting is the paper’s, or its authors’ code’s if the paper has none."
        verb = "differs" if n_different == 1 else "differ"
        return (
            f"{n_different} of {len(self.settings)} settings {verb} from the paper’s, or from its "
            "authors’ code’s if the paper has none; ≠ marks them."
        )


def _group_links(links: Iterable[Link]) -> dict[str, list[Link]]:
    """Return links by the name of the file without its ending: one file in several formats."""
    groups: dict[str, list[Link]] = {}
    for link in links:
        groups.setdefault(PurePosixPath(link.path).with_suffix("").as_posix(), []).append(link)
    return groups


def write_report(report: Report, path: str | PathLike[str]) -> None:
    """Write the page to `path`; an older one stays until the new one is complete."""
    pages.write_page(path, render_report(report))


def render_report(report: Report) -> str:
    """Return the page: one file without scripts and without links to the network."""
    verdicts = []
    for source, (name, title) in _SOURCES.items():
        some = [verdict for verdict in report.verdicts if verdict.source == source]
        studies: dict[str, dict[str, list[Verdict]]] = {}
        for verdict in some:
            studies.setdefault(verdict.study, {}).setdefault(verdict.claim, []).append(verdict)
        if some:
            verdicts.append((name, title, studies, Counter(each.outcome for each in some)))
    titles = {section.name: section.title for section in report.sections}
    contents = {"summary": "Summary"} | {name: title for name, title, *_ in verdicts}
    contents |= {f"study-{name}": title for name, title in titles.items()}
    contents |= {"logs": "The click logs"} if report.diagnoses else {}
    return pages.render_template(
        "countersample.study", "report.html",
        css=files("countersample.study").joinpath("report.css").read_text(encoding="utf-8"),
        title=report.title, kind="Reproduction report",
        contents=contents | {"run": "How it was run"},
        report=report, verdicts=verdicts, titles=titles, signs=_SIGNS,
    )  # fmt: skip
