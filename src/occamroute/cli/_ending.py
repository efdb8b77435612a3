"""SIGTERM does what Ctrl-C does: whatever was begun is tidied up."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["end_like_an_interrupt"]

# Seconds after which it is looked again whether the process can be ended.
MOMENT = 0.02


class _AskedToEndError(KeyboardInterrupt):
    """By SIGTERM. Python ends itself by SIGINT, whatever the code, if the plain error came while it ran a string."""


def end_like_an_interrupt() -> list[int]:
    """From now on SIGTERM does what Ctrl-C does, so that whatever was begun is tidied up; the list it is noted in.

    A second one ends the process at once.
    """
    came: list[int] = []
    usual = sys.unraisablehook

    def again() -> None:
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, MOMENT)

    def unraisable(lost: UnraisableHookArgs) -> None:
        """An error that came while something was cleaned up goes nowhere: this one has to come again."""
        if came and isinstance(lost.exc_value, KeyboardInterrupt) and hasattr(signal, "setitimer"):
            again()
        else:
            usual(lost)

    def end(number: int, frame: FrameType | None) -> None:
        if _importing(frame) and hasattr(signal, "setitimer"):
            again()
            return
        came.append(number)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        listening = signal.getsignal(signal.SIGINT)
        if listening is signal.default_int_handler or not callable(listening):  # in the background nobody listens
            raise _AskedToEndError
        listening(signal.SIGINT, frame)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
        sys.unraisablehook = unraisable
    return came


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: cut short, that can leave a lock behind which all later imports wait for."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
