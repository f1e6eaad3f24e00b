"""How far to follow which paths, chosen from clicks alone, as `HeldOut` judges rankers by them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from countersample._progress import Progress
from countersample.data.scoring import linear_scores
from countersample.errors import ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.options import CONFIDENCE, HOLDOUT, METRIC
from countersample.training import TrainingOptions
from countersample.tuning.paths import (
    FIRST_DISTANCE,
    TEMPERS,
    Judged,
    judged_paths,
    number_of_steps,
)
from countersample.tuning.results import Candidate, PathChoice, best_naive
from countersample.tuning.safety import (
    FEWEST_QUERIES,
    check_safety,
    compare_with,
    gains_over,
    simplest_as_good,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

AS_GOOD = 0.01  # of the share of pairs in order: imitations that differ by less are as good


def choose_path(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    starts: Mapping[str, Floats] | None = None,
    tempers: Sequence[float] = TEMPERS,
    logged: Floats | None = None,
    safety: float = CONFIDENCE,
    metric: str = METRIC,
    holdout: float = HOLDOUT,
    options: TrainingOptions | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Progress | Show | None = None,
) -> PathChoice:
    """Choose starts, tempers and steps by the clicks of held-out queries: no labels, no rates.

    How is told at the top of `countersample.tuning.safety`.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
    starts : mapping of names to float arrays (n_features,), optional
        Weights that paths begin with; by default ``"zero"`` alone. ``"served"`` are those of what
        is kept where nothing is better. ``"previous"`` are those of a ranker, which is a candidate
        itself, at 0 steps, and is kept instead where it is no worse.
    tempers : sequence of float in [0, 1]
        α, of weights 1/p^α.
    logged : float array (n_rows,), optional
        λ of what was logged, for each row of the log: see
        `countersample.evaluation.estimators.logged_values`. Without, candidates are compared with
        the best that takes clicks as they are (α = 0).
    safety : 0, or float in [0.5, 1)
        The confidence with which a candidate has to be better than what was logged (or than the
        best naive one); 0 takes what looks best, whatever was logged.
    metric : str
        What rankers are judged by: see `countersample.evaluation.estimate`.
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out at a time, as the nearest of 1/2, 1/3, ….
    options : TrainingOptions, optional
        How rankers are trained; the steps are the most; by default by query.
    rng : numpy Generator or seed
        Same seed, same choice.
    progress : function of (what is going on, share of all that is done), optional

    Examples
    --------
    >>> from countersample import PositionBias, simulate_clicks, synthetic
    >>> from countersample.evaluation.estimators import logged_values
    >>> from countersample.tuning import choose_path
    >>> data = synthetic("tiny", rng=0)
    >>> log = simulate_clicks(data, -data.features[:, 0], 5000, bias=PositionBias(1.0), rng=0)
    >>> found = choose_path(data, log, logged=logged_values(log, data, "dcg@10"), rng=0)
    >>> found.kept, found.best.low > 0
    (0.0, True)
    """
    check_safety("safety", safety)
    log.check(dataset)
    options = options or TrainingOptions(
        unit="query", optimizer="dog", first_distance=FIRST_DISTANCE
    )
    if options.epochs is not None:
        options = replace(options, steps=options.n_steps(log.weighted().n_rows), epochs=None)
    elif options.steps is None:
        steps = number_of_steps(log.weighted(), unit=options.unit, batch_size=options.batch_size)
        options = replace(options, steps=steps)
    rng = np.random.default_rng(rng)
    held_out = HeldOut(dataset, log, metric, holdout=holdout, logged=logged, rng=rng)
    contender = Contender(
        held_out, dataset, [fold.train.weighted() for fold in held_out.folds],
        starts={"zero": np.zeros(dataset.n_features)} if starts is None else starts,
        options=options,
    )  # fmt: skip
    return choose_by(
        [contender], tempers=tempers, safety=safety, knows_logged=logged is not None, rng=rng,
        progress=Progress.of(progress),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Contender:
    """Features as a transform makes them, and where paths on them begin.

    Attributes
    ----------
    held_out : HeldOut
        Who judges, by items that have these features; they may be others than are learned from.
    dataset : RankingDataset
        What is learned from.
    logs : sequence of ClickLog
        Those of the dataset without the queries of each fold.
    starts : mapping of names to float64 (n_features,)
    options : TrainingOptions
        The steps are the most.
    served : float64 (n_features,), optional
        The weights of what is kept where nothing is better, which may be no start.
    agreement : float
        How well they imitate what was served.
    transform : str, optional
    """

    held_out: HeldOut
    dataset: RankingDataset
    logs: Sequence[ClickLog]
    starts: Mapping[str, Floats]
    options: TrainingOptions
    served: Floats | None = None
    agreement: float = 0.0
    transform: str | None = None

    def sums_of(self, start: str) -> Floats | None:
        """Return the sums of the weights of a start as they are; None where there are none."""
        weights = self.starts.get(start, self.served if start == "served" else None)
        if weights is None:
            return None
        scale = 1.0 if self.options.scale is None else np.asarray(self.options.scale)
        scaled, folds = (weights * scale)[None], self.held_out.folds
        return self.held_out.sums(
            [linear_scores(scaled, fold.validation.features)[0] for fold in folds]
        )


def choose_by(
    contenders: Iterable[Contender],
    *,
    n_contenders: int = 1,
    tempers: Sequence[float],
    safety: float,
    knows_logged: bool,
    rng: np.random.Generator,
    progress: Progress,
) -> PathChoice:
    """Choose as `choose_path` does, of the transforms of features as well, where there are several.

    Contenders are judged by the same clicks, and taken one after the other, so that one at a time
    is in memory. Rankers of different transforms have no mean that is one of them, so the transform
    is chosen first: that of the candidate whose lower end is highest, or a simpler one that is as
    good (`simplest_as_good`); where nothing is better than what was logged, the one that imitates
    that best. Then its candidates are chosen from as if there were no other, and that some of them
    are better is said with the confidence of a choice among all that were tried.

    A start that is called "previous", which is a ranker, is a candidate itself, at 0 steps. Where
    it is not known what was logged, it is what candidates are compared with, and it is kept where
    it is no worse than the imitation of what was logged.
    """
    begin = time.perf_counter()
    seed = int(rng.integers(2**63))
    judged: list[Judged] = []
    imitations: dict[str | None, Floats | None] = {}
    agreements: dict[str | None, float] = {}
    previous = None
    for each in contenders:
        held_out, transform = each.held_out, each.transform
        if held_out.metric == "arp":
            raise ParameterError(
                "metric is 'arp', of which less is better, expected dcg or precision"
            )
        part = progress.part(1 / n_contenders, "following paths on held-out queries")
        found = judged_paths(
            each.dataset, each.logs, held_out, starts=each.starts, tempers=tempers,
            options=each.options, seed=seed, progress=part,
        )  # fmt: skip
        previous = each.sums_of("previous")
        if previous is not None:
            found.append(Judged("previous", tempers[-1], 0, previous))
        judged += [one._replace(transform=transform) for one in found]
        imitations[transform], agreements[transform] = each.sums_of("served"), each.agreement
    logged = held_out.logged_sums() if knows_logged else None
    chosen = next(iter(agreements))
    if len(agreements) > 1:
        chosen = _best_transform(held_out, judged, agreements, logged, safety)
    own = [one for one in judged if one.transform == chosen]
    name, reference = "naive", own[_naive(own, held_out)].sums
    imitation, keeps = imitations[chosen], "served"
    if previous is not None:
        name, reference = "previous", previous
        if imitation is None or held_out.value(previous) >= held_out.value(imitation):
            keeps, imitation = "previous", previous
    if logged is not None:
        name, reference = "logged", logged
    compared = compare_with(
        held_out, [one.sums for one in own], reference, kept=imitation if knows_logged else None,
        beside=[one.sums for one in judged if one.transform != chosen], safety=safety, rng=rng,
    )  # fmt: skip
    return PathChoice(
        candidates=_candidates(held_out, judged, chosen, reference, safety, compared.share),
        kept=compared.kept,
        reference=name,
        reference_value=held_out.value(reference),
        imitation_value=None if imitation is None else held_out.value(imitation),
        metric=held_out.metric,
        safety=safety,
        is_shown=compared.is_shown,
        n_queries=held_out.n_queries,
        seconds=time.perf_counter() - begin,
        transform=chosen,
        keeps="previous" if name == "previous" else keeps,
    )


def _candidates(
    held_out: HeldOut,
    judged: Sequence[Judged],
    chosen: str | None,
    reference: Floats,
    safety: float,
    shares: Floats,
) -> tuple[Candidate, ...]:
    """Return all candidates; `shares` are of those of the chosen transform."""
    numbers = gains_over(held_out, [one.sums for one in judged], reference, safety)
    share = iter(shares.tolist())
    return tuple(
        Candidate(
            one.start, one.temper, one.steps, held_out.value(one.sums), gain, low,
            next(share) if one.transform == chosen else 0.0, one.transform,
        )
        for one, gain, low in zip(judged, *map(np.ndarray.tolist, numbers), strict=True)
    )  # fmt: skip


def _best_transform(
    held_out: HeldOut,
    judged: Sequence[Judged],
    agreements: Mapping[str | None, float],
    logged: Floats | None,
    safety: float,
) -> str | None:
    """Return the transform whose candidates are to be chosen from."""
    sums = [one.sums for one in judged]
    other = judged[_naive(judged, held_out)].sums if logged is None else logged
    _, low = gains_over(held_out, sums, other, safety)
    is_better = not safety or (low.max() > 0 and held_out.n_queries >= FEWEST_QUERIES)
    if logged is not None and not is_better:
        return best_imitation(agreements)
    return judged[
        simplest_as_good(held_out, sums, low, [one.transform for one in judged])
    ].transform


def best_imitation(agreements: Mapping[str | None, float]) -> str | None:
    """Return the first transform with which what was served is imitated about as well as can be.

    Examples
    --------
    >>> best_imitation({None: 0.941, "log": 0.943, "root": 0.95})
    >>> best_imitation({None: 0.7, "log": 0.9, "root": 0.9})
    'log'
    """
    least = max(agreements.values()) - AS_GOOD
    return next(name for name, agreement in agreements.items() if agreement >= least)


def _naive(judged: Sequence[Judged], held_out: HeldOut) -> int:
    """Return the index of the best candidate of the lowest temper."""
    values = [held_out.value(each.sums) for each in judged]
    return best_naive([each.temper for each in judged], values)
