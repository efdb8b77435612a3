"""The Ray to work on: the one that is there, the one that is asked for, or one started on this machine."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from occamroute._optional import require
from occamroute.errors import ExecutorError, InvalidInputError
from occamroute.executors.local import thread_count

__all__ = ["Connection", "connect", "the_ray"]

# The first that knows tokens, and the first that asks for one when it is started on one machine: Ray listens to the
# network there too.
OLDEST = (2, 52)
ASKS_BY_ITSELF = (2, 59)
# Letters in the folder of temporary files that leave enough of the 107 which a socket's path may have.
LONGEST_FOLDER = 26
# Seconds in which a cluster must take a call. Ray itself would try for many minutes.
PATIENCE = 10.0
# What a Ray started here may keep in shared memory, and the share of a small machine's that it may.
OBJECT_STORE = 2 * 2**30
OBJECT_STORE_SHARE = 0.2

# All executors of a process share one connection: Ray knows no second.
_lock = threading.RLock()
_shared: dict[str, Connection] = {}


class Connection:
    """Ray, connected.

    Each executor that uses it leaves it once, and the last one closes it if it was opened for them: a Ray that this
    process was connected to before is never touched. ``folder`` is that of a Ray that was started here.
    """

    def __init__(self, ray: Any, *, own: bool, folder: str | None = None) -> None:
        self.ray = ray
        self.own = own
        self.folder = folder
        self.users = 0
        self._process = os.getpid()
        self._identity = _identity(ray)

    @property
    def holds(self) -> bool:
        """Whether the process is still connected by it, and not by a later one of the caller's."""
        return bool(self.ray.is_initialized()) and _identity(self.ray) == self._identity

    @property
    def alone(self) -> bool:
        """Whether it is to a Ray that was started here, and one executor uses it."""
        return self.folder is not None and self.users == 1

    def foreign(self) -> bool:
        """Whether machines other than this one take part now; without a token they are refused."""
        if self.folder is not None or all(map(_is_here, filter(_is_alive, self.ray.nodes()))):
            return False
        if not _asks_for_token():
            raise _refused("machines other than this one")
        return True

    def most_at_once(self) -> int:
        """How many tasks to have under way: twice the cores, so that no worker waits for the next."""
        return max(2, 2 * int(self.ray.cluster_resources().get("CPU", 1)))

    def leave(self) -> None:
        """One executor needs it no longer."""
        with _lock:
            self.users -= 1
            if self.users <= 0:
                self.close()

    def close(self) -> None:
        """Stop what was started, and end what was connected; a process that was forked off has no part in it."""
        if os.getpid() != self._process:
            return
        if _shared.get("connection") is self:
            _shared.clear()
        if self.own and self.holds:
            self.ray.shutdown()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def the_ray() -> Any:
    """The library, recent enough."""
    ray = require("ray", extra="ray", what="the executor 'ray'")
    if _version(ray) < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise ExecutorError("ray", f"Ray {ray.__version__} is too old, {least} or newer is needed")
    return ray


def connect(address: str | None, workers: int | None) -> Connection:
    """The connection of this process, which the caller must leave once; refused where a token is needed and not set."""
    ray = the_ray()
    with _lock:
        connection = _shared.get("connection")
        if connection is None or not connection.holds:
            connection = Connection(ray, own=False) if ray.is_initialized() else _opened(ray, address, workers)
            _shared["connection"] = connection
        connection.users += 1
        try:
            connection.foreign()
        except ExecutorError:
            connection.leave()
            raise
        return connection


def _opened(ray: Any, address: str | None, workers: int | None) -> Connection:
    """A Ray that this process was not connected to."""
    place = (os.environ.get("RAY_ADDRESS") if address in (None, "auto") else None) or address or "local"
    if place == "local":
        return _started(ray, workers)
    if place != "auto":
        host, port = _host_and_port(place)
        if not _is_mine(host) and not _asks_for_token():
            raise _refused(place)
        _knock(place, host, port)
    with _signals_kept():
        try:
            ray.init(address=place, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            problem = f"no connection to Ray at {place}, or its token is not the one known here ({_first_line(error)})"
            raise ExecutorError("ray", problem) from error
    return Connection(ray, own=True)


def _started(ray: Any, workers: int | None) -> Connection:
    """A Ray of this machine alone."""
    if _version(ray) < ASKS_BY_ITSELF and "RAY_AUTH_MODE" not in os.environ:
        least = ".".join(map(str, ASKS_BY_ITSELF))
        raise ExecutorError(
            "ray", f"Ray {ray.__version__} asks for no token by itself: set RAY_AUTH_MODE=token, or install {least}"
        )
    long = len(tempfile.gettempdir()) > LONGEST_FOLDER and os.path.isdir("/tmp")  # noqa: S108
    folder = tempfile.mkdtemp(prefix="oc-", dir="/tmp" if long else None)  # noqa: S108
    # What is told first to be done at the end is done last: then Ray has ended what writes there, begun or half begun.
    atexit.register(_remove, folder, os.getpid())
    with _signals_kept():
        try:
            ray.init(
                address="local", num_cpus=thread_count(workers), include_dashboard=False, log_to_driver=False,
                logging_level=logging.ERROR, object_store_memory=_object_store(),
                _temp_dir=os.path.join(folder, "r"),  # Ray opens it to all users of the machine, but not what it is in
            )  # fmt: skip
        except BaseException as error:
            with suppress(Exception):
                ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, Exception):  # Ctrl-C
                raise
            raise ExecutorError("ray", f"Ray did not start on this machine ({_first_line(error)})") from error
    return Connection(ray, own=True, folder=folder)


def _remove(folder: str, process: int) -> None:
    """At the end of the process that made a folder, and not of one that was forked off."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _object_store() -> int:
    if not hasattr(os, "sysconf"):
        return OBJECT_STORE
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(OBJECT_STORE, int(OBJECT_STORE_SHARE * memory))


def _identity(ray: Any) -> tuple[str, str]:
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def _asks_for_token() -> bool:
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def _refused(place: str) -> ExecutorError:
    return ExecutorError(
        "ray", f"anyone could run anything on a cluster that asks for no token: set RAY_AUTH_MODE=token to use {place}"
    )


def _is_alive(node: dict[str, Any]) -> bool:
    return bool(node["Alive"])


def _is_here(node: dict[str, Any]) -> bool:
    """Whether a node of the cluster is this machine: by address and by name, since private addresses repeat."""
    return node["NodeManagerHostname"] == socket.gethostname() and _is_mine(node["NodeManagerAddress"])


def _version(ray: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in ray.__version__.split(".")[:2])


def _host_and_port(address: str) -> tuple[str, int]:
    """What is in ``host:port``, ``ray://host:port`` or ``[host]:port``."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInputError(f"the address of a Ray cluster must be like host:6379, got {address!r}.")
    return host.strip("[]"), int(port)


def _knock(address: str, host: str, port: int) -> None:
    """Say at once that nobody is there."""
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ExecutorError("ray", f"nobody answers at {address} ({_first_line(error)})") from error


def _is_mine(host: str) -> bool:
    """Whether an address is this machine's own: only those can be bound to. A name that is not known is not."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
        for family, kind, protocol, _, place in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(place)
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes over the signal that asks a process to end; a program that has its own answer to it keeps that."""
    own = signal.getsignal(signal.SIGTERM)
    if not callable(own) or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        yield
    except SystemExit as stop:  # the signal came meanwhile, and Ray has answered it
        if stop.code == signal.SIGTERM:
            own(signal.SIGTERM, None)
        raise
    finally:
        signal.signal(signal.SIGTERM, own)
