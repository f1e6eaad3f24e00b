"""The metrics against scikit-learn and trec_eval, where these define them alike."""

import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics import dcg_score, ndcg_score
from twins_metrics import rows_of

from countersample.metrics import dcg, get_metric, ndcg


def random_queries(rng, *, n_queries=200, max_size=60, levels=None):
    sizes = rng.integers(2, max_size + 1, n_queries)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    labels = rng.choice(5, offsets[-1], p=[0.6, 0.2, 0.1, 0.06, 0.04]).astype(np.float32)
    if levels is None:
        scores = rng.permutation(offsets[-1]).astype(np.float64)  # no ties
    else:
        scores = rng.integers(0, levels, offsets[-1]).astype(np.float64)
    return labels, scores, offsets


@pytest.mark.parametrize("k", [1, 10, None])
@pytest.mark.parametrize("levels", [None, 3])
def test_scikit_learn_agrees_with_expected_ties(rng, k, levels):
    labels, scores, offsets = random_queries(rng, levels=levels)
    ours = {
        function: function(labels, scores, offsets, k=k, gain="linear", ties="expected")
        for function in (ndcg, dcg)
    }
    for query, rows in enumerate(rows_of(offsets)):
        y, s = labels[None, rows], scores[None, rows]
        assert ours[ndcg][query] == pytest.approx(ndcg_score(y, s, k=k), rel=1e-9)
        assert ours[dcg][query] == pytest.approx(dcg_score(y, s, k=k), rel=1e-9)


def test_trec_eval_agrees(rng):
    labels, scores, offsets = random_queries(rng)
    names = {
        "ndcg": get_metric("ndcg", gain="linear"),
        "ndcg_cut_10": get_metric("ndcg@10", gain="linear"),
        "P_5": get_metric("precision@5"),
        "P_100": get_metric("precision@100"),
        "map": get_metric("average_precision"),
        "map_cut_10": get_metric("average_precision@10"),
        "recip_rank": get_metric("mrr"),
    }
    grades, run = {}, {}
    for query, rows in enumerate(rows_of(offsets)):
        items = [f"d{i}" for i in range(rows.start, rows.stop)]
        grades[f"q{query}"] = dict(zip(items, labels[rows].astype(int).tolist(), strict=True))
        run[f"q{query}"] = dict(zip(items, scores[rows].tolist(), strict=True))
    measures = {"ndcg", "ndcg_cut.10", "P.5,100", "map", "map_cut.10", "recip_rank"}
    theirs = pytrec_eval.RelevanceEvaluator(grades, measures).evaluate(run)
    for name, metric in names.items():
        expected = [theirs[f"q{query}"][name] for query in range(len(offsets) - 1)]
        np.testing.assert_allclose(metric(labels, scores, offsets), expected, rtol=1e-9)
