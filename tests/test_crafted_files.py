"""Files that somebody made up, checksum and all, are rejected with one sentence.

One case per kind of check; tests/fuzz_files.py tries everything else.
"""

import json

import made_rankers
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from countersample import ClickLog, load_ranker, synthetic
from countersample._json import parse_json
from countersample.data.preprocessing import Normalizer, Preprocessing
from countersample.errors import DataError, ParameterError
from countersample.export import export
from countersample.propensity import Propensities, load_propensities
from countersample.rankers.files import load_scorer
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer
from countersample.study.experiment import load_grid, plan, read_experiment
from countersample.study.store import Store

DEEP = "[" * 100_000 + "]" * 100_000
NAN = float("nan")


def put(value, path, new):
    """Set a value within a value; `path` is its keys with dots."""
    *keys, last = (int(key) if key.isdecimal() else key for key in path.split("."))
    for key in keys:
        value = value[key]
    if new is ...:
        del value[last]
    else:
        value[last] = new


# -- rankers

RANKERS = [
    ("linear", "kind", ["linear"], "kind ['linear'], expected one of linear, neural, boosted"),
    ("linear", "statistics.n_queries_", ..., "the ranker has no statistics.n_queries_, expected"),
    ("linear", "statistics.provenance_.max_weight", 10**400, "max_weight of the ranker is 1000"),
    ("linear", "feature_names", ["a", "b"], "list of feature names is for 2 features, expected 7"),
    ("linear", "preprocessing.encoder.columns.4.values", ["a", "c"], "its encoder has other"),
    ("linear", "learned.scorer.weights", [1.0, NAN], "weights[1] of a scorer is nan, expected a f"),
    ("neural", "learned.scorer.weights", [[[1.0] * 7]], "layers of a network have shapes"),
    ("boosted", "learned.scorer.n_features", 2**31 - 1, "n_features of a scorer is 2147483647, e"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "path", "new", "message"), RANKERS)
def test_rankers(kind, path, new, message, tmp_path):
    content, file = made_rankers.content(kind), tmp_path / "ranker.json"
    if "encoder" in path:
        content = made_rankers.with_encoder(content)
    file.write_bytes(made_rankers.as_file(content))
    load_ranker(file)
    put(content, path, new)
    file.write_bytes(made_rankers.as_file(content))
    with pytest.raises(DataError, match=r"ranker\.json: ") as raised:
        load_ranker(file)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(DataError, match=r"ranker\.json: "):
        load_scorer(file)


TREE = {
    "n_features": 2, "roots": [0, 3], "feature": [1, -1, -1, 0, -1, -1],
    "threshold": [0.5, 0, 0, 0.5, 0, 0], "left": [1, 0, 0, 4, 0, 0], "right": [2, 0, 0, 5, 0, 0],
    "value": [0, 2, 7, 0, 1, 2],
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"feature": [2, -1, -1, 0, -1, -1]},  # of two features
        {"left": [0, 0, 0, 4, 0, 0]},  # a circle
        {"right": [4, 0, 0, 5, 0, 0]},  # into the other tree
        {"threshold": [NAN, 0, 0, 0.5, 0, 0]},
    ],
    ids=str,
)
def test_trees(change):
    TreesScorer.from_dict(TREE)
    with pytest.raises(DataError, match=r"one tree after the other|has NaN"):
        TreesScorer.from_dict(TREE | change)


def test_a_scorer_never_reads_beside_a_row():
    scorers = [
        TreesScorer.from_dict(TREE | {"n_features": 1_000_000, "feature": [999_999, -1, -1] * 2}),
        LinearScorer(np.ones(3)),
        NetworkScorer((np.ones((1, 3), np.float32),), (np.zeros(1, np.float32),)),
    ]
    for scorer in scorers:
        for features in (np.zeros((4, 2), np.float32), np.zeros(3, np.float32)):
            with pytest.raises(DataError, match="features have shape"):
                scorer.predict(features)


def test_scores_that_are_not_finite(tmp_path):
    content = made_rankers.content("linear")
    for name in ("scorer.weights", "coef", "average_coef"):
        put(content["learned"], name, [1e308, -1e308, 1e308, 0, 0, 0, 0])
    (tmp_path / "ranker.json").write_bytes(made_rankers.as_file(content))
    data = synthetic("tiny", n_queries=1, rng=0)
    data = data.with_features(np.full((data.n_items, 7), 1e6, np.float32))
    for ranker in (load_ranker(tmp_path / "ranker.json"), load_scorer(tmp_path / "ranker.json")):
        with pytest.raises(DataError, match=r"the score of row 0 .* expected a finite number"):
            ranker.predict(data)


@pytest.mark.parametrize("to", ["elasticsearch", "solr"])
def test_weights_that_32_bits_do_not_hold(to, tmp_path):
    content = made_rankers.content("linear", "minmax")
    put(content["learned"], "scorer.weights", [1e300, *[0] * 6])
    (tmp_path / "ranker.json").write_bytes(made_rankers.as_file(content))
    with pytest.raises(ParameterError, match=r"a weight is 1e\+300, expected a number of 32 bits"):
        export(
            load_ranker(tmp_path / "ranker.json"), tmp_path / "model.json", to=to,
            feature_names=list("abcdefg"),
        )  # fmt: skip


# -- other files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEEP, "nested more than 100 levels deep"),
        (b"\xff", "not JSON: .*utf-8"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' twice"),
        (r'"half a character: \ud800"', "not JSON: .*surrogates"),
    ],
    ids=lambda text: str(text)[:20],
)
def test_json(text, message):
    with pytest.raises(DataError, match=message):
        parse_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"scale": [1e999, 1.0]},
        {"logs": None, "knots": [[], [[0, 1, 2], [0, 1]]]},
    ],
    ids=ascii,
)
def test_normalizers(change):
    normalizer = Normalizer("minmax", 2, (0.0, 0.0), (1.0, 1.0), logs=(0.0, 2.0))
    values = Preprocessing(normalizer=normalizer).to_dict()
    assert Preprocessing.from_dict(values).normalizer == normalizer
    with pytest.raises(DataError, match="the preprocessing is"):
        Preprocessing.from_dict({"normalizer": values["normalizer"] | change})


def test_propensities(tmp_path):
    content = Propensities([1, 0.5], [1, 0.4], [1, 0.6], n_impressions=[9, 9], method="m").to_dict()
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    load_propensities(path)
    path.write_text(json.dumps(content | {"value": [1, 10**400]}))
    with pytest.raises(DataError, match=r"p\.json: "):
        load_propensities(path)


COLUMNS = {"query": [0, 1], "item": [0, 0], "propensity": [0.5, 1.0]}


@pytest.mark.parametrize("columns", [{"propensity": [0.5, None]}, {"query": [2**40, 0]}])
def test_click_logs(columns, tmp_path):
    note = {"schema_version": 1, "dataset": None, "n_sessions": None}
    path, metadata = tmp_path / "log.parquet", {"countersample": json.dumps(note)}
    parquet.write_table(pa.table(COLUMNS).replace_schema_metadata(metadata), path)
    ClickLog.load(path)
    parquet.write_table(pa.table(COLUMNS | columns).replace_schema_metadata(metadata), path)
    with pytest.raises(DataError, match=r"log\.parquet: "):
        ClickLog.load(path)


# -- studies

GRID = """
title = "t"
about = "a"
kind = "regret"
datasets = ["tiny"]
methods = ["IPS-SGD", "CounterSample"]
[vary]
gamma = [0.5, 1.0]
[[claims]]
text = "c"
test = "lower"
method = "CounterSample"
than = "IPS-SGD"
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gamma = [0.5", "gamma = [" + "[" * 5000),
        ('methods = ["IPS-SGD"', "methods = [{ name = [], plan = [], unit = [] }"),
    ],
    ids=lambda text: text[:30],
)
def test_grids(old, new, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(GRID)
    load_grid(path)
    path.write_text(GRID.replace(old, new, 1))
    with pytest.raises(ParameterError, match=r"own\.toml"):
        load_grid(path)


def test_a_results_folder(tmp_path):
    (tmp_path / "own.toml").write_text(GRID)
    store, file = Store(tmp_path / "out"), tmp_path / "out" / "study.json"
    store.claim(plan([tmp_path / "own.toml"], scale="smoke").identity("again"))
    assert read_experiment(store.identity()).grids[0].name == "own"
    content = json.loads(file.read_text("utf-8"))
    for path, new in (
        ("grids", []), ("grids.own", 3), ("grids.own.grid.kind", "no"), ("grids.own.command", []),
        # Tables and figures are written under its name, so it must not be a path.
        ("grids", {"../x": content["grids"]["own"]}),
    ):  # fmt: skip
        changed = json.loads(json.dumps(content))
        put(changed, path, new)
        file.write_text(json.dumps(changed), "utf-8")
        with pytest.raises(DataError, match="does not describe a study"):
            read_experiment(store.identity())
