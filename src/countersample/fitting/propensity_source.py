"""Which propensities a log is weighted by: given, its own, or estimated and cross-checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countersample.errors import DataError, ParameterError
from countersample.propensity import METHODS, Propensities, cross_check, estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.impressions import Impressions, RowPropensities
    from countersample.clicks.impressions.joining import Matched
    from countersample.propensity import CrossCheck

LOGGED = "logged"  # the method that takes the log's own column
N_BOOTSTRAP = 200
FEW_BOOTSTRAP = 50  # of regression-em, whose every resample is a regression
_INSTEAD = (
    "or give what you know of propensities (--gamma 1.0 or --propensities FILE), or shuffle the "
    "results of a small share of the traffic"
)


@dataclass(frozen=True, eq=False)
class PropensitySource:
    """How likely each position is examined, and where that is known from."""

    propensities: ArrayLike | PositionBiasCurve | RowPropensities  # as `join_features` takes them
    source: str  # where they are from, in words
    curve: Propensities | None = None  # the estimate, where they were estimated
    cross_check: CrossCheck | None = None  # what all methods say, where they were estimated
    warnings: tuple[str, ...] = ()


def find_propensities(
    impressions: Impressions,
    matched: Matched,
    *,
    given: ArrayLike | PositionBiasCurve | None,
    method: str,
    randomized: str | None,
    depth: int | None,
    rng: np.random.Generator,
) -> PropensitySource:
    """Return the propensities to weigh clicks by; the arguments of `fit_from_impressions`."""
    if given is not None:
        if method != "auto" or randomized is not None or depth is not None:
            raise ParameterError(
                "propensities are given, so nothing is estimated: leave out method, randomized "
                "and depth"
            )
        return PropensitySource(
            given, "given", curve=given if isinstance(given, Propensities) else None
        )
    if method not in {"auto", LOGGED, *METHODS}:
        known = ", ".join(map(repr, METHODS))
        raise ParameterError(f"method is {method!r}, expected 'auto', {LOGGED!r}, {known}")
    has_own = "propensity" in impressions.columns
    if method == LOGGED or (method == "auto" and has_own and randomized is None):
        return _logged(impressions, matched)
    counts = matched.counts
    if randomized is not None:
        counts = impressions.of_policy(randomized).counts()
    if method == "regression-em":
        return _by_features(matched, depth, rng)
    try:
        curve = estimate(counts, method=method, n_bootstrap=N_BOOTSTRAP, depth=depth, rng=rng)
    except DataError as error:
        if method != "auto" or randomized is not None:
            raise DataError(f"{error}; {_INSTEAD}") from error
        doubt = (
            f"This log alone does not identify the propensities: {error}. The curve is that of "
            "regression-em: it is right only if the features tell how relevant items are and do "
            "not tell where they were shown."
        )
        try:
            return _by_features(matched, depth, rng, doubt)
        except DataError:
            raise DataError(f"{error}; {_INSTEAD}") from error
    checked = cross_check(counts, n_bootstrap=N_BOOTSTRAP, depth=depth, rng=rng)
    return _estimated(curve, checked)


def _logged(impressions: Impressions, matched: Matched) -> PropensitySource:
    try:
        own = impressions.logged_propensities(matched.counts)
    except DataError as error:
        raise DataError(f"{error} (--propensity-method all-pairs)") from error
    return PropensitySource(own, "the log's own column 'propensity'")


def _by_features(
    matched: Matched, depth: int | None, rng: np.random.Generator, *doubts: str
) -> PropensitySource:
    counts, features = matched.with_features()
    checked = cross_check(  # the usual intervals, as one of its curves is the answer
        counts, features=features, n_bootstrap=FEW_BOOTSTRAP, confidence=0.95, depth=depth, rng=rng
    )
    if "regression-em" not in checked.estimates:
        raise DataError(checked.unsupported["regression-em"])
    return _estimated(checked.estimates["regression-em"], checked, *doubts)


def _estimated(curve: Propensities, checked: CrossCheck, *doubts: str) -> PropensitySource:
    warnings = list(doubts)
    if not checked.is_agreed:
        warnings.append(f"The curve of propensities is in doubt. {checked.sentence}")
    warnings += [f"Propensities ({curve.method}): {note}." for note in curve.notes]
    return PropensitySource(curve, f"estimated by {curve.method}", curve, checked, tuple(warnings))
