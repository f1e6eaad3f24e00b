"""Estimate how long a study takes, by timing each kind of work on its data for a moment.

A training of n steps on a log of c clicks takes c·a + n·b seconds, and e seconds per evaluation
point. Two short trainings, of one step and of some, give a and b.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from countersample._progress import Progress
from countersample.clicks import diagnose, simulate_clicks
from countersample.clicks.relevance import ignore_few_relevant
from countersample.data.synthetic import SHAPES
from countersample.evaluation import learning_curve
from countersample.study.references import FIRST, METRIC, WAYS, steps_of
from countersample.study.stages import RATES_PER_PASS, is_network, length_of, load_parts, train_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from countersample.clicks import ClickLog
    from countersample.study.jobs import Job
    from countersample.study.store import Store

_DRAWS = 4000  # per measurement
_NETWORK_DRAWS = 1000
_CLICKS = 20_000
_ROUNDS = 3
_SAMPLED_QUERIES = 2000  # of a synthetic set that does not exist yet; more than fit in a CPU cache
_SUPERVISED_ROUNDS = 1.5  # of full supervision: some learning rates need more than the first grid
_PLAIN = {
    "unit": "click", "plan": "ips", "optimizer": "sgd", "objective": "rank", "batch_size": 1,
    "clip": 0.0, "variance": 0.0,
}  # fmt: skip
# The settings of a training that change how long a step takes.
_COSTS = ("unit", "plan", "optimizer", "objective", "batch_size", "variance", "scorer", "hidden")


class Estimate(NamedTuple):
    """How long jobs will take."""

    seconds: float  # by the clock, with this number of workers
    by_job: dict[str, float]  # seconds of one worker, by the key of the job


@ignore_few_relevant()
def estimate(jobs: Collection[Job], store: Store, *, workers: int) -> Estimate:
    """Return about how long jobs will take, measured with as many threads as will be at work."""
    speeds: dict[str, Speed] = {}
    by_job: dict[str, float] = {}
    for job in jobs:
        data = job
        while data.needs:
            data = data.needs[-1]
        if data.stage != "data":
            continue
        if data.key not in speeds:
            speeds[data.key] = Speed(data, store, workers)
        by_job[job.key] = speeds[data.key].seconds(job)
    longest = max(by_job.values(), default=0.0)
    return Estimate(max(sum(by_job.values()) / workers, longest), by_job)


class Speed:
    """Seconds of each kind of job on a dataset, on one of several busy cores."""

    def __init__(self, data: Job, store: Store, workers: int) -> None:
        self._workers = workers
        self._scale = 1.0  # how many times as many queries the study has
        self._data_seconds = 0.0
        if store.has(data):
            self._parts = store.data(data)
        else:
            source = data.config["source"]
            if source.get("shape") in SHAPES and source["queries"] > _SAMPLED_QUERIES:
                self._scale = source["queries"] / _SAMPLED_QUERIES
                source = source | {"queries": _SAMPLED_QUERIES}
            begin = time.perf_counter()
            self._parts = load_parts({**data.config, "source": source})
            self._data_seconds = self._scale * (time.perf_counter() - begin)
        self._training = cache(self._measure_training)
        self._evaluation = cache(self._measure_evaluation)

    def seconds(self, job: Job) -> float:
        """Return the seconds of a job."""
        if job.stage == "data":
            return self._data_seconds
        if job.stage == "references":
            steps = steps_of(round(self._scale * self._parts[0].n_queries))
            _, step = self._measure(_PLAIN | {"unit": "query"}, len(FIRST))
            return len(WAYS) * _SUPERVISED_ROUNDS * steps * step
        if job.stage == "clicks":
            return float(job.config["clicks"]) * self._click_seconds
        if job.stage == "tuning":
            return len(job.needs) * self._training_seconds(job, len(job.config["learning_rates"]))
        if job.stage == "run":
            return self._training_seconds(job, 1)
        return job.draws * self._measure(_PLAIN, 1)[1]

    def _training_seconds(self, job: Job, n_rates: int) -> float:
        steps, points = length_of(job)
        click, step = self._measure(job.config, min(n_rates, RATES_PER_PASS))
        n_passes = -(-n_rates // RATES_PER_PASS)
        part = 1 if job.stage == "tuning" else 2  # validation or test data
        evaluations = n_rates * len(points) * self._evaluation(part)
        clicks = float(job.needs[-1].config["clicks"])
        return n_passes * steps * step + click * clicks + evaluations

    def _measure(self, config: Mapping[str, Any], n_rates: int) -> tuple[float, float]:
        costs = tuple((name, config[name]) for name in _COSTS if name in config)
        return self._training(costs, n_rates)

    def _measure_training(
        self, costs: tuple[tuple[str, Any], ...], n_rates: int
    ) -> tuple[float, float]:
        """Return seconds per click of the log, and per step for so many scorers together."""
        config = {**_PLAIN, **dict(costs)}
        draws = _NETWORK_DRAWS if is_network(config) else _DRAWS
        steps = max(2, draws // config["batch_size"])

        def train(seed: int, n_steps: int = steps) -> None:
            train_runs(
                config, self._parts[0], self._log, [1e-9] * n_rates, seed, (n_steps, [n_steps]),
                Progress.of(None),
            )  # fmt: skip

        whole, one = self._time(train), self._time(lambda seed: train(seed, 1))
        return one / _CLICKS, max(0.0, whole - one) / (steps - 1)

    def _measure_evaluation(self, part: int) -> float:
        """Return the seconds to evaluate one ranker on validation (1) or test data (2)."""
        coefs = np.random.default_rng(0).random((10, self._parts[0].n_features))
        dataset = self._parts[part]
        seconds = self._time(lambda _: learning_curve(coefs, dataset, METRIC, no_relevant="skip"))
        return self._scale * seconds / len(coefs)

    @cached_property
    def _click_seconds(self) -> float:
        """Seconds per click, simulated and diagnosed."""
        return self._time(lambda seed: diagnose(self._simulate(seed))) / _CLICKS

    @cached_property
    def _log(self) -> ClickLog:
        return self._simulate(0)

    def _simulate(self, seed: int) -> ClickLog:
        return simulate_clicks(self._parts[0], self._parts[0].labels, _CLICKS, rng=seed)

    def _time(self, work: Callable[[int], object]) -> float:
        """Return the seconds of the fastest of a few rounds in which all workers do the work."""
        work(0)  # compiles, and loads the data
        seconds = []
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(self._workers) as pool:
            for _ in range(_ROUNDS):
                begin = time.perf_counter()
                list(pool.map(work, range(self._workers)))
                seconds.append(time.perf_counter() - begin)
        return min(seconds)
