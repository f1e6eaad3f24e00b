"""How long to train: round by round, until the clicks of held-out queries gain no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from countersample.evaluation.ranking import parse_additive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.evaluation.held_out import HeldOut

CLIPPING_SHARE = 0.2  # of the time, about, where it is chosen how far to clip
CHOOSING_SHARE = 0.7  # of what is left, where it is chosen how long to train


class Rounds(Protocol):
    """A ranker that is trained in rounds, on the clicks of a fold."""

    def advance(self) -> None:
        """Train for one more round."""

    def held_out_scores(self) -> Floats:
        """Return the scores of the items that the fold holds out."""


def value_by_round(
    held_out: HeldOut,
    trained: Sequence[Rounds],
    *,
    metric: str,
    most: int,
    patience: int,
    progress: Progress,
) -> Floats:
    """Train each on its fold until the value has not been better for `patience` rounds, or `most`.

    Returns the value after each of them, float64 (n_rounds,), by `metric`, that of `held_out`.
    """
    values: list[float] = []
    last, share = most, 0.0
    while len(values) < last:
        for each in trained:
            each.advance()
        values.append(held_out.value(held_out.sums([each.held_out_scores() for each in trained])))
        last = min(most, best_round(values, metric) + patience)
        share = max(share, len(values) / last)  # a better value moves the end away
        progress.update(share)
    return np.array(values)


def best_round(values: Sequence[float] | Floats, metric: str) -> int:
    """Return the first round, from 1, that has the best value."""
    is_loss = parse_additive(metric)[0] == "arp"
    return 1 + int(np.argmin(values) if is_loss else np.argmax(values))
