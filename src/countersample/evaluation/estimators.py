"""The estimators: each gives its estimate as a function of sums over what is resampled.

Formulas are at the top of `countersample.evaluation.counterfactual`. A new estimator is a function
of a `Case` and the `RankRewards` of a ranking, and a line in `ESTIMATORS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample._params import choice, number
from countersample._ranked import ratio
from countersample.errors import DataError, ParameterError
from countersample.evaluation.control_variates import (
    Controls,
    control_moments,
    controlled_mean,
    outcome_moments,
)
from countersample.evaluation.doubly_robust import (
    check_relevance,
    exposure,
    relevance_model,
    sessions_of_item,
    theta_of,
)
from countersample.evaluation.ranking import item_ranks, parse_additive, rank_values
from countersample.evaluation.resampling import Clusters, add_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.data.scoring import Ranker


class RankRewards(NamedTuple):
    """The rewards of a ranking: λ of each row of the log and, for a new ranker, of each item.

    The ranking that was logged has no λ by item where it differed between sessions.
    """

    by_row: Floats
    by_item: Floats | None


@dataclass(frozen=True, eq=False)
class Case:
    """What all estimates start from, whatever the ranker."""

    log: ClickLog
    dataset: RankingDataset
    metric: str
    estimator: str
    rows: Ints  # the item of the dataset that each row of the log is of
    clusters: Clusters
    clip: float  # τ
    relevance: Floats  # r̂ of each item for `dr`; else empty
    controls: Controls | None = None  # of `beta-ips`


def _ratio(totals: Floats, _: Floats) -> Floats:
    quotient: Floats = totals[..., 1] / totals[..., 0]
    return quotient


class Sums(NamedTuple):
    """An estimate as a function of sums over clusters: by default the second by the first."""

    columns: Floats  # (n_clusters, k); the first is what the value is divided by
    n_empty: float  # sessions without a row
    per: str
    weights: Floats  # of one click of each row, for the effective number of clicks
    # From sums, (..., k), and the means of controls, (..., p), to values, (...,).
    value: Callable[[Floats, Floats], Floats] = _ratio
    empty: Floats = np.array([1.0, 0.0])  # what a session without a row adds, (k,)

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
    assert controls is not None  # noqa: S101 (make_case refuses to go without)
    n, y = ips.columns.T
    moments = control_moments(n, controls.own), outcome_moments(y, n, controls.own)
    empty = np.zeros(sum(each.shape[1] for each in moments))
    empty[[0, controls.own.shape[1] + 1]] = 1  # n, n²
    return ips._replace(columns=np.hstack(moments), value=_controlled, empty=empty)


def _controlled(totals: Floats, means: Floats) -> Floats:
    n = means.shape[-1] + 2
    return controlled_mean(totals[..., :-n], totals[..., -n:], means)


def _dr(case: Case, rewards: RankRewards) -> Sums:
    log, clusters, model = case.log, case.clusters, case.relevance
    assert clusters.visits is not None  # noqa: S101 (exposure refused a log without impressions)
    assert log.impressions is not None  # noqa: S101
    assert rewards.by_item is not None  # noqa: S101
    cluster, query, n_sessions = clusters.visits
    sessions = sessions_of_item(clusters, case.dataset)
    seen, _ = exposure(log, case.dataset)
    below = np.maximum(seen, case.clip * sessions)[case.rows]
    # Of a session: so that clusters add up to n_q · (C − E·r̂) / below.
    shares = ratio(sessions[case.rows], below)
    examined = log.impressions * theta_of(log)
    corrections = (_unexplained(log) - examined * model[case.rows]) * shares
    top = clusters.total(rewards.by_row * corrections)
    by_query = np.add.reduceat(rewards.by_item * model, case.dataset.offsets[:-1])
    top += add_up(cluster, n_sessions * by_query[query], len(clusters))
    columns = np.column_stack([clusters.sessions, top])
    return Sums(columns, clusters.n_empty, "session", shares)


def _unexplained(log: ClickLog) -> Floats:
    """Return the clicks of each row that are not expected by chance."""
    return log.clicks if log.by_chance is None else log.clicks - log.by_chance


def never_shown(case: Case, rewards: RankRewards) -> float | None:
    """Return the share of the rewards of items never shown; None where that is not told.

    Nor are those of items that were shown only where it is not known how likely they are examined.
    """
    if rewards.by_item is None or case.clusters.visits is None:
        return None
    seen, _ = exposure(case.log, case.dataset)
    total = rewards.by_item * sessions_of_item(case.clusters, case.dataset)
    return float(ratio(total[seen == 0].sum(), total.sum()))


ESTIMATORS: dict[str, Callable[[Case, RankRewards], Sums]] = {
    "ips": _ips,
    "snips": _snips,
    "beta-ips": _beta_ips,
    "clipped": _clipped,
    "dr": _dr,
}


def rewards_of(ranker_or_scores: ArrayLike | Ranker, case: Case) -> RankRewards:
    """Return the rewards of the ranks that a ranker gives."""
    by_item = rank_values(case.metric, item_ranks(ranker_or_scores, case.dataset))
    return RankRewards(by_item[case.rows], by_item)


def logged_rewards(case: Case) -> RankRewards:
    """Return the rewards of the logged rankings: by item, the mean of λ over its query's sessions.

    Without impressions that is not known, and each click counts λ/θ of its own position, whatever
    its propensity ρ: so by row it is λ·ρ/θ.
    """
    log = case.log
    if log.position is None:
        raise DataError(
            "the log has no positions, expected the rank at which each item was shown: give the "
            "scores of what ranked it as logging"
        )
    by_row = rank_values(case.metric, log.position)
    if log.impressions is None:
        return RankRewards(by_row * log.propensity / theta_of(log), None)
    sessions = sessions_of_item(case.clusters, case.dataset)
    added = add_up(case.rows, log.impressions * by_row, case.dataset.n_items)
    by_item = ratio(added, sessions)
    return RankRewards(by_item[case.rows], by_item)


def logged_values(log: ClickLog, dataset: RankingDataset, metric: str) -> Floats:
    """Return λ of the logged rankings for each row of the log, (n_rows,): see `logged_rewards`."""
    rng = np.random.default_rng(0)  # draws nothing: no relevance model
    return logged_rewards(make_case(log, dataset, metric, "ips", None, None, rng)).by_row


def make_case(
    log: ClickLog,
    dataset: RankingDataset,
    metric: str,
    estimator: str,
    clip: float | None,
    baseline: ArrayLike | None,
    rng: np.random.Generator,
    control: float | ClickLog | None = None,
) -> Case:
    """Check what does not depend on a ranker, and bring it together."""
    log.check(dataset)
    parse_additive(metric)
    choice("estimator", estimator, ESTIMATORS)
    if clip is not None and estimator not in {"clipped", "dr"}:
        raise ParameterError(f"estimator {estimator!r} takes no clip, expected 'clipped' or 'dr'")
    if clip is not None:
        number("clip", clip, above=0, most=1)
    if baseline is not None and estimator != "dr":
        raise ParameterError(f"estimator {estimator!r} takes no baseline, expected 'dr'")
    if control is not None and estimator != "beta-ips":
        raise ParameterError(f"estimator {estimator!r} takes no control, expected 'beta-ips'")
    relevance = np.empty(0)
    if estimator == "dr":
        exposure(log, dataset)  # refuses a log without impressions
        relevance = (
            relevance_model(log, dataset, rng=rng)
            if baseline is None
            else check_relevance("baseline", baseline, dataset)
        )
    clusters = Clusters.of(log)
    if clip is None:
        clip = min(1.0, 10 / sqrt(clusters.n_sessions or log.n_clicks))
        clip = 0.0 if estimator == "dr" else clip
    rows = dataset.offsets[log.query] + log.item
    controls = Controls.of(log, clusters, control) if estimator == "beta-ips" else None
    return Case(log, dataset, metric, estimator, rows, clusters, clip, relevance, controls)
