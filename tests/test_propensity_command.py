"""``countersample propensity``: what is printed, saved, and used by fit."""

import json

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from pyarrow import parquet
from shops import make

from countersample.propensity import (
    Propensities,
    TrustPropensities,
    load_propensities,
)

pytestmark = pytest.mark.usefixtures("folder")
LOG = ("propensity", "log.parquet")


@pytest.fixture(scope="module")
def shop():
    return make(SEED, queries=60, sessions=3000)


@pytest.fixture
def folder(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log, features = shop
    device = np.where(log["session"].to_numpy() % 2, "phone", "desktop")
    parquet.write_table(log.append_column("device", pa.array(device)), "log.parquet")
    parquet.write_table(features, "features.parquet")
    return tmp_path


def test_the_table_and_the_other_methods(run):
    printed = run(*LOG)
    assert printed.startswith("Estimated by all-pairs.")
    header = next(line for line in printed.splitlines() if line.startswith("position"))
    assert header.split()[:4] == ["position", "all-pairs", "95%", "interval"]
    assert {"pivot", "em"} <= set(header.split())
    assert "Not supported is regression-em: it needs the features of items (--features)." in printed


@pytest.mark.slow
def test_what_is_saved_is_what_fit_reads(run):
    found = json.loads(run(*LOG, "-o", "looks.json", "--plot", "looks.svg", "--json"))
    curve = load_propensities("looks.json")
    assert isinstance(curve, Propensities)
    assert found["curve"]["value"] == curve.value.tolist()
    assert found["cross_check"]["estimates"]
    assert found["out"] == "looks.json"
    fit = ("fit", "log.parquet", "--features", "features.parquet", "-o", "ranker.json", "--json")
    used = json.loads(run(*fit, "--propensities", "looks.json"))
    assert used["propensities"]["curve"]["value"] == found["curve"]["value"]


def test_with_trust(run):
    printed = run(*LOG, "--propensity-method", "trust", "--depth", 4, "-o", "looks.json")
    assert printed.startswith("Estimated with trust bias.")
    assert "α" in printed
    assert isinstance(load_propensities("looks.json"), TrustPropensities)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--propensity-method", "guess"], "--propensity-method is 'guess', expected one of auto"),
        (["--propensity-method", "logged"], "method is 'logged', which estimates nothing"),
        (
            ["--propensity-method", "regression-em"],
            "regression-em needs the features of items: give them",
        ),
        (["--propensity-method", "trust", "--plot", "x.png"], "--plot draws examination only"),
        (["-o", "nowhere/x.json"], "the folder nowhere does not exist"),
        (["--missing", "drop"], "missing is 'drop', expected one of error, skip"),
        (["--randomized", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_done(run, words, told):
    assert told in run(*LOG, *words, fails=True)


def test_a_log_with_propensities_of_its_own(run, shop):
    log = shop[0].append_column("propensity", pa.array(np.full(len(shop[0]), 0.5)))
    parquet.write_table(log, "log.parquet")
    assert "the log has a column 'propensity', which fit takes as it is" in run(*LOG, fails=True)
    assert "by all-pairs" in run(*LOG, "--propensity-method", "all-pairs")
