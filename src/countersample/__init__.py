"""Turn a biased click log into an unbiased ranker.

The names below are the public interface; each is imported when it is first used, so that
``import countersample`` costs nothing.

From a log to a ranker

======================  ======================================================================
`read_impressions`      a raw log: one row per result shown (`read_features` reads its features)
`propensity`            examination probabilities, estimated from such a log
`fit_from_impressions`  the whole way: a ranker of any kind, and the expected gain
`options`               `LogOptions`, `FeatureOptions`, `PropensityOptions`, `EvaluationOptions`,
                        `RankerOptions`
`CounterSampleRanker`   the linear ranker, a scikit-learn estimator
`NeuralRanker`          the same with a network (`countersample.torch`)
`GBDTRanker`            the same with boosted trees (`countersample.gbdt`)
`load_ranker`           read any of them from its file
`export`                rankers for ONNX, Elasticsearch, OpenSearch, Solr and SQL
======================  ======================================================================

How good a ranker is

======================  ======================================================================
`estimate`              its value from clicks alone: off-policy evaluation
`estimate_gain`         its gain over the logging policy, from the same clicks
`evaluate`              means of metrics over labelled data (`learning_curve` for many rankers)
`metrics`               ndcg, dcg, arp, mrr, precision, average_precision, err
`plotting`              plots of propensities, weights, learning curves and gains
======================  ======================================================================

The method and its study

======================  ======================================================================
`RankingDataset`        labelled queries: features, labels, offsets, query ids
`load_letor`            read LETOR/SVMrank text (and `save_letor` writes it)
`synthetic`             make labelled data of the shape of Yahoo or Istella
`ClickLog`              clicks and their propensities
`PositionBias`          the position-bias curve of the paper
`simulate_clicks`       clicks by a click model on labelled data
`plans`                 how examples are sampled and weighted: the one formula (`AliasTable`)
`theory`                the paper's theorems for a log
`train`                 the paper's algorithms (`train_many` for grids, `TrainingOptions`)
======================  ======================================================================

Every error of this package is a `CounterSampleError`: `DataError`, `ParameterError`,
`DivergedError`, `UnfittedRankerError`.
"""

from __future__ import annotations

from importlib import import_module

from countersample._version import __version__

TYPE_CHECKING = False  # typing takes ten times as long to import as all of this
if TYPE_CHECKING:
    from typing import Any

    from countersample import export, gbdt, metrics, plans, plotting, propensity, theory, torch
    from countersample.clicks import ClickLog, PositionBias, simulate_clicks
    from countersample.data import (  # type: ignore[no-redef]  # a module is called so, too
        RankingDataset,
        load_letor,
        save_letor,
        synthetic,
    )
    from countersample.errors import CounterSampleError, DataError, ParameterError
    from countersample.evaluation import estimate, estimate_gain, evaluate, learning_curve
    from countersample.fitting import fit_from_impressions
    from countersample.gbdt import GBDTRanker
    from countersample.logs import read_features, read_impressions
    from countersample.options import (
        EvaluationOptions,
        FeatureOptions,
        LogOptions,
        PropensityOptions,
        RankerOptions,
    )
    from countersample.plans import AliasTable
    from countersample.rankers import CounterSampleRanker, UnfittedRankerError, load_ranker
    from countersample.torch import NeuralRanker
    from countersample.training import (
        DivergedError,
        TrainingOptions,
        TrainingResult,
        train,
        train_many,
    )

_NAMES = {  # by the module that has them
    "clicks": ("ClickLog", "PositionBias", "simulate_clicks"),
    "logs": ("read_features", "read_impressions"),
    "data": ("RankingDataset", "load_letor", "save_letor", "synthetic"),
    "errors": ("CounterSampleError", "DataError", "ParameterError"),
    "evaluation": ("estimate", "estimate_gain", "evaluate", "learning_curve"),
    "fitting": ("fit_from_impressions",),
    "gbdt": ("GBDTRanker",),
    "options": (
        "EvaluationOptions", "FeatureOptions", "LogOptions", "PropensityOptions", "RankerOptions",
    ),
    "plans": ("AliasTable",),
    "rankers": ("CounterSampleRanker", "UnfittedRankerError", "load_ranker"),
    "torch": ("NeuralRanker",),
    "training": ("DivergedError", "TrainingOptions", "TrainingResult", "train", "train_many"),
}  # fmt: skip
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AliasTable", "ClickLog", "CounterSampleError", "CounterSampleRanker", "DataError",
    "DivergedError", "EvaluationOptions", "FeatureOptions", "GBDTRanker", "LogOptions",
    "NeuralRanker", "ParameterError", "PositionBias", "PropensityOptions", "RankerOptions",
    "RankingDataset", "TrainingOptions", "TrainingResult", "UnfittedRankerError", "__version__",
    "estimate", "estimate_gain", "evaluate", "export", "fit_from_impressions",
    "gbdt", "learning_curve", "load_letor", "load_ranker", "metrics", "plans", "plotting",
    "propensity", "read_features", "read_impressions", "save_letor", "simulate_clicks", "synthetic",
    "theory", "torch", "train", "train_many",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the public names)
    if name in _HOME:
        return getattr(import_module(f"countersample.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"countersample.{name}")
    raise AttributeError(f"module 'countersample' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
