"""``countersample compare``: existing rankers compared by clicks that came later."""

import json

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from pyarrow import parquet
from shops import MAKE

from countersample import ClickLog
from countersample.evaluation import estimate_gain
from countersample.fitting import compare_from_impressions
from countersample.logs import read_features, read_impressions
from countersample.rankers import CounterSampleRanker

FEATURES = ("--features", "features.parquet")
APRIL = ("--log", "april.parquet", *FEATURES)
MARCH = ("--log", "march.parquet", *FEATURES, "--gamma", "1")
RANKERS = {"a.json": ["text_match", "reviews", "price"], "b.json": ["sales", "price"]}


@pytest.fixture(scope="module")
def shop():
    """Return two months of a shop, and its features."""
    rng = np.random.default_rng(SEED)
    features, wanted = MAKE.make_shop(60, rng)
    march, april = (MAKE.make_log(features, wanted, 2500, 1.0, rng) for _ in range(2))
    return march, april, features


def make_ranker(names, march, features):
    """Return a ranker with some of the features, with the records of one that learned in March."""
    table = read_features(features, include=names)
    weights = dict(zip(MAKE.FEATURES, MAKE.WANTED, strict=True)) | {"ctr": 1.0}
    ranker = CounterSampleRanker(steps=10, learning_rate=0.1, random_state=0, normalize=None)
    ranker.fit_log(table.dataset, ClickLog([0], [0], [1.0]))
    ranker.scorer_.weights[:] = [weights[name] for name in names]
    ranker.provenance_["log"] = {
        "file": "march.parquet", "impressions": len(march),
        "clicks": int(march["click"].to_numpy().sum()),
    }  # fmt: skip
    return ranker


@pytest.fixture
def compare(shop, tmp_path, run):
    """Return a function that runs the command beside files of the shop."""
    march, april, features = shop
    parquet.write_table(march, tmp_path / "march.parquet")
    parquet.write_table(april, tmp_path / "april.parquet")
    parquet.write_table(features, tmp_path / "features.parquet")
    for name, columns in RANKERS.items():
        make_ranker(columns, march, features).save(tmp_path / name)

    def compare(*words, **options):
        printed = run("compare", *words, **options)
        return json.loads(printed) if "--json" in words else " ".join(printed.split())

    return compare


class TestCommand:
    def test_each_ranker_takes_its_own_features(self, compare):
        printed = compare(*RANKERS, *APRIL)
        for part in (
            "in the intervals estimated again in each draw",
            "95% intervals, all at once",
            "a.json is better than your current ranker: +",
            "b.json is ",
        ):
            assert part in printed
        assert "trained on" not in printed

    def test_a_reference_and_json(self, compare):
        figures = compare(*RANKERS, "logged", "--reference", "b.json", *APRIL, "--json")
        assert set(figures["estimates"]) == {"a.json", "b.json", "logged"}
        assert figures["verdicts"]["a.json"] == "better"
        assert figures["is_joint"]
        assert figures["propensities"]["source"] == "estimated by all-pairs"
        assert "item-0" not in str(figures)

    @pytest.mark.parametrize(
        ("names", "reference", "code"),
        [
            (["a.json"], "logged", 0),
            (["a.json", "b.json"], "b.json", 0),
            (["b.json", "a.json", "logged"], "a.json", 4),
        ],
    )
    def test_exit_codes(self, compare, names, reference, code):
        compare(*names, "--reference", reference, *APRIL, "--gamma", "1", "--fail-unless-better",
                code=code)  # fmt: skip

    def test_no_verdict_on_the_training_log(self, compare):
        printed = compare(*RANKERS, *MARCH, "--fail-unless-better", code=3)
        assert "No verdict on a.json over your current ranker: a.json was trained" in printed
        assert " is better than" not in printed

    def test_no_verdict_on_some_days_of_the_training_log(self, compare, shop, tmp_path):
        march = shop[0]
        days = np.datetime64("2026-03-01") + 10 * np.arange(len(march)) // len(march)
        dated = march.append_column("timestamp", pa.array(days))
        parquet.write_table(dated, tmp_path / "march.parquet")
        figures = compare("a.json", *MARCH, "--holdout-last", "3d", "--json")
        assert figures["join"]["n_clicks"] < march["click"].to_numpy().sum()
        assert figures["verdicts"] == {"a.json": "none"}
        assert "trained on this very log" in figures["withheld"]["a.json"]
        assert not any("trained on a log" in text for text in figures["warnings"])

    def test_the_days_that_evaluate(self, compare, shop, tmp_path):
        """The last days of one log of two months, which has the name of the training log."""
        days = [np.datetime64("2026-03-01"), np.datetime64("2026-04-01")]
        both = [
            table.append_column("timestamp", pa.array(np.full(len(table), day)))
            for table, day in zip(shop[:2], days, strict=True)
        ]
        parquet.write_table(pa.concat_tables(both), tmp_path / "march.parquet")
        alone = compare("a.json", *APRIL, "--gamma", "1", "--json")
        for words in (["--holdout-from", "2026-04-01"], ["--holdout-last", "1d"]):
            figures = compare("a.json", *MARCH, "--json", *words)
            assert figures["estimates"] == alone["estimates"]
            (warning,) = [text for text in figures["warnings"] if "log of this name" in text]
            assert warning.startswith("a.json was trained on a log of this name (march.parquet)")

    def test_no_verdict_on_a_leaking_feature(self, compare, shop, tmp_path):
        """The click rate of the same log is a feature, until it is accepted."""
        march, april, features = shop
        rates = april.group_by(["query_id", "item_id"]).aggregate([("click", "mean")])
        rate = dict(zip(rates["item_id"].to_pylist(), rates["click_mean"].to_pylist(), strict=True))
        column = [rate.get(item, 0.0) for item in features["item_id"].to_pylist()]
        table = features.append_column("ctr", [column])
        parquet.write_table(table, tmp_path / "features.parquet")
        make_ranker(["price", "ctr"], march, table).save(tmp_path / "c.json")
        words = ("a.json", "c.json", *APRIL, "--gamma", "1", "--json")
        figures = compare(*words)
        assert figures["verdicts"] == {"a.json": "better", "c.json": "none"}
        assert "computed from the evaluation clicks, ctr" in figures["withheld"]["c.json"]
        assert any("'ctr' was computed from" in text for text in figures["warnings"])
        assert compare(*words, "--accept-features", "ctr")["withheld"] == {}

    def test_nothing_is_better_if_propensities_are_not_identified(self, compare, shop, tmp_path):
        log = shop[1]
        one = log.filter(np.array(log["policy"].to_pylist()) == "by-price")
        parquet.write_table(one, tmp_path / "april.parquet")
        printed = compare("a.json", *APRIL, "--fail-unless-better", code=3)
        assert "a.json is not shown to be better: the log does not identify the prop" in printed
        assert "If the estimates of regression-em are right, a.json is better than" in printed

    def test_errors(self, compare):
        for words, error in {
            "a.json --reference c.json": "reference is 'c.json', expected one of a.json",
            "logged": "there is nothing to compare 'logged' with",
            "c.json": "c.json: cannot be read: No such file",
            "features.parquet": "features.parquet: not a ranker file",
            "a.json --exclude price": "a.json: no feature 'price': the features are text_m",
            "a.json --estimator beta-ips": "expected one of auto, ips, snips, clipped, dr",
            "a.json --metric ndcg": "metric is 'ndcg', expected dcg@k or precision@k",
            "a.json --accept-features x": "--accept-features has 'x', expected names of features",
            "a.json --gamma 1 --propensities x": "both given, expected one of them",
            "a.json --holdout-from tomorrow": "no column 'timestamp'",
        }.items():
            assert error in compare(*words.split(), *APRIL, fails=True)


def test_one_candidate_has_the_value_of_a_gain(shop):
    """Its interval includes the uncertainty of the propensities."""
    march, april, features = shop
    table = read_features(features)
    ranker = make_ranker(RANKERS["a.json"], march, features)
    joint = compare_from_impressions(read_impressions(april), table, {"a": ranker})
    known = compare_from_impressions(
        read_impressions(april), table, {"a": ranker}, propensities=joint.log.source.curve
    )
    (one,), (fixed,) = joint.comparison.differences, known.comparison.differences
    gain = estimate_gain(ranker, joint.log.shown, table.dataset, rng=0)
    values = [each.comparison.estimates["a"].value for each in (joint, known)]
    assert values == pytest.approx([gain.new.value] * 2)
    # The correction of a ratio's mean depends on what is drawn.
    assert one.value == pytest.approx(gain.value, rel=0.01)
    assert fixed.value == pytest.approx(gain.value, rel=0.01)
    assert joint.is_joint
    assert not known.is_joint
    assert (one.low, one.high) != (fixed.low, fixed.high)


@pytest.mark.parametrize(
    ("first", "last", "n_shared"),
    [
        ("2026-03-01", "2026-03-31", 0),
        ("2026-03-01", "2026-04-01", 1),
        ("2026-04-02", "2026-04-09", 1),
        ("2026-05-01", "2026-05-31", 0),
        (None, "2026-04-03", 2),
    ],
)
def test_no_verdict_on_days_that_a_ranker_was_trained_on(shop, first, last, n_shared):
    """Whatever the names and the sizes of the logs: the ranker's file has its training days."""
    march, april, features = shop
    days = np.datetime64("2026-04-01") + 2 * np.arange(len(april)) // len(april)
    dated = april.append_column("timestamp", pa.array(days))
    ranker = make_ranker(RANKERS["a.json"], march, features)
    ranker.provenance_["log"] |= {"last_day": last} | ({"first_day": first} if first else {})
    comparison = compare_from_impressions(
        read_impressions(dated), read_features(features), {"a": ranker}, propensities=[1.0] * 10
    ).comparison
    assert ("a" in comparison.withheld) == (n_shared > 0)
    if n_shared:
        assert f"until {last}, and {n_shared} of the 2 evaluation" in comparison.withheld["a"]
        assert comparison.better == ()
