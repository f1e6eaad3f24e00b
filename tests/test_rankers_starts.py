"""What networks and trees start from, and whether they take the place of what was served."""

import numpy as np
import pytest
from conftest import SEED
from every_ranker import RANKERS, each_of, every

from countersample import ClickLog, PositionBias, RankingDataset, evaluate, simulate_clicks
from countersample._progress import Progress
from countersample.errors import DataError
from countersample.evaluation import HeldOut
from countersample.evaluation.estimators import logged_values
from countersample.export import export
from countersample.gbdt import GBDTRanker
from countersample.gbdt import ranker as boosted
from countersample.objectives import LOSSES, score_space
from countersample.plans import Examples
from countersample.rankers import _task, load_ranker
from countersample.rankers._starting import SIZES, sized, starts_of, trained_on
from countersample.rankers._stopping import Judged, Way, choose_round, judge_rounds
from countersample.rankers.served import Served, imitate
from countersample.scorers import LinearScorer
from countersample.torch import NeuralRanker

TREES = {"n_trees": 30, "patience": 5, "min_items_in_leaf": 10, "num_leaves": 7}
QUICK = {
    "lightgbm": (GBDTRanker, TREES | {"backend_params": {"num_threads": 1}}),
    "xgboost": (GBDTRanker, TREES | {"backend": "xgboost", "backend_params": {"nthread": 1}}),
    "neural": (NeuralRanker, {"hidden": (8,), "learning_rate": 0.01, "epochs": 8, "patience": 3}),
}
kinds = each_of(QUICK)
WEIGHTS = np.array([1.0, -1.0, 0.5, 0.0])


def make(kind, **params):
    ranker_type, own = QUICK[kind]
    return ranker_type(**own | {"random_state": SEED} | params)


def made_up(n_queries, rng):
    """Items are good by a sum of features, but for noise."""
    sizes = rng.integers(8, 15, n_queries)
    features = rng.normal(size=(sizes.sum(), 4)).astype(np.float32)
    good = features @ WEIGHTS + rng.normal(size=len(features))
    labels = np.digitize(good, [0.8, 2.0]).astype(np.float32)
    return RankingDataset.from_arrays(features, labels, np.repeat(np.arange(n_queries), sizes))


def clicks_on(dataset, scores, n_clicks):
    return simulate_clicks(
        dataset, scores, n_clicks, bias=PositionBias(gamma=1.0), relevant=1, rng=SEED
    )


@pytest.fixture(scope="module")
def data():
    return made_up(200, np.random.default_rng(SEED))


@pytest.fixture(scope="module")
def unseen():
    return made_up(300, np.random.default_rng([SEED, 1]))


def ndcg(ranker_or_scores, dataset):
    return evaluate(ranker_or_scores, dataset, "ndcg@10", no_relevant="skip")["ndcg@10"]


# -- never worse, and better where clicks show it


@kinds
def test_few_clicks_keep_a_good_policy(kind, data, unseen):
    policy = data.features @ WEIGHTS
    ranker = make(kind).fit_log(data, clicks_on(data, policy, 200), baseline=policy)
    before = ndcg(unseen.features @ WEIGHTS, unseen)
    assert ranker.path_.kept == 1
    assert ndcg(ranker, unseen) > before - 0.01


@kinds
def test_many_clicks_replace_a_weak_policy(kind, data, unseen):
    policy = data.features[:, 3]  # which says nothing
    ranker = make(kind).fit_log(data, clicks_on(data, policy, 20_000))
    assert ranker.path_.kept == 0
    assert ranker.path_.best.low > 0
    assert ndcg(ranker, unseen) > ndcg(unseen.features[:, 3], unseen) + 0.15


@kinds
def test_clicks_that_contradict_each_other_keep_what_was_served(kind, data, unseen):
    """In every second query users click what is irrelevant: no ranker is better for all."""
    query = np.repeat(np.arange(data.n_queries), data.query_sizes)
    labels = np.where(query % 2, data.labels.max() - data.labels, data.labels)
    turned = RankingDataset(data.features, labels, data.offsets, data.query_ids)
    policy = data.features @ WEIGHTS
    log = clicks_on(turned, policy, 5000).replace(fingerprint=None)
    ranker = make(kind).fit_log(data, log, baseline=policy)
    assert ranker.path_.kept == 1
    assert ndcg(ranker, unseen) > ndcg(unseen.features @ WEIGHTS, unseen) - 0.01


@kinds
def test_what_is_kept_ranks_as_the_imitation_everywhere(kind, data, tmp_path):
    ranker = make(kind)
    policy = data.features @ WEIGHTS
    log = clicks_on(data, -policy, 20_000)  # what is served turns out to be the best there is
    ranker.fit_log(data, log, baseline=data.labels + 0.01 * policy)
    assert ranker.path_.kept == 1
    assert not getattr(ranker, "n_trees_", 0)
    assert not getattr(ranker, "n_steps_", 0)
    features = data.features if ranker.normalizer_ is None else ranker.normalizer_(data).features
    served = LinearScorer(ranker.served_.weights).predict(features)
    scores = ranker.predict(data)
    np.testing.assert_allclose(scores / scores.std(), served / served.std(), rtol=1e-3, atol=1e-4)
    ranker.save(tmp_path / "ranker.json")
    loaded = load_ranker(tmp_path / "ranker.json")
    np.testing.assert_array_equal(loaded.predict(data), scores)
    assert loaded.path_ is None
    written = export(loaded, tmp_path / "r.json", to="solr", feature_names=list("abcd"))
    assert written.form == ("NeuralNetworkModel" if kind == "neural" else "LinearModel")


# -- what they start from


@kinds
def test_from_what_was_served_round_0_is_a_candidate(kind, data, monkeypatch):
    policy = data.features @ WEIGHTS
    log = clicks_on(data, policy, 1000)
    seen = []

    class Spied(HeldOut):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            seen.append(self)

    monkeypatch.setattr(_task, "HeldOut", Spied)
    ranker = make(kind, start="served", normalize=None).fit_log(data, log, baseline=policy)
    (held_out,) = seen
    imitated = [imitate(data, fold.train, baseline=policy).weights for fold in held_out.folds]
    sums = held_out.sums([LinearScorer(weights) for weights in imitated])
    assert ranker.start_ == "served"
    assert ranker.history_.value[0] == pytest.approx(held_out.value(sums), rel=1e-6)
    assert getattr(ranker.history_, "trees" if ranker.kind == "boosted" else "steps")[0] == 0


@kinds
def test_auto_is_the_better_of_both(kind, data):
    log = clicks_on(data, data.features[:, 2], 5000)
    ranker = make(kind, safety=0).fit_log(data, log)
    by_start = {}
    for candidate in ranker.path_.candidates:
        by_start.setdefault(candidate.start, []).append(candidate.gain)
    assert set(by_start) == {"served", "zero"}
    assert ranker.start_ == max(by_start, key=lambda start: max(by_start[start]))


@kinds
def test_without_anything_that_tells_what_was_served(kind, data):
    log = clicks_on(data, data.features[:, 2], 1000)
    unknown = ClickLog(log.query, log.item, log.propensity)
    ranker = make(kind).fit_log(data, unknown)
    assert (ranker.start_, ranker.path_, ranker.served_) == ("zero", None, None)
    alone = make(kind, start="zero", safety=0).fit_log(data, unknown)
    np.testing.assert_array_equal(ranker.predict(data), alone.predict(data))
    with pytest.raises(DataError, match="start is 'served', and nothing tells what was served"):
        make(kind, start="served").fit_log(data, unknown)


@kinds
def test_without_patience_nothing_is_held_out(kind, data):
    log = clicks_on(data, data.features[:, 2], 1000)
    ranker = make(kind, patience=None).fit_log(data, log)
    assert (ranker.start_, ranker.path_, ranker.history_) == ("zero", None, None)
    served = make(kind, patience=None, start="served").fit_log(data, log)
    assert served.start_ == "served"
    assert not np.array_equal(served.predict(data), ranker.predict(data))


@kinds
def test_tempered_weights(kind, data):
    log = clicks_on(data, data.features[:, 2], 1000)
    alone = {"patience": None}
    a = make(kind, temper=0.5, **alone).fit_log(data, log)
    b = make(kind, **alone).fit_log(data, log.temper(0.5))
    np.testing.assert_array_equal(a.predict(data), b.predict(data))


def test_boosting_from_the_linear_ranker_sees_no_clicks_that_judge(data, unseen, monkeypatch):
    log = clicks_on(data, data.features[:, 2], 5000)
    fitted, held_out = [], []

    class Linear(boosted.CounterSampleRanker):
        def fit_log(self, dataset, log, **options):
            fitted.append(np.unique(log.weighted().query))
            return super().fit_log(dataset, log, **options)

    class Spied(HeldOut):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            held_out.append(self)

    monkeypatch.setattr(boosted, "CounterSampleRanker", Linear)
    monkeypatch.setattr(_task, "HeldOut", Spied)
    ranker = make("lightgbm", start="linear", safety=0, n_trees=10).fit_log(data, log)
    *of_folds, of_all = fitted
    for queries, fold in zip(of_folds, held_out[0].folds, strict=True):
        assert not np.isin(queries, fold.queries).any()
    np.testing.assert_array_equal(of_all, np.unique(log.query))
    assert ranker.start_ == "linear"
    assert ndcg(ranker, unseen) > ndcg(unseen.features[:, 2], unseen) + 0.1


@every
def test_defaults_try_both_and_are_safe(kind):
    ranker = type(RANKERS[kind]())()
    assert (ranker.start, ranker.safety) == ("auto", 0.95)


# -- how far apart scores are at the start


@pytest.mark.parametrize("objective", LOSSES)
def test_the_size_of_a_start_has_the_least_risk(objective, data, rng):
    log = clicks_on(data, data.features[:, 2], 2000)
    base = WEIGHTS + 0.3 * rng.normal(size=4)
    found = sized(base, data, log, objective=objective)
    examples = Examples.of(log, "query")
    asked = data.subset(examples.query)
    spreads = [np.var(s) for s in np.split(asked.features @ base, asked.offsets[1:-1])]
    spread = np.sqrt(np.average(spreads, weights=asked.query_sizes))

    def risk(weights):
        scores = LinearScorer(weights).predict(asked.features)
        parts = asked.offsets, examples.starts, examples.item, examples.weight
        return score_space(scores, *parts, objective=objective).values.sum()

    tried = [risk(base * size / spread) for size in SIZES]
    assert risk(found) == pytest.approx(min(tried), rel=1e-6)
    np.testing.assert_allclose(found / found[0], base / base[0])
    again = sized(1000 * base, data, log, objective=objective)
    np.testing.assert_allclose(again, found)


def test_a_start_that_scores_all_alike_stays(data):
    log = clicks_on(data, data.features[:, 2], 100)
    np.testing.assert_array_equal(sized(np.zeros(4), data, log, objective="rank"), np.zeros(4))


def test_starts():
    known = object()
    assert starts_of("auto", known, is_judged=True) == ("served", "zero")
    assert starts_of("auto", known, is_judged=False) == ("zero",)
    assert starts_of("auto", None, is_judged=True) == ("zero",)
    assert starts_of("linear", None, is_judged=True) == ("linear",)


def test_what_is_trained_on():
    log = ClickLog([0, 0], [0, 1], [0.25, 0.01], [2, 1])
    found = trained_on(log, clip=0.04, temper=0.5)
    np.testing.assert_allclose(found.weights, [2 / 0.5, 1 / 0.2])  # 2/√0.25, 1/√0.04


# -- where to stop


class Counted:
    """Scores that rank better up to a round, and worse from then on."""

    def __init__(self, good, best):
        self.good, self.best, self.done = good, best, 0

    def advance(self):
        self.done += 1

    def held_out_scores(self):
        noise = np.random.default_rng(0).normal(size=len(self.good))
        return self.good + (0.1 + abs(self.done - self.best)) * noise


@pytest.mark.parametrize(
    ("metric", "first", "best"), [("dcg@10", 0, 0), ("dcg@10", 1, 4), ("arp", 0, 3)]
)
def test_rounds_end_when_patience_does(metric, first, best, data):
    held_out = HeldOut(data, ClickLog.from_labels(data), metric, rng=np.random.default_rng(SEED))
    trained = [Counted(fold.validation.labels, best) for fold in held_out.folds]
    judged = judge_rounds(held_out, trained, first=first, most=50, patience=6, progress=Progress())
    np.testing.assert_array_equal(judged.rounds, np.arange(first, best + 7))
    values = judged.values if metric == "arp" else -judged.values
    assert judged.rounds[values.argmin()] == best
    assert held_out.value(judged.sums[0]) == judged.values[0]


@pytest.mark.parametrize("metric", ["dcg@10", "arp"])
def test_the_round_that_is_chosen(metric, data):
    log = clicks_on(data, data.features[:, 2], 5000)
    logged = logged_values(log, data, metric)
    held_out = HeldOut(data, log, metric, logged=logged, rng=np.random.default_rng(SEED))
    served = Served(np.zeros(data.n_features), 1.0, "clicks")

    def judged_as(*signs):
        sums = np.array(
            [held_out.sums([sign * f.validation.labels for f in held_out.folds]) for sign in signs]
        )
        values = np.array([held_out.value(each) for each in sums])
        return Judged(np.arange(len(signs)), sums, values)

    def chosen(**judged):
        return choose_round(
            held_out, {Way(start): each for start, each in judged.items()}, served=served,
            safety=0.95, temper=1.0, rng=np.random.default_rng(SEED),
        )  # fmt: skip

    found = chosen(served=judged_as(0, -1), zero=judged_as(-1, 1, 0))
    assert found[:2] == found.begins == ("zero", 1)
    assert [candidate.share for candidate in found.path.candidates] == [0, 0, 0, 1, 0]
    assert found.path.reference_value == pytest.approx(held_out.value(held_out.logged_sums()))
    worse = chosen(zero=judged_as(-1, -1))
    assert worse.begins == ("served", 0)
    assert worse.path.kept == 1
    bold = choose_round(
        held_out, {Way("zero"): judged_as(-1, -1)}, served=served, safety=0,
        temper=1.0, rng=np.random.default_rng(SEED),
    )  # fmt: skip
    assert bold.begins[0] == "zero"
    assert worse.path.imitation_value is None
    assert "Nothing was shown to be better" in worse.path.sentence
    blind = choose_round(
        held_out, {Way("zero"): judged_as(-1, 1)}, served=None, safety=0.95,
        temper=1.0, rng=None,
    )  # fmt: skip
    assert blind == ("zero", 1, None, None)
