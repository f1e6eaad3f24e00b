"""Studies as data: grids with their claims, and the paper's numbers, in TOML, checked when read.

A grid names its methods, the setting that is varied, what differs from the paper's settings, and
the claims that its results are compared with. `experiments/` has the grids of the package, one file
each; the demo is one of them (`experiments/demo.toml`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator  # noqa: TC003 (msgspec reads the types of fields)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from inspect import signature
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from countersample._files import read_at_most
from countersample._json import check_schema
from countersample._params import choice, number
from countersample.errors import DataError, ParameterError
from countersample.study.settings import PAPER, check_setting, describe_setting, nearest, title_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from countersample.study.settings import ExperimentConfig

    Schema = TypeVar("Schema")

Value = float | int | str
Direction = Literal["lower", "higher", "same"]
ScaleName = Literal["smoke", "small", "medium", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "small", "medium", "paper")

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


_REGRET = Quantity("regret", "Regret ×100", 3, 0.05)
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


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A statement that the results of a study are compared with."""

    text: str
    test: str  # one of `TESTS`
    method: str
    than: str = ""  # another method; empty if the test compares none
    at: tuple[Value, ...] = ()  # the settings it is about; empty: all
    source: str = "paper"  # one of `SOURCES`
    on: str = ""  # the dataset of the paper that it is about, or one of its shape; empty: all
    margin: float | None = None  # the smallest difference that counts; None: the quantity's

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


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A method: its name in tables, its plan, its unit, and how its clicks are weighted."""

    name: str
    plan: str
    unit: str
    exposure: str = "policy-aware"  # see `join_features`

    @property
    def look(self) -> tuple[str, str]:
        """The key of its style in figures: its plan (or its weights if unusual), and its unit."""
        return (self.plan if self.exposure == "policy-aware" else self.exposure), self.unit

    def check(self) -> None:
        """Raise a `ParameterError` for a plan, unit or exposure that a study cannot have."""
        from countersample.logs.exposure import EXPOSURES  # noqa: PLC0415 (numpy)
        from countersample.plans import PLANS, UNITS  # noqa: PLC0415 (imports numpy)

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

    name: str  # the name of its file
    title: str  # a few words
    about: str  # a paragraph
    kind: str  # one of `countersample.study.experiment.KINDS`
    paper: str = ""  # the table and figure of the paper that it repeats; empty: beyond the paper
    datasets: tuple[str, ...] = ()  # names or paths
    methods: tuple[Method, ...] = ()
    reference: str = ""  # the method that others are tested against
    axis: str = ""  # the setting that is varied, one of `ExperimentConfig`
    axis_title: str = ""  # its title in tables and figures
    values: tuple[Value, ...] = ()  # one column of the table and one panel of the figure per value
    # Settings that are varied beside it and their values: each combination has its rows of the
    # table and of the figure.
    outer: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # what differs from the paper's
    claims: tuple[Claim, ...] = ()
    nothing_set: bool = False  # whether `CounterSampleRanker`, with its defaults, is shown beside

    def __post_init__(self) -> None:
        is_path = self.name in {"", ".", ".."} or Path(self.name).name != self.name
        if is_path or "\\" in self.name or not self.name.isprintable():
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

        Claims are tested on every such row, like on a dataset.
        """
        return ", ".join(
            [dataset, *(describe_setting(name, value) for name, value in block.items())]
        )


# -- reading -------------------------------------------------------------------------------------

_MAX_BYTES = 10**7  # the grids of the package have thousands
_FROM_PAPER = ("datasets", "propensities", "toy", "optimizers", "batch-sizes", "position-bias")
_OTHER_FILES = {"published", "scales", "demo"}
_NOT_VARIED = {
    "learning_rates": "are tuned, not varied",
    "queries": "is the size of the data, which is the same in a study",
    "seeds": "is how many runs there are, the same in a study",
}


class ScaleTable(msgspec.Struct, forbid_unknown_fields=True):
    """What a scale changes: settings, and the values of settings that are varied."""

    vary: dict[str, list[Value]] = {}
    settings: dict[str, Any] = {}


class GridFile(msgspec.Struct, forbid_unknown_fields=True):
    """The keys of the TOML file of a grid, as in `Grid`."""

    title: str
    about: str
    kind: str
    paper: str = ""
    datasets: tuple[str, ...] = ()
    methods: tuple[str | Method, ...] = ()
    reference: str = ""
    nothing_set: bool = False
    vary: dict[str, list[Value]] = {}
    settings: dict[str, Any] = {}
    claims: tuple[Claim, ...] = ()
    scale: dict[ScaleName, ScaleTable] = {}


def folder() -> Path:
    """Return the folder of the grids: in the package, or beside it in a checkout."""
    installed = Path(str(files("countersample") / "experiments"))
    return installed if installed.is_dir() else Path(__file__).resolve().parents[3] / "experiments"


def names() -> list[str]:
    """Return the names of the studies that come with the package, the paper's first."""
    stems = sorted({path.stem for path in folder().glob("*.toml")} - _OTHER_FILES)
    return [*_FROM_PAPER, *(name for name in stems if name not in _FROM_PAPER)]


def path_of(name: str) -> Path:
    """Return the file of a study that comes with the package."""
    if name not in names():
        raise ParameterError(f"no study {name!r}{nearest(name, names())}")
    return folder() / f"{name}.toml"


def config_of(scale: str) -> ExperimentConfig:
    """Return the settings of a scale."""
    scales = read_toml(folder() / "scales.toml", dict[str, ScaleTable])
    if scale not in scales:
        raise ParameterError(f"no scale {scale!r}{nearest(scale, list(scales))}")
    return PAPER.with_settings(scales[scale].settings)


def read_toml(path: Path, schema: type[Schema]) -> Schema:
    """Return the content of a TOML file, checked against a schema."""
    try:
        values = tomllib.loads(read_at_most(path, _MAX_BYTES).decode("utf-8"))
        return check_schema(values, schema, str(path))
    except DataError as error:
        raise ParameterError(str(error)) from error
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ParameterError(f"{path}: is not UTF-8 text, expected a TOML file") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep lists
        raise ParameterError(f"{path}: is not TOML: {error}") from error


@contextmanager
def locate_errors(path: Path) -> Iterator[None]:
    """Add the file to the errors that are raised within."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error


def load_published(path: str | os.PathLike[str] | None = None) -> Published:
    """Read a file of published numbers, by default the package's.

    A table is a study: ``columns`` names its columns, every other key a dataset, which has a list
    of numbers, or several by row. A number may be a text that ends in ``v`` (significantly lower)
    or ``^`` (higher).
    """
    tables = read_toml(Path(path or folder() / "published.toml"), dict[str, dict[str, Any]])
    numbers: dict[tuple[str, str, str, Value], PublishedNumber] = {}
    for study, table in tables.items():
        columns = table.pop("columns")
        for dataset, rows in table.items():
            for row, values in (rows if isinstance(rows, dict) else {"": rows}).items():
                for column, value in zip(columns, values, strict=True):
                    text = str(value)
                    published = PublishedNumber(float(text.rstrip("v^")), _MARKS.get(text[-1], ""))
                    numbers[study, dataset, row, column] = published
    return Published(numbers)


def load(path: Path, scale: str) -> Grid:
    """Read and check a grid, with its `[scale.…]` table of this scale applied.

    Raises
    ------
    ParameterError
        With the file, for a value that is not as expected.
    """
    file = read_toml(path, GridFile)
    at_scale = next((table for name, table in file.scale.items() if name == scale), ScaleTable())
    with locate_errors(path):
        *outer, (axis, values) = (file.vary | at_scale.vary).items() or [("", [])]
        methods = tuple(map(_find_method, file.methods))
        grid = check_grid(
            Grid(
                name=path.stem, title=file.title, about=" ".join(file.about.split()),
                kind=file.kind, paper=file.paper, datasets=file.datasets, methods=methods,
                reference=file.reference or (methods[0].name if methods else ""),
                axis=axis, values=tuple(values),
                outer=tuple((name, tuple(each)) for name, each in outer),
                settings=file.settings | at_scale.settings,
                claims=file.claims, nothing_set=file.nothing_set,
            )
        )  # fmt: skip
        for name, table in file.scale.items():
            for key in table.vary:
                choice(f"a key of scale.{name}.vary", key, file.vary)
    return grid


def grid_from_values(values: Any) -> Grid:  # noqa: ANN401 (JSON)
    """Return a grid from plain values (see `msgspec.to_builtins`), checked like `load` does."""
    return check_grid(check_schema(values, Grid, "the grid"))


def _find_method(entry: str | Method) -> Method:
    if isinstance(entry, Method):
        return entry
    if entry not in METHODS:
        raise ParameterError(
            f"no method {entry!r}{nearest(entry, list(METHODS))}, or a table such as "
            '{ name = "mine", plan = "ips", unit = "pair" }'
        )
    return METHODS[entry]


def check_grid(grid: Grid) -> Grid:
    """Return a grid with its settings in their types.

    Raises
    ------
    ParameterError
        For settings, methods or claims that are unknown or do not go together.
    """
    method_names = [method.name for method in grid.methods]
    for method in grid.methods:
        method.check()
    if len(set(method_names)) < len(method_names):
        raise ParameterError("methods has the same name twice")
    if method_names and grid.reference not in method_names:
        raise ParameterError(f"no method {grid.reference!r}{nearest(grid.reference, method_names)}")
    grid = replace(
        grid,
        values=_check_values(grid.axis, grid.values) if grid.axis else (),
        axis_title=title_of(grid.axis) if grid.axis else "",
        outer=tuple((name, _check_values(name, values)) for name, values in grid.outer),
        settings={name: check_setting(name, value) for name, value in grid.settings.items()},
    )
    for config in grid.configs(PAPER.with_settings(grid.settings)):
        config.check([method.plan for method in grid.methods])
    for claim in grid.claims:
        claim.check(method_names, grid.values)
    return grid


def _check_values(axis: str, values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the values of a setting that is varied, in its type."""
    if axis in _NOT_VARIED:
        raise ParameterError(f"{axis} {_NOT_VARIED[axis]}: give it in [settings]")
    settings = tuple(check_setting(axis, value) for value in values)
    if not settings or len(set(settings)) < len(settings):
        raise ParameterError(f"{axis} is {list(values)!r}, expected a list of different values")
    return settings
