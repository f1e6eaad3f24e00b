"""Trust bias: users click what is ranked high even if it is not relevant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks.bias import PositionBiasCurve


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
