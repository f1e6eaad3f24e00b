"""What changed between two logs, as one HTML page: `write_drift_page`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample import pages
from countersample.fitting.drift.comparing import ALL, QUERIES, RATE, SHARE
from countersample.fitting.drift.features import DISTANCE, MISSING
from countersample.pages.drawing import MARKED, figure_style, inline_figure, new_axes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from countersample.fitting.drift.comparing import Drift
    from countersample.fitting.drift.testing import Change

_SIZE = (4.0, 2.5)  # of a plot, in inches
MOST_FEATURES = 30  # that have a line on the page: those that changed most
_SMALLEST = 0.001  # p-values below it are not told apart
_HEADER = ["", "before", "after", "change", "95% interval", "p"]


def write_drift_page(path: str | PathLike[str], drift: Drift, *, command: str) -> None:
    """Write what changed as one page that needs no network, atomically."""
    content = [
        pages.notice(drift.sentence, "bad" if drift.is_drift else "good"),
        pages.facts([(side, _size(told)) for side, told in
                     (("before", drift.before), ("after", drift.after))]),
        pages.warning_list(drift.notes),
        *([_found(drift)] if drift.is_drift else []),
        pages.cards(
            _curves(drift, "clicks", "Click rates", "click rate",
                    f"Of what was shown, by position. Less than {RATE:.0%} is not relevant."),
            _curves(drift, "examination", "Examination", "propensity",
                    "How likely a position is examined, relative to position 1. Less than "
                    f"{RATE:.0%} is not relevant."),
            _card(drift, ("policy", "context"), "Policies and contexts",
                  f"Shares of impressions. Less than {100 * SHARE:.0f} points is not relevant."),
            _card(drift, ("queries", "pages"), "Queries and pages",
                  "Visits of queries that the other log does not have: before is what chance would "
                  "bring of users who ask as they did. Less than "
                  f"{100 * QUERIES:.0f} points is not relevant."),
            _features(drift),
        ),
        pages.section("How it was tested", pages.paragraphs([_method(drift)]), name="method"),
        pages.section("To repeat it", pages.code(command), name="repeat"),
    ]  # fmt: skip
    title = "What changed between two logs"
    pages.write_page(path, pages.render_page(title, content, kind="countersample log check"))


def _size(told: dict[str, object]) -> str:
    numbers = ", ".join(f"{told[name]:,} {name}" for name in ("impressions", "clicks", "queries"))
    return f"{told['source']}: {numbers}"


def _method(drift: Drift) -> str:
    return (
        "Each test asks whether a change is larger than what is not relevant, so that many rows "
        f"alone are no alarm. The {drift.n_tests} tests are corrected for their number by Holm's "
        f"method: where nothing relevant changed, the probability of any alarm is at most "
        f"{drift.level:.0%}. Clicks of the same {drift.after['clustered_by']} may depend on each "
        "other; features are compared with queries as the unit."
    )


def _row(change: Change, name: str | None = None) -> list[str]:
    def shown(value: float) -> str:
        if not np.isfinite(value):
            return "–"
        return f"{value:.3g}" if change.kind in {"pages", "examination"} else f"{100 * value:.2f} %"

    p = "–" if change.adjusted is None else f"{change.adjusted:.2g}"
    if change.adjusted is not None and change.adjusted < _SMALLEST:
        p = f"< {_SMALLEST:g}"
    mark = "● " if change.is_drift else ""
    return [
        f"{mark}{change.name if name is None else name}", shown(change.before),
        shown(change.after), change.size, change.interval, p,
    ]  # fmt: skip


def _found(drift: Drift) -> str:
    rows = [_row(change, f"{change.kind}: {change.name}") for change in drift.found]
    return pages.section(
        "What changed",
        pages.table(_HEADER, rows, caption="Changes of more than is relevant; p is corrected"),
        name="changed",
    )  # fmt: skip


def _table(changes: Sequence[Change], caption: str) -> str:
    names = [change.name.removeprefix("position ").removesuffix(" positions") for change in changes]
    rows = [_row(change, name) for change, name in zip(changes, names, strict=True)]
    return pages.table(_HEADER, rows, caption=f"{caption}; p is corrected")


def _card(drift: Drift, kinds: tuple[str, ...], title: str, text: str) -> str:
    changes = drift.of_kind(*kinds)
    if not changes:
        return ""
    return pages.card(title, pages.paragraphs([text]), _table(changes, title))


@figure_style()
def _curves(drift: Drift, kind: str, title: str, label: str, text: str) -> str:
    changes = drift.of_kind(kind)
    if not changes:
        return ""
    by_position = [change for change in changes if change.name != ALL]
    drawn = ""
    if by_position:
        figure, axes = new_axes(*_SIZE)
        positions = [int(change.name.split()[-1]) for change in by_position]
        for (colour, marker), side in zip(MARKED, ("before", "after"), strict=False):
            values = [getattr(change, side) for change in by_position]
            line = "--" if side == "before" else "-"
            axes.plot(positions, values, line, color=colour, marker=marker, ms=4, lw=1.2,
                      label=side)  # fmt: skip
        axes.set(xlabel="position", ylabel=label, ylim=(0, None))
        axes.legend()
        drawn = inline_figure(figure, f"{title} by position, before and after")
    return pages.card(title, pages.paragraphs([text]), drawn, _table(changes, title))


def _features(drift: Drift) -> str:
    changes = drift.of_kind("feature")
    if not changes:
        return ""
    order = sorted(changes, key=lambda each: (not each.is_drift, -np.nan_to_num(abs(each.change))))
    rows = [
        [*_row(change), "–" if change.distance is None else f"{change.distance:.3g}"]
        for change in order[:MOST_FEATURES]
    ]
    left = len(order) - len(rows)
    text = (
        "Of a feature, the share of impressions below the value at which it changed most, of the "
        f"deciles before; less than {100 * DISTANCE:.0f} points is not relevant, nor is less than "
        f"{100 * MISSING:.0f} of missing values. PSI is the population stability index."
    )
    return pages.card(
        "Features of what was shown",
        pages.paragraphs([text]),
        pages.table([*_HEADER, "PSI"], rows, caption="Features of what was shown; p is corrected"),
        pages.small(f"{left:,} more changed less.") if left > 0 else "",
    )
