"""The estimators by name: a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countersample.errors import ParameterError
from countersample.propensity.affine import Affine
from countersample.propensity.em import TabularEM
from countersample.propensity.interventions import AdjacentChain, AllPairs, Pivot, Randomized, Swaps
from countersample.propensity.regression import RegressionEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from countersample.propensity.cells import Cells, Method

# A new estimator is one class as `Method` describes, and one line here; one that takes features of
# query-item pairs says so with `needs_features = True`.
METHODS: dict[str, Callable[..., Method]] = {
    "randomized": Randomized,
    "swaps": Swaps,
    "pivot": Pivot,
    "adjacent-chain": AdjacentChain,
    "all-pairs": AllPairs,
    "em": TabularEM,
    "regression-em": RegressionEM,
}

# Those of another model, P(click) = β_k + α_k·r, whose curves have α and β side by side.
AFFINE: dict[str, Callable[..., Method]] = {"trust": Affine}


def needs_features(method: str) -> bool:
    """Tell whether a method takes the features of query-item pairs."""
    return bool(getattr((METHODS | AFFINE)[method], "needs_features", False))


def make_method(name: str, cells: Cells, options: dict[str, Any]) -> Method:
    """Return the method of this name, given its log; refuse options that it does not have."""
    try:
        return (METHODS | AFFINE)[name](cells, **options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise ParameterError(f"method {name!r} has no such option: {error}") from error
