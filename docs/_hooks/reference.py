"""Make the reference of what the docstrings say, and see that every public name is on a page."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.exceptions import PluginError

if TYPE_CHECKING:
    from markdown import Markdown
    from mkdocs.config.defaults import MkDocsConfig

_RULE = re.compile(r"=+( +=+)+$")


class SimpleTables(Extension):
    """The tables of docstrings, ruled by ``===  ===``, as tables of Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (the name that markdown calls)
        """Register it before anything else reads the lines."""
        md.preprocessors.register(_SimpleTables(md), "simple_tables", 100)


class _SimpleTables(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        rules = [at for at, line in enumerate(lines) if _RULE.match(line)]
        done, end = [], 0
        while len(rules) > 1:
            first, second, *rules = rules
            head, rows = [], lines[first + 1 : second]
            if rules and all(lines[second + 1 : rules[0]]):  # a third rule: those were the heading
                head, rows, second = rows, lines[second + 1 : rules[0]], rules.pop(0)
            columns = [found.span() for found in re.finditer(r"=+", lines[first])]
            width = len(columns)
            done += [*lines[end:first], "", *[_row(line, columns) for line in head or [""]]]
            done += ["|" + "---|" * width, *[_row(line, columns) for line in rows], ""]
            end = second + 1
        return done + lines[end:]


def _row(line: str, columns: list[tuple[int, int]]) -> str:
    last = len(columns) - 1
    cells = [line[a : b if at < last else None] for at, (a, b) in enumerate(columns)]
    return "| " + " | ".join(cell.strip().replace("|", r"\|") for cell in cells) + " |"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let docstrings be read with their tables."""
    config.markdown_extensions.append(SimpleTables())
    return config


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that a public name is missing from."""
    missing = []
    for page in sorted(Path(config.docs_dir, "reference").glob("*.md")):
        built = Path(config.site_dir, "reference", f"{page.stem}.html")
        for module in re.findall(r"^::: (countersample[\w.]*)$", page.read_text(), re.MULTILINE):
            names = [f"{module}.{n}" for n in getattr(resolve_name(module), "__all__", [])]
            missing += [n for n in names if not re.search(f'id="{n}[".]', built.read_text())]
    if missing:
        raise PluginError(f"public names that are on no page of the reference: {missing}")
