"""Paths: runs without a learning rate, whose checkpoints are evaluated by held-out clicks.

From a start (zero, or an imitation of your current ranker), steps of distance over gradients
(`dog`) pass through all degrees of regularisation: at first nothing has changed, at last the noise
of the clicks is fitted. Held-out clicks decide where to stop.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from countersample._environment import available_cores
from countersample.data.compact import linear_scores
from countersample.errors import ParameterError
from countersample.plans import Examples
from countersample.training import History, train_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation.holdout import Fold, HeldOut
    from countersample.training import TrainingOptions
    from countersample.tuning.choice import PathChoice

TEMPERS = (0.0, 1.0)  # weights 1/p^α: naive and IPS
CHECKPOINTS = 13
FIRST_CHECKPOINT = 20  # steps
FIRST_DISTANCE = 0.01  # of a path: from the current ranker the way is longer than from zero
DRAWS_PER_EXAMPLE = 5
MIN_DRAWS = 5_000
MAX_DRAWS = 1_000_000
MIXED = 0.5  # the share of the regression on click rates in a mean of two
RUNS = 4  # repetitions of a path on the whole log
SAMPLED_VALUES = 2**21  # feature values from which the spread of scores is measured


class Checkpoint(NamedTuple):
    """A checkpoint of a path, and its sums over held-out clicks."""

    start: str
    temper: float
    steps: int
    sums: Floats  # (n_groups,)
    transform: str | None = None
    rates: float = 0.0  # the share of the regression on click rates


def number_of_steps(log: ClickLog, *, unit: str, batch_size: int = 1) -> int:
    """T = ⌈min(max(5·n, 5,000), 1,000,000) / batch_size⌉, with n the number of examples.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.tuning import number_of_steps
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> number_of_steps(log, unit="query", batch_size=10)
    500
    """
    draws = DRAWS_PER_EXAMPLE * len(Examples.of(log, unit))
    return -(-min(max(draws, MIN_DRAWS), MAX_DRAWS) // max(1, batch_size))


def place_checkpoints(steps: int) -> Ints:
    """Return the steps of the checkpoints of a path, a geometric series."""
    points = np.geomspace(min(FIRST_CHECKPOINT, steps), steps, CHECKPOINTS)
    unique: Ints = np.unique(points.astype(np.int64))
    return unique


def evaluate_paths(
    dataset: RankingDataset,
    logs: Sequence[ClickLog],
    held_out: HeldOut,
    *,
    starts: Mapping[str, Floats],
    tempers: Sequence[float],
    options: TrainingOptions,
    seed: int,
    progress: Progress,
    rates: Sequence[Floats] = (),
) -> list[Checkpoint]:
    """Follow each path without the clicks of each fold, and evaluate its checkpoints by them.

    `logs` are the logs of the dataset without the queries of each fold, and `rates` the weights of
    the regression on their click rates: each checkpoint is evaluated alone, and as the mean of both
    at the same spread of scores within queries. The regression alone is one more.

    The paths of a temper draw the same examples, so that their steps share passes over memory.
    """
    at = place_checkpoints(options.n_steps(1))
    folds = list(zip(logs, held_out.folds, strict=True))
    n_folds, shares = len(folds), (0.0, MIXED) if rates else (0.0,)
    jobs = [(temper, *fold) for temper in tempers for fold in folds]
    parts = progress.side_by_side(len(jobs))
    scale = 1.0 if options.scale is None else np.asarray(options.scale)
    spread = _Spread.of(dataset, options.scale) if rates else None

    def work(job: int) -> Floats:
        """Return the sums of each share, start and checkpoint, (…, n_checkpoints, n_groups)."""
        temper, log, fold = jobs[job]
        runs = train_many(
            dataset, log, starts=list(starts.values()), seeds=[seed], workers=1,
            progress=parts[job], options=replace(options, temper=temper, checkpoints=at.tolist()),
        )  # fmt: skip
        weights = np.concatenate([run.weights_at for run in runs])
        if spread is not None:
            mixed = spread.even_out(weights) + spread.even_out(rates[job % n_folds][None])
            weights = np.concatenate([weights, mixed])
        sums = sum_scores(fold, weights * scale)
        return sums.reshape(len(shares), len(runs), -1, sums.shape[1])

    # Threads of BLAS beside the threads of the jobs would wait for each other, busily.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(available_cores()) as pool:
        by_job = list(pool.map(work, range(len(jobs))))
    checkpoints = []
    if rates:
        alone = [
            sum_scores(fold, weights[None] * scale)[0]
            for fold, weights in zip(held_out.folds, rates, strict=True)
        ]
        checkpoints.append(Checkpoint("zero", 1.0, 0, np.sum(alone, axis=0), rates=1.0))
    for k, temper in enumerate(tempers):
        total = np.sum(by_job[k * n_folds : (k + 1) * n_folds], axis=0)
        checkpoints += [
            Checkpoint(name, temper, int(steps), total[m, i, j], rates=share)
            for m, share in enumerate(shares)
            for i, name in enumerate(starts)
            for j, steps in enumerate(at)
        ]
    return checkpoints


def sum_scores(fold: Fold, weights: Floats) -> Floats:
    """Return the sums over held-out clicks of linear rankers, (n, n_groups)."""
    scores = linear_scores(weights, fold.validation.features)
    return np.array([fold.sums(each.astype(np.float64)) for each in scores])


def follow_paths(
    dataset: RankingDataset,
    log: ClickLog,
    choice: PathChoice,
    *,
    starts: Mapping[str, Floats],
    options: TrainingOptions,
    seed: int,
    progress: Progress,
    rates: Floats | None = None,
) -> History:
    """Follow the chosen paths on the whole log, and return their mean at each checkpoint.

    Each path is followed several times with new draws, because its best checkpoints come after few
    passes over the log, when much depends on the draws. Each candidate has its share in the mean,
    and the current ranker the share that is kept, all at the same spread of scores within queries.
    Before its last step a path takes part with its latest checkpoint. The last row is the ranker.
    `rates` are the weights of the regression on click rates.
    """
    shares = zip(choice.candidates, choice.shares, strict=True)
    candidates = [replace(each, share=share) for each, share in shares if share]
    longest = max((each.steps for each in candidates), default=0)
    at = np.append(0, place_checkpoints(options.n_steps(1)))
    at = at[(at <= longest) & ((at > 0) | (longest == 0))]  # 0 if everything is kept
    spread = _Spread.of(dataset, options.scale)
    mean = np.zeros((len(at), dataset.n_features))
    if choice.kept and choice.reference != "naive":
        if choice.keeps not in starts:
            raise ParameterError(
                f"starts have no {choice.keeps!r}, expected it to keep a part of the current ranker"
            )
        mean += choice.kept * spread.even_out(starts[choice.keeps][None])
    regression = np.zeros(dataset.n_features) if rates is None else spread.even_out(rates[None])[0]
    for each in candidates:
        if not each.steps:  # the start itself, or the regression
            itself = regression if each.rates else spread.even_out(starts[each.start][None])
            mean += each.share * itself
    candidates = [each for each in candidates if each.steps]
    tempers = sorted({each.temper for each in candidates})
    for temper in tempers:
        names = list(dict.fromkeys(each.start for each in candidates if each.temper == temper))
        runs = train_many(
            dataset, log, starts=[starts[name] for name in names],
            seeds=[seed + k for k in range(RUNS)], progress=progress.part(1 / len(tempers)),
            options=replace(
                options, temper=temper, steps=int(at[-1]), checkpoints=at.tolist()
            ),
        )  # fmt: skip
        for i, name in enumerate(names):
            repetitions = [spread.even_out(run.weights_at) for run in runs[i :: len(names)]]
            path = np.mean(repetitions, axis=0)
            for each in candidates:
                if (each.start, each.temper) == (name, temper):
                    until = np.minimum(np.arange(len(at)), at.searchsorted(each.steps))
                    reached = path[until]
                    if each.rates:
                        reached = spread.even_out(reached + regression)
                    mean += each.share * reached
    progress.update(1.0)
    return History(at, mean, mean)


class _Spread(NamedTuple):
    """A sample of items, their features minus the mean of their query."""

    centred: Floats

    @classmethod
    def of(cls, dataset: RankingDataset, scale: ArrayLike | None) -> _Spread:
        step = max(1, -(-dataset.features.size // SAMPLED_VALUES))
        sample = dataset.subset(np.arange(0, dataset.n_queries, step))
        features = sample.features[:].astype(np.float64)
        means = np.add.reduceat(features, sample.offsets[:-1]) / sample.query_sizes[:, None]
        features -= np.repeat(means, sample.query_sizes, axis=0)
        return cls(features if scale is None else features * np.asarray(scale))

    def even_out(self, weights: Floats) -> Floats:
        """Scale weights, (n, n_features), so that scores deviate by 1 within queries."""
        spread = np.sqrt(np.mean((self.centred @ weights.T) ** 2, axis=0))
        return weights / np.where(spread > 0, spread, 1.0)[:, None]
