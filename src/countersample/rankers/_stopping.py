"""How long to train: round by round, until the clicks of held-out queries gain no more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from countersample.evaluation.ranking import parse_additive
from countersample.scorers import LinearScorer
from countersample.tuning.results import Candidate, PathChoice
from countersample.tuning.safety import FEWEST_QUERIES, lower_ends_at_once, simplest_as_good

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.data.imputing import Imputer
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


class Way(NamedTuple):
    """What a training begins with, and what is done to its features."""

    start: str
    transform: str | None = None


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
    transform : str or None
        What was done to features in the round that is best; see `to_do`.
    """

    start: str
    rounds: int
    path: PathChoice | None = None
    transform: str | None = None

    @property
    def to_do(self) -> str | None:
        """What to do to features: where what was served is kept, what imitates it best."""
        return self.transform if self.path is None else self.path.transform

    @property
    def begins(self) -> tuple[str, int]:
        """Where to begin, and how many rounds: none where something stays as it is."""
        if self.path is not None and self.path.kept == 1:
            return self.path.keeps, 0
        return self.start, self.rounds


def choose_round(
    held_out: HeldOut,
    judged: Mapping[Way, Judged],
    *,
    served: Served | None,
    safety: float,
    temper: float,
    imitates: str | None = None,
    imputer: Imputer | None = None,
    rng: np.random.Generator,
) -> Chosen:
    """Choose among the rounds of all ways, compared with what was logged where that is known.

    Else with the ranker that training goes on from (``"previous"``, before any round), where there
    is one. That is also what is kept, unless the imitation of what was logged is better.

    Of candidate c, held-out clicks give the gain d_c over what was logged and its standard error
    e_c. The round with the highest lower end d_c − z·e_c is chosen if that is above 0, and what was
    served is kept if not. All lower ends hold at once with the confidence `safety`, so that the
    best of a hundred rounds is not taken for its luck: see `lower_ends_at_once`. Of transforms the
    first is chosen that is about as good as the best: see `simplest_as_good`. Unlike weights,
    networks and trees of several rounds have no mean that is one of them, so there is nothing in
    between, as there is for linear rankers (`countersample.tuning.safety`). Where what was served
    is kept, it is so with the transform `imitates`. `imputer` fills in what is missing for the
    imitation, where candidates do without.
    """
    begin, sign = time.perf_counter(), _sign(held_out.metric)
    rounds = [(way, k) for way, found in judged.items() for k in range(len(found.rounds))]
    values = [float(judged[way].values[k]) for way, k in rounds]
    sums = [sign * judged[way].sums[k] for way, k in rounds]
    transforms = [way.transform for way, _ in rounds]
    previous = next((each for way, each in judged.items() if way.start == "previous"), None)
    if served is not None:
        name, logged = "logged", held_out.logged_sums()
    elif previous is not None:
        name, logged = "previous", previous.sums[0]
    else:
        way, k = rounds[simplest_as_good(held_out, sums, sign * np.array(values), transforms)]
        return Chosen(way.start, int(judged[way].rounds[k]), transform=way.transform)
    gains = [held_out.difference(each, sign * logged)[0] for each in sums]
    lows = lower_ends_at_once(held_out, sums, sign * logged, safety, rng)
    best = simplest_as_good(held_out, sums, lows, transforms)
    is_shown = lows[best] > 0 and held_out.n_queries >= FEWEST_QUERIES
    is_better = bool(is_shown) or not safety
    candidates = []
    for index, ((way, k), value) in enumerate(zip(rounds, values, strict=True)):
        gain, low = gains[index], float(lows[index])
        share = float(is_better and index == best)
        steps = int(judged[way].rounds[k])
        candidates.append(
            Candidate(way.start, temper, steps, value, gain, low, share, way.transform)
        )
    transform = candidates[best].transform if is_better else imitates
    imitation = None if served is None else LinearScorer(served.weights)
    if served is not None and imputer is not None:
        imitation = LinearScorer(*imputer.unfolded(served.weights))
    kept, keeps = _imitation(held_out, judged.get(Way("served", transform)), imitation, previous)
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
        transform=transform,
        keeps=keeps,
    )
    found = candidates[best]
    return Chosen(found.start, found.steps, path, found.transform)


def _imitation(
    held_out: HeldOut, judged: Judged | None, served: LinearScorer | None, previous: Judged | None
) -> tuple[float | None, str]:
    """Return the value of what is kept where nothing is better, and which that is.

    It is the imitation of what was served, or the ranker that training goes on from, whichever is
    better; without either there is no value.
    """
    value = None if judged is None else float(judged.values[0])
    if previous is None:
        return value, "served"
    begun, sign = float(previous.values[0]), _sign(held_out.metric)
    if value is None and served is not None:
        features = [fold.validation.features for fold in held_out.folds]
        value = held_out.value(held_out.sums([served.predict(each) for each in features]))
    if value is None or sign * begun >= sign * value:
        return begun, "previous"
    return value, "served"


def _sign(metric: str) -> int:
    return -1 if parse_additive(metric)[0] == "arp" else 1
