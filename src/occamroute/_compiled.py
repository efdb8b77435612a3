"""How kernels are compiled: without the interpreter lock, cached on disk, never by a threading layer.

Numba's ``prange`` is not used anywhere: its runtime dies in forked children and under concurrent callers.
Blocks of rows run on plain threads instead (``executors.local``), which is what ``nogil`` is for.
"""

# numba has no types.
# mypy: allow-untyped-calls
from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

__all__ = ["FAST", "kernel", "quickselect"]

Function = TypeVar("Function", bound=Callable[..., Any])

# What a reduction needs to be vectorised. NaN and inf are refused at the boundary, so "no NaN" is true;
# "no inf" is not claimed, since -inf marks an option that may not be chosen.
FAST = frozenset({"nnan", "nsz", "reassoc", "contract", "arcp"})


def kernel(*, fast: bool = False, inline: bool = False) -> Callable[[Function], Function]:
    """Compile a function with numba at its first call; ``fast`` allows sums to be reordered."""
    options: Any = {
        "nogil": True,
        "fastmath": set(FAST) if fast else False,
        "error_model": "numpy",
        "inline": "always" if inline else "never",
    }

    def compile_lazily(function: Function) -> Function:
        compiled = numba.njit(**options)(function)
        # Where no folder can be written (a read-only image without a home), every process compiles anew.
        with suppress(RuntimeError):
            compiled._cache = _Cache(function)  # as ``cache=True`` does with numba's own
        return cast(Function, compiled)

    return compile_lazily


class _Cache(FunctionCache):
    """Numba's cache on disk, safe against what other versions of this package left there.

    Numba alone knows a kernel's own file: it would go on using a callee from another file as it was before an
    upgrade, and it fails on an index that names a type which is gone.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel; None, and it is compiled anew, where that cannot be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001  # unpickling raises anything
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel; one that cannot be kept (a full disk) is good for this process all the same."""
        try:
            super().save_overload(sig, data)
        except Exception:  # noqa: BLE001
            self._begin_anew(sig, data)

    def _begin_anew(self, sig: Any, data: Any) -> None:
        try:
            self.flush()
            super().save_overload(sig, data)
        except Exception:  # noqa: BLE001
            self.disable()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        callees = hashlib.sha256("\n".join(_ingredients(self._py_func, set())).encode()).hexdigest()
        return (*super()._index_key(sig, codegen), callees)


def _ingredients(function: Any, seen: set[str]) -> Iterator[str]:
    """What a kernel is compiled from: its code, the kernels that it calls, and the constants that it names."""
    code = function.__code__
    yield f"{code.co_code.hex()} {code.co_names} {[one for one in code.co_consts if not hasattr(one, 'co_code')]}"
    for name in sorted(set(code.co_names) - seen):
        seen.add(name)
        value = function.__globals__.get(name)
        if isinstance(value, Dispatcher):
            yield from _ingredients(value.py_func, seen)
        elif isinstance(value, bool | int | float | str | tuple):
            yield f"{name} = {value!r}"


@kernel()
def quickselect(values: Any, count: int, rank: int) -> float:
    """The value of the given rank, from 0, among the first ``count``, which are left in disorder.

    numpy's ``partition`` does the same, and takes six seconds to compile.
    """
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return float(values[rank])
