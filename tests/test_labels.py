"""Means of metrics over a dataset, from scores and from rankers."""

import numpy as np
import pytest
from conftest import SEED

from countersample import RankingDataset, evaluate, synthetic
from countersample.errors import DataError
from countersample.evaluation import learning_curve

# Query a is ranked 2, 0 by its one feature; query b is ranked 0, 1; query c has nothing relevant.
DATA = RankingDataset.from_arrays(
    X=[[0.1], [0.9], [0.5], [0.4], [0.3]], y=[0, 2, 0, 1, 0], qid=["a", "a", "b", "b", "c"]
)
SCORES = DATA.features[:, 0]


def test_means_by_hand():
    assert evaluate(SCORES, DATA, ["precision@1", "mrr", "arp"]) == {
        "precision@1": (1 + 0 + 0) / 3,
        "mrr": (1 + 1 / 2 + 0) / 3,
        "arp": (1 + 2) / 2,  # query c is left out
    }


def test_values_of_each_query():
    found = evaluate(SCORES, DATA, ["mrr", "arp"], per_query=True)
    assert found.query_ids.tolist() == ["a", "b", "c"]
    assert found["mrr"].tolist() == [1, 1 / 2, 0]
    assert found["arp"][:2].tolist() == [1, 2]
    assert np.isnan(found["arp"][2])  # skipped
    assert found.means == evaluate(SCORES, DATA, ["mrr", "arp"])
    frame = found.to_frame("pandas")
    assert list(frame.columns) == ["query", "mrr", "arp"]
    assert frame["mrr"].mean() == found.means["mrr"]
    assert "mrr" in found._repr_html_()


def test_a_query_of_no_relevant_items_alone_has_no_mean():
    with pytest.raises(DataError, match="arp has no query to average: of 1 queries, none has"):
        evaluate([0.3], DATA.subset([2]), ["arp"])


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([0.1, 0.2], r"scores have shape \(2,\), expected \(5,\)"),
        (np.ones((5, 1)), r"scores has shape \(5, 1\), expected a column"),
        ([0.1, 0.2, 0.3, np.nan, 0.5], r"scores have NaN at row 3 \(query 1, "),
    ],
)
def test_scores_that_do_not_fit_are_refused(scores, sentence):
    with pytest.raises(DataError, match=sentence):
        evaluate(scores, DATA, ["ndcg@10"])


def test_learning_curve_is_evaluate_for_each(rng):
    data = synthetic("tiny", n_queries=40, rng=SEED)
    coefs = rng.normal(size=(7, data.n_features))
    expected = [
        evaluate(data.features @ w.astype(np.float32), data, "ndcg@5")["ndcg@5"] for w in coefs
    ]
    np.testing.assert_allclose(learning_curve(coefs, data, "ndcg@5"), expected, atol=1e-6)
