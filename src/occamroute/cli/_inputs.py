"""What verbs share of their arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from occamroute.ledger import Ledger
    from occamroute.planning.estimates import Estimate
    from occamroute.profiles import Profile

__all__ = [
    "Budget",
    "DataPath",
    "Engine",
    "Features",
    "Json",
    "LabelColumn",
    "LedgerAddress",
    "PoolPath",
    "ProfilePath",
    "QueryColumn",
    "Seed",
    "check_out",
    "estimated",
    "load_profile",
    "opened_ledger",
]

ProfilePath = Annotated[str, typer.Argument(help="A saved profile (.parquet), or the name of a shipped one: cifar10.")]
Features = Annotated[
    str,
    typer.Argument(
        help="The queries' features: .parquet, .csv or .npy, or a folder of Parquet files, which may be larger than "
        "memory. A column 'id' names the rows."
    ),
]
Budget = Annotated[str, typer.Option(help="Total for all queries, in the unit of the costs, extraction included.")]
PoolPath = Annotated[str, typer.Argument(help="The pool file, occamroute.toml.")]
DataPath = Annotated[
    str,
    typer.Argument(
        help="The queries: .csv, .tsv, .jsonl (or .gz of these), .parquet, .npz, .npy, or a folder of images; to buy "
        "answers for, also a folder of Parquet files, which may be larger than memory."
    ),
]
QueryColumn = Annotated[
    str | None, typer.Option(help="Column with the queries; by default text, query, image or path, or all numbers.")
]
LabelColumn = Annotated[str | None, typer.Option(help="Column with the labels; by default label, class or target.")]
LedgerAddress = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="A ledger that must allow every call, too: sqlite:///FILE or postgresql://…, shared with others.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Seed = Annotated[int, typer.Option(min=0, help="For everything that draws.")]


@contextmanager
def opened_ledger(address: str | None) -> Iterator[Ledger | None]:
    """The ledger at an address, which must be there: ``occamroute budget set`` makes one."""
    from occamroute.errors import InvalidInputError
    from occamroute.ledger import open_ledger

    if address is None:
        yield None
        return
    try:
        ledger = open_ledger(address)
    except InvalidInputError as error:
        if "a cap is needed" not in str(error):
            raise
        raise InvalidInputError(
            "there is no ledger at this address yet: make one with 'occamroute budget set ADDRESS AMOUNT'."
        ) from None
    try:
        yield ledger
    finally:
        ledger.close()


def _quiet_engine(engine: str) -> str:
    """Ray tells of dead workers on the standard output, where the JSON documents are: it is asked to say nothing."""
    if engine == "ray":
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    return engine


Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(
        callback=_quiet_engine,
        help="Where the work is done: on this machine's threads, or on Ray's workers (RAY_ADDRESS).",
    ),
]


def check_out(out: str, *endings: str) -> None:
    """Raise now, and not after the work, unless a file with one of these endings can be written there."""
    from occamroute.errors import InvalidInputError
    from occamroute.storage import require_writable

    if Path(out).suffix.lower() not in endings:
        *others, last = endings
        allowed = f"{', '.join(others)} or {last}" if others else last
        raise InvalidInputError(f"--out must end in {allowed}, got {out}.")
    require_writable(out)


def load_profile(source: str) -> Profile:
    """The profile in a file, or one that ships with the package."""
    from occamroute.datasets import profile_at

    return profile_at(source)


def estimated(
    profile: Profile, queries: Any, *, estimator: str, extractor: str | None, seed: int, engine: str
) -> Estimate:
    """The estimate for queries read from a file."""
    from occamroute.planning.estimates import estimate

    return estimate(
        profile, queries.features, estimator=estimator, extractor=extractor, ids=queries.ids, seed=seed, executor=engine
    )
