"""How kernels are compiled: those that Python calls, and the parts that they are made of.

Whoever runs a command for the first time waits for the compiler, so that as little as possible is
given to it. A kernel is called with arrays of one type only: each other type is compiled anew. What
was compiled is kept on disk, with all its parts in it (`keeping` says where). A part is compiled
for other compiled code alone, without what a call from Python takes; from there it is the plain
function that it was written as. Slices that are assigned, array expressions, `np.searchsorted` and
the like each bring more code than the loop they stand for.
"""

import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import llvmlite
import numba
from numba import njit
from numba.core import config
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.extending import register_jitable

from countersample._kernels.keeping import Kept

Function = TypeVar("Function", bound=Callable[..., Any])
Value = Any  # of numba, which has no types
# What is not said here a part inherits from who calls it: sums in order would lose theirs.
_BOTH: dict[str, Any] = {"fastmath": False, "no_cfunc_wrapper": True}
_KERNEL: dict[str, Any] = _BOTH | {"nogil": True}

_PYTHON = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
_KEPT = Kept(f"{_PYTHON}-numba-{numba.__version__}-llvmlite-{llvmlite.__version__}")
# By which numba compiles other code from the same text.
_SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT")


def kernel(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 (of numba)
    """Compile a function that Python calls, at its first call, or take it from disk."""

    def compiled(function: Function) -> Function:
        made: Any = njit(**_KERNEL | options)(function)
        if made is not function:  # which it is with NUMBA_DISABLE_JIT
            made._cache = _KernelCache(function)  # noqa: SLF001 (numba has no other place for it)
        return made

    return compiled


def part(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 (of numba)
    """Compile a function where kernels call it."""
    return register_jitable(**_BOTH | options)


class _KernelCache(NullCache):
    """What numba asks for a kernel before it compiles, and hands the result to."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"

    def load_overload(self, types: Value, target: Value) -> Value:
        target.refresh()
        found = _KEPT.read(self._name, _made_for(types, target.codegen()))
        if found is None:
            return None
        return CompileResult._rebuild(target, *pickle.loads(found))  # noqa: S301, SLF001 (as numba)

    def save_overload(self, types: Value, result: Value) -> None:
        content = dumps(result._reduce())  # noqa: SLF001 (as numba)
        _KEPT.write(self._name, _made_for(types, result.codegen), content)


def _made_for(types: Value, codegen: Value) -> str:
    """Return all that tells code of a kernel from other code of it: types, CPU, settings."""
    settings = [getattr(config, name, None) for name in _SETTINGS]
    return repr((types, codegen.magic_tuple(), settings))
