"""From impressions and features to a ranker, and its reward: `fit_from_impressions`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from countersample._logging import get_logger
from countersample._params import choice
from countersample._progress import Progress
from countersample.clicks import diagnose
from countersample.clicks.impressions.counts import named, ranges
from countersample.clicks.impressions.joining import clicked
from countersample.clicks.impressions.weighting import effective_impressions
from countersample.data.transforms import TRANSFORMS
from countersample.errors import DataError, ParameterError
from countersample.evaluation import plan_ab_test
from countersample.fitting.gain import (
    ESTIMATORS_OF_GAIN,
    PARTS,
    gain_on_card,
    learning_curve,
    to_learn_from,
)
from countersample.fitting.judging import UNSEEN, judge_by_queries, judge_by_time, judged_gain
from countersample.fitting.leaks import accepted_names, find_leaks
from countersample.fitting.results import Fit, HeavyPair
from countersample.fitting.setting_up import sentence, set_up
from countersample.rankers import ClickRanker, CounterSampleRanker
from countersample.rankers._warm import going_on
from countersample.rankers.chosen import NOT_OF_TREES

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    ranker: ClickRanker | None = None,
    safety: float | None = None,
    transform: str | None = None,
    propensities: Examinable | None = None,
    method: str = "auto",
    randomized: str | None = None,
    depth: int | None = None,
    missing: Literal["error", "skip"] = "error",
    exposure: str = "policy-aware",
    estimator: str = "auto",
    metric: str | None = None,
    judge_by: Literal["auto", "time", "queries"] = "auto",
    judge_from: date | str | None = None,
    judge_last: str | None = None,
    accept_features: Sequence[str] = (),
    half_life: str | None = None,
    seed: int = 0,
    progress: Progress | Show | None = None,
) -> Fit:
    """Check a log, estimate propensities, train, and estimate the gain: no labels.

    The gain is over what was logged, by clicks that the ranker has not seen. With timestamps they
    are those of the last days, and all that is learned, propensities too, is from the days before.
    Without, queries are cut into five parts, each held out in turn: a ranker for which all was
    found from the others is judged by it. The ranker that is returned is trained on everything.

    The interval tells how much other sessions of the last days, or other queries, would change the
    gain, and the propensities that are estimated: `Fit.judged_by` says of whom it speaks. (Of
    propensities that are given, or estimated by regression-em or with trust bias, it takes the
    values as they are.)

    Parameters
    ----------
    impressions : Impressions
        See `read_impressions`.
    features : FeatureTable
        See `read_features`. Labels are not read.
    ranker : ClickRanker, optional
        What is trained, of any kind, not fitted: a `NeuralRanker`, a `GBDTRanker`, …. By default a
        linear one (`CounterSampleRanker`). All that it finds from clicks it finds anew for each
        part. It is not changed: a copy of it is trained.
    safety : 0, or float in [0.5, 1), optional
        The confidence with which held-out clicks have to show a ranker better than what was logged
        before it takes its place: that of the ranker, 0.95 by default; 0 for none.
    transform : {"log", "root", "quantile", "auto"}, optional
        What is done to features before they are scaled: by default that of the ranker, which is
        nothing; "auto" lets held-out clicks choose. Boosted trees take none.
    propensities : Propensities, ContextPropensities, PositionBiasCurve, … or array-like, optional
        What is known of examination probabilities, as `join_features` takes it. By default they are
        estimated.
    method : str
        How: ``"auto"``, ``"logged"`` (the log's own column), ``"trust"`` or a name in
        `countersample.propensity.METHODS`. ``"auto"`` takes the log's own, else the first of
        randomized, all-pairs and regression-em that the log supports.
    randomized : str, optional
        A policy whose rankings were shuffled: propensities are estimated from its rows.
    depth : int, optional
        The last position to estimate.
    missing : {"error", "skip"}
        Whether rows that are impossible, or have no features or propensity, are refused, or left
        out and reported.
    exposure : {"policy-aware", "position-only"}
        How clicks are weighted: by the probability that the item is examined in a session of its
        query, or in its position; see `join_features`.
    estimator : {"auto", "ips", "snips", "dr"}
        How the gain is estimated: see `countersample.evaluation.estimate`. ``"auto"`` takes
        ``"dr"`` where the ranker shows items that the log never showed, and else ``"ips"``.
    metric : str, optional
        What is chosen for and estimated: ``"dcg@k"`` or ``"precision@k"``. By default ``"dcg@10"``,
        or down to the last position of the log where its pages are shorter: a ranker gains nothing
        by what the page would not show.
    judge_by : {"auto", "time", "queries"}
        Whose clicks judge. ``"auto"`` is by time where the log has timestamps of several days.
    judge_from : date or str, optional
        The first day that judges, such as ``"2026-03-31"``; by default one that leaves about a
        fifth of the rows.
    judge_last : str, optional
        Or how many of the last days judge: ``"7d"``, ``"2w"``.
    accept_features : sequence of str
        Features that seem to know the clicks they are judged by (`Fit.leaks`), and do not: without
        them named here there is no verdict.
    half_life : str, optional
        After which time a day counts half in what is learned, propensities and ranker alike:
        ``"14d"``, ``"2w"``; see `Impressions.with_half_life`. Judging takes each click as one.
    seed : int
        With the same seed, the same linear ranker to the bit, on the same kind of CPU. It is the
        random_state of a ranker that has none.
    progress : function of (what is going on, share of all that is done), optional

    Raises
    ------
    DataError, ParameterError
        For a log that nothing can be learned from, naming what is missing and what to do.
    """
    _check_arguments(ranker, transform, estimator, judge_by)
    accepted = accepted_names(accept_features, features.dataset)
    if half_life is not None:
        impressions = impressions.with_half_life(half_life)
    progress = Progress.of(progress)
    streams = np.random.default_rng(seed).spawn(7)
    asked: dict[str, Any] = {"method": method, "randomized": randomized, "depth": depth}
    ready = set_up(
        impressions, features, propensities=propensities, **asked, missing=missing,
        exposure=exposure, metric=metric, rng=streams[0], progress=progress.part(0.2),
    )  # fmt: skip
    since, reason = _first_judged(impressions, judge_by, judge_from, judge_last)
    dataset, metric, source, shown = features.dataset, ready.metric, ready.source, ready.shown
    log = to_learn_from(ready.learned, knows_all=ready.matched.counts.rest is None)
    to_train = _to_train(ranker, metric, safety, transform, seed)
    days = _days(impressions)
    judgement = None
    if since is not None:
        try:
            judgement = judge_by_time(
                to_train, impressions, features, since,
                asked=asked | {"given": propensities}, missing=missing, exposure=exposure,
                estimator=estimator, rng=streams[5], progress=progress.part(0.35),
            )  # fmt: skip
        except DataError as error:
            if judge_by == "time" or judge_from is not None or judge_last is not None:
                raise DataError(f"{error}; or judge by queries (--judge-by queries)") from error
            reason = f"by time it could not be: {error}"
    if judgement is None:
        judgement = judge_by_queries(
            to_train, ready.matched, shown, ready.learned, source, reason=reason, metric=metric,
            rng=streams[2], progress=progress.part(0.6),
        )  # fmt: skip
    leaks = find_leaks(
        judgement.shown if judgement.learned is None else judgement.learned, dataset,
        item_ids=features.item_ids, judged=None if judgement.learned is None else judgement.shown,
        is_whole=judgement.is_whole, rng=streams[6],
    )  # fmt: skip
    judged = judged_gain(judgement, estimator, metric=metric, exposure=exposure, rng=streams[3])
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
        ab_plan=plan_ab_test(judgement.scores, judgement.shown, dataset, rng=seed),
        learning_curve=learning_curve(
            judgement.stages, judgement.shown, dataset, metric=metric,
            estimator=judged.estimator.name, relevance=judged.relevance, seed=curve_seed,
        ),
        check=ready.check,
        propensity_source=source,
        join=ready.join,
        shown=shown,
        weights=diagnose(clicked(ready.learned)),
        heaviest=_heaviest(shown, ready.rows, ready.check),
        settings={
            "model": to_train.kind, "safety": to_train.get_params().get("safety"),
            "metric": metric, "method": method, "randomized": randomized,
            "depth": depth, "missing": missing, "exposure": exposure, "estimator": estimator,
            "judge_by": judge_by, "judge_from": None if judge_from is None else str(judge_from),
            "judge_last": judge_last, "accept_features": list(accepted), "half_life": half_life,
            "seed": seed, "parts": PARTS,
        },
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
    impressions: Impressions, judge_by: str, judge_from: date | str | None, judge_last: str | None
) -> tuple[date | None, str]:
    """Return the first day that judges, or None and why queries do."""
    is_asked = judge_by == "time" or judge_from is not None or judge_last is not None
    if judge_by == "queries":
        if judge_from is not None or judge_last is not None:
            raise ParameterError(
                "judge_from and judge_last are for judging by time, not by queries"
            )
        return None, f"as asked for; {UNSEEN}"
    if "timestamp" not in impressions.columns and not is_asked:
        return None, f"the log has no timestamps: {UNSEEN}"
    try:
        days = impressions.days()
    except DataError as error:
        if is_asked:
            raise
        return None, f"{error}: {UNSEEN}"
    since = days.cut(judge_from, judge_last)
    if since is None and is_asked:
        raise DataError(
            f"{impressions.source}: no day of the log leaves enough to learn from before it and to "
            "judge by after it: name one with judge_from (--judge-from)"
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


def _check_arguments(ranker: object, transform: str | None, estimator: str, judge_by: str) -> None:
    choice("judge_by", judge_by, ("auto", "time", "queries"))
    choice("estimator", estimator, ("auto", *ESTIMATORS_OF_GAIN))
    if ranker is not None and not isinstance(ranker, ClickRanker):
        raise ParameterError(
            f"ranker is {ranker!r}, expected a ranker of this package that is not fitted"
        )
    if transform is not None:
        choice("transform", transform, (*TRANSFORMS, "auto"))
        if ranker is not None and "feature_transform" not in ranker.get_params():
            raise ParameterError(
                f"transform is {transform!r} for a {type(ranker).__name__}, expected None: "
                f"{NOT_OF_TREES}"
            )


def _to_train(
    ranker: ClickRanker | None,
    metric: str,
    safety: float | None,
    transform: str | None,
    seed: int,
) -> ClickRanker:
    """Return a copy of the ranker, or the default one, that is not trained yet."""
    copied: ClickRanker = CounterSampleRanker(metric=metric) if ranker is None else going_on(ranker)
    if copied.random_state is None:
        copied.set_params(random_state=seed)
    if safety is not None:
        copied.set_params(safety=safety)
    if transform is not None:
        copied.set_params(feature_transform=transform)
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
