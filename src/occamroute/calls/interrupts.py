"""Ctrl-C at the right moment: between an answer and its entry in the journal it would cost that answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["held_back"]


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Inside, Ctrl-C is raised only where the function that this gives is called; a second one is raised at once."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield lambda: None  # somebody else listens for it
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    def listen() -> None:
        if came:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield listen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    listen()
