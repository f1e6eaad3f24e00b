"""Trust bias: users click high ranks even if the item there is not relevant.

`estimate_trust` estimates it together with position bias; `trust_correct` weights clicks if it is
already known. The estimator itself is in `affine.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.errors import DataError
from countersample.options import CONFIDENCE
from countersample.propensity.affine import level_of_irrelevance
from countersample.propensity.cells import cells_of
from countersample.propensity.curves import TRUST, TrustPropensities
from countersample.propensity.estimation import bootstrap, contexts_note

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.logs import PositionCounts


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
    all these lines (`countersample.propensity.affine`). Nothing is assumed about the relevance of
    items. Intervals are quantiles over resampled logs, as in `estimate`. The origin of r is the r
    of irrelevant items, assuming that items are either relevant or not.

    This needs more than propensities alone: items must have been shown at least twice at each of
    two positions, in 20 queries or more, and must differ in relevance.

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
        If the log does not support it, with the reason and the largest depth at which it does.

    Examples
    --------
    Half of the items are relevant. At position 1 they are clicked 8 times in 10 and others 3
    times; at position 2 they are clicked 4 times and others never.

    >>> import numpy as np
    >>> from countersample.logs import PositionCounts
    >>> from countersample.propensity import estimate_trust
    >>> query = np.repeat(np.arange(40), 4)
    >>> counts = PositionCounts.from_columns(
    ...     query, item_id=np.tile([0, 0, 1, 1], 40), position=np.tile([1, 2], 80),
    ...     click=np.tile([800, 400, 300, 0], 40), impressions=np.full(160, 1000),
    ... )
    >>> trust = estimate_trust(counts, rng=0)
    >>> trust.alpha.round(2), trust.beta.round(2)
    (array([1. , 0.8]), array([0.3, 0. ]))
    """
    result = bootstrap(
        counts, method=TRUST, n_bootstrap=n_bootstrap, confidence=confidence, rng=rng,
        reference=reference, depth=depth,
    )  # fmt: skip
    (alpha, beta), (alpha_low, beta_low), (alpha_high, beta_high) = (
        np.split(both, 2) for both in (result.curve, result.low, result.high)
    )
    several = contexts_note(counts)
    return TrustPropensities(
        alpha=alpha,
        alpha_low=alpha_low,
        alpha_high=alpha_high,
        beta=beta,
        beta_low=beta_low,
        beta_high=beta_high,
        n_impressions=result.n_impressions,
        p_value=_p_value(beta[:-1], result.resamples[:, len(alpha) : -1]),
        origin=level_of_irrelevance(
            cells_of(counts, reference=reference, depth=depth), alpha, beta
        ),
        confidence=confidence,
        reference=reference,
        notes=(*result.notes, *([several] if several else [])),
    )


def _p_value(beta: Floats, resamples: Floats) -> float:
    """Return P(χ² > βᵀ·S⁻¹·β), S the covariance of β over resamples: Wald's test."""
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
    correction of Vardasbi et al. (CIKM 2020). A factor alone cannot do this. With ε⁺ = 1 and ε⁻ = 0
    the weight is clicks/θ_k. Impressions without a click count too: their weight is negative.

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
    plus, minus = np.asarray(eps_plus, np.float64), np.asarray(eps_minus, np.float64)
    if plus.ndim != 1 or plus.shape != minus.shape:
        raise DataError(
            f"eps_plus has shape {plus.shape} and eps_minus {minus.shape}, expected one number per "
            "position in each"
        )
    is_valid = (minus >= 0) & (plus <= 1) & (plus > minus)
    if not is_valid.all():
        index = int(is_valid.argmin())
        raise DataError(
            f"at position {index + 1} eps_plus is {plus[index]:g} and eps_minus "
            f"{minus[index]:g}, expected 0 ≤ eps_minus < eps_plus ≤ 1: if relevant items are not "
            "clicked more, clicks contain no information"
        )
    positions = np.asarray(position, np.int64)
    if positions.size and not (positions.min() >= 1 and positions.max() <= len(plus)):
        wrong = positions.max() if positions.max() > len(plus) else positions.min()
        raise DataError(
            f"position {wrong} has no eps_plus, expected positions from 1 to {len(plus)}"
        )
    examination = np.asarray(theta.propensity(positions), np.float64)
    if not (examination > 0).all():
        unseen = int(positions[examination <= 0].flat[0])
        raise DataError(
            f"the propensity of position {unseen} is 0, expected above 0: a position that is never "
            "examined cannot be weighted; leave its impressions out"
        )
    by_chance = examination * minus[positions - 1] * np.asarray(impressions, np.float64)
    corrected: Floats = (np.asarray(clicks, np.float64) - by_chance) / (
        examination * (plus - minus)[positions - 1]
    )
    return corrected
