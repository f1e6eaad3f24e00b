"""``countersample train`` evaluates the ranker on held-out clicks, and records the verdict."""

import json

import numpy as np
import pytest
from conftest import SEED

from countersample import CounterSampleRanker, save_letor, simulate_clicks, synthetic
from countersample.evaluation import estimate_gain
from countersample.fitting import evaluate_training
from countersample.rankers import load_ranker

RANKER = CounterSampleRanker(steps=2000, learning_rate=0.003, random_state=0)
DATA = synthetic("tiny", rng=0)
LOG = simulate_clicks(DATA, DATA.features[:, 0], n_clicks=5000, relevant=1, rng=SEED)


class TestEvaluation:
    def test_each_query_is_ranked_without_its_clicks(self):
        """One that knows the clicks it was trained on by heart knows nothing of the others."""

        class ByHeart(CounterSampleRanker):
            def fit_log(self, dataset, log, *, progress=None):
                super().fit_log(dataset, log, progress=progress)
                self.heart_ = np.bincount(
                    dataset.offsets[log.query] + log.item, log.weights, dataset.n_items
                )
                self.start_ = {int(q): dataset.offsets[k] for k, q in
                               enumerate(dataset.query_ids)}  # fmt: skip
                return self

            def predict(self, X, qid=None):  # noqa: N803, ARG002
                starts = [self.start_[int(q)] for q in X.query_ids]
                rows = [self.heart_[s : s + n] for s, n in zip(starts, X.query_sizes, strict=True)]
                return np.concatenate(rows)

            staged_predict = property()  # it has none

        by_heart = ByHeart(steps=10, learning_rate=1e-9, random_state=0)
        nothing = estimate_gain(np.zeros(DATA.n_items), LOG, DATA)
        found = evaluate_training(by_heart, DATA, LOG).gain
        assert found.new.value == pytest.approx(nothing.new.value)
        assert found.logged.value == pytest.approx(nothing.logged.value)

    def test_a_gain_and_its_words(self):
        found = evaluate_training(RANKER, DATA, LOG)
        assert found.gain.low > 0
        assert found.verdict.startswith("The ranker is better than your current ranker: +")
        assert found.provenance["gain"]["relative"] == found.gain.relative
        assert any(
            "feature was computed from these clicks, is not known" in told
            for told in found.warnings
        )

    @pytest.mark.parametrize(
        ("log", "told"),
        [
            (LOG.replace(position=None), "no positions"),
            (LOG.of_queries([int(LOG.query[0])]), "clicks on one query only"),
        ],
    )
    def test_no_evaluation(self, log, told):
        found = evaluate_training(RANKER, DATA, log)
        assert found.gain is None
        assert found.verdict.startswith("Not evaluated: ")
        assert told in found.verdict
        assert "gain" not in found.provenance


class TestCommand:
    @pytest.fixture(autouse=True)
    def _data(self, tmp_path):
        save_letor(DATA, tmp_path / "data.txt")
        LOG.replace(fingerprint=None).save(tmp_path / "log.parquet")

    TRAIN = ("train", "data.txt", "log.parquet", "-o", "ranker", "--steps", 2000,
             "--learning-rate", 0.003)  # fmt: skip

    def test_the_verdict_travels(self, run):
        printed = run(*self.TRAIN)
        assert "new ranker" in printed
        assert "The ranker is better than your current ranker: +" in printed
        assert "Warning: The log has clicks only" in printed
        kept = load_ranker("ranker").provenance_
        assert kept["verdict"].startswith("The ranker is better than your current ranker: +")
        run("export", "ranker", "--to", "onnx", "-o", "model.onnx")
        with open("model.md", encoding="utf-8") as card:  # noqa: PTH123
            text = card.read()
        assert f"{kept['gain']['relative']:+.1%} dcg@10" in text
        assert "The log has clicks only" in text
        found = json.loads(run(*self.TRAIN, "--json"))
        assert found["verdict"] == kept["verdict"]
        assert found["gain"]["relative"] == kept["gain"]["relative"]
