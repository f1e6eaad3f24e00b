"""A neural network as an estimator: `NeuralRanker`. PyTorch is imported when it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._extras import need
from countersample.errors import ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.evaluation.ranking import parse_additive
from countersample.objectives import get_loss
from countersample.plans import UNITS, Examples
from countersample.rankers.base import ClickRanker, as_clip
from countersample.scorers import NetworkScorer
from countersample.torch._checks import whole_number
from countersample.training import DivergedError
from countersample.tuning import choose_clip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.rankers.base import Report
    from countersample.torch._training import NetworkTraining

METHODS = ("countersample", "ips", "naive")
FEWEST_DRAWS = 1_000  # an epoch
CHOOSING_SHARE = 0.6  # of the time, about


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
    objective: NDArray[np.float64]
    value: NDArray[np.float64]


class NeuralRanker(ClickRanker):
    """score(x) = a network of ReLU layers, minimising R = (1/N) Σ_clicks f / propensity.

    A neural network learned from clicks with Adam. How long to train is found without labels: after
    each epoch on a part of the clicked queries, the clicks of the others say how good the network
    is. Then another is trained on everything, for as many steps as were best.

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
    metric : {"dcg@k", "dcg", "precision@k"}
        What the number of steps is chosen by, estimated from held-out clicks.
    clip : float, "auto" or None
        The smallest propensity to train with: see `ClickLog.clip`. "auto" asks
        `countersample.tuning.choose_clip`. Held-out clicks are not clipped.
    weight_decay : float
        How much of itself, times the learning rate, each weight loses at each step (AdamW).
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
    clip_ : float or None
    history_ : NeuralHistory or None
        None without patience, and in a ranker that was loaded.
    n_queries_, n_features_in_, feature_names_in_, normalizer_, fingerprint_, origin_
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

    def __init__(
        self,
        hidden: Sequence[int] = (64, 32),
        *,
        method: str = "countersample",
        unit: str = "query",
        objective: str = "smooth-log-rank",
        learning_rate: float = 0.001,
        batch_size: int = 32,
        epochs: int = 50,
        patience: int | None = 5,
        holdout: float = 0.2,
        metric: str = "dcg@10",
        clip: float | str | None = None,
        weight_decay: float = 0.01,
        normalize: str | None = "minmax",
        device: str = "cpu",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.hidden = hidden
        self.method = method
        self.unit = unit
        self.objective = objective
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.holdout = holdout
        self.metric = metric
        self.clip = clip
        self.weight_decay = weight_decay
        self.normalize = normalize
        self.device = device
        self.random_state = random_state

    def _train(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, tell: Report
    ) -> None:
        need("torch")
        self._check_params()
        log = log.take(log.clicks > 0)
        self.clip_ = (
            choose_clip(dataset, log, rng=rng).clip if self.clip == "auto" else as_clip(self.clip)
        )
        history, begin = None, 0.0
        if self.patience is None:
            n_steps = self.epochs * self._steps_an_epoch(log)
        else:
            begin = CHOOSING_SHARE
            history = self._choose(
                dataset, log, self.patience, rng,
                lambda share: tell("choosing the number of steps", begin * share),
            )  # fmt: skip
            n_steps = int(history.steps[history.value.argmax()])
        training = self._begin(dataset, log, rng)
        a_part = self._steps_an_epoch(log)
        while training.step < n_steps:
            training.advance(min(a_part, n_steps - training.step))
            tell("training", begin + (1 - begin) * training.step / n_steps)
        self.scorer_ = training.scorer()
        self.n_steps_ = n_steps
        self.history_ = history

    def _choose(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        patience: int,
        rng: np.random.Generator,
        tell: Callable[[float], None],
    ) -> NeuralHistory:
        """Train on what is not held out, until held-out clicks gain no more."""
        held_out = HeldOut(
            dataset, log, self.metric, holdout=self.holdout, least_queries=1, rng=rng
        )
        (fold,) = held_out.folds
        training = self._begin(dataset, fold.train, rng)
        n_steps = self._steps_an_epoch(fold.train)
        steps, objective, value = [], [], []
        for epoch in range(1, self.epochs + 1):
            objective.append(training.advance(n_steps))
            steps.append(training.step)
            with np.errstate(over="ignore", invalid="ignore"):  # said below
                scores = training.scorer().predict(fold.validation.features)
            if not np.isfinite(scores).all():
                raise DivergedError(training.step, self.learning_rate)
            value.append(fold.value(scores))
            last = min(self.epochs, 1 + int(np.argmax(value)) + patience)  # as it looks now
            tell(epoch / last)
            if epoch == last:
                break
        return NeuralHistory(np.array(steps), np.array(objective), np.array(value))

    def _begin(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator
    ) -> NetworkTraining:
        from countersample.torch._training import NetworkTraining, Settings  # noqa: PLC0415 (torch)

        settings = Settings(**{name: getattr(self, name) for name in Settings._fields})
        return NetworkTraining(dataset, self._clipped(log), settings, rng)

    def _clipped(self, log: ClickLog) -> ClickLog:
        return log if self.clip_ is None else log.clip(self.clip_)

    def _steps_an_epoch(self, log: ClickLog) -> int:
        n_draws = max(FEWEST_DRAWS, len(Examples.of(log, self.unit)))
        return -(-n_draws // self.batch_size)

    def _check_params(self) -> None:
        _check_widths(self.hidden)
        if self.method not in METHODS:
            raise ParameterError(f"method is {self.method!r}, expected one of {', '.join(METHODS)}")
        if self.unit not in UNITS:
            raise ParameterError(f"unit is {self.unit!r}, expected one of {', '.join(UNITS)}")
        get_loss(self.objective)
        whole_number("batch_size", self.batch_size, least=1)
        whole_number("epochs", self.epochs, least=1)
        if self.patience is not None:
            whole_number("patience", self.patience, least=1)
        if not (_is_number(self.learning_rate) and self.learning_rate > 0):
            raise ParameterError(
                f"learning_rate is {self.learning_rate!r}, expected a number above 0"
            )
        if not (_is_number(self.weight_decay) and self.weight_decay >= 0):
            raise ParameterError(
                f"weight_decay is {self.weight_decay!r}, expected a number of at least 0"
            )
        parse_additive(self.metric)
        if self.metric == "arp":
            raise ParameterError(
                "metric is 'arp', of which less is better, expected dcg or precision"
            )

    def _libraries(self) -> tuple[str, ...]:
        return ("torch",)

    def _keep(self) -> dict[str, Any]:
        return {"scorer": self.scorer_.to_dict(), "n_steps": self.n_steps_, "clip": self.clip_}

    def _restore(self, kept: Mapping[str, Any]) -> None:
        self.hidden = tuple(self.hidden)  # JSON has lists only
        self.scorer_ = NetworkScorer.from_dict(kept["scorer"])
        self.n_steps_, self.clip_ = kept["n_steps"], kept["clip"]
        self.history_ = None


def _check_widths(hidden: object) -> None:
    if isinstance(hidden, str) or not isinstance(hidden, Sequence):
        raise ParameterError(
            f"hidden is {hidden!r}, expected the width of each hidden layer, such as (64, 32)"
        )
    for layer, width in enumerate(hidden):
        whole_number(f"hidden[{layer}]", width, least=1)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and -np.inf < float(value) < np.inf
