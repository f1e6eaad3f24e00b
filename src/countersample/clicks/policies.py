"""Logging policies: which items of its query a session shows, and in which order.

A policy ranks by one ranker or two and works on matrices. In a *ranking*, (n_lists, width), a row
is a list: the items of a query as rows of the dataset, the best one first, and −1 beyond the end.
What is shown of it is a matrix of the same kind, with at most ``top`` columns. A policy draws it
for a session, and goes through all that it may show with their probabilities, for the exact
propensities of simulated clicks. A new policy is one subclass of `LoggingPolicy`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations, product
from math import factorial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike

    from countersample._arrays import Bools, Floats, Ints
    from countersample.data.scoring import Ranker

    Rankings = Sequence[Ints]

_MOST_ORDERS = factorial(7)  # of a query, that are gone through one by one


class Shown(NamedTuple):
    """What sessions show."""

    rows: Ints  # (n_sessions, at most top), rows of the dataset, −1 beyond the end
    policy: Ints | None  # of each of them, the index of its policy among the names; None: no names


class LoggingPolicy(ABC):
    """What decides the order that a session shows: the base of all."""

    @property
    @abstractmethod
    def rankers(self) -> tuple[Any, ...]:
        """What ranks: for each ranking that the methods take, a ranker or its scores."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the column ``policy`` of impressions may say; empty where there is one policy."""
        return ()

    @abstractmethod
    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> Shown:
        """Draw what is shown in a session for each row of the rankings."""

    @abstractmethod
    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:
        """Go through all that may be shown: probabilities (n_lists,) and rows (n_lists, top).

        Without ``joint``, what is gone through need only have the right items at each position,
        each with its probability; which of them are shown together does not matter.
        """


@dataclass(frozen=True, eq=False)
class Ranked(LoggingPolicy):
    """Every session shows the first items of the ranking: what a ranker or scores alone mean.

    Parameters
    ----------
    ranker : Ranker or array-like (n_items,)

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.clicks import Ranked
    >>> Ranked([0.3, 0.2, 0.1]).draw(np.random.default_rng(0), [np.array([[0, 1, 2]])], 2).rows
    array([[0, 1]])
    """

    ranker: Ranker | ArrayLike

    @property
    def rankers(self) -> tuple[Any, ...]:
        """The ranker."""
        return (self.ranker,)

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> Shown:  # noqa: ARG002
        """Return the first items; nothing is drawn."""
        return Shown(rankings[0][:, :top], None)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:  # noqa: ARG002
        """Give the only order."""
        yield np.ones(len(rankings[0])), rankings[0][:, :top]


@dataclass(frozen=True, eq=False)
class Shuffled(LoggingPolicy):
    """P(an item of the first ``depth`` is at position k) = 1/min(depth, n), k = 1..min(depth, n).

    Each session shows the first ``depth`` of the n items in a random order, and the rest below.
    With a depth beyond the cut-off, what is shown is drawn at random as well.

    Parameters
    ----------
    ranker : Ranker or array-like (n_items,)
    depth : int or None
        None: those that are shown.

    Examples
    --------
    The three items at the top change places; the fourth stays where it is:

    >>> import numpy as np
    >>> from countersample.clicks import Shuffled
    >>> ranking = np.tile(np.arange(4), (10_000, 1))
    >>> policy = Shuffled([0.4, 0.3, 0.2, 0.1], depth=3)
    >>> rows = policy.draw(np.random.default_rng(0), [ranking], 4).rows
    >>> (rows == 0).mean(axis=0).round(1), (rows == 3).mean(axis=0)
    (array([0.3, 0.3, 0.3, 0. ]), array([0., 0., 0., 1.]))
    """

    ranker: Ranker | ArrayLike
    depth: int | None = None

    def __post_init__(self) -> None:
        if self.depth is not None:
            whole_number("depth", self.depth, least=1, or_else="None")

    @property
    def rankers(self) -> tuple[Any, ...]:
        """The ranker."""
        return (self.ranker,)

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> Shown:
        """Draw an order of the first ``depth`` for each session."""
        ranking, sizes = self._within(rankings[0], top)
        keys = rng.random((len(ranking), int(sizes.max(initial=0))))
        return Shown(_by_keys(ranking, keys, sizes)[:, :top], None)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:
        """Go through all permutations; without ``joint`` the rotations have the same positions."""
        ranking, sizes = self._within(rankings[0], top)
        most = int(sizes.max(initial=1))
        if joint:
            n_orders = factorial(most)
            _check_number(n_orders, f"the {most} items that it shuffles")
            for permutation in permutations(range(most)):
                # An order of all gives one of fewer items: each of those as often as the others.
                keys = np.broadcast_to(np.array(permutation, np.float64), (len(ranking), most))
                shown = _by_keys(ranking, keys, sizes)[:, :top]
                yield np.full(len(ranking), 1 / n_orders), shown
            return
        for shift in range(most):
            turned = (np.arange(most) - shift) % np.maximum(sizes, 1)[:, None]
            shown = _by_keys(ranking, turned.astype(np.float64), sizes)[:, :top]
            yield np.where(shift < np.maximum(sizes, 1), 1 / np.maximum(sizes, 1), 0.0), shown

    def _within(self, ranking: Ints, top: int) -> tuple[Ints, Ints]:
        """Return as much of the ranking as may be shown, and how many of each list to shuffle."""
        depth = top if self.depth is None else self.depth
        ranking = ranking[:, : max(depth, top)]
        return ranking, np.minimum((ranking >= 0).sum(axis=1), depth)


@dataclass(frozen=True, eq=False)
class Swapped(LoggingPolicy):
    """With probability ``rate`` a session swaps two items of the first n = ``depth``.

    Each of n − 1 pairs with the same probability: positions k and k + 1 (``"adjacent"``), or
    1 and k (``"first"``), as in the interventions of Joachims et al. (WSDM 2017).

    Parameters
    ----------
    ranker : Ranker or array-like (n_items,)
    rate : float in [0, 1]
    pairs : {"adjacent", "first"}
    depth : int or None
        None: those that are shown.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.clicks import Swapped
    >>> policy = Swapped([0.3, 0.2, 0.1], rate=0.5, pairs="first")
    >>> for chance, rows in policy.orders([np.array([[0, 1, 2]])], 3, joint=True):
    ...     print(chance, rows[0])
    [0.5] [0 1 2]
    [0.25] [1 0 2]
    [0.25] [2 1 0]
    """

    ranker: Ranker | ArrayLike
    rate: float = 0.5
    pairs: Literal["adjacent", "first"] = "adjacent"
    depth: int | None = None

    def __post_init__(self) -> None:
        number("rate", self.rate, least=0, most=1)
        choice("pairs", self.pairs, ("adjacent", "first"))
        if self.depth is not None:
            whole_number("depth", self.depth, least=2, or_else="None")

    @property
    def rankers(self) -> tuple[Any, ...]:
        """The ranker."""
        return (self.ranker,)

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> Shown:
        """Draw for each session if it has a swap, and which."""
        n_pairs = self._pairs(rankings[0], top)
        swaps = (rng.random(len(n_pairs)) < self.rate) & (n_pairs > 0)
        lower = 1 + (rng.random(len(n_pairs)) * n_pairs).astype(np.int64)
        return Shown(self._swap(rankings[0], np.where(swaps, lower, 0))[:, :top], None)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:  # noqa: ARG002
        """Go through no swap and each swap."""
        n_pairs = self._pairs(rankings[0], top)
        yield np.where(n_pairs > 0, 1.0 - self.rate, 1.0), rankings[0][:, :top]
        for lower in range(1, int(n_pairs.max(initial=0)) + 1):
            swaps = lower <= n_pairs
            shown = self._swap(rankings[0], np.where(swaps, lower, 0))[:, :top]
            yield np.where(swaps, self.rate / np.maximum(n_pairs, 1), 0.0), shown

    def _pairs(self, ranking: Ints, top: int) -> Ints:
        """Return how many pairs of each list may be swapped."""
        depth = top if self.depth is None else self.depth
        n_pairs: Ints = np.clip((ranking >= 0).sum(axis=1), 1, depth) - 1
        return n_pairs

    def _swap(self, ranking: Ints, lower: Ints) -> Ints:
        """Swap column ``lower`` of each list with the one above, or the first; 0: no swap."""
        shown, lists = ranking.copy(), np.arange(len(ranking))
        upper = np.zeros_like(lower) if self.pairs == "first" else np.maximum(lower - 1, 0)
        shown[lists, lower], shown[lists, upper] = ranking[lists, upper], ranking[lists, lower]
        return shown


@dataclass(frozen=True, eq=False)
class TeamDraft(LoggingPolicy):
    """Two rankers take turns: in each round a fair coin says which picks its best item left first.

    Team-draft interleaving (Radlinski, Kurup and Joachims, CIKM 2008). In impressions, the column
    ``policy`` of an item is the ranker that picked it.

    Parameters
    ----------
    teams : mapping of two names to Ranker or array-like (n_items,)

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.clicks import TeamDraft
    >>> policy = TeamDraft({"old": [0.3, 0.2, 0.1], "new": [0.1, 0.2, 0.3]})
    >>> rankings = [np.array([[0, 1, 2]]), np.array([[2, 1, 0]])]
    >>> for chance, rows in policy.orders(rankings, 2, joint=True):
    ...     print(chance, rows[0])
    [0.5] [0 2]
    [0.5] [2 0]
    """

    teams: Mapping[str, Ranker | ArrayLike]

    def __post_init__(self) -> None:
        if not isinstance(self.teams, Mapping) or len(self.teams) != 2:
            n = f"{len(self.teams)} names" if isinstance(self.teams, Mapping) else "no mapping"
            raise ParameterError(f"teams has {n}, expected a mapping of two names to rankers")

    @property
    def rankers(self) -> tuple[Any, ...]:
        """The rankers of both teams."""
        return tuple(self.teams.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of both teams."""
        return tuple(self.teams)

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> Shown:
        """Draw a coin for each round of each session."""
        n_rounds = (min(top, rankings[0].shape[1]) + 1) // 2
        return self._drafted(rankings, rng.random((len(rankings[0]), n_rounds)) < 0.5, top)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:  # noqa: ARG002
        """Go through all sides that the coins may show."""
        n_lists, width = rankings[0].shape
        n_rounds = (min(top, width) + 1) // 2
        _check_number(2**n_rounds, f"{n_rounds} rounds of picking")
        for coins in product((True, False), repeat=n_rounds):
            sides = np.broadcast_to(np.array(coins, np.bool_), (n_lists, n_rounds))
            yield np.full(n_lists, 0.5**n_rounds), self._drafted(rankings, sides, top).rows

    def _drafted(self, rankings: Rankings, first: Bools, top: int) -> Shown:
        """Return what the teams pick; in rounds where ``first`` is True the first is ahead."""
        n_lists, width = rankings[0].shape
        width = min(top, width)
        lists = np.arange(n_lists)
        # Of its best ``width`` items a team finds one left at each of ``width`` picks.
        picks = np.stack([ranking[:, :width] for ranking in rankings])
        left = picks >= 0
        shown = np.empty((n_lists, width), np.int64)
        teams = np.empty((n_lists, width), np.int64)
        for column in range(width):
            team = np.where(first[:, column // 2], 0, 1) ^ (column % 2)
            best = left[team, lists].argmax(axis=1)
            item = np.where(left[team, lists, best], picks[team, lists, best], -1)
            left &= picks != item[:, None]
            shown[:, column], teams[:, column] = item, team
        return Shown(shown, teams)


def _by_keys(ranking: Ints, keys: Floats, sizes: Ints) -> Ints:
    """Order the first ``sizes`` items of each list by their keys; the rest stays where it is.

    Keys are below the number of their columns.
    """
    width = keys.shape[1]
    columns = np.arange(width)
    order = np.where(columns < sizes[:, None], keys, width + columns).argsort(axis=1)
    head = np.take_along_axis(ranking[:, :width], order, axis=1)
    return np.concatenate([head, ranking[:, width:]], axis=1)


def _check_number(n_orders: int, of: str) -> None:
    """Refuse what has too many orders to go through."""
    if n_orders > _MOST_ORDERS:
        raise DataError(
            f"the policy has {n_orders:,} orders ({of}), expected at most {_MOST_ORDERS:,} to "
            "compute exact propensities of: show fewer items (top), take a click model by position "
            "(position-based, trust-bias), or simulate impressions, which need none"
        )
