"""Click logs, simulated and diagnosed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import PositionBias, Ranked, Shuffled, Swapped, diagnose, simulate_clicks
from countersample.data.scoring import linear_scores
from countersample.study.running.references import logging_policy
from countersample.study.running.stages.labelled import relevant_grade

if TYPE_CHECKING:
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench


_SHOWN = {"ranked": Ranked, "swapped": Swapped, "shuffled": Shuffled}


def simulate(bench: Workbench, job: Job, _: Progress) -> ClickLog:
    """Simulate a click log on the rankings of the logging policy, or of two."""
    train_set, _vali, _test = bench.data_of(job)
    config = job.config
    (reference,) = job.needs
    weights = [np.array(bench.store.read(reference)["policy"])]
    shares = [1 - config["second_share"], config["second_share"]]
    if config["second_share"]:
        fraction = reference.config["policy_fraction"]
        weights.append(logging_policy(train_set, fraction=fraction, seed=1))
    shows = _SHOWN[config["policy"]]
    scores = [shows(each) for each in linear_scores(np.array(weights), train_set.features)]
    return simulate_clicks(
        train_set,
        scores[0] if len(scores) == 1 else dict(zip(("first", "second"), scores, strict=True)),
        config["clicks"],
        top=config["top"] or None,
        shares=shares if len(scores) > 1 else None,
        bias=PositionBias(config["gamma"], config["bias_offset"]),
        relevant=relevant_grade(train_set, config["relevant"]),
        noise=config["noise"],
        click_model=config["click_model"],
        rng=config["seed"],
    )


def diagnosis(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Return the statistics of the weights of a click log."""
    return diagnose(bench.clicks(job.needs[0])).to_dict()
