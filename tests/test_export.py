"""What is exported scores as the ranker does, wherever it is read."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from html import escape

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import SEED
from made_rankers import (
    BY_COLUMN,
    CONSTANT,
    KINDS,
    MEANS,
    NAMES,
    SCALES,
    made,
    made_missing,
    predict,
    ranker_of,
    some_trees,
    with_holes,
)
from readers_export import elasticsearch_scores, solr_scores, sql_scores
from requirements import need

from countersample import CounterSampleRanker, simulate_clicks, synthetic
from countersample._environment import MissingExtraError
from countersample.data.preprocessing import Normalizer
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.export import export
from countersample.export import onnx as onnx_export
from countersample.export.targets import TARGETS
from countersample.export.trees import on_raw_features
from countersample.gbdt import GBDTRanker
from countersample.rankers import load_ranker
from countersample.scorers import LinearScorer, TreesScorer
from countersample.torch import NeuralRanker


def onnx_scores(path, features):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"features": features.astype(np.float32)})
    assert scores.dtype == np.float32
    return scores


def assert_same(scores, expected, *, up_to_a_constant=False):
    assert scores.shape == expected.shape
    assert np.isfinite(scores).all()
    gap = scores - expected
    if up_to_a_constant:
        gap = gap - np.median(gap)
    assert np.abs(gap).max() <= 1e-5 * max(1, np.abs(expected).max())


# Who reads what a target writes. A target that is added to TARGETS needs a reader here, and is then
# held to all of TestEveryTarget.
READERS = {
    "onnx": lambda path, _, rows: onnx_scores(path, rows),
    "elasticsearch": elasticsearch_scores,
    "opensearch": elasticsearch_scores,
    "solr": solr_scores,
    "sql": sql_scores,
}
OPTIONS = {
    "model_type": "ranklib", "feature_store": "shop", "one_query": True, "dialect": "spark",
    "table": "shop", "query": "query",
}  # fmt: skip
BY_QUERY = {"one_query": True, "query": "query"}  # what a target needs, one of them


@pytest.mark.parametrize("to", TARGETS)
class TestEveryTarget:
    @pytest.mark.parametrize("how", BY_COLUMN)
    @pytest.mark.parametrize("kind", KINDS)
    def test_scores_as_the_ranker_or_says_that_it_cannot(self, to, kind, how, rng, tmp_path):
        ranker, rows = made(kind, how, rng)
        if kind not in TARGETS[to].kinds:
            sentence = f"{TARGETS[to].system} cannot express a {kind} ranker: export it to "
            with pytest.raises(ParameterError, match=sentence):
                export(ranker, tmp_path / "r.out", to=to)
            assert not any(tmp_path.iterdir())
            return
        written = export(ranker, tmp_path / "r.out", to=to)
        found = READERS[to](written.path, NAMES, rows)
        # Where systems keep means as float32, these are rounded.
        shifted = kind == "linear" and how == "standard" and to not in {"onnx", "sql"}
        assert_same(found, predict(ranker, rows), up_to_a_constant=shifted)

    @pytest.mark.parametrize("kind", KINDS)
    def test_by_query_or_says_that_it_cannot(self, to, kind, rng, tmp_path):
        ranker, rows = made(kind, "query-minmax", rng)
        with pytest.raises(ParameterError):
            export(ranker, tmp_path / "r.out", to=to)
        assert not any(tmp_path.iterdir())
        for option in TARGETS[to].options.intersection(BY_QUERY):
            export(ranker, tmp_path / "r.out", to=to, **{option: BY_QUERY[option]})
            assert_same(READERS[to](tmp_path / "r.out", NAMES, rows), predict(ranker, rows))

    def test_other_names_than_in_training(self, to, rng, tmp_path):
        ranker, rows = made("boosted", None, rng)
        names = list("abcdefg")
        path = export(ranker, tmp_path / "r.out", to=to, feature_names=names).path
        assert_same(READERS[to](path, names, rows), predict(ranker, rows))

    @pytest.mark.parametrize("option", OPTIONS)
    def test_options_of_others_are_refused(self, to, option, rng, tmp_path):
        ranker, _ = made("boosted", "query-minmax" if option == "one_query" else None, rng)
        if option in TARGETS[to].options:
            export(ranker, tmp_path / "r.out", to=to, **{option: OPTIONS[option]})
            return
        sentence = f"{option} is given, expected it left out: {to} has no such choice"
        with pytest.raises(ParameterError, match=sentence):
            export(ranker, tmp_path / "r.out", to=to, **{option: OPTIONS[option]})

    @pytest.mark.parametrize(("card", "ending"), [("markdown", "md"), ("html", "html")])
    def test_has_a_card_in_every_format(self, to, card, ending, rng, tmp_path):
        ranker, _ = made("linear", None, rng)
        for _ in range(2):  # the second replaces the first
            written = export(ranker, tmp_path / "shop.out", to=to, card=card)
        assert written.card == tmp_path / f"shop.{ending}"
        text = written.card.read_text()
        for told in (TARGETS[to].system, written.form, *written.limits, *NAMES, "shop.out"):
            assert escape(told) in text or told in text

    def test_of_rankers_that_were_trained(self, to, fitted, data, tmp_path):
        """By both boosting libraries too, and through a file."""
        if fitted.kind not in TARGETS[to].kinds:
            return
        fitted.save(tmp_path / "ranker.json")
        names = [f"f{index}" for index in range(data.n_features)]
        first, second = (
            export(ranker, tmp_path / "r.out", to=to, feature_names=names).path.read_bytes()
            for ranker in (fitted, load_ranker(tmp_path / "ranker.json"))
        )
        assert first == second
        found = READERS[to](tmp_path / "r.out", names, data.features)
        assert_same(found, fitted.predict(data))


def test_every_target_has_a_reader():
    assert set(READERS) == set(TARGETS)
    assert set(OPTIONS) == set().union(*(target.options for target in TARGETS.values()))


@pytest.mark.parametrize("how", BY_COLUMN)
@pytest.mark.parametrize(
    ("kind", "model_type"),
    [("linear", "linear"), ("boosted", "xgboost+json"), ("boosted", "ranklib")],
)
def test_types_of_search_models(kind, model_type, how, rng, tmp_path):
    ranker, rows = made(kind, how, rng)
    path = tmp_path / "r.json"
    written = export(ranker, path, to="elasticsearch", model_type=model_type)
    assert written.form == f"model/{model_type}"
    shifted = kind == "linear" and how == "standard"
    found = elasticsearch_scores(path, NAMES, rows)
    assert_same(found, predict(ranker, rows), up_to_a_constant=shifted)
    default = "linear" if kind == "linear" else "xgboost+json"
    assert export(ranker, path, to="elasticsearch").form == f"model/{default}"


@pytest.mark.parametrize("how", ["minmax", "standard"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_feature_that_was_constant_counts_nothing(kind, how, rng, tmp_path):
    ranker, rows = made(kind, how, rng)
    path = export(ranker, tmp_path / "r.json", to="solr").path
    varied = rows.copy()
    varied[:, CONSTANT] += 100
    assert np.array_equal(solr_scores(path, NAMES, rows), solr_scores(path, NAMES, varied))


@pytest.mark.parametrize("how", [*BY_COLUMN, "query-minmax"])
def test_trees_with_a_linear_part(how, rng, tmp_path):
    ranker, rows = made("boosted", how, rng)
    base = rng.standard_normal(len(SCALES)) / (1 if how else 1 + np.abs(MEANS) + SCALES)
    ranker.scorer_ = replace(ranker.scorer_, base=base)
    alone = replace(ranker.scorer_, base=None)
    seen = rows if how is None else ranker.preprocessing_.normalizer.transform(rows, [0, len(rows)])
    np.testing.assert_allclose(predict(ranker, rows), alone.predict(seen) + seen @ base)
    options = {"one_query": True} if how == "query-minmax" else {}
    written = export(ranker, tmp_path / "r.onnx", to="onnx", **options)
    assert_same(onnx_scores(written.path, rows), predict(ranker, rows))
    assert f"{len(SCALES)} weights, and 20 trees" in written.card.read_text()


@pytest.mark.parametrize("how", BY_COLUMN)
@pytest.mark.parametrize("to", TARGETS)
def test_a_boosted_ranker_without_trees_is_a_linear_one(to, how, rng, tmp_path):
    linear, rows = made("linear", how, rng)
    trees = some_trees(rng, [[0.0]] * len(SCALES), n_trees=0)
    boosted = ranker_of(
        "boosted", replace(trees, base=linear.scorer_.weights), names=NAMES,
        normalizer=linear.preprocessing_.normalizer,
    )  # fmt: skip
    np.testing.assert_array_equal(predict(boosted, rows), predict(linear, rows))
    a, b = (export(r, tmp_path / "r.out", to=to).path.read_bytes() for r in (linear, boosted))
    assert a == b


@pytest.fixture(scope="module")
def data():
    return synthetic("tiny", n_queries=60, rng=SEED)


@pytest.fixture(
    scope="module",
    params=[
        CounterSampleRanker(steps=500, learning_rate=0.01, random_state=0),
        GBDTRanker(n_trees=30, patience=None, min_items_in_leaf=5, random_state=0),
        GBDTRanker(backend="xgboost", n_trees=30, patience=None, normalize="minmax",
                   min_items_in_leaf=1, random_state=0),
        NeuralRanker(hidden=(8,), epochs=2, patience=None, batch_size=256, random_state=0),
    ],
    ids=["linear", "lightgbm", "xgboost", "neural"],
)  # fmt: skip
def fitted(request, data):
    if request.param.kind == "neural":
        need("torch")
    log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=3000, rng=SEED)
    return request.param.fit_log(data, log)


class TestRawTrees:
    @pytest.mark.parametrize("make", [made, made_missing])
    @pytest.mark.parametrize("how", BY_COLUMN)
    def test_scores_are_the_same_to_the_bit(self, how, make, rng):
        ranker, rows = make("boosted", how, rng)
        raw = on_raw_features(ranker.scorer_, ranker.preprocessing_.normalizer)
        assert np.array_equal(raw.predict(rows), predict(ranker, rows))

    def test_the_threshold_is_the_last_value_that_goes_left(self, rng):
        ranker, _ = made("boosted", "standard", rng)
        raw = on_raw_features(ranker.scorer_, ranker.preprocessing_.normalizer)
        inner = np.flatnonzero((raw.feature >= 0) & (raw.feature != CONSTANT))
        for node in rng.choice(inner, 30):
            row = np.zeros((1, len(SCALES)), np.float32)
            ends = raw.threshold[node], np.nextafter(raw.threshold[node], np.float32(np.inf))
            for end, goes_left in zip(ends, (True, False), strict=True):
                row[0, raw.feature[node]] = end
                normalised = ranker.preprocessing_.normalizer.transform(row)[0, raw.feature[node]]
                assert (normalised <= ranker.scorer_.threshold[node]) == goes_left

    def test_a_node_that_everything_passes_is_left_out(self):
        """A split of a constant feature, 0 when normalised, at 0.5 and at −0.5."""
        trees = TreesScorer.from_dict(
            {"n_features": 1, "roots": [0, 3], "feature": [0, -1, -1, 0, -1, -1],
             "threshold": [0.5, 0, 0, -0.5, 0, 0], "left": [1, 0, 0, 4, 0, 0],
             "right": [2, 0, 0, 5, 0, 0], "value": [0, 1, 2, 0, 10, 20]}
        )  # fmt: skip
        constant = Normalizer("minmax", n_features=1, shift=(7.0,), scale=(0.0,))
        raw = on_raw_features(trees, constant)
        assert raw.roots.tolist() == [1, 5]
        assert raw.predict(np.array([[3.0]], np.float32)).tolist() == [1 + 20]

    def test_a_node_that_only_what_is_missing_does_not_pass_stays(self):
        """The same splits: what is missing goes right in the first, and left in the second."""
        trees = TreesScorer.from_dict(
            {"n_features": 1, "roots": [0, 3], "feature": [0, -1, -1, 0, -1, -1],
             "threshold": [0.5, 0, 0, -0.5, 0, 0], "left": [1, 0, 0, 4, 0, 0],
             "right": [2, 0, 0, 5, 0, 0], "value": [0, 1, 2, 0, 10, 20],
             "missing_left": [False, False, False, True, False, False]}
        )  # fmt: skip
        constant = Normalizer("minmax", n_features=1, shift=(7.0,), scale=(0.0,))
        raw = on_raw_features(trees, constant)
        rows = np.array([[3.0], [-3e38], [np.nan]], np.float32)
        assert raw.predict(rows).tolist() == [1 + 20, 1 + 20, 2 + 10]


class TestSolrSlack:
    """Solr adds 10⁻⁶ to thresholds; what is written takes that into account, exactly."""

    @pytest.mark.parametrize(
        "thresholds",
        [
            [0.0],
            [0.5, -0.5, 3.0],
            [3.0000002e-6, 3.5e-6, -1e-6, 1e-6],
            [-1e-35, 1e-35, 1000.0],  # what LightGBM has around 0
            [-1.4e-45, 1.0, 250.0],  # what XGBoost has for x < 0
            [1e30, -1e30, 1e20],
            [1e-30],
        ],
    )
    def test_values_at_thresholds_and_beside_them(self, thresholds, rng, tmp_path):
        thresholds = np.array(thresholds, np.float32)
        scorer = some_trees(rng, [thresholds, np.array([1.0])], n_trees=8, depth=2)
        ranker = ranker_of("boosted", scorer, names=("a", "b"))
        ends = [thresholds, np.nextafter(thresholds, np.float32(np.inf)),
                np.nextafter(thresholds, np.float32(-np.inf)), [0, 1, -1, 1e38, -1e38]]  # fmt: skip
        values = np.concatenate(ends).astype(np.float32)
        values = values[(values == 0) | (np.abs(values) >= np.finfo(np.float32).smallest_normal)]
        rows = np.stack([values, np.ones_like(values)], axis=1)
        path = export(ranker, tmp_path / "r.json", to="solr").path
        assert_same(solr_scores(path, ("a", "b"), rows), predict(ranker, rows))

    def test_random_thresholds_of_any_size(self, rng, tmp_path):
        for size in range(-12, 4):
            thresholds = (rng.standard_normal(30) * 10.0**size).astype(np.float32)
            scorer = some_trees(rng, [thresholds], n_trees=10, depth=3)
            ranker = ranker_of("boosted", scorer, names=("a",))
            rows = np.concatenate([thresholds, np.nextafter(thresholds, np.float32(1e38))])[:, None]
            path = export(ranker, tmp_path / "r.json", to="solr").path
            assert_same(solr_scores(path, ("a",), rows), predict(ranker, rows))

    def test_what_cannot_be_told_apart_is_refused(self, rng, tmp_path):
        scorer = some_trees(rng, [np.array([1e-35, 1e30])], n_trees=30, depth=2)
        ranker = ranker_of("boosted", scorer, names=("a",))
        with pytest.raises(DataError) as error:
            export(ranker, tmp_path / "r.json", to="solr")
        assert str(error.value) == (
            "the thresholds on feature 'a' go from 1e-35 to 1e+30, which Solr cannot tell apart as "
            "it adds 1e-6 to each: export to ONNX, or rescale that feature before training"
        )
        assert not any(tmp_path.iterdir())


class TestMissing:
    @pytest.mark.parametrize("how", BY_COLUMN)
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("to", TARGETS)
    def test_scores_as_the_ranker_does(self, to, kind, how, rng, tmp_path):
        """A feature set fills in what a linear model or a network is given, and has indicators."""
        if kind not in TARGETS[to].kinds:
            return
        ranker, rows = made_missing(kind, how, rng)
        written = export(ranker, tmp_path / "r.out", to=to)
        names, given = NAMES, rows
        if to not in {"onnx", "sql"} and ranker.preprocessing_.imputer is not None:
            names, given = (
                ranker.preprocessing_.imputer.names(NAMES),
                ranker.preprocessing_.imputer.transform(rows),
            )
            told = (
                "with the value in the column “if missing” of the card, and with 7 more that are 1"
            )
            assert told in " ".join(written.limits)
        shifted = kind == "linear" and how == "standard" and to != "onnx"
        found = READERS[to](written.path, names, given)
        assert_same(found, predict(ranker, rows), up_to_a_constant=shifted)

    @pytest.mark.parametrize("kind", KINDS)
    def test_by_query(self, kind, rng, tmp_path):
        ranker, rows = made_missing(kind, "query-minmax", rng)
        export(ranker, tmp_path / "r.onnx", to="onnx", one_query=True)
        for query in (rows[:17], rows[1:2], rows[20:23]):
            assert_same(onnx_scores(tmp_path / "r.onnx", query), predict(ranker, query))

    def test_the_card_has_what_to_fill_in(self, rng, tmp_path):
        ranker, _ = made_missing("linear", "minmax", rng)
        card = export(ranker, tmp_path / "r.json", to="solr").card.read_text()
        assert "| index | name | if missing | less | divided by | weight |" in card
        assert f"| 0 | feature 0 | {ranker.preprocessing_.imputer.fill[0]:.9g} |" in card
        assert "| 7 | feature 0 is missing | – | 0 | 1 |" in card

    @pytest.mark.parametrize("how", [*BY_COLUMN, "query-minmax"])
    @pytest.mark.parametrize("n_trees", [0, 20])
    def test_what_trees_are_boosted_from(self, how, n_trees, rng, tmp_path):
        ranker, rows = made_missing("boosted", how, rng)
        base = rng.standard_normal(len(SCALES)) / (1 if how else 1 + np.abs(MEANS) + SCALES)
        missing = rng.standard_normal(len(SCALES))
        scorer = ranker.scorer_
        if not n_trees:
            none = some_trees(rng, [[0.0]] * len(SCALES), n_trees=0)
            scorer = replace(none, missing_left=np.zeros(0, bool))
        ranker.scorer_ = replace(scorer, base=base, base_missing=missing)
        seen = (
            rows
            if how is None
            else ranker.preprocessing_.normalizer.transform(rows, [0, len(rows)])
        )
        linear = np.where(np.isnan(seen), missing, seen * base).sum(axis=1)
        np.testing.assert_allclose(predict(ranker, rows), scorer.predict(seen) + linear, rtol=1e-6)
        options = {"one_query": True} if how == "query-minmax" else {}
        written = export(ranker, tmp_path / "r.onnx", to="onnx", **options)
        assert_same(onnx_scores(written.path, rows), predict(ranker, rows))
        for to in ("elasticsearch", "opensearch", "solr"):
            with pytest.raises(ParameterError, match="ONNX"):
                export(ranker, tmp_path / "s.json", to=to)

    def test_trained_without_it_the_missing_branch_is_that_of_0(self, rng, tmp_path):
        """Then releases that take what is missing for 0, and those that do not, do the same."""
        ranker, rows = made("boosted", "standard", rng)
        path = export(ranker, tmp_path / "r.json", to="opensearch").path
        gone, zero = rows.copy(), rows.copy()
        gone[:, 2], zero[:, 2] = np.nan, 0
        found = elasticsearch_scores(path, NAMES, gone)
        assert np.array_equal(found, elasticsearch_scores(path, NAMES, zero))
        assert np.array_equal(found, elasticsearch_scores(path, NAMES, gone, missing="before"))
        assert not np.array_equal(
            found, elasticsearch_scores(path, NAMES, gone, missing="always no")
        )

    def test_of_rankers_that_were_trained(self, rng, tmp_path):
        data = synthetic("tiny", n_queries=60, rng=SEED)
        log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=3000, rng=SEED)
        holed = data.with_features(with_holes(data.features, rng))
        names = [f"f{index}" for index in range(data.n_features)]
        for backend in ("lightgbm", "xgboost"):
            ranker = GBDTRanker(
                backend=backend, n_trees=30, patience=None, min_items_in_leaf=5, random_state=0
            ).fit_log(holed, log.detached())  # fmt: skip
            for to, read in READERS.items():
                path = export(ranker, tmp_path / "r.out", to=to, feature_names=names).path
                assert_same(read(path, names, holed.features), ranker.predict(holed))


class TestOnnx:
    @pytest.mark.parametrize("kind", KINDS)
    def test_one_query_a_call(self, kind, rng, tmp_path):
        ranker, rows = made(kind, "query-minmax", rng)
        export(ranker, tmp_path / "r.onnx", to="onnx", one_query=True)
        for query in (rows[:17], rows[17:20], rows[20:21]):
            expected = predict(ranker, query)
            assert_same(onnx_scores(tmp_path / "r.onnx", query), expected)

    def test_what_the_file_says(self, rng, tmp_path):
        ranker, _ = made("linear", "minmax", rng)
        export(ranker, tmp_path / "r.onnx", to="onnx", name="shop-2")
        model = onnx.load(tmp_path / "r.onnx")
        told = {entry.key: entry.value for entry in model.metadata_props}
        assert json.loads(told["feature_names"]) == list(NAMES)
        assert told["normalization"] == "minmax, inside the graph"
        assert told["data_fingerprint"] == "0123"
        assert (model.graph.name, model.producer_name) == ("shop-2", "countersample")

    def test_names_are_not_needed(self, rng, tmp_path):
        ranker, _ = made("linear", None, rng, names=None)
        export(ranker, tmp_path / "r.onnx", to="onnx")
        told = {entry.key for entry in onnx.load(tmp_path / "r.onnx").metadata_props}
        assert "feature_names" not in told

    def test_without_onnxruntime_the_graph_is_not_run(self, rng, tmp_path, monkeypatch):
        ranker, _ = made("linear", None, rng)
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        written = export(ranker, tmp_path / "r.onnx", to="onnx")
        assert "onnxruntime is not installed" in written.checked

    @pytest.mark.parametrize(("library", "to"), [("onnx", "onnx"), ("sqlglot", "sql")])
    def test_a_missing_library(self, library, to, rng, tmp_path, monkeypatch):
        ranker, _ = made("linear", None, rng)
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(MissingExtraError) as error:
            export(ranker, tmp_path / "model", to=to)
        assert 'pip install "countersample[export]"' in str(error.value)
        assert not any(tmp_path.iterdir())

    @pytest.mark.slow
    def test_nobody_is_told(self, tmp_path):
        """Newer releases of onnxruntime keep a number of the machine, and report models."""
        ranker = CounterSampleRanker(learning_rate=0.1, steps=10, random_state=SEED)
        ranker.fit([[0.2], [0.9]], [0, 3], qid=[1, 1]).save(tmp_path / "r.json")
        home = tmp_path / "home"
        home.mkdir()
        code = "from countersample.cli import main; main()"
        command = [sys.executable, "-c", code, "export", "r.json", "--to", "onnx", "-o", "r.onnx"]
        kept = {k: v for k, v in os.environ.items() if k not in {"CI", "ORT_DISABLE_TELEMETRY"}}
        there = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(home))
        done = subprocess.run(
            command, cwd=tmp_path, env=kept | there, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "onnxruntime" in done.stdout
        assert not [path for path in home.rglob("*") if path.name in {"Microsoft", ".ses"}]

    def test_scores_that_differ_are_not_written(self, rng, tmp_path, monkeypatch):
        ranker, _ = made("linear", None, rng)
        double = replace(ranker.scorer_, weights=2 * ranker.scorer_.weights)
        monkeypatch.setattr(LinearScorer, "predict", lambda _, x: x @ double.weights)
        with pytest.raises(CounterSampleError, match="away from the ranker's, expected at most"):
            export(ranker, tmp_path / "r.onnx", to="onnx")
        assert not any(tmp_path.iterdir())

    @pytest.mark.parametrize("how", [*BY_COLUMN, "query-minmax"])
    def test_a_tree_that_asks_otherwise_is_found_out(self, how, rng, tmp_path, monkeypatch):
        """By "less than" instead of "at most", which values at a threshold tell apart."""
        ranker, _ = made("boosted", how, rng)
        write = onnx_export._trees

        def below(graph, features, trees):
            lower = np.nextafter(trees.threshold, np.float32(-np.inf))
            at_an_end = np.isin(trees.threshold, [0, 1])  # where any rows may have values
            lower = np.where(at_an_end, trees.threshold, lower)
            return write(graph, features, replace(trees, threshold=lower))

        monkeypatch.setattr(onnx_export, "_trees", below)
        with pytest.raises(CounterSampleError, match="away from the ranker's, expected at most"):
            export(ranker, tmp_path / "r.onnx", to="onnx", one_query=how == "query-minmax")
        assert not any(tmp_path.iterdir())


class TestNames:
    def test_the_feature_set_may_have_another_order(self, rng, tmp_path):
        order = rng.permutation(len(NAMES))
        names = [NAMES[index] for index in order]
        for kind in ("linear", "boosted"):
            ranker, rows = made(kind, "minmax", rng)
            path = export(ranker, tmp_path / "r.json", to="elasticsearch").path
            found = elasticsearch_scores(path, names, rows[:, order])
            assert_same(found, predict(ranker, rows))
