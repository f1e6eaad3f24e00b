"""Linear scorers, trained on click logs: tuning, and the runs that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.scoring import linear_scores
from countersample.evaluation import learning_curve
from countersample.metrics import get_metric
from countersample.plans import PLANS, Examples
from countersample.study.running.stages.comparing import compared, length_of, tuned, weighted
from countersample.theory import gradient_bounds
from countersample.training import train_many
from countersample.training.optimizers import OF_OPTIMIZERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countersample._arrays import Bools, Floats, Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench
    from countersample.training import TrainingResult


def tune(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Choose a learning rate (see `tuned`)."""
    return tuned(bench, job, progress, _train)


def run(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at the learning rate that was chosen (see `compared`)."""
    return compared(bench, job, progress, _train)


@dataclass(frozen=True)
class LinearRun:
    """A linear scorer that was trained: its averaged iterate is evaluated."""

    result: TrainingResult

    @property
    def steps(self) -> Ints:
        """The evaluation points."""
        return self.result.history.steps

    @property
    def diverged_at(self) -> int | None:
        """The step at which its weights exploded, if they did."""
        return self.result.diverged_at

    def curve(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the metric at each point."""
        coefs, sound = self._sound()
        curve = np.zeros(len(sound))
        if sound.any():
            metric, no_relevant = config["metric"], config["no_relevant"]
            curve[sound] = learning_curve(coefs[sound], dataset, metric, no_relevant=no_relevant)
        return curve

    def by_query(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the mean of the metric over the points by query, (n_queries,)."""
        coefs, sound = self._sound()
        metric = get_metric(config["metric"], no_relevant=config["no_relevant"])
        scores = linear_scores(coefs[sound].astype(np.float32), dataset.features)
        zeros = np.zeros(dataset.n_items, np.float32)
        counted = ~np.isnan(metric(dataset.labels, zeros, dataset.offsets))
        total = np.zeros(int(counted.sum()))
        for each in scores:
            total += metric(dataset.labels, each, dataset.offsets)[counted]
        mean: Floats = total / len(sound)
        return mean

    def _sound(self) -> tuple[Floats, Bools]:
        """Return the averaged iterate at each point, and whether it is finite."""
        coefs = self.result.history.average_coef
        sound: Bools = np.atleast_1d(np.isfinite(coefs).all(axis=1))
        return coefs, sound


def _train(
    bench: Workbench, job: Job, clicks: Job, rates: Sequence[float] | None, progress: Progress
) -> list[LinearRun]:
    config = job.config
    train_set, _, _ = bench.data_of(clicks)
    steps, points = length_of(job)
    log = weighted(bench.clicks(clicks), config["exposure"], config["trained_gamma"])
    runs = train_many(
        train_set,
        log,
        learning_rates=rates,
        methods=[config["plan"]],
        seeds=[clicks.config["seed"]],
        unit=config["unit"],
        optimizer=config["optimizer"],
        objective=config["objective"],
        batch_size=config["batch_size"],
        steps=steps,
        clip=config["clip"] or None,
        variance=config["variance"],
        checkpoints=points,
        **{name: config[name] for name in OF_OPTIMIZERS if name in config},
        **_arguments(config, train_set, log),
        workers=1,
        progress=progress,
    )
    return [LinearRun(run) for run in runs]


def _arguments(config: Mapping[str, Any], dataset: RankingDataset, log: ClickLog) -> dict[str, Any]:
    """Return what the plan needs: of each example, the longest gradient that it can have."""
    if "bounds" not in signature(PLANS[config["plan"]]).parameters:
        return {}
    examples = Examples.of(log.clip(config["clip"]) if config["clip"] else log, config["unit"])
    return {"bounds": gradient_bounds(dataset, examples, objective=config["objective"])}
