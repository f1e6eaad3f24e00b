"""Which propensities a log is weighted by: given, its own, or estimated and cross-checked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.impressions import RowPropensities
from countersample.clicks.impressions.counts import NO_CONTEXT, named
from countersample.clicks.impressions.weighting import weighted
from countersample.errors import DataError, ParameterError
from countersample.fitting.intervals import PropensityDraws
from countersample.propensity import (
    METHODS,
    ContextPropensities,
    Propensities,
    TrustPropensities,
    cross_check,
    estimate_trust,
)
from countersample.propensity.cells import QueryDraws
from countersample.propensity.contexts import resample_by_context
from countersample.propensity.estimation import resample
from countersample.propensity.methods import AFFINE
from countersample.propensity.support import supported

if TYPE_CHECKING:
    from countersample.clicks.impressions import Impressions, PositionCounts
    from countersample.clicks.impressions.joining import Examinable, Matched
    from countersample.propensity import CrossCheck

LOGGED = "logged"  # the method that takes the log's own column
CONFIDENCE = 0.95
N_BOOTSTRAP = 200
N_DRAWS = 500  # of queries, from which propensities and gain are estimated again
FEW_BOOTSTRAP = 50  # of the cross-check, of which regression-em takes a regression for each
_INSTEAD = (
    "or give what you know of propensities (--gamma 1.0 or --propensities FILE), or shuffle the "
    "results of a small share of the traffic"
)

_GIVEN = "given"  # by the user


@dataclass(frozen=True, eq=False)
class PropensitySource:
    """How likely each position is examined, and where that is known from."""

    propensities: Examinable  # as `join_features` takes them
    source: str  # where they are from, in words
    curve: Propensities | None = None  # the estimate, where there is one for all contexts
    contexts: ContextPropensities | None = None  # those of each context, where the log has some
    cross_check: CrossCheck | None = None  # what all methods say, where they were estimated
    draws: PropensityDraws | None = None  # them estimated again, where that is for intervals
    warnings: tuple[str, ...] = ()
    is_identified: bool = True  # whether the log tells them, without belief in its features

    @property
    def trust(self) -> TrustPropensities | None:
        """Those with trust bias, where they are."""
        return self.propensities if isinstance(self.propensities, TrustPropensities) else None

    @property
    def exposure(self) -> str | None:
        """How the log's own propensities are used, whatever was asked for; else None."""
        return "as logged" if isinstance(self.propensities, RowPropensities) else None

    @property
    def curves(self) -> dict[str, Propensities]:
        """The estimates by context, which is ``""`` where there is one for all."""
        if self.contexts is not None:
            return self.contexts.curves
        return {} if self.curve is None else {NO_CONTEXT: self.curve}

    def of_every_impression(self, log: Impressions, counts: PositionCounts) -> Examinable:
        """Return the propensities for counts of a log in which age takes nothing from a day.

        The log's own are means over the impressions of a row, and so go by their weights.
        """
        is_logged = self.source != _GIVEN and isinstance(self.propensities, RowPropensities)
        if not is_logged or log.half_life is None:
            return self.propensities
        return replace(log, half_life=None).logged_propensities(counts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        found = {"curve": self.curve, "contexts": self.contexts, "trust": self.trust,
                 "cross_check": self.cross_check}  # fmt: skip
        return {"source": self.source} | {
            name: None if each is None else each.to_dict() for name, each in found.items()
        }

    def at_ends(self) -> list[Examinable]:
        """Return all estimates at the lower, and at the upper, ends of their intervals.

        Nothing where there are none, or where one of them is 0.
        """
        if not self.curves or not all(curve.low.all() for curve in self.curves.values()):
            return []
        ends: list[Examinable] = []
        for end in ("low", "high"):
            moved = {
                name: replace(curve, **dict.fromkeys(("value", "low", "high"), getattr(curve, end)))
                for name, curve in self.curves.items()
            }
            ends.append(moved[NO_CONTEXT] if self.contexts is None else ContextPropensities(moved))
        return ends


def find_propensities(
    impressions: Impressions,
    matched: Matched,
    *,
    given: Examinable | None,
    method: str,
    randomized: str | None,
    depth: int | None,
    rng: np.random.Generator,
    is_checked: bool = True,
) -> PropensitySource:
    """Return the propensities to weigh clicks by; the arguments of `fit_from_impressions`.

    `is_checked` is whether other methods are asked as well.
    """
    if given is not None:
        if method != "auto" or randomized is not None or depth is not None:
            raise ParameterError(
                "propensities are given, so nothing is estimated: leave out method, randomized "
                "and depth"
            )
        return _given(given)
    if method not in {"auto", LOGGED, *METHODS, *AFFINE}:
        known = ", ".join(map(repr, [*METHODS, *AFFINE]))
        raise ParameterError(f"method is {method!r}, expected 'auto', {LOGGED!r}, {known}")
    if method in AFFINE and impressions.half_life is not None:
        raise ParameterError(
            f"method is {method!r}, which needs whole numbers of clicks, and half_life "
            "(--half-life) weights them: name another method, or leave the half-life out"
        )
    has_own = "propensity" in impressions.columns
    if method == LOGGED or (method == "auto" and has_own and randomized is None):
        return _logged(impressions, matched)
    counts = matched.counts
    if randomized is not None:
        shuffled = impressions.of_policy(randomized)
        counts = weighted(shuffled, shuffled.check().counts)  # impossible rows are told
    return _from_log(
        counts, matched, method, depth, rng, is_whole=randomized is None, is_checked=is_checked
    )


def _from_log(
    counts: PositionCounts,
    matched: Matched,
    method: str,
    depth: int | None,
    rng: np.random.Generator,
    *,
    is_whole: bool,
    is_checked: bool,
) -> PropensitySource:
    """Estimate; the counts are those of the whole log, or of its randomized share."""
    if method in AFFINE:
        return _with_trust(counts, depth, rng)
    # The share is said to be shuffled: randomized believes that, unless it sees that it is not.
    declared: dict[str, Any] = {}
    if not is_whole and method in {"auto", "randomized"}:
        declared["declared"] = True
    if counts.has_contexts:
        return _by_context(counts, matched, method, depth, rng, declared)
    if method == "regression-em":
        told = supported(counts, depth=depth)
        is_identified = any(told[name].is_supported for name in METHODS)
        found = _by_features(matched, depth, rng, is_checked=is_checked)
        return replace(found, is_identified=is_identified)
    queries = _query_draws(matched.counts, counts, rng)
    asked: dict[str, Any] = {
        "n_bootstrap": N_BOOTSTRAP, "confidence": CONFIDENCE, "depth": depth, "draws": queries,
        "rng": rng,
    }  # fmt: skip
    try:
        curve, curves = resample(counts, method=method, **asked, **declared)
    except DataError as error:
        if method != "auto" or not is_whole:
            raise DataError(f"{error}; {_INSTEAD}") from error
        return _last_resort(matched, depth, rng, error, is_checked=is_checked)
    checked = None
    if is_checked:
        with suppress(DataError):  # what is taken as told has nothing to be compared with
            checked = cross_check(counts, n_bootstrap=FEW_BOOTSTRAP, depth=depth, rng=rng)
    found = _estimated(curve, checked)
    draws = PropensityDraws(replace(queries, index=None), {NO_CONTEXT: curves})
    return replace(found, draws=draws)


def _query_draws(
    whole: PositionCounts, part: PositionCounts, rng: np.random.Generator
) -> QueryDraws:
    """Return draws of the queries of a log, with weights for those that a part of it has."""
    is_drawn = np.bincount(whole.query, minlength=len(whole.query_ids)) > 0
    index = None if part is whole else np.searchsorted(whole.query_ids, part.query_ids)
    return QueryDraws(is_drawn, N_DRAWS, int(rng.integers(2**63)), index)


def _last_resort(
    matched: Matched,
    depth: int | None,
    rng: np.random.Generator,
    error: DataError,
    *,
    is_checked: bool,
) -> PropensitySource:
    """Ask the features, where the log alone does not tell."""
    doubt = (
        f"This log alone does not identify the propensities: {error}. The curve is that of "
        "regression-em: it is right only if the features tell how relevant items are and do "
        "not tell where they were shown."
    )
    try:
        found = _by_features(matched, depth, rng, doubt, is_checked=is_checked)
        return replace(found, is_identified=False)
    except DataError:
        raise DataError(f"{error}; {_INSTEAD}") from error


def _given(given: Examinable) -> PropensitySource:
    return PropensitySource(
        given,
        _GIVEN,
        curve=given if isinstance(given, Propensities) else None,
        contexts=given if isinstance(given, ContextPropensities) else None,
    )


def _by_context(
    counts: PositionCounts,
    matched: Matched,
    method: str,
    depth: int | None,
    rng: np.random.Generator,
    declared: dict[str, Any],
) -> PropensitySource:
    options: dict[str, Any] = {"method": method, "n_bootstrap": N_BOOTSTRAP, **declared}
    queries = None
    if method == "regression-em":
        counts, options["features"] = matched.with_features()
        options["n_bootstrap"] = FEW_BOOTSTRAP
    else:
        queries = _query_draws(matched.counts, counts, rng)
    try:
        found, curves = resample_by_context(
            counts, depth=depth, confidence=CONFIDENCE, draws=queries, rng=rng, **options
        )
    except DataError as error:
        raise DataError(f"{error}; {_INSTEAD}, or leave out the contexts") from error
    names = sorted({curve.method for curve in found.curves.values()})
    source = f"estimated by {' and '.join(names)} in each of {len(found.curves)} contexts"
    contexts: dict[str, list[str]] = {}
    for note in found.notes:
        context, _, told = note.partition(": ")
        contexts.setdefault(told, []).append(context)
    warnings = tuple(f"Propensities in {named(names)}: {told}." for told, names in contexts.items())
    draws = None if queries is None else PropensityDraws(replace(queries, index=None), curves)
    return PropensitySource(found, source, contexts=found, draws=draws, warnings=warnings)


def _with_trust(
    counts: PositionCounts, depth: int | None, rng: np.random.Generator
) -> PropensitySource:
    try:
        found = estimate_trust(counts, n_bootstrap=N_BOOTSTRAP, depth=depth, rng=rng)
    except DataError as error:
        raise DataError(f"{error}; {_INSTEAD}") from error
    warnings = tuple(f"Propensities (trust): {note}." for note in found.notes)
    if not found.has_trust_bias:
        warnings = (*warnings, found.sentence)
        found = replace(found, origin=0.0)  # clicks by chance are not seen, so none are taken off
    return PropensitySource(found, "estimated with trust bias", warnings=warnings)


def _logged(impressions: Impressions, matched: Matched) -> PropensitySource:
    try:
        own = impressions.logged_propensities(matched.counts)
    except DataError as error:
        raise DataError(f"{error} (--propensity-method all-pairs)") from error
    return PropensitySource(own, "the log's own column 'propensity'")


def _by_features(
    matched: Matched,
    depth: int | None,
    rng: np.random.Generator,
    *doubts: str,
    is_checked: bool,
) -> PropensitySource:
    counts, features = matched.with_features()
    if not is_checked:
        alone, _ = resample(
            counts, method="regression-em", features=features, n_bootstrap=FEW_BOOTSTRAP,
            confidence=CONFIDENCE, depth=depth, rng=rng,
        )  # fmt: skip
        return _estimated(alone, None, *doubts)
    checked = cross_check(  # the usual intervals, as one of its curves is the answer
        counts, features=features, n_bootstrap=FEW_BOOTSTRAP, confidence=0.95, depth=depth, rng=rng
    )
    if "regression-em" not in checked.estimates:
        raise DataError(checked.unsupported["regression-em"])
    return _estimated(checked.estimates["regression-em"], checked, *doubts)


def _estimated(curve: Propensities, checked: CrossCheck | None, *doubts: str) -> PropensitySource:
    warnings = list(doubts)
    if checked is not None and not checked.is_agreed:
        warnings.append(f"The curve of propensities is in doubt. {checked.sentence}")
    warnings += [f"Propensities ({curve.method}): {note}." for note in curve.notes]
    return PropensitySource(
        curve,
        f"estimated by {curve.method}",
        curve=curve,
        cross_check=checked,
        warnings=tuple(warnings),
    )
