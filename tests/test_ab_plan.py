"""A/B plans: expected clicks and their variance by enumeration, the power by simulation."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from countersample import ClickLog, RankingDataset
from countersample.evaluation import plan_ab_test

THETA = 1 / np.arange(1, 5)
RELEVANCE = np.array([[0.1, 0.2, 0.5, 0.4], [0.3, 0.3, 0.1, 0.6], [0.2, 0.05, 0.3, 0.1]])
SHARE = np.array([0.5, 0.3, 0.2])  # of the sessions, by query
NEW = RELEVANCE.argsort(axis=1).argsort(axis=1).astype(float)  # scores: the best ranking
RANKS = 4 - NEW.astype(int)
DATA = RankingDataset.from_arrays(
    X=NEW.reshape(-1, 1), y=np.zeros(12), qid=np.repeat(["a", "b", "c"], 4)
)


def log_of(clicks, sessions, **columns):
    """Items of a query were shown in their order, in each session."""
    query, item = np.divmod(np.arange(12), 4)
    return ClickLog(
        query, item, THETA[item], clicks.ravel(), position=item + 1,
        impressions=sessions[query], examination=THETA[item], sessions=sessions[query], **columns,
    )  # fmt: skip


def moments(chances):
    """Mean and variance of the clicks of a session, over all patterns of clicks of each query."""
    first = second = 0.0
    for share, own in zip(SHARE, chances, strict=True):
        for clicks in product([0, 1], repeat=4):
            p = share * np.prod(np.where(clicks, own, 1 - own))
            first += p * sum(clicks)
            second += p * sum(clicks) ** 2
    return first, second - first**2


def ab_tests(chances_of_arms, n, n_tests, rng, sample):
    """The share of two-sided tests at 5 % with n sessions per arm that detect the difference."""
    n_detected = 0
    for _ in range(n_tests):
        old, new = (sample(chances, n, rng) for chances in chances_of_arms)
        error = np.sqrt((old.var() + new.var()) / n)
        n_detected += (new.mean() - old.mean()) / error > norm.ppf(0.975)
    return n_detected / n_tests


def independent(chances, n, rng):
    """Clicks of n sessions."""
    query = rng.choice(3, n, p=SHARE)
    return (rng.random((n, 4)) < chances[query]).sum(axis=1)


def all_or_none(chances, n, rng):
    """Half of the users never click, the others twice as often."""
    query = rng.choice(3, n, p=SHARE)
    clicks = (rng.random((n, 4)) < 2 * chances[query]).sum(axis=1)
    return clicks * rng.integers(2, size=n)


OLD_CHANCES = THETA * RELEVANCE
NEW_CHANCES = THETA[RANKS - 1] * RELEVANCE
# A log whose clicks are just as many as expected.
EXPECTED_LOG = log_of(1000 * OLD_CHANCES * SHARE[:, None], 1000 * SHARE)


class TestClosedForm:
    def test_means_and_variances_by_enumeration(self):
        plan = plan_ab_test(NEW.ravel(), EXPECTED_LOG, DATA, rng=0)
        assert (plan.logged, plan.logged_variance) == pytest.approx(moments(OLD_CHANCES))
        assert (plan.new, plan.new_variance) == pytest.approx(moments(NEW_CHANCES))
        z = 1.959964 + 0.841621
        difference = plan.new - plan.logged
        needed = z**2 * (plan.new_variance + plan.logged_variance) / difference**2
        assert plan.sessions == np.ceil(needed)

    def test_pages_of_different_length(self):
        """A third of the sessions shows two items: ranks 3 and 4 get two thirds of their clicks."""
        query, item = np.divmod(np.arange(12), 4)
        shown = np.where(item < 2, 900.0, 600.0)
        exposed = THETA[item] * shown / 900
        clicks = 900 * exposed * RELEVANCE.ravel()
        log = ClickLog(query, item, exposed, clicks, position=item + 1, impressions=shown,
                       examination=THETA[item], sessions=np.full(12, 900.0))  # fmt: skip
        plan = plan_ab_test(NEW.ravel(), log, DATA, rng=0)
        by_rank = THETA * [1, 1, 2 / 3, 2 / 3]
        assert plan.new == pytest.approx((by_rank[RANKS - 1] * RELEVANCE).sum() / 3)

    def test_clicks_by_chance_stay_where_they_are(self):
        """P(click) = β + θ·relevance: β is of the position, whoever stands there."""
        sessions, beta = 1000 * SHARE, np.array([0.2, 0.1, 0.0, 0.0])
        chances = OLD_CHANCES + beta
        by_chance = np.tile(beta, 3) * np.repeat(sessions, 4)
        log = log_of(chances * sessions[:, None], sessions, by_chance=by_chance)
        plan = plan_ab_test(NEW.ravel(), log, DATA, rng=0)
        assert plan.new == pytest.approx(SHARE @ (NEW_CHANCES + 0.075).sum(axis=1))


class TestPower:
    @pytest.mark.parametrize("power", [0.8, 0.9])
    def test_of_simulated_tests(self, rng, power):
        plan = plan_ab_test(NEW.ravel(), EXPECTED_LOG, DATA, power=power, rng=0)
        found = ab_tests([OLD_CHANCES, NEW_CHANCES], plan.sessions, 2000, rng, independent)
        # The normal curve for some hundred sessions is right to about 0.01; five standard errors.
        assert found == pytest.approx(power, abs=0.01 + 5 * np.sqrt(power * (1 - power) / 2000))

    def test_where_clicks_of_a_session_go_together(self, rng):
        """Sessions that are known tell that: as if they were independent, 80 % would be fewer."""
        n = 20_000
        query = rng.choice(3, n, p=SHARE)
        active = rng.integers(2, size=(n, 1))
        clicks = (rng.random((n, 4)) < 2 * (OLD_CHANCES / 2)[query]) * active
        item = np.tile(np.arange(4), n)
        log = ClickLog(np.repeat(query, 4), item, THETA[item], clicks.ravel(), position=item + 1,
                       session=np.repeat(np.arange(n), 4), impressions=np.ones(4 * n),
                       examination=THETA[item])  # fmt: skip
        plan = plan_ab_test(NEW.ravel(), log, DATA, rng=rng)
        assert plan.logged_variance == pytest.approx(clicks.sum(axis=1).var())
        chances = [OLD_CHANCES / 2, NEW_CHANCES / 2]
        # With the true difference, as that of one log is off by chance.
        truth = SHARE @ (chances[1] - chances[0]).sum(axis=1)
        needed = int(plan.sessions * ((plan.new - plan.logged) / truth) ** 2)
        found = ab_tests(chances, needed, 1000, rng, all_or_none)
        assert found == pytest.approx(0.8, abs=0.03 + 5 * 0.4 / np.sqrt(1000))

    def test_the_interval_has_the_true_difference(self, rng):
        """Of 40 logs at 95 %, five or more misses have a chance of 5 %, eight of 0.1 %."""
        features = np.tile(NEW, (60, 1)).reshape(-1, 1)
        many = RankingDataset.from_arrays(features, np.zeros(720), np.repeat(np.arange(180), 4))
        query, item = np.divmod(np.arange(720), 4)
        kind = query % 3
        sessions = np.array([50, 30, 20])[kind]
        truth = SHARE @ (NEW_CHANCES - OLD_CHANCES).sum(axis=1)
        missed = 0
        for _ in range(40):
            clicks = rng.binomial(sessions, OLD_CHANCES[kind, item])
            log = ClickLog(query, item, THETA[item], clicks, position=item + 1,
                           impressions=sessions, examination=THETA[item])  # fmt: skip
            plan = plan_ab_test(many.features[:, 0], log, many, rng=rng)
            missed += not plan.low <= truth <= plan.high
        assert missed < 8


class TestWords:
    def test_the_sentence_has_the_sessions_or_none(self):
        plan = plan_ab_test(NEW.ravel(), EXPECTED_LOG, DATA, rng=0)
        assert "0.4933 on the logged ranking, and 0.7475 are expected" in plan.sentence
        assert f"{plan.sessions:,} sessions per arm" in plan.sentence
        assert f"The lower end of the interval needs {plan.sessions_at_low:,}." in plan.sentence
        assert plan.sessions_at_low > plan.sessions
        assert plan.to_dict()["sentence"] == plan.sentence
        worse = plan_ab_test(-NEW.ravel(), EXPECTED_LOG, DATA, rng=0)
        assert worse.sessions is worse.sessions_at_low is None
        assert worse.sentence.endswith("No test would show more clicks.")
