"""Compare two logs and report what changed by more than a relevant margin: `find_drift`.

A rate is R = Σ_u a_u / Σ_u b_u over units u: groups of users or sessions, or of queries. Clicks of
one unit may depend on each other in any way, but not on clicks of other units. To first order

    R̂ − R = Σ_u ψ_u        ψ_u = (a_u − R̂·b_u) / Σ_v b_v

Both logs are split into the same units, so whoever appears in both is twice in one unit, and a
difference R̂' − c·R̂ has the variance n/(n − 1)·Σ_u (ψ'_u − c·ψ_u)². The hypothesis is not that
nothing changed, which enough rows always refute, but that the change is at most the margin m:
1/(1 + m) ≤ R'/R ≤ 1 + m for a ratio, or |R' − R| ≤ m for a difference. P-values are corrected for
the number of tests by Holm's method.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
from scipy import stats

from countersample import _text
from countersample._params import number
from countersample.errors import DataError, ParameterError
from countersample.evaluation.bootstrap import add_up
from countersample.logs import aggregation, read_features, read_impressions
from countersample.logs.aggregated import is_aggregated
from countersample.logs.columns import NONE
from countersample.logs.engines import find_engine
from countersample.logs.joins import Matched
from countersample.logs.tally import integers
from countersample.options import CONFIDENCE
from countersample.propensity.estimation import resample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from countersample._arrays import Bools, Floats, Ints
    from countersample.logs import FeatureTable, Impressions, PositionCounts
    from countersample.options import LogOptions

LEVEL = 0.01  # the probability of any false alarm
RATE_MARGIN = 0.10  # relative change of a click rate, page length or propensity
SHARE_MARGIN = 0.02  # change of the share of a policy or a context, or of missing values
QUERY_MARGIN = 0.05  # change of the share of visits with queries that are new or gone
FEATURE_MARGIN = 0.05  # change of the share of impressions below a value of a feature
MIN_CLICKS = 30  # per position and log
MIN_UNITS = 20  # per log, with impressions
MIN_QUERIES = 20  # per log, to compare examination
MAX_POSITIONS = 20  # that are compared one by one
N_BOOTSTRAP = 200
N_CUTS = 9  # deciles of the values before, at which a feature is compared
N_BUCKETS = 256  # of clients, sessions or queries
SHOWN_TESTS = 5  # in a summary, if nothing changed
ALL_POSITIONS = "all positions"

Measure = Literal["ratio", "difference"]


# -- tests of one rate ----------------------------------------------------------------------------


class Rate(NamedTuple):
    """The rate of one log, as its numerator and denominator per unit."""

    numerator: Floats
    denominator: Floats

    @property
    def value(self) -> float:
        """R, or NaN without a denominator."""
        total = float(self.denominator.sum())
        return float(self.numerator.sum()) / total if total else float("nan")

    @property
    def influence(self) -> Floats:
        """ψ of each unit."""
        psi: Floats = (self.numerator - self.value * self.denominator) / self.denominator.sum()
        return psi

    @property
    def n_units(self) -> int:
        """The number of units with a denominator."""
        return int((self.denominator > 0).sum())


@dataclass(frozen=True)
class Change:
    """One comparison of two logs, made by `find_drift`.

    Attributes
    ----------
    kind : {"clicks", "pages", "examination", "policy", "context", "queries", "feature"}
    name : str
        The position, the policy, the feature, ….
    before, after : float
        The rates, shares or propensities.
    measure : {"ratio", "difference"}
        Whether ``change`` is after/before − 1, or after − before.
    margin : float
        A change of at most this size is not relevant.
    change, low, high : float
        With its 95 % interval; NaN if it cannot be computed.
    p_value : float, optional
        Of the hypothesis that the change is within the margin; None if there is too little data.
    adjusted : float, optional
        The p-value, corrected for the number of tests.
    is_drift : bool
        Whether that is below the level.
    stability_index : float, optional
        The population stability index (PSI) of a feature.
    """

    kind: str
    name: str
    before: float
    after: float
    measure: Measure
    margin: float
    change: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    p_value: float | None = None
    adjusted: float | None = None
    is_drift: bool = False
    stability_index: float | None = None

    @property
    def size(self) -> str:
        """The change in words: +12.3 %, or −4.5 points."""
        if np.isinf(self.change):
            return "from nothing"
        if np.isnan(self.change):
            return "not known"
        unit = "%" if self.measure == "ratio" else "points"
        return f"{100 * self.change:+.1f} {unit}"

    @property
    def interval(self) -> str:
        """The interval in words."""
        if not np.isfinite(self.low):
            return "–"
        return f"{100 * self.low:+.1f} to {100 * self.high:+.1f}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN and infinity are None."""
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def compare_rates(
    kind: str,
    name: str,
    rates: Sequence[Rate],
    *,
    measure: Measure,
    margin: float,
    min_count: float = 0.0,
) -> Change:
    """Compare the rates of two logs, before and after.

    If one of the numerators is below `min_count`, the test is how likely so small a number is.

    >>> units = np.ones(100)
    >>> change = compare_rates("clicks", "1", [Rate(0.2 * units, units), Rate(0.3 * units, units)],
    ...                        measure="ratio", margin=0.1)
    >>> change.size, change.p_value
    ('+50.0 %', 0.0)
    """
    before, after = rates
    old, new = before.value, after.value
    change = new - old
    if measure == "ratio":
        change = new / old - 1 if old else float("inf") if new else float("nan")
    result = Change(kind, name, old, new, measure, margin, change)
    df = min(before.n_units, after.n_units) - 1
    if df + 1 < MIN_UNITS:
        return result
    if measure == "ratio" and min(rate.numerator.sum() for rate in rates) < min_count:
        lower, higher = (before, after) if old < new else (after, before)
        return replace(result, p_value=_test_rare(lower, higher, margin, min_count))
    if not np.isfinite(change):
        return result
    n, old_psi, new_psi = len(before.denominator), before.influence, after.influence

    def error(psi: Floats) -> float:
        return float(np.sqrt(n / (n - 1) * np.sum(psi**2)))

    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, df))
    if measure == "ratio":
        bounds = [(1 + margin, 1), (1 / (1 + margin), -1)]
        tails = [
            _tail(sign * (new - c * old), error(new_psi - c * old_psi), df) for c, sign in bounds
        ]
        spread = error(new_psi / new - old_psi / old) if new else float("nan")
        low, high = ((1 + change) * np.exp(sign * quantile * spread) - 1 for sign in (-1, 1))
    else:
        spread = error(new_psi - old_psi)
        tails = [_tail(sign * change - margin, spread, df) for sign in (-1, 1)]
        low, high = change - quantile * spread, change + quantile * spread
    return replace(result, low=float(low), high=float(high), p_value=min(1.0, 2 * min(tails)))


def _test_rare(lower: Rate, higher: Rate, margin: float, min_count: float) -> float | None:
    """Return how likely a rate is as low as the lower one if it is not below c·R, c = 1/(1 + m).

    R is the higher rate. With denominator n, c·R·n are expected in the numerator, with the variance
    of a Poisson number times the dispersion of the higher rate; None if that is below `min_count`.

    >>> shown = np.full(100, 20.0)
    >>> _test_rare(Rate(0 * shown, shown), Rate(0.1 * shown, shown), 0.1, 50.0) < 1e-9
    True
    """
    c, rate, n_lower = 1 / (1 + margin), higher.value, float(lower.denominator.sum())
    if c * rate * n_lower < min_count:
        return None
    n = len(higher.denominator)
    variance = n / (n - 1) * float(np.sum(higher.influence**2))
    dispersion = max(1.0, variance / (rate / float(higher.denominator.sum())))
    error = float(np.sqrt(dispersion * c * rate / n_lower + c * c * variance))
    df = min(lower.n_units, higher.n_units) - 1
    return min(1.0, 2 * _tail(c * rate - lower.value, error, df))


def _tail(excess: float, error: float, df: float) -> float:
    """Return P(T ≥ excess/error) of Student's t."""
    if not error:
        return 0.0 if excess > 0 else 1.0
    return float(stats.t.sf(excess / error, df))


def holm(p_values: Sequence[float]) -> Floats:
    """Return p-values corrected by Holm's method: P(any false alarm) ≤ level, whatever they share.

    The i-th smallest becomes the maximum over j ≤ i of (n − j + 1)·p_j.

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(scaled, 1.0)
    return adjusted


# -- the comparison of two logs -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drift:
    """What changed between two logs, made by `find_drift`.

    Attributes
    ----------
    before, after : dict
        The source, impressions, clicks, queries and units of each log.
    changes : tuple of Change
        All comparisons.
    level : float
        The probability of any false alarm is at most this.
    notes : tuple of str
        What could not be compared, and why.
    """

    before: dict[str, Any]
    after: dict[str, Any]
    changes: tuple[Change, ...]
    level: float
    notes: tuple[str, ...]

    @property
    def relevant_changes(self) -> tuple[Change, ...]:
        """The changes beyond their margin."""
        return tuple(change for change in self.changes if change.is_drift)

    @property
    def n_tests(self) -> int:
        """The number of tests."""
        return sum(change.p_value is not None for change in self.changes)

    @property
    def is_drift(self) -> bool:
        """Whether anything changed beyond its margin."""
        return bool(self.relevant_changes)

    @property
    def sentence(self) -> str:
        """The result in words."""
        drifts = self.relevant_changes
        if not drifts:
            return f"No drift: none of {self.n_tests} tests shows a relevant change."
        names = [f"{change.kind} {change.name} ({change.size})" for change in drifts[:5]]
        more = f" and {len(drifts) - 5} more" if len(drifts) > 5 else ""
        return (
            f"Drift: {len(drifts)} of {self.n_tests} tests show a relevant change: "
            f"{', '.join(names)}{more}."
        )

    def of_kind(self, *kinds: str) -> list[Change]:
        """Return the comparisons of some kinds."""
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

    def summary(self) -> str:
        """Return both logs, what changed, or the tests that come nearest to it, for a terminal."""
        lines = [
            f"{side:<7} {log['source']}: {log['impressions']:,} impressions, "
            f"{log['clicks']:,} clicks, {log['queries']:,} queries"
            for side, log in (("before", self.before), ("after", self.after))
        ]
        lines.append("")
        if self.is_drift:
            lines.append(_tabulate(self.relevant_changes))
        lines.append(_text.paragraph(self.sentence))
        tests = [change for change in self.changes if change.p_value is not None]
        if tests and not self.is_drift:
            tests.sort(key=lambda change: change.p_value or 0.0)
            lines += ["The nearest to one:", _tabulate(tests[:SHOWN_TESTS])]
        return "\n".join([*lines, *(_text.paragraph(f"Note: {note}") for note in self.notes)])


def _tabulate(changes: Sequence[Change]) -> str:
    interval = f"{CONFIDENCE:.0%} interval"
    rows = [
        (change.kind, change.name, f"{change.before:.4g}", f"{change.after:.4g}", change.size,
         change.interval, "–" if change.adjusted is None else f"{change.adjusted:.2g}")
        for change in changes
    ]  # fmt: skip
    header = ("what", "which", "before", "after", "change", interval, "p, corrected")
    return _text.table(header, rows, text_columns=2)


def find_drift(
    after: Impressions,
    before: Impressions,
    *,
    features: FeatureTable | None = None,
    features_before: FeatureTable | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Drift:
    """Compare a log with an earlier one, and report changes beyond a relevant margin.

    Compared are the click rate of each position, the items per page, the examination curve, the
    shares of policies and contexts, queries that are new or gone and, with `features`, the features
    of what was shown. Margins are the constants at the top of this module. Clicks of the same user
    (or session or, in a log without these, query) may depend on each other.

    Parameters
    ----------
    after, before : Impressions
        Raw or aggregated logs; see `read_impressions`.
    features, features_before : FeatureTable, optional
        Of the items of `after`, and of `before` if they differ.
    level : float
        The probability of any false alarm over all tests if nothing relevant changed.
    seed : int

    Examples
    --------
    >>> import numpy as np, pyarrow
    >>> from countersample.logs import read_impressions
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
    >>> find_drift(log(0.20, 1), log(0.30, 2)).sentence[:50]
    'Drift: 1 of 4 tests show a relevant change: clicks'
    """
    number("level", level, above=0, below=1)
    checks = before.check(), after.check()
    counts = checks[0].counts, checks[1].counts
    logs = LogUnits.from_log(before), LogUnits.from_log(after)
    notes = []
    for check in checks:
        problem = check.problems.sentence(has_impressions="impressions" in check.columns)
        if problem:
            notes.append(f"{check.source}: {problem}.")
    changes = [
        *_compare_clicks(logs), *_compare_examination(counts, seed, notes),
        *_compare_shares(logs, notes), *_compare_queries(logs, notes),
    ]  # fmt: skip
    if features is not None and any(each.rest is not None for each in counts):
        notes.append(
            "Features were not compared: a log has so many items that those without a click are "
            "counted together."
        )
    elif features is not None:
        tables = features if features_before is None else features_before, features
        changes += _compare_features(counts, tables)
    units = [log.unit_name for log in logs]
    if units[0] != units[1]:
        notes.append(f"Clicks are grouped by {units[0]} before and by {units[1]} after.")
    notes += [
        f"{log.source} is too small to test anything."
        for log in logs
        if len(np.unique(log.unit)) < MIN_UNITS
    ]
    return Drift(
        before=_describe(logs[0], counts[0]),
        after=_describe(logs[1], counts[1]),
        changes=tuple(_adjust(changes, level)),
        level=level,
        notes=tuple(notes),
    )


def find_drift_in_files(
    after: str,
    before: str,
    options: LogOptions,
    *,
    features: Path | None = None,
    features_before: Path | None = None,
) -> Drift:
    """Compare two logs in files, which may be raw or aggregated; see `find_drift`.

    `features_before` are those of the earlier log's items, if they differ.
    """
    if features is None and features_before is not None:
        raise ParameterError("features_before is given without features, expected both")
    earlier = later = encoder = None
    if features_before is not None:
        earlier = read_features(features_before, join_queries=options.join_queries)
        # The same columns: a new value would become another feature.
        encoder = earlier.encoder
    if features is not None:
        later = read_features(features, encoder=encoder, join_queries=options.join_queries)
    with (
        read_impressions(after, _options_for(after, before, options)) as new_log,
        read_impressions(before, _options_for(before, after, options)) as old_log,
    ):
        return find_drift(new_log, old_log, features=later, features_before=earlier)


def _options_for(path: str, other: str, options: LogOptions) -> LogOptions:
    """Return how a log is read: the options are about raw rows, if only the other one is raw."""
    if not is_aggregated(path) or is_aggregated(other):
        return options
    defaults: dict[str, Any] = {
        "reader": None, "columns": {}, "context": (), "values": None, "engine": None,
        "master": None, "positions_from": 1, "suspicious": "keep",
    }  # fmt: skip
    return replace(options, **defaults)


def _describe(log: LogUnits, counts: PositionCounts) -> dict[str, Any]:
    return {
        "source": log.source, "impressions": counts.n_impressions, "clicks": counts.n_clicks,
        "queries": len(counts.query_ids), "clustered_by": log.unit_name,
    }  # fmt: skip


def _adjust(changes: list[Change], level: float) -> Iterator[Change]:
    """Correct the p-values for the number of tests."""
    adjusted = iter(holm([each.p_value for each in changes if each.p_value is not None]).tolist())
    for change in changes:
        if change.p_value is None:
            yield change
        else:
            p = next(adjusted)
            yield replace(change, adjusted=p, is_drift=p < level)


@dataclass(frozen=True, eq=False)
class LogUnits:
    """Impressions and clicks of a log, one row per query, context, policy, unit and position."""

    source: str
    unit: Ints  # a bucket of clients, sessions or queries
    unit_name: str  # client, session or query
    query_ids: list[str]
    query: Ints
    groups: dict[str, tuple[list[str], Ints]]  # of policies and contexts: names, and codes of rows
    position: Ints
    impressions: Floats
    clicks: Floats

    @classmethod
    def from_log(cls, log: Impressions) -> LogUnits:
        """Aggregate a log."""
        table = _aggregate(log)
        if not len(table):
            raise DataError(f"{log.source}: the log has no rows that are possible")
        groups = {
            name: _encode(table[name].fill_null(NONE))
            for name in ("policy", "context")
            if name in table.column_names
        }
        unit_name = next((name for name in ("client", "session") if name in log.columns), "query")
        counts = (integers(table[name]).astype(np.float64) for name in ("impressions", "clicks"))
        return cls(
            log.source, integers(table["bucket"]), unit_name, *_encode(table["query_id"]), groups,
            integers(table["position"]), *counts,
        )  # fmt: skip

    def rate(self, numerator: Floats, denominator: Floats) -> Rate:
        """Return a rate per unit, from columns of the rows."""
        return Rate(*(add_up(self.unit, each, N_BUCKETS) for each in (numerator, denominator)))

    @property
    def visits(self) -> Floats:
        """The visits of each row: impressions of the first position, 0 at others."""
        return np.where(self.position == 1, self.impressions, 0.0)

    def share_of_new_queries(self, other: LogUnits) -> Rate:
        """Return the share of visits whose query is not in the other log."""
        other_ids = {*other.query_ids}
        is_new = np.array([name not in other_ids for name in self.query_ids])
        return self.rate(self.visits * is_new[self.query], self.visits)

    def expected_share_of_new_queries(self) -> Rate:
        """Return the share of visits whose query no other unit of this log has.

        Another log of the same users would have this share of new queries: each unit in turn takes
        the part of the other log.
        """
        pairs = np.unique(self.query * N_BUCKETS + self.unit)
        n_units = np.bincount(pairs // N_BUCKETS, minlength=len(self.query_ids))
        return self.rate(self.visits * (n_units == 1)[self.query], self.visits)


def _compare_clicks(logs: tuple[LogUnits, LogUnits]) -> Iterator[Change]:
    """Compare click rates, over all positions and at each, and the items per page."""
    rates = [log.rate(log.clicks, log.impressions) for log in logs]
    yield compare_rates("clicks", ALL_POSITIONS, rates, measure="ratio", margin=RATE_MARGIN,
                        min_count=MIN_CLICKS)  # fmt: skip
    both = np.intersect1d(logs[0].position, logs[1].position)[:MAX_POSITIONS]
    for position in both.tolist() if len(both) > 1 else []:
        rates = []
        for log in logs:
            is_there = log.position == position
            rates.append(log.rate(log.clicks * is_there, log.impressions * is_there))
        yield compare_rates("clicks", f"position {position}", rates, measure="ratio",
                            margin=RATE_MARGIN, min_count=MIN_CLICKS)  # fmt: skip
    rates = [log.rate(log.impressions, log.visits) for log in logs]
    if all(rate.denominator.any() for rate in rates):
        yield compare_rates("pages", "items per page", rates, measure="ratio", margin=RATE_MARGIN)


def _compare_examination(
    counts: tuple[PositionCounts, PositionCounts], seed: int, notes: list[str]
) -> Iterator[Change]:
    """Compare the examination curves, estimated by the same method from both logs."""
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {"n_bootstrap": N_BOOTSTRAP, "confidence": CONFIDENCE, "rng": rng}
    if min(len(each.query_ids) for each in counts) < MIN_QUERIES:
        notes.append(f"Examination was not compared: a log has fewer than {MIN_QUERIES} queries.")
        return
    try:
        before, resamples_before = resample(counts[0], method="auto", **settings)
        after, resamples_after = resample(counts[1], method=before.method, **settings)
    except DataError as reason:
        notes.append(f"Examination was not compared: {reason}.")
        return
    depth = min(len(before.value), len(after.value), MAX_POSITIONS)
    variance = np.zeros(depth)
    with np.errstate(divide="ignore", invalid="ignore"):
        for resamples in (resamples_before, resamples_after):
            logs = np.log(resamples[:, :depth])
            variance += np.nanvar(np.where(np.isfinite(logs), logs, np.nan), axis=0, ddof=1)
    quantile, log_margin = stats.norm.ppf((1 + CONFIDENCE) / 2), np.log1p(RATE_MARGIN)
    for k in range(1, depth):
        old, new, error = float(before.value[k]), float(after.value[k]), float(variance[k]) ** 0.5
        if min(old, new) <= 0 or not np.isfinite(error):
            continue
        ratio = np.log(new / old)
        tails = [_tail(sign * ratio - log_margin, error, np.inf) for sign in (-1, 1)]
        change, low, high = (float(np.expm1(ratio + z * quantile * error)) for z in (0, -1, 1))
        yield Change("examination", f"position {k + 1}", old, new, "ratio", RATE_MARGIN, change,
                     low, high, min(1.0, 2 * min(tails)))  # fmt: skip


def _compare_shares(logs: tuple[LogUnits, LogUnits], notes: list[str]) -> Iterator[Change]:
    """Compare the shares of policies and contexts."""
    for kind in ("policy", "context"):
        n_logs = sum(kind in log.groups for log in logs)
        if n_logs == 1:
            notes.append(f"Only one of the logs has a column {kind!r}: shares are not compared.")
        if n_logs < 2:
            continue
        names = sorted({name for log in logs for name in log.groups[kind][0]})
        for name in names if len(names) > 1 else []:
            rates = []
            for log in logs:
                known, code = log.groups[kind]
                is_named = code == (known.index(name) if name in known else -1)
                rates.append(log.rate(log.impressions * is_named, log.impressions))
            yield compare_rates(kind, name, rates, measure="difference", margin=SHARE_MARGIN)


def _compare_queries(logs: tuple[LogUnits, LogUnits], notes: list[str]) -> Iterator[Change]:
    """Compare the share of queries that are new, or gone, with what chance would bring."""
    if "query" in {log.unit_name for log in logs}:
        notes.append(
            "New queries were not compared: the number that chance brings is estimated from users "
            "or sessions, which both logs need."
        )
        return
    before, after = logs
    for name, one, other in (("new", after, before), ("gone", before, after)):
        rates = other.expected_share_of_new_queries(), one.share_of_new_queries(other)
        if all(rate.denominator.any() for rate in rates):
            change = compare_rates("queries", name, rates, measure="difference",
                                   margin=QUERY_MARGIN)  # fmt: skip
            # Users who return repeat their queries: fewer new ones than expected are no change.
            yield change if change.after > change.before else replace(change, p_value=1.0)


# -- features of what was shown -------------------------------------------------------------------


def _compare_features(
    counts: tuple[PositionCounts, PositionCounts], tables: tuple[FeatureTable, FeatureTable]
) -> Iterator[Change]:
    """Compare the features of what was shown before and after, one by one.

    The change of a feature is the largest difference between the shares of impressions below a
    value, at the deciles of the values before, so that its scale does not matter.
    """
    names = [table.dataset.feature_names for table in tables]
    if names[0] != names[1] or tables[0].dataset.n_features != tables[1].dataset.n_features:
        raise DataError("the features before and after have different names, expected the same")
    logs = [FeatureRows(*each) for each in zip(counts, tables, strict=True)]
    yield compare_rates("feature", "(no features at all)", [log.unmatched for log in logs],
                        measure="difference", margin=SHARE_MARGIN)  # fmt: skip
    for k in range(tables[0].dataset.n_features):
        name = str(k) if names[0] is None else names[0][k]
        values = [log.values(k) for log in logs]
        missing = [log.rate(np.isnan(each)) for log, each in zip(logs, values, strict=True)]
        if any(rate.numerator.any() for rate in missing):
            yield compare_rates("feature", f"{name}, missing", missing, measure="difference",
                                margin=SHARE_MARGIN)  # fmt: skip
        yield _compare_distributions(name, logs, values)


class FeatureRows:
    """The rows of a log whose items have features; units are queries."""

    def __init__(self, counts: PositionCounts, features: FeatureTable) -> None:
        matched = Matched.of(counts, features.dataset, features.item_ids)
        has_features = matched.row >= 0
        buckets = np.array([bucket_of(str(name)) for name in counts.query_ids.tolist()], np.int64)
        self.unit, self.shown = buckets[counts.query], counts.impressions.astype(np.float64)
        self.unmatched = self.rate(~has_features)
        self.unit, self.shown = self.unit[has_features], self.shown[has_features]
        self.row, self.features = matched.row[has_features], features.dataset.features

    def rate(self, rows: Bools) -> Rate:
        """Return the share of impressions of some rows."""
        return Rate(
            add_up(self.unit, self.shown * rows, N_BUCKETS),
            add_up(self.unit, self.shown, N_BUCKETS),
        )

    def values(self, feature: int) -> Floats:
        """Return a feature of each row."""
        values: Floats = np.asarray(self.features[:, feature], np.float64)[self.row]
        return values

    def sum_by_bin(self, values: Floats, cuts: Floats) -> Floats:
        """Return the impressions per unit in each bin between the cuts, (N_BUCKETS, n_cuts + 1)."""
        n = len(cuts) + 1
        is_present = ~np.isnan(values)
        cell = self.unit[is_present] * n + np.searchsorted(cuts, values[is_present], side="left")
        return add_up(cell, self.shown[is_present], N_BUCKETS * n).reshape(N_BUCKETS, n)


def _compare_distributions(name: str, logs: list[FeatureRows], values: list[Floats]) -> Change:
    """Compare the shares of impressions below each decile; the p-value is Bonferroni's."""
    cuts = _deciles(values[0], logs[0].shown)
    bins = [log.sum_by_bin(each, cuts) for log, each in zip(logs, values, strict=True)]
    below = [np.cumsum(each, axis=1) for each in bins]
    changes = [
        compare_rates("feature", name, [Rate(each[:, k], each[:, -1]) for each in below],
                      measure="difference", margin=FEATURE_MARGIN)
        for k in range(len(cuts))
    ]  # fmt: skip
    if not changes:  # all values are missing
        return Change("feature", name, np.nan, np.nan, "difference", FEATURE_MARGIN)
    largest = max(changes, key=lambda each: np.nan_to_num(abs(each.change)))
    p_values = [each.p_value for each in changes if each.p_value is not None]
    p = min(1.0, len(p_values) * min(p_values)) if p_values else None
    totals = [each.sum(axis=0) for each in bins]
    index = None
    if all(total.sum() for total in totals):  # PSI = Σ (p' − p)·log(p'/p)
        old, new = (np.maximum(total / total.sum(), 1e-4) for total in totals)
        index = float(np.sum((new - old) * np.log(new / old)))
    return replace(largest, p_value=p, stability_index=index)


def _deciles(values: Floats, shown: Floats) -> Floats:
    """Return the distinct values below which a tenth, two tenths, … of the impressions are."""
    is_present = ~np.isnan(values)
    order = np.argsort(values[is_present], kind="stable")
    total = np.cumsum(shown[is_present][order])
    if not len(total):
        return total
    at: Ints = np.searchsorted(total, total[-1] * np.arange(1, N_CUTS + 1) / (N_CUTS + 1))
    cuts: Floats = np.unique(values[is_present][order][np.minimum(at, len(total) - 1)])
    return cuts


# -- aggregation of a log by unit -----------------------------------------------------------------


def bucket_of(text: str) -> int:
    """Return one of 256 buckets for an id, always the same.

    >>> bucket_of("session-1"), bucket_of("session-2")
    (38, 123)
    """
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0]


def _aggregate(log: Impressions) -> pa.Table:
    """Return impressions and clicks by query, context, policy, bucket and position.

    The bucket is that of the row's client or, without one, its session or query. The log is read in
    batches, so that it need not fit into memory.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy)

    frame = log.frame
    names = [name for name in ("context", "policy", "client", "session") if name in log.columns]
    rows = frame.filter(aggregation.is_possible(frame)).select(
        "query_id", *names, position=nw.col("position").cast(nw.Int32),
        impressions=aggregation.impressions_of(frame).cast(nw.Int64),
        clicks=nw.col("click").cast(nw.Int64),
    )  # fmt: skip
    keys = ["query_id", *(name for name in names if name in {"context", "policy"}), "bucket",
            "position"]  # fmt: skip
    pieces = [
        _sum_by(_add_buckets(pa.Table.from_batches([batch])), keys)
        for batch in find_engine(log.engine).batches(rows, log.source)
    ]
    return _sum_by(pa.concat_tables(pieces), keys)


def _add_buckets(table: pa.Table) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 (heavy)
    from pyarrow import compute  # noqa: PLC0415

    names = [name for name in ("client", "session", "query_id") if name in table.column_names]
    ids, code = _encode(compute.coalesce(*(table[name].cast(pa.string()) for name in names)))
    buckets = np.array([bucket_of(text) for text in ids], np.int32)
    return table.append_column("bucket", pa.array(buckets[code], pa.int32()))


def _encode(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Return the distinct values as text, sorted, and the place of each row's."""
    import pyarrow as pa  # noqa: PLC0415 (heavy)

    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    names, place = np.unique(np.array(encoded.dictionary.to_pylist(), object), return_inverse=True)
    return names.tolist(), place[encoded.indices.to_numpy()]


def _sum_by(table: pa.Table, keys: list[str]) -> pa.Table:
    sums = ["impressions", "clicks"]
    groups = table.group_by(keys).aggregate([(name, "sum") for name in sums])
    return groups.select([*keys, *(f"{name}_sum" for name in sums)]).rename_columns([*keys, *sums])
