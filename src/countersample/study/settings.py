"""The settings of a study: each has a name, a default (the paper's), bounds and a title."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from countersample._environment import need
from countersample._params import choice, number, whole_number
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    T = TypeVar("T")

PAPER_RATES = tuple(
    float(f"{digit}e{power}") for power in range(-10, 1) for digit in (1, 3)
)  # 1e-10, 3e-10, 1e-9, …, 1, 3
POLICIES = ("ranked", "swapped", "shuffled")
SCORERS = ("linear", "network")
MIN_POINTS = 20  # evaluation points per run
MAX_POINTS = 500
_BITS = (8, 16, 32)


def _setting(default: T, title: str, *, origin: str = "paper", **bounds: float) -> T:
    """Declare a setting: the paper's value, its title in tables, its bounds as in `_params`.

    The origin of the value is the paper, its authors' code if the paper has none ("code"), or this
    package if neither has ("ours").
    """
    metadata = {"title": title, "bounds": bounds, "origin": origin}
    setting: T = field(default=default, metadata=metadata)
    return setting


@dataclass(frozen=True)
class ExperimentConfig:
    """The settings of a study; the defaults are the paper's.

    Each has its title in tables; comments add what the title omits.
    """

    clicks: int = _setting(1_000_000, "Clicks", least=1, most=10**12)  # simulated per log
    # Passes over the log: steps = epochs · clicks / batch_size.
    epochs: float = _setting(5.0, "Epochs", origin="code", above=0, most=1e9)
    # Each log has one run; seeds count from 0.
    seeds: int = _setting(5, "Click logs and runs", origin="code", least=1, most=10_000)
    # The first so many logs choose the learning rate, on validation data.
    tuning_logs: int = _setting(1, "Logs that choose the learning rate", origin="ours", least=1)
    learning_rates: tuple[float, ...] = _setting(PAPER_RATES, "Learning rates tried")
    # In clicks, steps times batch size; see `points`.
    evaluate_every: int = _setting(
        10_000, "Clicks drawn between evaluations", origin="code", least=1
    )
    gamma: float = _setting(1.0, "Position bias (γ)", least=0)
    # P(rank r is examined) = (1/(r + offset))^γ: 0 is the paper's equation, 1 its authors' code.
    bias_offset: int = _setting(0, "Offset of the position-bias curve", least=0)
    # The probability of a click on an examined item that is not relevant.
    noise: float = _setting(0.1, "False clicks", least=0, most=1)
    relevant: float = _setting(3.0, "Smallest relevant grade")
    click_model: str = _setting("position-based", "Click model")  # one of `clicks.CLICK_MODELS`
    top: int = _setting(0, "Items shown", least=0)  # from the top of the ranking; 0: all
    # The logging policy's ranking as it is, with two neighbours swapped in every second session, or
    # in a random order.
    policy: str = _setting("ranked", "Order that sessions show")
    policy_fraction: float = _setting(
        0.001, "Share of queries behind the logging policy", above=0, most=1
    )
    # The second policy is trained on the labels of other queries.
    second_share: float = _setting(
        0.0, "Share of sessions of a second logging policy", least=0, below=1
    )
    normalization: str = _setting("query-minmax", "Normalisation of features", origin="code")
    # 32 for float32 numbers, 16 or 8 for codes.
    bits: int = _setting(32, "Bits of a feature", origin="code", least=8, most=32)
    # A linear scorer is evaluated at its averaged iterate, as in the paper. A network is trained by
    # plain SGD and evaluated at its last iterate: the mean of two good networks need not be good.
    scorer: str = _setting("linear", "Scorer")
    hidden: int = _setting(0, "Hidden units", origin="ours", least=0)  # in the one hidden layer
    optimizer: str = _setting("sgd", "Optimizer")
    # None: the default of the optimizer (`training.OPTIMIZERS`).
    momentum: float | None = _setting(None, "Momentum", origin="code", least=0, below=1)
    beta1: float | None = _setting(None, "β₁ of the optimizer", origin="code", least=0, below=1)
    beta2: float | None = _setting(None, "β₂ of the optimizer", origin="code", least=0, below=1)
    epsilon: float | None = _setting(None, "ε of the optimizer", origin="code", above=0)
    first_distance: float | None = _setting(None, "First distance of DoG", origin="ours", above=0)
    objective: str = _setting("rank", "Objective")
    batch_size: int = _setting(1, "Batch size", least=1)
    clip: float = _setting(0.0, "Smallest propensity", least=0, most=1)  # 0: no clipping
    # Training minimises R(w) + λ·√(S/n): see `TrainingOptions`.
    variance: float = _setting(0.0, "Weight of the variance (λ)", origin="ours", least=0)
    trained_gamma: float = _setting(1.0, "Believed γ / true γ", least=0)  # the learner's γ
    queries: int = _setting(0, "Queries of a synthetic set; 0: as many as the real one", least=0)
    metric: str = _setting("ndcg@10", "Metric")  # tunes and is reported; higher must be better
    no_relevant: str = _setting("skip", "Test queries without a relevant item", origin="code")

    def steps(self) -> int:
        """T = epochs · clicks / batch_size, the number of steps, at least 1."""
        return max(1, round(self.epochs * self.clicks / self.batch_size))

    def points(self) -> list[int]:
        """Return the steps after which a run is evaluated: every `evaluate_every` clicks, the last.

        There are at least 20 points (if there are as many steps) and at most 500, the paper's
        number: studies that vary the number of clicks would have too few or too many.

        >>> from countersample.study.settings import PAPER
        >>> len(PAPER.with_settings({"clicks": 1000}).points())
        20
        """
        steps = self.steps()
        every = round(self.evaluate_every / self.batch_size)
        every = max(1, min(every, steps // MIN_POINTS), -(-steps // MAX_POINTS))
        return sorted({*range(every, steps + 1, every), steps})

    def with_settings(self, settings: Mapping[str, Any]) -> ExperimentConfig:
        """Return a configuration with these settings changed and checked.

        >>> from countersample.study.settings import PAPER
        >>> PAPER.with_settings({"gamma": 0.5, "batch_size": 10}).steps()  # 5·1,000,000/10
        500000
        """
        return replace(
            self, **{name: check_setting(name, value) for name, value in settings.items()}
        )

    @property
    def optimizer_settings(self) -> dict[str, float]:
        """The settings of the optimizer that are not left to its defaults."""
        from countersample.training.optimizers import OPTIMIZER_SETTINGS  # noqa: PLC0415 (imports numpy)

        values = {name: getattr(self, name) for name in OPTIMIZER_SETTINGS}
        return {name: value for name, value in values.items() if value is not None}

    def check(self, plans: Collection[str] = ()) -> None:
        """Raise a `ParameterError` for settings that do not go together, or with these plans."""
        from countersample.training.options import TrainingOptions  # noqa: PLC0415 (imports numpy)

        TrainingOptions(optimizer=self.optimizer, **self.optimizer_settings)  # type: ignore[arg-type]
        is_network = self.scorer == "network"
        optimizer = ", ".join([self.optimizer, *self.optimizer_settings])
        problem = ""
        if self.tuning_logs > self.seeds:
            problem = (
                f"tuning_logs is {self.tuning_logs}, expected at most {self.seeds}, the number "
                "of click logs (seeds)"
            )
        elif self.hidden and not is_network:
            problem = f"hidden is {self.hidden}, but the scorer is linear: set scorer to network"
        elif is_network and optimizer != "sgd":
            problem = (
                f"optimizer is {optimizer} and the scorer is a network, expected sgd without "
                "settings: networks of a study are trained by plain SGD"
            )
        elif is_network and self.variance:
            problem = (
                f"variance is {self.variance:g} and the scorer is a network, expected 0: only "
                "linear scorers are trained with it"
            )
        elif is_network and "bounded" in plans:
            problem = (
                "scorer is network, but a method has the plan bounded, whose bounds are "
                "computed for linear scorers: expected another plan"
            )
        if problem:
            raise ParameterError(problem)

    def need_libraries(self) -> None:
        """Raise a `MissingExtraError` if a library that these settings need is not installed."""
        if self.scorer == "network":
            need("torch")


PAPER = ExperimentConfig()
SETTINGS = {setting.name: setting for setting in fields(ExperimentConfig)}


def check_setting(name: str, value: Any) -> Any:  # noqa: ANN401 (any user's value)
    """Return the value of a setting in its type; raise a `ParameterError` for anything else.

    >>> from countersample.study.settings import check_setting
    >>> check_setting("gamma", 1)
    1.0
    """
    if name not in SETTINGS:
        raise ParameterError(f"no setting {name!r}{suggest(name, SETTINGS)}")
    default, bounds = getattr(PAPER, name), SETTINGS[name].metadata["bounds"]
    if isinstance(default, tuple):
        return _check_rates(value)
    if isinstance(default, str):
        return _check_text(name, value)
    if name == "bits" and value not in _BITS:
        raise ParameterError(f"bits is {value!r}, expected one of {', '.join(map(str, _BITS))}")
    if default is None and value is None:
        return None
    return (whole_number if isinstance(default, int) else number)(name, value, **bounds)


def _check_text(name: str, value: Any) -> str:  # noqa: ANN401 (any user's value)
    from countersample.clicks.models import CLICK_MODELS  # noqa: PLC0415 (these import numpy)
    from countersample.data.preprocessing import SCALINGS  # noqa: PLC0415
    from countersample.metrics import NO_RELEVANT, get_metric  # noqa: PLC0415
    from countersample.objectives import get_objective  # noqa: PLC0415
    from countersample.training.optimizers import OPTIMIZERS  # noqa: PLC0415

    if name == "objective":
        return get_objective(value).name
    if name == "metric":
        try:
            get_metric(str(value))
        except ParameterError as error:
            raise ParameterError(f"metric is {value!r}: {error}") from error
        if str(value).partition("@")[0] == "arp":
            raise ParameterError(f"metric is {value!r}, expected one for which higher is better")
        return str(value)
    choices: Mapping[str, Collection[str]] = {
        "optimizer": OPTIMIZERS, "normalization": SCALINGS, "no_relevant": NO_RELEVANT,
        "click_model": CLICK_MODELS, "policy": POLICIES, "scorer": SCORERS,
    }  # fmt: skip
    return choice(name, value, choices[name])


def _check_rates(value: Any) -> tuple[float, ...]:  # noqa: ANN401 (any user's value)
    values = value if isinstance(value, (list, tuple)) else [value]
    rates = {number("a value of learning_rates", rate, above=0) for rate in values}
    if not values or len(rates) < len(values):
        raise ParameterError(f"learning_rates is {value!r}, expected a list of different numbers")
    return tuple(sorted(rates))


def metric_title(name: str) -> str:
    """Return a metric as tables and figures write it.

    >>> metric_title("ndcg@10"), metric_title("mrr")
    ('nDCG@10', 'MRR')
    """
    base, at, cut = name.partition("@")
    titles = {"ndcg": "nDCG", "average_precision": "average precision"}
    return titles.get(base, base.upper() if len(base) < 5 else base) + at + cut


def suggest(name: str, names: Collection[str]) -> str:
    """Return " (did you mean …?), expected one of …", to go after an unknown name."""
    near = get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{hint}, expected one of {', '.join(names)}"
