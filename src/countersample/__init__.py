"""Turn a biased click log into an unbiased ranker.

The names below are the whole public interface; each is imported when it is first used, so that
``import countersample`` costs nothing.

==================  ==========================================================================
`RankingDataset`    judged queries: features, labels, offsets, query ids
`load_letor`        read LETOR/SVMrank text (and `save_letor` writes it)
`synthetic`         make judged data of the shape of Yahoo or Istella
`ClickLog`          what was clicked, and how likely it was to be looked at
`PositionBias`      the law of where users look
`simulate_clicks`   clicks of simulated users on judged data
`read_impressions`  a raw log of what was shown where, and clicked
`propensity`        where users look, estimated from such a log
`plans`             how examples are drawn and scaled: the one formula (`AliasTable` beneath)
`theory`            what the paper's theorems say for a log
`train`             the paper's algorithms: a linear ranker from a click log
`metrics`           ndcg, dcg, arp, mrr, precision, average_precision, err
`evaluate`          means of metrics over a dataset, by name
`estimate`          the value of a ranker from clicks alone (and `estimate_gain`, over the old one)
`tune`              learning rate, steps and clipping, chosen without labels
==================  ==========================================================================

`CounterSampleRanker` is all of it as a scikit-learn estimator; `fit_from_impressions` goes from a
raw log to a ranker and the gain to expect. Beyond linear rankers there are `countersample.torch`,
`countersample.gbdt` and, to serve any of them elsewhere, `countersample.export`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from countersample._version import __version__

if TYPE_CHECKING:
    from countersample import metrics, plans, propensity, theory
    from countersample.clicks import ClickLog, PositionBias, simulate_clicks
    from countersample.clicks.impressions import read_impressions
    from countersample.data import RankingDataset, load_letor, save_letor, synthetic
    from countersample.evaluation import estimate, estimate_gain, evaluate
    from countersample.fitting import fit_from_impressions
    from countersample.plans import AliasTable
    from countersample.rankers import CounterSampleRanker
    from countersample.training import train
    from countersample.tuning import tune

_HOME = {
    "AliasTable": "plans",
    "ClickLog": "clicks",
    "CounterSampleRanker": "rankers",
    "PositionBias": "clicks",
    "RankingDataset": "data",
    "estimate": "evaluation",
    "estimate_gain": "evaluation",
    "fit_from_impressions": "fitting",
    "load_letor": "data",
    "read_impressions": "clicks.impressions",
    "save_letor": "data",
    "simulate_clicks": "clicks",
    "synthetic": "data",
    "train": "training",
    "tune": "tuning",
    "evaluate": "evaluation",
}

__all__ = [
    "AliasTable",
    "ClickLog",
    "CounterSampleRanker",
    "PositionBias",
    "RankingDataset",
    "__version__",
    "estimate",
    "estimate_gain",
    "evaluate",
    "fit_from_impressions",
    "load_letor",
    "metrics",
    "plans",
    "propensity",
    "read_impressions",
    "save_letor",
    "simulate_clicks",
    "synthetic",
    "theory",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the public names)
    if name in _HOME:
        return getattr(import_module(f"countersample.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"countersample.{name}")
    raise AttributeError(f"module 'countersample' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
