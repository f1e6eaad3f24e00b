"""Trust bias: users click what is ranked high even if it is not relevant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from countersample._frames import Tabular
from countersample.clicks.bias import check_weightable
from countersample.errors import DataError
from countersample.options import CONFIDENCE
from countersample.propensity._columns import set_columns, set_notes
from countersample.propensity.affine import level_of_irrelevance
from countersample.propensity.cells import cells_of
from countersample.propensity.connections import positions_text
from countersample.propensity.estimation import contexts_note, draw
from countersample.propensity.saving import SCHEMA_VERSION, Saved, entries

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.impressions import PositionCounts

KIND = "with trust"
_COLUMNS = (
    "alpha", "alpha_low", "alpha_high", "beta", "beta_low", "beta_high", "n_impressions",
)  # fmt: skip
_NUMBERS = ("p_value", "origin", "confidence", "reference")
TRUST = "trust"  # the name of the method
_DOUBT = 0.05  # the largest p-value at which trust bias is taken to be there


@dataclass(frozen=True, eq=False)
class TrustPropensities(Saved, Tabular):
    """P(click at position k) = beta[k − 1] + alpha[k − 1]·r, with an interval of each.

    Items that moved tell α and β up to r → a·r + b, which leaves the order of items as it is. The
    scale is that of α = 1 at the reference; the origin is that of β = 0 at the last position, where
    users have the least reason to click an item for its rank. `origin` is the r of items that are
    not relevant, and `examination_of` has β moved by it.

    Parameters
    ----------
    alpha, alpha_low, alpha_high, beta, beta_low, beta_high : float arrays (K,)
    n_impressions : array (K,)
        The impressions of each position that the estimate is made of.
    p_value : float
        Of a log with clicks as far from β = 0 as this one, were there no trust bias: a small one
        says that there is some.
    origin : float
        The r of items that are not relevant, where r is 0 for items that are not clicked at the
        last position.
    confidence : float
        Of the intervals.
    reference : int
        The position where α is 1.
    notes : tuple of str

    Examples
    --------
    >>> from countersample.propensity import TrustPropensities
    >>> found = TrustPropensities(
    ...     alpha=[1, 0.8], alpha_low=[1, 0.7], alpha_high=[1, 0.9], beta=[0.3, 0],
    ...     beta_low=[0.2, 0], beta_high=[0.4, 0], n_impressions=[100, 100], p_value=0.001,
    ... )
    >>> found.examination_of([2, 1, 3], ["", "", ""])
    (array([0.8, 1. , nan]), array([0. , 0.3, nan]))
    >>> found.sentence
    'Users trust high ranks: β is above 0 at position 1.'
    """

    alpha: Floats
    alpha_low: Floats
    alpha_high: Floats
    beta: Floats
    beta_low: Floats
    beta_high: Floats
    n_impressions: NDArray[np.int64]
    p_value: float
    origin: float = 0.0
    confidence: float = CONFIDENCE
    reference: int = 1
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        set_columns(self, _COLUMNS)
        for name in _COLUMNS:
            if not np.isfinite(getattr(self, name)).all():
                raise DataError(f"{name} has a value that is not finite, expected numbers")
        check_weightable(self.alpha)
        set_notes(self)

    @property
    def position(self) -> NDArray[np.int64]:
        """The positions, 1..K."""
        return np.arange(1, len(self.alpha) + 1)

    @property
    def method(self) -> str:
        """The name of the estimator."""
        return TRUST

    @property
    def has_trust_bias(self) -> bool:
        """Whether all β being 0 is ruled out, with a p-value of at most 0.05."""
        return self.p_value <= _DOUBT

    @property
    def sentence(self) -> str:
        """Say whether trust bias is there at all, and at which positions it is seen."""
        if not self.has_trust_bias:
            return (
                "No trust bias is seen: that every β is 0 is not ruled out "
                f"(p = {self.p_value:.2g}), and a method without it has narrower intervals."
            )
        above = np.flatnonzero(self.beta_low > 0)
        if len(above):
            return f"Users trust high ranks: β is above 0 at {positions_text(above)}."
        return (
            f"Not every β is 0 (p = {self.p_value:.2g}), but none is surely above it: users do not "
            "click as the position-based model has it."
        )

    def examination_of(self, position: ArrayLike, context: ArrayLike) -> tuple[Floats, Floats]:  # noqa: ARG002 (one curve for all contexts)
        """Return α and β of each row, each (n,); NaN where a position has no estimate.

        As clicks are weighted by them: β + origin·α, so that an item that is not relevant has a
        relevance of 0, as one that was never shown; or with the least origin at which no β is below
        0. Where an α is above 1, all are divided by the largest.
        """
        asked = np.asarray(position, np.int64)
        depth = len(self.alpha)
        index = np.where((asked >= 1) & (asked <= depth), asked - 1, depth)
        slope = np.append(self.alpha / max(1.0, float(self.alpha.max())), np.nan)
        origin = (-self.beta / self.alpha).max(initial=self.origin)
        by_chance = np.maximum(self.beta + origin * self.alpha, 0.0)
        return slope[index], np.append(by_chance, np.nan)[index]

    # -- frames and files

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return position, α and β with the ends of their intervals, and impressions."""
        return {name: getattr(self, name) for name in ("position", *_COLUMNS)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        columns = {name: np.asarray(c).tolist() for name, c in self.columns_of_frame().items()}
        words = {name: getattr(self, name) for name in _NUMBERS}
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            **words,
            **columns,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Self:
        """Return the estimate that `to_dict` gave these values of."""
        names = (*_COLUMNS, *_NUMBERS, "notes")
        return cls(**dict(zip(names, entries(kept, names, KIND), strict=True)))


def estimate_trust(
    counts: PositionCounts,
    *,
    n_bootstrap: int = 200,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator | int | None = None,
    reference: int = 1,
    depth: int | None = None,
) -> TrustPropensities:
    """Estimate α and β of P(click at k) = β_k + α_k·r from items shown at several positions.

    For each two positions, the click rates of the same items lie on a line, rate at k = β_k +
    (α_k/α_j)·(rate at j − β_j), with noise of known size in both: α and β solve the equations of
    all these lines (`countersample.propensity.affine`). Nothing is assumed of how relevant
    items are. Intervals are quantiles over resampled logs, as in `estimate`. The origin of r is
    that of items that are not relevant, taking it that items are relevant or not.

    More is asked of the log than for propensities alone: items must have been shown at least
    twice at each of two positions, in 20 queries or more, and must differ in relevance.

    Parameters
    ----------
    counts : PositionCounts
    n_bootstrap, confidence, rng
        As in `estimate`.
    reference : int
        The position where α is 1.
    depth : int, optional
        The last position to estimate, where β is 0; by default the last one in the log.

    Raises
    ------
    DataError
        For a log that does not tell, with the reason and the largest depth at which it does.

    Examples
    --------
    Half of the items are relevant. At position 1 they are clicked 8 times in 10 and others 3
    times; at position 2 they are clicked 4 times and others never.

    >>> import numpy as np
    >>> from countersample.clicks.impressions import PositionCounts
    >>> from countersample.propensity import estimate_trust
    >>> query = np.repeat(np.arange(40), 4)
    >>> counts = PositionCounts.from_columns(
    ...     query, item_id=np.tile([0, 0, 1, 1], 40), position=np.tile([1, 2], 80),
    ...     click=np.tile([800, 400, 300, 0], 40), impressions=np.full(160, 1000),
    ... )
    >>> found = estimate_trust(counts, rng=0)
    >>> found.alpha.round(2), found.beta.round(2)
    (array([1. , 0.8]), array([0.3, 0. ]))
    """
    drawn = draw(
        counts, method=TRUST, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng,
        reference=reference, depth=depth,
    )  # fmt: skip
    (alpha, beta), (alpha_low, beta_low), (alpha_high, beta_high) = (
        np.split(both, 2) for both in (drawn.curve, drawn.low, drawn.high)
    )
    several = contexts_note(counts)
    return TrustPropensities(
        alpha=alpha,
        alpha_low=alpha_low,
        alpha_high=alpha_high,
        beta=beta,
        beta_low=beta_low,
        beta_high=beta_high,
        n_impressions=drawn.n_impressions,
        p_value=_p_value(beta[:-1], drawn.resamples[:, len(alpha) : -1]),
        origin=level_of_irrelevance(
            cells_of(counts, reference=reference, depth=depth), alpha, beta
        ),
        confidence=confidence,
        reference=reference,
        notes=(*drawn.notes, *([several] if several else [])),
    )


def _p_value(beta: Floats, resamples: Floats) -> float:
    """Return P(χ² > βᵀ·S⁻¹·β), S the covariance of β over resamples: the test of Wald."""
    from scipy.special import chdtrc  # noqa: PLC0415 (heavy, only where used)

    spread = np.atleast_2d(np.cov(resamples, rowvar=False))
    spread += 1e-12 * np.eye(len(beta))
    return float(chdtrc(len(beta), beta @ np.linalg.solve(spread, beta)))


def trust_correct(
    clicks: ArrayLike,
    position: ArrayLike,
    theta: PositionBiasCurve,
    eps_plus: ArrayLike,
    eps_minus: ArrayLike,
    impressions: ArrayLike = 1,
) -> Floats:
    """Return (clicks − impressions·θ_k·ε⁻_k) / (θ_k·(ε⁺_k − ε⁻_k)), with k the position.

    A user examines position k with probability θ_k, and then clicks a relevant item with ε⁺_k and
    another with ε⁻_k (Agarwal et al., WWW 2019). So E clicks = impressions·θ_k·(ε⁻_k + r·(ε⁺_k −
    ε⁻_k)), with r = P(relevant), and the mean of this weight is impressions·r: the affine
    correction of Vardasbi et al. (CIKM 2020). No factor alone does this. With ε⁺ = 1 and ε⁻ = 0
    the weight is clicks/θ_k. Impressions without a click count too: their weight is below 0.

    Parameters
    ----------
    clicks, position : array-likes (n,)
        Positions count from 1.
    theta : PositionBiasCurve
        `PositionBias`, `TableBias`, or `Propensities`.
    eps_plus, eps_minus : array-likes (K,)
        By position, from 1; both in [0, 1] and ε⁺ above ε⁻.
    impressions : array-like (n,)
        How many impressions each row stands for; 1 by default.

    Returns
    -------
    float64 array (n,)

    Examples
    --------
    A click at position 1, and none at position 2: (1 − 0.5)/(0.9 − 0.5) and −0.5·0.2/(0.5·0.6).

    >>> from countersample.clicks import PositionBias
    >>> from countersample.propensity import trust_correct
    >>> trust_correct([1, 0], [1, 2], PositionBias(), eps_plus=[0.9, 0.8], eps_minus=[0.5, 0.2])
    array([ 1.25      , -0.33333333])
    """
    right, wrong = np.asarray(eps_plus, np.float64), np.asarray(eps_minus, np.float64)
    if right.ndim != 1 or right.shape != wrong.shape:
        raise DataError(
            f"eps_plus has shape {right.shape} and eps_minus {wrong.shape}, expected a number a "
            "position in each"
        )
    good = (wrong >= 0) & (right <= 1) & (right > wrong)
    if not good.all():
        index = int(good.argmin())
        raise DataError(
            f"at position {index + 1} eps_plus is {right[index]:g} and eps_minus "
            f"{wrong[index]:g}, expected 0 ≤ eps_minus < eps_plus ≤ 1: where relevant items are "
            "not clicked more, clicks say nothing"
        )
    positions = np.asarray(position, np.int64)
    if positions.size and not (positions.min() >= 1 and positions.max() <= len(right)):
        wrong_one = positions.max() if positions.max() > len(right) else positions.min()
        raise DataError(
            f"position {wrong_one} has no eps_plus, expected positions from 1 to {len(right)}"
        )
    examination = np.asarray(theta.propensity(positions), np.float64)
    if not (examination > 0).all():
        never = int(positions[examination <= 0].flat[0])
        raise DataError(
            f"the propensity of position {never} is 0, expected above 0: a position that is never "
            "examined cannot be weighted; leave its impressions out"
        )
    by_chance = examination * wrong[positions - 1] * np.asarray(impressions, np.float64)
    corrected: Floats = (np.asarray(clicks, np.float64) - by_chance) / (
        examination * (right - wrong)[positions - 1]
    )
    return corrected
