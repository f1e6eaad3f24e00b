"""Whether a share or a rate changed by more than is relevant, of clicks that come in clusters.

A rate is R = Σ_u a_u / Σ_u b_u over units u: groups of users or sessions, or of queries, whose
clicks may depend on each other in any way, but not on those of other units. To the first order

    R̂ − R = Σ_u ψ_u        ψ_u = (a_u − R̂·b_u) / Σ_v b_v

Both logs are cut into the same units, so that whoever is in both is there twice in one unit, and a
difference R̂' − c·R̂ has the variance n/(n − 1)·Σ_u (ψ'_u − c·ψ_u)². The hypothesis that is tested
is not that nothing changed, which is never quite so and which enough rows refute, but that the
change is at most the margin: 1/(1 + m) ≤ R'/R ≤ 1 + m, or |R' − R| ≤ m.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from countersample.options import CONFIDENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats

FEWEST_UNITS = 20  # with something in them, in each log

Measure = Literal["ratio", "difference"]


class Rate(NamedTuple):
    """A rate of one log: what is above and below the line, by unit."""

    above: Floats
    below: Floats

    @property
    def value(self) -> float:
        """R, NaN of nothing."""
        total = float(self.below.sum())
        return float(self.above.sum()) / total if total else float("nan")

    @property
    def influence(self) -> Floats:
        """ψ of each unit."""
        psi: Floats = (self.above - self.value * self.below) / self.below.sum()
        return psi

    @property
    def n_units(self) -> int:
        """Units that have something below the line."""
        return int((self.below > 0).sum())


@dataclass(frozen=True)
class Change:
    """Something that was compared, as `find_drift` found it.

    Attributes
    ----------
    kind : str
        ``"clicks"``, ``"pages"``, ``"examination"``, ``"policy"``, ``"context"``, ``"queries"`` or
        ``"feature"``.
    name : str
        Which of them: a position, the name of a policy, …
    before, after : float
        The rates, shares or propensities.
    measure : {"ratio", "difference"}
        Whether ``change`` is after/before − 1, or after − before.
    change, low, high : float
        With its 95 % interval; NaN where it cannot be told.
    margin : float
        A change of at most this much is not relevant.
    p_value : float, optional
        Of the hypothesis that it is at most that; None where there is too little to test.
    adjusted : float, optional
        The same, corrected by Holm's method for the number of tests.
    is_drift : bool
        Whether it is below the level.
    distance : float, optional
        Of a feature, its population stability index.
    """

    kind: str
    name: str
    before: float
    after: float
    measure: Measure
    change: float
    low: float
    high: float
    margin: float
    p_value: float | None
    adjusted: float | None = None
    is_drift: bool = False
    distance: float | None = None

    @property
    def size(self) -> str:
        """The change in words: +12.3 %, or −4.5 points."""
        if np.isinf(self.change):
            return "from nothing"
        if np.isnan(self.change):
            return "not known"
        unit = "%" if self.measure == "ratio" else "points"
        return f"{100 * self.change:+.1f} {unit}"

    @property
    def interval(self) -> str:
        """Its interval in words."""
        if not np.isfinite(self.low):
            return "–"
        return f"{100 * self.low:+.1f} to {100 * self.high:+.1f}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not known is None."""
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def compare(
    kind: str, name: str, before: Rate, after: Rate, *, measure: Measure, margin: float,
    least: float = 0.0,
) -> Change:  # fmt: skip
    """Compare a rate of two logs; `least` is what one has to have above the line for a test.

    Where the other has less, or nothing, it is asked how likely so little is: see `_vanished`.

    >>> units = np.ones(100)
    >>> found = compare("clicks", "1", Rate(0.2 * units, units), Rate(0.3 * units, units),
    ...                 measure="ratio", margin=0.1)
    >>> found.size, found.p_value
    ('+50.0 %', 0.0)
    """
    old, new = before.value, after.value
    nothing = float("nan")
    change, spread = new - old, nothing
    if measure == "ratio":
        change = new / old - 1 if old else float("inf") if new else nothing
    told = min(before.n_units, after.n_units) >= FEWEST_UNITS
    if told and measure == "ratio" and min(before.above.sum(), after.above.sum()) < least:
        lower, higher = (before, after) if old < new else (after, before)
        p_value = _vanished(lower, higher, margin, least)
        return Change(kind, name, old, new, measure, change, nothing, nothing, margin, p_value)
    if not told or not np.isfinite(change):
        return Change(kind, name, old, new, measure, change, nothing, nothing, margin, None)
    n = len(before.below)
    old_psi, new_psi = before.influence, after.influence

    def error(psi: Floats) -> float:
        return float(np.sqrt(n / (n - 1) * np.sum(psi**2)))

    df = min(before.n_units, after.n_units) - 1
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, df))
    if measure == "ratio":
        bounds = [(1 + margin, 1), (1 / (1 + margin), -1)]
        tails = [
            _tail(sign * (new - c * old), error(new_psi - c * old_psi), df) for c, sign in bounds
        ]
        spread = error(new_psi / new - old_psi / old) if new else nothing
        low, high = ((1 + change) * np.exp(sign * reach * spread) - 1 for sign in (-1, 1))
    else:
        spread = error(new_psi - old_psi)
        tails = [_tail(sign * change - margin, spread, df) for sign in (-1, 1)]
        low, high = change - reach * spread, change + reach * spread
    return Change(kind, name, old, new, measure, change, float(low), float(high), margin,
                  _of_both(tails))  # fmt: skip


def compare_logarithms(
    kind: str, name: str, before: float, after: float, error: float, *, margin: float
) -> Change:
    """Compare two positive estimates; `error` is the standard error of log(after/before)."""
    ratio = float(np.log(after / before))
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    most = float(np.log1p(margin))
    tails = [_tail(sign * ratio - most, error, np.inf) for sign in (-1, 1)]
    low, high = (float(np.expm1(ratio + sign * reach * error)) for sign in (-1, 1))
    change = float(np.expm1(ratio))
    return Change(kind, name, before, after, "ratio", change, low, high, margin, _of_both(tails))


def _vanished(lower: Rate, higher: Rate, margin: float, least: float) -> float | None:
    """Return how likely a rate is as low as the lower one, if it is not below R/(1 + m).

    R is the higher one. Of n below the line, c·R·n are then expected above it, c = 1/(1 + m), with
    the variance of a Poisson number times the dispersion that the higher one shows; None where
    fewer than `least` are.

    >>> shown = np.full(100, 20.0)
    >>> _vanished(Rate(0 * shown, shown), Rate(0.1 * shown, shown), 0.1, 50.0) < 1e-9
    True
    """
    c, rate, n_lower = 1 / (1 + margin), higher.value, float(lower.below.sum())
    if c * rate * n_lower < least:
        return None
    n = len(higher.below)
    variance = n / (n - 1) * float(np.sum(higher.influence**2))
    dispersion = max(1.0, variance / (rate / float(higher.below.sum())))
    error = float(np.sqrt(dispersion * c * rate / n_lower + c * c * variance))
    df = min(lower.n_units, higher.n_units) - 1
    return min(1.0, 2 * _tail(c * rate - lower.value, error, df))


def _tail(excess: float, error: float, df: float) -> float:
    """Return P(T ≥ excess/error) of Student's t."""
    if not error:
        return 0.0 if excess > 0 else 1.0
    return float(stats.t.sf(excess / error, df))


def _of_both(tails: list[float]) -> float:
    """Return the p-value of a change in either direction, from those of each."""
    return min(1.0, 2 * min(tails))


def holm(p_values: Sequence[float]) -> Floats:
    """Return p-values corrected by Holm's method: P(any false alarm) ≤ level, however they depend.

    max over the smaller ones j ≤ i, in order, of (n − j + 1)·p_j

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(scaled, 1.0)
    return adjusted
