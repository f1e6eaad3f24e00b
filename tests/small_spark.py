"""Spark for small data on few cores: compile little, and shuffle between two."""

import importlib.util
import os
import shutil

import pytest

CLUSTER = "local-cluster[2,1,512]"  # two workers
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
# for the environment variable PYSPARK_SUBMIT_ARGS
SUBMIT = " ".join([*(f"--conf {k}='{v}'" for k, v in SETTINGS.items()), "pyspark-shell"])


def need_spark():
    """Skip a test where Spark cannot run; fail it where COUNTERSAMPLE_REQUIRE_SPARK is set."""
    there = {
        "pyspark": importlib.util.find_spec("pyspark"),
        "Java": os.environ.get("JAVA_HOME") or shutil.which("java"),
    }
    absent = [name for name, found in there.items() if not found]
    if absent:
        told = f"{' and '.join(absent)} not installed"
        if os.environ.get("COUNTERSAMPLE_REQUIRE_SPARK"):
            pytest.fail(told)
        pytest.skip(told)
