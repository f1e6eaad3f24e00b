"""Full supervision: w* is learned from labels."""

import numpy as np
import pytest

from countersample import RankingDataset
from countersample.evaluation import evaluate
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
