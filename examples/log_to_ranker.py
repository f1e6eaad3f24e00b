# ruff: noqa: INP001, T201 (a program)
"""From a raw log to a ranker, with the library: what ``countersample fit`` does, and the truth.

python make_shop_log.py shop
python log_to_ranker.py shop
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from countersample.fitting import fit_from_impressions, write_page
from countersample.logs import read_features, read_impressions

if TYPE_CHECKING:
    from countersample.data import RankingDataset
    from countersample.fitting import Fit


def fit_shop(folder: Path, *, seed: int = 0) -> Fit:
    """Fit the log of a shop; write the ranker and the report beside it."""
    features = read_features(folder / "features.parquet")
    with read_impressions(folder / "impressions.parquet") as log:
        fit = fit_from_impressions(log, features, seed=seed)
    fit.ranker.save(folder / "ranker.json")
    write_page(folder / "ranker.html", fit, command=f"python log_to_ranker.py {folder.name}")
    print(fit.verdict)
    for warning in fit.warnings:
        print(f"Warning: {warning}")
    print(f"What users want says {true_gain(fit, features.dataset):+.1%}.")
    print(f"The ranker is in {folder / 'ranker.json'}; the report is in {folder / 'ranker.html'}")
    return fit


def true_gain(fit: Fit, dataset: RankingDataset) -> float:
    """Return the relative gain in DCG@10 by the labels, which a real log does not have."""
    shown = fit.shown
    rows = dataset.offsets[shown.query] + shown.item
    logged = shown.impressions @ (reward(shown.position) * dataset.labels[rows])
    first = shown.position == 1
    sessions = np.bincount(shown.query[first], shown.impressions[first], dataset.n_queries)
    ranks = fit.ranker.rank(dataset)
    new = np.repeat(sessions, dataset.query_sizes) @ (reward(ranks) * dataset.labels)
    return float(new / logged - 1)


def reward(ranks: np.ndarray) -> np.ndarray:
    """Return what DCG@10 gives for a relevant item at each rank."""
    return np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0)


def main() -> None:
    """Read the arguments, and fit."""
    parser = argparse.ArgumentParser(description="From the log of a shop to a ranker.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    fit_shop(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
