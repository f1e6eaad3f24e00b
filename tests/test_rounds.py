"""Training in rounds: starts of networks and trees, and when they replace the logging policy."""

import numpy as np
import pytest
from conftest import SEED
from every_ranker import each_of

from countersample import ClickLog, PositionBias, RankingDataset, evaluate, simulate_clicks
from countersample.errors import DataError
from countersample.evaluation import HeldOut
from countersample.gbdt import GBDTRanker, gbdt_ranker
from countersample.objectives import score_space
from countersample.plans import Examples
from countersample.rankers import task
from countersample.rankers.logging_policy import imitate
from countersample.rankers.task import BASE_SPREADS, scale_base, weigh_clicks
from countersample.scorers import LinearScorer
from countersample.torch import NeuralRanker

TREES = {"n_trees": 30, "patience": 5, "min_items_in_leaf": 10, "num_leaves": 7}
QUICK = {
    "lightgbm": (GBDTRanker, TREES | {"backend_params": {"num_threads": 1}}),
    "xgboost": (GBDTRanker, TREES | {"backend": "xgboost", "backend_params": {"nthread": 1}}),
    "neural": (NeuralRanker, {"hidden": (8,), "learning_rate": 0.01, "epochs": 8, "patience": 3}),
}
kinds = each_of(["lightgbm", "neural"])
WEIGHTS = np.array([1.0, -1.0, 0.5, 0.0])


def make(kind, **params):
    ranker_type, settings = QUICK[kind]
    return ranker_type(**settings | {"random_state": SEED} | params)


def make_data(n_queries, rng):
    """Return items whose grade is a sum of features, plus noise."""
    sizes = rng.integers(8, 15, n_queries)
    features = rng.normal(size=(sizes.sum(), 4)).astype(np.float32)
    quality = features @ WEIGHTS + rng.normal(size=len(features))
    labels = np.digitize(quality, [0.8, 2.0]).astype(np.float32)
    return RankingDataset.from_arrays(features, labels, np.repeat(np.arange(n_queries), sizes))


def clicks_on(dataset, scores, n_clicks):
    return simulate_clicks(
        dataset, scores, n_clicks, bias=PositionBias(gamma=1.0), relevant=1, rng=SEED
    )


@pytest.fixture(scope="module")
def data():
    return make_data(200, np.random.default_rng(SEED))


@pytest.fixture(scope="module")
def unseen():
    return make_data(300, np.random.default_rng([SEED, 1]))


@pytest.fixture
def held_outs(monkeypatch):
    """Record every held-out evaluation of a task."""
    made = []

    class Recorded(HeldOut):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(task, "HeldOut", Recorded)
    return made


def ndcg(ranker_or_scores, dataset):
    return evaluate(ranker_or_scores, dataset, "ndcg@10", no_relevant="skip")["ndcg@10"]


# -- safety


@kinds
def test_few_clicks_keep_a_good_policy(kind, data, unseen):
    policy = data.features @ WEIGHTS
    ranker = make(kind).fit_log(data, clicks_on(data, policy, 200), baseline=policy)
    assert ranker.path_.kept == 1
    assert ndcg(ranker, unseen) > ndcg(unseen.features @ WEIGHTS, unseen) - 0.01


@each_of(QUICK)
def test_many_clicks_replace_a_weak_policy(kind, data, unseen):
    policy = data.features[:, 3]  # independent of the grades
    ranker = make(kind).fit_log(data, clicks_on(data, policy, 20_000))
    assert ranker.path_.kept == 0
    assert ranker.path_.best.low > 0
    assert ndcg(ranker, unseen) > ndcg(unseen.features[:, 3], unseen) + 0.15


# -- starts


@kinds
def test_round_0_of_the_imitation_is_a_candidate(kind, data, held_outs):
    policy = data.features @ WEIGHTS
    log = clicks_on(data, policy, 1000)
    ranker = make(kind, start="served", normalize=None).fit_log(data, log, baseline=policy)
    (held_out,) = held_outs
    weights = [imitate(data, fold.train, baseline=policy).weights for fold in held_out.folds]
    sums = held_out.sums([LinearScorer(each) for each in weights])
    assert ranker.start_ == "served"
    assert ranker.history_.value[0] == pytest.approx(held_out.value(sums), rel=1e-6)
    assert ranker.history_.steps[0] == 0


@kinds
def test_starts(kind, data):
    log = clicks_on(data, data.features[:, 2], 1000)
    best = make(kind, safety=0).fit_log(data, log)  # the better of both
    gains = {}
    for candidate in best.path_.candidates:
        gains.setdefault(candidate.start, []).append(candidate.gain)
    assert set(gains) == {"served", "zero"}
    assert best.start_ == max(gains, key=lambda start: max(gains[start]))
    zero = make(kind, patience=None).fit_log(data, log)  # nothing is held out
    assert (zero.start_, zero.path_, zero.history_) == ("zero", None, None)
    served = make(kind, patience=None, start="served").fit_log(data, log)
    assert served.start_ == "served"
    assert not np.array_equal(served.predict(data), zero.predict(data))
    unknown = ClickLog(log.query, log.item, log.propensity)  # without positions
    ranker = make(kind).fit_log(data, unknown)
    assert (ranker.start_, ranker.path_, ranker.served_) == ("zero", None, None)
    with pytest.raises(DataError, match="start is 'served'"):
        make(kind, start="served").fit_log(data, unknown)


def test_a_linear_start_of_trees_sees_no_held_out_clicks(data, unseen, monkeypatch, held_outs):
    log = clicks_on(data, data.features[:, 2], 5000)
    queries = []

    class Linear(gbdt_ranker.CounterSampleRanker):
        def fit_log(self, dataset, log, **options):
            queries.append(np.unique(log.weighted().query))
            return super().fit_log(dataset, log, **options)

    monkeypatch.setattr(gbdt_ranker, "CounterSampleRanker", Linear)
    ranker = make("lightgbm", start="linear", safety=0, n_trees=10).fit_log(data, log)
    *of_folds, of_all = queries
    for each, fold in zip(of_folds, held_outs[0].folds, strict=True):
        assert not np.isin(each, fold.queries).any()
    np.testing.assert_array_equal(of_all, np.unique(log.query))
    assert ranker.start_ == "linear"
    assert ndcg(ranker, unseen) > ndcg(unseen.features[:, 2], unseen) + 0.1


# -- the scale of a base, and weights


@pytest.mark.parametrize("objective", ["rank", "smooth-log-rank"])
def test_the_scale_of_a_base_has_the_least_risk(objective, data, rng):
    log = clicks_on(data, data.features[:, 2], 2000)
    base = WEIGHTS + 0.3 * rng.normal(size=4)
    scaled = scale_base(base, data, log, objective=objective)
    examples = Examples.of(log, "query")
    clicked = data.subset(examples.query)
    variances = [np.var(s) for s in np.split(clicked.features @ base, clicked.offsets[1:-1])]
    spread = np.sqrt(np.average(variances, weights=clicked.query_sizes))

    def risk(weights):
        scores = LinearScorer(weights).predict(clicked.features)
        parts = clicked.offsets, examples.starts, examples.item, examples.weight
        return score_space(scores, *parts, objective=objective).values.sum()

    risks = [risk(base * size / spread) for size in BASE_SPREADS]
    assert risk(scaled) == pytest.approx(min(risks), rel=1e-6)
    np.testing.assert_allclose(scaled / scaled[0], base / base[0])
    np.testing.assert_allclose(scale_base(1000 * base, data, log, objective=objective), scaled)


def test_training_weights():
    log = ClickLog([0, 0], [0, 1], [0.25, 0.01], [2, 1])
    weights = weigh_clicks(log, clip=0.04, temper=0.5).weights
    np.testing.assert_allclose(weights, [2 / 0.5, 1 / 0.2])  # 2/√0.25, 1/√0.04
