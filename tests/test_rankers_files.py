"""Files of every ranker: to the bit, without the library that trained it, refused where damaged."""

import json
import subprocess
import sys
from copy import copy

import numpy as np
import pandas as pd
import pytest
from conftest import SEED
from every_ranker import RANKERS, TRAINABLE, each_scaling, every, fit, fitted, make, table, tiny

from countersample.errors import CounterSampleError, DataError
from countersample.rankers import load_ranker


@each_scaling
def test_a_saved_ranker_scores_the_same_to_the_bit(kind, tmp_path, scaling):
    dataset, log = tiny()
    ranker = make(kind, **scaling, l2=np.float32(0.1)).fit_log(dataset, log)
    ranker.save(tmp_path / "ranker.json")
    loaded = load_ranker(tmp_path / "ranker.json")
    assert type(loaded) is type(ranker)
    np.testing.assert_array_equal(loaded.predict(dataset), ranker.predict(dataset))
    assert loaded.get_params() == ranker.get_params()
    assert loaded.normalizer_ == ranker.normalizer_
    assert not hasattr(loaded, "feature_names_in_")
    seen = {"history_", "path_", "served_"}  # on the way
    kept = {name for name in vars(ranker) if name.endswith("_")} - seen
    for name in kept - {"scorer_", "normalizer_"}:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(ranker, name))
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "ranker.json").read_bytes()
    content = json.loads((tmp_path / "ranker.json").read_text())["ranker"]
    assert set(content["written_by"]) == {"countersample", "numpy", "python", "scikit-learn"}


SCORE_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lightgbm", "xgboost", "torch"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
import countersample.gbdt
import countersample.torch
from countersample.rankers import load_ranker
for kind in sys.argv[1:]:
    np.save(f"{kind}.npy", load_ranker(f"{kind}.json").predict(np.load("features.npy")))
"""


def test_they_rank_without_the_libraries_that_trained_them(tmp_path):
    np.save(tmp_path / "features.npy", tiny()[0].features)
    for kind in TRAINABLE:
        fitted(kind).save(tmp_path / f"{kind}.json")
    subprocess.run([sys.executable, "-c", SCORE_WITHOUT, *TRAINABLE], cwd=tmp_path, check=True)
    for kind in TRAINABLE:
        scores = np.load(tmp_path / f"{kind}.npy")
        np.testing.assert_array_equal(scores, fitted(kind).predict(tiny()[0]))


@every
def test_names_are_saved(kind, tmp_path):
    names = ["bm25", "größe", "c", "d", "e"]
    frame = pd.DataFrame(table()[0], columns=names)
    rng = np.random.default_rng(SEED)
    fit(make(kind, random_state=rng), (frame, *table()[1:])).save(tmp_path / "r")
    loaded = type(make(kind)).load(tmp_path / "r")
    assert loaded.feature_names_in_.tolist() == names
    assert loaded.random_state is None
    with pytest.raises(DataError, match="order") as raised:
        loaded.predict(frame[names[::-1]])
    assert "\n" not in str(raised.value)


@every
def test_files_that_are_refused(kind, tmp_path):
    path, ranker = tmp_path / "ranker.json", fitted(kind)
    ranker.save(path)
    text = path.read_text()

    def refused(content, match):
        path.write_text(content)
        with pytest.raises(DataError, match=match) as raised:
            load_ranker(path)
        assert str(path) in str(raised.value)

    refused("", "not a ranker file")
    refused('{"some": "json"}', "not a ranker file")
    refused(text[: len(text) // 2], "a damaged ranker file")
    refused(text.replace('"n_queries_": 40', '"n_queries_": 41'), "damaged .*it was changed")
    refused(text.replace('"version": 1', '"version": 2', 1), "format version 2, expected 1")
    path.unlink()
    with pytest.raises(DataError, match="No such file"):
        load_ranker(path)
    with pytest.raises(CounterSampleError, match="cannot save a object, expected plain values"):
        copy(ranker).set_params(clip=object()).save(path)
    assert not path.exists()


@every
def test_a_file_of_another_kind(kind, tmp_path):
    fitted(kind).save(tmp_path / "ranker.json")
    for other in {type(make(each)) for each in RANKERS} - {type(fitted(kind))}:
        with pytest.raises(DataError, match=f"of the kind '{fitted(kind).kind}', expected '"):
            other.load(tmp_path / "ranker.json")
