"""Counterfactual (off-policy) evaluation: the value of a ranker from clicks that another one got.

An additive metric is a sum over relevant items of λ(rank): see `rank_values`. A click on an item
that is examined in a session of its query with probability p (its propensity) counts 1/p, so that
each item counts, on average, as often as users who examine everything would click it: its relevance
r. Of items that no session showed nothing is known; an estimate says how much of a ranking is of
such (`Estimate.never_shown`). With S sessions, and rank the rank under the new ranker,

===========  =================================================================  ==================
estimator    value                                                              is per
===========  =================================================================  ==================
`ips`        (1/S) Σ_clicks λ(rank) / p                                         session
`beta-ips`   that − β*·(x̄ − X), see `control_variates`                          session
`clipped`    (1/S) Σ_clicks λ(rank) / max(p, τ)                                 session
`snips`      Σ_clicks λ(rank)/p  /  Σ_clicks 1/p                                relevant item
`dr`         (1/S) Σ_q n_q Σ_items λ(rank) · r̃, see `doubly_robust`             session
===========  =================================================================  ==================

Per session, the value is the mean over sessions of Σ_items λ(rank)·r: what users who examine
everything would click, each click with the reward λ. `snips` divides by the sum of the weights:
what one relevant item gains, at most 1 for dcg, and less noisy where the number of relevant items
is. `beta-ips` is less noisy for the same reason, and per session, where the mean X of Σ_clicks 1/p
is known better than from this log: x̄ is that of the log, and β* the best factor for their
difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from countersample._frames import Tabular
from countersample._ranked import ratio
from countersample.errors import DataError
from countersample.evaluation.estimators import (
    ESTIMATORS,
    logged_rewards,
    make_case,
    never_shown,
    rewards_of,
)
from countersample.evaluation.resampling import interval, ratio_intervals, resample
from countersample.options import CONFIDENCE, METRIC

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.data.scoring import Ranker
    from countersample.evaluation.estimators import Case, RankRewards, Sums

THIN = 100  # clicks of equal weight; with fewer the interval itself is a guess
FEW = 50  # clusters to resample
_COLUMNS = (  # of a frame
    "metric", "estimator", "per", "value", "low", "high", "confidence", "n_clicks",
    "effective_clicks",
)  # fmt: skip
UNSEEN = 0.05  # of the ranker's rewards


@dataclass(frozen=True)
class Estimate(Tabular):
    """The value of a ranker from logged clicks, and how sure it is.

    Attributes
    ----------
    value, low, high : float
        The estimate, and its bootstrap interval.
    confidence : float
        That of the interval.
    metric, estimator : str
    per : {"session", "click", "relevant item"}
        What the value is a mean over: clicks, where the log does not say how many sessions it had.
    resampled : {"sessions", "queries"}
        What the bootstrap drew: queries, where the log does not say which session a row is of.
    n_sessions : float or None
    n_clicks : float
    effective_clicks : float
        (Σ u)² / Σ u² with u = λ/p of each click: so many clicks of equal weight are as good.
    never_shown : float or None
        The share of the ranking's rewards λ that is of items the log never showed (or only where
        it is not known how likely they are examined), whose relevance no click tells: `ips`,
        `clipped` and `snips` take them for irrelevant, `dr` believes its model of relevance. None
        where the log does not say what was shown.
    warnings : tuple of str
        What makes the estimate less sure than it looks.
    """

    value: float
    low: float
    high: float
    confidence: float
    metric: str
    estimator: str
    per: str
    resampled: str
    n_sessions: float | None
    n_clicks: float
    effective_clicks: float
    never_shown: float | None = None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.metric} is {self.value:.4g} a {self.per} ({self.confidence:.0%} interval "
            f"{self.low:.4g} to {self.high:.4g}, {self.estimator}, bootstrap over "
            f"{self.resampled})"
        )

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`, of one row."""
        return {name: [getattr(self, name)] for name in _COLUMNS}


@dataclass(frozen=True)
class Gain(Tabular):
    """How much better a ranker is than the one that was logged, by the same clicks.

    Attributes
    ----------
    value, low, high : float
        The difference of the two values, and its bootstrap interval: both are estimated from the
        same sessions in every draw, so what they have in common falls out.
    relative, relative_low, relative_high : float
        The difference as a share of the logged ranker's value, with the interval of the ratio of
        the two: see `countersample.evaluation.resampling.ratio_intervals`. That of the difference
        is as many times the logged ranker's value.
    new, logged : Estimate
    """

    value: float
    low: float
    high: float
    relative: float
    relative_low: float
    relative_high: float
    new: Estimate
    logged: Estimate

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of both estimates."""
        return tuple(dict.fromkeys((*self.new.warnings, *self.logged.warnings)))

    def __str__(self) -> str:
        return (
            f"{self.new.metric} changes by {self.relative:+.1%} ({self.new.confidence:.0%} "
            f"interval {self.relative_low:+.1%} to {self.relative_high:+.1%}), from "
            f"{self.logged.value:.4g} to {self.new.value:.4g} a {self.new.per}"
        )

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each of logged, new, gain, relative gain."""
        rows = {
            "logged": (self.logged.value, self.logged.low, self.logged.high),
            "new": (self.new.value, self.new.low, self.new.high),
            "gain": (self.value, self.low, self.high),
            "relative gain": (self.relative, self.relative_low, self.relative_high),
        }
        value, low, high = zip(*rows.values(), strict=True)
        return {"of": list(rows), "value": list(value), "low": list(low), "high": list(high)}


def estimate(
    ranker_or_scores: ArrayLike | Ranker,
    log: ClickLog,
    dataset: RankingDataset,
    *,
    metric: str = METRIC,
    estimator: str = "ips",
    clip: float | None = None,
    baseline: ArrayLike | None = None,
    control: float | ClickLog | None = None,
    confidence: float = CONFIDENCE,
    n_bootstrap: int = 1000,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
    """Estimate the value of a ranker from the clicks that another one got: no labels.

    The formulas are at the top of `countersample.evaluation.counterfactual`. The ranker must not
    have been trained on these clicks: on its own training log it looks better than it is.

    Parameters
    ----------
    ranker_or_scores : Ranker or array-like (n_items,)
        A ranker with ``predict``, or the scores of the items.
    log : ClickLog
        With `session` the bootstrap is over sessions, else over queries; with `n_sessions` or
        `impressions` the value is per session, else per click.
    dataset : RankingDataset
        The data the log is of. Its labels are not read.
    metric : str
        ``"dcg@k"``, ``"dcg"``, ``"precision@k"`` or ``"arp"``.
    estimator : {"ips", "snips", "beta-ips", "clipped", "dr"}
        ``"dr"`` needs a log with impressions, ``"beta-ips"`` a `control`.
    clip : float, optional
        τ of ``"clipped"`` (by default 10/√S, S being the number of sessions or else of clicks) and
        of ``"dr"`` (by default 0).
    baseline : array-like (n_items,), optional
        For ``"dr"``: the relevance of each item by a model of your own, fitted on other clicks
        than these. By default `relevance_model`.
    control : float or ClickLog, optional
        For ``"beta-ips"``: the mean of Σ 1/p over the clicks of a session (which is how many
        relevant items it has: 1 where users look for one thing), or a longer log, of sessions like
        these, which tells that and the mean number of clicks, and may contain this log. Of a
        longer log the interval knows how sure it is. Per click where there is no `n_sessions`.
    confidence : float in (0, 1)
    n_bootstrap : int
    rng : numpy Generator or seed

    Raises
    ------
    ParameterError, DataError
        For a metric that is not additive, or what does not fit.

    Examples
    --------
    One session in which the second of two items was clicked, at a propensity of 1/2; the new
    ranker has it on top: (1/1) · (1 / 0.5) · 1/log2(2).

    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.evaluation import estimate
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 0], qid=["a", "a"])
    >>> log = ClickLog(query=[0], item=[1], propensity=[0.5], session=[0], n_sessions=1)
    >>> estimate(data.features[:, 0], log, data, rng=0).value
    2.0
    """
    rng = np.random.default_rng(rng)
    case = make_case(log, dataset, metric, estimator, clip, baseline, rng, control)
    estimates, _ = paired_estimates(
        case, [rewards_of(ranker_or_scores, case)], n_bootstrap, confidence, rng
    )
    return estimates[0]


def estimate_gain(
    ranker_or_scores: ArrayLike | Ranker,
    log: ClickLog,
    dataset: RankingDataset,
    *,
    logging: ArrayLike | Ranker | None = None,
    metric: str = METRIC,
    estimator: str = "ips",
    clip: float | None = None,
    baseline: ArrayLike | None = None,
    control: float | ClickLog | None = None,
    confidence: float = CONFIDENCE,
    n_bootstrap: int = 1000,
    drawn: Floats | None = None,
    rng: np.random.Generator | int | None = None,
) -> Gain:
    """Estimate V(new) − V(logged), and that as a share of V(logged), from the same clicks.

    Parameters
    ----------
    logging : Ranker or array-like (n_items,), optional
        What ranked the items when the clicks were logged, or its scores. By default the positions
        in the log say it, item by item, which is also right where it ranked at random.
    drawn : float array (n, 2), optional
        The values of the new and of the logged ranking in n resampled logs, for intervals from a
        bootstrap of your own; else there are n_bootstrap resamples of sessions or queries.
    ranker_or_scores, log, dataset, metric, estimator, clip, baseline, control
        As for `estimate`.
    confidence, n_bootstrap, rng
        As for `estimate`.

    Examples
    --------
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.evaluation import estimate_gain
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 0], qid=["a", "a"])
    >>> log = ClickLog(
    ...     query=[0, 0], item=[1, 0], propensity=[0.5, 1.0], position=[2, 1], session=[0, 1],
    ...     n_sessions=10,
    ... )
    >>> gain = estimate_gain(data.features[:, 0], log, data, metric="precision@1", rng=0)
    >>> gain.new.value, gain.logged.value, gain.relative  # 2/10, 1/10
    (0.2, 0.1, 1.0)
    """
    rng = np.random.default_rng(rng)
    case = make_case(log, dataset, metric, estimator, clip, baseline, rng, control)
    old = logged_rewards(case) if logging is None else rewards_of(logging, case)
    new = rewards_of(ranker_or_scores, case)
    (of_new, of_old), drawn = paired_estimates(
        case, [new, old], n_bootstrap, confidence, rng, drawn
    )
    if not of_old.value > 0:
        raise DataError(
            f"the logged ranking has a {metric} of 0, expected clicks within its cut-off: there is "
            "nothing to compare with"
        )
    difference = of_new.value - of_old.value
    ends = ratio_intervals(
        np.array([of_new.value / of_old.value]), drawn[:, :1], drawn[:, 1], confidence,
        len(case.clusters),
    )  # fmt: skip
    low, high = (float(end[0]) for end in ends)
    return Gain(
        difference, of_old.value * low, of_old.value * high, difference / of_old.value, low, high,
        of_new, of_old,
    )  # fmt: skip


def paired_estimates(
    case: Case,
    rewards: list[RankRewards],
    n_bootstrap: int,
    confidence: float,
    rng: np.random.Generator,
    drawn: Floats | None = None,
) -> tuple[list[Estimate], Floats]:
    """Return the estimate of each ranking, and the bootstrap's values, (n_bootstrap, n): paired."""
    sums = [ESTIMATORS[case.estimator](case, each) for each in rewards]
    if drawn is None:
        columns, empty = np.hstack([s.columns for s in sums]), np.hstack([s.empty for s in sums])
        totals = resample(columns, empty, sums[0].n_empty, n_bootstrap=n_bootstrap, rng=rng)
        means = case.controls.resampled(n_bootstrap, rng) if case.controls else np.empty(0)
        parts = np.split(totals, len(sums), axis=1)
        drawn = np.stack([s.value(part, means) for s, part in zip(sums, parts, strict=True)], 1)
    found = map(_summary, repeat(case), sums, rewards, drawn.T, repeat(confidence))
    return list(found), drawn


def _summary(
    case: Case, sums: Sums, rewards: RankRewards, drawn: Floats, confidence: float
) -> Estimate:
    low, high = interval(drawn, confidence)
    clicks = case.log.clicks
    events = clicks if case.log.events is None else case.log.events
    shares = sums.weights * rewards.by_row * ratio(clicks, events)  # of one click
    # Sums, not dot products: threads cost more than they save here.
    squares = float((events * shares**2).sum())
    effective = float((events * shares).sum()) ** 2 / squares if squares > 0 else 0.0
    unseen = never_shown(case, rewards)
    return Estimate(
        value=float(sums.value(sums.totals, case.controls.means if case.controls else np.empty(0))),
        low=low,
        high=high,
        confidence=confidence,
        metric=case.metric,
        estimator=case.estimator,
        per=sums.per,
        resampled=case.clusters.name,
        n_sessions=case.clusters.n_sessions,
        n_clicks=float(events.sum()),
        effective_clicks=effective,
        never_shown=unseen,
        warnings=tuple(_warnings(case, effective, unseen)),
    )


def _warnings(case: Case, effective: float, unseen: float | None) -> list[str]:
    told = []
    if effective < THIN:
        told.append(
            f"thin support: the value rests on as much as {effective:.0f} clicks of equal weight"
        )
    if len(case.clusters) < FEW:
        told.append(f"only {len(case.clusters)} {case.clusters.name}: the interval is rough")
    if case.controls is not None and case.controls.doubt is not None:
        told.append(case.controls.doubt)
    if unseen is not None and unseen > UNSEEN:
        means = (
            "of these the relevance model alone speaks"
            if case.estimator == "dr"
            else "they count as irrelevant here, so the ranker may be better: see 'dr'"
        )
        known = case.log.examination
        where = "" if known is None or known.all() else ", or only where no propensity is known"
        told.append(f"{unseen:.0%} of its rewards are of items never shown{where}: {means}")
    return told
