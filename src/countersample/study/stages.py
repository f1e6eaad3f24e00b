"""The work of each stage of a study, from labelled data to runs.

    data → references (w*, logging policy) → clicks → tuning → run

A stage is a function of the workbench, which reads the results of other jobs, of the job with its
configuration, and of a progress. It returns labelled data, a click log, or plain values.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._environment import need
from countersample._version import __version__
from countersample.clicks import (
    ClickLog,
    PositionBias,
    Ranked,
    Shuffled,
    Swapped,
    diagnose,
    simulate_clicks,
)
from countersample.clicks.relevance import relevance_of, smallest_relevant
from countersample.data.compact import linear_scores
from countersample.data.preprocessing import Normalizer
from countersample.errors import DataError
from countersample.evaluation import evaluate, learning_curve
from countersample.metrics import get_metric
from countersample.plans import PLANS, Examples
from countersample.rankers import CounterSampleRanker
from countersample.study.references import choose, logging_policy, steps_of, supervised
from countersample.study.settings import evaluation_points, n_steps
from countersample.study.sources import PARTS, Fold
from countersample.theory import gradient_bounds
from countersample.training import TrainingOptions, TrainingResult, train_many
from countersample.training.optimizers import OPTIMIZER_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from countersample._arrays import Bools, Floats, Ints
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.study.jobs import Job
    from countersample.study.runner import Parts, Workbench
    from countersample.torch.networks import NetworkRun as NetworkResult

FLOAT_BITS = 32  # of a feature that is a float32 number, not a code
RATES_PER_PASS = 8  # learning rates that share a pass over the data
_TUNING_POINTS = 25  # evaluation points that choose a learning rate
_POLICIES = {"ranked": Ranked, "swapped": Swapped, "shuffled": Shuffled}
_PART_TITLES = {"train": "training", "vali": "validation", "test": "test"}


# -- labelled data -------------------------------------------------------------------------------


def prepare_data(_: Workbench, job: Job, __: Progress) -> Parts:
    """Return training, validation and test data, normalised."""
    return load_parts(job.config)


def load_parts(config: Mapping[str, Any]) -> Parts:
    """Return the three parts, normalised by the training data, and compact."""
    parts = dict(zip(PARTS, Fold("", "", config["source"]).load(), strict=True))
    for name, part in parts.items():
        if not part.n_items or part.labels.max() <= 0:
            title = _PART_TITLES[name]
            raise DataError(f"the {title} data has 0 relevant items, expected at least one")
    normalizer = Normalizer.fit(parts["train"], config["normalization"])
    bits = config["bits"]
    normalized = (normalizer(part) for part in parts.values())
    return tuple(part if bits == FLOAT_BITS else part.compact(bits) for part in normalized)


def relevant_grade(dataset: RankingDataset, grade: float) -> float:
    """Return the smallest relevant grade: `grade`, or 1 if no label reaches it."""
    return grade if dataset.labels.max() >= grade else smallest_relevant(dataset)


def relevance(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Return how many items of the training data are relevant, and whether they are too few."""
    train_set, _vali, _test = bench.data(job.needs[0])
    shares = relevance_of(train_set, relevant_grade(train_set, job.config["relevant"]))
    where = job.title.removeprefix("relevant items of ")
    warnings = [f"{where}: {text}" for text in shares.warnings("--set relevant=")]
    return shares.to_dict() | {"sentence": shares.sentence(), "warnings": warnings}


def shape(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Count queries, items and features of a fold: training, validation and test data together."""
    parts = bench.data(job.needs[0])
    sizes = np.concatenate([part.query_sizes for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    return {
        "queries": len(sizes),
        "items": len(labels),
        "longest": int(sizes.max()),
        "features": parts[0].n_features,
        "irrelevant": int((labels == 0).sum()),
    }


# -- w* and the logging policy -------------------------------------------------------------------


def references(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train w* and the logging policy."""
    parts = bench.data(job.needs[0])
    train_set, vali, _ = parts
    steps = steps_of(train_set.n_queries)
    best = supervised(train_set, vali, steps=steps, seed=0, progress=progress)
    policy = logging_policy(train_set, fraction=job.config["policy_fraction"], seed=0)
    return {
        "best": best.tolist(),
        "policy": policy.tolist(),
        "fingerprints": {name: part.fingerprint for name, part in zip(PARTS, parts, strict=True)},
    }


def levels(bench: Workbench, job: Job, _: Progress) -> dict[str, float]:
    """Evaluate w* and the logging policy on test data."""
    (reference,) = job.needs
    _train, _vali, test = bench.data(reference.needs[0])
    weights = bench.store.read(reference)
    coefs = np.array([weights["best"], weights["policy"]])
    config = job.config
    best, policy = learning_curve(coefs, test, config["metric"], no_relevant=config["no_relevant"])
    return {"best": float(best), "policy": float(policy)}


# -- click logs ----------------------------------------------------------------------------------


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
    make_policy = _POLICIES[config["policy"]]
    scores = linear_scores(np.array(weights), train_set.features)
    policies = [make_policy(each) for each in scores]
    is_one = len(policies) == 1
    return simulate_clicks(
        train_set,
        policies[0] if is_one else dict(zip(("first", "second"), policies, strict=True)),
        config["clicks"],
        top=config["top"] or None,
        shares=None if is_one else shares,
        bias=PositionBias(config["gamma"], config["bias_offset"]),
        relevant=relevant_grade(train_set, config["relevant"]),
        noise=config["noise"],
        click_model=config["click_model"],
        rng=config["seed"],
    )


def diagnosis(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Return the statistics of the weights of a click log."""
    return diagnose(bench.clicks(job.needs[0])).to_dict()


def ranker(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train `CounterSampleRanker` with its defaults on each log, and evaluate it on test data.

    It needs no labels and no learning rate: held-out clicks choose the path and its end.
    """
    metric, no_relevant = job.config["metric"], job.config["no_relevant"]
    train_set, _, test = bench.data_of(job.needs[0])
    values, steps, seconds = [], [], []
    for clicks in job.needs:
        log = bench.clicks(clicks)
        begin = time.perf_counter()
        model = CounterSampleRanker(random_state=clicks.config["seed"])
        model.fit_log(train_set, log, progress=progress.part(1 / len(job.needs)))
        seconds.append(time.perf_counter() - begin)
        values.append(evaluate(model, test, metric, no_relevant=no_relevant)[metric])
        steps.append(model.n_steps_)
    return {"steps": max(steps), "ndcg": values, "seconds": seconds}


# -- tuning and runs -----------------------------------------------------------------------------


def tune(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at every learning rate, and choose the one with the least regret on validation data.

    A learning rate at which a run diverged is not chosen, unless all did. Regret is the mean over
    the logs of the tuning.
    """
    config, rates = job.config, job.config["learning_rates"]
    _, vali, _ = bench.data_of(job.needs[0])
    values: Floats = np.zeros((len(rates), 1))
    diverged = np.zeros(len(rates), bool)
    for clicks in job.needs:
        runs = _train(bench, job, clicks, rates, progress.part(1 / len(job.needs)))
        values = values + np.array([run.by_query(vali, config) for run in runs])
        diverged |= np.array([run.diverged_at is not None for run in runs])
    values /= len(job.needs)
    usable = np.ones(len(rates), bool) if diverged.all() else ~diverged
    choice = choose(values, usable)
    return {
        "learning_rate": rates[choice.rate],
        "alike": [rates[choice.first], rates[choice.last]],
        "learning_rates": rates,
        "ndcg": values.mean(axis=1).tolist(),
        "diverged": diverged.tolist(),
    }


def run(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at the learning rate of the tuning, if any, and evaluate on test data."""
    *tuning, clicks = job.needs
    rate = bench.store.read(tuning[0])["learning_rate"] if tuning else None
    begin = time.perf_counter()
    (result,) = _train(bench, job, clicks, None if rate is None else [rate], progress)
    seconds = time.perf_counter() - begin
    _, _, test = bench.data_of(clicks)
    log = bench.clicks(clicks)
    libraries = dict(versions())
    if is_network(job.config):
        libraries["torch"] = str(need("torch").__version__)
    return {
        "learning_rate": rate,
        "step": result.steps.tolist(),
        "ndcg": result.curve(test, job.config).tolist(),
        "diverged_at": result.diverged_at,
        "seconds": seconds,
        "max_weight": log.max_weight,
        "mean_weight": log.mean_weight,
        "versions": libraries,
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of the libraries that compute."""
    return {
        "countersample": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "scipy")},
    }


def is_network(config: Mapping[str, Any]) -> bool:
    """Whether a job trains networks; jobs of linear scorers have no such setting."""
    return config.get("scorer") == "network"


def length_of(job: Job) -> tuple[int, list[int]]:
    """Return the number of steps of a run of a job, and the steps after which it is evaluated.

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


def _train(
    bench: Workbench, job: Job, clicks: Job, rates: Sequence[float] | None, progress: Progress
) -> list[Run]:
    """Train by a job on the click log of another, once per learning rate, or once without any."""
    config = job.config
    train_set, _, _ = bench.data_of(clicks)
    log = assumed_log(bench.clicks(clicks), config["exposure"], config["trained_gamma"])
    seed: int = clicks.config["seed"]
    return train_runs(config, train_set, log, rates, seed, length_of(job), progress)


def train_runs(
    config: Mapping[str, Any],
    dataset: RankingDataset,
    log: ClickLog,
    rates: Sequence[float] | None,
    seed: int,
    length: tuple[int, list[int]],
    progress: Progress,
) -> list[Run]:
    """Train linear scorers or networks, one per learning rate, or one without any.

    `length` is the number of steps, and the steps after which a run is evaluated.
    """
    steps, points = length
    options = TrainingOptions(
        method=config["plan"], unit=config["unit"], optimizer=config["optimizer"],
        objective=config["objective"], batch_size=config["batch_size"], steps=steps,
        clip=config["clip"] or None, variance=config["variance"], checkpoints=points,
        **{name: config[name] for name in OPTIMIZER_SETTINGS if name in config},
        **_plan_arguments(config, dataset, log),
    )  # fmt: skip
    if not is_network(config):
        runs = train_many(
            dataset, log, learning_rates=rates, seeds=[seed], workers=1, progress=progress,
            options=options,
        )  # fmt: skip
        return [Run(run) for run in runs]
    need("torch")
    from countersample.torch.networks import train_networks  # noqa: PLC0415 (torch)

    networks: list[NetworkResult] = []
    all_rates = list(rates or ())
    for k in range(0, len(all_rates), RATES_PER_PASS):
        few = all_rates[k : k + RATES_PER_PASS]
        networks += train_networks(
            dataset, log, learning_rates=few, hidden=config["hidden"], seed=seed,
            options=options, progress=progress.part(len(few) / len(all_rates)),
        )  # fmt: skip
    return [Run(run) for run in networks]


def assumed_log(log: ClickLog, exposure: str, multiple: float) -> ClickLog:
    """Return the log with the propensities that the learner assumes.

    They are those of the items or of the positions alone, at γ' = multiple·γ: p' = p^multiple.
    """
    propensity = log.propensity
    if exposure == "position-only" and log.examination is not None:
        propensity = log.examination
    elif multiple != 1 and log.examination is not None:
        raise DataError(
            f"trained_gamma is {multiple:g} and two policies show the items, expected 1: the log "
            "does not have an item's propensity at another γ"
        )
    return ClickLog(log.query, log.item, propensity**multiple, fingerprint=log.fingerprint)


def _plan_arguments(
    config: Mapping[str, Any], dataset: RankingDataset, log: ClickLog
) -> dict[str, Any]:
    """Return the longest gradient that each example can have, if the plan needs it."""
    if "bounds" not in signature(PLANS[config["plan"]]).parameters:
        return {}
    examples = Examples.of(log.clip(config["clip"]) if config["clip"] else log, config["unit"])
    return {"bounds": gradient_bounds(dataset, examples, objective=config["objective"])}


@dataclass(frozen=True)
class Run:
    """A run at its evaluation points; the metric is 0 after its weights exploded.

    A linear scorer is evaluated at its averaged iterate, as in the theorems, a network at its last
    one: a network is not convex in its weights, and the mean of two good ones need not be good.
    """

    result: TrainingResult | NetworkResult

    @property
    def steps(self) -> Ints:
        """The evaluation points."""
        if isinstance(self.result, TrainingResult):
            return self.result.history.steps
        return self.result.steps

    @property
    def diverged_at(self) -> int | None:
        """The step at which its weights exploded, if they did."""
        return self.result.diverged_at

    def curve(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the metric at each point."""
        if not isinstance(self.result, TrainingResult):
            means: Floats = self._values(dataset, config).mean(axis=1)
            return means
        coefs, finite = self._iterates(self.result)
        curve = np.zeros(len(finite))
        if finite.any():
            metric, no_relevant = config["metric"], config["no_relevant"]
            curve[finite] = learning_curve(coefs[finite], dataset, metric, no_relevant=no_relevant)
        return curve

    def by_query(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the mean of the metric over the points by query, (n_queries,)."""
        means: Floats = self._values(dataset, config).mean(axis=0)
        return means

    def _values(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the metric at each point of each query that counts, (n_points, n_queries)."""
        metric = get_metric(config["metric"], no_relevant=config["no_relevant"])
        zeros = np.zeros(dataset.n_items, np.float32)
        counts = ~np.isnan(metric(dataset.labels, zeros, dataset.offsets))
        values = np.zeros((len(self.steps), int(counts.sum())))
        for k, scores in self._scores(dataset):
            values[k] = metric(dataset.labels, scores, dataset.offsets)[counts]
        return values

    def _scores(self, dataset: RankingDataset) -> Iterator[tuple[int, Floats]]:
        """Yield the index of each point before the weights exploded, and the scores of items."""
        if isinstance(self.result, TrainingResult):
            coefs, finite = self._iterates(self.result)
            scores = linear_scores(coefs[finite].astype(np.float32), dataset.features)
            yield from zip(np.flatnonzero(finite), scores, strict=True)
            return
        for k, scorer in enumerate(self.result.scorers):
            if scorer is not None:
                yield k, scorer.predict(dataset.features)

    @staticmethod
    def _iterates(result: TrainingResult) -> tuple[Floats, Bools]:
        """Return the averaged iterate at each point, and whether it is finite."""
        coefs = result.history.average_coef
        return coefs, np.atleast_1d(np.isfinite(coefs).all(axis=1))
