"""What the report shows, apart from how the page is built.

All texts are plain: the page escapes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from countersample.clicks import Diagnosis
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Table
    from countersample.study.results import StudyResult


@dataclass(frozen=True)
class Link:
    """A file beside the page: its path from there, and what it is in a few words."""

    path: str
    text: str


@dataclass(frozen=True)
class Figure:
    """A picture that is put into the page: an SVG or PNG file, what it shows, and its caption."""

    file: Path
    alt: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One study.

    Attributes
    ----------
    name : str
        That of its grid; verdicts refer to it.
    title, about : str
        A blank line in `about` begins a new paragraph.
    paper : str
        Which table and figure of the paper it repeats; empty: beyond the paper.
    tables : tuple of Table
    curves : StudyResult, optional
        Drawn as interactive learning curves and, where the axis is numeric, as regret against it.
    toy : mapping, optional
        The two-weight example, see `countersample.study.findings.toy.toy_for_page`.
    figures : tuple of Figure
    verdicts : tuple of Verdict
    logs : tuple of LogDiagnosis
        Of its click logs.
    files : tuple of Link
        Its tables, figures and data beside the page.
    notes : tuple of str
    """

    name: str
    title: str
    about: str
    paper: str = ""
    tables: tuple[Table, ...] = ()
    curves: StudyResult | None = None
    toy: Mapping[str, Any] | None = None
    figures: tuple[Figure, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    logs: tuple[LogDiagnosis, ...] = ()
    files: tuple[Link, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogDiagnosis:
    """A click log by name and the statistics of its weights."""

    title: str
    diagnosis: Diagnosis


@dataclass(frozen=True)
class SettingLine:
    """A setting in words: what it was here and what it is in the paper."""

    setting: str
    here: str
    paper: str

    @property
    def differs(self) -> bool:
        """Whether this run departs from the paper."""
        return self.here != self.paper


@dataclass(frozen=True)
class Report:
    """The whole page.

    Attributes
    ----------
    title : str
    summary : tuple of str
        Paragraphs; see `summarize`.
    verdicts : tuple of Verdict
    sections : tuple of Section
    diagnoses : tuple of LogDiagnosis
    settings : tuple of SettingLine
    versions : mapping of str to str
        Of this package, Python and what numbers depend on.
    commands : tuple of str
        What repeats this report.
    files : tuple of Link
        Those that belong to no section.
    """

    title: str
    summary: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
    diagnoses: tuple[LogDiagnosis, ...] = ()
    settings: tuple[SettingLine, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    files: tuple[Link, ...] = ()
