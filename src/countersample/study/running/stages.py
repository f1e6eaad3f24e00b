"""What each job of a study does: from judged data to runs."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import ClickLog, PositionBias, diagnose, simulate_clicks
from countersample.data.normalize import Normalizer
from countersample.errors import CounterSampleError, DataError
from countersample.evaluation import learning_curve
from countersample.study.design.config import PAPER
from countersample.study.design.sources import Fold
from countersample.study.running.references import METRIC, logging_policy, supervised
from countersample.training import train_many

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from countersample.data import RankingDataset
    from countersample.study.design.config import ExperimentConfig
    from countersample.study.running.jobs import Job
    from countersample.study.running.store import Store
    from countersample.training import TrainingResult

    Report = Callable[[float], None]

_TUNING_POINTS = 25  # evaluation points that choose a learning rate
_KEPT_LOGS = 4


class Stopped(CounterSampleError):  # noqa: N818 (it is no error)
    """Work that was asked to stop."""


class Workbench:
    """Does the jobs of a study, and keeps what several of them read.

    Parameters
    ----------
    store : Store
    stop : threading.Event
        When set, jobs at work end with `Stopped`.
    """

    def __init__(self, store: Store, stop: threading.Event) -> None:
        self.store = store
        self.stop = stop
        self._data = _Kept(1000, store.data)  # mapped files: the system frees their memory
        self._logs = _Kept(_KEPT_LOGS, store.clicks)

    def do(self, job: Job, report: Report = lambda _: None) -> None:
        """Do a job and keep its result.

        Parameters
        ----------
        job : Job
            What it needs is done.
        report : function of the share done
        """

        def tell(done: int, in_all: int) -> None:
            if self.stop.is_set():
                raise Stopped("stopped")
            report(done / in_all)

        if self.stop.is_set():
            raise Stopped("stopped")
        if job.stage == "data":
            self.store.write_data(job, prepare_data(job.config))
        elif job.stage == "clicks":
            self.store.write_clicks(job, self._simulate(job))
        else:
            self.store.write(job, getattr(self, f"_{job.stage}")(job, tell))

    def _shape(self, job: Job, tell: Callable[[int, int], None]) -> dict[str, Any]:
        tell(0, 1)
        parts = self._data(job.needs[0])
        sizes = np.concatenate([part.query_sizes for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        return {
            "queries": len(sizes),
            "items": len(labels),
            "longest": int(sizes.max()),
            "features": parts[0].n_features,
            "irrelevant": int((labels == 0).sum()),
        }

    def _references(self, job: Job, tell: Callable[[int, int], None]) -> dict[str, Any]:
        train_set, vali, test = self._data(job.needs[0])
        # Enough to converge: by query, many passes over the queries.
        steps = int(np.clip(20 * train_set.n_queries, 20_000, 300_000))
        best = supervised(
            train_set,
            vali,
            steps=steps,
            seed=0,
            progress=lambda _, share: tell(round(1e6 * share), 10**6),
        )
        policy = logging_policy(train_set, fraction=job.config["policy_fraction"], seed=0)
        ndcg = learning_curve(
            np.array([best, policy]), test, METRIC, no_relevant=job.config["no_relevant"]
        )
        return {
            "best": best.tolist(),
            "policy": policy.tolist(),
            "best_ndcg": float(ndcg[0]),
            "policy_ndcg": float(ndcg[1]),
            "fingerprints": {
                "train": train_set.fingerprint, "vali": vali.fingerprint, "test": test.fingerprint,
            },
        }  # fmt: skip

    def _simulate(self, job: Job) -> ClickLog:
        (reference,) = job.needs
        (data,) = reference.needs
        train_set, _, _ = self._data(data)
        config = job.config
        policy = np.array(self.store.read(reference)["policy"], np.float32)
        return simulate_clicks(
            train_set,
            train_set.features @ policy,
            config["clicks"],
            bias=PositionBias(config["gamma"], config["bias_offset"]),
            relevant=relevant_grade(train_set, config["relevant"]),
            noise=config["noise"],
            rng=config["seed"],
        )

    def _diagnosis(self, job: Job, tell: Callable[[int, int], None]) -> dict[str, Any]:
        tell(0, 1)
        return diagnose(self._logs(job.needs[0])).to_dict()

    def _tuning(self, job: Job, tell: Callable[[int, int], None]) -> dict[str, Any]:
        """Train at every learning rate; the best is that of the least regret on validation data.

        A learning rate at which a run diverged is not chosen, unless all did.
        """
        config = job.config
        _, vali, _ = self._data_of(job.needs[0])
        quality = []
        diverged = np.zeros(len(config["learning_rates"]), bool)
        for n_done, clicks in enumerate(job.needs):

            def tell_all(done: int, in_all: int, before: int = n_done) -> None:
                tell(done + before * in_all, in_all * len(job.needs))

            runs = self._train(
                config, clicks, config["learning_rates"], clicks.config["seed"], _TUNING_POINTS,
                tell_all,
            )  # fmt: skip
            curves = np.array([_curve(run, vali, config["no_relevant"]) for run in runs])
            quality.append(curves.mean(axis=1))
            diverged |= np.array([run.diverged_at is not None for run in runs])
        mean = np.mean(quality, axis=0)
        usable = mean if diverged.all() else np.where(diverged, -np.inf, mean)
        return {
            "learning_rate": config["learning_rates"][int(usable.argmax())],
            "learning_rates": config["learning_rates"],
            "ndcg": mean.tolist(),
            "diverged": diverged.tolist(),
        }

    def _run(self, job: Job, tell: Callable[[int, int], None]) -> dict[str, Any]:
        tuning, clicks = job.needs
        config = job.config
        rate = self.store.read(tuning)["learning_rate"]
        begin = time.perf_counter()
        (run,) = self._train(config, clicks, [rate], config["seed"], None, tell)
        seconds = time.perf_counter() - begin
        _, _, test = self._data_of(clicks)
        log = self._logs(clicks)
        return {
            "learning_rate": rate,
            "step": run.history.steps.tolist(),
            "ndcg": _curve(run, test, config["no_relevant"]).tolist(),
            "diverged_at": run.diverged_at,
            "seconds": seconds,
            "max_weight": log.max_weight,
            "mean_weight": log.mean_weight,
        }

    def _train(
        self,
        config: Mapping[str, Any],
        clicks: Job,
        rates: Sequence[float],
        seed: int,
        n_points: int | None,
        tell: Callable[[int, int], None],
    ) -> list[TrainingResult]:
        train_set, _, _ = self._data_of(clicks)
        protocol = _length(config, clicks)
        return train_many(
            train_set,
            _believed(self._logs(clicks), config["trained_gamma"]),
            learning_rates=rates,
            methods=[config["plan"]],
            seeds=[seed],
            unit=config["unit"],
            optimizer=config["optimizer"],
            objective=config["objective"],
            batch_size=config["batch_size"],
            steps=protocol.steps(),
            clip=config["clip"] or None,
            checkpoints=_points(protocol, n_points),
            workers=1,
            progress=lambda _, share: tell(round(1e6 * share), 10**6),
        )

    def _data_of(self, clicks: Job) -> tuple[RankingDataset, ...]:
        (reference,) = clicks.needs
        parts: tuple[RankingDataset, ...] = self._data(reference.needs[0])
        return parts

    def _bounds(self, job: Job, tell: Callable[[int, int], None]) -> dict[str, Any]:
        from countersample.study.kinds.bounds import measure_bounds  # noqa: PLC0415 (scipy's solver)

        tell(0, 1)
        train_set, _, _ = self._data_of(job.needs[0])
        return measure_bounds(
            train_set, self._logs(job.needs[0]), steps=job.config["steps"],
            seeds=range(job.config["seeds"]),
        ).to_dict()  # fmt: skip


def prepare_data(config: Mapping[str, Any]) -> tuple[RankingDataset, ...]:
    """Return training, validation and test data, normalised by the training data."""
    train_set, vali, test = Fold("", config["source"]).load()
    for name, part in (("training", train_set), ("validation", vali), ("test", test)):
        if not part.n_items or part.labels.max() <= 0:
            raise DataError(f"the {name} data has no relevant item: a study needs some")
    normalizer = Normalizer.fit(train_set, config["normalization"])
    return tuple(normalizer(part) for part in (train_set, vali, test))


def relevant_grade(dataset: RankingDataset, asked: float) -> float:
    """Return the smallest relevant grade: the one asked for, or 1 where no grade reaches it."""
    return asked if dataset.labels.max() >= asked else 1.0


def length_of(job: Job) -> tuple[int, int]:
    """Return how many clicks a run of a job draws, and at how many points it is evaluated."""
    protocol = _length(job.config, job.needs[-1])
    n_points = _TUNING_POINTS if job.stage == "tuning" else None
    return protocol.steps() * protocol.batch_size, len(_points(protocol, n_points))


def _length(config: Mapping[str, Any], clicks: Job) -> ExperimentConfig:
    names = ("batch_size", "epochs", "evaluate_every")
    return PAPER.with_settings(
        {name: config[name] for name in names} | {"clicks": clicks.config["clicks"]}
    )


def _points(protocol: ExperimentConfig, n_wanted: int | None) -> list[int]:
    points = protocol.points()
    return points if n_wanted is None else [points[i] for i in _spread(len(points), n_wanted)]


def _believed(log: ClickLog, multiple: float) -> ClickLog:
    """Return the log with the propensities of γ' = multiple·γ: p' = p^multiple."""
    if multiple == 1:
        return log
    return ClickLog(
        query=log.query,
        item=log.item,
        propensity=log.propensity**multiple,
        fingerprint=log.fingerprint,
    )


def _curve(run: TrainingResult, dataset: RankingDataset, no_relevant: str) -> NDArray[np.float64]:
    """nDCG@10 of the averaged iterate at each point; 0 from where the weights exploded."""
    coefs = run.history.average_coef
    sound = np.isfinite(coefs).all(axis=1)
    curve = np.zeros(len(coefs))
    if sound.any():
        curve[sound] = learning_curve(coefs[sound], dataset, METRIC, no_relevant=no_relevant)
    return curve


def _spread(n: int, n_wanted: int) -> list[int]:
    """Return at most `n_wanted` of 0 … n−1, evenly spread, the last among them.

    Examples
    --------
    >>> from countersample.study.running.stages import _spread
    >>> _spread(10, 5), _spread(3, 5)
    ([1, 3, 5, 7, 9], [0, 1, 2])
    """
    n_wanted = min(n, n_wanted)
    return [(place + 1) * n // n_wanted - 1 for place in range(n_wanted)]


class _Kept:
    """The last results of a function of a job, so that several jobs read them once.

    Parameters
    ----------
    size : int
    make : function of a Job
    """

    def __init__(self, size: int, make: Callable[[Job], Any]) -> None:
        self._size, self._make = size, make
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, job: Job) -> Any:  # noqa: ANN401 (what the function gives)
        with self._lock:
            if job.key not in self._kept:
                self._kept[job.key] = self._make(job)
                if len(self._kept) > self._size:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(job.key)
            return self._kept[job.key]
