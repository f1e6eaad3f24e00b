"""Rankers that there are already, judged by a raw log: `compare_from_impressions`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._progress import Progress
from countersample.clicks.impressions.counts import named
from countersample.clicks.impressions.tallying import tally
from countersample.data.scoring import scores_of
from countersample.errors import DataError, ParameterError
from countersample.evaluation.comparing import LOGGED, compare, names_to_judge
from countersample.evaluation.doubly_robust import relevance_model
from countersample.fitting.gain import choose_estimator
from countersample.fitting.intervals import Units, values_of_draws
from countersample.fitting.leaks import accepted_names, find_leaks
from countersample.fitting.setting_up import sentence, set_up
from countersample.options import HOLDOUT, EvaluationOptions, PropensityOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.clicks.impressions import FeatureTable, Impressions, LogCheck
    from countersample.clicks.impressions.counts import PositionCounts
    from countersample.clicks.impressions.joining import Examinable
    from countersample.data.scoring import Ranker
    from countersample.evaluation import Comparison
    from countersample.fitting.gain import ChosenEstimator
    from countersample.fitting.leaks import Leak
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.fitting.setting_up import SetUp

_WITH_DRAWS = ("ips", "dr")  # of which intervals have propensities estimated again in each draw


@dataclass(frozen=True, eq=False)
class JudgedCandidates:
    """Rankers judged by a log, and all that a person should know before one of them is used.

    Attributes
    ----------
    comparison : Comparison
        The values and their differences, with the verdicts that hold: none on a candidate that
        these clicks tell nothing of, and nothing is shown to be better where the log does not
        identify the propensities.
    sentences : tuple of str
        What each difference says, in words.
    no_verdict : dict of str, by candidate
        Why these clicks tell nothing of a candidate: it was trained on this very log, or one of its
        features was computed from the clicks that judge.
    estimator : ChosenEstimator
        How values were estimated, and why so.
    is_joint : bool
        Whether the intervals have in them that the propensities are estimates: they were estimated
        again from each draw of queries.
    log : SetUp
        The log: checked, with propensities, joined to the features.
    warnings : tuple of str
        What makes the result less sure than it looks.
    """

    comparison: Comparison
    sentences: tuple[str, ...]
    no_verdict: dict[str, str]
    estimator: ChosenEstimator
    is_joint: bool
    log: SetUp
    warnings: tuple[str, ...]

    @property
    def verdicts(self) -> dict[str, str]:
        """By candidate: better, worse, not shown, or none."""
        return {each.candidate: each.verdict for each in self.comparison.differences}

    @property
    def population(self) -> str:
        """What the intervals speak of."""
        found = self.comparison
        return f"{found.estimates[found.reference].resampled} like those of the log"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; no id is among them."""
        return {
            **self.comparison.to_dict(),
            "verdicts": self.verdicts,
            "sentences": list(self.sentences),
            "no_verdict": self.no_verdict,
            "estimator": asdict(self.estimator),
            "is_joint": self.is_joint,
            "population": self.population,
            "warnings": list(self.warnings),
            "log": self.log.check.to_dict(),
            "join": self.log.join.to_dict(),
            "propensities": self.log.source.to_dict(),
        }


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
) -> JudgedCandidates:
    """Judge rankers that there are by a log that they have not learned from.

    The log is checked, weighted and joined as `fit_from_impressions` does it, and the interval of a
    difference has in it that propensities were estimated, as that of a fit has. Nothing is trained.
    A ranker that says that it was trained on this very log gets no verdict, nor does one of whose
    features `find_leaks` sees that it was computed from the clicks that judge.

    Parameters
    ----------
    impressions : Impressions
        Clicks that none of the candidates was trained on, or chosen by: those of later days.
    features : FeatureTable
        With the features of all candidates: each takes its own, by name.
    candidates : mapping of Ranker or array-like (n_items,), by name
        See `countersample.evaluation.compare`.
    reference : str
        What all others are compared with; by default what was logged.
    propensities, seed, progress
        As for `fit_from_impressions`.
    evaluation : EvaluationOptions, optional
        All of the log evaluates, unless `holdout_from` or `holdout_last` names days. Intervals of
        the estimators ``"snips"`` and ``"clipped"`` take propensities as they are.
    """
    propensities = PropensityOptions.from_known(propensities)
    evaluation = EvaluationOptions() if evaluation is None else evaluation
    exposure = propensities.exposure
    names = names_to_judge(candidates, reference)
    accepted = accepted_names(evaluation.accept_features, features.dataset)
    whole = None
    if not evaluation.names_days and (evaluation.holdout_by, evaluation.holdout) != (
        "auto",
        HOLDOUT,
    ):
        raise ParameterError(
            "holdout_by and holdout are for training: a comparison evaluates the whole log, or the "
            "days that holdout_from or holdout_last names"
        )
    if evaluation.names_days:
        whole = tally(impressions).counts
        impressions = impressions.of_days(since=impressions.days().cut(evaluation))
    progress = Progress.of(progress)
    streams = np.random.default_rng(seed).spawn(3)
    log = set_up(
        impressions, features, propensities, evaluation, rng=streams[0],
        progress=progress.part(0.6),
    )  # fmt: skip
    dataset, counts = features.dataset, log.check.counts
    judging = progress.part(0.4, "judging the candidates")
    scores = {name: _scores(name, given, features) for name, given in candidates.items()}
    judged_by = _estimator_for(scores, log, evaluation.estimator, exposure)
    relevance = None
    if judged_by.name == "dr":
        relevance = relevance_model(log.shown, dataset, rng=streams[1])
    judging.update(0.2)
    drawn = _drawn(names, scores, log, judged_by.name, exposure, relevance)
    judging.update(0.9)
    found = compare(
        scores, log.shown, dataset, reference=reference, metric=log.metric,
        estimator=judged_by.name, confidence=evaluation.confidence, baseline=relevance,
        drawn=drawn, rng=streams[1],
    )  # fmt: skip
    if counts.rest is not None:  # how much of a ranking was never shown is not known then
        found = _by_clicked_alone(found)
    leaks = find_leaks(log.shown, dataset, item_ids=features.item_ids, rng=streams[2])
    suspects = {each.name: each for each in leaks if each.name not in accepted}
    learned = _learned_from(candidates, [counts, whole])
    no_verdict = _without_verdict(candidates, suspects, learned)
    found, sentences = _with_verdicts(found, no_verdict, log.source)
    return JudgedCandidates(
        comparison=found,
        sentences=sentences,
        no_verdict=no_verdict,
        estimator=judged_by,
        is_joint=drawn is not None,
        log=log,
        warnings=(
            *_of_names(candidates, learned, log.check), *(each.sentence for each in leaks),
            *log.warnings, *map(sentence, found.warnings),
        ),
    )  # fmt: skip


def _scores(name: str, given: ArrayLike | Ranker | None, features: FeatureTable) -> Floats | None:
    """Return the scores of all items; None for what was logged."""
    if given is None:
        return None
    try:
        return np.asarray(scores_of(given, features.dataset_for(given)), np.float64)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _estimator_for(
    scores: dict[str, Floats | None], log: SetUp, asked: str, exposure: str
) -> ChosenEstimator:
    """Take one estimator for all: ``dr`` where one of the candidates needs it."""
    knows_all = log.check.counts.rest is None
    settings = {"metric": log.metric, "exposure": exposure, "knows_all": knows_all}
    chosen = [
        choose_estimator(asked, each, log.shown, log.matched.dataset, **settings)  # type: ignore[arg-type]
        for each in scores.values()
        if each is not None
    ]
    return next((one for one in chosen if one.name == "dr"), chosen[0])


def _drawn(
    names: list[str],
    scores: dict[str, Floats | None],
    log: SetUp,
    estimator: str,
    exposure: str,
    relevance: Floats | None,
) -> Floats | None:
    """Return the values of all in each draw of queries, with propensities estimated again, (n, k).

    None where they are not estimated again, or not for this estimator.
    """
    source = log.source
    told = source.contexts if source.curve is None else source.curve
    if source.draws is None or told is None or estimator not in _WITH_DRAWS:
        return None
    units = Units.of_queries(log.matched.counts, source.draws.queries)
    given = {name: each for name, each in scores.items() if each is not None}
    values = values_of_draws(
        np.stack(list(given.values())), log.matched, told, source.draws.curves, units,
        metric=log.metric, exposure=exposure, relevance=relevance,
    )  # fmt: skip
    return values[:, [([*given, LOGGED]).index(name) for name in names]]


def _by_clicked_alone(found: Comparison) -> Comparison:
    def without(told: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text for text in told if "never shown" not in text)

    estimates = {
        name: replace(each, never_shown=None, warnings=without(each.warnings))
        for name, each in found.estimates.items()
    }
    return replace(found, estimates=estimates, warnings=without(found.warnings))


def _learned_from(
    candidates: Mapping[str, object], logs: Sequence[PositionCounts | None]
) -> set[str]:
    """Return the candidates that say that they were trained on one of these logs."""
    sizes = {(each.n_impressions, each.n_clicks) for each in logs if each is not None}
    told = {name: _log_of(given) for name, given in candidates.items()}
    return {
        name for name, log in told.items() if (log.get("impressions"), log.get("clicks")) in sizes
    }


def _log_of(candidate: object) -> dict[str, Any]:
    """Return what a candidate says of the log that it was trained on."""
    log: dict[str, Any] = getattr(candidate, "provenance_", {}).get("log", {})
    return log


def _without_verdict(
    candidates: Mapping[str, object], suspects: dict[str, Leak], learned: set[str]
) -> dict[str, str]:
    """Return why clicks tell nothing of candidates, by the names of these."""
    found = {}
    for name, given in candidates.items():
        known = [str(each) for each in getattr(given, "feature_names_in_", suspects)]
        used = [each for each in suspects if each in known]
        if name in learned:
            found[name] = (
                "was trained on this very log, and by clicks that it has learned from it looks "
                "better than it is: judge it by later clicks"
            )
        elif given is not None and used:
            found[name] = (
                f"has a feature that knows the clicks that judge, {named(used)}: take it from "
                "earlier clicks only, or, if it was, confirm that (--accept-features)"
            )
    return found


def _with_verdicts(
    found: Comparison, no_verdict: dict[str, str], source: PropensitySource
) -> tuple[Comparison, tuple[str, ...]]:
    """Return the comparison with the verdicts that hold, and what its differences say in words."""
    differences, sentences = [], []
    for each, told in zip(found.differences, found.sentences, strict=True):
        who = next((one for one in (each.candidate, each.reference) if one in no_verdict), None)
        verdict, said = each.verdict, told
        if who is not None:
            over = "" if who == each.candidate else f" over {who}"
            verdict = "none"
            said = (
                f"No verdict on {each.candidate}{over} ({each.relative:+z.1%}): {who} "
                f"{no_verdict[who]}."
            )
        elif verdict == "better" and not source.is_identified:
            method = source.source.removeprefix("estimated by ")
            verdict = "not shown"
            said = (
                f"{each.candidate} is not shown to be better: the log does not identify the "
                f"propensities. If those of {method} are right, {told}"
            )
        differences.append(replace(each, verdict=verdict))
        sentences.append(said)
    return replace(found, differences=tuple(differences)), tuple(sentences)


def _of_names(candidates: Mapping[str, object], learned: set[str], check: LogCheck) -> list[str]:
    """Return what to say of candidates that were trained on another log of this name."""
    file = Path(check.source).name
    return [
        f"{name} was trained on a log of this name ({file}): see that the clicks that judge it are "
        "not those that it has learned from."
        for name, given in candidates.items()
        if name not in learned and _log_of(given).get("file") == file
    ]
