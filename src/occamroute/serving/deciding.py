"""Decider: queries of an event loop, decided on the router's search thread."""

from __future__ import annotations

import asyncio
from typing import Any

from occamroute._arrays import FloatArray
from occamroute.routing.batching import Asked
from occamroute.routing.decisions import Decision
from occamroute.routing.router import Router

__all__ = ["Decider"]


class _Waiting(Asked):
    """A query, and the future that waits for its decision."""

    __slots__ = ("future",)
    future: asyncio.Future[Decision]


class Decider:
    """Hands queries over to the router; the loop is woken once for each batch, however many were in it."""

    def __init__(self, router: Router, loop: asyncio.AbstractEventLoop) -> None:
        self._router, self._loop = router, loop
        self._home = self._decided  # the same object each time: those of one batch are told together

    def decide(self, features: FloatArray, client: str | None, name: str | None = None) -> asyncio.Future[Decision]:
        """The decision to come, for features (1, d); ``name`` is its id, by default a new one."""
        waiting = _Waiting(features, client, home=self._home, id=name)
        waiting.future = self._loop.create_future()
        self._router.submit(waiting)
        return waiting.future

    def _decided(self, pairs: list[tuple[Asked, Any]]) -> None:
        self._loop.call_soon_threadsafe(_told, pairs)


def _told(pairs: list[tuple[Any, Any]]) -> None:
    for waiting, result in pairs:
        if waiting.future.done():
            continue  # nobody waits any longer
        if isinstance(result, BaseException):
            waiting.future.set_exception(result)
        else:
            waiting.future.set_result(result)
