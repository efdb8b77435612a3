"""The blocks of a Markdown page, and a folder in which they run from top to bottom as a reader would run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# The line before a block may say that it does not run, and why, or that it is a file.
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
FILE = re.compile(r"`([\w/-]+\.(?:py|toml|csv))`[^`]*:$")
# What a shell has to do itself; everything else is given to the verb directly, which saves a process.
SHELL = re.compile(r"[|<>&$;`]")

# Verbs that go on until they are told to end, and what they need where nobody looks.
STAYING: dict[str, list[str]] = {"serve": [], "open": ["--no-browser"]}


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, what it is, and what the line before says of it."""

    page: str
    line: int
    language: str
    text: str
    before: str

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        found = NOT_RUN.search(self.before)
        return found[1] if found else None

    @property
    def file(self) -> str | None:
        """The file that it is shown as."""
        found = FILE.search(self.before)
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    found, before, fence, start = [], "", "", 0
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if not fence and line.startswith("```"):
            fence, start = line[3:] or "plain", number
        elif fence and line == "```":
            text = "\n".join(lines[start + 1 : number]) + "\n"
            found.append(Block(page.relative_to(ROOT).as_posix(), start + 1, fence, text, before))
            fence, before = "", ""
        elif not fence and line:
            before = line
    assert not fence, f"{page}: a block does not end"
    return found


def commands(block: Block) -> list[str]:
    """The commands of a block; those of a transcript stand after a dollar sign."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@dataclass
class Reader:
    """Somebody who does what a page says, in a folder; ``instead`` has what stands for addresses of others."""

    folder: Path
    instead: dict[str, Callable[[], str]] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    services: list[subprocess.Popen[str]] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)

    def read(self, block: Block) -> None:
        """Do what one block says."""
        text = self._with_addresses(block.text)
        if block.file is not None:
            place = self.folder / block.file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        elif block.language == "python":
            source = "\n" * block.line + text  # so that a failure names the page's line
            exec(compile(source, str(ROOT / block.page), "exec"), self.names)  # noqa: S102  # the project's own page
        elif block.language in ("sh", "console"):
            for command in commands(Block(block.page, block.line, block.language, text, "")):
                self.do(command)
        elif block.language == "toml":
            tomllib.loads(text)

    def do(self, command: str) -> None:
        """Run one command."""
        words = shlex.split(command, comments=True)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            os.environ[name] = value
        elif words[0].startswith("scripts/"):
            assert os.access(ROOT / words[0], os.X_OK)  # they set up what these tests run in
        elif words[:2] == ["pip", "install"]:
            check_extras(words[2:])
        elif words[0] == "occamroute" and words[1] in STAYING:
            self._start([word for word in words[1:] if word != "&"])
        elif words[0] == "occamroute" and not SHELL.search(command.partition(" #")[0]):
            run_verb(words[1:])
        else:
            self._shell(command)

    def _start(self, words: list[str]) -> None:
        """Start what stays there, on a free port; where the page says its address, that one is asked."""
        asked = words[words.index("--port") + 1] if "--port" in words else "8080"
        command = [sys.executable, "-m", "occamroute", *words, *STAYING[words[0]], "--port", "0", "--json"]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.services.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{command} did not start"
        self.addresses[f"localhost:{asked}"] = json.loads(line)["address"].removeprefix("http://")

    def _shell(self, command: str) -> None:
        for shown, real in self.addresses.items():
            command = command.replace(shown, real)
        command = re.sub(r"\bcurl\b", "curl --fail-with-body --silent --show-error", command)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def _with_addresses(self, text: str) -> str:
        for shown, real in self.instead.items():
            if shown in text:
                text = text.replace(shown, real())
        return text

    def close(self) -> None:
        """End the services."""
        for process in self.services:
            process.terminate()
        for process in self.services:
            # A service ends in order; a page that is looked at has nothing to put in order.
            assert process.wait(30) in ((0,) if "serve" in process.args else (0, -signal.SIGTERM))  # type: ignore[operator]
            assert process.stdout is not None
            process.stdout.close()


def run_verb(words: list[str]) -> None:
    """A verb in this process; whatever is wrong is raised."""
    from occamroute.cli._app import app

    status = app(words, standalone_mode=False)
    assert status in (None, 0), f"occamroute {' '.join(words)}: exit code {status}"


def check_extras(wanted: list[str]) -> None:
    """What a page installs of this package is there to be installed."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in wanted:
        extras = re.fullmatch(r"(?:\.|occamroute)\[(.+)\]", word)
        assert set(extras[1].split(",") if extras else ()) <= set(about["optional-dependencies"]), word
