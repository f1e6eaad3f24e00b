"""What users get from the click logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from countersample.evaluation import evaluate
from countersample.rankers import CounterSampleRanker

if TYPE_CHECKING:
    from countersample._progress import Progress
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench


def ranker(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train what users get, `CounterSampleRanker` with nothing set, and evaluate on test data.

    It looks at no label and has no learning rate: held-out clicks choose how far to follow which
    path, for each log anew.
    """
    metric, no_relevant = job.config["metric"], job.config["no_relevant"]
    train_set, _, test = bench.data_of(job.needs[0])
    values, steps, seconds = [], [], []
    for clicks in job.needs:
        log = bench.clicks(clicks)
        begin = time.perf_counter()
        fitted = CounterSampleRanker(random_state=clicks.config["seed"])
        fitted.fit_log(train_set, log, progress=progress.part(1 / len(job.needs)))
        seconds.append(time.perf_counter() - begin)
        values.append(evaluate(fitted, test, metric, no_relevant=no_relevant)[metric])
        steps.append(fitted.n_steps_)
    return {"steps": max(steps), "ndcg": values, "seconds": seconds}
