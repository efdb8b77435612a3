"""A pool on its way to another process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from occamroute.pool import Pool
from occamroute.pool_files.reading import read_pool

__all__ = ["PoolAt"]


@dataclass(frozen=True, eq=False)
class PoolAt:
    """A pool to be used elsewhere: read there again from its file, or sent as it is.

    What is read there finds its keys in the environment there: none is sent.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    file: str | None = None
    sent: Pool | None = None

    @classmethod
    def of(cls, pool: Pool, workers: Any) -> PoolAt:
        """The pool for tasks of an executor (None: of this process)."""
        by_file = None if getattr(workers, "name", "local") == "local" else pool.file
        return cls(pool.names, pool.classes, by_file, None if by_file else pool)

    @cached_property
    def pool(self) -> Pool:
        """The pool."""
        if self.sent is not None:
            return self.sent
        return read_pool(str(self.file), classes=self.classes).select(self.names)

    def __getstate__(self) -> dict[str, Any]:
        # Models that were loaded here are not sent along.
        return {name: value for name, value in self.__dict__.items() if name != "pool"}
