"""Rankers that there are already, judged by a raw log: `compare_from_impressions`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from countersample._params import choice
from countersample._progress import Progress
from countersample.clicks.impressions.counts import named
from countersample.data.scoring import scores_of
from countersample.errors import DataError
from countersample.evaluation import ESTIMATORS
from countersample.evaluation.comparing import LOGGED, compare, names_to_judge
from countersample.evaluation.doubly_robust import relevance_model
from countersample.fitting.gain import choose_estimator
from countersample.fitting.intervals import Units, values_of_draws
from countersample.fitting.leaks import find_leaks
from countersample.fitting.setting_up import sentence, set_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.clicks.impressions import FeatureTable, Impressions, LogCheck
    from countersample.clicks.impressions.joining import Examinable
    from countersample.data import RankingDataset
    from countersample.data.scoring import Ranker
    from countersample.evaluation import Comparison, Difference
    from countersample.fitting.gain import ChosenEstimator
    from countersample.fitting.leaks import Leak
    from countersample.fitting.setting_up import SetUp

JUDGING_ESTIMATORS = tuple(name for name in ESTIMATORS if name != "beta-ips")  # which need no more
_WITH_DRAWS = ("ips", "dr")  # of which intervals have propensities estimated again in each draw


@dataclass(frozen=True, eq=False)
class JudgedCandidates:
    """Rankers judged by a log, and all that a person should know before one of them is used.

    Attributes
    ----------
    comparison : Comparison
        The values and their differences.
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
    no_verdict: dict[str, str]
    estimator: ChosenEstimator
    is_joint: bool
    log: SetUp
    warnings: tuple[str, ...]

    @property
    def verdicts(self) -> dict[str, str]:
        """By candidate: better, worse, not shown, or none.

        Nothing is shown to be better where the log does not identify the propensities.
        """
        return {each.candidate: self._verdict(each) for each in self.comparison.differences}

    @property
    def sentences(self) -> tuple[str, ...]:
        """What each difference says, in words."""
        said = zip(self.comparison.differences, self.comparison.sentences, strict=True)
        return tuple(self._in_words(each, told) for each, told in said)

    @property
    def population(self) -> str:
        """What the intervals speak of."""
        found = self.comparison
        return f"{found.estimates[found.reference].resampled} like those of the log"

    def _verdict(self, found: Difference) -> str:
        if self._is_void(found):
            return "none"
        is_told = self.log.source.is_identified
        return "not shown" if found.verdict == "better" and not is_told else found.verdict

    def _in_words(self, found: Difference, told: str) -> str:
        if self._is_void(found):
            return self._void(found)
        if self._verdict(found) == found.verdict:
            return told
        method = self.log.source.source.removeprefix("estimated by ")
        return (
            f"{found.candidate} is not shown to be better: the log does not identify the "
            f"propensities. If those of {method} are right, {told}"
        )

    def _is_void(self, found: Difference) -> bool:
        return found.candidate in self.no_verdict or found.reference in self.no_verdict

    def _void(self, found: Difference) -> str:
        who = found.candidate if found.candidate in self.no_verdict else found.reference
        over = "" if who == found.candidate else f" over {who}"
        return (
            f"No verdict on {found.candidate}{over} ({found.relative:+z.1%}): {who} "
            f"{self.no_verdict[who]}."
        )

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
    propensities: Examinable | None = None,
    method: str = "auto",
    randomized: str | None = None,
    depth: int | None = None,
    missing: Literal["error", "skip"] = "error",
    exposure: str = "policy-aware",
    estimator: str = "auto",
    metric: str | None = None,
    judge_from: date | str | None = None,
    judge_last: str | None = None,
    accept_features: Sequence[str] = (),
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
    estimator : {"auto", "ips", "snips", "clipped", "dr"}
        See `countersample.evaluation.estimate`. ``"auto"`` is ``"dr"`` where a candidate shows
        items that the log never showed, and else ``"ips"``. Intervals of the other two take
        propensities as they are.
    judge_from, judge_last : optional
        The first day of the log that judges, such as ``"2026-03-31"``, or how many of its last days
        do: ``"7d"``. By default all of it does.
    accept_features : sequence of str
        Features that look so and were computed from earlier clicks.
    propensities, method, randomized, depth, missing, exposure, metric, seed, progress
        As for `fit_from_impressions`.
    """
    choice("estimator", estimator, ("auto", *JUDGING_ESTIMATORS))
    names = names_to_judge(candidates, reference)
    if judge_from is not None or judge_last is not None:
        impressions = impressions.of_days(since=impressions.days().cut(judge_from, judge_last))
    progress = Progress.of(progress)
    streams = np.random.default_rng(seed).spawn(3)
    log = set_up(
        impressions, features, propensities=propensities, method=method, randomized=randomized,
        depth=depth, missing=missing, exposure=exposure, metric=metric, rng=streams[0],
        progress=progress.part(0.6),
    )  # fmt: skip
    dataset, counts = features.dataset, log.check.counts
    judging = progress.part(0.4, "judging the candidates")
    scores = {name: _scores(name, given, dataset) for name, given in candidates.items()}
    judged_by = _estimator_for(scores, log, estimator, exposure)
    relevance = None
    if judged_by.name == "dr":
        relevance = relevance_model(log.shown, dataset, rng=streams[1])
    judging.update(0.2)
    drawn = _drawn(names, scores, log, judged_by.name, exposure, relevance)
    judging.update(0.9)
    found = compare(
        scores, log.shown, dataset, reference=reference, metric=log.metric,
        estimator=judged_by.name, baseline=relevance, drawn=drawn, rng=streams[1],
    )  # fmt: skip
    if counts.rest is not None:  # how much of a ranking was never shown is not known then
        found = _by_clicked_alone(found)
    leaks = find_leaks(log.shown, dataset, item_ids=features.item_ids, rng=streams[2])
    suspects = {each.name: each for each in leaks if each.name not in accept_features}
    return JudgedCandidates(
        comparison=found,
        no_verdict=_without_verdict(candidates, suspects, log.check),
        estimator=judged_by,
        is_joint=drawn is not None,
        log=log,
        warnings=(
            *_of_names(candidates, log.check), *(each.sentence for each in leaks), *log.warnings,
            *map(sentence, found.warnings),
        ),
    )  # fmt: skip


def _scores(name: str, given: ArrayLike | Ranker | None, dataset: RankingDataset) -> Floats | None:
    """Return the scores of all items; None for what was logged."""
    if given is None:
        return None
    try:
        return np.asarray(scores_of(given, dataset), np.float64)
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


def _without_verdict(
    candidates: Mapping[str, object], suspects: dict[str, Leak], check: LogCheck
) -> dict[str, str]:
    """Return why clicks tell nothing of candidates, by the names of these."""
    counts, found = check.counts, {}
    for name, given in candidates.items():
        log = getattr(given, "provenance_", {}).get("log", {})
        known = [str(each) for each in getattr(given, "feature_names_in_", suspects)]
        used = [each for each in suspects if each in known]
        if (log.get("impressions"), log.get("clicks")) == (counts.n_impressions, counts.n_clicks):
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


def _of_names(candidates: Mapping[str, object], check: LogCheck) -> list[str]:
    """Return what to say of candidates that were trained on a log of this name."""
    file, counts = Path(check.source).name, check.counts
    told = []
    for name, given in candidates.items():
        log = getattr(given, "provenance_", {}).get("log", {})
        is_other = log.get("clicks") not in {None, counts.n_clicks}
        if log.get("file") == file and is_other:
            told.append(
                f"{name} was trained on a log of this name ({file}): see that the clicks that "
                "judge it are not those that it has learned from."
            )
    return told
