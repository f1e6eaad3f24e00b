"""The comparison of methods behind the demo and the studies."""

import numpy as np
import pytest
from conftest import SEED

from countersample import evaluate, synthetic
from countersample.evaluation import learning_curve
from countersample.study.demo.comparison import (
    METHODS,
    Comparison,
    MethodResult,
    compare,
)


def made(curves, points=(10, 20, 30), best=0.8):
    results = [
        MethodResult(method, np.array(curve, float), 0.1, 100.0, 0)
        for method, curve in zip(METHODS, curves, strict=False)
    ]
    return Comparison(np.array(points), best, 0.5, results, {})


class TestFigures:
    def test_regret_is_the_mean_distance_over_the_points(self):
        comparison = made([[[0.5, 0.6, 0.7], [0.7, 0.7, 0.7]]])
        regrets = comparison.results[0].regrets(0.8)
        assert regrets.tolist() == pytest.approx([(0.3 + 0.2 + 0.1) / 3, 0.1])

    def test_steps_to_a_share_of_the_best_mean_of_all(self):
        comparison = made([[[0.5, 0.6, 0.7]], [[0.1, 0.69, 0.695]], [[0.1, 0.2, 0.3]]])
        # 99 % of 0.7 is 0.693
        steps = [comparison.steps_to(result) for result in comparison.results]
        assert steps == [30, 30, None]
        assert comparison.steps_to(comparison.results[0], share=0.8) == 20


def test_learning_curve_is_evaluate_for_each(rng):
    data = synthetic("tiny", n_queries=40, rng=SEED)
    coefs = rng.normal(size=(7, data.n_features))
    expected = [
        evaluate(data.features @ w.astype(np.float32), data, "ndcg@5")["ndcg@5"] for w in coefs
    ]
    np.testing.assert_allclose(learning_curve(coefs, data, "ndcg@5"), expected, atol=1e-6)


def test_what_the_paper_shows():
    """Naive is far off; drawing by weight has less regret than weighting; by query has least."""
    data = synthetic("yahoo-like", n_queries=1500, rng=SEED).normalized()
    parts = data.split(0.7, 0.1, 0.2, rng=SEED)
    comparison = compare(*parts, n_clicks=50_000, steps=15_000, n_points=30, seeds=range(3))
    naive, ips, sampled, by_query = (
        result.regrets(comparison.best) for result in comparison.results
    )
    assert naive.mean() > sampled.mean()
    assert ips.mean() > sampled.mean() > by_query.mean()
    assert comparison.policy < comparison.best
    assert all(result.n_diverged == 0 for result in comparison.results)
