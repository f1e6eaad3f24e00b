"""How the command line shows the option classes of `countersample.options`.

Cyclopts generates the options of a command from the fields of these classes: names, types, choices,
defaults and help texts. This module adds what is particular to a command line: the groups of the
help page, names that are longer than in Python, lists and pairs that are written with commas, and
the parameters that several commands have besides (`Out`, `Json`, `Seed` …).
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

NOT_BETTER, WORSE = 3, 4  # exit codes of --fail-unless-better
DRIFT = 3  # the exit code of log check --against

LOG, FEATURES, BIAS, EVALUATION, RANKER, EXPORT, SIMULATION, OUTPUT = (
    Group(name, sort_key=place)
    for place, name in enumerate(
        (
            "The log", "Features", "Position bias", "Evaluation", "The ranker", "The export",
            "The simulation", "Output",
        ),
        start=1,
    )
)  # fmt: skip
_GROUPS: dict[type, Group] = {
    LogOptions: LOG,
    FeatureOptions: FEATURES,
    PropensityOptions: BIAS,
    EvaluationOptions: EVALUATION,
    RankerOptions: RANKER,
    ExportOptions: EXPORT,
    SimulationOptions: SIMULATION,
}
_NAMES = {  # options whose name needs more context than the field of a class does
    (LogOptions, "features"): "--log-features",
    (FeatureOptions, "items"): "--item-features",
    (FeatureOptions, "queries"): "--query-features",
    (PropensityOptions, "method"): "--propensity-method",
    (PropensityOptions, "file"): "--propensities",
}
_HIDDEN = {(FeatureOptions, "query"), (FeatureOptions, "item"), (PropensityOptions, "known")}


def parse_names(_type: Any, tokens: Sequence[Token]) -> tuple[str, ...]:  # noqa: ANN401
    """Read ``device,layout``, or the lines of ``@FILE``."""
    texts = [token.value for token in tokens]
    if len(texts) == 1 and texts[0].startswith("@"):
        path = Path(texts[0][1:])
        try:
            texts = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ParameterError(
                f"{path}: cannot be read as names, one per line: {error}"
            ) from error
        return tuple(text.strip() for text in texts)
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def parse_numbers(type_: Any, tokens: Sequence[Token]) -> tuple[float, ...]:  # noqa: ANN401
    """Read ``0.9,0.1``."""
    texts = parse_names(type_, tokens)
    try:
        return tuple(map(float, texts))
    except ValueError:
        raise ParameterError(
            f"{tokens[0].keyword} is {','.join(texts)!r}, expected numbers, as in 0.9,0.1"
        ) from None


def parse_pairs(type_: Any, tokens: Sequence[Token]) -> dict[str, Any]:  # noqa: ANN401
    """Read ``query_id=q,item_id=doc``, or with numbers ``click=1,cart=3``."""
    pairs: dict[str, Any] = {}
    option = tokens[0].keyword
    is_number = type_ == dict[str, float]
    for part in parse_names(type_, tokens):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        example = "click=1,cart=3" if is_number else "query_id=q,item_id=doc"
        if not (name and equals and value) or name in pairs:
            raise ParameterError(
                f"{option} has {part!r}, expected pairs such as {example}, each name once"
            )
        try:
            pairs[name] = float(value) if is_number else value
        except ValueError:
            raise ParameterError(
                f"{option} has {part}, expected a number, such as {name}=1"
            ) from None
    return pairs


def parse_bits(bits: str | None) -> int | str | None:
    """Return the number of bits, "auto" or None."""
    return int(bits) if bits is not None and bits.isdigit() else bits


COMMAS = Parameter(converter=parse_names, n_tokens=1, negative=())
NUMBERS = Parameter(converter=parse_numbers, n_tokens=1, negative=())
PAIRS = Parameter(converter=parse_pairs, n_tokens=1, accepts_keys=False)


def _adapt(cls: Any) -> None:  # noqa: ANN401 (an option class)
    """Describe to cyclopts how the fields of an option class are written on the command line."""
    for name, declared in get_type_hints(cls).items():
        hint = Path | None if declared is Any else declared  # data frames are for Python alone
        changes: list[Parameter] = []
        if hint == tuple[str, ...]:
            changes.append(COMMAS)
        elif hint == tuple[float, ...]:
            changes.append(NUMBERS)
        elif hint in {dict[str, str], dict[str, float] | None}:
            changes.append(PAIRS)
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
Numbers = Annotated[tuple[float, ...], NUMBERS]
Pairs = Annotated[dict[str, str], PAIRS]
Bits = Annotated[
    Literal["8", "16", "auto"] | None,
    Parameter(help="Features in 8 or 16 bits; auto takes the fewest that lose little."),
]
Cache = Annotated[
    Path | None, Parameter(help="Keep LETOR text in binary form in this folder, for the next time.")
]
Data = Annotated[
    Path,
    Parameter(help="Labelled data: LETOR text, a table, a saved dataset, a folder of splits."),
]
DataDir = Annotated[
    Path | None, Parameter(help="The folder in which known sets are looked for first.")
]
FailUnlessBetter = Annotated[
    bool,
    Parameter(
        group=OUTPUT, help="Exit with 3 if nothing is shown to be better, with 4 if it is worse."
    ),
]
Features = Annotated[
    Path | None,
    Parameter(
        group=FEATURES,
        help="The features of items, by query_id and item_id: Parquet, CSV, TSV or LETOR text.",
    ),
]
Fold = Annotated[
    int | None,
    Parameter(
        validator=Number(gte=1), help="The fold of a folder with Fold1 … or S1 …; the first one."
    ),
]
Json = Annotated[
    bool, Parameter(name="--json", group=OUTPUT, help="Print JSON for scripts.", negative=())
]
Log = Annotated[str, Parameter(help="The log, in any form that fit reads.")]
Out = Annotated[Path, Parameter(name=("--out", "-o"), group=OUTPUT)]
OptionalOut = Annotated[Path | None, Parameter(name=("--out", "-o"), group=OUTPUT)]
Plot = Annotated[
    Path | None, Parameter(group=OUTPUT, help="Draw the result into this .png, .svg or .pdf.")
]
RankerFile = Annotated[Path, Parameter(help="A ranker that fit or train wrote.")]
Report = Annotated[Path | None, Parameter(group=OUTPUT)]
Seed = Annotated[int, Parameter(validator=Number(gte=0), help="The seed of the random numbers.")]
