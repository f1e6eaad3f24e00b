"""Features that leak the clicks are reported; features from before the clicks are not."""

from math import comb

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from scipy.stats import binom
from shops import load_example, make, opened, with_column

from countersample import ClickLog, PositionBias, RankingDataset
from countersample.fitting import Leak, find_leaks, fit_from_impressions, leakage
from countersample.options import EvaluationOptions

BENCH = load_example("../benchmarks/quality/leaks")
SURE = ("click rate", "clicks", "smoothed rate", "log of clicks", "debiased rate",
        "relevance + debiased rate")  # fmt: skip


def names(leaks):
    return {leak.name for leak in leaks}


def every_outcome(n, theta, relevance):
    """Return all numbers of clicks of n impressions as groups, and their probabilities."""
    clicks, x = np.arange(n + 1.0), theta * relevance
    p = np.array([comb(n, c) * x**c * (1 - x) ** (n - c) for c in range(n + 1)])
    index, one = np.arange(n + 1), np.ones(n + 1)
    rows = leakage.Rows(index, one.astype(int), n * one, clicks, theta * one)
    return leakage._sum_groups(rows, index, index, index, index % 2), p


class TestTheory:
    @pytest.mark.parametrize("n", [1, 2, 3, 7])
    @pytest.mark.parametrize("relevance", [0.0, 0.2, 0.7, 1.0])
    def test_no_prediction_is_closer_than_chance_by_enumeration(self, n, relevance):
        """Mean of v over all outcomes: n·x·(1 − x), or no more than that of a single impression.

        So the mean of (C − m)² − v is (n·x − m)² for n > 1 and at least that for n = 1.
        """
        theta, mean = 0.6, 0.9
        x = theta * relevance
        groups, p = every_outcome(n, theta, relevance)
        mean_of_v, variance = p @ groups.chance, n * x * (1 - x)
        excess = p @ ((groups.clicks - mean) ** 2 - groups.chance)
        if n > 1:
            assert mean_of_v == pytest.approx(variance)
            assert excess == pytest.approx((n * x - mean) ** 2)
        else:
            assert mean_of_v == pytest.approx(x * (1 - theta))
            assert mean_of_v <= variance + 1e-12
            assert excess >= (x - mean) ** 2 - 1e-12

    @pytest.mark.parametrize("n", [1, 2, 3, 10, 40])
    @pytest.mark.parametrize(
        ("theta", "relevance"), [(1.0, 0.1), (0.5, 0.5), (0.2, 0.9), (1.0, 0.5)]
    )
    def test_the_variance_is_that_of_binomial_clicks_by_enumeration(self, n, theta, relevance):
        """If m is the true mean; it may be larger, but not smaller."""
        mean = n * theta * relevance
        groups, p = every_outcome(n, theta, relevance)
        excess = (groups.clicks - mean) ** 2 - groups.chance
        exact = p @ excess**2 - (p @ excess) ** 2
        first = groups.take(np.arange(n + 1) == 0)
        _, variance, _ = leakage._excess(first, np.array([mean]), uses_page=False)
        assert variance * (mean + 0.5) ** 2 >= exact * (1 - 1e-9)

    def test_the_bound_is_at_least_the_rate_of_false_alarms(self, rng, monkeypatch):
        """P(bound ≤ a) ≤ a for the best prediction that needs no click: the true mean.

        10,000 logs of 600 pairs with 10 clicks each, so that the sum is nearly normal. With twice
        the exponent the bound would be exp(−z²): the rate is four times as high at a = 0.1 %.
        """
        n, n_pairs, theta = 2000, 600, 0.005
        mean = np.full(n_pairs, n * theta)
        monkeypatch.setattr(leakage, "_predictions", lambda *_: [(mean, False)])
        index, one = np.arange(n_pairs), np.ones(n_pairs)
        rows = leakage.Rows(index, one.astype(int), n * one, mean, theta * one)
        groups = leakage._sum_groups(rows, index, index, index, index % 2)
        bounds = []
        for _ in range(10_000):
            clicks = rng.binomial(n, theta, n_pairs)
            log = groups._replace(clicks=clicks, chance=clicks * (n - clicks) / (n - 1))
            bounds.append(leakage._smallest_bound(log, index, 0.0)[0])
        for level in (0.1, 0.01, 0.001, 0.0002):
            n_alarms = np.count_nonzero(np.array(bounds) <= np.log(level))
            assert n_alarms <= binom.isf(1e-4, len(bounds), level)

    def test_the_rate_of_false_alarms_per_log_is_at_most_the_threshold(self, rng):
        """600 small logs with the features that know most without a click: true relevance, θ·r.

        The promise is one alarm in 1000 logs.
        """
        query, item = np.divmod(np.arange(100), 5)
        theta = 1 / (item + 1)
        n_alarms = 0
        for k in range(600):
            relevance = np.full(100, 0.5) if k % 2 else rng.beta(1, 2, 100)
            clicks = rng.binomial(20, theta * relevance)
            features = np.column_stack([relevance, theta * relevance, rng.random(100)])
            data = RankingDataset.from_arrays(X=features, y=np.zeros(100), qid=query)
            log = ClickLog(query, item, theta, clicks, position=item + 1,
                           impressions=np.full(100, 20), examination=theta)  # fmt: skip
            n_alarms += bool(find_leaks(log, data, rng=rng))
        assert n_alarms <= binom.isf(1e-4, 600, leakage.LEAK_THRESHOLD)

    def test_sums_are_those_of_plain_loops(self, rng):
        n = 60
        rows = leakage.Rows(
            np.arange(n), np.ones(n, int), rng.integers(1, 9, n).astype(float),
            np.zeros(n), rng.random(n),
        )  # fmt: skip
        rows = rows._replace(clicks=rng.binomial(rows.shown.astype(int), 0.4).astype(float))
        query = np.arange(n) // 6
        groups = leakage._sum_groups(rows, np.arange(n), np.arange(n), query, query % 2)
        values, bins, base = rng.random(n), rng.integers(3, size=n), groups.bases[1]
        steps = leakage._predict_by_bin(groups, base, bins)
        lines = leakage._predict_by_bin(groups, base, bins, values)
        order = np.lexsort([values, query])
        near = leakage._predict_by_neighbours(groups, base, order)
        for i in range(n):
            others = [j for j in range(n) if bins[j] == bins[i] and query[j] % 2 != query[i] % 2]
            x, y, w = values[others], groups.clicks[others] / base[others], base[others]
            assert steps[i] == pytest.approx(base[i] * np.average(y, weights=w))
            b, a = np.polyfit(x, y, 1, w=np.sqrt(w))
            assert lines[i] == pytest.approx(max(0, base[i] * (a + b * values[i])))
            ranked = sorted((j for j in range(n) if query[j] == query[i]), key=lambda j: values[j])
            k = ranked.index(i)
            if 0 < k < 5:
                rates = [groups.clicks[j] / base[j] for j in (ranked[k - 1], ranked[k + 1])]
                assert near[i] == pytest.approx(base[i] * sum(rates) / 2)
            else:
                assert np.isnan(near[i])


def worlds(test):
    """All kinds of relevance and of users, in pairs."""
    kinds = [("equal", "alike"), ("equal", "one click"), ("little", "various"),
             ("much", "alike"), ("much", "one click")]  # fmt: skip
    return pytest.mark.parametrize(("relevance", "users"), kinds)(test)


def make_world(relevance, users):
    rng = np.random.default_rng([SEED, len(relevance), len(users)])
    world = BENCH.World(rng, queries=300, relevance=relevance, users=users)
    return rng, world, world.sessions(6000)


class TestBefore:
    """The probability of a false alarm is below 0.1 % per log."""

    @worlds
    def test_features_from_before_are_not_reported(self, relevance, users):
        rng, world, sessions = make_world(relevance, users)
        data = BENCH.dataset_of(world.before(6000))
        assert find_leaks(world.log(sessions), data, rng=rng) == ()
        rows = leakage.Rows.from_log(world.log(sessions), data)
        tests = list(leakage.predict_chance(rows, data, None, rng))
        assert len(tests) == data.n_features
        assert min(bound for _, _, bound in tests) > -6  # nor nearly

    def test_half_of_the_users_never_click(self, rng):
        """Clicks on a page then predict each other, for which no feature is to blame."""
        world = BENCH.World(rng, queries=2000, relevance="little", users="various", gamma=0.3)
        log, data = world.log(world.sessions(40_000)), BENCH.dataset_of(world.before(20_000))
        assert find_leaks(log, data, rng=rng) == ()

    @pytest.mark.parametrize("gamma", [0.0, 2.0])
    def test_features_from_before_are_not_reported_with_wrong_examination(self, gamma, rng):
        world = BENCH.World(rng)
        log, data = world.log(world.sessions(4000)), BENCH.dataset_of(world.before(4000))
        log = log.replace(examination=1.0 / log.position**gamma)
        assert find_leaks(log, data, rng=rng) == ()

    def test_deterministic_clicks_are_no_leak(self):
        """Examined items are always or never clicked: then even the relevance predicts them."""
        query, item = np.divmod(np.arange(3000), 10)
        relevance = (item % 2).astype(float)
        data = BENCH.dataset_of({"relevance": relevance.reshape(300, 10)})
        log = ClickLog(query, item, np.ones(3000), 30 * relevance, impressions=np.full(3000, 30))
        assert find_leaks(log, data, rng=np.random.default_rng(SEED)) == ()


class TestAfter:
    @worlds
    def test_features_from_the_clicks_are_reported(self, relevance, users):
        rng, world, sessions = make_world(relevance, users)
        before, after = world.before(6000), world.after(sessions)
        leaks = find_leaks(world.log(sessions), BENCH.dataset_of(before | after), rng=rng)
        assert set(SURE) <= names(leaks) <= set(after)
        assert "rank by rate in the query" in names(leaks) or relevance == "much"
        assert {(leak.period, leak.evidence) for leak in leaks} == {("log", "chance")}
        rate = next(leak for leak in leaks if leak.name == "click rate")
        assert rate.size > 0.95
        assert rate.false_alarm < 1e-20

    def test_a_log_of_clicked_items_only(self, rng):
        """Most clicked pairs were clicked once, which is less than chance allows."""
        world = BENCH.World(rng, queries=3000, relevance="equal")
        sessions = world.sessions(6000)
        data = BENCH.dataset_of(world.before(6000) | world.after(sessions))
        log = world.log(sessions)
        was_clicked = world.counts(sessions)[0][log.query, log.item] > 0
        leaks = find_leaks(log.take(was_clicked), data, rng=rng)
        assert {"click rate", "clicks"} <= names(leaks) <= set(world.after(sessions))

    def test_large_logs_are_sampled(self, rng, monkeypatch):
        monkeypatch.setattr(leakage, "MAX_PAIRS", 2000)
        monkeypatch.setattr(leakage, "FIRST_PAIRS", 500)
        world = BENCH.World(rng, queries=1000)
        sessions = world.sessions(20_000)
        before, after = world.before(20_000), world.after(sessions)
        leaks = find_leaks(world.log(sessions), BENCH.dataset_of(before | after), rng=rng)
        assert {"click rate", "clicks", "debiased rate"} <= names(leaks) <= set(after)

    def test_false_alarms_are_shared_by_all_features(self, rng):
        """The bound of the same leak is ten times larger among ten features."""
        query, item = np.divmod(np.arange(1000), 10)
        clicks = rng.binomial(40, 0.2 / (item + 1))
        log = ClickLog(query, item, 1 / (item + 1), clicks, impressions=np.full(1000, 40))
        bounds = []
        for n_others in (0, 9):
            table = np.column_stack([clicks / 40, np.ones((1000, n_others))])
            data = RankingDataset.from_arrays(X=table, y=np.zeros(1000), qid=query)
            (leak,) = find_leaks(log, data, rng=np.random.default_rng(SEED))
            bounds.append(leak.false_alarm)
        assert bounds[0] > 0
        assert bounds[1] == pytest.approx(10 * bounds[0], rel=1e-9, abs=0)

    def test_each_kind_of_evidence_has_half_of_the_false_alarms(self, rng):
        """P(any alarm) ≤ 2 · features · predictions · P(one), so that both kinds share 0.1 %."""
        query, item = np.divmod(np.arange(600), 10)
        clicks = rng.binomial(40, 0.2 / (item + 1))
        table = np.column_stack([clicks / 40, rng.random((600, 3))])
        data = RankingDataset.from_arrays(X=table, y=np.zeros(600), qid=query)
        log = ClickLog(query, item, 1 / (item + 1), clicks, impressions=np.full(600, 40))
        (leak,) = find_leaks(log, data, rng=np.random.default_rng(SEED))
        rows = leakage.Rows.from_log(log, data)
        _, _, log_bound = next(
            leakage.predict_chance(rows, data, None, np.random.default_rng(SEED))
        )
        n_tests = 4 * leakage.N_PREDICTIONS
        assert leak.false_alarm == pytest.approx(2 * n_tests * np.exp(log_bound), rel=1e-9, abs=0)

    def test_items_over_all_queries(self, rng):
        """Each item is in ten queries: a pair has a tenth of the clicks behind its rate."""
        world = BENCH.World(rng, queries=1000)
        items = np.argsort(rng.random((1000, 1000)), axis=1)[:, :10]
        now, earlier = world.sessions(20_000), world.sessions(20_000)

        def rate(sessions):
            clicks, shown, _ = world.counts(sessions)
            total = [np.bincount(items.ravel(), column.ravel(), 1000) for column in (clicks, shown)]
            return (total[0] / total[1])[items]

        data = BENCH.dataset_of({"of this log": rate(now), "of an earlier one": rate(earlier)})
        for ids in (items.ravel(), np.char.add("item-", items.ravel().astype(str))):
            leaks = find_leaks(world.log(now), data, item_ids=ids, rng=rng)
            assert names(leaks) == {"of this log"}


@pytest.fixture(scope="module", params=["equal", "little", "much"])
def week(request):
    rng = np.random.default_rng([SEED, 5])
    world = BENCH.World(rng, queries=300, relevance=request.param)
    training, evaluation = world.sessions(6000), world.sessions(3000)
    both = tuple(np.concatenate(pair) for pair in zip(training, evaluation, strict=True))
    features = world.before(6000)
    before = set(features)
    for period, sessions in (("training", training), ("evaluation", evaluation), ("log", both)):
        features |= {f"{name}, {period}": x for name, x in world.after(sessions).items()}
    data = BENCH.dataset_of(features)
    leaks = find_leaks(world.log(training), data, evaluation=world.log(evaluation), rng=rng)
    return before, {leak.name: leak for leak in leaks}


class TestDays:
    def test_features_from_before_are_not_reported(self, week):
        before, leaks = week
        assert not before & set(leaks)

    @pytest.mark.parametrize("period", ["training", "evaluation", "log"])
    def test_leaks_have_their_period(self, week, period):
        _, leaks = week
        for name in SURE[:5]:
            assert leaks[f"{name}, {period}"].period == period

    def test_a_noisy_copy_predicts_its_own_period_only(self, rng):
        """Too noisy to predict chance, but it predicts nothing of the other period."""
        world = BENCH.World(rng, queries=2000, relevance="equal")
        training, evaluation = world.sessions(20_000), world.sessions(20_000)
        copies = {}
        for period, sessions in (("training", training), ("evaluation", evaluation)):
            clicks, shown, _ = world.counts(sessions)
            rate = clicks / shown
            copies[period] = rate + 2.5 * rate.std() * rng.normal(size=rate.shape)
        leaks = find_leaks(
            world.log(training), BENCH.dataset_of(copies), evaluation=world.log(evaluation), rng=rng
        )
        assert {(leak.name, leak.period, leak.evidence) for leak in leaks} == {
            ("training", "training", "days"),
            ("evaluation", "evaluation", "days"),
        }

    @pytest.mark.parametrize(("slope", "is_reported"), [(0.3, False), (0.9, True)])
    def test_only_days_predicted_more_than_twice_as_well_are_reported(
        self, rng, slope, is_reported
    ):
        """Rates rise with the feature by 0.2 in the evaluation, and by 0.3 or 0.9 before."""
        query, item = np.divmod(np.arange(6000), 10)
        x, shown = rng.random(6000), np.full(6000, 200)
        both = [
            ClickLog(
                query, item, np.ones(6000), rng.binomial(200, 0.1 * (1 + each * (2 * x - 1))),
                impressions=shown, position=item + 1,
            )
            for each in (slope, 0.2)
        ]  # fmt: skip
        data = RankingDataset.from_arrays(X=x[:, None], y=np.zeros(6000), qid=query)
        found = find_leaks(both[0], data, evaluation=both[1], rng=rng)
        assert [(leak.period, leak.evidence) for leak in found] == [
            ("training", "days")
        ] * is_reported

    def test_another_ranker_from_a_day_on_is_no_leak(self, rng):
        """Its score predicts positions in the evaluation days, not before."""
        world = BENCH.World(rng, queries=500)
        scores = world.scores.copy()
        world.scores[:] = scores[0]
        training = world.sessions(8000)
        world.scores[:] = scores[1]
        evaluation = world.sessions(8000)
        data = BENCH.dataset_of({"old": scores[0], "new": scores[1], "true": world.relevance})
        logs = [world.log(each) for each in (training, evaluation)]
        logs = [log.replace(examination=np.ones(log.n_rows)) for log in logs]  # far from the truth
        assert find_leaks(logs[0], data, evaluation=logs[1], rng=rng) == ()


@pytest.mark.slow
def test_no_gain_from_a_leak():
    """All items are equally relevant: the click rate of the same log promises a gain, and leaks."""
    rng = np.random.default_rng(SEED)
    log, features = make([SEED, 1], sessions=2000)
    items, member = np.unique(log["item_id"].to_pylist(), return_inverse=True)
    clicks = rng.random(len(member)) < 0.3 / log["position"].to_numpy()
    rates = dict(
        zip(items.tolist(), np.bincount(member, clicks) / np.bincount(member), strict=True)
    )
    rate = [rates.get(item, 0.0) for item in features["item_id"].to_pylist()]
    leaky = features.append_column("click_rate", pa.array(rate, pa.float32()))
    shop = opened(with_column(log, "click", clicks.astype(np.int8)), leaky)
    fit = fit_from_impressions(*shop, propensities=PositionBias(1.0))
    assert names(fit.leaks) == {"click_rate"}
    assert fit.decision.is_withheld
    assert fit.verdict.startswith("No verdict: click_rate")
    assert "gain" not in fit.ranker.provenance_
    assert fit.gain.low > 0
    assert not fit.is_better
    assert fit.leaks[0].sentence in fit.warnings
    options = EvaluationOptions(accept_features=["click_rate"])
    assert fit_from_impressions(*shop, propensities=PositionBias(1.0), evaluation=options).is_better


@pytest.mark.parametrize(
    ("leak", "essence"),
    [
        (Leak(3, "ctr", "log", "chance", 0.973, 1e-30), "clicks of this log: it predicts 97%"),
        (Leak(3, "ctr", "training", "days", 4.16, 1e-9), "training days 4.2 times as well as"),
        (Leak(3, "ctr", "evaluation", "days", np.inf, 1e-9), "evaluation days but not"),
    ],
)  # fmt: skip
def test_sentences(leak, essence):
    assert "Feature 'ctr'" in leak.sentence
    assert essence in leak.sentence


def test_periods_of_clicked_pairs_are_not_compared(rng):
    """A very large log has clicked pairs only: true relevance is not reported."""
    query, item = np.divmod(np.arange(20_000), 20)
    relevance = rng.random(20_000) * 0.05
    data = RankingDataset.from_arrays(X=relevance[:, None], y=np.zeros(20_000), qid=query)

    def period(n, only_clicked):
        clicks = rng.binomial(n, relevance)
        kept = clicks > 0 if only_clicked else np.ones(20_000, bool)
        return ClickLog(
            query[kept], item[kept], np.ones(kept.sum()), clicks[kept],
            impressions=np.full(kept.sum(), n), position=np.ones(kept.sum(), int),
        )  # fmt: skip

    training, evaluation = period(40, True), period(10, False)
    assert find_leaks(training, data, evaluation=evaluation, rng=rng)  # if they were
    assert not find_leaks(training, data, evaluation=evaluation, is_complete=False, rng=rng)


def test_leaks_of_features_that_are_missing_at_times(rng):
    query, item = np.divmod(np.arange(4000), 10)
    clicks = rng.binomial(40, 0.2 / (item + 1))
    values = np.column_stack([rng.random(4000), clicks / 40, np.full(4000, np.nan)])
    values[rng.random((4000, 3)) < 0.2] = np.nan
    data = RankingDataset.from_arrays(values, np.zeros(4000), query)
    log = ClickLog(query, item, 1 / (item + 1), clicks, impressions=np.full(4000, 40))
    assert [leak.feature for leak in find_leaks(log, data, rng=rng)] == [1]
