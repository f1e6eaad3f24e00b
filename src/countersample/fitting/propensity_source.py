"""Which propensities a log is weighted by: given, its own, or estimated and cross-checked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import PositionBias
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
    load_propensities,
)
from countersample.propensity.cells import QueryDraws
from countersample.propensity.contexts import resample_by_context
from countersample.propensity.estimation import resample
from countersample.propensity.methods import AFFINE
from countersample.propensity.support import supported

if TYPE_CHECKING:
    from countersample.clicks.impressions import Impressions, PositionCounts
    from countersample.clicks.impressions.joining import Examinable, Matched
    from countersample.options import PropensityOptions
    from countersample.propensity import CrossCheck

LOGGED = "logged"  # the method that takes the log's own column
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


def known_propensities(options: PropensityOptions) -> Examinable | None:
    """Return the propensities that are not to be estimated: known, of a curve, or saved."""
    if options.gamma is not None:
        return PositionBias(options.gamma)
    if options.file is not None:
        return load_propensities(options.file)
    known: Examinable | None = options.known
    return known


def find_propensities(
    impressions: Impressions,
    matched: Matched,
    options: PropensityOptions,
    *,
    confidence: float,
    rng: np.random.Generator,
    is_checked: bool = True,
) -> PropensitySource:
    """Return the propensities that clicks are weighted by.

    With `is_checked` they are compared with those of other methods.
    """
    known = known_propensities(options)
    if known is not None:
        return _given(known)
    method, randomized = options.method, options.randomized
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
    estimation = _Estimation(options, matched, confidence, rng, is_checked)
    return estimation.from_counts(counts, is_whole=randomized is None)


@dataclass(frozen=True, eq=False)
class _Estimation:
    """One estimation of propensities: how, from which log, and with which random numbers."""

    options: PropensityOptions
    matched: Matched
    confidence: float
    rng: np.random.Generator
    is_checked: bool  # whether the result is compared with other methods

    def from_counts(self, counts: PositionCounts, *, is_whole: bool) -> PropensitySource:
        """Estimate from the counts of the whole log, or of its randomized share."""
        method, depth = self.options.method, self.options.depth
        if method in AFFINE:
            return self._with_trust(counts)
        # The share is said to be shuffled: randomized accepts that, unless the data contradicts it.
        declared: dict[str, Any] = {}
        if not is_whole and method in {"auto", "randomized"}:
            declared["declared"] = True
        if counts.has_contexts:
            return self._by_context(counts, declared)
        if method == "regression-em":
            support = supported(counts, depth=depth)
            is_identified = any(support[name].is_supported for name in METHODS)
            return replace(self._by_features(), is_identified=is_identified)
        queries = _query_draws(self.matched.counts, counts, self.rng)
        try:
            curve, curves = resample(
                counts, method=method, n_bootstrap=N_BOOTSTRAP, confidence=self.confidence,
                depth=depth, draws=queries, rng=self.rng, **declared,
            )  # fmt: skip
        except DataError as error:
            if method != "auto" or not is_whole:
                raise DataError(f"{error}; {_INSTEAD}") from error
            return self._last_resort(error)
        checked = None
        if self.is_checked:
            with suppress(DataError):  # a declared share has no other method to compare with
                checked = cross_check(counts, n_bootstrap=FEW_BOOTSTRAP, depth=depth, rng=self.rng)
        draws = PropensityDraws(replace(queries, index=None), {NO_CONTEXT: curves})
        return replace(_estimated(curve, checked), draws=draws)

    def _last_resort(self, error: DataError) -> PropensitySource:
        """Estimate with the features, if the log alone does not identify the propensities."""
        doubt = (
            f"This log alone does not identify the propensities: {error}. The curve is that of "
            "regression-em: it is right only if the features tell how relevant items are and do "
            "not tell where they were shown."
        )
        try:
            return replace(self._by_features(doubt), is_identified=False)
        except DataError:
            raise DataError(f"{error}; {_INSTEAD}") from error

    def _by_context(self, counts: PositionCounts, declared: dict[str, Any]) -> PropensitySource:
        method = self.options.method
        settings: dict[str, Any] = {"method": method, "n_bootstrap": N_BOOTSTRAP, **declared}
        queries = None
        if method == "regression-em":
            counts, settings["features"] = self.matched.with_features()
            settings["n_bootstrap"] = FEW_BOOTSTRAP
        else:
            queries = _query_draws(self.matched.counts, counts, self.rng)
        try:
            estimate, curves = resample_by_context(
                counts, depth=self.options.depth, confidence=self.confidence, draws=queries,
                rng=self.rng, **settings,
            )  # fmt: skip
        except DataError as error:
            raise DataError(f"{error}; {_INSTEAD}, or leave out the contexts") from error
        names = sorted({curve.method for curve in estimate.curves.values()})
        source = f"estimated by {' and '.join(names)} in each of {len(estimate.curves)} contexts"
        contexts: dict[str, list[str]] = {}
        for note in estimate.notes:
            context, _, text = note.partition(": ")
            contexts.setdefault(text, []).append(context)
        warnings = tuple(
            f"Propensities in {named(names)}: {text}." for text, names in contexts.items()
        )
        draws = None if queries is None else PropensityDraws(replace(queries, index=None), curves)
        return PropensitySource(estimate, source, contexts=estimate, draws=draws, warnings=warnings)

    def _with_trust(self, counts: PositionCounts) -> PropensitySource:
        try:
            estimate = estimate_trust(
                counts, n_bootstrap=N_BOOTSTRAP, confidence=self.confidence,
                depth=self.options.depth, rng=self.rng,
            )  # fmt: skip
        except DataError as error:
            raise DataError(f"{error}; {_INSTEAD}") from error
        warnings = tuple(f"Propensities (trust): {note}." for note in estimate.notes)
        if not estimate.has_trust_bias:
            warnings = (*warnings, estimate.sentence)
            estimate = replace(estimate, origin=0.0)  # no clicks by chance are subtracted
        return PropensitySource(estimate, "estimated with trust bias", warnings=warnings)

    def _by_features(self, *doubts: str) -> PropensitySource:
        counts, features = self.matched.with_features()
        settings: dict[str, Any] = {
            "features": features, "n_bootstrap": FEW_BOOTSTRAP, "confidence": self.confidence,
            "depth": self.options.depth, "rng": self.rng,
        }  # fmt: skip
        if not self.is_checked:
            curve, _ = resample(counts, method="regression-em", **settings)
            return _estimated(curve, None, *doubts)
        checked = cross_check(counts, **settings)
        if "regression-em" not in checked.estimates:
            raise DataError(checked.unsupported["regression-em"])
        return _estimated(checked.estimates["regression-em"], checked, *doubts)


def _query_draws(
    whole: PositionCounts, part: PositionCounts, rng: np.random.Generator
) -> QueryDraws:
    """Return draws of the queries of a log, with weights for those that a part of it has."""
    is_drawn = np.bincount(whole.query, minlength=len(whole.query_ids)) > 0
    index = None if part is whole else np.searchsorted(whole.query_ids, part.query_ids)
    return QueryDraws(is_drawn, N_DRAWS, int(rng.integers(2**63)), index)


def _given(given: Examinable) -> PropensitySource:
    return PropensitySource(
        given,
        _GIVEN,
        curve=given if isinstance(given, Propensities) else None,
        contexts=given if isinstance(given, ContextPropensities) else None,
    )


def _logged(impressions: Impressions, matched: Matched) -> PropensitySource:
    try:
        own = impressions.logged_propensities(matched.counts)
    except DataError as error:
        raise DataError(f"{error} (--propensity-method all-pairs)") from error
    return PropensitySource(own, "the log's own column 'propensity'")


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
