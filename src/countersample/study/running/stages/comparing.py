"""A method at its best learning rate: tuned, run and evaluated, whatever it trains."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from countersample.clicks import ClickLog
from countersample.errors import DataError
from countersample.study.design.length import evaluation_points, n_steps
from countersample.study.running.rates import choose
from countersample.study.running.versions import versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench

    # Trains by a job on the click log of another at learning rates, or at none.
    Train = Callable[[Workbench, Job, Job, Sequence[float] | None, Progress], Sequence["Trained"]]

_TUNING_POINTS = 25  # evaluation points that choose a learning rate


class Trained(Protocol):
    """A run that is over; what exploded counts 0 from there on."""

    @property
    def steps(self) -> Ints:
        """The evaluation points."""

    @property
    def diverged_at(self) -> int | None:
        """The step at which its weights exploded, if they did."""

    def curve(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the metric at each point."""

    def by_query(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the mean of the metric over the points by query, (n_queries,)."""


def tuned(bench: Workbench, job: Job, progress: Progress, train: Train) -> dict[str, Any]:
    """Train at every learning rate; the best is that of the least regret on validation data.

    A learning rate at which a run diverged is not chosen, unless all did. Of several logs the mean
    counts.
    """
    config, rates = job.config, job.config["learning_rates"]
    _, vali, _ = bench.data_of(job.needs[0])
    values: Floats = np.zeros((len(rates), 1))
    diverged = np.zeros(len(rates), bool)
    for clicks in job.needs:
        runs = train(bench, job, clicks, rates, progress.part(1 / len(job.needs)))
        values = values + np.array([run.by_query(vali, config) for run in runs])
        diverged |= np.array([run.diverged_at is not None for run in runs])
    values /= len(job.needs)
    usable = np.ones(len(rates), bool) if diverged.all() else ~diverged
    chosen = choose(values, usable)
    return {
        "learning_rate": rates[chosen.rate],
        "alike": [rates[chosen.first], rates[chosen.last]],
        "learning_rates": rates,
        "ndcg": values.mean(axis=1).tolist(),
        "diverged": diverged.tolist(),
    }


def compared(bench: Workbench, job: Job, progress: Progress, train: Train) -> dict[str, Any]:
    """Train at the learning rate that was chosen, if any, and evaluate on test data."""
    *tuning, clicks = job.needs
    rate = bench.store.read(tuning[0])["learning_rate"] if tuning else None
    begin = time.perf_counter()
    (done,) = train(bench, job, clicks, None if rate is None else [rate], progress)
    seconds = time.perf_counter() - begin
    _, _, test = bench.data_of(clicks)
    log = bench.clicks(clicks)
    return {
        "learning_rate": rate,
        "step": done.steps.tolist(),
        "ndcg": done.curve(test, job.config).tolist(),
        "diverged_at": done.diverged_at,
        "seconds": seconds,
        "max_weight": log.max_weight,
        "mean_weight": log.mean_weight,
        "versions": versions(),
    }


def length_of(job: Job) -> tuple[int, list[int]]:
    """Return the steps of a run of a job, and those after which it is evaluated.

    A tuning is evaluated at fewer points, evenly spread, the last among them.
    """
    config, clicks = job.config, job.needs[-1].config["clicks"]
    batch_size = config["batch_size"]
    steps = n_steps(epochs=config["epochs"], clicks=clicks, batch_size=batch_size)
    points = evaluation_points(
        steps=steps, evaluate_every=config["evaluate_every"], batch_size=batch_size
    )
    n = min(_TUNING_POINTS, len(points)) if job.stage == "tuning" else len(points)
    return steps, [points[(i + 1) * len(points) // n - 1] for i in range(n)]


def weighted(log: ClickLog, exposure: str, multiple: float) -> ClickLog:
    """Return the log with the propensities that the learner believes in.

    Those of the items, or of the positions alone; and of γ' = multiple·γ: p' = p^multiple.
    """
    propensity = log.propensity
    if exposure == "position-only" and log.examination is not None:
        propensity = log.examination
    elif multiple != 1 and log.examination is not None:
        raise DataError(
            f"trained_gamma is {multiple:g} where two policies show the items, expected 1: what an "
            "item's propensity would be with another γ is not in the log"
        )
    return ClickLog(log.query, log.item, propensity**multiple, fingerprint=log.fingerprint)
