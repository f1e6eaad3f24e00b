"""``countersample propensity``: how likely each position of a raw log is examined."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads it)
from typing import TYPE_CHECKING, Annotated

import typer

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._options import (  # noqa: TC001 (typer reads them)
    Columns,
    Context,
    Depth,
    Engine,
    JoinQueries,
    Json,
    Master,
    MemoryLimit,
    Missing,
    PositionsFrom,
    PropensityMethod,
    Randomized,
    Reader,
    Seed,
    Suspicious,
    TempDir,
    Values,
)
from countersample.cli.logs import LOG_HELP, open_log

if TYPE_CHECKING:
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.propensity import CrossCheck, Propensities, TrustPropensities

_SHOWN = 20  # positions in the terminal; the file and the JSON have all


def propensity(
    log: Annotated[str, typer.Argument(help=LOG_HELP)],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Save them (.json): fit --propensities reads that."),
    ] = None,
    propensity_method: PropensityMethod = "auto",
    features: Annotated[
        Path | None,
        typer.Option(help="The features of items, by query_id and item_id: for regression-em."),
    ] = None,
    randomized: Randomized = None,
    depth: Depth = None,
    reader: Reader = None,
    columns: Columns = None,
    context: Context = None,
    values: Values = None,
    join_queries: JoinQueries = False,
    positions_from: PositionsFrom = 1,
    suspicious: Suspicious = "keep",
    engine: Engine = None,
    master: Master = None,
    memory_limit: MemoryLimit = None,
    temp_dir: TempDir = None,
    missing: Missing = "error",
    plot: Annotated[
        Path | None, typer.Option(help="Draw the curves into this .png, .svg or .pdf.")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Estimate how likely each position is examined, by all methods that the log supports."""
    import numpy as np

    from countersample.clicks.impressions import read_features
    from countersample.errors import DataError, ParameterError
    from countersample.fitting.setting_up import propensities_of
    from countersample.options import PropensityOptions

    if plot is not None and propensity_method == "trust":
        raise ParameterError("--plot draws examination alone, and trust is more: leave it out")
    for path in (out, plot):
        if path is not None:
            check_writable(path)
    options = PropensityOptions(
        method=propensity_method, randomized=randomized, depth=depth, missing=missing
    )  # type: ignore[arg-type]
    table = None if features is None else read_features(features, join_queries=join_queries)
    with open_log(
        log, reader=reader, columns=columns, context=context, values=values,
        join_queries=join_queries, positions_from=positions_from, suspicious=suspicious,
        engine=engine, master=master, memory_limit=memory_limit, temp_dir=temp_dir,
    ) as opened:  # fmt: skip
        check, found = propensities_of(opened, table, options, rng=np.random.default_rng(seed))
    estimated = found.trust or found.contexts or found.curve
    if estimated is None:
        raise DataError(f"{log}: its propensities are {found.source}, and nothing was estimated")
    if out is not None:
        estimated.save(out)
    if plot is not None:
        _draw(found, plot)
    warnings = (*check.warnings, *found.warnings)
    if json:
        _show.as_json({"out": None if out is None else str(out), **found.to_dict(),
                       "warnings": list(warnings)})  # fmt: skip
        return
    _show_found(found)
    for warning in warnings:
        _show.paragraph(f"Warning: {warning}")
    if out is not None:
        _show.line(
            f"The propensities are in {out}; use them with: countersample fit --propensities {out}"
        )


def _draw(found: PropensitySource, path: Path) -> None:
    from countersample.pages.drawing import new_axes, save_picture
    from countersample.plotting import plot_propensities

    curves = found.curves if found.cross_check is None else found.cross_check.estimates
    figure, axes = new_axes(8, 4.5)
    plot_propensities(curves, log=True, ax=axes)
    save_picture(figure, path)


def _show_found(found: PropensitySource) -> None:
    from countersample.propensity.methods import needs_features

    _show.line(f"{found.source[0].upper()}{found.source[1:]}.")
    _show.line()
    if found.trust is not None:
        _show_trust(found.trust)
    for context, curve in found.curves.items():
        _show_curve(curve, found.cross_check, context)
    if found.cross_check is not None:
        if found.cross_check.is_agreed:  # else it is among the warnings
            _show.paragraph(found.cross_check.sentence)
        for name, why in found.cross_check.unsupported.items():
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


def _show_trust(found: TrustPropensities) -> None:
    """Print α and β by position."""
    rows = [
        [f"{k + 1}", f"{found.alpha[k]:.4g}",
         f"{found.alpha_low[k]:.4g} to {found.alpha_high[k]:.4g}", f"{found.beta[k]:.4g}",
         f"{found.beta_low[k]:.4g} to {found.beta_high[k]:.4g}", f"{found.n_impressions[k]:,}"]
        for k in range(min(len(found.alpha), _SHOWN))
    ]  # fmt: skip
    within = f"{found.confidence:.0%} interval"
    _show.table(["position", "α", within, "β", within, "impressions"], rows)
    _show_rest(len(found.alpha))
    if found.has_trust_bias:  # else it is among the warnings
        _show.paragraph(found.sentence)


def _show_rest(n_positions: int) -> None:
    if n_positions > _SHOWN:
        _show.line(f"and {n_positions - _SHOWN:,} more positions")
    _show.line()
