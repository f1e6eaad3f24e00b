"""Sessions of any logging policy and of users in several contexts: drawn, and in expectation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.clicks._mixture import pick
from countersample.clicks.models import Steps
from countersample.data.scoring import scores_of
from countersample.errors import DataError

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks.models import ClickModel
    from countersample.clicks.policies import LoggingPolicy
    from countersample.data import RankingDataset

_BLOCK = 1 << 18  # items that sessions drawn at once show, about


class Drawn(NamedTuple):
    """What sessions showed and what of it was clicked: arrays (n_shown,), session by session."""

    session: Ints  # from 0
    query: Ints
    row: Ints  # of the dataset
    position: Ints  # from 1
    policy: Ints | None  # index among the policy's names
    context: Ints  # index among the contexts
    examination: Floats  # P(examined) where it was shown, to users of its context
    click: NDArray[np.int8]


@dataclass(frozen=True)
class World:
    """Queries, the policy that shows their items, and the users of each context with its share."""

    dataset: RankingDataset
    policy: LoggingPolicy
    users: tuple[ClickModel, ...]
    shares: Floats
    top: int | None = None

    def draw(self, rng: np.random.Generator, n_sessions: int) -> Drawn:
        """Draw sessions: a query uniformly, a context, what is shown, and a user's clicks."""
        from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)
        from countersample._kernels.uniforms import source_of  # noqa: PLC0415 (as the line above)

        queries = rng.integers(self.dataset.n_queries, size=n_sessions)
        contexts = pick(rng, self.shares, n_sessions)
        shown = self.policy.draw(rng, [ranking[queries] for ranking in self._rankings], self._top)
        session, row, position, offsets = _flat(shown.rows)
        steps = self._steps(row, position, contexts[session])
        click = np.zeros(len(session), np.int8)
        sessions = np.arange(n_sessions)
        kernels.clicks_shown(source_of(rng), offsets, *steps.walk, sessions, click)
        policy = None if shown.policy is None else shown.policy[shown.rows >= 0]
        return Drawn(
            session,
            queries[session],
            row,
            position,
            policy,
            contexts[session],
            steps.propensity(offsets),
            click,
        )

    @property
    def block(self) -> int:
        """How many sessions are drawn at once."""
        return int(max(1, _BLOCK // self._rankings[0].shape[1]))

    def expected(self) -> tuple[Floats, Floats]:
        """P(examined) and P(clicked) of each item in a session of its query, (n_items,) each.

        Σ_orders P(order) · Σ_contexts share · P(examined | order, context): exact, over all orders
        that may be shown. An item that none of them shows has 0.
        """
        examined, clicked = np.zeros(self.dataset.n_items), np.zeros(self.dataset.n_items)
        every = self.policy.orders(self._rankings, self._top, joint=not self._by_position)
        for chances, rows in every:
            each, row, position, offsets = _flat(rows)
            for context, share in enumerate(self.shares):
                steps = self._steps(row, position, np.full(len(row), context))
                now = share * chances[each] * steps.propensity(offsets)
                examined[row] += now  # an item is in a list once
                clicked[row] += now * steps.attract
        return np.minimum(examined, 1.0), clicked

    @cached_property
    def _rankings(self) -> list[Ints]:
        """The items of each query by each ranker, best first, −1 beyond the end."""
        return [
            _as_matrix(ranked_rows(self.dataset, ranker), self.dataset)
            for ranker in self.policy.rankers
        ]

    @property
    def _top(self) -> int:
        return self._rankings[0].shape[1] if self.top is None else self.top

    @property
    def _by_position(self) -> bool:
        """Whether users examine an item by its position, whatever is shown above it."""
        labels = np.unique(self.dataset.labels)
        ranks = np.arange(1, self._top + 1)
        label, rank = np.repeat(labels, len(ranks)), np.tile(ranks, len(labels))
        every = [user.steps(label, rank) for user in self.users]
        return all((s.after_click == 1).all() and (s.after_skip == 1).all() for s in every)

    def _steps(self, row: Ints, position: Ints, context: Ints) -> Steps:
        """Return the four probabilities of each item shown, by the users of its context."""
        steps = Steps(*np.empty((4, len(row))))
        for index, user in enumerate(self.users):
            here = context == index
            own = user.steps(self.dataset.labels[row[here]], position[here])
            for whole, part in zip(steps, own, strict=True):
                whole[here] = part
        return steps


def ranked_rows(dataset: RankingDataset, ranker: Any) -> Ints:  # noqa: ANN401 (or its scores)
    """Return the rows of each query by rank: largest score first, ties in the order of the file."""
    from countersample._kernels.metrics import rank  # noqa: PLC0415 (numba takes 0.5 s)

    scores = _scores(dataset, ranker)
    order, depth = np.empty(len(scores), np.int64), int(dataset.query_sizes.max(initial=1))
    rank(scores, scores, dataset.offsets, depth, 0, order)
    return order


def _as_matrix(rows: Ints, dataset: RankingDataset) -> Ints:
    """Return (n_queries, size of the largest query), −1 beyond the end of a query."""
    columns = np.arange(int(dataset.query_sizes.max(initial=1)))
    matrix = np.full((dataset.n_queries, len(columns)), -1, np.int64)
    matrix[columns < dataset.query_sizes[:, None]] = rows
    return matrix


def _flat(rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the list, row and position of each item shown, and where each list starts."""
    lists, columns = np.nonzero(rows >= 0)
    sizes = (rows >= 0).sum(axis=1)
    return lists, rows[lists, columns], columns + 1, np.append(0, np.cumsum(sizes))


def _scores(dataset: RankingDataset, policy: Any) -> Floats:  # noqa: ANN401 (a ranker or scores)
    scores = np.asarray(scores_of(policy, dataset))
    if scores.dtype.kind not in "fiub":
        raise DataError(
            f"the policy's scores are of type {scores.dtype}, expected numbers, or a ranker with "
            "a predict method"
        )
    if scores.shape != (dataset.n_items,):
        raise DataError(
            f"the policy's scores have shape {scores.shape}, expected ({dataset.n_items},): one "
            "for each item"
        )
    if np.isnan(scores).any():
        row = int(np.isnan(scores).argmax())
        query = int(np.searchsorted(dataset.offsets, row, side="right")) - 1
        raise DataError(
            f"the policy's scores have NaN at row {row} (query {query}, both counted from 0), "
            "expected numbers to rank by"
        )
    return np.ascontiguousarray(scores, np.float64)
