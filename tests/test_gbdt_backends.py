"""Trees of the libraries as plain arrays: the same scores, also exactly at a threshold."""

import json

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from countersample.errors import ParameterError
from countersample.gbdt.gbdt_ranker import from_lightgbm, from_xgboost

QUIET = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 2, "learning_rate": 0.3}


def by_lightgbm(features, target, n_trees=20, categorical="auto", **params):
    table = lgb.Dataset(
        features, label=target, params={"verbosity": -1}, categorical_feature=categorical
    )
    booster = lgb.train(QUIET | {"objective": "l2"} | params, table, n_trees)
    return booster, booster.predict, from_lightgbm


def by_xgboost(features, target, n_trees=20, **params):
    inputs = {"nthread": 1, "verbosity": 0, "base_score": 0.25} | params
    booster = xgb.train(inputs, xgb.DMatrix(features, target), n_trees)
    return booster, lambda x: booster.predict(xgb.DMatrix(x), output_margin=True), from_xgboost


LIBRARIES = {"lightgbm": (by_lightgbm, 1e-12), "xgboost": (by_xgboost, 1e-5)}


def thresholds(booster):
    """The thresholds of each feature, as the library has them: (feature, value)."""
    if isinstance(booster, xgb.Booster):
        model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
        return [
            (tree["split_indices"][k], tree["split_conditions"][k])
            for tree in model["trees"]
            for k, left in enumerate(tree["left_children"])
            if left >= 0
        ]
    result, waiting = [], [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
    while waiting:
        node = waiting.pop()
        if "leaf_value" not in node:
            result.append((node["split_feature"], node["threshold"]))
            waiting += [node["left_child"], node["right_child"]]
    return result


@pytest.fixture
def table(rng):
    """Features of several scales, with zeros, ties, negative numbers and a constant."""
    features = rng.normal(size=(400, 6)).astype(np.float32)
    features[:, 1] = np.maximum(features[:, 1], 0)
    features[:, 2] = rng.integers(-2, 3, 400)
    features[:, 3] *= 1e30
    features[:, 4] *= 1e-30
    features[:, 5] = 3
    target = features[:, 0] * (features[:, 2] > 0) + features[:, 1] + np.sign(features[:, 3])
    return features, target


@pytest.mark.parametrize("library", LIBRARIES)
def test_scores_are_those_of_the_library(library, table, rng):
    make, tolerance = LIBRARIES[library]
    features, target = table
    booster, predict, convert = make(features, target)
    scorer = convert(booster)
    assert scorer.n_features == 6
    at = thresholds(booster)
    assert len(at) > 50
    exact = rng.choice(features, 3 * len(at))
    for k, (feature, value) in enumerate(at):
        near = np.float32(value)
        exact[3 * k, feature] = np.nextafter(near, np.float32(-np.inf))
        exact[3 * k + 1, feature] = near
        exact[3 * k + 2, feature] = np.nextafter(near, np.float32(np.inf))
    others = rng.permuted(features, axis=0)
    for inputs in (features, others, exact):
        expected = predict(inputs)
        np.testing.assert_allclose(scorer.predict(inputs), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_missing_goes_where_it_does_in_the_library(library, table, rng):
    """In features that were missing in training, at random or not, and in those that were not."""
    make, tolerance = LIBRARIES[library]
    features, target = table
    holed = features.copy()
    holed[rng.random(400) < 0.3, 0] = np.nan
    holed[target > np.quantile(target, 0.7), 1] = np.nan
    holed[target < np.quantile(target, 0.2), 5] = np.nan  # constant where it is there
    booster, predict, convert = make(holed, target)
    scorer = convert(booster)
    inner = scorer.feature >= 0
    assert 0 < scorer.missing_left[inner].sum() < inner.sum()
    others = rng.permuted(features, axis=0)
    others[rng.random(others.shape) < 0.3] = np.nan
    for inputs in (holed, others, np.full((1, 6), np.nan, np.float32)):
        np.testing.assert_allclose(
            scorer.predict(inputs), predict(inputs), rtol=tolerance, atol=tolerance
        )


def test_lightgbm_takes_what_was_never_missing_for_zero(table, rng):
    """By its missing_type None: of all features if none was missing, or it is told not to look."""
    features, target = table
    gone = np.where(rng.random(features.shape) < 0.3, np.float32(np.nan), features)
    for inputs, params in ((features, {}), (gone, {"use_missing": False})):
        booster, predict, convert = by_lightgbm(inputs, target, **params)
        assert "None" in {
            node["missing_type"]
            for tree in booster.dump_model()["tree_info"]
            for node in [tree["tree_structure"]]
            if "missing_type" in node
        }
        scorer = convert(booster)
        np.testing.assert_allclose(scorer.predict(gone), predict(gone), rtol=1e-12)
        np.testing.assert_array_equal(scorer.predict(gone), scorer.predict(np.nan_to_num(gone)))


@pytest.mark.parametrize(
    ("make", "params", "match"),
    [
        (by_lightgbm, {"linear_tree": True}, "linear_tree"),
        (by_lightgbm, {"zero_as_missing": True}, "zero_as_missing"),
        (by_lightgbm, {"categorical": [2]}, "categorical_feature"),
        (by_lightgbm, {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "averaged"),
        (by_xgboost, {"booster": "dart", "rate_drop": 0.5}, "dart"),
        (by_xgboost, {"booster": "gblinear"}, "gblinear"),
    ],
)
def test_trees_that_do_more_are_refused(make, params, match, table):
    features, target = table
    features = np.clip(features, 0, 10)  # linear leaves and categories take no others
    booster, _, convert = make(features, target, **params)
    with pytest.raises(ParameterError, match=match):
        convert(booster)
