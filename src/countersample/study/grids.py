"""Studies as data: grids with their claims, and the paper's numbers, in TOML, checked when read.

A grid names its methods, the setting that is varied, the settings that differ from the paper's, and
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
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from countersample._files import read_at_most
from countersample._json import check_schema
from countersample._params import choice, number
from countersample.errors import DataError, ParameterError
from countersample.study.settings import PAPER, SETTINGS, ExperimentConfig, check_setting, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Schema = TypeVar("Schema")

Value = float | int | str
Direction = Literal["lower", "higher", "same"]
ScaleName = Literal["smoke", "small", "medium", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "small", "medium", "paper")

# -- the paper's numbers -------------------------------------------------------------------------

# Which dataset of the paper one of ours is, or has the shape of; `find_source` names them by their
# content. Yahoo is set 1, which the released code reads; the 36,251 queries of the paper's table
# count sets 1 and 2 together (docs/deviations.md).
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
    """A number of the paper, with its mark there."""

    value: float
    mark: str = ""


@dataclass(frozen=True)
class Published:
    """The paper's tables."""

    # By study, dataset (the paper's name of it), row (empty if there is one only) and column.
    numbers: Mapping[tuple[str, str, str, Value], PublishedNumber]

    def number(self, study: str, dataset: str, row: str, column: Value) -> PublishedNumber | None:
        """Return the paper's number for our name of a dataset, or None.

        The column is a setting. Numbers are compared as numbers: 1 is 1.0.
        """
        return self.numbers.get((study, PAPER_DATASETS.get(dataset, ""), row, column))


# -- claims --------------------------------------------------------------------------------------

SOURCES = ("paper", "beyond")
EVERY = "all"  # the method of a claim about every method


class Quantity(NamedTuple):
    """The quantity that a claim compares."""

    measure: str  # "regret", ×100, or "ndcg", nDCG@10 at the last point
    title: str  # begins a sentence
    digits: int  # decimals shown
    # The smallest difference that counts. The largest that the paper calls comparable is 0.04 of
    # regret ×100, the smallest that it calls significant 0.07.
    margin: float


class ClaimTest(NamedTuple):
    """How a kind of claim is tested.

    `compares` is one of:

    - methods: the method with another, at each setting;
    - leads: its lead over another at the last setting with its lead at the first;
    - settings: the method at the last setting with itself at the first;
    - pairs: the method with itself, at every two settings;
    - others: the method at one setting with itself at each other setting;
    - cases: the same for every method on every dataset, of which most must hold.
    """

    compares: Literal["methods", "leads", "settings", "pairs", "others", "cases"]
    direction: Direction  # of the first beside the second
    quantity: Quantity


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
    test: str  # one of `TESTS`; in other studies than of regret, a test of their kind
    method: str = ""
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
        compares = TESTS[choice("test", self.test, TESTS)].compares
        choice("source", self.source, SOURCES)
        choice("method", self.method, [EVERY] if compares == "cases" else methods)
        if self.on:
            choice("on", self.on, sorted(set(PAPER_DATASETS.values())))
        if self.margin is not None:
            number("margin", self.margin, above=0)
        if compares in {"methods", "leads"}:
            choice("than", self.than, [name for name in methods if name != self.method])
        elif self.than:
            raise ParameterError(f"than is {self.than!r}, but {self.test!r} compares no methods")
        at = list(self.at)
        if unknown := [value for value in at if value not in values]:
            names = ", ".join(map(repr, values))
            raise ParameterError(f"at has {unknown[0]!r}, expected values of the study: {names}")
        if len(set(at)) < len(at):
            raise ParameterError(f"at is {at!r}, expected each value once")
        if compares != "methods" and len(values) < 2:
            raise ParameterError(f"{self.test!r} needs a study of two values or more")
        needs_one = compares in {"others", "cases"}
        if needs_one and len(at) != 1:
            raise ParameterError(f"at is {at!r}, but {self.test!r} needs one value")
        if compares != "methods" and not needs_one and len(at) == 1:
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
        from countersample.logs.exposure import EXPOSURES  # noqa: PLC0415 (imports numpy)
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
    settings: dict[str, Any] = field(default_factory=dict)  # that differ from the paper's
    claims: tuple[Claim, ...] = ()
    nothing_set: bool = False  # whether `CounterSampleRanker`, with its defaults, is shown beside

    def __post_init__(self) -> None:
        # The name may come from a stranger's results folder.
        is_path = self.name in {"", ".", ".."} or Path(self.name).name != self.name
        if is_path or "\\" in self.name or not self.name.isprintable():
            raise ParameterError(
                f"a study is called {self.name!r}, expected the name of a file: tables and figures "
                "are written under it"
            )

    def configs(self, config: ExperimentConfig) -> Iterator[ExperimentConfig]:
        """Yield the settings at every value; `config` itself if nothing is varied."""
        for value in self.values:
            yield config.with_settings({self.axis: value})
        if not self.values:
            yield config


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
    """The changes of a scale: settings, and the values of the setting that is varied."""

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
        raise ParameterError(f"no study {name!r}{suggest(name, names())}")
    return folder() / f"{name}.toml"


def config_of(scale: str) -> ExperimentConfig:
    """Return the settings of a scale."""
    scales = read_toml(folder() / "scales.toml", dict[str, ScaleTable])
    if scale not in scales:
        raise ParameterError(f"no scale {scale!r}{suggest(scale, list(scales))}")
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
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, nested too deeply
        raise ParameterError(f"{path}: is not TOML: {error}") from error


@contextmanager
def locate_errors(path: Path) -> Iterator[None]:
    """Add the file to the errors that are raised within."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error


def load_published() -> Published:
    """Read the paper's numbers, ``experiments/published.toml``.

    A table is a study: ``columns`` names its columns, every other key a dataset, which has a list
    of numbers, or several by row. A number may be a text that ends in ``v`` (significantly lower)
    or ``^`` (higher).
    """
    tables = read_toml(folder() / "published.toml", dict[str, dict[str, Any]])
    numbers: dict[tuple[str, str, str, Value], PublishedNumber] = {}
    for study, table in tables.items():
        columns = table.pop("columns")
        for dataset, rows in table.items():
            for row, values in (rows if isinstance(rows, dict) else {"": rows}).items():
                for column, text in zip(columns, map(str, values), strict=True):
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
        varied = file.vary | at_scale.vary
        if len(varied) > 1:
            raise ParameterError(f"vary has {', '.join(varied)}, expected one setting")
        ((axis, values),) = varied.items() or [("", [])]
        methods = tuple(map(_find_method, file.methods))
        grid = check_grid(
            Grid(
                name=path.stem, title=file.title, about=" ".join(file.about.split()),
                kind=file.kind, paper=file.paper, datasets=file.datasets, methods=methods,
                reference=file.reference or (methods[0].name if methods else ""),
                axis=axis, values=tuple(values), settings=file.settings | at_scale.settings,
                claims=file.claims, nothing_set=file.nothing_set,
            )
        )  # fmt: skip
        for name, table in file.scale.items():
            for key in table.vary:
                choice(f"a key of scale.{name}.vary", key, file.vary)
        return grid


def _find_method(entry: str | Method) -> Method:
    if isinstance(entry, Method):
        return entry
    if entry not in METHODS:
        raise ParameterError(
            f"no method {entry!r}{suggest(entry, list(METHODS))}, or a table such as "
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
        raise ParameterError(f"no method {grid.reference!r}{suggest(grid.reference, method_names)}")
    settings = {name: check_setting(name, value) for name, value in grid.settings.items()}
    grid = replace(grid, settings=settings)
    if grid.axis:
        values = _check_values(grid.axis, grid.values)
        grid = replace(grid, values=values, axis_title=SETTINGS[grid.axis].metadata["title"])
    for config in grid.configs(PAPER.with_settings(settings)):
        config.check([method.plan for method in grid.methods])
    return grid


def _check_values(axis: str, values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the values of the setting that is varied, in its type."""
    if axis in _NOT_VARIED:
        raise ParameterError(f"{axis} {_NOT_VARIED[axis]}: give it in [settings]")
    settings = tuple(check_setting(axis, value) for value in values)
    if not settings or len(set(settings)) < len(settings):
        raise ParameterError(f"{axis} is {list(values)!r}, expected a list of different values")
    return settings
