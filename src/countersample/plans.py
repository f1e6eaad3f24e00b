"""Plans: how examples are sampled and weighted. All training goes through this one formula.

A plan is an importance-sampling scheme.

A log of N clicks gives *examples* i = 1..n, each with a weight v_i (a sum of 1/propensity) and a
number of clicks c_i. The objective is R(w) = (1/N) Σ v_i f_i(w). A plan draws example i with
probability π_i and multiplies its gradient by m_i; it is unbiased exactly when π_i·m_i = v_i/N.

===============  =============  ============  =========================
plan             π_i            m_i           max m_i, by click
===============  =============  ============  =========================
`naive`          c_i/N          1             1, but biased
`ips`            1/n            v_i·n/N       M, the largest weight
`countersample`  v_i/Σv         M̄ = Σv/N      M̄, the mean weight
`snips`          1/n            v_i·n/Σv      M/M̄, of the goal R/M̄
`bounded`        ∝ v_i·L_i      v_i/(N·π_i)   (L_i bounds the gradient)
`proposal`       given          v_i/(N·π_i)
===============  =============  ============  =========================

Convergence is slowed by max m_i (Theorems 1 and 3 of the paper are this one statement).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING

import numpy as np

from countersample._params import choice, whole_number
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog

__all__ = [
    "PLANS",
    "UNITS",
    "AliasTable",
    "Examples",
    "Plan",
    "bounded",
    "countersample",
    "ips",
    "make_plan",
    "naive",
    "proposal",
    "snips",
]


class AliasTable:
    """Draws i with probability weights[i] / Σ weights: O(n) to build, O(1) per draw.

    Parameters
    ----------
    weights : array-like (n,)
        Not negative, finite, at least one above 0. A weight of 0 is never drawn.

    Raises
    ------
    DataError
        For any other weights; the message has the index of the first wrong one.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import AliasTable
    >>> table = AliasTable([1.0, 0.0, 3.0])
    >>> table.probabilities
    array([0.25, 0.  , 0.75])
    >>> np.bincount(table.sample(1000, np.random.default_rng(0)))
    array([226,   0, 774])
    """

    def __init__(self, weights: ArrayLike) -> None:
        from countersample._kernels.sampling import build  # noqa: PLC0415 (imports numba)

        array = as_weights(weights, "weights")
        # Divide by the largest first: then neither a sum of huge weights nor n / (a tiny sum)
        # overflows.
        self._threshold: Floats = array / array.max()
        self._threshold *= len(array) / self._threshold.sum()
        self._alias = np.empty(len(array), np.int64)
        build(self._threshold, self._alias)

    def __len__(self) -> int:
        return len(self._threshold)

    @property
    def probabilities(self) -> Floats:
        """The probability of each i in the table, float64 (n,)."""
        from countersample._kernels.sampling import probabilities  # noqa: PLC0415 (imports numba)

        result = np.empty(len(self))
        probabilities(self._threshold, self._alias, result)
        return result

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `size` independent values, int64 (size,)."""
        from countersample._kernels.sampling import draw  # noqa: PLC0415 (imports numba)

        draws = _draw_uniformly(len(self), size, rng)
        draw(self._threshold, self._alias, draws, rng.random(size))
        return draws


def _draw_uniformly(n: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, n, whole_number("size", size, least=0))


def as_weights(values: ArrayLike, name: str, n: int | None = None) -> Floats:
    """Return sampling weights as float64, checked; `name` is their name in an error."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a vector of numbers ({error})") from error
    if array.ndim != 1 or not array.size:
        raise DataError(f"{name} have shape {array.shape}, expected a vector that is not empty")
    if n is not None and len(array) != n:
        raise DataError(f"{name} have length {len(array)}, expected {n}: one for each example")
    if not (array.min() >= 0 and array.max() < np.inf):  # neither holds if one is NaN
        bad = int(np.argmin((array >= 0) & (array < np.inf)))
        raise DataError(f"{name}[{bad}] is {array[bad]}, expected a finite number of at least 0")
    if not array.any():
        raise DataError(f"{name} are all 0 (0 to {len(array) - 1}), expected at least one above 0")
    return array


@dataclass(frozen=True, eq=False)
class Examples:
    """The units of sampling: each example is a query and clicks on its items."""

    query: NDArray[np.int32]
    """The query of each example, (n,)."""
    item: NDArray[np.int32]
    """The clicked items of all examples, (n_clicked,)."""
    weight: Floats
    """The importance weight v of each clicked item, (n_clicked,).

    Above 0, or below it if the item has fewer clicks than are expected by chance.
    """
    clicks: Floats
    """The clicks c on each clicked item, (n_clicked,)."""
    first: NDArray[np.int64] | None = None
    """The first clicked item of each example, (n,); by default each has one."""

    def __len__(self) -> int:
        return len(self.query)

    @property
    def n_clicks(self) -> float:
        """N, the number of clicks."""
        return float(self.clicks.sum())

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Offsets of clicked items, (n + 1,): ``starts[i]:starts[i + 1]`` are of example i."""
        if self.first is None:
            return np.arange(len(self) + 1, dtype=np.int64)
        return np.append(self.first, len(self.item))

    @cached_property
    def weights(self) -> Floats:
        """v_i, the weight of each example, (n,): the sum over its items, without sign."""
        has_signs = self.weight.min() < 0
        return self._add_up(np.abs(self.weight) if has_signs else self.weight)

    @cached_property
    def counts(self) -> Floats:
        """c_i, the clicks of each example, (n,)."""
        return self._add_up(self.clicks)

    @property
    def weight_shares(self) -> Floats:
        """The share of each clicked item in the weight of its example, signed, (n_clicked,)."""
        if self.weights is self.weight:  # one item each, none of them below 0
            return _repeat(1.0, len(self))
        return self.weight / self.spread(self.weights)

    def spread(self, values: Floats) -> Floats:
        """Return the value of each clicked item's example, (n,) → (n_clicked,)."""
        return values if self.first is None else np.repeat(values, np.diff(self.starts))

    def _add_up(self, values: Floats) -> Floats:
        return values if self.first is None else np.add.reduceat(values, self.first)

    @classmethod
    def of(cls, log: ClickLog, unit: str) -> Examples:
        """Return the examples of a log.

        Parameters
        ----------
        log : ClickLog
        unit : {"click", "pair", "query"}
            One example per row of the log (a click, as in the paper, unless the log has counts);
            per item of a query, with its clicks merged; or per query, with all its clicks merged.
            The objective is the same.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> from countersample.plans import Examples
        >>> log = ClickLog(query=[0, 0, 0, 1], item=[2, 2, 0, 1], propensity=[0.5, 0.5, 1, 0.25])
        >>> for unit in ("click", "pair", "query"):
        ...     print(unit, Examples.of(log, unit).weights)
        click [2. 2. 1. 4.]
        pair [1. 4. 4.]
        query [5. 4.]
        """
        return UNITS[choice("unit", unit, UNITS)](log)


def _by_click(log: ClickLog) -> Examples:
    weights, n = log.weights, log.n_rows
    if log.count is None:  # the rows of the log, without a copy
        return Examples(log.query, log.item, weights, _repeat(1.0, n))
    rows = np.flatnonzero(weights)
    return Examples(log.query[rows], log.item[rows], weights[rows], log.count[rows])


def _by_query(log: ClickLog) -> Examples:
    pairs = log.merge().weighted()  # sorted by query
    query, first = np.unique(pairs.query, return_index=True)
    return Examples(query, pairs.item, pairs.weights, pairs.clicks, first.astype(np.int64))


def _repeat(value: float, n: int) -> Floats:
    """Return n times the same value as a read-only array that is in memory once."""
    return np.broadcast_to(np.float64(value), n)


UNITS: dict[str, Callable[[ClickLog], Examples]] = {
    "click": _by_click,
    "pair": lambda log: _by_click(log.merge()),
    "query": _by_query,
}


@dataclass(frozen=True, eq=False)
class Plan:
    """Sampling probabilities π and gradient multipliers m of examples.

    The gradient of an example with several clicked items j is Σ_j share_j ∇f_j; the absolute shares
    of an example sum to 1. Arrays are read-only.
    """

    name: str
    unnormalized: Floats
    """π up to a factor, (n,)."""
    multipliers: Floats
    """m, (n,)."""
    shares: Floats
    """The share of each clicked item in its example, (n_clicked,)."""

    @cached_property
    def probabilities(self) -> Floats:
        """π, float64 (n,)."""
        probabilities: Floats = self.unnormalized / self.unnormalized.sum()
        return probabilities

    @property
    def max_multiplier(self) -> float:
        """The largest m_i of an example that can be drawn, which slows convergence."""
        return float(self.multipliers[self.probabilities > 0].max())

    def is_unbiased(self, examples: Examples) -> bool:
        """Whether π_i·m_i = v_i/N for every example, also one whose gradient is always 0."""
        target = examples.weights / examples.n_clicks
        return bool(np.allclose(self.probabilities * self.multipliers, target, rtol=1e-9, atol=0))

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `size` examples, int64 (size,)."""
        if self._table is None:
            return _draw_uniformly(len(self.probabilities), size, rng)
        return self._table.sample(size, rng)

    @cached_property
    def _table(self) -> AliasTable | None:
        is_uniform = self.probabilities.min() == self.probabilities.max()
        return None if is_uniform else AliasTable(self.probabilities)


def naive(examples: Examples) -> Plan:
    """π = c/N, m = 1: every click counts the same. Biased if propensities differ.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.plans import Examples, naive
    >>> log = ClickLog(query=[0, 1, 1], item=[0, 1, 1], propensity=[1.0, 0.25, 0.25])
    >>> plan = naive(Examples.of(log, "pair"))
    >>> plan.probabilities.round(3), plan.multipliers
    (array([0.333, 0.667]), array([1., 1.]))
    """
    counts = examples.spread(examples.counts)
    shares = np.divide(examples.clicks, counts, out=np.zeros(len(counts)), where=counts > 0)
    return Plan("naive", examples.counts, _repeat(1.0, len(examples)), shares)


def ips(examples: Examples) -> Plan:
    """π = 1/n, m = v·n/N: gradients weighted by inverse propensity (Algorithm 1).

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.plans import Examples, ips
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> plan = ips(Examples.of(log, "click"))
    >>> plan.probabilities, plan.multipliers
    (array([0.5, 0.5]), array([1., 4.]))
    """
    n = len(examples)
    multipliers = examples.weights * (n / examples.n_clicks)
    return Plan("ips", _repeat(1.0, n), multipliers, examples.weight_shares)


def countersample(examples: Examples) -> Plan:
    """π = v/Σv, m = M̄ = Σv/N: examples drawn by inverse propensity (Algorithm 2).

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.plans import Examples, countersample
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> plan = countersample(Examples.of(log, "click"))
    >>> plan.probabilities, plan.multipliers
    (array([0.2, 0.8]), array([2.5, 2.5]))
    """
    weights = examples.weights
    multipliers = _repeat(weights.sum() / examples.n_clicks, len(examples))
    return Plan("countersample", weights, multipliers, examples.weight_shares)


def snips(examples: Examples) -> Plan:
    """π = 1/n, m = v·n/Σv: as `ips`, of the self-normalised risk Σ v f / Σ v.

    That is R/M̄, and M̄ is a constant: the weights do not depend on the ranker. So it has the same
    minimiser, and its steps with a learning rate η are the steps of `ips` with η/M̄. Its advantage:
    a good learning rate does not depend on the size of the weights. `countersample` on the same
    risk would multiply by 1.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.plans import Examples, snips
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> plan = snips(Examples.of(log, "click"))
    >>> plan.probabilities, plan.multipliers
    (array([0.5, 0.5]), array([0.4, 1.6]))
    """
    n = len(examples)
    multipliers = examples.weights * (n / examples.weights.sum())
    return Plan("snips", _repeat(1.0, n), multipliers, examples.weight_shares)


def bounded(examples: Examples, *, bounds: ArrayLike) -> Plan:
    """π ∝ v·L, m = v/(N·π): sampled by weight times a bound L on the norm of the gradient.

    No proposal has a smaller max m·L. An example with L = 0, whose gradient is 0, is never drawn.
    For the bounds, (n,) and not negative, see `countersample.theory.gradient_bounds`.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.plans import Examples, bounded
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> plan = bounded(Examples.of(log, "click"), bounds=[4.0, 1.0])
    >>> plan.probabilities, plan.multipliers
    (array([0.5, 0.5]), array([1., 4.]))
    """
    array = as_weights(bounds, "bounds", len(examples))
    return proposal(examples, probabilities=examples.weights * array, name="bounded")


def proposal(examples: Examples, *, probabilities: ArrayLike, name: str = "proposal") -> Plan:
    """π given by the caller (up to a factor), m = v/(N·π).

    If π is 0 so is m: leave out only examples whose gradient is always 0.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.plans import Examples, proposal
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> plan = proposal(Examples.of(log, "click"), probabilities=[1, 3])
    >>> plan.probabilities, plan.multipliers.round(3)
    (array([0.25, 0.75]), array([2.   , 2.667]))
    """
    unnormalized = as_weights(probabilities, "probabilities", len(examples)).copy()
    pi = unnormalized / unnormalized.sum()
    weights = examples.weights / examples.n_clicks
    multipliers = np.divide(weights, pi, out=np.zeros_like(pi), where=pi > 0)
    return Plan(name, unnormalized, multipliers, examples.weight_shares)


PLANS: dict[str, Callable[..., Plan]] = {
    plan.__name__: plan for plan in (naive, ips, countersample, snips, bounded, proposal)
}


def make_plan(name: str, examples: Examples, **options: ArrayLike) -> Plan:
    """Return the plan of a name, with its options (`bounds`, `probabilities`) set.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.plans import Examples, make_plan
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> clicks = Examples.of(log, "click")
    >>> [make_plan(name, clicks).max_multiplier for name in ("ips", "countersample")]  # M, M̄
    [4.0, 2.5]
    """
    make = PLANS[choice("method", name, PLANS)]
    try:
        signature(make).bind(examples, **options)
    except TypeError as error:
        raise ParameterError(f"plan {name!r}: {error}") from error
    return make(examples, **options)
