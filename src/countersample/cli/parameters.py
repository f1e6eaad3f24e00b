"""How the command line shows the option classes of `countersample.options`.

Cyclopts generates the options of a command from the fields of these classes: names, types, choices,
defaults and help texts. This module adds what is particular to a command line: the groups of the
help page, names that are longer than in Python, lists and pairs that are written with commas, and
the parameters that several commands have besides (`Out`, `Seed` …).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from countersample.errors import ParameterError
from countersample.options import (
    EvaluationOptions,
    ExportOptions,
    FeatureOptions,
    LogOptions,
    PropensityOptions,
    RankerOptions,
    SimulationOptions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import Token

LOG = Group("The log", sort_key=1)
FEATURES = Group("Features", sort_key=2)
BIAS = Group("Position bias", sort_key=3)
RANKER = Group("The ranker", sort_key=4)
OUTPUT = Group("Output", sort_key=8)
_GROUPS: dict[type, Group] = {
    LogOptions: LOG,
    FeatureOptions: FEATURES,
    PropensityOptions: BIAS,
    RankerOptions: RANKER,
    EvaluationOptions: Group("Evaluation", sort_key=5),
    ExportOptions: Group("The export", sort_key=6),
    SimulationOptions: Group("The simulation", sort_key=7),
}
_NAMES = {  # options whose name needs more context than the field of a class does
    (LogOptions, "features"): "--log-features",
    (FeatureOptions, "items"): "--item-features",
    (FeatureOptions, "queries"): "--query-features",
    (PropensityOptions, "method"): "--propensity-method",
    (PropensityOptions, "file"): "--propensities",
}
_HIDDEN = {(FeatureOptions, "query"), (FeatureOptions, "item"), (PropensityOptions, "known")}


def parse_list(type_: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:  # noqa: ANN401
    """Read ``device,layout``, or the lines of ``@FILE``; numbers such as ``0.9,0.1``."""
    texts = [token.value for token in tokens]
    if len(texts) == 1 and texts[0].startswith("@"):
        path = Path(texts[0][1:])
        try:
            return tuple(line.strip() for line in path.read_text("utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise ParameterError(f"{path}: cannot be read as lines: {error}") from error
    parts = tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
    if type_ != tuple[float, ...]:
        return parts
    try:
        return tuple(map(float, parts))
    except ValueError:
        raise ParameterError(
            f"{tokens[0].keyword} is {','.join(parts)!r}, expected numbers, as in 0.9,0.1"
        ) from None


def parse_pairs(type_: Any, tokens: Sequence[Token]) -> dict[str, Any]:  # noqa: ANN401
    """Read ``query_id=q,item_id=doc``, or with numbers ``click=1,cart=3``."""
    pairs: dict[str, Any] = {}
    option, is_number = tokens[0].keyword, type_ == dict[str, float]
    example = "click=1,cart=3" if is_number else "query_id=q,item_id=doc"
    for part in parse_list(None, tokens):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value) or name in pairs:
            raise ParameterError(
                f"{option} has {part!r}, expected pairs such as {example}, each name once"
            )
        try:
            pairs[name] = float(value) if is_number else value
        except ValueError:
            raise ParameterError(f"{option} has {part}, expected a number") from None
    return pairs


def parse_whole(type_: Any, tokens: Sequence[Token]) -> int:  # noqa: ANN401, ARG001
    """Read a whole number; cyclopts would round 10.7."""
    token = tokens[0]
    try:
        return int(token.value)
    except ValueError:
        raise ParameterError(f"{token.keyword} is {token.value}, expected a whole number") from None


WHOLE = Parameter(converter=parse_whole, n_tokens=1)
COMMAS = Parameter(converter=parse_list, n_tokens=1, negative=())
PAIRS = Parameter(converter=parse_pairs, n_tokens=1, accepts_keys=False)


def _adapt(cls: Any) -> None:  # noqa: ANN401 (an option class)
    """Describe to cyclopts how the fields of an option class are written on the command line."""
    for name, declared in get_type_hints(cls).items():
        hint = Path | None if declared is Any else declared  # data frames are for Python alone
        changes: list[Parameter] = []
        if hint in {tuple[str, ...], tuple[float, ...]}:
            changes.append(COMMAS)
        elif hint in {dict[str, str], dict[str, float] | None}:
            changes.append(PAIRS)
        elif hint in {int, int | None}:
            changes.append(WHOLE)
        if (cls, name) in _NAMES:
            changes.append(Parameter(name=_NAMES[cls, name]))
        if (cls, name) in _HIDDEN:
            changes.append(Parameter(parse=False, show=False))
        cls.__annotations__[name] = Annotated[hint, *changes] if changes else hint
    Parameter(name="*", group=_GROUPS[cls])(cls)


for _class in _GROUPS:
    _adapt(_class)

# The defaults of the commands.
LOG_OPTIONS, FEATURE_OPTIONS = LogOptions(), FeatureOptions()
PROPENSITY_OPTIONS, EVALUATION_OPTIONS = PropensityOptions(), EvaluationOptions()
RANKER_OPTIONS, SIMULATION_OPTIONS = RankerOptions(), SimulationOptions()

Names = Annotated[tuple[str, ...], COMMAS]
Numbers = Annotated[tuple[float, ...], COMMAS]
Pairs = Annotated[dict[str, str], PAIRS]
Out = Annotated[Path, Parameter(name=("--out", "-o"), group=OUTPUT)]
OptionalOut = Annotated[Path | None, Parameter(name=("--out", "-o"), group=OUTPUT)]
Report = Annotated[Path | None, Parameter(group=OUTPUT)]
Log = Annotated[str, Parameter(help="The log, in any form that fit reads.")]
_data = Parameter(help="Labelled data: LETOR text, a table, a saved dataset, a folder of splits.")
Data = Annotated[Path, _data]
DataDir = Annotated[Path | None, Parameter(help="The folder that has the known sets.")]
_features = "The features of items, by query_id and item_id: Parquet, CSV, TSV or LETOR text."
Features = Annotated[Path | None, Parameter(group=FEATURES, help=_features)]
_fold = "The fold of a folder with Fold1 … or S1 …; the first by default."
Fold = Annotated[int | None, WHOLE, Parameter(validator=Number(gte=1), help=_fold)]
_bits = Parameter(help="Features in 8 or 16 bits; auto takes the fewest that lose little.")
Bits = Annotated[Literal[8, 16, "auto"] | None, _bits]
_plot = "The figure to write: .png, .svg or .pdf."
Plot = Annotated[Path | None, Parameter(group=OUTPUT, help=_plot)]
Confidence = Annotated[float, Parameter(help="The confidence level of the intervals.")]
_seed = Parameter(validator=Number(gte=0), help="The seed of the random numbers.")
Seed = Annotated[int, WHOLE, _seed]
