"""Sums in a fixed order: the same bytes on every CPU that has fused multiply-add.

A compiler that may reorder a sum computes as many partial sums as fit the registers of the CPU. A
compiler that may fuse a product with a sum does so at some places only. Both change the last digits
from CPU to CPU. Here the order is part of the program, as vector instructions that numba's
`intrinsic` inserts. A sum consists of PARTS partial sums; the p-th adds every PARTS-th term from p
on. Then the second half of the parts is added to the first half, until one part is left. The last
terms, too few to fill all parts, are added as soon as the parts are as few as they are.
`multiply_add` rounds once.

Both are vector instructions, on x86-64 since 2013 (AVX2 and FMA) and on every 64-bit ARM. A CPU
without them rounds products, too, and so differs in the last digits.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

PARTS = 16  # two registers of AVX2, one of AVX-512, four of NEON

Value = Any  # of numba or llvmlite, which have no types
Terms = Callable[[Value, int], list[tuple[Value, Value]]]
intrinsic: Any = extending.intrinsic  # typed as if callers gave what the compiler gives
NUMBERS = {ir.FloatType(): ("f32", 4), ir.DoubleType(): ("f64", 8)}  # name and bytes


@intrinsic
def multiply_add(_: Value, a: Value, b: Value, c: Value) -> Value:
    """Return a · b + c, rounded once, of three numbers of one type."""

    def generate(_: Value, builder: Value, __: Value, args: Value) -> Value:
        return multiplied_and_added(builder, *args)

    return (a(a, b, c), generate) if a == b == c else None


@intrinsic
def total(_: Value, a: Value) -> Value:
    """Σ_k a[k]."""

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        x, n = row_of(context, builder, signature.args[0], args[0])
        return _sums(builder, [x], [None], n)[0]

    return (a.dtype(a), generate) if a.layout == "C" else None


@intrinsic
def dot(_: Value, a: Value, i: Value, b: Value, j: Value) -> Value:
    """Σ_k a[i, k] · b[j, k], of two matrices of the same width; a may hold integer codes."""

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        x, n = row_of(context, builder, signature.args[0], *args[:2])
        y, _ = row_of(context, builder, signature.args[2], *args[2:])
        return _sums(builder, [x], [y], n)[0]

    return (b.dtype(a, i, b, j), generate) if a.layout == b.layout == "C" else None


@intrinsic
def eight_dots(_: Value, a: Value, i: Value, b: Value, j: Value) -> Value:
    """`dot` of the rows i and i + 1 of a with each of the rows j … j + 3 of b, in one pass.

    Four of row i, then four of row i + 1.
    """
    numbers = types.UniTuple(b.dtype, 8)

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        x, n = row_of(context, builder, signature.args[0], *args[:2])
        y, _ = row_of(context, builder, signature.args[2], *args[2:])
        xs, ys = (
            [builder.gep(first, [builder.mul(n, n.type(k))]) for k in range(count)]
            for first, count in ((x, 2), (y, 4))
        )
        return context.make_tuple(builder, numbers, _sums(builder, xs, ys, n))

    return (numbers(a, i, b, j), generate) if a.layout == b.layout == "C" else None


def row_of(context: Value, builder: Value, kind: Value, value: Value, row: Value = None) -> Value:
    """Return the address of a vector, or of a row of a matrix, and its length."""
    array = context.make_array(kind)(context, builder, value)
    n = cgutils.unpack_tuple(builder, array.shape)[-1]
    return array.data if row is None else builder.gep(array.data, [builder.mul(row, n)]), n


def _sums(builder: Value, xs: list[Value], ys: list[Value], n: Value) -> list[Value]:
    """Return Σ_k x[k] · y[k] for each x and each y; Σ_k x[k] for a y that is None."""
    number = next((y.type.pointee for y in ys if y is not None), xs[0].type.pointee)

    def terms(k: Value, size: int) -> list[tuple[Value, Value]]:
        loaded = [load_numbers(builder, x, k, size, number) for x in xs]
        factors = [None if y is None else load_numbers(builder, y, k, size, number) for y in ys]
        return list(product(loaded, factors))

    return added_up(builder, number, len(xs) * len(ys), n, terms)


def added_up(builder: Value, number: Value, n_sums: int, n: Value, terms: Terms) -> list[Value]:
    """Return sums of n terms in the order that the module's docstring describes.

    ``terms(k, size)`` returns, per sum, vectors of two factors (or of terms and None) of the terms
    k … k + size − 1.
    """
    index = n.type

    def add(parts: list[Value], k: Value, size: int) -> None:
        """Add `size` terms from k on to the parts, in memory (which compiles to registers)."""
        for part, (term, factor) in zip(parts, terms(k, size), strict=True):
            so_far = builder.load(part)
            if factor is None:
                added = builder.fadd(so_far, term)
            else:
                added = multiplied_and_added(builder, term, factor, so_far)
            builder.store(added, part)

    zero = ir.VectorType(number, PARTS)(None)
    parts = [cgutils.alloca_once_value(builder, zero) for _ in range(n_sums)]
    done = builder.and_(n, index(-PARTS))
    with cgutils.for_range_slice(builder, index(0), done, index(PARTS)) as (k, _):
        add(parts, k, PARTS)
    size = PARTS
    while size > 1:
        size //= 2
        halves = [_halved(builder, builder.load(part), size) for part in parts]
        parts = [cgutils.alloca_once_value(builder, half) for half in halves]
        left = builder.and_(n, index(size))
        with builder.if_then(builder.icmp_unsigned("!=", left, index(0))):
            add(parts, done, size)
        done = builder.add(done, left)
    return [builder.extract_element(builder.load(part), ir.IntType(32)(0)) for part in parts]


def load_numbers(builder: Value, data: Value, k: Value, size: int, number: Value) -> Value:
    """Return data[k : k + size] as a vector of numbers; codes become numbers, exactly."""
    stored = data.type.pointee
    at = builder.bitcast(builder.gep(data, [k]), ir.VectorType(stored, size).as_pointer())
    if stored == number:
        return builder.load(at, align=NUMBERS[number][1])
    codes = builder.load(at, align=stored.width // 8)
    return builder.uitofp(codes, ir.VectorType(number, size))


def _halved(builder: Value, vector: Value, half: int) -> Value:
    """Return the first half of a vector plus its second half."""
    mask = ir.VectorType(ir.IntType(32), half)
    first, second = mask(list(range(half))), mask(list(range(half, 2 * half)))
    return builder.fadd(
        builder.shuffle_vector(vector, vector, first),
        builder.shuffle_vector(vector, vector, second),
    )


def multiplied_and_added(builder: Value, a: Value, b: Value, c: Value) -> Value:
    """Return a · b + c of numbers or vectors, with one rounding if the CPU has such an instruction.

    LLVM promises this for ``fmuladd`` on each CPU, for numbers and vectors alike.
    """
    is_vector = isinstance(a.type, ir.VectorType)
    name = NUMBERS[a.type.element if is_vector else a.type][0]
    name = f"llvm.fmuladd.v{a.type.count}{name}" if is_vector else f"llvm.fmuladd.{name}"
    kind = ir.FunctionType(a.type, [a.type] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])
