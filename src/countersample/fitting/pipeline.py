"""From impressions and features to a ranker, and its reward: `fit_from_impressions`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._logging import get_logger
from countersample._params import choice
from countersample._progress import Progress
from countersample.clicks import diagnose
from countersample.clicks.impressions.counts import named, ranges
from countersample.clicks.impressions.joining import clicked
from countersample.clicks.impressions.weighting import effective_impressions
from countersample.errors import DataError, ParameterError
from countersample.evaluation import plan_ab_test
from countersample.fitting.gain import (
    ESTIMATORS_OF_GAIN,
    gain_on_card,
    learning_curve,
    to_learn_from,
)
from countersample.fitting.judging import UNSEEN, judge_by_queries, judge_by_time, judged_gain
from countersample.fitting.leaks import accepted_names, find_leaks
from countersample.fitting.models import make_ranker
from countersample.fitting.results import Fit, HeavyPair
from countersample.fitting.setting_up import sentence, set_up
from countersample.options import EvaluationOptions, PropensityOptions, RankerOptions
from countersample.rankers import ClickRanker
from countersample.rankers._warm import going_on

if TYPE_CHECKING:
    from datetime import date

    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.clicks.impressions import FeatureTable, Impressions, LogCheck
    from countersample.clicks.impressions.joining import Examinable
    from countersample.evaluation import Gain
    from countersample.fitting.propensity_source import PropensitySource

HEAVIEST = 10  # pairs that are shown
LITTLE = 0.25  # of the rows, that a half-life leaves: less is worth a warning
logger = get_logger(__name__)


def fit_from_impressions(
    impressions: Impressions,
    features: FeatureTable,
    *,
    ranker: ClickRanker | RankerOptions | None = None,
    propensities: PropensityOptions | Examinable | None = None,
    evaluation: EvaluationOptions | None = None,
    seed: int = 0,
    progress: Progress | Show | None = None,
) -> Fit:
    """Train a ranker from a log of impressions, and estimate its gain without labels.

    The gain is over the logging policy, by clicks that the ranker has not seen. With timestamps
    these are the clicks of the last days, and everything, propensities too, is learned from the
    days before. Without, queries are split into folds, and each is held out in turn. The ranker
    that is returned is trained on everything.

    The interval covers other sessions of the last days, or other queries, and the uncertainty of
    propensities that are estimated: `Fit.judged_by` names the population. (Known propensities, and
    those of regression-em or with trust bias, are taken as they are.)

    Parameters
    ----------
    impressions : Impressions
        See `read_impressions`. With `Impressions.with_half_life`, recent days count more in
        training; the evaluation counts every click as one.
    features : FeatureTable
        See `read_features`. Labels are not read.
    ranker : ClickRanker or RankerOptions, optional
        A ranker that is not fitted, of any kind; a copy of it is trained, and it is selected by
        its own metric. Or options that describe one, which is selected by the metric of the
        evaluation. By default a linear ranker.
    propensities : PropensityOptions or known propensities, optional
        How position bias is estimated; or a curve, an array or saved propensities, as
        `join_features` takes them. By default they are estimated.
    evaluation : EvaluationOptions, optional
        The metric and how it is estimated from held-out clicks.
    seed : int
        The same seed gives the same linear ranker to the bit, on the same kind of CPU. It is the
        random_state of a ranker that has none.
    progress : function of (what is going on, share of all that is done), optional

    Raises
    ------
    DataError, ParameterError
        If nothing can be learned from the log, with what is missing and what to do.
    """
    propensities = PropensityOptions.from_known(propensities)
    evaluation = EvaluationOptions() if evaluation is None else evaluation
    options = RankerOptions() if ranker is None else ranker
    choice("estimator", evaluation.estimator, ("auto", *ESTIMATORS_OF_GAIN))
    to_train = _to_train(options, seed)
    accepted = accepted_names(evaluation.accept_features, features.dataset)
    progress = Progress.of(progress)
    streams = np.random.default_rng(seed).spawn(7)
    ready = set_up(
        impressions, features, propensities, evaluation, rng=streams[0],
        progress=progress.part(0.2),
    )  # fmt: skip
    since, reason = _first_judged(impressions, evaluation)
    dataset, metric, source, shown = features.dataset, ready.metric, ready.source, ready.shown
    if isinstance(options, RankerOptions):  # what selects is what is estimated
        to_train.set_params(metric=metric)
    log = to_learn_from(ready.learned, knows_all=ready.matched.counts.rest is None)
    days = _days(impressions)
    judgement = None
    if since is not None:
        try:
            judgement = judge_by_time(
                to_train, impressions, features, since, propensities, evaluation,
                rng=streams[5], progress=progress.part(0.35),
            )  # fmt: skip
        except DataError as error:
            if evaluation.needs_time:
                raise DataError(
                    f"{error}; or evaluate on held-out queries (--holdout-by queries)"
                ) from error
            reason = f"by time it could not be: {error}"
    if judgement is None:
        judgement = judge_by_queries(
            to_train, ready.matched, shown, ready.learned, source, reason=reason, metric=metric,
            n_folds=evaluation.n_folds, rng=streams[2], progress=progress.part(0.6),
        )  # fmt: skip
    leaks = find_leaks(
        judgement.shown if judgement.learned is None else judgement.learned, dataset,
        item_ids=features.item_ids, judged=None if judgement.learned is None else judgement.shown,
        is_whole=judgement.is_whole, rng=streams[6],
    )  # fmt: skip
    judged = judged_gain(
        judgement, evaluation, metric=metric, exposure=propensities.exposure, rng=streams[3]
    )
    curve_seed = int(streams[4].integers(2**63))
    last = progress.part(0.2, "training")
    to_train.fit_log(dataset, log, progress=lambda _what, share: last.update(share))
    to_train.encoder_ = features.encoder_to_save
    is_identified = source.is_identified and judgement.source.is_identified
    to_train.provenance_ |= _provenance(ready.check, source, judged.gain, is_identified)
    if days:
        to_train.provenance_["log"]["last_day"] = days[-1].isoformat()
    fit = Fit(
        ranker=to_train,
        gain=judged.gain,
        judged_by=judgement.by,
        leaks=leaks,
        accepted=accepted,
        judging_source=judgement.source.source,
        is_identified=is_identified,
        is_joint=judged.is_joint,
        gain_at_ends=judged.at_ends,
        estimator=judged.estimator,
        ab_plan=plan_ab_test(
            judgement.scores, judgement.shown, dataset, confidence=evaluation.confidence, rng=seed
        ),
        learning_curve=learning_curve(
            judgement.stages, judgement.shown, dataset, metric=metric,
            estimator=judged.estimator.name, relevance=judged.relevance,
            confidence=evaluation.confidence, seed=curve_seed,
        ),
        check=ready.check,
        propensity_source=source,
        join=ready.join,
        shown=shown,
        weights=diagnose(clicked(ready.learned)),
        heaviest=_heaviest(shown, ready.rows, ready.check),
        propensities=propensities,
        evaluation=replace(evaluation, metric=metric),
        half_life=impressions.half_life,
        seed=seed,
        warnings=(
            *(leak.sentence for leak in leaks), *ready.warnings, *judgement.warnings,
            *_of_half_life(impressions), *_of_gain(judged.gain, judged.at_ends),
            *_of_previous(to_train, days, dataset.feature_names),
        ),
    )  # fmt: skip
    # Wherever the ranker goes, what was said of it goes with it; and no gain that was not.
    to_train.provenance_ |= {"verdict": fit.verdict, "warnings": list(fit.warnings)}
    if fit.is_withheld:
        del to_train.provenance_["gain"]
    _log_fit(fit)
    return fit


def _log_fit(fit: Fit) -> None:
    told = {"relative_gain": fit.gain.relative, "low": fit.gain.relative_low}
    logger.info(
        "%s", fit.verdict, extra=told | {"high": fit.gain.relative_high, "by": fit.judged_by.way}
    )
    for warning in fit.warnings:
        logger.warning("%s", warning)


def _first_judged(
    impressions: Impressions, evaluation: EvaluationOptions
) -> tuple[date | None, str]:
    """Return the first day that evaluates, or None and why queries do."""
    if evaluation.holdout_by == "queries":
        return None, f"as asked for; {UNSEEN}"
    if "timestamp" not in impressions.columns and not evaluation.needs_time:
        return None, f"the log has no timestamps: {UNSEEN}"
    try:
        days = impressions.days()
    except DataError as error:
        if evaluation.needs_time:
            raise
        return None, f"{error}: {UNSEEN}"
    since = days.cut(evaluation)
    if since is None and evaluation.needs_time:
        raise DataError(
            f"{impressions.source}: no day of the log leaves enough to learn from before it and to "
            "evaluate on after it: name one with holdout_from (--holdout-from)"
        )
    return since, f"the log has too few days to judge by the last of them: {UNSEEN}"


def _days(impressions: Impressions) -> tuple[date, ...]:
    """Return the days of a log; none where its timestamps do not tell them."""
    if "timestamp" not in impressions.columns:
        return ()
    try:
        return impressions.days().days
    except DataError:
        return ()


def _of_previous(
    ranker: ClickRanker, days: tuple[date, ...], names: tuple[str, ...] | None
) -> list[str]:
    """Warn of what the ranker to go on from knows: clicks that judge it, features that are gone."""
    begin = ranker._began_at  # noqa: SLF001
    if begin is None:
        return []
    told = []
    last_day = begin.last_day
    if last_day is not None and days and days[0].isoformat() <= last_day:
        told.append(
            f"The ranker to go on from has learned from days until {last_day}, and this log begins "
            f"on {days[0]}: it knows clicks that it is judged by, so the gain looks larger than it "
            "is, and what it learned from them counts twice. Give it the days since."
        )
    lost = [name for name in begin.feature_names or () if names is not None and name not in names]
    if lost:
        told.append(
            "The ranker to go on from knows features that the data has not, and goes on without "
            f"them: {named(lost)}."
        )
    return told


def _to_train(ranker: ClickRanker | RankerOptions, seed: int) -> ClickRanker:
    """Return a copy of the ranker, or the one that the options describe, not trained yet."""
    if isinstance(ranker, RankerOptions):
        ranker = make_ranker(ranker, seed=seed)
    elif not isinstance(ranker, ClickRanker):
        raise ParameterError(
            f"ranker is {ranker!r}, expected RankerOptions, or a ranker of this package that is "
            "not fitted"
        )
    copied: ClickRanker = going_on(ranker)
    if copied.random_state is None:
        copied.set_params(random_state=seed)
    return copied


def _provenance(
    check: LogCheck, source: PropensitySource, gain: Gain, is_identified: bool
) -> dict[str, Any]:
    """Return what the ranker's card will say of the log, the propensities and the gain."""
    return {
        "log": {
            "file": Path(check.source).name,
            "impressions": check.counts.n_impressions,
            "clicks": check.counts.n_clicks,
            "sessions": check.n_sessions,
        },
        "propensities": source.source,
        "gain": gain_on_card(gain, is_identified=is_identified),
    }


def _of_half_life(impressions: Impressions) -> list[str]:
    """Say where little is left of a log whose recent days count more."""
    if impressions.half_life is None:
        return []
    share = effective_impressions(impressions) / sum(impressions.days().rows)
    if share >= LITTLE:
        return []
    told = (
        f"With a half-life of {impressions.half_life:g} days the log is worth {share:.0%} of its "
        "rows: what is learned from it is as uncertain as from so few."
    )
    return [told]


def _of_gain(gain: Gain, at_ends: tuple[float, float] | None) -> list[str]:
    told = [sentence(text) for text in gain.warnings]
    if at_ends is not None and min(*at_ends, gain.relative) <= 0 < max(*at_ends, gain.relative):
        told.append(
            "Whether there is a gain hangs on the propensities: at the lower ends of their "
            f"intervals it would be {at_ends[0]:+.1%}, at the upper ends {at_ends[1]:+.1%}."
        )
    return told


def _heaviest(
    shown: ClickLog, rows: np.ndarray[Any, Any], check: LogCheck
) -> tuple[HeavyPair, ...]:
    """Return the query-item pairs with the most weight; `rows` are those of the counts."""
    counts = check.counts
    pair = np.searchsorted(counts.pair_starts, rows, side="right") - 1
    weights = np.bincount(pair, shown.weights, len(counts.pair_starts) - 1)
    total = float(np.abs(weights).sum())
    found = []
    for each in np.argsort(-weights, kind="stable")[:HEAVIEST]:
        own = slice(*counts.pair_starts[each : each + 2])
        if weights[each] > 0:
            found.append(
                HeavyPair(
                    query_id=counts.query_ids[counts.query[own.start]].item(),
                    item_id=counts.item_ids[counts.item[own.start]].item(),
                    positions=ranges(np.unique(counts.position[own])),
                    impressions=int(counts.impressions[own].sum()),
                    clicks=float(counts.value[own].sum()),
                    weight=float(weights[each]),
                    share=float(weights[each]) / total,
                )
            )
    return tuple(found)
