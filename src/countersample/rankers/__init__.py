"""Rankers with scikit-learn's conventions, and their files.

Each name is imported when it is first used: scikit-learn takes a second, and serving does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countersample.rankers.base import ClickRanker, OneQueryWarning, UnfittedRankerError
    from countersample.rankers.files import load_ranker
    from countersample.rankers.linear_ranker import CounterSampleRanker

__all__ = [
    "ClickRanker", "CounterSampleRanker", "OneQueryWarning", "UnfittedRankerError", "load_ranker",
]  # fmt: skip
_MODULES = {"CounterSampleRanker": "linear_ranker", "load_ranker": "files"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the public names)
    if name not in __all__:
        raise AttributeError(f"module 'countersample.rankers' has no attribute {name!r}")
    return getattr(import_module(f"countersample.rankers.{_MODULES.get(name, 'base')}"), name)


def __dir__() -> list[str]:
    return __all__
