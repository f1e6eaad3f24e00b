"""One suite for every kind of ranker: training, ranking, scikit-learn, files, errors."""
# ruff: noqa: N806 (X is scikit-learn's name of a table)

import json
import subprocess
import sys
from copy import copy

import numpy as np
import pandas as pd
import pytest
from conftest import SEED
from every_ranker import (
    LIBRARIES,
    RANKERS,
    TRAINABLE,
    each_scaling,
    every,
    fit,
    fitted,
    make,
    table,
    tiny,
)  # fmt: skip
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from countersample import ClickLog, RankingDataset, estimate, evaluate
from countersample._environment import MissingExtraError
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.fitting.models import MODELS
from countersample.rankers import OneQueryWarning, UnfittedRankerError
from countersample.rankers.checks import CHECKS
from countersample.rankers.files import KINDS, load_ranker, load_scorer


def without_holdout(kind, **params):
    """Return a ranker that trains on all clicks at once."""
    return make(kind, **params, **({} if kind == "linear" else {"patience": None}))


def test_every_kind_is_here():
    assert set(RANKERS) == set(MODELS)
    assert {make(kind).kind for kind in RANKERS} == set(KINDS)


# -- training


@pytest.mark.slow
@every
def test_a_table_is_a_log(kind):
    by_log = make(kind).fit_log(tiny()[0], tiny()[1].merge())
    by_table = fit(make(kind), table())
    np.testing.assert_array_equal(by_table.predict(tiny()[0]), by_log.predict(tiny()[0]))


@pytest.mark.slow
@every
def test_items_that_were_never_shown_do_not_matter(kind):
    """A click is compared with the items that were shown beside it, if the log has them."""
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
    scores = [
        without_holdout(kind, normalize=None).fit_log(each, seen).predict(dataset)
        for each in (dataset, dataset.with_features(features))
    ]
    np.testing.assert_array_equal(*scores)


@each_scaling
def test_rows_may_come_in_any_order(kind, rng, scaling):
    X, y, qid, propensity = table()
    in_order = fit(make(kind, **scaling), table())
    # Queries keep the order in which they are first seen, and rows that within their query.
    turns = np.argsort(np.arange(len(qid)) - np.searchsorted(qid, qid), kind="stable")
    mixed = fit(make(kind, **scaling), (X[turns], y[turns], qid[turns], propensity[turns]))
    scores = in_order.predict(X, qid)
    np.testing.assert_array_equal(mixed.predict(X, qid), scores)
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


# -- ranking


@every
def test_ranks_and_score(kind):
    X, y, qid, propensity = table()
    ranker, weights = fitted(kind), y / propensity
    ranks, scores = ranker.rank(X, qid), ranker.predict(X, qid)
    for query in np.unique(qid)[:10]:
        rows = np.flatnonzero(qid == query)
        best_first = rows[np.argsort(-scores[rows], kind="stable")]
        assert ranks[best_first].tolist() == list(range(1, len(rows) + 1))
    score = ranker.score(X, y, qid=qid, propensity=propensity)
    assert score == pytest.approx(weights @ (1 / np.log2(1 + ranks)) / weights.sum())
    times = 1 + np.arange(len(y)) % 3
    score = ranker.score(X, y, qid=qid, propensity=propensity, sample_weight=times)
    assert score == pytest.approx(ranker.score(X, y * times, qid=qid, propensity=propensity))
    with pytest.raises(DataError, match="sample_weight is -1 in row 0, expected a finite number"):
        ranker.score(X, y, qid=qid, sample_weight=-times)


@every
def test_evaluation_passes_the_dataset(kind):
    """So that names are checked and queries are known."""
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
    with pytest.raises(DataError, match="feature 0 of X is 'b', expected 'a'"):
        evaluate(ranker, turned, "ndcg")


@every
def test_features_of_training_are_selected_by_name(kind):
    data, log = tiny()
    wide = RankingDataset(data.features, data.labels, data.offsets, data.query_ids, tuple("abcde"))
    ranker = make(kind).fit_log(wide.select_features(["d", "a"]), log.detached())
    scores = ranker.predict(wide.select_features(["d", "a"]))
    np.testing.assert_array_equal(ranker.predict(wide), scores)
    with pytest.raises(DataError, match="no feature 'd'"):
        ranker.predict(wide.select_features(drop=["d"]))


# -- missing values


def holed(share=0.2):
    """Return the dataset with some values missing, and its log."""
    data, log = tiny()
    holes = np.random.default_rng(SEED).random(data.features.shape) < share
    return data.with_features(np.where(holes, np.float32(np.nan), data.features)), log.detached()


@pytest.mark.parametrize("normalize", [None, "minmax", "query-minmax"])
@every
def test_features_may_be_missing(kind, normalize, tmp_path):
    data, log = holed()
    ranker = make(kind, normalize=normalize).fit_log(data, log)
    scores = ranker.predict(data)
    assert evaluate(ranker, data, "ndcg@10")["ndcg@10"] > 0.4
    ranker.save(tmp_path / "ranker.json")
    for loaded in (load_ranker(tmp_path / "ranker.json"), load_scorer(tmp_path / "ranker.json")):
        np.testing.assert_array_equal(loaded.predict(data), scores)
    assert (ranker.preprocessing_.imputer is None) == (ranker.kind == "boosted")
    qid = np.repeat(data.query_ids, data.query_sizes)
    np.testing.assert_array_equal(ranker.predict(data.features, qid), scores)
    bad = tiny()[0].features[:3].copy()
    bad[1, 2] = np.inf
    with pytest.raises(DataError, match="X has inf in row 1, column 2"):
        ranker.predict(bad, qid[:3])


@every
def test_missing_values_are_rejected_if_training_had_none(kind, tmp_path):
    ranker, (data, _) = fitted(kind), holed()
    ranker.save(tmp_path / "ranker.json")
    message = r"X has NaN in row \d, column \d .* trained on features of which none was missing"
    for each in (ranker, load_scorer(tmp_path / "ranker.json")):
        with pytest.raises(DataError, match=message):
            each.predict(data)
    with pytest.raises(DataError, match=message):
        ranker.score(data.features, table()[1], qid=table()[2])


# -- scikit-learn


@pytest.mark.filterwarnings("ignore:qid is None")  # its checks know of no queries
@parametrize_with_checks([RANKERS[kind]() for kind in TRAINABLE])
def test_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("scikit-learn skips it as well, unless SCIPY_ARRAY_API is set")
    check(estimator)


# -- files


@each_scaling
def test_a_saved_ranker_gives_the_same_scores(kind, tmp_path, scaling):
    dataset, log = tiny()
    ranker = make(kind, **scaling, l2=np.float32(0.1)).fit_log(dataset, log)
    ranker.save(tmp_path / "ranker.json")
    loaded = load_ranker(tmp_path / "ranker.json")
    assert type(loaded) is type(ranker)
    np.testing.assert_array_equal(loaded.predict(dataset), ranker.predict(dataset))
    assert loaded.get_params() == ranker.get_params()
    assert loaded.preprocessing_ == ranker.preprocessing_
    not_saved = {"history_", "path_", "served_", "scorer_", "preprocessing_"}
    for name in {name for name in vars(ranker) if name.endswith("_")} - not_saved:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(ranker, name))
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "ranker.json").read_bytes()
    content = json.loads((tmp_path / "ranker.json").read_text())["ranker"]
    assert set(content["written_by"]) == {"countersample", "numpy", "python", "scikit-learn"}


def test_missing_values_may_be_an_error():
    with pytest.raises(DataError, match=r"NaN in row \d, column \d .*, and impute is 'error'"):
        make("linear", impute="error").fit_log(*holed())


SCORE_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lightgbm", "xgboost", "torch"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
import countersample.gbdt
import countersample.torch
from countersample.rankers import load_ranker
for kind in sys.argv[1:]:
    np.save(f"{kind}.npy", load_ranker(f"{kind}.json").predict(np.load("features.npy")))
"""


@pytest.mark.slow
def test_they_rank_without_the_libraries_of_their_training(tmp_path):
    np.save(tmp_path / "features.npy", tiny()[0].features)
    for kind in TRAINABLE:
        fitted(kind).save(tmp_path / f"{kind}.json")
    subprocess.run([sys.executable, "-c", SCORE_WITHOUT, *TRAINABLE], cwd=tmp_path, check=True)
    for kind in TRAINABLE:
        scores = np.load(tmp_path / f"{kind}.npy")
        np.testing.assert_array_equal(scores, fitted(kind).predict(tiny()[0]))


@every
def test_names_are_saved(kind, tmp_path):
    names = ["bm25", "größe", "c", "d", "e"]
    frame = pd.DataFrame(table()[0], columns=names)
    ranker = fit(make(kind, random_state=np.random.default_rng(SEED)), (frame, *table()[1:]))
    ranker.save(tmp_path / "r")
    loaded = type(make(kind)).load(tmp_path / "r")
    assert loaded.feature_names_in_.tolist() == names
    assert loaded.random_state is None
    with pytest.raises(DataError, match="order"):
        loaded.predict(frame[names[::-1]])
    assert not hasattr(ranker.fit_log(*tiny()), "feature_names_in_")  # of data without names


@every
def test_files_that_are_rejected(kind, tmp_path):
    path, ranker = tmp_path / "ranker.json", fitted(kind)
    ranker.save(path)
    text = path.read_text()
    for content, message in (
        ("", "not a ranker file"),
        (text[: len(text) // 2], "a damaged ranker file"),
        (text.replace('"n_queries_": 40', '"n_queries_": 41'), "damaged .*it was changed"),
        (text.replace('"version": 1', '"version": 2', 1), "format version 2, expected 1"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=message) as raised:
            load_ranker(path)
        assert str(path) in str(raised.value)
    path.write_text(text)
    for other in {type(make(each)) for each in RANKERS} - {type(ranker)}:
        with pytest.raises(DataError, match=f"of the kind '{ranker.kind}', expected '"):
            other.load(path)
    path.unlink()
    with pytest.raises(CounterSampleError, match="cannot save a object, expected plain values"):
        copy(ranker).set_params(clip=object()).save(path)
    assert not path.exists()


# -- errors


@every
def test_an_untrained_ranker(kind, tmp_path):
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
def test_rows_without_queries(kind):
    X, y = tiny()[0].features[:30], np.arange(30) % 3
    with pytest.warns(OneQueryWarning, match=r"qid is None.*which is assumed"):
        without = make(kind).fit(X, y)
    scores = make(kind).fit(X, y, qid=np.zeros(30, int)).predict(X)
    np.testing.assert_array_equal(without.predict(X), scores)
    with pytest.raises(ParameterError, match=r"qid is None.*set_fit_request\(qid=True\)"):
        make(kind).fit(np.repeat(X, 50, axis=0), np.repeat(y, 50))
    X, y, _, propensity = table()
    for use in (
        lambda: fitted(kind).rank(X),
        lambda: fitted(kind).score(X, y, propensity=propensity),
        lambda: make(kind, normalize="query-minmax").fit_log(*tiny()).predict(X),
    ):
        with pytest.raises(ParameterError, match="qid is None, expected the query of each row"):
            use()


def test_groups_of_scikit_learn_are_no_queries():
    """They do not reach fit: without a request, all rows would be one query."""
    X, y, qid, _ = table()
    with pytest.warns(OneQueryWarning, match="groups do not reach fit"):
        cross_val_score(make("linear"), X, y, groups=qid, cv=GroupKFold(2))
    pipeline = Pipeline([("scale", StandardScaler()), ("ranker", make("linear"))])
    with pytest.raises(ParameterError, match=r"set_score_request\(qid=True\)"):
        pipeline.fit(X, y, ranker__qid=qid).score(X, y)


@every
def test_other_features_than_in_training(kind):
    dataset, ranker = tiny()[0], fitted(kind)
    narrow = np.ascontiguousarray(dataset.features[:, :4])
    with pytest.raises(DataError, match=r"X has 4 features, but .* is expecting 5"):
        ranker.predict(narrow)
    with pytest.raises(DataError, match="X has 4 features, expected 5"):
        ranker.predict(dataset.with_features(narrow))
    with pytest.raises(TypeError, match="argument must be"):
        ranker.predict(np.array([[{}, 1, 2, 3, 4]], dtype=object))


GOOD_TABLE = {"X": [[0.0], [1.0], [0.5]], "y": [0, 2, 0], "qid": [1, 1, 1], "propensity": None}


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"y": [0, 0, 0]}, "y is all 0, expected at least one click"),
        ({"y": [1, -2, 0]}, "y is -2 in row 1, expected a number of clicks, at least 0"),
        ({"y": [1, 0]}, "inconsistent numbers of samples"),
        ({"propensity": [1, 0, 1]}, "propensity is 0 in row 1, expected a number above 0"),
        ({"propensity": [1, np.nan, 1]}, "propensity is nan in row 1"),
        ({"propensity": ["x", "y", "z"]}, "propensity must be numbers"),
        ({"qid": [1, 1]}, r"qid has shape \(2,\), expected \(3,\)"),
        ({"qid": [0.5, 1.0, 1.0]}, "query ids are of type float64"),
        ({"qid": [1, 2, 3]}, "nothing to learn from: no clicked item differs from the other"),
        ({"X": [[0.0], [1e300], [1.0]]}, "X has inf in row 1, column 0"),
        ({"baseline": [0, np.inf, 0]}, "baseline is inf in row 1, expected a finite number"),
    ],
)
def test_bad_tables(changed, match):
    with pytest.raises(DataError, match=match):
        make("linear").fit(**GOOD_TABLE | changed)


@every
def test_every_parameter_has_a_check(kind):
    ranker = make(kind)
    assert set(ranker.get_params()) <= set(CHECKS) | set(ranker._checks)
    with pytest.raises(ParameterError, match="cannot be estimated from clicks"):
        make(kind, metric="ndcg@10").fit_log(*tiny())


BAD_PARAMETERS = [
    ("method", "magic", "one of "),
    ("unit", "session", "one of click, pair, query"),
    ("objective", "map", "one of rank, log-rank"),
    ("learning_rate", np.inf, "a number above 0"),
    ("batch_size", True, "a whole number of at least 1"),
    ("l2", np.nan, "a number of at least 0"),
    ("patience", "auto", "None or a whole number of at least 1"),
    ("holdout", 0.9, "a number above 0 and at most 0.5"),
    ("metric", 10, "the name of one"),
    ("clip", 2.0, "None or a number above 0 and at most 1"),
    ("impute", None, "one of median-indicator, median, zero, error"),
    ("normalize", "max", "one of query-minmax, minmax, root-minmax, standard"),
    ("feature_transform", "sqrt", "one of log, root, quantile, auto"),
    ("random_state", -1, "an integer of at least 0, a numpy Generator or None"),
]


@pytest.mark.parametrize(("name", "value", "expected"), BAD_PARAMETERS)
def test_bad_parameters(name, value, expected):
    """Each is the same sentence for all kinds that have the parameter."""
    for kind in RANKERS:
        if name in make(kind).get_params():
            with pytest.raises(ParameterError) as raised:
                make(kind, **{name: value}).fit_log(*tiny())
            assert str(raised.value).startswith(f"{name} is {value!r}, expected ")
            assert expected in str(raised.value)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_missing_library(kind, monkeypatch):
    library, extra = LIBRARIES[kind]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingExtraError, match=rf'{library}.*pip install "countersample\[{extra}\]"'
    ):
        make(kind).fit_log(*tiny())
