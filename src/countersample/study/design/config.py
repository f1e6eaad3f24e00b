"""How a study is run: the paper's settings, every choice a named one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from countersample._params import choice, number, whole_number
from countersample.errors import ParameterError
from countersample.study.design.length import evaluation_points, n_steps

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    T = TypeVar("T")

PAPER_RATES = tuple(
    float(f"{digit}e{power}") for power in range(-10, 1) for digit in (1, 3)
)  # 1e-10, 3e-10, 1e-9, …, 1, 3


def _setting(default: T, title: str, *, origin: str = "paper", **bounds: float) -> T:
    """Declare a setting: the paper's value, what pages call it, its bounds as in `_params`.

    The origin says who sets that value: the paper, its authors' code where the paper says nothing,
    or this package where neither does.
    """
    metadata = {"title": title, "bounds": bounds, "origin": origin}
    declared: T = field(default=default, metadata=metadata)
    return declared


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
        P(rank r is examined) = (1/(r + offset))^gamma: 0 is the paper's equation, 1 its authors'
        code.
    noise : float
        How likely an item that is not relevant is clicked once examined.
    relevant : float
        The smallest relevant grade.
    top : int
        Items that a session shows, from the top of the ranking; 0: everything.
    policy_fraction : float
        The share of the queries whose labels the logging policy was trained on.
    second_share : float
        The share of the sessions that a second logging policy shows, trained on the labels of
        other queries.
    normalization : str
        Of the features.
    bits : int
        Of a feature: 32 for float32 numbers, 16 or 8 for codes.
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

    clicks: int = _setting(1_000_000, "Clicks", least=1)
    epochs: float = _setting(5.0, "Epochs", origin="code", above=0)
    seeds: int = _setting(5, "Click logs and runs", origin="code", least=1)
    tuning_seeds: int = _setting(1, "Logs that choose the learning rate", origin="ours", least=1)
    learning_rates: tuple[float, ...] = _setting(PAPER_RATES, "Learning rates tried")
    evaluate_every: int = _setting(
        10_000, "Clicks drawn between evaluations", origin="code", least=1
    )
    gamma: float = _setting(1.0, "Position bias (γ)", least=0)
    bias_offset: int = _setting(0, "Offset of the position-bias curve", least=0)
    noise: float = _setting(0.1, "False clicks", least=0, most=1)
    relevant: float = _setting(3.0, "Smallest relevant grade")
    top: int = _setting(0, "Items shown", least=0)
    policy_fraction: float = _setting(
        0.001, "Share of queries behind the logging policy", above=0, most=1
    )
    second_share: float = _setting(
        0.0, "Share of sessions of a second logging policy", least=0, below=1
    )
    normalization: str = _setting("query-minmax", "Normalisation of features", origin="code")
    bits: int = _setting(32, "Bits of a feature", origin="code", least=8, most=32)
    optimizer: str = _setting("sgd", "Optimizer")
    objective: str = _setting("rank", "Objective")
    batch_size: int = _setting(1, "Batch size", least=1)
    clip: float = _setting(0.0, "Smallest propensity", least=0, most=1)
    trained_gamma: float = _setting(1.0, "Believed γ / true γ", least=0)
    queries: int = _setting(0, "Queries of a synthetic set; 0: as many as the real one", least=0)
    no_relevant: str = _setting("skip", "Test queries without a relevant item", origin="code")

    def steps(self) -> int:
        """T: the number of steps."""
        return n_steps(epochs=self.epochs, clicks=self.clicks, batch_size=self.batch_size)

    def points(self) -> list[int]:
        """Return the steps that are evaluated (see `evaluation_points`)."""
        return evaluation_points(
            steps=self.steps(), evaluate_every=self.evaluate_every, batch_size=self.batch_size
        )

    def with_settings(self, settings: Mapping[str, Any]) -> ExperimentConfig:
        """Return a configuration with some settings changed, all of them checked.

        Examples
        --------
        >>> from countersample.study.design.config import PAPER
        >>> PAPER.with_settings({"gamma": 0.5, "batch_size": 10}).steps()  # 5·1,000,000/10
        500000
        """
        return replace(self, **{name: checked(name, value) for name, value in settings.items()})


_BITS = (8, 16, 32)
PAPER = ExperimentConfig()
SETTINGS = {setting.name: setting for setting in fields(ExperimentConfig)}


def origin_of(name: str) -> str:
    """Return who sets the value that a setting has in `PAPER`: "paper", "code" or "ours"."""
    origin: str = SETTINGS[name].metadata["origin"]
    return origin


def title_of(name: str) -> str:
    """Return what tables, figures and the report call a setting."""
    title: str = SETTINGS[name].metadata["title"]
    return title


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
    default, bounds = getattr(PAPER, name), SETTINGS[name].metadata["bounds"]
    if isinstance(default, tuple):
        return _checked_rates(value)
    if name == "objective":
        return _checked_objective(value)
    if isinstance(default, str):
        return choice(name, value, _choices()[name])
    if name == "bits" and value not in _BITS:
        raise ParameterError(f"bits is {value!r}, expected one of {', '.join(map(str, _BITS))}")
    return (whole_number if isinstance(default, int) else number)(name, value, **bounds)


def _checked_rates(value: Any) -> tuple[float, ...]:  # noqa: ANN401 (what a user wrote)
    given = value if isinstance(value, (list, tuple)) else [value]
    rates = {number("a value of learning_rates", rate, above=0) for rate in given}
    if not given or len(rates) < len(given):
        raise ParameterError(f"learning_rates is {value!r}, expected a list of different numbers")
    return tuple(sorted(rates))


def _checked_objective(value: Any) -> str:  # noqa: ANN401 (what a user wrote)
    from countersample.objectives import get_objective  # noqa: PLC0415 (imports numpy)

    return get_objective(value).name


def _choices() -> Mapping[str, Collection[str]]:
    from countersample._ranked import NO_RELEVANT  # noqa: PLC0415 (these import numpy)
    from countersample.data.normalize import METHODS as NORMALIZATIONS  # noqa: PLC0415
    from countersample.training.optimizers import OPTIMIZERS  # noqa: PLC0415

    return {
        "optimizer": OPTIMIZERS,
        "normalization": NORMALIZATIONS,
        "no_relevant": NO_RELEVANT,
    }


def nearest(name: str, known: Collection[str]) -> str:
    """Return " (did you mean …?), expected one of …", to go after an unknown name."""
    near = get_close_matches(name, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{hint}, expected one of {', '.join(known)}"
