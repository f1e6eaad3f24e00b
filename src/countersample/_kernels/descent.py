"""A step of plain gradient descent: all that it does to the weights, in one pass over them."""

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from countersample._kernels.rows import spread, store_numbers
from countersample._kernels.sums import added_up, load_numbers, row_of

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic


@intrinsic
def descend(
    _: Value, w: Value, total: Value, small: Value, g: Value, run: Value, scale: Value,
    rate: Value, l2: Value,
) -> Value:  # fmt: skip
    """``total += w``; ``w -= rate · (g·scale + l2·w)``; ``small = w·scale``; return ‖w‖².

    Of row `run` of each. Without scale where it is empty. w, total and scale are float64, small and
    g float32; g·scale is rounded to float32. A compiler that has to prove that so many arrays do
    not overlap gives up, and takes one weight at a time.
    """

    def generate(context: Value, builder: Value, signature: Value, given: Value) -> Value:
        (w, n), (total, _), (small, _), (g, _) = (
            row_of(context, builder, kind, value, given[4])
            for kind, value in zip(signature.args[:4], given[:4], strict=True)
        )
        scale, n_scales = row_of(context, builder, signature.args[5], given[5])
        rate, l2 = given[6:]
        double = ir.DoubleType()

        def loop(is_scaled: bool) -> Value:
            def terms(k: Value, size: int) -> list[tuple[Value, Value]]:
                singles = ir.VectorType(ir.FloatType(), size)
                doubles = ir.VectorType(double, size)
                before = load_numbers(builder, w, k, size, double)
                sums = builder.fadd(load_numbers(builder, total, k, size, double), before)
                store_numbers(builder, sums, total, k)
                gradient = builder.fpext(load_numbers(builder, g, k, size, ir.FloatType()), doubles)
                if is_scaled:
                    factor = load_numbers(builder, scale, k, size, double)
                    gradient = builder.fptrunc(builder.fmul(gradient, factor), singles)
                    gradient = builder.fpext(gradient, doubles)
                decay = builder.fmul(spread(builder, l2, size), before)
                step = builder.fmul(spread(builder, rate, size), builder.fadd(gradient, decay))
                after = builder.fsub(before, step)
                store_numbers(builder, after, w, k)
                scaled = builder.fmul(after, factor) if is_scaled else after
                store_numbers(builder, builder.fptrunc(scaled, singles), small, k)
                return [(after, after)]

            return added_up(builder, double, 1, n, terms)[0]

        norm = cgutils.alloca_once(builder, double)
        with builder.if_else(builder.icmp_signed("==", n_scales, n_scales.type(0))) as (yes, no):
            with yes:
                builder.store(loop(is_scaled=False), norm)
            with no:
                builder.store(loop(is_scaled=True), norm)
        return builder.load(norm)

    fits = all(each.layout == "C" for each in (w, total, small, g, scale))
    kinds = types.float64(w, total, small, g, run, scale, rate, l2)
    return (kinds, generate) if fits else None
