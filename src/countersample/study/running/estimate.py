"""How long a study will take, told before it starts: measured on its own data."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.clicks import ClickLog
from countersample.evaluation import learning_curve
from countersample.study.running.references import METRIC
from countersample.study.running.stages import length_of
from countersample.training import train_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.store import Store

_STEPS = 4000  # of a measurement
_ROUNDS = 3


def estimate_seconds(jobs: Iterable[Job], store: Store, *, workers: int) -> float:
    """Return about how many seconds jobs will take, once their data is in the store.

    A few thousand steps are timed on each dataset, with one learning rate and with many, by as
    many threads at once as will be at work; and the evaluation of a few rankers.
    """
    seconds = 0.0
    rates: dict[str, Rates] = {}
    for job in jobs:
        if job.stage not in {"tuning", "run"}:
            continue
        data = job
        while data.stage != "data":
            data = data.needs[-1]
        if data.key not in rates:
            rates[data.key] = measure(store.data(data), workers=workers)
        seconds += rates[data.key].of(job)
    return seconds / workers


class Rates(NamedTuple):
    """Seconds that training and evaluation take on a dataset, on one of several busy cores."""

    a_draw: float  # of a run with one learning rate
    a_draw_of_many: float  # of a pass with eight, by learning rate
    an_evaluation: float  # of one ranker on the test data

    def of(self, job: Job) -> float:
        """Return the seconds of a tuning or a run."""
        steps, points = length_of(job)
        n_draws: int = steps * job.config["batch_size"]
        if job.stage == "run":
            return n_draws * self.a_draw + len(points) * self.an_evaluation
        n_rates = len(job.config["learning_rates"]) * len(job.needs)
        return n_rates * (n_draws * self.a_draw_of_many + len(points) * self.an_evaluation)


def measure(parts: tuple[RankingDataset, ...], *, workers: int = 1) -> Rates:
    """Time training and evaluation on a dataset, by several threads at once."""
    train_set, _, test = parts
    log = ClickLog.from_labels(train_set)

    def seconds_of(n_rates: int) -> float:
        def work(seed: int) -> None:
            train_many(
                train_set, log, learning_rates=[1e-9] * n_rates, seeds=[seed],
                steps=_STEPS, workers=1,
            )  # fmt: skip

        work(0)  # compiles, and touches the data
        return _best(work, workers) / _STEPS / n_rates

    coefs = np.zeros((10, train_set.n_features))
    return Rates(
        seconds_of(1),
        seconds_of(8),
        _best(lambda _: learning_curve(coefs, test, METRIC, no_relevant="skip"), 1) / len(coefs),
    )


def _best(work: Callable[[int], object], workers: int) -> float:
    """Return the seconds of the fastest of a few rounds in which all workers do the work."""
    seconds = []
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(_ROUNDS):
            begin = time.perf_counter()
            list(pool.map(work, range(workers)))
            seconds.append(time.perf_counter() - begin)
    return min(seconds)
