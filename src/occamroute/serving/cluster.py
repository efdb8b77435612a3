"""The service on Ray Serve: as many replicas as wanted behind one address, and one budget for all of them.

``build`` is for ``serve run`` and ``serve deploy`` on a cluster that is there; ``run`` is ``occamroute serve``.
"""

from __future__ import annotations

import io
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from occamroute._version import __version__
from occamroute.errors import ExecutorError, InvalidInputError
from occamroute.executors.local import thread_count
from occamroute.executors.ray_connection import connect, the_ray
from occamroute.reporting.dashboard.hosts import is_loopback
from occamroute.routing.router import Router
from occamroute.routing.snapshots import Snapshot
from occamroute.serving.keys import KeyFile
from occamroute.serving.queries import query_forms
from occamroute.serving.replicas import LIMITS, Replica, check_ledger, the_serve
from occamroute.serving.running import check_keys, listening
from occamroute.serving.settings import Settings, settings_from

__all__ = ["Started", "build", "run"]

NAME = "occamroute"
# Requests that Serve may hand to a replica: one more than it takes, so that it is the replica that refuses.
ONGOING = LIMITS.in_flight + 1
# Seconds that Serve waits beyond those in which a replica finishes what is under way, and how often it looks.
GRACE, LOOK = 10.0, 0.5
# Seconds between Serve's questions whether a replica is well, and for an answer: three that do not come are enough.
CHECKED, CHECKED_WITHIN = 2.0, 10.0


@dataclass(frozen=True)
class Started:
    """What replicas decide by, how many keys there are, and whether it needs one to ask."""

    snapshot: Snapshot
    keys: int
    open: bool


def build(arguments: Mapping[str, Any]) -> Any:
    """The application for ``serve run occamroute.serving.cluster:build`` or a configuration file of Serve.

    ``arguments`` are the options of ``occamroute serve`` by name: profile, ledger, pool, budget, window, arrivals,
    state, host, extractor, combine, queries, seed, replicas and open. ``host`` is that of Serve's ``http_options``.
    """
    settings = settings_from(arguments).placed()
    _refuse_password(settings.ledger or "")
    return _application(settings, checked(settings).snapshot)


def checked(settings: Settings) -> Started:
    """What replicas will decide by; whatever they would refuse to start with is refused here, in one sentence."""
    the_serve()  # where it is missing or too old, that is said before anything is done
    if settings.replicas < 1:
        raise InvalidInputError(f"replicas must be 1 or more, got {settings.replicas}.")
    check_ledger(settings.ledger, settings.replicas)
    key_file = KeyFile(settings.state)
    check_keys(key_file, settings.host, open_to_admin=settings.open)
    profile, pool = settings.read()
    options = settings.options()
    if pool is not None:
        query_forms(options.queries, pool)
    with Router(
        profile, budget=options.budget, window=options.window, arrivals=options.arrivals, ledger=str(options.ledger),
        extractor=options.extractor, combine=options.combine, seed=options.seed,
    ) as router:  # fmt: skip
        keys = len(key_file.keys)
        return Started(router.snapshot, keys, is_loopback(settings.host) and not keys)


def run(settings: Settings, port: int, *, told: Callable[[str, Started], None] = lambda *_: None) -> None:
    """Serve until the process is told to stop, on the cluster of ``RAY_ADDRESS`` or on a Ray of this machine alone.

    ``told`` hears the address once requests are answered.
    """
    settings = settings.placed()
    started = checked(settings)
    # What Ray says goes to standard output: there it would be taken for the service's own words.
    own_words = sys.stdout
    taken = _free_port(settings.host, port)
    with _told_to_stop() as stopped, redirect_stdout(sys.stderr):
        connection = connect(None, max(thread_count(), settings.replicas))
        try:
            check_ledger(settings.ledger, settings.replicas)  # now it is known how many machines there are
            with _deployed(settings, started, taken) as handle:
                host = f"[{settings.host}]" if ":" in settings.host else settings.host
                with redirect_stdout(own_words):
                    told(f"http://{host}:{taken}", started)
                stopped.wait()
                _give_notice(handle, stopped)
        finally:
            with _unheard():
                connection.leave()


@contextmanager
def _deployed(settings: Settings, started: Started, port: int) -> Iterator[Any]:
    """The application, answering; afterwards what is under way is finished, and nothing of Serve is left."""
    serve = the_serve()
    # What Serve says besides is for those who build with it; its own files have everything.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    there = serve.status()
    if there.proxies or there.applications:
        raise InvalidInputError(
            "Ray Serve runs on this cluster already: deploy occamroute.serving.cluster:build there, or stop it first."
        )
    application = _application(settings, started.snapshot)
    try:
        try:
            serve.start(http_options={"host": settings.host, "port": port})
            handle = serve.run(application, name=NAME)
        except (RuntimeError, the_ray().exceptions.RayError) as error:
            raise ExecutorError("ray", f"Serve did not start ({_reason(serve, error)})") from None
        yield handle
        serve.delete(NAME)
    finally:
        with _unheard():
            serve.shutdown()


def _unheard() -> redirect_stdout[io.StringIO]:
    """Ray tells everybody that parts of it are no longer there, which is what was wanted."""
    return redirect_stdout(io.StringIO())


def _reason(serve: Any, error: Exception) -> str:
    """Why replicas do not start, in the last words of what Serve tells of them."""
    application = serve.status().applications.get(NAME)
    told = [] if application is None else [one.message for one in application.deployments.values()]
    lines = [line for text in (str(error), *told) for line in text.splitlines() if line.strip()]
    reasons = [line.partition("Error: ")[2] for line in lines if "Error: " in line] or lines[:1]
    return str(reasons[-1]).strip().rstrip(".")


def _application(settings: Settings, snapshot: Snapshot) -> Any:
    serve = the_serve()
    deployment = serve.deployment(
        serve.ingress()(Replica),
        name=NAME,
        num_replicas=settings.replicas,
        max_ongoing_requests=ONGOING,
        health_check_period_s=CHECKED,
        health_check_timeout_s=CHECKED_WITHIN,
        graceful_shutdown_timeout_s=LIMITS.patience + GRACE,
        graceful_shutdown_wait_loop_s=LOOK,
        logging_config={"enable_access_log": False},  # addresses of requests are nobody's business
    )
    return deployment.bind(settings, snapshot.guide.state(), __version__)


def _give_notice(handle: Any, stopped: threading.Event) -> None:
    """Nobody sends more to a service that says it is not ready; a second signal waits for nothing."""
    stopped.clear()
    with suppress(Exception):  # whatever a replica in trouble says, the end goes on
        handle.broadcast("give_notice").results(timeout_s=5.0, return_exceptions=True)
    stopped.wait(LIMITS.notice)


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """An event that is set when the process is told to stop."""
    stopped = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stopped.set()) for number in signals]
    try:
        yield stopped
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _free_port(host: str, port: int) -> int:
    """A port on which nobody listens now: Serve would try for a long time."""
    with listening(host, port) as listener:
        return int(listener.getsockname()[1])


def _refuse_password(ledger: str) -> None:
    """Serve writes the arguments of an application into its logs."""
    place = urlsplit(ledger)
    if place.password or "password" in parse_qs(place.query):
        raise InvalidInputError(
            "the ledger's address must hold no password here, since Ray logs it: every machine can have it in "
            "PGPASSWORD, or in a file .pgpass."
        )
