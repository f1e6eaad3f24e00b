"""Synthetic labelled data in the shape of a known collection: `synthetic`.

A new shape is one entry of `SHAPES`, and one choice of ``countersample data make`` (`cli.data`).
Clicks are simulated by `clicks.simulation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from countersample._params import choice, whole_number
from countersample.data.dataset import RankingDataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

# Queries are drawn this many at a time, each block by its own generator: the first queries are the
# same however many follow, and a block (1 to 2 MB of features) stays in the processor's cache.
BLOCK_QUERIES = 16

# Factors and loadings are multiples of 2⁻⁸ and the noise is one of 256 levels, so that every sum
# of a product below is a multiple of 2⁻¹⁷ smaller than 2⁷: exact in float32, whatever the order
# of the additions. That is what makes the bytes equal on any BLAS and any number of threads.
GRID = np.float32(2**-8)

_LOADING_NORM = 0.35  # standard deviation of a feature over items of one query, noise left out
_CALIBRATION_ITEMS = 2**17


@dataclass(frozen=True)
class Shape:
    """The sizes and the difficulty of a collection; `synthetic` explains the symbols."""

    n_queries: int
    items: tuple[int, int, int]  # least, median and most items of a query
    items_spread: float  # standard deviation of the logarithm of the number of items
    n_features: int
    n_factors: int
    centre: float  # mean of a feature before it is cut at 0, in its standard deviations
    decades: tuple[int, int] | None  # powers of ten the features span; None: all within [0, 1]
    grades: tuple[float, ...]  # share of the items of grade 0, 1, …
    interaction: float  # κ
    query_effect: float  # τ
    label_noise: float  # σ


SHAPES = {
    "yahoo-like": Shape(
        n_queries=36_251, items=(1, 19, 139), items_spread=0.67, n_features=700, n_factors=48,
        centre=-0.68, decades=None, grades=(0.26, 0.36, 0.28, 0.08, 0.02),
        interaction=0.3, query_effect=3.5, label_noise=1.4,
    ),
    "istella-like": Shape(
        n_queries=33_118, items=(3, 98, 182), items_spread=0.35, n_features=220, n_factors=48,
        centre=3.0, decades=(-2, 4), grades=(0.886, 0.022, 0.042, 0.03, 0.02),
        interaction=0.2, query_effect=1.0, label_noise=0.3,
    ),
    "tiny": Shape(
        n_queries=100, items=(1, 8, 20), items_spread=0.4, n_features=5, n_factors=4,
        centre=1.0, decades=None, grades=(0.4, 0.25, 0.2, 0.1, 0.05),
        interaction=0.2, query_effect=0.5, label_noise=0.3,
    ),
}  # fmt: skip


def synthetic(
    shape: str, *, n_queries: int | None = None, rng: np.random.Generator | int | None = None
) -> RankingDataset:
    """Return labelled data in the shape of a known collection.

    A query q and an item i have *factors* u_q and v_i, vectors of standard normal numbers. With
    unit vectors a ⟂ b and c ⟂ d that are the same for all queries, item i is as useful as ::

        s_i = a·v_i + κ (c·u_q)(b·v_i) + τ d·u_q + σ ε_i

    and its grade is the number of cut points below s_i, which are quantiles over all queries that
    give each grade its share. The factors are not seen, but n_features noisy mixtures of them ::

        r_ij = m_j + Σ_k ℓ_kj (v_ik + u_qk / 2) + η_ij        x_ij = g_j(max(r_ij, 0))

    with noise η uniform on ±1/2, and loadings ℓ_kj normal with standard deviations ∝ 1/√k. For
    values in [0, 1], g is the minimum of r and 1. Otherwise g multiplies r by a scale, and every
    other feature is raised to the fourth power first. `SHAPES` has the numbers.

    Parameters
    ----------
    shape : {"yahoo-like", "istella-like", "tiny"}
    n_queries : int, optional
        By default as in the paper. The first n queries are the same for every ``n_queries`` >= n.
    rng : numpy Generator or seed
        Same seed, same bytes, on any number of threads. Loadings and directions are drawn as well:
        another seed is another collection, so make training and test data in one call and divide
        them with `RankingDataset.split`.

    Examples
    --------
    >>> from countersample.data.synthetic import synthetic
    >>> synthetic("tiny", rng=0)
    RankingDataset(n_queries=100, n_items=949, n_features=5, labels=0..4)
    """
    parameters = SHAPES[choice("shape", shape, SHAPES)]
    if n_queries is None:
        n_queries = parameters.n_queries
    n_queries = whole_number("n_queries", n_queries, least=1, or_else="None")
    return _draw_dataset(parameters, n_queries, np.random.default_rng(rng))


def _draw_dataset(shape: Shape, n_queries: int, rng: np.random.Generator) -> RankingDataset:
    n_blocks = -(-n_queries // BLOCK_QUERIES)
    world_rng, *block_rngs = rng.spawn(1 + n_blocks)
    world = _draw_world(shape, world_rng)
    sizes = [_draw_sizes(shape, block_rng) for block_rng in block_rngs]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes)[:n_queries])])
    features = np.empty((offsets[-1], shape.n_features), np.float32)
    labels = np.empty(offsets[-1], np.float32)
    for block, block_rng in enumerate(block_rngs):
        start = offsets[block * BLOCK_QUERIES]
        rows = slice(start, min(start + sizes[block].sum(), len(labels)))
        n_rows = rows.stop - rows.start  # fewer than drawn in the last block
        block_features, block_labels = _draw_block(shape, world, sizes[block], block_rng)
        features[rows], labels[rows] = block_features[:n_rows], block_labels[:n_rows]
    return RankingDataset(features, labels, offsets, np.arange(1, n_queries + 1, dtype=np.int64))


@dataclass(frozen=True)
class _World:
    """The parameters that all queries of a dataset share."""

    item_directions: Floats  # (n_factors, 2): a and b
    query_directions: Floats  # (n_factors, 2): d and c
    loadings: Floats  # (n_factors + 1, n_features): ℓ, and the centres as loadings of a factor 1
    scales: Floats | None  # (n_features,)


def _draw_world(shape: Shape, rng: np.random.Generator) -> _World:
    k, n_features = shape.n_factors, shape.n_features
    item_directions, query_directions = (
        np.linalg.qr(rng.standard_normal((k, 2))).Q for _ in range(2)
    )
    strengths = np.arange(1, k + 1) ** -0.5
    strengths *= _LOADING_NORM / np.linalg.norm(strengths)
    loadings = strengths[:, None] * rng.standard_normal((k, n_features))
    # Variances: 1 + 1/4 of v + u/2, and 1/12 of the uniform noise.
    spread = np.sqrt(1.25 * np.square(loadings).sum(axis=0) + 1 / 12)
    centres = spread * (shape.centre + rng.standard_normal(n_features)) - 0.5  # mean of the noise
    scales = None
    if shape.decades is not None:
        scales = (10 ** rng.uniform(*shape.decades, n_features)).astype(np.float32)
    return _World(
        item_directions=_on_grid(item_directions),
        query_directions=_on_grid(query_directions),
        loadings=_on_grid(np.vstack([loadings, centres])),
        scales=scales,
    )


def _draw_sizes(shape: Shape, rng: np.random.Generator) -> NDArray[np.int64]:
    least, median, most = shape.items
    sizes = rng.lognormal(np.log(median), shape.items_spread, BLOCK_QUERIES)
    return np.clip(np.rint(sizes), least, most).astype(np.int64)


def _draw_block(
    shape: Shape, world: _World, sizes: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    n_items = int(sizes.sum())
    u = _on_grid(rng.standard_normal((len(sizes), shape.n_factors), np.float32))
    v = _on_grid(rng.standard_normal((n_items, shape.n_factors), np.float32))
    query = np.repeat(np.arange(len(sizes)), sizes)
    av, bv = (v @ world.item_directions).T
    du, cu = (u @ world.query_directions)[query].T
    usefulness = _usefulness(shape, av, bv, du, cu, rng.standard_normal(n_items, np.float32))
    factors = np.ones((n_items, shape.n_factors + 1), np.float32)
    np.add(v, u[query] / 2, out=factors[:, :-1])
    features = factors @ world.loadings
    features += rng.integers(0, 256, features.shape, np.uint8) * GRID
    _to_values(features, world.scales)
    return features, np.searchsorted(_cut_points(shape), usefulness)


def _usefulness(
    shape: Shape, av: Floats, bv: Floats, du: Floats, cu: Floats, noise: Floats
) -> Floats:
    """a·v + κ (c·u)(b·v) + τ d·u + σ ε; all arrays are of shape (n_items,)."""
    usefulness: Floats = av + shape.interaction * cu * bv
    usefulness += shape.query_effect * du + shape.label_noise * noise
    return usefulness


def _to_values(raw: Floats, scales: Floats | None) -> None:
    """Turn r into x in place: cut to [0, 1], or multiply by scales, if there are some."""
    if scales is None:
        np.clip(raw, 0, 1, out=raw)
        return
    np.maximum(raw, 0, out=raw)
    counts = raw[:, ::2]
    counts *= counts
    counts *= counts
    raw *= scales


@cache
def _cut_points(shape: Shape) -> NDArray[np.float64]:
    """Quantiles of the usefulness, whose five variables are standard normal in every world."""
    variables = np.random.default_rng(0).standard_normal((5, _CALIBRATION_ITEMS), np.float32)
    cuts: NDArray[np.float64] = np.quantile(
        _usefulness(shape, *variables), np.cumsum(shape.grades)[:-1]
    )
    return cuts


def _on_grid(values: NDArray[np.floating]) -> Floats:
    multiples: Floats = np.rint(values / GRID).astype(np.float32) * GRID
    return multiples
