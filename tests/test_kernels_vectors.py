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

from countersample._kernels import vectors

WIDTHS = [*range(1, 19), 31, 32, 33, 61, 699]


@njit
def total(a):
    return vectors.total(a)


@njit
def dot(a, i, b, j):
    return vectors.dot(a, i, b, j)


@njit
def eight_dots(a, i, b, j):
    return vectors.eight_dots(a, i, b, j)


def rounds_once():
    """Whether a product is not rounded before it is added: (1 + ε)² − (1 + 2ε) = ε², else 0."""
    epsilon = 2.0**-30
    a, b = np.zeros((1, 17)), np.zeros((1, 17))
    a[0, 0], b[0, 0] = 1 + 2 * epsilon, -1  # added first
    a[0, 16] = b[0, 16] = 1 + epsilon  # added last
    return dot(a, 0, b, 0) == epsilon**2


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
    assert dot(a, 0, a, 0) == twin(a[0], a[0])
    assert dot(a, 2, b, 1) == twin(a[2], b[1])
    assert eight_dots(a, 1, b, 1) == tuple(dot(a, i, b, j) for i in (1, 2) for j in (1, 2, 3, 4))


@FUSED
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("n", WIDTHS)
def test_codes_and_float32(n, kind, rng):
    codes = rng.integers(0, np.iinfo(kind).max, (3, n), endpoint=True, dtype=kind)
    numbers, b = codes.astype(np.float32), rng.normal(size=(5, n)).astype(np.float32)
    assert dot(codes, 2, b, 1) == dot(numbers, 2, b, 1)
    assert eight_dots(codes, 1, b, 1) == eight_dots(numbers, 1, b, 1)
    products = tuple(dot(numbers, i, b, j) for i in (1, 2) for j in (1, 2, 3, 4))
    assert eight_dots(numbers, 1, b, 1) == products
    np.testing.assert_allclose(products[2], numbers[1].astype(float) @ b[3], rtol=1e-4, atol=1)


@FUSED
@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.uint16])
@pytest.mark.parametrize("n", WIDTHS)
def test_rows_are_added_one_after_the_other(n, kind, rng):
    a = rng.integers(0, 255, (6, n)).astype(kind)
    which = np.array([5, 0, 3, 3, 1])
    out, factors = rng.normal(size=(5, n)), rng.normal(size=(len(which), 6))
    out, factors = out.astype(np.float32), factors.astype(np.float32)
    n_rows = int(rng.integers(len(which) + 1))
    for anew in (False, True):
        expected, single = out.copy(), out.copy()
        for run in range(4):
            so_far = np.zeros(n, np.float32) if anew else out[1 + run]
            for row, factor in zip(which[:n_rows], factors[:n_rows, 2 + run], strict=True):
                products = factor.astype(np.float64) * a[row]  # exact: 24 + 16 bits
                so_far = (products + so_far).astype(np.float32)
            expected[1 + run] = so_far
        four, column = out.copy(), int(rng.integers(n + 1))
        for start, end in ((0, column), (column, n)):
            add_to_4(four, 1, a, which, 0, n_rows, factors, 2, anew, start, end)
        for run in range(4):
            add_to_1(single, 1 + run, a, which, 0, n_rows, factors, 2 + run, anew, 0, n)
        assert_array_equal(four, single)
        np.testing.assert_allclose(four, expected, rtol=1e-5, atol=1e-3)
    fetch(a, 2, 1, 3)  # changes nothing


@njit
def add_to_4(out, run, a, which, row, n_rows, factors, first, anew, column, end):
    vectors.add_rows_to_4(out, run, a, which, row, n_rows, factors, first, anew, column, end)


@njit
def add_to_1(out, run, a, which, row, n_rows, factors, first, anew, column, end):
    vectors.add_rows(out, run, a, which, row, n_rows, factors, first, anew, column, end)


@njit
def fetch(a, row, line, n_lines):
    vectors.fetch(a, row, line, n_lines)


def test_the_order_shows():
    """What shares its partial sum with a large number is lost, and nothing else is."""
    a = np.ones(32)
    a[0] = 2.0**53
    assert total(a) == twin(a) == 2.0**53 + 2 * 15  # without a[16]
    assert sum(a) == 2.0**53


@pytest.mark.slow
@FUSED
@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="other names of CPUs")
def test_the_same_bytes_on_another_cpu(tmp_path):
    """An older CPU, which prefers short registers: sums in any order would come out otherwise."""
    older = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+prefer-128-bit"}
    found = subprocess.run(
        [sys.executable, trained_bytes.__file__],
        env=os.environ | older | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": _path()},
        check=True,
        capture_output=True,
    )
    assert json.loads(found.stdout) == trained_bytes.trained()


def _path():
    return os.pathsep.join([str(Path(vectors.__file__).parents[2]), os.environ["PYTHONPATH"]])
