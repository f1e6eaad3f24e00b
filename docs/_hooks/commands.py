"""Put what each command takes into the page of commands, as its ``--help`` describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countersample.cli.app import app

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replace the mark in commands.md."""
    if page.file.src_uri != "commands.md":
        return markdown
    return markdown.replace("<!-- the commands -->", described())


def described() -> str:
    """Return the description of all commands, as Markdown."""
    return app.generate_docs(output_format="markdown", heading_level=2)
