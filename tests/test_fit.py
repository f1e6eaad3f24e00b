"""From impressions to a ranker: it is better, its gain is the true one, doubts are told."""

import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import SEED
from requirements import need
from shops import load_example, make, opened

from countersample import CounterSampleRanker, PositionBias
from countersample._progress import Progress
from countersample.clicks.impressions import PositionCounts, read_features
from countersample.clicks.impressions.joining import Matched
from countersample.errors import DataError, ParameterError
from countersample.fitting import fit_from_impressions, write_page
from countersample.fitting.gain import cut_queries, held_out_scores
from countersample.gbdt import GBDTRanker
from countersample.options import EvaluationOptions, PropensityOptions
from countersample.propensity import Propensities
from countersample.torch import NeuralRanker

true_gain = load_example("log_to_ranker").true_gain


@pytest.fixture(scope="module")
def shop():
    return make(SEED)


@pytest.fixture(scope="module")
def fit(shop):
    return fit_from_impressions(*opened(*shop), seed=SEED)


class TestTruth:
    def test_the_ranker_is_better_and_the_interval_covers_the_true_gain(self):
        """Of six logs one or two may miss: P(three or more of six miss at 95 %) is 0.2 %."""
        covered = []
        for seed in range(6):
            log, features = make([SEED, seed])
            fit = fit_from_impressions(*opened(log, features), seed=seed)
            truth = true_gain(fit, read_features(features).dataset)
            assert truth > 0.05
            assert fit.is_better
            covered.append(fit.gain.relative_low <= truth <= fit.gain.relative_high)
        assert sum(covered) >= 4

    def test_the_curve_is_the_true_one(self, fit):
        truth = 1 / np.arange(1, 11)
        inside = (fit.propensity_source.curve.low <= truth) & (
            truth <= fit.propensity_source.curve.high
        )
        assert inside.mean() >= 0.7

    def test_no_gain_is_not_called_one(self):
        """Clicks that do not depend on the item: no ranker is better, the true gain is 0.

        Of five logs at most two may say otherwise, which has a chance of 0.1 % at 95 %.
        """
        rng = np.random.default_rng(SEED)
        called = []
        for seed in range(5):
            log, features = make([SEED, seed], sessions=1000)
            looks = 1 / log["position"].to_numpy()
            blind = (rng.random(len(looks)) < 0.3 * looks).astype(np.int8)
            log = log.set_column(log.column_names.index("click"), "click", [blind])
            fit = fit_from_impressions(*opened(log, features), propensities=PositionBias(1.0))
            called.append(fit.is_better or fit.gain.high < 0)
        assert sum(called) <= 2

    @pytest.mark.parametrize(
        ("low", "high", "is_better", "told"),
        [
            (0.01, 0.2, True, "The ranker is better: +10.0% dcg@10"),
            (-0.01, 0.2, False, "Not shown to be better: +10.0% dcg@10"),
            (-0.2, -0.01, False, "The ranker is worse: +10.0% dcg@10"),
        ],
    )
    def test_the_verdict_is_that_of_the_interval(self, fit, low, high, is_better, told):
        gain = replace(fit.gain, low=low, high=high, relative=0.1)
        changed = replace(fit, gain=gain)
        assert changed.is_better is is_better
        assert changed.verdict.startswith(told)

    def test_a_shuffled_log_is_told_by_its_policy(self):
        rng = np.random.default_rng(SEED)
        log, features = make(SEED)
        moved = log.to_pandas()
        some = moved["session"] % 2 == 0
        order = moved[some].assign(key=rng.random(some.sum())).sort_values(["session", "key"])
        label = dict(zip(features["item_id"].to_pylist(), features["label"].to_pylist(),
                         strict=True))  # fmt: skip
        order["position"] = np.tile(np.arange(1, 11), some.sum() // 10)
        chance = order["item_id"].map(label) / order["position"]
        order["click"] = (rng.random(len(order)) < chance).astype(np.int8)
        order["policy"] = "shuffled"
        both = pa.concat_tables([
            pa.Table.from_pandas(part.drop(columns="key", errors="ignore"), preserve_index=False)
            for part in (order, moved[~some])
        ])  # fmt: skip
        fit = fit_from_impressions(
            *opened(both, features), propensities=PropensityOptions(randomized="shuffled")
        )
        assert fit.propensity_source.source == "estimated by randomized"
        assert fit.propensity_source.curve.n_impressions.sum() == some.sum()

    def test_a_notebook_shows_the_verdict_and_the_gain(self, fit):
        shown = fit._repr_html_()
        assert fit.verdict in shown
        assert "relative gain" in shown


class TestRepeatable:
    def test_another_order_of_rows_is_the_same_log(self, fit, shop):
        log, features = shop
        shuffled = log.take(np.random.default_rng(SEED).permutation(len(log)))
        again = fit_from_impressions(*opened(shuffled, features), seed=SEED)
        assert (again.ranker.weights_ == fit.ranker.weights_).all()

    def test_labels_are_not_looked_at(self, fit, shop):
        log, features = shop
        again = fit_from_impressions(*opened(log, features.drop_columns("label")), seed=SEED)
        assert (again.ranker.weights_ == fit.ranker.weights_).all()


def neural():
    need("torch")
    return NeuralRanker(hidden=(8,), epochs=4, patience=2)


def boosted(backend):
    need(backend)
    return GBDTRanker(backend=backend, n_trees=40, patience=5)


RANKERS = {
    "linear": lambda: CounterSampleRanker(learning_rate=0.001, steps=3000, average=False),
    "neural": neural,
    "lightgbm": lambda: boosted("lightgbm"),
    "xgboost": lambda: boosted("xgboost"),
}


class TestAnyRanker:
    @pytest.mark.parametrize("name", RANKERS)
    def test_the_same_gain_and_page(self, name, shop, tmp_path):
        ranker = RANKERS[name]()
        before = ranker.get_params()
        log, features = shop
        fit = fit_from_impressions(
            *opened(log, features), ranker=ranker, propensities=PositionBias(1.0), seed=SEED
        )
        assert ranker.get_params() == before  # a copy is trained
        assert not hasattr(ranker, "scorer_")
        assert type(fit.ranker) is type(ranker)
        assert fit.is_better
        assert abs(true_gain(fit, read_features(features).dataset) - fit.gain.relative) < 0.1
        assert fit.settings["model"] == ranker.kind
        assert fit.path is fit.ranker.path_
        assert (fit.path is None) == (name == "linear")  # which names a learning rate
        assert json.loads(json.dumps(fit.to_dict()))["clip"] == fit.ranker.clip_
        assert fit.ranker.random_state == SEED
        write_page(tmp_path / "page.html", fit, command="")
        page = (tmp_path / "page.html").read_text("utf-8")
        assert ("in the course of training" in page) == (name == "linear")
        assert ("What it learned" in page) == (name != "neural")
        learned = {"linear": "The largest weights", "neural": ""}
        assert learned.get(name, "The features that the trees ask for") in page
        assert (("steps" if name in {"linear", "neural"} else "trees") in fit.chosen) is True
        fit.ranker.save(tmp_path / "ranker.json")

    def test_a_ranker_finds_its_own_settings(self, shop):
        ranker = CounterSampleRanker(steps=200, random_state=5)
        fit = fit_from_impressions(
            *opened(*shop), ranker=ranker, propensities=PositionBias(1.0), seed=SEED
        )
        assert fit.path is fit.ranker.path_
        assert fit.path.metric == ranker.metric
        assert fit.ranker.random_state == 5

    def test_what_is_no_ranker(self, shop):
        with pytest.raises(ParameterError, match="ranker is 'linear', expected RankerOptions, or"):
            fit_from_impressions(*opened(*shop), ranker="linear")


class TestHeldOut:
    def test_no_query_is_scored_by_its_own_clicks(self, fit, shop):
        """More clicks on one query leave the scores of its part as they are, and change others."""
        dataset = read_features(shop[1]).dataset
        ranker = CounterSampleRanker(learning_rate=0.01, steps=300)

        def scores(log):
            rng = np.random.default_rng(SEED)
            parts = cut_queries(log, 5, rng)
            found, stages = held_out_scores(
                ranker, parts, dataset, log, metric="dcg@10", rng=rng,
                progress=Progress(),
            )  # fmt: skip
            assert (found == stages[-1][1]).all()
            return found

        before = scores(fit.shown)
        query = int(fit.shown.query[fit.shown.clicks > 0][0])
        more = np.where(fit.shown.query == query, 50 * fit.shown.clicks, fit.shown.clicks)
        after = scores(fit.shown.replace(count=more))
        items = slice(dataset.offsets[query], dataset.offsets[query + 1])
        assert (before[items] == after[items]).all()
        changed = (before != after).mean()
        assert 0.5 < changed < 0.9  # four parts of five
        assert (before != 0).mean() > 0.99

    def test_clicks_on_one_query(self, shop):
        log, features = shop
        first = log["query_id"][0].as_py()
        clicks = pc.if_else(pc.equal(log["query_id"], first), log["click"], 0)
        one = log.set_column(log.column_names.index("click"), "click", clicks)
        with pytest.raises(DataError, match="clicks on one query only, expected at least two"):
            fit_from_impressions(*opened(one, features), propensities=PositionBias(1.0))

    def test_the_curve_ends_at_the_gain(self, fit):
        steps, last = fit.learning_curve[-1]
        assert steps > 0
        assert last.value == fit.gain.new.value


class TestShown:
    def test_as_counted_row_by_row(self, rng):
        """The same (query, item, position) → (impressions, clicks, propensity) as a dictionary."""
        n = 400
        rows = list(zip(rng.integers(0, 6, n).tolist(), rng.integers(0, 7, n).tolist(),
                        rng.integers(1, 5, n).tolist(), (rng.random(n) < 0.3).astype(int).tolist(),
                        strict=True))  # fmt: skip
        known = [(q, i) for q in range(5) for i in range(6)]  # query 5 and item 6 have none
        table = pa.table({
            "query_id": [q for q, _ in known],
            "item_id": [i for _, i in known],
            "x": rng.random(len(known)),
        })  # fmt: skip
        looks = [1.0, 0.5, 0.25]  # position 4 has none
        shown, clicked = Counter(), Counter()
        for q, i, k, c in rows:
            if (q, i) in known:
                shown[q, i, k] += 1
                clicked[q, i, k] += c * (k <= 3)
        features = read_features(table)
        dataset = features.dataset
        counts = PositionCounts.from_columns(*zip(*rows, strict=True))
        log, _, places = Matched.of(counts, dataset, features.item_ids).shown(looks)
        item = features.item_ids[dataset.offsets[log.query] + log.item]
        keys = list(zip(dataset.query_ids[log.query].tolist(), item.tolist(),
                        log.position.tolist(), strict=True))  # fmt: skip
        assert dict(zip(keys, log.impressions.tolist(), strict=True)) == shown
        filled = Counter((q, k) for q, _, k, _ in rows)
        looks.append(0.0)  # where nothing is known, what was shown counts, and no click does
        for (q, i, k), row in zip(keys, range(len(log)), strict=True):
            examined = sum(n * looks[j - 1] for (a, b, j), n in shown.items() if (a, b) == (q, i))
            share = examined / max(filled[q, j] for j in range(1, 5))
            part = 1 / max(1, share)  # of an item that is examined more than once a session
            assert log.clicks[row] == pytest.approx(clicked[q, i, k] * part)
            assert log.examination[row] == pytest.approx(looks[k - 1] * part)
            if k <= 3:
                assert log.propensity[row] == pytest.approx(min(1, share))
        assert (counts.impressions[places] == log.impressions).all()


class TestDoubts:
    def test_items_that_never_move(self):
        log, features = make(SEED, policies=["by-sales"], queries=40, sessions=3000)
        fit = fit_from_impressions(*opened(log, features))
        assert fit.propensity_source.source == "estimated by regression-em"
        (told,) = [text for text in fit.warnings if "does not identify" in text]
        assert "no query-item pair was shown both in position 1 and in positions 2–10" in told

    def test_one_position(self, shop):
        log, features = shop
        top = log.filter(pc.equal(log["position"], 1))
        with pytest.raises(DataError, match=r"position 1 only.*--gamma.*shuffle the results"):
            fit_from_impressions(*opened(top, features))
        fit = fit_from_impressions(*opened(top, features), propensities=PositionBias(1.0))
        assert fit.propensity_source.source == "given"

    def test_thin_support(self, shop):
        log, features = shop
        few = log.slice(0, 700)
        fit = fit_from_impressions(*opened(few, features), propensities=PositionBias(1.0))
        assert any(text.startswith("Thin support: the value rests on") for text in fit.warnings)

    def test_methods_that_disagree(self):
        """A click helps the items below it, so that position and relevance do not multiply."""
        log, features = make(SEED, sessions=8000)
        rng = np.random.default_rng(SEED)
        by_price = np.array(log["policy"].to_pylist()) == "by-price"
        click = log["click"].to_numpy() | (by_price & (rng.random(len(log)) < 0.25))
        log = log.set_column(log.column_names.index("click"), "click", [click.astype(np.int8)])
        fit = fit_from_impressions(*opened(log, features))
        assert not fit.propensity_source.cross_check.is_agreed
        assert any(
            text.startswith("The curve of propensities is in doubt") for text in fit.warnings
        )

    def test_what_is_missing_is_refused_or_told(self, shop):
        log, features = shop
        some = features.slice(10)  # without the items of the first query
        looks = PositionBias(1.0)
        with pytest.raises(
            DataError, match=r"clicks cannot be used: .* on queries without features"
        ):
            fit_from_impressions(*opened(log, some), propensities=looks)
        fit = fit_from_impressions(
            *opened(log, some), propensities=PropensityOptions(known=looks, missing="skip")
        )
        (told,) = [text for text in fit.warnings if "cannot be used" in text]
        assert fit.join.n_skipped > 0
        assert f"{fit.join.n_skipped:,} of {fit.join.n_clicks:,} clicks" in told

    def test_the_ends_of_given_propensities(self, fit, shop):
        """The curve as it is lies between its ends, and so does the gain, nearly."""
        curve = fit.propensity_source.curve
        given = fit_from_impressions(*opened(*shop), propensities=curve)
        low, high = given.gain_at_ends
        assert min(low, high) - 0.01 < given.gain.relative < max(low, high) + 0.01

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (PropensityOptions(randomized="x"), "randomized is 'x', expected a policy of the log"),
            (EvaluationOptions(estimator="clipped"), "estimator is 'clipped', expected one of"),
        ],
    )
    def test_wrong_arguments(self, shop, options, told):
        name = "evaluation" if isinstance(options, EvaluationOptions) else "propensities"
        with pytest.raises(ParameterError, match=re.escape(told)):
            fit_from_impressions(*opened(*shop), **{name: options})


class TestPropensities:
    def test_of_the_log_itself(self, shop):
        log, features = shop
        frame = log.to_pandas()
        examined = (1 / frame.position).groupby([frame.query_id, frame.item_id]).transform("sum")
        sessions = frame.groupby("query_id").session.transform("nunique")
        own = log.append_column("propensity", [(examined / sessions).to_numpy()])
        logged = fit_from_impressions(
            *opened(own, features), evaluation=EvaluationOptions(estimator="ips")
        )
        given = fit_from_impressions(
            *opened(log, features),
            propensities=PositionBias(1.0),
            evaluation=EvaluationOptions(estimator="ips"),
        )
        assert logged.propensity_source.source == "the log's own column 'propensity'"
        # Its own column is of clicks: how likely the rest is examined it does not tell.
        a, b = logged.ranker.weights_, given.ranker.weights_
        assert a @ b > 0.99 * np.linalg.norm(a) * np.linalg.norm(b)
        assert np.isclose(logged.gain.relative, given.gain.relative, rtol=0.2)

    def test_given_as_a_curve(self, shop):
        value = 1 / np.arange(1, 11)
        curve = Propensities(value, 0.9 * value, np.minimum(1.1 * value, 1), np.ones(10), "em")
        fit = fit_from_impressions(*opened(*shop), propensities=curve)
        assert fit.propensity_source.curve is curve
        assert fit.propensity_source.cross_check is None


class _Tags(HTMLParser):
    """Fails on tags that are not closed in turn."""

    VOID = frozenset({"meta", "line", "circle", "polyline", "polygon", "rect"})

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.addresses = [], Counter(), []

    def handle_starttag(self, tag, attrs):
        self.seen[tag] += 1
        self.addresses += [value for name, value in attrs if name in {"src", "href", "xlink:href"}]
        if tag not in self.VOID or tag in {"circle", "rect", "polyline"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, _):
        self.seen[tag] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


class TestPage:
    @pytest.fixture
    def page(self, fit, tmp_path):
        def page(**options):
            path = tmp_path / "page.html"
            write_page(path, fit, command="countersample fit a<b --out 'x'", **options)
            return path.read_text("utf-8")

        return page

    def test_it_is_whole_and_needs_no_network(self, page, fit):
        text = page()
        tags = _Tags()
        tags.feed(text.replace("<!doctype html>", "").replace('<meta charset="utf-8">', ""))
        assert set(tags.open) <= {"meta"}
        assert tags.seen["svg"] == 4
        assert not tags.addresses
        assert not tags.seen["script"]
        assert "http:" not in text
        assert "https:" not in text
        assert "nan" not in text
        assert fit.verdict in text
        assert "countersample fit a&lt;b" in text
        for title in (
            "Examination by position",
            "How clicks are weighted",
            "Learning",
            "The gain over",
        ):
            assert title in text

    def test_no_ids_unless_asked(self, page, fit, shop):
        def ids(text):
            return set(re.findall(r"\bq\d{5}\b|item-\d+", text))

        assert not ids(page())
        shown = {each for row in fit.heaviest for each in (row.query_id, row.item_id)}
        assert ids(page(show_ids=True)) == shown
        assert not ids(json.dumps(fit.to_dict()))
        log = shop[0]
        assert shown <= set(log["query_id"].to_pylist()) | set(log["item_id"].to_pylist())

    def test_heaviest_rows_first(self, fit):
        weights = [row.weight for row in fit.heaviest]
        assert weights == sorted(weights, reverse=True)
        pair = fit.heaviest[0]
        counts = fit.check.counts
        own = (counts.query_ids[counts.query] == pair.query_id) & (
            counts.item_ids[counts.item] == pair.item_id
        )
        theta = fit.propensity_source.propensities.propensity(counts.position[own])
        examined = (counts.impressions[own] * theta).sum()
        sessions = counts.sessions[counts.query[own][0]]
        assert np.isclose(pair.weight, counts.clicks[own].sum() / (examined / sessions))

    def test_of_given_propensities(self, shop, tmp_path):
        fit = fit_from_impressions(*opened(*shop), propensities=PositionBias(1.0))
        write_page(tmp_path / "page.html", fit, command="")
        text = (tmp_path / "page.html").read_text("utf-8")
        assert '<th scope="row">5</th><td>0.2</td>' in text


def test_progress_never_goes_back(shop):
    told = []
    fit_from_impressions(*opened(*shop), propensities=PositionBias(1.0),
                         progress=lambda what, share: told.append((what, share)))  # fmt: skip
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1
    assert len({what for what, _ in told}) == 4
