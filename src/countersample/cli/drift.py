"""``countersample log check --against``: report what changed between two logs."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

from countersample.cli import _show
from countersample.cli._options import DRIFT

if TYPE_CHECKING:
    from pathlib import Path

    from countersample.clicks.impressions import Impressions
    from countersample.fitting import Change, Drift

_NEAREST = 5  # tests that are shown where nothing changed


def check_drift(
    path: str,
    against: str,
    features: Path | None,
    features_before: Path | None,
    report: Path | None,
    of_log: dict[str, Any],
    *,
    json: bool,
) -> None:
    """Compare two logs, print what changed, and exit with 3 if anything did."""
    from countersample._files import check_writable
    from countersample.clicks.impressions import read_features
    from countersample.errors import ParameterError
    from countersample.fitting import find_drift, write_drift_page

    if features is None and features_before is not None:
        raise ParameterError("--features-before is given without --features, expected both")
    if report is not None:
        check_writable(report)
    join_queries = of_log["join_queries"]
    was = encoder = None
    if features_before is not None:
        was = read_features(features_before, join_queries=join_queries)
        encoder = was.encoder  # columns are read alike, or a new value would be another feature
    table = None
    if features is not None:
        table = read_features(features, encoder=encoder, join_queries=join_queries)
    with _open(path, of_log, against) as after, _open(against, of_log, path) as before:
        result = find_drift(after, before, features=table, features_before=was)
    if report is not None:
        command = shlex.join(["countersample", *sys.argv[1:]])
        write_drift_page(report, result, command=command)
    if json:
        _show.as_json(result.to_dict())
    else:
        _show_drift(result)
        if report is not None:
            _show.line(f"The page is in {report}")
    if result.is_drift:
        raise typer.Exit(DRIFT)


def _show_drift(result: Drift) -> None:
    for side, log in (("before", result.before), ("after", result.after)):
        _show.line(f"{side:<7} {log['source']}: {log['impressions']:,} impressions, "
                   f"{log['clicks']:,} clicks, {log['queries']:,} queries")  # fmt: skip
    _show.line()
    if result.is_drift:
        _table(list(result.found))
    _show.paragraph(result.sentence)
    rest = [change for change in result.changes if change.p_value is not None]
    if rest and not result.is_drift:
        _show.line("The nearest to one:")
        _table(sorted(rest, key=lambda change: change.p_value or 0.0)[:_NEAREST])
    for note in result.notes:
        _show.paragraph(f"Note: {note}")


def _open(path: str, of_log: dict[str, Any], other: str) -> Impressions:
    """Open a log; options that describe raw rows do not apply to an aggregated log beside one."""
    from countersample.cli.logs import open_log
    from countersample.clicks.impressions.aggregated import is_aggregated

    if is_aggregated(path) and not is_aggregated(other):
        raw = ("reader", "columns", "context", "values", "engine", "master")
        of_log = of_log | dict.fromkeys(raw) | {"positions_from": 1, "suspicious": "keep"}
    return open_log(path, **of_log)


def _table(changes: list[Change]) -> None:
    _show.table(
        ("what", "which", "before", "after", "change", "95% interval", "p, corrected"),
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
