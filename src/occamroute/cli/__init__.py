"""The command line: one file for each verb, no logic."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]

# Verbs that write down what they have done, and go on from there; others do so for folders, beside --out.
RESUMING = {"profile", "classify", "execute", "study"}
RESUMING_IN_PARTS = {"plan", "frontier", "compare"}
# What shells expect of a process that was interrupted, and of one that was asked to end.
INTERRUPTED = 130
ASKED_TO_END = 128 + signal.SIGTERM


def main() -> None:
    """Run the command; whatever is wrong becomes one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows only ASCII still shows what it can
            stream.reconfigure(errors="replace")

    from occamroute.cli._app import app
    from occamroute.cli._ending import end_like_an_interrupt
    from occamroute.cli._screen import visible
    from occamroute.errors import BudgetExceededError, BudgetTooSmallError, CertificateError, LedgerError, OccamError

    asked_to_end = end_like_an_interrupt()
    try:
        app()
    except OccamError as error:
        sys.stderr.write(f"occamroute: {visible(str(error))}\n")
        codes = {BudgetTooSmallError: 3, CertificateError: 4, BudgetExceededError: 4, LedgerError: 4}
        sys.exit(next((code for kind, code in codes.items() if isinstance(error, kind)), 2))
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(ASKED_TO_END if asked_to_end else INTERRUPTED)
    except SystemExit as stop:  # typer turns an interrupt into an exit without a word
        if stop.code != INTERRUPTED:
            raise
        _say_interrupted()
        sys.exit(ASKED_TO_END if asked_to_end else INTERRUPTED)


def _say_interrupted() -> None:
    words = sys.argv[1:]
    verb = next((word for word in words if not word.startswith("-")), "")
    resumes = verb in RESUMING and "--dry-run" not in words
    if verb in RESUMING_IN_PARTS and any(word.partition("=")[0] == "--out" for word in words):
        resumes = any(map(os.path.isdir, words))
    advice = "; the same command goes on where this one stopped" if resumes else ""
    sys.stderr.write(f"occamroute: interrupted{advice}.\n")
