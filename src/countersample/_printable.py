"""Text from files on a terminal: shown, not obeyed."""

from __future__ import annotations

# What steers a terminal (C0 without tab and line feed, DEL, C1) or turns the reading direction,
# written as JSON would, in which it says the same.
_SHOWN = {
    code: f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\t\n"
}


def printable(text: str) -> str:
    r"""Return a text that does nothing to a terminal but appear on it.

    Names, ids and lines of files are shown in tables and errors; in one of a stranger they could
    move the cursor, change what was printed, or set the title of the window.

    Examples
    --------
    >>> from countersample._printable import printable
    >>> print(printable("item \x1b[2J, naïve"))
    item \u001b[2J, naïve
    """
    return text.translate(_SHOWN)
