"""How a gradient becomes a step: SGD, Adam, Adagrad, with the settings and defaults of PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["OPTIMIZERS", "Optimizer", "get_optimizer"]

# What each setting may be; no comparison holds for NaN
_DECAY = (lambda x: 0 <= x < 1, "a number within [0, 1)")
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "learning_rate": (lambda x: 0 < x < np.inf, "a number above 0"),
    "momentum": _DECAY,
    "beta1": _DECAY,
    "beta2": _DECAY,
    "epsilon": (lambda x: 0 < x < np.inf, "a number above 0"),
    "l2": (lambda x: 0 <= x < np.inf, "a number of at least 0"),
    "radius": (lambda x: x > 0, "a number above 0, or infinity"),
}


@dataclass(frozen=True)
class Optimizer:
    """An update rule and its settings.

    Attributes
    ----------
    name : str
    formula : str
        The step from w to w − …, with g the gradient and η the learning rate.
    code : int
        Which update the kernel takes (`_kernels.updates`).
    defaults : mapping
        The settings it takes, and their values where none are given.
    """

    name: str
    formula: str
    code: int
    defaults: Mapping[str, float] = field(default_factory=dict)

    def settings(
        self, learning_rate: float, *, l2: float, radius: float, **given: float
    ) -> NDArray[np.float64]:
        """Return the kernel's array of settings, (7,).

        Raises
        ------
        ParameterError
            For a setting that this optimizer does not take, or that is out of its range.
        """
        unknown = set(given) - set(self.defaults)
        if unknown:
            takes = ", ".join(self.defaults) or "none"
            raise ParameterError(
                f"{self.name} takes no setting {min(unknown)!r}, its settings: {takes}"
            )
        values = {"momentum": 0.0, "beta1": 0.0, "beta2": 0.0, "epsilon": 1.0}
        values |= dict(self.defaults) | given
        checked: dict[str, Any] = {"learning_rate": learning_rate, "l2": l2, "radius": radius}
        for name, value in (checked | values).items():
            is_good, expected = _RANGES[name]
            if not isinstance(value, Real) or not is_good(float(value)):
                raise ParameterError(f"{name} is {value!r}, expected {expected}")
        return np.array([learning_rate, *(values[name] for name in values), l2, radius])


OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("sgd", "η·u, u = momentum·u + g", 0, {"momentum": 0.0}),
        Optimizer(
            "adam",
            "η·m̂/(√v̂ + ε), m = β₁m + (1−β₁)g, v = β₂v + (1−β₂)g²",
            1,
            {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
        ),
        Optimizer("adagrad", "η·g/(√Σg² + ε)", 2, {"epsilon": 1e-10}),
    )
}


def get_optimizer(name: str) -> Optimizer:
    """Return the optimizer of a name."""
    if name not in OPTIMIZERS:
        raise ParameterError(f"optimizer is {name!r}, expected one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]
