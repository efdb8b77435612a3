"""The command line: one file for each verb, no logic."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; whatever is wrong becomes one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows only ASCII still shows what it can
            stream.reconfigure(errors="replace")

    from occamroute.cli._app import app
    from occamroute.errors import BudgetExceededError, BudgetTooSmallError, CertificateError, OccamError

    try:
        app()
    except OccamError as error:
        sys.stderr.write(f"occamroute: {error}\n")
        codes = {BudgetTooSmallError: 3, CertificateError: 4, BudgetExceededError: 4}
        sys.exit(next((code for kind, code in codes.items() if isinstance(error, kind)), 2))
    except KeyboardInterrupt:
        sys.stderr.write("occamroute: interrupted; the same command goes on where this one stopped.\n")
        sys.exit(130)
