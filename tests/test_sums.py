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
from numpy.testing import assert_array_equal

from countersample._kernels import rows, sums

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
def eight_dots(a, i, b, j):
    return sums.eight_dots(a, i, b, j)


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
    assert eight_dots(a, 1, b, 1) == tuple(dot(a, i, b, j) for i in (1, 2) for j in (1, 2, 3, 4))


@pytest.mark.parametrize("n", WIDTHS)
def test_products_of_float32(n, rng):
    a, b = rng.normal(size=(2, 5, n)).astype(np.float32)
    assert eight_dots(a, 1, b, 1) == tuple(dot(a, i, b, j) for i in (1, 2) for j in (1, 2, 3, 4))
    np.testing.assert_allclose(dot(a, 1, b, 3), a[1].astype(float) @ b[3], rtol=1e-4, atol=1e-4)


@FUSED
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("n", WIDTHS)
def test_codes_are_numbers(n, kind, rng):
    codes = rng.integers(0, np.iinfo(kind).max, (3, n), endpoint=True, dtype=kind)
    numbers, b = codes.astype(np.float32), rng.normal(size=(5, n)).astype(np.float32)
    assert dot(codes, 2, b, 1) == dot(numbers, 2, b, 1)
    assert eight_dots(codes, 1, b, 1) == eight_dots(numbers, 1, b, 1)


@FUSED
@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.uint16])
@pytest.mark.parametrize("n", WIDTHS)
def test_rows_are_added_one_after_the_other(n, kind, rng):
    a = rng.integers(0, 255, (6, n)).astype(kind)
    out, factors = rng.normal(size=(5, n)), rng.normal(size=(4, 4))
    out, factors = out.astype(np.float32), factors.astype(np.float32)
    expected, single = out.copy(), out.copy()
    for run in range(4):
        for row, factor in zip((5, 0, 3, 3), factors[run], strict=True):
            with np.errstate(all="raise"):
                products = factor.astype(np.float64) * a[row]  # exact: 24 + 16 bits
            expected[1 + run] = (products + expected[1 + run]).astype(np.float32)
    add_four(out, 1, a, (5, 0, 3, 3), tuple(factors.ravel()))
    for run in range(4):
        for k in (0, 2):
            add_two(single, 1 + run, a, (5, 0, 3, 3)[k : k + 2], tuple(factors[run, k : k + 2]))
    assert_array_equal(out, single)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-3)
    fetch(a, 2)  # changes nothing


@njit
def add_four(out, run, a, which, factors):
    rows.add_4_rows_to_4(out, run, a, which, factors)


@njit
def add_two(out, run, a, which, factors):
    rows.add_2_rows(out, run, a, which, factors)


@njit
def fetch(a, row):
    rows.fetch(a, row)


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
