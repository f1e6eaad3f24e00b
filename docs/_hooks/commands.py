"""Put what each command takes into the page of commands, as its ``--help`` says it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from typer.main import get_command

from countersample.cli.app import app

if TYPE_CHECKING:
    from click import Command, Parameter
    from mkdocs.structure.pages import Page


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replace the mark in commands.md."""
    if page.file.src_uri != "commands.md":
        return markdown
    return markdown.replace("<!-- the commands -->", described(get_command(app), "countersample"))


def described(command: Command, name: str) -> str:
    """Return the description of a command and of those below it, as Markdown."""
    below = getattr(command, "commands", {})
    if below:
        return "\n".join(described(part, f"{name} {word}") for word, part in below.items())
    takes = [p for p in command.params if p.name not in ("help", "install_completion")]
    arguments = [_usage(p) for p in takes if p.param_type_name == "argument"]
    rows = [f"| `{_name(p)}` | {_cell(p)} |" for p in takes]
    return "\n".join([
        f"## {name}", "", _plain(command.help), "",
        "```text", " ".join([name, *arguments, "[OPTIONS]"]), "```", "",
        "| takes | |", "|---|---|", *rows, "",
    ])  # fmt: skip


def _usage(parameter: Parameter) -> str:
    word = f"{parameter.name}{'...' if parameter.nargs != 1 else ''}".upper()
    return word if parameter.required else f"[{word}]"


def _name(parameter: Parameter) -> str:
    if parameter.param_type_name == "argument":
        return parameter.name.upper()
    return ", ".join(sorted(parameter.opts, key=len, reverse=True))


def _cell(parameter: Parameter) -> str:
    text = _plain(getattr(parameter, "help", "") or "")
    shown = parameter.default not in (None, "", False, ()) and not callable(parameter.default)
    default = f" Default: `{parameter.default}`." if shown else ""
    return f"{text}{' Required.' if parameter.required else default}"


def _plain(text: str | None) -> str:
    """Return help as one line that Markdown and HTML leave alone."""
    line = re.sub(r"\s+", " ", re.sub(r"\[/?\w+\]", "", text or "")).strip()
    return re.sub(r"([|<>*_])", r"\\\1", line)
