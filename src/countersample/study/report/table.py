"""Tables of a study as HTML: our numbers with the paper's below them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from countersample import pages
from countersample.study.findings.tables import show_number

if TYPE_CHECKING:
    from countersample.study.findings.tables import Entry, Group, Table


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
