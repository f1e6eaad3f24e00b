"""Models of the learning-to-rank plug-ins of Elasticsearch and OpenSearch, which read the same.

The body of ``POST _ltr/_featureset/NAME/_createmodel``. Both plug-ins compute in float32.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import ParameterError
from countersample.export.served import Translation, as_float32
from countersample.export.trees import on_raw_features
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample.export.served import Served

FEATURE_SET = "my_features"  # in the card, where no other is named
_TREE_TYPES = ("xgboost+json", "ranklib")  # the first is the default

_LOADING = """\
`{set}` is the feature set whose features have the names below.

```sh
curl -X POST "localhost:9200/_ltr/_featureset/{set}/_createmodel" \\
  -H "Content-Type: application/json" -d @{file}
```

Then rescore the first results of a query:

```json
{{"query": {{"match": {{"title": "shoes"}}}},
 "rescore": {{"window_size": 100, "query": {{"query_weight": 0, "rescore_query":
   {{"sltr": {{"model": "{name}", "params": {{"keywords": "shoes"}}}}}}}}}}}}
```
"""


def translate(
    served: Served,
    *,
    system: str,
    model_type: str | None = None,
    feature_store: str | None = None,
) -> Translation:
    """Write a ranker as the plug-in's model.

    Parameters
    ----------
    served : Served
    system : {"Elasticsearch", "OpenSearch"}
        As it is called in errors and in the card.
    model_type : {"linear", "xgboost+json", "ranklib"}, optional
        Boosted rankers can be written in two ways: ``xgboost+json`` (the default) knows features by
        name, ``ranklib`` by their place in the feature set.
    feature_store : str, optional
        The feature set to name in the card's command.
    """
    scorer = served.scorer
    if isinstance(scorer, NetworkScorer):
        raise ParameterError(
            f"{system} cannot express a neural ranker: export it to ONNX or Solr (--to onnx, --to "
            "solr), or train a linear or boosted one"
        )
    served.check_by_item(system)
    names = served.names_for(system)
    model_type = _check_type(model_type, served, system)
    model: dict[str, Any] = {"type": f"model/{model_type}"}
    if isinstance(scorer, LinearScorer):
        weights = np.where(served.is_constant, 0, scorer.weights)
        model["definition"] = _as_text(dict(zip(names, map(as_float32, weights), strict=True)))
        model["feature_normalizers"] = _normalizers(served, names, system)
    else:
        trees = on_raw_features(scorer, served.normalizer)
        is_named = model_type == "xgboost+json"
        model["definition"] = _xgboost(trees, names) if is_named else _ranklib(trees)
    body = {"model": {"name": served.name, "model": model}}
    feature_set = feature_store or FEATURE_SET
    return Translation(
        content=(_as_text(body) + "\n").encode(),
        system=system,
        form=f"model/{model_type}",
        loading=_LOADING.format(set=feature_set, file=served.file, name=served.name),
        limits=_limits(served, model_type, system),
        checked="The file was written to the documented format; no server was asked.",
    )


def _check_type(model_type: str | None, served: Served, system: str) -> str:
    fits = ("linear",) if isinstance(served.scorer, LinearScorer) else _TREE_TYPES
    if model_type is None:
        return fits[0]
    if model_type not in fits:
        raise ParameterError(
            f"model_type is {model_type!r}, expected {' or '.join(map(repr, fits))} for a "
            f"{served.kind} ranker in {system}"
        )
    return model_type


def _normalizers(served: Served, names: Sequence[str], system: str) -> dict[str, Any]:
    how = None if served.normalizer is None else served.normalizer.how
    found: dict[str, Any] = {}
    for name, between in zip(names, served.ranges(system), strict=True):
        if between is None:
            continue
        shift, scale = between
        if how == "minmax":  # the minimum first: the plug-in compares what comes with what it has
            ends = {"minimum": shift, "maximum": shift + scale}
            found[name] = {"min_max": {key: as_float32(end) for key, end in ends.items()}}
        else:
            spread = {"mean": shift, "standard_deviation": scale}
            found[name] = {"standard": {key: as_float32(value) for key, value in spread.items()}}
    return found


def _xgboost(trees: TreesScorer, names: Sequence[str]) -> str:
    """Return the trees as XGBoost dumps them: "yes" where x < split_condition, in float32."""
    depth = np.zeros(len(trees.feature), np.int64)
    for parent in np.flatnonzero(trees.feature != LEAF):
        depth[[trees.left[parent], trees.right[parent]]] = depth[parent] + 1
    above = np.nextafter(trees.threshold, np.float32(np.inf))  # x ≤ t is x < the next number
    nodes: dict[int, dict[str, Any]] = {}
    for node in range(len(trees.feature) - 1, -1, -1):  # children come after their parents
        if trees.feature[node] == LEAF:
            nodes[node] = {"nodeid": node, "leaf": as_float32(trees.value[node])}
            continue
        yes, no = int(trees.left[node]), int(trees.right[node])
        nodes[node] = {
            "nodeid": node,
            "depth": int(depth[node]),
            "split": names[trees.feature[node]],
            "split_condition": float(above[node]),
            "yes": yes,
            "no": no,
            "missing": yes if trees.threshold[node] >= 0 else no,  # as for 0
            "children": [nodes[yes], nodes[no]],
        }
    return _as_text([nodes[int(root)] for root in trees.roots])


def _ranklib(trees: TreesScorer) -> str:
    """Return the trees as RankLib writes LambdaMART: left where x ≤ threshold; features from 1."""
    nodes: dict[int, str] = {}
    for node in range(len(trees.feature) - 1, -1, -1):
        if trees.feature[node] == LEAF:
            nodes[node] = f"<output> {as_float32(trees.value[node])!r} </output>"
            continue
        nodes[node] = "\n".join(
            [
                f"<feature> {trees.feature[node] + 1} </feature>",
                f"<threshold> {float(trees.threshold[node])!r} </threshold>",
                f'<split pos="left">\n{nodes[int(trees.left[node])]}\n</split>',
                f'<split pos="right">\n{nodes[int(trees.right[node])]}\n</split>',
            ]
        )
    lines = [f"## LambdaMART\n## No. of trees = {trees.n_trees}\n", "<ensemble>"]
    lines += [
        f'<tree id="{number}" weight="1.0">\n<split>\n{nodes[int(root)]}\n</split>\n</tree>'
        for number, root in enumerate(trees.roots, 1)
    ]
    return "\n".join([*lines, "</ensemble>", ""])


def _limits(served: Served, model_type: str, system: str) -> tuple[str, ...]:
    missing = {
        "linear": "A feature that a document does not have counts as 0 before normalisation.",
        "ranklib": "A feature that a document does not have counts as 0.",
        "xgboost+json": (
            "What happens to a feature that a document does not have depends on the plug-in's "
            'release: it counts as 0, or takes the branch "missing" (written here as the one that '
            '0 takes), or always takes the branch "no".'
        ),
    }[model_type]
    limits = [
        f"{system} computes in float32, so scores differ from the ranker's in the last digits.",
        missing,
        (
            "Scores can be negative, and Lucene wants queries to score 0 or more: use the model "
            "for rescoring only, and keep features at 0 or more."
        ),
    ]
    if model_type == "ranklib":
        limits.append("Features are known by place: the feature set must have them in this order.")
    if model_type != "linear" and served.normalizer is not None:
        limits.append(
            f"The normalisation ({served.normalizer.how}) is in the thresholds: send features as "
            "they are."
        )
    return tuple(limits)


def _as_text(value: Any) -> str:  # noqa: ANN401 (JSON)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
