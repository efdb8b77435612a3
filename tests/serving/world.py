"""A small world to serve: texts that hold their own label, two classifiers, and what they did on labelled texts."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np
import uvicorn

import occamroute as oc
from occamroute.serving.app import create_app
from occamroute.serving.connections import Connection
from occamroute.serving.running import Options, listening, service_from
from occamroute.serving.service import Service

CLASSES = ("cat", "dog", "eel")


def difficulty(text: str) -> float:
    """How hard a text is, from 0 to 1, by chance but always the same."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32


def answers(texts: Iterable[str], skill: float) -> np.ndarray[Any, Any]:
    """Probabilities of a classifier that is right up to a difficulty, and the surer the farther from it."""
    rows = []
    for text in texts:
        named = re.search("#(cat|dog|eel)", text)
        truth = CLASSES.index(named[1]) if named else 0
        gap = skill - difficulty(text)
        row = np.full(3, 0.02)
        row[truth if gap > 0 else (truth + 1) % 3] = 0.4 + abs(gap)
        rows.append(row / row.sum())
    return np.array(rows).reshape(-1, 3)


def classifiers() -> list[Any]:
    return [
        oc.classifier("small", lambda texts: answers(texts, 0.6), classes=CLASSES, cost=0.1),
        oc.classifier("large", lambda texts: answers(texts, 0.95), classes=CLASSES, cost=1.0),
    ]


def text(number: int) -> str:
    return f"text {number} #{CLASSES[number % 3]}"


def pool() -> oc.Pool:
    return oc.Pool(classifiers(), CLASSES)


def profile(rows: int = 240) -> oc.Profile:
    texts = [text(number) for number in range(rows)]
    return oc.profile(pool(), texts, [CLASSES[number % 3] for number in range(rows)], extractor="small")


@contextmanager
def served(service: Service, **options: Any) -> Iterator[httpx.Client]:
    """The service behind a real server on a free port; a client that shows the key given."""
    with listening("127.0.0.1", 0) as listener:
        config = uvicorn.Config(
            create_app(service),
            http=Connection,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            assert thread.is_alive()
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with httpx.Client(base_url=address, timeout=60, **options) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def service(state: Path, *, with_pool: bool = True, **options: Any) -> Service:
    """A service of this world: 200 a day for about 1,000 queries."""
    given = {"budget": 200, "window": "day", "arrivals": 1000.0, "extractor": "small", "state": state, **options}
    return service_from(profile(), pool() if with_pool else None, Options(**given))
