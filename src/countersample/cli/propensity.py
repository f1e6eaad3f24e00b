"""``countersample propensity``: the probability that each position of a raw log is examined."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (cyclopts reads it)
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._options import (
    LOG_OPTIONS,
    OUTPUT,
    PROPENSITY_OPTIONS,
    Features,
    Json,
    OptionalOut,
    Seed,
)
from countersample.options import (
    CONFIDENCE,
    LogOptions,
    PropensityOptions,
)

if TYPE_CHECKING:
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.propensity import CrossCheck, Propensities, TrustPropensities

_SHOWN = 20  # positions in the terminal; the file and the JSON have all


def propensity(
    log: str,
    /,
    *,
    out: OptionalOut = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    json: Json = False,
    features: Features = None,
    propensities: PropensityOptions = PROPENSITY_OPTIONS,
    confidence: float = CONFIDENCE,
    log_options: LogOptions = LOG_OPTIONS,
    seed: Seed = 0,
) -> None:
    """Estimate position bias, and compare all estimators that the log supports.

    Parameters
    ----------
    log
        The log, in any form that fit reads.
    out
        Save the propensities (.json), which fit --propensities reads.
    plot
        Draw the curves into this .png, .svg or .pdf.
    confidence
        The confidence level of the intervals.
    """
    import numpy as np

    from countersample.clicks.impressions import read_features, read_impressions
    from countersample.errors import DataError, ParameterError
    from countersample.fitting.setting_up import propensities_of

    if plot is not None and propensities.method == "trust":
        raise ParameterError("--plot draws examination alone, and trust is more: leave it out")
    for path in (out, plot):
        if path is not None:
            check_writable(path)
    join_queries = log_options.join_queries
    table = None if features is None else read_features(features, join_queries=join_queries)
    with read_impressions(log, log_options) as opened:
        check, source = propensities_of(
            opened, table, propensities, confidence=confidence, rng=np.random.default_rng(seed)
        )
    estimate = source.trust or source.contexts or source.curve
    if estimate is None or not propensities.is_estimated:
        raise DataError(f"{log}: its propensities are {source.source}, and nothing was estimated")
    if out is not None:
        estimate.save(out)
    if plot is not None:
        _draw(source, plot)
    warnings = (*check.warnings, *source.warnings)
    if json:
        _show.as_json({"out": None if out is None else str(out), **source.to_dict(),
                       "warnings": list(warnings)})  # fmt: skip
        return
    _show_result(source)
    _show.warnings(warnings)
    if out is not None:
        _show.line(
            f"The propensities are in {out}; use them with: countersample fit --propensities {out}"
        )


def _draw(result: PropensitySource, path: Path) -> None:
    from countersample.pages.drawing import new_axes, save_picture
    from countersample.plotting import plot_propensities

    curves = result.curves if result.cross_check is None else result.cross_check.estimates
    figure, axes = new_axes(8, 4.5)
    plot_propensities(curves, log=True, ax=axes)
    save_picture(figure, path)


def _show_result(result: PropensitySource) -> None:
    from countersample.propensity.methods import needs_features

    _show.line(f"{result.source[0].upper()}{result.source[1:]}.")
    _show.line()
    if result.trust is not None:
        _show_trust(result.trust)
    for context, curve in result.curves.items():
        _show_curve(curve, result.cross_check, context)
    if result.cross_check is not None:
        if result.cross_check.is_agreed:  # else it is among the warnings
            _show.paragraph(result.cross_check.sentence)
        for name, why in result.cross_check.unsupported.items():
            reason = "it needs the features of items (--features)" if needs_features(name) else why
            _show.paragraph(f"Not supported is {name}: {reason}.")


def _show_curve(curve: Propensities, checked: CrossCheck | None, context: str) -> None:
    """Print a curve, and beside it what other methods say."""
    others = {} if checked is None else dict(checked.estimates)
    others.pop(curve.method, None)
    rows = [
        [f"{k + 1}", f"{curve.value[k]:.4g}", f"{curve.low[k]:.4g} to {curve.high[k]:.4g}",
         f"{curve.n_impressions[k]:,}",
         *(f"{other.value[k]:.4g}" if k < len(other.value) else "" for other in others.values())]
        for k in range(min(len(curve.value), _SHOWN))
    ]  # fmt: skip
    first = f"{context}: position" if context else "position"
    _show.table(
        [first, curve.method, f"{curve.confidence:.0%} interval", "impressions", *others], rows
    )
    _show_rest(len(curve.value))


def _show_trust(result: TrustPropensities) -> None:
    """Print α and β by position."""
    rows = [
        [f"{k + 1}", f"{result.alpha[k]:.4g}",
         f"{result.alpha_low[k]:.4g} to {result.alpha_high[k]:.4g}", f"{result.beta[k]:.4g}",
         f"{result.beta_low[k]:.4g} to {result.beta_high[k]:.4g}", f"{result.n_impressions[k]:,}"]
        for k in range(min(len(result.alpha), _SHOWN))
    ]  # fmt: skip
    within = f"{result.confidence:.0%} interval"
    _show.table(["position", "α", within, "β", within, "impressions"], rows)
    _show_rest(len(result.alpha))
    if result.has_trust_bias:  # else it is among the warnings
        _show.paragraph(result.sentence)


def _show_rest(n_positions: int) -> None:
    if n_positions > _SHOWN:
        _show.line(f"and {n_positions - _SHOWN:,} more positions")
    _show.line()
