"""The ranker: scikit-learn's habits, what it learns, its choice of settings, its files, errors."""
# ruff: noqa: N806 (X is the field's name for it)

import json

import numpy as np
import pandas as pd
import pytest
import sklearn
from conftest import SEED
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from countersample import (
    ClickLog,
    PositionBias,
    RankingDataset,
    estimate,
    evaluate,
    load_letor,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.data.normalize import Normalizer
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.rankers import CounterSampleRanker, UnfittedRankerError, load_ranker
from countersample.training import train_many
from countersample.tuning import tune

# The grid of the paper: 1e-10, 3e-10, …, 1, 3.
PAPER_RATES = [m * 10.0**e for e in range(-10, 1) for m in (1, 3)]

NAMED_CLICKS = "what a ranker learns from is called clicks here, and y in scikit-learn"
AGAINST_RANKING = {
    "check_fit_score_takes_y": NAMED_CLICKS,
    "check_n_features_in_after_fitting": NAMED_CLICKS + " (passed by that name)",
    "check_dtype_object": "every error is a CounterSampleError; for bad data a ValueError as well, "
    "where this wants a TypeError",
}


@parametrize_with_checks(
    [CounterSampleRanker(steps=100)], expected_failed_checks=lambda _: AGAINST_RANKING
)
def test_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("scikit-learn skips it as well, unless SCIPY_ARRAY_API is set")
    check(estimator)


def make_log(dataset, *, relevant=3, n_clicks=100_000, seed=SEED):
    """The paper's setting: clicks on the rankings of a policy trained on 0.1 % of the queries."""
    scaled = dataset.normalized("minmax")
    judged = np.unique(ClickLog.from_labels(dataset, relevant=relevant).query)
    few = np.random.default_rng(seed).choice(judged, max(1, dataset.n_queries // 1000), False)
    seen = scaled.subset(few)
    labels = ClickLog.from_labels(seen, relevant=relevant)
    policy = train(seen, labels, learning_rate=0.01, steps=1000, rng=seed)
    return simulate_clicks(
        dataset, scaled.features @ policy.average_coef, n_clicks,
        bias=PositionBias(gamma=1.0), relevant=relevant, rng=seed,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tiny():
    dataset = synthetic("tiny", rng=SEED)
    return dataset, make_log(dataset, n_clicks=5000)


@pytest.fixture(scope="module")
def table(tiny):
    """The same as rows: features, clicks, query ids and propensities."""
    dataset, log = tiny
    merged = log.merge()
    rows = dataset.offsets[merged.query] + merged.item
    clicks, propensity = np.zeros(dataset.n_items), np.ones(dataset.n_items)
    clicks[rows], propensity[rows] = merged.count, merged.propensity
    qid = np.repeat(dataset.query_ids, dataset.query_sizes)
    return dataset.features, clicks, qid, propensity


def fitted(table, **params):
    X, clicks, qid, propensity = table
    ranker = CounterSampleRanker(**{"steps": 1000, "random_state": SEED} | params)
    return ranker.fit(X, clicks, qid=qid, propensity=propensity)


# -- what it learns


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("unit", ["click", "pair", "query"])
def test_it_is_train_on_normalised_features(tiny, unit, average):
    dataset, log = tiny
    ranker = CounterSampleRanker(
        unit=unit, learning_rate=0.003, steps=500, average=average, clip=0.2, random_state=SEED
    ).fit_log(dataset, log)
    scaled = dataset.normalized("minmax")
    clicks = ClickLog(log.query, log.item, log.propensity)
    result = train(
        scaled, clicks, unit=unit, learning_rate=0.003, steps=500, clip=0.2, rng=SEED,
        checkpoints=10,
    )  # fmt: skip
    np.testing.assert_array_equal(ranker.coef_, result.coef)
    np.testing.assert_array_equal(ranker.average_coef_, result.average_coef)
    np.testing.assert_array_equal(ranker.history_.coef, result.history.coef)
    weights = result.average_coef if average else result.coef
    np.testing.assert_allclose(ranker.predict(dataset), scaled.features @ weights, rtol=1e-6)
    assert ranker.n_steps_ == 500
    assert ranker.learning_rate_ == 0.003
    assert ranker.tuning_ is None
    assert ranker.fingerprint_ == dataset.fingerprint


def test_a_table_is_a_log(tiny, table):
    dataset, log = tiny
    by_log = CounterSampleRanker(steps=1000, random_state=SEED).fit_log(dataset, log.merge())
    np.testing.assert_array_equal(fitted(table).coef_, by_log.coef_)


@pytest.mark.parametrize("normalize", [None, "minmax", "standard", "query-minmax"])
def test_rows_may_come_in_any_order(table, rng, normalize):
    X, clicks, qid, propensity = table
    in_order = fitted(table, normalize=normalize)
    # Queries keep the order in which they are first seen, and rows that within their query.
    turns = np.argsort(np.arange(len(qid)) - np.searchsorted(qid, qid), kind="stable")
    mixed = fitted((X[turns], clicks[turns], qid[turns], propensity[turns]), normalize=normalize)
    np.testing.assert_array_equal(mixed.coef_, in_order.coef_)
    shuffled = rng.permutation(len(qid))
    scores = in_order.predict(X, qid)
    np.testing.assert_allclose(
        in_order.predict(X[shuffled], qid[shuffled]), scores[shuffled], rtol=1e-12, atol=1e-15
    )


def test_the_same_seed_gives_the_same_weights(table):
    a, b, other = fitted(table), fitted(table), fitted(table, random_state=SEED + 1)
    np.testing.assert_array_equal(a.coef_, b.coef_)
    assert not np.array_equal(a.coef_, other.coef_)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("objective", ["rank", "log-rank", "dcg"])
@pytest.mark.parametrize("method", ["countersample", "ips"])
def test_every_setting_learns(tiny, method, objective, optimizer):
    dataset, log = tiny
    ranker = CounterSampleRanker(
        method, objective=objective, optimizer=optimizer, steps=3000, random_state=SEED
    ).fit_log(dataset, log)
    chance = np.random.default_rng(SEED).random(dataset.n_items)
    learned, random = (
        evaluate(scores, dataset, "ndcg@10", no_relevant="skip")["ndcg@10"]
        for scores in (ranker.predict(dataset), chance)
    )
    assert learned > random + 0.05


def test_rank_and_score():
    X = [[1.0], [3.0], [3.0], [2.0], [0.0]]
    clicks, qid = [0, 1, 0, 0, 1], [1, 1, 1, 2, 2]
    ranker = CounterSampleRanker(learning_rate=0.1, steps=10, unit="pair", random_state=0)
    ranker.fit(X[:3], clicks[:3], qid=qid[:3])
    assert ranker.rank(X, qid).tolist() == [3, 1, 2, 1, 2]
    # weights 1/0.5 at rank 1 and 1/0.25 at rank 2
    expected = (2 / np.log2(2) + 4 / np.log2(3)) / (2 + 4)
    found = ranker.score(X, clicks, qid=qid, propensity=[1, 0.5, 0, 0, 0.25])
    assert found == pytest.approx(expected, rel=1e-12)


# -- its choice of a learning rate


def against_the_papers_grid(splits, *, steps):
    """nDCG@10 on labels: the mean of the default ranker, and of the best of the paper's rates."""
    found, by_rate = [], []
    for seed, (learned, held_out, relevant) in enumerate(splits, start=SEED):
        log = make_log(learned, relevant=relevant, seed=seed)
        ranker = CounterSampleRanker(steps=steps, random_state=seed).fit_log(learned, log)
        scaled, judged = ranker.normalizer_(learned), ranker.normalizer_(held_out)
        results = train_many(
            scaled, ClickLog(log.query, log.item, log.propensity), learning_rates=PAPER_RATES,
            unit="query", steps=ranker.n_steps_, seeds=[seed],
        )  # fmt: skip
        means = [
            evaluate(scores, held_out, "ndcg@10", no_relevant="skip")["ndcg@10"]
            for scores in (
                ranker.predict(held_out), *(judged.features @ r.average_coef for r in results)
            )
        ]  # fmt: skip
        found.append(means[0])
        by_rate.append(means[1:])
    return np.mean(found), np.mean(by_rate, axis=0).max()


@pytest.mark.parametrize(("shape", "n_queries"), [("yahoo-like", 2000), ("istella-like", 1000)])
def test_default_rate_is_as_good_as_the_best_of_the_papers(shape, n_queries):
    datasets = [synthetic(shape, n_queries=n_queries, rng=SEED + k) for k in range(2)]
    splits = [(*dataset.split(0.7, 0.3, rng=SEED), 3) for dataset in datasets]
    found, best = against_the_papers_grid(splits, steps=10_000)
    assert found >= 0.985 * best


def test_default_rate_on_mq2008(shared):
    parts = [load_letor(shared / "mq2008" / f"S{k}.txt.xz") for k in range(1, 6)]

    def joined(chosen):
        sizes = np.concatenate([part.query_sizes for part in chosen])
        return RankingDataset(
            np.concatenate([part.features for part in chosen]),
            np.concatenate([part.labels for part in chosen]),
            np.append(0, np.cumsum(sizes)),
            np.concatenate([part.query_ids for part in chosen]),
        )

    splits = [(joined(parts[:k] + parts[k + 1 :]), parts[k], 1) for k in range(5)]
    found, best = against_the_papers_grid(splits, steps=None)
    assert found >= 0.98 * best  # 780 judged queries in all: the best of 22 is lucky by as much


def test_auto_is_what_tune_chooses(tiny):
    dataset, log = tiny
    options = {"unit": "query", "steps": 400, "l2": 0.01}
    ranker = CounterSampleRanker(**options, clip=0.2, random_state=SEED).fit_log(dataset, log)
    log = ClickLog(log.query, log.item, log.propensity)
    found = tune(
        dataset.normalized("minmax"), log, clips=[0.2], fewer_steps=False, rng=SEED, **options
    )
    assert ranker.tuning_ == found
    assert ranker.learning_rate_ == found.learning_rate
    assert ranker.n_steps_ == found.steps == 400


def test_a_rate_that_diverges_is_never_chosen(tiny):
    dataset, log = tiny
    ranker = CounterSampleRanker(l2=1e3, steps=2000, random_state=SEED).fit_log(dataset, log)
    assert any(trial.value == -np.inf for trial in ranker.tuning_.trials)
    assert np.isfinite(ranker.coef_).all()


def test_a_log_of_all_that_was_shown_is_taken(tiny):
    dataset, log = tiny
    merged = log.merge()
    shown = ClickLog(
        np.append(merged.query, 0), np.append(merged.item, 0), np.append(merged.propensity, 1.0),
        np.append(merged.count, 0), impressions=np.append(2 * merged.count, 5), n_sessions=10_000,
    )  # fmt: skip
    a, b = (
        CounterSampleRanker(steps=300, random_state=SEED).fit_log(dataset, each)
        for each in (merged, shown)
    )
    np.testing.assert_array_equal(a.coef_, b.coef_)


def test_it_tells_how_far_it_is(tiny):
    told = []
    CounterSampleRanker(steps=100, random_state=SEED).fit_log(
        *tiny, report=lambda what, share: told.append((what, share))
    )
    assert {what for what, _ in told} == {"trying learning rates", "training"}
    assert all(0 <= share <= 1 for _, share in told)
    assert told[-1] == ("training", 1.0)


# -- in scikit-learn's tools


def test_params_and_clone():
    ranker = CounterSampleRanker("ips", "click", l2=0.1).set_params(steps=7)
    copy = clone(ranker)
    assert copy.get_params() == ranker.get_params()
    assert (copy.method, copy.unit, copy.l2, copy.steps) == ("ips", "click", 0.1, 7)


def test_cross_validation_by_query(table):
    X, clicks, qid, propensity = table
    metadata = {"qid": qid, "propensity": propensity}
    with sklearn.config_context(enable_metadata_routing=True):
        requested = {"qid": True, "propensity": True}
        ranker = CounterSampleRanker(learning_rate=0.01, steps=300, random_state=SEED)
        ranker.set_fit_request(**requested).set_score_request(**requested)
        scores = cross_val_score(
            ranker, X, clicks, cv=GroupKFold(3), params=metadata | {"groups": qid}
        )
        search = GridSearchCV(
            ranker, {"learning_rate": [1e-9, 1e-2], "method": ["countersample", "ips"]},
            cv=GroupKFold(3),
        ).fit(X, clicks, groups=qid, **metadata)  # fmt: skip
    assert scores.shape == (3,)
    assert ((scores > 0) & (scores <= 1)).all()
    assert search.best_score_ >= scores.mean()
    assert search.predict(X).shape == (len(X),)


def test_score_without_queries_is_refused(table):
    X, clicks, _, propensity = table
    ranker = fitted(table)
    with pytest.raises(ParameterError, match="set_score_request"):
        ranker.score(X, clicks, propensity=propensity)
    with pytest.raises(ParameterError, match="qid is None, expected the query of each row"):
        fitted(table, normalize="query-minmax").predict(X)


# -- files


@pytest.mark.parametrize("normalize", [None, "minmax", "standard", "query-minmax"])
def test_a_saved_ranker_scores_the_same_to_the_bit(table, tmp_path, normalize):
    X, _, qid, _ = table
    ranker = fitted(table, normalize=normalize, l2=np.float32(0.1), radius=np.inf)
    ranker.save(tmp_path / "ranker.json")
    loaded = load_ranker(tmp_path / "ranker.json")
    np.testing.assert_array_equal(loaded.predict(X, qid), ranker.predict(X, qid))
    np.testing.assert_array_equal(loaded.coef_, ranker.coef_)
    np.testing.assert_array_equal(loaded.average_coef_, ranker.average_coef_)
    assert loaded.get_params() == ranker.get_params()
    assert loaded.normalizer_ == ranker.normalizer_
    assert not hasattr(loaded, "feature_names_in_")
    for name in ("n_features_in_", "n_queries_", "n_steps_", "learning_rate_", "fingerprint_"):
        assert getattr(loaded, name) == getattr(ranker, name)
    kept = json.loads((tmp_path / "ranker.json").read_text())["ranker"]
    assert set(kept["written_by"]) == {"countersample", "numpy", "python", "scikit-learn"}


def test_names_are_saved(tmp_path):
    frame = pd.DataFrame({"bm25": [0.1, 0.9], "größe": [1.0, 2.0]})
    rng = np.random.default_rng(SEED)
    CounterSampleRanker(steps=10, random_state=rng).fit(frame, [0, 1]).save(tmp_path / "r")
    loaded = CounterSampleRanker.load(tmp_path / "r")
    assert loaded.feature_names_in_.tolist() == ["bm25", "größe"]
    assert loaded.random_state is None
    with pytest.raises(DataError, match="order"):
        loaded.predict(frame[["größe", "bm25"]])


def test_files_that_are_refused(table, tmp_path):
    path = tmp_path / "ranker.json"
    fitted(table).save(path)
    text = path.read_text()

    def refused(content, match):
        path.write_text(content)
        with pytest.raises(DataError, match=match) as raised:
            load_ranker(path)
        assert str(path) in str(raised.value)

    refused("", "not a ranker file")
    refused('{"some": "json"}', "not a ranker file")
    refused(text[: len(text) // 2], "a damaged ranker file")
    refused(text.replace('"steps": 1000', '"steps": 1001'), "damaged ranker file .it was changed")
    refused(text.replace('"version": 2', '"version": 1', 1), "format version 1, expected 2")
    refused(text.replace('"version": 2', '"version": 3', 1), "format version 3, expected 2")
    path.unlink()
    with pytest.raises(DataError, match="No such file"):
        load_ranker(path)
    with pytest.raises(CounterSampleError, match="cannot save a object, expected plain values"):
        fitted(table).set_params(clip=object()).save(path)
    assert not path.exists()


# -- errors


def test_other_features_than_in_training(tiny, table):
    dataset, log = tiny
    ranker = fitted(table)
    with pytest.raises(DataError, match=r"X has 4 features, but .* is expecting 5"):
        ranker.predict(dataset.features[:, :4])
    with pytest.raises(DataError, match="X has 4 features, expected 5"):
        ranker.predict(dataset.with_features(np.ascontiguousarray(dataset.features[:, :4])))
    X = dataset.features[:3].copy()
    X[1, 2] = np.nan
    with pytest.raises(DataError, match="X has NaN in row 1, column 2"):
        ranker.predict(X)
    named, swapped = (
        RankingDataset(dataset.features, dataset.labels, dataset.offsets, dataset.query_ids, names)
        for names in (("a", "b", "c", "d", "e"), ("a", "c", "b", "d", "e"))
    )
    log = ClickLog(log.query, log.item, log.propensity)
    by_name = CounterSampleRanker(steps=10, random_state=SEED).fit_log(named, log)
    assert by_name.predict(dataset).shape == (dataset.n_items,)  # no names, no question
    with pytest.raises(DataError, match="feature 1 of X is 'c', expected 'b'"):
        by_name.predict(swapped)
    by_name.fit_log(dataset, log)
    assert not hasattr(by_name, "feature_names_in_")


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"clicks": [0, 0, 0]}, "clicks are all 0"),
        ({"clicks": [1, -2, 0]}, "clicks is -2 in row 1, expected a number of at least 0"),
        ({"clicks": ["a", "b", "c"]}, "clicks must be numbers"),
        ({"clicks": [1, 0]}, "inconsistent numbers of samples"),
        ({"propensity": [1, 0, 1]}, "propensity is 0 in row 1, expected a number above 0"),
        ({"propensity": [1, 1.5, 1]}, "propensity is 1.5 in row 1"),
        ({"propensity": [1, np.nan, 1]}, "propensity is nan in row 1"),
        ({"propensity": [1, 1]}, r"propensity has shape \(2,\), expected \(3,\)"),
        ({"propensity": ["x", "y", "z"]}, "propensity must be numbers"),
        ({"qid": [1, 1]}, r"qid has shape \(2,\), expected \(3,\)"),
        ({"qid": [0.5, 1.0, 1.0]}, "query ids are of type float64"),
        ({"qid": [1, 2, 3]}, "no clicked item differs from the other items of its query"),
        ({"X": [[1.0], [1.0], [1.0]]}, "no clicked item differs"),
        ({"X": [[0.0], [1e300], [1.0]]}, "X has inf in row 1, column 0"),
    ],
)
def test_bad_tables(changed, match):
    good = {"X": [[0.0], [1.0], [0.5]], "clicks": [0, 2, 0], "qid": None, "propensity": None}
    with pytest.raises(DataError, match=match):
        CounterSampleRanker(steps=10).fit(**good | changed)


def test_the_propensity_of_what_is_not_clicked_does_not_matter():
    X, clicks = [[0.0], [1.0], [0.5]], [0, 2, 0]
    a, b = (
        CounterSampleRanker(steps=10, random_state=0).fit(X, clicks, propensity=[other, 0.5, 7])
        for other in (np.nan, 1.0)
    )
    np.testing.assert_array_equal(a.coef_, b.coef_)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"method": "magic"}, "is 'magic', expected one of"),
        ({"unit": "session"}, "unit is 'session'"),
        ({"objective": "map"}, "objective is 'map'"),
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast', expected 'auto' or a number"),
        ({"learning_rate": -1}, "learning_rate is -1.0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"normalize": "max"}, "how is 'max'"),
        ({"clip": 0}, "clip is 0, expected a number in"),
    ],
)
def test_bad_parameters_are_refused_by_fit(params, match):
    ranker = CounterSampleRanker(**params)
    with pytest.raises(ParameterError, match=match):
        ranker.fit([[0.0], [1.0]], [0, 1])


def test_an_untrained_ranker_says_so(tmp_path):
    ranker = CounterSampleRanker()
    for use in (
        lambda: ranker.predict([[1.0]]),
        lambda: ranker.rank([[1.0]]),
        lambda: ranker.score([[1.0]], [1]),
        lambda: ranker.save(tmp_path / "x"),
    ):
        with pytest.raises(UnfittedRankerError, match="not fitted yet: call fit or fit_log"):
            use()


def test_the_normalizer_is_that_of_the_training_data(tiny):
    dataset, log = tiny
    ranker = CounterSampleRanker(steps=10, normalize="standard", random_state=SEED)
    assert ranker.fit_log(dataset, log).normalizer_ == Normalizer.fit(dataset, "standard")


def test_evaluation_sees_names_and_queries(rng):
    """A ranker gets the dataset itself, so that names are checked and queries are known."""
    X, clicks = rng.random((40, 2), np.float32), rng.integers(0, 3, 40)
    qid = np.repeat(np.arange(8), 5)
    named = RankingDataset.from_arrays(X=X, y=clicks, qid=qid, feature_names=["a", "b"])
    turned = RankingDataset.from_arrays(X=X, y=clicks, qid=qid, feature_names=["b", "a"])
    log = ClickLog.from_labels(named)
    ranker = CounterSampleRanker(steps=100, normalize="query-minmax", random_state=0)
    ranker.fit_log(named, log)
    scores = ranker.predict(named)
    assert evaluate(ranker, named, "ndcg") == evaluate(scores, named, "ndcg")
    assert estimate(ranker, log, named, rng=0).value == estimate(scores, log, named, rng=0).value
    assert len(simulate_clicks(named, ranker, 10, relevant=1, rng=0)) == 10
    for look in (
        lambda: evaluate(ranker, turned, "ndcg"),
        lambda: estimate(ranker, ClickLog.from_labels(turned), turned),
        lambda: simulate_clicks(turned, ranker, 10, relevant=1),
    ):
        with pytest.raises(DataError, match="feature 0 of X is 'b', expected 'a'"):
            look()


def test_features_that_are_the_same_for_all_items_of_a_query(rng):
    X = np.repeat(rng.random((10, 3), np.float32), 4, axis=0)
    clicks = np.tile([1, 0, 0, 0], 10)
    with pytest.raises(DataError, match="nothing to learn from"):
        CounterSampleRanker().fit(X, clicks, qid=np.repeat(np.arange(10), 4))


def test_a_random_state_that_is_none(table):
    with pytest.raises(ParameterError, match="random_state is -1, expected an integer"):
        fitted(table, random_state=-1)


def test_names_in_another_order_are_one_sentence(rng):
    frame = pd.DataFrame(rng.random((4, 3)), columns=list("abc"))
    ranker = CounterSampleRanker(steps=10, random_state=0).fit(frame, [0, 1, 0, 2])
    with pytest.raises(DataError) as raised:
        ranker.predict(frame[list("acb")])
    assert "\n" not in str(raised.value)
