"""How long to train: round by round, until the clicks of held-out queries gain no more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from countersample.evaluation.ranking import parse_additive
from countersample.scorers import LinearScorer
from countersample.tuning.results import Candidate, PathChoice
from countersample.tuning.safety import FEWEST_QUERIES, lower_ends_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.evaluation.held_out import HeldOut
    from countersample.rankers.served import Served

CHOOSING_SHARE = 0.7  # of the time, about, where it is chosen how long to train


class Rounds(Protocol):
    """A ranker that is trained in rounds, on the clicks of a fold."""

    def advance(self) -> None:
        """Train for one more round."""

    def held_out_scores(self) -> Floats:
        """Return the scores of the items that the fold holds out."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What held-out clicks say of the rounds of a training.

    Attributes
    ----------
    rounds : int64 (n,)
        Those that were judged, one after the other.
    sums : float64 (n, n_groups)
        See `HeldOut.sums`.
    values : float64 (n,)
        See `HeldOut.value`.
    """

    rounds: NDArray[np.int64]
    sums: Floats
    values: Floats


def judge_rounds(
    held_out: HeldOut,
    trained: Sequence[Rounds],
    *,
    first: int,
    most: int,
    patience: int,
    progress: Progress,
) -> Judged:
    """Train each on its fold until the value has not been better for `patience` rounds, or `most`.

    Rounds are judged from the `first` on: from 0, before anything is trained, where it starts from
    a ranker.
    """
    sums: list[Floats] = []
    values: list[float] = []
    done, last, share = 0, most, 0.0
    while True:
        if done >= first:
            sums.append(held_out.sums([each.held_out_scores() for each in trained]))
            values.append(held_out.value(sums[-1]))
            last = min(
                most, first + int(np.argmax(_sign(held_out.metric) * np.array(values))) + patience
            )
        if done:
            share = max(share, done / last)  # a better value moves the end away
            progress.update(share)
        if done >= last:
            return Judged(np.arange(first, done + 1), np.array(sums), np.array(values))
        for each in trained:
            each.advance()
        done += 1


class Chosen(NamedTuple):
    """How to train on everything.

    Attributes
    ----------
    start : str
        What to begin with.
    rounds : int
        How many.
    path : PathChoice or None
        What held-out clicks said; None where there is nothing to compare with.
    """

    start: str
    rounds: int
    path: PathChoice | None = None

    @property
    def begins(self) -> tuple[str, int]:
        """Where to begin, and how many rounds: none where something stays as it is."""
        if self.path is not None and self.path.kept == 1:
            return self.path.keeps, 0
        return self.start, self.rounds


def choose_round(
    held_out: HeldOut,
    judged: Mapping[str, Judged],
    *,
    served: Served | None,
    safety: float,
    temper: float,
    rng: np.random.Generator,
) -> Chosen:
    """Choose among the rounds of all starts, compared with what was logged where that is known.

    Else with the ranker that training goes on from (``"previous"``, before any round), where there
    is one. That is also what is kept, unless the imitation of what was logged is better.

    Of candidate c, held-out clicks give the gain d_c over what was logged and its standard error
    e_c. The round with the highest lower end d_c − z·e_c is chosen if that is above 0, and what was
    served is kept if not. All lower ends hold at once with the confidence `safety`, so that the
    best of a hundred rounds is not taken for its luck: see `lower_ends_at_once`. Unlike weights,
    networks and trees of several rounds have no mean that is one of them, so there is nothing in
    between, as there is for linear rankers (`countersample.tuning.safety`).
    """
    begin, sign = time.perf_counter(), _sign(held_out.metric)
    rounds = [(start, k) for start, found in judged.items() for k in range(len(found.rounds))]
    values = [float(judged[start].values[k]) for start, k in rounds]
    previous = judged.get("previous")
    if served is not None:
        name, logged = "logged", held_out.logged_sums()
    elif previous is not None:
        name, logged = "previous", previous.sums[0]
    else:
        start, k = rounds[int(np.argmax(sign * np.array(values)))]
        return Chosen(start, int(judged[start].rounds[k]))
    kept, keeps = _imitation(held_out, judged, served), "served"
    if previous is not None:
        begun = float(previous.values[0])
        if name == "previous" or kept is None or sign * begun >= sign * kept:
            keeps, kept = "previous", begun
    sums = [sign * judged[start].sums[k] for start, k in rounds]
    gains = [held_out.difference(each, sign * logged)[0] for each in sums]
    lows = lower_ends_at_once(held_out, sums, sign * logged, safety, rng)
    best = int(lows.argmax())
    is_shown = lows[best] > 0 and held_out.n_queries >= FEWEST_QUERIES
    is_better = bool(is_shown) or not safety
    candidates = []
    for index, ((start, k), value) in enumerate(zip(rounds, values, strict=True)):
        gain, low = gains[index], float(lows[index])
        share = float(is_better and index == best)
        steps = int(judged[start].rounds[k])
        candidates.append(Candidate(start, temper, steps, value, gain, low, share))
    path = PathChoice(
        candidates=tuple(candidates),
        kept=float(not is_better),
        reference=name,
        reference_value=held_out.value(logged),
        imitation_value=kept,
        metric=held_out.metric,
        safety=safety,
        is_shown=bool(is_shown),
        n_queries=held_out.n_queries,
        seconds=time.perf_counter() - begin,
        keeps=keeps,
    )
    return Chosen(candidates[best].start, candidates[best].steps, path)


def _imitation(
    held_out: HeldOut, judged: Mapping[str, Judged], served: Served | None
) -> float | None:
    """Return the value of the imitation of what was served, where it is wanted."""
    if "served" in judged:
        return float(judged["served"].values[0])
    if served is None or "previous" not in judged:
        return None
    scorer = LinearScorer(served.weights)
    return held_out.value(
        held_out.sums([scorer.predict(fold.validation.features) for fold in held_out.folds])
    )


def _sign(metric: str) -> int:
    return -1 if parse_additive(metric)[0] == "arp" else 1
