"""Clicks and impressions drawn from click models on labelled data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample._params import whole_number
from countersample.clicks.log import ClickLog
from countersample.clicks.models import PAPER_BIAS, make_click_model
from countersample.data.scoring import scores_of
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats, Ints
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.models import ClickModel, Steps
    from countersample.data import RankingDataset
    from countersample.data.scoring import Ranker

_RAREST = 1e-9  # clicks a session; with fewer a simulation would not end in a person's time


def simulate_clicks(
    dataset: RankingDataset,
    policy: Ranker | ArrayLike,
    n_clicks: int = 1_000_000,
    *,
    bias: PositionBiasCurve = PAPER_BIAS,
    relevant: float = 3,
    noise: float = 0.1,
    click_model: str | Callable[..., ClickModel] = "position-based",
    rng: np.random.Generator | int | None = None,
) -> ClickLog:
    """P(click) = bias(rank) · (1 if label >= relevant, else noise), until there are n_clicks.

    The formula is that of the position-based model, the default and the paper's;
    `countersample.clicks.models` has others. A query is drawn uniformly, its items are ranked by
    the logging policy (largest score first, ties in the order of the file), and a user goes through
    them; every click is logged with the propensity of its item. This is repeated until there are
    exactly n_clicks; the last session is cut there.

    Parameters
    ----------
    dataset : RankingDataset
    policy : Ranker or array-like (n_items,)
        What ranked the items: anything with ``predict``, or its scores.
    n_clicks : int
    bias : PositionBiasCurve
        How likely each rank is examined; `PositionBias` or `TableBias`.
    relevant : float
        The smallest label that is relevant.
    noise : float in [0, 1]
        How likely a user who examines an item that is not relevant clicks it.
    click_model : str, or class or function that makes a ClickModel of bias, relevant and noise
        One of ``"position-based"``, ``"perfect"``, ``"near-random"``, ``"cascade"``,
        ``"dependent-click"``, ``"dbn"``, ``"trust-bias"``; or, say,
        ``functools.partial(DynamicBayesian, continuation=0.5)``.
    rng : numpy Generator or seed
        Same seed, same bytes.

    Returns
    -------
    ClickLog
        A row a click in the order in which they happened, with the dataset's fingerprint.

    Raises
    ------
    DataError
        For scores that do not fit the dataset, or where no click can ever happen.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.clicks import simulate_clicks
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[4, 0], qid=["a", "a"])
    >>> log = simulate_clicks(data, data.features[:, 0], n_clicks=1000, noise=0, rng=0)
    >>> log
    ClickLog(n_clicks=1_000, max_weight=2, mean_weight=2)
    """
    n_clicks = whole_number("n_clicks", n_clicks, least=1)
    model = make_click_model(click_model, bias=bias, relevant=relevant, noise=noise)
    order, offsets, steps = _show(dataset, policy, model)
    propensity = steps.propensity(offsets)
    n_expected = float(propensity @ steps.attract) / max(1, dataset.n_queries)
    if n_expected < _RAREST:
        raise DataError(
            f"{model} clicks {n_expected:.2g} times a session on average, expected at least "
            f"{_RAREST:g}: lower relevant (labels go up to {dataset.labels.max(initial=0):g}), "
            "raise noise, or take a bias that is not 0 everywhere"
        )
    from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)

    rng = np.random.default_rng(rng)
    queries, rows = kernels.clicks_until(rng, offsets, *steps.walk, n_clicks)
    return ClickLog(
        query=queries,
        item=order[rows] - dataset.offsets[queries],
        propensity=propensity[rows],
        fingerprint=dataset.fingerprint,
    )


def simulate_impressions(
    dataset: RankingDataset,
    policy: Ranker | ArrayLike,
    n_sessions: int = 100_000,
    *,
    bias: PositionBiasCurve = PAPER_BIAS,
    relevant: float = 3,
    noise: float = 0.1,
    click_model: str | Callable[..., ClickModel] = "position-based",
    top: int | None = 10,
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

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.clicks import simulate_impressions
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[4, 0], qid=["a", "a"])
    >>> scores = data.features[:, 0]
    >>> simulate_impressions(data, scores, 1, click_model="perfect", rng=0).to_pylist()[1]
    {'session': 0, 'query_id': 'a', 'item_id': 0, 'position': 2, 'click': 1}
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)

    n_sessions = whole_number("n_sessions", n_sessions, least=1)
    if top is not None:
        top = whole_number("top", top, least=1, or_else="None")
    if not dataset.n_queries:
        raise DataError("the dataset has no queries, expected at least one")
    model = make_click_model(click_model, bias=bias, relevant=relevant, noise=noise)
    order, offsets, steps = _show(dataset, policy, model, top=top)
    rng = np.random.default_rng(rng)
    queries = rng.integers(dataset.n_queries, size=n_sessions)
    sizes = np.diff(offsets)[queries]
    session = np.repeat(np.arange(len(queries)), sizes)
    query = queries[session]
    position = np.arange(1, len(session) + 1) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    row = order[offsets[query] + position - 1]
    return pa.table(
        {
            "session": session,
            "query_id": pa.array(dataset.query_ids).take(pa.array(query)),
            "item_id": (row - dataset.offsets[query]).astype(np.int32),
            "position": position.astype(np.int32),
            "click": kernels.clicks_shown(rng, offsets, *steps.walk, queries),
        }
    )


def _show(
    dataset: RankingDataset,
    policy: Ranker | ArrayLike,
    model: ClickModel,
    *,
    top: int | None = None,
) -> tuple[Ints, Ints, Steps]:
    """Return the rows of what is shown in rank order, where each query starts there, the walk."""
    from countersample._kernels.metrics import rank  # noqa: PLC0415 (numba takes 0.5 s)

    scores = _scores(dataset, policy)
    depth = int(dataset.query_sizes.max(initial=1))
    order = rank(scores, scores, dataset.offsets, depth, 0)
    ranks = np.arange(1, dataset.n_items + 1) - np.repeat(dataset.offsets[:-1], dataset.query_sizes)
    offsets = dataset.offsets
    if top is not None:
        order, ranks = order[ranks <= top], ranks[ranks <= top]
        offsets = np.append(0, np.cumsum(np.minimum(dataset.query_sizes, top)))
    return order, offsets, model.steps(dataset.labels[order], ranks)


def _scores(dataset: RankingDataset, policy: Ranker | ArrayLike) -> Floats:
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
