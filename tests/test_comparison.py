"""Candidates by the same clicks: one as `estimate_gain` has it, many without more false alarms."""

from math import log as ln

import numpy as np
import pytest
from chances import ALPHA, surprise
from conftest import SEED
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from countersample import ClickLog, PositionBias, RankingDataset, synthetic
from countersample.clicks import simulate_impressions
from countersample.errors import DataError, ParameterError
from countersample.evaluation import compare, estimate_gain
from countersample.evaluation.bootstrap import interval, ratio_intervals
from countersample.evaluation.comparison import holm


@pytest.fixture(scope="module")
def tiny():
    return synthetic("tiny", rng=SEED)


@pytest.fixture(scope="module")
def log(tiny):
    bias = PositionBias(1.0)
    table = simulate_impressions(tiny, tiny.features[:, 0], 4000, bias=bias, relevant=1, rng=SEED)
    query = np.searchsorted(tiny.query_ids, table["query_id"].to_numpy())
    position = table["position"].to_numpy()
    return ClickLog(
        query, table["item_id"].to_numpy(), bias.propensity(position), table["click"].to_numpy(),
        session=table["session"].to_numpy(), position=position,
        impressions=np.ones(len(position)), n_sessions=4000,
    )  # fmt: skip


# -- what it is


@pytest.mark.parametrize("estimator", ["ips", "snips", "clipped", "dr"])
def test_of_one_candidate_it_is_the_gain(tiny, log, estimator):
    scores = tiny.features[:, 1]
    gain = estimate_gain(scores, log, tiny, estimator=estimator, rng=3)
    found = compare({"a": scores}, log, tiny, estimator=estimator, rng=3)
    (one,) = found.differences
    assert found.estimates == {"a": gain.new, "logged": gain.logged}
    for name in ("value", "low", "high", "relative", "relative_low", "relative_high"):
        assert getattr(one, name) == getattr(gain, name)


def test_any_candidate_can_be_the_reference(tiny, log):
    scores = {name: tiny.features[:, k] for k, name in enumerate("abc")}
    to_a = compare(scores, log, tiny, reference="a", rng=0)
    to_b = compare(scores, log, tiny, reference="b", rng=0)
    assert [each.candidate for each in to_a.differences] == ["b", "c"]
    product = (1 + to_a.differences[0].relative) * (1 + to_b.differences[0].relative)
    assert 0.99 < product <= 1  # both are a little less than the ratio of the estimates
    assert "logged" not in to_a.estimates
    logged = compare(scores | {"logged": None}, log, tiny, reference="a", rng=0)
    by_default = compare(scores, log, tiny, rng=0)
    assert logged.estimates["logged"].value == by_default.estimates["logged"].value
    assert logged.differences[2].value == pytest.approx(-by_default.differences[0].value, rel=0.01)
    assert logged.sentences[2].startswith("Your current ranker is ")


def test_drawn_values_are_used(tiny, log):
    log = log.replace(session=None)  # so that queries are what is drawn
    drawn = np.random.default_rng(0).normal(1, 0.01, (500, 3))
    scores = {"a": tiny.features[:, 0], "b": tiny.features[:, 1]}
    found = compare(scores, log, tiny, draws=drawn, rng=0)
    logged = found.estimates["logged"].value
    ratios = np.array([found.estimates[name].value / logged for name in scores])
    relative, low, high = ratio_intervals(ratios, drawn[:, :2], drawn[:, 2], 0.95, tiny.n_queries)
    assert [each.relative for each in found.differences] == pytest.approx(relative)
    assert [each.relative_low for each in found.differences] == pytest.approx(low)
    assert [each.high for each in found.differences] == pytest.approx(logged * high)
    with pytest.raises(DataError, match="draws has 3 columns, expected 2: a, logged"):
        compare({"a": scores["a"]}, log, tiny, draws=drawn)


def test_verdicts_words_and_frame(tiny, log):
    truth = tiny.labels.astype(float)
    scores = {"best": truth, "worst": -truth, "same": tiny.features[:, 0]}
    found = compare(scores, log, tiny, rng=0)
    assert [each.outcome for each in found.verdicts.values()] == ["better", "worse", "not shown"]
    assert found.better == ("best",)
    assert found.sentences[0].startswith("best is better than your current ranker: +")
    assert "same is not shown to differ from your current ranker: +0.0%" in found.sentences[2]
    same = found.differences[2]
    assert (same.value, same.low, same.high) == pytest.approx((0, 0, 0), abs=1e-12)
    frame = found.to_frame("pandas").set_index("candidate")
    assert frame.loc["best", "value"] == found.differences[0].value
    assert found.to_dict()["estimates"]["logged"]["value"] == found.estimates["logged"].value
    by_arp = compare({"best": truth, "worst": -truth}, log, tiny, metric="arp", rng=0)
    assert [each.outcome for each in by_arp.verdicts.values()] == ["better", "worse"]


@pytest.mark.parametrize(
    ("candidates", "options", "told"),
    [
        ({}, {}, "there is nothing to compare 'logged' with"),
        ({"a": 1}, {"reference": "a"}, "there is nothing to compare 'a' with"),
        ({"a": 1, "b": 1}, {"reference": "c"}, "reference is 'c', expected one of a, b"),
        ({"a": None}, {}, "candidate 'a' is None, expected a ranker or scores"),
        ({"logged": 1}, {}, "candidate 'logged' is "),
    ],
)
def test_what_cannot_be_compared(tiny, log, candidates, options, told):
    given = {name: tiny.labels if one else None for name, one in candidates.items()}
    with pytest.raises(ParameterError, match=told):
        compare(given, log, tiny, **options)


# -- intervals that hold at once


def of_logs(centre, drawn, n_clusters):
    """Return intervals of log R, whose draws these are."""
    ratios = np.exp(np.broadcast_to(np.asarray(centre, float), drawn.shape[1:]))
    _, low, high = ratio_intervals(ratios, np.exp(drawn), np.ones(len(drawn)), 0.95, n_clusters)
    return np.log1p(low), np.log1p(high)


def test_the_mean_of_the_estimate_is_the_true_ratio(rng):
    """log R is normal about the truth, so the mean of R is too large by exp(σ²/2)."""
    truth, sd, n = 1.3, 0.4, 400
    ratios = truth * np.exp(sd * norm.ppf((np.arange(n) + 0.5) / n))
    drawn = ratios * np.exp(rng.normal(0, sd, (2000, n)))
    one_by_one = [
        ratio_intervals(ratios[[k]], drawn[:, [k]], np.ones(2000), 0.95, 1000)[0][0]
        for k in range(n)
    ]
    assert truth * np.expm1(sd**2 / 2) > 0.1  # what the mean of the ratios is too large by
    assert np.mean(one_by_one) == pytest.approx(truth - 1, abs=0.01)


@pytest.mark.parametrize("k", [1, 3])
def test_intervals_are_centred_on_the_estimate(k, rng):
    """Draws share the bias of estimated propensities: around their median it would count twice."""
    low, high = of_logs(1.0, rng.normal(1.5, 0.2, (2000, k)), 10**9)
    assert (low + high) / 2 == pytest.approx(np.ones(k), rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_independent_differences_are_as_sidak_has_them(k, rng):
    """Each at 0.95^(1/k), so that all hold with 0.95."""
    n = 20_000
    low, high = of_logs(3, rng.normal(3, 2, (n, k)), 10**9)
    alone = (1 + 0.95 ** (1 / k)) / 2
    half = 2 * norm.ppf(alone)
    # An extreme quantile of n draws has a relative error of some √(1/(n·tail)).
    np.testing.assert_allclose(low, 3 - half, atol=0.15)
    np.testing.assert_allclose(high, 3 + half, atol=0.15)


def test_candidates_that_move_together_cost_nothing(rng):
    one = rng.normal(size=20_000)
    low, high = of_logs([0, 0, 7], np.stack([one, 2 * one, one + 7], axis=1), 10**9)
    alone = np.array(interval(one, 0.95))
    np.testing.assert_allclose(low, [alone[0], 2 * alone[0], alone[0] + 7], atol=0.1)
    np.testing.assert_allclose(high, [alone[1], 2 * alone[1], alone[1] + 7], atol=0.1)


def test_few_queries_widen_as_student_says(rng):
    drawn = rng.normal(size=(20_000, 2))
    (low, _), (high, _) = of_logs(0, drawn, 11)
    tail = (1 - 0.95**0.5) / 2
    assert high - low == pytest.approx(2 * t.isf(tail, 10), rel=0.05)


N_LOGS, N_QUERIES, N_ITEMS, N_CANDIDATES = 500, 150, 4, 8


def null_log(rng):
    """Every item is as relevant as any other, so all rankings of them are worth the same."""
    sessions = 20
    looks = 1 / np.arange(1, N_ITEMS + 1)
    clicks = rng.binomial(sessions, 0.4 * looks, (N_QUERIES, N_ITEMS))
    query, item = np.indices(clicks.shape).reshape(2, -1)
    return ClickLog(
        query, item, np.tile(looks, N_QUERIES), clicks.ravel(), position=item + 1,
        n_sessions=N_QUERIES * sessions,
    )  # fmt: skip


@pytest.mark.slow
def test_false_alarms_of_many_candidates_are_as_rare_as_of_one(rng):
    """At most 5 % of logs in which nothing differs; without the correction far more.

    Of eight differences that have the reference in common, c is some 2.6 to 2.73 (Šidák's).
    """
    data = RankingDataset.from_arrays(
        X=np.zeros((N_QUERIES * N_ITEMS, 1)), y=np.zeros(N_QUERIES * N_ITEMS),
        qid=np.repeat(np.arange(N_QUERIES), N_ITEMS),
    )  # fmt: skip
    corrected = alone = 0
    for _ in range(N_LOGS):
        log = null_log(rng)
        scores = {f"c{k}": rng.random(data.n_items) for k in range(N_CANDIDATES)}
        found = compare(scores, log, data, metric="dcg@2", n_bootstrap=400, rng=rng)
        corrected += any(each.outcome != "not shown" for each in found.verdicts.values())
        half = (t.isf(0.025, N_QUERIES) / 2.73) * np.array([each.high - each.low for each in
                                                             found.differences]) / 2  # fmt: skip
        alone += any(
            abs(each.low + each.high) / 2 > reach
            for each, reach in zip(found.differences, half, strict=True)
        )
    bound = ln(1 / ALPHA)
    assert corrected <= 0.05 * N_LOGS or surprise(corrected, N_LOGS, 0.05) <= bound, corrected
    assert alone > 0.05 * N_LOGS, alone
    assert surprise(alone, N_LOGS, 0.05) > bound, alone


# -- Holm's correction


def test_holm_does_not_count_what_was_not_tested():
    assert holm([0.01, np.nan, 0.04]) == pytest.approx([0.02, np.nan, 0.04], nan_ok=True)


@given(st.lists(st.floats(0, 1), max_size=12), st.sampled_from([0.01, 0.05, 0.3]))
def test_holm_rejects_as_the_step_down_procedure_does(values, level):
    """Holm's own definition: from the smallest on, stop at the first p > α/(n − rejected)."""
    rejected = set()
    for index in sorted(range(len(values)), key=values.__getitem__):
        if values[index] * (len(values) - len(rejected)) > level:
            break
        rejected.add(index)
    assert set(np.flatnonzero(holm(values) <= level)) == rejected
