"""Studies as data: grids in TOML, checked on load."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib.resources import files
from inspect import signature
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample._params import choice
from countersample.errors import ParameterError
from countersample.study.design._toml import TomlFile
from countersample.study.design.claims import Claim, Value
from countersample.study.design.config import PAPER, checked, in_words, nearest, title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from countersample.study.design._toml import Key
    from countersample.study.design.config import ExperimentConfig


@dataclass(frozen=True)
class Method:
    """A method as it is shown: its name, its plan, its unit, and what its weights are."""

    name: str
    plan: str
    unit: str
    exposure: str = "policy-aware"  # how a click is weighted: see `join_features`

    @property
    def look(self) -> tuple[str, str]:
        """What it is drawn by: its plan and unit, unless its weights are not the usual ones."""
        return (self.plan if self.exposure == "policy-aware" else self.exposure), self.unit


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
    paper: str = ""  # which table and figure of the paper it repeats; empty: beyond the paper
    datasets: tuple[str, ...] = ()  # names or paths
    methods: tuple[Method, ...] = ()
    reference: str = ""  # the method others are tested against
    axis: str = ""  # the setting that is varied, one of `ExperimentConfig`
    axis_title: str = ""  # as the tables and figures call it
    values: tuple[Value, ...] = ()  # a column of the table and a panel of the figure each
    # Settings that are varied beside it and their values: each combination has its rows of the
    # table and of the figure.
    outer: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)  # what differs from the paper's
    claims: tuple[Claim, ...] = ()
    nothing_set: bool = False  # whether `CounterSampleRanker`, with nothing set, is shown beside

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
        """Return every combination of the settings that are varied beside `axis`: {} where none."""
        names = [name for name, _ in self.outer]
        return [
            dict(zip(names, values, strict=True))
            for values in product(*(values for _, values in self.outer))
        ]

    def configs(self, config: ExperimentConfig) -> Iterator[ExperimentConfig]:
        """Yield the settings of every combination; with no axis, those given."""
        for block in self.blocks():
            for value in self.values or (None,):
                yield config.with_settings(block | ({} if value is None else {self.axis: value}))

    def where(self, dataset: str, block: Mapping[str, Value]) -> str:
        """Return what rows of tables and figures are of: "yahoo-like, γ = 0.5".

        Every such row is held against the claims on its own, like a dataset.
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
    known = sorted({path.stem for path in folder().glob("*.toml")} - _NO_STUDIES)
    return [*_IN_PAPER, *(name for name in known if name not in _IN_PAPER)]


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
    return PAPER.with_settings(_settings(file, (scale, "settings"), file.data[scale]))


def load(path: Path, scale: str, checks: Mapping[str, Callable[[Grid], None]]) -> Grid:
    """Read and check a grid.

    Parameters
    ----------
    path : Path of a TOML file
    scale : {"smoke", "small", "medium", "paper"}
        Which of its `[scale.…]` tables applies.
    checks : mapping
        For each kind of study a function that raises a `ParameterError` for a grid it cannot be.

    Raises
    ------
    ParameterError
        With file and line, for anything that is not as it should be.
    """
    file = TomlFile(path)
    _check_keys(file, (), file.data, _KEYS)
    adapted = _at_scale(file, scale)
    *outer, (axis, values) = _axes(file, adapted) or [("", ())]
    methods = _methods(file)
    grid = Grid(
        name=path.stem,
        title=_text(file, "title"),
        about=" ".join(_text(file, "about").split()),
        kind=_text(file, "kind"),
        paper=_text(file, "paper", ""),
        datasets=_texts(file, "datasets"),
        methods=methods,
        reference=_reference(file, methods),
        axis=axis,
        axis_title=title_of(axis) if axis else "",
        values=values,
        outer=tuple(outer),
        settings=_settings(file, ("settings",), file.data)
        | _settings(file, ("scale", scale, "settings"), adapted),
        claims=_claims(file),
        nothing_set=_yes_or_no(file, "nothing_set"),
    )
    with _located(file, ("kind",)):
        checks[choice("kind", grid.kind, checks)](grid)
    _check_combinations(file, grid)
    for index, claim in enumerate(grid.claims):
        with _located(file, ("claims", index)):
            claim.check([method.name for method in grid.methods], grid.values)
    return grid


def _check_combinations(file: TomlFile, grid: Grid) -> None:
    """Refuse settings that do not go together, at the line of one that is at fault."""
    for config in grid.configs(PAPER.with_settings(grid.settings)):
        try:
            config.check([method.plan for method in grid.methods])
        except ParameterError as error:
            named = re.findall(r"\w+", str(error))
            given = ((table, name) for table in ("settings", "vary") for name in named)
            found = (key for key in given if key[1] in _table(file, key[:1], file.data))
            raise file.error(next(found, ("vary",)), str(error)) from error


@contextmanager
def _located(file: TomlFile, key: Key) -> Iterator[None]:
    """Say file and line in errors raised within: of the key within `key` that they begin with."""
    try:
        yield
    except ParameterError as error:
        raise file.error((*key, str(error).split()[0]), str(error)) from error


def _check_keys(file: TomlFile, key: Key, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise file.error((*key, name), f"unknown key {name!r}{nearest(name, known)}")


def _text(file: TomlFile, key: str, default: str | None = None) -> str:
    value = file.data.get(key, default)
    if value is None:
        raise file.error((), f'{key} is missing: expected {key} = "…"')
    if not isinstance(value, str):
        raise file.error((key,), f"{key} is {value!r}, expected a text in quotes")
    return value


def _texts(file: TomlFile, key: str) -> tuple[str, ...]:
    value = file.data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise file.error((key,), f"{key} is {value!r}, expected a list of texts in quotes")
    return tuple(value)


def _yes_or_no(file: TomlFile, key: str) -> bool:
    value = file.data.get(key, False)
    if not isinstance(value, bool):
        raise file.error((key,), f"{key} is {value!r}, expected true or false")
    return value


def _table(file: TomlFile, key: Key, within: Mapping[str, Any]) -> dict[str, Any]:
    table = within.get(str(key[-1]), {})
    if not isinstance(table, dict):
        raise file.error(key, f"{key[-1]} is {table!r}, expected a table: [{key[-1]}]")
    return table


def _settings(file: TomlFile, key: Key, within: Mapping[str, Any]) -> dict[str, Any]:
    settings = {}
    for name, value in _table(file, key, within).items():
        with _located(file, (*key, name)):
            settings[name] = checked(name, value)
    return settings


def _at_scale(file: TomlFile, scale: str) -> dict[str, Any]:
    scales = _table(file, ("scale",), file.data)
    for name in scales:
        if name not in SCALES:
            raise file.error(("scale", name), f"no scale {name!r}{nearest(name, SCALES)}")
        table = _table(file, ("scale", name), scales)
        _check_keys(file, ("scale", name), table, ("vary", "settings"))
    return _table(file, ("scale", scale), scales)


def _axes(file: TomlFile, adapted: Mapping[str, Any]) -> list[tuple[str, tuple[Value, ...]]]:
    """Return the settings that are varied and their values, the columns of the table last."""
    varied = _table(file, ("vary",), file.data)
    at_scale = _table(file, ("vary",), adapted)
    _check_keys(file, ("vary",), at_scale, varied)
    return [(axis, _values(file, axis, values)) for axis, values in (varied | at_scale).items()]


def _values(file: TomlFile, axis: str, values: object) -> tuple[Value, ...]:
    key = ("vary", axis)
    if axis in _NOT_VARIED:
        raise file.error(key, f"{axis} {_NOT_VARIED[axis]}: give it in [settings]")
    if not isinstance(values, list) or not values:
        raise file.error(key, f"{axis} is {values!r}, expected a list of values")
    with _located(file, key):
        good = tuple(checked(axis, value) for value in values)
    if len(set(good)) < len(good):
        raise file.error(key, f"{axis} has the same value twice")
    return good


def _methods(file: TomlFile) -> tuple[Method, ...]:
    given = file.data.get("methods", [])
    if not isinstance(given, list):
        raise file.error(("methods",), f"methods is {given!r}, expected a list")
    methods = []
    for entry in given:
        if isinstance(entry, dict) and {"name", "plan", "unit"} <= set(entry) <= _METHOD_KEYS:
            method = Method(**entry)
        elif isinstance(entry, str) and entry in METHODS:
            method = METHODS[entry]
        else:
            raise file.error(
                ("methods",),
                f"no method {entry!r}{nearest(str(entry), list(METHODS))}, or a table such as "
                '{ name = "mine", plan = "ips", unit = "pair" }',
            )
        methods.append(method)
    with _located(file, ("methods",)):
        _check_methods(methods)
    return tuple(methods)


def _check_methods(methods: Sequence[Method]) -> None:
    from countersample.clicks.impressions.exposure import EXPOSURES  # noqa: PLC0415 (as below)
    from countersample.plans import PLANS, UNITS  # noqa: PLC0415 (imports numpy)

    for method in methods:
        if not isinstance(method.name, str):
            raise ParameterError(f"method {method.name!r}, expected a text in quotes as its name")
        if method.plan not in [*PLANS] or method.unit not in [*UNITS]:
            raise ParameterError(
                f"method {method.name!r} has plan {method.plan!r} and unit {method.unit!r}, "
                f"expected a plan of {', '.join(PLANS)} and a unit of {', '.join(UNITS)}"
            )
        if "probabilities" in signature(PLANS[method.plan]).parameters:
            raise ParameterError(
                f"method {method.name!r} has plan {method.plan!r}, which needs probabilities: a "
                "study has none to give, expected another plan"
            )
        choice("exposure", method.exposure, EXPOSURES)
    if len({method.name for method in methods}) < len(methods):
        raise ParameterError("methods has the same name twice")


def _reference(file: TomlFile, methods: tuple[Method, ...]) -> str:
    known = [method.name for method in methods]
    name = _text(file, "reference", known[0] if known else "")
    if known and name not in known:
        raise file.error(("reference",), f"no method {name!r}{nearest(name, known)}")
    return name


def _claims(file: TomlFile) -> tuple[Claim, ...]:
    given = file.data.get("claims", [])
    if not isinstance(given, list):
        raise file.error(("claims",), f"claims is {given!r}, expected tables: [[claims]]")
    return tuple(_claim(file, index) for index in range(len(given)))


def _claim(file: TomlFile, index: int) -> Claim:
    key = ("claims", index)
    entry = file.data["claims"][index]
    if not isinstance(entry, dict):
        raise file.error(key, f"a claim is {entry!r}, expected a table: [[claims]]")
    _check_keys(file, key, entry, _CLAIM_KEYS)
    for name in ("text", "test", "method"):
        if not isinstance(entry.get(name), str):
            raise file.error(key, f'a claim needs {name} = "…"')
    at = entry.get("at", [])
    if not isinstance(at, list):
        raise file.error((*key, "at"), f"at is {at!r}, expected a list of values")
    return Claim(**entry | {"at": tuple(at)})


def as_grid(values: Mapping[str, Any], checks: Mapping[str, Callable[[Grid], None]]) -> Grid:
    """Return a grid from plain values (see `dataclasses.asdict`), checked as `load` does."""
    for name in _TEXTS:
        if not isinstance(values[name], str):
            raise ParameterError(f"{name} is {values[name]!r}, expected text")
    claims = [Claim(**claim | {"at": tuple(claim["at"])}) for claim in values["claims"]]
    methods = [Method(**method) for method in values["methods"]]
    axis, datasets = values["axis"], tuple(map(str, values["datasets"]))
    varied = {name: tuple(each) for name, each in [*values["outer"], [axis, values["values"]]]}
    varied = {
        name: tuple(checked(name, value) for value in each) for name, each in varied.items() if name
    }
    settings = {name: checked(name, value) for name, value in values["settings"].items()}
    made = {"methods": tuple(methods), "claims": tuple(claims), "settings": settings}
    lists = {"datasets": datasets, "values": varied.pop(axis, ()), "outer": tuple(varied.items())}
    grid = Grid(**dict(values) | lists | made)
    _check_methods(methods)
    checks[choice("kind", grid.kind, checks)](grid)
    for config in grid.configs(PAPER.with_settings(settings)):
        config.check([method.plan for method in methods])
    for claim in claims:
        claim.check([method.name for method in methods], grid.values)
    return grid
