"""Learning rate, steps and clipping, chosen from clicks alone.

Queries with clicks are cut into five parts. Rankers are trained on four of them, and judged by the
clicks of the fifth, with the `snips` estimate of `countersample.evaluation`:

    value = Σ_clicks λ(rank)/p  /  Σ_clicks 1/p

On a log of few queries each part is held out in turn, and what is held out is judged together.

The rates tried lie around what theory says, η₀ = B / (m·G·√T), which is safe rather than good. They
are found by successive halving: all of them take a quarter of the steps, the better half of them
half of the steps, and the better half of those all of them. Where the best is the first or the last
rate, more follow on that side. All rates of a clip share their passes over memory.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample._cores import available_cores
from countersample.data.normalize import Normalizer
from countersample.errors import ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.plans import Examples
from countersample.theory import gradient_bounds, step_size
from countersample.training import TrainingOptions, train_many

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.training import TrainingResult

    Floats = NDArray[np.float64]

__all__ = ["Trial", "TuningResult", "choose_clip", "clips_to_try", "number_of_steps", "tune"]

SAMPLED = 200  # queries in which the longest gradient is looked for
PER_DECADE = 2
FIRST = range(-2, 6)  # as many as training serves with one pass over memory
MOST_PASSES = 3
PARTS_OF_STEPS = (4, 2, 1)

CLIPS = (0.01, 0.03, 0.1)
STANDARD_ERRORS = 1.0

DRAWS_PER_EXAMPLE = 3
FEWEST_DRAWS = 30_000
MOST_DRAWS = 1_000_000

_INSTEAD = {"learning_rate": "learning_rates", "clip": "clips", "epochs": "steps"}


@dataclass(frozen=True)
class Trial:
    """One setting that was tried, and how it did on clicks it had not seen.

    Attributes
    ----------
    learning_rate : float
    steps : int
    clip : float or None
        The smallest propensity that was trained with.
    value, low, high : float
        The estimate and its bootstrap interval; −inf where the weights exploded.
    """

    learning_rate: float
    steps: int
    clip: float | None
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TuningResult:
    """What was tried, and what was best.

    Attributes
    ----------
    best : Trial
    trials : tuple of Trial
        By steps, then clip, then learning rate.
    metric : str
        What the values are of, by the ``snips`` estimate.
    n_queries : int
        How many queries were held out and judged by.
    seconds : float
    """

    best: Trial
    trials: tuple[Trial, ...]
    metric: str
    n_queries: int
    seconds: float = field(compare=False)

    @property
    def learning_rate(self) -> float:
        """That of the best trial."""
        return self.best.learning_rate

    @property
    def steps(self) -> int:
        """Those of the best trial."""
        return self.best.steps

    @property
    def clip(self) -> float | None:
        """That of the best trial."""
        return self.best.clip


def tune(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    learning_rates: Sequence[float] | None = None,
    clips: Sequence[float | None] = (None,),
    steps: int | None = None,
    fewer_steps: bool = True,
    metric: str = "dcg@10",
    method: str = "countersample",
    unit: str = "query",
    holdout: float = 0.2,
    rng: np.random.Generator | int | None = None,
    report: Callable[[float], None] | None = None,
    **options: Any,  # noqa: ANN401 (those of train)
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
        the propensities of the log, whatever they were trained with. Where None is among them,
        another is chosen only if it is better by more than the standard error of the difference.
    steps : int, optional
        The most steps; by default `number_of_steps`.
    fewer_steps : bool
        Whether a quarter and half of them may be chosen as well.
    metric : str
        What rankers are judged by: see `countersample.evaluation.estimate`.
    method, unit : str
        As for `train`.
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out at a time, as the nearest of 1/2, 1/3, ….
    rng : numpy Generator or seed
        Same seed, same choice.
    report : function of (share of all that is done), optional
        Called now and then.
    **options
        The others of `train`: objective, optimizer, batch_size, average, l2, radius, …

    Returns
    -------
    TuningResult

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
    for name, instead in _INSTEAD.items():
        if name in options:
            raise ParameterError(f"tune takes no {name}, expected {instead}")
    if metric == "arp":
        raise ParameterError("metric is 'arp', of which less is better, expected dcg or precision")
    log.check(dataset)
    log = log.take(log.clicks > 0)
    rng = np.random.default_rng(rng)
    if steps is None:
        steps = number_of_steps(log, unit=unit, batch_size=options.get("batch_size", 1))
    options = {"method": method, "unit": unit, "checkpoints": 0} | options
    held_out = HeldOut(dataset, log, metric, holdout=holdout, rng=rng)
    seed = int(rng.integers(2**63))
    make_scale = partial(_make_scale, dataset, log, learning_rates, steps, options, seed)
    scales = [make_scale(clip) for clip in dict.fromkeys(clips)]
    if not scales:
        raise ParameterError("clips are empty, expected propensities, or None for no clipping")
    run = partial(_run, dataset, held_out, options | {"seeds": [seed]})
    attempts = _halve(scales, steps, run, report or (lambda _share: None))
    attempts.sort(key=lambda each: (each.steps, each.scale.clip or 0.0, each.k))
    trials = _trials(attempts, held_out, rng)
    eligible = [n for n, each in enumerate(attempts) if fewer_steps or each.steps == steps]
    best = trials[_best(attempts, eligible, held_out)]
    seconds = time.perf_counter() - begin
    return TuningResult(best, tuple(trials), metric, held_out.n_queries, seconds)


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
    rng: np.random.Generator | int | None = None,
    report: Callable[[float], None] | None = None,
) -> float | None:
    """Choose how far to clip by the clicks of held-out queries, for rankers of any kind.

    Linear rankers are trained with each of `clips_to_try`; which weights are too noisy to learn
    from is a property of the log more than of the ranker.

    Parameters
    ----------
    dataset, log, rng, report
        As for `tune`; features may be of any scale.

    Examples
    --------
    >>> from countersample import PositionBias, simulate_clicks, synthetic
    >>> from countersample.tuning import choose_clip
    >>> data = synthetic("tiny", rng=0)
    >>> log = simulate_clicks(data, data.features[:, 0], 5000, bias=PositionBias(1.0), rng=0)
    >>> choose_clip(data, log, rng=0) in (None, 0.1)  # propensities are 0.04 and more
    True
    """
    clips = clips_to_try(log)
    if len(clips) == 1:
        return None
    scaled = Normalizer.fit(dataset, "minmax")(dataset)
    unbound = type(log)(log.query, log.item, log.propensity, log.count)
    return tune(scaled, unbound, clips=clips, rng=rng, report=report).clip


@dataclass(frozen=True)
class _Scale:
    """The learning rates of one clip: η₀·10^(k/2) for any k, or those given."""

    clip: float | None
    centre: float = 1.0
    given: tuple[float, ...] = ()

    @property
    def first(self) -> range:
        """The k to begin with."""
        return range(len(self.given)) if self.given else FIRST

    def rate(self, k: int) -> float:
        return self.given[k] if self.given else float(self.centre * 10 ** (k / PER_DECADE))

    def more(self, values: Mapping[int, float]) -> range:
        """Return the k to try next, by the values so far: none, where the best is well within."""
        best = max(values, key=lambda k: (values[k], -abs(k)))  # of equals, nearest to theory
        if self.given:
            return range(0)
        if values[best] == -np.inf or best == min(values):
            return range(min(values) - len(FIRST), min(values))
        if best == max(values):
            return range(best + 1, best + 1 + len(FIRST))
        return range(0)


class _Attempt(NamedTuple):
    """One setting under way: its sums over held-out clicks, None where weights exploded."""

    scale: _Scale
    k: int
    steps: int
    sums: Floats | None
    value: float

    @property
    def rate(self) -> float:
        return self.scale.rate(self.k)


def _make_scale(
    dataset: RankingDataset,
    log: ClickLog,
    learning_rates: Sequence[float] | None,
    steps: int,
    options: Mapping[str, Any],
    seed: int,
    clip: float | None,
) -> _Scale:
    if clip is not None:
        log = log.clip(clip)
    if learning_rates is None:
        return _Scale(clip, _theoretical_rate(dataset, log, steps, options, seed))
    if not len(learning_rates):
        raise ParameterError("learning_rates are empty, expected numbers above 0, or None")
    return _Scale(clip, given=tuple(sorted(map(float, learning_rates))))


def _theoretical_rate(
    dataset: RankingDataset, log: ClickLog, steps: int, options: Mapping[str, Any], seed: int
) -> float:
    """η₀ = B / (m·G·√T), B being the radius or 1; an adaptive optimizer divides by m·G itself."""
    size = 1.0
    if options.get("optimizer", "sgd") == "sgd":
        trained = TrainingOptions(**options)
        scale = trained.plan(Examples.of(log, trained.unit)).max_multiplier
        queries = np.random.default_rng(seed).permutation(np.unique(log.query))[:SAMPLED]
        sampled = Examples.of(log.of_queries(queries), options["unit"])
        objective = options.get("objective", "rank")
        longest = gradient_bounds(dataset, sampled, objective=objective).max()
        size = scale * float(longest) or 1.0
    radius = options.get("radius", np.inf)
    reach = radius if np.isfinite(radius) else 1.0
    return step_size(max_multiplier=1.0, gradient_bound=size, radius=reach, steps=steps)


def _halve(
    scales: list[_Scale],
    steps: int,
    run: Callable[..., list[_Attempt]],
    report: Callable[[float], None],
) -> list[_Attempt]:
    """Try all rates with a quarter of the steps, and the better halves of them with more."""
    rungs = sorted({-(-steps // part) for part in PARTS_OF_STEPS})
    found: list[_Attempt] = []

    def tell(rung: int, share: float) -> None:
        report((rung + share) / len(rungs))

    for rung, n_steps in enumerate(rungs):
        if rung == 0:
            latest = _widen(scales, n_steps, run, tell)
        else:
            latest.sort(key=lambda attempt: (-attempt.value, abs(attempt.k)))
            half = latest[: -(-len(latest) // 2)]
            of_others = [each for each in _first_of_each_clip(latest) if each not in half]
            better = [(each.scale, each.k) for each in half + of_others]
            latest = run(better, n_steps, partial(tell, rung))
        found += latest
    report(1.0)
    return found


def _widen(
    scales: list[_Scale],
    steps: int,
    run: Callable[..., list[_Attempt]],
    tell: Callable[[int, float], None],
) -> list[_Attempt]:
    """Try the first rates of each scale, and more where the best of them is at an end."""
    found: list[_Attempt] = []
    chosen = [(scale, k) for scale in scales for k in scale.first]
    for turn in range(MOST_PASSES):
        found += run(chosen, steps, lambda share, turn=turn: tell(0, (turn + share) / MOST_PASSES))
        chosen = [
            (scale, k)
            for scale in scales
            for k in scale.more({each.k: each.value for each in found if each.scale is scale})
        ]
        if not chosen:
            break
    return found


def _run(
    dataset: RankingDataset,
    held_out: HeldOut,
    options: Mapping[str, Any],
    chosen: list[tuple[_Scale, int]],
    steps: int,
    tell: Callable[[float], None],
) -> list[_Attempt]:
    """Train the chosen rates of each scale on each fold, side by side, and judge them."""
    by_scale: dict[_Scale, list[int]] = {}
    for scale, k in chosen:
        by_scale.setdefault(scale, []).append(k)
    jobs = [(scale, fold) for scale in by_scale for fold in held_out.folds]
    done, lock = [0.0] * len(jobs), Lock()

    def work(job: int) -> list[TrainingResult]:
        def progress(_what: str, share: float) -> None:
            with lock:  # one call at a time, and never less than before
                done[job] = share
                tell(sum(done) / len(jobs))

        scale, fold = jobs[job]
        rates = [scale.rate(k) for k in by_scale[scale]]
        return train_many(
            dataset, fold.train, learning_rates=rates, steps=steps, clip=scale.clip, workers=1,
            progress=progress, **options,
        )  # fmt: skip

    with ThreadPoolExecutor(available_cores()) as pool:
        results = list(pool.map(work, range(len(jobs))))
    by_fold = iter(results)
    attempts = []
    for scale, ks in by_scale.items():
        lanes = list(zip(*(next(by_fold) for _ in held_out.folds), strict=True))
        sound = [n for n, runs in enumerate(lanes) if all(r.diverged_at is None for r in runs)]
        sums = dict(zip(sound, _sums(held_out, [lanes[n] for n in sound]), strict=True))
        for n, k in enumerate(ks):
            value = held_out.value(sums[n]) if n in sums else -np.inf
            attempts.append(_Attempt(scale, k, steps, sums.get(n), value))
    return attempts


def _sums(held_out: HeldOut, rankers: Sequence[Sequence[TrainingResult]]) -> Floats:
    """Return the sums over held-out clicks of each ranker, (n_rankers, n_groups).

    A ranker is what training gave on each fold. The scores of all are one matrix product a fold.
    """
    sums = np.zeros((len(rankers), len(held_out.weight_sums)))
    for fold, of_fold in zip(held_out.folds, zip(*rankers, strict=True), strict=False):
        weights = np.array([result.weights for result in of_fold], np.float32)
        scores = (weights @ fold.validation.features.T).astype(np.float64)
        sums += [fold.sums(of_ranker) for of_ranker in scores]
    return sums


def _first_of_each_clip(attempts: list[_Attempt]) -> list[_Attempt]:
    return list({each.scale: each for each in reversed(attempts)}.values())


def _best(attempts: list[_Attempt], eligible: list[int], held_out: HeldOut) -> int:
    """Return the attempt of the highest value; one that clips has to be clearly better.

    Clipping is a bias that held-out clicks cannot see in full, so that it has to be better than no
    clipping by more than the standard error of the difference.
    """
    by_value = sorted(eligible, key=lambda n: (-attempts[n].value, attempts[n].rate))
    plain = next((n for n in by_value if attempts[n].scale.clip is None), by_value[0])
    without = attempts[plain].sums
    for n in by_value:
        sums = attempts[n].sums
        if n == plain or without is None or sums is None:
            break
        if held_out.z_score(sums, without) > STANDARD_ERRORS:
            return n
    return plain if without is not None else by_value[0]


def _trials(attempts: list[_Attempt], held_out: HeldOut, rng: np.random.Generator) -> list[Trial]:
    """Return the attempts with their intervals."""
    sums = [each.sums for each in attempts if each.sums is not None]
    intervals = iter(held_out.intervals(np.array(sums), rng).tolist() if sums else ())
    trials = []
    for scale, k, steps, of_attempt, value in attempts:
        low, high = (-np.inf, -np.inf) if of_attempt is None else next(intervals)
        trials.append(Trial(scale.rate(k), steps, scale.clip, value, low, high))
    return trials
