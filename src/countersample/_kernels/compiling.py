"""How kernels are compiled: those that Python calls, and the parts that they are made of.

Whoever runs a command for the first time waits for the compiler, so that as little as possible is
given to it. A kernel is called with arrays of one type only: each other type is compiled anew. What
was compiled is kept on disk, with all its parts in it. A part is compiled for other compiled code
alone, without what a call from Python takes; from there it is the plain function that it was
written as. Slices that are assigned, array expressions, `np.searchsorted` and the like each bring
more code than the loop they stand for.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba.extending import register_jitable

Function = TypeVar("Function", bound=Callable[..., Any])
# What is not said here a part inherits from who calls it: sums in order would lose theirs.
_BOTH: dict[str, Any] = {"fastmath": False, "no_cfunc_wrapper": True}
_KERNEL: dict[str, Any] = _BOTH | {"nogil": True, "cache": True}


def kernel(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 (of numba)
    """Compile a function that Python calls, at its first call, or take it from disk."""
    return njit(**_KERNEL | options)


def part(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 (of numba)
    """Compile a function where kernels call it."""
    return register_jitable(**_BOTH | options)
