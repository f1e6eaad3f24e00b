"""The work list of studies: jobs, what each needs, and the key of its result.

    data → references (w* and the logging policy) → clicks → tuning → runs

Beside them stand the relevance of items, and the jobs that only one kind of study has. A job's key
has a hash of its configuration and of the configurations of the jobs it needs, and
`RESULTS_VERSION`. So work that two studies share is done once, and results of another version are
computed again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from countersample.study import stages
from countersample.study.references import WAYS, steps_of
from countersample.study.store import FORMAT, RESULTS_VERSION
from countersample.training.optimizers import OPTIMIZERS
from countersample.tuning.paths import DRAWS_PER_EXAMPLE, MAX_DRAWS, MIN_DRAWS, RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from countersample._progress import Progress
    from countersample.study.grids import Method, Value
    from countersample.study.runner import Workbench
    from countersample.study.settings import ExperimentConfig
    from countersample.study.sources import Fold

    Work = Callable[[Workbench, "Job", Progress], Any]

# The settings that each stage depends on.
_CLICKS = ("clicks", "gamma", "bias_offset", "noise", "relevant", "top", "second_share",
           "click_model", "policy")  # fmt: skip
_TRAINING = ("optimizer", "objective", "batch_size", "epochs", "clip", "variance",
             "trained_gamma", "evaluate_every", "metric", "no_relevant")  # fmt: skip
_LEVELS = ("metric", "no_relevant")
_PASS_COST = 3.0  # of a pass that learning rates share, in passes with one learning rate
_EVALUATED_PATHS = 15  # of a ranker with its defaults: five folds, three tempers


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work with one result."""

    stage: str  # the kind of work; results of a stage are in a folder of this name
    title: str  # shown while it runs
    config: Mapping[str, Any]  # plain values: with `needs`, all that the result depends on
    # Returns the result: labelled data for "data", a click log for "clicks", else plain values.
    work: Work
    needs: tuple[Job, ...] = ()
    draws: float = 0.0  # the unit is a draw of a run with one learning rate; measures progress

    @cached_property
    def content(self) -> str:
        """A hash of the configuration, of this job and of those it needs."""
        values = [FORMAT, self.stage, self.config, [need.content for need in self.needs]]
        text = json.dumps(values, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def key(self) -> str:
        """The name of the result: its configuration and data, and the version of the numbers."""
        return f"{self.content}-{RESULTS_VERSION}"


class RunJobs(NamedTuple):
    """A run of a cell: its fold and seed, and its jobs."""

    fold: str
    seed: int
    job: Job  # it needs a click log, and a tuning if its optimizer has a learning rate
    levels: Job  # the metric of w* and of the logging policy

    @property
    def clicks(self) -> Job:
        """The click log."""
        return self.job.needs[-1]

    @property
    def references(self) -> Job:
        """w* and the logging policy."""
        return self.clicks.needs[0]

    @property
    def tuning(self) -> Job | None:
        """The tuning, or None if there is nothing to tune."""
        return self.job.needs[0] if len(self.job.needs) > 1 else None


@dataclass
class WorkList:
    """The jobs of some studies, each once, and where the results of each study are."""

    # By key; the jobs that a job needs come before it.
    jobs: dict[str, Job] = field(default_factory=dict)
    # By study, dataset, method and value.
    cells: dict[tuple[str, str, str, Value], list[RunJobs]] = field(default_factory=dict)
    # Other results, by study and further keys that its kind chooses.
    others: dict[tuple[Hashable, ...], list[Job]] = field(default_factory=dict)

    def add(self, job: Job) -> Job:
        """Add a job, or return the one of the same key in the list."""
        return self.jobs.setdefault(job.key, job)

    def keep(self, name: tuple[Hashable, ...], job: Job) -> None:
        """Add a job whose result is read by a name."""
        self.others.setdefault(name, []).append(self.add(job))

    def data(self, fold: Fold, config: ExperimentConfig) -> Job:
        """Plan labelled data, normalised and split."""
        values = {"source": dict(fold.config)} | _settings(config, ("normalization", "bits"))
        return self.add(Job("data", f"data of {fold.title}", values, stages.prepare_data))

    def references(self, fold: Fold, config: ExperimentConfig) -> Job:
        """Plan w* and the logging policy."""
        title, values = f"full supervision on {fold.title}", _settings(config, ("policy_fraction",))
        needs = (self.data(fold, config),)
        draws = len(WAYS) * _PASS_COST * steps_of(config.queries or MAX_DRAWS)  # about
        return self.add(Job("references", title, values, stages.references, needs, draws))

    def clicks(self, fold: Fold, config: ExperimentConfig, seed: int) -> Job:
        """Plan one click log, and with it w* and the logging policy."""
        reference = self.references(fold, config)
        title, values = f"relevant items of {fold.title}", _settings(config, ("relevant",))
        self.add(Job("relevance", title, values, stages.relevance, reference.needs))
        title = f"{config.clicks:,} clicks on {fold.title}"
        values = _settings(config, _CLICKS) | {"seed": seed}
        return self.add(Job("clicks", title, values, stages.simulate, (reference,)))

    def ranker(self, fold: Fold, config: ExperimentConfig) -> Job:
        """Plan a ranker with default options on each click log."""
        logs = tuple(self.clicks(fold, config, seed) for seed in range(config.seeds))
        title, values = f"a default ranker on {fold.title}", _settings(config, _LEVELS)
        examples = min(config.clicks, config.queries or config.clicks)  # by query, about
        steps = min(max(DRAWS_PER_EXAMPLE * examples, MIN_DRAWS), MAX_DRAWS)
        draws = len(logs) * (_EVALUATED_PATHS + RUNS) * steps
        return self.add(Job("ranker", title, values, stages.ranker, logs, draws))

    def runs(self, fold: Fold, config: ExperimentConfig, method: Method) -> list[RunJobs]:
        """Plan a run for each click log, and a tuning if the optimizer has a learning rate."""
        title, draws = f"{method.name} on {fold.title}", config.steps() * config.batch_size
        values = _settings(config, _TRAINING) | config.optimizer_settings | {
            "plan": method.plan, "unit": method.unit, "exposure": method.exposure,
        }  # fmt: skip
        if config.scorer == "network":
            values |= _settings(config, ("scorer", "hidden"))
        logs = [self.clicks(fold, config, seed) for seed in range(config.seeds)]
        tunings: tuple[Job, ...] = ()
        if OPTIMIZERS[config.optimizer].learning_rate is None:
            few, rates = tuple(logs[: config.tuning_logs]), list(config.learning_rates)
            cost = draws * len(few) * _PASS_COST * len(rates) / stages.RATES_PER_PASS
            tuning_values = values | {"learning_rates": rates}
            tunings = (self.add(Job("tuning", title, tuning_values, stages.tune, few, cost)),)
        levels = self.add(
            Job("levels", f"levels of {fold.title}", _settings(config, _LEVELS), stages.levels,
                (self.references(fold, config),))
        )  # fmt: skip
        runs = []
        for seed, log in enumerate(logs):
            job = Job("run", title, values | {"seed": seed}, stages.run, (*tunings, log), draws)
            runs.append(RunJobs(fold.name, seed, self.add(job), levels))
        return runs


def _settings(config: ExperimentConfig, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names}
