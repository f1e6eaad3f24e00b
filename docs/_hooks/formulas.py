r"""Turn the LaTeX of a page into MathML while the site is built: no script, no network.

Formulas are written ``$\pi_i m_i = v_i / N$`` or, on lines of their own, between ``$$``, which
GitHub shows, too. `pymdownx.arithmatex` finds them and leaves ``\(…\)`` and ``\[…\]``.
"""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

_FOUND = re.compile(
    r'<(?:span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL
)


def mathml(latex: str, *, block: bool = False) -> str:
    """Return a formula as MathML.

    Parameters
    ----------
    latex : str
    block : bool
        Whether it stands on a line of its own.
    """
    return convert(latex.strip(), display="block" if block else "inline")


def on_page_content(content: str, **_: object) -> str:
    """Replace what arithmatex has left in a page."""
    return _FOUND.sub(lambda found: mathml(html.unescape(found[2]), block=found[1] == "["), content)
