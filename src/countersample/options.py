"""The options of the package: one frozen dataclass per subject.

Each default and each help text is written here and nowhere else. The library takes these objects,
the command line (`countersample.cli`) is generated from them, and results store them. They are
validated when they are constructed. An option that may be left to a default elsewhere is ``None``.

Defaults that many signatures share are in `countersample.defaults`. Training has its own class,
`countersample.training.TrainingOptions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping  # noqa: TC003 (with the types of fields)
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path  # noqa: TC003 (types of fields are read)
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from countersample._params import choice, number, whole_number
from countersample.defaults import CONFIDENCE, HOLDOUT
from countersample.errors import ParameterError

__all__ = [
    "EvaluationOptions",
    "ExportOptions",
    "FeatureOptions",
    "LogOptions",
    "PropensityOptions",
    "RankerOptions",
    "SimulationOptions",
]

_METRIC = re.compile(r"dcg|(dcg|precision)@0*[1-9][0-9]*")


class Options:
    """What all option classes share: choices are checked, sequences become tuples."""

    def __post_init__(self) -> None:
        """Normalize sequences; check choices and whole numbers."""
        for name, hint in _hints(type(self)).items():
            value = getattr(self, name)
            if hint == tuple[str, ...]:
                names = [value] if isinstance(value, str) else [] if value is None else value
                object.__setattr__(self, name, tuple(names))
            if hint in {int, int | None} and value is not None:
                whole_number(name, value, least=0)
            choices = choices_of(hint)
            if choices and not (value is None and type(None) in get_args(hint)):
                _check_choice(name, value, choices)

    @classmethod
    def of(cls, options: Self | None = None, **settings: Any) -> Self:  # noqa: ANN401 (its fields)
        """Return the options, or the defaults, with these settings changed."""
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type] # a dataclass
        for name in settings:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f", did you mean {near[0]!r}?" if near else f": it has {', '.join(names)}"
                raise ParameterError(f"{cls.__name__} has no option {name!r}{hint}")
        if options is not None and not isinstance(options, cls):
            raise ParameterError(f"options is {options!r}, expected {cls.__name__}")
        return cls(**settings) if options is None else replace(options, **settings)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {name: _plain(getattr(self, name)) for name in _hints(type(self))}


@dataclass(frozen=True, kw_only=True)
class LogOptions(Options):
    """How a raw log is read.

    Examples
    --------
    >>> from countersample.options import LogOptions
    >>> LogOptions(columns={"query_id": "search_term"}, context="device").context
    ('device',)
    """

    reader: Literal["ubi", "metarank", "baidu-ultr", "yandex", "open-bandit", "expedia"] | None = (
        None
    )
    """The system that wrote the log; by default a table with query_id, item_id, position, click."""
    columns: dict[str, str] = field(default_factory=dict)
    """Your column names: query_id=q,item_id=doc,position=rank."""
    context: tuple[str, ...] = ()
    """Columns that position bias depends on: device,layout."""
    values: dict[str, float] | None = None
    """The value of each event, for a log with a column 'event': click=1,cart=3."""
    join_queries: bool = False
    """Treat queries that differ only in case and blanks as one."""
    positions_from: Literal[0, 1] = 1
    """The number of the top position."""
    suspicious: Literal["keep", "skip"] = "keep"
    """Sessions that click everything, very active clients, repeated rows: keep or skip them."""
    features: tuple[str, ...] = ()
    """Numeric columns of the log that are features, averaged per query and item: price,stock."""
    engine: Literal["duckdb", "spark"] | None = None
    """The engine that counts the log; DuckDB for files by default."""
    master: str | None = None
    """The Spark master: spark://host:7077."""
    memory_limit: str | None = None
    """The memory that DuckDB may use: 2GB."""
    temp_dir: Path | None = None
    """The folder for data that exceeds DuckDB's memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "columns", dict(self.columns or {}))
        if self.values is not None:
            object.__setattr__(self, "values", _check_values(self.values))


@dataclass(frozen=True, kw_only=True)
class FeatureOptions(Options):
    """Which columns are features, and how they are read."""

    items: Any = None
    """Features of items that are the same for every query, one row per item_id."""
    queries: Any = None
    """Features of queries that are the same for every item, one row per query_id."""
    query: str = "query_id"
    """The column of the query ids."""
    item: str = "item_id"
    """The column of the item ids."""
    include: tuple[str, ...] = ()
    """The features to use: price,sales (for LETOR text, their numbers). All by default."""
    exclude: tuple[str, ...] = ()
    """The features to leave out: title,ctr (for LETOR text, their numbers)."""
    categorical: tuple[str, ...] = ()
    """Text or integer columns that become indicators, one per value, up to 200: brand,country."""
    other_columns: Literal["skip", "error"] = "skip"
    """Columns that cannot be features (ids, free text, lists): skip them, or raise an error."""
    age_at: str | None = None
    """Dates become ages, counted back from this day, such as 2026-03-31; the latest by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.include and self.exclude:
            raise ParameterError("include and exclude are both given, expected one of them")

    def named_as(self, columns: Mapping[str, str]) -> FeatureOptions:
        """Return options in which ids are called as in a log (`LogOptions.columns`)."""
        return replace(
            self, query=columns.get("query_id", self.query), item=columns.get("item_id", self.item)
        )


@dataclass(frozen=True, kw_only=True)
class PropensityOptions(Options):
    """How clicks are corrected for position bias.

    The probability that a position is examined is estimated, unless it is `known`, or given by
    `gamma` or a `file`.

    Examples
    --------
    >>> from countersample.options import PropensityOptions
    >>> PropensityOptions(method="all-pairs", depth=5).depth
    5
    """

    method: Literal[
        "auto", "logged", "randomized", "swaps", "pivot", "adjacent-chain", "all-pairs", "em",
        "regression-em", "trust",
    ] = "auto"  # fmt: skip
    """The propensity estimator; auto takes the first that the log supports."""
    randomized: str | None = None
    """The policy whose results were shuffled: propensities are estimated from its rows."""
    depth: int | None = None
    """The last position to estimate."""
    gamma: float | None = None
    """Do not estimate, but assume that position k is examined with probability (1/k)^gamma."""
    file: Path | None = None
    """Do not estimate, but read saved propensities (.json)."""
    known: Any = None
    """Propensities, a curve or an array, as `join_features` takes them."""
    missing: Literal["error", "skip"] = "error"
    """Rows that are impossible, or have no features or propensity: raise an error, or skip them."""
    exposure: Literal["policy-aware", "position-only"] = "policy-aware"
    """Weight a click by its item's exposure in a session of the query, or by its position alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth is not None:
            whole_number("depth", self.depth, least=1)
        if self.gamma is not None:
            number("gamma", self.gamma, least=0)
        sources = [name for name in ("gamma", "file", "known") if getattr(self, name) is not None]
        if len(sources) > 1:
            raise ParameterError(
                f"{sources[0]} and {sources[1]} of the propensities are both given, expected one "
                "of them"
            )
        estimates = self.method != "auto" or self.randomized is not None or self.depth is not None
        if sources and estimates:
            raise ParameterError(
                "propensities are given, so nothing is estimated: leave out method, randomized "
                "and depth"
            )

    @property
    def is_estimated(self) -> bool:
        """Whether propensities are estimated, and not known."""
        return self.gamma is None and self.file is None and self.known is None

    @classmethod
    def from_known(cls, propensities: Any) -> PropensityOptions:  # noqa: ANN401 (or options)
        """Return options as they are, or options in which these propensities are known."""
        if propensities is None:
            return cls()
        return propensities if isinstance(propensities, cls) else cls(known=propensities)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without the propensities themselves."""
        return {name: value for name, value in super().to_dict().items() if name != "known"}


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(Options):
    """How the gain over the logging policy is estimated from held-out clicks."""

    metric: str | None = None
    """dcg@k or precision@k; by default dcg@10, or dcg@k for pages of k < 10 results."""
    estimator: Literal["auto", "ips", "snips", "clipped", "dr"] = "auto"
    """The off-policy estimator; auto takes dr if the ranker shows items that were never logged."""
    holdout_by: Literal["auto", "time", "queries"] = "auto"
    """Hold out the last days (time) or queries; auto holds out days if the log has enough."""
    holdout_from: str | None = None
    """The first held-out day, such as 2026-03-31."""
    holdout_last: str | None = None
    """The length of the held-out time at the end of the log, such as 7d or 2w."""
    holdout: float = HOLDOUT
    """The share of the queries, or of the rows, that is held out for evaluation."""
    confidence: float = CONFIDENCE
    """The confidence level of every interval."""
    accept_features: tuple[str, ...] = ()
    """Features that the leak test ignores, because you know that they do not leak: ctr,sales."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric is not None and not _METRIC.fullmatch(self.metric):
            raise ParameterError(
                f"metric is {self.metric!r}, expected dcg@k or precision@k, with a k of at least 1"
            )
        number("holdout", self.holdout, above=0, most=0.5)
        number("confidence", self.confidence, above=0, below=1)
        first: Any = self.holdout_from
        if isinstance(first, date):
            day = first.date() if isinstance(first, datetime) else first
            object.__setattr__(self, "holdout_from", day.isoformat())
        if self.holdout_from is not None and self.holdout_last is not None:
            raise ParameterError(
                "holdout_from and holdout_last are both given, expected one of them"
            )
        if self.holdout_by == "queries" and self.names_days:
            raise ParameterError(
                "holdout_from and holdout_last are for an evaluation by time, not by queries"
            )

    @property
    def names_days(self) -> bool:
        """Whether the days that evaluate are named."""
        return self.holdout_from is not None or self.holdout_last is not None

    @property
    def needs_time(self) -> bool:
        """Whether the evaluation must be by time."""
        return self.holdout_by == "time" or self.names_days

    @property
    def n_folds(self) -> int:
        """The number of folds that queries are split into."""
        return round(1 / self.holdout)


@dataclass(frozen=True, kw_only=True)
class RankerOptions(Options):
    """What is trained. An option that is ``None`` is left to the ranker's default."""

    model: Literal["linear", "neural", "lightgbm", "xgboost"] | None = None
    """The kind of ranker; by default linear, or the kind of --warm-start."""
    warm_start: Path | None = None
    """A saved ranker to train further, with its settings, on a log of new clicks."""
    safety: float | None = None
    """The confidence that is needed to replace your current ranker; 0 turns the check off."""
    impute: Literal["median-indicator", "median", "zero", "error"] | None = None
    """How missing features are filled in; median-indicator by default. Not needed for trees."""
    transform: Literal["log", "root", "quantile", "auto"] | None = None
    """Transform features before scaling; auto lets held-out clicks choose. Not for trees."""
    normalize: Literal["minmax", "root-minmax", "standard", "query-minmax", "none"] | None = None
    """The scaling of features; root-minmax takes roots of heavy-tailed features first."""
    method: Literal["countersample", "ips", "snips", "naive"] | None = None
    """The plan that samples clicks; trees take ips or naive."""
    unit: Literal["query", "pair", "click"] | None = None
    """The training example: all clicks of a query, all of a query and an item, or one click."""
    objective: str | None = None
    """rank, log-rank, dcg, squared-rank or precision@k; networks and trees have other losses."""
    optimizer: Literal["dog", "sgd", "adam", "adagrad", "amsgrad"] | None = None
    """The optimizer of a linear ranker."""
    learning_rate: float | None = None
    """The learning rate; optional for a linear ranker."""
    steps: int | None = None
    """The training steps of a linear ranker; chosen from the log by default."""
    clip: float | None = None
    """The smallest propensity; chosen from the log by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model in {None, "linear"} and self.safety and self.learning_rate is not None:
            raise ParameterError(
                "safety and learning_rate are both given, expected one of them: training with a "
                "learning rate holds out no clicks that could show which ranker is better"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """The given parameters of the ranker, by the ranker's own names."""
        names = {name: name for name in _hints(type(self)) if name not in {"model", "warm_start"}}
        names["transform"] = "feature_transform"
        values = {theirs: getattr(self, name) for name, theirs in names.items()}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """Where a ranker is exported to, and what it is called there."""

    to: Literal["onnx", "elasticsearch", "opensearch", "solr", "sql"]
    """The system to export to."""
    name: str | None = None
    """The model's name in that system; by default the name of the file."""
    feature_names: tuple[str, ...] = ()
    """The names of the features in that system, in the order of training, or @FILE."""
    model_type: Literal["linear", "xgboost+json", "ranklib"] | None = None
    """For Elasticsearch and OpenSearch: the type of the model; by default what fits the ranker."""
    feature_store: str | None = None
    """The name of Solr's feature store, or of the feature set of Elasticsearch or OpenSearch."""
    one_query: bool = False
    """For ONNX and query-minmax: confirm that each call of the graph has the items of one query."""
    dialect: Literal["duckdb", "postgres", "spark", "bigquery", "snowflake"] | None = None
    """For SQL: the database that reads the view; duckdb by default."""
    table: str | None = None
    """For SQL: the table of the features, as schema.table or table; features by default."""
    query: str | None = None
    """For SQL: the column of the query; with it, the view has a rank per query."""
    card: Literal["markdown", "html"] = "markdown"
    """The format of the model card."""


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(Options):
    """Which rankings simulated users see, and how they click."""

    clicks: int = 1_000_000
    """The number of clicks."""
    sessions: int = 0
    """Write the impressions of this many sessions instead of a click log."""
    gamma: float = 1.0
    """The position bias: rank k is examined with probability (1/k)^gamma."""
    offset: Literal[0, 1] = 0
    """0: (1/rank)^gamma, the paper's equation; 1: its authors' code."""
    click_model: str = "position-based"
    """The click model."""
    relevant: float | None = None
    """The lowest relevant grade; 3 by default, or 1 if no grade reaches 3."""
    noise: float = 0.1
    """The probability of a click on an examined item that is not relevant."""
    policy: tuple[Path, ...] = ()
    """A saved ranker that shows the items; may be repeated."""
    policy_fraction: tuple[float, ...] = ()
    """A ranker trained on this share of the queries; may be repeated. By default one, of 0.001."""
    shares: tuple[float, ...] = ()
    """The shares of the policies in the sessions: 0.9,0.1."""
    top: int | None = None
    """The number of items shown; 0 for all. By default 10 with --sessions, else all."""
    shuffle: int | None = None
    """Shuffle this many items at the top; 0 for all that are shown."""
    swap: str | None = None
    """Swap two items: neighbours (adjacent), or the first with another one (first)."""
    swap_rate: float = 0.5
    """The share of the sessions with such a swap."""
    interleave: bool = False
    """Team-draft interleaving of two policies."""
    contexts: dict[str, str] = field(default_factory=dict)
    """Contexts with their share and gamma: phone=0.6:1.5,desktop=0.4:0.5."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum([self.shuffle is not None, self.swap is not None, self.interleave]) > 1:
            raise ParameterError("expected one of shuffle, swap and interleave, not several")


_HINTS: dict[type, dict[str, Any]] = {}  # the types of the fields of each class


def _hints(cls: Any) -> dict[str, Any]:  # noqa: ANN401 (an option class)
    if cls not in _HINTS:
        hints = get_type_hints(cls)
        _HINTS[cls] = {each.name: hints[each.name] for each in fields(cls)}
    return _HINTS[cls]


def choices_of(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 (a type)
    """Return the values of a Literal, or of one that may be None."""
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Literal:
            return get_args(part)
    return ()


def _check_choice(name: str, value: object, choices: tuple[Any, ...]) -> None:
    if all(isinstance(each, str) for each in choices):
        choice(name, value, choices)
    elif isinstance(value, bool) or value not in choices:
        expectation = " or ".join(map(str, choices))
        raise ParameterError(f"{name} is {value!r}, expected {expectation}")


def _check_values(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values of events; reject values that are no numbers of at least 0."""
    if not values:
        raise ParameterError("values is empty, expected the values of events, such as click=1")
    for event, value in values.items():
        if not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise ParameterError(
                f"the value of {event!r} is {value!r}, expected a number of at least 0"
            )
    return {str(event): float(value) for event, value in values.items()}


def _plain(value: Any) -> Any:  # noqa: ANN401 (of any option)
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, str | int | float | dict | None) else str(value)
