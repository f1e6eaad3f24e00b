"""What a target cannot express is an error before anything is written."""

import errno
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_rankers import KINDS, NAMES, made

from countersample import CounterSampleRanker
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.export import export

SEARCH = ("elasticsearch", "opensearch", "solr")
CASES = [  # the kind of ranker, its normalisation, the options, and a part of the message
    *[(kind, "query-minmax", {"to": "solr"}, "cannot normalise by query") for kind in KINDS],
    ("linear", "query-minmax", {"to": "elasticsearch"}, "cannot normalise by query"),
    ("linear", "query-minmax", {"to": "onnx"}, "one_query=True (--one-query)"),
    ("linear", "query-minmax", {"to": "sql"}, "name it with query (--query)"),
    ("neural", None, {"to": "opensearch"}, "export it to ONNX or Solr or SQL"),
    *[("linear", None, {"to": to, "names": None}, "knows features by name") for to in SEARCH],
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
]


@pytest.mark.parametrize(("kind", "how", "options", "message"), CASES)
def test_before_anything_is_written(kind, how, options, message, rng, tmp_path):
    options = dict(options)
    ranker, _ = made(kind, how, rng, names=options.pop("names", NAMES))
    old = tmp_path / "r.out"
    old.write_text("the model of yesterday")
    with pytest.raises(ParameterError) as error:
        export(ranker, old, **options)
    assert message in str(error.value)
    assert old.read_text() == "the model of yesterday"
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("to", ["elasticsearch", "opensearch", "solr"])
def test_trees_with_a_linear_part(to, rng, tmp_path):
    ranker, _ = made("boosted", None, rng)
    ranker.scorer_ = replace(ranker.scorer_, base=np.ones(len(NAMES)))
    with pytest.raises(ParameterError, match="but no sum of both"):
        export(ranker, tmp_path / "r.out", to=to)
    assert not any(tmp_path.iterdir())


def test_paths(rng, tmp_path):
    ranker, _ = made("linear", None, rng)
    (tmp_path / "README.md").write_text("# Ours")
    (tmp_path / "folder").mkdir()
    for name, sentence in {
        "r.md": "the model's card is to be there, expected another ending",
        "none/r.json": "is not there: make it first",
        "folder": "is a folder, expected the name of a file",
        "README.json": "the model's card is to be there, but another text is",
    }.items():
        with pytest.raises(ParameterError, match=sentence):
            export(ranker, tmp_path / name, to="solr")
    assert (tmp_path / "README.md").read_text() == "# Ours"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "folder"]


def test_a_ranker_is_not_replaced(rng, tmp_path):
    path = tmp_path / "ranker.json"
    CounterSampleRanker(random_state=0).fit([[0.2], [0.9]], [0, 3], qid=[1, 1]).save(path)
    before = path.read_bytes()
    with pytest.raises(ParameterError) as error:
        export(made("linear", None, rng)[0], path, to="solr")
    assert str(error.value) == (
        f"{path} is a ranker, expected another name: the export would replace it"
    )
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_no_new_card_with_an_old_model(rng, tmp_path, monkeypatch):
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


@pytest.mark.parametrize("to", ["solr", "elasticsearch"])
def test_a_scale_that_float32_does_not_have(to, rng, tmp_path):
    ranker, _ = made("linear", "standard", rng)
    scale = (1e-50, *ranker.preprocessing_.normalizer.scale[1:])
    ranker.preprocessing_ = replace(
        ranker.preprocessing_, normalizer=replace(ranker.preprocessing_.normalizer, scale=scale)
    )
    with pytest.raises(DataError, match=r"feature 0 is normalised with a scale of 1e-50"):
        export(ranker, tmp_path / "r.json", to=to)
