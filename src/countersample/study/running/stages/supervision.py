"""w* and the logging policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.evaluation import learning_curve
from countersample.study.design.folds import PARTS
from countersample.study.running.references import logging_policy, supervised

if TYPE_CHECKING:
    from countersample._progress import Progress
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench


def steps_of(n_queries: int) -> int:
    """Return as many steps as w* needs to converge: by query, many passes over the queries."""
    return int(np.clip(20 * n_queries, 20_000, 300_000))


def references(bench: Workbench, job: Job, progress: Progress) -> dict[str, Any]:
    """Train w* and the logging policy."""
    parts = bench.data(job.needs[0])
    train_set, vali, _ = parts
    steps = steps_of(train_set.n_queries)
    best = supervised(train_set, vali, steps=steps, seed=0, progress=progress)
    policy = logging_policy(train_set, fraction=job.config["policy_fraction"], seed=0)
    return {
        "best": best.tolist(),
        "policy": policy.tolist(),
        "fingerprints": {name: part.fingerprint for name, part in zip(PARTS, parts, strict=True)},
    }


def levels(bench: Workbench, job: Job, _: Progress) -> dict[str, float]:
    """Evaluate w* and the logging policy on test data."""
    (reference,) = job.needs
    _train, _vali, test = bench.data(reference.needs[0])
    known = bench.store.read(reference)
    coefs = np.array([known["best"], known["policy"]])
    config = job.config
    best, policy = learning_curve(coefs, test, config["metric"], no_relevant=config["no_relevant"])
    return {"best": float(best), "policy": float(policy)}
