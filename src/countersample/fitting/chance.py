"""What a feature knows of the chance in clicks, which none can know that was there before them.

Let query-item pair i be clicked C times, with a mean of μ. A feature x that was there before tells
nothing more of C, once μ is given. So whatever is predicted from it, m(x), the squared error has
all of the variance that chance gives:

    E (C − m(x))² = E Var(C | μ) + E (μ − m(x))² ≥ E Var(C | μ)

A feature that was computed from these very clicks knows what chance did, and its error is smaller.
It does not matter how much relevance varies, how much of it a feature knows, or how well
examination is known: all that makes the error larger for features that are as they should be. Of n
impressions alike, C·(n − C)/(n − 1) has Var(C | μ) as its mean, whatever μ is. Of a single one,
which is examined with probability θ, C·(1 − θ) has a mean of at most that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.evaluation.resampling import add_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from countersample._arrays import Bools, Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

MOST = 40_000  # pairs that are looked at; more are drawn from, by query
FIRST = 5_000  # of these, which every feature is asked of
WORTH_A_LOOK = -1.0  # log P(false alarm) of those: above it the others are not asked
LEAST = 50  # pairs that anything is said of
STEPS, LINES, SIZES = 32, 16, 4  # bins of a feature's values, and of the sizes of pairs
OF_OTHERS = 3  # the base that is of other clicks on the page
VARIOUS = 2.0  # the squared coefficient of variation of how often users click, at most
N_TESTS = (4 * 3 + 2) + 3 * 3  # ways to predict, of pairs and of items


class Rows(NamedTuple):
    """What was shown where it may be examined, a row for each query, item and position."""

    row: Ints  # of the dataset
    position: Ints
    shown: Floats  # impressions
    clicks: Floats
    theta: Floats

    @classmethod
    def of(cls, log: ClickLog, dataset: RankingDataset) -> Rows:
        """Return those of a log with impressions."""
        assert log.impressions is not None  # noqa: S101 (it says what was shown)
        clicks = log.clicks if log.events is None else log.events
        position = np.ones(log.n_rows, np.int64)
        if log.position is not None:
            position = log.position.astype(np.int64)
        theta = log.examination
        if theta is None:  # propensities are told of clicks only: take the click rate of positions
            rate = add_up(position, clicks, int(position.max()) + 1)
            rate /= np.maximum(add_up(position, log.impressions, len(rate)), 1.0)
            theta = (rate / rate.max())[position]
        # What a page shows twice may count in part, and then has another variance.
        kept = (theta > 0) & (log.impressions > 0) & (clicks == np.rint(clicks))
        row = dataset.offsets[log.query] + log.item
        return cls(row, position, log.impressions, clicks, theta).take(kept)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Return the rows of several logs of one dataset."""
        columns: list[NDArray[Any]] = [np.concatenate(each) for each in zip(*parts, strict=True)]
        return cls(*columns)

    def take(self, kept: Bools) -> Rows:
        """Return some of them."""
        columns: list[NDArray[Any]] = [column[kept] for column in self]
        return Rows(*columns)


class Groups(NamedTuple):
    """Query-item pairs, or items with all of their queries."""

    row: Ints  # of the dataset: the first one
    unit: Ints  # what is drawn as a whole: the query of a pair
    half: Ints  # 0 or 1, of the unit
    clicks: Floats
    chance: Floats  # v: its mean is at most that of Var(C | μ)
    of_users: Floats  # the part of it that other clicks on the page may know
    spread: Floats  # Var((C − m)² − v) is about 2·m²·spread + m·single
    single: Floats
    bases: Floats  # what a prediction is proportional to, (3 or 4, n)
    size: Ints  # the quarter it is in by the first of them

    def take(self, kept: Bools) -> Groups:
        """Return some of them."""
        columns: list[NDArray[Any]] = [column[..., kept] for column in self]
        return Groups(*columns)

    def features(self, dataset: RankingDataset, feature: int) -> Floats:
        """Return the values of a feature; what is missing is below all others."""
        values: Floats = dataset.features[self.row, feature].astype(np.float64)
        is_missing = np.isnan(values)
        if is_missing.any() and not is_missing.all():
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            return np.where(is_missing, low - max(high - low, 1.0), values)
        return np.nan_to_num(values)


def knows_chance(
    counted: Rows, dataset: RankingDataset, items: Ints | None, rng: np.random.Generator
) -> Iterator[tuple[int, float, float]]:
    """Go through the features: which, the share of chance it knows, and log P(false alarm).

    Parameters
    ----------
    counted : Rows
    dataset : RankingDataset
    items : int array (n_items,), optional
        A number for each row of the dataset, the same where the item is.
    rng : numpy Generator
    """
    pairs, knows_all = _pairs(counted, dataset, rng)
    if len(pairs.row) < LEAST:
        return
    asked = [_staged(pairs, rng)]
    if items is not None and knows_all:
        n_pairs = np.count_nonzero(np.bincount(counted.row))
        n_items = np.count_nonzero(np.bincount(items[counted.row]))
        if LEAST <= n_items < 0.9 * n_pairs:
            asked.append(_staged(_by_item(counted, items, rng), rng))
    for feature in range(dataset.n_features):
        best = (0.0, 0.0)
        for stages in asked:
            found = (0.0, 0.0)
            for groups, known in stages:
                found = _surest(groups, groups.features(dataset, feature), known)
                if found[0] > WORTH_A_LOOK:
                    break
            best = min(best, found)
        yield feature, best[1], best[0]


def _staged(groups: Groups, rng: np.random.Generator) -> list[tuple[Groups, float]]:
    """Return a part to begin with, and all; each with what is known of chance by no feature.

    Clicks on a page may go together: what the others of the page tell of chance is no leak.
    """
    stages = [groups]
    if len(groups.row) > 2 * FIRST:
        drawn = rng.random(int(groups.unit.max()) + 1) < FIRST / len(groups.row)
        first = groups.take(drawn[groups.unit])
        stages = [first, groups] if len(first.row) >= LEAST else stages
    found = []
    for stage in stages:
        of_others = _in_bins(stage, stage.bases[-1], np.zeros(len(stage.row), np.int64))
        found.append((stage, max(0.0, _closer(stage, of_others, of_page=True)[0])))
    return found


def _surest(groups: Groups, values: Floats, known: float) -> tuple[float, float]:
    """Return the least log P(false alarm) over all predictions, and the share of chance known.

    By Bernstein's inequality: where chance is not known, each term of the sum has a mean of at
    most 0 and is at most 1, so that P(sum ≥ t) ≤ exp(−t²/2/(variance + t/3)).
    """
    best = (0.0, 0.0)
    if values.min() == values.max():
        return best
    for mean, of_page in _predictions(groups, values):
        closer, variance, chance = _closer(groups, mean, of_page=of_page)
        closer -= known
        if closer > 0:
            bound = -(closer**2) / 2 / (variance + closer / 3)
            best = min(best, (bound, min(1.0, closer / chance)))
    return best


def _predictions(groups: Groups, values: Floats) -> Iterator[tuple[Floats, bool]]:
    """Go through ways to predict clicks from a feature; NaN where one does not tell.

    The second says whether also from clicks on the same pages.
    """
    n = len(values)
    order = np.argsort(values, kind="stable")
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    n_lines = min(SIZES, n // 200)
    for k, base in enumerate(groups.bases):
        yield _in_bins(groups, base, rank * min(STEPS, n // 10) // n), k == OF_OTHERS
        yield _in_bins(groups, base, rank * min(LINES, n // 50) // n, values), k == OF_OTHERS
        if n_lines > 1:
            bins = groups.size * n_lines + rank * n_lines // n
            yield _in_bins(groups, base, bins, values), k == OF_OTHERS
    order = order[np.argsort(groups.unit[order], kind="stable")]
    for base in groups.bases[:2]:
        yield _of_neighbours(groups, base, order), True


def _in_bins(groups: Groups, base: Floats, bins: Ints, values: Floats | None = None) -> Floats:
    """Return m = base·(a + b·values) in each bin, by least squares over the other half of queries.

    Without values b = 0.
    """
    cell = 2 * bins + groups.half
    n_cells = 2 * int(bins.max()) + 2
    other = cell ^ 1  # the same bin in the other half
    below = np.maximum(add_up(cell, base, n_cells), 1e-300)
    mean: Floats = base * (add_up(cell, groups.clicks, n_cells) / below)[other]
    if values is None:
        return mean
    middle = add_up(cell, base * values, n_cells) / below
    apart = values - middle[cell]
    across = np.maximum(add_up(cell, base * apart**2, n_cells), 1e-300)
    slope = add_up(cell, apart * groups.clicks, n_cells) / across
    mean += base * slope[other] * (values - middle[other])
    return np.maximum(mean, 0.0)


def _of_neighbours(groups: Groups, base: Floats, order: Ints) -> Floats:
    """Return m = base·(mean rate of the items next below and above in the query, by the feature).

    What the feature says of two queries need not be comparable then. `order` sorts by query, then
    by the feature.
    """
    unit, rate = groups.unit[order], (groups.clicks / base)[order]
    mean = np.full(len(order), np.nan)
    inner = 1 + np.flatnonzero(unit[:-2] == unit[2:])
    mean[order[inner]] = base[order[inner]] * (rate[inner - 1] + rate[inner + 1]) / 2
    return mean


def _closer(groups: Groups, mean: Floats, *, of_page: bool) -> tuple[float, float, float]:
    """Return Σ w·[v − (C − m)²], its variance where chance is not known, and Σ w·v.

    w = 1/(m + ½), and 0 where m is NaN. Some users click more than others, and more of them may
    have come by chance: other clicks `of_page` know that, and it is taken off v.
    """
    weight = 1 / (mean + 0.5)
    if np.isnan(mean).any():
        weight, mean = np.nan_to_num(weight), np.nan_to_num(mean)
    variance = weight**2 * mean * (2 * mean * groups.spread + groups.single)
    chance = float((weight * (groups.chance - groups.of_users * of_page)).sum())
    error = float((weight * (groups.clicks - mean) ** 2).sum())
    return chance - error, float(variance.sum()), max(chance, 1e-300)


def _pairs(counted: Rows, dataset: RankingDataset, rng: np.random.Generator) -> tuple[Groups, bool]:
    """Return the query-item pairs of some queries, and whether all are there that were shown."""
    counted, knows_all = _of_queries(counted, dataset, rng)
    row, member = np.unique(counted.row, return_inverse=True)
    query = np.searchsorted(dataset.offsets, row, side="right") - 1
    half = rng.integers(2, size=dataset.n_queries)[query]
    groups = _added_up(counted, member, row, query, half)
    examined, shown, one = groups.bases
    if not knows_all:  # how often the others were shown is not known, and must not give them away
        most = np.zeros(dataset.n_queries)
        np.maximum.at(most, query, examined)
        examined = shown = most[query]

    def of_others(column: Floats) -> Floats:
        return add_up(query, column, dataset.n_queries)[query] - column

    prior = examined.sum() / max(1.0, groups.clicks.sum())  # examinations for a click
    level = (of_others(groups.clicks) + 1) / (of_others(examined) + prior)
    bases = np.stack([examined, shown, one, examined * level])
    return groups._replace(bases=bases, size=_quarter(examined)), knows_all


def _of_queries(
    counted: Rows, dataset: RankingDataset, rng: np.random.Generator
) -> tuple[Rows, bool]:
    """Return the rows of so many queries as are looked at, and whether all shown items are there.

    Where they are not, all other items of these queries are added, without a click.
    """
    is_shown = np.bincount(counted.row, minlength=dataset.n_items) > 0
    clicks = add_up(counted.row, counted.clicks, dataset.n_items)[is_shown]
    # At least once²/(2·twice) that were shown have no click (Chao 1984). Are they there?
    once, twice = int((clicks == 1).sum()), int((clicks == 2).sum())
    knows_all = not clicks.all() or once**2 <= 10 * twice
    n_shown = np.add.reduceat(is_shown.astype(np.int64), dataset.offsets[:-1])
    sizes = n_shown if knows_all else dataset.query_sizes
    drawn = rng.permutation(np.flatnonzero(n_shown))
    drawn = drawn[np.cumsum(sizes[drawn]) <= max(MOST, sizes[drawn[:1]].sum())]
    is_drawn = np.zeros(dataset.n_queries, np.bool_)
    is_drawn[drawn] = True
    in_drawn = np.repeat(is_drawn, dataset.query_sizes)
    counted = counted.take(in_drawn[counted.row])
    if knows_all:
        return counted, True
    others = np.setdiff1d(np.flatnonzero(in_drawn), counted.row)
    one = np.ones(len(others))
    added = Rows(others, one.astype(np.int64), one, np.zeros(len(others)), one)
    return Rows.joined([counted, added]), False


def _by_item(counted: Rows, items: Ints, rng: np.random.Generator) -> Groups:
    """Return items, each with all of its queries; of many, some are drawn."""
    item = items[counted.row]
    shown = np.bincount(item) > 0
    if np.count_nonzero(shown) > MOST:
        kept = np.zeros(len(shown), np.bool_)
        kept[rng.permutation(np.flatnonzero(shown))[:MOST]] = True
        counted = counted.take(kept[item])
        item = items[counted.row]
    _, first, member = np.unique(item, return_index=True, return_inverse=True)
    half = rng.integers(2, size=len(first))
    return _added_up(counted, member, counted.row[first], np.arange(len(first)), half)


def _added_up(counted: Rows, member: Ints, row: Ints, unit: Ints, half: Ints) -> Groups:
    """Return what was counted of each group; `member` is the group of each row."""
    _, _, shown, clicks, theta = counted

    def total(column: Floats) -> Floats:
        return add_up(member, column, len(row))

    is_single = shown < 2
    often = np.where(is_single, 2.0, shown)
    chance = np.where(is_single, clicks * (1 - theta), clicks * (shown - clicks) / (often - 1))
    # Of users who click a times as often, Var E(C | all a) = n·x²·Var(a), and x² ≤ θ·x.
    squares = clicks * (clicks - 1) / (often - 1)
    examined = total(shown * theta)
    share = shown * theta / examined[member]
    return Groups(
        row=row,
        unit=unit,
        half=half,
        clicks=total(clicks),
        chance=total(chance),
        of_users=VARIOUS * total(np.where(is_single, clicks * theta, squares)),
        spread=1 + total(share**2 / (often - 1)),
        single=total(np.where(is_single, share * theta**2, 0.0)),
        bases=np.stack([examined, total(shown), np.ones(len(row))]),
        size=_quarter(examined),
    )


def _quarter(sizes: Floats) -> Ints:
    cuts = np.quantile(sizes, np.arange(1, SIZES) / SIZES)
    return np.searchsorted(cuts, sizes)
