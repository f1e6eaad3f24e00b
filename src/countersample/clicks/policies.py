"""Logging policies: which items of its query a session shows, and in which order.

A policy has one ranker or more and works on matrices. In a *ranking*, (n_lists, width), a row is a
list: the items of a query as rows of the dataset, best first, and −1 beyond the end. The shown
lists are a matrix of the same kind, with at most ``top`` columns. A policy draws them for sessions,
and enumerates all possible ones with their probabilities, for the exact propensities of simulated
clicks. A new policy is one subclass of `LoggingPolicy`, or of `OneRanker` if it has one ranker.
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
    from countersample.data.dataset import Ranker
    from countersample.options import SimulationOptions

    Rankings = Sequence[Ints]

_MAX_ORDERS = factorial(7)  # of a query, to be enumerated


class SessionLists(NamedTuple):
    """The lists of sessions."""

    rows: Ints  # (n_sessions, at most top), rows of the dataset, −1 beyond the end
    policy: Ints | None  # of each item, the index of its policy among the names; None: no names


class LoggingPolicy(ABC):
    """Base of all policies: it decides the order that a session shows."""

    @property
    @abstractmethod
    def rankers(self) -> tuple[Any, ...]:
        """A ranker, or its scores, for each ranking that the methods take."""

    @property
    def names(self) -> tuple[str, ...]:
        """The values of the column ``policy`` of impressions; empty if there is one policy."""
        return ()

    @abstractmethod
    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> SessionLists:
        """Draw the list of one session for each row of the rankings."""

    @abstractmethod
    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:
        """Enumerate all lists: probabilities (n_lists,) and rows (n_lists, top).

        Without ``joint``, only the probabilities of each item at each position must be right; which
        items are shown together does not matter.
        """


@dataclass(frozen=True, eq=False)
class OneRanker(LoggingPolicy):
    """Base of policies with one ranker."""

    ranker: Ranker | ArrayLike

    @property
    def rankers(self) -> tuple[Any, ...]:
        """The ranker."""
        return (self.ranker,)


@dataclass(frozen=True, eq=False)
class Ranked(OneRanker):
    """Every session shows the first items of the ranking: the policy of a ranker or its scores.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.clicks import Ranked
    >>> Ranked([0.3, 0.2, 0.1]).draw(np.random.default_rng(0), [np.array([[0, 1, 2]])], 2).rows
    array([[0, 1]])
    """

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> SessionLists:  # noqa: ARG002
        """Return the first items; nothing is random."""
        return SessionLists(rankings[0][:, :top], None)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:  # noqa: ARG002
        """Yield the only order."""
        yield np.ones(len(rankings[0])), rankings[0][:, :top]


@dataclass(frozen=True, eq=False)
class Shuffled(OneRanker):
    """P(an item of the first ``depth`` is at position k) = 1/min(depth, n), k = 1..min(depth, n).

    Each session shows the first ``depth`` of the n items in a random order, and the rest below.
    With a depth beyond the cut-off, which items are shown is random as well. By default, it is the
    number of items shown.

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

    depth: int | None = None

    def __post_init__(self) -> None:
        if self.depth is not None:
            whole_number("depth", self.depth, least=1, or_else="None")

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> SessionLists:
        """Draw an order of the first ``depth`` for each session."""
        ranking, sizes = self._within(rankings[0], top)
        keys = rng.random((len(ranking), int(sizes.max(initial=0))))
        return SessionLists(_by_keys(ranking, keys, sizes)[:, :top], None)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:
        """Enumerate permutations, or without ``joint`` rotations, with the same positions."""
        ranking, sizes = self._within(rankings[0], top)
        most = int(sizes.max(initial=1))
        if joint:
            n_orders = factorial(most)
            _check_number(n_orders, f"the {most} items that it shuffles")
            for permutation in permutations(range(most)):
                # A permutation of all items orders any fewer items, each order equally often.
                keys = np.broadcast_to(np.array(permutation), (len(ranking), most))
                shown = _by_keys(ranking, keys.astype(np.float64), sizes)[:, :top]
                yield np.full(len(ranking), 1 / n_orders), shown
            return
        for shift in range(most):
            keys = (np.arange(most) - shift) % np.maximum(sizes, 1)[:, None]
            shown = _by_keys(ranking, keys.astype(np.float64), sizes)[:, :top]
            yield np.where(shift < np.maximum(sizes, 1), 1 / np.maximum(sizes, 1), 0.0), shown

    def _within(self, ranking: Ints, top: int) -> tuple[Ints, Ints]:
        """Return the part of the ranking that may be shown, and how many items to shuffle."""
        depth = top if self.depth is None else self.depth
        ranking = ranking[:, : max(depth, top)]
        return ranking, np.minimum((ranking >= 0).sum(axis=1), depth)


@dataclass(frozen=True, eq=False)
class Swapped(OneRanker):
    """With probability ``rate`` a session swaps two of the n items that it shows.

    Each of n − 1 pairs with the same probability: positions k and k + 1 (pairs ``"adjacent"``), or
    1 and k (``"first"``), as in the interventions of Joachims et al. (WSDM 2017).

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

    rate: float = 0.5
    pairs: Literal["adjacent", "first"] = "adjacent"

    def __post_init__(self) -> None:
        number("rate", self.rate, least=0, most=1)
        choice("pairs", self.pairs, ("adjacent", "first"))

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> SessionLists:
        """Draw whether each session has a swap, and which."""
        n_pairs = _count_pairs(rankings[0], top)
        has_swap = (rng.random(len(n_pairs)) < self.rate) & (n_pairs > 0)
        lower = 1 + (rng.random(len(n_pairs)) * n_pairs).astype(np.int64)
        return SessionLists(self._swap(rankings[0], np.where(has_swap, lower, 0))[:, :top], None)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:  # noqa: ARG002
        """Enumerate no swap and each swap."""
        n_pairs = _count_pairs(rankings[0], top)
        yield np.where(n_pairs > 0, 1.0 - self.rate, 1.0), rankings[0][:, :top]
        for lower in range(1, int(n_pairs.max(initial=0)) + 1):
            has_swap = lower <= n_pairs
            shown = self._swap(rankings[0], np.where(has_swap, lower, 0))[:, :top]
            yield np.where(has_swap, self.rate / np.maximum(n_pairs, 1), 0.0), shown

    def _swap(self, ranking: Ints, lower: Ints) -> Ints:
        """Swap column ``lower`` of each list with the one above, or the first; 0: no swap."""
        shown, lists = ranking.copy(), np.arange(len(ranking))
        upper = np.zeros_like(lower) if self.pairs == "first" else np.maximum(lower - 1, 0)
        shown[lists, lower], shown[lists, upper] = ranking[lists, upper], ranking[lists, lower]
        return shown


def _count_pairs(ranking: Ints, top: int) -> Ints:
    """Return the number of pairs of each list that may be swapped."""
    n_pairs: Ints = np.clip((ranking >= 0).sum(axis=1), 1, top) - 1
    return n_pairs


@dataclass(frozen=True, eq=False)
class TeamDraft(LoggingPolicy):
    """Two rankers take turns: in each round a fair coin decides which picks its best item first.

    Team-draft interleaving (Radlinski, Kurup and Joachims, CIKM 2008). In impressions, the column
    ``policy`` of an item is the ranker that picked it. The teams map two names to rankers, or to
    the scores of the items.

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

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> SessionLists:
        """Draw a coin for each round of each session."""
        n_rounds = (min(top, rankings[0].shape[1]) + 1) // 2
        return self._draft(rankings, rng.random((len(rankings[0]), n_rounds)) < 0.5, top)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:  # noqa: ARG002
        """Enumerate all outcomes of the coins."""
        n_lists, width = rankings[0].shape
        n_rounds = (min(top, width) + 1) // 2
        _check_number(2**n_rounds, f"{n_rounds} rounds of picking")
        for coins in product((True, False), repeat=n_rounds):
            sides = np.broadcast_to(np.array(coins, np.bool_), (n_lists, n_rounds))
            yield np.full(n_lists, 0.5**n_rounds), self._draft(rankings, sides, top).rows

    def _draft(self, rankings: Rankings, first: Bools, top: int) -> SessionLists:
        """Return the picks of the teams; the first team starts a round if ``first`` is True."""
        n_lists, width = rankings[0].shape
        width = min(top, width)
        lists = np.arange(n_lists)
        # Among its best ``width`` items a team has one left at each of ``width`` picks.
        picks = np.stack([ranking[:, :width] for ranking in rankings])
        is_left = picks >= 0
        shown = np.empty((n_lists, width), np.int64)
        teams = np.empty((n_lists, width), np.int64)
        for column in range(width):
            team = np.where(first[:, column // 2], 0, 1) ^ (column % 2)
            best = is_left[team, lists].argmax(axis=1)
            item = np.where(is_left[team, lists, best], picks[team, lists, best], -1)
            is_left &= picks != item[:, None]
            shown[:, column], teams[:, column] = item, team
        return SessionLists(shown, teams)


@dataclass(frozen=True, eq=False)
class Mixture(LoggingPolicy):
    """Several policies with shares of the sessions."""

    policies: Mapping[str, LoggingPolicy]
    shares: Floats

    @property
    def rankers(self) -> tuple[Any, ...]:
        """The rankers of all policies."""
        return tuple(ranker for policy in self.policies.values() for ranker in policy.rankers)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each policy, or the names that it has itself."""
        names = ((policy.names or (name,)) for name, policy in self.policies.items())
        return tuple(dict.fromkeys(each for some in names for each in some))

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> SessionLists:
        """Draw a policy for each session, and then its list."""
        which = pick(rng, self.shares, len(rankings[0]))
        rows = np.empty((len(which), min(top, rankings[0].shape[1])), np.int64)
        codes = np.empty_like(rows)
        for index, (name, policy, _, part) in enumerate(self._parts(rankings)):
            is_here = which == index
            shown = policy.draw(rng, [ranking[is_here] for ranking in part], top)
            rows[is_here] = shown.rows
            positions = np.array([self.names.index(each) for each in policy.names or (name,)])
            codes[is_here] = positions[0 if shown.policy is None else shown.policy]
        return SessionLists(rows, codes)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:
        """Enumerate the lists of each policy, with its share."""
        for _, policy, share, part in self._parts(rankings):
            for chances, rows in policy.orders(part, top, joint=joint):
                yield share * chances, rows

    def _parts(self, rankings: Rankings) -> Iterator[tuple[str, LoggingPolicy, float, Rankings]]:
        """Yield the name, share and rankings of each policy, with the policy."""
        first = 0
        for (name, policy), share in zip(self.policies.items(), self.shares, strict=True):
            last = first + len(policy.rankers)
            yield name, policy, float(share), rankings[first:last]
            first = last


def as_policy(policy: Any, shares: Any = None) -> LoggingPolicy:  # noqa: ANN401 (see below)
    """Return a logging policy from a policy, a ranker or its scores, or several by name.

    >>> from countersample.clicks.policies import as_policy
    >>> as_policy({"old": [0.2, 0.1], "new": [0.1, 0.2]}, {"old": 90, "new": 10}).shares
    array([0.9, 0.1])
    """
    if isinstance(policy, Mapping):
        if not policy:
            raise ParameterError("the mapping of policies is empty, expected at least one policy")
        parts = {str(name): as_policy(each) for name, each in policy.items()}
        return Mixture(parts, as_shares("shares", parts, shares))
    if shares is not None:
        raise ParameterError("shares are given for one policy, expected a mapping of several names")
    return policy if isinstance(policy, LoggingPolicy) else Ranked(policy)


def arrange(scores: Mapping[str, ArrayLike], options: SimulationOptions) -> Any:  # noqa: ANN401
    """Return the logging policies by name, or two rankers interleaved."""
    if options.interleave:
        if len(scores) != 2:
            raise ParameterError(
                f"interleave has {len(scores)} policies, expected two: give --policy or "
                "--policy-fraction twice"
            )
        return TeamDraft(scores)
    policies: dict[str, Any] = dict(scores)
    if options.shuffle is not None:
        policies = {
            name: Shuffled(each, options.shuffle or None) for name, each in policies.items()
        }
    elif options.swap is not None:
        pairs: Any = options.swap
        policies = {
            name: Swapped(each, options.swap_rate, pairs) for name, each in policies.items()
        }
    return policies if len(policies) > 1 else next(iter(policies.values()))


def as_shares(what: str, names: Mapping[str, Any], shares: Any) -> Floats:  # noqa: ANN401
    """Return shares of these names that add up to 1; by default equal ones.

    >>> from countersample.clicks.policies import as_shares
    >>> as_shares("shares", {"old": 1, "new": 2}, [3, 1])
    array([0.75, 0.25])
    """
    if shares is None:
        shares = [1] * len(names)
    if isinstance(shares, Mapping):
        by_name = {str(name): share for name, share in shares.items()}
        if set(by_name) != set(names):
            raise ParameterError(
                f"{what} are of {', '.join(by_name)}, expected of {', '.join(names)}"
            )
        shares = [by_name[name] for name in names]
    if len(shares) != len(names):
        raise ParameterError(
            f"{what} has {len(shares)} numbers, expected {len(names)}: one per name"
        )
    values: Floats = np.array([number(what, share, above=0) for share in shares])
    values /= values.sum()
    return values


def pick(rng: np.random.Generator, shares: Floats, n: int) -> Ints:
    """Draw n indices with probabilities equal to the shares.

    >>> from countersample.clicks.policies import pick
    >>> np.bincount(pick(np.random.default_rng(0), np.array([0.75, 0.25]), 1000)) / 1000
    array([0.733, 0.267])
    """
    return np.searchsorted(np.cumsum(shares)[:-1], rng.random(n), side="right")


def _by_keys(ranking: Ints, keys: Floats, sizes: Ints) -> Ints:
    """Order the first ``sizes`` items of each list by their keys; the rest stays where it is.

    Keys are below the number of their columns.
    """
    width = keys.shape[1]
    columns = np.arange(width)
    order = np.where(columns < sizes[:, None], keys, width + columns).argsort(axis=1)
    head = np.take_along_axis(ranking[:, :width], order, axis=1)
    return np.concatenate([head, ranking[:, width:]], axis=1)


def _check_number(n_orders: int, reason: str) -> None:
    """Reject a policy with too many orders to enumerate."""
    if n_orders > _MAX_ORDERS:
        raise DataError(
            f"the policy has {n_orders:,} orders ({reason}), expected at most {_MAX_ORDERS:,} for "
            "exact propensities: show fewer items (top), take a click model by position "
            "(position-based, trust-bias), or simulate impressions, which need none"
        )
