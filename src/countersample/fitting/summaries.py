"""Render the summaries of results for a terminal, from ``templates/*.txt``."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from countersample import _text

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    """Return the templates, which may call the blocks of `countersample._text`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 (heavy)

    environment = Environment(  # noqa: S701 (plain text, not HTML)
        loader=PackageLoader("countersample.fitting"), extensions=["jinja2.ext.do"],
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
    )  # fmt: skip
    environment.globals |= {"pairs": partial(_text.pairs, indent=0), "table": _text.table}
    environment.filters["paragraph"] = _text.paragraph
    return environment


def render_summary(template: str, **values: Any) -> str:  # noqa: ANN401 (of any result)
    """Return the text of a template with these values; warnings are paragraphs at its end."""
    text = _environment().get_template(template).render(values).strip("\n")
    warnings = _text.warning_paragraphs(values.get("warnings", ()))
    return "\n".join([text, "", *warnings] if warnings else [text])
