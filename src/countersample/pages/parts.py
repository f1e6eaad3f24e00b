"""The parts of a page as HTML: paragraphs, boxes, cards, tables, pictures."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

Sign = Literal["good", "unsure", "bad"]
_PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}


def paragraphs(texts: Iterable[str]) -> str:
    """Return each text as a paragraph; empty ones are left out.

    Examples
    --------
    >>> from countersample import pages
    >>> print(pages.paragraphs(["M < M̄", "", "Not so."]))
    <p>M &lt; M̄</p>
    <p>Not so.</p>
    """
    return "\n".join(f"<p>{escape(text.strip())}</p>" for text in texts if text.strip())


def small(text: str) -> str:
    """Return a paragraph in small type."""
    return f'<p class="small">{escape(text)}</p>'


def notice(text: str, sign: Sign) -> str:
    """Return the one sentence that matters, in a box whose colour says how good it is."""
    return f'<div class="notice {sign}"><p>{escape(text)}</p></div>'


def warning_list(texts: Sequence[str]) -> str:
    """Return what is to be read first, as a list in a box; nothing where there is nothing."""
    if not texts:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<div class="warnings"><b>Look at this first</b><ul>{items}</ul></div>'


def section(title: str, *content: str, name: str) -> str:
    """Return a part of the page with a heading; ``name`` is its anchor."""
    anchor = escape(name)
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">\n'
        f'<h2 id="{anchor}-title">{escape(title)}</h2>\n{_joined(content)}\n</section>'
    )


def card(title: str, *content: str, level: Literal[2, 3] = 2) -> str:
    """Return a box with a heading of the given level."""
    return (
        f'<article class="card"><h{level}>{escape(title)}</h{level}>\n{_joined(content)}</article>'
    )


def cards(*content: str) -> str:
    """Return cards side by side, as many as the width allows."""
    return f'<div class="cards">\n{_joined(content)}\n</div>'


def details(title: str, *content: str) -> str:
    """Return what is folded away until somebody opens it."""
    return f"<details>\n<summary>{escape(title)}</summary>\n{_joined(content)}\n</details>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values, a line each.

    Examples
    --------
    >>> from countersample import pages
    >>> print(pages.facts([("clicks", "1,000")]))
    <dl class="facts"><div><dt>clicks</dt><dd>1,000</dd></div></dl>
    """
    lines = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs
    )
    return f'<dl class="facts">{lines}</dl>'


def code(text: str) -> str:
    """Return commands or code as they are typed."""
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def picture(path: str | PathLike[str], alt: str, caption: str = "") -> str:
    """Return a figure with a PNG or SVG file in it; ``alt`` is for those who cannot see it."""
    file = Path(path)
    content = base64.b64encode(file.read_bytes()).decode()
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure class="picture"><img src="data:{_PICTURES[file.suffix]};base64,{content}" '
        f'alt="{escape(alt)}">{told}</figure>'
    )


def scroll_box(content: str, label: str) -> str:
    """Return a box that scrolls sideways, and shows that it does, where its content is too wide."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">\n'
        f"{content}\n</div>"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str) -> str:
    """Return a table in a box of its own; the first cell of a row names it.

    Parameters
    ----------
    header : sequence of str
    rows : iterable of sequences of str
        Numbers as they are to be shown.
    caption : str

    Examples
    --------
    >>> from countersample import pages
    >>> print(pages.table(["method", "nDCG@10"], [["IPS-SGD", "0.71"]], caption="After training"))
    <div class="scroll" tabindex="0" role="region" aria-label="After training">
    <table>
    <caption><span>After training</span></caption>
    <thead><tr><th scope="col">method</th><th scope="col">nDCG@10</th></tr></thead>
    <tbody>
    <tr><th scope="row">IPS-SGD</th><td>0.71</td></tr>
    </tbody>
    </table>
    </div>
    """
    return scroll_box(notebook_table(header, rows, caption=caption), caption)


def notebook_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = ""
) -> str:
    """Return a bare table, for ``_repr_html_`` of what a notebook shows.

    Examples
    --------
    >>> from countersample import pages
    >>> print(pages.notebook_table(["position", "propensity"], [[1, 1.0]]))
    <table>
    <thead><tr><th scope="col">position</th><th scope="col">propensity</th></tr></thead>
    <tbody>
    <tr><th scope="row">1</th><td>1.0</td></tr>
    </tbody>
    </table>
    """
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "\n".join(
        f'<tr><th scope="row">{escape(str(first))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in others)
        + "</tr>"
        for first, *others in rows
    )
    told = f"<caption><span>{escape(caption)}</span></caption>\n" if caption else ""
    return f"<table>\n{told}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _joined(content: Iterable[str]) -> str:
    return "\n".join(part for part in content if part)
