"""Paths without a learning rate, what was served, and safety: never worse than what was logged."""

import numpy as np
import pytest
from conftest import SEED

from countersample import ClickLog, CounterSampleRanker, RankingDataset, evaluate
from countersample.evaluation import HeldOut
from countersample.evaluation.estimators import logged_values
from countersample.metrics import ranks_of
from countersample.rankers.logging_policy import imitate
from countersample.rankers.task import Tasks
from countersample.tuning import number_of_steps, paths
from countersample.tuning.paths import place_checkpoints
from countersample.tuning.safety import choose_safely


def make_world(n_queries=150, *, seed=SEED):
    """Return queries of 12 items whose label is a noisy sum of five of eight features."""
    rng = np.random.default_rng(seed)
    features = rng.random((n_queries * 12, 8)).astype(np.float32)
    good = np.array([3.0, 2.0, 1.0, -2.0, 1.0, 0.0, 0.0, 0.0])
    noisy = features @ good + 0.7 * rng.normal(size=len(features))
    query = np.repeat(np.arange(n_queries), 12)
    return RankingDataset.from_arrays(features, noisy > np.quantile(noisy, 0.8), query), good


def log_of(dataset, scores, n_sessions, *, top=None, seed=SEED):
    """Return all that was shown: as many sessions of each query, by the position-based model."""
    rng = np.random.default_rng(seed)
    rank = ranks_of(np.asarray(scores, float), dataset.offsets)
    rows = np.flatnonzero(rank <= (top or len(rank)))
    query = np.searchsorted(dataset.offsets, rows, side="right") - 1
    theta = 1 / rank[rows]
    clicks = rng.binomial(n_sessions, theta * np.where(dataset.labels[rows] > 0, 1.0, 0.1))
    times = np.full(len(rows), n_sessions)
    return ClickLog(
        query, rows - dataset.offsets[query], theta, clicks,
        position=rank[rows], impressions=times, examination=theta, sessions=times,
        n_sessions=n_sessions * dataset.n_queries,
    )  # fmt: skip


def ndcg(scores, dataset):
    return evaluate(scores, dataset, "ndcg@10", no_relevant="skip")["ndcg@10"]


@pytest.fixture(scope="module")
def world():
    return make_world()


# -- what was served


@pytest.mark.parametrize("source", ["baseline", "impressions", "clicks"])
@pytest.mark.parametrize("top", [None, 4])
def test_a_linear_policy_is_found_again(world, source, top):
    dataset, _ = world
    policy = np.array([1.0, -1.0, 0.5, 2.0, 0.0, 0.3, -0.7, 0.0])
    scores = dataset.features @ policy
    log = log_of(dataset, scores, 40, top=top)
    if source == "clicks":
        log = log.weighted().replace(impressions=None)
    served = imitate(dataset, log, baseline=scores if source == "baseline" else None)
    assert served.source == source
    angle = served.weights @ policy / np.linalg.norm(served.weights) / np.linalg.norm(policy)
    assert angle > (0.9 if source == "clicks" else 0.98)
    assert served.agreement > (0.8 if source == "clicks" else 0.93)
    within = dataset.features @ served.weights
    within -= np.repeat(within.reshape(-1, 12).mean(axis=1), 12)
    assert 0.7 < within.std() < 1.4


# -- items that were never shown


def test_a_page_of_few_items_does_not_teach_to_repeat_it():
    """Clicks on the top 4 of 12, in an order by chance: items not shown are not irrelevant."""
    dataset, _ = make_world(300)
    by_chance = np.random.default_rng(SEED).random(dataset.n_items)
    test, _ = make_world(100, seed=SEED + 1)
    logs = (log_of(dataset, by_chance, 200, top=n) for n in (4, None))
    page, everything = (
        CounterSampleRanker(random_state=SEED).fit_log(dataset, log) for log in logs
    )
    assert ndcg(page, test) > 0.97 * ndcg(everything, test)


# -- safety


def test_what_is_better_in_every_draw_is_taken_and_what_is_not_is_not(world, rng):
    dataset, good = world
    log = log_of(dataset, dataset.features[:, 0], 50)
    held_out = HeldOut(dataset, log, logged=logged_values(log, dataset, "dcg@10"), rng=rng)
    folds, logged = held_out.folds, held_out.logged_sums()
    better, worse = (
        held_out.sums([sign * fold.validation.features @ good for fold in folds])
        for sign in (1, -1)
    )
    result = choose_safely(held_out, [worse, better], logged, safety=0.95, rng=rng)
    assert result.share.tolist() == [0.0, 1.0]
    assert result.kept == 0
    assert result.low[1] > 0 > result.low[0]
    assert choose_safely(held_out, [worse], logged, safety=0.95, rng=rng).kept == 1
    assert choose_safely(held_out, [worse], logged, safety=0, rng=rng).kept == 0


def test_the_lower_end_is_that_of_the_confidence(world, rng):
    """One candidate that is as good as what was logged, on average: kept as often as stated.

    Its gain over many logs has mean 0; its lower end is above 0 in about 5 of 100 of them.
    """
    dataset, _ = world
    above = []
    for seed in range(200):
        scores = np.random.default_rng(seed).random((2, dataset.n_items))
        log = log_of(dataset, scores[0], 4, seed=seed)
        held_out = HeldOut(dataset, log, logged=logged_values(log, dataset, "dcg@10"), rng=rng)
        other = held_out.sums(
            [scores[1][np.isin(np.repeat(np.arange(150), 12), f.queries)] for f in held_out.folds]
        )
        result = choose_safely(held_out, [other], held_out.logged_sums(), safety=0.95, rng=rng)
        above.append(result.low[0] > 0)
    assert np.mean(above) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


@pytest.mark.slow
def test_that_some_candidate_is_better_is_rarely_shown_where_none_is(world, rng):
    """All at once: 30 rankings by chance, of which some nearly always look better."""
    dataset, _ = world
    n_logs, looks, shown = 100, 0, 0
    for seed in range(n_logs):
        scores = np.random.default_rng([SEED, seed]).random((31, dataset.n_items))
        log = log_of(dataset, scores[0], 4, seed=seed)
        held_out = HeldOut(dataset, log, logged=logged_values(log, dataset, "dcg@10"), rng=rng)
        rows = [np.isin(np.repeat(np.arange(150), 12), fold.queries) for fold in held_out.folds]
        others = [held_out.sums([by[each] for each in rows]) for by in scores[1:]]
        result = choose_safely(held_out, others, held_out.logged_sums(), safety=0.95, rng=rng)
        looks += result.low.max() > 0
        shown += result.is_shown
    assert looks > n_logs / 4
    assert shown / n_logs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_logs)


def test_what_was_logged_is_kept_as_it_is(world):
    """Where no draw shows anything better, the ranker is the imitation."""
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 100)
    ranker = CounterSampleRanker(
        random_state=SEED, safety=1 - 1e-15, start="zero", temper=0.0, steps=20
    ).fit_log(dataset, log)
    assert ranker.path_.kept == 1
    np.testing.assert_allclose(
        np.corrcoef(ranker.weights_, ranker.served_.weights)[0, 1], 1, rtol=1e-9
    )
    assert ranker.path_.sentence.startswith("Nothing was shown to be better than your")


def test_what_was_logged_does_not_beat_itself_on_a_short_page(world):
    """Its own scores as a candidate: no gain, whatever the page leaves out, and with a baseline."""
    dataset, good = world
    scores = (dataset.features @ good).astype(float)
    log = log_of(dataset, scores, 30, top=4)
    for baseline in (None, scores):
        task = Tasks(dataset, log, baseline).of(None)
        held_out, _ = task.held_out("dcg@10", holdout=0.2, rng=np.random.default_rng(SEED))
        assert held_out.metric == ("dcg@4" if baseline is None else "dcg@10")
        rows = [np.isin(np.repeat(np.arange(150), 12), fold.queries) for fold in held_out.folds]
        own = held_out.sums([scores[each] for each in rows])
        assert held_out.value(own) == pytest.approx(held_out.value(held_out.logged_sums()))


def test_a_handful_of_queries_shows_nothing(world):
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 5, top=6)
    few = log.of_queries([3, 5])
    assert CounterSampleRanker(random_state=0).fit_log(dataset, few).path_.kept == 1
    one = log.replace(count=np.where(log.query == 3, log.clicks + 1, 0))
    ranker = CounterSampleRanker(random_state=0).fit_log(dataset, one)
    assert ranker.path_.kept == 1
    assert ranker.n_steps_ == 0
    assert ranker.path_.sentence.startswith("Nothing can be shown to be better")


@pytest.mark.parametrize("holdout", [0.05, 0.1, 0.5])
def test_nothing_is_judged_by_what_it_learned_from(world, holdout):
    """Nine clicked queries: fewer than there are parts of a twentieth."""
    dataset, good = world
    log = log_of(dataset, dataset.features @ good, 20).of_queries(np.arange(9))
    task = Tasks(dataset, log).of(None)
    held_out, learned = task.held_out("dcg@10", holdout=holdout, rng=np.random.default_rng(0))
    assert len(held_out.folds) == min(9, round(1 / holdout))
    for fold, clicks in zip(held_out.folds, learned, strict=True):
        assert len(clicks.query)
        assert not np.isin(clicks.query, fold.queries).any()


# -- paths


def test_the_ranker_is_the_mean_of_what_is_chosen(world):
    dataset, _ = world
    log = log_of(dataset, dataset.features[:, 1], 20)
    ranker = CounterSampleRanker(random_state=SEED, steps=400, normalize=None).fit_log(dataset, log)
    path = ranker.path_
    chosen = [each for each in path.candidates if each.share]
    assert sum(each.share for each in chosen) + path.kept == pytest.approx(1)
    # Two starts, two tempers, alone and with the regression on click rates; and that alone.
    assert len(path.candidates) == 2 * 2 * 2 * len(place_checkpoints(400)) + 1
    assert ranker.n_steps_ == max(each.steps for each in chosen)
    assert ranker.history_.steps[-1] == ranker.n_steps_
    np.testing.assert_array_equal(ranker.history_.coef[-1], ranker.weights_)
    assert path.to_frame()["share"].sum() == pytest.approx(1 - path.kept)
    assert path.best in path.candidates


@pytest.mark.parametrize("is_scaled", [False, True])
def test_paths_are_brought_to_a_deviation_of_1_within_queries(world, rng, is_scaled):
    """By a loop over queries: what their scores have in common does not count."""
    dataset, _ = world
    scale = rng.uniform(0.5, 2.0, dataset.n_features) if is_scaled else None
    weights = rng.standard_normal((3, dataset.n_features)) * [[0.1], [1.0], [30.0]]
    even = paths._Spread.of(dataset, scale).even_out(np.vstack([weights, 0 * weights[:1]]))
    features = dataset.features.astype(np.float64) * (1.0 if scale is None else scale)
    queries = np.split(features, dataset.offsets[1:-1])
    apart = np.concatenate([(rows - rows.mean(axis=0)) @ even.T for rows in queries])
    np.testing.assert_allclose(np.sqrt((apart**2).mean(axis=0)), [1, 1, 1, 0], rtol=1e-9)
    factors = even[:3] / weights
    np.testing.assert_allclose(factors, factors[:, :1] * np.ones_like(weights), rtol=1e-9)


@pytest.mark.parametrize(
    ("n_queries", "batch_size", "steps"),
    [(2, 7, 715), (1001, 1, 5005), (1001, 10, 501), (2, 5001, 1)],
)
def test_steps_are_enough_for_all_draws(n_queries, batch_size, steps):
    """⌈max(5·n, 5,000) / batch size⌉: the last batch may draw more than are needed, never fewer."""
    log = ClickLog(np.arange(n_queries), np.zeros(n_queries, int), np.ones(n_queries))
    assert number_of_steps(log, unit="query", batch_size=batch_size) == steps
