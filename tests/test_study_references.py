"""Full supervision: w* is learned from labels."""

import numpy as np
import pytest

from countersample import RankingDataset
from countersample.evaluation import evaluate
from countersample.study import references
from countersample.study.references import supervised


@pytest.mark.parametrize("n_features_used", [1, 3])
def test_it_is_tuned_on_its_own(n_features_used):
    """Relevance is a sum of features: w* ranks test data nearly perfectly, at any scale of them."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(900, 3)) * 10.0**n_features_used
    grades = np.digitize(features[:, :n_features_used].sum(axis=1) / 10.0**n_features_used, [1, 2])
    whole = RankingDataset.from_arrays(X=features, y=grades, qid=np.arange(900) // 15)
    train, vali, test = whole.split(0.5, 0.2, 0.3, rng=0)
    weights = supervised(train, vali, steps=2000, seed=0)
    assert evaluate(test.features @ weights, test, "ndcg@10", no_relevant="skip")["ndcg@10"] > 0.97


# -- of four ways ---------------------------------------------------------------------------------

# Queries of two items. Feature 0 ranks all of them right; feature 1 ranks half of them right,
# feature 2 none: nDCG@10 is 1 at rank 1 and 1/log2(3) at rank 2.
N_QUERIES = 40
SIGN = np.where(np.arange(N_QUERIES) % 2, 1.0, -1.0)
FEATURES = np.zeros((N_QUERIES, 2, 3))
FEATURES[:, 0] = np.column_stack([np.ones(N_QUERIES), SIGN, -np.ones(N_QUERIES)])
DATA = RankingDataset.from_arrays(
    X=FEATURES.reshape(-1, 3), y=np.tile([1, 0], N_QUERIES), qid=np.repeat(np.arange(N_QUERIES), 2)
)
RIGHT, HALF, WRONG = np.eye(3)


def w_star(monkeypatch, *ways):
    """w* where the four ways end in these weights."""
    weights = dict(zip(references.WAYS, ways, strict=True))
    monkeypatch.setattr(
        references,
        "_train_tuned",
        lambda _data, _vali, gain, objective, **_: weights[gain, objective],
    )
    return supervised(DATA, DATA, steps=1, seed=0)


def test_one_that_is_best_by_far_is_taken(monkeypatch):
    weights = w_star(monkeypatch, HALF, WRONG, 5 * RIGHT, WRONG)
    assert np.allclose(weights / weights[0], RIGHT)


def test_those_that_cannot_be_told_apart_are_averaged_on_one_scale(monkeypatch):
    """5·(1, 0, 0) and (1, 0, 0) + a little of feature 1 rank alike; their scores do not."""
    near = np.array([1.0, 0.1, 0.0])
    weights = w_star(monkeypatch, 5 * RIGHT, WRONG, HALF, near)
    first = DATA.features @ (5 * RIGHT)
    scales = first.std(), (DATA.features @ near).std()
    assert np.allclose(weights, (5 * RIGHT / scales[0] + near / scales[1]) / 2, rtol=1e-5)
