"""Settings: what a service is made of, in plain words that can be sent to another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from occamroute._money import money_from_text
from occamroute.datasets import DATASETS, profile_at
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.pool import Pool
from occamroute.pool_files.reading import read_pool
from occamroute.profiles import Profile
from occamroute.serving.running import Options

__all__ = ["Settings", "settings_from"]

FILE = "sqlite:///"


@dataclass(frozen=True)
class Settings:
    """See ``occamroute serve --help``.

    ``host`` is where somebody listens: what is not told counts as an address that others reach, so that keys are
    needed.
    """

    profile: str
    ledger: str | None = field(default=None, repr=False)  # which may hold a password
    pool: str | None = None
    budget: str | None = None
    window: str | None = None
    arrivals: float | None = None
    state: str = "occamroute-state"
    host: str = "0.0.0.0"  # noqa: S104  # nothing listens here
    extractor: str = "auto"
    combine: bool = True
    queries: str | None = None
    seed: int = 0
    replicas: int = 2
    open: bool = False

    def options(self, **more: Any) -> Options:
        """The options of one service."""
        given = {
            "budget": None if self.budget is None else money_from_text(self.budget),
            "window": self.window or ("day" if self.budget is not None else None),
            "arrivals": self.arrivals,
            "ledger": self.ledger,
            "state": Path(self.state),
            "host": self.host,
            "extractor": None if self.extractor == "none" else self.extractor,
            "combine": self.combine,
            "queries": None if self.queries is None else [form.strip() for form in self.queries.split(",")],
            "seed": self.seed,
            "open": self.open,
        }
        return Options(**{**given, **more})

    def read(self) -> tuple[Profile, Pool | None]:
        """The profile and the pool."""
        profile = profile_at(self.profile)
        return profile, None if self.pool is None else read_pool(self.pool, classes=profile.classes)

    def placed(self) -> Settings:
        """The same, with files as every process of this machine finds them, wherever it was started."""
        shipped = self.profile in DATASETS and not Path(self.profile).exists()
        ledger = self.ledger
        if ledger is not None and ledger.startswith(FILE):
            ledger = f"{FILE}{Path(ledger.removeprefix(FILE)).absolute()}"
        return replace(
            self,
            profile=self.profile if shipped else str(Path(self.profile).absolute()),
            pool=None if self.pool is None else str(Path(self.pool).absolute()),
            ledger=ledger,
            state=str(Path(self.state).absolute()),
        )


def settings_from(arguments: Mapping[str, Any]) -> Settings:
    """Settings by name, as a file gives them or a command line, where everything is a text."""
    known = {one.name: str(one.type) for one in fields(Settings)}
    for name in arguments:
        if name not in known:
            raise UnknownNameError("argument", name, tuple(known))
    if "profile" not in arguments:
        raise InvalidInputError("the argument profile is needed: a saved profile, or the name of a shipped one.")
    return Settings(
        **{name: _typed(name, known[name], value) for name, value in arguments.items() if value is not None}
    )


def _typed(name: str, kind: str, value: Any) -> Any:
    try:
        if kind.startswith("bool"):
            return {"true": True, "false": False}[str(value).lower()]
        if kind.startswith("int"):
            return int(str(value))
        return float(value) if kind.startswith("float") else str(value)
    except (KeyError, ValueError):
        words = {"b": "true or false", "i": "a whole number", "f": "a number"}[kind[0]]
        raise InvalidInputError(f"{name} must be {words}, got {value!r:.60}.") from None
