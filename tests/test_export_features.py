"""The definition of features beside a model is valid, gives the model its values, and stays."""

import json
import re

import numpy as np
import pytest
from made_rankers import NAMES, made, predict
from readers_export import (
    elasticsearch_features,
    elasticsearch_scores,
    solr_features,
    solr_scores,
    validate,
)

from countersample.errors import ParameterError
from countersample.export import export

SEARCH = ["elasticsearch", "opensearch"]
ODD = ('a "b"', "ü\\", "{{c}}", "$d", "e/f", "g h", "i'j")


def documents(rows, names):
    return [dict(zip(names, map(float, row), strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("to", "store", "kind", "names"),
    [("elasticsearch", None, "linear", NAMES), ("elasticsearch", None, "boosted", ODD),
     ("opensearch", None, "linear", ODD), ("solr", None, "boosted", NAMES),
     ("solr", "s", "linear", ODD)],
)  # fmt: skip
def test_from_a_document_to_its_score(to, store, kind, names, rng, tmp_path):
    """By the definition and the model as they are."""
    ranker, rows = made(kind, "minmax", rng, names=names)
    written = export(ranker, tmp_path / "shop.json", to=to, feature_store=store)
    assert written.features == tmp_path / "shop.features.json"
    if to == "solr":
        defined, values = solr_features(written.features, store, documents(rows, names))
        scores = solr_scores(written.path, defined, values.astype(np.float32))
    else:
        defined, values = elasticsearch_features(written.features, documents(rows, names))
        scores = elasticsearch_scores(written.path, defined, values.astype(np.float32))
    assert defined == list(names)
    expected = predict(ranker, rows)
    assert np.allclose(scores, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


class TestRequests:
    @pytest.mark.parametrize("to", SEARCH)
    def test_search(self, to, rng, tmp_path):
        written = export(
            made("linear", None, rng)[0], tmp_path / "my shop.json", to=to, name="shop",
            feature_store="things",
        )  # fmt: skip
        card = written.card.read_text()
        template, request = map(_read, re.findall(r"```json\n(.*?)```", card, re.DOTALL))
        assert template == {"template": {"match": {"title": "{{keywords}}"}}}
        validate(request, "elasticsearch_rescore")
        sltr = request["rescore"]["query"]["rescore_query"]["sltr"]
        assert sltr["model"] == "shop"
        features = json.loads(written.features.read_text())["featureset"]["features"]
        assert all(set(feature["params"]) == set(sltr["params"]) for feature in features)
        assert '_ltr/_featureset/things" \\\n' in card
        assert "-d @'my shop.features.json'" in card
        assert card.index("'my shop.features.json'") < card.index("-d @'my shop.json'")
        release = {"elasticsearch": "1.5 and later", "opensearch": "OpenSearch 2.19 and later"}
        assert release[to] in card

    def test_solr(self, rng, tmp_path):
        written = export(made("neural", None, rng)[0], tmp_path / "shop.json", to="solr")
        card = written.card.read_text()
        (template,) = map(_read, re.findall(r"```json\n(.*?)```", card, re.DOTALL))
        feature = json.loads(written.features.read_text())[0] | template
        validate([feature], "solr_features")
        assert "${keywords}" in feature["params"]["q"]
        assert "rq={!ltr model=shop reRankDocs=100 efi.keywords='shoes'}" in card
        assert card.index("schema/feature-store") < card.index("schema/model-store")
        assert "Solr 9 and later" in card


def _read(text):
    """Return JSON; entries alone stand for an object that has them."""
    return json.loads(text if text.startswith("{") else f"{{{text}}}")


class TestStays:
    """A definition that a person filled in is not written over."""

    @pytest.mark.parametrize("to", [*SEARCH, "solr"])
    def test_filled_in(self, to, rng, tmp_path):
        ranker, _ = made("linear", None, rng)
        path = export(ranker, tmp_path / "shop.json", to=to).features
        filled = path.read_text().replace("MY_INDEX", "things") + " \n"
        path.write_text(filled)
        assert export(ranker, tmp_path / "shop.json", to=to).features == path
        assert path.read_text() == filled

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b'[{"name": "feature 0"}]', "has no feature 'feature 1'"),
            *((content, "is no definition of features") for content in (
                b"[]", b'{"featureset": []}', b'{"featureset": {"features": {"name": 1}}}',
                b'[{"name": {}}, 3]', b"\xff", b"", b"[" * 100_000,
            )),
        ],
    )  # fmt: skip
    def test_of_another_ranker(self, content, problem, rng, tmp_path):
        ranker, _ = made("linear", None, rng)
        (tmp_path / "shop.features.json").write_bytes(content)
        with pytest.raises(ParameterError, match=problem):
            export(ranker, tmp_path / "shop.json", to="solr")
        assert [path.name for path in tmp_path.iterdir()] == ["shop.features.json"]
        assert (tmp_path / "shop.features.json").read_bytes() == content
