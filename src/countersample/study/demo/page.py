"""A comparison as one HTML page that needs no network."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

from countersample._files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto;
        padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }}
img {{ max-width: 100%; background: white; border-radius: 4px; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: right; padding: .3rem .7rem; border-bottom: 1px solid #8886; }}
th:first-child, td:first-child {{ text-align: left; }}
pre {{ overflow-x: auto; padding: .7rem; background: #8882; border-radius: 4px; }}
footer {{ color: #888; font-size: .85rem; margin-top: 2rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
{paragraphs}
<p><img src="data:image/png;base64,{picture}" alt="{alt}"></p>
<div class="wide">
<table>
<thead><tr>{header}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
{notes}
<p>To repeat it:</p>
<pre>{command}</pre>
<footer>{footer}</footer>
</body>
</html>
"""


def write_page(
    path: Path,
    *,
    title: str,
    paragraphs: Sequence[str],
    picture: Path,
    alt: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    command: str,
    footer: str,
) -> None:
    """Write a page with some text, a picture, a table and the command that repeats it.

    All texts are plain and are escaped here.
    """
    page = _PAGE.format(
        title=escape(title),
        paragraphs=_paragraphs(paragraphs),
        picture=base64.b64encode(picture.read_bytes()).decode(),
        alt=escape(alt, quote=True),
        header="".join(f"<th>{escape(cell)}</th>" for cell in header),
        rows="\n".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        ),
        notes=_paragraphs(notes),
        command=escape(command),
        footer=escape(footer),
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _paragraphs(texts: Sequence[str]) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)
