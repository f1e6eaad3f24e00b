"""What every ranker does alike: tables and logs, seeds, queries, names, errors."""
# ruff: noqa: N806 (X is the field's name for it)

import sys

import numpy as np
import pandas as pd
import pytest
from conftest import SEED
from every_ranker import (
    LIBRARIES,
    RANKERS,
    each_of,
    each_scaling,
    every,
    fit,
    fitted,
    make,
    table,
    tiny,
)

from countersample import (
    ClickLog,
    RankingDataset,
    estimate,
    evaluate,
    simulate_clicks,
    synthetic,
)
from countersample._extras import MissingExtraError
from countersample.data.imputing import Imputer
from countersample.data.normalize import METHODS as NORMALIZATIONS
from countersample.errors import DataError, ParameterError
from countersample.fitting.models import MODELS
from countersample.rankers import OneQueryWarning, UnfittedRankerError
from countersample.rankers._parameters import CHECKS
from countersample.rankers.loading import KINDS, load_ranker, load_scorer


def test_every_kind_is_here():
    assert set(RANKERS) == set(MODELS)
    assert {make(kind).kind for kind in RANKERS} == set(KINDS)


# -- training


@every
def test_a_table_is_a_log(kind):
    by_log = make(kind).fit_log(tiny()[0], tiny()[1].merge())
    np.testing.assert_array_equal(
        fit(make(kind), table()).predict(tiny()[0]), by_log.predict(tiny()[0])
    )


@every
def test_what_was_never_shown_teaches_nothing(kind):
    """A click is compared with what was shown beside it, where the log tells that."""
    dataset, log = tiny()[0], tiny()[1].merge().detached()
    shown = np.flatnonzero(np.arange(dataset.n_items) % 3 > 0)
    rows = dataset.offsets[log.query] + log.item
    clicks = np.bincount(rows, log.count, dataset.n_items)[shown]
    query = np.searchsorted(dataset.offsets, shown, side="right") - 1
    seen = ClickLog(
        query, shown - dataset.offsets[query], np.full(len(shown), 0.5), clicks,
        impressions=2 * clicks + 1,
    )  # fmt: skip
    features = dataset.features.copy()
    features[np.arange(dataset.n_items) % 3 == 0] = features[:1]  # another value, within range
    other = dataset.with_features(features)
    alone = {"normalize": None}
    alone |= {"learning_rate": 0.01} if kind == "linear" else {"patience": None}
    a, b = (make(kind, **alone).fit_log(each, seen).predict(dataset) for each in (dataset, other))
    np.testing.assert_array_equal(a, b)


@each_scaling
def test_rows_may_come_in_any_order(kind, rng, scaling):
    X, y, qid, propensity = table()
    in_order = fit(make(kind, **scaling), table())
    # Queries keep the order in which they are first seen, and rows that within their query.
    turns = np.argsort(np.arange(len(qid)) - np.searchsorted(qid, qid), kind="stable")
    mixed = make(kind, **scaling).fit(
        X[turns], y[turns], qid=qid[turns], propensity=propensity[turns]
    )
    scores = in_order.predict(X, qid)
    np.testing.assert_array_equal(mixed.predict(X, qid), scores)
    assert (in_order.normalizer_ is None) == (scaling == {"normalize": None})
    shuffled = rng.permutation(len(qid))
    np.testing.assert_allclose(
        in_order.predict(X[shuffled], qid[shuffled]), scores[shuffled], rtol=1e-5, atol=1e-6
    )


@every
def test_the_same_seed_gives_the_same_scores(kind):
    again, other = (make(kind, random_state=s).fit_log(*tiny()) for s in (SEED, SEED + 1))
    scores = fitted(kind).predict(tiny()[0])
    np.testing.assert_array_equal(again.predict(tiny()[0]), scores)
    assert not np.array_equal(other.predict(tiny()[0]), scores)


@every
def test_a_clipped_log_is_what_clip_trains_on(kind):
    dataset, log = tiny()
    # held-out clicks are not clipped
    alone = {"learning_rate": 0.01} if kind == "linear" else {"patience": None}
    a = make(kind, clip=0.3, **alone).fit_log(dataset, log)
    b = make(kind, **alone).fit_log(dataset, log.clip(0.3))
    np.testing.assert_array_equal(a.predict(dataset), b.predict(dataset))
    assert (a.clip_, b.clip_) == (0.3, None)


@every
def test_progress(kind):
    said = []
    make(kind).fit_log(*tiny(), progress=lambda what, share: said.append((what, share)))
    shares = [share for _, share in said]
    assert shares == sorted(shares)
    assert shares[0] > 0
    assert said[-1] == ("training", pytest.approx(1))


@every
def test_what_it_remembers(kind):
    dataset, log = tiny()
    ranker = fitted(kind)
    assert (ranker.n_queries_, ranker.n_features_in_) == (dataset.n_queries, dataset.n_features)
    assert ranker.fingerprint_ == dataset.fingerprint
    assert ranker.provenance_["n_clicks"] == log.n_clicks
    library = LIBRARIES.get(kind, ("numpy",))[0]
    assert library in ranker.provenance_["versions"]


@every
def test_ranks_are_those_of_scores(kind):
    X, y, qid, propensity = table()
    ranker, weights = fitted(kind), y / propensity
    ranks = ranker.rank(X, qid)
    scores = ranker.predict(X, qid)
    for query in np.unique(qid)[:10]:
        rows = np.flatnonzero(qid == query)
        best_first = rows[np.argsort(-scores[rows], kind="stable")]
        assert ranks[best_first].tolist() == list(range(1, len(rows) + 1))
    score = ranker.score(X, y, qid=qid, propensity=propensity)
    assert score == pytest.approx(weights @ (1 / np.log2(1 + ranks)) / weights.sum())


@every
def test_sample_weights_multiply_those_of_clicks(kind, rng):
    X, y, qid, propensity = table()
    times = rng.integers(1, 4, len(y))
    score = fitted(kind).score(X, y, qid=qid, propensity=propensity, sample_weight=times)
    assert score == pytest.approx(fitted(kind).score(X, y * times, qid=qid, propensity=propensity))


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ([1, -1, 1], "sample_weight is -1 in row 1, expected a finite number of at least 0"),
        ([1, np.nan, 1], "sample_weight is nan in row 1"),
        ([np.inf, 1, 1], "sample_weight is inf in row 0"),
        ([1, 1], r"sample_weight has shape \(2,\), expected \(3,\)"),
        (["a", "b", "c"], "sample_weight must be numbers"),
        ([1, 0, 1], "sample_weight is 0 for all rows with clicks"),
    ],
)
@every
def test_bad_sample_weights(kind, weights, match):
    X = np.zeros((3, 5))
    with pytest.raises(DataError, match=match):
        fitted(kind).score(X, [0, 2, 0], qid=[1, 1, 1], sample_weight=weights)


# -- what is missing


def holed(share=0.2):
    """Return the dataset with some values missing, and its log."""
    data, log = tiny()
    holes = np.random.default_rng(SEED).random(data.features.shape) < share
    return data.with_features(np.where(holes, np.float32(np.nan), data.features)), log.detached()


@pytest.mark.parametrize("normalize", [None, *NORMALIZATIONS])
@every
def test_features_may_be_missing(kind, normalize, tmp_path):
    data, log = holed()
    ranker = make(kind, normalize=normalize).fit_log(data, log)
    scores = ranker.predict(data)
    assert evaluate(ranker, data, "ndcg@10")["ndcg@10"] > 0.4
    ranker.save(tmp_path / "ranker.json")
    for loaded in (load_ranker(tmp_path / "ranker.json"), load_scorer(tmp_path / "ranker.json")):
        np.testing.assert_array_equal(loaded.predict(data), scores)
    assert (ranker.imputer_ is None) == (ranker.kind == "boosted")
    assert ranker.n_features_in_ == data.n_features
    qid = np.repeat(data.query_ids, data.query_sizes)
    np.testing.assert_array_equal(ranker.predict(data.features, qid), scores)
    X, y, qid, propensity = table()
    by_table = fit(make(kind, normalize=normalize), (data.features, y, qid, propensity))
    np.testing.assert_array_equal(
        by_table.predict(data), make(kind, normalize=normalize).fit_log(data, tiny()[1].merge()
                                                                        .detached()).predict(data)
    )  # fmt: skip
    bad = X[:3].copy()
    bad[1, 2] = np.inf
    with pytest.raises(DataError, match="X has inf in row 1, column 2"):
        ranker.predict(bad, qid[:3])


@every
def test_trained_without_what_is_missing_nothing_changes(kind, tmp_path):
    ranker = fitted(kind)
    assert ranker.imputer_ is None
    ranker.save(tmp_path / "ranker.json")
    text = (tmp_path / "ranker.json").read_text()
    assert '"imputer"' not in text
    data, _ = holed()
    sentence = r"X has NaN in row \d, column \d .* trained on features of which none was missing"
    for loaded in (
        ranker,
        load_ranker(tmp_path / "ranker.json"),
        load_scorer(tmp_path / "ranker.json"),
    ):
        with pytest.raises(DataError, match=sentence):
            loaded.predict(data)
    with pytest.raises(DataError, match=sentence):
        ranker.score(data.features, table()[1], qid=table()[2])


@pytest.mark.parametrize("start", ["served", "linear"])
@every
def test_from_what_was_served_or_learned_where_features_are_missing(kind, start, tmp_path):
    if start == "linear" and "gbm" not in kind and "boost" not in kind:
        return
    data, log = holed()
    by_first = np.nan_to_num(data.features[:, 0], nan=0.5)
    ranker = make(kind, start=start).fit_log(data, log, baseline=by_first)
    assert ranker.served_.agreement > 0.7  # ties are many
    ranker.save(tmp_path / "ranker.json")
    loaded = load_ranker(tmp_path / "ranker.json")
    np.testing.assert_array_equal(loaded.predict(data), ranker.predict(data))


@every
def test_doubly_robust_where_features_are_missing(kind):
    data, log = holed()[0], tiny()[1].merge().detached()
    if "doubly_robust" not in make(kind).get_params():
        return
    rows = np.arange(data.n_items)
    clicks = np.bincount(data.offsets[log.query] + log.item, log.count, data.n_items)
    query = np.repeat(np.arange(data.n_queries), data.query_sizes)
    shown = ClickLog(
        query, rows - data.offsets[query], np.full(len(rows), 0.5), clicks,
        impressions=2 * clicks + 1,
    )  # fmt: skip
    ranker = make(kind, doubly_robust=True).fit_log(data, shown)
    assert np.isfinite(ranker.predict(data)).all()


@each_of(["linear", "neural"])
def test_how_it_is_filled_in(kind):
    data, log = holed()
    n_outputs = {"median-indicator": 10, "median": 5, "zero": 5}
    for how, expected in n_outputs.items():
        ranker = make(kind, impute=how).fit_log(data, log)
        assert ranker.imputer_ == Imputer.fit(data, how)
        assert ranker.scorer_.n_features == expected
    with pytest.raises(DataError, match=r"NaN in row \d, column \d .*, and impute is 'error'"):
        make(kind, impute="error").fit_log(data, log)
    make(kind, impute="error").fit_log(*tiny())


def test_an_indicator_helps_where_it_tells_something(rng):
    """The price of what is sold out is missing, and nobody wants it."""
    gains = []
    for seed in range(SEED, SEED + 5):
        data = synthetic("tiny", n_queries=200, rng=seed)
        gone = np.random.default_rng(seed).random(data.n_items) < 0.3
        features = data.features.copy()
        features[gone, 1] = np.nan
        labels = np.where(gone, 0, data.labels).astype(np.float32)
        data = RankingDataset(features, labels, data.offsets, data.query_ids)
        policy = rng.random(data.n_items)
        log = simulate_clicks(data, policy, 5000, relevant=1, rng=seed)
        both = [
            make("linear", impute=how, steps=2000, learning_rate=0.003).fit_log(data, log)
            for how in ("median-indicator", "median")
        ]
        a, b = (evaluate(ranker, data, "ndcg@10")["ndcg@10"] for ranker in both)
        gains.append(a - b)
    assert min(gains) > 0.02


# -- queries


@every
def test_rows_without_queries_are_one_query_aloud(kind):
    X, y = tiny()[0].features[:30], np.arange(30) % 3
    with pytest.warns(OneQueryWarning, match=r"qid is None.*set_fit_request.*which is assumed"):
        without = make(kind).fit(X, y)
    scores = make(kind).fit(X, y, qid=np.zeros(30, int)).predict(X)
    np.testing.assert_array_equal(without.predict(X), scores)
    many = np.repeat(X, 50, axis=0)
    with pytest.raises(ParameterError, match=r"qid is None.*set_fit_request\(qid=True\)"):
        make(kind).fit(many, np.repeat(y, 50))


@every
def test_ranks_and_score_need_queries(kind):
    X, y, _, propensity = table()
    for use in (
        lambda: fitted(kind).rank(X),
        lambda: fitted(kind).score(X, y, propensity=propensity),
        lambda: make(kind, normalize="query-minmax").fit_log(*tiny()).predict(X),
    ):
        with pytest.raises(ParameterError, match="qid is None, expected the query of each row"):
            use()


@every
def test_evaluation_sees_names_and_queries(kind):
    """A ranker gets the dataset itself, so that names are checked and queries are known."""
    data, log = tiny()
    named, turned = (
        RankingDataset(data.features, data.labels, data.offsets, data.query_ids, tuple(names))
        for names in ("abcde", "bacde")
    )
    log = ClickLog(log.query, log.item, log.propensity)
    ranker = make(kind, normalize="query-minmax").fit_log(named, log)
    scores = ranker.predict(named)
    assert evaluate(ranker, named, "ndcg") == evaluate(scores, named, "ndcg")
    assert estimate(ranker, log, named, rng=0).value == estimate(scores, log, named, rng=0).value
    assert len(simulate_clicks(named, ranker, 10, relevant=1, rng=0)) == 10
    for use in (
        lambda: evaluate(ranker, turned, "ndcg"),
        lambda: estimate(ranker, log, turned),
        lambda: simulate_clicks(turned, ranker, 10, relevant=1),
    ):
        with pytest.raises(DataError, match="feature 0 of X is 'b', expected 'a'"):
            use()


@every
def test_a_dataset_with_more_features_gives_those_of_training(kind):
    data, log = tiny()
    log = ClickLog(log.query, log.item, log.propensity)
    whole = RankingDataset(data.features, data.labels, data.offsets, data.query_ids, tuple("abcde"))
    ranker = make(kind).fit_log(whole.select_features(["d", "a"]), log)
    scores = ranker.predict(whole.select_features(["d", "a"]))
    assert (ranker.predict(whole) == scores).all()
    with pytest.raises(DataError, match="no feature 'd'"):
        ranker.predict(whole.select_features(drop=["d"]))
    by_number = make(kind).fit_log(data.select_features(["4", "1"]), log)
    assert (by_number.predict(data) == scores).all()


# -- errors


@every
def test_an_untrained_ranker_says_so(kind, tmp_path):
    ranker = make(kind)
    for use in (
        lambda: ranker.predict([[1.0]]),
        lambda: ranker.rank([[1.0]]),
        lambda: ranker.score([[1.0]], [1]),
        lambda: ranker.save(tmp_path / "x"),
    ):
        with pytest.raises(UnfittedRankerError, match="not fitted yet: call fit or fit_log"):
            use()


@every
def test_other_features_than_in_training(kind):
    dataset, ranker = tiny()[0], fitted(kind)
    with pytest.raises(DataError, match=r"X has 4 features, but .* is expecting 5"):
        ranker.predict(dataset.features[:, :4])
    with pytest.raises(DataError, match="X has 4 features, expected 5"):
        ranker.predict(dataset.with_features(np.ascontiguousarray(dataset.features[:, :4])))
    X = dataset.features[:3].copy()
    X[1, 2] = np.nan
    with pytest.raises(DataError, match="X has NaN in row 1, column 2"):
        ranker.predict(X)
    with pytest.raises(TypeError, match="argument must be"):
        ranker.predict(np.array([[{}, 1, 2, 3, 4]], dtype=object))


@every
def test_names_are_forgotten_with_the_data_that_had_them(kind):
    frame = pd.DataFrame(table()[0], columns=list("abcde"))
    ranker = fit(make(kind), (frame, *table()[1:]))
    assert ranker.predict(tiny()[0]).shape == (tiny()[0].n_items,)  # no names, no question
    assert not hasattr(ranker.fit_log(*tiny()), "feature_names_in_")


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"y": [0, 0, 0]}, "y is all 0, expected at least one click"),
        ({"y": [1, -2, 0]}, "y is -2 in row 1, expected a number of clicks, at least 0"),
        ({"y": ["a", "b", "c"]}, "y must be numbers"),
        ({"y": [1, 0]}, "inconsistent numbers of samples"),
        ({"propensity": [1, 0, 1]}, "propensity is 0 in row 1, expected a number above 0"),
        ({"propensity": [1, 1.5, 1]}, "propensity is 1.5 in row 1"),
        ({"propensity": [1, np.nan, 1]}, "propensity is nan in row 1"),
        ({"propensity": [1, 1]}, r"propensity has shape \(2,\), expected \(3,\)"),
        ({"propensity": ["x", "y", "z"]}, "propensity must be numbers"),
        ({"qid": [1, 1]}, r"qid has shape \(2,\), expected \(3,\)"),
        ({"qid": [0.5, 1.0, 1.0]}, "query ids are of type float64"),
        ({"qid": [1, 2, 3]}, "nothing to learn from: no clicked item differs from the other"),
        ({"X": [[1.0], [1.0], [1.0]]}, "nothing to learn from: no clicked item differs"),
        ({"X": [[0.0], [1e300], [1.0]]}, "X has inf in row 1, column 0"),
    ],
)
@every
def test_bad_tables(kind, changed, match):
    good = {"X": [[0.0], [1.0], [0.5]], "y": [0, 2, 0], "qid": [1, 1, 1], "propensity": None}
    with pytest.raises(DataError, match=match):
        make(kind).fit(**good | changed)


@every
def test_the_propensity_of_what_is_not_clicked_does_not_matter(kind):
    X, y, qid, propensity = table()
    other = np.where(y > 0, propensity, np.nan)
    a, b = (fit(make(kind), (X, y, qid, each)).predict(X) for each in (propensity, other))
    np.testing.assert_array_equal(a, b)


@every
def test_every_parameter_is_checked(kind):
    ranker = make(kind)
    assert set(ranker.get_params()) <= set(CHECKS) | set(ranker._checks)


BAD_PARAMETERS = [
    ("method", "magic", "one of "),
    ("unit", "session", "one of click, pair, query"),
    ("objective", "map", "one of rank, log-rank"),
    ("objective", 3, "one of rank, log-rank"),
    ("learning_rate", "fast", "a number above 0"),
    ("learning_rate", 0, "a number above 0"),
    ("learning_rate", np.inf, "a number above 0"),
    ("batch_size", 0, "a whole number of at least 1"),
    ("batch_size", True, "a whole number of at least 1"),
    ("batch_size", 1.5, "a whole number of at least 1"),
    ("l2", -1, "a number of at least 0"),
    ("l2", np.nan, "a number of at least 0"),
    ("patience", 0, "None or a whole number of at least 1"),
    ("patience", "auto", "None or a whole number of at least 1"),
    ("holdout", 0.9, "a number above 0 and at most 0.5"),
    ("clip", 2.0, "None or a number above 0 and at most 1"),
    ("clip", 0, "None or a number above 0 and at most 1"),
    ("clip", "some", "None or a number above 0 and at most 1"),
    ("impute", "mean", "one of median-indicator, median, zero, error"),
    ("impute", None, "one of median-indicator, median, zero, error"),
    ("normalize", "max", "one of query-minmax, minmax, root-minmax, standard"),
    ("feature_transform", "sqrt", "one of log, root, quantile, auto"),
    ("random_state", -1, "an integer of at least 0, a numpy Generator or None"),
    ("random_state", "x", "an integer of at least 0, a numpy Generator or None"),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "expected"),
    [
        (kind, *bad)
        for kind in RANKERS
        for bad in BAD_PARAMETERS
        if bad[0] in make(kind).get_params()
    ],
)
def test_bad_parameters_are_the_same_sentence(kind, name, value, expected):
    with pytest.raises(ParameterError) as raised:
        make(kind, **{name: value}).fit_log(*tiny())
    said = str(raised.value)
    assert said.startswith(f"{name} is {value!r}, expected ")
    assert expected in said


@every
def test_a_metric_that_clicks_cannot_estimate(kind):
    with pytest.raises(ParameterError, match="cannot be estimated from clicks"):
        make(kind, metric="ndcg@10").fit_log(*tiny())
    with pytest.raises(ParameterError, match="metric is 10, expected the name of one"):
        make(kind, metric=10).fit_log(*tiny())


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_missing_library(kind, monkeypatch):
    library, extra = LIBRARIES[kind]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingExtraError, match=rf'{library}.*pip install "countersample\[{extra}\]"'
    ):
        make(kind).fit_log(*tiny())
