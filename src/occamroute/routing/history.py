"""History: every snapshot that decisions were made by, in a folder: the first profile, and each change to it."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from occamroute.errors import InvalidInputError, StorageError
from occamroute.profiles import Profile
from occamroute.routing.changes import Change, change_from
from occamroute.routing.guides import Guide
from occamroute.routing.snapshots import Snapshot, cost_list
from occamroute.storage import load, read, save, write

__all__ = ["History"]

LINES = "history.jsonl"
# Snapshots that are kept ready: an old receipt is seldom read alone.
KEPT = 3


class History:
    """The snapshots of a router, each the one before with one change; the same again in any process.

    Files are written before the line that names them, so that whatever stops the process, every line can be read.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lines: dict[str, dict[str, Any]] = {}
        for line in self._read():
            self._lines.pop(line["id"], None)  # one that came back is the last again
            self._lines[line["id"]] = line
        self._ready: OrderedDict[str, Snapshot] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, snapshot: str) -> bool:
        return snapshot in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def latest(self, fingerprint: str, asked: dict[str, Any]) -> tuple[Profile, Guide | None] | None:
        """Where a router that was begun with this profile stopped; its guide if it was chosen for the same."""
        last = next(reversed(self._lines.values()), None)
        if last is None or last["begun_with"] != fingerprint:
            return None
        return self._profile(last["id"]), Guide(**last["guide"]) if last["asked"] == asked else None

    def begin(self, snapshot: Snapshot, *, begun_with: str, asked: dict[str, Any]) -> None:
        """Write down what a router begins with, unless it is the last thing written."""
        self._keep(snapshot)
        if snapshot.id in self._lines:
            line = {**self._lines[snapshot.id], "asked": asked, "begun_with": begun_with}
            if line != next(reversed(self._lines.values())):
                self._append(line)
            return
        file = f"profile-{snapshot.profile.fingerprint[:16]}.parquet"
        if not (self.folder / file).exists():
            save(snapshot.profile, self.folder / file)
        self._append(self._line(snapshot, None, file, begun_with, asked))

    def add(self, before: Snapshot, change: Change, after: Snapshot) -> None:
        """Write down a change."""
        self._keep(after)
        if after.id in self._lines:
            self._append(self._lines[after.id])
            return
        file, parts, old = f"change-{after.id}.parquet", change.parts(), self._lines[before.id]
        try:
            write(parts, self.folder / file)
        except InvalidInputError as error:
            raise self._unwritten(error) from error
        self._append(self._line(after, before.id, file, old["begun_with"], old["asked"]))

    def snapshot(self, name: str) -> Snapshot:
        """A snapshot by its id, built again if need be."""
        with self._lock:
            if name in self._ready:
                self._ready.move_to_end(name)
                return self._ready[name]
        if name not in self._lines:
            raise StorageError(self.folder / LINES, f"it knows no snapshot {name!r}")
        line = self._lines[name]
        made = Snapshot.of(self._profile(name), Guide(**line["guide"]), seed=line["seed"])
        if made.id != name:
            raise StorageError(self.folder / line["file"], "its content is not what decisions were made by")
        self._keep(made)
        return made

    def cost_list(self, name: str) -> str:
        """What ``Snapshot.cost_list`` is of the snapshot with this id, without building it."""
        return cost_list(self._profile(name), Guide(**self._lines[name]["guide"]))

    def _profile(self, name: str) -> Profile:
        chain = [self._lines[name]]
        while (parent := chain[-1]["parent"]) is not None:
            chain.append(self._lines[parent])
        profile = load(self.folder / chain[-1]["file"])
        for line in reversed(chain[:-1]):
            profile = change_from(read(self.folder / line["file"]))(profile)
        if not isinstance(profile, Profile):
            raise StorageError(self.folder / chain[-1]["file"], "it holds no profile")
        return profile

    def _keep(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._ready[snapshot.id] = snapshot
            self._ready.move_to_end(snapshot.id)
            while len(self._ready) > KEPT:
                self._ready.popitem(last=False)

    def _line(self, snapshot: Snapshot, parent: str | None, file: str, begun: str, asked: Any) -> dict[str, Any]:
        return {
            "id": snapshot.id,
            "parent": parent,
            "file": file,
            "guide": snapshot.guide.state(),
            "seed": snapshot.seed,
            "begun_with": begun,
            "asked": asked,
        }

    def _append(self, line: dict[str, Any]) -> None:
        """Write a line down; if that fails nothing of it stays, or the next one would be written onto its beginning."""
        content = (json.dumps(line) + "\n").encode()
        try:
            with (self.folder / LINES).open("ab", buffering=0) as file:
                start = file.tell()
                try:
                    left = content
                    while left:  # a disk takes what still fits, and only then says that it is full
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(start)
                    raise
        except OSError as error:
            raise self._unwritten(error) from error
        # In one step: others look up receipts meanwhile.
        others = {name: other for name, other in self._lines.items() if name != line["id"]}
        self._lines = {**others, line["id"]: line}

    def _unwritten(self, error: Exception) -> StorageError:
        return StorageError(self.folder, f"what is changed cannot be written there ({error})")

    def _read(self) -> list[dict[str, Any]]:
        path = self.folder / LINES
        if not path.exists():
            return []
        whole, end, torn = path.read_bytes().rpartition(b"\n")
        if torn:  # the process was stopped while it wrote; what it wrote about was not used yet
            os.truncate(path, len(whole + end))
        try:
            return [json.loads(line) for line in whole.split(b"\n") if line]
        except ValueError as error:
            raise StorageError(path, "a line of it is damaged") from error
