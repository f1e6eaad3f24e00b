# ruff: noqa: INP001, T201 (a program)
"""Weigh the clicks of a log and join its features by Apache Spark: shards to train from.

    python make_shop_log.py shop
    python shards_by_spark.py shop --master "local-cluster[2,1,1024]"
    torchrun --standalone --nproc_per_node=2 train_from_shards.py shop/shards -o shop/ranker.json

A log on a cluster is the same code with another master and other paths. Propensities are estimated
from a sample of the queries, which is small enough for this process.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

from countersample.logs import read_impressions, write_training_shards
from countersample.propensity import estimate


def write_shards(spark: SparkSession, folder: Path, *, queries: int, n_shards: int) -> None:
    """Write the shards of a shop beside its log."""
    log = read_impressions(spark.read.parquet(str(folder / "impressions.parquet")))
    propensities = estimate(log.sample_queries(queries).counts(), method="all-pairs", rng=0)
    features = spark.read.parquet(str(folder / "features.parquet"))
    report = write_training_shards(
        log, features, propensities, folder / "shards", n_shards=n_shards
    )
    print(f"{report.n_joined:,} clicks are in {folder / 'shards'}: {report.sentence()}")


def main() -> None:
    """Read the arguments, and write."""
    parser = argparse.ArgumentParser(description="Shards of a shop's log, by Spark.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--queries", type=int, default=10_000, help="to estimate propensities by")
    parser.add_argument("--n-shards", type=int, default=4)
    options = parser.parse_args()
    with SparkSession.builder.master(options.master).getOrCreate() as spark:
        write_shards(spark, options.folder, queries=options.queries, n_shards=options.n_shards)


if __name__ == "__main__":
    main()
