"""A neural network as an estimator: `NeuralRanker`. PyTorch is imported when it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._extras import need
from countersample._params import choice, whole_number
from countersample.data.transforms import CANDIDATES
from countersample.errors import ParameterError
from countersample.options import CONFIDENCE, HOLDOUT, METRIC
from countersample.rankers._parameters import COUNT, LEAST_PROPENSITY
from countersample.rankers._starting import sized, starts_of, trained_on, without_fold
from countersample.rankers._stopping import CHOOSING_SHARE, Chosen, Way, choose_round, judge_rounds
from countersample.rankers.base import ClickRanker
from countersample.scorers import NetworkScorer
from countersample.tuning.choosing import best_imitation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.objectives import Loss, Objective
    from countersample.rankers._parameters import Check
    from countersample.rankers._task import Task
    from countersample.scorers import Scorer
    from countersample.torch._training import NetworkTraining

FEWEST_DRAWS = 1_000  # an epoch


@dataclass(frozen=True, eq=False)
class NeuralHistory:
    """The learning curve of a network, from when the number of steps was chosen.

    Attributes
    ----------
    steps : int64 (n,)
        The last step of each epoch; 0 as well, where training starts from what was served.
    objective : float64 (n,)
        The mean loss of the epoch's batches: R on the way, on the clicks that are learned from;
        NaN at step 0.
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


def _check_previous(previous: NetworkScorer, hidden: Sequence[int]) -> None:
    """Refuse a network of other layers; one that started from what was served has 2 units more."""
    widths = tuple(len(bias) for bias in previous.biases[:-1])
    if widths not in {tuple(hidden), tuple(width + 2 for width in hidden)}:
        raise ParameterError(
            f"hidden is {tuple(hidden)!r} where the network to go on from has layers of {widths}, "
            "expected the same: leave it as it was, or train anew"
        )


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralRanker(ClickRanker):
    """score(x) = base·x + a network of ReLU layers, minimising R = (1/N) Σ_clicks f / propensity.

    A neural network learned from clicks with Adam, which adds to what was served or starts from
    zero. Where to start and how long to train is found without labels: after each epoch on a part
    of the clicked queries, the clicks of the others say how good the network is. Then another is
    trained on everything, for as many steps as were best, which may be none. One part is held out,
    not several in turn as for other rankers, since each would cost a whole training.

    Parameters
    ----------
    hidden : sequence of int
        The width of each hidden layer; () is a linear ranker.
    method : {"countersample", "ips", "naive"}
        How clicks are drawn and weighted: see `countersample.plans`.
    unit : {"query", "pair", "click"}
        What is drawn at a time: all clicks of a query, those on an item of it, or one row.
    objective : str, Objective or Loss
        f, one of `countersample.objectives.LOSSES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    start : {"auto", "served", "zero"}
        What the network adds to, the base: a linear scorer that ranks as what was logged
        (`countersample.rankers.served.imitate`), or nothing. "auto" tries both, where the first is
        known, and held-out clicks choose. How far apart the scores of a base are is decided by the
        clicks that are trained on: they are all but equal where it explains none of them.
    learning_rate : float
        That of Adam.
    batch_size : int
        Examples a step.
    epochs : int
        The most epochs. An epoch draws as many examples as there are, but at least 1,000.
    patience : int or None
        The number of epochs without a better estimate after which no more are tried. None trains
        on everything for all epochs at once, from zero where `start` is "auto", and holds out
        nothing.
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out, as the nearest of 1/2, 1/3, ….
    metric : {"dcg@k", "dcg", "precision@k", "arp"}
        What the number of steps is chosen by, estimated from held-out clicks.
    clip : float or None
        The smallest propensity to train with: see `ClickLog.clip`. Held-out clicks are not clipped.
    temper : float in [0, 1]
        α of the weights 1/p^α to train with, from 0 (naive) to 1: see `ClickLog.temper`. Held-out
        clicks are not tempered.
    safety : 0, or float in [0.5, 1)
        The confidence with which held-out clicks have to show the network better than what was
        logged before it takes its place; else the ranker ranks as what was logged, as far as
        features tell. 0 takes what looks best. Without patience nothing is held out, and it has no
        say.
    l2 : float
        Weight decay: how much of itself, times the learning rate, each weight loses at each step
        (AdamW).
    impute : {"median-indicator", "median", "zero", "error"}
        What missing values (NaN) become, where training has any: see
        `countersample.data.imputing.Imputer`; "error" refuses them.
    normalize : {"minmax", "root-minmax", "standard", "query-minmax"} or None
        How features are brought to a common scale, see `countersample.data.normalize`. What is
        fitted is applied in `predict`; ``query-minmax`` needs qid there.
    feature_transform : {"log", "root", "quantile", "auto"} or None
        What is done to features before, learned from them: see `countersample.data.transforms`.
        "auto" trains with each, and with none, and chooses by the held-out clicks that say when to
        stop: about four times the work.
    device : str
        Where PyTorch trains. The loss is computed on the CPU whatever it is.
    warm_start : bool
        Whether `fit` of a ranker that is fitted goes on from its weights: it is a candidate as it
        is, and the one start, whatever `start` says. `hidden` has to be the same.
    random_state : int, numpy Generator or None
        With the same integer, the same weights to the bit, on the same machine.

    Attributes
    ----------
    scorer_ : NetworkScorer
        By the mean of the weights over the last hundred steps or so. It needs no PyTorch.
    n_steps_ : int
        0 where no step makes what was served better, or nothing shows that they do.
    start_ : {"served", "zero", "previous"}
    path_ : PathChoice or None
        What held-out clicks said of them (its steps are epochs), and whether what was logged is
        kept; None where nothing tells what was served or nothing was held out, and in a ranker that
        was loaded.
    history_ : NeuralHistory or None
        None without patience, and in a ranker that was loaded.
    imputer_, normalizer_, feature_transform_, served_, clip_, n_queries_, n_features_in_
        As of every `ClickRanker`.
    feature_names_in_, fingerprint_, provenance_
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
    _learned: ClassVar[Mapping[str, Check]] = {
        "n_steps_": COUNT,
        "start_": partial(choice, options=("served", "zero", "previous")),
        "clip_": LEAST_PROPENSITY,
    }
    _checks: ClassVar[Mapping[str, Check]] = {
        "hidden": _check_widths,
        "start": partial(choice, options=("auto", "served", "zero")),
        "epochs": partial(whole_number, least=1),
        "device": lambda _name, _value: None,  # PyTorch says whether it has it
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

    def _train(self, task: Task, rng: np.random.Generator, progress: Progress) -> None:
        self._train_with(lambda _: task, (task.transform,), rng, progress)

    def _train_best(
        self, task_of: Callable[[str | None], Task], rng: np.random.Generator, progress: Progress
    ) -> Task:
        if self.patience is None:
            raise ParameterError(
                "feature_transform is 'auto' without patience, expected the name of a transform, "
                "or patience: without it nothing is held out that could choose"
            )
        return self._train_with(task_of, CANDIDATES, rng, progress)

    def _train_with(
        self,
        task_of: Callable[[str | None], Task],
        transforms: Sequence[str | None],
        rng: np.random.Generator,
        progress: Progress,
    ) -> Task:
        """Train with the best of these transforms; return its task."""
        need("torch")
        task = task_of(transforms[0])
        self.served_ = task.served
        starts = starts_of(
            self.start, task.served, is_judged=self.patience is not None, previous=task.previous
        )
        chosen, self.history_ = Chosen(starts[0], 0, transform=task.transform), None
        to_train = 1.0
        if self.patience is not None:
            to_train -= CHOOSING_SHARE
            part = progress.part(CHOOSING_SHARE, "choosing the number of steps")
            chosen = self._choose(task_of, transforms, starts, self.patience, rng, part)
        progress = progress.part(to_train, "training")
        task = task_of(chosen.to_do)
        self.served_ = task.served
        self.start_, n_steps = chosen.begins
        training = self._training(task, self.start_, rng)
        if self.patience is None:
            n_steps = self.epochs * training.steps_an_epoch
        while training.step < n_steps:
            training.advance(n_steps - training.step)
            progress.update(training.step / n_steps)
        progress.update(1.0)
        self.scorer_ = training.scorer()
        self.n_steps_ = n_steps
        self.path_ = chosen.path
        return task

    def _choose(
        self,
        task_of: Callable[[str | None], Task],
        transforms: Sequence[str | None],
        starts: Sequence[str],
        patience: int,
        rng: np.random.Generator,
        progress: Progress,
    ) -> Chosen:
        """Train without the clicks of a fold, and choose by them; set `history_`.

        What judges is made once, so that it is the same for all transforms.
        """
        task = task_of(transforms[0])
        held_out, (clicks,) = task.held_out(
            self.metric, holdout=self.holdout, least_queries=1, rng=rng
        )
        epochs, judged, agreements = {}, {}, {}
        n_ways = len(transforms) * len(starts)
        for transform in transforms:
            if transform != task.transform:
                task = task_of(transform)
                held_out = held_out.with_features(task.whole)
                (clicks,) = task.without(held_out)
            (fold,) = held_out.folds
            agreements[transform] = 0.0 if task.served is None else task.served.agreement
            for start in starts:
                learned, way = without_fold(task, fold, clicks), Way(start, transform)
                epochs[way] = self._training(learned, start, rng, fold.validation)
                judged[way] = judge_rounds(
                    held_out, [epochs[way]], first=int(start == "zero"),
                    most=self.epochs, patience=patience, progress=progress.part(1 / n_ways),
                )  # fmt: skip
        chosen = choose_round(
            held_out, judged, served=self.served_, safety=self.safety, temper=self.temper,
            imitates=best_imitation(agreements), rng=rng,
        )  # fmt: skip
        way = Way(chosen.start, chosen.transform)
        found, of_epochs = judged[way], epochs[way]
        steps, losses = (np.array(x)[found.rounds] for x in (of_epochs.steps, of_epochs.losses))
        self.history_ = NeuralHistory(steps, losses, found.values)
        return chosen._replace(rounds=of_epochs.steps[chosen.rounds])

    def _training(
        self,
        task: Task,
        start: str,
        rng: np.random.Generator,
        held_out: RankingDataset | None = None,
    ) -> NetworkTraining:
        """Begin to train."""
        from countersample.torch._training import NetworkTraining  # noqa: PLC0415 (torch)

        base = self._base(task) if start == "served" else None
        clicks = trained_on(task.clicks, clip=self.clip, temper=self.temper)
        previous = None
        if start == "previous" and isinstance(task.previous, NetworkScorer):
            previous = task.previous
            _check_previous(previous, self.hidden)
        return NetworkTraining(self, task.dataset, clicks, rng, held_out, base, previous)

    def _base(self, task: Task) -> Floats | None:
        """Return the weights of what was served; None where nothing tells it."""
        if task.served is None:
            return None
        temper = 0.0 if self.method == "naive" else self.temper
        clicks = trained_on(task.clicks, clip=self.clip, temper=temper)
        return sized(task.served.weights, task.dataset, clicks, objective=self.objective)

    def _libraries(self) -> tuple[str, ...]:
        return ("torch",)

    def _restore(self, kept: Mapping[str, Any]) -> None:
        super()._restore(kept)
        self.hidden = tuple(self.hidden)  # JSON has lists only
