"""`report.html`: verdicts, figures, tables and settings on one page that needs no network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from countersample import pages
from countersample.study.findings.tables import show_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from countersample.clicks import Diagnosis
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Entry, Group, Table

_CITE = (
    '<p class="cite">The paper: Rolf Jagerman and Maarten de Rijke. '
    '<a href="https://doi.org/10.1145/3397271.3401069">Accelerated Convergence for Counterfactual '
    "Learning to Rank</a>. SIGIR 2020.</p>"
)
_SIGNS = {"confirmed": "✓", "in part": "◐", "not confirmed": "✗", "open": "○"}
_ORIGINS = {"paper": "the paper", "code": "its code", "ours": "neither: ours"}
_ABOUT_LOGS = (
    "A click on an item that had probability p of being examined counts 1/p. The larger the "
    "largest weight M beside the mean weight M̄, the more is gained by drawing clicks in "
    "proportion to their weight instead of multiplying gradients by it."
)


# -- what the page shows -------------------------------------------------------------------------


class Link(NamedTuple):
    """A file beside the page: its path from there, and a few words about it."""

    path: str
    text: str


class Figure(NamedTuple):
    """A picture that is put into the page: an SVG or PNG file, what it shows, and its caption."""

    file: Path
    alt: str
    caption: str


class LogDiagnosis(NamedTuple):
    """The statistics of the weights of a click log, and its title."""

    title: str
    diagnosis: Diagnosis


class SettingLine(NamedTuple):
    """A setting: its value here, its value in the paper, and who set the latter."""

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


# -- the page ------------------------------------------------------------------------------------


def write_report(report: Report, path: str | PathLike[str]) -> None:
    """Write the page to `path`; an older one stays until the new one is complete."""
    pages.write_page(path, render_report(report))


def render_report(report: Report) -> str:
    """Return the page: one file without a program that asks the network for nothing."""
    parts = _parts(report)
    return pages.render_page(
        report.title,
        [pages.section(title, content, name=name) for name, title, content in parts],
        kind="Reproduction report",
        lead=_CITE,
        contents={name: title for name, title, _ in parts},
        css=files("countersample.study").joinpath("report.css").read_text(encoding="utf-8"),
    )


def _parts(report: Report) -> list[tuple[str, str, str]]:
    """Return the sections of the page: anchor, title, content."""
    titles = {section.name: section.title for section in report.sections}
    parts = [("summary", "Summary", pages.paragraphs(report.summary))]
    for source, name, title in (
        ("paper", "claims", "The paper’s claims"),
        ("beyond", "questions", "Beyond the paper"),
    ):
        verdicts = [verdict for verdict in report.verdicts if verdict.source == source]
        if verdicts:
            parts.append((name, title, _verdict_lists(verdicts, titles)))
    parts += [(f"study-{each.name}", each.title, _section(each)) for each in report.sections]
    if report.diagnoses:
        cards = pages.cards(*map(_diagnosis, report.diagnoses))
        parts.append(("logs", "The click logs", pages.paragraphs([_ABOUT_LOGS]) + cards))
    parts.append(("run", "How it was run", _how_it_was_run(report)))
    return parts


def _section(section: Section) -> str:
    source = f"Repeats {section.paper} of the paper." if section.paper else "Beyond the paper."
    first, *others = [render_table(table) for table in section.tables] or [""]
    title = "One more table" if len(others) == 1 else f"{len(others)} more tables"
    parts = [
        f'<p class="source">{escape(source)}</p>',
        pages.paragraphs(section.about.split("\n\n")),
        *(pages.picture(*each) for each in section.figures),
        first,
        pages.details(title, *others) if others else "",
        pages.paragraphs(section.notes),
        _file_list(section.files),
    ]
    return "\n".join(part for part in parts if part)


# -- verdicts ------------------------------------------------------------------------------------


def _verdict_lists(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> str:
    """Return the tally, then the claims by study, each with its verdict on every dataset."""
    by_study: dict[str, dict[str, list[Verdict]]] = {}
    for verdict in verdicts:
        by_study.setdefault(verdict.study, {}).setdefault(verdict.claim, []).append(verdict)
    counts = Counter[str](verdict.outcome for verdict in verdicts)
    tally = "".join(
        f'<li class="{_css_class(outcome)}"><b>{counts[outcome]}</b> {sign} {outcome}</li>'
        for outcome, sign in _SIGNS.items()
    )
    parts = [f'<ul class="tally">{tally}</ul>']
    for study, claims in by_study.items():
        title = escape(titles.get(study, study))
        if study in titles:
            title = f'<a href="#study-{escape(study)}">{title}</a>'
        items = "\n".join(_claim(claim, each) for claim, each in claims.items())
        parts.append(f'<h3>{title}</h3>\n<ul class="claims">\n{items}\n</ul>')
    return "\n".join(parts)


def _claim(claim: str, verdicts: Iterable[Verdict]) -> str:
    by_dataset = "\n".join(
        f'<li><span class="chip {_css_class(verdict.outcome)}">{_SIGNS[verdict.outcome]} '
        f"{verdict.outcome}</span> {verdict.dataset and f'<b>{escape(verdict.dataset)}</b> '}"
        f"<span>{escape(verdict.evidence)}</span></li>"
        for verdict in verdicts
    )
    return f'<li><p class="claim">{escape(claim)}</p>\n<ul>\n{by_dataset}\n</ul></li>'


def _css_class(outcome: str) -> str:
    return outcome.replace(" ", "-")


# -- tables --------------------------------------------------------------------------------------


def render_table(table: Table) -> str:
    """Return a table in the layout of the paper, in a box that scrolls if it is too wide."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    bodies = "\n".join(_group(group, len(table.columns)) for group in table.groups)
    rendered = f"""<table class="numbers" id="table-{escape(table.name)}">
<caption><span>{escape(table.caption)}</span></caption>
<thead><tr><th scope="col">{escape(table.axis)}</th>{head}</tr></thead>
{bodies}
</table>"""
    notes = pages.paragraphs(table.notes)
    return f'{pages.scroll_box(rendered, table.caption)}\n<div class="small">{notes}</div>'


def _group(group: Group, n_columns: int) -> str:
    title = ""
    if group.title:
        title = (
            f'<tr class="group"><th scope="rowgroup" colspan="{n_columns + 1}">'
            f"{escape(group.title)}</th></tr>\n"
        )
    rows = "\n".join(
        f'<tr><th scope="row">{escape(row.label)}</th>'
        + "".join(f"<td>{_entry(entry)}</td>" for entry in row.entries)
        + "</tr>"
        for row in group.rows
    )
    return f"<tbody>\n{title}{rows}\n</tbody>"


def _entry(entry: Entry) -> str:
    lines = [("ours", _marked(entry.shown, entry.mark))]
    spread = []
    if entry.half_width is not None:
        spread.append(f"±{show_number(entry.half_width, entry.digits)}")
    if entry.paper_mark:
        spread.append(f"t{entry.paper_mark}")
    lines.append(("spread", " ".join(spread)))
    if entry.published is not None:
        lines.append(("paper", f"paper {_marked(entry.shown_published, entry.published_mark)}"))
    lines.append(("note", escape(entry.note)))
    return "".join(f'<span class="{name}">{text}</span>' for name, text in lines if text)


def _marked(number: str, mark: str) -> str:
    """Return a number with its mark, which takes no width: digits stay aligned."""
    return f'{number}<span class="mark">{escape(mark)}</span>' if mark else number


# -- click logs, settings, files -----------------------------------------------------------------


def _diagnosis(log: LogDiagnosis) -> str:
    """Return the statistics of a click log, with the shares of its clicks by weight."""
    of_log = log.diagnosis
    facts = (
        ("clicks", show_number(of_log.n_clicks, 0)),
        ("queries with a click", show_number(of_log.n_queries, 0)),
        ("query–item pairs", show_number(of_log.n_pairs, 0)),
        ("largest weight M", show_number(of_log.max_weight, 2)),
        ("mean weight M̄", show_number(of_log.mean_weight, 2)),
        ("(M/M̄)², ratio of the steps the theorems ask for", show_number(of_log.predicted_gain, 1)),
        ("clicks of equal weight that tell as much", show_number(of_log.effective_clicks, 0)),
        ("weight held by the top 1 % of clicks", f"{100 * of_log.top_share:.1f} %"),
    )
    bins = [
        (f"{low:,.0f}–{high:,.0f}", _share(clicks / of_log.n_clicks))
        for low, high, clicks in of_log.histogram
    ]
    return pages.card(
        log.title,
        pages.paragraphs([of_log.verdict]),
        pages.facts(facts),
        pages.table(("weight", "share of clicks"), bins, caption=f"Clicks by weight, {log.title}"),
        level=3,
    )


def _share(share: float) -> str:
    """Return a share in percent; one that is not zero is not shown as zero.

    Examples
    --------
    >>> _share(0.125), _share(0.00001), _share(0)
    ('12.5 %', '< 0.1 %', '0.0 %')
    """
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _how_it_was_run(report: Report) -> str:
    parts = [_settings(report.settings)] if report.settings else []
    if report.commands:
        parts += ["<h3>To repeat it</h3>", pages.code("\n".join(report.commands))]
    if report.versions:
        parts += ["<h3>Versions</h3>", pages.facts(report.versions.items())]
    return "\n".join([*parts, _file_list(report.files)])


def _settings(lines: Sequence[SettingLine]) -> str:
    """Return the settings here and in the paper, marked if they differ."""
    n_different = sum(line.differs for line in lines)
    text = "Every setting is the paper’s, or its authors’ code’s where the paper has none."
    if n_different:
        verb = "differs" if n_different == 1 else "differ"
        text = (
            f"{n_different} of {len(lines)} settings {verb} from the paper’s, or from those of its "
            "authors’ code where the paper has none; ≠ marks them."
        )
    rows = [
        (line.setting, line.here, f"{line.paper}{' ≠' * line.differs}", _ORIGINS[line.origin])
        for line in lines
    ]
    header = ("Setting", "Here", "There", "Set there by")
    table = pages.table(header, rows, caption="Settings, here and in the paper")
    return f'{pages.paragraphs([text])}\n<div class="settings">{table}</div>'


def _file_list(links: Sequence[Link]) -> str:
    """Return links to files beside the page; the formats of one file together."""
    if not links:
        return ""
    by_name: dict[str, list[Link]] = {}
    for link in links:
        by_name.setdefault(PurePosixPath(link.path).with_suffix("").as_posix(), []).append(link)
    items = "".join(
        f"<li>{f'{escape(name)}: ' if len(each) > 1 else ''}{', '.join(map(_anchor, each))}</li>"
        for name, each in by_name.items()
    )
    return f'<h3>Files</h3>\n<ul class="files">{items}</ul>'


def _anchor(link: Link) -> str:
    return f'<a href="{escape(quote(link.path))}">{escape(link.text)}</a>'
