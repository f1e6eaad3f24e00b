"""PyTorch on click logs: draw, batch, compute the loss, or have a network trained.

Each name is imported when it is first used. All but `NeuralRanker` need PyTorch (the extra
``torch``), which itself needs it to be trained, but neither to be loaded nor to rank.

=================  ===========================================================================
`CounterSampler`   draws the examples of a log by their weight: a sampler for a `DataLoader`
`ClickDataset`     those examples: the items of a query, and the clicks on them
`collate`          lists of any length as one batch, without padding
`click_loss`       the objectives of `countersample.objectives.LOSSES`, differentiable
`NeuralRanker`     all of it as a scikit-learn estimator
`ShardSampler`     draws over several processes, each of which has clicks of its own
`train_on_shards`  trains a `NeuralRanker` that way: for logs larger than a machine
=================  ===========================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from countersample._environment import need

if TYPE_CHECKING:
    from countersample.torch.data import ClickBatch, ClickDataset, click_loss, collate
    from countersample.torch.networks import train_on_shards
    from countersample.torch.neural_ranker import NeuralRanker
    from countersample.torch.samplers import CounterSampler, ShardSampler

__all__ = [
    "ClickBatch", "ClickDataset", "CounterSampler", "NeuralRanker", "ShardSampler", "click_loss",
    "collate", "train_on_shards",
]  # fmt: skip
_MODULES = {
    "CounterSampler": "samplers", "NeuralRanker": "neural_ranker", "ShardSampler": "samplers",
    "train_on_shards": "networks",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the public names)
    if name not in __all__:
        raise AttributeError(f"module 'countersample.torch' has no attribute {name!r}")
    if name != "NeuralRanker":
        need("torch")
    return getattr(import_module(f"countersample.torch.{_MODULES.get(name, 'data')}"), name)


def __dir__() -> list[str]:
    return __all__
