"""occamroute serve: the router, and the pool behind it, over HTTP."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from occamroute.cli._inputs import Seed
from occamroute.cli._screen import print_json, visible

if TYPE_CHECKING:
    from occamroute.routing.snapshots import Snapshot

__all__ = ["serve"]

StateFolder = Annotated[Path, typer.Option(help="Folder for the ledger with its receipts, keys and changes.")]


def serve(
    profile: Annotated[str, typer.Option(help="A saved profile (.parquet), or the name of a shipped one: cifar10.")],
    pool: Annotated[str | None, typer.Option(help="The pool file; without one the service only routes.")] = None,
    budget: Annotated[
        str | None, typer.Option(help="What may be spent in each window; not needed where the ledger exists.")
    ] = None,
    window: Annotated[str | None, typer.Option(help="total, hour, day or month (UTC); by default day.")] = None,
    arrivals: Annotated[
        float | None, typer.Option(min=1, help="Queries expected in a window; learned where it has an end.")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="sqlite:///FILE or postgresql://…; by default a file in the state folder.")
    ] = None,
    state: StateFolder = Path("occamroute-state"),
    host: Annotated[
        str, typer.Option(help="Where to listen; others than this machine only once a key exists.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8080,
    extractor: Annotated[
        str, typer.Option(help="Whose features are looked at: a name, none, or auto (chosen on held-out rows).")
    ] = "auto",
    combine: Annotated[bool, typer.Option(help="Combine answers with the extractor's where that is better.")] = True,
    queries: Annotated[
        str | None,
        typer.Option(help="What queries may be: text, numbers, bytes, with commas; by default what is safe."),
    ] = None,
    seed: Seed = 0,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="local: this process; ray: replicas on Ray Serve, on PostgreSQL.")
    ] = "local",
    replicas: Annotated[
        int | None, typer.Option(min=1, help="How many serve side by side, with the engine ray; by default 2.")
    ] = None,
    open_to_admin: Annotated[
        bool, typer.Option("--open", help="While there is no key, allow admin operations too; on loopback only.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when requests are answered.")] = False,
) -> None:
    """Serve decisions, and with a pool answers, over HTTP; `occamroute keys` makes keys for it."""
    from occamroute._optional import require

    for module in ("uvicorn", "fastapi", "httptools"):
        require(module, extra="serve", what="a service")
    from occamroute.serving.settings import Settings

    settings = Settings(
        profile=profile, ledger=ledger, pool=pool, budget=budget, window=window, arrivals=arrivals, state=str(state),
        host=host, extractor=extractor, combine=combine, queries=queries, seed=seed, replicas=replicas or 2,
        open=open_to_admin,
    )  # fmt: skip
    say = _say_as_json if as_json else partial(_say, open_to_admin=open_to_admin)
    if engine == "ray":
        from occamroute.serving import cluster

        cluster.run(
            settings, port, told=lambda address, made: say(address, made.snapshot, made.keys, open_to_all=made.open)
        )
        return
    _refuse_replicas(replicas)
    from occamroute.serving.running import run

    options = settings.options(port=port)
    run(
        *settings.read(), options,
        told=lambda address, made: say(address, made.router.snapshot, len(made.keys), open_to_all=made.open),
    )  # fmt: skip


def _refuse_replicas(replicas: int | None) -> None:
    from occamroute.errors import InvalidInputError

    if replicas not in (None, 1):
        raise InvalidInputError("one process is one replica: for more, take the engine ray and a ledger in PostgreSQL.")


def _say_as_json(address: str, snapshot: Snapshot, keys: int, *, open_to_all: bool) -> None:
    import os

    line = {
        "address": address,
        "process": os.getpid(),
        "classifiers": list(snapshot.names),
        "guide": snapshot.guide.state(),
        "keys": keys,
    }
    print_json(line, indent=None)


def _say(address: str, snapshot: Snapshot, keys: int, *, open_to_all: bool, open_to_admin: bool) -> None:
    extractor = snapshot.guide.extractor
    looked_at = "no features" if extractor is None else f"the features of {extractor}"
    told = f"occamroute serves {len(snapshot.names)} classifiers at {address}, by {looked_at}; {address}/docs"
    typer.echo(visible(told))
    typer.echo(f"To be looked at in a browser: {address}/dashboard")
    if open_to_all:
        may = "may do everything" if open_to_admin else "may ask, but not change anything"
        typer.echo(f"There is no key: every program of this machine {may}. Make one with occamroute keys add.")
