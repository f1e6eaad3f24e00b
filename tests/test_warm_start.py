"""Warm starts: what rankers keep from an earlier training, and how far they move."""
# ruff: noqa: N806 (X is scikit-learn's name of a table)

import numpy as np
import pytest
from conftest import SEED
from every_ranker import each_of, every, fit, fitted, make, table, tiny
from requirements import need

from countersample import ClickLog, RankingDataset, evaluate, load_ranker, simulate_clicks
from countersample.data import synthetic
from countersample.errors import DataError, ParameterError
from countersample.fitting import evaluate_training
from countersample.rankers import CounterSampleRanker
from countersample.rankers.task import WarmStart, make_successor, make_untrained


def named(dataset, names):
    return RankingDataset(
        dataset.features, dataset.labels, dataset.offsets, dataset.query_ids, tuple(names)
    )


def with_holes(data, rng):
    features = data.features.copy()
    features[rng.random(data.n_items) < 0.3, 1] = np.nan
    return data.with_features(features)


def tiny_detached():
    """Return the data, and its clicks without positions and fingerprint."""
    data, log = tiny()
    return data, ClickLog(log.query, log.item, log.propensity)


@pytest.fixture(scope="module")
def tomorrow():
    dataset, _ = tiny()
    return simulate_clicks(dataset, dataset.features[:, 1], 2000, rng=SEED + 1)


# -- the start


@every
def test_fit_continues_only_if_warm_start_is_set(kind, tomorrow):
    dataset, log = tiny()
    anew = make(kind).fit_log(dataset, tomorrow)
    again = make(kind).fit_log(dataset, log).fit_log(dataset, tomorrow)
    np.testing.assert_array_equal(again.predict(dataset), anew.predict(dataset))
    assert "previous" not in again.provenance_
    warm = make(kind, warm_start=True).fit_log(dataset, log)
    np.testing.assert_array_equal(warm.predict(dataset), fitted(kind).predict(dataset))
    for updates in (1, 2):
        warm.fit_log(dataset, tomorrow)
        expected = {"n_clicks": 2000 * updates, "updates": updates}
        assert warm.provenance_["previous"] == expected
        assert not np.array_equal(warm.predict(dataset), anew.predict(dataset))


@every
def test_a_loaded_ranker_continues_to_the_same_bytes(kind, tomorrow, tmp_path):
    dataset, _ = tiny()
    warm = make(kind, warm_start=True).fit_log(*tiny())
    warm.save(tmp_path / "yesterday.json")
    for name, ranker in (("a", warm), ("b", load_ranker(tmp_path / "yesterday.json"))):
        ranker.fit_log(dataset, tomorrow).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@every
def test_partial_fit(kind):
    X, y, qid, propensity = table()
    rows = {"qid": qid, "propensity": propensity}
    first = make(kind).partial_fit(X, y, **rows)
    np.testing.assert_array_equal(first.predict(X), fit(make(kind), table()).predict(X))
    other = np.roll(y, 1)
    ranker = make(kind, warm_start=True).fit(X, y, **rows).fit(X, other, qid=qid)
    updated = first.partial_fit(X, other, qid=qid)
    np.testing.assert_array_equal(updated.predict(X), ranker.predict(X))
    with pytest.raises(DataError, match=r"X has 4 features, but .* is expecting 5"):
        updated.partial_fit(X[:, :4], y, qid=qid)


@every
def test_copies_for_the_evaluation_start_where_the_ranker_started(kind, tomorrow):
    """Else they would have learned from the clicks that evaluate them."""
    dataset, log = tiny()
    ranker = make(kind, warm_start=True).fit_log(dataset, log)
    assert WarmStart.next_of(make_untrained(ranker)) is None
    copied = make_successor(ranker)
    assert not hasattr(copied, "scorer_")
    assert WarmStart.next_of(copied).scorer is ranker.scorer_
    copied.fit_log(dataset, tomorrow)
    assert WarmStart.next_of(make_untrained(copied)).scorer is ranker.scorer_
    assert WarmStart.next_of(copied).scorer is copied.scorer_
    assert evaluate_training(copied, dataset, tomorrow).gain is not None
    assert WarmStart.next_of(make_successor(make(kind))) is None


# -- features and parameters


@pytest.mark.parametrize("before", [False, True])
@each_of(["linear", "lightgbm"])
def test_values_may_be_missing_for_the_first_time(kind, before, rng):
    """Complete rows have the scores of before, whether or not values were missing then."""
    data, log = tiny_detached()
    ranker = make(kind).fit_log(with_holes(data, rng) if before else data, log)
    features = with_holes(data, rng).features
    features[rng.random(data.n_items) < 0.3, 2] = np.nan  # not missing before
    today = data.with_features(features)
    is_complete = np.isfinite(features).all(axis=1)
    warm = WarmStart.of(ranker)
    imputer, normalizer = ranker._fit_imputer(today, warm), warm.preprocessing.normalizer
    filled = today if imputer is None else imputer(today)
    scaled = filled if normalizer is None else normalizer(filled)
    scores, expected = warm.scorer_for(today).predict(scaled.features), ranker.predict(data)
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores[is_complete], expected[is_complete], rtol=1e-5, atol=1e-5)
    ranker.set_params(warm_start=True).fit_log(today, log)
    assert np.isfinite(ranker.predict(today)).all()


def test_what_does_not_fit(rng):
    data, log = tiny_detached()
    ranker = make("linear", warm_start=True).fit_log(data, log)
    four = data.with_features(np.ascontiguousarray(data.features[:, :4]))
    with pytest.raises(DataError, match="has 4 features, expected 5 features"):
        ranker.fit_log(four, log)
    with pytest.raises(ParameterError, match=r"normalize is 'standard', and .* has 'minmax'"):
        ranker.set_params(normalize="standard").fit_log(data, log)
    ranker.set_params(normalize="minmax", feature_transform="log")
    with pytest.raises(ParameterError, match=r"feature_transform is 'log', and .* has None"):
        ranker.fit_log(data, log)
    ranker = make("linear", warm_start=True).fit_log(named(data, "abcde"), log)
    with pytest.raises(DataError, match=r"has the features b, a, c, d, e, expected the features a"):
        ranker.fit_log(named(data, "bacde"), log)
    ranker = make("linear", warm_start=True).fit_log(with_holes(data, rng), log)
    with pytest.raises(ParameterError, match="impute is 'zero', and the ranker of the warm start"):
        ranker.set_params(impute="zero").fit_log(with_holes(data, rng), log)
    with pytest.raises(ParameterError, match="warm_start is 'yes', expected"):
        make("linear", warm_start="yes").fit_log(data, log)


# -- results


@pytest.fixture(scope="module")
def world():
    """Return training data, test data, and a ranker that knows the labels."""
    train, test = synthetic("tiny", n_queries=400, rng=SEED).split(0.5, 0.5, rng=SEED)
    good = CounterSampleRanker(learning_rate=0.003, steps=20_000, random_state=0)
    return train, test, good.fit_log(train, ClickLog.from_labels(train))


def ndcg(ranker, data):
    return evaluate(ranker, data, "ndcg@10")["ndcg@10"]


def successor(good):
    return make_successor(good.set_params(warm_start=True)).set_params(
        learning_rate=None, steps=None
    )


def test_a_good_ranker_is_not_lost_by_a_bad_day(world):
    train, test, good = world
    few = simulate_clicks(train, good.predict(train), 200, rng=SEED)
    anew = CounterSampleRanker(start="zero", safety=0, random_state=0).fit_log(train, few)
    for log in (few, few.replace(position=None)):
        warm = successor(good).fit_log(train, log)
        assert ndcg(warm, test) > max(ndcg(good, test) - 0.02, ndcg(anew, test))
        assert warm.path_.reference == ("logged" if log.position is not None else "previous")


def test_trees_stay_and_more_are_added(tomorrow):
    need("lightgbm")
    data, log = tiny()
    ranker = make("lightgbm", warm_start=True).fit_log(data, log)
    old = ranker.scorer_
    new = ranker.set_params(patience=None, n_trees=3).fit_log(data, tomorrow).scorer_
    assert ranker.n_trees_ == new.n_trees == old.n_trees + 3
    assert ranker.start_ == "previous"
    for name in ("feature", "threshold", "left", "right", "value"):
        np.testing.assert_array_equal(getattr(new, name)[: len(old.feature)], getattr(old, name))


def test_a_network_starts_at_its_weights(tomorrow):
    need("torch")
    data, log = tiny()
    ranker = make("neural", start="served", warm_start=True).fit_log(data, log)
    old = ranker.scorer_
    assert len(old.biases[0]) == 6  # two units carry the linear part
    ranker.set_params(patience=None, epochs=1, learning_rate=1e-12, l2=0.0)
    ranker.fit_log(data, tomorrow)
    assert ranker.start_ == "previous"
    for before, after in zip(old.weights, ranker.scorer_.weights, strict=True):
        np.testing.assert_allclose(after, before, atol=1e-8)
    with pytest.raises(ParameterError, match=r"hidden is \(5,\), and the network .* of \(6,\)"):
        ranker.set_params(hidden=(5,)).fit_log(data, tomorrow)


def test_trees_with_missing_values_continue_if_positions_are_known(rng):
    """The imitation of the logging policy has filled features, the trees do not."""
    need("lightgbm")
    data, log = tiny()
    holes = with_holes(data, rng)
    later = simulate_clicks(data, data.features[:, 0], 2000, rng=SEED + 1)
    ranker = make("lightgbm", warm_start=True, n_trees=3)
    for each in (log, later):
        ranker.fit_log(holes, each.replace(fingerprint=None))
    assert ranker.path_.reference == "logged"
    assert np.isfinite(ranker.predict(holes)).all()
