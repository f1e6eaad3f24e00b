"""Clicks and impressions drawn from click models on labelled data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample._params import whole_number
from countersample.clicks._mixture import as_policy, as_shares
from countersample.clicks._sessions import World, ranked_rows
from countersample.clicks.log import ClickLog
from countersample.clicks.models import PAPER_BIAS, make_click_model
from countersample.clicks.policies import Ranked
from countersample.clicks.relevance import smallest_relevant, warn_if_few
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.models import ClickModel, Steps
    from countersample.clicks.policies import LoggingPolicy
    from countersample.data import RankingDataset
    from countersample.data.scoring import Ranker

    Policy = Ranker | ArrayLike | LoggingPolicy
    Shares = Mapping[str, float] | Sequence[float]
    Contexts = Mapping[str, tuple[float, PositionBiasCurve]]

_RAREST = 1e-9  # clicks a session; with fewer a simulation would not end in a person's time


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

    The formula is that of the position-based model, the default and the paper's;
    `countersample.clicks.models` has others. A query is drawn uniformly, its items are ranked by
    the logging policy (largest score first, ties in the order of the file), and a user goes through
    them; every click is logged with the propensity of its item. This is repeated until there are
    exactly n_clicks; the last session is cut there.

    The propensity is the probability that the item is examined in a session of its query, over
    all that policies and contexts may do, exactly::

        ρ(q, d) = Σ_policies share · Σ_orders P(order) · Σ_contexts share · P(examined there)

    Parameters
    ----------
    dataset : RankingDataset
    policy : Ranker or array-like (n_items,), LoggingPolicy, or mapping of names to these
        What ranked the items: anything with ``predict``, or its scores, or what decides a
        session's order by chance (`Shuffled`, `Swapped`, `TeamDraft`); or several, each with a
        share of the sessions.
    n_clicks : int
    bias : PositionBiasCurve
        How likely each rank is examined; `PositionBias` or `TableBias`.
    relevant : float, optional
        The smallest label that is relevant; by default 3, or 1 where no label reaches 3. Where it
        leaves less than 3 % of the items relevant, or none, that is a `FewRelevantWarning`.
    noise : float in [0, 1]
        How likely a user who examines an item that is not relevant clicks it.
    click_model : str, or class or function that makes a ClickModel of bias, relevant and noise
        One of ``"position-based"``, ``"perfect"``, ``"near-random"``, ``"cascade"``,
        ``"dependent-click"``, ``"dbn"``, ``"trust-bias"``; or, say,
        ``functools.partial(DynamicBayesian, continuation=0.5)``.
    top : int or None
        How many items of a ranking are shown; all with None. What is not shown is never clicked.
    shares : mapping of the policies' names to numbers, or the numbers
        Shares of the sessions, equal by default; 90 and 10 are 0.9 and 0.1.
    contexts : mapping of names to (share, PositionBiasCurve), optional
        Users of each context examine by a curve of its own; instead of ``bias``.
    rng : numpy Generator or seed
        Same seed, same bytes.

    Returns
    -------
    ClickLog
        A row a click in the order in which they happened, with the position it was shown at and
        the dataset's fingerprint. Where sessions of a query differ, ``examination`` is how likely
        the item was examined where it was shown: the propensity of weights by position alone.

    Raises
    ------
    DataError
        For scores that do not fit the dataset, or where no click can ever happen, or where
        there are too many orders for exact propensities.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.clicks import simulate_clicks
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[4, 0], qid=["a", "a"])
    >>> log = simulate_clicks(data, data.features[:, 0], n_clicks=1000, noise=0, rng=0)
    >>> log
    ClickLog(n_clicks=1_000, max_weight=2, mean_weight=2)

    Only the first item is shown; the relevant one is there in one session of four:

    >>> policies = {"old": data.features[:, 0], "new": -data.features[:, 0]}
    >>> simulate_clicks(data, policies, 1000, noise=0, top=1, shares=[3, 1], rng=0)
    ClickLog(n_clicks=1_000, max_weight=4, mean_weight=4)
    """
    n_clicks = whole_number("n_clicks", n_clicks, least=1)
    world = _world(dataset, policy, bias, relevant, noise, click_model, top, shares, contexts)
    rng = np.random.default_rng(rng)
    found = (
        _plain_clicks(world, n_clicks, rng) if _is_plain(world) else _clicks(world, n_clicks, rng)
    )
    warn_if_few(dataset, world.users[0].relevant, stacklevel=2)
    return ClickLog(
        query=found.query,
        item=found.row - dataset.offsets[found.query],
        propensity=found.propensity,
        position=found.position,
        examination=found.examination,
        fingerprint=dataset.fingerprint,
    )


def simulate_impressions(
    dataset: RankingDataset,
    policy: Policy | Mapping[str, Policy],
    n_sessions: int = 100_000,
    *,
    bias: PositionBiasCurve = PAPER_BIAS,
    relevant: float | None = None,
    noise: float = 0.1,
    click_model: str | Callable[..., ClickModel] = "position-based",
    top: int | None = 10,
    shares: Shares | None = None,
    contexts: Contexts | None = None,
    rng: np.random.Generator | int | None = None,
) -> pa.Table:
    """Simulate what a search engine logs: every item shown, its position, and if it was clicked.

    Sessions are those of `simulate_clicks`, with its arguments; sessions without a click are here
    too.

    Parameters
    ----------
    n_sessions : int
    top : int or None
        How many items of a ranking are shown; all with None.

    Returns
    -------
    pyarrow.Table
        A row an item shown, with columns

        - ``session``: int64, from 0
        - ``query_id``: the dataset's id of the query
        - ``item_id``: int32, the position of the item in its query, from 0
        - ``position``: int32, the rank at which it was shown, from 1
        - ``click``: int8, 1 or 0
        - ``policy``, where there are several: the name of what showed the item; of interleaved
          rankers, the one that picked it
        - ``context``, where there are several: its name

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
    world = _world(dataset, policy, bias, relevant, noise, click_model, top, shares, contexts)
    rng = np.random.default_rng(rng)
    warn_if_few(dataset, world.users[0].relevant, stacklevel=2)
    if _is_plain(world):
        return _plain_impressions(world, n_sessions, rng)
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    blocks = []
    for first in range(0, n_sessions, world.block):
        drawn = world.draw(rng, min(world.block, n_sessions - first))
        columns = _columns(
            dataset, first + drawn.session, drawn.query, drawn.row, drawn.position, drawn.click
        )
        if drawn.policy is not None and len(world.policy.names) > 1:
            columns["policy"] = pa.array(world.policy.names).take(pa.array(drawn.policy))
        if contexts is not None and len(contexts) > 1:
            columns["context"] = pa.array(map(str, contexts)).take(pa.array(drawn.context))
        blocks.append(pa.table(columns))
    return pa.concat_tables(blocks)


def _world(
    dataset: RankingDataset,
    policy: Policy | Mapping[str, Policy],
    bias: PositionBiasCurve,
    relevant: float | None,
    noise: float,
    click_model: str | Callable[..., ClickModel],
    top: int | None,
    shares: Shares | None,
    contexts: Contexts | None,
) -> World:
    if top is not None:
        top = whole_number("top", top, least=1, or_else="None")
    known = {"": (1.0, bias)} if contexts is None else contexts
    if not isinstance(known, Mapping) or not known or not all(map(_is_context, known.values())):
        raise ParameterError(
            f"contexts is {contexts!r}, expected a mapping of names to (share, position-bias curve)"
        )
    grade = smallest_relevant(dataset, relevant)
    users = tuple(
        make_click_model(click_model, bias=curve, relevant=grade, noise=noise)
        for _, curve in known.values()
    )
    return World(
        dataset,
        as_policy(policy, shares),
        users,
        as_shares("the share of a context", known, [share for share, _ in known.values()]),
        top,
    )


def _is_context(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and hasattr(value[1], "propensity")


class _Clicks(NamedTuple):
    query: NDArray[Any]
    row: Ints
    propensity: Floats
    position: Ints  # where it was shown, from 1
    examination: Floats | None  # None: the propensity


def _clicks(world: World, n_clicks: int, rng: np.random.Generator) -> _Clicks:
    """Return the clicks of sessions drawn in blocks."""
    examined, clicked = world.expected()
    _check_clicks(world, float(clicked.sum()))
    blocks, n_found = [], 0
    while n_found < n_clicks:
        drawn = world.draw(rng, world.block)
        is_clicked = drawn.click == 1
        parts = (drawn.query, drawn.row, drawn.position, drawn.examination)
        blocks.append([part[is_clicked] for part in parts])
        n_found += len(blocks[-1][0])
    query, row, position, examination = (
        np.concatenate(part)[:n_clicks] for part in zip(*blocks, strict=True)
    )
    return _Clicks(query, row, examined[row], position, examination)


def _plain_clicks(world: World, n_clicks: int, rng: np.random.Generator) -> _Clicks:
    """Return the clicks where every session shows the same."""
    order, offsets, steps = _show(world)
    propensity = steps.propensity(offsets)
    _check_clicks(world, float(propensity @ steps.attract))
    from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)
    from countersample._kernels.uniforms import source_of  # noqa: PLC0415 (as the line above)

    queries, rows = np.empty(n_clicks, np.int32), np.empty(n_clicks, np.int64)
    kernels.clicks_until(source_of(rng), offsets, *steps.walk, queries, rows)
    position = rows - offsets[queries] + 1
    return _Clicks(queries, order[rows], propensity[rows], position, None)


def _check_clicks(world: World, n_expected: float) -> None:
    """Refuse a world in which no clicks happen; ``n_expected``: in a session of each query."""
    dataset = world.dataset
    n_expected /= max(1, dataset.n_queries)
    if n_expected < _RAREST:
        raise DataError(
            f"{world.users[0]} clicks {n_expected:.2g} times a session on average, expected at "
            f"least {_RAREST:g}: lower relevant (labels go up to "
            f"{dataset.labels.max(initial=0):g}), raise noise, or take a bias that is not 0 "
            "everywhere"
        )


def _plain_impressions(world: World, n_sessions: int, rng: np.random.Generator) -> pa.Table:
    """Return the impressions of sessions that all show the same of a query."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)
    from countersample._kernels.uniforms import source_of  # noqa: PLC0415 (as the line above)

    order, offsets, steps = _show(world)
    queries = rng.integers(world.dataset.n_queries, size=n_sessions)
    sizes = np.diff(offsets)[queries]
    session = np.repeat(np.arange(len(queries)), sizes)
    query = queries[session]
    position = np.arange(1, len(session) + 1) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    row = order[offsets[query] + position - 1]
    click = np.zeros(len(session), np.int8)
    kernels.clicks_shown(source_of(rng), offsets, *steps.walk, queries, click)
    return pa.table(_columns(world.dataset, session, query, row, position, click))


def _columns(
    dataset: RankingDataset,
    session: Ints,
    query: Ints,
    row: Ints,
    position: Ints,
    click: NDArray[Any],
) -> dict[str, Any]:
    """Return the columns that all impressions have."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    return {
        "session": session,
        "query_id": pa.array(dataset.query_ids).take(pa.array(query)),
        "item_id": (row - dataset.offsets[query]).astype(np.int32),
        "position": position.astype(np.int32),
        "click": click,
    }


def _show(world: World) -> tuple[Ints, Ints, Steps]:
    """Return the rows of what is shown in rank order, where each query starts there, the walk.

    Of a world in which every session of a query shows the same.
    """
    dataset, top = world.dataset, world.top
    order = ranked_rows(dataset, world.policy.rankers[0])
    ranks = np.arange(1, dataset.n_items + 1) - np.repeat(dataset.offsets[:-1], dataset.query_sizes)
    offsets = dataset.offsets
    if top is not None:
        order, ranks = order[ranks <= top], ranks[ranks <= top]
        offsets = np.append(0, np.cumsum(np.minimum(dataset.query_sizes, top)))
    return order, offsets, world.users[0].steps(dataset.labels[order], ranks)


def _is_plain(world: World) -> bool:
    """Whether every session of a query shows the same to the same users: a faster way."""
    return isinstance(world.policy, Ranked) and len(world.users) == 1
