"""Rows of a matrix in registers: added to other rows several at a time, and fetched ahead.

As in `_kernels.sums` vectors are part of the program. Here nothing is summed up across them: each
number gets its terms one after the other, in the order of the rows, however many are taken at once.
"""

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from countersample._kernels.sums import PARTS, load_numbers, multiplied_and_added, row_of

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic
LINE = 64  # bytes that memory gives at a time
LEVEL_2 = 2


def _adds(n_rows: int, n_runs: int) -> Any:  # noqa: ANN401 (of numba)
    """Return the intrinsic that adds so many rows to so many others."""

    @intrinsic
    def add_rows(_: Value, out: Value, run: Value, a: Value, rows: Value, factors: Value) -> Value:
        """``out[run + k] += Σ_i factors[k·n_rows + i] · a[rows[i]]``, one row after the other."""

        def generate(context: Value, builder: Value, signature: Value, given: Value) -> Value:
            kind, _, kind_of_a, *_ = signature.args
            first, n = row_of(context, builder, kind, *given[:2])
            outs = [builder.gep(first, [builder.mul(n, n.type(k))]) for k in range(n_runs)]
            index = cgutils.unpack_tuple(builder, given[3])
            xs = [row_of(context, builder, kind_of_a, given[2], i)[0] for i in index]
            _add(builder, outs, xs, cgutils.unpack_tuple(builder, given[4]), n)
            return context.get_dummy_value()

        fits = out.layout == a.layout == "C" and (len(rows), len(factors)) == (
            n_rows,
            n_rows * n_runs,
        )
        return (types.void(out, run, a, rows, factors), generate) if fits else None

    return add_rows


add_8_rows = _adds(8, 1)
add_2_rows = _adds(2, 1)
add_4_rows_to_4 = _adds(4, 4)


@intrinsic
def fetch(_: Value, a: Value, row: Value) -> Value:
    """Ask for row of a to be brought near: a hint, which changes nothing."""

    def generate(context: Value, builder: Value, signature: Value, given: Value) -> Value:
        data, n = row_of(context, builder, signature.args[0], *given)
        size = n.type(signature.args[0].dtype.bitwidth // 8)
        pointer = ir.IntType(8).as_pointer()
        start = builder.bitcast(data, pointer)
        integer = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, integer, integer, integer])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        with cgutils.for_range_slice(builder, n.type(0), builder.mul(n, size), n.type(LINE)) as (
            k,
            _,
        ):
            read, of_data = integer(0), integer(1)
            builder.call(hint, [builder.gep(start, [k]), read, integer(LEVEL_2), of_data])
        return context.get_dummy_value()

    return (types.void(a, row), generate) if a.layout == "C" else None


def _add(
    builder: Value, outs: list[Value], xs: list[Value], factors: list[Value], n: Value
) -> None:
    """outs[k][j] += Σ_i factors[k·len(xs) + i] · xs[i][j], for j from 0 to n."""
    index, number = n.type, outs[0].type.pointee

    def add(k: Value, size: int) -> None:
        terms = [load_numbers(builder, x, k, size, number) for x in xs]
        for out, factor in zip(outs, _by(factors, len(xs)), strict=True):
            total = load_numbers(builder, out, k, size, number)
            for term, each in zip(terms, factor, strict=True):
                total = multiplied_and_added(builder, _spread(builder, each, size), term, total)
            at = builder.bitcast(builder.gep(out, [k]), total.type.as_pointer())
            builder.store(total, at, align=4)

    done = builder.and_(n, index(-PARTS))
    with cgutils.for_range_slice(builder, index(0), done, index(PARTS)) as (k, _):
        add(k, PARTS)
    size = PARTS
    while size > 1:
        size //= 2
        left = builder.and_(n, index(size))
        with builder.if_then(builder.icmp_unsigned("!=", left, index(0))):
            add(done, size)
        done = builder.add(done, left)


def _by(values: list[Value], size: int) -> list[list[Value]]:
    return [values[k : k + size] for k in range(0, len(values), size)]


def _spread(builder: Value, value: Value, size: int) -> Value:
    """Return a vector of one number."""
    vector = ir.VectorType(value.type, size)
    first = builder.insert_element(vector(ir.Undefined), value, ir.IntType(32)(0))
    mask = ir.VectorType(ir.IntType(32), size)(None)
    return builder.shuffle_vector(first, first, mask)
