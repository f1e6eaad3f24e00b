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
import pyarrow as pa
from pyarrow import compute
from scipy import stats

from countersample._params import number
from countersample.defaults import CONFIDENCE
from countersample.errors import DataError, ParameterError
from countersample.evaluation.bootstrap import add_up
from countersample.evaluation.comparison import holm
from countersample.fitting.summaries import render_summary
from countersample.logs import aggregation, read_features, read_impressions
from countersample.logs.aggregated import is_aggregated
from countersample.logs.columns import NONE
from countersample.logs.engines import find_engine
from countersample.logs.joins import Matched
from countersample.logs.tally import integers
from countersample.options import LogOptions
from countersample.propensity.estimation import resample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from countersample._arrays import Floats, Ints
    from countersample.logs import FeatureTable, Impressions, PositionCounts

    Measure = Literal["ratio", "difference"]

LEVEL = 0.01  # the probability of any false alarm
MIN_UNITS = 20  # per log, with impressions
MIN_QUERIES = 20  # per log, to compare examination
MAX_POSITIONS = 20  # that are compared one by one
N_BOOTSTRAP = 200
N_CUTS = 9  # deciles of the values before, at which a feature is compared
N_BUCKETS = 256  # of clients, sessions or queries
SHOWN_TESTS = 5  # in a summary, if nothing changed
MIN_P_VALUE = 0.001  # smaller ones are not distinguished
ALL_POSITIONS = "all positions"


class Limits(NamedTuple):
    """How a kind of rate is compared: its measure, margin, and the least count to test it."""

    measure: Measure
    margin: float  # the largest change that is not relevant
    min_count: float = 0.0  # with fewer, the test is how likely so small a number is


#: By kind: click rates by position, items per page, propensities by position, shares of policies
#: and of contexts, visits with queries that are new or gone, impressions whose features are
#: missing, and impressions below a value of a feature.
LIMITS = {
    "clicks": Limits("ratio", 0.10, min_count=30),
    "pages": Limits("ratio", 0.10),
    "examination": Limits("ratio", 0.10),
    "policy": Limits("difference", 0.02),
    "context": Limits("difference", 0.02),
    "queries": Limits("difference", 0.05),
    "missing": Limits("difference", 0.02),
    "feature": Limits("difference", 0.05),
}


# -- tests of one rate ----------------------------------------------------------------------------


class Rate(NamedTuple):
    """The rate of one log, as its numerator and denominator per unit."""

    numerator: Floats
    denominator: Floats

    @classmethod
    def by_unit(cls, unit: Ints, numerator: Floats, denominator: Floats) -> Rate:
        """Sum columns of rows by the unit of each row."""
        return cls(*(add_up(unit, column, N_BUCKETS) for column in (numerator, denominator)))

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
    """One comparison of two logs, made by `find_drift`."""

    kind: str
    """A name of `LIMITS`."""
    name: str
    """The position, the policy, the feature, …."""
    before: float
    after: float
    """The rates, shares or propensities."""
    change: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    """after/before − 1 or, for a difference, after − before, with its 95 % interval; NaN if it
    cannot be computed."""
    p_value: float | None = None
    """The p-value of a change within the margin; None with too little data."""
    adjusted: float | None = None
    """The p-value, corrected for the number of tests."""
    is_drift: bool = False
    """Whether that is below the level."""
    stability_index: float | None = None
    """The population stability index (PSI) of a feature."""

    @property
    def size(self) -> str:
        """The change in words: +12.3 %, or −4.5 points."""
        if not np.isfinite(self.change):
            return "from nothing" if np.isinf(self.change) else "not known"
        unit = "%" if LIMITS[self.kind].measure == "ratio" else "points"
        return f"{100 * self.change:+.1f} {unit}"

    @property
    def interval(self) -> str:
        """The interval in words."""
        is_finite = np.isfinite(self.low)
        return f"{100 * self.low:+.1f} to {100 * self.high:+.1f}" if is_finite else "–"

    @property
    def p_text(self) -> str:
        """The corrected p-value in words."""
        if self.adjusted is None:
            return "–"
        return f"{self.adjusted:.2g}" if self.adjusted >= MIN_P_VALUE else f"< {MIN_P_VALUE:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN and infinity are None."""
        limits = LIMITS[self.kind]
        values = {**asdict(self), "measure": limits.measure, "margin": limits.margin}
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in values.items()
        }


def compare_rates(
    kind: str, name: str, rates: Sequence[Rate], limits: Limits | None = None
) -> Change:
    """Compare the rates of two logs, before and after; the kind has default limits.

    >>> units = np.ones(100)
    >>> change = compare_rates("clicks", "1", [Rate(20 * units, units), Rate(30 * units, units)])
    >>> change.size, change.p_value
    ('+50.0 %', 0.0)
    """
    measure, margin, min_count = LIMITS[kind] if limits is None else limits
    before, after = rates
    old, new = before.value, after.value
    change = new - old
    if measure == "ratio":
        change = new / old - 1 if old else float("inf") if new else float("nan")
    result = Change(kind, name, old, new, change)
    df = min(before.n_units, after.n_units) - 1
    if df + 1 < MIN_UNITS:
        return result
    if measure == "ratio" and min(rate.numerator.sum() for rate in rates) < min_count:
        lower, higher = (before, after) if old < new else (after, before)
        return replace(result, p_value=_test_rare(lower, higher, margin, min_count))
    if not np.isfinite(change):
        return result
    old_psi, new_psi = before.influence, after.influence
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, df))
    if measure == "ratio":
        ends = [(1, 1 + margin, 0.0), (-1, 1 / (1 + margin), 0.0)]
        spread = _error(new_psi / new - old_psi / old) if new else float("nan")
        low, high = ((1 + change) * np.exp(sign * quantile * spread) - 1 for sign in (-1, 1))
    else:
        ends = [(1, 1.0, margin), (-1, 1.0, -margin)]
        spread = _error(new_psi - old_psi)
        low, high = change - quantile * spread, change + quantile * spread
    # R' beyond c·R + d, at the upper and at the lower end of the margin
    tails = [
        _tail(sign * (new - c * old - d), _error(new_psi - c * old_psi), df) for sign, c, d in ends
    ]
    return replace(result, low=float(low), high=float(high), p_value=min(1.0, 2 * min(tails)))


def _test_rare(lower: Rate, higher: Rate, margin: float, min_count: float) -> float | None:
    """Return how likely a rate is as low as the lower one if it is not below c·R, c = 1/(1 + m).

    R is the higher rate. With denominator n, c·R·n are expected in the numerator, with the variance
    of a Poisson number times the dispersion of the higher rate; None if that is below `min_count`.
    """
    c, rate, n_lower = 1 / (1 + margin), higher.value, float(lower.denominator.sum())
    if c * rate * n_lower < min_count:
        return None
    variance = _error(higher.influence) ** 2
    dispersion = max(1.0, variance / (rate / float(higher.denominator.sum())))
    error = float(np.sqrt(dispersion * c * rate / n_lower + c * c * variance))
    df = min(lower.n_units, higher.n_units) - 1
    return min(1.0, 2 * _tail(c * rate - lower.value, error, df))


def _error(psi: Floats) -> float:
    """Return the standard error √(n/(n − 1)·Σ ψ²)."""
    return float(np.sqrt(len(psi) / (len(psi) - 1) * np.sum(psi**2)))


def _tail(excess: float, error: float, df: float) -> float:
    """Return P(T ≥ excess/error) of Student's t."""
    if not error:
        return 0.0 if excess > 0 else 1.0
    return float(stats.t.sf(excess / error, df))


# -- the comparison of two logs -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drift:
    """What changed between two logs, made by `find_drift`."""

    before: dict[str, Any]
    after: dict[str, Any]
    """The source, impressions, clicks, queries and units of each log."""
    changes: tuple[Change, ...]
    """All comparisons."""
    level: float
    """The probability of any false alarm is at most this."""
    notes: tuple[str, ...]
    """What could not be compared, and why."""

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

    @property
    def nearest_tests(self) -> list[Change]:
        """The tests with the smallest p-values."""
        tests = [change for change in self.changes if change.p_value is not None]
        return sorted(tests, key=lambda change: change.p_value or 0.0)[:SHOWN_TESTS]

    def of_kind(self, *kinds: str) -> list[Change]:
        """Return the comparisons of some kinds."""
        return [change for change in self.changes if change.kind in kinds]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "is_drift": self.is_drift, "sentence": self.sentence, "level": self.level,
            "correction": "Holm", "tests": self.n_tests, "before": self.before,
            "after": self.after, "changes": [change.to_dict() for change in self.changes],
            "notes": list(self.notes),
        }  # fmt: skip

    def summary(self) -> str:
        """Return both logs, what changed, or the tests that come nearest to it, for a terminal."""
        return render_summary("drift.txt", drift=self)


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
    of the items that were shown. Margins are the constants at the top of this module. Clicks of the
    same user (or session or, in a log without these, query) may depend on each other.

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
    problems = [
        (check.source, check.problems.sentence(has_impressions="impressions" in check.columns))
        for check in checks
    ]
    notes = [f"{source}: {problem}." for source, problem in problems if problem]
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
        changes += _compare_features(counts, (features_before or features, features))
    units = [log.unit_name for log in logs]
    if units[0] != units[1]:
        notes.append(f"Clicks are grouped by {units[0]} before and by {units[1]} after.")
    small = [log.source for log in logs if len(np.unique(log.unit)) < MIN_UNITS]
    notes += [f"{source} is too small to test anything." for source in small]
    p_values = [np.nan if each.p_value is None else each.p_value for each in changes]
    changes = [
        change if np.isnan(p) else replace(change, adjusted=p, is_drift=p < level)
        for change, p in zip(changes, holm(p_values).tolist(), strict=True)
    ]
    sides = [
        {"source": log.source, "impressions": each.n_impressions, "clicks": each.n_clicks,
         "queries": len(each.query_ids), "clustered_by": log.unit_name}
        for log, each in zip(logs, counts, strict=True)
    ]  # fmt: skip
    return Drift(sides[0], sides[1], tuple(changes), level, tuple(notes))


def find_drift_in_files(
    after: str,
    before: str,
    options: LogOptions,
    *,
    features: Path | None = None,
    features_before: Path | None = None,
) -> Drift:
    """Compare two logs in files, which may be raw or aggregated; see `find_drift`.

    `features_before` are the features of the earlier log's items, if they differ.
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
    # If only one log is aggregated, options about raw rows are for the other one.
    for_aggregated = LogOptions(
        join_queries=options.join_queries, features=options.features,
        memory_limit=options.memory_limit, temp_dir=options.temp_dir,
    )  # fmt: skip
    is_counted = is_aggregated(after), is_aggregated(before)
    with (
        read_impressions(after, for_aggregated if is_counted == (True, False) else options) as new,
        read_impressions(before, for_aggregated if is_counted == (False, True) else options) as old,
    ):
        return find_drift(new, old, features=later, features_before=earlier)


@dataclass(frozen=True, eq=False)
class LogUnits:
    """Impressions and clicks of a log, one row per query, context, policy, unit and position."""

    source: str
    unit: Ints  # a bucket of clients, sessions or queries
    unit_name: str  # client, session or query
    groups: dict[str, tuple[list[str], Ints]]  # names of queries, policies and contexts, and codes
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
            name: _encode(table[name])
            for name in ("query_id", "policy", "context")
            if name in table.column_names
        }
        unit_name = next((name for name in ("client", "session") if name in log.columns), "query")
        counts = (integers(table[name]).astype(np.float64) for name in ("impressions", "clicks"))
        return cls(log.source, integers(table["bucket"]), unit_name, groups,
                   integers(table["position"]), *counts)  # fmt: skip

    def rate(self, numerator: Floats, denominator: Floats) -> Rate:
        """Return a rate per unit, from columns of the rows."""
        return Rate.by_unit(self.unit, numerator, denominator)

    @property
    def visits(self) -> Floats:
        """The visits of each row: impressions of the first position, 0 at others."""
        return np.where(self.position == 1, self.impressions, 0.0)


def _compare_clicks(logs: tuple[LogUnits, LogUnits]) -> Iterator[Change]:
    """Compare click rates, over all positions and at each, and the items per page."""
    both = np.intersect1d(logs[0].position, logs[1].position)[:MAX_POSITIONS].tolist()
    for position in [None, *(both if len(both) > 1 else [])]:
        rates = []
        for log in logs:
            rows = np.ones(len(log.position)) if position is None else log.position == position
            rates.append(log.rate(log.clicks * rows, log.impressions * rows))
        name = ALL_POSITIONS if position is None else f"position {position}"
        yield compare_rates("clicks", name, rates)
    rates = [log.rate(log.impressions, log.visits) for log in logs]
    if all(rate.denominator.any() for rate in rates):
        yield compare_rates("pages", "items per page", rates)


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
    quantile = stats.norm.ppf((1 + CONFIDENCE) / 2)
    log_margin = np.log1p(LIMITS["examination"].margin)
    for k in range(1, depth):
        old, new, error = float(before.value[k]), float(after.value[k]), float(variance[k]) ** 0.5
        if min(old, new) <= 0 or not np.isfinite(error):
            continue
        ratio = np.log(new / old)
        tails = [_tail(sign * ratio - log_margin, error, np.inf) for sign in (-1, 1)]
        change, low, high = (float(np.expm1(ratio + z * quantile * error)) for z in (0, -1, 1))
        p = min(1.0, 2 * min(tails))
        yield Change("examination", f"position {k + 1}", old, new, change, low, high, p)


def _compare_shares(logs: tuple[LogUnits, LogUnits], notes: list[str]) -> Iterator[Change]:
    """Compare the shares of policies and contexts."""
    for kind in ("policy", "context"):
        groups = [log.groups[kind] for log in logs if kind in log.groups]
        if len(groups) == 1:
            notes.append(f"Only one of the logs has a column {kind!r}: shares are not compared.")
        if len(groups) < 2:
            continue
        every_name = sorted({name for names, _ in groups for name in names})
        for name in every_name if len(every_name) > 1 else []:
            rates = []
            for log, (names, code) in zip(logs, groups, strict=True):
                rows = code == (names.index(name) if name in names else -1)
                rates.append(log.rate(log.impressions * rows, log.impressions))
            yield compare_rates(kind, name, rates)


def _compare_queries(logs: tuple[LogUnits, LogUnits], notes: list[str]) -> Iterator[Change]:
    """Compare the share of queries that are new, or gone, with the share expected by chance."""
    if "query" in {log.unit_name for log in logs}:
        notes.append(
            "New queries were not compared: the number that chance brings is estimated from users "
            "or sessions, which both logs need."
        )
        return
    before, after = logs
    for kind, one, other in (("new", after, before), ("gone", before, after)):
        names, query = one.groups["query_id"]
        other_names, other_query = other.groups["query_id"]
        other_queries = set(other_names)  # an array would be as wide as the longest query
        is_new = np.array([name not in other_queries for name in names], bool)
        # Another log of the same users would bring the queries that only one unit has: each unit
        # in turn takes the part of the other log.
        pairs = np.unique(other_query * N_BUCKETS + other.unit)
        is_single = np.bincount(pairs // N_BUCKETS, minlength=len(other_names)) == 1
        rates = (
            other.rate(other.visits * is_single[other_query], other.visits),
            one.rate(one.visits * is_new[query], one.visits),
        )
        if all(rate.denominator.any() for rate in rates):
            change = compare_rates("queries", kind, rates)
            # Users who return repeat their queries: fewer new ones than expected are no change.
            yield change if change.after > change.before else replace(change, p_value=1.0)


# -- features of the items that were shown --------------------------------------------------------


def _compare_features(
    counts: tuple[PositionCounts, PositionCounts], tables: tuple[FeatureTable, FeatureTable]
) -> Iterator[Change]:
    """Compare the features of the items shown before and after, one by one; units are queries."""
    names = [table.dataset.feature_names for table in tables]
    n_features = tables[0].dataset.n_features
    if names[0] != names[1] or n_features != tables[1].dataset.n_features:
        raise DataError("the features before and after have different names, expected the same")
    units, shown, rows, unmatched = [], [], [], []
    for each, table in zip(counts, tables, strict=True):
        row = Matched.of(each, table.dataset, table.item_ids).row
        unit = np.array([bucket_of(str(name)) for name in each.query_ids.tolist()])[each.query]
        impressions = each.impressions.astype(np.float64)
        unmatched.append(Rate.by_unit(unit, impressions * (row < 0), impressions))
        units.append(unit[row >= 0])
        shown.append(impressions[row >= 0])
        rows.append(row[row >= 0])
    yield compare_rates("missing", "all features", unmatched)
    for k in range(n_features):
        name = str(k) if names[0] is None else names[0][k]
        values = [
            np.asarray(table.dataset.features[:, k], np.float64)[row]
            for table, row in zip(tables, rows, strict=True)
        ]
        missing = [
            Rate.by_unit(unit, n * np.isnan(each), n)
            for unit, n, each in zip(units, shown, values, strict=True)
        ]
        if any(rate.numerator.any() for rate in missing):
            yield compare_rates("missing", name, missing)
        yield _compare_distributions(name, units, shown, values)


def _compare_distributions(
    name: str, units: list[Ints], shown: list[Floats], values: list[Floats]
) -> Change:
    """Compare the shares of impressions below each decile of the values before.

    The change is the largest difference, so that the scale of the feature does not matter; the
    p-value is Bonferroni's.
    """
    cuts = _deciles(values[0], shown[0])
    if not len(cuts):  # all values are missing
        return Change("feature", name, np.nan, np.nan)
    n_bins, bins = len(cuts) + 1, []
    for unit, n, each in zip(units, shown, values, strict=True):
        present = ~np.isnan(each)
        cell = unit[present] * n_bins + np.searchsorted(cuts, each[present], side="left")
        bins.append(add_up(cell, n[present], N_BUCKETS * n_bins).reshape(N_BUCKETS, n_bins))
    below = [np.cumsum(each, axis=1) for each in bins]
    changes = [
        compare_rates("feature", name, [Rate(each[:, k], each[:, -1]) for each in below])
        for k in range(len(cuts))
    ]
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

    The bucket depends on the row's client or, without one, its session or query. The log is read in
    batches, so that it need not fit into memory.
    """
    frame = log.frame
    names = [name for name in ("context", "policy", "client", "session") if name in log.columns]
    rows = frame.filter(aggregation.is_possible(frame)).select(
        "query_id", *names, position=nw.col("position").cast(nw.Int32),
        impressions=aggregation.impressions_of(frame).cast(nw.Int64),
        clicks=nw.col("click").cast(nw.Int64),
    )  # fmt: skip
    unit_names = [name for name in ("client", "session") if name in names] + ["query_id"]
    keys = ["query_id", *(name for name in names if name not in unit_names), "bucket", "position"]
    pieces = []
    for batch in find_engine(log.engine).batches(rows, log.source):
        table = pa.Table.from_batches([batch])
        ids = compute.coalesce(*(table[name].cast(pa.string()) for name in unit_names))
        distinct, code = _encode(ids)
        buckets = np.array([bucket_of(text) for text in distinct], np.int32)[code]
        pieces.append(_sum_by(table.append_column("bucket", pa.array(buckets)), keys))
    return _sum_by(pa.concat_tables(pieces), keys)


def _encode(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Return the distinct values as text, sorted, and the place of each row's."""
    encoded = column.cast(pa.string()).fill_null(NONE).dictionary_encode().unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    values = np.array(encoded.chunk(0).dictionary.to_pylist(), object)
    names, place = np.unique(values, return_inverse=True)
    return names.tolist(), place[codes]


def _sum_by(table: pa.Table, keys: list[str]) -> pa.Table:
    sums = ["impressions", "clicks"]
    groups = table.group_by(keys).aggregate([(name, "sum") for name in sums])
    return groups.select([*keys, *(f"{name}_sum" for name in sums)]).rename_columns([*keys, *sums])
