"""Training on click logs: tuning, and the runs that are compared."""

from __future__ import annotations

import time
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import ClickLog
from countersample.data.scoring import linear_scores
from countersample.errors import DataError
from countersample.evaluation import learning_curve
from countersample.metrics import get_metric
from countersample.plans import PLANS, Examples
from countersample.study.design.length import evaluation_points, n_steps
from countersample.study.running.rates import choose
from countersample.study.running.versions import versions
from countersample.theory import gradient_bounds
from countersample.training import train_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countersample._arrays import Bools, Floats
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench
    from countersample.training import TrainingResult

OF_OPTIMIZERS = ("momentum", "beta1", "beta2", "epsilon", "first_distance")
_TUNING_POINTS = 25  # evaluation points that choose a learning rate


def tune(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at every learning rate; the best is that of the least regret on validation data.

    A learning rate at which a run diverged is not chosen, unless all did. Of several logs the mean
    counts.
    """
    config, rates = job.config, job.config["learning_rates"]
    _, vali, _ = bench.data_of(job.needs[0])
    values: Floats = np.zeros((len(rates), 1))
    diverged = np.zeros(len(rates), bool)
    for clicks in job.needs:
        part = progress.part(1 / len(job.needs))
        runs = _train(bench, job, clicks, rates, part)
        values = values + np.array([_by_query(run, vali, config) for run in runs])
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


def run(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at the learning rate that was chosen, if any, and evaluate on test data."""
    *tuning, clicks = job.needs
    rate = bench.store.read(tuning[0])["learning_rate"] if tuning else None
    begin = time.perf_counter()
    (done,) = _train(bench, job, clicks, None if rate is None else [rate], progress)
    seconds = time.perf_counter() - begin
    _, _, test = bench.data_of(clicks)
    log = bench.clicks(clicks)
    return {
        "learning_rate": rate,
        "step": done.history.steps.tolist(),
        "ndcg": _curve(done, test, job.config).tolist(),
        "diverged_at": done.diverged_at,
        "seconds": seconds,
        "max_weight": log.max_weight,
        "mean_weight": log.mean_weight,
        "versions": versions(),
    }


def _train(
    bench: Workbench, job: Job, clicks: Job, rates: Sequence[float] | None, progress: Progress
) -> list[TrainingResult]:
    config = job.config
    train_set, _, _ = bench.data_of(clicks)
    steps, points = length_of(job)
    log = _weighted(bench.clicks(clicks), config["exposure"], config["trained_gamma"])
    return train_many(
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


def _weighted(log: ClickLog, exposure: str, multiple: float) -> ClickLog:
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


def _arguments(config: Mapping[str, Any], dataset: RankingDataset, log: ClickLog) -> dict[str, Any]:
    """Return what the plan needs: of each example, the longest gradient that it can have."""
    if "bounds" not in signature(PLANS[config["plan"]]).parameters:
        return {}
    examples = Examples.of(log.clip(config["clip"]) if config["clip"] else log, config["unit"])
    return {"bounds": gradient_bounds(dataset, examples, objective=config["objective"])}


def _curve(run: TrainingResult, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
    """Return the metric of the averaged iterate at each point; 0 from where weights exploded."""
    coefs, sound = _sound(run)
    curve = np.zeros(len(sound))
    if sound.any():
        metric, no_relevant = config["metric"], config["no_relevant"]
        curve[sound] = learning_curve(coefs[sound], dataset, metric, no_relevant=no_relevant)
    return curve


def _by_query(run: TrainingResult, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
    """Return the mean of the metric over the points by query, (n_queries,): see `_curve`."""
    coefs, sound = _sound(run)
    metric = get_metric(config["metric"], no_relevant=config["no_relevant"])
    scores = linear_scores(coefs[sound].astype(np.float32), dataset.features)
    zeros = np.zeros(dataset.n_items, np.float32)
    counted = ~np.isnan(metric(dataset.labels, zeros, dataset.offsets))
    total = np.zeros(int(counted.sum()))
    for each in scores:
        total += metric(dataset.labels, each, dataset.offsets)[counted]
    mean: Floats = total / len(sound)
    return mean


def _sound(run: TrainingResult) -> tuple[Floats, Bools]:
    """Return the averaged iterate at each point, and whether it is finite."""
    coefs = run.history.average_coef
    sound: Bools = np.atleast_1d(np.isfinite(coefs).all(axis=1))
    return coefs, sound
