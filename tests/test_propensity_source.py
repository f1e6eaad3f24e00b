"""Propensities of a log by context, with trust bias, and from a share that is shuffled."""

import json

import numpy as np
import pytest
from conftest import SEED
from invoking import invoke

from countersample import PositionBias, synthetic
from countersample.clicks import Shuffled, simulate_impressions
from countersample.errors import DataError
from countersample.fitting import fit_from_impressions
from countersample.logs import FeatureTable, read_impressions
from countersample.options import PropensityOptions
from countersample.propensity import estimate

CURVES = {"phone": PositionBias(1.96), "desktop": PositionBias(0.49)}
slow = pytest.mark.slow


def make_data(n_queries):
    data = synthetic("tiny", n_queries=n_queries, rng=SEED)
    items = np.arange(data.n_items) - np.repeat(data.offsets[:-1], data.query_sizes)
    return data, FeatureTable(data, items, has_labels=True)


@pytest.fixture(scope="module")
def world():
    return make_data(300)


def simulate(data, contexts, sessions, top):
    policies = {"old": data.features[:, 0], "new": data.features[:, 1] + data.features[:, 0] / 2}
    return simulate_impressions(
        data, policies, sessions, shares=[0.5, 0.5], top=top, contexts=contexts, rng=SEED
    )


@pytest.fixture(scope="module")
def mixed(world):
    return simulate(world[0], {name: (0.5, each) for name, each in CURVES.items()}, 40_000, 10)


@pytest.fixture(scope="module")
def fit(mixed, world):
    return fit_from_impressions(read_impressions(mixed), world[1])


@slow
class TestContexts:
    def test_each_has_its_curve(self, fit):
        curves = fit.propensity_source.contexts.curves
        assert set(curves) == set(CURVES)
        for name, curve in curves.items():
            true = CURVES[name].propensity(curve.position)
            width = np.log(curve.high / np.maximum(curve.low, 1e-3)) / 2
            off = np.abs(np.log(curve.value / true)) / np.maximum(width, 0.1)
            assert off.max() < 2  # half-widths of a 95 % interval
        assert curves["phone"].value[9] < curves["desktop"].value[9] / 5
        assert fit.is_joint
        assert fit.gain.relative_low < fit.gain.relative < fit.gain.relative_high

    def test_warnings_about_many_contexts_are_merged(self, world):
        """Forty contexts with too few clicks for a curve, and one with enough."""
        contexts = {"desktop": (0.9, PositionBias(0.5))}
        contexts |= {f"app {n}": (0.1 / 40, PositionBias(0.5)) for n in range(40)}
        log = read_impressions(simulate(world[0], contexts, 20_000, 5))
        fit = fit_from_impressions(log, world[1], propensities=PropensityOptions(missing="skip"))
        warnings = [text for text in fit.warnings if text.startswith("Propensities in ")]
        assert 0 < len(warnings) < 10  # by the kind of problem, with ranges of the numbers
        assert any(" more: " in text for text in warnings)

    def test_items_that_never_move(self, world):
        still = simulate_impressions(
            world[0], world[0].features[:, 0], 3000, rng=SEED,
            contexts={name: (0.5, curve) for name, curve in CURVES.items()},
        )  # fmt: skip
        with pytest.raises(DataError, match=r"no context .* leave out the contexts"):
            fit_from_impressions(read_impressions(still), world[1])


@pytest.fixture(scope="module")
def shuffled():
    data, table = make_data(3000)
    policies = {"random": Shuffled(data.features[:, 0]), "old": data.features[:, 0]}
    log = simulate_impressions(
        data, policies, 60_000, shares=[0.7, 0.3], top=4, bias=PositionBias(1.0), rng=SEED
    ).to_pandas()
    return log[log.session.isin(log.drop_duplicates("query_id").session)], table


class TestShuffled:
    """One session per query: no item is shown twice, so that a shuffle can only be declared."""

    OPTIONS = PropensityOptions(randomized="random")

    @slow
    def test_a_declared_shuffle_is_accepted(self, shuffled):
        log, table = shuffled
        fit = fit_from_impressions(read_impressions(log), table, propensities=self.OPTIONS)
        curve = fit.propensity_source.curve
        assert curve.method == "randomized"
        assert curve.notes
        assert (np.abs(np.log(curve.value * curve.position)) < np.log(1.6)).all()
        with pytest.raises(DataError, match="no query-item pair was shown twice"):
            estimate(read_impressions(log).of_policy("random").counts(), method="randomized")

    @pytest.mark.parametrize("options", [["--randomized", "random"], []])
    def test_the_check_answers_like_the_fit(self, shuffled, tmp_path, options):
        shuffled[0].to_parquet(tmp_path / "log.parquet")
        result = invoke("log", "check", tmp_path / "log.parquet", "--json", *options)
        methods = {each["method"]: each for each in json.loads(result.stdout)["propensities"]}
        assert methods["randomized"]["is_supported"] == bool(options)
