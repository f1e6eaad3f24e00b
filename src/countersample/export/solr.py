"""Models of Solr's learning-to-rank module: the body of ``PUT schema/model-store``.

Solr computes in float32. It reads numbers of trees and normalizers as text, and weights of linear
models and networks as JSON numbers, which have to have a point or an exponent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import pages
from countersample.errors import DataError
from countersample.export.specification import Translation, as_float32
from countersample.export.trees import fold, on_raw_features
from countersample.scorers import LEAF, NetworkScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from countersample.export.specification import ModelSpecification

    Floats = NDArray[np.float32]

_SLACK = np.float32(1e-6)  # Solr adds it to the threshold of every node
_LEAST = np.finfo(np.float32).smallest_normal
_MAX_SHIFT = 126  # 2^−126 is the smallest normal float32


def translate(spec: ModelSpecification, *, feature_store: str | None = None) -> Translation:
    """Write a ranker as Solr's LinearModel, NeuralNetworkModel or MultipleAdditiveTreesModel."""
    scorer, names = spec.scorer, spec.names_by_item
    params: dict[str, Any]
    if isinstance(scorer, TreesScorer):
        form = "MultipleAdditiveTreesModel"
        trees = on_raw_features(spec.trees_alone, spec.preprocessing.normalizer)
        thresholds, norms = _thresholds(trees, names)
        params = {"trees": _trees(trees, thresholds, names)}
        if spec.takes_missing:
            params["isNullSameAsZero"] = False
    elif isinstance(scorer, NetworkScorer):
        form, norms = "NeuralNetworkModel", spec.norms(_minmax, _standard)
        params = {"layers": _layers(scorer, spec)}
    else:
        form, norms = "LinearModel", spec.norms(_minmax, _standard)
        params = {"weights": spec.weights_by_name(scorer)}
    model = {
        "class": f"org.apache.solr.ltr.model.{form}",
        "name": spec.name,
        "features": [
            {"name": name} | ({} if norm is None else {"norm": norm})
            for name, norm in zip(names, norms, strict=True)
        ],
        "params": params,
    }
    store = {} if feature_store is None else {"store": feature_store}
    field_class = "org.apache.solr.ltr.feature.FieldValueFeature"
    return Translation(
        content=(json.dumps(model | store, ensure_ascii=False, allow_nan=False) + "\n").encode(),
        form=form,
        loading=pages.render_markdown(str(__package__), "solr.md", spec=spec, store=feature_store),
        limits=spec.limits(),
        features=[
            {**store, "name": name, "class": field_class, "params": {"field": name}}
            for name in names
        ],
    )


def _norm(name: str, **params: float) -> dict[str, Any]:
    return {
        "class": f"org.apache.solr.ltr.norm.{name}",
        "params": {key: repr(as_float32(value)) for key, value in params.items()},
    }


def _minmax(low: float, high: float) -> dict[str, Any]:
    return _norm("MinMaxNormalizer", min=low, max=high)


def _standard(mean: float, deviation: float) -> dict[str, Any]:
    return _norm("StandardNormalizer", avg=mean, std=deviation)


def _layers(network: NetworkScorer, spec: ModelSpecification) -> list[dict[str, Any]]:
    """Return the layers as JSON; the first corrects the rounding of normalizers to float32.

    Solr subtracts float32(shift) instead of shift, which moves an input by
    δ = (float32(shift) − shift) / scale: so W·δ is added to the bias.
    """
    matrices, biases = list(network.weights), list(network.biases)
    matrices[0] = np.where(spec.is_constant, np.float32(0), matrices[0])
    ranges = [between or (0.0, 1.0) for between in spec.ranges]
    rounding = np.array([(as_float32(shift) - shift) / scale for shift, scale in ranges])
    biases[0] = (biases[0] + matrices[0] @ rounding).astype(np.float32)
    activations = ["relu"] * (len(matrices) - 1) + ["identity"]
    return [
        {"matrix": matrix.tolist(), "bias": bias.tolist(), "activation": activation}
        for matrix, bias, activation in zip(matrices, biases, activations, strict=True)
    ]


def _trees(trees: TreesScorer, thresholds: Floats, names: Sequence[str]) -> list[dict[str, Any]]:
    def split(node: int, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        node_values = {
            "feature": names[trees.feature[node]],
            "threshold": repr(float(thresholds[node])).replace("inf", "Infinity"),
            "left": left,
            "right": right,
        }
        if trees.missing_left is not None:
            node_values["missing"] = "left" if trees.missing_left[node] else "right"
        return node_values

    roots = fold(trees, lambda node: {"value": repr(as_float32(trees.value[node]))}, split)
    return [{"weight": "1.0", "root": root} for root in roots]


def _thresholds(
    trees: TreesScorer, names: Sequence[str]
) -> tuple[Floats, list[dict[str, Any] | None]]:
    """Return thresholds that are right once Solr has added 10⁻⁶, and what features are divided by.

    Solr goes left if x ≤ float32(t′ + 10⁻⁶). Mostly there is a t′ for which that is the
    threshold t. If there is none, as for most t below 4·10⁻⁶, the feature and its thresholds are
    multiplied by a power of two, which changes no comparison. A threshold above every number is ∞.
    """
    is_all = trees.threshold == np.finfo(np.float32).max
    written = np.where(is_all, np.float32(np.inf), trees.threshold)
    norms: list[dict[str, Any] | None] = [None] * trees.n_features
    for feature in np.unique(trees.feature[(trees.feature != LEAF) & ~is_all]):
        nodes = (trees.feature == feature) & ~is_all
        power, before = _before_slack(trees.threshold[nodes], names[feature])
        written[nodes] = before
        if power:
            norms[feature] = _norm("StandardNormalizer", avg=0.0, std=2.0**-power)
    return written, norms


def _before_slack(thresholds: Floats, name: str) -> tuple[int, Floats]:
    """Return k, which is 0 if it can be, and t′ with float32(t′ + 10⁻⁶) = 2^k·t for each t."""
    tiny = (np.abs(thresholds) < _LEAST) & (thresholds != 0)  # only such values go another way
    thresholds = np.where(tiny, np.where(thresholds < 0, -_LEAST, np.float32(0)), thresholds)
    room = 127 - int(np.frexp(np.abs(thresholds).max())[1])
    for power in (0, *range(min(room, _MAX_SHIFT), 0, -1)):
        shifted = np.ldexp(thresholds, power)
        near = shifted - _SLACK
        tried = np.stack([near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf)])
        is_right = tried + _SLACK == shifted
        if is_right.any(axis=0).all():
            return power, tried[is_right.argmax(axis=0), np.arange(len(near))]
    raise DataError(
        f"the thresholds on feature {name!r} go from {np.abs(thresholds).min():.3g} to "
        f"{np.abs(thresholds).max():.3g}, which Solr cannot distinguish, as it adds 1e-6 to each: "
        "export to ONNX, or rescale that feature before training"
    )
