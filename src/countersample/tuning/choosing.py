"""Learning rate, steps and clipping, chosen from clicks alone, as `HeldOut` judges rankers by them.

The rates tried lie around what theory says, η₀ = B / (m·G·√T), which is safe rather than good. They
are found by successive halving: all of them take a quarter of the steps, the better half of them
half of the steps, and the better half of those all of them. Where the best is the first or the last
rate, more follow on that side. All rates of a clip share their passes over memory.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._progress import Progress
from countersample.data.normalize import Normalizer
from countersample.errors import ParameterError
from countersample.evaluation.held_out import VALIDATION_QUERIES, HeldOut
from countersample.plans import Examples
from countersample.training import TrainingOptions
from countersample.tuning.rates import make_grid
from countersample.tuning.results import ClipChoice, TuningResult
from countersample.tuning.search import Search, best_of, best_without, trials_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countersample._arrays import Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.tuning.results import Trial

CLIPS = (0.01, 0.03, 0.1)

DRAWS_PER_EXAMPLE = 3
FEWEST_DRAWS = 30_000
MOST_DRAWS = 1_000_000

_INSTEAD = {"learning_rate": "learning_rates", "clip": "clips", "epochs": "steps"}


def tune(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    learning_rates: Sequence[float] | None = None,
    clips: Sequence[float | None] = (None,),
    fewer_steps: bool = True,
    metric: str = "dcg@10",
    holdout: float = 0.2,
    parts: Sequence[Ints] | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Progress | Callable[[str, float], None] | None = None,
    options: TrainingOptions | None = None,
    **settings: Any,  # noqa: ANN401 (the fields of TrainingOptions)
) -> TuningResult:
    """Choose learning rate, steps and clipping by the clicks of held-out queries: no labels.

    Parameters
    ----------
    dataset : RankingDataset
        With features as they are trained on.
    log : ClickLog
    learning_rates : sequence of float, optional
        Those to try; by default η₀·10^(k/2), k = −2 … 5, and on while the best is at an end.
    clips : sequence of float or None
        The smallest propensities to train with; None for those of the log. Rankers are judged with
        the propensities of the log, whatever they were trained with: see `ClipChoice`.
    fewer_steps : bool
        Whether a quarter and half of the steps may be chosen as well.
    metric : str
        What rankers are judged by: see `countersample.evaluation.estimate`.
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out at a time, as the nearest of 1/2, 1/3, ….
    parts : sequence of int arrays, optional
        The queries of each part that is held out, instead of `holdout`: see `HeldOut.cut`. The
        first of them that have a thousand queries between them, and at least two, are tried on.
    rng : numpy Generator or seed
        Same seed, same choice.
    progress : function of (what is going on, share of all that is done), optional
        Called now and then.
    options : TrainingOptions, optional
        How rankers are trained; by default by query.
    **settings
        Single fields of them: ``steps`` (the most; by default `number_of_steps`), ``method``, ….

    Examples
    --------
    >>> from countersample import PositionBias, simulate_clicks, synthetic
    >>> from countersample.tuning import tune
    >>> data = synthetic("tiny", rng=0)
    >>> log = simulate_clicks(data, data.features[:, 0], 5000, bias=PositionBias(1.0), rng=0)
    >>> found = tune(data, log, clips=[None, 0.1], steps=1000, rng=0)
    >>> found.steps in (250, 500, 1000), found.clip in (None, 0.1)
    (True, True)
    >>> found.best in found.trials
    True
    """
    begin = time.perf_counter()
    if metric == "arp":
        raise ParameterError("metric is 'arp', of which less is better, expected dcg or precision")
    if not len(clips):
        raise ParameterError("clips are empty, expected propensities, or None for no clipping")
    log.check(dataset)
    log = log.weighted()
    options = _with_steps(log, options, settings)
    rng = np.random.default_rng(rng)
    steps = options.n_steps(log.n_rows)
    some = None if parts is None else parts[: max(2, -(-VALIDATION_QUERIES // len(parts[0])))]
    held_out = HeldOut(dataset, log, metric, holdout=holdout, parts=some, rng=rng)
    seed = int(rng.integers(2**63))
    grids = [
        make_grid(dataset, log, learning_rates, replace(options, clip=clip), seed)
        for clip in dict.fromkeys(clips)
    ]
    search = Search(dataset, held_out, options, seed)
    whole = Progress.of(progress).part(1.0, "trying settings on held-out queries")
    attempts = search.halve(grids, steps, whole)
    attempts.sort(key=lambda each: (each.steps, each.grid.clip or 0.0, each.k))
    trials = trials_of(attempts, held_out, rng)
    eligible = [n for n, each in enumerate(attempts) if fewer_steps or each.steps == steps]
    best = trials[best_of(attempts, eligible, held_out)]
    without: list[Trial] = []
    if len(held_out.folds) > 1:
        without = [
            trials[best_without(k, attempts, eligible, held_out)]
            for k in range(len(held_out.folds))
        ]
        without += [best] * (0 if parts is None else len(parts) - len(without))
    seconds = time.perf_counter() - begin
    return TuningResult(
        best, tuple(trials), metric, held_out.n_queries, seconds, without_part=tuple(without)
    )


def _with_steps(
    log: ClickLog, options: TrainingOptions | None, settings: dict[str, Any]
) -> TrainingOptions:
    """Return the options of training, with the number of steps decided."""
    for name, instead in _INSTEAD.items():
        if name in settings:
            raise ParameterError(f"tune takes no {name}, expected {instead}")
    options = TrainingOptions.of(options or TrainingOptions(unit="query"), settings)
    if options.steps is None:
        steps = number_of_steps(log, unit=options.unit, batch_size=options.batch_size)
        options = replace(options, steps=steps)
    return replace(options, checkpoints=0)


def number_of_steps(log: ClickLog, *, unit: str, batch_size: int = 1) -> int:
    """T = ⌈min(max(3·n, 30,000), 1,000,000) / batch_size⌉, with n the number of examples.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.tuning import number_of_steps
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> number_of_steps(log, unit="query", batch_size=10)
    3000
    """
    draws = DRAWS_PER_EXAMPLE * len(Examples.of(log, unit))
    return -(-min(max(draws, FEWEST_DRAWS), MOST_DRAWS) // max(1, batch_size))


def clips_to_try(log: ClickLog) -> list[float | None]:
    """Return no clipping, and those of 0.01, 0.03 and 0.1 that change a weight of the log.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.tuning import clips_to_try
    >>> clips_to_try(ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.02]))
    [None, 0.03, 0.1]
    """
    smallest = 1 / log.max_weight
    return [None, *(clip for clip in CLIPS if clip > smallest)]


def choose_clip(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    metric: str = "dcg@10",
    parts: Sequence[Ints] | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Progress | Callable[[str, float], None] | None = None,
) -> ClipChoice:
    """Choose how far to clip by the clicks of held-out queries, for rankers of any kind.

    Linear rankers are trained with each of `clips_to_try`; which weights are too noisy to learn
    from is a property of the log more than of the ranker.

    Parameters
    ----------
    dataset, log, metric, parts, rng, progress
        As for `tune`; features may be of any scale.

    Examples
    --------
    >>> from countersample import PositionBias, simulate_clicks, synthetic
    >>> from countersample.tuning import choose_clip
    >>> data = synthetic("tiny", rng=0)
    >>> log = simulate_clicks(data, data.features[:, 0], 5000, bias=PositionBias(1.0), rng=0)
    >>> choice = choose_clip(data, log, rng=0)
    >>> [trial.clip for trial in choice.trials]  # propensities are 0.04 and more
    [None, 0.1]
    >>> choice.clip is None or choice.clip == 0.1
    True
    """
    clips = clips_to_try(log)
    if len(clips) == 1:
        return ClipChoice(None, (), metric)
    scaled = Normalizer.fit(dataset, "minmax")(dataset)
    found = tune(
        scaled, log.detached(), clips=clips, metric=metric, parts=parts, rng=rng, progress=progress
    )
    return found.clip_choice
