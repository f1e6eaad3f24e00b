"""The model card, what a ranker remembers of its origin, and the command."""

import json
import re

import numpy as np
import pytest
from conftest import SEED
from made_rankers import KINDS, NAMES, made, predict
from markdown_it import MarkdownIt
from readers_export import elasticsearch_scores, solr_scores
from shops import make, opened

from countersample import CounterSampleRanker
from countersample.export import export
from countersample.fitting import fit_from_impressions
from countersample.rankers import load_ranker

GAIN = {
    "metric": "dcg@10", "per": "session", "relative": 0.162, "relative_low": 0.146,
    "relative_high": 0.178, "confidence": 0.95, "logged": 1.827, "new": 2.124,
}  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    """A ranker in a file, and the rows it was trained on."""
    features = np.random.default_rng(SEED).random((20, 3)).astype(np.float32)
    clicks, qid = np.arange(20) % 3, np.repeat([1, 2, 3, 4], 5)
    ranker = CounterSampleRanker(steps=200, learning_rate=0.01, random_state=0)
    ranker.fit(features, clicks, qid=qid).save(tmp_path / "ranker.json")
    return ranker, features


def card_of(ranker, tmp_path, **options):
    return export(ranker, tmp_path / "shop.json", **options).card.read_text()


class TestCard:
    def test_a_name_that_looks_like_a_table(self, rng, tmp_path):
        names = ["a|b", *NAMES[1:]]
        card = card_of(made("linear", None, rng)[0], tmp_path, to="solr", feature_names=names)
        assert "| 0 | a\\|b |" in card

    def test_numbers_of_its_origin(self, rng, tmp_path):
        ranker, _ = made("linear", "minmax", rng)
        ranker.provenance_ |= {
            "n_clicks": 25_637.0, "mean_weight": 2.841, "max_weight": 10.31, "gain": GAIN,
            "data": "features.parquet", "propensities": "estimated by all-pairs",
            "log": {"file": "impressions.parquet", "impressions": 200_000, "clicks": 25_640,
                    "sessions": None},
        }  # fmt: skip
        card = card_of(ranker, tmp_path, to="solr")
        for told in [
            "| data | features.parquet: 1 queries, 400 items, 7 features |",
            "| log | impressions.parquet: 200,000 impressions, 25,640 clicks |",
            "| clicks used | 25,637 |",
            "| weight of a click | 2.84 on average, 10.3 at most |",
            "| propensities | estimated by all-pairs |",
            "| fingerprint of the data | `0123` |",
            "**+16.2% dcg@10** over the current ranker (95% interval +14.6% to +17.8%)",
            "2.124 per session instead of 1.827.",
            "| `normalize` | `'minmax'` |",
            "for Solr (LinearModel): [shop.json](shop.json)",
        ]:  # fmt: skip
            assert told in card

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_snippet_for_onnx_runs(self, kind, rng, tmp_path, monkeypatch):
        ranker, _ = made(kind, "minmax", rng)
        card = export(ranker, tmp_path / "shop.onnx", to="onnx").card.read_text()
        (snippet,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
        monkeypatch.chdir(tmp_path)
        found = {}
        exec(snippet, found)  # noqa: S102 (it is ours)
        expected = predict(ranker, np.zeros((3, len(NAMES)), np.float32))
        assert np.allclose(found["scores"], expected, rtol=1e-5)


@pytest.mark.slow
def test_a_fit_remembers_its_origin(tmp_path):
    """Through the file, to the card."""
    log, features = make(SEED, sessions=1000)
    fit = fit_from_impressions(*opened(log, features), seed=SEED)
    fit.ranker.save(tmp_path / "ranker.json")
    ranker = load_ranker(tmp_path / "ranker.json")
    origin, gain = ranker.provenance_, fit.gain
    assert origin["propensities"] == fit.propensity_source.source
    assert origin["log"]["impressions"] == fit.check.counts.n_impressions
    assert origin["log"]["sessions"] == 1000
    assert origin["gain"]["relative"] == gain.relative
    assert (origin["gain"]["logged"], origin["gain"]["new"]) == (gain.logged.value, gain.new.value)
    names = [f"f{index}" for index in range(ranker.n_features_in_)]
    card = card_of(ranker, tmp_path, to="solr", feature_names=names)
    assert f"**{gain.relative:+.1%} dcg@10** over the current ranker" in card
    assert f"| propensities | {fit.propensity_source.source} |" in card
    assert f"Verdict of the training: {fit.verdict}" in card
    assert all(f"Warning: {text}" in card for text in fit.warnings)


class TestCommand:
    @pytest.mark.usefixtures("saved")
    def test_text_and_json(self, run):
        words = ["export", "ranker.json", "--to", "onnx", "-o", "shop.onnx", "--name", "tuesday"]
        printed = run(*words)
        assert "tuesday, 3 features" in printed
        assert "gives the ranker's scores on 64 rows." in printed
        assert "The model is in shop.onnx; how to load it is in shop.md" in printed
        figures = json.loads(run(*words, "--json"))
        assert (figures["path"], figures["card"]) == ("shop.onnx", "shop.md")
        assert (figures["name"], figures["system"]) == ("tuesday", "ONNX")
        assert (figures["n_features"], len(figures["limits"])) == (3, 1)

    def test_names_with_commas_or_in_a_file(self, run, saved, tmp_path):
        ranker, features = saved
        run("export", "ranker.json", "--to", "solr", "-o", "a.json", "--feature-names", "x, y,z")
        (tmp_path / "names.txt").write_text("x\ny\nz\n")
        arguments = ["--to", "opensearch", "-o", "b.json", "--feature-names", "@names.txt"]
        run("export", "ranker.json", *arguments)
        names = ("x", "y", "z")
        expected = ranker.predict(features)
        assert np.allclose(solr_scores(tmp_path / "a.json", names, features), expected)
        assert np.allclose(elasticsearch_scores(tmp_path / "b.json", names, features), expected)

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--to", "solr"], "countersample: Solr identifies features by name, and this ranker"),
            (["--to", "lucene"], "countersample: --to is 'lucene', expected one of onnx, "),
            (["--to", "solr", "--feature-names", "@none"], "countersample: none: cannot be read"),
            (["--to", "onnx", "--model-type", "linear"], "countersample: --model-type is given, "),
        ],
    )
    @pytest.mark.usefixtures("saved")
    def test_errors(self, arguments, sentence, run, tmp_path):
        assert run("export", "ranker.json", *arguments, "-o", "m", fails=True).startswith(sentence)
        assert [path.name for path in tmp_path.iterdir()] == ["ranker.json"]


EVIL = "<script>alert(1)</script>`**[x](https://evil.example)**|\n# h\x1b[31m\u202e"


@pytest.mark.parametrize("to", ["solr", "elasticsearch", "onnx"])
@pytest.mark.parametrize("card", ["markdown", "html"])
def test_no_markup_of_others_in_a_card(to, card, rng, tmp_path):
    ranker, _ = made("linear", "minmax", rng)
    ranker.fingerprint_ = EVIL
    ranker.provenance_ |= {
        "data": EVIL, "log": {"file": EVIL}, "propensities": EVIL, "choice": EVIL, "verdict": EVIL,
        "warnings": [EVIL], "versions": {EVIL: EVIL},
        "gain": {"metric": EVIL, "per": EVIL, "relative": 0.1, "relative_low": 0.0,
                 "relative_high": 0.2, "confidence": 0.95, "new": 2.0, "logged": 1.0},
    }  # fmt: skip
    ranker.random_state = EVIL
    file = tmp_path / "a<b>`c`;$(d) 'e'\"f\".json"
    names = [EVIL, *NAMES[1:]]
    written = export(ranker, file, to=to, name="shop", feature_names=names, card=card).card
    text = written.read_text("utf-8")
    if card == "markdown":
        text = MarkdownIt("commonmark").enable("table").render(text)
    assert "<script>alert" not in text
    assert 'href="https' not in text
    assert not {"\x1b", "\u202e"} & set(text)
    assert r"\u001b[31m\u202e" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<b>c</b>" not in text


def test_commands_of_a_card_quote_the_name_of_the_file(rng, tmp_path):
    ranker, _ = made("linear", None, rng)
    file = tmp_path / "a b;touch x.json"
    for to in ("solr", "opensearch"):
        card = export(ranker, file, to=to, name="shop").card.read_text()
        assert "@'a b;touch x.json'" in card
    card = export(ranker, tmp_path / 'a"b.onnx', to="onnx", name="shop").card.read_text()
    assert r'InferenceSession("a\"b.onnx")' in card
