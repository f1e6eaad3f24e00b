"""Models of the learning-to-rank plug-ins of Elasticsearch and OpenSearch, which read the same.

The body of ``POST _ltr/_featureset/NAME/_createmodel``. Both plug-ins compute in float32.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import pages
from countersample.errors import ParameterError
from countersample.export.specification import Translation, as_float32
from countersample.export.trees import depths, fold, on_raw_features
from countersample.scorers import LinearScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample.export.specification import ModelSpecification

INDEX = "MY_INDEX"  # to be replaced by the user
PARAM = "keywords"  # the name of the words of the query in requests
FEATURE_SET = "my_features"  # the default name
_TREE_TYPES = ("xgboost+json", "ranklib")  # the first is the default


def translate(
    spec: ModelSpecification, *, model_type: str | None = None, feature_store: str | None = None
) -> Translation:
    """Write a ranker as the plug-in's model; for the options see `countersample.export.export`."""
    scorer, names = spec.scorer, spec.names_by_item
    model_type = _check_type(model_type, spec)
    model: dict[str, Any] = {"type": f"model/{model_type}"}
    if isinstance(scorer, LinearScorer):
        model["definition"] = _to_json(spec.weights_by_name(scorer))
        norms = zip(names, spec.norms(_minmax, _standard), strict=True)
        model["feature_normalizers"] = {name: norm for name, norm in norms if norm is not None}
    else:
        trees = on_raw_features(spec.trees_alone, spec.preprocessing.normalizer)
        is_named = model_type == "xgboost+json"
        model["definition"] = _xgboost(trees, names) if is_named else _ranklib(trees)
    feature_set = feature_store or FEATURE_SET
    return Translation(
        content=(_to_json({"model": {"name": spec.name, "model": model}}) + "\n").encode(),
        form=f"model/{model_type}",
        loading=pages.render_markdown(
            str(__package__), "elasticsearch.md", spec=spec, feature_set=feature_set, index=INDEX
        ),
        limits=spec.limits(model_type=model_type),
        features=_feature_definition(names),
    )


def _feature_definition(names: Sequence[str]) -> dict[str, Any]:
    """Return the body of ``POST _ltr/_featureset/NAME``: each feature is the field of its name.

    The engine validates it with a query before it stores it, so a missing field is an error at
    once. A document without the field does not match, which leaves its feature missing.
    """

    def template(name: str) -> dict[str, Any]:
        return {
            "function_score": {
                "query": {"exists": {"field": name}},
                "functions": [{"field_value_factor": {"field": name}}],
                "boost_mode": "replace",
            }
        }

    features = [
        {"name": name, "params": [PARAM], "template_language": "mustache",
         "template": template(name)}
        for name in names
    ]  # fmt: skip
    return {
        "validation": {"params": {PARAM: "shoes"}, "index": INDEX},
        "featureset": {"features": features},
    }


def _check_type(model_type: str | None, spec: ModelSpecification) -> str:
    types = ("linear",) if isinstance(spec.scorer, LinearScorer) else _TREE_TYPES
    if spec.takes_missing and model_type == "ranklib" and types is _TREE_TYPES:
        raise ParameterError(
            "model_type is 'ranklib', which reads missing features as 0, expected 'xgboost+json': "
            "the trees of this ranker have a branch for them"
        )
    if model_type is not None and model_type not in types:
        raise ParameterError(
            f"model_type is {model_type!r}, expected {' or '.join(map(repr, types))} for a "
            f"{spec.kind} ranker in {spec.system}"
        )
    return model_type or types[0]


def _minmax(low: float, high: float) -> dict[str, Any]:
    # The minimum first: the plug-in compares each number with the one that it has
    return {"min_max": {"minimum": as_float32(low), "maximum": as_float32(high)}}


def _standard(mean: float, deviation: float) -> dict[str, Any]:
    spread = {"mean": as_float32(mean), "standard_deviation": as_float32(deviation)}
    return {"standard": spread}


def _xgboost(trees: TreesScorer, names: Sequence[str]) -> str:
    """Return the trees as XGBoost dumps them: "yes" if x < split_condition, in float32."""
    depth = depths(trees)
    above = np.nextafter(trees.threshold, np.finfo(np.float32).max)  # x ≤ t is x < the next number
    missing_left = trees.missing_left
    if missing_left is None:
        missing_left = trees.threshold >= 0  # as for 0

    def split(node: int, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        yes, no = left["nodeid"], right["nodeid"]
        return {
            "nodeid": node,
            "depth": int(depth[node]),
            "split": names[trees.feature[node]],
            "split_condition": float(above[node]),
            "yes": yes,
            "no": no,
            "missing": yes if missing_left[node] else no,
            "children": [left, right],
        }

    return _to_json(
        fold(trees, lambda node: {"nodeid": node, "leaf": as_float32(trees.value[node])}, split)
    )


def _ranklib(trees: TreesScorer) -> str:
    """Return the trees as RankLib writes LambdaMART: left if x ≤ threshold; features from 1."""

    def leaf(node: int) -> str:
        return f"<output> {as_float32(trees.value[node])!r} </output>"

    def split(node: int, left: str, right: str) -> str:
        return (
            f"<feature> {trees.feature[node] + 1} </feature>\n"
            f"<threshold> {float(trees.threshold[node])!r} </threshold>\n"
            f'<split pos="left">\n{left}\n</split>\n<split pos="right">\n{right}\n</split>'
        )

    lines = [f"## LambdaMART\n## No. of trees = {trees.n_trees}\n", "<ensemble>"]
    lines += [
        f'<tree id="{number}" weight="1.0">\n<split>\n{root}\n</split>\n</tree>'
        for number, root in enumerate(fold(trees, leaf, split), 1)
    ]
    return "\n".join([*lines, "</ensemble>", ""])


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
