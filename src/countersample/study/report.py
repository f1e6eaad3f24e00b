"""`report.html`: verdicts, figures, tables and settings on one page that needs no network.

The data of the page is here, its layout in `templates/`. A kind of study returns a `Section`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from glob import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from countersample import pages
from countersample.study.tables import Table, write_table

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    from countersample.study.claims import Verdict
    from countersample.study.grids import Grid, Published
    from countersample.study.jobs import WorkList
    from countersample.study.sources import Study
    from countersample.study.store import Store

_SIGNS = {"confirmed": "✓", "in part": "◐", "not confirmed": "✗", "open": "○"}
_ORIGINS = {"paper": "the paper", "code": "its code", "ours": "neither: ours"}
_SOURCES = {"paper": ("claims", "The paper’s claims"), "beyond": ("questions", "Beyond the paper")}


class Figure(NamedTuple):
    """A picture in the page: an SVG or PNG file, a description, and its caption."""

    file: Path
    alt: str
    caption: str


class SettingLine(NamedTuple):
    """A setting: its value here, its value in the paper, and its origin."""

    setting: str
    here: str
    paper: str
    origin: str = "paper"  # or "code", its authors', or "ours", if neither has it


@dataclass(frozen=True)
class Section:
    """One study; all texts are plain: the page escapes them."""

    grid: Grid
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    # Its tables and figures beside the page: the paths of the formats, by name.
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The whole page."""

    title: str
    summary: tuple[str, ...]  # paragraphs
    sections: tuple[Section, ...]
    settings: tuple[SettingLine, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()  # that repeat this report
    files: Mapping[str, str] = field(default_factory=dict)  # of no section: path and description


@dataclass(frozen=True)
class Done:
    """Studies whose jobs are done."""

    work: WorkList
    store: Store
    published: Published  # the paper's numbers

    @property
    def figures(self) -> Path:
        """The folder of the figures."""
        return self.store.folder / "figures"

    def read(self, *name: Hashable) -> list[dict[str, Any]]:
        """Return the results of a study under a name (see `WorkList.keep`)."""
        return [self.store.read(job) for job in self.work.others[name]]

    def section(
        self, study: Study, tables: Sequence[Table], pictures: Sequence[tuple[str, str, str]] = (),
        **more: Any,  # noqa: ANN401
    ) -> Section:  # fmt: skip
        """Write the tables of a study, the main one first, and return its part of the report.

        A picture in the folder `figures` has a name, a description and a caption; without a caption
        it is linked, and not shown. `more` are other fields of `Section`.
        """
        folder = self.store.folder
        paths = [path for table in tables for path in write_table(table, folder / "tables")]
        for name, *_ in pictures:
            paths += sorted(self.figures.glob(f"{escape(name)}.*"))
        names: dict[str, list[str]] = {}
        for path in paths:
            relative = path.relative_to(folder)
            names.setdefault(relative.with_suffix("").as_posix(), []).append(relative.as_posix())
        figures = (Figure(self.figures / f"{n}.png", alt, words) for n, alt, words in pictures)
        shown = tuple(figure for figure in figures if figure.caption)
        return Section(study.grid, tuple(tables), shown, files=names, **more)


def write_report(report: Report, path: Path) -> None:
    """Write the page to `path`; an older one stays until the new one is complete."""
    pages.write_page(path, render_report(report))


def render_report(report: Report) -> str:
    """Return the page: one file without scripts and without links to the network."""
    verdicts = []
    for source, (name, title) in _SOURCES.items():
        some = [each for part in report.sections for each in part.verdicts if each.source == source]
        studies: dict[str, dict[str, list[Verdict]]] = {}
        for verdict in some:
            studies.setdefault(verdict.study, {}).setdefault(verdict.claim, []).append(verdict)
        if some:
            verdicts.append((name, title, studies, Counter(each.outcome for each in some)))
    titles = {section.grid.name: section.grid.title for section in report.sections}
    contents = {"summary": "Summary"} | {name: title for name, title, *_ in verdicts}
    contents |= {f"study-{name}": title for name, title in titles.items()}
    setting_rows = [
        (name, here, paper if here == paper else f"{paper} ≠", _ORIGINS[origin])
        for name, here, paper, origin in report.settings
    ]
    n_differing = sum(line.here != line.paper for line in report.settings)
    return pages.render_template(
        "countersample.study", "report.html",
        css=files("countersample.study").joinpath("report.css").read_text(encoding="utf-8"),
        title=report.title, kind="Reproduction report",
        contents=contents | {"run": "How it was run"}, report=report, verdicts=verdicts,
        titles=titles, signs=_SIGNS, picture=pages.picture, setting_rows=setting_rows,
        n_differing=n_differing,
    )  # fmt: skip
