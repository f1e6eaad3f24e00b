"""One look for every page and figure: templates, a style, charts.

Pages are single files that need no network. Functions take plain text and return HTML in which it
is escaped; parameters that are HTML already are called content.
"""

from countersample.pages.layout import (
    code,
    facts,
    notebook_table,
    paragraphs,
    picture,
    render_page,
    render_part,
    render_template,
    section,
    table,
    write_page,
)
from countersample.pages.markdown import code_span, escape_markdown, fence_of

__all__ = [
    "code",
    "code_span",
    "escape_markdown",
    "facts",
    "fence_of",
    "notebook_table",
    "paragraphs",
    "picture",
    "render_page",
    "render_part",
    "render_template",
    "section",
    "table",
    "write_page",
]
