"""A neural network as an estimator: `NeuralRanker`. PyTorch is imported when it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._extras import need
from countersample._params import whole_number
from countersample.errors import ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.rankers._stopping import CHOOSING_SHARE, best_round, value_by_round
from countersample.rankers.base import ClickRanker
from countersample.scorers import NetworkScorer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.rankers._parameters import Check
    from countersample.scorers import Scorer

FEWEST_DRAWS = 1_000  # an epoch


@dataclass(frozen=True, eq=False)
class NeuralHistory:
    """The learning curve of a network, from when the number of steps was chosen.

    Attributes
    ----------
    steps : int64 (n,)
        The last step of each epoch.
    objective : float64 (n,)
        The mean loss of the epoch's batches: R on the way, on the clicks that are learned from.
    value : float64 (n,)
        Σ λ(rank)/p / Σ 1/p over the clicks of held-out queries, after that step.
    """

    steps: NDArray[np.int64]
    objective: Floats
    value: Floats


def _check_widths(name: str, hidden: object) -> None:
    if isinstance(hidden, str) or not isinstance(hidden, Sequence):
        raise ParameterError(
            f"{name} is {hidden!r}, expected the width of each hidden layer, such as (64, 32)"
        )
    for layer, width in enumerate(hidden):
        whole_number(f"{name}[{layer}]", width, least=1)


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralRanker(ClickRanker):
    """score(x) = a network of ReLU layers, minimising R = (1/N) Σ_clicks f / propensity.

    A neural network learned from clicks with Adam. How long to train is found without labels: after
    each epoch on a part of the clicked queries, the clicks of the others say how good the network
    is. Then another is trained on everything, for as many steps as were best. One part is held out,
    not several in turn as for other rankers, since each would cost a whole training.

    Parameters
    ----------
    hidden : sequence of int
        The width of each hidden layer; () is a linear ranker.
    method : {"countersample", "ips", "naive"}
        How clicks are drawn and weighted: see `countersample.plans`.
    unit : {"query", "pair", "click"}
        What is drawn at a time: all clicks of a query, those on an item of it, or one row.
    objective : str
        f, one of `countersample.objectives.LOSSES`.
    learning_rate : float
        That of Adam.
    batch_size : int
        Examples a step.
    epochs : int
        The most epochs. An epoch draws as many examples as there are, but at least 1,000.
    patience : int or None
        The number of epochs without a better estimate after which no more are tried. None trains
        on everything for all epochs at once, and holds out nothing.
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out, as the nearest of 1/2, 1/3, ….
    metric : {"dcg@k", "dcg", "precision@k", "arp"}
        What the number of steps is chosen by, estimated from held-out clicks.
    clip : float, "auto" or None
        The smallest propensity to train with: see `ClickLog.clip`. "auto" asks
        `countersample.tuning.choose_clip`. Held-out clicks are not clipped.
    l2 : float
        Weight decay: how much of itself, times the learning rate, each weight loses at each step
        (AdamW).
    normalize : {"minmax", "standard", "query-minmax"} or None
        How features are brought to a common scale, see `countersample.data.normalize`. What is
        fitted is applied in `predict`; ``query-minmax`` needs qid there.
    device : str
        Where PyTorch trains. The loss is computed on the CPU whatever it is.
    random_state : int, numpy Generator or None
        With the same integer, the same weights to the bit, on the same machine.

    Attributes
    ----------
    scorer_ : NetworkScorer
        By the mean of the weights over the last hundred steps or so. It needs no PyTorch.
    n_steps_ : int
    history_ : NeuralHistory or None
        None without patience, and in a ranker that was loaded.
    normalizer_, clip_, n_queries_, n_features_in_, feature_names_in_, fingerprint_, provenance_
        As of every `ClickRanker`.

    Examples
    --------
    >>> from countersample import evaluate, simulate_clicks, synthetic
    >>> from countersample.torch import NeuralRanker
    >>> data = synthetic("tiny", n_queries=200, rng=0)
    >>> log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=5000, rng=0)
    >>> ranker = NeuralRanker(hidden=(16,), random_state=0).fit_log(data, log)
    >>> before = evaluate(data.features[:, 0], data, "ndcg@10")["ndcg@10"]
    >>> after = evaluate(ranker, data, "ndcg@10")["ndcg@10"]
    >>> after > before
    True
    """

    kind: ClassVar[str] = "neural"
    _scorer_type: ClassVar[type[Scorer]] = NetworkScorer
    _learned: ClassVar[tuple[str, ...]] = ("n_steps_", "clip_")
    _checks: ClassVar[Mapping[str, Check]] = {
        "hidden": _check_widths,
        "epochs": partial(whole_number, least=1),
        "device": lambda _name, _value: None,  # PyTorch says whether it has it
    }

    hidden: Sequence[int] = (64, 32)
    method: str = "countersample"
    unit: str = "query"
    objective: str = "smooth-log-rank"
    learning_rate: float = 0.001
    batch_size: int = 32
    epochs: int = 50
    patience: int | None = 5
    holdout: float = 0.2
    metric: str = "dcg@10"
    clip: float | str | None = None
    l2: float = 0.01
    normalize: str | None = "minmax"
    device: str = "cpu"
    random_state: int | np.random.Generator | None = None

    def _train(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, progress: Progress
    ) -> None:
        need("torch")
        from countersample.torch._training import NetworkTraining  # noqa: PLC0415 (torch)

        progress = self._decide_clip(dataset, log, rng, progress)
        history, n_steps, to_train = None, 0, 1.0
        if self.patience is not None:
            to_train -= CHOOSING_SHARE
            held_out = HeldOut(
                dataset, log, self.metric, holdout=self.holdout, least_queries=1, rng=rng
            )
            (fold,) = held_out.folds
            epochs = NetworkTraining(self, dataset, fold.train, rng, fold.validation)
            values = value_by_round(
                held_out, [epochs], metric=self.metric, most=self.epochs, patience=self.patience,
                progress=progress.part(CHOOSING_SHARE, "choosing the number of steps"),
            )  # fmt: skip
            history = NeuralHistory(np.array(epochs.steps), np.array(epochs.losses), values)
            n_steps = epochs.steps[best_round(values, self.metric) - 1]
        progress = progress.part(to_train, "training")
        training = NetworkTraining(self, dataset, log, rng)
        n_steps = n_steps or self.epochs * training.steps_an_epoch
        while training.step < n_steps:
            training.advance(n_steps - training.step)
            progress.update(training.step / n_steps)
        self.scorer_ = training.scorer()
        self.n_steps_ = n_steps
        self.history_ = history

    def _libraries(self) -> tuple[str, ...]:
        return ("torch",)

    def _restore(self, kept: Mapping[str, Any]) -> None:
        super()._restore(kept)
        self.hidden = tuple(self.hidden)  # JSON has lists only
