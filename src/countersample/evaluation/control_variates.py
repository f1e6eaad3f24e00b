"""Control variates: the mean of y, corrected by the known mean of x, with the best factor β.

Each cluster (a session, or a query with n sessions) has a size n, a sum y whose mean is to be
estimated, and sums x₁ … x_p whose means X are known, or estimated from far more clusters. With
ȳ = Σy/Σn, x̄ = Σx/Σn, the estimate and the β of least variance are

    V = ȳ − β·(x̄ − X)        β* = Var(z)⁻¹ Cov(z, e)        e = y − ȳ·n,  z = x − x̄·n

(the regression estimator of survey sampling; β-IPS of Gupta, Jeunen, Oosterhuis and de Rijke,
RecSys 2024, where x are importance weights and X is 1). With β = 0 it is the plain mean; with
β = ȳ/x̄ it is X·Σy/Σx, the ratio estimator (SNIPS). So with β* the variance is no larger than
with either (Jeunen and Gupta, SIGIR 2026). Estimating β* costs a share of about p/m of the
variance, with m clusters.

Everything here is a function of sums over clusters, so that a bootstrap estimates β* in each draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample._params import number
from countersample.clicks import ClickLog
from countersample.errors import DataError, ParameterError
from countersample.evaluation.bootstrap import Clusters, resample

if TYPE_CHECKING:
    from countersample._arrays import Floats

MAX_STANDARD_ERRORS = 4.0  # means of the same kind of sessions hardly differ by more
_SINGULAR = 1e-9  # of a correlation matrix: controls that determine each other count once


def control_moments(n: Floats, controls: Floats) -> Floats:
    """Return n, x and their products, (m, (p + 1) + (p + 1)²), from n, (m,), and x, (m, p)."""
    columns = np.column_stack([n, controls])
    products = columns[:, :, None] * columns[:, None, :]
    return np.concatenate([columns, products.reshape(len(n), -1)], axis=1)


def outcome_moments(y: Floats, n: Floats, controls: Floats) -> Floats:
    """Return y, y·n and y·x per cluster, (m, p + 2)."""
    return np.column_stack([y, y * n, y[:, None] * controls])


def best_beta(of_controls: Floats, of_outcome: Floats) -> Floats:
    """β* = Var(z)⁻¹ Cov(z, e), (..., p), from sums of moments over clusters.

    The sums are of `control_moments`, (..., k), and of `outcome_moments`, (..., p + 2). A control
    that does not vary has a β of 0; controls that determine each other share one.

    Examples
    --------
    For y = 1 + 3·x, β* is 3:

    >>> import numpy as np
    >>> from countersample.evaluation.control_variates import (
    ...     best_beta, control_moments, outcome_moments)
    >>> x, n = np.array([[0.0], [2.0], [4.0]]), np.ones(3)
    >>> y = 1 + 3 * x[:, 0]
    >>> best_beta(control_moments(n, x).sum(0), outcome_moments(y, n, x).sum(0)).round(9)
    array([3.])
    """
    p = of_outcome.shape[-1] - 2
    total, products = of_controls[..., : p + 1], of_controls[..., p + 1 :]
    products = products.reshape(*products.shape[:-1], p + 1, p + 1)
    size = total[..., :1]
    mean = total[..., 1:] / size  # x̄
    with_n, squared = products[..., 0, 1:], products[..., 0, 0, None]
    variance = (
        products[..., 1:, 1:]
        - mean[..., :, None] * with_n[..., None, :]
        - with_n[..., :, None] * mean[..., None, :]
        + mean[..., :, None] * mean[..., None, :] * squared[..., None]
    )
    outcome = of_outcome[..., :1] / size  # ȳ
    covariance = (
        of_outcome[..., 2:] - mean * of_outcome[..., 1:2] - outcome * (with_n - mean * squared)
    )
    # In units of their spread; a spread below the rounding of the subtraction counts as none.
    scale = np.diagonal(variance, axis1=-2, axis2=-1)
    rounding = _SINGULAR * np.diagonal(products, axis1=-2, axis2=-1)[..., 1:]
    scale = np.where(scale > rounding, np.sqrt(np.maximum(scale, 0)), np.inf)
    correlation = variance / scale[..., :, None] / scale[..., None, :]
    inverse = np.linalg.pinv(correlation, rcond=_SINGULAR, hermitian=True)
    beta: Floats = (inverse @ (covariance / scale)[..., None])[..., 0] / scale
    return beta


def controlled_mean(of_controls: Floats, of_outcome: Floats, expected: Floats) -> Floats:
    """V = ȳ − β*·(x̄ − X), (...,), from sums as for `best_beta`, and X for one n, (..., p).

    Examples
    --------
    Half of all x are 1, here two of three: the corrected mean of y = 4·x is 2.

    >>> import numpy as np
    >>> from countersample.evaluation.control_variates import (
    ...     control_moments, controlled_mean, outcome_moments)
    >>> x, n = np.array([[0.0], [1.0], [1.0]]), np.ones(3)
    >>> sums = control_moments(n, x).sum(0), outcome_moments(4 * x[:, 0], n, x).sum(0)
    >>> float(controlled_mean(*sums, np.array([0.5])).round(9))
    2.0
    """
    size, p = of_controls[..., :1], of_outcome.shape[-1] - 2
    above = of_controls[..., 1 : p + 1] / size - expected
    beta = best_beta(of_controls, of_outcome)
    value: Floats = of_outcome[..., 0] / size[..., 0] - (beta * above).sum(axis=-1)
    return value


@dataclass(frozen=True, eq=False)
class Controls:
    """The means of Σ 1/p and of Σ 1 over the clicks of a session, and the sums in a log.

    The first is given as a number, or both are estimated from a longer log.
    """

    sums: Floats  # x of each cluster of the log, (m, p)
    means: Floats  # X, (p,)
    longer: Floats | None = None  # n and x of each cluster of the longer log, (m', p + 1)
    n_empty: float = 0  # its sessions without a row
    doubt: str | None = None  # a warning if log and means seem to be of other kinds of sessions

    @classmethod
    def of(cls, log: ClickLog, clusters: Clusters, control: float | ClickLog | None) -> Controls:
        """Return the controls of a log, by the mean of Σ 1/p or by a longer log."""
        log_sizes, per = clusters.sizes(log)
        if control is None:
            raise ParameterError(
                f"estimator 'beta-ips' needs control, the mean of Σ 1/p per {per} or a longer log: "
                "if this log is all there is, take 'ips'"
            )
        weights = clusters.total(log.weights)
        mean = _mean(log_sizes, weights, clusters.n_empty if per == "session" else 0)
        if not isinstance(control, ClickLog):
            value = number("control", control, above=0)
            return cls(weights[:, None], np.array([value]), doubt=_doubt(mean, (value, 0.0), per))
        whole = Clusters.of(control)
        sizes, longer_per = whole.sizes(control)
        if longer_per != per:
            raise DataError(
                f"the control log is counted per {longer_per} and the log itself per {per}, "
                "expected the same: give n_sessions of both, or of neither"
            )
        n_empty = whole.n_empty if per == "session" else 0
        longer = np.column_stack([sizes, whole.total(control.weights), whole.total(control.clicks)])
        sums = np.column_stack([weights, clusters.total(log.clicks)])
        means = longer[:, 1:].sum(axis=0) / (sizes.sum() + n_empty)
        doubt = _doubt(mean, _mean(sizes, longer[:, 1], n_empty), per)
        return cls(sums, means, longer, n_empty, doubt)

    def resampled(self, n_bootstrap: int, rng: np.random.Generator) -> Floats:
        """Return X in n_bootstrap resamples of the longer log, (n_bootstrap, p), or (p,)."""
        if self.longer is None:
            return self.means
        empty = np.array([1.0, *np.zeros(len(self.means))])
        draws = resample(self.longer, empty, self.n_empty, n_bootstrap=n_bootstrap, rng=rng)
        means: Floats = draws[:, 1:] / draws[:, :1]
        return means


def _mean(n: Floats, x: Floats, n_empty: float) -> tuple[float, float]:
    """Return the ratio Σx/Σn and its variance."""
    size = float(n.sum()) + n_empty
    mean = float(x.sum()) / size
    residuals = x - mean * n
    return mean, (float((residuals**2).sum()) + n_empty * mean**2) / size**2


def _doubt(log: tuple[float, float], control: tuple[float, float], per: str) -> str | None:
    """Return a warning if two means, each with its variance, differ too much."""
    z_score = abs(log[0] - control[0]) / (np.sqrt(log[1] + control[1]) or np.inf)
    if z_score < MAX_STANDARD_ERRORS:
        return None
    return (
        f"Σ 1/p is {log[0]:.3g} per {per} in the log and {control[0]:.3g} by control, "
        f"{z_score:.0f} standard errors apart: these are hardly the same kind of sessions"
    )
