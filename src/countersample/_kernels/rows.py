"""Add rows of a matrix to other rows, in registers, and fetch rows ahead of their use.

The gradient of a linear ranker is a sum of rows of features times factors. It is computed for a few
columns at a time: their sums stay in registers while all rows are added, for one run or for four
runs at once. As in `_kernels.sums`, vector instructions are part of the program. Here nothing is
summed across a vector: each number gets its terms in the order of the rows, however many columns or
runs are computed together. So the result has the same bytes in each variant.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from countersample._kernels.sums import (
    NUMBERS,
    PARTS,
    load_numbers,
    multiplied_and_added,
    row_of,
)

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic
LINE = 64  # bytes per transfer from memory
LEVEL_2 = 2  # the cache to which rows are fetched


def _adds(n_runs: int, n_vectors: int, n_rows: int | None = None) -> Any:  # noqa: ANN401 (of numba)
    """Return the intrinsic that adds rows to `n_runs` others, `n_vectors` of each at a time.

    If `n_rows` is given, the number of rows is fixed when it is compiled, without a loop over them.
    """

    @intrinsic
    def add_rows(
        _: Value, out: Value, run: Value, a: Value, rows: Value, first: Value, until: Value,
        factors: Value, k: Value, anew: Value, column: Value, end: Value,
    ) -> Value:  # fmt: skip
        """``out[run + j] += Σ_i factors[i, k + j] · a[rows[i]]``, or ``=`` if `anew`.

        For i = first … until − 1, j = 0 … n_runs − 1, and the columns from `column` to `end`.
        """

        def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
            _, run, _, _, first, until, _, k, anew, column, end = args
            arrays = [0, 2, 3, 6]
            zero = run.type(0)
            (out, width), (a, _), (rows, _), (factors, stride) = (
                row_of(context, builder, signature.args[each], args[each], index)
                for each, index in zip(arrays, (run, zero, None, zero), strict=True)
            )
            number = out.type.pointee
            outs = [builder.gep(out, [builder.mul(width, width.type(j))]) for j in range(n_runs)]

            def row(i: Value) -> tuple[Value, list[Value]]:
                """Return the address of the i-th row, and its factors."""
                at = builder.mul(builder.load(builder.gep(rows, [i])), width)
                of = builder.gep(factors, [builder.add(builder.mul(i, stride), k)])
                each = [builder.load(builder.gep(of, [width.type(j)])) for j in range(n_runs)]
                return builder.gep(a, [at]), each

            fixed = [row(builder.add(first, width.type(i))) for i in range(n_rows or 0)]

            def add(column: Value, count: int, size: int) -> None:
                """Add `count` vectors of `size` columns from `column` on."""
                columns = [builder.add(column, width.type(size * v)) for v in range(count)]
                to = [(each, c) for each in outs for c in columns]
                nothing = ir.VectorType(number, size)(None)
                sums = [cgutils.alloca_once_value(builder, nothing) for _ in to]
                with builder.if_then(builder.not_(anew)):
                    for total, (each, c) in zip(sums, to, strict=True):
                        builder.store(load_numbers(builder, each, c, size, number), total)

                def add_row(data: Value, factors: list[Value]) -> None:
                    terms = [load_numbers(builder, data, c, size, number) for c in columns]
                    spreads = [spread(builder, factor, size) for factor in factors]
                    for total, (factor, term) in zip(sums, product(spreads, terms), strict=True):
                        added = multiplied_and_added(builder, factor, term, builder.load(total))
                        builder.store(added, total)

                for each in fixed:
                    add_row(*each)
                if n_rows is None:
                    with cgutils.for_range_slice(builder, first, until, first.type(1)) as (i, _):
                        add_row(*row(i))
                for total, (each, c) in zip(sums, to, strict=True):
                    store_numbers(builder, builder.load(total), each, c)

            _by_columns(builder, column, end, n_vectors, add)
            return context.get_dummy_value()

        fits = out.layout == a.layout == rows.layout == factors.layout == "C"
        kinds = types.void(out, run, a, rows, first, until, factors, k, anew, column, end)
        return (kinds, generate) if fits else None

    return add_rows


add_rows = _adds(1, 4)
add_8_rows = _adds(1, 1, 8)
add_rows_to_4 = _adds(4, 1)


@intrinsic
def fetch(_: Value, a: Value, row: Value, line: Value, n_lines: Value) -> Value:
    """Fetch lines of memory, counted from a row of a on, into the cache: a mere hint."""

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        data, n = row_of(context, builder, signature.args[0], *args[:2])
        size = n.type(LINE)
        pointer = ir.IntType(8).as_pointer()
        integer = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, integer, integer, integer])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        start = builder.gep(builder.bitcast(data, pointer), [builder.mul(args[2], size)])
        with cgutils.for_range(builder, args[3]) as loop:
            at = builder.gep(start, [builder.mul(loop.index, size)])
            read, of_data = integer(0), integer(1)
            builder.call(hint, [at, read, integer(LEVEL_2), of_data])
        return context.get_dummy_value()

    return (types.void(a, row, line, n_lines), generate) if a.layout == "C" else None


def _by_columns(
    builder: Value, start: Value, end: Value, n_vectors: int, add: Callable[[Value, int, int], None]
) -> None:
    """Call add(column, vectors, size) for all columns: the widest first, then ever narrower."""
    index, width = end.type, builder.sub(end, start)
    done = start
    for count in sorted({n_vectors, 1}, reverse=True):
        until = builder.add(start, builder.and_(width, index(-PARTS * count)))
        with cgutils.for_range_slice(builder, done, until, index(PARTS * count)) as (column, _):
            add(column, count, PARTS)
        done = until
    size = PARTS
    while size > 1:
        size //= 2
        left = builder.and_(width, index(size))
        with builder.if_then(builder.icmp_unsigned("!=", left, index(0))):
            add(done, 1, size)
        done = builder.add(done, left)


def spread(builder: Value, value: Value, size: int) -> Value:
    """Return a vector that repeats one number."""
    vector = ir.VectorType(value.type, size)
    first = builder.insert_element(vector(ir.Undefined), value, ir.IntType(32)(0))
    mask = ir.VectorType(ir.IntType(32), size)(None)
    return builder.shuffle_vector(first, first, mask)


def store_numbers(builder: Value, vector: Value, data: Value, k: Value) -> None:
    """``data[k : k + size] = vector``."""
    to = builder.bitcast(builder.gep(data, [k]), vector.type.as_pointer())
    builder.store(vector, to, align=NUMBERS[data.type.pointee][1])
