"""ONNX models score as the ranker does in a second runtime, too: onnxruntime in Node."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_rankers import KINDS, NAMES, made, made_missing, predict
from requirements import need

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


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [made, made_missing])
def test_scores(kind, how, make, score, rng, tmp_path):
    """Values at the thresholds of trees, beside them, and NaN are among the rows."""
    ranker, rows = make(kind, how, rng)
    if kind == "boosted" and make is made and how == "minmax":
        ranker.scorer_ = replace(ranker.scorer_, base=rng.standard_normal(len(NAMES)))
    export(ranker, tmp_path / "r.onnx", to="onnx", one_query=how == "query-minmax")
    expected = predict(ranker, rows)
    scores = score(tmp_path / "r.onnx", rows)
    assert scores.shape == expected.shape
    assert np.abs(scores - expected).max() <= 1e-5 * np.abs(expected).max()
