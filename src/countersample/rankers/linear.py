"""The linear ranker: `CounterSampleRanker`."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample.errors import ParameterError
from countersample.rankers.base import ClickRanker, as_clip
from countersample.scorers import LinearScorer
from countersample.training import TrainingOptions, train
from countersample.tuning import clips_to_try, number_of_steps, tune

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.rankers.base import Report

    Floats = NDArray[np.float64]

CHECKPOINTS = 10
TUNING_SHARE = 0.8  # of the time, about


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
        Adds (l2/2)·‖w‖² to R.
    radius : float, optional
        Keeps ‖w‖ ≤ radius.
    clip : float, "auto" or None
        The smallest propensity to train with: see `ClickLog.clip`. "auto" tries some, and judges
        them as learning rates are judged: it takes longer, and helps where a few weights are huge.
    normalize : {"minmax", "standard", "query-minmax"} or None
        How features are brought to a common scale, see `countersample.data.normalize`. What is
        fitted is applied in `predict`; ``query-minmax`` needs qid there.
    random_state : int, numpy Generator or None
        With the same integer, the same weights to the bit.

    Attributes
    ----------
    coef_, average_coef_, weights_ : float64 (n_features,)
        The weights after the last step, their mean over all steps, and the one of both that scores.
    history_ : History
        Both at ten steps, evenly spaced.
    learning_rate_ : float
    clip_ : float or None
    tuning_ : TuningResult or None
        The rates that "auto" tried.
    n_steps_ : int
    n_queries_, n_features_in_, feature_names_in_, normalizer_, scorer_, fingerprint_, origin_
        As of every `ClickRanker`.

    Examples
    --------
    >>> from countersample.rankers import CounterSampleRanker
    >>> X = [[0.2, 1.0], [0.9, 0.0], [0.4, 0.0], [0.8, 1.0], [0.1, 0.5]]
    >>> clicks, qid = [0, 3, 0, 2, 0], ["a", "a", "a", "b", "b"]
    >>> ranker = CounterSampleRanker(random_state=0)
    >>> ranker.fit(X, clicks, qid=qid, propensity=[1.0, 0.5, 0.3, 1.0, 0.5])
    CounterSampleRanker(random_state=0)
    >>> ranker.rank(X, qid)
    array([3, 1, 2, 1, 2])
    >>> ranker.score(X, clicks, qid=qid)  # every click is on a rank of 1
    1.0
    """

    kind: ClassVar[str] = "linear"

    def __init__(
        self,
        method: str = "countersample",
        unit: str = "query",
        *,
        objective: str = "rank",
        optimizer: str = "sgd",
        learning_rate: float | str = "auto",
        batch_size: int = 1,
        steps: int | None = None,
        average: bool = True,
        l2: float = 0.0,
        radius: float | None = None,
        clip: float | str | None = None,
        normalize: str | None = "minmax",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.method = method
        self.unit = unit
        self.objective = objective
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.steps = steps
        self.average = average
        self.l2 = l2
        self.radius = radius
        self.clip = clip
        self.normalize = normalize
        self.random_state = random_state

    def _train(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, tell: Report
    ) -> None:
        options = self._training_options(log)
        tuning, rate, clip, begin = None, self.learning_rate, self.clip, 0.0
        if rate == "auto" or clip == "auto":
            begin = TUNING_SHARE
            tuning = tune(
                dataset, log, fewer_steps=False, rng=rng,
                learning_rates=None if rate == "auto" else [_as_rate(rate)],
                clips=clips_to_try(log) if clip == "auto" else [as_clip(clip)],
                progress=lambda _what, share: tell("trying learning rates", begin * share),
                options=options,
            )  # fmt: skip
            rate, clip = tuning.learning_rate, tuning.clip
        result = train(
            dataset, log, learning_rate=_as_rate(rate), clip=as_clip(clip), rng=rng,
            checkpoints=CHECKPOINTS, options=options,
            progress=lambda what, share: tell(what, begin + (1 - begin) * share),
        )  # fmt: skip
        self.coef_, self.average_coef_ = result.coef, result.average_coef
        self.weights_ = result.weights
        self.scorer_ = LinearScorer(self.weights_)
        self.history_ = result.history
        self.learning_rate_, self.clip_ = result.learning_rate, as_clip(clip)
        self.tuning_ = tuning
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
        names = ("method", "unit", "objective", "optimizer", "batch_size", "average", "l2", "steps")
        options = TrainingOptions(
            radius=np.inf if self.radius is None else self.radius,
            **{name: getattr(self, name) for name in names},
        )
        if options.steps is not None:
            return options
        steps = number_of_steps(log, unit=self.unit, batch_size=self.batch_size)
        return replace(options, steps=steps)

    def _keep(self) -> dict[str, Any]:
        return {
            "scorer": self.scorer_.to_dict(),
            "coef": self.coef_,
            "average_coef": self.average_coef_,
            "learning_rate": self.learning_rate_,
            "clip": self.clip_,
            "n_steps": self.n_steps_,
        }

    def _restore(self, kept: Mapping[str, Any]) -> None:
        scorer = LinearScorer.from_dict(kept["scorer"])
        self.scorer_, self.weights_ = scorer, scorer.weights
        self.coef_ = np.array(kept["coef"], np.float64)
        self.average_coef_ = np.array(kept["average_coef"], np.float64)
        self.learning_rate_, self.clip_ = kept["learning_rate"], kept["clip"]
        self.n_steps_ = kept["n_steps"]


def _as_rate(learning_rate: object) -> float:
    if isinstance(learning_rate, Real):
        return float(learning_rate)
    raise ParameterError(f"learning_rate is {learning_rate!r}, expected 'auto' or a number above 0")
