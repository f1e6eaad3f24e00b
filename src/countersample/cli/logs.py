"""``countersample log``: raw logs checked, counted and sampled."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._options import (
    BIAS,
    DRIFT,
    FEATURES,
    LOG_OPTIONS,
    OUTPUT,
    Features,
    Json,
    Out,
    Seed,
)
from countersample.cli.app import command_line
from countersample.errors import DataError, ParameterError
from countersample.options import CONFIDENCE, LogOptions

if TYPE_CHECKING:
    from countersample.clicks import ClickLog
    from countersample.clicks.impressions import Impressions, LogCheck, PositionCounts
    from countersample.fitting import Change, Drift
    from countersample.propensity import Support

_SHOWN = 20  # positions in the terminal; the picture and the JSON have all
_BAR_WIDTH = 30
_CONTEXTS = 6
_NEEDS_FEATURES = "it needs the features of items, which fit is given"
NEAREST_TESTS = 5  # that are shown if nothing changed


def check(
    log: str,
    /,
    *,
    against: str | None = None,
    features: Features = None,
    features_before: Annotated[Path | None, Parameter(group=FEATURES)] = None,
    randomized: Annotated[str | None, Parameter(group=BIAS)] = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    report: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    json: Json = False,
    log_options: LogOptions = LOG_OPTIONS,
) -> int | None:
    """Validate and describe a raw log, or a click log, and list what can be estimated from it.

    Parameters
    ----------
    log
        The log, in any form that fit reads, or a click log that simulate wrote.
    against
        An earlier log: report what changed since, and exit with 3 if anything did.
    features_before
        With --against: the features of the earlier log's items, if they differ.
    randomized
        The policy whose results were shuffled.
    plot
        Draw click rates by position into this .png, .svg or .pdf.
    report
        With --against: write what changed as a page (.html).
    """
    if against is not None:
        _reject({"--plot": plot, "--randomized": randomized}, "for a log alone, not for --against")
        return _check_drift(log, against, log_options, features, features_before, report, json=json)
    _reject(
        {"--features": features, "--features-before": features_before, "--report": report},
        "for comparing two logs: name the other with --against, or leave it out",
    )
    clicks = _click_log(log)
    if clicks is not None:
        _check_clicks(log, clicks, json=json)
        return None
    from countersample.clicks.impressions import read_impressions

    with read_impressions(log, log_options) as opened:
        result = opened.check(randomized=randomized)
        supports = _supports(opened, result, declared=randomized is not None)
    if plot is not None:
        from countersample.pages.drawing import new_axes, save_picture
        from countersample.plotting import plot_click_rates

        figure, axes = new_axes(8, 4.5)
        plot_click_rates(result.counts, ax=axes)
        save_picture(figure, plot)
    if json:
        answers = [asdict(support) for support in supports]
        _show.as_json({**result.to_dict(), "propensities": answers})
    else:
        _show_check(result, supports)
        if plot is not None:
            _show.line(f"The click rates are drawn in {plot}")
    return None


def _reject(options: dict[str, object], reason: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ParameterError(f"{name} is {reason}")


def sample(
    log: str,
    /,
    *,
    queries: int,
    out: Out,
    log_options: LogOptions = LOG_OPTIONS,
    seed: Seed = 0,
) -> None:
    """Write all rows of some queries, drawn at random: click weights stay as they are.

    Parameters
    ----------
    log
        The log, in any form that fit reads.
    queries
        The number of queries.
    out
        The log to write (.parquet).
    """
    from countersample.clicks.impressions import read_impressions

    if out.suffix != ".parquet":
        raise ParameterError(f"--out is {out}, expected a name that ends with .parquet")
    check_writable(out)
    with read_impressions(log, log_options) as opened:
        n_rows = opened.sample_queries(queries, seed=seed).write(out)
    _show.line(f"{n_rows:,} rows, all of at most {queries:,} queries, are in {out}")


def count(
    log: str,
    /,
    *,
    out: Out,
    day: str | None = None,
    replace_days: Annotated[bool, Parameter(name="--replace")] = False,
    missing: Literal["error", "skip"] = "error",
    json: Json = False,
    log_options: LogOptions = LOG_OPTIONS,
) -> None:
    """Aggregate a log by day: Parquet that every command reads as a log.

    Parameters
    ----------
    log
        The log of a day, or of several days.
    out
        The folder of the aggregated log, with one folder per day.
    day
        The day of a log without timestamps: 2026-03-31.
    replace_days
        Replace days that exist.
    missing
        Rows that are impossible: raise an error, or skip them.
    """
    from countersample.clicks.impressions import count_days, read_impressions

    with read_impressions(log, log_options) as opened:
        days = count_days(
            opened, out, day=day, replace=replace_days, skip_impossible=missing == "skip"
        )
    if json:
        _show.as_json(
            {"out": str(out), "days": [{**asdict(each), "day": str(each.day)} for each in days]}
        )
        return
    _show.table(
        ("day", "impressions", "clicks", "sessions", "size"),
        [
            (
                str(each.day),
                f"{each.n_impressions:,}",
                f"{each.n_clicks:,}",
                "not logged" if each.n_sessions is None else f"{each.n_sessions:,}",
                _show.size(each.n_bytes),
            )
            for each in days
        ],
    )
    for each in days:
        _show.warnings(f"{each.day}: {warning}" for warning in each.warnings)
    _show.line(f"The aggregated log is in {out}")


def _click_log(path: str) -> ClickLog | None:
    """Return the click log in a file, if it is one."""
    from countersample import ClickLog

    if not path.endswith(".parquet") or not Path(path).is_file():
        return None
    try:
        return ClickLog.load(path)
    except DataError:
        return None


def _check_clicks(path: str, clicks: ClickLog, *, json: bool) -> None:
    """Describe the weights of a click log, and what they mean for training."""
    from countersample.clicks import diagnose

    result = diagnose(clicks)
    if json:
        _show.as_json(result.to_dict())
        return
    _show.line(path)
    _show.pairs(
        [
            ("clicks", f"{result.n_clicks:,.0f}"),
            ("queries", f"{result.n_queries:,}"),
            ("query-item pairs", f"{result.n_pairs:,}"),
            ("largest weight M", f"{result.max_weight:,.2f}"),
            ("mean weight M̄", f"{result.mean_weight:,.2f}"),
            ("M / M̄", f"{result.max_weight / result.mean_weight:,.1f}"),
            (
                "effective clicks",
                f"{result.effective_clicks:,.0f} of equal weight would vary as much",
            ),
            (
                "predicted gain",
                f"(M/M̄)² = {result.predicted_gain:,.0f} times fewer steps than ips, by the bounds",
            ),
            ("top 1 % of clicks", f"have {100 * result.top_share:.1f} % of the weight"),
        ]
    )
    _show.line("  clicks by weight")
    _show.bars((f"{low:,.0f} … {high:,.0f}", round(count)) for low, high, count in result.histogram)
    _show.paragraph(result.verdict)


def _check_drift(
    path: str,
    against: str,
    options: LogOptions,
    features: Path | None,
    features_before: Path | None,
    report: Path | None,
    *,
    json: bool,
) -> int | None:
    """Compare two logs, print what changed, and return 3 if anything did."""
    from countersample.clicks.impressions import read_features, read_impressions
    from countersample.fitting import find_drift, write_drift_page

    if features is None and features_before is not None:
        raise ParameterError("--features-before is given without --features, expected both")
    if report is not None:
        check_writable(report)
    before = table = encoder = None
    if features_before is not None:
        before = read_features(features_before, join_queries=options.join_queries)
        encoder = before.encoder  # columns are read alike, or a new value would be another feature
    if features is not None:
        table = read_features(features, encoder=encoder, join_queries=options.join_queries)
    with (
        read_impressions(path, _options_for(path, against, options)) as after,
        read_impressions(against, _options_for(against, path, options)) as earlier,
    ):
        result = find_drift(after, earlier, features=table, features_before=before)
    if report is not None:
        write_drift_page(report, result, command=command_line())
    if json:
        _show.as_json(result.to_dict())
    else:
        _show_drift(result)
        if report is not None:
            _show.line(f"The page is in {report}")
    return DRIFT if result.is_drift else None


def _options_for(path: str, other: str, options: LogOptions) -> LogOptions:
    """Return how a log is read: the options are about raw rows, if only the other one is raw."""
    from countersample.clicks.impressions.aggregated import is_aggregated

    if not is_aggregated(path) or is_aggregated(other):
        return options
    defaults: dict[str, Any] = {
        "reader": None, "columns": {}, "context": (), "values": None, "engine": None,
        "master": None, "positions_from": 1, "suspicious": "keep",
    }  # fmt: skip
    return replace(options, **defaults)


def _supports(log: Impressions, check: LogCheck, *, declared: bool) -> list[Support]:
    """Ask what estimation would answer, of the shuffled rows where the log says which they are."""
    from countersample.clicks.impressions.tallying import tally
    from countersample.propensity import supported

    answers = supported(check.counts)
    if check.shuffled:
        _, shuffled, _ = tally(log.of_policy(*check.shuffled))
        if shuffled is not None:
            answers["randomized"] = supported(shuffled, declared=declared)["randomized"]
    return list(answers.values())


def _show_check(check: LogCheck, supports: list[Support]) -> None:
    counts, problems = check.counts, check.problems
    share = 100 * check.n_moved / check.n_pairs
    rows = [
        ("rows", f"{problems.n_rows:,}, of which {problems.n_invalid:,} impossible"),
        ("impressions", f"{counts.n_impressions:,}"),
        ("clicks", f"{counts.n_clicks:,}, {100 * counts.n_clicks / counts.n_impressions:.2f} %"),
        ("sessions", _sessions_text(check)),
        ("queries", f"{len(counts.query_ids):,}"),
        ("items", f"{check.n_items:,}"),
        ("query-item pairs", f"{check.n_pairs:,}, {share:.1f} % of them seen at several positions"),
    ]
    if counts.has_contexts:
        rows.append(("contexts", _contexts_text(counts)))
    if (counts.value != counts.clicks).any():
        rows.append(("value of the clicks", f"{counts.value.sum():,.6g}"))
    if check.suspicious is not None:
        rows.append(("duplicates", f"{check.suspicious.duplicates:,}"))
        rows.append(("sessions that clicked all", f"{check.suspicious.sessions:,}"))
    if check.policies is not None:
        unit = "impressions" if "impressions" in check.columns else "rows"
        served = ", ".join(f"{name} ({n:,} {unit})" for name, n in check.policies.items())
        rows.append(("policies", served))
    if check.n_mixed:
        rows.append(("interleaved", f"{check.n_mixed:,} sessions show items of several policies"))
    _show.line(f"{check.source} ({check.engine})")
    _show.pairs(rows)
    from countersample.propensity.methods import needs_features

    _show_rates(check)
    _show.line("  propensities that this log can give")
    for support in supports:
        _show.line(f"    {'yes' if support.is_supported else 'no '}  {support.method}")
        why = f"down to position {support.depth}"
        if support.reason is not None:
            why = _NEEDS_FEATURES if needs_features(support.method) else support.reason
        elif support.method == "randomized" and check.shuffled:
            why += f", from the rows of {' and '.join(check.shuffled)}"
        _show.line(textwrap.fill(f"{why}.", 92, initial_indent=" " * 9,
                                 subsequent_indent=" " * 9))  # fmt: skip
    for warning in check.warnings:
        _show.paragraph(f"Warning: {warning}")


def _sessions_text(check: LogCheck) -> str:
    return "not logged" if check.n_sessions is None else f"{check.n_sessions:,}"


def _contexts_text(counts: PositionCounts) -> str:
    import numpy as np

    shown = np.bincount(counts.context, counts.impressions, len(counts.context_ids))
    order = np.argsort(-shown, kind="stable")
    told = [f"{counts.context_ids[k]} ({shown[k]:,.0f} impressions)" for k in order[:_CONTEXTS]]
    more = len(order) - _CONTEXTS
    return ", ".join(told + ([f"and {more:,} more"] if more > 0 else []))


def _show_rates(check: LogCheck) -> None:
    positions, impressions, clicks = check.counts.by_position
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


def _show_drift(result: Drift) -> None:
    for side, log in (("before", result.before), ("after", result.after)):
        _show.line(f"{side:<7} {log['source']}: {log['impressions']:,} impressions, "
                   f"{log['clicks']:,} clicks, {log['queries']:,} queries")  # fmt: skip
    _show.line()
    if result.is_drift:
        _table_of_changes(list(result.found))
    _show.paragraph(result.sentence)
    rest = [change for change in result.changes if change.p_value is not None]
    if rest and not result.is_drift:
        _show.line("The nearest to one:")
        _table_of_changes(sorted(rest, key=lambda change: change.p_value or 0.0)[:NEAREST_TESTS])
    for note in result.notes:
        _show.paragraph(f"Note: {note}")


def _table_of_changes(changes: list[Change]) -> None:
    interval = f"{CONFIDENCE:.0%} interval"
    _show.table(
        ("what", "which", "before", "after", "change", interval, "p, corrected"),
        [
            (
                change.kind, change.name, f"{change.before:.4g}", f"{change.after:.4g}",
                change.size, change.interval,
                "–" if change.adjusted is None else f"{change.adjusted:.2g}",
            )
            for change in changes
        ],
        text_columns=2,
    )  # fmt: skip
