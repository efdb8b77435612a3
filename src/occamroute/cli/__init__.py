"""The command line: one file for each verb, no logic."""

from __future__ import annotations

import sys

__all__ = ["main"]

# Verbs that write down what they have done, and go on from there.
RESUMING = {"profile", "classify", "execute", "study"}
INTERRUPTED = 130


def main() -> None:
    """Run the command; whatever is wrong becomes one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows only ASCII still shows what it can
            stream.reconfigure(errors="replace")

    from occamroute.cli._app import app
    from occamroute.errors import BudgetExceededError, BudgetTooSmallError, CertificateError, LedgerError, OccamError

    try:
        app()
    except OccamError as error:
        sys.stderr.write(f"occamroute: {error}\n")
        codes = {BudgetTooSmallError: 3, CertificateError: 4, BudgetExceededError: 4, LedgerError: 4}
        sys.exit(next((code for kind, code in codes.items() if isinstance(error, kind)), 2))
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(INTERRUPTED)
    except SystemExit as stop:  # typer turns an interrupt into an exit without a word
        if stop.code == INTERRUPTED:
            _say_interrupted()
        raise


def _say_interrupted() -> None:
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    resumes = verb in RESUMING and "--dry-run" not in sys.argv
    advice = "; the same command goes on where this one stopped" if resumes else ""
    sys.stderr.write(f"occamroute: interrupted{advice}.\n")
