"""What users get from the click logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countersample.evaluation import evaluate
from countersample.rankers import CounterSampleRanker
from countersample.study.running.references import METRIC

if TYPE_CHECKING:
    from countersample._progress import Progress
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench


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
