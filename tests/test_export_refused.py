"""What a target cannot express is refused before anything is written."""

import errno
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_rankers import KINDS, NAMES, made

from countersample import CounterSampleRanker
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.export import export
from countersample.export.exporting import TARGETS
from countersample.rankers import UnfittedRankerError

BY_QUERY = (
    " scores item by item and cannot normalise by query (normalize='query-minmax'): train with "
    "normalize='minmax' or 'standard', or normalise in your own pipeline and train with "
    "normalize=None, or export to ONNX with one_query=True (--to onnx --one-query)"
)
NEURAL = (
    " cannot express a neural ranker: export it to ONNX or Solr or SQL (--to onnx, --to solr, --to "
    "sql), or train a linear or boosted one"
)
NAMELESS = (
    " knows features by name, and this ranker has none: give the 7 names, in the order of "
    "training, with feature_names (--feature-names)"
)
ONE_QUERY = (
    "this ranker normalises by query (normalize='query-minmax'), so its graph has to be called "
    "with all items of one query: say that you will with one_query=True (--one-query), or train "
    "with normalize='minmax' or 'standard'"
)
NO_QUERY = (
    "this ranker normalises by query (normalize='query-minmax'), so the view needs the "
    "column of the query: name it with query (--query)"
)
NOT_ONE_QUERY = (
    "one_query is True, expected it only for a ranker with normalize='query-minmax': leave it out, "
    "and the graph takes the items of any queries together"
)
TREES = (
    "model_type is 'linear', expected 'xgboost+json' or 'ranklib' for a boosted ranker in "
    "OpenSearch"
)
WITH_LINEAR = (
    " has models of trees and linear ones, but no sum of both, and the trees of this ranker add to "
    "a linear one, from which they were boosted: export to ONNX (--to onnx) or SQL (--to sql), or "
    "train with start='zero'"
)
NAME = (
    "name is 'my model', expected letters, digits, '_', '.' and '-' only: name the model with name "
    "(--name)"
)
STORE = (
    "feature_store is {}, expected letters, digits, '_', '.' and '-' only: name the feature store "
    "with feature_store (--feature-store)"
)
STRING = (
    "feature_names is 'abcdefg', expected a list of names: one for each feature, in the order of "
    "training"
)
TOO_FEW = "feature_names has 2 names, expected 7: one for each feature, in the order of training"


class TestRefused:
    @pytest.mark.parametrize(
        ("kind", "how", "options", "sentence"),
        [
            *[(kind, "query-minmax", {"to": "solr"}, f"Solr{BY_QUERY}") for kind in KINDS],
            ("linear", "query-minmax", {"to": "elasticsearch"}, f"Elasticsearch{BY_QUERY}"),
            ("boosted", "query-minmax", {"to": "opensearch"}, f"OpenSearch{BY_QUERY}"),
            ("neural", None, {"to": "elasticsearch"}, f"Elasticsearch{NEURAL}"),
            ("neural", None, {"to": "opensearch"}, f"OpenSearch{NEURAL}"),
            ("linear", None, {"to": "solr", "names": None}, f"Solr{NAMELESS}"),
            ("boosted", None, {"to": "elasticsearch", "names": None}, f"Elasticsearch{NAMELESS}"),
            ("linear", "query-minmax", {"to": "onnx"}, ONE_QUERY),
            ("linear", None, {"to": "onnx", "one_query": True}, NOT_ONE_QUERY),
            ("linear", "query-minmax", {"to": "sql"}, NO_QUERY),
            ("linear", None, {"to": "sql", "names": None}, f"SQL{NAMELESS}"),
            (
                "linear", None, {"to": "onnx", "dialect": "spark"},
                "dialect is given, expected it left out: onnx has no such choice",
            ),
            (
                "linear", None, {"to": "solr", "one_query": True},
                "one_query is given, expected it left out: solr has no such choice",
            ),
            (
                "linear", None, {"to": "onnx", "feature_store": "s"},
                "feature_store is given, expected it left out: onnx has no such choice",
            ),
            (
                "linear", None, {"to": "elasticsearch", "model_type": "ranklib"},
                "model_type is 'ranklib', expected 'linear' for a linear ranker in Elasticsearch",
            ),
            ("boosted", None, {"to": "opensearch", "model_type": "linear"}, TREES),
            (
                "linear", None, {"to": "vespa"},
                "to is 'vespa', expected one of onnx, elasticsearch, opensearch, solr, sql",
            ),
            ("linear", None, {"to": "solr", "name": "my model"}, NAME),
            ("linear", None, {"to": "onnx", "feature_names": ["a", "b"]}, TOO_FEW),
            (
                "linear", None, {"to": "solr", "feature_names": list("abcdefa")},
                "feature_names has 'a' more than once, expected each feature to have its own",
            ),
            (
                "linear", None, {"to": "solr", "feature_names": ["a", "", *"cdefg"]},
                "feature_names has an empty name at index 1, expected a name for each",
            ),
            (
                "linear", None, {"to": "solr", "feature_names": "abcdefg"},
                STRING,
            ),
            ("linear", None, {"to": "solr", "feature_store": ""}, STORE.format("''")),
            ("linear", None, {"to": "opensearch", "feature_store": "a/b"}, STORE.format("'a/b'")),
            (
                "linear", None, {"to": "onnx", "feature_store": ""},
                "feature_store is given, expected it left out: onnx has no such choice",
            ),
            (
                "linear", None, {"to": "elasticsearch", "model_type": ""},
                "model_type is '', expected 'linear' for a linear ranker in Elasticsearch",
            ),
        ],
    )  # fmt: skip
    def test_before_anything_is_written(self, kind, how, options, sentence, rng, tmp_path):
        options = dict(options)
        ranker, _ = made(kind, how, rng, names=options.pop("names", NAMES))
        old = tmp_path / "r.out"
        old.write_text("the model of yesterday")
        with pytest.raises(ParameterError) as error:
            export(ranker, old, **options)
        assert str(error.value) == sentence
        assert old.read_text() == "the model of yesterday"
        assert list(tmp_path.iterdir()) == [old]

    @pytest.mark.parametrize("to", ["elasticsearch", "opensearch", "solr"])
    def test_trees_with_a_linear_part(self, to, rng, tmp_path):
        ranker, _ = made("boosted", None, rng)
        ranker.scorer_ = replace(ranker.scorer_, base=np.ones(len(NAMES)))
        with pytest.raises(ParameterError) as error:
            export(ranker, tmp_path / "r.out", to=to)
        assert str(error.value) == f"{TARGETS[to].system}{WITH_LINEAR}"
        assert not any(tmp_path.iterdir())

    def test_paths(self, rng, tmp_path):
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

    @pytest.mark.parametrize("path", [".", "/", "..", ""])
    def test_a_folder(self, path, rng, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        ranker, _ = made("linear", None, rng)
        with pytest.raises(ParameterError) as error:
            export(ranker, path, to="solr")
        expected = f"{path or '.'} is a folder, expected the name of a file"
        assert str(error.value) == expected
        assert not any(tmp_path.iterdir())

    @pytest.mark.parametrize("length", [250, 300])
    def test_a_name_that_is_too_long(self, length, rng, tmp_path):
        ranker, _ = made("linear", None, rng)
        with pytest.raises(
            CounterSampleError, match=r"a(\.md)?: cannot be written: File name too long$"
        ):
            export(ranker, tmp_path / ("a" * length), to="solr", name="a")
        assert not any(tmp_path.iterdir())

    def test_a_ranker_is_not_replaced(self, rng, tmp_path):
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

    @pytest.mark.parametrize("name", ["r.json", "r.md", "r.features.json"])
    def test_a_full_disk(self, name, rng, tmp_path, monkeypatch):
        write = Path.write_bytes

        def full(path, content):
            if path.name.startswith(f".{name}."):
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(path, content)

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(CounterSampleError) as error:
            export(made("linear", None, rng)[0], tmp_path / "r.json", to="solr")
        assert str(error.value) == f"{tmp_path / name}: cannot be written: No space left on device"
        assert not any(tmp_path.iterdir())

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

    def test_unfitted(self, tmp_path):
        with pytest.raises(UnfittedRankerError, match="is not fitted yet"):
            export(CounterSampleRanker(), tmp_path / "r.json", to="solr")

    @pytest.mark.parametrize("to", ["solr", "elasticsearch"])
    def test_a_scale_that_float32_does_not_have(self, to, rng, tmp_path):
        ranker, _ = made("linear", "standard", rng)
        scale = (1e-50, *ranker.normalizer_.scale[1:])
        ranker.normalizer_ = replace(ranker.normalizer_, scale=scale)
        with pytest.raises(DataError, match=r"feature 0 is normalised with a scale of 1e-50"):
            export(ranker, tmp_path / "r.json", to=to)
