"""One look for every page and figure: a style, a shell, tables, drawings.

Pages are single files that ask the network for nothing. Functions take plain text, and return HTML
in which it is escaped; what is HTML already is called content. It knows no logs and no rankers.
"""

from countersample.pages.markdown import code_span, escape_markdown, fence_of
from countersample.pages.parts import (
    Sign,
    card,
    cards,
    code,
    details,
    facts,
    notebook_table,
    notice,
    paragraphs,
    picture,
    scroll_box,
    section,
    small,
    table,
    warning_list,
)
from countersample.pages.shell import render_page, write_page

__all__ = [
    "Sign",
    "card",
    "cards",
    "code",
    "code_span",
    "details",
    "escape_markdown",
    "facts",
    "fence_of",
    "notebook_table",
    "notice",
    "paragraphs",
    "picture",
    "render_page",
    "scroll_box",
    "section",
    "small",
    "table",
    "warning_list",
    "write_page",
]
