"""Estimate how long a study will take before it starts, measured on its data or a part of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from countersample._progress import Progress
from countersample.clicks import ClickLog, diagnose, simulate_clicks
from countersample.clicks.relevance import told_already
from countersample.data.synthetic import SHAPES
from countersample.evaluation import learning_curve
from countersample.study.running.references import FIRST, METRIC, WAYS, steps_of
from countersample.study.running.stages import is_network, length_of, load_parts
from countersample.training import TrainingOptions, train_many

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.store import Store

_DRAWS = 4000  # of a measurement
_NETWORK_DRAWS = 1000  # of one with networks
_CLICKS = 20_000
_ROUNDS = 5
_SAMPLED_QUERIES = 2000  # of a synthetic set that is not made yet; more than a CPU's cache has
_BATCHED = 8  # learning rates that share a pass over the data
_SUPERVISED_ROUNDS = 1.5  # of full supervision: some learning rates lead it on beyond the first


class Sample(NamedTuple):
    """Labelled data to measure on."""

    parts: tuple[RankingDataset, ...]
    scale: float  # how many times as many queries the study has
    seconds: float  # that making the whole data will take: 0 if it is there


def sample_of(data: Job, store: Store) -> Sample:
    """Return the data of a job if it is made; else make it, or a part of a synthetic set."""
    if store.has(data):
        return Sample(store.data(data), 1.0, 0.0)
    source = data.config["source"]
    scale = 1.0
    if source.get("shape") in SHAPES and source["queries"] > _SAMPLED_QUERIES:
        scale = source["queries"] / _SAMPLED_QUERIES
        source = source | {"queries": _SAMPLED_QUERIES}
    begin = time.perf_counter()
    parts = load_parts({**data.config, "source": source})
    return Sample(parts, scale, scale * (time.perf_counter() - begin))


class Estimate(NamedTuple):
    """How long jobs will take."""

    seconds: float  # by the clock, with this number of workers
    compiling: float  # seconds that compiling took just now, which the work does not need again
    each: dict[str, float]  # seconds of one worker, by the key of the job


@told_already()
def estimate(jobs: Collection[Job], store: Store, *, workers: int) -> Estimate:
    """Return about how long jobs will take.

    Every kind of work that the jobs have is timed on each dataset for a moment, by as many threads
    at once as will be at work. The first call of each compiles what is not compiled yet.
    """
    speeds: dict[str, Speed] = {}
    each: dict[str, float] = {}
    for job in jobs:
        data = job
        while data.needs:
            data = data.needs[-1]
        if data.stage != "data":
            continue
        if data.key not in speeds:
            speeds[data.key] = Speed(sample_of(data, store), workers)
        each[job.key] = speeds[data.key].of(job)
    compiling = sum(speed.compiling for speed in speeds.values())
    longest = max(each.values(), default=0.0)
    return Estimate(max(sum(each.values()) / workers, longest), compiling, each)


class Speed:
    """Seconds of each kind of job on a dataset, on one of several busy cores."""

    def __init__(self, sample: Sample, workers: int) -> None:
        self.compiling = 0.0
        self._sample = sample
        self._workers = workers
        train_set = sample.parts[0]
        self._labels = ClickLog.from_labels(train_set)
        self._a_draw = cache(self._measure_draw)
        self._an_evaluation = cache(self._measure_evaluation)
        self._a_log = cache(self._measure_log)
        self._overhead = cache(self._measure_overhead)

    def of(self, job: Job) -> float:
        """Return the seconds of a job."""
        if job.stage == "data":
            return self._sample.seconds
        if job.stage == "references":
            return self._of_references()
        if job.stage == "clicks":
            return float(job.config["clicks"]) * self._a_log()
        if job.stage == "tuning":
            return len(job.needs) * self._of_training(job, len(job.config["learning_rates"]), 1)
        if job.stage == "run":
            return self._of_training(job, 1, 2)
        return job.draws * self._a_draw("click", "sgd", 1, 1)

    def _of_training(self, job: Job, n_rates: int, part: int) -> float:
        """Return the seconds of the draws, of what is done once per log, and of evaluations."""
        config = job.config
        steps, points = length_of(job)
        n_passes = -(-n_rates // _BATCHED)
        draw = self._a_draw(
            config["unit"], config["optimizer"], config["batch_size"], min(n_rates, _BATCHED),
            config["hidden"] if is_network(config) else None,
        )  # fmt: skip
        n_draws: int = steps * config["batch_size"]
        once = float(job.needs[-1].config["clicks"]) * self._overhead(config["unit"])
        evaluation = n_rates * len(points) * self._an_evaluation(part)
        return n_passes * n_draws * draw + once + evaluation

    def _of_references(self) -> float:
        n_queries = round(self._sample.scale * self._sample.parts[0].n_queries)
        draws = len(WAYS) * _SUPERVISED_ROUNDS * steps_of(n_queries)
        return draws * self._a_draw("query", "sgd", 1, len(FIRST))

    # -- measurements

    def _measure_draw(
        self, unit: str, optimizer: str, batch_size: int, n_rates: int, hidden: int | None = None
    ) -> float:
        """Return the seconds of one draw for so many scorers together, networks if `hidden`."""
        train_set, rates = self._sample.parts[0], [1e-9] * n_rates
        n_steps = max(2, (_DRAWS if hidden is None else _NETWORK_DRAWS) // batch_size)

        def train(seed: int, steps: int = n_steps) -> None:
            options = TrainingOptions(
                unit=unit, optimizer=optimizer, batch_size=batch_size, steps=steps
            )
            if hidden is None:
                train_many(
                    train_set, self._labels, learning_rates=rates, seeds=[seed], workers=1,
                    options=options,
                )  # fmt: skip
            else:
                from countersample.torch._side_by_side import (  # noqa: PLC0415 (torch)
                    train_networks,
                )

                train_networks(
                    train_set, self._labels, learning_rates=rates, hidden=hidden, seed=seed,
                    options=options, progress=Progress.of(None),
                )  # fmt: skip

        whole, setup = self._time(train), self._time(lambda seed: train(seed, 1))
        return max(0.0, whole - setup) / ((n_steps - 1) * batch_size)

    def _measure_overhead(self, unit: str) -> float:
        """Seconds that a training takes before its first step, by click of the log."""
        train_set = self._sample.parts[0]
        log = self._log()
        work = self._time(
            lambda seed: train_many(
                train_set, log, learning_rates=[1e-9], seeds=[seed], unit=unit, steps=1, workers=1
            )
        )
        return work / _CLICKS

    def _measure_evaluation(self, part: int) -> float:
        """Seconds of one ranker on validation (1) or test data (2)."""
        coefs = np.random.default_rng(0).random((10, self._sample.parts[0].n_features))
        dataset = self._sample.parts[part]
        seconds = self._time(lambda _: learning_curve(coefs, dataset, METRIC, no_relevant="skip"))
        return self._sample.scale * seconds / len(coefs)

    def _measure_log(self) -> float:
        """Seconds of a click: simulated and diagnosed."""
        return self._time(lambda seed: diagnose(self._log(seed))) / _CLICKS

    def _log(self, seed: int = 0) -> ClickLog:
        train_set = self._sample.parts[0]
        return simulate_clicks(train_set, train_set.labels, _CLICKS, rng=seed)

    def _time(self, work: Callable[[int], object]) -> float:
        """Return the seconds of the fastest of a few rounds in which all workers do the work."""
        begin = time.perf_counter()
        work(0)  # compiles, and touches the data
        first = time.perf_counter() - begin
        seconds = []
        # As jobs are run.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(self._workers) as pool:
            for _ in range(_ROUNDS):
                begin = time.perf_counter()
                list(pool.map(work, range(self._workers)))
                seconds.append(time.perf_counter() - begin)
        self.compiling += max(0.0, first - max(seconds))
        return min(seconds)
