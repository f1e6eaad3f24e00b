"""Find the propensities of a log: known, in its own column, or estimated and cross-checked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import PositionBias
from countersample.errors import DataError, ParameterError
from countersample.fitting.propensity_draws import N_DRAWS, PropensityDraws
from countersample.fitting.summaries import merge_numbers, render_summary
from countersample.logs import RowPropensities
from countersample.logs.counts import NO_CONTEXT, list_names
from countersample.logs.days import weighted
from countersample.pages.charts import new_axes, save_picture
from countersample.plotting import plot_propensities
from countersample.propensity import (
    METHODS,
    ContextPropensities,
    Propensities,
    TrustPropensities,
    cross_check,
    estimate_trust,
    load_propensities,
    supported,
)
from countersample.propensity.cells import QueryDraws
from countersample.propensity.contexts import resample_by_context
from countersample.propensity.curves import TRUST
from countersample.propensity.estimation import needs_features, resample

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from numpy.typing import NDArray

    from countersample.logs import Impressions, PositionCounts
    from countersample.logs.joins import Examinable
    from countersample.options import PropensityOptions
    from countersample.propensity import CrossCheck

    WithFeatures = Callable[[], tuple[PositionCounts, NDArray[np.float32]]]

LOGGED = "logged"  # the method that takes the log's own column
KNOWN = "given"  # the source of propensities that the options give
N_BOOTSTRAP = 200
FEW_BOOTSTRAP = 50  # for cross-checks, and for regression-em, which fits a regression per draw
_REMEDY = (
    "estimate them from a longer log (countersample propensity LOG -o p.json) and give them "
    "(--propensities p.json), assume a curve (--gamma 1.0), or shuffle the results of a small "
    "share of the traffic"
)


@dataclass(frozen=True, eq=False)
class PropensitySource:
    """The probability that each position is examined, and where it comes from."""

    propensities: Examinable
    source: str
    """Where they come from, in words."""
    cross_check: CrossCheck | None = None
    """The estimates of all methods, if propensities are estimated."""
    draws: PropensityDraws | None = None
    """Estimates from resampled logs, for intervals."""
    warnings: tuple[str, ...] = ()
    is_identified: bool = True
    """Whether the log identifies the propensities without a model of relevance."""

    @property
    def curve(self) -> Propensities | None:
        """The estimate, if there is one curve for all contexts."""
        return self.propensities if isinstance(self.propensities, Propensities) else None

    @property
    def contexts(self) -> ContextPropensities | None:
        """The estimate per context, if the log has contexts."""
        return self.propensities if isinstance(self.propensities, ContextPropensities) else None

    @property
    def trust(self) -> TrustPropensities | None:
        """The estimate with trust bias, if it is one."""
        return self.propensities if isinstance(self.propensities, TrustPropensities) else None

    @property
    def method(self) -> str:
        """The method of estimated propensities, or the source."""
        return self.source.removeprefix("estimated by ")

    @property
    def exposure(self) -> str | None:
        """How the log's own propensities are used, whatever the options are; otherwise None."""
        return "as logged" if isinstance(self.propensities, RowPropensities) else None

    @property
    def curves(self) -> dict[str, Propensities]:
        """The estimates by context, which is ``""`` if there is one for all."""
        if self.contexts is not None:
            return self.contexts.curves
        return {} if self.curve is None else {NO_CONTEXT: self.curve}

    def without_half_life(self, log: Impressions, counts: PositionCounts) -> Examinable:
        """Return the propensities for counts of a log in which every day counts the same.

        The log's own propensities are means over the impressions of a row, weighted by age.
        """
        is_logged = self.source != KNOWN and isinstance(self.propensities, RowPropensities)
        if not is_logged or log.half_life is None:
            return self.propensities
        return replace(log, half_life=None).logged_propensities(counts)

    def at_ends(self) -> list[Examinable]:
        """Return all estimates at the lower, and at the upper, ends of their intervals.

        Empty if there are no estimates, or if one of the lower ends is 0.
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        estimates = {
            name: getattr(self, name) for name in ("curve", "contexts", "trust", "cross_check")
        }
        return {"source": self.source} | {
            name: None if each is None else each.to_dict() for name, each in estimates.items()
        }

    def summary(self) -> str:
        """Return the curves beside the estimates of other methods, for a terminal."""
        check = self.cross_check
        reasons = {} if check is None else dict(check.unsupported)
        for name in filter(needs_features, reasons):
            reasons[name] = "it needs the features of items (--features)"
        return render_summary("propensities.txt", source=self, check=check, unsupported=reasons)

    def draw(self, path: str | PathLike[str]) -> None:
        """Draw the curves of all methods as PNG, SVG or PDF, on a logarithmic scale."""
        curves = self.curves if self.cross_check is None else self.cross_check.estimates
        figure, axes = new_axes(8, 4.5)
        plot_propensities(curves, log=True, ax=axes)
        save_picture(figure, path)


def find_propensities(
    impressions: Impressions,
    counts: PositionCounts,
    options: PropensityOptions,
    *,
    with_features: WithFeatures | None = None,
    confidence: float,
    rng: np.random.Generator,
    is_checked: bool = True,
) -> PropensitySource:
    """Return the propensities that weight the clicks of a log.

    `with_features` returns the counts of items with features, and the features, for regression-em.
    With `is_checked`, the estimates of all methods are compared.
    """
    known: Examinable | None = options.known
    if options.gamma is not None:
        known = PositionBias(options.gamma)
    elif options.file is not None:
        known = load_propensities(options.file)
    if known is not None:
        return PropensitySource(known, KNOWN)
    method, randomized = options.method, options.randomized
    if method == TRUST and impressions.half_life is not None:
        raise ParameterError(
            f"method is {method!r}, which needs whole numbers of clicks, and half_life "
            "(--half-life) weights them: name another method, or leave the half-life out"
        )
    has_column = "propensity" in impressions.columns
    if method == LOGGED or (method == "auto" and has_column and randomized is None):
        try:
            logged = impressions.logged_propensities(counts)
        except DataError as error:
            raise DataError(f"{error} (--propensity-method all-pairs)") from error
        return PropensitySource(logged, "the log's own column 'propensity'")
    part = counts
    if randomized is not None:
        shuffled = impressions.of_policy(randomized)
        part = weighted(shuffled, shuffled.check().counts)
    estimation = _Estimation(options, counts, with_features, confidence, rng, is_checked)
    return estimation.estimate(part)


@dataclass(frozen=True, eq=False)
class _Estimation:
    """One estimation of propensities: the options, the log and the random numbers."""

    options: PropensityOptions
    whole: PositionCounts
    with_features: WithFeatures | None
    confidence: float
    rng: np.random.Generator
    is_checked: bool  # whether the result is compared with other methods

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that all estimators share."""
        return {"confidence": self.confidence, "depth": self.options.depth, "rng": self.rng}

    def estimate(self, counts: PositionCounts) -> PropensitySource:
        """Estimate from the counts of the whole log, or of its randomized share."""
        method, depth, is_whole = self.options.method, self.options.depth, counts is self.whole
        if method == TRUST:
            return self._with_trust(counts)
        # The share is declared shuffled: the method randomized accepts it unless the data disagree.
        declared: dict[str, Any] = {}
        if not is_whole and method in {"auto", "randomized"}:
            declared["declared"] = True
        if counts.has_contexts:
            return self._by_context(counts, declared)
        if method == "regression-em":
            support = supported(counts, depth=depth)
            is_identified = any(support[name].is_supported for name in METHODS)
            return self._by_features(is_identified=is_identified)
        queries = self._draw_queries(counts)
        try:
            curve, curves = resample(
                counts, method=method, n_bootstrap=N_BOOTSTRAP, draws=queries, **declared,
                **self.settings,
            )  # fmt: skip
        except DataError as error:
            if method != "auto" or not is_whole:
                raise DataError(f"{error}; {_REMEDY}") from error
            doubt = (
                f"This log alone does not identify the propensities: {error}. The curve comes "
                "from regression-em: it is right only if the features predict how relevant items "
                "are and do not predict where they were shown. Propensities from a longer log "
                "(--propensities) avoid this."
            )
            try:
                return self._by_features(doubt, is_identified=False)
            except DataError:
                raise DataError(f"{error}; {_REMEDY}") from error
        check = None
        if self.is_checked:
            with suppress(DataError):  # a declared share has no other method to compare with
                check = cross_check(counts, n_bootstrap=FEW_BOOTSTRAP, depth=depth, rng=self.rng)
        draws = PropensityDraws(replace(queries, index=None), {NO_CONTEXT: curves})
        return replace(_from_curve(curve, check), draws=draws)

    def _draw_queries(self, part: PositionCounts) -> QueryDraws:
        """Return draws of the queries of the log, with weights for those in a part of it."""
        whole = self.whole
        is_drawn = np.bincount(whole.query, minlength=len(whole.query_ids)) > 0
        index = None if part is whole else np.searchsorted(whole.query_ids, part.query_ids)
        return QueryDraws(is_drawn, N_DRAWS, int(self.rng.integers(2**63)), index)

    def _read_features(self) -> tuple[PositionCounts, NDArray[np.float32]]:
        if self.with_features is None:
            raise DataError("regression-em needs the features of items: give them (--features)")
        return self.with_features()

    def _by_context(self, counts: PositionCounts, declared: dict[str, Any]) -> PropensitySource:
        method = self.options.method
        settings: dict[str, Any] = {"n_bootstrap": N_BOOTSTRAP, **declared, **self.settings}
        queries = None
        if method == "regression-em":
            counts, settings["features"] = self._read_features()
            settings["n_bootstrap"] = FEW_BOOTSTRAP
        else:
            queries = self._draw_queries(counts)
        try:
            estimate, curves = resample_by_context(counts, method=method, draws=queries, **settings)
        except DataError as error:
            raise DataError(f"{error}; {_REMEDY}, or leave out the contexts") from error
        methods = sorted({curve.method for curve in estimate.curves.values()})
        source = f"estimated by {' and '.join(methods)} in each of {len(estimate.curves)} contexts"
        notes = [note.partition(": ") for note in estimate.notes]
        warnings = tuple(
            f"Propensities in {list_names([notes[place][0] for place in places])}: {text}."
            for text, places in merge_numbers([text for _, _, text in notes])
        )
        draws = None if queries is None else PropensityDraws(replace(queries, index=None), curves)
        return PropensitySource(estimate, source, draws=draws, warnings=warnings)

    def _with_trust(self, counts: PositionCounts) -> PropensitySource:
        try:
            estimate = estimate_trust(counts, n_bootstrap=N_BOOTSTRAP, **self.settings)
        except DataError as error:
            raise DataError(f"{error}; {_REMEDY}") from error
        warnings = tuple(f"Propensities (trust): {note}." for note in estimate.notes)
        if not estimate.has_trust_bias:
            warnings = (*warnings, estimate.sentence)
            estimate = replace(estimate, origin=0.0)  # no clicks by chance are subtracted
        return PropensitySource(estimate, "estimated with trust bias", warnings=warnings)

    def _by_features(self, *doubts: str, is_identified: bool) -> PropensitySource:
        counts, features = self._read_features()
        settings = {"features": features, "n_bootstrap": FEW_BOOTSTRAP, **self.settings}
        check = None
        if self.is_checked:
            check = cross_check(counts, **settings)
            if "regression-em" not in check.estimates:
                raise DataError(check.unsupported["regression-em"])
            curve = check.estimates["regression-em"]
        else:
            curve, _ = resample(counts, method="regression-em", **settings)
        return replace(_from_curve(curve, check, *doubts), is_identified=is_identified)


def _from_curve(curve: Propensities, check: CrossCheck | None, *doubts: str) -> PropensitySource:
    warnings = list(doubts)
    if check is not None and not check.is_agreed:
        warnings.append(f"The curve of propensities is in doubt. {check.sentence}")
    warnings += [
        f"Propensities ({curve.method}): {note}." for note, _ in merge_numbers(curve.notes)
    ]
    return PropensitySource(curve, f"estimated by {curve.method}", check, warnings=tuple(warnings))
