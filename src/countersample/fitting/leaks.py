"""Features that know the clicks they are judged by: `find_leaks`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from countersample.errors import ParameterError
from countersample.evaluation.resampling import add_up
from countersample.fitting.chance import LEAST, MOST, N_TESTS, Rows, knows_chance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

FALSE_ALARMS = 0.001  # the probability that a log has any, whatever the number of its features
FAR_BETTER = 2.0  # times as well as other days
_PLACES = 1 << 20  # more positions than a page has

Period = Literal["log", "learned", "judged"]
Sight = Literal["chance", "days"]
_DAYS: tuple[Period, Period] = ("learned", "judged")
_CLICKS = {
    "log": "the clicks of this log",
    "learned": "the clicks of the days that were learned from",
    "judged": "the clicks of the days that judge",
}


@dataclass(frozen=True)
class Leak:
    """A feature that knows clicks which it cannot have known before they were made.

    Attributes
    ----------
    feature : int
        Its column, from 0.
    name : str
        Its name, or ``feature 1`` for the first of features without names.
    period : {"log", "learned", "judged"}
        Whose clicks it knows: of the whole log, or of the days that were learned from, or of those
        that judge.
    seen : {"chance", "days"}
        By what: it knows of the chance in the clicks, or some days far better than others.
    size : float
        The share of the chance in the clicks that it knows; or how many times better it knows
        those days than the others (infinite, where it knows nothing of these).
    false_alarm : float
        A bound on the probability that any feature which was there before the clicks looks so.
    """

    feature: int
    name: str
    period: Period
    seen: Sight
    size: float
    false_alarm: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; a size without bounds is None."""
        return asdict(self) | {"size": self.size if np.isfinite(self.size) else None}

    @property
    def sentence(self) -> str:
        """How it was seen, in words."""
        if self.seen == "chance":
            return (
                f"Feature {self.name!r} was computed from {_CLICKS[self.period]}: it knows "
                f"{self.size:.0%} of the chance in them, and what was there before can know "
                "nothing of it."
            )
        learned, judged = _CLICKS["learned"], _CLICKS["judged"]
        these, others = (learned, judged) if self.period == "learned" else (judged, learned)
        known = f"{self.size:.1f} times as well as" if np.isfinite(self.size) else "and not"
        cause = ", or what users want has changed since" if self.period == "learned" else ""
        return (
            f"Feature {self.name!r} knows {these} {known} {others}, at the same positions of the "
            f"same queries and items: it was computed from them{cause}."
        )


def find_leaks(
    shown: ClickLog,
    dataset: RankingDataset,
    *,
    item_ids: ArrayLike | None = None,
    judged: ClickLog | None = None,
    is_whole: bool = True,
    rng: np.random.Generator,
) -> tuple[Leak, ...]:
    """Return the features that know the clicks themselves, the surest first.

    A feature knows of chance if predictions from it are closer to the clicks than chance allows
    (see `countersample.fitting.chance`):

        Σ_i w_i·[(C_i − m_i)² − v_i] < 0        v_i = Σ_rows C·(n − C)/(n − 1),  w_i = 1/(m_i + ½)

    over query-item pairs i of C_i clicks. What is predicted of half of the queries, m_i, was
    learned from the other half: the clicks an examination, an impression or a pair in each bin
    of the feature's values, also relative to those of the query's other items. With `item_ids`
    the same is asked of items with all of their queries. The probability that a log has any false
    alarm is at most 0.1 %, by Bernstein's inequality, shared by all features and questions.

    With `judged`, both periods are asked, and both together; and whether a feature knows the one
    period more than twice as well as the other, at the same positions of the same pairs.

    Parameters
    ----------
    shown : ClickLog
        With impressions: a row for everything that was shown. Where it has only pairs that were
        clicked, the other items of their queries are taken as shown and not clicked.
    dataset : RankingDataset
    item_ids : array-like (n_items,), optional
        The id of the item in each row of the dataset, the same in all queries.
    judged : ClickLog, optional
        Of later days, which judge, where `shown` has those that were learned from.
    is_whole : bool
        Whether both have everything that was shown. Else they are not compared or put together:
        pairs that were chosen by their clicks say nothing of other days.
    rng : numpy Generator
        Draws queries from a large log, and cuts them into halves.

    Examples
    --------
    Nothing is more relevant than anything else here, and yet the second feature knows the clicks:

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
    items = None if item_ids is None else _numbered(item_ids)
    asked: dict[Period, list[Rows]] = {"log": [Rows.of(shown, dataset)]}
    if judged is not None:
        both = [Rows.of(log, dataset) for log in (shown, judged)]
        asked = {"learned": both[:1], "judged": both[1:]}
        if is_whole:
            asked["log"] = both
    found: dict[int, Leak] = {}

    def add(feature: int, period: Period, seen: Sight, size: float, log_bound: float) -> None:
        n_tests = dataset.n_features * (len(asked) * N_TESTS if seen == "chance" else 4)
        bound = 2 * n_tests * float(np.exp(log_bound))  # half of the false alarms for each sight
        known = found.get(feature)
        if bound < FALSE_ALARMS and (known is None or bound < known.false_alarm):
            names = dataset.feature_names
            name = f"feature {feature + 1}" if names is None else names[feature]
            found[feature] = Leak(feature, name, period, seen, size, bound)

    for period, rows in asked.items():
        for feature, size, log_bound in knows_chance(Rows.joined(rows), dataset, items, rng):
            add(feature, period, "chance", size, log_bound)
    if judged is not None and is_whole:
        for feature, period, size, log_bound in _knows_days(both, dataset, rng):
            add(feature, period, "days", size, log_bound)
    return tuple(sorted(found.values(), key=lambda leak: leak.false_alarm))


def accepted_names(names: Sequence[str], dataset: RankingDataset) -> tuple[str, ...]:
    """Return the names of features that are accepted; refuse those that are none."""
    known = dataset.feature_names or [f"feature {k + 1}" for k in range(dataset.n_features)]
    for name in names:
        if name not in known:
            raise ParameterError(f"accept_features has {name!r}, expected names of features")
    return tuple(names)


def _numbered(ids: ArrayLike) -> Ints:
    """Return a number for each id, the same for the same."""
    codes: Ints = pa.array(np.asarray(ids)).dictionary_encode().indices.to_numpy()
    return codes.astype(np.int64)


def _knows_days(
    both: list[Rows], dataset: RankingDataset, rng: np.random.Generator
) -> Iterator[tuple[int, Period, float, float]]:
    """Go through the features: which, the days it knows better, how much, log P(false alarm).

    U = Σ w·x̃·y of the learned days, and of those that judge: y is the click rate of a query, item
    and position over the mean rate of the position, x̃ the rank of the feature's value less the
    mean in the query. Of a feature that was there before, both have the same mean u. Then
    U₁ − 2·U₂ has a mean of −u, and the sign of U₁ only by chance. Of its sums by query, S_q, if
    they are symmetric, P(|Σ S_q| > z·√Σ S_q²) ≤ 2·exp(−z²/2).
    """
    n_rows = min(len(rows.row) for rows in both)
    if n_rows > MOST:
        is_drawn = rng.random(dataset.n_queries) < MOST / n_rows
        kept = np.repeat(is_drawn, dataset.query_sizes)
        both = [rows.take(kept[rows.row]) for rows in both]
    place, shown, clicks = _in_both(both)
    row, position = np.divmod(place, _PLACES)
    if len(row) < LEAST:
        return
    weight = shown.prod(axis=0) / shown.sum(axis=0)
    n_positions = int(position.max()) + 1
    rates = clicks / shown
    means = np.stack([add_up(position, weight * rate, n_positions) for rate in rates])
    means /= np.maximum(add_up(position, weight, n_positions), 1e-300)
    told = (means.min(axis=0) > 0)[position]
    weight = np.where(told, weight * means.mean(axis=0)[position], 0.0)
    rates = np.divide(rates, means[:, position], where=told, out=np.zeros_like(rates))
    _, query = np.unique(np.searchsorted(dataset.offsets, row, side="right"), return_inverse=True)
    n_queries = int(query.max()) + 1
    in_query = np.maximum(add_up(query, weight, n_queries), 1e-300)
    for feature in range(dataset.n_features):
        _, code = np.unique(dataset.features[row, feature], return_inverse=True)
        rank = (np.cumsum(np.bincount(code)) / len(code))[code]
        centred = weight * (rank - (add_up(query, weight * rank, n_queries) / in_query)[query])
        knows = np.stack([add_up(query, centred * rate, n_queries) for rate in rates])
        for better, period in enumerate(_DAYS):
            own, other = float(knows[better].sum()), float(knows[1 - better].sum())
            by_query = knows[better] - FAR_BETTER * knows[1 - better]
            above, below = float(by_query.sum()), float((by_query**2).sum())
            if abs(own) > abs(other) and above * own > 0 and below > 0:
                ratio = own / other if own * other > 0 else np.inf
                yield feature, period, ratio, -(above**2) / 2 / below


def _in_both(both: list[Rows]) -> tuple[Ints, Floats, Floats]:
    """Return the pairs and positions that both periods have, their impressions and clicks."""
    counted = []
    for rows in both:
        place, member = np.unique(rows.row * _PLACES + rows.position, return_inverse=True)
        counted.append((place, *(add_up(member, column, len(place))
                                 for column in (rows.shown, rows.clicks))))  # fmt: skip
    places, *common = np.intersect1d(
        counted[0][0], counted[1][0], assume_unique=True, return_indices=True
    )
    shown, clicks = (
        np.stack([one[k][own] for one, own in zip(counted, common, strict=True)]) for k in (1, 2)
    )
    return places, shown, clicks
