"""What each job of a study does: from labelled data to runs."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._progress import Progress
from countersample.clicks import ClickLog, PositionBias, diagnose, simulate_clicks
from countersample.clicks.relevance import relevance_of, smallest_relevant
from countersample.data.normalize import Normalizer
from countersample.data.scoring import linear_scores
from countersample.errors import CounterSampleError, DataError
from countersample.evaluation import evaluate, learning_curve
from countersample.rankers import CounterSampleRanker
from countersample.study.design.config import PAPER
from countersample.study.design.sources import PARTS, Fold
from countersample.study.running.references import METRIC, logging_policy, supervised
from countersample.training import train_many

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from countersample._arrays import Floats
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.store import Store
    from countersample.training import TrainingResult

    Parts = tuple[RankingDataset, ...]

NUMBERS = 32  # bits of a float32
_NAMES = {"train": "training", "vali": "validation", "test": "test"}
_TUNING_POINTS = 25  # evaluation points that choose a learning rate
_KEPT_LOGS = 4


class Stopped(CounterSampleError):  # noqa: N818 (it is no error)
    """Work that was asked to stop."""


class Workbench:
    """Does the jobs of a study, and keeps what several of them read.

    `data` and `clicks` return the labelled data and the click log that a job has made. When `stop`
    is set, jobs at work end with `Stopped`.
    """

    def __init__(self, store: Store, stop: threading.Event) -> None:
        self.store = store
        self.stop = stop
        self.data = lru_cache(None)(store.data)  # mapped files: the system frees their memory
        self.clicks = lru_cache(_KEPT_LOGS)(store.clicks)

    def do(self, job: Job, progress: Progress) -> None:
        """Do a job, whose needs are done, and keep its result."""

        def show(_what: str, share: float) -> None:
            if self.stop.is_set():
                raise Stopped("stopped")
            progress.update(share)

        watched = Progress(show)
        watched.update(0.0)
        self.store.write(job, job.work(self, job, watched))

    def data_of(self, clicks: Job) -> Parts:
        """Return the labelled data that a click log was simulated on."""
        (reference,) = clicks.needs
        return self.data(reference.needs[0])


def prepare_data(_: Workbench, job: Job, __: Progress) -> Parts:
    """Return training, validation and test data, normalised by the training data, and compact."""
    parts = dict(zip(PARTS, Fold("", "", job.config["source"]).load(), strict=True))
    for name, part in parts.items():
        if not part.n_items or part.labels.max() <= 0:
            raise DataError(f"the {_NAMES[name]} data has no relevant item: a study needs some")
    normalizer = Normalizer.fit(parts["train"], job.config["normalization"])
    bits = job.config["bits"]
    normalized = (normalizer(part) for part in parts.values())
    return tuple(part if bits == NUMBERS else part.compact(bits) for part in normalized)


def references(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train w* and the logging policy."""
    parts = bench.data(job.needs[0])
    train_set, vali, test = parts
    # Enough to converge: by query, many passes over the queries.
    steps = int(np.clip(20 * train_set.n_queries, 20_000, 300_000))
    best = supervised(train_set, vali, steps=steps, seed=0, progress=progress)
    policy = logging_policy(train_set, fraction=job.config["policy_fraction"], seed=0)
    ndcg = learning_curve(
        np.array([best, policy]), test, METRIC, no_relevant=job.config["no_relevant"]
    )
    return {
        "best": best.tolist(),
        "policy": policy.tolist(),
        "best_ndcg": float(ndcg[0]),
        "policy_ndcg": float(ndcg[1]),
        "fingerprints": {name: part.fingerprint for name, part in zip(PARTS, parts, strict=True)},
    }


def simulate(bench: Workbench, job: Job, _: Progress) -> ClickLog:
    """Simulate a click log on the rankings of the logging policy, or of two."""
    train_set, _vali, _test = bench.data_of(job)
    config = job.config
    (reference,) = job.needs
    weights = [np.array(bench.store.read(reference)["policy"])]
    shares = [1 - config["second_share"], config["second_share"]]
    if config["second_share"]:
        fraction = reference.config["policy_fraction"]
        weights.append(logging_policy(train_set, fraction=fraction, seed=1))
    scores = list(linear_scores(np.array(weights), train_set.features))
    return simulate_clicks(
        train_set,
        scores[0] if len(scores) == 1 else dict(zip(("first", "second"), scores, strict=True)),
        config["clicks"],
        top=config["top"] or None,
        shares=shares if len(scores) > 1 else None,
        bias=PositionBias(config["gamma"], config["bias_offset"]),
        relevant=relevant_grade(train_set, config["relevant"]),
        noise=config["noise"],
        rng=config["seed"],
    )


def relevant_grade(dataset: RankingDataset, asked: float) -> float:
    """Return the smallest relevant grade: the one asked for, or 1 where no grade reaches it."""
    return asked if dataset.labels.max() >= asked else smallest_relevant(dataset)


def relevance(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Return how many items of the training data are relevant, and whether they are too few."""
    train_set, _vali, _test = bench.data(job.needs[0])
    found = relevance_of(train_set, relevant_grade(train_set, job.config["relevant"]))
    where = job.title.removeprefix("relevant items of ")
    warnings = [f"{where}: {text}" for text in found.warnings("--set relevant=")]
    return found.to_dict() | {"sentence": found.sentence(), "warnings": warnings}


def diagnosis(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Return the statistics of the weights of a click log."""
    return diagnose(bench.clicks(job.needs[0])).to_dict()


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
    }


def ranker(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train what users get, `CounterSampleRanker` with nothing set, and evaluate on test data.

    It looks at no label and has no learning rate: held-out clicks choose how far to follow which
    path, for each log anew.
    """
    train_set, _, test = bench.data_of(job.needs[0])
    values, steps = [], []
    for clicks in job.needs:
        fitted = CounterSampleRanker(random_state=clicks.config["seed"])
        part = progress.part(1 / len(job.needs))
        fitted.fit_log(train_set, bench.clicks(clicks), progress=part)
        found = evaluate(fitted, test, METRIC, no_relevant=job.config["no_relevant"])
        values.append(found[METRIC])
        steps.append(fitted.n_steps_)
    return {"steps": max(steps), "ndcg": values}


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
    settings = {name: job.config[name] for name in ("batch_size", "epochs", "evaluate_every")}
    config = PAPER.with_settings(settings | {"clicks": job.needs[-1].config["clicks"]})
    points = config.points()
    n = min(_TUNING_POINTS, len(points)) if job.stage == "tuning" else len(points)
    return config.steps(), [points[(i + 1) * len(points) // n - 1] for i in range(n)]


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
