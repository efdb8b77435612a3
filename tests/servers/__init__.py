"""Real servers for tests, each a process of its own on a free port of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Server:
    """A server that runs: its port and its process."""

    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, payload: Any = None) -> Any:
        """The JSON that it replies, past any client that is being tested."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, None if payload is None else json.dumps(payload))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


@dataclass(frozen=True)
class BillingServer(Server):
    """The server of billing.py."""

    def bill(self) -> dict[str, Any]:
        """What it has billed so far; ``spent`` as a fraction."""
        found: dict[str, Any] = self.ask("GET", "/bill")
        return {**found, "spent": Fraction(found["spent"])}

    def meet(self, **faults: float) -> None:
        """From now on these faults, by their shares, and a bill of nothing; a leading "_" is for kinds like _429."""
        shares = {kind.removeprefix("_"): share for kind, share in faults.items()}
        self.ask("POST", "/control", {"faults": shares, "forget": True})


@contextmanager
def started(script: str, *options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port and the process of a script of this folder, which prints its port; killed at the end."""
    process = subprocess.Popen([sys.executable, str(HERE / script), *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def billing_server(*options: str) -> Iterator[BillingServer]:
    """A server that bills, started with these options of billing.py."""
    with started("billing.py", *options) as (port, process):
        yield BillingServer(port, process)


@contextmanager
def kserve_server() -> Iterator[Server]:
    """A server of the Open Inference Protocol: that of kserve.py."""
    with started("kserve.py") as (port, process):
        yield Server(port, process)
