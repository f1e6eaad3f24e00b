"""The paper's comparison on one dataset: the same clicks, each method at its best learning rate."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._cores import available_cores
from countersample.clicks import PositionBias, simulate_clicks
from countersample.evaluation import learning_curve
from countersample.study.design.grids import METHODS as KNOWN
from countersample.study.running.references import METRIC, logging_policy, supervised
from countersample.training import train, train_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.study.design.grids import Method
    from countersample.training import TrainingResult

    Floats = NDArray[np.float64]

RATES = (1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4)  # enough for the shape of Yahoo
WIDE_RATES = (*RATES, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)  # for data not seen before
_TUNING_POINTS = 10  # evaluation points looked at to choose a learning rate
_TIMED_STEPS = 20_000


METHODS = tuple(
    KNOWN[name] for name in ("Biased-SGD", "IPS-SGD", "CounterSample", "CounterSample by query")
)


@dataclass(frozen=True)
class MethodResult:
    """A method at the learning rate that was best on validation data.

    Attributes
    ----------
    curves : float64 (n_seeds, n_points)
        nDCG@10 on test data of the averaged iterate, by seed and evaluation point.
    learning_rate : float
    steps_per_second : float
        Of one run on one core.
    n_diverged : int
        Runs of the chosen learning rate whose weights exploded.
    """

    method: Method
    curves: Floats
    learning_rate: float
    steps_per_second: float
    n_diverged: int

    @property
    def mean_curve(self) -> Floats:
        """The mean over seeds, (n_points,)."""
        mean: Floats = self.curves.mean(axis=0)
        return mean

    def regrets(self, best: float) -> Floats:
        """Return the mean over evaluation points of best − nDCG@10, by seed, (n_seeds,)."""
        regrets: Floats = (best - self.curves).mean(axis=1)
        return regrets


@dataclass(frozen=True)
class Comparison:
    """All methods on the same clicks.

    Attributes
    ----------
    points : int64 (n_points,)
        The steps at which the averaged iterates were evaluated.
    best : float
        nDCG@10 of w*, trained on all labels.
    policy : float
        nDCG@10 of the logging policy.
    results : list of MethodResult
    settings : dict
    """

    points: NDArray[np.int64]
    best: float
    policy: float
    results: list[MethodResult]
    settings: dict[str, Any]

    def steps_to(self, result: MethodResult, share: float = 0.99) -> int | None:
        """Return the first point at which the mean curve has this share of the best mean of all."""
        target = share * max(other.mean_curve.max() for other in self.results)
        reached = np.flatnonzero(result.mean_curve >= target)
        return int(self.points[reached[0]]) if len(reached) else None


def compare(
    train_set: RankingDataset,
    vali: RankingDataset,
    test: RankingDataset,
    *,
    n_clicks: int,
    steps: int,
    n_points: int = 100,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    gamma: float = 1.0,
    relevant: float = 3,
    policy_fraction: float = 0.001,
    rates: Sequence[float] = RATES,
    methods: Sequence[Method] = METHODS,
    report: Callable[[str, float], None] = lambda _what, _share: None,
) -> Comparison:
    """Simulate clicks, tune and train every method on them, and evaluate on test data.

    Parameters
    ----------
    train_set, vali, test : RankingDataset
        With normalised features.
    n_clicks, steps, n_points : int
    seeds : sequence of int
        One click log and one run each.
    gamma : float
        Position bias.
    relevant : float
        The smallest relevant grade.
    policy_fraction : float
        The share of the queries whose labels the logging policy was trained on.
    rates : sequence of float
        The learning rates each method is tried at.
    methods : sequence of Method
    report : function of (what is going on, share done)
    """
    report("full supervision", 0.0)
    best_weights = supervised(train_set, vali, steps=min(steps, 60_000), seed=0)
    policy = logging_policy(train_set, fraction=policy_fraction, seed=0)
    scores = train_set.features @ policy.astype(np.float32)
    report("simulating clicks", 0.03)
    logs = [
        simulate_clicks(
            train_set, scores, n_clicks, bias=PositionBias(gamma), relevant=relevant, rng=seed
        )
        for seed in seeds
    ]
    points = np.unique(np.rint(np.linspace(0, steps, n_points + 1)[1:]).astype(np.int64))
    work = [
        (method, log, seed) for method in methods for log, seed in zip(logs, seeds, strict=True)
    ]
    runs = []  # by method and seed; each has a run for every learning rate
    with ThreadPoolExecutor(available_cores()) as pool:
        for by_rate in pool.map(
            lambda job: _train_at_all_rates(train_set, points, rates, *job), work
        ):
            runs.append(by_rate)
            title = work[min(len(runs), len(work) - 1)][0].name
            report(f"training {title}", 0.05 + 0.85 * len(runs) / len(work))
    results = []
    for position, method in enumerate(methods):
        report(f"evaluating {method.name}", 0.9 + 0.1 * position / len(methods))
        of_method = runs[position * len(seeds) : (position + 1) * len(seeds)]
        chosen = _best_rate(of_method, vali)
        results.append(_evaluate(method, [by_rate[chosen] for by_rate in of_method], train_set,
                                 test, logs[0]))  # fmt: skip
    best, at_start = learning_curve(
        np.array([best_weights, policy]), test, METRIC, no_relevant="skip"
    )
    return Comparison(
        points,
        float(best),
        float(at_start),
        results,
        {
            "n_clicks": n_clicks,
            "steps": steps,
            "seeds": list(seeds),
            "gamma": gamma,
            "relevant": relevant,
            "policy_fraction": policy_fraction,
            "max_weight": logs[0].max_weight,
            "mean_weight": logs[0].mean_weight,
            "dataset": train_set.fingerprint,
        },
    )


def _train_at_all_rates(
    train_set: RankingDataset,
    points: NDArray[np.int64],
    rates: Sequence[float],
    method: Method,
    log: ClickLog,
    seed: int,
) -> list[TrainingResult]:
    return train_many(
        train_set,
        log,
        learning_rates=rates,
        methods=[method.plan],
        seeds=[seed],
        unit=method.unit,
        steps=int(points[-1]),
        checkpoints=points.tolist(),
        workers=1,
    )


def _best_rate(runs: list[list[TrainingResult]], vali: RankingDataset) -> int:
    """Return which learning rate has the best mean over seeds and evaluation points.

    A learning rate at which a run diverged is not chosen, unless all did.
    """
    n_points = len(runs[0][0].history.steps)
    some = np.unique(np.linspace(0, n_points - 1, _TUNING_POINTS).astype(int))
    quality = []
    for lane in zip(*runs, strict=True):
        diverged = any(run.diverged_at for run in lane)
        coefs = np.concatenate([run.history.average_coef[some] for run in lane])
        quality.append(
            -np.inf if diverged else learning_curve(coefs, vali, METRIC, no_relevant="skip").mean()
        )
    return int(np.argmax(quality))


def _evaluate(
    method: Method,
    runs: list[TrainingResult],
    train_set: RankingDataset,
    test: RankingDataset,
    log: ClickLog,
) -> MethodResult:
    rate = runs[0].settings["learning_rate"]
    n_steps = min(_TIMED_STEPS, runs[0].n_steps)
    begin = time.perf_counter()
    train(
        train_set, log, learning_rate=rate, method=method.plan, unit=method.unit, steps=n_steps,
        rng=0,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    return MethodResult(
        method,
        np.array(
            [
                learning_curve(run.history.average_coef, test, METRIC, no_relevant="skip")
                for run in runs
            ]
        ),
        rate,
        n_steps / seconds,
        sum(run.diverged_at is not None for run in runs),
    )
