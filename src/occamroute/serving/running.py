"""Running a service: everything that it needs from options, its server, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn

from occamroute._money import Amount
from occamroute.errors import InvalidInputError
from occamroute.pool import Pool
from occamroute.profiles import Profile
from occamroute.reporting.dashboard.hosts import is_loopback
from occamroute.routing.answering import Answerer
from occamroute.routing.guides import AUTO, Guide
from occamroute.routing.router import Router
from occamroute.serving.app import create_app
from occamroute.serving.connections import Connection
from occamroute.serving.keys import KeyFile
from occamroute.serving.limits import Limits
from occamroute.serving.queries import query_forms
from occamroute.serving.records import Records
from occamroute.serving.service import Service

__all__ = ["Options", "check_keys", "listening", "run", "service_from", "state_lock"]


@dataclass(frozen=True)
class Options:
    """What a service is started with; see ``occamroute serve --help``.

    Of several replicas each has its own ``state`` and ``name``, and all have the ``keys`` of one folder and the same
    ``guide``.
    """

    budget: Amount | None = None
    window: str | None = None
    arrivals: float | None = None
    ledger: str | None = None
    state: Path = Path("occamroute-state")
    host: str = "127.0.0.1"
    port: int = 8080
    extractor: str | None = AUTO
    combine: bool = True
    queries: Iterable[str] | None = None
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    keys: Path | None = None
    guide: Guide | None = None
    replicated: bool = False
    name: str | None = None
    open: bool = False


def service_from(profile: Profile, pool: Pool | None, options: Options) -> Service:
    """The service, with its ledger and receipts in the state folder."""
    key_file = KeyFile(options.keys or options.state)
    check_keys(key_file, options.host, open_to_admin=options.open)
    forms = None if pool is None else query_forms(options.queries, pool)
    router = Router(
        profile, budget=options.budget, window=options.window, arrivals=options.arrivals,
        ledger=options.ledger or f"sqlite:///{options.state / 'ledger.db'}", extractor=options.extractor,
        combine=options.combine, guide=options.guide, state=options.state, seed=options.seed,
    )  # fmt: skip
    answerer = None if pool is None else Answerer(router, pool, wait_for_ledger=False)
    return Service(
        router, answerer=answerer, pool=pool, key_file=key_file, loopback=is_loopback(options.host),
        limits=options.limits, replicated=options.replicated, open_to_admin=options.open,
        records=_records(router, options), **({} if forms is None else {"forms": forms}),
    )  # fmt: skip


def _records(router: Router, options: Options) -> Records | None:
    """Records of this process and of others; None where the ledger is in the state folder, which is this one's own."""
    if options.ledger is None or router.database is None:
        return None
    return Records(router.database, options.name or f"{socket.gethostname()}:{options.port}")


def check_keys(key_file: KeyFile, host: str, *, open_to_admin: bool = False) -> None:
    """Refuses to be reached by others while nobody needs a key."""
    if open_to_admin and not is_loopback(host):
        raise InvalidInputError(f"--open is for this machine only, got the host {host!r:.60}: bind to 127.0.0.1.")
    if not is_loopback(host) and not len(key_file.keys):
        raise InvalidInputError(
            "a service that others reach needs a key: make one with "
            f"'occamroute keys add NAME --state {key_file.path.parent}', "
            "or bind to 127.0.0.1."
        )


def run(
    profile: Profile, pool: Pool | None, options: Options, *, told: Callable[[str, Service], None] = lambda *_: None
) -> None:
    """Serve until the process is told to stop; ``told`` hears the address once requests are answered."""
    with _state_of_its_own(options.state), listening(options.host, options.port) as listener:
        service = service_from(profile, pool, replace(options, port=listener.getsockname()[1]))
        service.prepare()
        _listen(listener, options)
        config = uvicorn.Config(
            create_app(service),
            http=Connection,
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(options.limits.patience),
        )
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        _Server(config, service, lambda: told(address, service)).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that gives notice before it stops listening."""

    def __init__(self, config: uvicorn.Config, service: Service, told: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._told = service, told
        self._stopping: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets=sockets)
        self._told()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop in order when told to; a process that did so has not failed."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            with suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in signals:
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        """Not ready any more, and after a while not there; who asks twice waits for nothing."""
        self._service.ready = False
        if number == signal.SIGINT or self._stopping is not None:
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        self._stopping = asyncio.get_running_loop().create_task(self._stop_soon())

    async def _stop_soon(self) -> None:
        await asyncio.sleep(self._service.limits.notice)
        self.should_exit = True


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that is bound, before the long work begins."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _no_listening(host, port, error) from None
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            raise _no_listening(host, port, error) from None
        yield listener


def _listen(listener: socket.socket, options: Options) -> None:
    """Two may bind to one port while neither listens; the server would not say that it is the late one."""
    try:
        listener.listen()
    except OSError as error:
        raise _no_listening(options.host, options.port, error) from None


def _no_listening(host: str, port: int, error: OSError) -> InvalidInputError:
    return InvalidInputError(f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}.")


@contextmanager
def _state_of_its_own(folder: Path) -> Iterator[None]:
    """The state folder, made if need be, for one process at a time."""
    lock = state_lock(folder)
    if lock is None:
        raise InvalidInputError(f"another service uses the state folder {folder}: give each one its own.")
    try:
        yield
    finally:
        os.close(lock)


def state_lock(folder: Path) -> int | None:
    """The open lock of a state folder, which is made if need be; None where another process has it.

    The system gives it back whenever and however the process ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "service.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidInputError(
            f"cannot use the state folder {folder}: {(error.strerror or str(error)).lower()}."
        ) from None
    if _locked(lock):
        return lock
    os.close(lock)
    return None


def _locked(file: int) -> bool:
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
