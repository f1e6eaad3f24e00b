"""Every ranker in scikit-learn's tools: pipelines, cross-validation, searches."""
# ruff: noqa: N806 (X is the field's name for it)

import every_ranker
import numpy as np
import pytest
import sklearn
from every_ranker import KINDS, as_table, make
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from countersample.errors import ParameterError
from countersample.rankers import OneQueryWarning

every = pytest.mark.parametrize("kind", KINDS)
REQUESTED = {"qid": True, "propensity": True}


@pytest.fixture(scope="module")
def table():
    return as_table(*every_ranker.tiny())


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def pipeline_of(ranker):
    return Pipeline([("scaler", StandardScaler()), ("ranker", ranker)])


def requesting(kind):
    return make(kind).set_fit_request(**REQUESTED).set_score_request(**REQUESTED)


@every
def test_cross_validation_by_query(kind, table, routing):
    X, y, qid, propensity = table
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


@every
def test_a_search_over_a_pipeline(kind, table, routing):
    X, y, qid, propensity = table
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
def test_a_pipeline_without_routing(kind, table):
    X, y, qid, propensity = table
    pipeline = pipeline_of(make(kind)).fit(X, y, ranker__qid=qid, ranker__propensity=propensity)
    ranker = make(kind).fit(StandardScaler().fit_transform(X), y, qid=qid, propensity=propensity)
    np.testing.assert_array_equal(
        pipeline.predict(X), ranker.predict(StandardScaler().fit_transform(X))
    )
    with pytest.raises(ParameterError, match=r"set_score_request\(qid=True\)"):
        pipeline.score(X, y)  # scikit-learn can hand it weights, but no queries


@every
def test_scores_of_a_pipeline_are_weighted(kind, table):
    X, y, _, _ = table
    X, y = X[:60], y[:60]
    pipeline = pipeline_of(make(kind)).fit(X, y, ranker__qid=np.zeros(60, int))
    once = y > 0
    assert pipeline.score(X, once, sample_weight=y) == pytest.approx(pipeline.score(X, y))


@every
def test_groups_without_queries_do_not_go_unnoticed(kind, table):
    X, y, qid, _ = table
    with pytest.warns(OneQueryWarning, match="groups do not reach fit"):
        cross_val_score(make(kind), X, y, groups=qid, cv=GroupKFold(2))
    X, y, qid = (np.concatenate([each] * 10) for each in (X, y, qid))
    with pytest.raises(ParameterError, match="groups do not reach fit"):
        cross_val_score(make(kind), X, y, groups=qid, cv=GroupKFold(2), error_score="raise")
