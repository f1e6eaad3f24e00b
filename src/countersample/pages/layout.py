"""Render pages and their parts with Jinja2: single files that need no network.

Templates are in ``templates/``: ``page.html`` is the frame of every page, ``parts.html`` has the
parts as macros. A package with pages of its own has templates that extend the frame, and renders
them with `render_template`. `render_part` and the functions below it render single parts for pages
that are put together in Python: they take plain text, which is escaped, and `content`, which is
HTML.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike

    from jinja2 import Environment
    from markupsafe import Markup

_PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}


@cache
def _environment(package: str) -> Environment:
    """Return the templates of a package, and those of this one."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    loaders = [PackageLoader(name) for name in dict.fromkeys((package, str(__package__)))]
    return Environment(
        loader=ChoiceLoader(loaders), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip


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
        What the template refers to: at least `title` and `kind`.
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

    Parameters
    ----------
    title : str
    content : sequence of str
        The parts in their order, as HTML.
    kind : str
        The kind of page, or the command that writes it: a line above the title.
    lead : str
        HTML below the title.
    contents : mapping of anchors to titles, optional
        The sections that a list beside the text links to.
    css : str
        The style of this kind of page, beside the common one.

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

    Examples
    --------
    >>> from countersample import pages
    >>> print(pages.paragraphs(["M < M̄", "", "Not so."]))
    <p>M &lt; M̄</p>
    <p>Not so.</p>
    """
    return render_part("paragraphs", texts)


def section(title: str, *content: str, name: str) -> str:
    """Return a part of the page with a heading; ``name`` is its anchor."""
    return render_part("section", title, name, content=content)


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and values, one line each.

    Examples
    --------
    >>> from countersample import pages
    >>> print(pages.facts([("clicks", "1,000")]))
    <dl class="facts"><div><dt>clicks</dt><dd>1,000</dd></div></dl>
    """
    return render_part("facts", rows)


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

    Examples
    --------
    >>> from countersample import pages
    >>> print(pages.table(["method", "nDCG@10"], [["IPS-SGD", "0.71"]], caption="After training"))
    <div class="scroll" tabindex="0" role="region" aria-label="After training">
    <table>
    <caption><span>After training</span></caption>
    <thead><tr><th scope="col">method</th><th scope="col">nDCG@10</th></tr></thead>
    <tbody>
    <tr><th scope="row">IPS-SGD</th><td>0.71</td></tr>
    </tbody>
    </table>
    </div>
    """
    return render_part("table", header, rows, caption)


def notebook_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = ""
) -> str:
    """Return a table without a box, for ``_repr_html_`` of results in notebooks."""
    return render_part("plain_table", header, rows, caption)
