"""Exported models score as the ranker does, or the export is rejected before it is written."""

import errno
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import SEED
from made_rankers import (
    KINDS,
    MEANS,
    NAMES,
    SCALES,
    a_chain,
    made,
    made_missing,
    predict,
    ranker_of,
    some_trees,
)
from readers_export import elasticsearch_scores, solr_scores, sql_scores
from requirements import need

from countersample import CounterSampleRanker, simulate_clicks, synthetic
from countersample._environment import MissingExtraError
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.export import export
from countersample.export.targets import TARGETS
from countersample.export.trees import on_raw_features
from countersample.gbdt import GBDTRanker
from countersample.rankers import load_ranker
from countersample.scorers import LinearScorer
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


# The reader of each target. A new target needs a reader here, and is then held to all these tests.
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
BY_QUERY = {"one_query": True, "query": "query"}  # a target needs one of them


def test_every_target_has_a_reader():
    assert set(READERS) == set(TARGETS)
    assert set(OPTIONS) == set().union(*(target.options for target in TARGETS.values()))


@pytest.mark.parametrize("to", TARGETS)
class TestEveryTarget:
    @pytest.mark.parametrize(
        ("kind", "how", "make"),
        [("linear", "minmax", made), ("linear", "standard", made_missing), ("linear", None, made),
         ("neural", "standard", made), ("neural", "minmax", made_missing),
         ("boosted", None, made_missing), ("boosted", "standard", made)],
    )  # fmt: skip
    def test_scores_as_the_ranker(self, to, kind, how, make, rng, tmp_path):
        """Search engines get filled-in features and indicators if a ranker takes missing ones."""
        ranker, rows = make(kind, how, rng)
        if kind not in TARGETS[to].kinds:
            sentence = f"{TARGETS[to].system} cannot express a {kind} ranker: export it to "
            with pytest.raises(ParameterError, match=sentence):
                export(ranker, tmp_path / "r.out", to=to)
            assert not any(tmp_path.iterdir())
            return
        written = export(ranker, tmp_path / "r.out", to=to)
        names, features, imputer = NAMES, rows, ranker.preprocessing_.imputer
        if to not in {"onnx", "sql"} and imputer is not None:
            names, features = imputer.names(NAMES), imputer.transform(rows)
            assert "add the indicators of missing values (7)" in " ".join(written.limits)
        scores = READERS[to](written.path, names, features)
        # Systems that store means as float32 round them.
        shifted = kind == "linear" and how == "standard" and to not in {"onnx", "sql"}
        assert_same(scores, predict(ranker, rows), up_to_a_constant=shifted)

    @pytest.mark.parametrize("kind", KINDS)
    def test_by_query(self, to, kind, rng, tmp_path):
        ranker, rows = made(kind, "query-minmax", rng)
        with pytest.raises(ParameterError):
            export(ranker, tmp_path / "r.out", to=to)
        assert not any(tmp_path.iterdir())
        for option in TARGETS[to].options.intersection(BY_QUERY):
            export(ranker, tmp_path / "r.out", to=to, **{option: BY_QUERY[option]})
            assert_same(READERS[to](tmp_path / "r.out", NAMES, rows), predict(ranker, rows))

    @pytest.mark.parametrize("option", OPTIONS)
    def test_options_of_other_targets_are_rejected(self, to, option, rng, tmp_path):
        ranker, _ = made("boosted", "query-minmax" if option == "one_query" else None, rng)
        if option in TARGETS[to].options:
            export(ranker, tmp_path / "r.out", to=to, **{option: OPTIONS[option]})
            return
        sentence = f"{option} is given, which the target {to} does not have: leave it out"
        with pytest.raises(ParameterError, match=sentence):
            export(ranker, tmp_path / "r.out", to=to, **{option: OPTIONS[option]})

    def test_trained_rankers(self, to, fitted, data, tmp_path):
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
        assert_same(READERS[to](tmp_path / "r.out", names, data.features), fitted.predict(data))

    def test_a_boosted_ranker_without_trees_is_a_linear_one(self, to, rng, tmp_path):
        linear, rows = made("linear", "standard", rng)
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


@pytest.mark.parametrize(
    ("kind", "model_type", "how"),
    [("linear", "linear", "standard"), ("boosted", "xgboost+json", "minmax"),
     ("boosted", "ranklib", None)],
)  # fmt: skip
def test_types_of_search_models(kind, model_type, how, rng, tmp_path):
    """In a feature set that may have another order, unless RankLib reads it."""
    ranker, rows = made(kind, how, rng)
    order = np.arange(7) if model_type == "ranklib" else rng.permutation(7)
    written = export(ranker, tmp_path / "r.json", to="elasticsearch", model_type=model_type)
    assert written.form == f"model/{model_type}"
    scores = elasticsearch_scores(written.path, [NAMES[i] for i in order], rows[:, order])
    shifted = kind == "linear" and how == "standard"
    assert_same(scores, predict(ranker, rows), up_to_a_constant=shifted)


class TestRawTrees:
    @pytest.mark.parametrize(("how", "make"), [("minmax", made), ("standard", made_missing)])
    def test_scores_are_the_same_to_the_bit(self, how, make, rng):
        ranker, rows = make("boosted", how, rng)
        raw = on_raw_features(ranker.scorer_, ranker.preprocessing_.normalizer)
        assert np.array_equal(raw.predict(rows), predict(ranker, rows))


class TestSolrSlack:
    """Solr adds 10⁻⁶ to thresholds; the thresholds in the file take that into account, exactly."""

    @pytest.mark.parametrize(
        "thresholds",
        [
            [3.0000002e-6, 3.5e-6, -1e-6, 1e-6, 0.0, 0.5, -0.5, 3.0],
            [-1e-35, 1e-35, 1000.0],  # LightGBM's around 0
            [-1.4e-45, 1.0, 250.0],  # XGBoost's for x < 0
            [1e30, -1e30, 1e20],
            *(
                list(np.random.default_rng(5).standard_normal(30) * 10.0**k)
                for k in (2, -1, -6, -12)
            ),
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

    def test_thresholds_that_solr_cannot_tell_apart(self, rng, tmp_path):
        scorer = some_trees(rng, [np.array([1e-35, 1e30])], n_trees=30, depth=2)
        ranker = ranker_of("boosted", scorer, names=("a",))
        with pytest.raises(
            DataError, match=r"'a' go from 1e-35 to .*, which Solr cannot distinguish"
        ):
            export(ranker, tmp_path / "r.json", to="solr")
        assert not any(tmp_path.iterdir())


class TestMissing:
    @pytest.mark.parametrize(
        ("n_trees", "how", "has_missing"),
        [(0, "minmax", True), (20, "minmax", False), (20, None, True), (0, None, False),
         (20, "query-minmax", True), (0, "standard", False)],
    )  # fmt: skip
    def test_what_trees_are_boosted_from(self, how, n_trees, has_missing, rng, tmp_path):
        ranker, rows = (made_missing if has_missing else made)("boosted", how, rng)
        base = rng.standard_normal(len(SCALES)) / (1 if how else 1 + np.abs(MEANS) + SCALES)
        missing = rng.standard_normal(len(SCALES)) if has_missing else None
        scorer = ranker.scorer_
        if not n_trees:
            scorer = some_trees(rng, [[0.0]] * len(SCALES), n_trees=0)
            if has_missing:
                scorer = replace(scorer, missing_left=np.zeros(0, bool))
        ranker.scorer_ = replace(scorer, base=base, base_missing=missing)
        normalizer = ranker.preprocessing_.normalizer
        seen = rows if how is None else normalizer.transform(rows, [0, len(rows)])
        terms = seen * base if missing is None else np.where(np.isnan(seen), missing, seen * base)
        expected = scorer.predict(seen) + terms.sum(axis=1)
        np.testing.assert_allclose(predict(ranker, rows), expected, rtol=1e-6)
        options = {"one_query": True} if how == "query-minmax" else {}
        written = export(ranker, tmp_path / "r.onnx", to="onnx", **options)
        assert_same(onnx_scores(written.path, rows), predict(ranker, rows))
        for to in ("elasticsearch", "opensearch", "solr"):
            if n_trees or has_missing or how == "query-minmax":
                with pytest.raises(ParameterError, match="ONNX"):
                    export(ranker, tmp_path / "s.json", to=to)

    def test_without_missing_values_in_training_the_branch_is_that_of_0(self, rng, tmp_path):
        """Then releases that take what is missing for 0, and those that do not, do the same."""
        ranker, rows = made("boosted", "standard", rng)
        path = export(ranker, tmp_path / "r.json", to="opensearch").path
        gone, zero = rows.copy(), rows.copy()
        gone[:, 2], zero[:, 2] = np.nan, 0
        scores = elasticsearch_scores(path, NAMES, gone)
        assert np.array_equal(scores, elasticsearch_scores(path, NAMES, zero))
        assert np.array_equal(scores, elasticsearch_scores(path, NAMES, gone, missing="before"))


class TestOnnx:
    @pytest.mark.parametrize(
        ("kind", "make"), [("linear", made_missing), ("neural", made), ("boosted", made_missing)]
    )
    def test_one_query_per_call(self, kind, make, rng, tmp_path):
        ranker, rows = make(kind, "query-minmax", rng)
        export(ranker, tmp_path / "r.onnx", to="onnx", one_query=True)
        for query in (rows[:17], rows[1:2], rows[20:23]):
            assert_same(onnx_scores(tmp_path / "r.onnx", query), predict(ranker, query))

    @pytest.mark.parametrize("names", [NAMES, None])
    def test_metadata(self, names, rng, tmp_path):
        ranker, _ = made("linear", "minmax", rng, names=names)
        export(ranker, tmp_path / "r.onnx", to="onnx", name="shop-2")
        model = onnx.load(tmp_path / "r.onnx")
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        assert json.loads(metadata.get("feature_names", "null")) == (names and list(names))
        assert metadata["normalization"] == "minmax, inside the graph"
        assert metadata["data_fingerprint"] == "0123"
        assert (model.graph.name, model.producer_name) == ("shop-2", "countersample")
        assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"  # newer releases report models

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

    def test_scores_that_differ_are_not_written(self, rng, tmp_path, monkeypatch):
        ranker, _ = made("linear", None, rng)
        double = replace(ranker.scorer_, weights=2 * ranker.scorer_.weights)
        monkeypatch.setattr(LinearScorer, "predict", lambda _, x: x @ double.weights)
        with pytest.raises(CounterSampleError, match="away from the ranker's, expected at most"):
            export(ranker, tmp_path / "r.onnx", to="onnx")
        assert not any(tmp_path.iterdir())


SEARCH = ("elasticsearch", "opensearch", "solr")
REJECTED = [  # the kind of ranker, its normalisation, the options, and a part of the message
    *[(kind, "query-minmax", {"to": "solr"}, "cannot normalise by query") for kind in KINDS],
    ("linear", "query-minmax", {"to": "elasticsearch"}, "cannot normalise by query"),
    ("linear", "query-minmax", {"to": "onnx"}, "one_query=True (--one-query)"),
    ("linear", "query-minmax", {"to": "sql"}, "name it with query (--query)"),
    ("neural", None, {"to": "opensearch"}, "export it to ONNX or Solr or SQL"),
    *[("linear", None, {"to": to, "names": None}, "identifies features by name") for to in SEARCH],
    ("linear", None, {"to": "sql", "names": None}, "give the 7 names"),
    ("linear", None, {"to": "onnx", "one_query": True}, "only for a ranker with normalize="),
    ("linear", None, {"to": "elasticsearch", "model_type": "ranklib"}, "expected 'linear' for"),
    ("boosted", None, {"to": "opensearch", "model_type": "linear"}, "'xgboost+json' or 'ranklib'"),
    ("linear", None, {"to": "vespa"}, "to is 'vespa', expected one of onnx, elasticsearch"),
    ("linear", None, {"to": "solr", "name": "my model"}, "name is 'my model', expected letters"),
    ("linear", None, {"to": "onnx", "feature_names": ["a", "b"]}, "has 2 names, expected 7"),
    ("linear", None, {"to": "solr", "feature_names": list("abcdefa")}, "'a' more than once"),
    ("linear", None, {"to": "solr", "feature_names": ["a", "", *"cdefg"]}, "empty name at index 1"),
    ("linear", None, {"to": "opensearch", "feature_store": "a/b"}, "feature_store is 'a/b'"),
    *[("tiny scale", "standard", {"to": to}, "a scale of 1e-50") for to in SEARCH[1:]],
]


class TestRejected:
    @pytest.mark.parametrize(("kind", "how", "options", "message"), REJECTED)
    def test_before_anything_is_written(self, kind, how, options, message, rng, tmp_path):
        options = dict(options)
        is_tiny = kind == "tiny scale"
        ranker, _ = made("linear" if is_tiny else kind, how, rng, names=options.pop("names", NAMES))
        if is_tiny:
            normalizer = ranker.preprocessing_.normalizer
            normalizer = replace(normalizer, scale=(1e-50, *normalizer.scale[1:]))
            ranker.preprocessing_ = replace(ranker.preprocessing_, normalizer=normalizer)
        old = tmp_path / "r.out"
        old.write_text("the model of yesterday")
        with pytest.raises((ParameterError, DataError)) as error:
            export(ranker, old, **options)
        assert message in str(error.value)
        assert old.read_text() == "the model of yesterday"
        assert list(tmp_path.iterdir()) == [old]

    @pytest.mark.parametrize(("to", "most"), [("sql", 100), ("solr", 300)])
    def test_a_tree_that_is_too_deep(self, to, most, tmp_path):
        ranker = ranker_of("boosted", a_chain(most + 1), names=("a",))
        message = f"a tree has {most + 1} levels, expected at most {most}"
        with pytest.raises(ParameterError, match=message):
            export(ranker, tmp_path / "r.out", to=to)

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("r.md", "the model card is written to this file, expected another ending"),
            ("none/r.json", "does not exist: create it first"),
            ("folder", "is a folder, expected the name of a file"),
            ("README.json", "the model card is written to this file, which has another text"),
            ("ranker.json", "is a ranker, expected another name: the export would replace it"),
        ],
    )
    def test_paths(self, name, sentence, rng, tmp_path):
        ranker, _ = made("linear", None, rng)
        (tmp_path / "README.md").write_text("# Ours")
        (tmp_path / "folder").mkdir()
        fitted = CounterSampleRanker(random_state=0).fit([[0.2], [0.9]], [0, 3], qid=[1, 1])
        fitted.save(tmp_path / "ranker.json")
        before = {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(ParameterError, match=sentence):
            export(ranker, tmp_path / name, to="solr")
        assert before == {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()}

    def test_no_new_card_with_an_old_model(self, rng, tmp_path, monkeypatch):
        ranker, _ = made("linear", None, rng)
        written = export(ranker, tmp_path / "r.json", to="solr", name="old")
        before = written.path.read_bytes(), written.card.read_bytes()
        rename = Path.replace

        def locked(path, target):
            if Path(target) == written.path:
                raise OSError(errno.EBUSY, "Device or resource busy")
            return rename(path, target)

        monkeypatch.setattr(Path, "replace", locked)
        with pytest.raises(CounterSampleError, match=r"r\.json: cannot be written: Device"):
            export(ranker, written.path, to="solr", name="new")
        assert (written.path.read_bytes(), written.card.read_bytes()) == before
