"""Compare existing rankers by a raw log: `compare_from_impressions`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._progress import Progress
from countersample.data.dataset import scores_of
from countersample.defaults import HOLDOUT
from countersample.errors import DataError, ParameterError
from countersample.evaluation.comparison import check_candidates, compare
from countersample.evaluation.verdict import LOGGED
from countersample.fitting.gain import EvaluationClicks, choose_estimator, drop_unseen
from countersample.fitting.leakage import check_accepted, find_leaks
from countersample.fitting.summaries import EVALUATION, LEAKAGE, group_warnings, render_summary
from countersample.fitting.weighted_log import as_sentence, list_days, weight_log
from countersample.logs.counts import list_names
from countersample.logs.tally import tally
from countersample.options import EvaluationOptions, PropensityOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.data.dataset import Ranker
    from countersample.evaluation import Comparison
    from countersample.fitting.gain import EstimatorChoice
    from countersample.fitting.summaries import Warnings
    from countersample.fitting.weighted_log import WeightedLog
    from countersample.logs import FeatureTable, Impressions
    from countersample.logs.counts import PositionCounts
    from countersample.logs.joins import Examinable


@dataclass(frozen=True, eq=False)
class LogComparison:
    """Rankers compared by a log, with warnings."""

    comparison: Comparison
    """The values, their differences and the verdicts. A verdict is withheld if these clicks cannot
    evaluate a candidate, and none is better if the log does not identify the propensities."""
    estimator: EstimatorChoice
    """The estimator of the values, and the reason for it."""
    is_joint: bool
    """Whether the intervals include the uncertainty of the propensities: they were estimated again
    from each draw of queries."""
    log: WeightedLog
    """The log: checked, with propensities, joined to the features."""
    doubts: Warnings
    """Reasons to trust the result less, by subject."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """All of them, the most important first."""
        return tuple(chain(*self.doubts.values()))

    @property
    def verdicts(self) -> dict[str, str]:
        """By candidate: better, worse, not shown, or none."""
        return {name: each.outcome for name, each in self.comparison.verdicts.items()}

    @property
    def population(self) -> str:
        """The population that the intervals are about."""
        reference = self.comparison.estimates[self.comparison.reference]
        return f"{reference.resampled} like those of the log"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without ids."""
        return {
            **self.comparison.to_dict(),
            "estimator": asdict(self.estimator),
            "is_joint": self.is_joint,
            "population": self.population,
            "warnings": list(self.warnings),
            "log": self.log.check.to_dict(),
            "join": self.log.join.to_dict(),
            "propensities": self.log.source.to_dict(),
        }

    def summary(self) -> str:
        """Return the values, the differences and the verdicts, for a terminal."""
        differences = {each.candidate: each for each in self.comparison.differences}
        return render_summary(
            "comparison.txt", result=self, comparison=self.comparison, differences=differences,
            warnings=self.warnings,
        )  # fmt: skip


def compare_from_impressions(
    impressions: Impressions,
    features: FeatureTable,
    candidates: Mapping[str, ArrayLike | Ranker | None],
    *,
    reference: str = LOGGED,
    propensities: PropensityOptions | Examinable | None = None,
    evaluation: EvaluationOptions | None = None,
    seed: int = 0,
    progress: Progress | Show | None = None,
) -> LogComparison:
    """Compare existing rankers by a log that they have not learned from.

    The log is checked, weighted and joined like in `fit_from_impressions`, and intervals include
    the uncertainty of estimated propensities. Nothing is trained. The verdict is withheld for a
    ranker that was trained on this very log, and for one with a feature that leaks these clicks
    (`find_leaks`), and for all rankers if the log has a defect (`LogCheck.withheld`).

    Parameters
    ----------
    impressions : Impressions
        Clicks that none of the candidates was trained on or selected by, such as later days.
    features : FeatureTable
        With the features of all candidates: each takes its own, by name.
    candidates : mapping of Ranker or array-like (n_items,), by name
        See `countersample.evaluation.compare`.
    reference : str
        The candidate that all others are compared with; by default the logging policy.
    propensities, seed, progress
        As for `fit_from_impressions`.
    evaluation : EvaluationOptions, optional
        The whole log evaluates, unless `holdout_from` or `holdout_last` names days. Intervals of
        the estimators ``"snips"`` and ``"clipped"`` take propensities as they are.
    """
    propensities = PropensityOptions.from_known(propensities)
    evaluation = EvaluationOptions() if evaluation is None else evaluation
    exposure, dataset = propensities.exposure, features.dataset
    names = check_candidates(candidates, reference)
    accepted = check_accepted(evaluation.accept_features, dataset)
    is_default = (evaluation.holdout_by, evaluation.holdout) == ("auto", HOLDOUT)
    if not evaluation.names_days and not is_default:
        raise ParameterError(
            "holdout_by and holdout are for training: a comparison evaluates the whole log, or the "
            "days that holdout_from or holdout_last names"
        )
    whole = None
    if evaluation.names_days:
        whole = tally(impressions).counts
        impressions = impressions.of_days(since=impressions.days().cut(evaluation))
    progress = Progress.of(progress)
    streams = np.random.default_rng(seed).spawn(3)
    log = weight_log(
        impressions, features, propensities, evaluation, rng=streams[0],
        progress=progress.part(0.6),
    )  # fmt: skip
    part = progress.part(0.4, "evaluating the candidates")
    scores = {name: _score_items(name, each, features) for name, each in candidates.items()}
    new = {name: each for name, each in scores.items() if each is not None}
    choice = choose_estimator(
        evaluation.estimator, list(new.values()), log.shown, dataset, metric=log.metric,
        exposure=exposure, is_complete=log.is_complete,
    )  # fmt: skip
    part.update(0.2)
    relevance, draws = EvaluationClicks.from_queries(log).draw(
        np.stack(list(new.values())), choice.name, metric=log.metric, exposure=exposure,
        rng=streams[1],
    )  # fmt: skip
    if draws is not None:
        draws = draws[:, [[*new, LOGGED].index(name) for name in names]]
    part.update(0.9)
    comparison = compare(
        scores, log.shown, dataset, reference=reference, metric=log.metric, estimator=choice.name,
        confidence=evaluation.confidence, baseline=relevance, draws=draws, rng=streams[1],
    )  # fmt: skip
    if not log.is_complete:
        comparison = replace(
            comparison,
            estimates={name: drop_unseen(each) for name, each in comparison.estimates.items()},
            warnings=tuple(text for text in comparison.warnings if "never shown" not in text),
        )
    leaks = find_leaks(log.shown, dataset, item_ids=features.item_ids, rng=streams[2])
    leaking = [leak.name for leak in leaks if leak.name not in accepted]
    withheld, doubtful_records = _check_records(candidates, leaking, log, whole, impressions)
    comparison = replace(
        comparison, withheld=withheld, defect=log.check.withheld,
        unidentified="" if log.source.is_identified else log.source.method,
    )  # fmt: skip
    evaluation_warnings = [*doubtful_records, *map(as_sentence, comparison.warnings)]
    doubts = group_warnings(
        {LEAKAGE: [leak.sentence for leak in leaks], EVALUATION: evaluation_warnings}, log.warnings
    )
    return LogComparison(comparison, choice, draws is not None, log, doubts)


def _score_items(
    name: str, candidate: ArrayLike | Ranker | None, features: FeatureTable
) -> Floats | None:
    """Return the scores of all items; None for the logging policy."""
    if candidate is None:
        return None
    try:
        return np.asarray(scores_of(candidate, features.dataset_for(candidate)), np.float64)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _check_records(
    candidates: Mapping[str, object],
    leaking: list[str],
    log: WeightedLog,
    whole: PositionCounts | None,
    impressions: Impressions,
) -> tuple[dict[str, str], list[str]]:
    """Return why these clicks cannot evaluate candidates, by name, and warnings.

    A ranker records the size and the days of its training log. The training log is `log` if the
    sizes are equal, or `whole`, from which the evaluation days are taken. If the days of
    `impressions` overlap with the training days, the ranker may have learned from the same clicks.
    """
    logs = [each for each in (log.check.counts, whole) if each is not None]
    sizes = {(each.n_impressions, each.n_clicks) for each in logs}
    file = Path(log.check.source).name
    withheld, warnings = {}, []
    for name, candidate in candidates.items():
        record = getattr(candidate, "provenance_", {}).get("log", {})
        features = [str(each) for each in getattr(candidate, "feature_names_in_", leaking)]
        used = [feature for feature in leaking if feature in features]
        if (record.get("impressions"), record.get("clicks")) in sizes:
            withheld[name] = (
                "was trained on this very log, and its own training clicks make it look better "
                "than it is: evaluate it on later clicks"
            )
            continue
        if overlap := _find_overlap(record, impressions):
            withheld[name] = overlap
            continue
        if candidate is not None and used:
            withheld[name] = (
                f"has a feature that was computed from the evaluation clicks, {list_names(used)}: "
                "compute it from earlier clicks only, or confirm that it does not leak them "
                "(--accept-features)"
            )
        if record.get("file") == file:
            warnings.append(
                f"{name} was trained on a log of this name ({file}): check that the evaluation "
                "clicks are not its training clicks."
            )
    return withheld, warnings


def _find_overlap(record: Mapping[str, str], impressions: Impressions) -> str:
    """Return why a ranker cannot be evaluated on days that it was trained on; empty if it can."""
    if "last_day" not in record:
        return ""
    first, last = record.get("first_day", ""), record["last_day"]
    days = [day.isoformat() for day in list_days(impressions)]
    n_shared = sum(first <= day <= last for day in days)
    if not n_shared:
        return ""
    return (
        f"was trained on days until {last}, and {n_shared} of the {len(days)} evaluation days are "
        "among them, so its own training clicks make it look better than it is: evaluate it on "
        "later days (--holdout-from)"
    )
