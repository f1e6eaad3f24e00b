"""Text of others in Markdown: shown as it is, whatever it looks like."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*_<>\[\]|&~$#])")


def escape_markdown(text: str) -> str:
    r"""Return text for a line of Markdown that shows it as it is: no markup, no HTML, no new line.

    >>> from countersample.pages import escape_markdown
    >>> print(escape_markdown("<b>a_b</b>\n| c"))
    \<b\>a\_b\</b\> \| c
    """
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def code_span(text: str) -> str:
    r"""Return text as code within a line, or within a cell of a table.

    >>> from countersample.pages import code_span
    >>> print(code_span("a|b"), code_span("`c`"))
    `a\|b` `` `c` ``
    """
    shown = " ".join(text.split()).replace("|", "\\|")
    if "`" not in shown:
        return f"`{shown}`"
    fence = fence_of(shown, least=2)
    return f"{fence} {shown} {fence}"


def fence_of(text: str, *, least: int = 3) -> str:
    """Return as many backticks as a text does not have in a row, and so cannot end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
