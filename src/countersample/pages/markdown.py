"""Render Markdown with Jinja2, in which text of others is shown as it is."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from jinja2 import Environment

_MARKUP = re.compile(r"([\\`*_<>\[\]|&~$#])")


def render_markdown(package: str, template: str, **values: Any) -> str:  # noqa: ANN401
    """Return Markdown from a template in the folder ``templates`` of a package.

    A template has these filters: ``text`` escapes text, ``code`` shows it as code within a line,
    ``link`` links to a file, ``fenced(language)`` makes a block of code, ``shell`` and
    ``tojson_text`` quote text in code, ``count`` and ``percent`` format numbers.
    """
    return _environment(package).get_template(template).render(values)


def markdown_to_html(text: str) -> str:
    """Return Markdown as HTML; tags in it are shown as text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415

    html: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return html


@cache
def _environment(package: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader(package), trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined, autoescape=False,  # noqa: S701 (the result is not HTML)
    )  # fmt: skip
    environment.filters |= {
        "text": escape_markdown,
        "code": code_span,
        "link": lambda file: f"[{escape_markdown(file)}]({quote(file)})",
        "fenced": _fence,
        "shell": shlex.quote,
        "tojson_text": lambda text: json.dumps(text, ensure_ascii=False),
        "count": lambda number: f"{number:,}",
        "percent": lambda share: f"{share:+.1%}",
    }
    return environment


def escape_markdown(text: str) -> str:
    r"""Return text for a line of Markdown that shows it as it is: no markup, no HTML, no new line.

    >>> from countersample.pages import escape_markdown
    >>> print(escape_markdown("<b>a_b</b>\n| c"))
    \<b\>a\_b\</b\> \| c
    """
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))


def code_span(text: str) -> str:
    r"""Return text as code within a line, or within a cell of a table.

    >>> code_span("a|b"), code_span("`c`")
    ('`a\\|b`', '`` `c` ``')
    """
    line = " ".join(text.split()).replace("|", "\\|")
    return f"`{line}`" if "`" not in line else f"{_ticks(line, 2)} {line} {_ticks(line, 2)}"


def _fence(text: str, language: str) -> str:
    ticks = _ticks(text, 3)
    return f"{ticks}{language}\n{text.strip()}\n{ticks}\n"


def _ticks(text: str, least: int) -> str:
    """Return more backticks than the text has in a row."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
