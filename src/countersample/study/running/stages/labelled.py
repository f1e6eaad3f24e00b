"""Labelled data: prepared, counted, and how many of its items are relevant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.relevance import relevance_of, smallest_relevant
from countersample.data.normalize import Normalizer
from countersample.errors import DataError
from countersample.study.design.folds import PARTS, Fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Parts, Workbench

NUMBERS = 32  # bits of a float32
_NAMES = {"train": "training", "vali": "validation", "test": "test"}


def prepare_data(_: Workbench, job: Job, __: Progress) -> Parts:
    """Return training, validation and test data, ready to train on."""
    return prepared(job.config)


def prepared(config: Mapping[str, Any]) -> Parts:
    """Return the three parts, normalised by the training data, and compact."""
    parts = dict(zip(PARTS, Fold("", "", config["source"]).load(), strict=True))
    for name, part in parts.items():
        if not part.n_items or part.labels.max() <= 0:
            raise DataError(f"the {_NAMES[name]} data has no relevant item: a study needs some")
    normalizer = Normalizer.fit(parts["train"], config["normalization"])
    bits = config["bits"]
    normalized = (normalizer(part) for part in parts.values())
    return tuple(part if bits == NUMBERS else part.compact(bits) for part in normalized)


def relevant_grade(dataset: RankingDataset, asked: float) -> float:
    """Return the smallest relevant grade: the one asked for, or 1 where no grade reaches it."""
    return asked if dataset.labels.max() >= asked else smallest_relevant(dataset)


def relevance(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Return how many items of the training data are relevant, and whether they are too few."""
    train_set, _vali, _test = bench.data(job.needs[0])
    found = relevance_of(train_set, relevant_grade(train_set, job.config["relevant"]))
    where = job.title.removeprefix("relevant items of ")
    warnings = [f"{where}: {text}" for text in found.warnings("--set relevant=")]
    return found.to_dict() | {"sentence": found.sentence(), "warnings": warnings}


def shape(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Count what a fold has, its training, validation and test data together."""
    parts = bench.data(job.needs[0])
    sizes = np.concatenate([part.query_sizes for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    return {
        "queries": len(sizes),
        "items": len(labels),
        "longest": int(sizes.max()),
        "features": parts[0].n_features,
        "irrelevant": int((labels == 0).sum()),
    }
