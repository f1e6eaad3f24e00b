"""A page around its parts: head, style, title, contents; one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from countersample._files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
{skip}<header>
<p class="eyebrow">{kind}</p>
<h1>{title}</h1>
{lead}
</header>
<div class="layout{layout}">
{contents}<main id="main">
{body}
</main>
</div>
</body>
</html>
"""


def render_page(
    title: str,
    content: Sequence[str],
    *,
    kind: str,
    lead: str = "",
    contents: Mapping[str, str] | None = None,
    css: str = "",
) -> str:
    """Return a whole page.

    Parameters
    ----------
    title : str
    content : sequence of str
        The parts in their order, as HTML.
    kind : str
        What kind of page it is, or the command that writes it: a line above the title.
    lead : str
        HTML below the title.
    contents : mapping of anchors to titles, optional
        The sections that a list beside the text leads to.
    css : str
        What this kind of page needs beside the common style. A policy in the page allows this
        style, and no program.

    Examples
    --------
    >>> from countersample import pages
    >>> page = pages.render_page("Clicks & ranks", [pages.paragraphs(["Short."])], kind="a note")
    >>> "<h1>Clicks &amp; ranks</h1>" in page
    True
    """
    style = files(__package__).joinpath("style.css").read_text("utf-8") + css
    return _PAGE.format(
        policy=_policy(style),
        title=escape(title),
        css=style,
        kind=escape(kind),
        lead=lead,
        skip='<a class="skip" href="#main">To the text</a>\n' if contents else "",
        layout=" beside" if contents else "",
        contents=_contents(contents) if contents else "",
        body="\n".join(part for part in content if part),
    )


def write_page(path: str | PathLike[str], page: str) -> None:
    """Write a page; an older one stays as it was until the new one is complete."""
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _contents(contents: Mapping[str, str]) -> str:
    items = "\n".join(
        f'<li><a href="#{escape(name)}">{escape(title)}</a></li>'
        for name, title in contents.items()
    )
    return f'<nav aria-label="Contents">\n<ul>\n{items}\n</ul>\n</nav>\n'


def _policy(css: str) -> str:
    """Return a policy that allows this style and pictures in the page, and no more."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
