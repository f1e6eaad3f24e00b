"""Optimizers: how a gradient becomes a step.

SGD, Adam, Adagrad and AMSGrad (Reddi, Kale and Kumar, ICLR 2018) have the steps, settings and
defaults of PyTorch. DoG (*distance over gradients*; Ivgi, Hinder and Carmon, ICML 2023) needs no
learning rate. A new optimizer is an entry in `OPTIMIZERS`, a code in `_kernels.codes`, and its step
in `_kernels.updates`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countersample._kernels import codes

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Optimizer:
    """An update rule and its settings."""

    name: str
    formula: str
    """The step from w to w − …, with g the gradient and η the learning rate."""
    code: int
    """Its number in `_kernels.updates`."""
    defaults: Mapping[str, float] = field(default_factory=dict)
    """The settings it takes, which are fields of `TrainingOptions`, and their defaults."""
    learning_rate: float | None = None
    """The default of η; None if there is none."""
    n_squares: int = 1
    """Numbers per weight in the array `second` of its state."""


_ADAM = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}

OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("sgd", "η·u, u = momentum·u + g", codes.SGD, {"momentum": 0.0}),
        Optimizer("adam", "η·m̂/(√v̂ + ε), m = β₁m + (1−β₁)g, v = β₂v + (1−β₂)g²", codes.ADAM, _ADAM),
        Optimizer("adagrad", "η·g/(√Σg² + ε)", codes.ADAGRAD, {"epsilon": 1e-10}),
        Optimizer(
            "dog",
            "η·r·g/√Σ‖g‖², r = max(first_distance, max ‖w − w₀‖)",
            codes.DOG,
            {"first_distance": 1e-3},
            learning_rate=1.0,
        ),
        Optimizer(
            "amsgrad",
            "η·m̂/(√v̂ + ε), m = β₁m + (1−β₁)g, v̂ from the largest v so far, v = β₂v + (1−β₂)g²",
            codes.AMSGRAD,
            _ADAM,
            n_squares=2,
        ),
    )
}

# All settings that some optimizer takes
OPTIMIZER_SETTINGS = tuple(
    dict.fromkeys(name for each in OPTIMIZERS.values() for name in each.defaults)
)
