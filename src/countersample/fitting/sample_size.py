"""What a smaller sample of queries costs in accuracy: measured, and extrapolated.

Rankers are trained on samples of the queries, each twice as large as the last, and all are judged
by the same held-out queries (`countersample.evaluation.held_out`). A curve through their values,

    value(n) = a − b·n^(−c),    b ≥ 0, 0.1 ≤ c ≤ 2

says what more queries would still add. It is fitted anew in each bootstrap draw of the queries that
judge, so that its interval has in it that the curve is an estimate; the shape itself is assumed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from countersample._params import number, whole_number
from countersample._progress import Progress
from countersample.errors import DataError
from countersample.evaluation.held_out import CONFIDENCE, N_BOOTSTRAP, HeldOut
from countersample.evaluation.resampling import interval, resample
from countersample.fitting.gain import cut_queries, to_learn_from
from countersample.fitting.setting_up import set_up
from countersample.rankers import CounterSampleRanker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.clicks.impressions import FeatureTable, Impressions
    from countersample.clicks.impressions.joining import Examinable
    from countersample.data import RankingDataset
    from countersample.rankers import ClickRanker

FEWEST_QUERIES = 30  # with clicks, in the smallest sample
FEWEST_SIZES = 4  # a curve has three parameters
FAR = 10  # times the largest sample: farther is a guess
_POWERS = np.linspace(0.1, 2.0, 39)


@dataclass(frozen=True)
class SampleSize:
    """A number of queries, and what training on so many costs.

    Attributes
    ----------
    n_queries : int
        With clicks.
    n_clicks : float or None
        That were learned from; None where it was not tried.
    value, low, high : float or None
        By held-out clicks, with its interval; None where it was not tried.
    cost, cost_low, cost_high : float
        How much less than with all queries that there are is expected, as a share of that.
    """

    n_queries: int
    n_clicks: float | None
    value: float | None
    low: float | None
    high: float | None
    cost: float
    cost_low: float
    cost_high: float


@dataclass(frozen=True)
class SampleSizes:
    """What samples of several sizes cost, and the smallest that costs little enough.

    Attributes
    ----------
    metric : str
    sizes : tuple of SampleSize
        Those that were tried, then larger ones that were not.
    of_queries : int
        All queries that there are.
    tolerance : float
    chosen : int or None
        The fewest queries whose cost is within the tolerance up to the end of its interval; None
        where none is.
    curve : tuple of float
        a, b, c of value(n) = a − b·n^(−c).
    """

    metric: str
    sizes: tuple[SampleSize, ...]
    of_queries: int
    tolerance: float
    chosen: int | None
    curve: tuple[float, float, float]

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        if self.chosen is None:
            said = (
                f"No sample is shown to cost at most {self.tolerance:.1%} of {self.metric}: take "
                f"all {self.of_queries:,} queries, or try a larger one."
            )
        else:
            found = next(each for each in self.sizes if each.n_queries == self.chosen)
            said = (
                f"Train on {self.chosen:,} of {self.of_queries:,} queries: expected to cost "
                f"{found.cost:.2%} of {self.metric} ({CONFIDENCE:.0%} interval "
                f"{found.cost_low:.2%} to {found.cost_high:.2%})."
            )
        largest = max(each.n_queries for each in self.sizes if each.value is not None)
        if self.of_queries > FAR * largest:
            said += (
                f" All queries are {self.of_queries / largest:.0f} times the largest sample that "
                "was tried: so far the curve is a guess, and a larger sample would be surer."
            )
        return said

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"sentence": self.sentence}


def sample_sizes(
    impressions: Impressions,
    features: FeatureTable,
    *,
    of_queries: int | None = None,
    tolerance: float = 0.01,
    ranker: ClickRanker | None = None,
    propensities: Examinable | None = None,
    metric: str | None = None,
    n_sizes: int = 6,
    seed: int = 0,
    progress: Progress | Show | None = None,
) -> SampleSizes:
    """Train on samples of the queries of a log, and say what each size costs.

    The log may itself be a sample (`Impressions.sample_queries`) of one that outgrows the machine.

    Parameters
    ----------
    impressions : Impressions
    features : FeatureTable
    of_queries : int, optional
        How many queries with clicks there are in all; as many as the log has by default.
    tolerance : float in (0, 1)
        How much less of the value than with all queries is little enough.
    ranker : ClickRanker, optional
        What is trained, not fitted; a linear one by default.
    propensities : as for `fit_from_impressions`, optional
        By default estimated from the log, once.
    metric : str, optional
        ``"dcg@k"`` or ``"precision@k"``, as for `fit_from_impressions`.
    n_sizes : int
        The most sizes that are tried, each half of the next.
    seed : int
    progress : function of (what is going on, share of all that is done), optional
    """
    impressions.check_no_half_life("sizes of samples")
    number("tolerance", tolerance, above=0, below=1)
    whole_number("n_sizes", n_sizes, least=FEWEST_SIZES)
    told = Progress.of(progress)
    rng, of_sums = np.random.default_rng(seed).spawn(2)
    ready = set_up(
        impressions, features, propensities=propensities, method="auto", randomized=None,
        depth=None, missing="skip", exposure="policy-aware", metric=metric, rng=rng,
        progress=told.part(0.1),
    )  # fmt: skip
    log = to_learn_from(ready.shown, knows_all=ready.matched.counts.rest is None)
    held_out = HeldOut(features.dataset, log, ready.metric, parts=cut_queries(log, rng), rng=rng)
    model = CounterSampleRanker(metric=ready.metric) if ranker is None else ranker
    tried = _try_sizes(model, features.dataset, held_out, n_sizes, rng, told.part(0.9))
    columns = np.column_stack([held_out.weight_sums, *(each.sums for each in tried)])
    drawn = resample(columns, n_bootstrap=N_BOOTSTRAP, rng=of_sums)
    n_all = held_out.n_queries if of_queries is None else of_queries
    whole_number("of_queries", n_all, least=tried[-1].n_queries)
    values = np.array([held_out.value(each.sums) for each in tried])
    return _judged(ready.metric, tried, values, drawn[:, 1:] / drawn[:, :1], n_all, tolerance)


class _Tried(NamedTuple):
    """A size that was tried: means over the parts that are held out in turn."""

    n_queries: int
    n_clicks: float
    sums: Floats  # of the held-out clicks, by group


def _try_sizes(
    ranker: ClickRanker,
    dataset: RankingDataset,
    held_out: HeldOut,
    n_sizes: int,
    rng: np.random.Generator,
    progress: Progress,
) -> list[_Tried]:
    """Train on samples of each part's other queries, a smaller one within a larger."""
    orders = [rng.permutation(np.unique(f.train.weighted().query)) for f in held_out.folds]
    shares = _shares(min(map(len, orders)), n_sizes)
    tried = []
    for share in shares:
        trained, n_clicks, n_queries = [], [], []
        for order, fold in zip(orders, held_out.folds, strict=True):
            chosen = order[: round(share * len(order))]
            part = fold.train.of_queries(chosen)
            own = clone(ranker).set_params(random_state=int(rng.integers(2**31)))
            trained.append(own.fit_log(dataset, part))
            n_clicks.append(part.n_clicks)
            n_queries.append(len(chosen))
            progress.part(1 / (len(shares) * len(orders)), "training on samples").update(1.0)
        mean = round(float(np.mean(n_queries)))
        tried.append(_Tried(mean, float(np.mean(n_clicks)), held_out.sums(trained)))
    return tried


def fit_curve(n: Sequence[float] | Floats, values: Floats) -> tuple[float, float, float]:
    """Return a, b, c of value(n) = a − b·n^(−c) by least squares, with b ≥ 0 and c in [0.1, 2].

    Examples
    --------
    >>> import numpy as np
    >>> n = np.array([100, 200, 400, 800])
    >>> a, b, c = fit_curve(n, 0.8 - 2 * n ** -0.5)
    >>> round(a, 6), round(b, 6), round(c, 6)
    (0.8, 2.0, 0.5)
    """
    x = np.asarray(n, np.float64) ** -_POWERS[:, None]  # for each power a line in x
    spread = x - x.mean(axis=1, keepdims=True)
    b = np.maximum(0.0, -(spread @ (values - values.mean())) / (spread**2).sum(axis=1))
    a = values.mean() + b * x.mean(axis=1)
    errors = ((values - a[:, None] + b[:, None] * x) ** 2).sum(axis=1)
    best = int(errors.argmin())
    return float(a[best]), float(b[best]), float(_POWERS[best])


def _shares(n_training: int, n_sizes: int) -> list[float]:
    """Return the shares of the queries to train on, each half of the next, up to all."""
    fits = int(np.log2(max(1, n_training / FEWEST_QUERIES))) + 1
    if fits < FEWEST_SIZES:
        least = FEWEST_QUERIES * 2 ** (FEWEST_SIZES - 1) * 5 // 4
        raise DataError(
            f"the log has clicks on too few queries for a curve of {FEWEST_SIZES} sizes, expected "
            f"at least {least:,}: take a larger sample"
        )
    return [0.5**k for k in reversed(range(min(n_sizes, fits)))]


def _judged(
    metric: str,
    tried: list[_Tried],
    values: Floats,
    drawn: Floats,
    of_queries: int,
    tolerance: float,
) -> SampleSizes:
    """Put the sizes together; `drawn` has the values of each size in each draw."""
    asked = [each.n_queries for each in tried]
    curve = fit_curve(asked, values)
    curves = [fit_curve(asked, each) for each in drawn]
    while 2 * asked[-1] < of_queries:
        asked.append(2 * asked[-1])
    sizes = []
    for k, n in enumerate(asked):
        costs = np.array([_cost(each, n, of_queries) for each in curves])
        low, high = interval(costs, CONFIDENCE)
        size = SampleSize(n, None, None, None, None, _cost(curve, n, of_queries), low, high)
        if k < len(tried):
            least, most = interval(drawn[:, k], CONFIDENCE)
            size = replace(
                size, n_clicks=tried[k].n_clicks, value=float(values[k]), low=least, high=most
            )
        sizes.append(size)
    enough = [each.n_queries for each in sizes if each.cost_high <= tolerance]
    return SampleSizes(
        metric, tuple(sizes), of_queries, tolerance, enough[0] if enough else None, curve
    )


def _cost(curve: tuple[float, float, float], n: float, of_queries: float) -> float:
    """Return (value of all − value of n) / value of all."""
    a, b, c = curve
    of_all = b * np.power(of_queries, -c)
    return float((b * np.power(n, -c) - of_all) / (a - of_all))
