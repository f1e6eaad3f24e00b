"""What is held out, which estimator is chosen, and the gain that results."""

from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import SEED
from shops import KNOWN, known_fit, opened, top_five, usual_shop, with_column

from countersample import CounterSampleRanker
from countersample._progress import Progress
from countersample.clicks import simulate_impressions
from countersample.errors import DataError, ParameterError
from countersample.fitting import fit_from_impressions, write_page
from countersample.fitting.gain import hold_out_days, split_queries, train_folds, widen_interval
from countersample.logs import FeatureTable, read_features, read_impressions
from countersample.metrics import item_ranks, rank_values
from countersample.options import EvaluationOptions, PropensityOptions

FIRST = datetime(2026, 3, 1)  # noqa: DTZ001 (a log without time zones)
RELEVANCE = (0.1, 1.0)  # of items below and above the label 3
slow = pytest.mark.slow


def stamp(log, *, days=10):
    """Return a log whose sessions are spread over days."""
    codes = np.unique(log["session"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    hours = codes * 24 * days // (codes.max() + 1)
    stamps = [FIRST + timedelta(hours=int(hour)) for hour in hours]
    return log.append_column("timestamp", pa.array(stamps, pa.timestamp("us")))


@pytest.fixture(scope="module")
def shop():
    return usual_shop()


class TestQueries:
    def test_no_query_is_scored_by_its_own_clicks(self, shop):
        """More clicks on one query leave the scores of its fold as they are, and change others."""
        fit = known_fit()
        dataset = read_features(shop[1]).dataset
        ranker = CounterSampleRanker(learning_rate=0.01, steps=300)

        def score(log):
            rng = np.random.default_rng(SEED)
            folds = split_queries(log, 5, rng)
            scores, stages = train_folds(
                ranker, folds, dataset, log, metric="dcg@10", rng=rng, progress=Progress()
            )
            assert (scores == stages[-1][1]).all()
            return scores

        before = score(fit.shown)
        query = int(fit.shown.query[fit.shown.clicks > 0][0])
        more = np.where(fit.shown.query == query, 50 * fit.shown.clicks, fit.shown.clicks)
        after = score(fit.shown.replace(count=more))
        items = slice(dataset.offsets[query], dataset.offsets[query + 1])
        assert (before[items] == after[items]).all()
        assert 0.5 < (before != after).mean() < 0.9  # four folds of five
        assert (before != 0).mean() > 0.99
        steps, last = fit.learning_curve[-1]
        assert steps > 0
        assert last.value == fit.gain.new.value
        assert "no timestamps" in fit.holdout.sentence

    def test_clicks_on_one_query(self, shop):
        log, features = shop
        clicks = pc.if_else(pc.equal(log["query_id"], log["query_id"][0]), log["click"], 0)
        one = log.set_column(log.column_names.index("click"), "click", clicks)
        with pytest.raises(DataError, match="clicks on one query only, expected at least two"):
            fit_from_impressions(*opened(one, features), propensities=KNOWN)


@pytest.fixture(scope="module")
def by_time(shop):
    return fit_from_impressions(*opened(stamp(shop[0]), shop[1]), seed=SEED)


class TestTime:
    def test_the_last_days_evaluate(self, by_time):
        holdout = by_time.holdout
        assert (holdout.by, holdout.since) == ("time", date(2026, 3, 9))
        assert holdout.population == "sessions like those from 2026-03-09 on"
        assert 0.1 < holdout.n_clicks / by_time.check.counts.n_clicks < 0.3
        assert holdout.share == pytest.approx(0.2, abs=0.001)  # two of ten days
        assert by_time.is_joint
        assert by_time.to_dict()["holdout"]["since"] == "2026-03-09"

    @slow
    @pytest.mark.parametrize(
        ("days", "options", "limit"),
        [(10, {"holdout_by": "queries"}, "later days"), (1, {}, "too few days")],
    )
    def test_queries_evaluate_instead(self, shop, by_time, days, options, limit):
        log = opened(stamp(shop[0], days=days), shop[1])
        fit = fit_from_impressions(*log, seed=SEED, evaluation=EvaluationOptions(**options))
        assert fit.holdout.by == "queries"
        assert limit in fit.holdout.limit
        clicks = [each.ranker.provenance_["log"]["clicks"] for each in (fit, by_time)]
        assert clicks[0] == clicks[1]  # the saved ranker is trained on all days

    def test_later_clicks_are_not_learned_from(self, shop):
        """Other clicks on the evaluation days: the evaluated scores stay as they were."""
        late, table, since = stamp(shop[0]), read_features(shop[1]), date(2026, 3, 9)
        is_after = np.array([each.date() >= since for each in late["timestamp"].to_pylist()])
        click = late["click"].to_numpy().copy()
        click[is_after] = np.random.default_rng(SEED).permutation(click[is_after])
        other = with_column(late, "click", pa.array(click))
        first, second = (
            hold_out_days(
                CounterSampleRanker(learning_rate=0.01, steps=500, random_state=SEED),
                read_impressions(each), table, since, PropensityOptions(), EvaluationOptions(),
                rng=np.random.default_rng(SEED), progress=Progress(),
            )
            for each in (late, other)
        )  # fmt: skip
        assert (first.scores == second.scores).all()
        assert (first.clicks.curves[""] == second.clicks.curves[""]).all()
        assert first.clicks.log.shown.clicks.tolist() != second.clicks.log.shown.clicks.tolist()
        assert first.holdout.n_clicks == late["click"].to_numpy()[is_after].sum()

    @slow
    def test_propensities_that_only_the_last_days_identify(self, shop):
        """One policy before, several after."""
        late, features = stamp(shop[0]), shop[1]
        is_early = np.array([each.day < 9 for each in late["timestamp"].to_pylist()])
        policy = np.array(late["policy"].to_pylist())
        log = late.filter(pa.array(~is_early | (policy == np.unique(policy[is_early])[0])))
        options = EvaluationOptions(holdout_from="2026-03-09", metric="dcg@10")
        fit = fit_from_impressions(*opened(log, features), seed=SEED, evaluation=options)
        assert fit.propensity_source.is_identified
        assert not fit.is_identified
        assert fit.decision.outcome == "not shown"
        assert not fit.ranker.provenance_["gain"]["is_identified"]
        assert any(text.startswith("On the days before 2026-03-09") for text in fit.warnings)

    @slow
    def test_clicks_of_the_last_days_that_cannot_be_used(self, shop):
        """Pages of the first days show five items: deeper clicks have no propensity."""
        late, features = stamp(shop[0]), shop[1]
        is_early = np.array([each.day < 9 for each in late["timestamp"].to_pylist()])
        log = late.filter(pa.array(~is_early | (late["position"].to_numpy() <= 5)))
        settings = {"seed": SEED, "evaluation": EvaluationOptions(holdout_from="2026-03-09")}
        with pytest.raises(DataError, match=r"on the days from 2026-03-09 on, .* cannot be used"):
            fit_from_impressions(*opened(log, features), **settings)
        skip = PropensityOptions(missing="skip")
        fit = fit_from_impressions(*opened(log, features), propensities=skip, **settings)
        assert any("On the days from 2026-03-09 on" in text for text in fit.warnings)

    def test_a_log_without_timestamps(self, shop):
        with pytest.raises(DataError, match="no column 'timestamp'"):
            fit_from_impressions(*opened(*shop), evaluation=EvaluationOptions(holdout_last="7d"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"holdout_by": "queries", "holdout_last": "7d"}, "by time, not by queries"),
        ({"holdout_by": "clicks"}, "holdout_by is 'clicks'"),
        ({"estimator": "best"}, "estimator is 'best', expected one of auto, ips"),
    ],
)
def test_wrong_options(options, error):
    with pytest.raises(ParameterError, match=error):
        EvaluationOptions(**options)


def test_the_interval_is_widened_on_the_log_scale():
    """√(1 + 1/5) times as wide as the interval of the evaluated rankers."""
    gain = known_fit().gain
    low, middle, high = np.log1p([gain.relative_low, gain.relative, gain.relative_high])
    assert low < middle < (low + high) / 2  # a little less than the median: see ratio_intervals
    assert gain.low == pytest.approx(gain.relative_low * gain.logged.value)
    narrow = replace(gain, relative_low=np.expm1(0.10), relative_high=np.expm1(0.12))
    wide = widen_interval(narrow, 0.2)
    ends = np.log1p([wide.relative_low, wide.relative_high])
    assert ends == pytest.approx(0.11 + 0.01 * np.sqrt(1.2) * np.array([-1, 1]))
    empty = replace(gain, relative_low=-1.5)
    assert widen_interval(empty, 0.2) is empty


# -- pages that show the top five of many items ---------------------------------------------------


@pytest.fixture(scope="module")
def fit():
    return fit_top_five()


def fit_top_five(log=None, **options):
    """Fit a log of such pages; by default with known propensities, and by the usual log."""
    _, table, usual = top_five()
    log = read_impressions(usual) if log is None else log
    return fit_from_impressions(log, table, **({"propensities": KNOWN} | options))


def true_values(fit):
    """Return the DCG@5 per session of the logged ranking, and of the fit's ranker."""
    data, _, log = top_five()
    relevance = np.where(data.labels >= 3, RELEVANCE[1], RELEVANCE[0])
    query = np.searchsorted(data.query_ids, log["query_id"].to_numpy())
    row = data.offsets[query] + log["item_id"].to_numpy()
    reward = rank_values("dcg@5", log["position"].to_numpy())
    n_sessions = len(np.unique(log["session"].to_numpy()))
    sessions = np.bincount(query[log["position"].to_numpy() == 1], minlength=data.n_queries)
    by_query = np.add.reduceat(
        rank_values("dcg@5", item_ranks(fit.ranker, data)) * relevance, data.offsets[:-1]
    )
    return (reward @ relevance[row]) / n_sessions, (sessions @ by_query) / n_sessions


@slow
class TestEstimator:
    def test_unseen_items_need_a_model(self, fit):
        assert fit.gain.new.metric == "dcg@5"
        assert abs(fit.gain.logged.value / true_values(fit)[0] - 1) < 0.05
        assert fit.estimator.name == fit.gain.new.estimator == "dr"
        unseen = fit.gain.new.never_shown
        assert 0.05 < unseen < 0.9
        assert fit.estimator.reason.startswith(f"{unseen:.0%} of the ranker's rewards are of items")
        assert any("are of items never shown" in text for text in fit.warnings)

    def test_clicks_on_unseen_items_plan_no_test(self, fit, tmp_path):
        """They would count as never clicked, and the plan would contradict the gain."""
        assert fit.to_dict()["ab_plan"] is None
        assert "sessions per arm" not in fit.next_step
        write_page(tmp_path / "page.html", fit, command="fit")
        page = " ".join((tmp_path / "page.html").read_text("utf-8").split())
        assert "this log cannot plan the sessions of a test" in page
        assert fit.ab_plan.sentence not in page

    def test_everything_shown_needs_no_model(self):
        data = top_five()[0]
        log = simulate_impressions(data, data.features[:, 0], 5000, top=None, bias=KNOWN, rng=SEED)
        other = fit_top_five(read_impressions(log))
        assert other.estimator.name == "ips"
        assert other.gain.new.never_shown < 0.01

    def test_a_depth_changes_propensities_and_not_the_logged_value(self, fit):
        options = PropensityOptions(known=1 / np.arange(1, 4), missing="skip")
        shallow = fit_top_five(propensities=options)
        assert abs(shallow.gain.logged.value / fit.gain.logged.value - 1) < 0.05
        assert shallow.gain.relative < fit.gain.relative + 0.1
        assert "or only where no propensity is known" in shallow.estimator.reason
        assert any("or only where no propensity" in text for text in shallow.warnings)

    def test_items_without_features_are_warned_about(self):
        data, table, log = top_five()
        few = data.subset(np.arange(250))
        shorter = FeatureTable(few, table.item_ids[: few.n_items], has_labels=True)
        options = PropensityOptions(known=KNOWN, missing="skip")
        other = fit_from_impressions(read_impressions(log), shorter, propensities=options)
        assert any("were shown have no features" in text for text in other.warnings)

    def test_options_override_the_choice(self):
        other = fit_top_five(evaluation=EvaluationOptions(estimator="snips", metric="dcg@10"))
        assert (other.estimator.name, other.gain.new.per) == ("snips", "relevant item")
        assert any("no more than 5 items, and dcg@10 counts" in text for text in other.warnings)

    def test_logged_propensities_give_no_exposure(self, tmp_path):
        log = top_five()[2]
        own = read_impressions(log.append_column("propensity", [np.full(len(log), 0.5)]))
        other = fit_top_five(own, propensities=None)
        assert other.estimator.name == "ips"
        assert "propensities of clicks only" in other.estimator.reason
        assert other.exposure == "as logged"
        write_page(tmp_path / "page.html", other, command="")
        assert "A click weighs 1/propensity, as in the log." in (tmp_path / "page.html").read_text()
        with pytest.raises(DataError, match=r"'dr' needs .* take 'ips', or estimate"):
            fit_top_five(own, propensities=None, evaluation=EvaluationOptions(estimator="dr"))
