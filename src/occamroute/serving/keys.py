"""Keys: who may ask the service for what; a file holds their digests, never the keys themselves.

A key is 256 bits of chance. Nobody can guess one, so a single SHA-256 hides it as well as the slow hashes that
passwords need, and a request costs no more than one digest and one look into a dictionary.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from occamroute._money import Amount, money_from_text
from occamroute.errors import InvalidInputError, StorageError, UnknownNameError
from occamroute.ledger.base import rounded_down
from occamroute.storage import whole_file

__all__ = ["SCOPES", "Key", "KeyFile", "Keys", "Scope", "new_key", "read_keys"]

Scope = Literal["route", "classify", "feedback", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
PREFIX = "occam_"
FILE = "keys.json"
FORMAT = 1
LONGEST_NAME = 100


@dataclass(frozen=True)
class Key:
    """A key as it is stored: its name, its digest, what it may do, whose it is, and that client's own cap."""

    name: str
    digest: str
    scopes: tuple[Scope, ...]
    client: str
    cap: str | None = None
    made: float = 0.0

    def allows(self, scope: Scope) -> bool:
        """Whether it may do that; an admin may do everything."""
        return scope in self.scopes or "admin" in self.scopes


class Keys:
    """The keys at one time, found by the key that a request shows."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.listed = tuple(keys)
        self._by_digest = {key.digest: key for key in self.listed}

    def __len__(self) -> int:
        return len(self.listed)

    def find(self, shown: bytes) -> Key | None:
        """The key that was shown, if it is one."""
        digest = hashlib.sha256(shown).hexdigest()
        key = self._by_digest.get(digest)
        return key if key is not None and hmac.compare_digest(key.digest, digest) else None

    @property
    def caps(self) -> dict[str, str]:
        """The clients that have a cap of their own."""
        return {key.client: key.cap for key in self.listed if key.cap is not None}


class KeyFile:
    """The file of keys in a state folder, read again whenever it has changed."""

    def __init__(self, state: str | os.PathLike[str]) -> None:
        self.path = Path(state) / FILE
        self._seen: tuple[int, int, int] | None = None
        self.keys = Keys()
        self.refresh()

    def refresh(self) -> bool:
        """Look whether the file has changed; True if other keys count now."""
        seen = self._stamp()
        if seen == self._seen:
            return False
        keys = read_keys(self.path)
        self._seen, self.keys = seen, keys
        return True

    def add(
        self, name: str, *, scopes: Iterable[str], client: str | None = None, cap: Amount | str | None = None
    ) -> str:
        """A new key, which is shown this once."""
        token, key = new_key(name, scopes=scopes, client=client, cap=cap)
        with self._alone():
            listed = read_keys(self.path).listed
            self._check(key, listed)
            self._write([*listed, key])
        return token

    def remove(self, name: str) -> None:
        """Have a key count no longer."""
        listed = read_keys(self.path).listed
        if all(key.name != name for key in listed):
            raise UnknownNameError("key", name, [key.name for key in listed] or ("none: there is no key",))
        with self._alone():
            self._write([key for key in read_keys(self.path).listed if key.name != name])

    def _check(self, key: Key, listed: Iterable[Key]) -> None:
        for other in listed:
            if other.name == key.name:
                raise InvalidInputError(f"there is a key {key.name!r} already: remove it first, or take another name.")
            if other.client == key.client and other.cap != key.cap:
                raise InvalidInputError(
                    f"client {key.client!r} has a cap of {other.cap or 'none'} by key {other.name!r}, "
                    f"it cannot have {key.cap or 'none'} by another."
                )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes the file meanwhile: keys made at the same time would be lost, removed ones come back."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageError(self.path.parent, (error.strerror or "it cannot be made").lower()) from None
        try:
            with suppress(ImportError):  # Windows
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, keys: list[Key]) -> None:
        content = {"format": FORMAT, "keys": [asdict(key) for key in keys]}
        with whole_file(self.path, mode=0o600) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        self.refresh()

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            about = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(self.path, (error.strerror or "it cannot be opened").lower()) from None
        return about.st_mtime_ns, about.st_size, about.st_ino


def new_key(
    name: str, *, scopes: Iterable[str], client: str | None = None, cap: Amount | str | None = None
) -> tuple[str, Key]:
    """A key to show once, and what is kept of it."""
    wanted = tuple(scopes)
    for scope in wanted:
        if scope not in SCOPES:
            raise UnknownNameError("scope", scope, SCOPES)
    if not wanted:
        raise InvalidInputError(f"a key needs a scope: one or more of {', '.join(SCOPES)}.")
    token = PREFIX + secrets.token_urlsafe(32)
    chosen = tuple(scope for scope in SCOPES if scope in wanted)
    return token, Key(_name(name), _digest(token), chosen, _name(client or name), _cap(cap), time.time())


def read_keys(path: Path) -> Keys:
    """The keys in a file; none where there is no file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Keys()
    except OSError as error:
        raise StorageError(path, (error.strerror or "it cannot be opened").lower()) from None
    except ValueError:
        raise StorageError(path, "it is no list of keys") from None
    try:
        if content["format"] != FORMAT:
            raise StorageError(path, f"it has format {content['format']}, this version reads format {FORMAT}")
        return Keys(_stored(entry) for entry in content["keys"])
    except (TypeError, KeyError, AttributeError) as error:
        raise StorageError(path, f"it is no list of keys ({type(error).__name__})") from None


def _stored(entry: dict[str, Any]) -> Key:
    return Key(**{**entry, "scopes": tuple(entry["scopes"])})


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _name(name: str) -> str:
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise InvalidInputError(f"a key's name must be 1 to {LONGEST_NAME} printable characters, got {name!r:.120}.")
    return name


def _cap(cap: Amount | str | None) -> str | None:
    if cap is None:
        return None
    amount = money_from_text(cap, "cap") if isinstance(cap, str) else cap
    rounded_down(amount)  # which refuses what no ledger can count
    return str(amount)
