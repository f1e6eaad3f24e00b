"""Samplers: draw the examples of a click log for a `DataLoader`, over any number of processes.

`CounterSampler` draws from a log that every process has. `ShardSampler` draws over processes that
have different clicks. Rank r has examples with weights v_i, which add up to V_r; all ranks together
have V = Σ V_r, and N clicks. How many of the B draws of a step come from which rank is drawn first,
and then each rank draws among its own examples:

    P(rank r) · P(i | rank r) = (V_r / V) · (v_i / V_r) = v_i / V

So the draws are the same as in one process with all examples, each with π_i = v_i/V and m_i = V/N:
π_i·m_i = v_i/N. The gradient of a step is the mean over ranks, as in `DistributedDataParallel`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from operator import length_hint
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed
from torch.utils.data import Sampler

from countersample._params import whole_number
from countersample.errors import DataError, ParameterError
from countersample.plans import AliasTable, Examples, Plan, as_weights
from countersample.torch.data import check_plan

if distributed.is_available():
    # DistributedDataParallel imports it as well. Its functions have the group of that moment as a
    # default: first imported while a group exists, they keep it, and threads of it, beyond
    # destroy_process_group, and one that still frees a tensor at exit ends the process by SIGABRT.
    import torch.distributed.nn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.torch.data import ClickBatch

# Another way to make the stream is another version: a state would not go on where it stopped.
VERSION = 1
BLOCK = 2**14
# Largest weights whose sums and products are neither infinite nor rounded to less than 53 bits
SAFE_WEIGHTS = (1e-200, 1e300)


def process_rank() -> tuple[int, int]:
    """Return rank and number of the processes of `torch.distributed`; (0, 1) without a group."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def gather_ranks(values: Floats) -> Floats:
    """Return the values of every rank, (world_size, n); of this process if it is the only one."""
    _, world_size = process_rank()
    if world_size == 1:
        return values[None]
    tensor = torch.from_numpy(np.ascontiguousarray(values, np.float64))
    parts = [torch.empty_like(tensor) for _ in range(world_size)]
    distributed.all_gather(parts, tensor)
    return np.array([part.numpy() for part in parts])


class BlockTable:
    """Draw i with probability weights[i] / Σ weights = P(block of i) · P(i in its block).

    An alias table draws one of the blocks of 8 neighbouring weights, by their sums. In the block a
    half is drawn by its sum, a half of that, and a row: from the weights themselves, so that no
    table of n is made. A draw costs the same for any n; the memory is a quarter of the weights.

    The weights are not copied, so they must not change. Probabilities are exact to a relative
    10⁻¹², and compared with uniform numbers of 53 bits.
    """

    def __init__(self, weights: ArrayLike) -> None:
        from countersample._kernels.sampling import ROWS, add_up_blocks  # noqa: PLC0415 (imports numba)

        values = np.ascontiguousarray(as_weights(weights, "weights"))
        largest = values.max()
        if not SAFE_WEIGHTS[0] < largest < SAFE_WEIGHTS[1]:
            values = values / largest
        self._weights = values
        n_full, n_rest = divmod(len(values), ROWS)
        self._last = np.zeros(ROWS)
        self._last[:n_rest] = values[ROWS * n_full :]
        totals = np.empty(n_full + (n_rest > 0))
        add_up_blocks(values, totals)
        self._blocks = AliasTable(totals)

    def __len__(self) -> int:
        return len(self._weights)

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `size` independent values, int64 (size,)."""
        from countersample._kernels.sampling import LEVELS, draw_in_blocks  # noqa: PLC0415 (imports numba)

        indices = self._blocks.sample(size, rng)  # of blocks, which the kernel turns into rows
        draw_in_blocks(self._weights, self._last, indices, rng.random((size, LEVELS)))
        return indices


class CounterSampler(Sampler[Any]):
    """P(next index = i) = π_i, the probability of example i in a plan; every draw is independent.

    Replaces `torch.utils.data.WeightedRandomSampler`, for any number of clicks: O(1) per draw, from
    sums of weights that are computed once, in one pass. An index is one of
    ``Examples.of(log, unit)``, which is what `ClickDataset` takes.

    The seed and the epoch make one stream of draws, whatever the number of ranks: rank r takes the
    draws r, r + world_size, … of it. Each iteration is the next epoch with other draws, also after
    an incomplete one; `set_epoch` chooses the epoch instead.

    Parameters
    ----------
    log : ClickLog
    unit : {"click", "pair", "query"}
        The kind of example: see `countersample.plans.Examples.of`.
    plan : str or Plan
        The name of a plan, or a plan of these examples; its multipliers are the factors of the
        examples' gradients.
    batch_size : int, optional
        Indices per batch and rank. With it the sampler yields lists and is the `batch_sampler` of
        a `DataLoader`; without it it yields single indices, as its `sampler`.
    n_draws : int, optional
        Draws per epoch, of all ranks together; by default the number of examples. Every rank makes
        the same number, so up to ``world_size - 1`` more are made if it does not divide.
    seed : int
        The same on every rank.
    rank, world_size : int, optional
        Rank and number of processes; by default from `torch.distributed`, if it is
        initialised, or 0 and 1.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.torch import CounterSampler
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[0.5, 0.25])
    >>> sampler = CounterSampler(log, unit="click", n_draws=10, batch_size=4)
    >>> sampler.plan.probabilities.round(3)
    array([0.333, 0.667])

    Resume in the middle of an epoch:

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
        this_rank, n_processes = process_rank()
        world_size = n_processes if world_size is None else world_size
        self.world_size = whole_number("world_size", world_size, least=1)
        self.rank = whole_number("rank", this_rank if rank is None else rank, least=0)
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
        self.plan = check_plan(plan, self.examples)
        self._table = BlockTable(self.plan.unnormalized)
        self._epoch = 0
        self._start = 0  # where in the epoch's stream the iteration begins
        self._n_drawn = 0  # indices of this rank since then,
        self._pending: Iterator[int] = iter(())  # of which these are not yielded yet
        self._is_begun = False

    def __len__(self) -> int:
        """Return the number of indices, or batches, of this rank in a whole epoch."""
        n_indices = -(-self.n_draws // self.world_size)
        return n_indices if self.batch_size is None else -(-n_indices // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of an epoch whose state was loaded, and whole epochs from then on."""
        # A generator: nothing changes before the first index, as a DataLoader with workers makes
        # two iterators and uses the second.
        if self._is_begun:
            self._epoch, self._start = self._epoch + 1, 0
        self._is_begun, self._n_drawn, self._pending = True, 0, iter(())
        indices = chain.from_iterable(self._blocks())
        if self.batch_size is None:
            yield from indices
            return
        while batch := list(islice(indices, self.batch_size)):
            yield batch

    @property
    def epoch(self) -> int:
        """The epoch of the next index."""
        return self._position(self._n_given)[0]

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration.

        It begins at its first index, unless the state just loaded is in the middle of that epoch.
        """
        epoch = whole_number("epoch", epoch, least=0)
        if self._is_begun or epoch != self._epoch:
            self._begin_at(epoch, 0)

    def state_dict(self, *, used: int | None = None) -> dict[str, int | str]:
        """Return the position of the sampler: numbers and strings, the same on every rank.

        `used` is the number of indices (or batches) of this iteration that were used, by default
        all that were yielded: the workers of a `DataLoader` fetch batches ahead.
        """
        n_used = self._n_given
        if used is not None:
            n_items = n_used if self.batch_size is None else -(-n_used // self.batch_size)
            if whole_number("used", used, least=0) > n_items:
                raise ParameterError(
                    f"used is {used}, expected at most {n_items}, as many were yielded"
                )
            n_used = min(n_used, used * (self.batch_size or 1))
        epoch, drawn = self._position(n_used)
        return {"epoch": epoch, "drawn": drawn, **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a sampler; the next iteration yields the rest of its epoch.

        The log, unit, plan, n_draws and seed must be the same as in that sampler, or a DataError
        is raised. The number of ranks and the batch size may differ: the ranks continue in the
        stream.
        """
        try:
            epoch, drawn = (whole_number(name, state[name], least=0) for name in ("epoch", "drawn"))
            identity = {name: state[name] for name in self._identity}
        except (LookupError, TypeError, ParameterError) as error:
            raise DataError(
                "the state is not one of a CounterSampler: expected what its state_dict() returned"
            ) from error
        for name, value in self._identity.items():
            if identity[name] != value:
                raise DataError(
                    f"the state is of another sampler, with {name} {identity[name]!r}: this one "
                    f"has {value!r}: load it into a sampler with the same log and settings"
                )
        if drawn >= self.n_draws:
            raise DataError(f"drawn is {drawn} in the state, expected below {self.n_draws}")
        self._begin_at(epoch, drawn)

    def _begin_at(self, epoch: int, start: int) -> None:
        self._epoch, self._start, self._is_begun = epoch, start, False
        self._n_drawn, self._pending = 0, iter(())

    @property
    def _n_given(self) -> int:
        # From the iterator's length: counting at every index takes longer than drawing it
        return self._n_drawn - length_hint(self._pending)

    def _position(self, n_given: int) -> tuple[int, int]:
        """Return the epoch, and the number of its draws by all ranks, after `n_given` indices."""
        drawn = self._start + n_given * self.world_size
        return (self._epoch, drawn) if drawn < self.n_draws else (self._epoch + 1, 0)

    def _blocks(self) -> Iterator[Iterator[int]]:
        """Yield the indices of this rank, one block of draws after the other."""
        epoch, world_size = self._epoch, self.world_size
        at, n_drawn = self._start + self.rank, 0
        n_indices = -(-(self.n_draws - self._start) // world_size)
        while n_drawn < n_indices:
            block, first = divmod(at, BLOCK)
            # One generator per block, so that the middle of an epoch is as near as its beginning
            key = np.random.SeedSequence(self.seed, spawn_key=(epoch, block))
            draws = self._table.sample(BLOCK, np.random.default_rng(key))
            indices = draws[first::world_size][: n_indices - n_drawn].tolist()
            n_drawn += len(indices)
            at += len(indices) * world_size
            self._n_drawn, self._pending = n_drawn, iter(indices)
            yield self._pending

    @cached_property
    def _identity(self) -> dict[str, int | str]:
        """The settings that must be the same for a state to fit."""
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


class ShardSampler(Sampler[list[int]]):
    """P(a draw is example i of rank r) = v_i / V, over the examples of all ranks.

    A `batch_sampler` for the examples of this rank; the size of its batches is drawn, and may be 0.
    A single process draws as `CounterSampler` does.

    Parameters
    ----------
    log : ClickLog
        The clicks of this rank: no other has them.
    unit : {"query", "pair", "click"}
    batch_size : int
        Draws per step, of all ranks together.
    n_draws : int, optional
        Draws per epoch, of all ranks together; by default the number of their examples.
    seed : int
        The same on every rank.

    Attributes
    ----------
    plan : Plan
        Its multipliers are M̄ = V/N, the same on every rank.
    totals : float64 (world_size,)
        V_r of each rank.
    """

    def __init__(
        self,
        log: ClickLog,
        *,
        unit: str = "query",
        batch_size: int = 32,
        n_draws: int | None = None,
        seed: int = 0,
    ) -> None:
        self.rank, self.world_size = process_rank()
        self.batch_size = whole_number("batch_size", batch_size, least=1)
        self.seed = whole_number("seed", seed, least=0)
        self.examples = Examples.of(log, unit)
        weights = self.examples.weights
        ranks = gather_ranks(np.array([weights.sum(), self.examples.n_clicks, len(weights)]))
        self.totals: Floats = ranks[:, 0]
        mean = self.totals.sum() / ranks[:, 1].sum()
        self.n_draws = whole_number(
            "n_draws", int(ranks[:, 2].sum()) if n_draws is None else n_draws, least=1
        )
        self.plan = Plan(
            "countersample", weights, np.full(len(weights), mean), self.examples.weight_shares
        )
        self._table = BlockTable(weights)
        self._epoch = 0

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        return (self.n_draws - 1) // self.batch_size + 1

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration."""
        self._epoch = whole_number("epoch", epoch, least=0)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's part of each batch of an epoch; each iteration is the next epoch."""
        key = (self.seed, self._epoch)
        self._epoch += 1
        shared = np.random.default_rng([*key, 0])  # the same on every rank
        rng = np.random.default_rng([*key, 1 + self.rank])
        share = self.totals / self.totals.sum()
        for _ in range(len(self)):
            size = int(shared.multinomial(self.batch_size, share)[self.rank])
            yield self._table.sample(size, rng).tolist()

    def reweigh(self, batch: ClickBatch) -> ClickBatch:
        """Return a batch of this rank with weights whose mean over ranks is the mean of the step.

        A batch has the mean over its n_r lists, and the step the mean over all B: n_r · ranks / B.
        """
        return replace(
            batch, weight=batch.weight * (len(batch) * self.world_size / self.batch_size)
        )
