"""What is not written by hand: the gallery, the samples, and pages of the repository's own files.

The gallery runs the scripts of docs/gallery. The samples are what commands write. Both are made
once in a process, so that ``mkdocs serve`` does not make them at each change.
"""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "docs" / "gallery").glob("*.py"))
_OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")

# The commands that make the samples, in order, in one folder; and what they leave there for the
# site: pages, and the folders that pages link into.
COMMANDS = (
    "examples/make_shop_log.py shop",
    "-m countersample fit shop/impressions.parquet --features shop/features.parquet -o ranker.json",
    "-m countersample reproduce toy datasets propensities position-bias --scale smoke --out study",
)
SAMPLES = ("samples/ranker.html", "samples/study/report.html")
LINKED = ("study/*.*", "study/figures/*", "study/tables/*")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made to the files of the site."""
    from mkdocs.structure.files import File  # noqa: PLC0415 (tests use the rest without it)

    made: dict[str, str | bytes] = {
        **{name: _inside(ROOT.joinpath(name).read_text()) for name in _OUTSIDE},
        **{
            f"examples/{script.stem}.md": f"# {script.name}\n\n```python\n{script.read_text()}```\n"
            for script in sorted((ROOT / "examples").glob("*.py"))
        },
        **{f"gallery/{script.stem}.svg": drawn(script) for script in SCRIPTS},
        **{name: samples()[name] for name in SAMPLES},
    }
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links that leave docs/ to what stands for it here; put what is made in its place."""
    if page.file.src_uri == "gallery.md":
        commands = [command.removeprefix("-m ") for command in COMMANDS]
        listed = "\n".join(c if c.startswith("counter") else f"python {c}" for c in commands)
        markdown = markdown.replace("<!-- the commands of the samples -->", f"```sh\n{listed}\n```")
        return markdown.replace("<!-- the gallery -->", "\n".join(map(shown, SCRIPTS)))
    markdown = re.sub(r"```python\n(?=>>> )", "```pycon\n", markdown)  # the same, better coloured
    outside = r"\]\(\.\./(CHANGELOG|CONTRIBUTING|SECURITY|examples/\w+)\.(?:md|py)"
    return re.sub(outside, r"](\1.md", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Put the files that samples link to beside them, as they are."""
    for name, content in samples().items():
        path = Path(config.site_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _inside(text: str) -> str:
    """Return a page of the repository with its links as they are within docs/."""
    text = re.sub(r"\]\((?:\.\./)?docs/", "](../" if "](../docs/" in text else "](", text)
    return re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", text)


@cache
def drawn(script: Path) -> bytes:
    """Return what a script of the gallery draws, as SVG."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 (heavy)

    from countersample.pages.charts import save_picture  # noqa: PLC0415

    plt.switch_backend("agg")
    figure = runpy.run_path(str(script))["draw"]().figure
    with TemporaryDirectory() as folder:
        save_picture(figure, Path(folder, "drawn.svg"))
        plt.close(figure)
        return Path(folder, "drawn.svg").read_bytes()


def shown(script: Path) -> str:
    """Return the part of the gallery's page that shows a script."""
    source = script.read_text()
    title, _, text = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    indented = "".join(f"    {line}\n" for line in source.splitlines())
    return (
        f"## {title.rstrip('.')}\n{text}\n\n![{title}](gallery/{script.stem}.svg)\n\n"
        f'??? note "{script.name}"\n\n    ```python\n{indented}    ```\n'
    )


@cache
def samples() -> dict[str, bytes]:
    """Run the commands and return the files that they left, by their paths on the site."""
    with TemporaryDirectory() as folder:
        Path(folder, "examples").symlink_to(ROOT / "examples")
        for command in COMMANDS:
            words = [sys.executable, *command.split()]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{command} failed: {done.stderr}")
        left = [path for kind in ("*.html", *LINKED) for path in Path(folder).glob(kind)]
        return {f"samples/{path.relative_to(folder)}": path.read_bytes() for path in left}
