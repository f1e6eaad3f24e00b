"""Simulation: clicks and impressions of click models on labelled data.

`World` has a dataset, a logging policy and users; it draws sessions, and computes the exact
probability that each item is examined. If every session of a query shows the same list to the same
users, a faster path is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample._params import whole_number
from countersample.clicks.log import ClickLog
from countersample.clicks.models import PAPER_BIAS, Steps, make_click_model
from countersample.clicks.policies import Ranked, as_policy, as_shares, pick
from countersample.clicks.relevance import smallest_relevant, warn_if_few
from countersample.data.dataset import scores_of
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.models import ClickModel
    from countersample.clicks.policies import LoggingPolicy
    from countersample.data import RankingDataset
    from countersample.data.dataset import Ranker

    Policy = Ranker | ArrayLike | LoggingPolicy
    Shares = Mapping[str, float] | Sequence[float]
    Contexts = Mapping[str, tuple[float, PositionBiasCurve]]

_MIN_CLICK_RATE = 1e-9  # clicks per session; with fewer a simulation would hardly end
_BLOCK_ITEMS = 1 << 18  # shown by the sessions that are drawn at once, about


def simulate_clicks(
    dataset: RankingDataset,
    policy: Policy | Mapping[str, Policy],
    n_clicks: int = 1_000_000,
    *,
    bias: PositionBiasCurve = PAPER_BIAS,
    relevant: float | None = None,
    noise: float = 0.1,
    click_model: str | Callable[..., ClickModel] = "position-based",
    top: int | None = None,
    shares: Shares | None = None,
    contexts: Contexts | None = None,
    rng: np.random.Generator | int | None = None,
) -> ClickLog:
    """P(click) = bias(rank) · (1 if label >= relevant, else noise), until there are n_clicks.

    This is the position-based model, the default and the paper's; `countersample.clicks.models`
    has others. A query is drawn uniformly, the logging policy ranks its items (largest score first,
    ties in file order), and a user goes through them; every click is logged with the propensity of
    its item. This is repeated until there are exactly n_clicks; the last session is cut there.

    The propensity is the exact probability that the item is examined in a session of its query,
    over all policies and contexts::

        ρ(q, d) = Σ_policies share · Σ_orders P(order) · Σ_contexts share · P(examined there)

    Parameters
    ----------
    dataset : RankingDataset
    policy : Ranker or array-like (n_items,), LoggingPolicy, or mapping of names to these
        A ranker (anything with ``predict``) or its scores, or a random logging policy
        (`Shuffled`, `Swapped`, `TeamDraft`); or several, each with a share of the sessions.
    n_clicks : int
    bias : PositionBiasCurve
        The probability that each rank is examined; `PositionBias` or `TableBias`.
    relevant : float, optional
        The smallest label that is relevant; by default 3, or 1 if no label reaches 3. If less than
        3 % of the items are relevant, a `FewRelevantWarning` is issued.
    noise : float in [0, 1]
        The probability that an item that is examined but not relevant is clicked.
    click_model : str, or class or function that makes a ClickModel of bias, relevant and noise
        One of ``"position-based"``, ``"perfect"``, ``"near-random"``, ``"cascade"``,
        ``"dependent-click"``, ``"dbn"``, ``"trust-bias"``; or, say,
        ``functools.partial(DynamicBayesian, continuation=0.5)``.
    top : int or None
        The number of items shown per session; by default all. Others are never clicked.
    shares : mapping of the policies' names to numbers, or the numbers
        Shares of the sessions, by default equal; 90 and 10 are 0.9 and 0.1.
    contexts : mapping of names to (share, PositionBiasCurve), optional
        One position-bias curve per context, instead of ``bias``.
    rng : numpy Generator or seed

    The log has one row per click in the order of time, with its position and the dataset's
    fingerprint. If sessions of a query differ, ``examination`` is the probability of examination at
    that position: the propensity of weights by position alone.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.clicks import simulate_clicks
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[4, 0], qid=["a", "a"])
    >>> simulate_clicks(data, data.features[:, 0], n_clicks=1000, noise=0, rng=0)
    ClickLog(n_clicks=1_000, max_weight=2, mean_weight=2)

    Only the first item is shown; it is the relevant one in one session of four:

    >>> policies = {"old": data.features[:, 0], "new": -data.features[:, 0]}
    >>> simulate_clicks(data, policies, 1000, noise=0, top=1, shares=[3, 1], rng=0)
    ClickLog(n_clicks=1_000, max_weight=4, mean_weight=4)
    """
    n_clicks = whole_number("n_clicks", n_clicks, least=1)
    world = _make_world(
        dataset, policy, top, bias=bias, relevant=relevant, noise=noise, click_model=click_model,
        shares=shares, contexts=contexts,
    )  # fmt: skip
    draw = _draw_plain_clicks if world.is_plain else _draw_clicks
    row, columns = draw(world, n_clicks, np.random.default_rng(rng))
    warn_if_few(dataset, world.users[0].relevant, stacklevel=2)
    item = row - dataset.offsets[columns["query"]]
    return ClickLog(item=item, fingerprint=dataset.fingerprint, **columns)


def simulate_impressions(
    dataset: RankingDataset,
    policy: Policy | Mapping[str, Policy],
    n_sessions: int = 100_000,
    *,
    top: int | None = 10,
    rng: np.random.Generator | int | None = None,
    **settings: Any,  # noqa: ANN401 (the other parameters of simulate_clicks)
) -> pa.Table:
    """Simulate the log of a search engine: every item shown, its position, and whether clicked.

    Sessions and parameters are as in `simulate_clicks` (``bias``, ``relevant``, ``noise``,
    ``click_model``, ``shares``, ``contexts``), with `top` items per session, or all if it is None.
    Sessions without a click are included.

    The table has one row per shown item, with columns

    - ``session``: int64, from 0
    - ``query_id``: the dataset's id of the query
    - ``item_id``: int32, the position of the item in its query, from 0
    - ``position``: int32, the rank at which it was shown, from 1
    - ``click``: int8, 1 or 0
    - ``policy``, if there are several: its name; for interleaved rankers, the one that picked the
      item
    - ``context``, if there are several: its name

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.clicks import simulate_impressions
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[4, 0], qid=["a", "a"])
    >>> scores = data.features[:, 0]
    >>> simulate_impressions(data, scores, 1, click_model="perfect", rng=0).to_pylist()[1]
    {'session': 0, 'query_id': 'a', 'item_id': 0, 'position': 2, 'click': 1}
    >>> policies = {"old": scores, "new": -scores}
    >>> table = simulate_impressions(data, policies, 1000, shares=[0.9, 0.1], rng=0)
    >>> table["policy"].value_counts().to_pylist()
    [{'values': 'old', 'counts': 1794}, {'values': 'new', 'counts': 206}]
    """
    n_sessions = whole_number("n_sessions", n_sessions, least=1)
    if not dataset.n_queries:
        raise DataError("the dataset has no queries, expected at least one")
    world = _make_world(dataset, policy, top, **settings)
    rng = np.random.default_rng(rng)
    warn_if_few(dataset, world.users[0].relevant, stacklevel=2)
    if world.is_plain:
        return _draw_plain_impressions(world, n_sessions, rng)
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    blocks = []
    contexts = settings.get("contexts") or ()
    for first in range(0, n_sessions, world.block):
        sessions = world.draw(rng, min(world.block, n_sessions - first))
        session, query, row, position, *_, click = sessions
        columns = _columns(dataset, first + session, query, row, position, click)
        if sessions.policy is not None and len(world.policy.names) > 1:
            columns["policy"] = pa.array(world.policy.names).take(pa.array(sessions.policy))
        if len(contexts) > 1:
            columns["context"] = pa.array(map(str, contexts)).take(pa.array(sessions.context))
        blocks.append(pa.table(columns))
    return pa.concat_tables(blocks)


def _make_world(
    dataset: RankingDataset,
    policy: Policy | Mapping[str, Policy],
    top: int | None,
    *,
    bias: PositionBiasCurve = PAPER_BIAS,
    relevant: float | None = None,
    noise: float = 0.1,
    click_model: str | Callable[..., ClickModel] = "position-based",
    shares: Shares | None = None,
    contexts: Contexts | None = None,
) -> World:
    if top is not None:
        top = whole_number("top", top, least=1, or_else="None")
    curves = {"": (1.0, bias)} if contexts is None else contexts
    if not isinstance(curves, Mapping) or not curves or not all(map(_is_context, curves.values())):
        raise ParameterError(
            f"contexts is {contexts!r}, expected a mapping of names to (share, position-bias curve)"
        )
    grade = smallest_relevant(dataset, relevant)
    users = tuple(
        make_click_model(click_model, bias=curve, relevant=grade, noise=noise)
        for _, curve in curves.values()
    )
    sizes = [share for share, _ in curves.values()]
    user_shares = as_shares("the share of a context", curves, sizes)
    return World(dataset, as_policy(policy, shares), users, user_shares, top)


def _is_context(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and hasattr(value[1], "propensity")


# -- sessions


class SessionRows(NamedTuple):
    """The items that sessions showed, and which were clicked: arrays (n_shown,), by session."""

    session: Ints  # from 0
    query: Ints
    row: Ints  # of the dataset
    position: Ints  # from 1
    policy: Ints | None  # index among the policy's names
    context: Ints  # index among the contexts
    examination: Floats  # P(examined) at its position, for users of its context
    click: NDArray[np.int8]


@dataclass(frozen=True)
class World:
    """A dataset, the logging policy, and the users of each context with their shares."""

    dataset: RankingDataset
    policy: LoggingPolicy
    users: tuple[ClickModel, ...]
    shares: Floats
    top: int | None = None

    def draw(self, rng: np.random.Generator, n_sessions: int) -> SessionRows:
        """Draw sessions: a query uniformly, a context, a list, and a user's clicks."""
        from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)

        queries = rng.integers(self.dataset.n_queries, size=n_sessions)
        contexts = pick(rng, self.shares, n_sessions)
        shown = self.policy.draw(rng, [ranking[queries] for ranking in self._rankings], self._top)
        session, row, position, offsets = _flatten(shown.rows)
        steps = self._steps(row, position, contexts[session])
        click = np.zeros(len(session), np.int8)
        sessions = np.arange(n_sessions)
        kernels.clicks_shown(kernels.source_of(rng), offsets, *steps.walk, sessions, click)
        policy = None if shown.policy is None else shown.policy[shown.rows >= 0]
        examination = steps.propensity(offsets)
        return SessionRows(
            session, queries[session], row, position, policy, contexts[session], examination, click
        )

    @property
    def is_plain(self) -> bool:
        """Whether every session of a query shows the same list to the same users."""
        return isinstance(self.policy, Ranked) and len(self.users) == 1

    @property
    def block(self) -> int:
        """The number of sessions to draw at once."""
        return int(max(1, _BLOCK_ITEMS // self._rankings[0].shape[1]))

    def expected(self) -> tuple[Floats, Floats]:
        """Return P(examined) and P(clicked) of each item in a session, (n_items,) each.

        Σ_orders P(order) · Σ_contexts share · P(examined | order, context): exact, over all orders.
        An item that is in none of them has 0.
        """
        examined, clicked = np.zeros(self.dataset.n_items), np.zeros(self.dataset.n_items)
        joint = not self._is_by_position
        for chances, rows in self.policy.orders(self._rankings, self._top, joint=joint):
            index, row, position, offsets = _flatten(rows)
            for context, share in enumerate(self.shares):
                steps = self._steps(row, position, np.full(len(row), context))
                chance = share * chances[index] * steps.propensity(offsets)
                examined[row] += chance  # an item is in a list once
                clicked[row] += chance * steps.attract
        return np.minimum(examined, 1.0), clicked

    @cached_property
    def _rankings(self) -> list[Ints]:
        """The items of each query by each ranker, best first, −1 beyond the end."""
        return [
            _as_matrix(rank_rows(self.dataset, ranker), self.dataset)
            for ranker in self.policy.rankers
        ]

    @property
    def _top(self) -> int:
        return self._rankings[0].shape[1] if self.top is None else self.top

    @property
    def _is_by_position(self) -> bool:
        """Whether examination depends on the position alone, not on the items above."""
        labels = np.unique(self.dataset.labels)
        ranks = np.arange(1, self._top + 1)
        label, rank = np.repeat(labels, len(ranks)), np.tile(ranks, len(labels))
        steps = [user.steps(label, rank) for user in self.users]
        return all((s.after_click == 1).all() and (s.after_skip == 1).all() for s in steps)

    def _steps(self, row: Ints, position: Ints, context: Ints) -> Steps:
        """Return the four probabilities of each shown item, for the users of its context."""
        steps = Steps(*np.empty((4, len(row))))
        for index, user in enumerate(self.users):
            is_here = context == index
            parts = user.steps(self.dataset.labels[row[is_here]], position[is_here])
            for whole, part in zip(steps, parts, strict=True):
                whole[is_here] = part
        return steps


def rank_rows(dataset: RankingDataset, ranker: Any) -> Ints:  # noqa: ANN401 (or its scores)
    """Return the rows of each query by rank: largest score first, ties in file order."""
    from countersample._kernels.metrics import rank  # noqa: PLC0415 (numba takes 0.5 s)

    scores = _compute_scores(dataset, ranker)
    order, depth = np.empty(len(scores), np.int64), int(dataset.query_sizes.max(initial=1))
    rank(scores, scores, dataset.offsets, depth, 0, order)
    return order


def _as_matrix(rows: Ints, dataset: RankingDataset) -> Ints:
    """Return (n_queries, size of the largest query), −1 beyond the end of a query."""
    columns = np.arange(int(dataset.query_sizes.max(initial=1)))
    matrix = np.full((dataset.n_queries, len(columns)), -1, np.int64)
    matrix[columns < dataset.query_sizes[:, None]] = rows
    return matrix


def _flatten(rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the list, row and position of each shown item, and where each list starts."""
    lists, columns = np.nonzero(rows >= 0)
    sizes = (rows >= 0).sum(axis=1)
    return lists, rows[lists, columns], columns + 1, np.append(0, np.cumsum(sizes))


def _compute_scores(dataset: RankingDataset, policy: Any) -> Floats:  # noqa: ANN401 (a ranker or scores)
    scores = np.asarray(scores_of(policy, dataset))
    if scores.dtype.kind not in "fiub":
        raise DataError(
            f"the policy's scores are of type {scores.dtype}, expected numbers, or a ranker with "
            "a predict method"
        )
    if scores.shape != (dataset.n_items,):
        raise DataError(
            f"the policy's scores have shape {scores.shape}, expected ({dataset.n_items},): one "
            "per item"
        )
    if np.isnan(scores).any():
        row = int(np.isnan(scores).argmax())
        query = int(np.searchsorted(dataset.offsets, row, side="right")) - 1
        raise DataError(
            f"the policy's scores have NaN at row {row} (query {query}, both counted from 0), "
            "expected numbers to rank by"
        )
    return np.ascontiguousarray(scores, np.float64)


# -- clicks and impressions


def _draw_clicks(
    world: World, n_clicks: int, rng: np.random.Generator
) -> tuple[Ints, dict[str, Any]]:
    """Draw sessions in blocks; return the clicked rows of the dataset, and columns of a log."""
    examined, clicked = world.expected()
    _check_clicks(world, float(clicked.sum()))
    blocks, n_drawn = [], 0
    while n_drawn < n_clicks:
        sessions = world.draw(rng, world.block)
        is_clicked = sessions.click == 1
        parts = (sessions.query, sessions.row, sessions.position, sessions.examination)
        blocks.append([part[is_clicked] for part in parts])
        n_drawn += len(blocks[-1][0])
    query, row, position, examination = (
        np.concatenate(part)[:n_clicks] for part in zip(*blocks, strict=True)
    )
    columns = {"query": query, "propensity": examined[row], "position": position}
    return row, columns | {"examination": examination}


def _draw_plain_clicks(
    world: World, n_clicks: int, rng: np.random.Generator
) -> tuple[Ints, dict[str, Any]]:
    """Draw clicks if every session of a query shows the same list: as `_draw_clicks`, faster."""
    order, offsets, steps = _plain_lists(world)
    propensity = steps.propensity(offsets)
    _check_clicks(world, float(propensity @ steps.attract))
    from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)

    queries, rows = np.empty(n_clicks, np.int32), np.empty(n_clicks, np.int64)
    kernels.clicks_until(kernels.source_of(rng), offsets, *steps.walk, queries, rows)
    position = rows - offsets[queries] + 1
    return order[rows], {"query": queries, "propensity": propensity[rows], "position": position}


def _check_clicks(world: World, n_expected: float) -> None:
    """Reject a world without clicks; ``n_expected`` is their number in one session per query."""
    dataset = world.dataset
    n_expected /= max(1, dataset.n_queries)
    if n_expected < _MIN_CLICK_RATE:
        raise DataError(
            f"{world.users[0]} clicks {n_expected:.2g} times per session on average, expected at "
            f"least {_MIN_CLICK_RATE:g}: lower relevant (labels go up to "
            f"{dataset.labels.max(initial=0):g}), raise noise, or use a bias above 0"
        )


def _draw_plain_impressions(world: World, n_sessions: int, rng: np.random.Generator) -> pa.Table:
    """Draw impressions if every session of a query shows the same list."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)

    order, offsets, steps = _plain_lists(world)
    queries = rng.integers(world.dataset.n_queries, size=n_sessions)
    sizes = np.diff(offsets)[queries]
    session = np.repeat(np.arange(len(queries)), sizes)
    query = queries[session]
    position = np.arange(1, len(session) + 1) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    row = order[offsets[query] + position - 1]
    click = np.zeros(len(session), np.int8)
    kernels.clicks_shown(kernels.source_of(rng), offsets, *steps.walk, queries, click)
    return pa.table(_columns(world.dataset, session, query, row, position, click))


def _columns(
    dataset: RankingDataset, session: Ints, query: Ints, row: Ints, position: Ints,
    click: NDArray[Any],
) -> dict[str, Any]:  # fmt: skip
    """Return the columns of all impressions."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    return {
        "session": session,
        "query_id": pa.array(dataset.query_ids).take(pa.array(query)),
        "item_id": (row - dataset.offsets[query]).astype(np.int32),
        "position": position.astype(np.int32),
        "click": click,
    }


def _plain_lists(world: World) -> tuple[Ints, Ints, Steps]:
    """Return the shown rows in rank order, the start of each query, and the steps of its users.

    For a world in which every session of a query shows the same list.
    """
    dataset, top = world.dataset, world.top
    order = rank_rows(dataset, world.policy.rankers[0])
    ranks = np.arange(1, dataset.n_items + 1) - np.repeat(dataset.offsets[:-1], dataset.query_sizes)
    offsets = dataset.offsets
    if top is not None:
        order, ranks = order[ranks <= top], ranks[ranks <= top]
        offsets = np.append(0, np.cumsum(np.minimum(dataset.query_sizes, top)))
    return order, offsets, world.users[0].steps(dataset.labels[order], ranks)
