"""Options of training: declared once, checked once."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 (the types of fields are read)
from dataclasses import dataclass, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike  # noqa: TC002 (as above)

from countersample._params import choice, number, whole_number
from countersample.errors import ParameterError
from countersample.objectives import Objective, get_objective
from countersample.options import Options
from countersample.plans import PLANS, UNITS, make_plan
from countersample.training.optimizers import OPTIMIZER_SETTINGS, OPTIMIZERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample.plans import Examples, Plan

PLAN_SETTINGS = ("bounds", "probabilities")
ARRAYS = (*PLAN_SETTINGS, "start", "scale")
ROUNDING = 1e-9  # a start that was shrunk to the radius may be longer by as much
_DECAY = {"least": 0, "below": 1}
_RANGES: dict[str, dict[str, Any]] = {
    "epochs": {"above": 0},
    "l2": {"least": 0},
    "clip": {"above": 0, "most": 1},
    "temper": {"least": 0, "most": 1},
    "variance": {"least": 0},
    "momentum": _DECAY,
    "beta1": _DECAY,
    "beta2": _DECAY,
    "epsilon": {"above": 0},
    "first_distance": {"above": 0},
}


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingOptions(Options):
    """How a linear ranker is trained, without the learning rate and the random numbers.

    A value out of its range, or a setting that the optimizer does not take, raises a
    `ParameterError`.

    Examples
    --------
    >>> from countersample.training import TrainingOptions
    >>> TrainingOptions(optimizer="adam", steps=1000, beta1=0.8).optimizer_settings
    {'beta1': 0.8, 'beta2': 0.999, 'epsilon': 1e-08}
    """

    method: str = "countersample"
    """The plan: naive, ips, countersample, snips, bounded or proposal (`countersample.plans`)."""
    unit: str = "click"
    """One example: click, pair or query (`countersample.plans.Examples`)."""
    objective: str | Objective = "rank"
    """λ: rank, log-rank, dcg, squared-rank, precision@k, or one from `additive_objective`."""
    optimizer: str = "sgd"
    """sgd, adam, adagrad, amsgrad, or dog, which needs no learning rate (`OPTIMIZERS`)."""
    batch_size: int = 1
    """Examples per step; their gradients are averaged."""
    steps: int | None = None
    """The number of steps; give this or `epochs`."""
    epochs: float | None = None
    """The number of epochs, in which as many examples are drawn as the log has rows."""
    average: bool = True
    """Whether `TrainingResult.weights` is w̄ or w."""
    checkpoints: int | Sequence[int] = 1
    """Steps at which the history records w and w̄, or the number of such steps, evenly spaced."""
    l2: float = 0.0
    """Adds (l2/2)·‖w‖² to the objective."""
    radius: float = np.inf
    """Keeps ‖w‖ ≤ radius, by projection after each step."""
    start: ArrayLike | None = None
    """w₀, the weights before the first step, (n_features,); 0 by default."""
    scale: ArrayLike | None = None
    """Train as if the features were x · scale, (n_features,), without a copy of them.

    All weights, including `start`, are for the scaled features: ``weights * scale`` are for x.
    """
    clip: float | None = None
    """The smallest propensity (`ClickLog.clip`)."""
    temper: float = 1.0
    """α of the weights 1/p^α, from 0 (naive) to 1, after clipping (`ClickLog.temper`)."""
    variance: float = 0.0
    """λ of R(w) + λ·√(S/n), the objective of POEM (`countersample.training.variance`)."""
    momentum: float | None = None
    """This and the next settings are of the optimizers that take them, which have defaults."""
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    first_distance: float | None = None
    bounds: ArrayLike | None = None
    """The bounds of the plan ``"bounded"``, which needs them, (n_examples,)."""
    probabilities: ArrayLike | None = None
    """The probabilities of the plan ``"proposal"``, which needs them, (n_examples,)."""

    def __post_init__(self) -> None:
        """Check everything that does not depend on data."""
        super().__post_init__()
        choice("method", self.method, PLANS)
        choice("unit", self.unit, UNITS)
        get_objective(self.objective)
        choice("optimizer", self.optimizer, OPTIMIZERS)
        whole_number("batch_size", self.batch_size, least=1)
        if self.steps is not None:
            whole_number("steps", self.steps, least=1)
        for name, bounds in _RANGES.items():
            if getattr(self, name) is not None:
                number(name, getattr(self, name), **bounds)
        if self.radius != np.inf:
            number("radius", self.radius, above=0, or_else="infinity")
        if self.steps is not None and self.epochs is not None:
            raise ParameterError("give either steps or epochs")
        defaults = OPTIMIZERS[self.optimizer].defaults
        for name in OPTIMIZER_SETTINGS:
            if getattr(self, name) is not None and name not in defaults:
                raise ParameterError(
                    f"{self.optimizer} takes no setting {name!r}, its settings: "
                    f"{', '.join(defaults) or 'none'}"
                )

    @property
    def optimizer_settings(self) -> dict[str, float]:
        """The settings of the optimizer, with its defaults filled in."""
        defaults = OPTIMIZERS[self.optimizer].defaults
        values = {name: getattr(self, name) for name in defaults}
        return {name: defaults[name] if x is None else float(x) for name, x in values.items()}

    def plan(self, examples: Examples) -> Plan:
        """Return the plan of the method for these examples."""
        values = {name: getattr(self, name) for name in PLAN_SETTINGS}
        settings = {name: value for name, value in values.items() if value is not None}
        return make_plan(self.method, examples, **settings)

    def n_steps(self, n_rows: int) -> int:
        """Return the number of steps for a log with this number of rows."""
        if self.steps is not None:
            return int(self.steps)
        if self.epochs is None:
            raise ParameterError("give either steps or epochs")
        return max(1, -(-round(self.epochs * n_rows) // self.batch_size))

    def record_at(self, n_steps: int) -> NDArray[np.int64]:
        """Return the steps at which weights are recorded, rising."""
        if isinstance(self.checkpoints, Integral):
            n = min(whole_number("checkpoints", self.checkpoints, least=0), n_steps)
            return -(-np.arange(1, n + 1, dtype=np.int64) * n_steps // max(n, 1))  # rounded up
        steps = np.unique(np.asarray(self.checkpoints))
        if len(steps) and not (steps.dtype.kind in "iu" and steps[0] >= 1 and steps[-1] <= n_steps):
            raise ParameterError(
                "checkpoints must be a number of them, or steps from 1 to "
                f"{n_steps} (whole numbers)"
            )
        return steps.astype(np.int64)

    def start_of(self, n_features: int) -> Floats:
        """Return the weights before the first step, float64 (n_features,)."""
        if self.start is None:
            return np.zeros(n_features)
        start = _vector("start", self.start, n_features)
        if np.linalg.norm(start) > self.radius * (1 + ROUNDING):
            raise ParameterError(
                f"start has norm {np.linalg.norm(start):g}, expected at most {self.radius:g}, the "
                "radius: shrink it, or take a larger radius"
            )
        return start

    def scale_of(self, n_features: int) -> Floats:
        """Return the scale of the features, float64 (n_features,), or (0,) without one."""
        return np.zeros(0) if self.scale is None else _vector("scale", self.scale, n_features)

    def rate(self, learning_rate: float | None) -> float:
        """Return the learning rate, or the default of the optimizer."""
        if learning_rate is not None:
            return number("learning_rate", learning_rate, above=0)
        default = OPTIMIZERS[self.optimizer].learning_rate
        if default is None:
            raise ParameterError(
                f"{self.optimizer} needs a learning rate, got none: give learning_rate, or take "
                "optimizer='dog', which needs none"
            )
        return default

    def kernel_settings(self, learning_rate: float | None) -> NDArray[np.float64]:
        """Return the settings as the array that the kernel takes, (8,)."""
        values = dict.fromkeys(("momentum", "beta1", "beta2"), 0.0)
        values |= dict.fromkeys(("epsilon", "first_distance"), 1.0) | self.optimizer_settings
        return np.array([self.rate(learning_rate), *values.values(), self.l2, self.radius])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with the settings of the optimizer, without arrays."""
        left_out = {*OPTIMIZER_SETTINGS, *ARRAYS}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        values["objective"] = get_objective(self.objective).identity
        return values | self.optimizer_settings


def _vector(name: str, values: ArrayLike, n_features: int) -> Floats:
    """Return a vector with one number per feature, checked."""
    try:
        vector = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be a number for each feature ({error})") from error
    if vector.shape != (n_features,):
        raise ParameterError(
            f"{name} has shape {vector.shape}, expected ({n_features},): one for each feature"
        )
    if not np.isfinite(vector).all():
        bad = int(np.argmin(np.isfinite(vector)))
        raise ParameterError(f"{name}[{bad}] is {vector[bad]}, expected a finite number")
    return vector
