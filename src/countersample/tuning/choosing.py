"""How far to follow which paths, chosen from clicks alone, as `HeldOut` judges rankers by them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from countersample._progress import Progress
from countersample.data.scoring import linear_scores
from countersample.errors import ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.training import TrainingOptions
from countersample.tuning.paths import (
    FIRST_DISTANCE,
    TEMPERS,
    Judged,
    judged_paths,
    number_of_steps,
)
from countersample.tuning.results import Candidate, PathChoice, best_naive
from countersample.tuning.safety import check_safety, compare_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset


def choose_path(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    starts: Mapping[str, Floats] | None = None,
    tempers: Sequence[float] = TEMPERS,
    logged: Floats | None = None,
    safety: float = 0.95,
    metric: str = "dcg@10",
    holdout: float = 0.2,
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
    return choose_by(
        held_out, dataset, [fold.train.weighted() for fold in held_out.folds],
        starts={"zero": np.zeros(dataset.n_features)} if starts is None else starts,
        tempers=tempers, safety=safety, options=options, knows_logged=logged is not None, rng=rng,
        progress=Progress.of(progress),
    )  # fmt: skip


def choose_by(
    held_out: HeldOut,
    dataset: RankingDataset,
    logs: Sequence[ClickLog],
    *,
    starts: Mapping[str, Floats],
    tempers: Sequence[float],
    safety: float,
    options: TrainingOptions,
    knows_logged: bool,
    served: Floats | None = None,
    rng: np.random.Generator,
    progress: Progress,
) -> PathChoice:
    """Choose as `choose_path` does, by a judge that may rank other items than are learned from.

    `logs` are those of the dataset without the queries of each fold, the steps of `options` are
    the most, and `served` are the weights of what is kept where nothing is better, which may be no
    start. A start that is called "previous", which is a ranker, is a candidate itself, at 0 steps.
    Where it is not known what was logged, it is what candidates are compared with, and it is kept
    where it is no worse than the imitation of what was logged.
    """
    begin = time.perf_counter()
    if held_out.metric == "arp":
        raise ParameterError("metric is 'arp', of which less is better, expected dcg or precision")
    judged = judged_paths(
        dataset, logs, held_out, starts=starts, tempers=tempers, options=options,
        seed=int(rng.integers(2**63)),
        progress=progress.part(1.0, "following paths on held-out queries"),
    )  # fmt: skip
    name, imitation = "naive", _sums_of(starts.get("served", served), options, held_out)
    reference, keeps = judged[_naive(judged, held_out)].sums, "served"
    previous = _sums_of(starts.get("previous"), options, held_out)
    if previous is not None:
        judged.append(Judged("previous", tempers[-1], 0, previous))
        name, reference = "previous", previous
        if imitation is None or held_out.value(previous) >= held_out.value(imitation):
            keeps, imitation = "previous", previous
    if knows_logged:
        name, reference = "logged", held_out.logged_sums()
    compared = compare_with(
        held_out, [each.sums for each in judged], reference,
        kept=imitation if knows_logged else None, safety=safety, rng=rng,
    )  # fmt: skip
    return PathChoice(
        candidates=tuple(
            Candidate(each.start, each.temper, each.steps, held_out.value(each.sums), *numbers)
            for each, *numbers in zip(judged, *map(np.ndarray.tolist, compared[:3]), strict=True)
        ),
        kept=compared.kept,
        reference=name,
        reference_value=held_out.value(reference),
        imitation_value=None if imitation is None else held_out.value(imitation),
        metric=held_out.metric,
        safety=safety,
        is_shown=compared.is_shown,
        n_queries=held_out.n_queries,
        seconds=time.perf_counter() - begin,
        keeps="previous" if name == "previous" else keeps,
    )


def _naive(judged: Sequence[Judged], held_out: HeldOut) -> int:
    """Return the index of the best candidate of the lowest temper."""
    values = [held_out.value(each.sums) for each in judged]
    return best_naive([each.temper for each in judged], values)


def _sums_of(start: Floats | None, options: TrainingOptions, held_out: HeldOut) -> Floats | None:
    """Return the sums of the start itself."""
    if start is None:
        return None
    scale = 1.0 if options.scale is None else np.asarray(options.scale)
    weights = (start * scale)[None]
    return held_out.sums(
        [linear_scores(weights, fold.validation.features)[0] for fold in held_out.folds]
    )
