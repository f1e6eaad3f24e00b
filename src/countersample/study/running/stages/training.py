"""Training on click logs: tuning, and the runs that are compared."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import ClickLog
from countersample.errors import DataError
from countersample.evaluation import learning_curve
from countersample.study.design.length import evaluation_points, n_steps
from countersample.study.running.references import METRIC
from countersample.study.running.versions import versions
from countersample.training import train_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench
    from countersample.training import TrainingResult

_TUNING_POINTS = 25  # evaluation points that choose a learning rate


def tune(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at every learning rate; the best is that of the least regret on validation data.

    A learning rate at which a run diverged is not chosen, unless all did. An optimizer that needs
    none has nothing to choose.
    """
    config, rates = job.config, job.config["learning_rates"]
    if not rates:
        return {"learning_rate": None, "learning_rates": [], "ndcg": [], "diverged": []}
    _, vali, _ = bench.data_of(job.needs[0])
    quality = []
    diverged = np.zeros(len(rates), bool)
    for clicks in job.needs:
        part = progress.part(1 / len(job.needs))
        runs = _train(bench, job, clicks, rates, part)
        curves = np.array([_curve(run, vali, config["no_relevant"]) for run in runs])
        quality.append(curves.mean(axis=1))
        diverged |= np.array([run.diverged_at is not None for run in runs])
    mean = np.mean(quality, axis=0)
    usable = mean if diverged.all() else np.where(diverged, -np.inf, mean)
    return {
        "learning_rate": rates[int(usable.argmax())],
        "learning_rates": rates,
        "ndcg": mean.tolist(),
        "diverged": diverged.tolist(),
    }


def run(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at the learning rate that was chosen, if any, and evaluate on test data."""
    tuning, clicks = job.needs
    rate = bench.store.read(tuning)["learning_rate"]
    begin = time.perf_counter()
    (done,) = _train(bench, job, clicks, None if rate is None else [rate], progress)
    seconds = time.perf_counter() - begin
    _, _, test = bench.data_of(clicks)
    log = bench.clicks(clicks)
    return {
        "learning_rate": rate,
        "step": done.history.steps.tolist(),
        "ndcg": _curve(done, test, job.config["no_relevant"]).tolist(),
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
    return train_many(
        train_set,
        _weighted(bench.clicks(clicks), config["exposure"], config["trained_gamma"]),
        learning_rates=rates,
        methods=[config["plan"]],
        seeds=[clicks.config["seed"]],
        unit=config["unit"],
        optimizer=config["optimizer"],
        objective=config["objective"],
        batch_size=config["batch_size"],
        steps=steps,
        clip=config["clip"] or None,
        checkpoints=points,
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


def _curve(run: TrainingResult, dataset: RankingDataset, no_relevant: str) -> Floats:
    """nDCG@10 of the averaged iterate at each point; 0 from where the weights exploded."""
    coefs = run.history.average_coef
    sound = np.isfinite(coefs).all(axis=1)
    curve = np.zeros(len(coefs))
    if sound.any():
        curve[sound] = learning_curve(coefs[sound], dataset, METRIC, no_relevant=no_relevant)
    return curve
