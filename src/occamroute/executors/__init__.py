"""Where blocks of queries are worked on: the threads of this process, or the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from occamroute.errors import UnknownNameError

__all__ = ["EXECUTORS", "Executor", "Task", "make_executor", "opened"]

EXECUTORS = ("local", "ray")

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")
Task = Callable[[Shared, Item], Result]


class Executor(Protocol):
    """Runs one task over many items.

    A task may run more than once on the same item, when a worker died or is believed to have died: it must do the
    same each time, and what it writes must be whole or not there.
    """

    name: str

    def map(self, task: Task[Shared, Item, Result], shared: Shared, items: Iterable[Item]) -> Iterator[Result]:
        """``task(shared, item)`` of every item, in the order of the items, a few of them side by side.

        ``task`` is a function of a module; ``shared`` is sent to every machine once. The first error ends the work.
        """
        ...


def make_executor(executor: str | Executor | None = None) -> Executor:
    """An executor by its name ("local" where none is said), or the caller's own."""
    from occamroute.executors.local import LocalExecutor

    if executor is None or executor == "local":
        return LocalExecutor()
    if executor == "ray":
        from occamroute.executors.ray import RayExecutor

        return RayExecutor()
    if isinstance(executor, str) or not callable(getattr(executor, "map", None)):
        raise UnknownNameError("executor", executor, EXECUTORS)
    return executor


@contextmanager
def opened(executor: str | Executor | None) -> Iterator[Executor | None]:
    """What a call sends its blocks to, or None where it does without: on this machine's threads it needs no blocks.

    An executor that was given by name is made for the call, and let go of at its end.
    """
    if executor is None or executor == "local":
        yield None
        return
    made = make_executor(executor)
    try:
        yield made
    finally:
        if made is not executor and hasattr(made, "close"):
            made.close()
