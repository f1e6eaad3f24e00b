"""Checks of the rankers' parameters: a parameter of the same name is checked alike in all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.data.preprocessing import IMPUTATIONS, REJECT_MISSING, SCALINGS, check_scaling
from countersample.data.transforms import TRANSFORMS
from countersample.errors import ParameterError
from countersample.metrics import parse_additive
from countersample.objectives import get_loss
from countersample.plans import UNITS
from countersample.tuning.safety import check_safety

if TYPE_CHECKING:
    from collections.abc import Mapping

Check = Callable[[str, Any], object]  # of a name and a value: raises an error for a bad value


def check_parameters(values: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """Reject values by the checks of a kind of ranker, or else by those of all rankers."""
    for name, check in (CHECKS | dict(checks)).items():
        if name in values:
            check(name, values[name])
    if values.get("feature_transform") == "auto" and values["normalize"] == "root-minmax":
        raise ParameterError(
            "normalize is 'root-minmax' with feature_transform='auto', expected 'minmax', which "
            "the roots are tried with: 'root-minmax' is 'minmax' after feature_transform='root'"
        )
    if values.get("feature_transform") not in {None, "auto"}:
        check_scaling(values["normalize"], values["feature_transform"])


def either(*words: str | None, check: Callable[..., object], **bounds: float) -> Check:
    """Return a check that takes a number within bounds, or one of these words."""

    def check_either(name: str, value: object) -> None:
        is_word = (value is None or isinstance(value, str)) and value in words
        if not is_word:
            check(name, value, or_else=", ".join(map(repr, words)), **bounds)

    return check_either


def as_generator(name: str, random_state: Any) -> np.random.Generator:  # noqa: ANN401 (anything)
    """Return the generator of a seed, or the generator itself."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"{name} is {random_state!r}, expected an integer of at least 0, a numpy Generator or "
            "None"
        ) from error


def check_flag(name: str, value: object) -> None:
    """Reject a value that is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} is {value!r}, expected True or False")


def _check_metric(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ParameterError(f"{name} is {value!r}, expected the name of one, such as 'dcg@10'")
    parse_additive(value)


def _optional_choice(*options: str) -> Check:
    return lambda name, value: None if value is None else choice(name, value, options)


# Checks of learned attributes in a file, for more than one kind of ranker
COUNT: Check = partial(whole_number, least=0)
MIN_PROPENSITY = either(None, check=number, above=0)

CHECKS: dict[str, Check] = {
    "method": partial(choice, options=("countersample", "ips", "naive")),
    "unit": partial(choice, options=UNITS),
    "objective": lambda _, value: get_loss(value),
    "learning_rate": partial(number, above=0),
    "batch_size": partial(whole_number, least=1),
    "l2": partial(number, least=0),
    "patience": either(None, check=whole_number, least=1),
    "holdout": partial(number, above=0, most=0.5),
    "metric": _check_metric,
    "clip": either(None, check=number, above=0, most=1),
    "doubly_robust": check_flag,
    "temper": either("auto", check=number, least=0, most=1),
    "safety": check_safety,
    "normalize": _optional_choice(*SCALINGS),
    "impute": partial(choice, options=(*IMPUTATIONS, REJECT_MISSING)),
    "feature_transform": _optional_choice(*TRANSFORMS, "auto"),
    "warm_start": check_flag,
    "random_state": as_generator,
}
