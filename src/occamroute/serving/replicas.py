"""One replica of a service on Ray Serve: its own search thread and state folder; the ledger's database is shared."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from occamroute._version import __version__
from occamroute.errors import ExecutorError, InvalidInputError, MissingExtraError
from occamroute.executors.ray_connection import connect, the_ray
from occamroute.routing.guides import Guide
from occamroute.serving.app import Application, create_app
from occamroute.serving.limits import Limits
from occamroute.serving.running import service_from, state_lock
from occamroute.serving.settings import Settings

__all__ = ["LIMITS", "Replica", "check_ledger", "the_serve"]

# The first version of Serve with the call that tells all replicas to stop; with older ones it was not tried.
OLDEST = (2, 60)
LIMITS = Limits()
LOG = "service.log"


class Replica:
    """What Serve starts as often as there are replicas, each in a process of its own."""

    def __init__(self, settings: Settings, guide: dict[str, Any], version: str) -> None:
        if version != __version__:
            raise ExecutorError(
                "ray", f"a replica has occamroute {__version__}, and this is {version}: install the same everywhere"
            )
        serve = the_serve()
        connect(None, None)  # it is there already: a cluster of several machines that asks for no token is refused
        context = serve.get_replica_context()
        check_ledger(settings.ledger, context.world_size)
        folder, number, self._lock = _own_folder(Path(settings.state))
        _log_to(folder / LOG)
        # The ledger was begun when the application was built: whoever changed its cap since then is right.
        begun = replace(settings, budget=None, window=None)
        options = begun.options(
            state=folder,
            keys=Path(settings.state),
            guide=Guide(**guide),
            limits=LIMITS,
            replicated=True,
            name=f"{socket.gethostname()}-{number}",
        )
        self._service = service_from(*settings.read(), options)
        self._app = create_app(self._service)

    def __serve_build_asgi_app__(self) -> Application:
        """What Serve hands requests to; it begins and ends the service, too."""
        return self._app

    async def check_health(self) -> None:
        """Serve asks now and then, and starts another in the place of one whose search thread is gone."""
        if not self._service.router.alive:
            raise RuntimeError("the search thread has ended")

    async def give_notice(self) -> None:
        """Be not ready from now on, but go on to answer."""
        self._service.ready = False


def the_serve() -> Any:
    """Ray Serve, recent enough."""
    try:
        with warnings.catch_warnings():
            # Serve's own forms are declared as an older pydantic wanted it, which nobody here can help.
            warnings.simplefilter("ignore", DeprecationWarning)
            serve = import_module("ray.serve")
    except ModuleNotFoundError as error:  # Ray is not there, or came without what Serve needs
        raise MissingExtraError("a service with replicas", "ray-serve") from error
    version = the_ray().__version__
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise ExecutorError("ray", f"Ray {version} is too old to serve with, it must be {least} or newer")
    return serve


def check_ledger(address: str | None, replicas: int) -> None:
    """Refuses a ledger that not all replicas share: each would spend the whole budget."""
    scheme = (address or "").partition(":")[0]
    if scheme in ("", "memory"):
        raise InvalidInputError(
            "replicas need a ledger that outlives them and that all of them share: give one at postgresql://…."
        )
    if scheme != "sqlite":
        return  # PostgreSQL, or another package's
    machines = sum(bool(node["Alive"]) for node in the_ray().nodes()) if the_ray().is_initialized() else 1
    if replicas != 1 or machines > 1:
        what = f"{replicas} replicas" if replicas != 1 else f"a replica on one of {machines} machines"
        raise InvalidInputError(f"a ledger in SQLite does not do for {what}: give one at postgresql://….")


def _own_folder(state: Path) -> tuple[Path, int, int]:
    """The first folder of a replica that no other uses, its number and its lock.

    One that takes the place of a replica that was killed goes on with its folder.
    """
    number = 0
    while (lock := state_lock(state / f"replica-{number}")) is None:
        number += 1
    return state / f"replica-{number}", number, lock


def _log_to(file: Path) -> None:
    """Have warnings written down where the operator looks: Ray's own logs go with the cluster."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.setLevel(logging.WARNING)
    os.chmod(file, 0o600)
    logging.getLogger("occamroute").addHandler(handler)
