"""Rankers in the habits of scikit-learn, and their files.

Each name is imported when it is first used: scikit-learn takes a second, and serving does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countersample.rankers._warm import LostFeatureWarning
    from countersample.rankers.base import ClickRanker, OneQueryWarning
    from countersample.rankers.fitted import UnfittedRankerError
    from countersample.rankers.linear import CounterSampleRanker
    from countersample.rankers.loading import load_ranker

_HOME = {
    "ClickRanker": "base",
    "CounterSampleRanker": "linear",
    "LostFeatureWarning": "_warm",
    "OneQueryWarning": "base",
    "UnfittedRankerError": "fitted",
    "load_ranker": "loading",
}

__all__ = [
    "ClickRanker",
    "CounterSampleRanker",
    "LostFeatureWarning",
    "OneQueryWarning",
    "UnfittedRankerError",
    "load_ranker",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the public names)
    if name in _HOME:
        return getattr(import_module(f"countersample.rankers.{_HOME[name]}"), name)
    raise AttributeError(f"module 'countersample.rankers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
