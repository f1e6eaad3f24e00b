"""Render pages, their parts and Markdown with Jinja2: single files that need no network.

A package has its templates in ``templates/``. Here ``page.html`` is the frame of every page, and
``parts.html`` has the parts as macros: `render_part` and the functions below it render single parts
for pages that are put together in Python. Text is escaped; parameters that are HTML already are
called content. Control characters, and those that turn the direction of text, are shown as codes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from countersample._files import atomic_path
from countersample._progress import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike

    from jinja2 import Environment
    from markupsafe import Markup

_PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}
_MARKUP = re.compile(r"([\\`*_<>\[\]|&~$#])")


@cache
def _environment(package: str) -> Environment:
    """Return the templates of a package, and the templates of this one."""
    import jinja2  # noqa: PLC0415

    loaders = [jinja2.PackageLoader(each) for each in dict.fromkeys((package, str(__package__)))]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, autoescape=jinja2.select_autoescape(),
        finalize=_show_controls,
    )  # fmt: skip
    environment.filters |= {
        "text": escape_markdown,
        "code": code_span,
        "link": lambda file: f"[{escape_markdown(file)}]({quote(file)})",
        "fenced": _fence,
        "shell": shlex.quote,
        "string": partial(json.dumps, ensure_ascii=False),
        "count": lambda number: f"{number:,}",
        "percent": lambda share: f"{share:+.1%}",
    }
    return environment


def _show_controls(value: Any) -> Any:  # noqa: ANN401 (any value of a template)
    """Return text with the code of each character that would be obeyed instead of shown."""
    return type(value)(printable(value)) if isinstance(value, str) else value


# -- pages -----------------------------------------------------------------------------------------


def render_template(package: str, template: str, *, css: str = "", **values: Any) -> str:  # noqa: ANN401
    """Return a page from a package's template, which extends ``page.html``.

    Parameters
    ----------
    package : str
        The package whose folder ``templates`` has the template, such as ``countersample.fitting``.
    template : str
        Its file name.
    css : str
        The style of this kind of page, beside the common one. The page's policy allows these styles
        and pictures in the page, and no program.
    values
        What the template refers to: at least `title` and `kind`, a line above the title.
    """
    style = files(__package__).joinpath("style.css").read_text("utf-8") + css
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    frame = {"lead": "", "contents": None, "css": _html([style]), "policy": _html([policy])}
    return _environment(package).get_template(template).render(frame | values)


def render_page(
    title: str,
    content: Sequence[str],
    *,
    kind: str,
    lead: str = "",
    contents: Mapping[str, str] | None = None,
    css: str = "",
) -> str:
    """Return a page of parts that are rendered already.

    `lead` is HTML below the title; `contents` has anchors and titles of sections, for a list of
    links beside the text. For the rest see `render_template`.

    Examples
    --------
    >>> from countersample import pages
    >>> page = pages.render_page("Clicks & ranks", [pages.paragraphs(["Short."])], kind="a note")
    >>> "<h1>Clicks &amp; ranks</h1>" in page
    True
    """
    return render_template(
        str(__package__), "page.html", title=title, kind=kind, lead=_html([lead]),
        content=[_html([part]) for part in content], contents=contents, css=css,
    )  # fmt: skip


def write_page(path: str | PathLike[str], page: str) -> None:
    """Write a page; an older one stays until the new one is complete."""
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _html(content: Iterable[str]) -> Markup:
    from markupsafe import Markup  # noqa: PLC0415

    return Markup("\n".join(part for part in content if part))  # noqa: S704 (HTML by contract)


# -- parts -----------------------------------------------------------------------------------------


def render_part(
    name: str,
    *arguments: Any,  # noqa: ANN401 (of the macro)
    content: Iterable[str] | None = None,
) -> str:
    """Return a macro of ``parts.html`` as HTML; `content` is the HTML within it."""
    macro = getattr(_environment(str(__package__)).get_template("parts.html").module, name)
    caller = {} if content is None else {"caller": lambda: _html(content)}
    return str(macro(*arguments, **caller)).strip()


def paragraphs(texts: Iterable[str]) -> str:
    """Return each text as a paragraph; empty ones are left out.

    >>> paragraphs(["M < M̄", ""])
    '<p>M &lt; M̄</p>'
    """
    return render_part("paragraphs", texts)


def section(title: str, *content: str, name: str) -> str:
    """Return a part of the page with a heading; ``name`` is its anchor."""
    return render_part("section", title, name, content=content)


def code(text: str) -> str:
    """Return commands or code as they are typed."""
    return render_part("code", text)


def picture(path: str | PathLike[str], alt: str, caption: str = "") -> str:
    """Return a figure with a PNG or SVG file in it; ``alt`` describes it in words."""
    file = Path(path)
    content = base64.b64encode(file.read_bytes()).decode()
    return render_part("picture", f"data:{_PICTURES[file.suffix]};base64,{content}", alt, caption)


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str) -> str:
    """Return a table in a scroll box; the first cell of a row is its heading.

    Numbers are formatted by the caller.

    >>> text = table(["method", "nDCG@10"], [["IPS-SGD", "0.71"]], caption="After training")
    >>> '<tr><th scope="row">IPS-SGD</th><td>0.71</td></tr>' in text
    True
    """
    return render_part("table", header, rows, caption)


def notebook_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = ""
) -> str:
    """Return a table without a box, for ``_repr_html_`` of results in notebooks."""
    return render_part("plain_table", header, rows, caption)


# -- Markdown --------------------------------------------------------------------------------------


def render_markdown(package: str, template: str, **values: Any) -> str:  # noqa: ANN401
    """Return Markdown from a template of a package.

    It has these filters: ``text`` escapes text, ``code`` shows it as code within a line, ``link``
    links to a file, ``fenced(language)`` makes a block of code, ``shell`` and ``string`` quote text
    in code, ``count`` and ``percent`` format numbers.
    """
    return _environment(package).get_template(template).render(values)


def markdown_to_html(text: str) -> str:
    """Return Markdown as HTML; tags in it are shown as text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415

    html: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return html


def escape_markdown(text: str) -> str:
    r"""Return text for a line of Markdown that shows it as it is: no markup, no HTML, no new line.

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
