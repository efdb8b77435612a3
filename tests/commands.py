"""The command line in this process: the same words, streams and exit codes as a process of its own, without its start.

A process takes seconds to import what it needs. Tests that are about processes (signals, kills, pipes) start real ones.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from occamroute.cli import main

QUICK = Path(__file__).parent / "quick_command.py"


def run(*words: object, cwd: Path, forget: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """What ``occamroute WORDS`` does in a folder: its exit code and what it writes.

    With ``forget``, modules that it imports from the folder are gone after it, as with a process.
    """
    command = ["occamroute", *map(str, words)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    with as_in_a_process(command, cwd, environment, forget=forget), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(command, 0 if code is None else int(str(code)), *written)


@contextmanager
def as_in_a_process(
    command: list[str], cwd: Path, environment: dict[str, str] | None = None, *, forget: bool = True
) -> Iterator[None]:
    """Arguments, folder and environment are the command's; modules that it imports from the folder are forgotten."""
    known, handler = set(sys.modules), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "unraisablehook", sys.unraisablehook)
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.chdir(cwd)
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, handler)
            for name in set(sys.modules) - known if forget else ():
                place = getattr(sys.modules[name], "__file__", None)
                if place is not None and Path(place).is_relative_to(Path(cwd).resolve()):
                    del sys.modules[name]


def process(*words: object, quick: bool = True) -> list[str]:
    """The words that start the command as a process; ``quick``: with the short list of candidates."""
    return [sys.executable, *([os.fspath(QUICK)] if quick else ["-m", "occamroute"]), *map(str, words)]


def start(*words: object, cwd: Path, quick: bool = True) -> subprocess.Popen[str]:
    """The command as a process that hears interrupts, even where these tests run in the background and do not."""
    return subprocess.Popen(
        process(*words, quick=quick),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
