"""Rankers as ONNX graphs: float32 ``features`` (N, n_features) in, float32 ``scores`` (N,) out."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import pages
from countersample._environment import MissingExtraError, need
from countersample._version import __version__
from countersample.data.preprocessing import KnotTable
from countersample.errors import CounterSampleError, ParameterError
from countersample.export.specification import Translation
from countersample.rankers.files import SavedScorer
from countersample.scorers import LEAF, LinearScorer, NetworkScorer, TreesScorer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample.data.preprocessing import Normalizer
    from countersample.export.specification import ModelSpecification

OPSET, TREE_OPSET, IR_VERSION = 17, 3, 8  # of 2022: read by every onnxruntime since 1.12
TOLERANCE = 1e-5  # of the largest score
_PROBES = 64  # rows that are scored before anything is written
_MISSING_SHARE = 0.2  # of the values of these rows, if values may be missing


def translate(spec: ModelSpecification, *, one_query: bool = False) -> Translation:
    """Write a ranker as an ONNX graph that normalises and scores."""
    if spec.preprocessing.is_by_query and not one_query:
        raise ParameterError(
            "this ranker normalises by query (normalize='query-minmax'), so each call of its graph "
            "must have all items of one query: confirm this with one_query=True (--one-query), or "
            "train with normalize='minmax' or 'standard'"
        )
    if one_query and not spec.preprocessing.is_by_query:
        raise ParameterError(
            "one_query is True, expected it only for a ranker with normalize='query-minmax': leave "
            "it out, as this graph scores items of any queries together"
        )
    model = _model(spec)
    need("onnx").checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return Translation(
        content=content,
        form=f"opset {OPSET}" + ("" if spec.kind != "boosted" else f", ai.onnx.ml {TREE_OPSET}"),
        loading=pages.render_markdown(str(__package__), "onnx.md", spec=spec),
        limits=spec.limits(),
        checked=_check_scores(content, spec),
    )


def _model(spec: ModelSpecification) -> Any:  # noqa: ANN401 (onnx has no types)
    graph = _Graph()
    features = _normalised(graph, spec, _imputed(graph, spec))
    scorer = spec.scorer
    if isinstance(scorer, LinearScorer):
        scores = _linear(graph, features, scorer)
    elif isinstance(scorer, NetworkScorer):
        scores = _network(graph, features, scorer)
    else:
        scores = _trees(graph, features, scorer)
        if scorer.linear_part is not None:
            linear = _linear(graph, features, scorer.linear_part)
            scores = graph.add("Add", linear, graph.as_double(scores))
    flat = graph.add("Squeeze", scores, graph.keep(np.array([1])))
    graph.as_float(flat, name="scores")
    return graph.model(spec)


class _Graph:
    """Nodes and constants under construction; each node's output has a name."""

    def __init__(self) -> None:
        self._onnx = need("onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def add(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:  # noqa: ANN401 (numbers, tensors)
        """Add a node; return the name of its output."""
        output = name or f"{operator.lower()}_{len(self._nodes)}"
        node = self._onnx.helper.make_node(operator, inputs, [output], name=output, **attributes)
        self._nodes.append(node)
        return output

    def keep(self, values: NDArray[Any]) -> str:
        """Add a constant; return its name."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(self.tensor(values, name))
        return name

    def tensor(self, values: NDArray[Any], name: str | None = None) -> Any:  # noqa: ANN401
        return self._onnx.numpy_helper.from_array(np.ascontiguousarray(values), name)

    def as_double(self, name: str) -> str:
        return self.add("Cast", name, to=self._onnx.TensorProto.DOUBLE)

    def as_float(self, value: str, name: str | None = None) -> str:
        return self.add("Cast", value, name=name, to=self._onnx.TensorProto.FLOAT)

    def model(self, spec: ModelSpecification) -> Any:  # noqa: ANN401
        helper, kind = self._onnx.helper, self._onnx.TensorProto.FLOAT
        features = helper.make_tensor_value_info("features", kind, ["N", spec.n_features])
        scores = helper.make_tensor_value_info("scores", kind, ["N"])
        graph = helper.make_graph(
            self._nodes, spec.name, [features], [scores], initializer=self._constants
        )
        opsets = [("", OPSET), ("ai.onnx.ml", TREE_OPSET)]
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*opset) for opset in opsets],
            ir_version=IR_VERSION,
            producer_name="countersample",
            producer_version=__version__,
        )
        helper.set_model_props(model, _metadata(spec))
        return model


def _metadata(spec: ModelSpecification) -> dict[str, str]:
    normalizer = spec.preprocessing.normalizer
    how = "none" if normalizer is None else f"{normalizer.label}, inside the graph"
    if spec.preprocessing.is_by_query:
        how += ": call it with all items of one query"
    metadata = {"kind": spec.kind, "normalization": how, "data_fingerprint": spec.fingerprint}
    if spec.takes_missing:
        metadata["missing_values"] = "NaN, handled inside the graph"
    if spec.feature_names is not None:
        metadata["feature_names"] = json.dumps(spec.feature_names, ensure_ascii=False)
    return metadata


def _imputed(graph: _Graph, spec: ModelSpecification) -> str:
    """Add what `Imputer.transform` does."""
    imputer = spec.preprocessing.imputer
    if imputer is None:
        return "features"
    is_missing = graph.add("IsNaN", "features")
    fill = graph.keep(np.array(imputer.fill, np.float32))
    filled = graph.add("Where", is_missing, fill, "features")
    if not imputer.indicators:
        return filled
    chosen = graph.keep(np.array(imputer.indicators, np.int64))
    indicators = graph.as_float(graph.add("Gather", is_missing, chosen, axis=1))
    return graph.add("Concat", filled, indicators, axis=1)


def _normalised(graph: _Graph, spec: ModelSpecification, features: str) -> str:
    """Add what `Normalizer.transform` does, to the bit: in float64, then to float32."""
    normalizer = spec.preprocessing.normalizer
    if normalizer is None:
        return features
    values = _transformed(graph, graph.as_double(features), normalizer)
    if normalizer.shift is None or normalizer.scale is None:
        if normalizer.transform_name is not None:
            values = graph.as_double(graph.as_float(values))
        least = most = values
        if spec.takes_missing and spec.preprocessing.imputer is None:
            # NaN is neither the least nor the most
            is_missing, most_of_all = graph.add("IsNaN", values), np.finfo(np.float64).max
            least = graph.add("Where", is_missing, graph.keep(np.array([most_of_all])), values)
            most = graph.add("Where", is_missing, graph.keep(np.array([-most_of_all])), values)
        low = graph.add("ReduceMin", least, axes=[0], keepdims=1)
        high = graph.add("ReduceMax", most, axes=[0], keepdims=1)
        span, nothing = graph.add("Sub", high, low), graph.keep(np.zeros(1))
        varies = graph.add("Greater", span, nothing)
        divisor = graph.add("Where", varies, span, graph.keep(np.ones(1)))
        factor = graph.add("Where", varies, graph.add("Reciprocal", divisor), nothing)
    else:
        low = graph.keep(np.array(normalizer.shift))
        scale = np.array(normalizer.scale)
        factor = graph.keep(np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0))
    return graph.as_float(graph.add("Mul", graph.add("Sub", values, low), factor))


def _transformed(graph: _Graph, values: str, normalizer: Normalizer) -> str:
    """Add what `Normalizer.apply_transform` does."""
    if normalizer.roots is not None:
        return _rooted(graph, values, normalizer.roots)
    if normalizer.logs is not None:
        return _logged(graph, values, np.array(normalizer.logs))
    if normalizer.knots is not None:
        return _quantiled(graph, values, KnotTable.of(normalizer.knots), normalizer.n_features)
    return values


def _logged(graph: _Graph, values: str, logs: NDArray[np.float64]) -> str:
    """Add what `countersample.data.preprocessing.take_logs` does."""
    divisor, one = graph.keep(np.where(logs > 0, logs, 1.0)), graph.keep(np.ones(1))
    size = graph.add("Add", graph.add("Div", graph.add("Abs", values), divisor), one)
    log = graph.add("Mul", graph.add("Sign", values), graph.add("Log", size))
    return graph.add("Where", graph.keep(logs > 0), log, values)


def _quantiled(graph: _Graph, values: str, table: KnotTable, n_features: int) -> str:
    """Add what `countersample.data.preprocessing.take_quantiles` does."""
    row = np.zeros(n_features, np.int64)  # any, of a feature without knots
    row[table.columns] = np.arange(len(table.columns))
    has_knots = np.isin(np.arange(n_features), table.columns)
    knots, shares, slopes, above = (
        graph.keep(each.ravel()) for each in (table.knots, table.shares, table.slopes, table.above)
    )
    value = graph.add("Max", values, graph.keep(table.knots[row, 0]))
    at = graph.keep(table.starts[row])
    for step in table.steps:
        farther = graph.add("Add", at, graph.keep(np.array([step])))
        is_there = graph.add("GreaterOrEqual", value, graph.add("Gather", knots, farther))
        at = graph.add("Where", is_there, farther, at)
    run = graph.add("Sub", value, graph.add("Gather", knots, at))
    rise = graph.add("Mul", graph.add("Gather", slopes, at), run)
    share = graph.add("Add", graph.add("Gather", shares, at), rise)
    share = graph.add("Min", share, graph.add("Gather", above, at))
    return graph.add("Where", graph.keep(has_knots), share, values)


def _rooted(graph: _Graph, values: str, roots: tuple[int, ...]) -> str:
    """Add what `countersample.data.preprocessing.take_roots` does."""
    for done in range(max(roots, default=0)):
        root = graph.add(
            "Mul", graph.add("Sign", values), graph.add("Sqrt", graph.add("Abs", values))
        )
        values = graph.add("Where", graph.keep(np.array(roots) > done), root, values)
    return values


def _linear(graph: _Graph, features: str, scorer: LinearScorer) -> str:
    values, weights = graph.as_double(features), graph.keep(scorer.weights[:, None])
    if scorer.missing is None:
        return graph.add("MatMul", values, weights)
    is_missing = graph.add("IsNaN", values)
    there = graph.add("Where", is_missing, graph.keep(np.zeros(1)), values)
    missing = graph.add("MatMul", graph.as_double(is_missing), graph.keep(scorer.missing[:, None]))
    return graph.add("Add", graph.add("MatMul", there, weights), missing)


def _network(graph: _Graph, features: str, network: NetworkScorer) -> str:
    value = features
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        if layer:
            value = graph.add("Relu", value)
        value = graph.add("Gemm", value, graph.keep(weight), graph.keep(bias), transB=1)
    return value


def _trees(graph: _Graph, features: str, trees: TreesScorer) -> str:
    """Add the trees with thresholds and sums in float64, in which float32 thresholds are exact."""
    nodes = np.arange(len(trees.feature))
    tree = np.searchsorted(trees.roots, nodes, side="right") - 1
    number = nodes - trees.roots[tree]  # within its tree
    is_leaf = trees.feature == LEAF

    def children(of: NDArray[np.int32]) -> list[int]:
        return [int(n) for n in np.where(is_leaf, 0, of - trees.roots[tree])]

    leaves = np.flatnonzero(is_leaf)
    missing = {}
    if trees.missing_left is not None:
        missing["nodes_missing_value_tracks_true"] = trees.missing_left.astype(int).tolist()
    return graph.add(
        "TreeEnsembleRegressor",
        graph.as_double(features),
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=number.tolist(),
        nodes_featureids=np.where(is_leaf, 0, trees.feature).tolist(),
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values_as_tensor=graph.tensor(np.where(is_leaf, 0, trees.threshold).astype(float)),
        nodes_truenodeids=children(trees.left),
        nodes_falsenodeids=children(trees.right),
        target_treeids=tree[leaves].tolist(),
        target_nodeids=number[leaves].tolist(),
        target_ids=[0] * len(leaves),
        target_weights_as_tensor=graph.tensor(trees.value[leaves]),
        **missing,
    )


def _check_scores(content: bytes, spec: ModelSpecification) -> str:
    """Score a few rows with onnxruntime, if it is installed; return the result in a sentence."""
    # From 1.29 on it reports each model to its maker, unless this is set when it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        onnxruntime = need("onnxruntime")
    except MissingExtraError:
        return "The graph is valid; onnxruntime is not installed, so it was not run."
    features = _probes(spec)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"features": features})
    ranker = SavedScorer(spec.scorer, spec.preprocessing, features.shape[1], None)
    expected = ranker.scores(features, np.array([0, len(features)]))
    gap = float(np.abs(scores - expected).max() / max(np.abs(expected).max(), 1e-30))
    if not gap <= TOLERANCE:
        raise CounterSampleError(
            f"onnxruntime {onnxruntime.__version__} gives scores that are {gap:.3g} of the largest "
            f"away from the ranker's, expected at most {TOLERANCE}: nothing was written; please "
            "report this"
        )
    return f"onnxruntime {onnxruntime.__version__} gives the ranker's scores on {_PROBES} rows."


def _probes(spec: ModelSpecification) -> NDArray[np.float32]:
    """Return random rows within and around shift and scale, with some values missing."""
    rng = np.random.default_rng(0)
    n, normalizer = spec.n_features, spec.preprocessing.normalizer
    rows = rng.uniform(-0.5, 1.5, (_PROBES, n))
    if normalizer is not None and normalizer.shift is not None and normalizer.scale is not None:
        rows = np.array(normalizer.shift)[:n] + np.array(normalizer.scale)[:n] * rows
    if spec.takes_missing:
        rows[rng.random(rows.shape) < _MISSING_SHARE] = np.nan
    return rows.astype(np.float32)
