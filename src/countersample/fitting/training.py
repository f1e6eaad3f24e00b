"""The gain of a ranker that is trained on a click log, by queries that are held out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._progress import Progress
from countersample.clicks.impressions.counts import named
from countersample.errors import DataError
from countersample.evaluation import estimate_gain
from countersample.fitting.gain import (
    choose_estimator,
    cut_queries,
    gain_in_words,
    gain_on_card,
    held_out_scores,
)
from countersample.fitting.leaks import find_leaks
from countersample.fitting.setting_up import sentence
from countersample.options import METRIC, EvaluationOptions

if TYPE_CHECKING:
    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation import Gain
    from countersample.rankers import ClickRanker


@dataclass(frozen=True)
class JudgedTraining:
    """What held-out clicks say of rankers that are trained so; or why they say nothing.

    Attributes
    ----------
    gain : Gain, optional
        Over what was logged, each query ranked by a ranker that was trained without it.
    verdict : str
        What it says, in words; or why there is none.
    warnings : tuple of str
        What makes it less sure than it looks.
    """

    gain: Gain | None
    verdict: str
    warnings: tuple[str, ...] = ()

    @property
    def provenance(self) -> dict[str, Any]:
        """What a ranker's file and its card keep of it."""
        kept: dict[str, Any] = {"verdict": self.verdict, "warnings": list(self.warnings)}
        if self.gain is not None:
            kept["gain"] = gain_on_card(self.gain, is_identified=True)
        return kept

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"warnings": list(self.warnings)}


def judge_training(
    ranker: ClickRanker,
    dataset: RankingDataset,
    log: ClickLog,
    *,
    evaluation: EvaluationOptions | None = None,
    seed: int = 0,
    progress: Progress | Show | None = None,
) -> JudgedTraining:
    """Estimate the gain over what was logged of rankers trained like this one, without labels.

    The queries are cut into five parts, and copies of the ranker are trained without each in turn:
    five trainings more, in which all that a ranker finds from clicks is found anew. Propensities
    are taken as they are in the log.

    Parameters
    ----------
    ranker : ClickRanker
        Fitted or not; it is not changed.
    dataset : RankingDataset
    log : ClickLog
        With the positions at which items were shown. Without, or with clicks on one query only, the
        verdict says why there is none.
    evaluation : EvaluationOptions, optional
        Its metric, estimator, held-out share and confidence level are used.
    seed, progress
        As for `fit_from_impressions`.

    Examples
    --------
    >>> from countersample import CounterSampleRanker, simulate_clicks, synthetic
    >>> from countersample.fitting import judge_training
    >>> data = synthetic("tiny", rng=0)
    >>> log = simulate_clicks(data, data.features[:, 0], n_clicks=5000, relevant=1, rng=0)
    >>> ranker = CounterSampleRanker(steps=2000, learning_rate=0.003)
    >>> judge_training(ranker, data, log).verdict[:20]
    'The ranker is better'
    >>> judge_training(ranker, data, log.replace(position=None)).verdict
    'Not judged: the log does not say at which positions items were shown.'
    """
    if log.position is None:
        return JudgedTraining(
            None, "Not judged: the log does not say at which positions items were shown."
        )
    evaluation = EvaluationOptions() if evaluation is None else evaluation
    metric = METRIC if evaluation.metric is None else evaluation.metric
    rng = np.random.default_rng(seed)
    try:
        parts = cut_queries(log, evaluation.n_folds, rng)
        scores, _ = held_out_scores(
            ranker, parts, dataset, log, metric=metric, rng=rng,
            progress=Progress.of(progress).part(1.0, "held-out queries"),
        )  # fmt: skip
        estimator: str = "ips" if evaluation.estimator == "auto" else evaluation.estimator
        if log.impressions is not None:
            estimator = choose_estimator(
                evaluation.estimator, scores, log, dataset, metric=metric, exposure="policy-aware",
                knows_all=True,
            ).name  # fmt: skip
        gain = estimate_gain(
            scores, log, dataset, metric=metric, estimator=estimator,
            confidence=evaluation.confidence, rng=rng,
        )  # fmt: skip
    except DataError as error:
        return JudgedTraining(None, f"Not judged: {error}.")
    warnings = [sentence(text) for text in gain.warnings]
    if log.impressions is None:
        warnings.append(
            "The log has clicks only: how much of the ranking was never shown, and whether a "
            "feature was computed from these clicks, is not known."
        )
    leaks = () if log.impressions is None else find_leaks(log, dataset, rng=rng)
    if leaks:
        names = named(list(dict.fromkeys(each.name for each in leaks)))
        told = tuple(each.sentence for each in leaks)
        verdict = f"No verdict: {names} knows the clicks themselves."
        return JudgedTraining(None, verdict, (*told, *warnings))
    return JudgedTraining(gain, gain_in_words(gain), tuple(warnings))
