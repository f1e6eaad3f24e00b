"""The work list of studies: what is to be done, what it needs, and the key of its result.

data → references (w* and the logging policy) → clicks → tuning → runs, and beside them how many
items are relevant, the diagnosis of each log, and what else a kind of study asks for. A job's key
is a hash of its full configuration, with those of what it needs, and `RESULTS_VERSION`: work that
two studies share is done once, and results of another version are made again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from countersample.study.running import stages
from countersample.study.running.store import FORMAT, RESULTS_VERSION
from countersample.training.optimizers import OPTIMIZERS
from countersample.tuning.paths import DRAWS_PER_EXAMPLE, FEWEST_DRAWS, MOST_DRAWS, RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from countersample._progress import Progress
    from countersample.study.design.config import ExperimentConfig
    from countersample.study.design.grids import Method, Value
    from countersample.study.design.sources import Fold
    from countersample.study.running.runner import Workbench

    Work = Callable[[Workbench, "Job", Progress], Any]

_CLICKS = ("clicks", "gamma", "bias_offset", "noise", "relevant", "top", "second_share",
           "click_model", "policy")  # fmt: skip
_TRAINING = ("optimizer", "objective", "batch_size", "epochs", "clip", "variance",
             "trained_gamma", "evaluate_every", "metric", "no_relevant")  # fmt: skip
_NETWORK = ("scorer", "hidden")  # of networks alone
_REFERENCES = ("policy_fraction",)
_LEVELS = ("metric", "no_relevant")
_BATCHED_RUNS = 8  # learning rates that share a pass over the data
_EVALUATED_PATHS = 15  # of a ranker with its defaults: five folds, three tempers
_BATCH_COST = 3.0  # of such a pass, in passes with one learning rate (see estimate.py)


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work with one result."""

    stage: str  # what kind of work it is: results of a stage are kept in a folder of this name
    title: str  # as it is shown while it runs
    # Everything the result depends on, beside what it needs: plain values.
    config: Mapping[str, Any]
    # Returns the result: labelled data for "data", a click log for "clicks", else plain values.
    work: Work
    needs: tuple[Job, ...] = ()
    draws: float = 0.0  # clicks, in those of a run with one learning rate: measures progress

    @cached_property
    def content(self) -> str:
        """A hash of what is asked: of the configuration, here and of what is needed."""
        return _hash([FORMAT, self.stage, self.config, [need.content for need in self.needs]])[:24]

    @property
    def key(self) -> str:
        """The name of the result: its configuration and data, and the version of the numbers."""
        return f"{self.content}-{RESULTS_VERSION}"


class RunOf(NamedTuple):
    """A run of a cell: its fold and seed, and its jobs."""

    fold: str
    seed: int
    job: Job  # it needs a tuning, unless its optimizer has no learning rate, and a click log
    levels: Job  # how good w* and the logging policy are

    @property
    def clicks(self) -> Job:
        """The click log."""
        return self.job.needs[-1]

    @property
    def references(self) -> Job:
        """w* and the logging policy."""
        (reference,) = self.clicks.needs
        return reference

    @property
    def tuning(self) -> Job | None:
        """The tuning, or None where there is nothing to tune."""
        return self.job.needs[0] if len(self.job.needs) > 1 else None


@dataclass
class WorkList:
    """The jobs of some studies, each once, and where the results of each study are."""

    # By key; everything a job needs comes before it.
    jobs: dict[str, Job] = field(default_factory=dict)
    # By study, dataset (and combination: see `Grid.where`), method and value.
    cells: dict[tuple[str, str, str, Value], list[RunOf]] = field(default_factory=dict)
    # Other results, under the study and what its kind knows them by.
    others: dict[tuple[Hashable, ...], list[Job]] = field(default_factory=dict)
    # What users get, a job a fold, by study, dataset (and combination) and value.
    rankers: dict[tuple[str, str, Value], list[Job]] = field(default_factory=dict)

    def add(self, job: Job) -> Job:
        """Add a job, or return the one of the same key that is there."""
        return self.jobs.setdefault(job.key, job)

    def keep(self, name: tuple[Hashable, ...], job: Job) -> None:
        """Add a job whose result a study finds again under a name."""
        self.others.setdefault(name, []).append(self.add(job))

    def data(self, fold: Fold, config: ExperimentConfig) -> Job:
        """Labelled data, normalised and split."""
        values = {"source": dict(fold.config)} | _settings(config, ("normalization", "bits"))
        return self.add(Job("data", f"data of {fold.title}", values, stages.prepare_data))

    def references(self, fold: Fold, config: ExperimentConfig) -> Job:
        """w* and the logging policy."""
        title = f"full supervision on {fold.title}"
        values, needs = _settings(config, _REFERENCES), (self.data(fold, config),)
        return self.add(Job("references", title, values, stages.references, needs))

    def levels(self, fold: Fold, config: ExperimentConfig) -> Job:
        """How good w* and the logging policy are."""
        title = f"levels of {fold.title}"
        needs = (self.references(fold, config),)
        return self.add(Job("levels", title, _settings(config, _LEVELS), stages.levels, needs))

    def clicks(self, fold: Fold, config: ExperimentConfig, seed: int) -> Job:
        """One click log, and with it w* and the logging policy."""
        reference = self.references(fold, config)
        needs = reference.needs
        title = f"relevant items of {fold.title}"
        self.add(Job("relevance", title, _settings(config, ("relevant",)), stages.relevance, needs))
        title = f"{config.clicks:,} clicks on {fold.title}"
        values = _settings(config, _CLICKS) | {"seed": seed}
        return self.add(Job("clicks", title, values, stages.simulate, (reference,)))

    def diagnosis(self, fold: Fold, config: ExperimentConfig, seed: int) -> Job:
        """Statistics of the weights of a click log."""
        clicks = self.clicks(fold, config, seed)
        title = f"weights of {clicks.title}"
        return self.add(Job("diagnosis", title, {}, stages.diagnosis, (clicks,)))

    def ranker(self, fold: Fold, config: ExperimentConfig) -> Job:
        """Plan what users get from the click logs: a ranker with nothing set."""
        logs = tuple(self.clicks(fold, config, seed) for seed in range(config.seeds))
        title = f"a ranker with nothing set on {fold.title}"
        values = _settings(config, _LEVELS)
        examples = min(config.clicks, config.queries or config.clicks)  # by query, about
        steps = min(max(DRAWS_PER_EXAMPLE * examples, FEWEST_DRAWS), MOST_DRAWS)
        draws = len(logs) * (_EVALUATED_PATHS + RUNS) * steps
        return self.add(Job("ranker", title, values, stages.ranker, logs, draws))

    def runs(self, fold: Fold, config: ExperimentConfig, method: Method) -> list[RunOf]:
        """Plan a run for each click log, and a tuning, where there is a learning rate."""
        values = _settings(config, _TRAINING) | config.optimizer_settings | {
            "plan": method.plan, "unit": method.unit, "exposure": method.exposure,
        }  # fmt: skip
        if config.scorer == "network":
            values |= _settings(config, _NETWORK)
        logs = [self.clicks(fold, config, seed) for seed in range(config.seeds)]
        title, draws = f"{method.name} on {fold.title}", config.steps() * config.batch_size
        tunings: tuple[Job, ...] = ()
        if OPTIMIZERS[config.optimizer].learning_rate is None:
            few, rates = logs[: config.tuning_logs], list(config.learning_rates)
            cost = draws * len(few) * _BATCH_COST * len(rates) / _BATCHED_RUNS
            of_tuning = values | {"learning_rates": rates}
            tuning = Job("tuning", title, of_tuning, stages.tune, tuple(few), cost)
            tunings = (self.add(tuning),)
        runs = [
            Job("run", title, values | {"seed": seed}, stages.run, (*tunings, log), draws)
            for seed, log in enumerate(logs)
        ]
        levels = self.levels(fold, config)
        return [RunOf(fold.name, seed, self.add(run), levels) for seed, run in enumerate(runs)]


def _hash(value: list[Any]) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _settings(config: ExperimentConfig, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names}
