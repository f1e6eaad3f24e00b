"""A neural network as an estimator: `NeuralRanker`. PyTorch is imported when it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from countersample._environment import need
from countersample._params import choice, whole_number
from countersample.defaults import CONFIDENCE, HOLDOUT, METRIC
from countersample.errors import ParameterError
from countersample.rankers.checks import COUNT, MIN_PROPENSITY
from countersample.rankers.rounds import RoundsRanker
from countersample.rankers.task import scale_base, weigh_clicks
from countersample.scorers import NetworkScorer

if TYPE_CHECKING:
    import numpy as np

    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.objectives import Loss, Objective
    from countersample.rankers.checks import Check
    from countersample.rankers.task import Task, Tasks
    from countersample.scorers import Scorer
    from countersample.torch.networks import NetworkTraining


def _check_widths(name: str, hidden: object) -> None:
    if isinstance(hidden, str) or not isinstance(hidden, Sequence):
        raise ParameterError(
            f"{name} is {hidden!r}, expected the width of each hidden layer, such as (64, 32)"
        )
    for layer, width in enumerate(hidden):
        whole_number(f"{name}[{layer}]", width, least=1)


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralRanker(RoundsRanker):
    """score(x) = base·x + a network of ReLU layers, minimising R = (1/N) Σ_clicks f / propensity.

    A neural network learned from clicks with Adam. It adds to the imitation of the logging policy,
    or starts from zero. The start and the number of steps, which may be 0, are chosen without
    labels: after each epoch on a part of the clicked queries, the clicks of the others measure how
    good the network is. Then another is trained on everything, for as many steps as were best. One
    part is held out, not several in turn as for other rankers: each would cost a whole training.

    Parameters
    ----------
    hidden : sequence of int
        The width of each hidden layer; () is a linear ranker.
    method : {"countersample", "ips", "naive"}
        How clicks are sampled and weighted: see `countersample.plans`.
    unit : {"query", "pair", "click"}
        An example: all clicks of a query, those on one of its items, or one row of the log.
    objective : str, Objective or Loss
        f, one of `countersample.objectives.LOSSES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    start : {"auto", "served", "zero"}
        The base that the network adds to: the imitation of the logging policy, or nothing. "auto"
        tries both, if the policy is known, and held-out clicks choose. See
        `countersample.rankers.task` for the scale of a base.
    learning_rate : float
        The learning rate of Adam.
    batch_size : int
        Examples per step.
    epochs : int
        The maximum number of epochs. An epoch draws as many examples as there are, at least 1,000.
    patience : int or None
        The number of epochs without a better estimate after which no more are tried. None trains
        on everything for all epochs at once, from zero if `start` is "auto", and holds out nothing.
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out, as the nearest of 1/2, 1/3, ….
    l2 : float
        Weight decay per step, in units of the learning rate (AdamW).
    device : str
        The device that PyTorch trains on. The loss is computed on the CPU in any case.
    warm_start : bool
        Whether `fit` of a fitted ranker continues from its weights: it is a candidate as it is, and
        the only start, whatever `start` is. `hidden` has to be the same.
    impute, feature_transform, metric, clip, temper, safety, normalize, random_state
        See `CounterSampleRanker` and `ClickRanker`.

    Attributes
    ----------
    scorer_ : NetworkScorer
        By the mean of the weights over the last hundred steps or so. It needs no PyTorch.
    n_steps_ : int
        0 if no step is shown to be better than the start.
    start_ : {"served", "zero", "previous"}
    history_ : RoundHistory or None
        None without patience, and in a loaded ranker.
    and the attributes of `ClickRanker`; the steps of `path_` are epochs

    Examples
    --------
    >>> from countersample import simulate_clicks, synthetic
    >>> from countersample.torch import NeuralRanker
    >>> data = synthetic("tiny", n_queries=200, rng=0)
    >>> log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=5000, rng=0)
    >>> NeuralRanker(hidden=(16,), random_state=0).fit_log(data, log).scorer_.n_features
    5
    """

    kind: ClassVar[str] = "neural"
    _round_name: ClassVar[str] = "steps"
    _limit_name: ClassVar[str] = "epochs"
    _least_queries: ClassVar[int] = 1  # one fold is enough
    _scorer_type: ClassVar[type[Scorer]] = NetworkScorer
    _learned: ClassVar[Mapping[str, Check]] = {
        "n_steps_": COUNT,
        "start_": partial(choice, options=("served", "zero", "previous")),
        "clip_": MIN_PROPENSITY,
    }
    _checks: ClassVar[Mapping[str, Check]] = {
        "hidden": _check_widths,
        "start": partial(choice, options=("auto", "served", "zero")),
        "epochs": partial(whole_number, least=1),
        "device": lambda _name, _value: None,  # PyTorch raises an error for one it does not have
    }

    hidden: Sequence[int] = (64, 32)
    method: str = "countersample"
    unit: str = "query"
    objective: str | Objective | Loss = "smooth-log-rank"
    start: str = "auto"
    learning_rate: float = 0.001
    batch_size: int = 32
    epochs: int = 50
    patience: int | None = 5
    holdout: float = HOLDOUT
    metric: str = METRIC
    clip: float | None = None
    temper: float = 1.0
    safety: float = CONFIDENCE
    l2: float = 0.01
    impute: str = "median-indicator"
    normalize: str | None = "minmax"
    feature_transform: str | None = None
    device: str = "cpu"
    warm_start: bool = False
    random_state: int | np.random.Generator | None = None

    def _train(self, tasks: Tasks, rng: np.random.Generator, progress: Progress) -> Task:
        if self.patience is None and len(tasks.transforms) > 1:
            raise ParameterError(
                "feature_transform is 'auto' without patience, expected the name of a transform, "
                "or patience: without it no clicks are held out to choose a transform"
            )
        need("torch")
        task, self.n_steps_ = self._train_rounds(tasks, rng, progress)
        return task

    def _begin(
        self,
        task: Task,
        start: str,
        rng: np.random.Generator,
        held_out: RankingDataset | None = None,
    ) -> NetworkTraining:
        from countersample.torch.networks import NetworkTraining  # noqa: PLC0415 (torch)

        base = previous = None
        if start == "served" and task.served is not None:
            temper = 0.0 if self.method == "naive" else self.temper
            clicks = weigh_clicks(task.clicks, clip=self.clip, temper=temper)
            base = scale_base(task.served.weights, task.dataset, clicks, objective=self.objective)
        if start == "previous" and isinstance(task.previous, NetworkScorer):
            previous = task.previous
            self._check_layers(previous)
        clicks = weigh_clicks(task.clicks, clip=self.clip, temper=self.temper)
        return NetworkTraining(self, task.dataset, clicks, rng, held_out, base, previous)

    def _check_layers(self, previous: NetworkScorer) -> None:
        """Reject a network of other layers; one that started from a base has 2 units more."""
        widths = tuple(len(bias) for bias in previous.biases[:-1])
        if widths not in {tuple(self.hidden), tuple(width + 2 for width in self.hidden)}:
            raise ParameterError(
                f"hidden is {tuple(self.hidden)!r}, and the network of the warm start has layers "
                f"of {widths}, expected the same: leave it as it was, or train from scratch"
            )

    def _libraries(self) -> tuple[str, ...]:
        return ("torch",)

    def _restore(self, values: Mapping[str, Any]) -> None:
        super()._restore(values)
        self.hidden = tuple(self.hidden)  # JSON has lists only
