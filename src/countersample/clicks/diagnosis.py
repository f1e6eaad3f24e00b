"""Diagnose a click log: how its weights will affect training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import _text
from countersample._frames import Tabular, statistics

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample.clicks.log import ClickLog


@dataclass(frozen=True)
class Diagnosis(Tabular):
    """Statistics of a click log, returned by `diagnose`."""

    n_clicks: float
    n_rows: int
    n_queries: int  # with a click
    n_pairs: int  # distinct query-item pairs
    max_weight: float  # M = max 1/p
    mean_weight: float  # M̄, the mean over clicks
    effective_clicks: float  # (Σv)²/Σv²: clicks of equal weight with the same variance
    predicted_gain: float  # (M/M̄)²: the ratio of the steps required by Theorems 1 and 3
    top_share: float  # of all weight, in the 1 % of clicks with the largest weights
    histogram: tuple[tuple[float, float, float], ...]  # from, to, clicks: bins double in width
    verdict: str  # the recommendation, in words

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the names and values of the statistics."""
        return statistics(asdict(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as plain values for JSON."""
        return asdict(self)

    def summary(self) -> str:
        """Return the statistics and what to do, for a terminal."""
        effective = f"{self.effective_clicks:,.0f} of equal weight would vary as much"
        steps = f"(M/M̄)² = {self.predicted_gain:,.0f} times fewer steps than ips, by the bounds"
        rows = [
            ("clicks", f"{self.n_clicks:,.0f}"),
            ("queries", f"{self.n_queries:,}"),
            ("query-item pairs", f"{self.n_pairs:,}"),
            ("largest weight M", f"{self.max_weight:,.2f}"),
            ("mean weight M̄", f"{self.mean_weight:,.2f}"),
            ("M / M̄", f"{self.max_weight / self.mean_weight:,.1f}"),
            ("effective clicks", effective),
            ("predicted gain", steps),
            ("top 1 % of clicks", f"have {100 * self.top_share:.1f} % of the weight"),
        ]
        bins = ((f"{low:,.0f} … {high:,.0f}", round(count)) for low, high, count in self.histogram)
        blocks = [_text.pairs(rows), "  clicks by weight", _text.bars(bins)]
        return "\n".join([*blocks, _text.paragraph(self.verdict)])


def diagnose(log: ClickLog) -> Diagnosis:
    """Return statistics of the weights of a log, with a recommendation.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.clicks import diagnose
    >>> log = ClickLog(query=[0, 0, 1, 1], item=[0, 1, 0, 3], propensity=[1, 0.5, 1, 0.25])
    >>> diagnosis = diagnose(log)
    >>> diagnosis.max_weight, diagnosis.mean_weight, diagnosis.predicted_gain  # (4/2)² = 4
    (4.0, 2.0, 4.0)
    >>> round(diagnosis.effective_clicks, 3)  # 8²/(1 + 4 + 1 + 16)
    2.909
    """
    weight = 1 / log.propensity  # of one click
    clicks = log.clicks
    largest, mean = log.max_weight, log.mean_weight
    ratio = largest / mean
    pairs = (log.query.astype(np.int64) << 32) | log.item
    # Clicks among the heaviest 1 %, row by row.
    order = np.argsort(-weight, kind="stable")
    top = np.diff(np.minimum(np.cumsum(clicks[order]), 0.01 * clicks.sum()), prepend=0.0)
    edges = 2.0 ** np.arange(int(np.floor(np.log2(weight.max()))) + 2)
    bins = np.histogram(weight, edges, weights=clicks)[0]
    return Diagnosis(
        n_clicks=log.n_clicks,
        n_rows=len(log),
        n_queries=len(np.unique(log.query)),
        n_pairs=len(np.unique(pairs)),
        max_weight=largest,
        mean_weight=mean,
        effective_clicks=float((clicks @ weight) ** 2 / (clicks @ weight**2)),
        predicted_gain=ratio**2,
        top_share=float(top @ weight[order] / (clicks @ weight)),
        histogram=tuple(zip(edges.tolist(), edges[1:].tolist(), bins.tolist(), strict=False)),
        verdict=_verdict(ratio),
    )


def _verdict(ratio: float) -> str:
    if ratio < 1.5:
        return (
            "The weights hardly differ: this log has little position bias, and all unbiased "
            "methods will perform alike."
        )
    if ratio < 5:
        return (
            f"The largest weight is {ratio:.1f} times the mean: weighted gradients (ips) will be "
            "slower; draw by weight (countersample)."
        )
    return (
        f"The largest weight is {ratio:.0f} times the mean: weighted gradients (ips) need a "
        "tiny learning rate, so they are slow; draw by weight (countersample), best by query."
    )
