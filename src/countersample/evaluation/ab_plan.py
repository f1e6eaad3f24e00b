"""The plan of an A/B test: how many sessions it needs to confirm an estimated gain.

An A/B test counts the clicks of its sessions. The clicks on a new ranking are estimated from logged
clicks by the position-based model: an item of relevance r at rank k is clicked with probability
θ_k·r, and a click on an item with propensity ρ counts 1/ρ, so that with S sessions

    clicks per session, new       (1/S) Σ_clicks θ(new rank) / ρ
    clicks per session, logged    (1/S) Σ_clicks 1

Let Y be the clicks of one session. If clicks on different items of a query are independent,

    E Y² = E Y + (1/S) Σ_q S_q Σ_{i ≠ j} x_i·x_j      with x_i the clicks of q on i per session

and the sessions that each of two arms needs, for a two-sided test at level α to detect the
difference with a given power, are

    n = (z_{1−α/2} + z_power)² · (Var Y_new + Var Y_logged) / (E Y_new − E Y_logged)²
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import number
from countersample.defaults import CONFIDENCE
from countersample.errors import DataError
from countersample.evaluation.bootstrap import Clusters, add_up, interval, resample
from countersample.evaluation.doubly_robust import examination_probabilities
from countersample.metrics import item_ranks, ratio

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.data.dataset import Ranker

LEVEL = round(1 - CONFIDENCE, 10)  # of the two-sided test
MIN_FIRST_POSITIONS = 0.99  # share of sessions with a first position in a complete log


@dataclass(frozen=True)
class ABPlan:
    """The sessions that an A/B test of clicks needs."""

    logged: float  # clicks per session on the logged ranking
    new: float  # clicks per session that are expected on the new one
    logged_variance: float  # of the clicks per session
    new_variance: float
    low: float  # the interval of the difference, new − logged
    high: float
    confidence: float  # of this interval
    power: float  # the probability that the test detects the difference
    level: float  # the probability that it reports a difference although there is none
    sessions: int | None  # per arm, to detect the expected difference; None if it is not above 0
    sessions_at_low: int | None  # the same for the lower end of the interval

    @property
    def relative(self) -> float:
        """The difference as a share of the logged clicks."""
        return self.new / self.logged - 1

    @property
    def sentence(self) -> str:
        """The plan in words."""
        text = (
            f"An A/B test counts the clicks per session: {self.logged:.4g} on the logged ranking, "
            f"and {self.new:.4g} are expected on the new one ({self.relative:+.1%}, "
            f"{self.confidence:.0%} interval {self.low / self.logged:+.1%} to "
            f"{self.high / self.logged:+.1%})."
        )
        if self.sessions is None:
            return f"{text} No test would show more clicks."
        text += (
            f" {self.sessions:,} sessions per arm detect this difference with a probability of "
            f"{self.power:.0%} (two-sided, at the level {self.level:.0%})."
        )
        if self.sessions_at_low is None:
            return f"{text} At the lower end of the interval there is no difference to detect."
        return f"{text} The lower end of the interval needs {self.sessions_at_low:,}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"relative": self.relative, "sentence": self.sentence}


def plan_ab_test(
    ranker_or_scores: ArrayLike | Ranker,
    log: ClickLog,
    dataset: RankingDataset,
    *,
    power: float = 0.8,
    confidence: float = CONFIDENCE,
    n_bootstrap: int = 1000,
    rng: np.random.Generator | int | None = None,
) -> ABPlan:
    """Return the number of sessions that an A/B test of clicks needs to confirm a ranker's gain.

    The formulas are at the top of `countersample.evaluation.ab_plan`. Both arms show as many items
    as the log did, and items that it never showed count as never clicked. If the log has the
    session of each click, both variances are scaled so that the logged one is that of its sessions.
    Sessions count as independent: users who return often need more of them.

    Parameters
    ----------
    ranker_or_scores : Ranker or array-like (n_items,)
        A ranker that was not trained on these clicks, or its scores.
    log : ClickLog
        With impressions and positions.
    dataset : RankingDataset
    power : float in (0, 1)
    confidence, n_bootstrap, rng
        Of the interval of the difference, a bootstrap over sessions, or else queries.

    Examples
    --------
    The second item is twice as relevant, and is moved to the top, where twice as many users look:
    0.2·1 + 0.4/2 = 0.4 clicks per session become 0.4·1 + 0.2/2 = 0.5.

    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.evaluation import plan_ab_test
    >>> data = RankingDataset.from_arrays(X=[[0.0], [1.0]], y=[0, 0], qid=["a", "a"])
    >>> log = ClickLog(
    ...     query=[0, 0], item=[0, 1], propensity=[1.0, 0.5], count=[200, 200], position=[1, 2],
    ...     impressions=[1000, 1000],
    ... )
    >>> plan = plan_ab_test(data.features[:, 0], log, data, rng=0)
    >>> plan.logged, plan.new, plan.sessions  # (1.96 + 0.84)²·(0.32 + 0.33)/0.1²
    (0.4, 0.5, 511)
    """
    number("power", power, above=0, below=1)
    number("confidence", confidence, above=0, below=1)
    if log.impressions is None or log.position is None:
        raise DataError(
            "the log has no impressions or no positions, expected a row for every item that was "
            "shown: clicks per session cannot be computed without them"
        )
    clusters = Clusters.of(log)
    assert clusters.visits is not None  # noqa: S101 (it has impressions)
    n = float(clusters.n_sessions or 0)
    sessions = add_up(clusters.visits[1], clusters.visits[2], dataset.n_queries)
    clicks = log.clicks if log.events is None else log.events
    expected = _expected_clicks(ranker_or_scores, log, dataset, clicks, sessions)
    logged, new = float(clicks.sum() / n), float(expected.sum() / n)
    old_variance = _variance(clicks, log, dataset, sessions, n)
    new_variance = _variance(expected, log, dataset, sessions, n)
    if clusters.name == "sessions":
        by_session = clusters.total(clicks)
        variance = float(by_session @ by_session / n - logged**2)
        old_variance, new_variance = variance, new_variance * variance / old_variance
    sums = np.stack([clusters.sessions, clusters.total(expected), clusters.total(clicks)], axis=1)
    empty, rng = np.array([1.0, 0.0, 0.0]), np.random.default_rng(rng)
    draws = resample(sums, empty, clusters.n_empty, n_bootstrap=n_bootstrap, rng=rng)
    low, high = interval((draws[:, 1] - draws[:, 2]) / draws[:, 0], confidence)
    variances = old_variance + new_variance
    return ABPlan(
        logged=logged,
        new=new,
        logged_variance=old_variance,
        new_variance=new_variance,
        low=low,
        high=high,
        confidence=confidence,
        power=power,
        level=LEVEL,
        sessions=_sessions_needed(new - logged, variances, power),
        sessions_at_low=_sessions_needed(low, variances, power),
    )


def _sessions_needed(difference: float, variance: float, power: float) -> int | None:
    if difference <= 0:
        return None
    from scipy.special import ndtri  # noqa: PLC0415 (heavy, only where used)

    z = float(ndtri(1 - LEVEL / 2) + ndtri(power))
    return ceil(z**2 * variance / difference**2)


def _expected_clicks(
    ranker_or_scores: ArrayLike | Ranker,
    log: ClickLog,
    dataset: RankingDataset,
    clicks: Floats,
    sessions: Floats,
) -> Floats:
    """Return the clicks per row of the log that are expected on the new ranking, (n_rows,).

    (C − c₀)·θ(new rank)/ρ + c₀, with c₀ the clicks by chance, which do not depend on the ranking.
    """
    by_chance = np.zeros(log.n_rows)
    if log.by_chance is not None:
        by_chance = log.by_chance * clicks.sum() / log.n_clicks  # from worth to clicks
    theta = _examination_by_rank(log, dataset, sessions)
    rank = item_ranks(ranker_or_scores, dataset)[dataset.offsets[log.query] + log.item]
    at_rank = np.where(rank < len(theta), theta[np.minimum(rank, len(theta) - 1)], 0.0)
    expected: Floats = (clicks - by_chance) * at_rank / log.propensity + by_chance
    return expected


def _examination_by_rank(log: ClickLog, dataset: RankingDataset, sessions: Floats) -> Floats:
    """Return the probability that an item at rank 0, 1, … is shown and examined.

    The mean of θ at a position, times the share of the sessions whose page is so long, among those
    with so many items. That share is not known for a log without its unclicked items.
    """
    assert log.impressions is not None  # noqa: S101 (the caller checks it)
    assert log.position is not None  # noqa: S101
    position = log.position.astype(np.int64)
    n = int(position.max()) + 1
    above, below = log.impressions * examination_probabilities(log), log.impressions
    if log.examination is None:  # the propensities of clicks are known only
        above, below = log.clicks, log.clicks / log.propensity
    shown = add_up(position, log.impressions, n)
    theta = ratio(add_up(position, above, n), add_up(position, below, n))
    possible = np.array([sessions[dataset.query_sizes >= rank].sum() for rank in range(n)])
    if shown[1] < MIN_FIRST_POSITIONS * possible[1]:
        return theta
    theta *= np.minimum(1.0, shown / np.maximum(possible, 1.0))
    return theta


def _variance(
    by_row: Floats, log: ClickLog, dataset: RankingDataset, sessions: Floats, n: float
) -> float:
    """Return the variance of the clicks per session, from the clicks per row of the log."""
    items = add_up(dataset.offsets[log.query] + log.item, by_row, dataset.n_items)
    starts = dataset.offsets[:-1]
    all_items, squares = np.add.reduceat(items, starts), np.add.reduceat(items**2, starts)
    both = (all_items**2 - squares) / np.maximum(sessions, 1.0)
    mean = float(items.sum() / n)
    # With few clicks the estimate may be off; with at most one click per session it is smallest.
    return max(mean + float(both.sum() / n) - mean**2, mean * (1 - mean), 1e-12)
