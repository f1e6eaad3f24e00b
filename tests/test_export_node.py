"""ONNX models score as the ranker does in a second runtime, too: onnxruntime in Node."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_rankers import CONSTANT, KINDS, NAMES, made, predict
from requirements import need

from countersample.data.preprocessing import Imputer
from countersample.export import export

SCRIPT = Path(__file__).with_name("onnx_node.js")
HOWS = [None, "minmax", "standard", "root-minmax", "query-minmax"]


@pytest.fixture(scope="module")
def score():
    """Return a function that scores rows with a model in Node."""
    need("node")
    node = shutil.which("node")

    def score(model, rows):
        rows = np.ascontiguousarray(rows, np.float32)
        command = [node, str(SCRIPT), str(model), str(rows.shape[1])]
        done = subprocess.run(command, input=rows.tobytes(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        return np.frombuffer(done.stdout, np.float32)

    return score


def assert_same(scores, expected):
    assert scores.shape == expected.shape
    assert np.abs(scores - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", KINDS)
def test_scores(kind, how, score, rng, tmp_path):
    """Values at the thresholds of trees, and right beside them, are among the rows."""
    ranker, rows = made(kind, how, rng)
    if how == "root-minmax":
        roots = [0 if index == CONSTANT else index % 3 for index in range(len(NAMES))]
        ranker.preprocessing_ = replace(
            ranker.preprocessing_,
            normalizer=replace(ranker.preprocessing_.normalizer, roots=tuple(roots)),
        )
        rows = rows[:200]
    export(ranker, tmp_path / "r.onnx", to="onnx", one_query=how == "query-minmax")
    assert_same(score(tmp_path / "r.onnx", rows), predict(ranker, rows))


def test_trees_with_a_linear_part(score, rng, tmp_path):
    ranker, rows = made("boosted", "minmax", rng)
    ranker.scorer_ = replace(ranker.scorer_, base=rng.standard_normal(len(NAMES)))
    export(ranker, tmp_path / "r.onnx", to="onnx")
    assert_same(score(tmp_path / "r.onnx", rows), predict(ranker, rows))


@pytest.mark.parametrize("how", [None, "minmax"])
class TestMissing:
    """What is missing is NaN."""

    @pytest.mark.parametrize("kind", ["linear", "neural"])
    def test_imputed(self, kind, how, score, rng, tmp_path):
        """Five features and two indicators are the seven that scorer and normalizer take."""
        ranker, rows = made(kind, how, rng)
        fill = tuple(rows[0, :5].astype(float).tolist())
        ranker.preprocessing_ = replace(
            ranker.preprocessing_, imputer=Imputer(5, fill, indicators=(1, 2))
        )
        ranker._remember_features(5, NAMES[:5])
        rows = rows[:, :5]
        rows[rng.random(rows.shape) < 0.3] = np.nan
        export(ranker, tmp_path / "r.onnx", to="onnx")
        assert_same(score(tmp_path / "r.onnx", rows), predict(ranker, rows))

    def test_in_trees(self, how, score, rng, tmp_path):
        ranker, rows = made("boosted", how, rng)
        is_left = rng.random(len(ranker.scorer_.feature)) < 0.5
        ranker.scorer_ = replace(ranker.scorer_, missing_left=is_left)
        rows[rng.random(rows.shape) < 0.3] = np.nan
        export(ranker, tmp_path / "r.onnx", to="onnx")
        assert_same(score(tmp_path / "r.onnx", rows), predict(ranker, rows))
