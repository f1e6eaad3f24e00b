"""Several logging policies with shares of the sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import number
from countersample.clicks.policies import LoggingPolicy, Ranked, Shown
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countersample._arrays import Floats, Ints
    from countersample.clicks.policies import Rankings


@dataclass(frozen=True, eq=False)
class Mixture(LoggingPolicy):
    """Each session is shown by one of several policies, drawn by their shares."""

    policies: Mapping[str, LoggingPolicy]
    shares: Floats

    @property
    def rankers(self) -> tuple[Any, ...]:
        """The rankers of all."""
        return tuple(ranker for policy in self.policies.values() for ranker in policy.rankers)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all; of one that has names of its own, those."""
        named = ((policy.names or (name,)) for name, policy in self.policies.items())
        return tuple(dict.fromkeys(name for names in named for name in names))

    def draw(self, rng: np.random.Generator, rankings: Rankings, top: int) -> Shown:
        """Draw a policy for each session, and then what it shows."""
        which = pick(rng, self.shares, len(rankings[0]))
        rows = np.empty((len(which), min(top, rankings[0].shape[1])), np.int64)
        codes = np.empty_like(rows)
        for index, (name, policy, _, own) in enumerate(self._parts(rankings)):
            mine = which == index
            shown = policy.draw(rng, [ranking[mine] for ranking in own], top)
            rows[mine] = shown.rows
            known = np.array([self.names.index(one) for one in policy.names or (name,)])
            codes[mine] = known[0 if shown.policy is None else shown.policy]
        return Shown(rows, codes)

    def orders(self, rankings: Rankings, top: int, *, joint: bool) -> Iterator[tuple[Floats, Ints]]:
        """Go through what each policy may show, with its share."""
        for _, policy, share, own in self._parts(rankings):
            for chances, rows in policy.orders(own, top, joint=joint):
                yield share * chances, rows

    def _parts(self, rankings: Rankings) -> Iterator[tuple[str, LoggingPolicy, float, Rankings]]:
        """Go through names, policies, shares and the rankings of each."""
        first = 0
        for (name, policy), share in zip(self.policies.items(), self.shares, strict=True):
            last = first + len(policy.rankers)
            yield name, policy, float(share), rankings[first:last]
            first = last


def as_policy(policy: Any, shares: Any = None) -> LoggingPolicy:  # noqa: ANN401 (what a user gives)
    """Return the policy that a user means: a policy, a ranker or its scores, or several by name.

    >>> as_policy({"old": [0.2, 0.1], "new": [0.1, 0.2]}, {"old": 90, "new": 10}).shares
    array([0.9, 0.1])
    """
    if isinstance(policy, Mapping):
        if not policy:
            raise ParameterError("the mapping of policies is empty, expected at least one policy")
        parts = {str(name): as_policy(one) for name, one in policy.items()}
        return Mixture(parts, as_shares("shares", parts, shares))
    if shares is not None:
        raise ParameterError("shares are given for one policy, expected a mapping of several names")
    return policy if isinstance(policy, LoggingPolicy) else Ranked(policy)


def as_shares(what: str, names: Mapping[str, Any], shares: Any) -> Floats:  # noqa: ANN401
    """Return shares of these names that add up to 1; equal ones for None.

    >>> as_shares("shares", {"old": 1, "new": 2}, [3, 1])
    array([0.75, 0.25])
    """
    if shares is None:
        shares = [1] * len(names)
    if isinstance(shares, Mapping):
        named = {str(name): share for name, share in shares.items()}  # as those of policies
        if set(named) != set(names):
            raise ParameterError(
                f"{what} are of {', '.join(named)}, expected of {', '.join(names)}"
            )
        shares = [named[name] for name in names]
    if len(shares) != len(names):
        raise ParameterError(f"{what} has {len(shares)} numbers, expected {len(names)}: one a name")
    values: Floats = np.array([number(what, share, above=0) for share in shares])
    values /= values.sum()
    return values


def pick(rng: np.random.Generator, shares: Floats, n: int) -> Ints:
    """Draw n indices by their shares.

    >>> np.bincount(pick(np.random.default_rng(0), np.array([0.75, 0.25]), 1000)) / 1000
    array([0.733, 0.267])
    """
    return np.searchsorted(np.cumsum(shares)[:-1], rng.random(n), side="right")
