"""Training in rounds: starts of networks and trees, and when they replace the logging policy."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import SEED
from every_ranker import each_of

from countersample import ClickLog, PositionBias, RankingDataset, evaluate, simulate_clicks
from countersample._progress import Progress
from countersample.errors import DataError
from countersample.evaluation import HeldOut
from countersample.evaluation.estimators import logged_values
from countersample.export import export
from countersample.gbdt import GBDTRanker, gbdt_ranker
from countersample.objectives import score_space
from countersample.plans import Examples
from countersample.rankers import load_ranker, task
from countersample.rankers.logging_policy import PolicyImitation, imitate
from countersample.rankers.rounds import (
    RoundHistory,
    RoundValues,
    Way,
    choose_round,
    evaluate_rounds,
)
from countersample.rankers.task import BASE_SPREADS, list_starts, scale_base, weigh_clicks
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


@kinds
def test_the_kept_imitation_is_saved_and_exported(kind, data, tmp_path):
    policy = data.features @ WEIGHTS
    log = clicks_on(data, -policy, 20_000)
    ranker = make(kind).fit_log(data, log, baseline=data.labels + 0.01 * policy)
    assert ranker.path_.kept == 1
    assert not getattr(ranker, "n_trees_" if kind != "neural" else "n_steps_")
    features = ranker.preprocessing_.features(data.features, data.offsets)
    expected = LinearScorer(ranker.served_.weights).predict(features)
    scores = ranker.predict(data)
    np.testing.assert_allclose(
        scores / scores.std(), expected / expected.std(), rtol=1e-3, atol=1e-4
    )
    ranker.save(tmp_path / "ranker.json")
    loaded = load_ranker(tmp_path / "ranker.json")
    np.testing.assert_array_equal(loaded.predict(data), scores)
    written = export(loaded, tmp_path / "r.json", to="solr", feature_names=list("abcd"))
    assert written.form == ("NeuralNetworkModel" if kind == "neural" else "LinearModel")


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


@kinds
def test_temper_is_that_of_the_log(kind, data):
    log = clicks_on(data, data.features[:, 2], 1000)
    a = make(kind, temper=0.5, patience=None).fit_log(data, log)
    b = make(kind, patience=None).fit_log(data, log.temper(0.5))
    np.testing.assert_array_equal(a.predict(data), b.predict(data))


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


def test_list_starts():
    policy, unknown = (SimpleNamespace(served=each, previous=None) for each in (object(), None))
    assert list_starts("auto", policy, has_holdout=True) == ("served", "zero")
    assert list_starts("auto", policy, has_holdout=False) == ("zero",)
    assert list_starts("auto", unknown, has_holdout=True) == ("zero",)
    assert list_starts("linear", unknown, has_holdout=True) == ("linear",)


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


def test_a_base_of_zeros_stays(data):
    log = clicks_on(data, data.features[:, 2], 100)
    np.testing.assert_array_equal(scale_base(np.zeros(4), data, log, objective="rank"), np.zeros(4))


def test_training_weights():
    log = ClickLog([0, 0], [0, 1], [0.25, 0.01], [2, 1])
    weights = weigh_clicks(log, clip=0.04, temper=0.5).weights
    np.testing.assert_allclose(weights, [2 / 0.5, 1 / 0.2])  # 2/√0.25, 1/√0.04


# -- the choice of a round


class FakeRounds:
    """Scores that rank better up to a round, and worse afterwards."""

    def __init__(self, labels, best):
        self.labels, self.best = labels, best
        self.steps, self.losses = [0], [np.nan]

    def advance(self):
        self.steps.append(self.steps[-1] + 1)
        self.losses.append(0.0)

    def held_out_scores(self):
        noise = np.random.default_rng(0).normal(size=len(self.labels))
        return self.labels + (0.1 + abs(self.steps[-1] - self.best)) * noise


@pytest.mark.parametrize(
    ("metric", "first", "best"), [("dcg@10", 0, 0), ("dcg@10", 1, 4), ("arp", 0, 3)]
)
def test_rounds_end_when_patience_does(metric, first, best, data):
    held_out = HeldOut(data, ClickLog.from_labels(data), metric, rng=np.random.default_rng(SEED))
    trainings = [FakeRounds(fold.validation.labels, best) for fold in held_out.folds]
    values = evaluate_rounds(
        held_out, trainings, first=first, max_rounds=50, patience=6, progress=Progress()
    )
    np.testing.assert_array_equal(values.history.steps, np.arange(first, best + 7))
    losses = values.history.value if metric == "arp" else -values.history.value
    assert first + losses.argmin() == best
    assert held_out.value(values.sums[0]) == values.history.value[0]


def values_of(held_out, *signs):
    """Return rounds that rank by the labels, times a sign each."""
    sums = np.array(
        [held_out.sums([sign * f.validation.labels for f in held_out.folds]) for sign in signs]
    )
    values = np.array([held_out.value(each) for each in sums])
    return RoundValues(RoundHistory(np.arange(len(signs)), np.zeros(len(signs)), values), sums)


def choose(held_out, evaluated, served=None, safety=0.95):
    return choose_round(
        held_out, {Way(start): values_of(held_out, *signs) for start, signs in evaluated.items()},
        SimpleNamespace(served=served), safety=safety, temper=1.0,
        kept_transform=None, rng=np.random.default_rng(SEED),
    )  # fmt: skip


@pytest.mark.parametrize("metric", ["dcg@10", "arp"])
def test_the_best_round_is_chosen_if_it_is_shown_to_be_better(metric, data):
    log = clicks_on(data, data.features[:, 2], 5000)
    logged = logged_values(log, data, metric)
    held_out = HeldOut(data, log, metric, logged=logged, rng=np.random.default_rng(SEED))
    served = PolicyImitation(np.zeros(data.n_features), 1.0, "clicks")
    way, k, path = choose(held_out, {"served": (0, -1), "zero": (-1, 1, 0)}, served)
    assert (way.start, k) == ("zero", 1)
    assert [candidate.share for candidate in path.candidates] == [0, 0, 0, 1, 0]
    assert path.reference_value == pytest.approx(held_out.value(held_out.logged_sums()))
    _, _, path = choose(held_out, {"zero": (-1, -1)}, served)
    assert (path.kept, path.keeps, path.imitation_value) == (1, "served", None)
    _, _, path = choose(held_out, {"zero": (-1, -1)}, served, safety=0)
    assert path.kept == 0
    assert choose(held_out, {"zero": (-1, 1)}) == (Way("zero"), 1, None)


def test_a_warm_start_is_the_reference_if_no_positions_are_known(data):
    held_out = HeldOut(data, ClickLog.from_labels(data), "dcg@10", rng=np.random.default_rng(SEED))
    way, k, path = choose(held_out, {"previous": (-1, 1)})
    assert (way.start, k, path.kept) == ("previous", 1, 0)
    _, _, path = choose(held_out, {"previous": (1, -1)})
    assert (path.reference, path.keeps, path.kept) == ("previous", "previous", 1)
    assert path.sentence.endswith("The ranker stays as it was.")
