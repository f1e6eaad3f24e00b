"""The page: the report's parts as HTML, its style, its program and its data in one file."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path
from countersample.study.report.data import curves_data, toy_data
from countersample.study.report.table import render_table
from countersample.study.report.words import (
    diagnoses,
    file_list,
    paragraphs,
    protocol,
    verdict_lists,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from countersample.study.findings.tables import Table
    from countersample.study.report.model import Figure, Report, Section

_SCRIPTS = ("scales.js", "panel.js", "curves.js", "toy.js", "main.js")  # in the order they need
_PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}


def write_report(report: Report, path: str | PathLike[str]) -> None:
    """Write the page to `path`; an older one stays as it was until the new one is complete."""
    page = render_report(report)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render_report(report: Report) -> str:
    """Return the page: one file that asks the network for nothing."""
    css = _resource("report.css")
    js = "\n".join(_resource(name) for name in _SCRIPTS)
    parts = _parts(report)
    return Template(_resource("shell.html")).substitute(
        policy=_policy(css, js),
        title=escape(report.title),
        css=css,
        js=js,
        contents="\n".join(
            f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _ in parts
        ),
        body="\n".join(
            f'<section id="{name}" aria-labelledby="{name}-title">\n'
            f'<h2 id="{name}-title">{escape(title)}</h2>\n{content}\n</section>'
            for name, title, content in parts
        ),
        data=_embedded(_data(report)),
    )


def _parts(report: Report) -> list[tuple[str, str, str]]:
    """Return the sections of the page: anchor, title, content."""
    titles = {section.name: section.title for section in report.sections}
    parts = [("summary", "Summary", paragraphs(report.summary))]
    for source, name, title in (
        ("paper", "claims", "The paper’s claims"),
        ("beyond", "questions", "Beyond the paper"),
    ):
        given = [verdict for verdict in report.verdicts if verdict.source == source]
        if given:
            parts.append((name, title, verdict_lists(given, titles)))
    parts += [(_anchor(section), section.title, _section(section)) for section in report.sections]
    if report.diagnoses:
        parts.append(("logs", "The click logs", diagnoses(report.diagnoses)))
    how = protocol(report.protocol) + versions(report.versions, report.commands)
    parts.append(("run", "How it was run", how + file_list(report.files)))
    return parts


def _section(section: Section) -> str:
    repeats = f"Repeats {section.paper} of the paper." if section.paper else "Beyond the paper."
    parts = [f'<p class="source">{escape(repeats)}</p>', paragraphs(section.about.split("\n\n"))]
    if section.curves is not None:
        parts.append(f'<div class="curves" data-section="{escape(section.name)}"></div>')
    if section.toy is not None:
        parts.append(f'<div class="toy" data-section="{escape(section.name)}"></div>')
    parts += [_figure(figure) for figure in section.figures]
    parts.append(_tables(section.tables))
    parts += [paragraphs(section.notes), file_list(section.files)]
    return "\n".join(part for part in parts if part)


def _tables(tables: Sequence[Table]) -> str:
    """Return the first table, and the others folded away."""
    shown = "\n".join(render_table(table) for table in tables[:1])
    more = "\n".join(render_table(table) for table in tables[1:])
    if not more:
        return shown
    title = "One more table" if len(tables) == 2 else f"{len(tables) - 1} more tables"
    return f"{shown}\n<details>\n<summary>{title}</summary>\n{more}\n</details>"


def _figure(figure: Figure) -> str:
    kind = _PICTURES[figure.file.suffix]
    picture = base64.b64encode(figure.file.read_bytes()).decode()
    return (
        f'<figure class="picture"><img src="data:{kind};base64,{picture}" '
        f'alt="{escape(figure.alt)}"><figcaption>{escape(figure.caption)}</figcaption></figure>'
    )


def _anchor(section: Section) -> str:
    return f"study-{escape(section.name)}"


def _data(report: Report) -> dict[str, Any]:
    curves = {s.name: curves_data(s.curves) for s in report.sections if s.curves}
    toys = {s.name: toy_data(s.toy) for s in report.sections if s.toy}
    return {"curves": curves, "toys": toys}


def _embedded(data: Mapping[str, Any]) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _policy(css: str, js: str) -> str:
    """Return a policy that allows this style and this program, pictures in the page, no more."""
    style, script = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (css, js)
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style}'; "
        f"script-src 'sha256-{script}'; base-uri 'none'; form-action 'none'"
    )


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
