# ruff: noqa: INP001, T201 (a program)
"""From a raw log to a ranker where the log is counted by Apache Spark.

Spark reads the log and counts it: impressions and clicks of each query, item and position. Only
the counts come here, and the rest is as without Spark. A log on a cluster is the same code with
another master and another path.

    python make_shop_log.py shop
    python log_to_ranker_spark.py shop --master "local-cluster[2,1,1024]"
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from countersample.fitting import fit_from_impressions, write_page
from countersample.logs import read_features, read_impressions

if TYPE_CHECKING:
    from countersample.fitting import Fit


def fit_shop(folder: Path, *, master: str = "local[2]", seed: int = 0) -> Fit:
    """Fit the log of a shop with Spark; write the ranker and the report beside it."""
    features = read_features(folder / "features.parquet")
    log = read_impressions(folder / "impressions.parquet", engine="spark", master=master)
    with log:  # starts Spark, and stops it
        fit = fit_from_impressions(log, features, seed=seed)
    fit.ranker.save(folder / "ranker.json")
    write_page(folder / "ranker.html", fit, command=f"python log_to_ranker_spark.py {folder.name}")
    print(fit.verdict)
    for warning in fit.warnings:
        print(f"Warning: {warning}")
    print(f"The ranker is in {folder / 'ranker.json'}; the report is in {folder / 'ranker.html'}")
    return fit


def main() -> None:
    """Read the arguments, and fit."""
    parser = argparse.ArgumentParser(description="From the log of a shop to a ranker, by Spark.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seed", type=int, default=0)
    fit_shop(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
