"""The work of each stage of a study, from labelled data to runs.

    data → references (w*, logging policy) → clicks → tuning → run

A stage is a function of the store, which has the results of other jobs, of the job with its
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
from countersample.study.settings import PAPER
from countersample.study.sources import PARTS, load_fold
from countersample.theory import gradient_bounds
from countersample.training import TrainingOptions, TrainingResult, train_many
from countersample.training.optimizers import OPTIMIZER_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from countersample._arrays import Bools, Floats, Ints
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.study.jobs import Job
    from countersample.study.store import Parts, Store
    from countersample.torch.networks import NetworkRun

_FLOAT_BITS = 32  # of a feature that is a float32 number, not a code
RATES_PER_PASS = 8  # learning rates that share a pass over the data
_TUNING_POINTS = 25  # evaluation points that choose a learning rate
_POLICIES = {"ranked": Ranked, "swapped": Swapped, "shuffled": Shuffled}
_PART_TITLES = {"train": "training", "vali": "validation", "test": "test"}


# -- labelled data -------------------------------------------------------------------------------


def prepare_data(_: Store, job: Job, __: Progress) -> Parts:
    """Return training, validation and test data, normalised by the training data, and compact."""
    config = job.config
    parts = dict(zip(PARTS, load_fold(config["source"]), strict=True))
    for name, part in parts.items():
        if not part.n_items or part.labels.max() <= 0:
            title = _PART_TITLES[name]
            raise DataError(f"the {title} data has 0 relevant items, expected at least one")
    normalizer, bits = Normalizer.fit(parts["train"], config["normalization"]), config["bits"]
    normalized = (normalizer(part) for part in parts.values())
    return tuple(part if bits == _FLOAT_BITS else part.compact(bits) for part in normalized)


def relevant_grade(dataset: RankingDataset, grade: float) -> float:
    """Return the smallest relevant grade: `grade`, or 1 if no label reaches it."""
    return grade if dataset.labels.max() >= grade else smallest_relevant(dataset)


def relevance(store: Store, job: Job, _: Progress) -> dict[str, Any]:
    """Return how many items of the training data are relevant, and whether they are too few."""
    train_set, _vali, _test = store.data(job.needs[0])
    shares = relevance_of(train_set, relevant_grade(train_set, job.config["relevant"]))
    where = job.title.removeprefix("relevant items of ")
    warnings = [f"{where}: {text}" for text in shares.warnings("--set relevant=")]
    return shares.to_dict() | {"sentence": shares.sentence(), "warnings": warnings}


def shape(store: Store, job: Job, _: Progress) -> dict[str, Any]:
    """Count queries, items and features of a fold: training, validation and test data together."""
    parts = store.data(job.needs[0])
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


def references(store: Store, job: Job, progress: Progress) -> dict[str, Any]:
    """Train w* and the logging policy."""
    parts = store.data(job.needs[0])
    train_set, vali, _ = parts
    steps = steps_of(train_set.n_queries)
    best = supervised(train_set, vali, steps=steps, seed=0, progress=progress)
    policy = logging_policy(train_set, fraction=job.config["policy_fraction"], seed=0)
    return {
        "best": best.tolist(),
        "policy": policy.tolist(),
        "fingerprints": {name: part.fingerprint for name, part in zip(PARTS, parts, strict=True)},
    }


def levels(store: Store, job: Job, _: Progress) -> dict[str, float]:
    """Evaluate w* and the logging policy on test data."""
    (reference,) = job.needs
    _train, _vali, test = store.data(reference.needs[0])
    weights = store.read(reference)
    coefs = np.array([weights["best"], weights["policy"]])
    config = job.config
    best, policy = learning_curve(coefs, test, config["metric"], no_relevant=config["no_relevant"])
    return {"best": float(best), "policy": float(policy)}


# -- click logs ----------------------------------------------------------------------------------


def simulate(store: Store, job: Job, _: Progress) -> ClickLog:
    """Simulate a click log on the rankings of the logging policy, or of two."""
    train_set, _vali, _test = store.data_of(job)
    config = job.config
    (reference,) = job.needs
    second = config["second_share"]
    weights = [np.array(store.read(reference)["policy"])]
    if second:
        fraction = reference.config["policy_fraction"]
        weights.append(logging_policy(train_set, fraction=fraction, seed=1))
    scores = linear_scores(np.array(weights), train_set.features)
    policies = [_POLICIES[config["policy"]](each) for each in scores]
    return simulate_clicks(
        train_set,
        dict(zip(("first", "second"), policies, strict=True)) if second else policies[0],
        config["clicks"],
        top=config["top"] or None,
        shares=[1 - second, second] if second else None,
        bias=PositionBias(config["gamma"], config["bias_offset"]),
        relevant=relevant_grade(train_set, config["relevant"]),
        noise=config["noise"],
        click_model=config["click_model"],
        rng=config["seed"],
    )


def ranker(store: Store, job: Job, progress: Progress) -> dict[str, Any]:
    """Train `CounterSampleRanker` with its defaults on each log, and evaluate it on test data.

    It needs no labels and no learning rate: held-out clicks choose the path and its end.
    """
    metric, no_relevant = job.config["metric"], job.config["no_relevant"]
    train_set, _, test = store.data_of(job.needs[0])
    values, steps, seconds = [], [], []
    for clicks in job.needs:
        log = store.clicks(clicks)
        start = time.perf_counter()
        model = CounterSampleRanker(random_state=clicks.config["seed"])
        model.fit_log(train_set, log, progress=progress.part(1 / len(job.needs)))
        seconds.append(time.perf_counter() - start)
        values.append(evaluate(model, test, metric, no_relevant=no_relevant)[metric])
        steps.append(model.n_steps_)
    return {"steps": max(steps), "ndcg": values, "seconds": seconds}


# -- tuning and runs -----------------------------------------------------------------------------


def tune(store: Store, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at every learning rate, and choose the one with the least regret on validation data.

    A learning rate at which a run diverged is not chosen, unless all did. Regret is the mean over
    the logs of the tuning.
    """
    config, rates = job.config, job.config["learning_rates"]
    _, vali, _ = store.data_of(job.needs[0])
    values: Floats = np.zeros((len(rates), 1))
    diverged = np.zeros(len(rates), bool)
    for clicks in job.needs:
        runs = _train(store, job, clicks, rates, progress.part(1 / len(job.needs)))
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


def run(store: Store, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at the learning rate of the tuning, if any, and evaluate on test data."""
    *tuning, clicks = job.needs
    rate = store.read(tuning[0])["learning_rate"] if tuning else None
    start = time.perf_counter()
    (result,) = _train(store, job, clicks, None if rate is None else [rate], progress)
    seconds = time.perf_counter() - start
    _, _, test = store.data_of(clicks)
    log = store.clicks(clicks)
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
    settings = {name: job.config[name] for name in ("epochs", "batch_size", "evaluate_every")}
    config = PAPER.with_settings(settings | {"clicks": job.needs[-1].config["clicks"]})
    points = config.points()
    n = min(_TUNING_POINTS, len(points)) if job.stage == "tuning" else len(points)
    return config.steps(), [points[(i + 1) * len(points) // n - 1] for i in range(n)]


def _train(
    store: Store, job: Job, clicks: Job, rates: Sequence[float] | None, progress: Progress
) -> list[Run]:
    """Train linear scorers or networks by a job on a click log, one per rate, or one without."""
    config, seed = job.config, clicks.config["seed"]
    dataset, _, _ = store.data_of(clicks)
    log = assumed_log(store.clicks(clicks), config["exposure"], config["trained_gamma"])
    steps, points = length_of(job)
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

    networks: list[Run] = []
    all_rates = list(rates or ())
    for k in range(0, len(all_rates), RATES_PER_PASS):
        few = all_rates[k : k + RATES_PER_PASS]
        few_networks = train_networks(
            dataset, log, learning_rates=few, hidden=config["hidden"], seed=seed,
            options=options, progress=progress.part(len(few) / len(all_rates)),
        )  # fmt: skip
        networks += map(Run, few_networks)
    return networks


def assumed_log(log: ClickLog, exposure: str, multiple: float) -> ClickLog:
    """Return the log with the propensities that the learner assumes.

    They belong to items or to positions alone, at γ' = multiple·γ: p' = p^multiple.
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

    result: TrainingResult | NetworkRun

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
        coefs, finite = _find_iterates(self.result)
        curve = np.zeros(len(finite))
        if finite.any():
            metric, no_relevant = config["metric"], config["no_relevant"]
            curve[finite] = learning_curve(coefs, dataset, metric, no_relevant=no_relevant)
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
            coefs, finite = _find_iterates(self.result)
            scores = linear_scores(coefs.astype(np.float32), dataset.features)
            yield from zip(np.flatnonzero(finite), scores, strict=True)
            return
        for k, scorer in enumerate(self.result.scorers):
            if scorer is not None:
                yield k, scorer.predict(dataset.features)


def _find_iterates(result: TrainingResult) -> tuple[Floats, Bools]:
    """Return the averaged iterates that are finite, and which points have one."""
    coefs = result.history.average_coef
    finite = np.atleast_1d(np.isfinite(coefs).all(axis=1))
    return coefs[finite], finite
