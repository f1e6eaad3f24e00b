"""The parts of the page: verdicts, tables of studies, diagnoses, how it was run."""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from countersample import pages
from countersample.study.findings.tables import show_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Entry, Group, Table
    from countersample.study.report.page import Link, LogDiagnosis, SettingLine

_SIGNS = {"confirmed": "✓", "in part": "◐", "not confirmed": "✗", "open": "○"}


def verdict_lists(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> str:
    """Return the tally, then the claims by study, each with its verdict on every dataset."""
    by_study: dict[str, dict[str, list[Verdict]]] = {}
    for verdict in verdicts:
        by_study.setdefault(verdict.study, {}).setdefault(verdict.claim, []).append(verdict)
    parts = [_tally(verdicts)]
    for study, claims in by_study.items():
        title = escape(titles.get(study, study))
        if study in titles:
            title = f'<a href="#study-{escape(study)}">{title}</a>'
        items = "\n".join(_claim(claim, given) for claim, given in claims.items())
        parts.append(f'<h3>{title}</h3>\n<ul class="claims">\n{items}\n</ul>')
    return "\n".join(parts)


def _tally(verdicts: Sequence[Verdict]) -> str:
    """Return how many verdicts there are of each outcome: a bar, and the numbers in words."""
    counts = Counter[str](verdict.outcome for verdict in verdicts)
    bars, left = [], 0
    for outcome in _SIGNS:
        width = counts[outcome]
        bars.append(f'<rect class="{_slug(outcome)}" x="{left}" width="{width}" height="1"/>')
        left += width
    numbers = "".join(
        f'<li class="{_slug(outcome)}"><b>{counts[outcome]}</b> <span>{sign} {outcome}</span></li>'
        for outcome, sign in _SIGNS.items()
    )
    return (
        f'<div class="tally"><ul>{numbers}</ul><svg viewBox="0 0 {left} 1" '
        f'preserveAspectRatio="none" aria-hidden="true">{"".join(bars)}</svg></div>'
    )


def _claim(claim: str, verdicts: Iterable[Verdict]) -> str:
    on_datasets = "\n".join(
        f'<li><span class="chip {_slug(verdict.outcome)}">{_SIGNS[verdict.outcome]} '
        f"{verdict.outcome}</span> {verdict.dataset and f'<b>{escape(verdict.dataset)}</b> '}"
        f"<span>{escape(verdict.evidence)}</span></li>"
        for verdict in verdicts
    )
    return f'<li><p class="claim">{escape(claim)}</p>\n<ul>\n{on_datasets}\n</ul></li>'


def _slug(outcome: str) -> str:
    return outcome.replace(" ", "-")


# -- tables --------------------------------------------------------------------------------------


def render_table(table: Table) -> str:
    """Return a table in the layout of the paper, in a box that scrolls if it is too wide."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    bodies = "\n".join(_group(group, len(table.columns)) for group in table.groups)
    notes = pages.paragraphs(table.notes)
    shown = f"""<table class="numbers" id="table-{escape(table.name)}">
<caption><span>{escape(table.caption)}</span></caption>
<thead><tr><th scope="col">{escape(table.axis)}</th>{head}</tr></thead>
{bodies}
</table>"""
    return f'{pages.scroll_box(shown, table.caption)}\n<div class="small">{notes}</div>'


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
    parts = [f'<span class="ours">{_marked(entry.shown, entry.mark)}</span>']
    small = []
    if entry.half_width is not None:
        small.append(f"±{show_number(entry.half_width, entry.digits)}")
    if entry.paper_mark:
        small.append(f"t{entry.paper_mark}")
    if small:
        parts.append(f'<span class="spread">{" ".join(small)}</span>')
    if entry.published is not None:
        published = _marked(entry.shown_published, entry.published_mark)
        parts.append(f'<span class="paper">paper {published}</span>')
    if entry.note:
        parts.append(f'<span class="note">{escape(entry.note)}</span>')
    return "".join(parts)


def _marked(number: str, mark: str) -> str:
    """Return a number; the mark hangs beside it, so that digits stay aligned."""
    return f'{number}<span class="mark">{escape(mark)}</span>' if mark else number


# -- the click logs ------------------------------------------------------------------------------


def diagnoses(logs: Sequence[LogDiagnosis]) -> str:
    """Return the statistics of each click log, with its weights as a histogram."""
    about = (
        "A click on an item that had probability p of being examined counts 1/p. The larger the "
        "largest weight M beside the mean weight M̄, the more is gained by drawing clicks in "
        "proportion to their weight instead of multiplying gradients by it."
    )
    return f"{pages.paragraphs([about])}\n{pages.cards(*map(_diagnosis, logs))}"


def _diagnosis(log: LogDiagnosis) -> str:
    found = log.diagnosis
    facts = (
        ("clicks", show_number(found.n_clicks, 0)),
        ("queries with a click", show_number(found.n_queries, 0)),
        ("query–item pairs", show_number(found.n_pairs, 0)),
        ("largest weight M", show_number(found.max_weight, 2)),
        ("mean weight M̄", show_number(found.mean_weight, 2)),
        ("(M/M̄)², ratio of the steps the theorems ask for", show_number(found.predicted_gain, 1)),
        ("clicks of equal weight that tell as much", show_number(found.effective_clicks, 0)),
        ("weight held by the top 1 % of clicks", f"{100 * found.top_share:.1f} %"),
    )
    return pages.card(
        log.title,
        pages.paragraphs([found.verdict]),
        pages.facts(facts),
        _histogram(found.histogram, found.n_clicks),
        level=3,
    )


def _histogram(bins: Sequence[tuple[float, float, float]], n_clicks: float) -> str:
    largest = max(clicks for _, _, clicks in bins)
    rows = "".join(
        f'<tr><th scope="row">{low:,.0f}–{high:,.0f}</th>'
        f'<td class="bar"><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{100 * clicks / largest:.2f}" height="10"/></svg></td>'
        f"<td>{_share(clicks / n_clicks)}</td></tr>"
        for low, high, clicks in bins
    )
    return (
        '<table class="histogram"><caption>Clicks by weight</caption><thead><tr>'
        '<th scope="col">weight</th><td></td><th scope="col">share of clicks</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _share(share: float) -> str:
    """Return a share in percent; one that is not zero is not shown as zero.

    Examples
    --------
    >>> _share(0.125), _share(0.00001), _share(0)
    ('12.5 %', '< 0.1 %', '0.0 %')
    """
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


# -- how it was run ------------------------------------------------------------------------------


_ORIGINS = {"paper": "the paper", "code": "its code", "ours": "neither: ours"}


def settings_table(lines: Sequence[SettingLine]) -> str:
    """Return the settings, here and in the paper, with a mark where they differ."""
    if not lines:
        return ""
    n_different = sum(line.differs for line in lines)
    words = "Every setting is the paper’s, or its authors’ code’s where the paper has none."
    if n_different:
        verb = "differs" if n_different == 1 else "differ"
        words = (
            f"{n_different} of {len(lines)} settings {verb} from the paper’s, or from those of its "
            "authors’ code where the paper has none; ≠ marks them."
        )
    rows = "\n".join(
        f'<tr{" class=differs" if line.differs else ""}><th scope="row">{escape(line.setting)}</th>'
        f"<td>{escape(line.here)}</td>"
        f"<td>{escape(line.paper)}{' <b>≠</b>' if line.differs else ''}</td>"
        f"<td>{_ORIGINS[line.origin]}</td></tr>"
        for line in lines
    )
    titles = ("Setting", "Here", "There", "Set there by")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    table = (
        '<table class="settings">\n'
        "<caption><span>Settings, here and in the paper</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
    )
    return f"<p>{words}</p>\n{pages.scroll_box(table, 'Settings')}\n"


def versions(given: Mapping[str, str], commands: Sequence[str]) -> str:
    """Return the commands that repeat the report and the versions it was made with."""
    parts = []
    if commands:
        parts += ["<h3>To repeat it</h3>", pages.code("\n".join(commands))]
    if given:
        parts += ["<h3>Versions</h3>", pages.facts(given.items())]
    return "\n".join(parts)


def file_list(links: Sequence[Link]) -> str:
    """Return links to files beside the page; those of one name in several formats together."""
    if not links:
        return ""
    by_name: dict[str, list[Link]] = {}
    for link in links:
        by_name.setdefault(PurePosixPath(link.path).with_suffix("").as_posix(), []).append(link)
    items = "".join(
        f"<li>{f'{escape(name)}: ' if len(given) > 1 else ''}{', '.join(map(_anchor, given))}</li>"
        for name, given in by_name.items()
    )
    return f'<h3>Files</h3>\n<ul class="files">{items}</ul>'


def _anchor(link: Link) -> str:
    return f'<a href="{escape(quote(link.path))}">{escape(link.text)}</a>'
