"""Networks, trained on click logs by plain SGD: tuning, and the runs that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._extras import need
from countersample.metrics import get_metric
from countersample.study.running.stages.comparing import compared, length_of, tuned, weighted
from countersample.training import TrainingOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench
    from countersample.torch._side_by_side import NetworkRun as Run

SIDE_BY_SIDE = 8  # learning rates that share a pass over the data


def tune(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Choose a learning rate (see `tuned`)."""
    return tuned(bench, job, progress, _train)


def run(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train at the learning rate that was chosen (see `compared`)."""
    found = compared(bench, job, progress, _train)
    return found | {"versions": found["versions"] | {"torch": str(need("torch").__version__)}}


@dataclass(frozen=True)
class NetworkRun:
    """A network that was trained: its last iterate is evaluated, w_t after t steps.

    The theorems' average is of convex objectives. That of a network is not convex in its weights:
    the mean of two good networks need not be one.
    """

    run: Run

    @property
    def steps(self) -> Ints:
        """The evaluation points."""
        return self.run.steps

    @property
    def diverged_at(self) -> int | None:
        """The step at which its weights exploded, if they did."""
        return self.run.diverged_at

    def curve(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the metric at each point."""
        curve: Floats = self._values(dataset, config).mean(axis=1)
        return curve

    def by_query(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the mean of the metric over the points by query, (n_queries,)."""
        mean: Floats = self._values(dataset, config).mean(axis=0)
        return mean

    def _values(self, dataset: RankingDataset, config: Mapping[str, Any]) -> Floats:
        """Return the metric at each point of each query that counts, (n_points, n_queries)."""
        metric = get_metric(config["metric"], no_relevant=config["no_relevant"])
        zeros = np.zeros(dataset.n_items)
        counted = ~np.isnan(metric(dataset.labels, zeros, dataset.offsets))
        values = np.zeros((len(self.steps), int(counted.sum())))
        for k, scorer in enumerate(self.run.scorers):
            if scorer is not None:
                scores = scorer.predict(dataset.features)
                values[k] = metric(dataset.labels, scores, dataset.offsets)[counted]
        return values


def _train(
    bench: Workbench, job: Job, clicks: Job, rates: Sequence[float] | None, progress: Progress
) -> list[NetworkRun]:
    need("torch")
    from countersample.torch._side_by_side import train_networks  # noqa: PLC0415 (torch)

    config = job.config
    train_set, _, _ = bench.data_of(clicks)
    steps, points = length_of(job)
    log = weighted(bench.clicks(clicks), config["exposure"], config["trained_gamma"])
    options = TrainingOptions(
        method=config["plan"], unit=config["unit"], objective=config["objective"],
        batch_size=config["batch_size"], steps=steps, clip=config["clip"] or None,
        checkpoints=points,
    )  # fmt: skip
    given = list(rates or ())
    runs: list[Run] = []
    for k in range(0, len(given), SIDE_BY_SIDE):
        few = given[k : k + SIDE_BY_SIDE]
        runs += train_networks(
            train_set, log, learning_rates=few, hidden=config["hidden"],
            seed=clicks.config["seed"], options=options,
            progress=progress.part(len(few) / len(given)),
        )  # fmt: skip
    return [NetworkRun(run) for run in runs]
