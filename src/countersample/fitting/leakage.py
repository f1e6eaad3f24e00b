"""Detect features that were computed from the evaluation clicks (leakage): `find_leaks`.

Let query-item pair i have C clicks, with expectation μ. A feature x that existed before the clicks
carries no information about C beyond μ. So for any prediction m(x) from it, the squared error
contains the full variance that chance adds:

    E (C − m(x))² = E Var(C | μ) + E (μ − m(x))² ≥ E Var(C | μ)

A feature that was computed from these very clicks predicts the chance outcomes too, and its error
is smaller than the variance. This holds however much relevance varies, however much of it the
feature captures and however wrong the examination probabilities are: all of these only increase the
error of a legitimate feature. For n equal impressions, C·(n − C)/(n − 1) is an unbiased estimate of
Var(C | μ). For a single impression, examined with probability θ, C·(1 − θ) is not above it on
average.

With two periods, a second test detects features that predict one far better than the other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from countersample.errors import ParameterError
from countersample.evaluation.bootstrap import add_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Bools, Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

LEAK_THRESHOLD = 0.001  # the probability of any false alarm per log, over all features and tests
DAYS_RATIO = 2.0  # a feature leaks if it predicts one period more than this many times as well
MAX_PAIRS = 40_000  # pairs that are tested; larger logs are sampled by query
FIRST_PAIRS = 5_000  # of these, on which every feature is tested first
MAX_FIRST_BOUND = -1.0  # log P(false alarm) above which a feature is not tested on all pairs
MIN_PAIRS = 50  # fewer are not tested
N_STEPS, N_LINES, N_SIZES = 32, 16, 4  # bins of a feature's values, and of the sizes of pairs
OTHER_CLICKS = 3  # the index of the base that uses other clicks on the page
USER_VARIATION = 2.0  # the largest squared coefficient of variation of users' click rates
N_PREDICTIONS = (4 * 3 + 2) + 3 * 3  # ways to predict, for pairs and for items
_MAX_POSITIONS = 1 << 20  # more positions than a page has

Period = Literal["log", "training", "evaluation"]
Evidence = Literal["chance", "days"]
_PERIODS: tuple[Period, Period] = ("training", "evaluation")
_CLICKS = {
    "log": "the clicks of this log",
    "training": "the clicks of the training days",
    "evaluation": "the clicks of the evaluation days",
}


@dataclass(frozen=True)
class Leak:
    """A feature that carries information about clicks that came after it should have existed."""

    feature: int
    """Its column, from 0."""
    name: str
    """Its name, or ``feature 1`` for the first of features without names."""
    period: Period
    """The clicks that it was computed from: the whole log, or one of the two periods."""
    evidence: Evidence
    """It predicts the chance in the clicks, or one period far better than the other."""
    size: float
    """The share of the chance that it predicts; or the ratio of how well it predicts the two
    periods (infinite if it predicts only one)."""
    false_alarm: float
    """An upper bound on the probability that any legitimate feature looks like this."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; an infinite size is None."""
        return asdict(self) | {"size": self.size if np.isfinite(self.size) else None}

    @property
    def sentence(self) -> str:
        """The evidence in words."""
        if self.evidence == "chance":
            return (
                f"Feature {self.name!r} was computed from {_CLICKS[self.period]}: it predicts "
                f"{self.size:.0%} of their random variation, which no earlier feature can predict."
            )
        is_training = self.period == "training"
        other = _CLICKS["evaluation" if is_training else "training"]
        ratio = f"{self.size:.1f} times as well as" if np.isfinite(self.size) else "but not"
        cause = ", or what users want has changed since" if is_training else ""
        return (
            f"Feature {self.name!r} predicts {_CLICKS[self.period]} {ratio} {other}, at the same "
            f"positions of the same queries and items: it was computed from them{cause}."
        )


def find_leaks(
    log: ClickLog,
    dataset: RankingDataset,
    *,
    item_ids: ArrayLike | None = None,
    evaluation: ClickLog | None = None,
    is_complete: bool = True,
    rng: np.random.Generator,
) -> tuple[Leak, ...]:
    """Return the features that leak the clicks of a log, the surest first.

    A feature leaks if predictions from it are closer to the clicks than chance allows (see the top
    of this module). Over query-item pairs i with C_i clicks:

        Σ_i w_i·[(C_i − m_i)² − v_i] < 0        v_i = Σ_rows C·(n − C)/(n − 1),  w_i = 1/(m_i + ½)

    The prediction m_i for one half of the queries is learned from the other half: the clicks per
    examination, impression or pair in each bin of the feature's values, also relative to other
    items of the query. With `item_ids` the same is tested for items over all of their queries. By
    Bernstein's inequality, the probability of any false alarm per log is at most `LEAK_THRESHOLD`.

    Parameters
    ----------
    log : ClickLog
        With impressions: one row for everything that was shown. If it has clicked pairs only, the
        other items of their queries count as shown and not clicked.
    dataset : RankingDataset
    item_ids : array-like (n_items,), optional
        The id of the item in each row of the dataset, the same in all queries.
    evaluation : ClickLog, optional
        The later days that evaluate, if `log` has the training days. Both periods are tested,
        alone, together, and against each other at the same positions of the same pairs.
    is_complete : bool
        Whether both logs have everything that was shown. Otherwise the two periods are not
        combined: pairs that were selected by their clicks are biased on other days.
    rng : numpy Generator
        Samples queries from a large log, and splits them into halves.

    Examples
    --------
    All items are equally relevant here, and yet the second feature predicts the clicks:

    >>> import numpy as np
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.fitting import find_leaks
    >>> rng = np.random.default_rng(0)
    >>> query, item = np.divmod(np.arange(4000), 10)
    >>> clicks = rng.binomial(40, 0.2 / (item + 1))
    >>> data = RankingDataset.from_arrays(
    ...     X=np.column_stack([rng.random(4000), clicks / 40]), y=np.zeros(4000), qid=query
    ... )
    >>> log = ClickLog(query, item, 1 / (item + 1), clicks, impressions=np.full(4000, 40))
    >>> (leak,) = find_leaks(log, data, rng=rng)
    >>> leak.feature, leak.size > 0.9, leak.false_alarm < 1e-9
    (1, True, True)
    >>> print(leak.sentence.partition(":")[0])
    Feature 'feature 2' was computed from the clicks of this log
    """
    items = None
    if item_ids is not None:  # a number for each id, the same for the same id
        items = pa.array(np.asarray(item_ids)).dictionary_encode().indices.to_numpy()
        items = items.astype(np.int64)
    tests: dict[Period, list[Rows]] = {"log": [Rows.from_log(log, dataset)]}
    if evaluation is not None:
        both = [Rows.from_log(each, dataset) for each in (log, evaluation)]
        tests = {"training": both[:1], "evaluation": both[1:]}
        if is_complete:
            tests["log"] = both
    findings: list[tuple[Evidence, int, Period, float, float]] = [
        ("chance", feature, period, size, log_bound)
        for period, rows in tests.items()
        for feature, size, log_bound in predict_chance(Rows.concat(rows), dataset, items, rng)
    ]
    if evaluation is not None and is_complete:
        findings += [("days", *finding) for finding in _test_days(both, dataset, rng)]
    names = _names_of(dataset)
    leaks: dict[int, Leak] = {}
    for evidence, feature, period, size, log_bound in findings:
        n_predictions = len(tests) * N_PREDICTIONS if evidence == "chance" else 4
        n_tests = dataset.n_features * n_predictions
        bound = 2 * n_tests * float(np.exp(log_bound))  # half of the false alarms per evidence
        other = leaks.get(feature)
        if bound < LEAK_THRESHOLD and (other is None or bound < other.false_alarm):
            leaks[feature] = Leak(feature, names[feature], period, evidence, size, bound)
    return tuple(sorted(leaks.values(), key=lambda leak: leak.false_alarm))


def _names_of(dataset: RankingDataset) -> Sequence[str]:
    return dataset.feature_names or [f"feature {k + 1}" for k in range(dataset.n_features)]


def check_accepted(names: Sequence[str], dataset: RankingDataset) -> tuple[str, ...]:
    """Return the names of the accepted features; raise an error for a name that is no feature."""
    for name in names:
        if name not in _names_of(dataset):
            raise ParameterError(f"accept_features has {name!r}, expected names of features")
    return tuple(names)


# -- does a feature predict chance? ---------------------------------------------------------------


class Rows(NamedTuple):
    """Impressions and clicks, one row per query, item and position that may be examined."""

    row: Ints  # the item's row in the dataset
    position: Ints
    shown: Floats  # impressions
    clicks: Floats
    theta: Floats

    @classmethod
    def from_log(cls, log: ClickLog, dataset: RankingDataset) -> Rows:
        """Return the rows of a log with impressions."""
        assert log.impressions is not None  # noqa: S101 (of everything that was shown)
        clicks = log.clicks if log.events is None else log.events
        position = np.ones(log.n_rows, np.int64)
        if log.position is not None:
            position = log.position.astype(np.int64)
        theta = log.examination
        if theta is None:  # known for clicks only: use the click rate of each position
            rate = add_up(position, clicks, int(position.max()) + 1)
            rate /= np.maximum(add_up(position, log.impressions, len(rate)), 1.0)
            theta = (rate / rate.max())[position]
        # Items that a page shows twice may count in part, which changes the variance.
        is_used = (theta > 0) & (log.impressions > 0) & (clicks == np.rint(clicks))
        row = dataset.offsets[log.query] + log.item
        return cls(row, position, log.impressions, clicks, theta).take(is_used)

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """Return the rows of several logs of one dataset."""
        columns: list[NDArray[Any]] = [np.concatenate(each) for each in zip(*parts, strict=True)]
        return cls(*columns)

    def take(self, mask: Bools) -> Rows:
        """Return the rows where the mask is true."""
        columns: list[NDArray[Any]] = [column[mask] for column in self]
        return Rows(*columns)


class Groups(NamedTuple):
    """Query-item pairs, or items with all of their queries, each (n,)."""

    row: Ints  # the first row in the dataset
    unit: Ints  # what is sampled as a whole: the query of a pair
    half: Ints  # 0 or 1, by unit
    clicks: Floats
    chance: Floats  # v: its expectation is at most Var(C | μ)
    user_chance: Floats  # the part of v that other clicks on the page may predict
    spread: Floats  # Var((C − m)² − v) is about 2·m²·spread + m·single
    single: Floats
    bases: Floats  # what a prediction is proportional to, (3 or 4, n)
    size: Ints  # the quartile of the first base

    def take(self, mask: Bools) -> Groups:
        """Return the groups where the mask is true."""
        columns: list[NDArray[Any]] = [column[..., mask] for column in self]
        return Groups(*columns)

    def features(self, dataset: RankingDataset, feature: int) -> Floats:
        """Return the values of a feature; missing ones are below all others."""
        values: Floats = dataset.features[self.row, feature].astype(np.float64)
        is_missing = np.isnan(values)
        if is_missing.any() and not is_missing.all():
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            return np.where(is_missing, low - max(high - low, 1.0), values)
        return np.nan_to_num(values)


def predict_chance(
    rows: Rows, dataset: RankingDataset, items: Ints | None, rng: np.random.Generator
) -> Iterator[tuple[int, float, float]]:
    """Yield each feature, the share of chance that it predicts, and log P(false alarm).

    `items` are the numbers of the items in the rows of the dataset, (n_items,): with them, items
    are tested over all of their queries, too.
    """
    pairs, is_complete = _group_by_pair(rows, dataset, rng)
    if len(pairs.row) < MIN_PAIRS:
        return
    tests = [_split_stages(pairs, rng)]
    if items is not None and is_complete:
        n_pairs = np.count_nonzero(np.bincount(rows.row))
        n_items = np.count_nonzero(np.bincount(items[rows.row]))
        if MIN_PAIRS <= n_items < 0.9 * n_pairs:
            tests.append(_split_stages(_group_by_item(rows, items, rng), rng))
    for feature in range(dataset.n_features):
        best = (0.0, 0.0)
        for stages in tests:
            result = (0.0, 0.0)
            for groups, page_excess in stages:
                result = _smallest_bound(groups, groups.features(dataset, feature), page_excess)
                if result[0] > MAX_FIRST_BOUND:
                    break
            best = min(best, result)
        yield feature, best[1], best[0]


def _split_stages(groups: Groups, rng: np.random.Generator) -> list[tuple[Groups, float]]:
    """Return a sample to test first, and all groups; each with the excess that is no leak.

    Clicks on one page may be correlated: what the others predict of chance is not a leak.
    """
    stages = [groups]
    if len(groups.row) > 2 * FIRST_PAIRS:
        is_first = rng.random(int(groups.unit.max()) + 1) < FIRST_PAIRS / len(groups.row)
        first = groups.take(is_first[groups.unit])
        stages = [first, groups] if len(first.row) >= MIN_PAIRS else stages
    results = []
    for stage in stages:
        mean = _predict_by_bin(stage, stage.bases[-1], np.zeros(len(stage.row), np.int64))
        results.append((stage, max(0.0, _excess(stage, mean, uses_page=True)[0])))
    return results


def _smallest_bound(groups: Groups, values: Floats, page_excess: float) -> tuple[float, float]:
    """Return the least log P(false alarm) over all predictions, and the share of chance predicted.

    By Bernstein's inequality: for a legitimate feature each term of the sum has an expectation of
    at most 0 and is at most 1, so that P(sum ≥ t) ≤ exp(−t²/2/(variance + t/3)).
    """
    best = (0.0, 0.0)
    if values.min() == values.max():
        return best
    for mean, uses_page in _predictions(groups, values):
        excess, variance, chance = _excess(groups, mean, uses_page=uses_page)
        excess -= page_excess
        if excess > 0:
            bound = -(excess**2) / 2 / (variance + excess / 3)
            best = min(best, (bound, min(1.0, excess / chance)))
    return best


def _predictions(groups: Groups, values: Floats) -> Iterator[tuple[Floats, bool]]:
    """Yield predictions of the clicks from a feature, NaN if there is none for a group.

    The second value is whether clicks on the same page are used, too.
    """
    n = len(values)
    order = np.argsort(values, kind="stable")
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    bins: list[tuple[Ints, Floats | None]] = [
        (rank * min(N_STEPS, n // 10) // n, None),
        (rank * min(N_LINES, n // 50) // n, values),
    ]
    n_lines = min(N_SIZES, n // 200)
    if n_lines > 1:
        bins.append((groups.size * n_lines + rank * n_lines // n, values))
    for k, base in enumerate(groups.bases):
        for bin_of_group, line in bins:
            yield _predict_by_bin(groups, base, bin_of_group, line), k == OTHER_CLICKS
    order = order[np.argsort(groups.unit[order], kind="stable")]
    for base in groups.bases[:2]:
        yield _predict_by_neighbours(groups, base, order), True


def _predict_by_bin(
    groups: Groups, base: Floats, bins: Ints, values: Floats | None = None
) -> Floats:
    """Return m = base·(a + b·values) per bin, by least squares over the other half of the queries.

    Without values, b = 0.
    """
    cell = 2 * bins + groups.half
    n_cells = 2 * int(bins.max()) + 2
    other = cell ^ 1  # the same bin in the other half
    below = np.maximum(add_up(cell, base, n_cells), 1e-300)
    mean: Floats = base * (add_up(cell, groups.clicks, n_cells) / below)[other]
    if values is None:
        return mean
    middle = add_up(cell, base * values, n_cells) / below
    offset = values - middle[cell]
    squares = np.maximum(add_up(cell, base * offset**2, n_cells), 1e-300)
    slope = add_up(cell, offset * groups.clicks, n_cells) / squares
    mean += base * slope[other] * (values - middle[other])
    return np.maximum(mean, 0.0)


def _predict_by_neighbours(groups: Groups, base: Floats, order: Ints) -> Floats:
    """Return m = base·(mean rate of the items next below and above in the query, by the feature).

    This works for features that are not comparable between queries. `order` sorts by query, then by
    the feature.
    """
    unit, rate = groups.unit[order], (groups.clicks / base)[order]
    mean = np.full(len(order), np.nan)
    inner = 1 + np.flatnonzero(unit[:-2] == unit[2:])
    mean[order[inner]] = base[order[inner]] * (rate[inner - 1] + rate[inner + 1]) / 2
    return mean


def _excess(groups: Groups, mean: Floats, *, uses_page: bool) -> tuple[float, float, float]:
    """Return Σ w·[v − (C − m)²], its variance for a legitimate feature, and Σ w·v.

    w = 1/(m + ½), and 0 where m is NaN. Some users click more than others, and by chance a page may
    have had more of them. Other clicks on the page predict that, so it is subtracted from v.
    """
    weight = 1 / (mean + 0.5)
    if np.isnan(mean).any():
        weight, mean = np.nan_to_num(weight), np.nan_to_num(mean)
    variance = weight**2 * mean * (2 * mean * groups.spread + groups.single)
    chance = float((weight * (groups.chance - groups.user_chance * uses_page)).sum())
    error = float((weight * (groups.clicks - mean) ** 2).sum())
    return chance - error, float(variance.sum()), max(chance, 1e-300)


def _group_by_pair(
    rows: Rows, dataset: RankingDataset, rng: np.random.Generator
) -> tuple[Groups, bool]:
    """Return the query-item pairs of some queries, and whether they are all that was shown."""
    rows, is_complete = _sample_queries(rows, dataset, rng)
    row, member = np.unique(rows.row, return_inverse=True)
    query = np.searchsorted(dataset.offsets, row, side="right") - 1
    half = rng.integers(2, size=dataset.n_queries)[query]
    groups = _sum_groups(rows, member, row, query, half)
    examined, shown, one = groups.bases
    if not is_complete:  # the exposure of the others is not known, and must not reveal them
        most = np.zeros(dataset.n_queries)
        np.maximum.at(most, query, examined)
        examined = shown = most[query]

    def sum_others(column: Floats) -> Floats:
        return add_up(query, column, dataset.n_queries)[query] - column

    prior = examined.sum() / max(1.0, groups.clicks.sum())  # examinations per click
    level = (sum_others(groups.clicks) + 1) / (sum_others(examined) + prior)
    bases = np.stack([examined, shown, one, examined * level])
    return groups._replace(bases=bases, size=_quartile(examined)), is_complete


def _sample_queries(
    rows: Rows, dataset: RankingDataset, rng: np.random.Generator
) -> tuple[Rows, bool]:
    """Return the rows of a sample of queries, and whether they are all that was shown.

    If they are not, all other items of these queries are added, without a click.
    """
    is_shown = np.bincount(rows.row, minlength=dataset.n_items) > 0
    clicks = add_up(rows.row, rows.clicks, dataset.n_items)[is_shown]
    # At least once²/(2·twice) items were shown without a click (Chao 1984). Are they present?
    once, twice = int((clicks == 1).sum()), int((clicks == 2).sum())
    is_complete = not clicks.all() or once**2 <= 10 * twice
    n_shown = np.add.reduceat(is_shown.astype(np.int64), dataset.offsets[:-1])
    sizes = n_shown if is_complete else dataset.query_sizes
    sample = rng.permutation(np.flatnonzero(n_shown))
    sample = sample[np.cumsum(sizes[sample]) <= max(MAX_PAIRS, sizes[sample[:1]].sum())]
    is_sampled = np.zeros(dataset.n_queries, np.bool_)
    is_sampled[sample] = True
    in_sample = np.repeat(is_sampled, dataset.query_sizes)
    rows = rows.take(in_sample[rows.row])
    if is_complete:
        return rows, True
    others = np.setdiff1d(np.flatnonzero(in_sample), rows.row)
    one = np.ones(len(others))
    extra = Rows(others, one.astype(np.int64), one, np.zeros(len(others)), one)
    return Rows.concat([rows, extra]), False


def _group_by_item(rows: Rows, items: Ints, rng: np.random.Generator) -> Groups:
    """Return items, each with all of its queries; many items are sampled."""
    item = items[rows.row]
    is_shown = np.bincount(item) > 0
    if np.count_nonzero(is_shown) > MAX_PAIRS:
        is_sampled = np.zeros(len(is_shown), np.bool_)
        is_sampled[rng.permutation(np.flatnonzero(is_shown))[:MAX_PAIRS]] = True
        rows = rows.take(is_sampled[item])
        item = items[rows.row]
    _, first, member = np.unique(item, return_index=True, return_inverse=True)
    half = rng.integers(2, size=len(first))
    return _sum_groups(rows, member, rows.row[first], np.arange(len(first)), half)


def _sum_groups(rows: Rows, member: Ints, row: Ints, unit: Ints, half: Ints) -> Groups:
    """Return the sums per group; `member` is the group of each row."""
    _, _, shown, clicks, theta = rows

    def total(column: Floats) -> Floats:
        return add_up(member, column, len(row))

    is_single = shown < 2
    often = np.where(is_single, 2.0, shown)
    chance = np.where(is_single, clicks * (1 - theta), clicks * (shown - clicks) / (often - 1))
    # If users click a times as often, Var E(C | all a) = n·x²·Var(a), and x² ≤ θ·x.
    squares = clicks * (clicks - 1) / (often - 1)
    examined = total(shown * theta)
    share = shown * theta / examined[member]
    return Groups(
        row=row,
        unit=unit,
        half=half,
        clicks=total(clicks),
        chance=total(chance),
        user_chance=USER_VARIATION * total(np.where(is_single, clicks * theta, squares)),
        spread=1 + total(share**2 / (often - 1)),
        single=total(np.where(is_single, share * theta**2, 0.0)),
        bases=np.stack([examined, total(shown), np.ones(len(row))]),
        size=_quartile(examined),
    )


def _quartile(sizes: Floats) -> Ints:
    """Return the quartile of each size, from 0."""
    cuts = np.quantile(sizes, np.arange(1, N_SIZES) / N_SIZES)
    return np.searchsorted(cuts, sizes)


# -- does a feature predict one period better than the other? ------------------------------------


def _test_days(
    both: list[Rows], dataset: RankingDataset, rng: np.random.Generator
) -> Iterator[tuple[int, Period, float, float]]:
    """Yield each feature, the period that it predicts better, the ratio, and log P(false alarm).

    U = Σ w·x̃·y is computed for each of the two periods: y is the click rate of a query, item and
    position over the mean rate of the position, x̃ the rank of the feature's value minus its mean in
    the query. For a feature from before the clicks both have the same expectation u. Then
    U₁ − 2·U₂ has expectation −u, and has the sign of U₁ only by chance. If its sums per query, S_q,
    are symmetric, P(|Σ S_q| > z·√Σ S_q²) ≤ 2·exp(−z²/2).
    """
    n_rows = min(len(rows.row) for rows in both)
    if n_rows > MAX_PAIRS:
        is_sampled = rng.random(dataset.n_queries) < MAX_PAIRS / n_rows
        in_sample = np.repeat(is_sampled, dataset.query_sizes)
        both = [rows.take(in_sample[rows.row]) for rows in both]
    place, shown, clicks = _match_periods(both)
    row, position = np.divmod(place, _MAX_POSITIONS)
    if len(row) < MIN_PAIRS:
        return
    weight = shown.prod(axis=0) / shown.sum(axis=0)
    n_positions = int(position.max()) + 1
    rates = clicks / shown
    means = np.stack([add_up(position, weight * rate, n_positions) for rate in rates])
    means /= np.maximum(add_up(position, weight, n_positions), 1e-300)
    has_clicks = (means.min(axis=0) > 0)[position]
    weight = np.where(has_clicks, weight * means.mean(axis=0)[position], 0.0)
    rates = np.divide(rates, means[:, position], where=has_clicks, out=np.zeros_like(rates))
    _, query = np.unique(np.searchsorted(dataset.offsets, row, side="right"), return_inverse=True)
    n_queries = int(query.max()) + 1
    in_query = np.maximum(add_up(query, weight, n_queries), 1e-300)
    for feature in range(dataset.n_features):
        _, code = np.unique(dataset.features[row, feature], return_inverse=True)
        rank = (np.cumsum(np.bincount(code)) / len(code))[code]
        centred = weight * (rank - (add_up(query, weight * rank, n_queries) / in_query)[query])
        by_period = np.stack([add_up(query, centred * rate, n_queries) for rate in rates])
        for better, period in enumerate(_PERIODS):
            this, other = float(by_period[better].sum()), float(by_period[1 - better].sum())
            by_query = by_period[better] - DAYS_RATIO * by_period[1 - better]
            total, squares = float(by_query.sum()), float((by_query**2).sum())
            if abs(this) > abs(other) and total * this > 0 and squares > 0:
                ratio = this / other if this * other > 0 else np.inf
                yield feature, period, ratio, -(total**2) / 2 / squares


def _match_periods(both: list[Rows]) -> tuple[Ints, Floats, Floats]:
    """Return the pairs and positions in both periods, their impressions and clicks, (2, n)."""
    keys = [rows.row * _MAX_POSITIONS + rows.position for rows in both]
    places, member = np.unique(np.concatenate(keys), return_inverse=True)
    members = np.split(member, [len(keys[0])])
    shown, clicks = (
        np.stack([add_up(member, getattr(rows, name), len(places))
                  for member, rows in zip(members, both, strict=True)])
        for name in ("shown", "clicks")
    )  # fmt: skip
    in_both = shown.all(axis=0)
    return places[in_both], shown[:, in_both], clicks[:, in_both]
