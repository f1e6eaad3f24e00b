"""The linear ranker: `CounterSampleRanker`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._params import choice, number
from countersample._schemas import Finite, check_schema
from countersample.data.scoring import linear_scores
from countersample.data.transforms import CANDIDATES
from countersample.errors import DataError, ParameterError
from countersample.options import CONFIDENCE, HOLDOUT, METRIC
from countersample.rankers._parameters import COUNT, LEAST_PROPENSITY, either, yes_or_no
from countersample.rankers.base import ClickRanker
from countersample.scorers import LinearScorer
from countersample.training import TrainingOptions, train
from countersample.tuning import TEMPERS, Contender, choose_by, follow_paths, number_of_steps
from countersample.tuning.paths import FIRST_DISTANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation.held_out import HeldOut
    from countersample.objectives import Objective
    from countersample.rankers._parameters import Check
    from countersample.rankers._task import Task
    from countersample.scorers import Scorer

CHECKPOINTS = 10
CHOOSING_SHARE = 0.8  # of the time, about


def _as_option(name: str, value: Any) -> None:  # noqa: ANN401 (anything)
    """Have it checked as an option of training; None is the default there."""
    if value is not None:
        TrainingOptions(**{name: value})


def _check_weights(name: str, value: object) -> None:
    check_schema(value, list[Finite], name)


@dataclass(kw_only=True, eq=False, repr=False)
class CounterSampleRanker(ClickRanker):
    """score(x) = w·x, with w minimising R(w) = (1/N) Σ_clicks λ(bound on the rank) / propensity.

    A linear ranker learned from clicks. The settings it starts with are meant to be good as they
    are: features are brought to [0, 1], and nothing has to be tuned. It follows paths: from zero
    and from what was served, with clicks weighted by 1/p^α for some α, in steps that need no
    learning rate (`dog`). Held-out clicks say how far to follow which, and whether to leave what
    was served at all: see `countersample.tuning.safety`.

    Parameters
    ----------
    method : {"countersample", "ips", "naive"}
        How clicks are drawn and weighted: see `countersample.plans`.
    unit : {"query", "pair", "click"}
        What is drawn at a time: all clicks of a query, those on an item of it, or one row.
    objective : str or Objective
        λ: one of `countersample.objectives.OBJECTIVES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    optimizer : {"dog", "sgd", "adam", "adagrad", "amsgrad"}, optional
        By default ``"dog"``, or ``"sgd"`` where a learning rate is named.
    learning_rate : float, optional
        By default paths without one. With one, a single run from zero (or from ``start="served"``)
        that is trained as asked: nothing is held out, and `safety` has no say.
    batch_size : int
        Examples a step.
    steps : int, optional
        The most of a path. By default five draws an example, but at least 5,000 and at most
        1,000,000 draws.
    start : {"auto", "zero", "served"}
        Where paths begin; "auto" is both, if the log or a baseline tells what was served.
    temper : "auto" or float in [0, 1]
        α of the weights 1/p^α, from 0 (naive) to 1 (IPS); "auto" tries 0, ½ and 1.
    safety : 0, or float in [0.5, 1)
        The confidence with which clicks have to show a candidate better than what was logged, in
        draws of held-out queries; the draws in which they show none keep what was logged, as far as
        features tell it. 0 takes what looks best.
    average : bool
        Whether to rank by the mean of the weights over all steps, or by the last ones.
    l2 : float
        Weight decay: adds (l2/2)·‖w‖² to R.
    radius : float, optional
        Keeps ‖w‖ ≤ radius.
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out at a time to judge paths, as the nearest
        of 1/2, 1/3, ….
    metric : {"dcg@k", "dcg", "precision@k"}
        What is judged, estimated from held-out clicks.
    clip : float or None
        The smallest propensity to train with: see `ClickLog.clip`.
    doubly_robust : bool
        Whether a model of relevance makes up for what clipping takes, and speaks for items that
        were never shown: see `countersample.evaluation.doubly_robust_log`. `clip` is its τ then, by
        default 10/√S with S sessions. The log must say what was shown (`impressions`).
    impute : {"median-indicator", "median", "zero", "error"}
        What missing values (NaN) become, where training has any: see
        `countersample.data.imputing.Imputer`; "error" refuses them.
    normalize : {"minmax", "root-minmax", "standard", "query-minmax"} or None
        How features are brought to a common scale, see `countersample.data.normalize`. What is
        fitted is applied in `predict`; ``query-minmax`` needs qid there.
    feature_transform : {"log", "root", "quantile", "auto"} or None
        What is done to features before, learned from them: see `countersample.data.transforms`.
        "auto" follows the paths of each, and of none, and lets held-out clicks choose: about four
        times the work.
    warm_start : bool
        Whether `fit` of a ranker that is fitted goes on from it: it is a candidate as it is, and
        the one start of all paths, whatever `start` says.
    random_state : int, numpy Generator or None
        With the same integer, the same weights to the bit, on the same kind of CPU.

    Attributes
    ----------
    weights_ : float64 (n_features,), with those of `imputer_` after that
        What scores. Of paths, the mean of those that draws of held-out queries choose.
    coef_, average_coef_ : float64, as weights_
        The weights after the last step, and their mean over all steps; of paths both are weights_.
    history_ : History
        The same in the course of training.
    learning_rate_ : float or None
    path_ : PathChoice or None
        What held-out clicks said of paths; None with a learning rate, and in a loaded ranker.
    n_steps_ : int
        The steps of the longest path that was chosen.
    scorer_ : LinearScorer
    imputer_, normalizer_, feature_transform_, clip_, n_queries_, n_features_in_, feature_names_in_
        As of every `ClickRanker`.
    fingerprint_, provenance_
        As of every `ClickRanker`.

    Examples
    --------
    >>> from countersample.rankers import CounterSampleRanker
    >>> X = [[0.2, 1.0], [0.9, 0.0], [0.4, 0.0], [0.8, 1.0], [0.1, 0.5]]
    >>> y, qid = [0, 3, 0, 2, 0], ["a", "a", "a", "b", "b"]
    >>> ranker = CounterSampleRanker(random_state=0)
    >>> ranker.fit(X, y, qid=qid, propensity=[1.0, 0.5, 0.3, 1.0, 0.5])
    CounterSampleRanker(random_state=0)
    >>> ranker.rank(X, qid)
    array([3, 1, 2, 1, 2])
    >>> ranker.score(X, y, qid=qid)  # every click is on a rank of 1
    1.0
    """

    kind: ClassVar[str] = "linear"
    _scorer_type: ClassVar[type[Scorer]] = LinearScorer
    _takes_scale: ClassVar[bool] = True
    _learned: ClassVar[Mapping[str, Check]] = {
        "coef_": _check_weights,
        "average_coef_": _check_weights,
        "learning_rate_": either(None, check=number, above=0),
        "clip_": LEAST_PROPENSITY,
        "n_steps_": COUNT,
    }
    _checks: ClassVar[Mapping[str, Check]] = {
        "objective": _as_option,
        "optimizer": _as_option,
        "learning_rate": either(None, check=number, above=0),
        "start": partial(choice, options=("auto", "zero", "served")),
        "steps": _as_option,
        "average": yes_or_no,
        "radius": _as_option,
    }

    method: str = "countersample"
    unit: str = "query"
    objective: str | Objective = "rank"
    optimizer: str | None = None
    learning_rate: float | None = None
    batch_size: int = 1
    steps: int | None = None
    average: bool = True
    l2: float = 0.0
    radius: float | None = None
    start: str = "auto"
    temper: float | str = "auto"
    safety: float = CONFIDENCE
    holdout: float = HOLDOUT
    metric: str = METRIC
    clip: float | None = None
    doubly_robust: bool = False
    impute: str = "median-indicator"
    normalize: str | None = "minmax"
    feature_transform: str | None = None
    warm_start: bool = False
    random_state: int | np.random.Generator | None = None

    def _train(self, task: Task, rng: np.random.Generator, progress: Progress) -> None:
        self.path_ = None
        self.learning_rate_: float | None = None
        if self._is_path:
            self._follow(lambda _: task, (task.transform,), rng, progress)
        else:
            self.served_ = None if self.start == "zero" else task.served
            self._check_start(task)
            self._run(task, self._training_options(task), rng, progress)
        self.scorer_ = LinearScorer(self.weights_)

    def _train_best(
        self, task_of: Callable[[str | None], Task], rng: np.random.Generator, progress: Progress
    ) -> Task:
        if not self._is_path:
            raise ParameterError(
                "feature_transform is 'auto' with a learning rate, expected one of them: with a "
                "learning rate it is trained as asked, and nothing is held out that could choose"
            )
        self.learning_rate_ = None
        task = self._follow(task_of, CANDIDATES, rng, progress)
        self.scorer_ = LinearScorer(self.weights_)
        return task

    def _check_start(self, task: Task) -> None:
        if self.start == "served" and self.served_ is None and task.previous is None:
            raise DataError(
                "start is 'served', and nothing tells what was served, expected positions in the "
                "log or a baseline"
            )

    @property
    def _is_path(self) -> bool:
        if self.learning_rate is None and self.optimizer not in {None, "dog"}:
            raise ParameterError(
                f"optimizer is {self.optimizer!r} without a learning rate, expected one: name "
                "learning_rate, or take 'dog', which needs none"
            )
        return self.learning_rate is None

    def _run(
        self, task: Task, options: TrainingOptions, rng: np.random.Generator, progress: Progress
    ) -> None:
        """Train once, as asked."""
        start = None
        if isinstance(task.previous, LinearScorer):
            start = _within(task.previous.weights, options.radius)
        elif self.start == "served" and self.served_ is not None:
            start = _within(self.served_.weights, options.radius)
        temper = 1.0 if isinstance(self.temper, str) else self.temper
        result = train(
            task.dataset, task.clicks, learning_rate=self.learning_rate, start=start,
            temper=temper, rng=rng, checkpoints=CHECKPOINTS, progress=progress, options=options,
        )  # fmt: skip
        self.coef_, self.average_coef_ = result.coef, result.average_coef
        self.weights_ = result.weights
        self.history_ = result.history
        self.learning_rate_ = result.learning_rate
        self.n_steps_ = result.n_steps

    def _follow(
        self,
        task_of: Callable[[str | None], Task],
        transforms: Sequence[str | None],
        rng: np.random.Generator,
        progress: Progress,
    ) -> Task:
        """Choose among paths, and follow on everything those that were chosen; return their task.

        What judges is made once, so that it is the same for all transforms.
        """
        task = task_of(transforms[0])
        self.served_ = task.served
        self._check_start(task)
        held_out, logs = task.held_out(self.metric, holdout=self.holdout, rng=rng)

        def contenders() -> Iterator[Contender]:
            yield self._contender(task, held_out, logs)
            for name in transforms[1:]:
                other = task_of(name)
                yield self._contender(
                    other, held_out.with_features(other.whole), other.without(held_out)
                )

        self.path_ = choose_by(
            contenders(), n_contenders=len(transforms), tempers=self._tempers, safety=self.safety,
            rng=rng, progress=progress.part(CHOOSING_SHARE),
            knows_logged=task.knows_logged
            and (self.served_ is not None or task.previous is not None),
        )  # fmt: skip
        task = task_of(self.path_.transform)
        self.served_, options = task.served, self._training_options(task)
        self.history_ = follow_paths(
            task.dataset, task.clicks, self.path_, starts=self._starts(task, options),
            options=options, seed=int(rng.integers(2**62)),
            progress=progress.part(1 - CHOOSING_SHARE, "training"),
        )  # fmt: skip
        self.weights_ = _within(self.history_.coef[-1], options.radius)
        self.coef_ = self.average_coef_ = self.weights_
        self.n_steps_ = int(self.history_.steps[-1])
        return task

    def _contender(self, task: Task, held_out: HeldOut, logs: Sequence[ClickLog]) -> Contender:
        """Return what is judged of a task."""
        options = self._training_options(task)
        starts = self._starts(task, options)
        tried = [name for name in starts if self.start in {"auto", name}]
        if "previous" in starts:
            tried = ["previous"]
        return Contender(
            held_out, task.dataset, logs,
            starts={name: starts[name] for name in tried},
            options=options,
            served=starts.get("served"),
            agreement=0.0 if task.served is None else task.served.agreement,
            transform=task.transform,
        )  # fmt: skip

    def _starts(self, task: Task, options: TrainingOptions) -> dict[str, Floats]:
        """Return the weights that paths may begin with."""
        starts = {"zero": np.zeros(task.dataset.n_features)}
        if task.served is not None:
            starts["served"] = _within(task.served.weights, options.radius)
        if isinstance(task.previous, LinearScorer):
            starts["previous"] = _within(task.previous.weights, options.radius)
        return starts

    @property
    def _tempers(self) -> tuple[float, ...]:
        if isinstance(self.temper, str):  # doubly robust weights have one propensity
            return (1.0,) if self.doubly_robust or self.method == "naive" else TEMPERS
        return (self.temper,)

    def staged_predict(self, dataset: RankingDataset) -> list[tuple[int, Floats]]:
        """Return the scores of items in the course of training: (steps, scores), in turn.

        Parameters
        ----------
        dataset : RankingDataset

        Examples
        --------
        >>> from countersample import CounterSampleRanker, simulate_clicks, synthetic
        >>> data = synthetic("tiny", rng=0)
        >>> log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=1000, rng=0)
        >>> ranker = CounterSampleRanker(learning_rate=0.01, steps=100, random_state=0)
        >>> [steps for steps, _ in ranker.fit_log(data, log).staged_predict(data)]
        [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
        """
        features = self._features(dataset)
        if self.imputer_ is not None:
            features = self.imputer_.features(features)
        if self.normalizer_ is not None:
            features = self.normalizer_.features(features, dataset.offsets)
        history = self.history_
        weights = history.average_coef if self.average else history.coef
        scores = linear_scores(weights, features).astype(np.float64)
        return list(zip(history.steps.tolist(), scores, strict=True))

    def _training_options(self, task: Task) -> TrainingOptions:
        """Return how it is trained, with the number of steps decided."""
        names = ("method", "unit", "objective", "batch_size", "average", "l2")
        by_default = number_of_steps(task.clicks, unit=self.unit, batch_size=self.batch_size)
        optimizer = "dog" if self._is_path else "sgd"
        return TrainingOptions(
            optimizer=optimizer if self.optimizer is None else self.optimizer,
            steps=by_default if self.steps is None else self.steps,
            scale=task.scale,
            clip=None if self.doubly_robust else self.clip,
            first_distance=FIRST_DISTANCE if self._is_path else None,
            radius=np.inf if self.radius is None else self.radius,
            **{name: getattr(self, name) for name in names},
        )

    def _restore(self, kept: Mapping[str, Any]) -> None:
        super()._restore(kept)
        self.weights_ = np.array(kept["scorer"]["weights"], np.float64)
        self.coef_, self.average_coef_ = np.array(self.coef_), np.array(self.average_coef_)
        for name in ("coef_", "average_coef_"):
            if getattr(self, name).shape != self.weights_.shape:
                raise DataError(f"{name} has another number of weights than the scorer")


def _within(weights: Floats, radius: float) -> Floats:
    """Return the weights, made shorter where they are longer than the radius."""
    length = float(np.linalg.norm(weights))
    return weights if length <= radius else weights * (radius / length)
