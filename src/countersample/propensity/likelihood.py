"""The likelihood of all pairs of positions, maximised for many resamples at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.propensity.connections import connected, marked

if TYPE_CHECKING:
    from countersample._arrays import Bools, Floats

_STEPS = 100
_TOLERANCE = 1e-10  # of a step in log p
_LONGEST = 1.0  # the longest step in log p
_SURE = 1 - 1e-12  # the largest P(click)
_ALL = 1 - 1e-6  # the largest share of clicks: with no miss at all there is no slope to follow


def all_pairs_curves(clicks: Floats, weight: Floats, reference: int) -> Floats:
    """Return argmax_p max_r Σ_{j≠k} c_jk·log(p_j·r_jk) + (w_jk − c_jk)·log(1 − p_j·r_jk).

    With φ = log p and ρ = log r each term is concave in φ_j + ρ_jk, so the maximum is one. Given p,
    the best r_jk is the smaller root of ::

        2w·p_j·p_k·r² − (p_j·(w + c_kj) + p_k·(w + c_jk))·r + c_jk + c_kj = 0

    What is left is a function of φ alone, whose gradient is Σ_k c_jk − (w − c_jk)·μ/(1 − μ), with
    μ = p_j·r_jk, and whose second derivative is minus the Laplacian of the graph of positions with
    edges a_jk·a_kj / (a_jk + a_kj), a = (w − c)·μ/(1 − μ)². Newton's steps solve with it; that it
    has an inverse, once the reference is held, is that the positions are connected.

    Clicks and weight are those of `SharedPairs`, (n_resamples, K, K); p of the reference is 1. What
    is returned, (n_resamples, K), is as `marked` says.

    Examples
    --------
    Of two positions, the answer is the ratio of their clicks:

    >>> all_pairs_curves(np.array([[[0, 6], [3, 0]]]), np.array([[[0, 20], [20, 0]]]), 0)
    array([[1. , 0.5]])
    """
    given_sums = clicks, weight = np.asarray(clicks, np.float64), np.asarray(weight, np.float64)
    clicks = np.minimum(clicks, _ALL * weight)
    known = connected(clicks, reference)
    within = known[:, :, None] & known[:, None, :]
    clicks, weight = np.where(within, clicks, 0.0), np.where(within, weight, 0.0)
    log_p = np.zeros(known.shape)
    running = np.flatnonzero(known.sum(axis=1) > 1)
    value = _profile(clicks[running], weight[running], log_p[running])
    for _ in range(_STEPS):
        if not len(running):
            break
        mine, given = log_p[running], (clicks[running], weight[running])
        step = _newton_step(*given, mine, known[running], reference)
        after = _profile(*given, mine + step)
        for _ in range(30):  # the function is concave: a short enough step goes up
            worse = after < value - 1e-12 * np.abs(value)
            if not worse.any():
                break
            step[worse] /= 2
            there = (mine + step)[worse]
            after[worse] = _profile(given[0][worse], given[1][worse], there)
        log_p[running] = mine + step
        going = np.abs(step).max(axis=1) > _TOLERANCE
        running, value = running[going], after[going]
    return marked(np.exp(log_p), *given_sums, reference)


def _means(clicks: Floats, weight: Floats, log_p: Floats) -> Floats:
    """Return μ_jk = p_j·r_jk at the best r, (n, K, K)."""
    mine = np.exp(log_p)[:, :, None]
    other = mine.transpose(0, 2, 1)
    swapped = clicks.transpose(0, 2, 1)
    linear = mine * (weight + swapped) + other * (weight + clicks)
    total = clicks + swapped
    root = np.sqrt(np.maximum(linear**2 - 8 * weight * mine * other * total, 0.0))
    with np.errstate(invalid="ignore"):
        best = np.where(total > 0, 2 * total / (linear + root), 0.0)
    means: Floats = np.minimum(mine * best, _SURE)
    return means


def _profile(clicks: Floats, weight: Floats, log_p: Floats) -> Floats:
    """Return the log-likelihood at the best r, (n,)."""
    means = _means(clicks, weight, log_p)
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(clicks > 0, clicks * np.log(means), 0.0)
    total: Floats = (hits + (weight - clicks) * np.log1p(-means)).sum(axis=(1, 2))
    return total


def _newton_step(
    clicks: Floats, weight: Floats, log_p: Floats, known: Bools, reference: int
) -> Floats:
    means = _means(clicks, weight, log_p)
    misses = weight - clicks
    gradient = (clicks - misses * means / (1 - means)).sum(axis=2)
    bend = misses * means / (1 - means) ** 2
    both = bend + bend.transpose(0, 2, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        edges = np.where(both > 0, bend * bend.transpose(0, 2, 1) / both, 0.0)
    laplacian = -edges
    diagonal = np.arange(clicks.shape[1])
    laplacian[:, diagonal, diagonal] += edges.sum(axis=2)
    held = ~known
    held[:, reference] = True
    gradient[held] = 0.0
    laplacian[held] = 0.0
    laplacian.transpose(0, 2, 1)[held] = 0.0
    # A flat direction (every shown pair clicked) is given a little bend, so that there is a step.
    largest = np.maximum(laplacian[:, diagonal, diagonal].max(axis=1, keepdims=True), 1e-300)
    laplacian[:, diagonal, diagonal] += np.where(held, 1.0, 1e-12 * largest)
    step = np.linalg.solve(laplacian, gradient[:, :, None])[:, :, 0]
    longest = np.abs(step).max(axis=1, keepdims=True)
    shortened: Floats = step * np.minimum(1.0, _LONGEST / np.maximum(longest, 1e-300))
    return shortened
