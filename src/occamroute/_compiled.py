"""How kernels are compiled: without the interpreter lock, cached on disk, never by a threading layer.

Numba's ``prange`` is not used anywhere: its runtime dies in forked children and under concurrent callers.
Blocks of rows run on plain threads instead (``executors.local``), which is what ``nogil`` is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

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
        try:
            compiled = numba.njit(cache=True, **options)(function)
        except RuntimeError:
            # No folder can be written (a read-only image without a home): compile anew in every process.
            compiled = numba.njit(cache=False, **options)(function)
        return cast(Function, compiled)

    return compile_lazily


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
