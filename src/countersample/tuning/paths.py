"""Paths: runs without a learning rate, looked at in checkpoints, each judged by held-out clicks.

From a start (zero, or what was served) steps of distance over gradients (`dog`) pass through all
the regularisation there is: first nothing has changed, at last the noise of the clicks is fitted.
Where to stop is what held-out clicks say.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from countersample._cores import available_cores
from countersample.data.scoring import linear_scores
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
    from countersample.evaluation.held_out import HeldOut
    from countersample.training import TrainingOptions
    from countersample.tuning.results import PathChoice

TEMPERS = (0.0, 0.5, 1.0)  # weights 1/p^α: naive, half way, IPS
CHECKPOINTS = 13
FIRST = 20  # steps
FIRST_DISTANCE = 0.01  # of a path: from what was served the way is longer than from zero
DRAWS_PER_EXAMPLE = 5
FEWEST_DRAWS = 5_000
MOST_DRAWS = 1_000_000
RUNS = 4  # of a path on everything
SAMPLED_VALUES = 2**21  # of features, that tell how far the scores of a query are apart


class Judged(NamedTuple):
    """A checkpoint of a path, and its sums over held-out clicks."""

    start: str
    temper: float
    steps: int
    sums: Floats  # (n_groups,)
    transform: str | None = None


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
    return -(-min(max(draws, FEWEST_DRAWS), MOST_DRAWS) // max(1, batch_size))


def checkpoints_of(steps: int) -> Ints:
    """Return the steps at which a path is looked at, rising by the same factor."""
    points: Ints = np.unique(np.geomspace(min(FIRST, steps), steps, CHECKPOINTS).astype(np.int64))
    return points


def judged_paths(
    dataset: RankingDataset,
    logs: Sequence[ClickLog],
    held_out: HeldOut,
    *,
    starts: Mapping[str, Floats],
    tempers: Sequence[float],
    options: TrainingOptions,
    seed: int,
    progress: Progress,
) -> list[Judged]:
    """Follow each path without the clicks of each fold, and judge its checkpoints by them.

    `logs` are those of the dataset without the queries of each fold.

    The paths of a temper draw the same examples, so that their steps share passes over memory.
    """
    at = checkpoints_of(options.n_steps(1))
    folds = list(zip(logs, held_out.folds, strict=True))
    jobs = [(temper, *fold) for temper in tempers for fold in folds]
    parts = progress.side_by_side(len(jobs))
    scale = 1.0 if options.scale is None else np.asarray(options.scale)

    def work(job: int) -> Floats:
        """Return the sums of each start and checkpoint, (n_starts, n_checkpoints, n_groups)."""
        temper, log, fold = jobs[job]
        runs = train_many(
            dataset, log, starts=list(starts.values()), seeds=[seed], workers=1,
            progress=parts[job], options=replace(options, temper=temper, checkpoints=at.tolist()),
        )  # fmt: skip
        weights = np.concatenate([run.weights_at * scale for run in runs])
        scores = linear_scores(weights, fold.validation.features)
        sums = np.array([fold.sums(of_one.astype(np.float64)) for of_one in scores])
        return sums.reshape(len(runs), -1, sums.shape[1])

    # Threads of BLAS beside those of the jobs would wait for each other, busily.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(available_cores()) as pool:
        by_job = list(pool.map(work, range(len(jobs))))
    judged = []
    n_folds = len(folds)
    for k, temper in enumerate(tempers):
        total = np.sum(by_job[k * n_folds : (k + 1) * n_folds], axis=0)
        judged += [
            Judged(name, temper, int(steps), total[i, j])
            for i, name in enumerate(starts)
            for j, steps in enumerate(at)
        ]
    return judged


def follow_paths(
    dataset: RankingDataset,
    log: ClickLog,
    choice: PathChoice,
    *,
    starts: Mapping[str, Floats],
    options: TrainingOptions,
    seed: int,
    progress: Progress,
) -> History:
    """Follow on everything the paths that were chosen; return the mean of them in its course.

    Each path is followed several times, with examples drawn anew, as its best checkpoints come
    after few passes over the log, when much hangs on the draws. Each candidate has its share in
    the mean, and what was served the share that is kept, all at the same spread of scores within
    queries. Before its own end a path takes part as far as it has come; so the last row is the
    ranker.
    """
    shares = zip(choice.candidates, choice.shares, strict=True)
    chosen = [replace(each, share=share) for each, share in shares if share]
    longest = max((each.steps for each in chosen), default=0)
    at = np.append(0, checkpoints_of(options.n_steps(1)))
    at = at[(at <= longest) & ((at > 0) | (longest == 0))]  # 0 where all is kept
    spread = _Spread.of(dataset, options.scale)
    mean = np.zeros((len(at), dataset.n_features))
    if choice.kept and choice.reference != "naive":
        if choice.keeps not in starts:
            raise ParameterError(
                f"starts have no {choice.keeps!r}, expected it: a part of what was logged is kept"
            )
        mean += choice.kept * spread.evened(starts[choice.keeps][None])
    for each in chosen:
        if not each.steps:  # a start as it is
            mean += each.share * spread.evened(starts[each.start][None])
    chosen = [each for each in chosen if each.steps]
    tempers = sorted({each.temper for each in chosen})
    for temper in tempers:
        names = list(dict.fromkeys(each.start for each in chosen if each.temper == temper))
        runs = train_many(
            dataset, log, starts=[starts[name] for name in names],
            seeds=[seed + k for k in range(RUNS)], progress=progress.part(1 / len(tempers)),
            options=replace(
                options, temper=temper, steps=int(at[-1]), checkpoints=at.tolist()
            ),
        )  # fmt: skip
        for i, name in enumerate(names):
            even = np.mean([spread.evened(run.weights_at) for run in runs[i :: len(names)]], axis=0)
            for each in chosen:
                if (each.start, each.temper) == (name, temper):
                    until = np.minimum(np.arange(len(at)), at.searchsorted(each.steps))
                    mean += each.share * even[until]
    progress.update(1.0)
    return History(at, mean, mean)


class _Spread(NamedTuple):
    """Some items, their features less the mean of their query."""

    centred: Floats

    @classmethod
    def of(cls, dataset: RankingDataset, scale: ArrayLike | None) -> _Spread:
        step = max(1, -(-dataset.features.size // SAMPLED_VALUES))
        some = dataset.subset(np.arange(0, dataset.n_queries, step))
        features = some.features[:].astype(np.float64)
        means = np.add.reduceat(features, some.offsets[:-1]) / some.query_sizes[:, None]
        features -= np.repeat(means, some.query_sizes, axis=0)
        return cls(features if scale is None else features * np.asarray(scale))

    def evened(self, weights: Floats) -> Floats:
        """Return weights, (n, n_features), that give scores of a deviation of 1 within queries."""
        spread = np.sqrt(np.mean((self.centred @ weights.T) ** 2, axis=0))
        return weights / np.where(spread > 0, spread, 1.0)[:, None]
