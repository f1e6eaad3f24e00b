"""``countersample log``: raw logs of impressions, checked."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 (typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countersample.cli import _show, days, drift
from countersample.cli._options import (
    Columns,
    Context,
    Engine,
    JoinQueries,
    Json,
    Master,
    MemoryLimit,
    PositionsFrom,
    Randomized,
    Reader,
    Suspicious,
    TempDir,
    Values,
    parse_columns,
    parse_names,
    parse_values,
)
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from countersample.clicks.impressions import Impressions, LogCheck, PositionCounts
    from countersample.propensity import Support

app = typer.Typer(help="Raw logs: what was shown where, and clicked.", no_args_is_help=True)

LOG_HELP = (
    "The log: Parquet, CSV, TSV or JSON lines (compressed too): a file, a folder, a 'glob*'; or a "
    "folder with ubi_queries and ubi_events, or of counts (log count)."
)
_SHOWN = 20  # positions in the terminal; the picture and the JSON have all
_BAR_WIDTH = 30
_CONTEXTS = 6
_NEEDS_FEATURES = "it needs the features of items, which fit is given"


app.command()(days.count)
app.command()(days.forget)


@app.command()
def check(
    path: Annotated[
        str,
        typer.Argument(help=LOG_HELP),
    ],
    *,
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
    randomized: Randomized = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw click rates by position into this .png, .svg or .pdf."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="An earlier log, or counts: say what changed, and exit with 3 if anything did."
        ),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="With --against: compare features of what was shown, too.")
    ] = None,
    features_before: Annotated[
        Path | None,
        typer.Option(help="The features that the earlier log's items had, where they were others."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="With --against: write what changed as a page (.html).")
    ] = None,
    json: Json = False,
) -> None:
    """Validate and describe a raw log, and say which propensities it can give."""
    of_log: dict[str, Any] = {
        "reader": reader, "columns": columns, "context": context, "values": values,
        "join_queries": join_queries, "positions_from": positions_from, "suspicious": suspicious,
        "engine": engine, "master": master, "memory_limit": memory_limit, "temp_dir": temp_dir,
    }  # fmt: skip
    if against is not None:
        _refuse_beside("--against", {"--plot": plot, "--randomized": randomized})
        drift.check_drift(path, against, features, features_before, report, of_log, json=json)
        return
    _refuse_without(
        "--against",
        {"--features": features, "--features-before": features_before, "--report": report},
    )
    with open_log(path, **of_log) as log:
        found = log.check(randomized=randomized)
        supports = _supports(log, found, declared=randomized is not None)
    if plot is not None:
        from countersample.pages.drawing import new_axes, save_picture
        from countersample.plotting import plot_click_rates

        figure, axes = new_axes(8, 4.5)
        plot_click_rates(found.counts, ax=axes)
        save_picture(figure, plot)
    if json:
        answers = [asdict(support) for support in supports]
        _show.as_json({**found.to_dict(), "propensities": answers})
    else:
        _show_check(found, supports)
        if plot is not None:
            _show.line(f"The click rates are drawn in {plot}")


def _refuse_beside(option: str, others: dict[str, object]) -> None:
    for name, value in others.items():
        if value is not None:
            raise ParameterError(f"{name} is for a log alone, not beside {option}: leave it out")


def _refuse_without(option: str, others: dict[str, object]) -> None:
    for name, value in others.items():
        if value is not None:
            raise ParameterError(f"{name} is for comparing two logs: name the other with {option}")


def open_log(
    path: str,
    *,
    columns: str | None,
    context: str | None,
    values: str | None,
    **settings: Any,  # noqa: ANN401 (fields of LogOptions)
) -> Impressions:
    """Open a log as the options of a command say."""
    from countersample.clicks.impressions import read_impressions

    return read_impressions(
        path,
        columns=parse_columns(columns),
        context=parse_names(context),
        values=parse_values(values),
        **settings,
    )


def _supports(log: Impressions, found: LogCheck, *, declared: bool) -> list[Support]:
    """Ask what estimation would answer, of the shuffled rows where the log says which they are."""
    from countersample.clicks.impressions.tallying import tally
    from countersample.propensity import supported

    answers = supported(found.counts)
    if found.shuffled:
        _, shuffled, _ = tally(log.of_policy(*found.shuffled))
        if shuffled is not None:
            answers["randomized"] = supported(shuffled, declared=declared)["randomized"]
    return list(answers.values())


def _show_check(found: LogCheck, supports: list[Support]) -> None:
    counts, problems = found.counts, found.problems
    share = 100 * found.n_moved / found.n_pairs
    rows = [
        ("rows", f"{problems.n_rows:,}, of which {problems.n_invalid:,} impossible"),
        ("impressions", f"{counts.n_impressions:,}"),
        ("clicks", f"{counts.n_clicks:,}, {100 * counts.n_clicks / counts.n_impressions:.2f} %"),
        ("sessions", _sessions_text(found)),
        ("queries", f"{len(counts.query_ids):,}"),
        ("items", f"{found.n_items:,}"),
        ("query-item pairs", f"{found.n_pairs:,}, {share:.1f} % of them seen at several positions"),
    ]
    if counts.has_contexts:
        rows.append(("contexts", _contexts_text(counts)))
    if (counts.value != counts.clicks).any():
        rows.append(("value of the clicks", f"{counts.value.sum():,.6g}"))
    if found.suspicious is not None:
        rows.append(("duplicates", f"{found.suspicious.duplicates:,}"))
        rows.append(("sessions that clicked all", f"{found.suspicious.sessions:,}"))
    if found.policies is not None:
        served = ", ".join(f"{name} ({count:,} rows)" for name, count in found.policies.items())
        rows.append(("policies", served))
    if found.n_mixed:
        rows.append(("interleaved", f"{found.n_mixed:,} sessions show items of several policies"))
    _show.line(f"{found.source} ({found.engine})")
    _show.pairs(rows)
    from countersample.propensity.methods import needs_features

    _show_rates(found)
    _show.line("  propensities that this log can give")
    for support in supports:
        _show.line(f"    {'yes' if support.is_supported else 'no '}  {support.method}")
        why = f"down to position {support.depth}"
        if support.reason is not None:
            why = _NEEDS_FEATURES if needs_features(support.method) else support.reason
        elif support.method == "randomized" and found.shuffled:
            why += f", from the rows of {' and '.join(found.shuffled)}"
        _show.line(textwrap.fill(f"{why}.", 92, initial_indent=" " * 9,
                                 subsequent_indent=" " * 9))  # fmt: skip
    for warning in found.warnings:
        _show.paragraph(f"Warning: {warning}")


def _sessions_text(found: LogCheck) -> str:
    if found.n_sessions is not None:
        return f"{found.n_sessions:,}"
    return "not known" if "session" in found.columns else "not logged"


def _contexts_text(counts: PositionCounts) -> str:
    import numpy as np

    shown = np.bincount(counts.context, counts.impressions, len(counts.context_ids))
    order = np.argsort(-shown, kind="stable")
    told = [f"{counts.context_ids[k]} ({shown[k]:,.0f} impressions)" for k in order[:_CONTEXTS]]
    more = len(order) - _CONTEXTS
    return ", ".join(told + ([f"and {more:,} more"] if more > 0 else []))


def _show_rates(found: LogCheck) -> None:
    positions, impressions, clicks = found.counts.by_position
    rates = clicks / impressions
    _show.line("  click rate by position")
    highest = max(rates[:_SHOWN].max(), 1e-12)
    for position, rate, total in zip(positions[:_SHOWN], rates, impressions, strict=False):
        bar = "█" * round(_BAR_WIDTH * rate / highest) or ("▏" if rate else "")
        _show.line(
            f"    {position:>4}  {bar:<{_BAR_WIDTH}}  {100 * rate:6.2f} % of {total:,} impressions"
        )
    if len(positions) > _SHOWN:
        _show.line(f"    and {len(positions) - _SHOWN:,} more positions")
