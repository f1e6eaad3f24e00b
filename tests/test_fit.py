"""`fit_from_impressions`: the ranker is better, its gain is the true one, doubts are reported."""

import json
from functools import partialmethod

import numpy as np
import pyarrow.compute as pc
import pytest
from conftest import SEED
from requirements import need
from shops import KNOWN, load_example, make, opened, usual_fit, usual_shop, with_column

from countersample import CounterSampleRanker
from countersample.errors import DataError, ParameterError
from countersample.fitting import fit_from_impressions, write_page
from countersample.gbdt import GBDTRanker
from countersample.logs import Impressions, read_features
from countersample.options import EvaluationOptions, PropensityOptions
from countersample.propensity import Propensities
from countersample.torch import NeuralRanker

true_gain = load_example("log_to_ranker").true_gain
slow = pytest.mark.slow


@slow
class TestTruth:
    def test_the_interval_covers_the_true_gain(self):
        """One or two of six logs may miss: P(three or more of six miss at 95 %) is 0.2 %."""
        covered = []
        for seed in range(6):
            log, features = make([SEED, seed])
            fit = fit_from_impressions(*opened(log, features), seed=seed)
            truth = true_gain(fit, read_features(features).dataset)
            assert truth > 0.05
            assert fit.is_better
            covered.append(fit.gain.relative_low <= truth <= fit.gain.relative_high)
        assert sum(covered) >= 4

    def test_no_gain_if_clicks_do_not_depend_on_the_item(self):
        """P(more than two of five logs err at 95 %) is 0.1 %."""
        rng = np.random.default_rng(SEED)
        errors = []
        for seed in range(5):
            log, features = make([SEED, seed], sessions=1000)
            blind = rng.random(len(log)) < 0.3 / log["position"].to_numpy()
            log = with_column(log, "click", blind.astype(np.int8))
            fit = fit_from_impressions(*opened(log, features), propensities=KNOWN)
            errors.append(fit.is_better or fit.gain.high < 0)
        assert sum(errors) <= 2


@slow
def test_the_order_of_rows_and_labels_do_not_matter():
    log, features = usual_shop()
    shuffled = log.take(np.random.default_rng(SEED).permutation(len(log)))
    again = fit_from_impressions(*opened(shuffled, features.drop_columns("label")), seed=SEED)
    assert (again.ranker.weights_ == usual_fit().ranker.weights_).all()


RANKERS = {
    "linear": lambda: CounterSampleRanker(learning_rate=0.001, steps=3000, average=False),
    "torch": lambda: NeuralRanker(hidden=(8,), epochs=4, patience=2),
    "lightgbm": lambda: GBDTRanker(backend="lightgbm", n_trees=40, patience=5),
    "xgboost": lambda: GBDTRanker(backend="xgboost", n_trees=40, patience=5),
}


@slow
@pytest.mark.parametrize("name", RANKERS)
def test_any_ranker_has_a_gain_and_a_page(name, tmp_path):
    if name != "linear":
        need(name)
    ranker = RANKERS[name]()
    before = ranker.get_params()
    fit = fit_from_impressions(*opened(*usual_shop()), ranker=ranker, propensities=KNOWN, seed=SEED)
    assert ranker.get_params() == before  # a copy is trained
    assert not hasattr(ranker, "scorer_")
    assert fit.is_better
    truth = true_gain(fit, read_features(usual_shop()[1]).dataset)
    assert abs(truth - fit.gain.relative) < 0.1
    assert fit.settings["model"] == ranker.kind
    assert (fit.path is None) == (name == "linear")  # which has a learning rate
    assert json.loads(json.dumps(fit.to_dict()))["clip"] == fit.ranker.clip_
    assert fit.ranker.random_state == SEED
    write_page(tmp_path / "page.html", fit, command="")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert ("in the course of training" in page) == (name == "linear")
    learned = {"linear": "The largest weights", "torch": None}.get(name, "most splits")
    assert (learned is None and "What it learned" not in page) or learned in page


def test_a_ranker_selects_by_its_own_metric():
    ranker = CounterSampleRanker(steps=200, random_state=5)
    fit = fit_from_impressions(*opened(*usual_shop()), ranker=ranker, propensities=KNOWN, seed=SEED)
    assert fit.path.metric == ranker.metric
    assert fit.ranker.random_state == 5


@slow
class TestWarnings:
    def test_items_that_never_move(self):
        log, features = make(SEED, policies=["by-sales"], queries=40, sessions=3000)
        fit = fit_from_impressions(*opened(log, features))
        assert fit.propensity_source.source == "estimated by regression-em"
        (warning,) = [text for text in fit.warnings if "does not identify" in text]
        assert "in position 1 and in positions 2–10" in warning

    def test_methods_that_disagree(self):
        """A click helps the items below it, so that position and relevance do not multiply."""
        log, features = make(SEED, sessions=8000)
        rng = np.random.default_rng(SEED)
        by_price = np.array(log["policy"].to_pylist()) == "by-price"
        click = log["click"].to_numpy() | (by_price & (rng.random(len(log)) < 0.25))
        fit = fit_from_impressions(
            *opened(with_column(log, "click", click.astype(np.int8)), features)
        )
        assert not fit.propensity_source.cross_check.is_agreed
        assert any("propensities is in doubt" in text for text in fit.warnings)

    def test_missing_features_are_an_error_or_a_warning(self):
        log, features = usual_shop()
        some = opened(log, features.slice(10))  # without the items of the first query
        with pytest.raises(DataError, match=r"clicks cannot be used: .* without features"):
            fit_from_impressions(*some, propensities=KNOWN)
        options = PropensityOptions(known=KNOWN, missing="skip")
        fit = fit_from_impressions(*some, propensities=options)
        (warning,) = [text for text in fit.warnings if "cannot be used" in text]
        assert f"{fit.join.n_skipped:,} of {fit.join.n_clicks:,} clicks" in warning


@slow
class TestPropensities:
    def test_the_log_has_its_own(self):
        log, features = usual_shop()
        frame = log.to_pandas()
        examined = (1 / frame.position).groupby([frame.query_id, frame.item_id]).transform("sum")
        sessions = frame.groupby("query_id").session.transform("nunique")
        own = log.append_column("propensity", [(examined / sessions).to_numpy()])
        ips = EvaluationOptions(estimator="ips")
        logged = fit_from_impressions(*opened(own, features), evaluation=ips)
        known = fit_from_impressions(*opened(log, features), propensities=KNOWN, evaluation=ips)
        assert logged.propensity_source.source == "the log's own column 'propensity'"
        a, b = logged.ranker.weights_, known.ranker.weights_
        assert a @ b > 0.99 * np.linalg.norm(a) * np.linalg.norm(b)
        assert np.isclose(logged.gain.relative, known.gain.relative, rtol=0.2)

    def test_a_known_curve_and_its_ends(self):
        """The gain lies nearly between the gains at the ends of the curve."""
        value = 1 / np.arange(1, 11)
        curve = Propensities(value, 0.9 * value, np.minimum(1.1 * value, 1), np.ones(10), "em")
        fit = fit_from_impressions(*opened(*usual_shop()), propensities=curve)
        assert fit.propensity_source.curve is curve
        assert fit.propensity_source.cross_check is None
        low, high = fit.gain_at_ends
        assert min(low, high) - 0.01 < fit.gain.relative < max(low, high) + 0.01

    def test_one_position_needs_known_propensities(self):
        log, features = usual_shop()
        top = opened(log.filter(pc.equal(log["position"], 1)), features)
        with pytest.raises(DataError, match=r"position 1 only.*--gamma.*shuffle the results"):
            fit_from_impressions(*top)
        assert fit_from_impressions(*top, propensities=KNOWN).propensity_source.source == "given"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"propensities": PropensityOptions(randomized="x")}, "randomized is 'x', expected a poli"),
        ({"evaluation": EvaluationOptions(estimator="clipped")}, "estimator is 'clipped'"),
        ({"ranker": "linear"}, "ranker is 'linear', expected RankerOptions, or"),
    ],
)
def test_wrong_arguments(options, error):
    with pytest.raises(ParameterError, match=error):
        fit_from_impressions(*opened(*usual_shop()), **options)


@slow
def test_a_log_whose_items_without_a_click_are_counted_together(monkeypatch):
    shop = make(SEED, sessions=1500)

    def fit(estimator):
        options = EvaluationOptions(estimator=estimator)
        return fit_from_impressions(
            *opened(*shop), propensities=KNOWN, seed=SEED, evaluation=options
        )

    small = fit("ips")
    monkeypatch.setattr(Impressions, "check", partialmethod(Impressions.check, max_groups=0))
    large = fit("auto")
    assert large.check.counts.rest is not None
    assert (large.estimator.name, large.join.n_joined) == ("ips", small.join.n_joined)
    assert any("pairs without a click are counted together" in text for text in large.warnings)
    assert large.gain.new.never_shown is None
    assert not any("never shown" in text for text in large.warnings)
    assert large.check.counts.n_impressions == small.check.counts.n_impressions
    np.testing.assert_allclose(large.gain.logged.value, small.gain.logged.value, rtol=1e-9)
    np.testing.assert_allclose(large.weights.mean_weight, small.weights.mean_weight, rtol=1e-9)
    with pytest.raises(DataError, match="estimator 'dr' needs each item that was shown"):
        fit("dr")
