"""What rankers of all kinds chose from the clicks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countersample.rankers.base import ClickRanker

NOT_OF_TREES = "trees compare values, and a transform that keeps their order changes no answer"
_NAMES = {"learning_rate_": "learning_rate", "n_steps_": "steps", "n_trees_": "trees"}


def chosen_settings(ranker: ClickRanker) -> dict[str, Any]:
    """Return what a fitted ranker was trained with that the log decided, in plain values.

    ``clip`` is always there, None for no clipping; ``learning_rate``, ``steps`` and ``trees`` where
    the kind of ranker has them, and ``transform`` where that was to be chosen.
    """
    found: dict[str, Any] = {"clip": getattr(ranker, "clip_", None)}
    for attribute, name in _NAMES.items():
        value = getattr(ranker, attribute, None)
        if value is not None:
            found[name] = value
    if ranker.transform == "auto":
        found["transform"] = ranker.transform_ or "none"
    return found
