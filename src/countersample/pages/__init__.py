"""One look for every page and figure: templates, a style, charts.

Pages are single files that need no network. Functions take plain text and return HTML in which it
is escaped; parameters that are HTML already are called content.
"""

from countersample.pages.layout import (
    code,
    escape_markdown,
    markdown_to_html,
    notebook_table,
    paragraphs,
    picture,
    render_markdown,
    render_page,
    render_part,
    render_template,
    section,
    table,
    write_page,
)

__all__ = [
    "code", "escape_markdown", "markdown_to_html", "notebook_table", "paragraphs", "picture",
    "render_markdown", "render_page", "render_part", "render_template", "section", "table",
    "write_page",
]  # fmt: skip
