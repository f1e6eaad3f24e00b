"""Rankers that go on from an earlier one: what they take over, and where they begin."""
# ruff: noqa: N806 (X is the field's name for it)

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from conftest import SEED
from every_ranker import each_of, every, fit, fitted, make, table, tiny
from requirements import need

from countersample import ClickLog, RankingDataset, evaluate, load_ranker, simulate_clicks
from countersample.data import synthetic
from countersample.data.normalize import METHODS as NORMALIZATIONS
from countersample.errors import DataError, ParameterError
from countersample.evaluation import HeldOut
from countersample.fitting import judge_training
from countersample.rankers import CounterSampleRanker, LostFeatureWarning
from countersample.rankers._stopping import Judged, Way, choose_round
from countersample.rankers._warm import beginning_of, going_on, untrained, what_it_brings
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer


def named(dataset, names, features=None):
    features = dataset.features if features is None else features
    return RankingDataset(
        np.ascontiguousarray(features), dataset.labels, dataset.offsets, dataset.query_ids,
        tuple(names),
    )  # fmt: skip


def clicks(seed, n_clicks=2000):
    dataset, _ = tiny()
    return simulate_clicks(dataset, dataset.features[:, 1], n_clicks, rng=seed)


@pytest.fixture(scope="module")
def tomorrow():
    return clicks(SEED + 1)


# -- where it begins


@every
def test_fit_goes_on_where_asked_and_begins_anew_where_not(kind, tomorrow):
    dataset, log = tiny()
    anew = make(kind).fit_log(dataset, tomorrow)
    again = make(kind).fit_log(dataset, log).fit_log(dataset, tomorrow)
    np.testing.assert_array_equal(again.predict(dataset), anew.predict(dataset))
    assert "previous" not in again.provenance_
    warm = make(kind, warm_start=True).fit_log(dataset, log)
    assert "previous" not in warm.provenance_  # there was nothing yet
    np.testing.assert_array_equal(warm.predict(dataset), fitted(kind).predict(dataset))
    warm.fit_log(dataset, tomorrow)
    assert warm.provenance_["previous"] == {"n_clicks": 2000, "updates": 1}
    assert not np.array_equal(warm.predict(dataset), anew.predict(dataset))
    warm.fit_log(dataset, tomorrow)
    assert warm.provenance_["previous"] == {"n_clicks": 4000, "updates": 2}


@every
def test_from_a_file_it_goes_on_to_the_same_bytes(kind, tomorrow, tmp_path):
    dataset, _ = tiny()
    warm = make(kind, warm_start=True).fit_log(*tiny())
    warm.save(tmp_path / "yesterday.json")
    for name, ranker in (("a", warm), ("b", load_ranker(tmp_path / "yesterday.json"))):
        ranker.fit_log(dataset, tomorrow).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert load_ranker(tmp_path / "a").provenance_["previous"]["updates"] == 1


@every
def test_partial_fit(kind):
    X, y, qid, propensity = table()
    rows = {"qid": qid, "propensity": propensity}
    first = make(kind).partial_fit(X, y, **rows)
    np.testing.assert_array_equal(first.predict(X), fit(make(kind), table()).predict(X))
    other = np.roll(y, 1)
    ranker = make(kind, warm_start=True).fit(X, y, **rows).fit(X, other, qid=qid)
    partly = first.partial_fit(X, other, qid=qid)
    np.testing.assert_array_equal(partly.predict(X), ranker.predict(X))
    assert partly.normalizer_ is None or partly.normalizer_ == ranker.normalizer_
    with pytest.raises(DataError, match=r"X has 4 features, but .* is expecting 5"):
        partly.partial_fit(X[:, :4], y, qid=qid)
    frame = pd.DataFrame(X, columns=list("abcde"))
    partly = make(kind).partial_fit(frame, y, **rows)
    with pytest.raises(DataError, match="feature names should match"):
        partly.partial_fit(frame.rename(columns={"a": "z"}), y, **rows)


@every
def test_the_scale_stays_that_of_the_first(kind, tomorrow):
    dataset, log = tiny()
    wide = dataset.with_features(dataset.features * np.float32(3))
    ranker = make(kind, warm_start=True, normalize="minmax").fit_log(dataset, log)
    before = ranker.normalizer_
    ranker.fit_log(wide, ClickLog(tomorrow.query, tomorrow.item, tomorrow.propensity))
    assert ranker.normalizer_ == before


@every
def test_copies_that_judge_begin_where_the_ranker_began(kind, tomorrow):
    """Else they would know the clicks that they are judged by."""
    dataset, log = tiny()
    ranker = make(kind, warm_start=True).fit_log(dataset, log)
    assert beginning_of(untrained(ranker)) is None
    begin = what_it_brings(ranker)
    copied = going_on(ranker)
    assert not hasattr(copied, "scorer_")
    assert beginning_of(copied).scorer is begin.scorer is ranker.scorer_
    copied.fit_log(dataset, tomorrow)
    assert beginning_of(untrained(copied)).scorer is ranker.scorer_
    assert beginning_of(copied).scorer is copied.scorer_
    assert judge_training(copied, dataset, tomorrow).gain is not None
    assert beginning_of(going_on(make(kind))) is None


# -- features


@pytest.mark.parametrize("normalize", [None, *NORMALIZATIONS])
@every
def test_features_are_found_by_name_and_new_ones_change_nothing(kind, normalize, rng):
    data, log = tiny()
    log = ClickLog(log.query, log.item, log.propensity)
    ranker = make(kind, normalize=normalize).fit_log(named(data, "abcde"), log)
    new = rng.lognormal(2, 3, size=(data.n_items, 1)).astype(np.float32)
    order = [3, 1, 4, 0, 2]
    wide = named(data, (*"dbeac", "new"), np.hstack([data.features[:, order], new]))
    imputer, normalizer, scorer = what_it_brings(ranker).taken_over(wide, ranker, None)
    assert imputer is None
    features = wide.features
    if normalizer is not None:
        features = normalizer.features(features, wide.offsets)
    np.testing.assert_allclose(scorer.predict(features), ranker.predict(data), rtol=1e-5, atol=1e-5)
    if normalizer is not None and normalizer.scale is not None:
        assert normalizer.scale[:5] == tuple(ranker.normalizer_.scale[k] for k in order)
        assert normalizer.scale[5] > 0
    warm = ranker.set_params(warm_start=True).fit_log(wide, log)
    assert warm.feature_names_in_.tolist() == ["d", "b", "e", "a", "c", "new"]
    assert warm.predict(wide).shape == (wide.n_items,)


@pytest.mark.parametrize("before", [False, True])
@every
def test_what_is_missing_is_filled_in_as_before(kind, before, rng):
    """Whether or not values were missing then, it scores whole rows as it did; trees, too."""
    data, log = tiny()
    log = ClickLog(log.query, log.item, log.propensity)
    features = data.features.copy()
    features[rng.random(data.n_items) < 0.3, 1] = np.nan
    holes = named(data, "abcde", features)
    start = {"start": "linear"} if kind in {"lightgbm", "xgboost"} else {}
    ranker = make(kind, **start).fit_log(holes if before else named(data, "abcde"), log)
    order = [3, 1, 4, 0, 2]
    features = features[:, order].copy()
    features[rng.random(data.n_items) < 0.3, 2] = np.nan  # missing today for the first time
    today = named(data, "dbeac", features)
    whole = np.isfinite(features).all(axis=1)
    imputer, normalizer, scorer = what_it_brings(ranker).taken_over(
        today, ranker, ranker._imputer(today)
    )
    seen = today if imputer is None else imputer(today)
    seen = seen.features if normalizer is None else normalizer(seen).features
    found = scorer.predict(seen)
    assert np.isfinite(found).all()
    expected = ranker.predict(data)
    np.testing.assert_allclose(found[whole], expected[whole], rtol=1e-5, atol=1e-5)
    if before:
        only = np.isnan(features[:, 1]) & np.isfinite(features[:, 2])
        known = ranker.predict(holes)
        np.testing.assert_allclose(found[only], known[only], rtol=1e-5, atol=1e-5)
    if imputer is not None:
        assert imputer.indicators == (1, 2)
    warm = ranker.set_params(warm_start=True).fit_log(today, log)
    assert np.isfinite(warm.predict(today)).all()


@pytest.mark.parametrize("transform", ["log", "root", "quantile", "auto"])
@each_of(["linear", "neural"])
def test_a_transform_stays_as_it_was(kind, transform, rng):
    data, log = tiny()
    log = ClickLog(log.query, log.item, log.propensity)
    heavy = named(data, "abcde", np.exp(3 * data.features))
    held_out = {"linear": {"learning_rate": None}, "neural": {"patience": 2}}[kind]  # for "auto"
    ranker = make(kind, feature_transform=transform, **held_out).fit_log(heavy, log)
    new = rng.lognormal(2, 3, size=(data.n_items, 1)).astype(np.float32)
    wide = named(data, (*"edcba", "new"), np.hstack([heavy.features[:, ::-1], new]))
    _, normalizer, scorer = what_it_brings(ranker).taken_over(wide, ranker, None)
    found = scorer.predict(normalizer(wide).features)
    np.testing.assert_allclose(found, ranker.predict(heavy), rtol=1e-4, atol=1e-5)
    assert normalizer.transform_name == ranker.feature_transform_
    other = "quantile" if ranker.feature_transform_ != "quantile" else "log"
    if ranker.feature_transform_ is not None:
        with pytest.raises(
            ParameterError, match=f"feature_transform is '{other}' where the ranker"
        ):
            ranker.set_params(warm_start=True, feature_transform=other).fit_log(wide, log)


@every
def test_a_lost_feature_goes_with_a_sentence(kind):
    """Trees that split at it cannot do without."""
    data, log = tiny()
    log = ClickLog(log.query, log.item, log.propensity)
    ranker = make(kind, warm_start=True).fit_log(named(data, "abcde"), log)
    less = named(data, "acde", data.features[:, [0, 2, 3, 4]])
    says = nullcontext()
    if isinstance(ranker.scorer_, TreesScorer) and 1 in ranker.scorer_.feature:
        says = pytest.raises(DataError, match="trees split at a feature that is no longer there")
    with pytest.warns(LostFeatureWarning, match="goes on without them: b$"), says:
        ranker.fit_log(less, log)
    assert ranker.n_features_in_ == (4 if isinstance(says, nullcontext) else 5)


def test_a_feature_that_was_constant_is_new():
    data, log = tiny()
    log = ClickLog(log.query, log.item, log.propensity)
    flat = data.features.copy()
    flat[:, 2] = 7
    ranker = CounterSampleRanker(warm_start=True, random_state=SEED)
    ranker.fit_log(data.with_features(flat), log)
    assert ranker.normalizer_.scale[2] == 0
    scale = ranker.normalizer_.scale
    ranker.fit_log(data, log)
    assert ranker.normalizer_.scale[2] == np.ptp(data.features[:, 2])
    assert ranker.normalizer_.scale[:2] == scale[:2]


def test_what_does_not_fit():
    data, log = tiny()
    log = ClickLog(log.query, log.item, log.propensity)
    ranker = make("linear", warm_start=True).fit_log(data, log)
    four = data.with_features(np.ascontiguousarray(data.features[:, :4]))
    with pytest.raises(DataError, match=r"has 4 features, expected 5.*have no names"):
        ranker.fit_log(four, log)
    with pytest.raises(ParameterError, match=r"normalize is 'standard' where .* has 'minmax'"):
        ranker.set_params(normalize="standard").fit_log(data, log)
    ranker = make("linear", warm_start=True).fit_log(named(data, "abcde"), log)
    with pytest.raises(DataError, match=r"none of the features .* \(a, b, c, d, e\) is in the"):
        ranker.fit_log(named(data, "vwxyz"), log)
    with pytest.raises(ParameterError, match="warm_start is 'yes', expected"):
        make("linear", warm_start="yes").fit_log(data, log)


def test_many_names_are_not_all_told():
    data, log = tiny()
    log = ClickLog(log.query, log.item, log.propensity)
    wide = np.hstack([data.features, data.features])
    ranker = make("linear", warm_start=True).fit_log(named(data, "abcdefghij", wide), log)
    with pytest.warns(LostFeatureWarning, match="d, e, f, g, h and 2 more$"):
        ranker.fit_log(named(data, "abc", data.features[:, :3]), log)


# -- what comes of it


def judge(sign, held_out):
    sums = np.array(
        [held_out.sums([each * f.validation.labels for f in held_out.folds]) for each in sign]
    )
    return Judged(np.arange(len(sign)), sums, np.array([held_out.value(each) for each in sums]))


def test_rounds_are_compared_with_it_where_what_was_logged_is_not_known():
    data, log = tiny()
    held_out = HeldOut(data, log, "dcg@10", rng=np.random.default_rng(SEED))

    def chosen(*signs):
        return choose_round(
            held_out, {Way("previous"): judge(signs, held_out)}, served=None, safety=0.95,
            temper=1.0, rng=np.random.default_rng(SEED),
        )  # fmt: skip

    better, worse = chosen(-1, 1), chosen(1, -1)
    assert better.begins == ("previous", 1)
    assert worse.begins == ("previous", 0)
    assert (worse.path.reference, worse.path.keeps, worse.path.kept) == ("previous", "previous", 1)
    assert worse.path.sentence.startswith("Nothing was shown to be better than the ranker it goes")
    assert worse.path.sentence.endswith("The ranker stays as it was.")


@pytest.fixture(scope="module")
def world():
    """Return what is learned from, what is tested on, and a ranker that knows the labels."""
    train, test = synthetic("tiny", n_queries=400, rng=SEED).split(0.5, 0.5, rng=SEED)
    good = CounterSampleRanker(learning_rate=0.003, steps=20_000, random_state=0)
    return train, test, good.fit_log(train, ClickLog.from_labels(train))


def ndcg(ranker, data):
    return evaluate(ranker, data, "ndcg@10")["ndcg@10"]


def test_a_good_ranker_is_not_lost_by_a_bad_day(world):
    """It is what is served, and a few clicks show nothing better: it stays, or nearly."""
    train, test, good = world
    few = simulate_clicks(train, good.predict(train), 200, rng=SEED)
    for log in (few, few.replace(position=None)):  # where it is known, and not, what was served
        warm = going_on(good.set_params(warm_start=True))
        warm.set_params(learning_rate=None, steps=None).fit_log(train, log)
        assert ndcg(warm, test) > ndcg(good, test) - 0.02
        assert warm.path_.reference == ("logged" if log.position is not None else "previous")
        anew = CounterSampleRanker(start="zero", safety=0, random_state=0).fit_log(train, few)
        assert ndcg(warm, test) > ndcg(anew, test)


def test_what_is_kept_is_the_ranker_itself_where_it_is_what_is_served(world):
    train, _, good = world
    few = simulate_clicks(train, good.predict(train), 30, rng=SEED).detached()
    few = few.of_queries(few.query[:5])  # by fewer than eight queries nothing is shown
    warm = going_on(good.set_params(warm_start=True)).set_params(learning_rate=None, steps=None)
    warm.fit_log(train, few, baseline=good.predict(train))
    assert warm.path_.kept == 1
    assert warm.path_.keeps == "previous"
    np.testing.assert_array_equal(warm.rank(train), good.rank(train))


def test_a_bad_ranker_is_left(world):
    train, test, good = world
    bad = LinearScorer(-good.weights_)
    ranker = going_on(good.set_params(warm_start=True)).set_params(learning_rate=None, steps=None)
    many = simulate_clicks(train, good.predict(train), 20_000, rng=SEED)
    object.__setattr__(ranker._began_at, "scorer", bad)
    ranker.fit_log(train, many)
    assert ndcg(ranker, test) > ndcg(good, test) - 0.05


def test_a_run_with_a_learning_rate_goes_on_at_its_weights():
    data, log = tiny()
    ranker = make("linear", warm_start=True).fit_log(data, log)
    before = ranker.weights_
    ranker.set_params(learning_rate=1e-9).fit_log(data, log)
    np.testing.assert_allclose(ranker.weights_, before, atol=1e-4)


def test_zero_steps_is_a_candidate(tomorrow):
    data, _ = tiny()
    ranker = CounterSampleRanker(warm_start=True, random_state=SEED).fit_log(*tiny())
    ranker.fit_log(data, tomorrow)
    found = [each for each in ranker.path_.candidates if each.steps == 0]
    assert [each.start for each in found] == ["previous"]
    assert {each.start for each in ranker.path_.candidates} == {"previous"}


def test_trees_stay_and_more_are_added(tomorrow):
    data, log = tiny()
    need("lightgbm")
    ranker = make("lightgbm", warm_start=True).fit_log(data, log)
    old = ranker.scorer_
    ranker.set_params(patience=None, n_trees=3).fit_log(data, tomorrow)
    new = ranker.scorer_
    assert ranker.n_trees_ == new.n_trees == old.n_trees + 3
    assert ranker.start_ == "previous"
    n_nodes = len(old.feature)
    for name in ("feature", "threshold", "left", "right", "value"):
        np.testing.assert_array_equal(getattr(new, name)[:n_nodes], getattr(old, name))
    added = TreesScorer(
        new.n_features, new.roots[old.n_trees :] - n_nodes, new.feature[n_nodes:],
        new.threshold[n_nodes:], np.maximum(new.left[n_nodes:] - n_nodes, 0),
        np.maximum(new.right[n_nodes:] - n_nodes, 0), new.value[n_nodes:],
    )  # fmt: skip
    np.testing.assert_allclose(
        new.predict(data.features), old.predict(data.features) + added.predict(data.features)
    )
    need("xgboost")
    import xgboost as other

    assert other
    ranker.set_params(backend="xgboost", backend_params={"nthread": 1}).fit_log(data, tomorrow)
    assert ranker.n_trees_ == ranker.scorer_.n_trees == old.n_trees + 6


def test_a_network_goes_on_at_its_weights(tomorrow):
    need("torch")
    data, log = tiny()
    ranker = make("neural", warm_start=True).fit_log(data, log)
    old = ranker.scorer_
    ranker.set_params(patience=None, epochs=1, learning_rate=1e-12, l2=0.0)
    ranker.fit_log(data, tomorrow)
    assert isinstance(old, NetworkScorer)
    for before, after in zip(old.weights, ranker.scorer_.weights, strict=True):
        np.testing.assert_allclose(after, before, atol=1e-8)
    with pytest.raises(ParameterError, match=r"hidden is \(5,\) where the network .* of \([46],\)"):
        ranker.set_params(hidden=(5,)).fit_log(data, tomorrow)


def test_a_network_with_a_linear_part_goes_on_as_one():
    need("torch")
    data, log = tiny()
    ranker = make("neural", start="served", warm_start=True).fit_log(data, log)
    assert len(ranker.scorer_.biases[0]) == 6  # two units carry the linear part
    ranker.set_params(patience=None, epochs=1).fit_log(data, log)
    assert len(ranker.scorer_.biases[0]) == 6
    assert ranker.start_ == "previous"


def with_holes(data, rng):
    features = data.features.copy()
    features[rng.random(data.n_items) < 0.3, 1] = np.nan
    return named(data, "abcde", features)


def test_trees_with_holes_go_on_where_positions_are_known(rng):
    """The imitation of what was served is of filled features, the trees are not."""
    data, log = tiny()
    holes = with_holes(data, rng)
    later = simulate_clicks(data, data.features[:, 0], 2000, rng=SEED + 1)
    ranker = make("lightgbm", warm_start=True, n_trees=3)
    for each in (log, later):
        ranker.fit_log(holes, each.replace(fingerprint=None))
    assert ranker.path_.reference == "logged"
    assert np.isfinite(ranker.predict(holes)).all()


@every
def test_a_batch_may_have_holes_for_the_first_time(kind, rng):
    features, clicks, qid, propensity = table()
    ranker = make(kind).partial_fit(features, clicks, qid=qid, propensity=propensity)
    features = features.copy()
    features[rng.random(len(features)) < 0.3, 1] = np.nan
    ranker.partial_fit(features, clicks, qid=qid, propensity=propensity)
    assert np.isfinite(ranker.predict(features, qid)).all()


def test_a_refused_update_leaves_the_ranker_as_it_was():
    data, log = tiny()
    frame = pd.DataFrame(data.features, columns=list("abcde"))
    qid = np.repeat(data.query_ids, data.query_sizes)
    clicks = np.bincount(data.offsets[log.query] + log.item, minlength=data.n_items)
    ranker = make("linear", warm_start=True).fit(frame, clicks, qid=qid)
    before = ranker.predict(frame)
    with pytest.raises(DataError, match="none of the features"):
        ranker.fit(frame.rename(columns=str.upper), clicks, qid=qid)
    assert ranker.predict(frame).tolist() == before.tolist()


def test_another_way_to_fill_in_is_refused(rng):
    data, log = tiny()
    log = log.replace(fingerprint=None)
    ranker = make("linear", warm_start=True).fit_log(with_holes(data, rng), log)
    with pytest.raises(ParameterError, match="impute is 'zero' where the ranker to go on from"):
        ranker.set_params(impute="zero").fit_log(with_holes(data, rng), log)
