"""Fits on a log of which a share is said to be shuffled, one session a query."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import SEED
from invoking import invoke

from countersample import PositionBias, synthetic
from countersample.clicks import Shuffled, simulate_impressions
from countersample.clicks.impressions import FeatureTable, read_impressions
from countersample.errors import DataError
from countersample.fitting import fit_from_impressions
from countersample.options import PropensityOptions
from countersample.propensity import estimate


@pytest.fixture(scope="module")
def data():
    return synthetic("tiny", n_queries=3000, rng=SEED)


@pytest.fixture(scope="module")
def table(data):
    items = np.arange(data.n_items) - np.repeat(data.offsets[:-1], data.query_sizes)
    return FeatureTable(data, items, has_labels=True)


@pytest.fixture(scope="module")
def log(data):
    """No item is shown twice for a query, so that it was shuffled can only be told."""
    policies = {"random": Shuffled(data.features[:, 0]), "old": data.features[:, 0]}
    made = simulate_impressions(
        data, policies, 60_000, shares=[0.7, 0.3], top=4, bias=PositionBias(1.0), rng=SEED
    ).to_pandas()
    return made[made.session.isin(made.drop_duplicates("query_id").session)]  # the first of each


def test_what_is_said_to_be_shuffled_is_believed(log, table):
    fit = fit_from_impressions(
        read_impressions(log), table, propensities=PropensityOptions(randomized="random")
    )
    curve = fit.propensity_source.curve
    assert curve.method == "randomized"
    assert any("taken as told" in note for note in curve.notes)
    assert (np.abs(np.log(curve.value * curve.position)) < np.log(1.6)).all()
    with pytest.raises(DataError, match="no query-item pair was shown twice"):
        estimate(read_impressions(log).of_policy("random").counts(), method="randomized")


def test_it_is_believed_in_each_context(log, table):
    log = log.assign(context=np.where(log.session % 2, "phone", "desktop"))
    fit = fit_from_impressions(
        read_impressions(log), table, propensities=PropensityOptions(randomized="random")
    )
    found = fit.propensity_source
    assert found.source == "estimated by randomized in each of 2 contexts"
    assert all("taken as told" in " ".join(curve.notes) for curve in found.curves.values())


@pytest.mark.parametrize(("asked", "answer"), [(["--randomized", "random"], True), ([], False)])
def test_the_check_answers_as_the_fit(log, tmp_path, asked, answer):
    log.to_parquet(tmp_path / "log.parquet")
    shown = invoke("log", "check", tmp_path / "log.parquet", "--json", *asked)
    found = {each["method"]: each for each in json.loads(shown.stdout)["propensities"]}
    assert found["randomized"]["is_supported"] == answer


def test_impossible_rows_of_the_shuffled_share_are_skipped_as_others_are(log, table):
    bad = log[log.policy == "random"].head(1).assign(position=-1)
    with_bad = read_impressions(pd.concat([log, bad]))
    fit = fit_from_impressions(
        with_bad, table, propensities=PropensityOptions(randomized="random", missing="skip")
    )
    shown = log[log.policy == "random"].groupby("position").size()
    assert fit.propensity_source.curve.n_impressions.tolist() == shown.tolist()
