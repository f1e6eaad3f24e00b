"""From impressions and features to a ranker, and what it is worth: `fit_from_impressions`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import clone

from countersample.clicks import diagnose
from countersample.clicks.impressions import join_features
from countersample.data.normalize import Normalizer
from countersample.errors import DataError, ParameterError
from countersample.evaluation import estimate, estimate_gain
from countersample.evaluation.held_out import HeldOut
from countersample.fitting.propensity_source import find_propensities
from countersample.fitting.shown import Matched
from countersample.rankers import CounterSampleRanker
from countersample.tuning import clips_to_try, tune

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from countersample.clicks import ClickLog
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.diagnosis import Diagnosis
    from countersample.clicks.impressions import FeatureTable, Impressions, JoinReport, LogCheck
    from countersample.data import RankingDataset
    from countersample.evaluation import Estimate, Gain
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.tuning import ClipChoice, TuningResult

    Report = Callable[[str, float], None]

PARTS = 5  # that queries are cut into
CURVE_BOOTSTRAP = 200  # draws for each point of the learning curve
HEAVIEST = 10  # rows that are shown

# What is done, and the share of the time before it, about.
_BEGINS = {
    "checking the log": 0.0,
    "estimating propensities": 0.1,
    "trying settings on held-out queries": 0.25,
    "judging held-out queries": 0.65,
    "training": 0.92,
}


@dataclass(frozen=True)
class HeavyRow:
    """A row of the log whose clicks have much weight."""

    query_id: Any
    item_id: Any
    position: int
    clicks: int
    weight: float
    share: float  # of all weight


@dataclass(frozen=True, eq=False)
class Fit:
    """A ranker, and all that a person should know before it is used.

    Attributes
    ----------
    ranker : CounterSampleRanker
        Trained on all clicks.
    gain : Gain
        Over what was logged, each query ranked by a ranker that was trained without it.
    gain_at_ends : tuple of float, optional
        The relative gain with all propensities at the lower, or upper, ends of their intervals.
    learning_curve : tuple of (steps, Estimate)
        The value of such rankers in the course of training.
    check : LogCheck
    propensity_source : PropensitySource
        The propensities, where they are from, and what other methods say.
    join : JoinReport
    shown : ClickLog
        Everything that was shown and has features and a propensity.
    weights : Diagnosis
        Of the clicks among it.
    clip : ClipChoice
        How far propensities are clipped in training, and what was tried.
    tuning : TuningResult
    heaviest : tuple of HeavyRow
        The ten rows with the most weight. They have ids; nothing else here has.
    settings : dict
        How it was asked for.
    warnings : tuple of str
        What makes the result less sure than it looks.
    """

    ranker: CounterSampleRanker
    gain: Gain
    gain_at_ends: tuple[float, float] | None
    learning_curve: tuple[tuple[int, Estimate], ...]
    check: LogCheck
    propensity_source: PropensitySource
    join: JoinReport
    shown: ClickLog
    weights: Diagnosis
    clip: ClipChoice
    tuning: TuningResult
    heaviest: tuple[HeavyRow, ...]
    settings: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def is_better(self) -> bool:
        """Whether the whole interval of the gain is above 0."""
        return self.gain.low > 0

    @property
    def verdict(self) -> str:
        """What the gain says, in words."""
        gain = self.gain
        told = (
            f"{gain.relative:+.1%} {gain.new.metric} over what was logged "
            f"({gain.new.confidence:.0%} interval {gain.relative_low:+.1%} to "
            f"{gain.relative_high:+.1%})"
        )
        if self.is_better:
            return f"The ranker is better: {told}."
        if gain.high < 0:
            return f"The ranker is worse: {told}. Do not use it."
        return (
            f"Not shown to be better: {told}, and that includes 0. A longer log would narrow the "
            "interval."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; no id is among them."""
        propensity_source = self.propensity_source
        return {
            "verdict": self.verdict,
            "is_better": self.is_better,
            "gain": asdict(self.gain),
            "gain_at_ends": self.gain_at_ends,
            "warnings": list(self.warnings),
            "log": self.check.to_dict(),
            "join": self.join.to_dict(),
            "propensities": {
                "source": propensity_source.source,
                "curve": None
                if propensity_source.curve is None
                else propensity_source.curve.to_dict(),
                "cross_check": None
                if propensity_source.cross_check is None
                else propensity_source.cross_check.to_dict(),
            },
            "weights": self.weights.to_dict(),
            "clip": self.tuning.clip,
            "learning_rate": self.tuning.learning_rate,
            "steps": self.tuning.steps,
            "trials": [asdict(trial) for trial in self.tuning.trials if np.isfinite(trial.value)],
            "learning_curve": [
                {"steps": steps, "value": each.value, "low": each.low, "high": each.high}
                for steps, each in self.learning_curve
            ],
            "settings": self.settings,
        }


def fit_from_impressions(
    impressions: Impressions,
    features: FeatureTable,
    *,
    propensities: ArrayLike | PositionBiasCurve | None = None,
    method: str = "auto",
    randomized: str | None = None,
    depth: int | None = None,
    missing: Literal["error", "skip"] = "error",
    metric: str = "dcg@10",
    seed: int = 0,
    report: Report | None = None,
) -> Fit:
    """Check a log, estimate propensities, tune, train, and estimate the gain: no labels.

    The gain is over what was logged, with each query ranked by a ranker that was trained without
    the clicks on it: queries are cut into five parts, each held out in turn. The ranker that is
    returned is trained on all of them. The interval tells how much other queries would change the
    gain; that the propensities are estimates, too, is not in it.

    Parameters
    ----------
    impressions : Impressions
        See `read_impressions`.
    features : FeatureTable
        See `read_features`. Labels are not read.
    propensities : Propensities, PositionBiasCurve or array-like, optional
        What is known of examination probabilities, as `join_features` takes it. By default they are
        estimated.
    method : str
        How: ``"auto"``, ``"logged"`` (the log's own column) or a name in
        `countersample.propensity.METHODS`. ``"auto"`` takes the log's own, else the first of
        randomized, all-pairs and regression-em that the log supports.
    randomized : str, optional
        A policy whose rankings were shuffled: propensities are estimated from its rows.
    depth : int, optional
        The last position to estimate.
    missing : {"error", "skip"}
        Whether rows that are impossible, or have no features or propensity, are refused, or left
        out and reported.
    metric : str
        What is tuned for and estimated: ``"dcg@k"`` or ``"precision@k"``.
    seed : int
        With the same seed, the same ranker to the bit.
    report : function of (what is going on, share of all that is done), optional

    Raises
    ------
    DataError, ParameterError
        For a log that nothing can be learned from, naming what is missing and what to do.
    """
    _check_arguments(missing, metric)
    tell = _Progress(report)
    streams = np.random.default_rng(seed).spawn(5)
    tell("checking the log", 0.0)
    check = impressions.check(randomized=randomized)
    _check_log(check, missing)
    matched = Matched.of(check.counts, features)
    tell("estimating propensities", 0.0)
    propensity_source = find_propensities(
        impressions, matched, given=propensities, method=method, randomized=randomized,
        depth=depth, rng=streams[0],
    )  # fmt: skip
    dataset = features.dataset
    log, join = join_features(
        check.counts, propensity_source.propensities, dataset, features.item_ids, missing=missing
    )
    shown, rows = matched.shown(propensity_source.propensities)
    tuning = tune(
        Normalizer.fit(dataset, "minmax")(dataset), log.detached(), clips=clips_to_try(log),
        metric=metric, rng=streams[1], progress=tell,
    )  # fmt: skip
    ranker = CounterSampleRanker(
        learning_rate=tuning.learning_rate, steps=tuning.steps, clip=tuning.clip, random_state=seed
    )
    stages = _held_out_scores(
        ranker, dataset, shown, metric, streams[2],
        lambda share: tell("judging held-out queries", share),
    )  # fmt: skip
    _, scores = stages[-1]
    gain = estimate_gain(scores, shown, dataset, metric=metric, rng=streams[3])
    at_ends = _gain_at_ends(scores, matched, propensity_source, metric)
    same = int(streams[4].integers(2**63))  # draws for every point, so that the curve is smooth
    curve = [
        (steps, estimate(scores, shown, dataset, metric=metric, n_bootstrap=CURVE_BOOTSTRAP,
                         rng=same))
        for steps, scores in stages
    ]  # fmt: skip
    ranker.fit_log(dataset, log, report=lambda _what, share: tell("training", share))
    ranker.origin_ |= _origin(check, propensity_source, gain)
    return Fit(
        ranker=ranker,
        gain=gain,
        gain_at_ends=at_ends,
        learning_curve=tuple(curve),
        check=check,
        propensity_source=propensity_source,
        join=join,
        shown=shown,
        weights=diagnose(log),
        clip=tuning.clip_choice,
        tuning=tuning,
        heaviest=_heaviest(shown, rows, check),
        settings={
            "metric": metric, "method": method, "randomized": randomized, "depth": depth,
            "missing": missing, "seed": seed, "parts": PARTS,
        },
        warnings=(*check.warnings, *_of_join(join), *propensity_source.warnings,
                  *_of_gain(gain, at_ends)),
    )  # fmt: skip


class _Progress:
    """Tells the share of all that is done from that of one part."""

    def __init__(self, report: Report | None) -> None:
        self._report = report

    def __call__(self, what: str, share: float) -> None:
        if self._report is None:
            return
        names = list(_BEGINS)
        ends = dict(zip(names, [*(_BEGINS[name] for name in names[1:]), 1.0], strict=True))
        self._report(what, _BEGINS[what] + (ends[what] - _BEGINS[what]) * share)


def _check_arguments(missing: str, metric: str) -> None:
    if missing not in {"error", "skip"}:
        raise ParameterError(f"missing is {missing!r}, expected 'error' or 'skip'")
    if not metric.startswith(("dcg", "precision")):
        raise ParameterError(f"metric is {metric!r}, expected dcg@k or precision@k")


def _check_log(check: LogCheck, missing: str) -> None:
    wrong = check.problems.sentence(has_impressions="impressions" in check.columns)
    if wrong is not None and missing == "error":
        raise DataError(
            f"{check.source}: {wrong}; correct them, or leave those rows out with missing='skip' "
            "(--missing skip)"
        )
    if not check.counts.n_clicks:
        raise DataError(f"{check.source}: the log has no click, so there is nothing to learn from")


def _held_out_scores(
    ranker: CounterSampleRanker,
    dataset: RankingDataset,
    shown: ClickLog,
    metric: str,
    rng: np.random.Generator,
    report: Callable[[float], None],
) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """Score each query by a ranker that is trained without it, in the course of training.

    Returns
    -------
    list of (steps, scores of the items)
        The last are those of the trained rankers.
    """
    n_clicked = len(np.unique(shown.query[shown.clicks > 0]))
    if n_clicked < 2:
        raise DataError(
            "the log has clicks on one query only, expected at least two: a ranker is judged by "
            "queries that it was not trained on"
        )
    n_parts = min(PARTS, n_clicked)
    held_out = HeldOut(dataset, shown, metric, holdout=1 / n_parts, least_queries=None, rng=rng)
    by_fold = []
    for part, fold in enumerate(held_out.folds):
        seed = int(rng.integers(2**31))
        trained = clone(ranker).set_params(random_state=seed).fit_log(
            dataset, fold.train,
            report=lambda _what, share, part=part: report((part + share) / n_parts),
        )  # fmt: skip
        by_fold.append(trained.staged_predict(fold.validation))
    return [
        (stages[0][0], held_out.scores([scores for _, scores in stages]))
        for stages in zip(*by_fold, strict=True)
    ]


def _origin(check: LogCheck, propensity_source: PropensitySource, gain: Gain) -> dict[str, Any]:
    """Return what the ranker's card will say of the log, the propensities and the gain."""
    return {
        "log": {
            "file": Path(check.source).name,
            "impressions": check.counts.n_impressions,
            "clicks": check.counts.n_clicks,
            "sessions": check.n_sessions,
        },
        "propensities": propensity_source.source,
        "gain": {
            "metric": gain.new.metric,
            "per": gain.new.per,
            "relative": gain.relative,
            "relative_low": gain.relative_low,
            "relative_high": gain.relative_high,
            "confidence": gain.new.confidence,
            "logged": gain.logged.value,
            "new": gain.new.value,
        },
    }


def _of_join(join: JoinReport) -> list[str]:
    return [_sentence(join.sentence())] if join.n_skipped else []


def _of_gain(gain: Gain, at_ends: tuple[float, float] | None) -> list[str]:
    told = [_sentence(text) for text in gain.warnings]
    if at_ends is not None and min(*at_ends, gain.relative) <= 0 < max(*at_ends, gain.relative):
        told.append(
            "Whether there is a gain hangs on the propensities: at the lower ends of their "
            f"intervals it would be {at_ends[0]:+.1%}, at the upper ends {at_ends[1]:+.1%}."
        )
    return told


def _gain_at_ends(
    scores: np.ndarray[Any, Any], matched: Matched, propensity_source: PropensitySource, metric: str
) -> tuple[float, float] | None:
    """Return the relative gain with all propensities at the ends of their intervals."""
    curve, dataset = propensity_source.curve, matched.table.dataset
    if curve is None or not curve.low.all():
        return None
    ends = []
    for values in (curve.low, curve.high):
        shown, _ = matched.shown(values / max(1.0, values.max()))
        gain = estimate_gain(scores, shown, dataset, metric=metric, n_bootstrap=1, rng=0)
        ends.append(gain.relative)
    return ends[0], ends[1]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _heaviest(shown: ClickLog, rows: np.ndarray[Any, Any], check: LogCheck) -> tuple[HeavyRow, ...]:
    weights, counts = shown.weights, check.counts
    total = float(weights.sum())
    first = np.argsort(-weights, kind="stable")[:HEAVIEST]
    return tuple(
        HeavyRow(
            query_id=counts.query_ids[counts.query[row]].item(),
            item_id=counts.item_ids[counts.item[row]].item(),
            position=int(counts.position[row]),
            clicks=int(counts.clicks[row]),
            weight=float(weights[place]),
            share=float(weights[place]) / total,
        )
        for place, row in zip(first, rows[first], strict=True)
        if weights[place] > 0
    )
