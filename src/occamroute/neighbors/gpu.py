"""Whether a search goes to a GPU: never for small jobs, and never where the numbers do not suit float32."""

from __future__ import annotations

import os
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray
from occamroute._optional import require
from occamroute.errors import InvalidInputError
from occamroute.neighbors.coarse import Coarse

if TYPE_CHECKING:  # made when it is needed, as it needs torch
    from occamroute.neighbors.gpu_groups import DeviceGroups, Keep

__all__ = ["CUDA", "Device"]

CUDA = "cuda"
_WHERE = "cuda"  # torch's name for the device
# Differences of coordinates. Two cores go through 15 to 50 thousand million a second and sixteen through 35 to 200, so
# that these take 5 to 60 seconds; starting torch, the device and its compiler takes 5 to 10.
_WORTH_STARTING = 1e12
_WORTH_SENDING = 1e9  # in one call, to an index that is on the device already: a twentieth of a second
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, that of Linux on Windows, AMD's
_RANGE = 2.0**200  # of the scale; farther out, distances in float64 begin to be rounded in other ways
_WIDEST = 2**20  # coordinates; with more, float32 could not tell sums apart
_LARGEST = 2**24  # rows of a group that one launch can go through
_SHARED = 97 << 10  # bytes of a program's own memory that products of tiles take; GPUs before Ampere have 64 KiB
_WHAT = "device 'cuda'"


class Device:
    """The device that an index may use: made when it is first worth it, left behind when the index is copied."""

    def __init__(
        self,
        rows: FloatArray,
        groups: npt.NDArray[np.int64],
        coarse: Coarse,
        *,
        device: str | None,
        threads: int | None,
    ) -> None:
        self._rows, self._groups, self._coarse, self._asked, self._threads = rows, groups, coarse, device, threads
        if device == CUDA:
            _require_device()
        self._begin()

    def _begin(self) -> None:
        self._groups_there: DeviceGroups | None = None
        self._refused = False
        self._process = os.getpid()
        self._work = 0.0
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._rows, self._groups, self._coarse, self._asked, self._threads

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._rows, self._groups, self._coarse, self._asked, self._threads = state
        self._begin()

    def run(self, queries: FloatArray, values: FloatArray, sums: FloatArray, keep: Keep, *, every: bool) -> bool:
        """Whether the device has done it; see ``DeviceGroups.run``."""
        if not self._worth_it(len(queries)):
            return False
        with self._lock:
            there = self._groups_there = self._groups_there or self._made()
        if there is None:
            self._refused = True
            return False
        try:
            there.run(queries, values, sums, keep, every=every)
        except _out_of_memory():
            if self._asked == CUDA:
                raise
            # Others use the device too, and have taken what was free.
            self._refused, self._groups_there = True, None
            sums[...] = 0.0
            return False
        return True

    def _worth_it(self, queries: int) -> bool:
        """Whether there is work enough; what an index was asked before counts, as files come in blocks."""
        if self._asked == CUDA and not self._refused:
            return True
        # A forked process cannot use a device that its parent has used.
        if self._refused or self._asked == "cpu" or self._process != os.getpid():
            return False
        work = float(queries) * self._groups.size * self._coarse.width
        self._work += work
        return work >= _WORTH_SENDING and self._work >= _WORTH_STARTING

    def _made(self) -> DeviceGroups | None:
        """The groups on the device; None where there is none, or where the rows are not for it."""
        coarse, asked = self._coarse, self._asked == CUDA
        if asked:
            _require_device()
        if not 1.0 / _RANGE < coarse.scale < _RANGE or coarse.width > _WIDEST or self._groups.shape[1] > _LARGEST:
            return None
        if not (asked or _device_is_there()):
            return None
        from occamroute.neighbors.gpu_groups import DeviceGroups

        try:
            there = {"torch": _torch(), "device": _WHERE, "room": _room(), "threads": self._threads}
            made = DeviceGroups(self._rows, self._groups, coarse, products=_multiplies(), **there)
        except RuntimeError:  # it is full, or another process has it for itself
            if asked:
                raise
            return None
        if made.fits:
            return made
        if asked:
            size = self._groups.shape[1]
            raise InvalidInputError(f"groups must fit the memory of the device one by one, got {size} rows in one.")
        return None


def _device_is_there() -> bool:
    """Whether there is a device, with all that is needed for it."""
    # Importing torch takes seconds and much memory, so that it is not done only to hear that there is no device.
    if "torch" not in sys.modules and not any(Path(driver).exists() for driver in _DRIVERS):
        return False
    if find_spec("torch") is None or find_spec("triton") is None:
        return False
    return bool(_torch().cuda.is_available())


def _require_device() -> None:
    """Go on only with a device, and say in a sentence why there is none."""
    torch = _torch()
    require("triton", extra="torch", what=_WHAT)
    if not torch.cuda.is_available():
        raise InvalidInputError("device must be None or 'cpu' here, as torch finds no CUDA device, got 'cuda'.")


def _room() -> int:
    """Bytes that the rows of an index may take on the device: half of what is free; the rest is for queries."""
    return int(_torch().cuda.mem_get_info()[0]) // 2


def _multiplies() -> bool:
    """Whether products of matrices have the memory that they take."""
    properties = _torch().cuda.get_device_properties(_WHERE)
    return bool(getattr(properties, "shared_memory_per_block_optin", 0) >= _SHARED)


def _out_of_memory() -> type[Exception]:
    """What torch raises when the device is full."""
    error: type[Exception] = _torch().cuda.OutOfMemoryError
    return error


def _torch() -> Any:
    return require("torch", extra="torch", what=_WHAT)
