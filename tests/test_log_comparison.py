"""``countersample compare``: existing rankers compared by clicks that came later."""

import json

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from pyarrow import parquet
from shops import MAKE

from countersample import ClickLog
from countersample.errors import CounterSampleError
from countersample.evaluation import estimate_gain
from countersample.fitting import compare_from_impressions
from countersample.logs import read_features, read_impressions
from countersample.rankers import CounterSampleRanker

pytestmark = pytest.mark.usefixtures("folder")
BY = ("--log", "april.parquet", "--features", "features.parquet")
RANKERS = {"a.json": ["text_match", "reviews", "price"], "b.json": ["sales", "price"]}


@pytest.fixture(scope="module")
def shop():
    """Two months of a shop, its features, and rankers that learned from the first month."""
    rng = np.random.default_rng(SEED)
    features, wanted = MAKE.make_shop(60, rng)
    march, april = (MAKE.make_log(features, wanted, 2500, 1.0, rng) for _ in range(2))
    return march, april, features


def trained(names, march, features):
    """Return a ranker of some of the features, as fit would leave it."""
    table = read_features(features, include=names)
    weights = dict(zip(MAKE.FEATURES, MAKE.WANTED, strict=True)) | {"ctr": 1.0}
    ranker = CounterSampleRanker(steps=10, learning_rate=0.1, random_state=0, normalize=None)
    dataset = table.dataset
    ranker.fit_log(dataset, ClickLog([0], [0], [1.0]))
    ranker.scorer_.weights[:] = [weights[name] for name in names]
    clicks = int(march["click"].to_numpy().sum())
    ranker.provenance_["log"] = {
        "file": "march.parquet", "impressions": len(march), "clicks": clicks,
    }  # fmt: skip
    return ranker


@pytest.fixture
def folder(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    march, april, features = shop
    parquet.write_table(march, "march.parquet")
    parquet.write_table(april, "april.parquet")
    parquet.write_table(features, "features.parquet")
    for name, columns in RANKERS.items():
        trained(columns, march, features).save(name)
    return tmp_path


class TestCompare:
    def test_each_ranker_takes_its_own_features(self, run):
        printed = run("compare", *RANKERS, *BY)
        for part in (
            "in the intervals estimated again in each draw",
            "95% intervals, all at once",
            "a.json is better than your current ranker: +",
            "b.json is ",
        ):
            assert part in printed
        assert "trained on" not in printed

    def test_a_reference_and_json(self, run):
        found = json.loads(run("compare", *RANKERS, "logged", "--reference", "b.json", *BY,
                               "--json"))  # fmt: skip
        assert set(found["estimates"]) == {"a.json", "b.json", "logged"}
        assert found["verdicts"]["a.json"] == "better"
        assert found["is_joint"]
        assert found["propensities"]["source"] == "estimated by all-pairs"
        assert "item-0" not in str(found)

    @pytest.mark.parametrize(
        ("rankers", "reference", "code"),
        [
            (["a.json"], "logged", 0),
            (["a.json", "b.json"], "b.json", 0),
            (["b.json"], "a.json", 4),
            (["b.json", "logged"], "a.json", 4),
        ],
    )
    def test_exit_codes(self, run, rankers, reference, code):
        names = [*rankers, *({reference} - {"logged", *rankers})]
        run("compare", *names, "--reference", reference, *BY, "--gamma", "1",
            "--fail-unless-better", code=code)  # fmt: skip

    def test_no_verdict_on_the_training_log(self, run):
        log = ("--log", "march.parquet", *BY[2:], "--gamma", "1")
        printed = " ".join(run("compare", *RANKERS, *log, "--fail-unless-better", code=3).split())
        assert "No verdict on a.json over your current ranker: a.json was trained" in printed
        assert " is better than" not in printed
        found = json.loads(run("compare", "a.json", *log, "--json"))
        assert found["verdicts"] == {"a.json": "none"}
        assert "trained on this very log" in found["withheld"]["a.json"]

    def test_no_verdict_on_a_leaking_feature(self, run, shop):
        """A click rate of the very log as a feature, until it is accepted."""
        march, april, features = shop
        rates = april.group_by(["query_id", "item_id"]).aggregate([("click", "mean")])
        rate = dict(zip(rates["item_id"].to_pylist(), rates["click_mean"].to_pylist(), strict=True))
        column = [rate.get(item, 0.0) for item in features["item_id"].to_pylist()]
        table = features.append_column("ctr", [column])
        parquet.write_table(table, "features.parquet")
        leaky = trained(["price", "ctr"], march, table)
        leaky.save("c.json")
        found = json.loads(run("compare", "a.json", "c.json", *BY, "--gamma", "1", "--json"))
        assert found["verdicts"] == {"a.json": "better", "c.json": "none"}
        assert "computed from the evaluation clicks, ctr" in found["withheld"]["c.json"]
        assert any("'ctr' was computed from" in text for text in found["warnings"])
        found = json.loads(run("compare", "a.json", "c.json", *BY, "--gamma", "1", "--json",
                               "--accept-features", "ctr"))  # fmt: skip
        assert found["withheld"] == {}

    def test_a_log_of_the_same_name_is_warned_about(self, run, folder):
        (folder / "april.parquet").rename(folder / "march.parquet")
        printed = " ".join(run("compare", "a.json", "--log", "march.parquet", *BY[2:]).split())
        assert "a.json was trained on a log of this name (march.parquet): check that" in printed
        assert "a.json is better" in printed

    def test_the_days_that_evaluate(self, run, shop):
        """The last days of one log of two months, which has the name of the training log."""
        march, april, _ = shop
        days = [np.datetime64("2026-03-01"), np.datetime64("2026-04-01")]
        both = [
            table.append_column("timestamp", pa.array(np.full(len(table), day)))
            for table, day in zip((march, april), days, strict=True)
        ]
        parquet.write_table(pa.concat_tables(both), "march.parquet")
        log = ("--log", "march.parquet", *BY[2:], "--gamma", "1", "--json")
        alone = json.loads(run("compare", "a.json", *BY, "--gamma", "1", "--json"))
        for asked in (["--holdout-from", "2026-04-01"], ["--holdout-last", "1d"]):
            found = json.loads(run("compare", "a.json", *log, *asked))
            assert found["estimates"] == alone["estimates"]
            assert any("trained on a log of this name" in text for text in found["warnings"])
        told = run("compare", "a.json", *log, "--holdout-from", "tomorrow", fails=True)
        assert "tomorrow" in told

    def test_no_verdict_on_some_days_of_the_training_log(self, run, shop):
        march = shop[0]
        days = np.datetime64("2026-03-01") + 10 * np.arange(len(march)) // len(march)
        parquet.write_table(march.append_column("timestamp", pa.array(days)), "march.parquet")
        log = ("--log", "march.parquet", *BY[2:], "--gamma", "1", "--holdout-last", "3d", "--json")
        found = json.loads(run("compare", "a.json", *log))
        assert found["join"]["n_clicks"] < march["click"].to_numpy().sum()
        assert found["verdicts"] == {"a.json": "none"}
        assert "trained on this very log" in found["withheld"]["a.json"]
        assert not any("trained on a log" in text for text in found["warnings"])

    def test_nothing_is_better_if_propensities_are_not_identified(self, run, shop):
        log = shop[1]
        one = log.filter(np.array(log["policy"].to_pylist()) == "by-price")
        parquet.write_table(one, "april.parquet")
        printed = " ".join(run("compare", "a.json", *BY, "--fail-unless-better", code=3).split())
        assert "a.json is not shown to be better: the log does not identify the prop" in printed
        assert "If those of regression-em are right, a.json is better than your current" in printed
        found = json.loads(run("compare", "a.json", *BY, "--json"))
        assert found["verdicts"] == {"a.json": "not shown"}

    @pytest.mark.parametrize("estimator", ["ips", "snips", "clipped", "dr"])
    def test_any_estimator(self, run, estimator):
        found = json.loads(run("compare", "a.json", *BY, "--gamma", "1", "--estimator", estimator,
                               "--metric", "dcg@5", "--json"))  # fmt: skip
        estimate = found["estimates"]["a.json"]
        assert (estimate["estimator"], estimate["metric"]) == (estimator, "dcg@5")
        assert found["differences"][0]["relative"] > 0
        assert not found["is_joint"]  # nothing was estimated

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (["a.json", "--reference", "c.json"], "reference is 'c.json', expected one of a.json"),
            (["logged"], "there is nothing to compare 'logged' with"),
            (["c.json"], "c.json: cannot be read: No such file"),
            (["features.parquet"], "features.parquet: not a ranker file"),
            (
                ["a.json", "--exclude", "price"],
                "a.json: no feature 'price': the features are text_m",
            ),
            (
                ["a.json", "--estimator", "beta-ips"],
                "--estimator is 'beta-ips', expected one of auto, ips, snips, clipped, dr",
            ),
            (["a.json", "--metric", "ndcg"], "metric is 'ndcg', expected dcg@k or precision@k"),
            (
                ["a.json", "--accept-features", "nonsense"],
                "accept_features has 'nonsense', expected names of features",
            ),
            (["a.json", "--gamma", "1", "--propensities", "x"], "both given, expected one of them"),
        ],
    )
    def test_errors(self, run, words, error):
        assert error in run("compare", *words, *BY, fails=True)


def test_one_candidate_has_the_value_of_a_gain(shop):
    """Its interval includes the uncertainty of the propensities."""
    march, april, features = shop
    table = read_features(features)
    ranker = trained(RANKERS["a.json"], march, features)
    found = compare_from_impressions(read_impressions(april), table, {"a": ranker})
    known = compare_from_impressions(
        read_impressions(april), table, {"a": ranker}, propensities=found.log.source.curve
    )
    (one,), (fixed,) = found.comparison.differences, known.comparison.differences
    gain = estimate_gain(ranker, found.log.shown, table.dataset, rng=0)
    assert one.value == pytest.approx(fixed.value) == pytest.approx(gain.value)
    assert found.is_joint
    assert not known.is_joint
    assert (one.low, one.high) != (fixed.low, fixed.high)


def test_items_never_shown_need_a_model(shop):
    """One estimator for all candidates: dr if one of them needs it."""
    _, april, features = shop
    top = april.filter(april["position"].to_numpy() <= 2)
    table = read_features(features)
    item = table.dataset.features
    candidates = {"a": item[:, 0] - item[:, 2], "logged": None, "b": item[:, 3]}
    found = compare_from_impressions(
        read_impressions(top), table, candidates, propensities=[1.0, 0.5]
    )
    assert found.estimator.name == "dr"
    assert "never showed" in found.estimator.reason
    assert {each.estimator for each in found.comparison.estimates.values()} == {"dr"}


def test_a_feature_that_the_data_lacks(shop):
    march, april, features = shop
    ranker = trained(RANKERS["a.json"], march, features)
    data = read_features(features, exclude=["reviews"])
    with pytest.raises(CounterSampleError, match=r"mine: no feature 'reviews'"):
        compare_from_impressions(read_impressions(april), data, {"mine": ranker})


def test_without_a_verdict_nothing_is_better(shop):
    """Although the numbers are above 0."""
    march, _, features = shop
    ranker = trained(RANKERS["a.json"], march, features)
    found = compare_from_impressions(
        read_impressions(march), read_features(features), {"a": ranker}, propensities=[1.0] * 10
    )
    compared = found.comparison
    assert compared.differences[0].low > 0
    assert compared.better == ()
    assert compared.to_frame("pandas")["verdict"].tolist() == ["none"]
    assert compared.sentences[0].startswith("No verdict on a over your current ranker: a was")
