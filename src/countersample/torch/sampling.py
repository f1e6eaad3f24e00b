"""The sampler: draws the examples of a click log for a `DataLoader`, over any number of ranks."""

from __future__ import annotations

import hashlib
from functools import cached_property
from itertools import chain, islice
from operator import length_hint
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Sampler

from countersample._params import whole_number
from countersample.errors import DataError, ParameterError
from countersample.plans import Examples
from countersample.torch._blocks import BlockTable
from countersample.torch._processes import place
from countersample.torch.data import plan_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from countersample.clicks import ClickLog
    from countersample.plans import Plan

# Another way to make the stream is another version: a state would not go on where it stopped.
VERSION = 1
BLOCK = 2**14


class CounterSampler(Sampler[Any]):
    """P(next index = i) = π_i, the probability of example i in a plan; every draw is independent.

    Takes the place of `torch.utils.data.WeightedRandomSampler`, for any number of clicks: O(1) a
    draw, from sums of weights that are made once, in one pass. An index is one of
    ``Examples.of(log, unit)``, which is what `ClickDataset` takes.

    Parameters
    ----------
    log : ClickLog
    unit : {"click", "pair", "query"}
        What one example is: see `countersample.plans.Examples.of`.
    plan : str or Plan
        The name of a plan, or a plan of these examples.
    batch_size : int, optional
        How many indices each rank gets at once. With it the sampler gives lists and is the
        `batch_sampler` of a `DataLoader`; without it single indices, as its `sampler`.
    n_draws : int, optional
        Draws an epoch, of all ranks together; as many as there are examples by default. Every rank
        makes the same number, so up to ``world_size - 1`` more are made where it does not divide.
    seed : int
        The same on every rank.
    rank, world_size : int, optional
        Which of how many processes this is; by default what `torch.distributed` says where it is
        initialised, and 0 of 1 elsewhere.

    Attributes
    ----------
    examples : Examples
    plan : Plan
        Its `multipliers` are what the gradient of each example is multiplied by.

    Notes
    -----
    The seed and the epoch make one stream of draws, whatever the number of ranks: rank r takes the
    draws r, r + world_size, … of it. So together the ranks take what a single process with batches
    ``world_size`` times as large would take.

    Each iteration is the next epoch and has draws of its own, also after one that was broken off;
    `set_epoch` chooses the epoch instead.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.torch import CounterSampler
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[0.5, 0.25])
    >>> sampler = CounterSampler(log, unit="click", n_draws=10)
    >>> sampler.plan.probabilities.round(3)
    array([0.333, 0.667])
    >>> list(sampler), list(sampler)
    ([1, 0, 1, 1, 1, 1, 0, 0, 1, 1], [1, 1, 0, 0, 0, 0, 0, 1, 1, 1])

    Two ranks share an epoch:

    >>> for rank in (0, 1):
    ...     print(list(CounterSampler(log, unit="click", n_draws=10, rank=rank, world_size=2)))
    [1, 1, 1, 0, 1]
    [0, 1, 1, 0, 1]

    Batches, and going on in the middle of an epoch:

    >>> sampler = CounterSampler(log, unit="click", n_draws=10, batch_size=4)
    >>> batches = iter(sampler)
    >>> next(batches)
    [1, 0, 1, 1]
    >>> other = CounterSampler(log, unit="click", n_draws=10, batch_size=4)
    >>> other.load_state_dict(sampler.state_dict())
    >>> list(other), list(batches)
    ([[1, 1, 0, 0], [1, 1]], [[1, 1, 0, 0], [1, 1]])
    """

    def __init__(
        self,
        log: ClickLog,
        *,
        unit: str = "query",
        plan: str | Plan = "countersample",
        batch_size: int | None = None,
        n_draws: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        own_rank, n_processes = place()
        world_size = n_processes if world_size is None else world_size
        self.world_size = whole_number("world_size", world_size, least=1)
        self.rank = whole_number("rank", own_rank if rank is None else rank, least=0)
        if self.rank >= self.world_size:
            raise ParameterError(
                f"rank is {self.rank}, expected below {self.world_size}, the world_size"
            )
        self.seed = whole_number("seed", seed, least=0)
        self.batch_size = (
            None if batch_size is None else whole_number("batch_size", batch_size, least=1)
        )
        self.unit = unit
        self.examples = Examples.of(log, unit)
        n_draws = len(self.examples) if n_draws is None else n_draws
        self.n_draws = whole_number("n_draws", n_draws, least=1)
        self.plan = plan_of(plan, self.examples)
        self._table = BlockTable(self.plan.unnormalized)
        self._epoch = 0
        self._start = 0  # where in the epoch's stream the iteration begins
        self._n_made = 0  # indices of this rank since then,
        self._left: Iterator[int] = iter(())  # of which these are not given yet
        self._is_begun = False

    def __len__(self) -> int:
        """Return how many indices, or batches, this rank gets in a whole epoch."""
        n_indices = -(-self.n_draws // self.world_size)
        return n_indices if self.batch_size is None else -(-n_indices // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Give the rest of an epoch whose state was loaded, and whole epochs from then on."""
        # A generator: nothing changes before the first index, as a DataLoader with workers makes
        # two iterators and uses the second.
        if self._is_begun:
            self._epoch, self._start = self._epoch + 1, 0
        self._is_begun, self._n_made, self._left = True, 0, iter(())
        indices = chain.from_iterable(self._blocks())
        if self.batch_size is None:
            yield from indices
            return
        while batch := list(islice(indices, self.batch_size)):
            yield batch

    @property
    def epoch(self) -> int:
        """The epoch that the next index is of."""
        return self._position(self._n_given)[0]

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration.

        It begins at its first index, unless the state just loaded is in the middle of that epoch.
        """
        epoch = whole_number("epoch", epoch, least=0)
        if self._is_begun or epoch != self._epoch:
            self._begin_at(epoch, 0)

    def state_dict(self, *, used: int | None = None) -> dict[str, int | str]:
        """Return where the sampler is: numbers and strings, the same on every rank.

        Parameters
        ----------
        used : int, optional
            How many of the indices (batches, where the sampler gives batches) of this iteration
            were used. Needed with the workers of a `DataLoader`, which ask for batches ahead; by
            default all that the sampler has given.

        Notes
        -----
        After the last index of an epoch this is the beginning of the next.
        """
        n_used = self._n_given
        if used is not None:
            most = self._n_given if self.batch_size is None else -(-n_used // self.batch_size)
            if whole_number("used", used, least=0) > most:
                raise ParameterError(f"used is {used}, expected at most {most}, as many were given")
            n_used = min(n_used, used * (self.batch_size or 1))
        epoch, drawn = self._position(n_used)
        return {"epoch": epoch, "drawn": drawn, **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another sampler was; the next iteration gives the rest of its epoch.

        The log, unit, plan, n_draws and seed must be those of that sampler. The number of ranks and
        the batch size may differ: the ranks go on in the same stream.

        Raises
        ------
        DataError
            If the state is of a sampler of another log or with other settings, or no such state.
        """
        try:
            epoch, drawn = (whole_number(name, state[name], least=0) for name in ("epoch", "drawn"))
            given = {name: state[name] for name in self._identity}
        except (LookupError, TypeError, ParameterError) as error:
            raise DataError(
                "the state is not one of a CounterSampler: expected what its state_dict() returned"
            ) from error
        for name, value in self._identity.items():
            if given[name] != value:
                raise DataError(
                    f"the state is of another sampler, with {name} {given[name]!r} where this one "
                    f"has {value!r}: load it into a sampler with the same log and settings"
                )
        if drawn >= self.n_draws:
            raise DataError(f"drawn is {drawn} in the state, expected below {self.n_draws}")
        self._begin_at(epoch, drawn)

    def _begin_at(self, epoch: int, start: int) -> None:
        self._epoch, self._start, self._is_begun = epoch, start, False
        self._n_made, self._left = 0, iter(())

    @property
    def _n_given(self) -> int:
        # Of the iterator, rather than counted at every index, which took longer than to draw it
        return self._n_made - length_hint(self._left)

    def _position(self, n_given: int) -> tuple[int, int]:
        """Return the epoch, and the draws of it that all ranks have made, after so many indices."""
        drawn = self._start + n_given * self.world_size
        return (self._epoch, drawn) if drawn < self.n_draws else (self._epoch + 1, 0)

    def _blocks(self) -> Iterator[Iterator[int]]:
        """Yield the indices of this rank, those of one block of draws after the other."""
        epoch, world_size = self._epoch, self.world_size
        at, n_made = self._start + self.rank, 0
        n_indices = -(-(self.n_draws - self._start) // world_size)
        while n_made < n_indices:
            block, first = divmod(at, BLOCK)
            # A generator for each block, so that the middle of an epoch is as near as its beginning
            key = np.random.SeedSequence(self.seed, spawn_key=(epoch, block))
            drawn = self._table.sample(BLOCK, np.random.default_rng(key))
            mine = drawn[first::world_size][: n_indices - n_made].tolist()
            n_made += len(mine)
            at += len(mine) * world_size
            self._n_made, self._left = n_made, iter(mine)
            yield self._left

    @cached_property
    def _identity(self) -> dict[str, int | str]:
        """What must be the same for a state to fit."""
        digest = hashlib.blake2b(digest_size=16)
        examples = self.examples
        for column in (examples.query, examples.item, examples.weight, self.plan.unnormalized):
            digest.update(np.ascontiguousarray(column).data)
        return {
            "version": VERSION,
            "unit": self.unit,
            "plan": self.plan.name,
            "n_examples": len(examples),
            "n_draws": self.n_draws,
            "seed": self.seed,
            "fingerprint": digest.hexdigest(),
        }
