"""Every ranker in scikit-learn: its checks, pipelines, cross-validation, searches."""
# ruff: noqa: N806 (X is the field's name for it)

import inspect

import numpy as np
import pytest
import sklearn
from every_ranker import RANKERS, TRAINABLE, every, fitted, make, table
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from countersample.errors import ParameterError
from countersample.rankers import OneQueryWarning

REQUESTED = {"qid": True, "propensity": True}


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def pipeline_of(ranker):
    return Pipeline([("scaler", StandardScaler()), ("ranker", ranker)])


def requesting(kind):
    return make(kind).set_fit_request(**REQUESTED).set_score_request(**REQUESTED)


@pytest.mark.filterwarnings("ignore:qid is None")  # its checks know of no queries
@parametrize_with_checks([RANKERS[kind]() for kind in TRAINABLE])
def test_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("scikit-learn skips it as well, unless SCIPY_ARRAY_API is set")
    check(estimator)


@every
def test_params_and_clone(kind):
    ranker = fitted(kind)
    copy = clone(ranker).set_params(clip=0.1, random_state=7)
    assert copy.get_params() == ranker.get_params() | {"clip": 0.1, "random_state": 7}
    assert not hasattr(copy, "scorer_")


@every
def test_parameters_are_given_by_name(kind):
    given = inspect.signature(type(make(kind)).__init__).parameters.values()
    assert {each.kind for each in list(given)[1:]} == {inspect.Parameter.KEYWORD_ONLY}


@every
def test_it_is_shown_in_a_notebook(kind):
    assert type(fitted(kind)).__name__ in fitted(kind)._repr_html_()
    assert "random_state" in make(kind)._repr_html_()


@pytest.mark.usefixtures("routing")
@every
def test_cross_validation_by_query(kind):
    X, y, qid, propensity = table()
    params = {"groups": qid, "qid": qid, "propensity": propensity}
    found = {}
    for name, model in (("alone", requesting(kind)), ("last", pipeline_of(requesting(kind)))):
        scores = cross_val_score(model, X, y, cv=GroupKFold(2), params=params)
        assert scores.shape == (2,)
        assert ((scores > 0) & (scores <= 1)).all()
        found[name] = scores
    train, test = next(GroupKFold(2).split(X, y, qid))
    ranker = make(kind).fit(X[train], y[train], qid=qid[train], propensity=propensity[train])
    score = ranker.score(X[test], y[test], qid=qid[test], propensity=propensity[test])
    assert found["alone"][0] == score


@pytest.mark.usefixtures("routing")
@every
def test_a_search_over_a_pipeline(kind):
    X, y, qid, propensity = table()
    pipeline = pipeline_of(requesting(kind))
    grid = {"ranker__learning_rate": [1e-9, 1e-2], "scaler__with_mean": [False, True]}
    search = GridSearchCV(pipeline, grid, cv=GroupKFold(2))
    search.fit(X, y, groups=qid, qid=qid, propensity=propensity)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_[-1].n_queries_ == len(np.unique(qid))
    assert search.predict(X).shape == (len(X),)
    score = search.score(X, y, qid=qid, propensity=propensity)
    assert score == search.best_estimator_.score(X, y, qid=qid, propensity=propensity)


@every
def test_a_pipeline_without_routing(kind):
    X, y, qid, propensity = table()
    pipeline = pipeline_of(make(kind)).fit(X, y, ranker__qid=qid, ranker__propensity=propensity)
    ranker = make(kind).fit(StandardScaler().fit_transform(X), y, qid=qid, propensity=propensity)
    np.testing.assert_array_equal(
        pipeline.predict(X), ranker.predict(StandardScaler().fit_transform(X))
    )
    with pytest.raises(ParameterError, match=r"set_score_request\(qid=True\)"):
        pipeline.score(X, y)  # scikit-learn can hand it weights, but no queries


@every
def test_scores_of_a_pipeline_are_weighted(kind):
    X, y, _, _ = table()
    X, y = X[:60], y[:60]
    pipeline = pipeline_of(make(kind)).fit(X, y, ranker__qid=np.zeros(60, int))
    once = y > 0
    assert pipeline.score(X, once, sample_weight=y) == pytest.approx(pipeline.score(X, y))


@every
def test_groups_without_queries_do_not_go_unnoticed(kind):
    X, y, qid, _ = table()
    with pytest.warns(OneQueryWarning, match="groups do not reach fit"):
        cross_val_score(make(kind), X, y, groups=qid, cv=GroupKFold(2))
    X, y, qid = (np.concatenate([each] * 10) for each in (X, y, qid))
    with pytest.raises(ParameterError, match="groups do not reach fit"):
        cross_val_score(make(kind), X, y, groups=qid, cv=GroupKFold(2), error_score="raise")
