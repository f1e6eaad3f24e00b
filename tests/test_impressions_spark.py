"""Spark that cannot be started: a sentence, at once."""

import os
import socket
import subprocess
import sys

import pyarrow as pa
import pytest
from requirements import need

from countersample._extras import MissingExtraError
from countersample.clicks.impressions import read_impressions
from countersample.errors import DataError, ParameterError

need("spark", allow_module_level=True)
TABLE = pa.table({"query_id": [1], "item_id": [1], "position": [1], "click": [0]})


def test_no_java_on_the_path(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ParameterError, match="needs Java, and there is none on the PATH: install"):
        read_impressions(TABLE, engine="spark")


def test_a_java_home_without_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ParameterError, match=r"none in JAVA_HOME .*install Java 17"):
        read_impressions(TABLE, engine="spark")


def test_a_java_that_fails(tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    program = (
        "import pyarrow as pa\n"
        "from countersample.clicks.impressions import read_impressions\n"
        "table = pa.table({n: [1] for n in ('query_id', 'item_id', 'position', 'click')})\n"
        "read_impressions(table, engine='spark')\n"
    )  # a process of its own: a Java that runs already would be used
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"JAVA_HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode != 0
    assert "DataError: Spark did not start on local[*]: " in run.stderr
    assert "is Java 17 or later installed?" in run.stderr


def test_an_unreachable_master():
    with socket.socket() as taken:  # bound but not listening, so nobody can connect
        taken.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(DataError, match=rf"{master} cannot be reached .*check its address"):
            read_impressions(TABLE, engine="spark", master=master)


def test_without_pyspark(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r'pip install "countersample\[spark\]"'):
        read_impressions(TABLE, engine="spark")


def test_settings_of_another_engine_are_refused():
    with pytest.raises(ParameterError, match="memory_limit is a setting of duckdb, not of spark"):
        read_impressions(TABLE, engine="spark", memory_limit="2GB")
    with pytest.raises(ParameterError, match="master is a setting of spark, not of duckdb"):
        read_impressions(TABLE, engine="duckdb", master="local[1]")


def test_every_address_of_a_master_is_tried(monkeypatch):
    tried = []

    def connect(place, timeout):  # noqa: ARG001 (of socket's function)
        tried.append(place)
        raise OSError("no")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(DataError, match=r"a:1: no; b: no"):
        read_impressions(TABLE, engine="spark", master="spark://a:1,b")
    assert tried == [("a", 1), ("b", 7077)]
