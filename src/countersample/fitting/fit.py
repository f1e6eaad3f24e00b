"""Train a ranker from a raw log and estimate its gain: `fit_from_impressions`.

`evaluate_training` estimates the gain of a ranker that is trained on a click log.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from countersample._params import choice
from countersample._progress import Progress, get_logger
from countersample.clicks import diagnose
from countersample.defaults import METRIC
from countersample.errors import DataError, ParameterError
from countersample.evaluation import decide, estimate_gain, plan_ab_test
from countersample.fitting.gain import (
    GAIN_ESTIMATORS,
    choose_estimator,
    estimate_holdout_gain,
    hold_out_days,
    hold_out_queries,
    split_queries,
    train_folds,
)
from countersample.fitting.leakage import check_accepted, find_leaks
from countersample.fitting.models import make_ranker
from countersample.fitting.results import (
    Fit,
    HeavyPair,
    TrainedRanker,
    describe_kept,
    describe_leaks,
    gain_record,
)
from countersample.fitting.summaries import (
    EVALUATION,
    LEAKAGE,
    POSITION_BIAS,
    group_warnings,
    mask_details,
)
from countersample.fitting.weighted_log import as_sentence, list_days, weight_log
from countersample.logs.counts import ranges
from countersample.logs.days import effective_impressions
from countersample.logs.joins import clicked
from countersample.options import EvaluationOptions, PropensityOptions, RankerOptions
from countersample.rankers import ClickRanker
from countersample.rankers.task import make_successor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.fitting.gain import GainEstimate, HoldoutScores
    from countersample.fitting.weighted_log import WeightedLog
    from countersample.logs import FeatureTable, Impressions
    from countersample.logs.joins import Examinable

N_HEAVIEST = 10  # query-item pairs in the report
MIN_EFFECTIVE_SHARE = 0.25  # of the rows that a half-life leaves: less is worth a warning
_LIMIT = "It does not cover how later days differ from the days of the log"
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
    propensities that are estimated: `Fit.holdout` names the population. (Known propensities, and
    the estimates of regression-em or with trust bias, are taken as they are.)

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
    progress : function of (name of the step, share of the work that is done), optional

    Raises
    ------
    DataError, ParameterError
        If nothing can be learned from the log; the message names the reason and a remedy.
    """
    propensities = PropensityOptions.from_known(propensities)
    evaluation = EvaluationOptions() if evaluation is None else evaluation
    choice("estimator", evaluation.estimator, ("auto", *GAIN_ESTIMATORS))
    model = _copy_ranker(ranker, seed)
    accepted = check_accepted(evaluation.accept_features, features.dataset)
    progress = Progress.of(progress)
    streams = np.random.default_rng(seed).spawn(7)
    log = weight_log(
        impressions, features, propensities, evaluation, rng=streams[0],
        progress=progress.part(0.2),
    )  # fmt: skip
    if not isinstance(ranker, ClickRanker):  # the ranker is selected by the estimated metric
        model.set_params(metric=log.metric)
    evaluation = replace(evaluation, metric=log.metric)
    held_out = _hold_out(
        model, impressions, features, log, propensities, evaluation, streams, progress
    )
    tested = held_out.clicks.log.shown
    leaks = find_leaks(
        tested if held_out.training is None else held_out.training, features.dataset,
        item_ids=features.item_ids, evaluation=None if held_out.training is None else tested,
        is_complete=held_out.is_complete, rng=streams[6],
    )  # fmt: skip
    estimated = estimate_holdout_gain(
        held_out, evaluation, metric=log.metric, exposure=propensities.exposure, rng=streams[3],
        curve_seed=int(streams[4].integers(2**63)),
    )  # fmt: skip
    last = progress.part(0.2, "training")
    model.fit_log(features.dataset, log.examples, progress=lambda _step, share: last.update(share))
    model.preprocessing_ = replace(model.preprocessing_, encoder=features.encoder_to_save)
    source = held_out.clicks.log.source
    doubts = group_warnings(
        {LEAKAGE: [leak.sentence for leak in leaks]}, log.warnings, held_out.warnings,
        {POSITION_BIAS: _list_early_warnings(log, held_out),
         EVALUATION: _list_warnings(estimated, model, impressions)},
    )  # fmt: skip
    fit = Fit(
        **vars(estimated),
        ranker=model,
        holdout=held_out.holdout,
        leaks=leaks,
        accepted=accepted,
        evaluation_source=source,
        is_identified=log.source.is_identified and source.is_identified,
        ab_plan=plan_ab_test(
            held_out.scores, tested, features.dataset, confidence=evaluation.confidence, rng=seed
        ),
        check=log.check,
        propensity_source=log.source,
        join=log.join,
        shown=log.shown,
        weights=diagnose(clicked(log.training)),
        heaviest=_heaviest_pairs(log),
        propensities=propensities,
        evaluation=evaluation,
        half_life=impressions.half_life,
        seed=seed,
        doubts=doubts,
    )
    _record_provenance(fit, impressions)
    logger.info("%s", fit.verdict, extra={
        "relative_gain": fit.gain.relative, "low": fit.gain.relative_low,
        "high": fit.gain.relative_high, "by": fit.holdout.by,
    })  # fmt: skip
    for warning in fit.warnings:
        logger.warning("%s", warning)
    return fit


def _copy_ranker(ranker: ClickRanker | RankerOptions | None, seed: int) -> ClickRanker:
    """Return an untrained copy of the ranker, or the ranker that the options describe."""
    if ranker is None or isinstance(ranker, RankerOptions):
        ranker = make_ranker(ranker or RankerOptions(), seed=seed)
    elif not isinstance(ranker, ClickRanker):
        raise ParameterError(
            f"ranker is {ranker!r}, expected RankerOptions, or a ranker of this package that is "
            "not fitted"
        )
    copy: ClickRanker = make_successor(ranker)
    if copy.random_state is None:
        copy.set_params(random_state=seed)
    return copy


def _hold_out(
    ranker: ClickRanker,
    impressions: Impressions,
    features: FeatureTable,
    log: WeightedLog,
    propensities: PropensityOptions,
    evaluation: EvaluationOptions,
    streams: list[np.random.Generator],
    progress: Progress,
) -> HoldoutScores:
    """Hold out the last days if the log allows it, or else queries."""
    since, limit = _first_holdout_day(impressions, evaluation)
    if since is not None:
        try:
            return hold_out_days(
                ranker, impressions, features, since, propensities, evaluation,
                rng=streams[5], progress=progress.part(0.35),
            )  # fmt: skip
        except DataError as error:
            if evaluation.needs_time:
                raise DataError(
                    f"{error}; or evaluate on held-out queries (--holdout-by queries)"
                ) from error
            limit = f"{_LIMIT}: days could not be held out, because {error}."
    return hold_out_queries(
        ranker, log, limit=limit, n_folds=evaluation.n_folds, rng=streams[2],
        progress=progress.part(0.6),
    )  # fmt: skip


def _first_holdout_day(
    impressions: Impressions, evaluation: EvaluationOptions
) -> tuple[date | None, str]:
    """Return the first day that evaluates, or None and the limit of held-out queries."""
    if evaluation.holdout_by == "queries":
        return None, f"{_LIMIT}."
    if "timestamp" not in impressions.columns and not evaluation.needs_time:
        return None, f"{_LIMIT}: the log has no timestamps."
    try:
        days = impressions.days()
    except DataError as error:
        if evaluation.needs_time:
            raise
        return None, f"{_LIMIT}: {error}."
    since = days.cut(evaluation)
    if since is None and evaluation.needs_time:
        raise DataError(
            f"{impressions.source}: no day of the log has enough clicks before it to train on and "
            "enough after it to evaluate on: name one with holdout_from (--holdout-from)"
        )
    return since, f"{_LIMIT}: the log has too few days to hold out the last of them."


def _heaviest_pairs(log: WeightedLog) -> tuple[HeavyPair, ...]:
    """Return the query-item pairs with the most weight."""
    counts = log.check.counts
    pair = np.searchsorted(counts.pair_starts, log.rows, side="right") - 1
    weights = np.bincount(pair, log.shown.weights, len(counts.pair_starts) - 1)
    total = float(np.abs(weights).sum())
    pairs = []
    for k in np.argsort(-weights, kind="stable")[:N_HEAVIEST]:
        rows = slice(*counts.pair_starts[k : k + 2])
        if weights[k] > 0:
            pairs.append(
                HeavyPair(
                    query_id=counts.query_ids[counts.query[rows.start]].item(),
                    item_id=counts.item_ids[counts.item[rows.start]].item(),
                    positions=ranges(np.unique(counts.position[rows])),
                    impressions=int(counts.impressions[rows].sum()),
                    clicks=float(counts.value[rows].sum()),
                    weight=float(weights[k]),
                    share=float(weights[k]) / total,
                )
            )
    return tuple(pairs)


def _list_early_warnings(log: WeightedLog, held_out: HoldoutScores) -> Iterator[str]:
    """Yield warnings about the propensities of the days before, if the whole log has no such."""
    source, since = held_out.clicks.log.source, held_out.holdout.since
    reported = {mask_details(text) for text in log.source.warnings}
    for text in source.warnings:
        if mask_details(text) not in reported:
            yield f"On the days before {since}: {text}"


def _list_warnings(
    estimated: GainEstimate, ranker: ClickRanker, impressions: Impressions
) -> Iterator[str]:
    """Yield reasons to trust the gain less, apart from the warnings about the log."""
    if impressions.half_life is not None:
        share = effective_impressions(impressions) / sum(impressions.days().rows)
        if share < MIN_EFFECTIVE_SHARE:
            yield (
                f"With a half-life of {impressions.half_life:g} days the log is worth {share:.0%} "
                "of its rows: the ranker is as uncertain as one from a log of that size."
            )
    gain, ends = estimated.gain, estimated.gain_at_ends
    yield from map(as_sentence, gain.warnings)
    if ends is not None and min(*ends, gain.relative) <= 0 < max(*ends, gain.relative):
        yield (
            "Whether there is a gain depends on the propensities: at the lower ends of their "
            f"intervals it would be {ends[0]:+.1%}, at the upper ends {ends[1]:+.1%}."
        )
    begin = ranker._warm_start  # noqa: SLF001
    days, last_day = list_days(impressions), None if begin is None else begin.last_day
    if last_day is not None and days and days[0].isoformat() <= last_day:
        yield (
            f"The ranker of the warm start was trained on days until {last_day}, and this log "
            f"begins on {days[0]}: it was trained on evaluation clicks, so the gain looks larger "
            "than it is, and these clicks count twice. Fit on later days only."
        )


def _record_provenance(fit: Fit, impressions: Impressions) -> None:
    """Store in the ranker's file what its card shows of the log and the gain, if not withheld."""
    check, provenance = fit.check, fit.ranker.provenance_
    provenance |= {
        "log": {
            "file": Path(check.source).name,
            "impressions": check.counts.n_impressions,
            "clicks": check.counts.n_clicks,
            "sessions": check.n_sessions,
        },
        "propensities": fit.propensity_source.source,
        "verdict": fit.verdict,
        "warnings": list(fit.warnings),
    }
    days = list_days(impressions)
    if days:
        begin = fit.ranker._warm_start  # noqa: SLF001
        earlier = None if begin is None else begin.first_day
        provenance["log"]["first_day"] = min(days[0].isoformat(), earlier or "9999-12-31")
        provenance["log"]["last_day"] = days[-1].isoformat()
    if not fit.decision.is_withheld:
        provenance["gain"] = gain_record(fit.gain, is_identified=fit.is_identified)


# -- a ranker that is trained on a click log ------------------------------------------------------


def evaluate_training(
    ranker: ClickRanker,
    dataset: RankingDataset,
    log: ClickLog,
    *,
    evaluation: EvaluationOptions | None = None,
    seed: int = 0,
    progress: Progress | Show | None = None,
) -> TrainedRanker:
    """Estimate the gain over the logging policy of rankers trained like this one, without labels.

    The queries are split into five folds, and copies of the ranker are trained without each in
    turn: five more trainings, in which everything that a ranker learns from clicks is learned
    again. Propensities are taken as they are in the log.

    Parameters
    ----------
    ranker : ClickRanker
        Fitted or not; it is not changed.
    dataset : RankingDataset
    log : ClickLog
        With the positions at which items were shown. Without them, or with clicks on one query
        only, there is no gain, and the verdict gives the reason.
    evaluation : EvaluationOptions, optional
        Its metric, estimator, held-out share and confidence level are used.
    seed, progress
        As for `fit_from_impressions`.

    Examples
    --------
    >>> from countersample import CounterSampleRanker, simulate_clicks, synthetic
    >>> from countersample.fitting import evaluate_training
    >>> data = synthetic("tiny", rng=0)
    >>> log = simulate_clicks(data, data.features[:, 0], n_clicks=5000, relevant=1, rng=0)
    >>> ranker = CounterSampleRanker(steps=2000, learning_rate=0.003)
    >>> evaluate_training(ranker, data, log).verdict[:20]
    'The ranker is better'
    >>> evaluate_training(ranker, data, log.replace(position=None)).verdict
    'Not evaluated: the log has no positions of the items that were shown.'
    """
    result = TrainedRanker(ranker, log.n_clicks)
    if log.position is None:
        reason = "the log has no positions of the items that were shown"
        return replace(result, verdict=f"Not evaluated: {reason}.")
    evaluation = EvaluationOptions() if evaluation is None else evaluation
    metric = METRIC if evaluation.metric is None else evaluation.metric
    rng = np.random.default_rng(seed)
    try:
        folds = split_queries(log, evaluation.n_folds, rng)
        scores, _ = train_folds(
            ranker, folds, dataset, log, metric=metric, rng=rng,
            progress=Progress.of(progress).part(1.0, "held-out queries"),
        )  # fmt: skip
        estimator: str = "ips" if evaluation.estimator == "auto" else evaluation.estimator
        if log.impressions is not None:
            estimator = choose_estimator(
                evaluation.estimator, [scores], log, dataset, metric=metric,
                exposure="policy-aware", is_complete=True,
            ).name  # fmt: skip
        gain = estimate_gain(
            scores, log, dataset, metric=metric, estimator=estimator,
            confidence=evaluation.confidence, rng=rng,
        )  # fmt: skip
    except DataError as error:
        return replace(result, verdict=f"Not evaluated: {error}.")
    leaks = () if log.impressions is None else find_leaks(log, dataset, rng=rng)
    warnings = [*(leak.sentence for leak in leaks), *map(as_sentence, gain.warnings)]
    if log.impressions is None:
        warnings.append(
            "The log has clicks only: how much of the ranking was never shown, and whether a "
            "feature was computed from these clicks, is not known."
        )
    verdict = decide(gain, withheld=describe_leaks(leaks), kept=describe_kept(ranker))
    return replace(
        result, gain=None if verdict.is_withheld else gain, verdict=verdict.sentence,
        warnings=tuple(warnings),
    )  # fmt: skip
