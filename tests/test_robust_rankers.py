"""Rankers with ``doubly_robust=True``: trained by its weights, judged by clicks as they are."""

import numpy as np
import pytest
from conftest import SEED

from countersample import (
    CounterSampleRanker,
    PositionBias,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.clicks import simulate_impressions
from countersample.errors import DataError, ParameterError
from countersample.evaluation import doubly_robust_log
from countersample.evaluation.doubly_robust import default_clip
from countersample.gbdt import GBDTRanker
from countersample.logs import PositionCounts, join_features
from countersample.rankers import load_ranker
from countersample.rankers.task import Robust, Tasks


@pytest.fixture(scope="module")
def tiny():
    return synthetic("tiny", n_queries=120, rng=SEED)


@pytest.fixture(scope="module")
def log(tiny):
    bias = PositionBias(1.5)
    table = simulate_impressions(tiny, tiny.features[:, 0], 2000, bias=bias, relevant=1, top=5,
                                 rng=SEED)  # fmt: skip
    columns = (table[name].to_numpy() for name in ("query_id", "item_id", "position", "click"))
    return join_features(PositionCounts.from_columns(*columns), bias, tiny, keep="shown")[0]


def test_a_run_is_that_on_the_doubly_robust_log(tiny, log):
    ranker = CounterSampleRanker(
        doubly_robust=True, clip=0.3, learning_rate=0.01, steps=50, normalize=None,
        random_state=SEED,
    ).fit_log(tiny, log)  # fmt: skip
    rng = np.random.default_rng(SEED)
    robust = doubly_robust_log(tiny, log, clip=0.3, rng=int(rng.integers(2**63)))
    alone = train(tiny, robust, learning_rate=0.01, steps=50, unit="query", rng=rng)
    np.testing.assert_allclose(ranker.weights_, alone.weights, rtol=1e-6)
    assert ranker.clip_ == 0.3


def test_what_is_learned_without_a_fold_has_not_seen_its_clicks(tiny, log):
    """Neither does the model of relevance: other clicks of the fold leave it as it is."""
    task = Tasks(tiny, log, robust=Robust(0.3, 1)).of(None)
    held_out, logs = task.held_out("dcg@10", 0.5, np.random.default_rng(0))
    queries = held_out.folds[0].queries
    assert not np.isin(logs[0].query, queries).any()
    changed = np.where(np.isin(log.query, queries), log.impressions, log.clicks)
    other = Tasks(tiny, log.replace(count=changed), robust=Robust(0.3, 1)).of(None)
    rows = ~np.isin(log.query, queries)
    assert other._training_clicks(rows).weights.tolist() == logs[0].weights.tolist()


def test_held_out_clicks_judge_as_they_are(tiny, log):
    plain, robust = (
        Tasks(tiny, log, robust=each).of(None).held_out("dcg@10", 0.2, np.random.default_rng(0))[0]
        for each in (None, Robust(0.3, 1))
    )
    assert [fold.weights.tolist() for fold in robust.folds] == [
        fold.weights.tolist() for fold in plain.folds
    ]


def test_trees_are_trained_and_read_back(tiny, log, tmp_path):
    ranker = GBDTRanker(doubly_robust=True, n_trees=20, patience=5, random_state=SEED)
    ranker.fit_log(tiny, log).save(tmp_path / "ranker.json")
    assert ranker.clip_ == default_clip(log) == 10 / np.sqrt(2000)
    again = load_ranker(tmp_path / "ranker.json")
    assert again.doubly_robust
    assert again.predict(tiny).tolist() == ranker.predict(tiny).tolist()


@pytest.mark.parametrize("kind", [CounterSampleRanker, GBDTRanker])
def test_what_is_refused(kind, tiny, log):
    clicks = simulate_clicks(tiny, tiny.features[:, 0], 500, relevant=1, rng=SEED)
    with pytest.raises(DataError, match=r"no impressions.*keep='shown'"):
        kind(doubly_robust=True).fit_log(tiny, clicks)
    with pytest.raises(ParameterError, match="doubly_robust is 1, expected True or False"):
        kind(doubly_robust=1).fit_log(tiny, log)
    with pytest.raises(ParameterError, match="method is 'naive' with doubly_robust"):
        kind(doubly_robust=True, method="naive").fit_log(tiny, log)
