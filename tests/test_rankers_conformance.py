"""What every ranker does alike: scikit-learn's habits, tables and logs, files, names, errors."""
# ruff: noqa: N806 (X is the field's name for it)

import inspect
import json
import subprocess
import sys
from copy import copy

import every_ranker
import numpy as np
import pandas as pd
import pytest
from conftest import SEED
from every_ranker import KINDS, LIBRARIES, RANKERS, as_table, is_trainable, make
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from countersample import ClickLog, RankingDataset, estimate, evaluate, simulate_clicks
from countersample._extras import MissingExtraError
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.rankers import OneQueryWarning, UnfittedRankerError, load_ranker
from countersample.rankers._parameters import CHECKS

every = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def tiny():
    return every_ranker.tiny()


@pytest.fixture(scope="module")
def table(tiny):
    return as_table(*tiny)


@pytest.fixture(scope="module")
def fitted(tiny):
    """One of each kind, trained once."""
    return {kind: make(kind).fit_log(*tiny) for kind in RANKERS if is_trainable(kind)}


def fit(ranker, table):
    X, y, qid, propensity = table
    return ranker.fit(X, y, qid=qid, propensity=propensity)


# -- scikit-learn


@pytest.mark.filterwarnings("ignore:qid is None")  # its checks know of no queries
@parametrize_with_checks([RANKERS[kind]() for kind in RANKERS if is_trainable(kind)])
def test_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("scikit-learn skips it as well, unless SCIPY_ARRAY_API is set")
    check(estimator)


@every
def test_params_and_clone(kind, fitted):
    ranker = fitted[kind]
    copy = clone(ranker).set_params(clip=0.1, random_state=7)
    assert copy.get_params() == ranker.get_params() | {"clip": 0.1, "random_state": 7}
    assert not hasattr(copy, "scorer_")


@every
def test_parameters_are_given_by_name(kind):
    given = inspect.signature(type(make(kind)).__init__).parameters.values()
    assert {each.kind for each in list(given)[1:]} == {inspect.Parameter.KEYWORD_ONLY}


@every
def test_it_is_shown_in_a_notebook(kind, fitted):
    assert type(fitted[kind]).__name__ in fitted[kind]._repr_html_()
    assert "random_state" in make(kind)._repr_html_()


# -- training


@every
def test_a_table_is_a_log(kind, tiny, table):
    by_log = make(kind).fit_log(tiny[0], tiny[1].merge())
    np.testing.assert_array_equal(fit(make(kind), table).predict(tiny[0]), by_log.predict(tiny[0]))


@every
def test_what_was_shown_and_not_clicked_changes_nothing(kind, tiny):
    dataset, log = tiny[0], tiny[1].merge()
    shown = ClickLog(
        np.append(log.query, 0), np.append(log.item, 0), np.append(log.propensity, 1.0),
        np.append(log.count, 0), impressions=np.append(2 * log.count, 5), n_sessions=10_000,
    )  # fmt: skip
    a, b = (make(kind).fit_log(dataset, each).predict(dataset) for each in (log, shown))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("normalize", [None, "minmax", "standard", "query-minmax"])
@every
def test_rows_may_come_in_any_order(kind, table, rng, normalize):
    X, y, qid, propensity = table
    in_order = fit(make(kind, normalize=normalize), table)
    # Queries keep the order in which they are first seen, and rows that within their query.
    turns = np.argsort(np.arange(len(qid)) - np.searchsorted(qid, qid), kind="stable")
    mixed = make(kind, normalize=normalize).fit(
        X[turns], y[turns], qid=qid[turns], propensity=propensity[turns]
    )
    scores = in_order.predict(X, qid)
    np.testing.assert_array_equal(mixed.predict(X, qid), scores)
    assert (in_order.normalizer_ is None) == (normalize is None)
    shuffled = rng.permutation(len(qid))
    np.testing.assert_allclose(
        in_order.predict(X[shuffled], qid[shuffled]), scores[shuffled], rtol=1e-5, atol=1e-6
    )


@every
def test_the_same_seed_gives_the_same_scores(kind, tiny, fitted):
    again, other = (make(kind, random_state=s).fit_log(*tiny) for s in (SEED, SEED + 1))
    scores = fitted[kind].predict(tiny[0])
    np.testing.assert_array_equal(again.predict(tiny[0]), scores)
    assert not np.array_equal(other.predict(tiny[0]), scores)


@every
def test_a_clipped_log_is_what_clip_trains_on(kind, tiny):
    dataset, log = tiny
    alone = {} if kind == "linear" else {"patience": None}  # held-out clicks are not clipped
    a = make(kind, clip=0.3, **alone).fit_log(dataset, log)
    b = make(kind, **alone).fit_log(dataset, log.clip(0.3))
    np.testing.assert_array_equal(a.predict(dataset), b.predict(dataset))
    assert (a.clip_, b.clip_) == (0.3, None)


@every
def test_progress(kind, tiny):
    said = []
    make(kind).fit_log(*tiny, progress=lambda what, share: said.append((what, share)))
    shares = [share for _, share in said]
    assert shares == sorted(shares)
    assert 0 < shares[0]
    assert said[-1] == ("training", pytest.approx(1))


@every
def test_what_it_remembers(kind, tiny, fitted):
    dataset, log = tiny
    ranker = fitted[kind]
    assert (ranker.n_queries_, ranker.n_features_in_) == (dataset.n_queries, dataset.n_features)
    assert ranker.fingerprint_ == dataset.fingerprint
    assert ranker.provenance_["n_clicks"] == log.n_clicks
    library = LIBRARIES.get(kind, ("numpy",))[0]
    assert library in ranker.provenance_["versions"]


@every
def test_ranks_are_those_of_scores(kind, table, fitted):
    X, y, qid, propensity = table
    ranker, weights = fitted[kind], y / propensity
    ranks = ranker.rank(X, qid)
    scores = ranker.predict(X, qid)
    for query in np.unique(qid)[:10]:
        rows = np.flatnonzero(qid == query)
        best_first = rows[np.argsort(-scores[rows], kind="stable")]
        assert ranks[best_first].tolist() == list(range(1, len(rows) + 1))
    score = ranker.score(X, y, qid=qid, propensity=propensity)
    assert score == pytest.approx(weights @ (1 / np.log2(1 + ranks)) / weights.sum())


@every
def test_sample_weights_multiply_those_of_clicks(kind, table, fitted, rng):
    X, y, qid, propensity = table
    times = rng.integers(1, 4, len(y))
    score = fitted[kind].score(X, y, qid=qid, propensity=propensity, sample_weight=times)
    assert score == pytest.approx(fitted[kind].score(X, y * times, qid=qid, propensity=propensity))


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
def test_bad_sample_weights(kind, weights, match, fitted):
    X = np.zeros((3, 5))
    with pytest.raises(DataError, match=match):
        fitted[kind].score(X, [0, 2, 0], qid=[1, 1, 1], sample_weight=weights)


# -- queries


@every
def test_rows_without_queries_are_one_query_aloud(kind, tiny):
    X, y = tiny[0].features[:30], np.arange(30) % 3
    with pytest.warns(OneQueryWarning, match=r"qid is None.*set_fit_request.*which is assumed"):
        without = make(kind).fit(X, y)
    scores = make(kind).fit(X, y, qid=np.zeros(30, int)).predict(X)
    np.testing.assert_array_equal(without.predict(X), scores)
    many = np.repeat(X, 50, axis=0)
    with pytest.raises(ParameterError, match=r"qid is None.*set_fit_request\(qid=True\)"):
        make(kind).fit(many, np.repeat(y, 50))


@every
def test_ranks_and_score_need_queries(kind, tiny, table, fitted):
    X, y, _, propensity = table
    for use in (
        lambda: fitted[kind].rank(X),
        lambda: fitted[kind].score(X, y, propensity=propensity),
        lambda: make(kind, normalize="query-minmax").fit_log(*tiny).predict(X),
    ):
        with pytest.raises(ParameterError, match="qid is None, expected the query of each row"):
            use()


@every
def test_evaluation_sees_names_and_queries(kind, tiny):
    """A ranker gets the dataset itself, so that names are checked and queries are known."""
    data, log = tiny
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


# -- files


@pytest.mark.parametrize("normalize", [None, "minmax", "standard", "query-minmax"])
@every
def test_a_saved_ranker_scores_the_same_to_the_bit(kind, tiny, tmp_path, normalize):
    dataset, log = tiny
    ranker = make(kind, normalize=normalize, l2=np.float32(0.1)).fit_log(dataset, log)
    ranker.save(tmp_path / "ranker.json")
    loaded = load_ranker(tmp_path / "ranker.json")
    assert type(loaded) is type(ranker)
    np.testing.assert_array_equal(loaded.predict(dataset), ranker.predict(dataset))
    assert loaded.get_params() == ranker.get_params()
    assert loaded.normalizer_ == ranker.normalizer_
    assert not hasattr(loaded, "feature_names_in_")
    kept = {name for name in vars(ranker) if name.endswith("_")} - {"history_", "tuning_"}
    for name in kept - {"scorer_", "normalizer_"}:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(ranker, name))
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "ranker.json").read_bytes()
    content = json.loads((tmp_path / "ranker.json").read_text())["ranker"]
    assert set(content["written_by"]) == {"countersample", "numpy", "python", "scikit-learn"}


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


def test_they_rank_without_the_libraries_that_trained_them(tiny, fitted, tmp_path):
    np.save(tmp_path / "features.npy", tiny[0].features)
    for kind, ranker in fitted.items():
        ranker.save(tmp_path / f"{kind}.json")
    subprocess.run([sys.executable, "-c", SCORE_WITHOUT, *fitted], cwd=tmp_path, check=True)
    for kind, ranker in fitted.items():
        scores = np.load(tmp_path / f"{kind}.npy")
        np.testing.assert_array_equal(scores, ranker.predict(tiny[0]))


@every
def test_names_are_saved(kind, table, tmp_path):
    names = ["bm25", "größe", "c", "d", "e"]
    frame = pd.DataFrame(table[0], columns=names)
    rng = np.random.default_rng(SEED)
    fit(make(kind, random_state=rng), (frame, *table[1:])).save(tmp_path / "r")
    loaded = type(make(kind)).load(tmp_path / "r")
    assert loaded.feature_names_in_.tolist() == names
    assert loaded.random_state is None
    with pytest.raises(DataError, match="order") as raised:
        loaded.predict(frame[names[::-1]])
    assert "\n" not in str(raised.value)


@every
def test_files_that_are_refused(kind, fitted, tmp_path):
    path, ranker = tmp_path / "ranker.json", fitted[kind]
    ranker.save(path)
    text = path.read_text()

    def refused(content, match):
        path.write_text(content)
        with pytest.raises(DataError, match=match) as raised:
            load_ranker(path)
        assert str(path) in str(raised.value)

    refused("", "not a ranker file")
    refused('{"some": "json"}', "not a ranker file")
    refused(text[: len(text) // 2], "a damaged ranker file")
    refused(text.replace('"n_queries_": 40', '"n_queries_": 41'), "damaged .*it was changed")
    refused(text.replace('"version": 3', '"version": 2', 1), "format version 2, expected 3")
    path.unlink()
    with pytest.raises(DataError, match="No such file"):
        load_ranker(path)
    with pytest.raises(CounterSampleError, match="cannot save a object, expected plain values"):
        copy(ranker).set_params(clip=object()).save(path)
    assert not path.exists()


@every
def test_a_file_of_another_kind(kind, fitted, tmp_path):
    fitted[kind].save(tmp_path / "ranker.json")
    others = {type(each) for each in fitted.values()} - {type(fitted[kind])}
    for other in others:
        with pytest.raises(DataError, match=f"of the kind '{fitted[kind].kind}', expected '"):
            other.load(tmp_path / "ranker.json")


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
def test_other_features_than_in_training(kind, tiny, fitted):
    dataset, ranker = tiny[0], fitted[kind]
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
def test_names_are_forgotten_with_the_data_that_had_them(kind, tiny, table):
    frame = pd.DataFrame(table[0], columns=list("abcde"))
    ranker = fit(make(kind), (frame, *table[1:]))
    assert ranker.predict(tiny[0]).shape == (tiny[0].n_items,)  # no names, no question
    assert not hasattr(ranker.fit_log(*tiny), "feature_names_in_")


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
def test_the_propensity_of_what_is_not_clicked_does_not_matter(kind, table):
    X, y, qid, propensity = table
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
    ("clip", 2.0, "'auto' or a number above 0 and at most 1"),
    ("clip", 0, "'auto' or a number above 0 and at most 1"),
    ("clip", "some", "'auto' or a number above 0 and at most 1"),
    ("normalize", "max", "one of query-minmax, minmax, standard"),
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
def test_bad_parameters_are_the_same_sentence(kind, name, value, expected, tiny):
    with pytest.raises(ParameterError) as raised:
        make(kind, **{name: value}).fit_log(*tiny)
    said = str(raised.value)
    assert said.startswith(f"{name} is {value!r}, expected ")
    assert expected in said


@every
def test_a_metric_that_clicks_cannot_estimate(kind, tiny):
    with pytest.raises(ParameterError, match="cannot be estimated from clicks"):
        make(kind, metric="ndcg@10").fit_log(*tiny)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_missing_library(kind, tiny, monkeypatch):
    library, extra = LIBRARIES[kind]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingExtraError, match=rf'{library}.*pip install "countersample\[{extra}\]"'
    ):
        make(kind).fit_log(*tiny)
