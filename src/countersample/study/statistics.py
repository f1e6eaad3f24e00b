"""Statistics of runs: intervals, paired tests, the lead during training.

Runs of two methods on the same click log are a pair. Runs on the same fold share their test
queries, so the mean over a fold's runs counts as one observation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import copysign, inf, nan, sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.defaults import CONFIDENCE
from countersample.errors import DataError
from countersample.evaluation.comparison import holm
from countersample.study.grids import COMPARED, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats, Ints
    from countersample.study.results import Cell, StudyResult

    Runs = Sequence[tuple[str, int]]  # fold and seed of each

INTERVAL = f"{100 * CONFIDENCE:g} % interval"  # in texts
SIGNIFICANT = 0.05  # p of our test, after Holm's correction
PAPER_SIGNIFICANT = 0.01  # p of the paper's test, without a correction

# The quantities that cells of a study are compared by.
MEASURES: Mapping[str, Callable[[Cell], Floats]] = MappingProxyType(
    {"regret": lambda cell: 100 * cell.regrets, "ndcg": lambda cell: cell.final}
)


@dataclass(frozen=True)
class PairedTest:
    """Two samples compared pair by pair: the mean of a − b, and whether it could be chance."""

    difference: float  # the mean of a − b
    error: float  # its standard error, s/√n; NaN for one pair
    p: float  # of Student's paired test, two-sided; NaN for one pair
    effect: float  # Cohen's d_z: the mean of the differences over their standard deviation
    n: int  # pairs: runs, or folds if there are several

    def half(self, confidence: float = CONFIDENCE) -> float:
        """Half the width of an interval of the difference, t·s/√n; NaN for one pair."""
        return _student_quantile((1 + confidence) / 2, self.n - 1) * self.error

    def reversed(self) -> PairedTest:
        """Return the test of b − a."""
        return replace(self, difference=-self.difference, effect=-self.effect)

    def p_below(self, limit: float) -> float:
        """Return p of the one-sided test that shows the difference to be below a limit.

        A mean of 2 with a standard error of 1, over 3 pairs, is below 2 with p = 1/2:

        >>> PairedTest(2.0, 1.0, 0.18, 1.15, 3).p_below(2.0)
        0.5
        """
        from scipy import special  # noqa: PLC0415 (slow to import)

        away = self.difference - limit
        if self.n < 2:
            return nan
        if self.error == 0:
            return float(away >= 0)
        return float(special.stdtr(self.n - 1, away / self.error))

    def p_above(self, limit: float) -> float:
        """Return p of the one-sided test that shows the difference to be above a limit."""
        return self.reversed().p_below(-limit)

    def p_within(self, margin: float) -> float:
        """Return p of the two one-sided tests (TOST) that show |difference| < margin.

        It is the larger of the two; below 0.05 if the 90 % interval lies within ±margin.
        """
        return max(self.p_below(margin), self.p_above(-margin))

    def p_beyond(self, margin: float) -> float:
        """Return p, two-sided, of the test that shows |difference| > margin."""
        return min(1.0, 2 * min(self.p_below(-margin), self.p_above(margin)))


def interval(values: ArrayLike, confidence: float = CONFIDENCE) -> float:
    """Return half the width of Student's interval for the mean, t·s/√n; NaN for one value.

    Of 1, 2, 3 the deviation s is 1, and t with 2 degrees of freedom is 4.303:

    >>> round(interval([1, 2, 3]), 3)  # 4.303 / √3
    2.484
    """
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < 2:
        return nan
    quantile = _student_quantile((1 + confidence) / 2, len(sample) - 1)
    return float(quantile * sample.std(ddof=1) / np.sqrt(len(sample)))


@cache  # scipy takes 0.1 ms, and a learning curve has an interval at each point
def _student_quantile(probability: float, freedom: int) -> float:
    from scipy import stats  # noqa: PLC0415 (slow to import)

    return float(stats.t.ppf(probability, freedom))


def independent(values: ArrayLike, runs: Runs) -> Floats:
    """Return the mean of each fold if there are several folds, else the values themselves.

    Seeds of the same fold share their test queries, so they are not independent of each other.

    >>> independent([1, 3, 5, 5], [("Fold1", 0), ("Fold1", 1), ("Fold2", 0), ("Fold2", 1)])
    array([2., 5.])
    >>> independent([1, 3], [("", 0), ("", 1)])
    array([1., 3.])
    """
    sample = np.asarray(values, dtype=np.float64)
    folds = list(dict.fromkeys(fold for fold, _ in runs))
    if len(folds) < 2:
        return sample
    indices = np.array([folds.index(fold) for fold, _ in runs])
    means: Floats = np.bincount(indices, weights=sample) / np.bincount(indices)
    return means


class Band(NamedTuple):
    """A mean over runs and its 95 % interval (Student's); low = high = mean for a single run."""

    mean: Floats
    low: Floats
    high: Floats


def band(values: Floats, runs: Runs = ()) -> Band:
    """Mean ± t·s/√n over the runs, or over the means of folds: (n_runs, n) to three of (n,).

    Without `runs`, all rows are independent.

    >>> band(np.array([[0.25, 1.0], [0.75, 1.0]]), [("", 0), ("", 1)]).mean
    array([0.5, 1. ])
    """
    columns = [independent(column, runs) for column in values.T]
    mean = np.array([column.mean() for column in columns])
    half = np.nan_to_num([interval(column) for column in columns])
    return Band(mean, mean - half, mean + half)


def common_runs(*cells: Cell) -> Runs:
    """Return the runs of the cells, which must be the same ones in the same order."""
    if len({cell.runs for cell in cells}) > 1:
        names = (
            ", ".join(f"{fold} seed {seed}".strip() for fold, seed in cell.runs) for cell in cells
        )
        raise DataError(f"cells with different runs cannot be paired: {' and '.join(names)}")
    return cells[0].runs


def paired_test(a: ArrayLike, b: ArrayLike, runs: Runs) -> PairedTest:
    """√n · mean(a − b) / s = t: Student's paired test over runs, or over folds (`independent`).

    Differences that are all the same need no test: p is 1 if they are 0, else 0.

    Differences of 1, 2 and 3: their mean is 2 and their deviation 1, so t = 2√3.

    >>> test = paired_test([3, 5, 4], [2, 3, 1], [("", 0), ("", 1), ("", 2)])
    >>> test.difference, test.effect, test.n, round(test.p, 3)
    (2.0, 2.0, 3, 0.074)
    """
    from scipy import stats  # noqa: PLC0415 (slow to import)

    first, second = independent(a, runs), independent(b, runs)
    differences = first - second
    mean, n = float(differences.mean()), len(differences)
    if n < 2:
        return PairedTest(mean, nan, nan, nan, n)
    spread, noise = float(differences.std(ddof=1)), _rounding_error([*first, *second])
    if spread <= noise:
        if abs(mean) <= noise:
            return PairedTest(0.0, 0.0, 1.0, 0.0, n)
        return PairedTest(mean, 0.0, 0.0, copysign(inf, mean), n)
    p = float(stats.ttest_rel(first, second).pvalue)
    return PairedTest(mean, spread / sqrt(n), p, mean / spread, n)


def _rounding_error(numbers: ArrayLike) -> float:
    """Return the rounding error of differences of these numbers: a smaller spread is none."""
    return float(64 * np.finfo(np.float64).eps * np.abs(numbers).max())


def paper_test(a: ArrayLike, b: ArrayLike) -> float:
    """Return p of the paper's test: unpaired, from means and population standard deviations.

    It divides by n, Student's test by n − 1, so it finds significance too easily; it treats the
    runs of a fold as independent; and it has no correction for the number of tests. The paper
    calls p < 0.01 significant.

    Means 2 and 4, variances 2/3, so t = −2 / √(2/3 · 2/3) = −3 with 4 degrees of freedom:

    >>> round(paper_test([1, 2, 3], [3, 4, 5]), 3)
    0.04
    """
    from scipy import stats  # noqa: PLC0415 (slow to import)

    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if min(len(first), len(second)) < 2:
        return nan
    noise = _rounding_error([*first, *second])
    if max(first.std(), second.std()) <= noise:
        return float(abs(first.mean() - second.mean()) <= noise)
    return float(
        stats.ttest_ind_from_stats(
            first.mean(), first.std(), len(first), second.mean(), second.std(), len(second)
        ).pvalue
    )


class Contrast(NamedTuple):
    """A method against the reference of its study, at one setting and on one dataset."""

    dataset: str
    method: str
    value: Value  # the setting
    test: PairedTest  # of the method minus the reference
    adjusted: float  # its p after Holm's correction over all contrasts of the study
    paper_p: float  # of the paper's test

    @property
    def mark(self) -> str:
        """Significantly lower ▽ or higher △, corrected p < 0.05."""
        return ("▽" if self.test.difference < 0 else "△") if self.adjusted < SIGNIFICANT else ""

    @property
    def paper_mark(self) -> str:
        """The same by the paper's test, p < 0.01."""
        is_significant = self.paper_p < PAPER_SIGNIFICANT
        return ("▽" if self.test.difference < 0 else "△") if is_significant else ""


def contrasts(result: StudyResult, measure: str = "regret") -> list[Contrast]:
    """Test every other method against the reference by one of `MEASURES`, in every setting.

    Without a reference in the study the list is empty.
    """
    grid, cells, value_of = result.grid, result.cells, MEASURES[measure]
    others = [method.name for method in grid.methods if method.name != grid.reference]
    names = [*product(result.datasets, others, grid.values)] if grid.reference else []
    tests, paper = [], []
    for dataset, method, value in names:
        a, b = cells[dataset, method, value], cells[dataset, grid.reference, value]
        tests.append(paired_test(value_of(a), value_of(b), common_runs(a, b)))
        paper.append(paper_test(value_of(a), value_of(b)))
    adjusted = holm([test.p for test in tests]).tolist()
    rows = zip(names, tests, adjusted, paper, strict=True)
    return [Contrast(*name, test, p, paper_p) for name, test, p, paper_p in rows]


def has_leads(result: StudyResult) -> bool:
    """Whether a study has IPS-SGD and CounterSample."""
    return {*COMPARED} <= set(result.grid.methods)


def lead(result: StudyResult, dataset: str, value: Value) -> Floats:
    """100·mean_{s ≤ t} (nDCG_CounterSample − nDCG_IPS), by run and point t, (n_runs, n_points).

    This is Regret_IPS(t) − Regret_CounterSample(t), at the learning rates chosen for whole runs.
    """
    ips, sampled = (result.cells[dataset, method.name, value] for method in COMPARED)
    common_runs(ips, sampled)
    differences = np.cumsum(sampled.ndcg - ips.ndcg, axis=1)
    leads: Floats = 100 * differences / np.arange(1, differences.shape[1] + 1)
    return leads


def point_at(drawn: Ints, part: int) -> int | None:
    """Return the index of the last evaluation point up to T/part, or None.

    >>> point_at(np.array([10, 20, 300]), 10), point_at(np.array([100, 200]), 100)
    (1, None)
    """
    before = int((drawn * part <= drawn[-1]).sum())
    return before - 1 if before else None
