"""Readers of what is exported, written from the documentation of each format.

They do what the plug-ins do, in float32 where these do, and refuse what these refuse. Sources: the
pages "Uploading A Trained Model" of both search plug-ins, the models and normalizers of Solr's
learning-to-rank module, and RankLib's model files.

What a document does not have is NaN in the rows they are given. `MISSING` has what becomes of it,
by releases: pull requests 480 and 482 of o19s/elasticsearch-learning-to-rank (v1.5.9-es8.11.4), 206
and 379 of opensearch-project/opensearch-learning-to-rank-base (3.2 or 3.3, and 3.8), SOLR-16596
(Solr 9.2).
"""

import json
from functools import cache, partial
from pathlib import Path
from xml.etree import ElementTree as ET

import duckdb
import jsonschema
import numpy as np
import pyarrow as pa

SCHEMAS = Path(__file__).parent / "schemas"
F = np.float32


@cache
def schema(name):
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def validate(value, name):
    jsonschema.Draft202012Validator(schema(name)).validate(value)


# What trees make of a feature that a document does not have: a number, or the branch of a node
MISSING = {
    "before": lambda column, _: np.nan_to_num(column),
    "branch": lambda column, goes_yes: np.where(
        np.isnan(column), F(-np.inf) if goes_yes else F(np.inf), column
    ),
}


# -- Elasticsearch, OpenSearch ---------------------------------------------------------------------


def elasticsearch_scores(path, feature_set, features, missing="branch"):
    """Score as the plug-in does, with a feature set that has these names in this order."""
    body = json.loads(path.read_text())
    validate(body, "elasticsearch_model")
    model = body["model"]["model"]
    if model["type"] != "model/xgboost+json":
        features = np.nan_to_num(features)  # vectors of other models begin with zeros
    columns = dict(zip(feature_set, features.astype(F).T.copy(), strict=True))
    for name, norm in model.get("feature_normalizers", {}).items():
        columns[name] = _search_norm(columns[name], norm)
    values = np.array([columns[name] for name in feature_set]).T
    read = {"model/linear": _linear, "model/xgboost+json": partial(_xgboost, missing),
            "model/ranklib": _ranklib}  # fmt: skip
    return read[model["type"]](model["definition"], feature_set, values)


def _search_norm(column, norm):
    if "min_max" in norm:
        least, most = F(2.0**-149), np.finfo(F).max  # what the plug-in starts with
        for key, value in norm["min_max"].items():
            if key == "minimum":
                assert F(value) < most
                least = F(value)
            else:
                assert F(value) > least
                most = F(value)
        return (column - least) / (most - least)
    mean, spread = F(norm["standard"]["mean"]), F(norm["standard"]["standard_deviation"])
    assert spread > 0
    return (column - mean) / spread


def _linear(definition, feature_set, values):
    weights = json.loads(definition)
    validate(weights, "elasticsearch_linear")
    assert set(weights) <= set(feature_set)
    return _dot(values, [F(weights.get(name, 0)) for name in feature_set])


def _dot(values, weights):
    scores = np.zeros(len(values), F)
    for column, weight in zip(values.T, weights, strict=True):
        scores += column * weight
    return scores


def _xgboost(missing, definition, feature_set, values):
    trees = json.loads(definition)
    validate(trees, "elasticsearch_xgboost")
    place = {name: number for number, name in enumerate(feature_set)}

    def score(node, rows, out):
        if "leaf" in node:
            out[rows] = F(node["leaf"])
            return
        yes, no = node["children"]
        assert (yes["nodeid"], no["nodeid"]) == (node["yes"], node["no"])
        assert node["missing"] in (node["yes"], node["no"])
        column = MISSING[missing](
            values[rows, place[node["split"]]], node["missing"] == node["yes"]
        )
        goes_yes = F(node["split_condition"]) > column
        score(yes, rows[goes_yes], out)
        score(no, rows[~goes_yes], out)

    return _sum_of_trees(trees, score, len(values))


def _sum_of_trees(trees, score, n_rows):
    total = np.zeros(n_rows, F)
    for tree in trees:
        out = np.zeros(n_rows, F)
        score(tree, np.arange(n_rows), out)
        total += out
    return total


def _ranklib(definition, feature_set, values):
    lines = definition.split("\n")
    assert lines[0].replace("## ", "").strip() == "LambdaMART"
    kept = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    ensemble = ET.fromstring("".join(kept))  # noqa: S314 (ours)
    assert ensemble.tag == "ensemble"

    def score(split, rows, out):
        assert split.tag == "split"
        if split[0].tag == "output":
            out[rows] = F(split[0].text)
            return
        feature, threshold, left, right = split
        assert (feature.tag, threshold.tag) == ("feature", "threshold")
        assert (left.get("pos"), right.get("pos")) == ("left", "right")
        number = int(feature.text)
        assert 1 <= number <= len(feature_set)
        goes_left = values[rows, number - 1] <= F(threshold.text)
        score(left, rows[goes_left], out)
        score(right, rows[~goes_left], out)

    assert all(float(tree.get("weight")) == 1 for tree in ensemble)
    return _sum_of_trees([tree[0] for tree in ensemble], score, len(values))


# -- Solr ------------------------------------------------------------------------------------------


def solr_scores(path, feature_store, features):
    """Score as Solr does, with a feature store that has these names."""
    model = json.loads(path.read_text(), parse_float=_solr_number)
    validate(model, "solr_model")
    columns = dict(zip(feature_store, features.astype(F).T, strict=True))
    names = [feature["name"] for feature in model["features"]]
    assert len(set(names)) == len(names)
    normalised = [_solr_norm(columns[f["name"]], f.get("norm")) for f in model["features"]]
    values = np.array(normalised).T
    read = {"LinearModel": _solr_linear, "NeuralNetworkModel": _solr_network,
            "MultipleAdditiveTreesModel": _solr_trees}  # fmt: skip
    return read[model["class"].rpartition(".")[2]](model["params"], names, values)


def _solr_number(text):
    assert len(text.lstrip("-")) <= 23, "Solr reads longer ones as text"
    return float(text)


def _solr_norm(column, norm):
    """A feature without a value is NaN if its default in the store is; NaN stays so in trees."""
    if norm is None:
        return column
    params = {name: F(text) for name, text in norm["params"].items()}
    if norm["class"].endswith("MinMaxNormalizer"):
        assert params["max"] - params["min"] != 0
        return (column - params["min"]) / (params["max"] - params["min"])
    assert params["std"] > 0
    with np.errstate(over="ignore"):
        return (column - params["avg"]) / params["std"]


def _solr_linear(params, names, values):
    assert all(isinstance(weight, float) for weight in params["weights"].values())
    return _dot(values, [F(params["weights"][name]) for name in names])


def _solr_network(params, _names, values):
    for layer in params["layers"]:
        numbers = [*layer["bias"], *(x for row in layer["matrix"] for x in row)]
        assert all(isinstance(number, float) for number in numbers), "Solr casts to Double"
        values = np.array(
            [F(bias) + _dot(values, [F(x) for x in row])
             for row, bias in zip(layer["matrix"], layer["bias"], strict=True)]
        ).T  # fmt: skip
        if layer["activation"] == "relu":
            values = np.where(values < 0, F(0), values)
        else:
            assert layer["activation"] == "identity"
    assert values.shape[1] == 1
    return values[:, 0]


def _solr_trees(params, names, values):
    place = {name: number for number, name in enumerate(names)}
    slack = F(1e-6)

    def score(node, rows, out):
        if "feature" not in node:
            out[rows] = F(node["value"])
            return
        column = values[rows, place[node["feature"]]]
        goes_left = column <= F(node["threshold"]) + slack
        if not params.get("isNullSameAsZero", True):  # a node without "missing" would be an error
            goes_left |= np.isnan(column) & {"left": True, "right": False}[node["missing"]]
        score(node["left"], rows[goes_left], out)
        score(node["right"], rows[~goes_left], out)

    assert all(float(tree["weight"]) == 1 for tree in params["trees"])
    return _sum_of_trees([tree["root"] for tree in params["trees"]], score, len(values))


# -- definitions of features -----------------------------------------------------------------------


def elasticsearch_features(path, documents):
    """Return the names of a feature set in its order, and the value of each for each document.

    A document that a template's query does not match has none, NaN. Of templates, only those that
    are written are understood; a field that no document has is an error, as no mapping has it.
    """
    body = json.loads(path.read_text("utf-8"))
    validate(body, "elasticsearch_features")
    features = body["featureset"]["features"]
    names = [feature["name"] for feature in features]
    assert len(set(names)) == len(names)
    assert all(set(f["params"]) <= set(body["validation"]["params"]) for f in features)
    columns = [_function_score(f["template"]["function_score"], documents) for f in features]
    return names, np.array(columns).T


def _function_score(query, documents):
    assert query["boost_mode"] == "replace"
    (function,) = query["functions"]
    field = function["field_value_factor"]["field"]
    if not any(field in document for document in documents):
        raise LookupError(f"Unable to find a field mapper for field [{field}]")
    asked = query["query"]["exists"]["field"]
    return [document[field] if asked in document else np.nan for document in documents]


def solr_features(path, store, documents):
    """Return the names of a feature store, and the value of each for each document; 0 for none."""
    features = json.loads(path.read_text("utf-8"))
    validate(features, "solr_features")
    assert {feature.get("store") for feature in features} == {store}
    names = [feature["name"] for feature in features]
    assert len(set(names)) == len(names)
    fields = [feature["params"]["field"] for feature in features]
    return names, np.array([[document.get(f, 0.0) for f in fields] for document in documents])


# -- SQL -------------------------------------------------------------------------------------------


def sql_scores(path, names, rows):
    """Have DuckDB read the view; `test_export_sql.py` has other databases."""
    with duckdb.connect() as connection:
        columns = {"query": np.zeros(len(rows), int), "item": np.arange(len(rows))}
        table = pa.table(columns | dict(zip(names, np.asarray(rows).T, strict=True)))
        connection.register("features", table)
        connection.execute(path.read_text().replace("CREATE OR REPLACE", "CREATE TEMPORARY"))
        return connection.table(path.stem).order("item").fetchnumpy()["score"]
