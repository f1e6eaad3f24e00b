"""Studies as data: grids with their claims, and the paper's numbers, in TOML, checked when read.

A grid names its methods, the setting that is varied, what differs from the paper's settings, and
the claims that its results are held against. `experiments/` has those of the package.
"""

from __future__ import annotations

import re
import tomllib
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from importlib.resources import files
from inspect import signature
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from countersample._files import read_at_most
from countersample._params import choice, number
from countersample.errors import DataError, ParameterError
from countersample.study.design.config import PAPER, check_setting, in_words, nearest, title_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from countersample.study.design.config import ExperimentConfig

    # For each kind of study a function that raises a `ParameterError` for a grid it cannot be.
    Checks = Mapping[str, Callable[["Grid"], None]]

Key = tuple[str | int, ...]
Value = float | int | str
Direction = Literal["lower", "higher", "same"]


# -- TOML with lines -----------------------------------------------------------------------------

_MAX_BYTES = 10**7  # grids of the package have thousands
_PART = r'(?:[\w-]+|"[^"]*"|\'[^\']*\')'
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=")


class TomlFile:
    """A TOML file: its content, `data`, and the line of each of its keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = read_at_most(path, _MAX_BYTES).decode("utf-8")
            self.data: dict[str, Any] = tomllib.loads(text)
        except DataError as error:
            raise ParameterError(str(error)) from error
        except OSError as error:
            raise ParameterError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ParameterError(f"{path}: is not UTF-8 text, expected a TOML file") from error
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep lists
            raise ParameterError(f"{path}: is not TOML: {error}") from error
        self.lines = _lines_of_keys(text)

    def error(self, key: Key, message: str) -> ParameterError:
        """Return an error at the line of a key, or of the nearest table around it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.lines:
                return ParameterError(f"{self.path}:{self.lines[key[:length]]}: {message}")
        return ParameterError(f"{self.path}: {message}")

    @contextmanager
    def locate(self, key: Key) -> Iterator[None]:
        """Add file and line to errors raised within: those of a key below `key` that they name.

        For an empty key, settings of the grid are looked for.
        """
        try:
            yield
        except ParameterError as error:
            tables: list[Key] = [key] if key else [("settings",), ("vary",)]
            words = re.findall(r"\w+", str(error))
            keys = ((*table, word) for table in tables for word in words)
            place = next((each for each in keys if each in self.lines), tables[-1])
            raise self.error(place, str(error)) from error


def _lines_of_keys(text: str) -> dict[Key, int]:
    """Return the line, from 1, of every key and table; tables of an array are numbered from 0."""
    lines: dict[Key, int] = {}
    table: Key = ()
    counts: dict[Key, int] = {}
    open_quotes = ""  # of a string of several lines
    for line_number, line in enumerate(text.splitlines(), start=1):
        if open_quotes:
            open_quotes = "" if open_quotes in line else open_quotes
            continue
        if header := _HEADER.match(line):
            table = _parts(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], line_number)
        elif entry := _ENTRY.match(line):
            parts = _parts(entry[1])
            for length in range(1, len(parts) + 1):
                lines.setdefault((*table, *parts[:length]), line_number)
            for quotes in ('"""', "'''"):
                if line.count(quotes) == 1:
                    open_quotes = quotes
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))


# -- the paper's numbers -------------------------------------------------------------------------

# Which dataset of the paper one of ours is, or has the shape of; `find_source` names them by what
# they hold. Yahoo is set 1, which the released code reads; the 36,251 queries of the paper's table
# are those of sets 1 and 2 together (docs/deviations.md).
PAPER_DATASETS = MappingProxyType(
    {
        "yahoo-set1": "yahoo",
        "yahoo-like": "yahoo",
        "istella-s": "istella-s",
        "istella-like": "istella-s",
    }
)
_MARKS = {"v": "▽", "^": "△"}


class PublishedNumber(NamedTuple):
    """A number of the paper, with the mark it has there."""

    value: float
    mark: str = ""


@dataclass(frozen=True)
class Published:
    """The paper's tables."""

    # By study, dataset (the paper's name of it), row (empty if there is one only) and column.
    numbers: Mapping[tuple[str, str, str, Value], PublishedNumber]

    def number(self, study: str, dataset: str, row: str, column: Value) -> PublishedNumber | None:
        """Return the paper's number, or None; `dataset` is our name of a set.

        The column is a setting. Numbers are compared as numbers: 1 is 1.0.
        """
        name = PAPER_DATASETS.get(dataset)
        return None if name is None else self.numbers.get((study, name, row, column))


def load_published(path: str | os.PathLike[str] | None = None) -> Published:
    """Read a file of published numbers, by default that of the package.

    A table is a study: ``columns`` names its columns, every other key a dataset, which has a list
    of numbers, or several by row. A number may be a text that ends in ``v`` (significantly lower)
    or ``^`` (higher).
    """
    file = TomlFile(Path(path or folder() / "published.toml"))
    numbers: dict[tuple[str, str, str, Value], PublishedNumber] = {}
    for study, table in file.data.items():
        for dataset, rows in table.items():
            if dataset == "columns":
                continue
            for row, values in (rows if isinstance(rows, dict) else {"": rows}).items():
                for column, value in zip(table["columns"], values, strict=True):
                    text = str(value)
                    published = PublishedNumber(float(text.rstrip("v^")), _MARKS.get(text[-1], ""))
                    numbers[study, dataset, row, column] = published
    return Published(numbers)


# -- claims --------------------------------------------------------------------------------------

SOURCES = ("paper", "beyond")
EVERY = "all"  # the method of a claim about every method


@dataclass(frozen=True)
class Quantity:
    """What a claim compares."""

    measure: str  # "regret", ×100, or "ndcg", nDCG@10 at the last point
    words: str  # they begin a sentence
    digits: int  # decimals shown
    # The smallest difference that counts. The largest that the paper calls comparable is 0.04 of
    # regret ×100, the smallest that it calls significant 0.07.
    margin: float
    relative: bool = False  # whether a difference may be given in per cent


@dataclass(frozen=True)
class ClaimTest:
    """How a kind of claim is tested."""

    # The method with another, at each setting; its lead over another at the last setting with the
    # first; itself at the last setting with the first; itself at every two settings; itself at one
    # setting with each other; the same of every method on every dataset, of which most must hold.
    compares: Literal["methods", "leads", "settings", "pairs", "others", "cases"]
    direction: Direction  # what the first should be beside the second
    quantity: Quantity

    @property
    def than(self) -> bool:
        """Whether the claim must name a second method."""
        return self.compares in {"methods", "leads"}


_REGRET = Quantity("regret", "Regret ×100", 3, 0.05, relative=True)
_NDCG = Quantity("ndcg", "nDCG@10 at the end", 4, 0.0005)
_LEAD = Quantity("regret", "The lead in regret ×100", 3, 0.05)

TESTS: Mapping[str, ClaimTest] = MappingProxyType(
    {
        "lower": ClaimTest("methods", "lower", _REGRET),
        "higher": ClaimTest("methods", "higher", _REGRET),
        "ends-lower": ClaimTest("methods", "lower", _NDCG),
        "ends-higher": ClaimTest("methods", "higher", _NDCG),
        "comparable": ClaimTest("methods", "same", _REGRET),
        "lead-grows": ClaimTest("leads", "higher", _LEAD),
        "lead-shrinks": ClaimTest("leads", "lower", _LEAD),
        "grows": ClaimTest("settings", "higher", _REGRET),
        "shrinks": ClaimTest("settings", "lower", _REGRET),
        "ends-rising": ClaimTest("settings", "higher", _NDCG),
        "steady": ClaimTest("pairs", "same", _REGRET),
        "best-at": ClaimTest("others", "lower", _REGRET),
        "ends-lowest-at": ClaimTest("others", "lower", _NDCG),
        "mostly-best-at": ClaimTest("cases", "lower", _REGRET),
    }
)


@dataclass(frozen=True)
class Claim:
    """A statement that the results are held against."""

    text: str
    test: str  # one of `TESTS`
    method: str
    than: str = ""  # another method; empty if the test compares none
    at: tuple[Value, ...] = ()  # the settings it is about; empty: all
    source: str = "paper"  # one of `SOURCES`
    on: str = ""  # the dataset of the paper that it is about, or one of its shape; empty: all
    # The smallest difference that counts, in what is compared; None: that of the quantity.
    margin: float | None = None

    @property
    def smallest(self) -> float:
        """The smallest difference that counts."""
        return TESTS[self.test].quantity.margin if self.margin is None else self.margin

    def check(self, methods: Sequence[str], values: Sequence[Value]) -> None:
        """Raise a `ParameterError` for a claim that does not fit these methods and values."""
        test = TESTS[choice("test", self.test, TESTS)]
        choice("source", self.source, SOURCES)
        choice("method", self.method, [EVERY] if test.compares == "cases" else methods)
        if self.on:
            choice("on", self.on, sorted(set(PAPER_DATASETS.values())))
        if self.margin is not None:
            number("margin", self.margin, above=0)
        if test.than:
            choice("than", self.than, [name for name in methods if name != self.method])
        elif self.than:
            raise ParameterError(f"than is {self.than!r}, but {self.test!r} compares no methods")
        self._check_at(test, values)

    def _check_at(self, test: ClaimTest, values: Sequence[Value]) -> None:
        at = list(self.at)
        for value in at:
            if value not in values:
                names = ", ".join(map(repr, values))
                raise ParameterError(f"at has {value!r}, expected values of the study: {names}")
        if len(set(at)) < len(at):
            raise ParameterError(f"at is {at!r}, expected each value once")
        if test.compares in {"others", "cases"} and len(at) != 1:
            raise ParameterError(f"at is {at!r}, but {self.test!r} needs one value")
        if test.compares != "methods" and len(values) < 2:
            raise ParameterError(f"{self.test!r} needs a study of two values or more")
        if test.compares in {"leads", "settings", "pairs"} and len(at) == 1:
            raise ParameterError(f"at is {at!r}, but {self.test!r} needs two values or more")


# -- grids ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A method: its name in tables, its plan, its unit, and what its weights are."""

    name: str
    plan: str
    unit: str
    exposure: str = "policy-aware"  # how a click is weighted: see `join_features`

    @property
    def look(self) -> tuple[str, str]:
        """The key of its style in figures: its plan (or its weights if unusual), and its unit."""
        return (self.plan if self.exposure == "policy-aware" else self.exposure), self.unit

    def check(self) -> None:
        """Raise a `ParameterError` for a plan, unit or exposure that a study cannot have."""
        from countersample.clicks.impressions.exposure import EXPOSURES  # noqa: PLC0415 (numpy)
        from countersample.plans import PLANS, UNITS  # noqa: PLC0415 (imports numpy)

        if not isinstance(self.name, str):
            raise ParameterError(f"method {self.name!r}, expected a text in quotes as its name")
        if self.plan not in [*PLANS] or self.unit not in [*UNITS]:
            raise ParameterError(
                f"method {self.name!r} has plan {self.plan!r} and unit {self.unit!r}, "
                f"expected a plan of {', '.join(PLANS)} and a unit of {', '.join(UNITS)}"
            )
        if "probabilities" in signature(PLANS[self.plan]).parameters:
            raise ParameterError(
                f"method {self.name!r} has plan {self.plan!r}, which needs probabilities: a "
                "study has none to give, expected another plan"
            )
        choice("exposure", self.exposure, EXPOSURES)


METHODS = {
    method.name: method
    for method in (
        Method("Biased-SGD", "naive", "click"),
        Method("IPS-SGD", "ips", "click"),
        Method("CounterSample", "countersample", "click"),
        Method("IPS-SGD by pair", "ips", "pair"),
        Method("CounterSample by pair", "countersample", "pair"),
        Method("IPS-SGD by query", "ips", "query"),
        Method("CounterSample by query", "countersample", "query"),
    )
}
COMPARED = (METHODS["IPS-SGD"], METHODS["CounterSample"])  # by the theorems and the toy example


@dataclass(frozen=True)
class Grid:
    """One study."""

    name: str  # that of its file
    title: str  # a few words
    about: str  # a paragraph
    kind: str  # one of `countersample.study.kinds.KINDS`
    paper: str = ""  # the table and figure of the paper that it repeats; empty: beyond the paper
    datasets: tuple[str, ...] = ()  # names or paths
    methods: tuple[Method, ...] = ()
    reference: str = ""  # the method others are tested against
    axis: str = ""  # the setting that is varied, one of `ExperimentConfig`
    axis_title: str = ""  # its title in tables and figures
    values: tuple[Value, ...] = ()  # one column of the table and one panel of the figure per value
    # Settings that are varied beside it and their values: each combination has its rows of the
    # table and of the figure.
    outer: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)  # what differs from the paper's
    claims: tuple[Claim, ...] = ()
    nothing_set: bool = False  # whether `CounterSampleRanker`, with its defaults, is shown beside

    def __post_init__(self) -> None:
        is_place = self.name in {"", ".", ".."} or Path(self.name).name != self.name
        if is_place or "\\" in self.name or not self.name.isprintable():
            raise ParameterError(
                f"a study is called {self.name!r}, expected the name of a file: tables and figures "
                "are written under it"
            )

    @property
    def varied(self) -> dict[str, tuple[Value, ...]]:
        """All settings that are varied, with their values."""
        return dict(self.outer) | ({self.axis: self.values} if self.axis else {})

    def blocks(self) -> list[dict[str, Value]]:
        """Return every combination of the settings varied beside `axis`: [{}] if there are none."""
        names = [name for name, _ in self.outer]
        return [
            dict(zip(names, values, strict=True))
            for values in product(*(values for _, values in self.outer))
        ]

    def configs(self, config: ExperimentConfig) -> Iterator[ExperimentConfig]:
        """Yield the settings of every combination; `config` itself if nothing is varied."""
        for block in self.blocks():
            for value in self.values or (None,):
                yield config.with_settings(block | ({} if value is None else {self.axis: value}))

    def where(self, dataset: str, block: Mapping[str, Value]) -> str:
        """Return the title of rows of tables and figures: "yahoo-like, γ = 0.5".

        Claims are tested on every such row on its own, like on a dataset.
        """
        return ", ".join([dataset, *(in_words(name, value) for name, value in block.items())])


SCALES = ("smoke", "small", "medium", "paper")
_KEYS = ("title", "about", "kind", "paper", "datasets", "methods", "reference", "nothing_set",
         "vary", "settings", "claims", "scale")  # fmt: skip
_METHOD_KEYS = {field.name for field in fields(Method)}
_CLAIM_KEYS = tuple(field.name for field in fields(Claim))
_NOT_VARIED = {
    "learning_rates": "are tuned, not varied",
    "queries": "is the size of the data, which is the same in a study",
    "seeds": "is how many runs there are, the same in a study",
}
_IN_PAPER = ("datasets", "propensities", "toy", "optimizers", "batch-sizes", "position-bias")
_TEXTS = ("name", "title", "about", "kind", "paper", "reference", "axis", "axis_title")
_NO_STUDIES = {"published", "scales", "demo"}


def folder() -> Path:
    """Return the folder of the grids: in the package, or beside it in a checkout."""
    installed = Path(str(files("countersample") / "experiments"))
    return installed if installed.is_dir() else Path(__file__).resolve().parents[4] / "experiments"


def names() -> list[str]:
    """Return the names of the studies that come with the package, the paper's first."""
    stems = sorted({path.stem for path in folder().glob("*.toml")} - _NO_STUDIES)
    return [*_IN_PAPER, *(name for name in stems if name not in _IN_PAPER)]


def path_of(name: str) -> Path:
    """Return the file of a study that comes with the package."""
    if name not in names():
        raise ParameterError(f"no study {name!r}{nearest(name, names())}")
    return folder() / f"{name}.toml"


def config_of(scale: str) -> ExperimentConfig:
    """Return the settings of a scale."""
    file = TomlFile(folder() / "scales.toml")
    if scale not in file.data:
        raise ParameterError(f"no scale {scale!r}{nearest(scale, list(file.data))}")
    return PAPER.with_settings(_read_settings(file, (scale, "settings"), file.data[scale]))


# -- reading grids -------------------------------------------------------------------------------


def load(path: Path, scale: str, checks: Checks) -> Grid:
    """Read and check a grid, with its `[scale.…]` table of this scale applied.

    Raises
    ------
    ParameterError
        With file and line, for anything that is not as it should be.
    """
    file = TomlFile(path)
    _check_keys(file, (), file.data, _KEYS)
    at_scale = _read_scale(file, scale)
    *outer, (axis, values) = _read_axes(file, at_scale) or [("", ())]
    methods = _read_methods(file)
    grid = Grid(
        name=path.stem,
        title=_read_text(file, "title"),
        about=" ".join(_read_text(file, "about").split()),
        kind=_read_text(file, "kind"),
        paper=_read_text(file, "paper", ""),
        datasets=_read_texts(file, "datasets"),
        methods=methods,
        reference=_read_text(file, "reference", methods[0].name if methods else ""),
        axis=axis,
        axis_title=title_of(axis) if axis else "",
        values=values,
        outer=tuple(outer),
        settings=_read_settings(file, ("settings",), file.data)
        | _read_settings(file, ("scale", scale, "settings"), at_scale),
        claims=_read_claims(file),
        nothing_set=file.data.get("nothing_set", False),
    )
    _check_grid(grid, checks, file.locate)
    return grid


def as_grid(values: Mapping[str, Any], checks: Checks) -> Grid:
    """Return a grid from plain values (see `dataclasses.asdict`), checked like `load` does."""
    for name in _TEXTS:
        if not isinstance(values[name], str):
            raise ParameterError(f"{name} is {values[name]!r}, expected text")
    axis = values["axis"]
    varied = {
        name: tuple(check_setting(name, value) for value in each)
        for name, each in [*values["outer"], [axis, values["values"]]]
        if name
    }
    settings = {name: check_setting(name, value) for name, value in values["settings"].items()}
    grid = Grid(
        **dict(values)
        | {
            "datasets": tuple(map(str, values["datasets"])),
            "methods": tuple(Method(**method) for method in values["methods"]),
            "values": varied.pop(axis, ()),
            "outer": tuple(varied.items()),
            "settings": settings,
            "claims": tuple(
                Claim(**claim | {"at": tuple(claim["at"])}) for claim in values["claims"]
            ),
        }
    )
    _check_grid(grid, checks, lambda _: nullcontext())
    return grid


def _check_grid(
    grid: Grid, checks: Checks, locate: Callable[[Key], AbstractContextManager[None]]
) -> None:
    """Raise a `ParameterError` for parts of a grid that do not go together."""
    method_names = [method.name for method in grid.methods]
    with locate(("methods",)):
        for method in grid.methods:
            method.check()
        if len(set(method_names)) < len(method_names):
            raise ParameterError("methods has the same name twice")
    with locate(("reference",)):
        if method_names and grid.reference not in method_names:
            raise ParameterError(
                f"no method {grid.reference!r}{nearest(grid.reference, method_names)}"
            )
    with locate(("nothing_set",)):
        if not isinstance(grid.nothing_set, bool):
            raise ParameterError(f"nothing_set is {grid.nothing_set!r}, expected true or false")
    with locate(("kind",)):
        checks[choice("kind", grid.kind, checks)](grid)
    with locate(()):
        for config in grid.configs(PAPER.with_settings(grid.settings)):
            config.check([method.plan for method in grid.methods])
    for index, claim in enumerate(grid.claims):
        with locate(("claims", index)):
            claim.check(method_names, grid.values)


def _check_keys(file: TomlFile, key: Key, keys: Iterable[str], names: Collection[str]) -> None:
    for name in keys:
        if name not in names:
            raise file.error((*key, name), f"unknown key {name!r}{nearest(name, names)}")


def _read_text(file: TomlFile, key: str, default: str | None = None) -> str:
    value = file.data.get(key, default)
    if value is None:
        raise file.error((), f'{key} is missing: expected {key} = "…"')
    if not isinstance(value, str):
        raise file.error((key,), f"{key} is {value!r}, expected a text in quotes")
    return value


def _read_texts(file: TomlFile, key: str) -> tuple[str, ...]:
    value = file.data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise file.error((key,), f"{key} is {value!r}, expected a list of texts in quotes")
    return tuple(value)


def _read_table(file: TomlFile, key: Key, within: Mapping[str, Any]) -> dict[str, Any]:
    table = within.get(str(key[-1]), {})
    if not isinstance(table, dict):
        raise file.error(key, f"{key[-1]} is {table!r}, expected a table: [{key[-1]}]")
    return table


def _read_settings(file: TomlFile, key: Key, within: Mapping[str, Any]) -> dict[str, Any]:
    settings = {}
    for name, value in _read_table(file, key, within).items():
        with file.locate((*key, name)):
            settings[name] = check_setting(name, value)
    return settings


def _read_scale(file: TomlFile, scale: str) -> dict[str, Any]:
    """Return the grid's table of a scale; all of its scales are checked."""
    scales = _read_table(file, ("scale",), file.data)
    for name in scales:
        if name not in SCALES:
            raise file.error(("scale", name), f"no scale {name!r}{nearest(name, SCALES)}")
        table = _read_table(file, ("scale", name), scales)
        _check_keys(file, ("scale", name), table, ("vary", "settings"))
    return _read_table(file, ("scale", scale), scales)


def _read_axes(file: TomlFile, at_scale: Mapping[str, Any]) -> list[tuple[str, tuple[Value, ...]]]:
    """Return the settings that are varied and their values, the columns of the table last."""
    varied = _read_table(file, ("vary",), file.data)
    at_this_scale = _read_table(file, ("vary",), at_scale)
    _check_keys(file, ("vary",), at_this_scale, varied)
    return [(axis, _read_values(file, axis, v)) for axis, v in (varied | at_this_scale).items()]


def _read_values(file: TomlFile, axis: str, values: object) -> tuple[Value, ...]:
    key = ("vary", axis)
    if axis in _NOT_VARIED:
        raise file.error(key, f"{axis} {_NOT_VARIED[axis]}: give it in [settings]")
    if not isinstance(values, list) or not values:
        raise file.error(key, f"{axis} is {values!r}, expected a list of values")
    with file.locate(key):
        settings = tuple(check_setting(axis, value) for value in values)
    if len(set(settings)) < len(settings):
        raise file.error(key, f"{axis} has the same value twice")
    return settings


def _read_methods(file: TomlFile) -> tuple[Method, ...]:
    entries = file.data.get("methods", [])
    if not isinstance(entries, list):
        raise file.error(("methods",), f"methods is {entries!r}, expected a list")
    methods = []
    for entry in entries:
        if isinstance(entry, dict) and {"name", "plan", "unit"} <= set(entry) <= _METHOD_KEYS:
            methods.append(Method(**entry))
        elif isinstance(entry, str) and entry in METHODS:
            methods.append(METHODS[entry])
        else:
            raise file.error(
                ("methods",),
                f"no method {entry!r}{nearest(str(entry), list(METHODS))}, or a table such as "
                '{ name = "mine", plan = "ips", unit = "pair" }',
            )
    return tuple(methods)


def _read_claims(file: TomlFile) -> tuple[Claim, ...]:
    entries = file.data.get("claims", [])
    if not isinstance(entries, list):
        raise file.error(("claims",), f"claims is {entries!r}, expected tables: [[claims]]")
    claims = []
    for index, entry in enumerate(entries):
        key = ("claims", index)
        if not isinstance(entry, dict):
            raise file.error(key, f"a claim is {entry!r}, expected a table: [[claims]]")
        _check_keys(file, key, entry, _CLAIM_KEYS)
        for name in ("text", "test", "method"):
            if not isinstance(entry.get(name), str):
                raise file.error(key, f'a claim needs {name} = "…"')
        at = entry.get("at", [])
        if not isinstance(at, list):
            raise file.error((*key, "at"), f"at is {at!r}, expected a list of values")
        claims.append(Claim(**entry | {"at": tuple(at)}))
    return tuple(claims)
