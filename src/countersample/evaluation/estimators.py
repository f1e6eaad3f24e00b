"""Off-policy evaluation: the value of a ranker from clicks that the logging policy collected.

An additive metric is a sum over relevant items of λ(rank): see `rank_values`. A click on an item
that is examined in a session of its query with probability p (its propensity) counts 1/p. So each
item counts, on average, as often as users who examine everything would click it: its relevance r.
Nothing is known about items that no session showed; an estimate reports their share of a ranking
(`Estimate.never_shown`). With S sessions, and rank the rank under the new ranker,

===========  =================================================================  ==================
estimator    value                                                              is per
===========  =================================================================  ==================
`ips`        (1/S) Σ_clicks λ(rank) / p                                         session
`beta-ips`   that − β*·(x̄ − X), see `control_variates`                          session
`clipped`    (1/S) Σ_clicks λ(rank) / max(p, τ)                                 session
`snips`      Σ_clicks λ(rank)/p  /  Σ_clicks 1/p                                relevant item
`dr`         (1/S) Σ_q n_q Σ_items λ(rank) · r̃, see `doubly_robust`             session
===========  =================================================================  ==================

Per session, the value is the mean over sessions of Σ_items λ(rank)·r: the clicks of users who
examine everything, each with the reward λ. `snips` divides by the sum of the weights: the reward
per relevant item, at most 1 for dcg. It is less noisy if the number of relevant items is.
`beta-ips` is less noisy for the same reason, and per session, if the mean X of Σ_clicks 1/p is
known better than from this log: x̄ is the mean in the log, β* the best factor for their difference.

Every estimate is a function of sums over resampled clusters (sessions or queries), so that the
bootstrap computes it again from each draw. A new estimator is a function of a `Case` and the
`RankRewards` of a ranking, and a line in `ESTIMATORS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample._frames import Tabular
from countersample._params import choice, number, whole_number
from countersample.defaults import CONFIDENCE, METRIC
from countersample.errors import DataError, ParameterError
from countersample.evaluation.bootstrap import Clusters, add_up, interval, resample
from countersample.evaluation.control_variates import (
    Controls,
    control_moments,
    controlled_mean,
    outcome_moments,
)
from countersample.evaluation.doubly_robust import (
    check_relevance,
    default_clip,
    examination_probabilities,
    exposure,
    relevance_model,
    sessions_of_item,
)
from countersample.metrics import item_ranks, parse_additive, rank_values, ratio
from countersample.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.data.dataset import Ranker

MIN_EFFECTIVE_CLICKS = 100  # with fewer clicks of equal weight the interval itself is a guess
MIN_CLUSTERS = 50  # sessions or queries to resample
MAX_UNSEEN = 0.05  # the share of a ranker's rewards from items that were never shown
BOOTSTRAP_DRAWS = 1000
_COLUMNS = (  # of a frame
    "metric", "estimator", "per", "value", "low", "high", "confidence", "n_clicks",
    "effective_clicks",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(Options):
    """How a value is estimated from logged clicks.

    Parameters
    ----------
    metric : str
        ``"dcg@k"``, ``"dcg"``, ``"precision@k"`` or ``"arp"``.
    estimator : {"ips", "snips", "beta-ips", "clipped", "dr"}
        ``"dr"`` needs a log with impressions, ``"beta-ips"`` a `control`.
    clip : float, optional
        τ of ``"clipped"`` (by default 10/√S, with S the number of sessions or else of clicks) and
        of ``"dr"`` (by default 0).
    baseline : array-like (n_items,), optional
        For ``"dr"``: the relevance of each item by your own model, fitted on other clicks than
        these. By default `relevance_model`.
    control : float or ClickLog, optional
        For ``"beta-ips"``: the mean of Σ 1/p over the clicks of a session (the number of relevant
        items per session: 1 if users look for one thing), or a longer log of sessions like these,
        from which it and the mean number of clicks are estimated; it may contain this log. The
        interval includes the uncertainty of a longer log. Per click if there is no `n_sessions`.
    confidence : float in (0, 1)
    n_bootstrap : int

    Examples
    --------
    >>> from countersample.evaluation.estimators import EstimateOptions
    >>> EstimateOptions(metric="dcg@5", estimator="dr").confidence
    0.95
    """

    metric: str = METRIC
    estimator: str = "ips"
    clip: float | None = None
    baseline: Any = None
    control: Any = None
    confidence: float = CONFIDENCE
    n_bootstrap: int = BOOTSTRAP_DRAWS

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_additive(self.metric)
        choice("estimator", self.estimator, ESTIMATORS)
        number("confidence", self.confidence, above=0, below=1)
        whole_number("n_bootstrap", self.n_bootstrap, least=1)
        if self.clip is not None:
            number("clip", self.clip, above=0, most=1)
        takers = {"clip": ("clipped", "dr"), "baseline": ("dr",), "control": ("beta-ips",)}
        for name, estimators in takers.items():
            if getattr(self, name) is not None and self.estimator not in estimators:
                raise ParameterError(
                    f"estimator {self.estimator!r} takes no {name}, expected "
                    f"{' or '.join(map(repr, estimators))}"
                )


@dataclass(frozen=True)
class Estimate(Tabular):
    """The value of a ranker from logged clicks, with its interval."""

    value: float
    low: float
    high: float
    confidence: float
    metric: str
    estimator: str
    per: str  # "session", "click" (if the number of sessions is unknown) or "relevant item"
    resampled: str  # what the bootstrap draws: "sessions", or "queries" if rows have no session
    n_sessions: float | None
    n_clicks: float
    effective_clicks: float  # (Σ u)² / Σ u², u = λ/p: so many clicks of equal weight are as good
    # The share of the ranking's rewards λ from items that the log never showed (or only where their
    # examination probability is not known). `ips`, `clipped` and `snips` count them as irrelevant,
    # `dr` uses its model of relevance. None if the log has clicks only.
    never_shown: float | None = None
    warnings: tuple[str, ...] = ()  # reasons to trust the estimate less

    def __str__(self) -> str:
        return (
            f"{self.metric} is {self.value:.4g} per {self.per} ({self.confidence:.0%} interval "
            f"{self.low:.4g} to {self.high:.4g}, {self.estimator}, bootstrap over "
            f"{self.resampled})"
        )

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`, of one row."""
        return {name: [getattr(self, name)] for name in _COLUMNS}


def estimate(
    ranker_or_scores: ArrayLike | Ranker,
    log: ClickLog,
    dataset: RankingDataset,
    *,
    rng: np.random.Generator | int | None = None,
    options: EstimateOptions | None = None,
    **settings: Any,  # noqa: ANN401 (the fields of EstimateOptions)
) -> Estimate:
    """Estimate the value of a ranker from clicks on another ranking, without labels.

    The formulas are at the top of `countersample.evaluation.estimators`. The ranker must not have
    been trained on these clicks: on its own training log it looks better than it is.

    Parameters
    ----------
    ranker_or_scores : Ranker or array-like (n_items,)
        A ranker with ``predict``, or the scores of the items.
    log : ClickLog
        With `session` the bootstrap is over sessions, else over queries; with `n_sessions` or
        `impressions` the value is per session, else per click.
    dataset : RankingDataset
        The data of the log. Its labels are not read.
    rng : numpy Generator or seed
    options : EstimateOptions, optional
    **settings
        Single fields of `EstimateOptions`, which win over `options`: ``metric``, ``estimator``, ….

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
    case = make_case(log, dataset, EstimateOptions.of(options, **settings), rng)
    estimates, _ = estimate_pairwise(case, [ranker_rewards(ranker_or_scores, case)], rng)
    return estimates[0]


# -- What all estimators start from ---------------------------------------------------------------


class RankRewards(NamedTuple):
    """The rewards λ of a ranking: per row of the log and, for a new ranker, per item.

    The logged ranking has no λ per item if it differed between sessions and there are no
    impressions.
    """

    by_row: Floats
    by_item: Floats | None


@dataclass(frozen=True, eq=False)
class Case:
    """The checked input of all estimators, whatever the ranker."""

    log: ClickLog
    dataset: RankingDataset
    options: EstimateOptions
    rows: Ints  # the item of the dataset that each row of the log is about
    clusters: Clusters
    clip: float  # τ
    relevance: Floats  # r̂ of each item for `dr`; else empty
    controls: Controls | None  # of `beta-ips`


def make_case(
    log: ClickLog, dataset: RankingDataset, options: EstimateOptions, rng: np.random.Generator
) -> Case:
    """Check the log and prepare everything that does not depend on a ranker."""
    log.check(dataset)
    estimator, relevance, clip = options.estimator, np.empty(0), options.clip
    if estimator == "dr":
        exposure(log, dataset)  # rejects a log without impressions
        relevance = (
            relevance_model(log, dataset, rng=rng)
            if options.baseline is None
            else check_relevance("baseline", options.baseline, dataset)
        )
        clip = clip or 0.0
    clusters = Clusters.of(log)
    clip = default_clip(log) if clip is None else clip
    rows = dataset.offsets[log.query] + log.item
    controls = Controls.of(log, clusters, options.control) if estimator == "beta-ips" else None
    return Case(log, dataset, options, rows, clusters, clip, relevance, controls)


def ranker_rewards(ranker_or_scores: ArrayLike | Ranker, case: Case) -> RankRewards:
    """Return the rewards of the ranks that a ranker assigns."""
    by_item = rank_values(case.options.metric, item_ranks(ranker_or_scores, case.dataset))
    return RankRewards(by_item[case.rows], by_item)


def logged_rewards(case: Case) -> RankRewards:
    """Return the rewards of the logged rankings: per item, the mean of λ over its sessions.

    Without impressions that mean is not known, and each click counts λ/θ of its own position,
    whatever its propensity ρ: so per row the reward is λ·ρ/θ.
    """
    log = case.log
    if log.position is None:
        raise DataError(
            "the log has no positions, expected the rank at which each item was shown: give the "
            "scores of the logging policy as logging"
        )
    by_row = rank_values(case.options.metric, log.position)
    if log.impressions is None:
        return RankRewards(by_row * log.propensity / examination_probabilities(log), None)
    sessions = sessions_of_item(case.clusters, case.dataset)
    total = add_up(case.rows, log.impressions * by_row, case.dataset.n_items)
    by_item = ratio(total, sessions)
    return RankRewards(by_item[case.rows], by_item)


def logged_values(log: ClickLog, dataset: RankingDataset, metric: str) -> Floats:
    """Return λ of the logged ranking per row of the log, (n_rows,): see `logged_rewards`."""
    rng = np.random.default_rng(0)  # not used: there is no relevance model
    return logged_rewards(make_case(log, dataset, EstimateOptions(metric=metric), rng)).by_row


# -- The estimators -------------------------------------------------------------------------------


def _divide_sums(totals: Floats, _: Floats) -> Floats:
    quotient: Floats = totals[..., 1] / totals[..., 0]
    return quotient


class Sums(NamedTuple):
    """An estimate as a function of sums over clusters: by default the second by the first."""

    columns: Floats  # (n_clusters, k); the value is divided by the first
    n_empty: float  # sessions without a row
    per: str
    weights: Floats  # of one click per row, for the effective number of clicks
    # From sums, (..., k), and the means of controls, (..., p), to values, (...,).
    value: Callable[[Floats, Floats], Floats] = _divide_sums
    empty: Floats = np.array([1.0, 0.0])  # the sums of a session without a row, (k,)

    @property
    def totals(self) -> Floats:
        """The sums over all clusters, (k,)."""
        total: Floats = self.columns.sum(axis=0) + self.n_empty * self.empty
        return total


def _ips(case: Case, rewards: RankRewards) -> Sums:
    return _weighted(case, rewards, 1 / case.log.propensity)


def _clipped(case: Case, rewards: RankRewards) -> Sums:
    return _weighted(case, rewards, 1 / np.maximum(case.log.propensity, case.clip))


def _weighted(case: Case, rewards: RankRewards, weights: Floats) -> Sums:
    top = case.clusters.total(_unexplained(case.log) * weights * rewards.by_row)
    bottom, per = case.clusters.sizes(case.log)
    n_empty = 0 if per == "click" else case.clusters.n_empty
    return Sums(np.column_stack([bottom, top]), n_empty, per, weights)


def _snips(case: Case, rewards: RankRewards) -> Sums:
    sums = _ips(case, rewards)
    bottom = case.clusters.total(case.log.weights)
    columns = np.column_stack([bottom, sums.columns[:, 1]])
    return sums._replace(columns=columns, n_empty=0, per="relevant item")


def _beta_ips(case: Case, rewards: RankRewards) -> Sums:
    ips, controls = _ips(case, rewards), case.controls
    assert controls is not None  # noqa: S101 (make_case raises an error without)
    n, y = ips.columns.T
    moments = control_moments(n, controls.sums), outcome_moments(y, n, controls.sums)
    empty = np.zeros(sum(each.shape[1] for each in moments))
    empty[[0, controls.sums.shape[1] + 1]] = 1  # n, n²
    return ips._replace(columns=np.hstack(moments), value=_control_sums, empty=empty)


def _control_sums(totals: Floats, means: Floats) -> Floats:
    n = means.shape[-1] + 2
    return controlled_mean(totals[..., :-n], totals[..., -n:], means)


def _dr(case: Case, rewards: RankRewards) -> Sums:
    log, clusters, model = case.log, case.clusters, case.relevance
    assert clusters.visits is not None  # noqa: S101 (exposure rejects a log without impressions)
    assert log.impressions is not None  # noqa: S101
    assert rewards.by_item is not None  # noqa: S101
    cluster, query, n_sessions = clusters.visits
    sessions = sessions_of_item(clusters, case.dataset)
    seen, _ = exposure(log, case.dataset)
    below = np.maximum(seen, case.clip * sessions)[case.rows]
    # Per session, so that the sum over clusters is n_q · (C − E·r̂) / below.
    shares = ratio(sessions[case.rows], below)
    examined = log.impressions * examination_probabilities(log)
    corrections = (_unexplained(log) - examined * model[case.rows]) * shares
    top = clusters.total(rewards.by_row * corrections)
    by_query = np.add.reduceat(rewards.by_item * model, case.dataset.offsets[:-1])
    top += add_up(cluster, n_sessions * by_query[query], len(clusters))
    columns = np.column_stack([clusters.sessions, top])
    return Sums(columns, clusters.n_empty, "session", shares)


ESTIMATORS: dict[str, Callable[[Case, RankRewards], Sums]] = {
    "ips": _ips,
    "snips": _snips,
    "beta-ips": _beta_ips,
    "clipped": _clipped,
    "dr": _dr,
}


def _unexplained(log: ClickLog) -> Floats:
    """Return the clicks per row beyond those that are expected by chance."""
    return log.clicks if log.by_chance is None else log.clicks - log.by_chance


# -- Estimates with intervals ---------------------------------------------------------------------


def estimate_pairwise(
    case: Case,
    rewards: list[RankRewards],
    rng: np.random.Generator,
    draws: Floats | None = None,
) -> tuple[list[Estimate], Floats]:
    """Return the estimate of each ranking, and their values in the same draws, (n_draws, n)."""
    options = case.options
    sums = [ESTIMATORS[options.estimator](case, each) for each in rewards]
    if draws is None:
        columns, empty = np.hstack([s.columns for s in sums]), np.hstack([s.empty for s in sums])
        totals = resample(columns, empty, sums[0].n_empty, n_bootstrap=options.n_bootstrap, rng=rng)
        means = np.empty(0)
        if case.controls is not None:
            means = case.controls.resampled(options.n_bootstrap, rng)
        parts = np.split(totals, len(sums), axis=1)
        draws = np.stack([s.value(part, means) for s, part in zip(sums, parts, strict=True)], 1)
    return list(map(_summarize, repeat(case), sums, rewards, draws.T)), draws


def _summarize(case: Case, sums: Sums, rewards: RankRewards, draws: Floats) -> Estimate:
    options = case.options
    low, high = interval(draws, options.confidence)
    clicks = case.log.clicks
    events = clicks if case.log.events is None else case.log.events
    shares = sums.weights * rewards.by_row * ratio(clicks, events)  # of one click
    # Sums, not dot products: threads cost more than they save here.
    squares = float((events * shares**2).sum())
    effective = float((events * shares).sum()) ** 2 / squares if squares > 0 else 0.0
    unseen = _never_shown(case, rewards)
    return Estimate(
        value=float(sums.value(sums.totals, case.controls.means if case.controls else np.empty(0))),
        low=low,
        high=high,
        confidence=options.confidence,
        metric=options.metric,
        estimator=options.estimator,
        per=sums.per,
        resampled=case.clusters.name,
        n_sessions=case.clusters.n_sessions,
        n_clicks=float(events.sum()),
        effective_clicks=effective,
        never_shown=unseen,
        warnings=tuple(_list_warnings(case, effective, unseen)),
    )


def _never_shown(case: Case, rewards: RankRewards) -> float | None:
    """Return the share of the rewards from items never shown; None if that is not known.

    Items that were shown only where their examination probability is not known count as well.
    """
    if rewards.by_item is None or case.clusters.visits is None:
        return None
    seen, _ = exposure(case.log, case.dataset)
    total = rewards.by_item * sessions_of_item(case.clusters, case.dataset)
    return float(ratio(total[seen == 0].sum(), total.sum()))


def _list_warnings(case: Case, effective: float, unseen: float | None) -> list[str]:
    warnings = []
    if effective < MIN_EFFECTIVE_CLICKS:
        warnings.append(
            f"few effective clicks: the value depends on {effective:.0f} clicks of equal weight"
        )
    if len(case.clusters) < MIN_CLUSTERS:
        warnings.append(f"only {len(case.clusters)} {case.clusters.name}: the interval is rough")
    if case.controls is not None and case.controls.doubt is not None:
        warnings.append(case.controls.doubt)
    if unseen is not None and unseen > MAX_UNSEEN:
        consequence = (
            "their relevance comes from the model alone"
            if case.options.estimator == "dr"
            else "they count as irrelevant here, so the ranker may be better: see 'dr'"
        )
        examination = case.log.examination
        is_complete = examination is None or examination.all()
        where = "" if is_complete else ", or only where no propensity is known"
        warnings.append(
            f"{unseen:.0%} of its rewards are of items never shown{where}: {consequence}"
        )
    return warnings
