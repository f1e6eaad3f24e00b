"""The linear ranker: `CounterSampleRanker`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._json import Finite, check_schema
from countersample._params import choice, number
from countersample.data.compact import linear_scores
from countersample.defaults import CONFIDENCE, HOLDOUT, METRIC
from countersample.errors import DataError, ParameterError
from countersample.metrics import ratio
from countersample.rankers.base import ClickRanker
from countersample.rankers.checks import COUNT, MIN_PROPENSITY, check_flag, either
from countersample.rankers.logging_policy import check_size
from countersample.rankers.task import list_starts
from countersample.scorers import LinearScorer
from countersample.training import TrainingOptions, train
from countersample.tuning import TEMPERS, Contender, choose_contender, follow_paths, number_of_steps
from countersample.tuning.click_rates import regress_click_rates
from countersample.tuning.paths import FIRST_DISTANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation.holdout import HeldOut
    from countersample.objectives import Objective
    from countersample.rankers.checks import Check
    from countersample.rankers.task import Task, Tasks
    from countersample.scorers import Scorer

CHECKPOINTS = 10
CHOOSING_SHARE = 0.8  # of the time, about


def _check_option(name: str, value: Any) -> None:  # noqa: ANN401 (anything)
    """Check a value as an option of training; None is the default there."""
    if value is not None:
        TrainingOptions(**{name: value})


def _check_weights(name: str, value: object) -> None:
    check_schema(value, list[Finite], name)


@dataclass(kw_only=True, eq=False, repr=False)
class CounterSampleRanker(ClickRanker):
    """score(x) = w·x, with w minimising R(w) = (1/N) Σ_clicks λ(bound on the rank) / propensity.

    A linear ranker learned from clicks, whose defaults need no tuning. It follows paths, from zero
    and from the imitation of the logging policy, with clicks weighted by 1/p^α for some α, in steps
    without a learning rate (`dog`). If the log has impressions, a regression on click rates
    (`countersample.tuning.click_rates`) is another candidate, alone and combined with each path.
    Held-out clicks decide how far to follow which path, and whether to leave the logging policy at
    all: see `countersample.tuning.safety`.

    Parameters
    ----------
    method : {"countersample", "ips", "naive"}
        How clicks are sampled and weighted: see `countersample.plans`.
    unit : {"query", "pair", "click"}
        An example: all clicks of a query, those on one of its items, or one row of the log.
    objective : str or Objective
        λ: one of `countersample.objectives.OBJECTIVES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    optimizer : {"dog", "sgd", "adam", "adagrad", "amsgrad"}, optional
        By default ``"dog"``, or ``"sgd"`` with a learning rate.
    learning_rate : float, optional
        By default paths without one. With one, a single run from zero (or from ``start="served"``):
        nothing is held out, and `safety` has no effect.
    batch_size : int
        Examples per step.
    steps : int, optional
        The maximum of a path; by default from five draws per example (`number_of_steps`).
    start : {"auto", "zero", "served"}
        The start of paths; "auto" is both, if the log or a baseline contains the logging policy.
    temper : "auto" or float in [0, 1]
        α of the weights 1/p^α, from 0 (naive) to 1 (IPS); "auto" tries both.
    average : bool
        Whether to rank by the mean of the weights over all steps, or by the last ones.
    l2, radius : float
        Weight decay, which adds (l2/2)·‖w‖² to R; and a bound, ‖w‖ ≤ radius.
    doubly_robust : bool
        Whether a relevance model corrects for clipping, and for items that were never shown: see
        `countersample.evaluation.doubly_robust_log`. `clip` is its τ then, by default 10/√S with S
        sessions. The log needs `impressions`.
    click_rates : bool
        Whether a regression on debiased click rates takes part in the choice, if the log has
        `impressions`. It has no part in naive, doubly robust and single runs, and in warm starts.
    impute : {"median-indicator", "median", "zero", "error"}
        Replacements of missing values (NaN), if training has any: see
        `countersample.data.preprocessing.Imputer`; "error" rejects them.
    feature_transform : {"log", "root", "quantile", "auto"} or None
        The transform of features before scaling: see `countersample.data.preprocessing`. "auto"
        trains with each, and with none, and held-out clicks choose: about four times the work.
    holdout, metric, clip, safety, normalize, warm_start, random_state
        See `ClickRanker`. A warm start is a candidate as it is, and the only start of all paths.

    Attributes
    ----------
    weights_ : float64 (n_features,), then the weights of indicators of missing values
        The weights that score. With paths, the mean of the weights chosen by draws of queries.
    coef_, average_coef_ : float64, as weights_
        The weights after the last step, and their mean over all steps; of paths both are weights_.
    history_ : History
        The same at checkpoints of the training.
    learning_rate_ : float or None
    n_steps_ : int
        The steps of the longest path that was chosen.
    and the attributes of `ClickRanker`

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
    """

    kind: ClassVar[str] = "linear"
    _scorer_type: ClassVar[type[Scorer]] = LinearScorer
    _takes_scale: ClassVar[bool] = True
    _learned: ClassVar[Mapping[str, Check]] = {
        "coef_": _check_weights,
        "average_coef_": _check_weights,
        "learning_rate_": either(None, check=number, above=0),
        "clip_": MIN_PROPENSITY,
        "n_steps_": COUNT,
    }
    _checks: ClassVar[Mapping[str, Check]] = {
        "objective": _check_option,
        "optimizer": _check_option,
        "learning_rate": either(None, check=number, above=0),
        "start": partial(choice, options=("auto", "zero", "served")),
        "steps": _check_option,
        "average": check_flag,
        "click_rates": check_flag,
        "radius": _check_option,
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
    click_rates: bool = True
    impute: str = "median-indicator"
    normalize: str | None = "minmax"
    feature_transform: str | None = None
    warm_start: bool = False
    random_state: int | np.random.Generator | None = None

    def _train(self, tasks: Tasks, rng: np.random.Generator, progress: Progress) -> Task:
        task = tasks.of(tasks.transforms[0])
        self.learning_rate_: float | None = None
        if self._is_path:
            task = self._train_paths(tasks, rng, progress)
        elif len(tasks.transforms) > 1:
            raise ParameterError(
                "feature_transform is 'auto' with a learning rate, expected one of them: with a "
                "learning rate no clicks are held out to choose a transform"
            )
        else:
            self.path_, self.served_ = None, None if self.start == "zero" else task.served
            list_starts(self.start, task, has_holdout=False)  # raises an error for an unknown start
            self._train_once(task, rng, progress)
        check_size(self.weights_)
        self.scorer_ = LinearScorer(self.weights_)
        return task

    @property
    def _is_path(self) -> bool:
        if self.learning_rate is None and self.optimizer not in {None, "dog"}:
            raise ParameterError(
                f"optimizer is {self.optimizer!r} without a learning rate, expected one: name "
                "learning_rate, or take 'dog', which needs none"
            )
        return self.learning_rate is None

    def _train_once(self, task: Task, rng: np.random.Generator, progress: Progress) -> None:
        """Train a single run with the learning rate."""
        options = self._training_options(task)
        start = "previous" if task.previous is not None else self.start
        result = train(
            task.dataset, task.clicks, learning_rate=self.learning_rate,
            start=self._starts(task, options)[start] if start in {"previous", "served"} else None,
            temper=1.0 if isinstance(self.temper, str) else self.temper,
            rng=rng, checkpoints=CHECKPOINTS, progress=progress, options=options,
        )  # fmt: skip
        self.coef_, self.average_coef_, self.weights_ = (
            result.coef, result.average_coef, result.weights
        )  # fmt: skip
        self.history_, self.n_steps_ = result.history, result.n_steps
        self.learning_rate_ = result.learning_rate

    def _train_paths(self, tasks: Tasks, rng: np.random.Generator, progress: Progress) -> Task:
        """Choose among paths, and follow the chosen ones on everything; return their task.

        The queries to hold out are drawn once, so that they are the same for all transforms.
        """
        task = tasks.of(tasks.transforms[0])
        list_starts(self.start, task, has_holdout=True)  # raises an error for an unknown start
        held_out, logs = task.held_out(self.metric, self.holdout, rng)

        rates: dict[str | None, list[Floats]] = {}

        def list_contenders() -> Iterator[Contender]:
            rates[task.transform] = self._regress(task, held_out)
            yield self._contender(task, held_out, logs, rates[task.transform])
            for name in tasks.transforms[1:]:
                other = tasks.of(name)
                rates[name] = self._regress(other, held_out)
                yield self._contender(
                    other, held_out.with_features(other.full), other.clicks_without(held_out),
                    rates[name],
                )  # fmt: skip

        self.path_ = choose_contender(
            list_contenders(), n_contenders=len(tasks.transforms), tempers=self._tempers,
            safety=self.safety, rng=rng, progress=progress.part(CHOOSING_SHARE),
            has_positions=task.has_positions
            and (task.served is not None or task.previous is not None),
        )  # fmt: skip
        task = tasks.of(self.path_.transform)
        self.served_, options = task.served, self._training_options(task)
        self.history_ = follow_paths(
            task.dataset, task.clicks, self.path_, starts=self._starts(task, options),
            options=options, seed=int(rng.integers(2**62)),
            progress=progress.part(1 - CHOOSING_SHARE, "training"),
            rates=next(reversed(rates[task.transform]), None),
        )  # fmt: skip
        self.weights_ = _shorten(self.history_.coef[-1], options.radius)
        self.coef_ = self.average_coef_ = self.weights_
        self.n_steps_ = int(self.history_.steps[-1])
        return task

    def _contender(
        self, task: Task, held_out: HeldOut, logs: Sequence[ClickLog], rates: Sequence[Floats]
    ) -> Contender:
        """Return the paths of a task, to be compared with other transforms."""
        options = self._training_options(task)
        starts = self._starts(task, options)
        tried = ["previous"] if "previous" in starts else list(starts)
        return Contender(
            held_out, task.dataset, logs,
            starts={n: starts[n] for n in tried if self.start in {"auto", n} or n == "previous"},
            options=options,
            served=starts.get("served"),
            agreement=0.0 if task.served is None else task.served.agreement,
            transform=task.transform,
            rates=rates[:-1],
        )  # fmt: skip

    def _regress(self, task: Task, held_out: HeldOut) -> list[Floats]:
        """Return the regression on click rates without each fold, and of all; maybe none."""
        if (
            not self.click_rates or task.robust is not None or task.log.impressions is None
            or task.previous is not None or self.method == "naive"
        ):  # fmt: skip
            return []
        weights = regress_click_rates(task.dataset, task.log, task.queries_of(held_out))
        if task.scale is None:
            return weights
        return [ratio(each, np.asarray(task.scale)) for each in weights]

    def _starts(self, task: Task, options: TrainingOptions) -> dict[str, Floats]:
        """Return the weights that paths may begin with, within the radius."""
        starts = {"zero": np.zeros(task.dataset.n_features)}
        if task.served is not None:
            starts["served"] = _shorten(task.served.weights, options.radius)
        if isinstance(task.previous, LinearScorer):
            starts["previous"] = _shorten(task.previous.weights, options.radius)
        return starts

    @property
    def _tempers(self) -> tuple[float, ...]:
        if isinstance(self.temper, str):  # doubly robust weights have one propensity
            return (1.0,) if self.doubly_robust or self.method == "naive" else TEMPERS
        return (self.temper,)

    def staged_predict(self, dataset: RankingDataset) -> list[tuple[int, Floats]]:
        """Return the scores of items in the course of training: (steps, scores), in turn."""
        features = self._check_features(dataset)
        features = self.preprocessing_.features(features, dataset.offsets)
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

    def _restore(self, values: Mapping[str, Any]) -> None:
        super()._restore(values)
        self.weights_ = np.array(values["scorer"]["weights"], np.float64)
        self.coef_, self.average_coef_ = np.array(self.coef_), np.array(self.average_coef_)
        for name in ("coef_", "average_coef_"):
            if getattr(self, name).shape != self.weights_.shape:
                raise DataError(f"{name} has another number of weights than the scorer")


def _shorten(weights: Floats, radius: float) -> Floats:
    """Return the weights, scaled down to the radius if they are longer."""
    length = float(np.linalg.norm(weights))
    return weights if length <= radius else weights * (radius / length)
