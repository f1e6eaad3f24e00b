"""Fits on logs as they are: a page shows some of the items, on devices of two kinds, to buyers."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED

from countersample import PositionBias, evaluate, synthetic
from countersample.clicks import Shuffled, simulate_impressions
from countersample.clicks.impressions import FeatureTable, read_impressions
from countersample.clicks.impressions.joining import Matched
from countersample.errors import DataError, ParameterError
from countersample.evaluation import estimate_gain
from countersample.evaluation.ranking import item_ranks, rank_values
from countersample.fitting import fit_from_impressions, write_page
from countersample.fitting.intervals import Units, values_of_draws
from countersample.options import EvaluationOptions, PropensityOptions
from countersample.propensity import Propensities
from countersample.propensity.cells import QueryDraws

RELEVANCE = (0.1, 1.0)  # of items below and above the label 3


@pytest.fixture(scope="module")
def data():
    return synthetic("tiny", n_queries=300, rng=SEED)


@pytest.fixture(scope="module")
def table(data):
    items = np.arange(data.n_items) - np.repeat(data.offsets[:-1], data.query_sizes)
    return FeatureTable(data, items, has_labels=True)


@pytest.fixture(scope="module")
def policies(data):
    return {"old": data.features[:, 0], "new": data.features[:, 1] + data.features[:, 0] / 2}


@pytest.fixture(scope="module")
def log(data, policies):
    return simulate_impressions(
        data, policies, 30_000, shares=[0.9, 0.1], top=5, bias=PositionBias(1.0), rng=SEED
    )


@pytest.fixture(scope="module")
def fit(log, table):
    return fit_from_impressions(read_impressions(log), table, propensities=PositionBias(1.0))


def true_values(fit, log, data):
    """Return the DCG@5 of what was logged, and of the fit's ranker, a session."""
    relevance = np.where(data.labels >= 3, RELEVANCE[1], RELEVANCE[0])
    query = np.searchsorted(data.query_ids, log["query_id"].to_numpy())
    row = data.offsets[query] + log["item_id"].to_numpy()
    reward = rank_values("dcg@5", log["position"].to_numpy())
    n_sessions = len(np.unique(log["session"].to_numpy()))
    sessions = np.bincount(query[log["position"].to_numpy() == 1], minlength=data.n_queries)
    of_query = np.add.reduceat(
        rank_values("dcg@5", item_ranks(fit.ranker, data)) * relevance, data.offsets[:-1]
    )
    return (reward @ relevance[row]) / n_sessions, (sessions @ of_query) / n_sessions


class TestCutOff:
    def test_what_was_logged_is_worth_what_it_is(self, fit, log, data):
        logged, _ = true_values(fit, log, data)
        assert abs(fit.gain.logged.value / logged - 1) < 0.05

    def test_no_gain_by_a_longer_page(self, fit, log, table):
        assert fit.gain.new.metric == "dcg@5"
        longer = fit_from_impressions(
            read_impressions(log),
            table,
            propensities=PositionBias(1.0),
            evaluation=EvaluationOptions(metric="dcg@10"),
        )
        assert longer.gain.relative > fit.gain.relative
        assert any("no more than 5 items, and dcg@10 counts" in text for text in longer.warnings)

    def test_the_estimator_is_named(self, fit):
        assert fit.estimator.name == fit.gain.new.estimator == "dr"
        unseen = fit.gain.new.never_shown
        assert 0.05 < unseen < 0.9
        assert fit.estimator.reason.startswith(f"{unseen:.0%} of the ranker's rewards are of items")
        assert any("are of items never shown" in text for text in fit.warnings)

    def test_as_asked_for(self, log, table):
        found = fit_from_impressions(
            read_impressions(log),
            table,
            propensities=PositionBias(1.0),
            evaluation=EvaluationOptions(estimator="snips"),
        )
        assert (found.estimator.name, found.gain.new.per) == ("snips", "relevant item")

    def test_position_only_weights_promise_less_than_is_true(self, fit, log, table, data):
        """They take it that what one session in ten showed was always there, and not wanted."""
        other = fit_from_impressions(
            read_impressions(log),
            table,
            propensities=PropensityOptions(known=PositionBias(1.0), exposure="position-only"),
        )
        assert other.settings["exposure"] == "position-only"
        _, true = true_values(other, log, data)
        assert other.gain.new.high < true
        assert abs(fit.gain.new.value / true_values(fit, log, data)[1] - 1) < 0.15

    def test_everything_shown_needs_no_model(self, data, table):
        whole = simulate_impressions(
            data, data.features[:, 0], 5000, top=None, bias=PositionBias(1.0), rng=SEED
        )
        found = fit_from_impressions(read_impressions(whole), table, propensities=PositionBias(1.0))
        assert found.estimator.name == "ips"
        assert found.gain.new.never_shown < 0.01

    def test_no_ids_of_sessions(self, fit, log, table):
        bare = fit_from_impressions(
            read_impressions(log.drop_columns("session")), table, propensities=PositionBias(1.0)
        )
        assert bare.check.counts.sessions_from == "first position"
        assert bare.gain.relative == fit.gain.relative

    def test_own_propensities_do_not_tell_exposure(self, log, table):
        own = log.append_column("propensity", [np.full(len(log), 0.5)])
        found = fit_from_impressions(read_impressions(own), table)
        assert found.estimator.name == "ips"
        assert "do not tell how often others were" in found.estimator.reason
        with pytest.raises(DataError, match=r"'dr' needs to know .* take 'ips', or estimate"):
            fit_from_impressions(
                read_impressions(own), table, evaluation=EvaluationOptions(estimator="dr")
            )

    def test_an_unknown_estimator(self, log, table):
        with pytest.raises(ParameterError, match="estimator is 'best', expected one of auto, ips"):
            fit_from_impressions(
                read_impressions(log), table, evaluation=EvaluationOptions(estimator="best")
            )


CURVES = {"phone": PositionBias(1.96), "desktop": PositionBias(0.49)}


@pytest.fixture(scope="module")
def mixed(data, policies):
    """A log of two devices."""
    contexts = {name: (0.5, curve) for name, curve in CURVES.items()}
    return simulate_impressions(
        data, policies, 40_000, shares=[0.5, 0.5], top=10, contexts=contexts, rng=SEED
    )


@pytest.fixture(scope="module")
def of_devices(mixed, table):
    return fit_from_impressions(read_impressions(mixed), table)


def test_a_depth_changes_what_is_known_and_not_what_was_shown(log, table, fit):
    """Of all rankings the logged one is known; its places below a depth are not empty."""
    shallow = fit_from_impressions(
        read_impressions(log),
        table,
        propensities=PropensityOptions(known=1 / np.arange(1, 4), missing="skip"),
    )
    assert abs(shallow.gain.logged.value / fit.gain.logged.value - 1) < 0.05
    assert shallow.gain.relative < fit.gain.relative + 0.1
    assert "or only where no propensity is known" in shallow.estimator.reason
    assert any("never shown, or only where no propensity" in text for text in shallow.warnings)


def test_doubly_robust_intervals_are_around_their_estimate(log, table):
    found = fit_from_impressions(
        read_impressions(log),
        table,
        propensities=PropensityOptions(exposure="position-only"),
        evaluation=EvaluationOptions(estimator="dr"),
    )
    assert found.is_joint
    assert found.gain.new.low < found.gain.new.value < found.gain.new.high
    assert found.gain.low < found.gain.value < found.gain.high


def test_own_propensities_are_used_as_logged(log, table, tmp_path):
    own = log.append_column("propensity", [np.full(len(log), 0.5)])
    found = fit_from_impressions(read_impressions(own), table)
    assert found.exposure == "as logged"
    write_page(tmp_path / "page.html", found, command="")
    assert "A click weighs 1/propensity, as the log has it." in (tmp_path / "page.html").read_text()


def test_what_is_shown_without_features_is_warned_of(log, data, table):
    few = data.subset(np.arange(250))
    shorter = FeatureTable(few, table.item_ids[: few.n_items], has_labels=True)
    found = fit_from_impressions(
        read_impressions(log),
        shorter,
        propensities=PropensityOptions(known=PositionBias(1.0), missing="skip"),
    )
    assert any("of the query-item pairs that were shown have no features" in text
               for text in found.warnings)  # fmt: skip


class TestContexts:
    def test_the_interval_has_the_curves_in_it(self, of_devices):
        """They are estimated again from each draw of queries."""
        assert of_devices.is_joint
        assert of_devices.gain.relative_low < of_devices.gain.relative
        assert of_devices.gain.relative < of_devices.gain.relative_high

    def test_each_has_its_curve(self, of_devices):
        curves = of_devices.propensity_source.contexts.curves
        assert set(curves) == set(CURVES)
        for name, curve in curves.items():
            true = CURVES[name].propensity(curve.position)
            width = np.log(curve.high / np.maximum(curve.low, 1e-3)) / 2
            off = np.abs(np.log(curve.value / true)) / np.maximum(width, 0.1)
            assert off.max() < 2  # of the half-width of a 95 % interval
        assert curves["phone"].value[9] < curves["desktop"].value[9] / 5

    def test_the_ranker_is_that_of_known_curves(self, of_devices, mixed, table, data):
        class Known:
            def examination_of(self, position, context):
                curves = CURVES
                found = np.empty(len(position))
                for name, curve in curves.items():
                    own = np.asarray(context) == name
                    found[own] = curve.propensity(np.asarray(position)[own])
                return found, np.zeros(len(position))

        known = fit_from_impressions(read_impressions(mixed), table, propensities=Known())
        ndcg = [evaluate(each.ranker, data, "ndcg@10")["ndcg@10"] for each in (of_devices, known)]
        assert abs(ndcg[0] - ndcg[1]) < 0.03

    def test_the_page_shows_both(self, of_devices, tmp_path):
        write_page(tmp_path / "page.html", of_devices, command="")
        text = (tmp_path / "page.html").read_text("utf-8")
        assert '<th scope="col">phone</th>' in text
        assert '<th scope="col">desktop</th>' in text
        assert of_devices.to_dict()["propensities"]["contexts"]["curves"].keys() == CURVES.keys()

    def test_what_is_said_of_many_contexts_is_said_once(self, data, table, policies):
        """Forty contexts with too little to tell a curve beside one that has enough."""
        contexts = {"desktop": (0.9, PositionBias(0.5))}
        contexts |= {f"app {n}": (0.1 / 40, PositionBias(0.5)) for n in range(40)}
        log = simulate_impressions(
            data, policies, 20_000, shares=[0.5, 0.5], top=5, contexts=contexts, rng=SEED
        )
        fit = fit_from_impressions(
            read_impressions(log), table, propensities=PropensityOptions(missing="skip")
        )
        told = [text for text in fit.warnings if text.startswith("Propensities in ")]
        assert told
        assert len(told) < 40
        assert any(" more: " in text for text in told)

    def test_nothing_that_moves_in_any(self, data, table):
        still = simulate_impressions(
            data, data.features[:, 0], 3000, rng=SEED,
            contexts={name: (0.5, curve) for name, curve in CURVES.items()},
        )  # fmt: skip
        with pytest.raises(DataError, match=r"no context .* leave out the contexts"):
            fit_from_impressions(read_impressions(still), table)


def test_the_page_of_trust_bias(data, table, tmp_path):
    log = simulate_impressions(
        data, Shuffled(data.features[:, 0]), 40_000, top=4, click_model="trust-bias", rng=SEED
    )
    fit = fit_from_impressions(
        read_impressions(log), table, propensities=PropensityOptions(method="trust")
    )
    found = fit.propensity_source.propensities
    assert found.has_trust_bias
    assert fit.to_dict()["propensities"]["trust"]["beta"] == found.beta.tolist()
    assert fit.shown.by_chance.sum() > 0
    write_page(tmp_path / "page.html", fit, command="")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert f"<td>{found.beta[0]:.3f}</td>" in text
    assert found.sentence in text


def test_what_is_bought_counts_more(log, table, data):
    """Of the relevant items, buyers want those with much of the last feature."""
    rng = np.random.default_rng(SEED)
    query = np.searchsorted(data.query_ids, log["query_id"].to_numpy())
    row = data.offsets[query] + log["item_id"].to_numpy()
    clicked = log["click"].to_numpy() == 1
    bought = clicked & (rng.random(len(log)) < data.features[row, -1])
    event = np.where(bought, "purchase", np.where(clicked, "click", "view"))
    events = log.drop_columns("click").append_column("event", pa.array(event))
    found = [
        fit_from_impressions(
            read_impressions(events, values=values), table, propensities=PositionBias(1.0)
        )
        for values in ({"click": 1, "purchase": 1}, {"click": 1, "purchase": 10})
    ]
    assert found[0].gain.logged.value < found[1].gain.logged.value
    assert found[1].shown.clicks.sum() == clicked.sum() + 9 * bought.sum()
    weights = [each.ranker.weights_ / np.linalg.norm(each.ranker.weights_) for each in found]
    assert weights[0][-1] < weights[1][-1]


class TestIntervals:
    """Queries are drawn, and propensities are estimated again from each draw."""

    @pytest.fixture
    def parts(self, data, table, log, rng):
        counts = read_impressions(log).counts()
        matched = Matched.of(counts, data, table.item_ids)
        value = 1 / np.arange(1, 6)
        curve = Propensities(value, value, value, np.ones(5), "all-pairs")
        return matched, curve, rng.random(data.n_items), rng.random(data.n_items)

    @pytest.mark.parametrize("estimator", ["ips", "dr"])
    def test_a_draw_is_the_estimate_by_its_propensities(self, parts, data, estimator):
        """Each query once, and other curves: what `estimate_gain` says with these."""
        matched, curve, scores, model = parts
        relevance = model if estimator == "dr" else None
        queries = _EachOnce(np.ones(len(matched.counts.query_ids), bool), 3, 0)
        curves = np.stack([curve.value, curve.value**2, curve.value**0.5])
        found = values_of_draws(
            scores, matched, curve, {"": curves}, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=relevance,
        )  # fmt: skip
        levels = []
        for theta, values in zip(curves, found, strict=True):
            shown, *_ = matched.shown(theta)
            levels.append(shown.weights.sum())
            gain = estimate_gain(
                scores, shown, data, metric="dcg@5", estimator=estimator,
                baseline=None if relevance is None else relevance * levels[-1] / levels[0],
                n_bootstrap=1, rng=0,
            )  # fmt: skip
            assert values == pytest.approx([gain.new.value, gain.logged.value])

    @pytest.mark.parametrize("estimator", ["ips", "dr"])
    def test_several_rankings_are_each_as_if_alone(self, parts, estimator):
        matched, curve, scores, model = parts
        queries = QueryDraws(np.ones(len(matched.counts.query_ids), bool), 4, SEED)
        curves = {"": np.stack([curve.value ** (1 + k / 10) for k in range(4)])}
        units = Units.of_queries(matched.counts, queries)

        def drawn(of):
            return values_of_draws(
                of, matched, curve, curves, units, metric="dcg@5", exposure="policy-aware",
                relevance=model if estimator == "dr" else None,
            )  # fmt: skip

        together = drawn(np.stack([scores, model, -scores]))
        for k, one in enumerate((scores, model, -scores)):
            assert together[:, [k, 3]] == pytest.approx(drawn(one))

    def test_queries_count_as_often_as_they_are_drawn(self, parts, data):
        """With one curve, the values of logs in which queries are there several times."""
        matched, curve, scores, _ = parts
        queries = QueryDraws(np.ones(len(matched.counts.query_ids), bool), 4, SEED)
        found = values_of_draws(
            scores, matched, curve, None, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=None,
        )  # fmt: skip
        shown, *_ = matched.shown(curve)
        weights = np.concatenate(list(queries.blocks()))
        for w, values in zip(weights, found, strict=True):
            times = w[shown.query].astype(int)  # all queries have features: the same indices
            again = shown.take(np.repeat(np.arange(len(shown)), times))
            rows = data.offsets[again.query] + again.item
            reward = rank_values("dcg@5", item_ranks(scores, data))[rows]
            n_sessions = w @ matched.counts.sessions
            assert values[0] == pytest.approx(reward @ again.weights / n_sessions)

    def test_the_fit_says_so(self, log, table, fit):
        joint = fit_from_impressions(read_impressions(log), table)
        assert joint.is_joint
        assert joint.gain_at_ends is None
        assert not fit.is_joint  # propensities were given
        width = [(g.logged.high - g.logged.low) / g.logged.value for g in (joint.gain, fit.gain)]
        assert width[0] > width[1]


class _EachOnce(QueryDraws):
    def blocks(self, width=1):  # noqa: ARG002 (as in QueryDraws)
        yield np.ones((self.n, len(self.is_drawn)))
