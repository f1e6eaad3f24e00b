"""Did something change? One log against another: `find_drift`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import number
from countersample.errors import DataError
from countersample.fitting.drift.features import compare_features
from countersample.fitting.drift.logs import Side
from countersample.fitting.drift.testing import (
    FEWEST_UNITS,
    Change,
    compare,
    compare_logarithms,
    holm,
)
from countersample.options import CONFIDENCE
from countersample.propensity.estimation import resample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample.clicks.impressions import FeatureTable, Impressions, PositionCounts

LEVEL = 0.01
RATE = 0.10  # of a click rate or a propensity, relative: less is not relevant
SHARE = 0.02  # of the impressions of a policy or a context
QUERIES = 0.05  # of the visits, of queries that are new or gone
LEAST_CLICKS = 30  # at a position, in each log
MOST_POSITIONS = 20  # that are compared one by one
N_BOOTSTRAP = 200
_FEWEST_QUERIES = 20
ALL = "all positions"


@dataclass(frozen=True, eq=False)
class Drift:
    """What changed between two logs, as `find_drift` says.

    Attributes
    ----------
    before, after : dict
        Of each log: its source, impressions, clicks and queries, and what was drawn.
    changes : tuple of Change
        All that was compared.
    level : float
        The probability that any of them is a false alarm is at most this.
    notes : tuple of str
        What could not be compared, and why.
    """

    before: dict[str, Any]
    after: dict[str, Any]
    changes: tuple[Change, ...]
    level: float
    notes: tuple[str, ...]

    @property
    def found(self) -> tuple[Change, ...]:
        """What changed by more than is relevant, the largest kinds as they were compared."""
        return tuple(change for change in self.changes if change.is_drift)

    @property
    def n_tests(self) -> int:
        """How many tests there were."""
        return sum(change.p_value is not None for change in self.changes)

    @property
    def is_drift(self) -> bool:
        """Whether anything changed."""
        return bool(self.found)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        if not self.is_drift:
            return (
                f"No drift: none of {self.n_tests} tests shows a change of more than is relevant."
            )
        told = [f"{change.kind} {change.name} ({change.size})" for change in self.found[:5]]
        more = len(self.found) - len(told)
        end = f" and {more} more" if more > 0 else ""
        return (
            f"Drift: {len(self.found)} of {self.n_tests} tests show a change of more than is "
            f"relevant: {', '.join(told)}{end}."
        )

    def of_kind(self, *kinds: str) -> list[Change]:
        """Return what was compared of some kinds."""
        return [change for change in self.changes if change.kind in kinds]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "is_drift": self.is_drift,
            "sentence": self.sentence,
            "level": self.level,
            "correction": "Holm",
            "tests": self.n_tests,
            "before": self.before,
            "after": self.after,
            "changes": [change.to_dict() for change in self.changes],
            "notes": list(self.notes),
        }


def find_drift(
    after: Impressions,
    before: Impressions,
    *,
    features: FeatureTable | None = None,
    features_before: FeatureTable | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Drift:
    """Compare a log with an earlier one, and say what changed by more than is relevant.

    Compared are the click rate of each position, items on a page, the examination curve, shares of
    policies and contexts, queries that are new or gone and, with `features`, those of what was
    shown. A change of a rate by less than 10 %, of a share by less than 2 points (of queries, and
    of the share below a value of a feature, 5) is not relevant, and is what each test takes as its
    hypothesis. Tests are corrected for their number by Holm's method. Clicks of the same user (or
    session, or where a log has none, query) may depend on each other.

    Parameters
    ----------
    after, before : Impressions
        Raw logs, or counts; see `read_impressions`.
    features, features_before : FeatureTable, optional
        Of the items of `after`, and of `before` where theirs were others.
    level : float
        The probability of a false alarm, of all tests together, where nothing relevant changed.
    seed : int

    Examples
    --------
    >>> import numpy as np, pyarrow
    >>> from countersample.clicks.impressions import read_impressions
    >>> from countersample.fitting import find_drift
    >>> def log(rate, seed):
    ...     rng, n = np.random.default_rng(seed), 4000
    ...     return read_impressions(pyarrow.table({
    ...         "query_id": rng.integers(50, size=n), "item_id": rng.integers(5, size=n),
    ...         "position": np.ones(n, int), "session": np.arange(n) + n * seed,
    ...         "click": (rng.random(n) < rate).astype(int),
    ...     }))
    >>> find_drift(log(0.30, 1), log(0.30, 2)).is_drift
    False
    >>> find_drift(log(0.20, 1), log(0.30, 2)).sentence[:60]
    'Drift: 1 of 4 tests show a change of more than is relevant: '
    """
    number("level", level, above=0, below=1)
    checks = before.check(), after.check()
    counts = checks[0].counts, checks[1].counts
    old, new = Side.of(before), Side.of(after)
    said = (
        each.problems.sentence(has_impressions="impressions" in each.columns) for each in checks
    )
    notes = [f"{each.source}: {told}." for each, told in zip(checks, said, strict=True) if told]
    found = [*_clicks(old, new), *_examination(counts, seed, notes), *_shares(old, new, notes),
             *_queries(old, new, notes)]  # fmt: skip
    if features is not None:
        tables = features if features_before is None else features_before, features
        if any(each.rest is not None for each in counts):
            notes.append(
                "Features were not compared: a log has so many items that those without a click "
                "are counted together."
            )
        else:
            found += compare_features(counts, tables)
    _of_units(old, new, notes)
    return Drift(
        before=_told(old, counts[0]),
        after=_told(new, counts[1]),
        changes=tuple(_adjusted(found, level)),
        level=level,
        notes=tuple(notes),
    )


def _clicks(old: Side, new: Side) -> Iterator[Change]:
    """Compare click rates, of all positions and of each, and how many items a page has."""
    yield compare("clicks", ALL, old.rate(old.clicks, old.impressions),
                  new.rate(new.clicks, new.impressions), measure="ratio", margin=RATE,
                  least=LEAST_CLICKS)  # fmt: skip
    both = np.intersect1d(old.position, new.position)[:MOST_POSITIONS]
    for position in both.tolist() if len(both) > 1 else []:
        at = [side.position == position for side in (old, new)]
        rates = [
            side.rate(side.clicks * rows, side.impressions * rows)
            for side, rows in zip((old, new), at, strict=True)
        ]
        yield compare("clicks", f"position {position}", *rates, measure="ratio", margin=RATE,
                      least=LEAST_CLICKS)  # fmt: skip
    pages = [side.rate(side.impressions, side.visits) for side in (old, new)]
    if all(rate.below.any() for rate in pages):
        yield compare("pages", "items on a page", *pages, measure="ratio", margin=RATE)


def _examination(
    counts: tuple[PositionCounts, PositionCounts], seed: int, notes: list[str]
) -> Iterator[Change]:
    """Compare the curves of propensities, estimated in the same way from both logs."""
    rng = np.random.default_rng(seed)
    asked: dict[str, Any] = {"n_bootstrap": N_BOOTSTRAP, "confidence": CONFIDENCE, "rng": rng}
    if min(len(each.query_ids) for each in counts) < _FEWEST_QUERIES:
        notes.append(
            f"Examination was not compared: a log has fewer than {_FEWEST_QUERIES} queries."
        )
        return
    try:
        first, of_first = resample(counts[0], method="auto", **asked)
        second, of_second = resample(counts[1], method=first.method, **asked)
    except DataError as reason:
        notes.append(f"Examination was not compared: {reason}.")
        return
    depth = min(len(first.value), len(second.value), MOST_POSITIONS)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(_spread(of_first)[:depth] ** 2 + _spread(of_second)[:depth] ** 2)
    for k in range(1, depth):
        values = first.value[k], second.value[k]
        if min(values) > 0 and np.isfinite(error[k]):
            yield compare_logarithms(
                "examination", f"position {k + 1}", float(values[0]), float(values[1]),
                float(error[k]), margin=RATE,
            )  # fmt: skip


def _spread(resamples: Floats) -> Floats:
    """Return the standard deviation of the logarithms over resamples, (K,)."""
    logs = np.log(resamples)
    logs[~np.isfinite(logs)] = np.nan
    found: Floats = np.nanstd(logs, axis=0, ddof=1)
    return found


def _shares(old: Side, new: Side, notes: list[str]) -> Iterator[Change]:
    """Compare the shares of policies and contexts."""
    for kind in ("policy", "context"):
        there = [kind in side.names for side in (old, new)]
        if there[0] != there[1]:
            notes.append(f"Only one of the logs has a column {kind!r}: its shares say nothing.")
        if not all(there):
            continue
        names = sorted({*old.names[kind][0], *new.names[kind][0]})
        for name in names if len(names) > 1 else []:
            rates = [side.share(_is(side, kind, name)) for side in (old, new)]
            yield compare(kind, name, *rates, measure="difference", margin=SHARE)


def _is(side: Side, kind: str, name: str) -> NDArray[np.bool_]:
    names, code = side.names[kind]
    found: NDArray[np.bool_] = code == (names.index(name) if name in names else -1)
    return found


def _queries(old: Side, new: Side, notes: list[str]) -> Iterator[Change]:
    """Compare the share of queries that are new, or gone, with what chance would bring."""
    if "query" in {old.unit_is, new.unit_is}:
        notes.append(
            "New queries were not compared: how many chance brings is told by the users, or the "
            "sessions, of both logs."
        )
        return
    for name, one, other in (("new", new, old), ("gone", old, new)):
        rates = other.share_expected(), one.share_of_other_queries(other)
        if all(rate.below.any() for rate in rates):
            change = compare("queries", name, *rates, measure="difference", margin=QUERIES)
            # Users who come back ask again: fewer new queries than chance brings are no change.
            yield change if change.after > change.before else replace(change, p_value=1.0)


def _of_units(old: Side, new: Side, notes: list[str]) -> None:
    if old.unit_is != new.unit_is:
        notes.append(f"Clicks are put together by {old.unit_is} before and by {new.unit_is} after.")
    small = [side.source for side in (old, new) if len(np.unique(side.unit)) < FEWEST_UNITS]
    notes += [f"{source} is too small to test anything." for source in small]


def _told(side: Side, counts: PositionCounts) -> dict[str, Any]:
    return {
        "source": side.source, "impressions": counts.n_impressions, "clicks": counts.n_clicks,
        "queries": len(counts.query_ids), "clustered_by": side.unit_is,
    }  # fmt: skip


def _adjusted(found: list[Change], level: float) -> Iterator[Change]:
    """Correct the tests for their number."""
    tested = [change.p_value for change in found if change.p_value is not None]
    corrected = iter(holm(tested).tolist())
    for change in found:
        if change.p_value is None:
            yield change
        else:
            p = next(corrected)
            yield replace(change, adjusted=p, is_drift=p < level)
