"""Vector instructions: sums in a fixed order, rows added in registers, and rows fetched ahead.

A compiler that may reorder a sum computes as many partial sums as fit the registers of the CPU. A
compiler that may fuse a product with a sum does so at some places only. Both change the last digits
from CPU to CPU. Here the order is part of the program, as vector instructions that numba's
`intrinsic` inserts, so results have the same bytes on every CPU that has fused multiply-add.

*Sums.* A sum consists of PARTS partial sums; the p-th adds every PARTS-th term from p on. Then the
second half of the parts is added to the first half, until one part is left. The last terms, too few
to fill all parts, are added as soon as the parts are as few as they are.

*Rows.* The gradient of a linear ranker is a sum of rows of features times factors. It is computed
for a few columns at a time: their sums stay in registers while all rows are added, for one run or
for four runs at once. Nothing is summed across a vector: each number gets its terms in the order of
the rows, however many columns or runs are computed together.

The instructions exist on x86-64 since 2013 (AVX2 and FMA) and on every 64-bit ARM. A CPU without
them rounds products, too, and so differs in the last digits.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

PARTS = 16  # two registers of AVX2, one of AVX-512, four of NEON
LINE = 64  # bytes per transfer from memory
LEVEL_2 = 2  # the cache to which rows are fetched

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic  # typed as if callers passed what the compiler passes
NUMBERS = {ir.FloatType(): ("f32", 4), ir.DoubleType(): ("f64", 8)}  # name and bytes


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
    """Return Σ_k x[k] · y[k] for each x and each y, in the order described above.

    For a y that is None it is Σ_k x[k].
    """
    index = n.type
    number = next((y.type.pointee for y in ys if y is not None), xs[0].type.pointee)
    n_sums = len(xs) * len(ys)

    def add(parts: list[Value], k: Value, size: int) -> None:
        """Add `size` terms from k on to the parts, in memory (which compiles to registers)."""
        terms = [load_numbers(builder, x, k, size, number) for x in xs]
        factors = [None if y is None else load_numbers(builder, y, k, size, number) for y in ys]
        for part, (term, factor) in zip(parts, product(terms, factors), strict=True):
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


# -- rows


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
                    spreads = [broadcast(builder, factor, size) for factor in factors]
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
    """Fetch lines of memory, counted from a row of a on, into the cache (a hint)."""

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


def broadcast(builder: Value, value: Value, size: int) -> Value:
    """Return a vector that repeats one number."""
    vector = ir.VectorType(value.type, size)
    first = builder.insert_element(vector(ir.Undefined), value, ir.IntType(32)(0))
    mask = ir.VectorType(ir.IntType(32), size)(None)
    return builder.shuffle_vector(first, first, mask)


def store_numbers(builder: Value, vector: Value, data: Value, k: Value) -> None:
    """``data[k : k + size] = vector``."""
    to = builder.bitcast(builder.gep(data, [k]), vector.type.as_pointer())
    builder.store(vector, to, align=NUMBERS[data.type.pointee][1])
