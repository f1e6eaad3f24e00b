"""The linear ranker: what it learns, its choice of settings, its parameters."""

import numpy as np
import pytest
from conftest import SEED

from countersample import (
    ClickLog,
    PositionBias,
    RankingDataset,
    evaluate,
    load_letor,
    simulate_clicks,
    synthetic,
    train,
)  # fmt: skip
from countersample.errors import DataError, ParameterError
from countersample.plans import UNITS
from countersample.rankers import CounterSampleRanker
from countersample.training import train_many

# The grid of the paper: 1e-10, 3e-10, …, 1, 3.
PAPER_RATES = [m * 10.0**e for e in range(-10, 1) for m in (1, 3)]


def make_log(dataset, *, relevant=3, n_clicks=100_000, seed=SEED):
    """The paper's setting: clicks on the rankings of a policy trained on 0.1 % of the queries."""
    scaled = dataset.normalized("minmax")
    clicked = np.unique(ClickLog.from_labels(dataset, relevant=relevant).query)
    few = np.random.default_rng(seed).choice(clicked, max(1, dataset.n_queries // 1000), False)
    seen = scaled.subset(few)
    labels = ClickLog.from_labels(seen, relevant=relevant)
    policy = train(seen, labels, learning_rate=0.01, steps=1000, rng=seed)
    return simulate_clicks(
        dataset, scaled.features @ policy.average_coef, n_clicks,
        bias=PositionBias(gamma=1.0), relevant=relevant, rng=seed,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tiny():
    dataset = synthetic("tiny", rng=SEED)
    return dataset, make_log(dataset, n_clicks=5000)


# -- what it learns


@pytest.mark.parametrize(("unit", "average"), list(zip(UNITS, (True, False, True), strict=True)))
def test_it_is_train_on_normalised_features(tiny, unit, average):
    dataset, log = tiny
    ranker = CounterSampleRanker(
        unit=unit, learning_rate=0.003, steps=500, average=average, clip=0.2, random_state=SEED
    ).fit_log(dataset, log)
    scaled = dataset.normalized("minmax")
    clicks = ClickLog(log.query, log.item, log.propensity)
    result = train(
        scaled, clicks, unit=unit, learning_rate=0.003, steps=500, clip=0.2, rng=SEED,
        checkpoints=10,
    )  # fmt: skip
    # The scale of features is folded into the weights, which float32 rounds in other places.
    near = {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(ranker.coef_, result.coef, **near)
    np.testing.assert_allclose(ranker.average_coef_, result.average_coef, **near)
    np.testing.assert_allclose(ranker.history_.coef, result.history.coef, **near)
    weights = result.average_coef if average else result.coef
    np.testing.assert_allclose(ranker.predict(dataset), scaled.features @ weights, **near)
    assert ranker.n_steps_ == 500
    assert ranker.learning_rate_ == 0.003
    assert ranker.path_ is None
    assert ranker.fingerprint_ == dataset.fingerprint


# -- its path, beside the best learning rate


def against_the_papers_grid(splits, *, steps):
    """nDCG@10 on labels: the mean of the default ranker, and of the best of the paper's rates."""
    found, by_rate = [], []
    for seed, (learned, held_out, relevant) in enumerate(splits, start=SEED):
        log = make_log(learned, relevant=relevant, seed=seed)
        ranker = CounterSampleRanker(steps=steps, random_state=seed).fit_log(learned, log)
        normalizer = ranker.preprocessing_.normalizer
        scaled, validation = normalizer(learned), normalizer(held_out)
        results = train_many(
            scaled, ClickLog(log.query, log.item, log.propensity), learning_rates=PAPER_RATES,
            unit="query", steps=steps, seeds=[seed],
        )  # fmt: skip
        means = [
            evaluate(scores, held_out, "ndcg@10", no_relevant="skip")["ndcg@10"]
            for scores in (
                ranker.predict(held_out), *(validation.features @ r.average_coef for r in results)
            )
        ]  # fmt: skip
        found.append(means[0])
        by_rate.append(means[1:])
    return np.mean(found), np.mean(by_rate, axis=0).max()


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "n_queries"), [("yahoo-like", 1000), ("istella-like", 500)])
def test_the_default_is_as_good_as_the_best_of_the_papers_rates(shape, n_queries):
    datasets = [synthetic(shape, n_queries=n_queries, rng=SEED + k) for k in range(2)]
    splits = [(*dataset.split(0.7, 0.3, rng=SEED), 3) for dataset in datasets]
    found, best = against_the_papers_grid(splits, steps=5_000)
    assert found >= 0.975 * best  # on two logs of few queries


@pytest.mark.slow
def test_the_default_on_mq2008(shared):
    parts = [load_letor(shared / "mq2008" / f"S{k}.txt.xz") for k in range(1, 6)]

    def joined(chosen):
        sizes = np.concatenate([part.query_sizes for part in chosen])
        return RankingDataset(
            np.concatenate([part.features for part in chosen]),
            np.concatenate([part.labels for part in chosen]),
            np.append(0, np.cumsum(sizes)),
            np.concatenate([part.query_ids for part in chosen]),
        )

    splits = [(joined(parts[:k] + parts[k + 1 :]), parts[k], 1) for k in range(5)]
    found, best = against_the_papers_grid(splits, steps=10_000)
    assert found >= 0.98 * best  # 780 labelled queries in all: the best of 22 is lucky by as much


# -- errors


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"objective": "softmax"}, "objective is 'softmax', expected one of rank, log-rank, dcg"),
        ({"optimizer": "lion"}, "optimizer is 'lion', expected one of sgd"),
        ({"optimizer": "adam"}, "optimizer is 'adam' without a learning rate, expected one: name"),
        ({"start": "here"}, "start is 'here', expected one of auto, zero, served"),
        ({"temper": 2}, "temper is 2, expected 'auto' or a number of at least 0 and at most 1"),
        ({"safety": 1}, "safety is 1, expected 0 or a number of at least 0.5 and below 1"),
        ({"average": "yes"}, "average is 'yes', expected True or False"),
        ({"radius": 0}, "radius is 0, expected infinity or a number above 0"),
        ({"metric": "arp"}, "metric is 'arp', for which smaller is better"),
    ],
)
def test_bad_parameters(params, match, tiny):
    with pytest.raises(ParameterError, match=match):
        CounterSampleRanker(**params).fit_log(*tiny)


def test_a_dataset_is_for_fit_log(tiny):
    with pytest.raises(TypeError, match=r"X is a RankingDataset, .* fit_log takes a dataset with"):
        CounterSampleRanker().fit(*tiny)


# -- features near the ends of float32


HUGE = np.clip(1e38 * np.random.default_rng(SEED).standard_normal((200, 2)), -3.4e38, 3.4e38)
HUGE_QUERIES, HUGE_CLICKS = np.repeat(range(50), 4), np.arange(200) % 3


@pytest.mark.parametrize("scale", [1, 1e-75])  # differences beyond float32, and 1/scale
def test_normalized_features_of_any_size_are_learned_from(scale):
    features = (HUGE * scale).astype(np.float32)
    ranker = CounterSampleRanker(random_state=SEED).fit(features, HUGE_CLICKS, qid=HUGE_QUERIES)
    assert np.isfinite(ranker.predict(features)).all()


@pytest.mark.parametrize("baseline", [None, np.arange(200.0)])
def test_features_that_are_too_large_without_normalization_are_an_error(baseline):
    ranker = CounterSampleRanker(normalize=None, random_state=SEED)
    with pytest.raises(DataError, match="feature 0 has values whose differences float32 cannot"):
        ranker.fit(HUGE, HUGE_CLICKS, qid=HUGE_QUERIES, baseline=baseline)
