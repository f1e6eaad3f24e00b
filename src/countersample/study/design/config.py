"""How a study is run: the paper's protocol, every choice a named setting."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PAPER_RATES = tuple(
    float(f"{digit}e{power}") for power in range(-10, 1) for digit in (1, 3)
)  # 1e-10, 3e-10, 1e-9, …, 1, 3


@dataclass(frozen=True)
class ExperimentConfig:
    """The settings of a study; the defaults are the paper's.

    Attributes
    ----------
    clicks : int
        Clicks simulated for a log.
    epochs : float
        How often as many clicks are drawn as the log has: steps = epochs · clicks / batch_size.
    seeds : int
        Click logs, each with its own run; seeds count from 0.
    tuning_seeds : int
        Of these logs, the first so many choose the learning rate, on validation data.
    learning_rates : tuple of float
        The values tried.
    evaluate_every : int
        Clicks drawn between two evaluation points (see `points`): steps times batch size.
    gamma : float
        Severity of position bias.
    bias_offset : int
        P(look at rank r) = (1/(r + offset))^gamma: 0 is the paper's equation, 1 its authors' code.
    noise : float
        How likely an item that is not relevant is clicked once looked at.
    relevant : float
        The smallest relevant grade.
    policy_fraction : float
        The share of the queries whose labels the logging policy was trained on.
    normalization : str
        Of the features.
    optimizer, objective : str
    batch_size : int
    clip : float
        The smallest propensity; smaller ones count as this. 0: none is clipped.
    trained_gamma : float
        The severity that the learner believes in, as a multiple of `gamma`: 1 is the truth.
    queries : int
        Queries of a synthetic set; 0: as many as the real set has.
    no_relevant : str
        What becomes of test queries without a relevant item: "skip", or as in
        `countersample.metrics`.
    """

    clicks: int = 1_000_000
    epochs: float = 5.0
    seeds: int = 5
    tuning_seeds: int = 1
    learning_rates: tuple[float, ...] = PAPER_RATES
    evaluate_every: int = 10_000
    gamma: float = 1.0
    bias_offset: int = 0
    noise: float = 0.1
    relevant: float = 3.0
    policy_fraction: float = 0.001
    normalization: str = "query-minmax"
    optimizer: str = "sgd"
    objective: str = "rank"
    batch_size: int = 1
    clip: float = 0.0
    trained_gamma: float = 1.0
    queries: int = 0
    no_relevant: str = "skip"

    def steps(self) -> int:
        """T: the number of steps."""
        return max(1, round(self.epochs * self.clicks / self.batch_size))

    def points(self) -> list[int]:
        """Return the steps that are evaluated: every `evaluate_every` clicks, and the last.

        At least 20 points (if there are as many steps) and at most 500, as the paper has: studies
        that vary the number of clicks would have too few or too many.
        """
        steps = self.steps()
        every = round(self.evaluate_every / self.batch_size)
        every = max(1, min(every, steps // 20), -(-steps // 500))
        return sorted({*range(every, steps + 1, every), steps})

    def with_settings(self, settings: Mapping[str, Any]) -> ExperimentConfig:
        """Return a configuration with some settings changed, all of them checked.

        Examples
        --------
        >>> from countersample.study.design.config import PAPER
        >>> PAPER.with_settings({"gamma": 0.5, "batch_size": 10}).steps()  # 5·1,000,000/10
        500000
        """
        return replace(self, **{name: checked(name, value) for name, value in settings.items()})


PAPER = ExperimentConfig()
SETTINGS = tuple(field.name for field in fields(ExperimentConfig))


def as_config(values: Mapping[str, Any]) -> ExperimentConfig:
    """Return a configuration from plain values (see `dataclasses.asdict`)."""
    return ExperimentConfig(**dict(values) | {"learning_rates": tuple(values["learning_rates"])})


_AT_LEAST_ONE = ("clicks", "seeds", "tuning_seeds", "evaluate_every", "batch_size")
_ABOVE_ZERO = ("epochs", "policy_fraction")
_AT_LEAST_ZERO = ("gamma", "bias_offset", "noise", "clip", "trained_gamma", "queries")
_AT_MOST_ONE = ("noise", "clip", "policy_fraction")


def checked(name: str, value: Any) -> Any:  # noqa: ANN401 (what a user wrote)
    """Return the value of a setting in its own type, or say what it should be.

    Raises
    ------
    ParameterError
        For a name or a value that is not one of those it may have.

    Examples
    --------
    >>> from countersample.study.design.config import checked
    >>> checked("gamma", 1)
    1.0
    """
    if name not in SETTINGS:
        raise ParameterError(f"no setting {name!r}{nearest(name, SETTINGS)}")
    if name == "learning_rates":
        return _checked_rates(value)
    default = getattr(PAPER, name)
    if isinstance(default, str):
        return _checked_name(name, value)
    number = (int,) if isinstance(default, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, number):
        kind = "a whole number" if number == (int,) else "a number"
        raise ParameterError(f"{name} is {value!r}, expected {kind}")
    for names, is_good, expected in (
        (_AT_LEAST_ONE, value >= 1, "at least 1"),
        (_ABOVE_ZERO, value > 0, "above 0"),
        (_AT_LEAST_ZERO, value >= 0, "at least 0"),
        (_AT_MOST_ONE, value <= 1, "at most 1"),
    ):
        if name in names and not is_good:
            raise ParameterError(f"{name} is {value:g}, expected {expected}")
    return type(default)(value)


def _checked_rates(value: Any) -> tuple[float, ...]:  # noqa: ANN401 (what a user wrote)
    rates = value if isinstance(value, (list, tuple)) else [value]
    good = [isinstance(x, (int, float)) and not isinstance(x, bool) and x > 0 for x in rates]
    if not rates or not all(good) or len(set(rates)) < len(rates):
        raise ParameterError(
            f"learning_rates is {value!r}, expected a list of different numbers above 0"
        )
    return tuple(sorted(float(rate) for rate in rates))


def _checked_name(name: str, value: Any) -> str:  # noqa: ANN401 (what a user wrote)
    from countersample._ranked import NO_RELEVANT  # noqa: PLC0415 (these import numpy)
    from countersample.data.normalize import METHODS as NORMALIZATIONS  # noqa: PLC0415
    from countersample.objectives import OBJECTIVES  # noqa: PLC0415
    from countersample.training.optimizers import OPTIMIZERS  # noqa: PLC0415

    known: dict[str, Collection[str]] = {
        "optimizer": OPTIMIZERS,
        "objective": OBJECTIVES,
        "normalization": NORMALIZATIONS,
        "no_relevant": NO_RELEVANT,
    }
    if value not in known[name]:
        raise ParameterError(f"{name} is {value!r}, expected one of {', '.join(known[name])}")
    return str(value)


def nearest(name: str, known: Collection[str]) -> str:
    """Return " (did you mean …?), expected one of …", to go after an unknown name."""
    near = get_close_matches(name, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{hint}, expected one of {', '.join(known)}"
