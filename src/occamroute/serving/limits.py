"""Limits: how much the service takes at a time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Bytes of a body, requests under way, rows of a plan or a change, and seconds to stop in.

    ``body`` is for single queries, ``bulk`` for plans, rows and classifiers. ``waiting`` is how many plans or changes
    may wait for the one under way. When the service is told to stop it is not ready for ``notice`` seconds, so that
    nobody sends it more, and then has ``patience`` seconds to finish what is under way.
    """

    body: int = 4_000_000
    bulk: int = 32_000_000
    in_flight: int = 1_000
    rows: int = 20_000
    tensors: int = 256
    waiting: int = 4
    notice: float = 1.0
    patience: float = 20.0
