"""Sums in an order of their own, and what they are for: the same bytes on other CPUs."""

import json
import os
import platform
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import trained_bytes
from numba import njit

from countersample._kernels import sums

WIDTHS = [*range(1, 40), 61, 699]


@njit
def total(a):
    return sums.total(a)


@njit
def squared_norm(a):
    return sums.squared_norm(a)


@njit
def dot(a, i, b, j):
    return sums.dot(a, i, b, j)


@njit
def four_dots(a, i, b, j):
    return sums.four_dots(a, i, b, j)


@njit
def multiply_add(a, b, c):
    return sums.multiply_add(a, b, c)


def rounds_once():
    """Whether a product is not rounded before it is added: (1 + ε)² − (1 + 2ε) = ε², else 0."""
    epsilon = 2.0**-30
    return multiply_add(1 + epsilon, 1 + epsilon, -(1 + 2 * epsilon)) == epsilon**2


FUSED = pytest.mark.skipif(not rounds_once(), reason="the CPU has no fused multiply-add")


def added(c, a, b=None):
    """a[k] · b[k] + c[k], or a[k] + c[k], each rounded once."""
    if b is None:
        return a + c
    return np.array(
        [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)]
    )


def twin(a, b=None):
    """Sixteen partial sums; halved until one is left, each half taking in what is left over."""

    def terms(start, size):
        return [x[start : start + size] for x in ((a,) if b is None else (a, b))]

    size, done = 16, len(a) // 16 * 16
    parts = np.zeros(size, a.dtype)
    for start in range(0, done, size):
        parts = added(parts, *terms(start, size))
    while size > 1:
        size //= 2
        parts = parts[:size] + parts[size:]
        if len(a) - done >= size:
            parts = added(parts, *terms(done, size))
            done += size
    return parts[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, *WIDTHS])
def test_total(n, dtype, rng):
    a = rng.normal(size=n).astype(dtype)
    assert total(a) == twin(a)
    np.testing.assert_allclose(total(a), a.sum(dtype=np.float64), rtol=1e-4, atol=1e-4)


@FUSED
@pytest.mark.parametrize("n", WIDTHS)
def test_products(n, rng):
    a, b = rng.normal(size=(3, n)), rng.normal(size=(5, n))
    assert squared_norm(a[0]) == twin(a[0], a[0])
    assert dot(a, 2, b, 1) == twin(a[2], b[1])
    assert four_dots(a, 2, b, 1) == tuple(dot(a, 2, b, 1 + k) for k in range(4))


@pytest.mark.parametrize("n", WIDTHS)
def test_products_of_float32(n, rng):
    a, b = rng.normal(size=(2, 5, n)).astype(np.float32)
    assert four_dots(a, 2, b, 1) == tuple(dot(a, 2, b, 1 + k) for k in range(4))
    np.testing.assert_allclose(dot(a, 1, b, 3), a[1].astype(float) @ b[3], rtol=1e-4, atol=1e-4)


def test_the_order_shows():
    """What shares its partial sum with a large number is lost, and nothing else is."""
    a = np.ones(32)
    a[0] = 2.0**53
    assert total(a) == twin(a) == 2.0**53 + 2 * 15  # without a[16]
    assert sum(a) == 2.0**53


@FUSED
@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="other names of CPUs")
def test_the_same_bytes_on_another_cpu(tmp_path):
    """An older CPU, which prefers short registers: sums in any order would come out otherwise."""
    older = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+prefer-128-bit"}
    found = subprocess.run(
        [sys.executable, trained_bytes.__file__],
        env=os.environ | older | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": _source()},
        check=True,
        capture_output=True,
    )
    assert json.loads(found.stdout) == trained_bytes.trained()


def _source():
    return str(Path(sums.__file__).parents[2])
