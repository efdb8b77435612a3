"""Items on the workers of a Ray cluster, or of a Ray on this machine alone.

These are tasks of Ray's core, not Ray Data: items come as fixed blocks in a fixed order, big results are written by
the tasks themselves, and what a dead worker leaves undone is done again exactly, item by item.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from occamroute._version import __version__
from occamroute.errors import ExecutorError, InvalidInputError
from occamroute.executors import Task
from occamroute.executors.local import limit_threads
from occamroute.executors.ray_connection import Connection, connect, the_ray

__all__ = ["Done", "RayExecutor"]

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")

# Records of who did what that an executor keeps: enough for any one call, and never a leak.
REMEMBERED = 100_000
# Seconds after which a task that followed another one is with its worker.
SETTLING = 0.2


@dataclass(frozen=True)
class Done:
    """Who worked on an item: its number in the call, the task's id, the worker's process, and its node's id."""

    item: int
    task: str
    process: int
    node: str


class RayExecutor:
    """Items on the workers of Ray, each on one core, twice as many under way as the cluster has cores.

    The Ray that this process is connected to is used; else that at ``address`` or in ``RAY_ADDRESS``; else one is
    started on this machine, with ``workers`` processes (by default one a core), and stopped when the executor is
    closed or forgotten. A cluster of other machines must be one that asks for a token (``RAY_AUTH_MODE=token``). A
    task whose worker dies is started again, at most ``retries`` times. ``history`` says who did what.
    """

    name = "ray"

    def __init__(self, address: str | None = None, *, workers: int | None = None, retries: int = 3) -> None:
        if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
            raise InvalidInputError(f"retries must be a whole number, 0 or more, got {retries!r}.")
        the_ray()  # where it is missing or too old, that is said at once
        self.retries = retries
        self.history: deque[Done] = deque(maxlen=REMEMBERED)
        self._where = (address, workers)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._leave: Callable[[], object] = lambda: None
        self._at_work = 0

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the Ray that was started or connected to for this; one that was there before stays as it is."""
        with self._lock:
            self._connection = None
            self._leave()

    @property
    def at_once(self) -> int:
        """How many items are worked on at the same time: one for each core of the cluster."""
        return self._connected().most_at_once() // 2

    def map(self, task: Task[Shared, Item, Result], shared: Shared, items: Iterable[Item]) -> Iterator[Result]:
        """``task(shared, item)`` of every item, in their order."""
        connection = self._connected()
        ray, foreign = connection.ray, connection.foreign()
        run = ray.remote(num_cpus=1, max_retries=self.retries, retry_exceptions=False)(_work)
        with _sendable("the task, or what it works with,"):
            # The task goes along, so that a worker unpacks both once. In a list Ray leaves the reference as it is.
            sent = [ray.put((task, shared))]
        # On this machine workers may import whatever this process may; elsewhere it must be installed.
        terms = (__version__, foreign, () if foreign else tuple(sys.path))
        waiting: deque[Any] = deque()
        with self._lock:
            self._at_work += 1
        try:
            most = connection.most_at_once()
            for number, item in enumerate(items):
                if len(waiting) >= most:
                    yield self._finished(ray, waiting)
                    most = connection.most_at_once() if number % most == 0 else most  # a cluster may grow
                with _sendable("an item"):
                    packed = ray.cloudpickle.dumps(item)
                    waiting.append(run.remote(terms, sent, number, packed))
            while waiting:
                yield self._finished(ray, waiting)
        finally:
            self._end(connection, waiting)

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None or not self._connection.holds:
                self._leave()
                self._connection = connect(*self._where)
                self._leave = weakref.finalize(self, self._connection.leave)  # runs once, however often it is called
            return self._connection

    def _end(self, connection: Connection, waiting: deque[Any]) -> None:
        """End the tasks that nobody waits for any longer, after an error or an interrupt."""
        with self._lock:
            self._at_work -= 1
            alone = self._at_work == 0 and connection.alone
        if waiting and alone:
            # Workers that were started for this alone are ended at once; if there is more to do, others are started.
            self.close()
        elif waiting:
            # Ray ends this very process if a task is cancelled in the moment in which it is handed to a worker, as
            # happens where another one has just ended: not then, and those that have not begun before those that have.
            with suppress(Exception):
                _, left = connection.ray.wait(list(waiting), num_returns=len(waiting), timeout=SETTLING)
                for reference in reversed(left):
                    connection.ray.cancel(reference)

    def _finished(self, ray: Any, waiting: deque[Any]) -> Any:
        """The result of the task that was sent off first, as memory of this process."""
        try:
            done, well, packed = ray.get(waiting[0])
        except ray.exceptions.RayTaskError as error:
            raise _not_begun(error.cause if error.cause is not None else error) from None
        except ray.exceptions.RayError as error:
            raise ExecutorError("ray", _lost(error, ray.exceptions, self.retries)) from None
        waiting.popleft()
        self.history.append(done)
        content = ray.cloudpickle.loads(packed)
        if well:
            return content
        raise cast(Exception, content) from None


@contextmanager
def _sendable(what: str) -> Iterator[None]:
    """One sentence for what cannot be packed; Ray itself writes a page."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("ray."):
            raise ExecutorError("ray", str(error).splitlines()[0]) from None
        reason = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
        raise InvalidInputError(f"{what} cannot be sent to Ray's workers: {reason.rstrip('.:')}.") from error


def _lost(error: Exception, kinds: Any, retries: int) -> str:
    """Why there is no result, in words."""
    if isinstance(error, kinds.WorkerCrashedError | kinds.NodeDiedError):
        return f"a worker died on the same item {retries + 1} times, which is as often as it is tried"
    if isinstance(error, kinds.OutOfMemoryError):
        return "a worker was stopped because its machine ran out of memory"
    return str(error).strip().splitlines()[0].rstrip(".")


def _not_begun(error: Exception) -> ExecutorError:
    """What was wrong before the task itself began: the worker could not import or unpack what was sent."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    reason = next((line for line in reversed(lines) if "Error: " in line), lines[0])
    return ExecutorError(
        "ray",
        f"a worker could not begin ({reason.rstrip('.')}): occamroute {__version__}, and what your own objects are "
        "made of, must be installed on every machine of the cluster",
    )


# Below: what runs in the workers.

# What this process has unpacked last, by its reference: one at a time, so that the object store can let go of it.
_kept: dict[str, Any] = {}


def _work(
    terms: tuple[str, bool, tuple[str, ...]], sent: list[Any], number: int, item: bytes
) -> tuple[Done, bool, bytes]:
    """Who worked, whether it went well, and the result or the error, packed.

    Errors travel as results, so that they arrive as they were raised. Results are packed here: arrays that the other
    side found in the object store could not be written to, and would fill it for as long as they are kept.
    """
    ray = the_ray()
    context = ray.get_runtime_context()
    done = Done(number, context.get_task_id(), os.getpid(), context.get_node_id())
    try:
        _make_ready(*terms)
        with _interrupted_later():
            (task, shared), own = _unpacked(ray, sent[0], item)
        return done, True, ray.cloudpickle.dumps(task(shared, own))
    except Exception as error:  # noqa: BLE001  # whatever it is, the caller raises it again
        return done, False, _packed_error(ray, error)


def _make_ready(version: str, foreign: bool, paths: tuple[str, ...]) -> None:
    """Refuse to work beside another version or on an open cluster; keep to one thread, since each core has a task."""
    if version != __version__:
        raise ExecutorError(
            "ray", f"a worker has occamroute {__version__}, and this is {version}: install the same everywhere"
        )
    if foreign and os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        raise ExecutorError(
            "ray", "the cluster asks nobody for a token: start Ray with RAY_AUTH_MODE=token on each of its machines"
        )
    limit_threads(1)
    sys.path += [path for path in paths if path not in sys.path]


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Put off that the task is cancelled: an import that is broken off half-way could not be made again here."""
    interrupts: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if interrupts:
        raise KeyboardInterrupt


def _unpacked(ray: Any, reference: Any, item: bytes) -> tuple[Any, Any]:
    """What was sent once for all items, unpacked by the first task in this process that needs it; and the item."""
    key = reference.hex()
    try:
        if key not in _kept:
            _kept.clear()
            _kept[key] = ray.get(reference)
        return _kept[key], ray.cloudpickle.loads(item)
    except Exception as error:  # unpacking raises anything
        raise _not_begun(error) from error


def _packed_error(ray: Any, error: Exception) -> bytes:
    error.add_note("".join(traceback.format_exception(error)))
    try:
        packed = ray.cloudpickle.dumps(error)
        ray.cloudpickle.loads(packed)
    except Exception:  # noqa: BLE001  # errors of other libraries need not survive packing
        return cast(bytes, ray.cloudpickle.dumps(ExecutorError("ray", f"{type(error).__name__}: {error}".rstrip("."))))
    return cast(bytes, packed)
