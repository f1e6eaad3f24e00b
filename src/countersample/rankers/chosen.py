"""What rankers of all kinds chose from the clicks, and the log of their training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countersample._logging import get_logger

if TYPE_CHECKING:
    from countersample.rankers.base import ClickRanker

NOT_OF_TREES = "trees compare values, and a transform that keeps their order changes no answer"
logger = get_logger(__name__)
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
    if ranker.feature_transform == "auto":
        found["transform"] = ranker.feature_transform_ or "none"
    return found


def tell_training(ranker: ClickRanker, seconds: float) -> None:
    """Log that a ranker was trained: how long it took, on what, and what was chosen."""
    path = ranker.path_
    told = {
        "kind": ranker.kind,
        "seconds": round(seconds, 3),
        "n_clicks": ranker.provenance_["n_clicks"],
        "n_queries": ranker.n_queries_,
        "n_features": ranker.n_features_in_,
        "goes_on": "previous" in ranker.provenance_,
        **chosen_settings(ranker),
        **({} if path is None else {"kept": path.kept}),
    }
    logger.info(
        "%s ranker trained in %.1f s on %d clicks of %d queries with %d features%s",
        *list(told.values())[:5], ", going on from another" if told["goes_on"] else "", extra=told,
    )  # fmt: skip
    if path is not None:
        logger.debug("%s", path.sentence)
