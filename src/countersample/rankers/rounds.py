"""Training in rounds (epochs of a network, trees), and the choice of how many.

For each start and feature transform, a ranker is trained on the folds of the held-out evaluation,
and evaluated after each round, until the clicks of held-out queries show no more gain. Candidate c
has the gain d_c over the logging policy, with the standard error e_c. The round with the highest
lower end d_c − z·e_c is chosen if that is above 0; if not, the ranker keeps the imitation of the
policy. All lower ends hold at once with the confidence `safety`, so that the best of a hundred
rounds is not chosen for its luck (`simultaneous_lower_ends`). The first transform that is about
as good as the best is chosen (`choose_simplest`). Unlike weights, networks and trees of several
rounds have no mean that is one of them, so there is nothing in between, as there is for linear
rankers (`countersample.tuning.safety`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np

from countersample.evaluation.holdout import VALIDATION_QUERIES
from countersample.metrics import parse_additive
from countersample.rankers.base import ClickRanker
from countersample.rankers.task import list_starts
from countersample.tuning.choice import Candidate, PathChoice, best_imitation, choose_kept
from countersample.tuning.safety import MIN_QUERIES, choose_simplest, simultaneous_lower_ends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation.holdout import HeldOut
    from countersample.rankers.task import Task, Tasks
    from countersample.scorers import Scorer

CHOOSING_SHARE = 0.7  # of the time, about, if the number of rounds is chosen


class Rounds(Protocol):
    """A training that advances in rounds.

    `steps` has the number of steps after each round so far, from 0, and `losses` the mean loss of
    each round, NaN if unknown.
    """

    steps: list[int]
    losses: list[float]
    steps_per_round: int

    def advance(self, max_steps: int | None = None) -> None:
        """Train for one more round, of at most `max_steps` steps."""

    def held_out_scores(self) -> Floats:
        """Return the scores of the held-out items."""

    def scorer(self) -> Scorer:
        """Return the scorer of the rounds so far."""


@dataclass(frozen=True, eq=False)
class RoundHistory:
    """The learning curve of the start that was chosen.

    Attributes
    ----------
    steps : int64 (n,)
        The steps (trees) after each round; from 0 if training starts from a ranker.
    objective : float64 (n,)
        The mean loss of the round's batches, on the training clicks; NaN before the first round,
        and for trees.
    value : float64 (n,)
        Σ λ(rank)/p / Σ 1/p over the clicks of held-out queries, after each round.
    """

    steps: NDArray[np.int64]
    objective: Floats
    value: Floats


class Way(NamedTuple):
    """A start of training, and the transform of its features."""

    start: str
    transform: str | None = None

    @property
    def first_round(self) -> int:
        """The first round that is a candidate: 0, before training, if it starts from a ranker."""
        return int(self.start == "zero")


class RoundValues(NamedTuple):
    """Held-out values of the rounds of one way; `sums` are (n, n_groups), see `HeldOut.sums`."""

    history: RoundHistory
    sums: Floats


def evaluate_rounds(
    held_out: HeldOut,
    trainings: Sequence[Rounds],
    *,
    first: int,
    max_rounds: int,
    patience: int,
    progress: Progress,
) -> RoundValues:
    """Train each fold's ranker until `patience` rounds bring no better value, or `max_rounds`."""
    sums: list[Floats] = []
    values: list[float] = []
    n_rounds, last, share = 0, max_rounds, 0.0
    while True:
        if n_rounds >= first:
            sums.append(held_out.sums([each.held_out_scores() for each in trainings]))
            values.append(held_out.value(sums[-1]))
            best = int(np.argmax(_sign(held_out.metric) * np.array(values)))
            last = min(max_rounds, first + best + patience)
        if n_rounds:
            share = max(share, n_rounds / last)  # a better value moves the end away
            progress.update(share)
        if n_rounds >= last:
            break
        for each in trainings:
            each.advance()
        n_rounds += 1
    steps, losses = np.array(trainings[0].steps), np.array(trainings[0].losses)
    return RoundValues(
        RoundHistory(steps[first:], losses[first:], np.array(values)), np.array(sums)
    )


def choose_round(
    held_out: HeldOut,
    evaluated: Mapping[Way, RoundValues],
    task: Task,
    *,
    safety: float,
    temper: float,
    kept_transform: str | None,
    rng: np.random.Generator,
) -> tuple[Way, int, PathChoice | None]:
    """Return the best way, the index of its best round, and the choice with its reasons.

    Candidates are compared with the logging policy, if it is known, or else with the ranker of a
    warm start, before any round. Without either there is no PathChoice: the best value is chosen.
    If nothing is better, the imitation of the policy is kept with `kept_transform`.
    """
    begin, sign = time.perf_counter(), _sign(held_out.metric)
    rounds = [(way, k) for way, values in evaluated.items() for k in range(len(values.sums))]
    values = [float(evaluated[way].history.value[k]) for way, k in rounds]
    sums = [sign * evaluated[way].sums[k] for way, k in rounds]
    transforms = [way.transform for way, _ in rounds]
    previous = next((v.sums[0] for way, v in evaluated.items() if way.start == "previous"), None)
    if task.served is not None:
        reference, logged = "logged", held_out.logged_sums()
    elif previous is not None:
        reference, logged = "previous", previous
    else:
        best = choose_simplest(held_out, sums, sign * np.array(values), transforms)
        return *rounds[best], None
    gains = [held_out.difference(each, sign * logged)[0] for each in sums]
    lows = simultaneous_lower_ends(held_out, sums, sign * logged, safety, rng)
    best = choose_simplest(held_out, sums, lows, transforms)
    is_shown = bool(lows[best] > 0) and held_out.n_queries >= MIN_QUERIES
    is_better = is_shown or not safety
    candidates = tuple(
        Candidate(
            way.start, temper, way.first_round + k, values[index], gains[index],
            float(lows[index]), float(is_better and index == best), way.transform,
        )
        for index, (way, k) in enumerate(rounds)
    )  # fmt: skip
    transform = rounds[best][0].transform if is_better else kept_transform
    served = evaluated.get(Way("served", transform))
    imitation = None if served is None else served.sums[0]
    if imitation is None and previous is not None and task.served is not None:
        scorer = task.linear_scorer(task.served.weights)
        imitation = held_out.sums(
            [scorer.predict(each.validation.features) for each in held_out.folds]
        )
    keeps, imitation = choose_kept(held_out, imitation, previous, sign)
    choice = PathChoice(
        candidates=candidates,
        kept=float(not is_better),
        reference=reference,
        reference_value=held_out.value(logged),
        imitation_value=None if imitation is None else held_out.value(imitation),
        metric=held_out.metric,
        safety=safety,
        is_shown=is_shown,
        n_queries=held_out.n_queries,
        seconds=time.perf_counter() - begin,
        transform=transform,
        keeps=keeps,
    )
    return *rounds[best], choice


def _sign(metric: str) -> int:
    return -1 if parse_additive(metric)[0] == "arp" else 1


class RoundsRanker(ClickRanker):
    """The base of rankers that are trained in rounds: networks and trees.

    A kind of ranker begins a training (`_begin`), and calls `_train_rounds` in its `_train`.
    """

    _round_name: ClassVar[str]  # for progress: "steps", "trees"
    _limit_name: ClassVar[str]  # the parameter that has the maximal number of rounds
    _least_queries: ClassVar[int] = VALIDATION_QUERIES  # to hold out
    start: str
    patience: int | None
    holdout: float
    metric: str
    safety: float
    temper: float
    start_: str

    @property
    def _max_rounds(self) -> int:
        return int(getattr(self, self._limit_name))

    def _begin(
        self,
        task: Task,
        start: str,
        rng: np.random.Generator,
        held_out: RankingDataset | None = None,
    ) -> Rounds:
        """Begin a training of a task from a start."""
        raise NotImplementedError

    def _prepare(self, task: Task, fold_clicks: Sequence[ClickLog]) -> None:
        """Decide settings that depend on the task, before any training begins."""

    def _train_rounds(
        self, tasks: Tasks, rng: np.random.Generator, progress: Progress
    ) -> tuple[Task, int]:
        """Choose start, transform and steps, and train on everything; return task and steps."""
        task = tasks.of(tasks.transforms[0])
        self.path_, self.history_ = None, None
        starts = list_starts(self.start, task, has_holdout=self.patience is not None)
        start, n_steps = starts[0], None
        if self.patience is None:
            self._prepare(task, ())
        else:
            part = progress.part(CHOOSING_SHARE, f"choosing the number of {self._round_name}")
            start, n_steps, transform = self._choose(tasks, starts, rng, part)
            task = tasks.of(transform)
        self.served_ = task.served
        progress = progress.part(1.0 if n_steps is None else 1 - CHOOSING_SHARE, "training")
        training = self._begin(task, start, rng)
        if n_steps is None:
            n_steps = self._max_rounds * training.steps_per_round
        while training.steps[-1] < n_steps:
            training.advance(n_steps - training.steps[-1])
            progress.update(training.steps[-1] / n_steps)
        progress.update(1.0)
        self.scorer_, self.start_ = training.scorer(), start
        return task, n_steps

    def _choose(
        self, tasks: Tasks, starts: Sequence[str], rng: np.random.Generator, progress: Progress
    ) -> tuple[str, int, str | None]:
        """Return the start, the steps and the transform to train with on everything.

        The queries to hold out are drawn once, so that they are the same for all transforms.
        """
        task = tasks.of(tasks.transforms[0])
        held_out, fold_clicks = task.held_out(self.metric, self.holdout, rng, self._least_queries)
        self._prepare(task, fold_clicks)
        evaluated, agreements = {}, {}
        for transform in tasks.transforms:
            if transform != task.transform:
                task = tasks.of(transform)
                held_out = held_out.with_features(task.full)
                fold_clicks = task.clicks_without(held_out)
            agreements[transform] = 0.0 if task.served is None else task.served.agreement
            folds = [
                (task.without_fold(fold, clicks), fold.validation)
                for fold, clicks in zip(held_out.folds, fold_clicks, strict=True)
            ]
            for way in (Way(start, transform) for start in starts):
                evaluated[way] = evaluate_rounds(
                    held_out,
                    [self._begin(fold, way.start, rng, items) for fold, items in folds],
                    first=way.first_round,
                    max_rounds=self._max_rounds,
                    patience=self.patience or 0,
                    progress=progress.part(1 / (len(tasks.transforms) * len(starts))),
                )
        way, k, self.path_ = choose_round(
            held_out, evaluated, task, safety=self.safety, temper=self.temper,
            kept_transform=best_imitation(agreements), rng=rng,
        )  # fmt: skip
        self.history_ = evaluated[way].history
        if self.path_ is not None and self.path_.kept == 1:
            return self.path_.keeps, 0, self.path_.transform
        return way.start, int(self.history_.steps[k]), way.transform
