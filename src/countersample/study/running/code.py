"""Which code made a result: a hash of the modules that a job computes with.

They are the module of the job's function and all modules of this package that it imports, directly
or not, at its top or within a function; a name that a package only hands on is looked up where it
is made. Of a file only what runs counts: no comments, no docstrings, no blank lines, no imports for
types. So the same version has the same hash on every machine, and a change of the report, which no
job imports, is no change of a result.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from countersample._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = "countersample"
# What computes no number: errors and checks, progress, how files are written, how many threads.
NOT_COMPUTING = frozenset(
    f"{PACKAGE}.{name}"
    for name in ("_cores", "_extras", "_files", "_frames", "_leaving", "_params", "_progress",
                 "_version", "_kernels.ahead", "errors", "study.running.versions")
)  # fmt: skip


def code_of(work: Callable[..., Any]) -> str:
    """Return the hash of the code that a function computes with."""
    return _hash_of(work.__module__)


@cache
def _hash_of(module: str) -> str:
    texts = [f"{name}\n{_source(name).text}" for name in modules_of(module)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def modules_of(module: str) -> list[str]:
    """Return the names of the modules that one computes with, itself among them, in order.

    Examples
    --------
    >>> from countersample.study.running.code import modules_of
    >>> "countersample._kernels.updates" in modules_of("countersample.training.loop")
    True
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found and name not in NOT_COMPUTING:
            found.add(name)
            waiting += _source(name).imports
    return sorted(found)


@dataclass(frozen=True)
class _Source:
    """What of a module counts."""

    text: str  # what runs
    imports: tuple[str, ...]  # modules of this package


@cache
def _source(module: str) -> _Source:
    source, is_package = _read(module)
    if source is None:  # there are compiled files only
        return _Source(__version__, ())
    tree = ast.parse(source)
    for_types = [node for node in ast.walk(tree) if _is_for_types(node)]
    skipped = {id(inner) for node in for_types for inner in ast.walk(node)}
    imports = tuple(
        name
        for node in ast.walk(tree)
        if id(node) not in skipped
        for name in _imported(node, module if is_package else module.rpartition(".")[0])
    )
    return _Source(_what_runs(source, tree, for_types), imports)


def _read(module: str) -> tuple[str | None, bool]:
    """Return the text of a module, if there is one, and whether it is a package."""
    spec = find_spec(module)
    if spec is None or spec.loader is None:
        return None, False
    get_source = getattr(spec.loader, "get_source", None)
    text = get_source(module) if get_source else None
    return text, spec.submodule_search_locations is not None


def _is_for_types(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the modules of this package that a statement imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] == PACKAGE:
                yield alias.name
    elif isinstance(node, ast.ImportFrom):
        origin = node.module or ""
        if node.level:
            parents = package.split(".")
            above = parents[: len(parents) - node.level + 1]
            origin = ".".join([*above, *([node.module] if node.module else [])])
        if origin.split(".")[0] == PACKAGE:
            for alias in node.names:
                yield _home(origin, alias.name)


@cache
def _home(origin: str, name: str) -> str:
    """Return the module that `from origin import name` takes a name from."""
    source, is_package = _read(origin)
    if not is_package or source is None:
        return origin
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE):
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module != origin:
                    return _home(node.module, alias.name)
    module = f"{origin}.{name}"
    return module if find_spec(module) is not None else origin


def _what_runs(source: str, tree: ast.Module, for_types: list[ast.AST]) -> str:
    """Return the lines of a module without comments, docstrings, blank lines, imports for types."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in (*_docstrings(tree), *for_types):
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            yield node.body[0]
