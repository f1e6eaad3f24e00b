"""The linear ranker: `CounterSampleRanker`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._params import number
from countersample.rankers._parameters import either, yes_or_no
from countersample.rankers.base import ClickRanker
from countersample.scorers import LinearScorer
from countersample.training import TrainingOptions, train
from countersample.tuning import clips_to_try, number_of_steps, tune

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.rankers._parameters import Check
    from countersample.scorers import Scorer

CHECKPOINTS = 10
TUNING_SHARE = 0.8  # of the time, about


def _as_option(name: str, value: Any) -> None:  # noqa: ANN401 (anything)
    """Have it checked as an option of training; None is the default there."""
    if value is not None:
        TrainingOptions(**{name: value})


@dataclass(kw_only=True, eq=False, repr=False)
class CounterSampleRanker(ClickRanker):
    """score(x) = w·x, with w minimising R(w) = (1/N) Σ_clicks λ(bound on the rank) / propensity.

    A linear ranker learned from clicks. The settings it starts with are meant to be good as they
    are: features are brought to [0, 1], and the learning rate is found without labels.

    Parameters
    ----------
    method : {"countersample", "ips", "naive"}
        How clicks are drawn and weighted: see `countersample.plans`.
    unit : {"query", "pair", "click"}
        What is drawn at a time: all clicks of a query, those on an item of it, or one row.
    objective : {"rank", "log-rank", "dcg"}
        λ, see `countersample.objectives`.
    optimizer : {"sgd", "adam", "adagrad"}
    learning_rate : "auto" or float
        "auto" tries rates on 80 % of the clicked queries, judges each by the clicks of the others
        (`countersample.tuning.tune`), and trains on everything with the best.
    batch_size : int
        Examples a step.
    steps : int, optional
        By default three draws an example, but at least 30,000 and at most 1,000,000 draws.
    average : bool
        Whether to rank by the mean of the weights over all steps, or by the last ones.
    l2 : float
        Weight decay: adds (l2/2)·‖w‖² to R.
    radius : float, optional
        Keeps ‖w‖ ≤ radius.
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out at a time to judge what "auto" tries, as
        the nearest of 1/2, 1/3, ….
    metric : {"dcg@k", "dcg", "precision@k"}
        What is judged, estimated from held-out clicks.
    clip : float, "auto" or None
        The smallest propensity to train with: see `ClickLog.clip`. "auto" tries some, and judges
        them as learning rates are judged: it takes longer, and helps where a few weights are huge.
    normalize : {"minmax", "standard", "query-minmax"} or None
        How features are brought to a common scale, see `countersample.data.normalize`. What is
        fitted is applied in `predict`; ``query-minmax`` needs qid there.
    random_state : int, numpy Generator or None
        With the same integer, the same weights to the bit, on the same kind of CPU.

    Attributes
    ----------
    coef_, average_coef_, weights_ : float64 (n_features,)
        The weights after the last step, their mean over all steps, and the one of both that scores.
    history_ : History
        Both at ten steps, evenly spaced.
    learning_rate_ : float
    tuning_ : TuningResult or None
        The rates that "auto" tried.
    n_steps_ : int
    scorer_ : LinearScorer
    normalizer_, clip_, n_queries_, n_features_in_, feature_names_in_, fingerprint_, provenance_
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
    _learned: ClassVar[tuple[str, ...]] = (
        "coef_", "average_coef_", "learning_rate_", "clip_", "n_steps_",
    )  # fmt: skip
    _checks: ClassVar[Mapping[str, Check]] = {
        "objective": _as_option,
        "optimizer": _as_option,
        "learning_rate": either("auto", check=number, above=0),
        "steps": _as_option,
        "average": yes_or_no,
        "radius": _as_option,
    }

    method: str = "countersample"
    unit: str = "query"
    objective: str = "rank"
    optimizer: str = "sgd"
    learning_rate: float | str = "auto"
    batch_size: int = 1
    steps: int | None = None
    average: bool = True
    l2: float = 0.0
    radius: float | None = None
    holdout: float = 0.2
    metric: str = "dcg@10"
    clip: float | str | None = None
    normalize: str | None = "minmax"
    random_state: int | np.random.Generator | None = None

    def _train(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, progress: Progress
    ) -> None:
        options = self._training_options(log)
        tuning, rate, clip, to_train = None, self.learning_rate, self.clip, 1.0
        if isinstance(rate, str) or isinstance(clip, str):  # "auto"
            to_train -= TUNING_SHARE
            tuning = tune(
                dataset, log, fewer_steps=False, holdout=self.holdout, metric=self.metric, rng=rng,
                learning_rates=None if isinstance(rate, str) else [rate],
                clips=clips_to_try(log) if isinstance(clip, str) else [clip],
                progress=progress.part(TUNING_SHARE), options=options,
            )  # fmt: skip
            rate, clip = tuning.learning_rate, tuning.clip
        result = train(
            dataset, log, learning_rate=float(rate), clip=clip, rng=rng, checkpoints=CHECKPOINTS,
            progress=progress.part(to_train), options=options,
        )  # fmt: skip
        self.coef_, self.average_coef_ = result.coef, result.average_coef
        self.weights_ = result.weights
        self.scorer_ = LinearScorer(self.weights_)
        self.history_ = result.history
        self.learning_rate_ = result.learning_rate
        self.clip_ = None if clip is None else float(clip)
        self.tuning_ = tuning
        self.clip_choice_ = None
        if tuning is not None and isinstance(self.clip, str):
            self.clip_choice_ = tuning.clip_choice
        self.n_steps_ = result.n_steps

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
        if self.normalizer_ is not None:
            features = self.normalizer_.transform(features, dataset.offsets)
        history = self.history_
        weights = history.average_coef if self.average else history.coef
        return list(zip(history.steps.tolist(), weights @ features.T, strict=True))

    def _training_options(self, log: ClickLog) -> TrainingOptions:
        """Return how it is trained, with the number of steps decided."""
        names = ("method", "unit", "objective", "optimizer", "batch_size", "average", "l2")
        by_default = number_of_steps(log, unit=self.unit, batch_size=self.batch_size)
        return TrainingOptions(
            steps=by_default if self.steps is None else self.steps,
            radius=np.inf if self.radius is None else self.radius,
            **{name: getattr(self, name) for name in names},
        )

    def _restore(self, kept: Mapping[str, Any]) -> None:
        super()._restore(kept)
        self.weights_ = np.array(kept["scorer"]["weights"], np.float64)
        self.coef_ = np.array(self.coef_, np.float64)
        self.average_coef_ = np.array(self.average_coef_, np.float64)
