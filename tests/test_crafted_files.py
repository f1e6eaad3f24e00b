"""Files that somebody made up, checksum and all: rejected with one sentence, before they count.

One case per kind of check; tests/fuzz_files.py tries everything else.
"""

import json
import subprocess
import sys
from pathlib import Path

import made_rankers
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from countersample import ClickLog, load_ranker, synthetic
from countersample._json import parse_json
from countersample.data import catalogue
from countersample.data.preprocessing import Normalizer, Preprocessing
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.export import export
from countersample.propensity import Propensities, load_propensities
from countersample.rankers.files import load_scorer
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer
from countersample.study.experiment import load_grid, plan, read_experiment
from countersample.study.sources import find_source
from countersample.study.store import IDENTITY, Store

DEEP = [
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 100_000 + "1" + "}" * 100_000,
    "[" * 200 + "]" * 200,
]


def put(value, path, new):
    """Set a value within a value; `path` is its keys with dots."""
    *keys, last = (int(key) if key.isdecimal() else key for key in path.split("."))
    for key in keys:
        value = value[key]
    if new is ...:
        del value[last]
    else:
        value[last] = new


# -- rankers -------------------------------------------------------------------------------------

NAN = float("nan")
IMPUTER = {"n_features": 7, "fill": [0.0] * 7, "indicators": []}
BY_QUERY = {"how": "query-minmax", "n_features": 3}
RANKERS = [
    ("linear", "kind", ["linear"], "kind ['linear'], expected one of linear, neural, boosted"),
    ("linear", "params", {"no_such": 1}, "no_such"),
    ("linear", "statistics.n_queries_", ..., "the ranker has no statistics.n_queries_, expected"),
    ("linear", "statistics.provenance_.max_weight", 10**400, "max_weight of the ranker is 1000"),
    ("linear", "statistics.provenance_.warnings", ..., "a verdict without warnings, expected"),
    ("linear", "feature_names", ["a", "b"], "list of feature names is for 2 features, expected 7"),
    ("linear", "preprocessing.normalizer", BY_QUERY, "its normalizer is for 3 features"),
    ("linear", "preprocessing.imputer", IMPUTER | {"indicators": [8]}, "indicators of the prepr"),
    ("linear", "preprocessing.encoder.columns.3.reference", "2026-02-30", "2026-02-30"),
    ("linear", "preprocessing.encoder.columns.4.values", ["a", "c"], "its encoder has other"),
    ("linear", "learned.scorer.weights", [1.0, NAN], "weights[1] of a scorer is nan, expected a f"),
    ("linear", "learned.scorer.weights", [1.0, 2.0], "its scorer is for 2 features, expected 7"),
    ("neural", "learned.scorer.weights", [[[1.0] * 7]], "layers of a network have shapes"),
    ("neural", "learned.scorer.biases.2", [1e300], "biases[2][0] of a scorer is 1e+300, expected"),
    ("boosted", "learned.scorer.n_features", 2**31 - 1, "n_features of a scorer is 2147483647, e"),
    ("boosted", "learned.scorer.roots", [2**40], "roots[0] of a scorer is 1099511627776, expect"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "path", "new", "message"), RANKERS)
def test_crafted_rankers(kind, path, new, message, tmp_path):
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
    if not path.startswith(("params", "learned.")) or "scorer" in path:
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
        {"left": [2, 0, 0, 4, 0, 0]},  # a node with two parents
        {"right": [4, 0, 0, 5, 0, 0]},  # into the other tree
        {"roots": [3, 0]},
        {"value": [0, 2, 7, 0, 1]},
        {"threshold": [NAN, 0, 0, 0.5, 0, 0]},
    ],
    ids=str,
)
def test_crafted_trees(change):
    TreesScorer.from_dict(TREE)
    with pytest.raises(DataError, match=r"leads nowhere|one tree after the other|has NaN"):
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


def test_scores_that_are_no_numbers_are_refused(tmp_path):
    content = made_rankers.content("linear")
    for name in ("scorer.weights", "coef", "average_coef"):
        put(content["learned"], name, [1e308, -1e308, 1e308, 0, 0, 0, 0])
    (tmp_path / "ranker.json").write_bytes(made_rankers.as_file(content))
    features = np.full((3, 7), 1e6, np.float32)
    data = synthetic("tiny", n_queries=1, rng=0)
    data = data.with_features(np.resize(features, (data.n_items, 7)))
    for ranker in (load_ranker(tmp_path / "ranker.json"), load_scorer(tmp_path / "ranker.json")):
        with pytest.raises(DataError, match=r"the score of row 0 .* expected a finite number"):
            ranker.predict(data)


def test_a_tree_too_deep_for_others(tmp_path):
    """A chain of splits: scored, and written where trees are no objects within objects."""
    n, path = 2000, tmp_path / "ranker.json"
    inner = np.arange(n)
    feature = np.full(2 * n + 1, -1)
    feature[: 2 * n : 2] = 0
    left, right = np.zeros(2 * n + 1, int), np.zeros(2 * n + 1, int)
    left[2 * inner], right[2 * inner] = 2 * inner + 1, 2 * inner + 2
    content = made_rankers.content("boosted")
    content["learned"]["scorer"] = {
        "n_features": 7, "roots": [0], "feature": feature.tolist(), "left": left.tolist(),
        "right": right.tolist(), "threshold": np.linspace(0, 1, 2 * n + 1).tolist(),
        "value": [0.0] * (2 * n) + [1.0],
    }  # fmt: skip
    path.write_bytes(made_rankers.as_file(content))
    ranker = load_ranker(path)
    assert ranker.scorer_.predict(np.full((1, 7), 2, np.float32)) == [1]
    for to in ("solr", "elasticsearch"):
        with pytest.raises(ParameterError, match="a tree has 2000 levels, expected at most 300"):
            export(ranker, tmp_path / "model.json", to=to)


# -- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "nested more than 100 levels deep") for text in DEEP),
        (b"\xff", "not JSON: .*utf-8"),
        (b'"\xed\xa0\x80"', "not JSON: .*utf-8"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' twice"),
        (r'"half a character: \ud800"', "not JSON: .*surrogates"),
    ],
    ids=lambda text: str(text)[:20],
)
def test_json_that_is_refused(text, message):
    with pytest.raises(DataError, match=message):
        parse_json(text)


def test_deep_json_in_every_file(tmp_path):
    deep = DEEP[0]
    path = tmp_path / "file"
    text = made_rankers.as_file(made_rankers.content("linear")).decode()
    path.write_text(text.replace('"ranker": {', f'"ranker": {{"x": {deep}, ', 1))
    for load in (load_ranker, load_scorer):
        with pytest.raises(DataError, match=r"file: a damaged ranker file .*levels deep"):
            load(path)
    path.write_text(deep)
    with pytest.raises(DataError, match=r"file: .*levels deep"):
        load_propensities(path)
    table = pa.table({name: [1] for name in ("query", "item", "propensity")})
    parquet.write_table(table.replace_schema_metadata({"countersample": deep}), path)
    with pytest.raises(DataError, match="the note of its schema version is damaged"):
        ClickLog.load(path)
    (tmp_path / IDENTITY).write_text(deep)
    with pytest.raises(DataError, match="levels deep"):
        Store(tmp_path).identity()


# -- normalizers and propensities ----------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"scale": [1e999, 1.0]},
        {"n_features": 2**70},
        {"logs": [1.0]},
        {"logs": [1e-300, 1.0]},
        {"logs": None, "knots": [[], [[0, 0], [0, 1]]]},
        {"logs": None, "knots": [[], [[0, 1, 2], [0, 1]]]},
        {"logs": None, "knots": [[], [list(range(33)), [k / 33 for k in range(33)]]]},
        {"roots": [1, 0]},
        {"how": "root-minmax"},
        {"how": "\ud800"},
    ],
    ids=ascii,
)
def test_crafted_normalizers(change):
    normalizer = Normalizer("minmax", 2, (0.0, 0.0), (1.0, 1.0), logs=(0.0, 2.0))
    values = Preprocessing(normalizer=normalizer).to_dict()
    assert Preprocessing.from_dict(values).normalizer == normalizer
    with pytest.raises(DataError, match=r"the preprocessing (is|has the text)"):
        Preprocessing.from_dict({"normalizer": values["normalizer"] | change})


@pytest.mark.parametrize(
    "change",
    [
        {"kind": ["by context"]},
        {"value": [1, 10**400]},
        {"n_impressions": [1, 10**40]},
    ],
    ids=str,
)
def test_crafted_propensities(change, tmp_path):
    kept = Propensities([1, 0.5], [1, 0.4], [1, 0.6], n_impressions=[9, 9], method="m").to_dict()
    path = tmp_path / "p.json"
    path.write_text(json.dumps(kept))
    load_propensities(path)
    path.write_text(json.dumps(kept | change))
    with pytest.raises(DataError, match=r"p\.json: "):
        load_propensities(path)


# -- click logs ----------------------------------------------------------------------------------

COLUMNS = {"query": [0, 1], "item": [0, 0], "propensity": [0.5, 1.0]}


def write_log(path, columns, **note):
    note = {"schema_version": 1, "dataset": None, "n_sessions": None} | note
    table = pa.table(columns).replace_schema_metadata({"countersample": json.dumps(note)})
    parquet.write_table(table, path)


@pytest.mark.parametrize(
    "columns",
    [
        {"session": [[1], [2, 3]]},
        {"propensity": [0.5, None]},
        {"query": [2**40, 0]},
        {"query": pa.nulls(2, pa.dictionary(pa.int32(), pa.string()))},
    ],
    ids=range(4),
)
def test_crafted_click_logs(columns, tmp_path):
    write_log(tmp_path / "log.parquet", COLUMNS)
    ClickLog.load(tmp_path / "log.parquet")
    write_log(tmp_path / "log.parquet", COLUMNS | columns)
    with pytest.raises(DataError, match=r"log\.parquet: "):
        ClickLog.load(tmp_path / "log.parquet")


def test_a_column_whose_name_is_no_text(tmp_path):
    path = tmp_path / "log.parquet"
    write_log(path, COLUMNS)
    path.write_bytes(path.read_bytes().replace(b"propensity", b"prop\x9ansity"))
    with pytest.raises(DataError, match=r"log\.parquet: not a click log in Parquet .*utf-8"):
        ClickLog.load(path)


# -- studies -------------------------------------------------------------------------------------

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
        ("gamma = [0.5", "gamma = [" + "9" * 5000),
        ("[[claims]]", "[claims]"),
        ('than = "IPS-SGD"', "than = 3"),
        ('methods = ["IPS-SGD"', "methods = [{ name = [], plan = [], unit = [] }"),
        ("gamma = [0.5", "gamma = [1979-05-27"),
    ],
    ids=lambda text: text[:30],
)
def test_crafted_grids(old, new, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(GRID)
    load_grid(path)
    assert old in GRID
    path.write_text(GRID.replace(old, new, 1))
    with pytest.raises(ParameterError, match=r"own\.toml"):
        load_grid(path)


NAMES = ["../../x", "", "a\\b", "a\0b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_study_cannot_be_called_as_a_place(name, tmp_path):
    """Tables and figures are written under its name, which a stranger's folder may say."""
    path = tmp_path / "own.toml"
    path.write_text(GRID)
    identity = json.loads(json.dumps(plan([path], scale="smoke").identity("again")))
    assert read_experiment(identity).grids[0].name == "own"
    identity["grids"] = {name: identity["grids"]["own"]}
    identity["grids"][name]["grid"]["name"] = name
    with pytest.raises(DataError, match=r"does not describe a study .*a study is called"):
        read_experiment(identity)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("grids", []),
        ("grids.own", 3),
        ("grids.own.config", {"no_such": 1}),
        ("grids.own.command", ["rm"]),
        ("grids.own.grid.kind", "no such"),
        ("grids.own.grid.methods", [{"name": "a", "plan": "no such", "unit": "pair"}]),
        ("grids.own.grid.name", "other"),
    ],
)
def test_crafted_results_folders(path, new, tmp_path):
    (tmp_path / "own.toml").write_text(GRID)
    identity = plan([tmp_path / "own.toml"], scale="smoke").identity("again")
    identity = json.loads(json.dumps(identity))
    put(identity, path, new)
    with pytest.raises(DataError, match=f"{IDENTITY} does not describe a study"):
        read_experiment(identity)
    (tmp_path / IDENTITY).write_text(json.dumps(identity))
    told = subprocess.run(
        [sys.executable, "-m", "countersample", "study", "status", tmp_path],
        capture_output=True, text=True, check=False,
    ) if path == "grids" else None  # fmt: skip
    if told is not None:
        assert told.returncode
        assert "Traceback" not in told.stderr


# -- places --------------------------------------------------------------------------------------

LONG = "a" * 300  # no file can be called that


def test_a_file_without_an_end():
    endless = Path("/dev/zero")
    for load in (load_ranker, load_scorer):
        with pytest.raises(DataError, match="/dev/zero: not a ranker file"):
            load(endless)
    with pytest.raises(DataError, match="/dev/zero: has more than"):
        load_propensities(endless)
    with pytest.raises(ParameterError, match="/dev/zero: has more than"):
        load_grid(endless)


def test_folders_that_cannot_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for name in (LONG, "loop", "loop/x"):
        store = Store(Path(name))
        assert not store.is_begun()
        assert not store.is_locked()
        with pytest.raises(CounterSampleError, match="cannot be made"):
            store.claim({"format": 4, "scale": "smoke", "grids": {}})
        with pytest.raises(ParameterError, match="expected a file, a folder"):
            find_source(name)
        with pytest.raises(DataError, match="is not a folder"):
            catalogue.verify(name)
    with pytest.raises(DataError, match="is a file, expected a folder"):
        Store(Path("/dev/null")).claim({})


def test_a_folder_that_may_not_be_looked_into(tmp_path, monkeypatch):
    """Root may look into all, so the answer of the system is made up."""

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    for name in ("stat", "iterdir"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setenv(catalogue.ENVIRONMENT_VARIABLE, str(tmp_path))
    assert not Store(tmp_path).is_begun()
    with pytest.raises(DataError, match="is not there as a folder"):
        catalogue.find("mq2008")


def test_the_home_of_nobody(monkeypatch):
    monkeypatch.setenv(catalogue.ENVIRONMENT_VARIABLE, "~no-such-user/data")
    with pytest.raises(DataError, match="in ~no-such-user/data or"):
        catalogue.find("mq2008")


def test_a_result_that_is_none(tmp_path):
    (tmp_path / "own.toml").write_text(GRID)
    store = Store(tmp_path)
    job = next(job for job in plan([tmp_path / "own.toml"], scale="smoke").work().jobs.values()
               if job.stage == "levels")  # fmt: skip
    store.path(job).parent.mkdir(parents=True)
    store.path(job).write_text("[1]")
    assert not store.has(job)
    with pytest.raises(DataError, match="is damaged, expected an object"):
        store.read(job)
    store.path(job).write_text('{"best": 1}')
    assert store.read(job)["best"] == 1
    with pytest.raises(DataError, match="is damaged, it has no 'policy': delete it"):
        store.read(job)["policy"]
