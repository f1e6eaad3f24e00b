"""Judgements from clicks: known relevance is recovered, and other tools can read it."""

import csv
import json
from functools import partialmethod

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from readers_export import validate
from scipy import stats
from shops import make

from countersample import PositionBias
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.fitting import judgements_from_impressions
from countersample.fitting.judgements import estimate_relevance
from countersample.fitting.propensity_source import PropensitySource
from countersample.logs import Impressions, PositionCounts, read_impressions
from countersample.options import PropensityOptions
from countersample.propensity import ContextPropensities, Propensities, TrustPropensities

THETA = 1 / np.arange(1, 9)
LOG = {"query_id": ["a", "a"], "item_id": ["x", "y"], "position": [1, 2], "click": [60, 10],
       "impressions": [100, 100]}  # fmt: skip


def logged(rng, *, n_queries=60, sessions=500, beta=0.0):
    """Return a log of known relevance: neighbours swap in a tenth of the sessions."""
    n = len(THETA)
    relevance = np.minimum(1.2 * rng.beta(1, 3, (n_queries, n)), 1 - np.max(beta))
    columns = {name: [] for name in ("query_id", "item_id", "position", "click", "impressions")}
    for query in range(n_queries):
        order = rng.permutation(n)
        for place, item in enumerate(order):
            other = place + 1 if (place + query) % 2 == 0 else place - 1
            for at, share in ((place, 0.9), (other if 0 <= other < n else place, 0.1)):
                shown = int(share * sessions)
                chance = np.broadcast_to(beta, n)[at] + THETA[at] * relevance[query, item]
                row = (query, item, at + 1, rng.binomial(shown, chance), shown)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(int(value))
    return pa.table(columns), relevance


def covers(result, truth):
    return (result.low <= truth) & (truth <= result.high)


def judge(columns, **options):
    """Return the judgements of a log in columns; all rows are of query "a" by default."""
    n = len(columns["item_id"])
    return judgements_from_impressions(
        read_impressions(pa.table({"query_id": ["a"] * n} | columns)), **options
    )


class TestRelevance:
    def test_is_clicks_over_examinations(self):
        columns = {"item_id": ["x", "x", "y", "z"], "position": [1, 2, 3, 4],
                   "click": [30, 5, 6, 0], "impressions": [100, 40, 120, 200]}  # fmt: skip
        result = judge(columns, propensities=PositionBias(1.0), grades=[0.2, 0.3])
        assert result.item_id.tolist() == ["x", "y", "z"]
        assert np.allclose(result.exposure, [100 + 40 / 2, 120 / 3, 200 / 4])
        assert np.allclose(result.relevance, [35 / 120, 6 / 40, 0])
        assert result.clicks.tolist() == [35, 6, 0]
        assert result.impressions.tolist() == [140, 120, 200]
        assert result.grade.tolist() == [1, 0, 0]
        assert result.grade_counts == [2, 1, 0]
        exact = stats.binomtest(35, 140).proportion_ci(0.95, "exact")  # times n / E
        assert np.isclose(result.low[0], exact.low * 140 / 120)
        assert np.isclose(result.high[0], exact.high * 140 / 120)
        assert result.low[2] == 0

    def test_trust_bias_subtracts_clicks_by_chance(self):
        alpha, beta = np.array([1.0, 0.5]), np.array([0.1, 0.02])
        counts = PositionCounts.from_columns(
            ["a"] * 3, ["x", "x", "y"], [1, 2, 2], [60, 20, 1], [100, 100, 200]
        )
        pairs, n_lost = estimate_relevance(counts, trusted(alpha, beta), confidence=0.9)
        assert np.allclose(pairs.relevance, [(80 - 10 - 2) / 150, 0])  # (1 − 4)/100 is below 0
        assert n_lost == 0

    def test_contexts_have_their_own_exposure(self):
        log = pa.table({
            "query_id": ["a"] * 2, "item_id": ["x"] * 2, "position": [2, 2], "click": [30, 12],
            "impressions": [100, 100], "device": ["desktop", "phone"],
        })  # fmt: skip
        one = {"low": [1, 0.1], "high": [1, 0.9], "n_impressions": [9, 9], "method": "all-pairs"}
        curves = ContextPropensities(
            {"desktop": Propensities([1, 0.6], **one), "phone": Propensities([1, 0.2], **one)}
        )
        result = judgements_from_impressions(
            read_impressions(log, context=["device"]), propensities=curves, grades=[0.5]
        )
        assert np.allclose(result.exposure, [60 + 20])
        assert np.allclose(result.relevance, [42 / 80])

    def test_default_grades_are_odds_around_the_mean(self):
        columns = {"item_id": ["x", "y"], "position": [1, 1], "click": [30, 10],
                   "impressions": [100, 100]}  # fmt: skip
        result = judge(columns, propensities=[1.0])
        assert result.cut_offs == (0.111, 0.2, 0.333)  # odds of 1/8, 1/4 and 1/2
        assert result.grade.tolist() == [2, 0]


def trusted(alpha, beta):
    one = np.ones(len(alpha))
    return PropensitySource(
        TrustPropensities(
            alpha=alpha, alpha_low=alpha, alpha_high=alpha, beta=beta, beta_low=beta,
            beta_high=beta, n_impressions=one.astype(int), p_value=0.0, origin=0.0, confidence=0.95,
        ),
        "given",
    )  # fmt: skip


class TestIntervals:
    """Over many logs, intervals cover the truth at least as often as their level."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("sessions", "confidence"), [(60, 0.8), (2000, 0.95)])
    def test_known_propensities(self, sessions, confidence, rng):
        covered = []
        for _ in range(6):
            log, relevance = logged(rng, sessions=sessions)
            result = judgements_from_impressions(
                read_impressions(log), propensities=PositionBias(1.0), confidence=confidence,
            )  # fmt: skip
            covered.append(covers(result, relevance[result.query_id, result.item_id]))
        assert_holds(np.concatenate(covered), confidence)

    @pytest.mark.slow
    def test_trust_bias(self, rng):
        beta = 0.1 * THETA**2
        covered = []
        for _ in range(3):
            log, relevance = logged(rng, sessions=800, beta=beta)
            counts = read_impressions(log).check().counts
            result, _ = estimate_relevance(counts, trusted(THETA, beta), confidence=0.95)
            first = counts.pair_starts[:-1]
            truth = relevance[counts.query[first], counts.item[first]]
            covered.append(covers(result, truth))
        assert_holds(np.concatenate(covered), 0.95)

    @pytest.mark.slow
    def test_estimated_propensities(self, rng):
        """Few items move, so that half of the uncertainty comes from propensities."""
        shares, without = [], []
        for _ in range(12):
            log, relevance = logged(rng, sessions=2000)
            result = judgements_from_impressions(
                read_impressions(log),
                seed=int(rng.integers(2**31)),
                propensities=PropensityOptions(method="all-pairs"),
            )
            truth = relevance[result.query_id, result.item_id]
            shares.append(covers(result, truth).mean())
            exact = stats.beta.ppf(
                [[0.025], [0.975]],
                [result.clicks, result.clicks + 1],
                [result.impressions - result.clicks + 1, result.impressions - result.clicks],
            )
            low, high = np.nan_to_num(exact) * result.impressions / result.exposure
            without.append(((low <= truth) & (truth <= high)).mean())
        # An error of the curve affects all items of a log: only logs are independent.
        error = np.std(shares) / np.sqrt(len(shares))
        assert np.mean(shares) > 0.95 - 3 * error
        assert np.mean(shares) < 0.995
        assert np.mean(without) < np.mean(shares) - 0.01  # the spread matters


def assert_holds(is_held, confidence):
    """Exact intervals cover at least as often as their level, up to chance, and not much more."""
    error = np.sqrt(confidence * (1 - confidence) / len(is_held))
    assert is_held.mean() > confidence - 3 * error
    assert is_held.mean() < confidence + 0.7 * (1 - confidence) + 3 * error


NAMES = ['red, "dress"', "süß"]


@pytest.fixture
def result():
    columns = {"query_id": [NAMES[0]] * 2 + [NAMES[1]], "item_id": ["x 1", "y;", "z"],
               "position": [1, 2, 1], "click": [60, 10, 5],
               "impressions": [100, 100, 100]}  # fmt: skip
    return judge(columns, propensities=PositionBias(1.0), grades=[0.1, 0.5])


class TestFiles:
    def test_quepid(self, result, tmp_path):
        result.write(tmp_path / "j.csv", to="quepid")
        with (tmp_path / "j.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        assert rows == [
            ["query", "docid", "rating"], [NAMES[0], "x 1", "2"], [NAMES[0], "y;", "1"],
            [NAMES[1], "z", "0"],
        ]  # fmt: skip

    def test_opensearch(self, result, tmp_path):
        result.write(tmp_path / "monday.json", to="opensearch")
        body = json.loads((tmp_path / "monday.json").read_text("utf-8"))
        validate(body, "opensearch_judgments")
        assert body["name"] == "monday"
        assert body["judgmentRatings"] == [
            {"query": NAMES[0], "ratings": [
                {"docId": "x 1", "rating": "2"}, {"docId": "y;", "rating": "1"}]},
            {"query": NAMES[1], "ratings": [{"docId": "z", "rating": "0"}]},
        ]  # fmt: skip

    def test_no_grades_if_every_impression_is_clicked(self):
        with pytest.raises(DataError, match="the mean relevance is 1"):
            judge(LOG | {"click": [100, 100]}, propensities=[1.0, 1.0])

    def test_qrels(self, tmp_path):
        result = judge(LOG | {"query_id": [3, 3]}, propensities=[1.0, 0.5])
        result.write(tmp_path / "j.qrels", to="qrels")
        assert (tmp_path / "j.qrels").read_text() == "3 0 x 2\n3 0 y 0\n"

    @pytest.mark.parametrize("ending", [".parquet", ".csv"])
    def test_table(self, ending, result, tmp_path):
        path = tmp_path / f"j{ending}"
        result.write(path)
        table = (parquet.read_table if ending == ".parquet" else arrow_csv.read_csv)(path)
        assert table.column_names == ["query_id", "item_id", "relevance", "low", "high", "grade",
                                      "clicks", "impressions", "exposure"]  # fmt: skip
        for name, column in result.columns_of_frame().items():
            assert table[name].to_pylist() == column.tolist()

    @pytest.mark.parametrize(
        ("to", "query", "item", "error"),
        [
            ("qrels", "red dress", "x", "the query id 'red dress' cannot be written to qrels"),
            ("qrels", "red", "x\u00a0y", "the item id 'x\\xa0y' cannot be written to qrels"),
            ("quepid", "red\ndress", "x", "the query id 'red\\ndress' cannot be written to quepid"),
            ("quepid", " red", "x", "the query id ' red' cannot be written to quepid"),
            ("opensearch", "red", "  ", "the item id '  ' cannot be written to opensearch"),
            ("opensearch", "red", "", "the item id '' cannot be written to opensearch"),
        ],
    )
    def test_ids_that_a_format_cannot_hold(self, to, query, item, error, tmp_path):
        columns = LOG | {"query_id": [query, query], "item_id": [item, "other"]}
        result = judge(columns, propensities=[1.0, 0.5])
        with pytest.raises(DataError) as raised:
            result.write(tmp_path / "j.csv", to=to)
        assert str(raised.value).startswith(error)
        assert not any(tmp_path.iterdir())
        result.write(tmp_path / "j.csv")  # a table can

    def test_a_table_of_another_ending(self, result, tmp_path):
        with pytest.raises(ParameterError, match=r"ends in \.parquet or \.csv"):
            result.write(tmp_path / "j.xml")
        with pytest.raises(ParameterError, match="to is 'trec', expected one of table, quepid"):
            result.write(tmp_path / "j.csv", to="trec")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"grades": []}, "grades is"),
        ({"grades": "0.5"}, "grades is"),
        ({"grades": [0.5, 0.5]}, "each above the one before"),
        ({"grades": [0.0]}, "numbers above 0"),
        ({"grades": [0.5, 2]}, "at most 1"),
        ({"grades": [float("nan")]}, "grades is"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"min_exposure": -1}, "min_exposure is -1"),
        ({"min_exposure": 1e6}, "no item has an exposure of 1e"),
        ({"propensities": [1.0]}, "10 of 70 clicks are at positions without a propensity"),
        ({"propensities": PropensityOptions(method="logged")}, "method is 'logged'"),
    ],
)
def test_wrong_options(options, error):
    with pytest.raises(CounterSampleError, match=error):
        judge(LOG, **({"propensities": [1.0, 0.5]} | options))


class TestLimits:
    def test_logged_propensities_are_not_enough(self):
        columns = {name: LOG[name] for name in ("query_id", "item_id", "position")}
        columns |= {"click": [1, 0], "propensity": [0.5, 0.5]}
        with pytest.raises(DataError, match="to estimate them name a method"):
            judge(columns)
        result = judge(columns, propensities=[1.0, 0.5], min_exposure=0.5, grades=[0.5])
        assert result.relevance.tolist() == [1.0, 0.0]

    def test_values_are_not_used(self):
        result = judge(LOG | {"value": [180.0, 10.0]}, propensities=[1.0, 0.5])
        assert result.relevance.tolist() == [0.6, 0.2]
        assert any("count each click as one" in text for text in result.warnings)

    def test_items_that_are_counted_together(self, monkeypatch):
        """Clicked items of a very large log have the same judgements."""
        log, _ = make(SEED, queries=20, sessions=400)
        every = judgements_from_impressions(read_impressions(log), propensities=PositionBias(1.0))
        monkeypatch.setattr(Impressions, "check", partialmethod(Impressions.check, max_groups=0))
        result = judgements_from_impressions(
            read_impressions(log), propensities=PositionBias(1.0), grades=every.cut_offs
        )
        clicked = every.clicks > 0
        assert 0 < result.n_together <= 20
        assert result.item_id.tolist() == every.item_id[clicked].tolist()
        assert np.array_equal(result.relevance, every.relevance[clicked])
        assert np.array_equal(result.high, every.high[clicked])

    def test_clicks_without_a_propensity_are_counted(self):
        options = PropensityOptions(known=[1.0], missing="skip")
        result = judge(LOG, grades=[0.5], propensities=options)
        assert result.item_id.tolist() == ["x"]
        assert result.n_left_out == 1
        assert any(text.startswith("10 clicks") for text in result.warnings)


class TestCommand:
    @pytest.fixture(autouse=True)
    def log(self, tmp_path):
        table, _ = make(SEED, queries=40, sessions=3000)
        parquet.write_table(table, tmp_path / "log.parquet")

    def test_a_table(self, run, tmp_path):
        printed = run("judgements", "log.parquet", "-o", "j.parquet")
        for text in ("estimated by all-pairs", "examined less than 10 times, and are left out",
                     "The judgements are in j.parquet"):  # fmt: skip
            assert text in printed
        assert parquet.read_table(tmp_path / "j.parquet").num_rows > 50

    def test_errors(self, run):
        for words, error in {
            "-o j.txt": "j.txt: expected a name that ends in .parquet",
            "-o j --to lucene": "--to is 'lucene', expected one of table",
            "-o j.csv --grades x": "--grades is 'x', expected numbers",
            "-o none/j.csv": "none/j.csv: the folder none does not exist",
        }.items():
            assert error in run("judgements", "log.parquet", *words.split(), fails=True)
