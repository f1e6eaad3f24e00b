"""From clicks of users who trust high ranks to a ranker: α and β in training and estimation."""

import numpy as np
import pytest
from conftest import SEED

from countersample import PositionBias, evaluate, synthetic
from countersample.clicks import TrustBias, simulate_impressions
from countersample.fitting import fit_from_impressions
from countersample.logs import (
    FeatureTable,
    PositionCounts,
    join_features,
    read_impressions,
)
from countersample.options import PropensityOptions
from countersample.propensity import TrustPropensities, load_propensities


@pytest.fixture(scope="module")
def data():
    return synthetic("tiny", n_queries=300, rng=SEED)


@pytest.fixture(scope="module")
def table(data):
    items = np.arange(data.n_items) - np.repeat(data.offsets[:-1], data.query_sizes)
    return FeatureTable(data, items, has_labels=True)


def clicks(data, click_model, **options):
    first, second = data.features[:, 0], data.features[:, 1]
    policies = {"old": first, "new": second + first / 2, "other": second}
    return simulate_impressions(
        data, policies, 60_000, shares=[0.5, 0.3, 0.2], top=5, click_model=click_model,
        bias=PositionBias(1.0), rng=SEED, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def log(data):
    return clicks(data, "trust-bias")


@pytest.fixture(scope="module")
def fit(log, table):
    return fit_from_impressions(
        read_impressions(log), table, propensities=PropensityOptions(method="trust")
    )


@pytest.mark.slow
def test_the_ranker_is_that_of_known_trust(fit, log, table, data, tmp_path):
    """And far from that of a method that takes trust for relevance, by its weights."""
    users = TrustBias(bias=PositionBias(1.0), relevant=3)
    beta = users.click_probabilities(np.zeros(5))
    alpha = users.click_probabilities(np.full(5, 4)) - beta
    truth = TrustPropensities(
        alpha, alpha, alpha, beta, beta, beta, n_impressions=[1] * 5, p_value=0.0
    )
    truth.save(tmp_path / "known.json")
    given = fit_from_impressions(
        read_impressions(log), table, propensities=load_propensities(tmp_path / "known.json")
    )
    without = fit_from_impressions(
        read_impressions(log), table, propensities=PropensityOptions(method="all-pairs")
    )
    estimated, known, blind = (
        evaluate(each.ranker, data, "ndcg@5")["ndcg@5"] for each in (fit, given, without)
    )
    assert estimated > 0.97 * known
    assert estimated > blind - 0.01
    assert angle(fit, given) < angle(without, given) / 2


def angle(one, other):
    a, b = one.ranker.weights_, other.ranker.weights_
    return np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_clicks_by_chance_are_worth_what_clicks_are(log, data):
    """If every click is worth 3, all weights are three times as large."""
    items = np.arange(data.n_items) - np.repeat(data.offsets[:-1], data.query_sizes)
    columns = {name: log[name].to_numpy() for name in ("query_id", "item_id", "position", "click")}
    trust = TrustPropensities(
        **dict.fromkeys(("alpha", "alpha_low", "alpha_high"), 1 / np.arange(1, 6)),
        **dict.fromkeys(("beta", "beta_low", "beta_high"), 0.1 / np.arange(1, 6)),
        n_impressions=[1] * 5, p_value=0.0,
    )  # fmt: skip
    weights = []
    for worth in (1, 3):
        counts = PositionCounts.from_columns(**columns, value=worth * columns["click"])
        made, _ = join_features(counts, trust, data, items, missing="skip")
        weights.append(made.weights)
    assert (weights[0] < 0).any()
    np.testing.assert_allclose(weights[1], 3 * weights[0])
