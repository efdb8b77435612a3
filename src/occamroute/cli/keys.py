"""occamroute keys: who may ask a service for what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occamroute.cli._inputs import Json
from occamroute.cli._screen import print_json, print_table, table

__all__ = ["keys"]

keys = typer.Typer(help="Add, list and remove the keys of a service.", no_args_is_help=True)

State = Annotated[Path, typer.Option(help="The service's state folder.")]
Name = Annotated[str, typer.Argument(help="The key's name.")]
DEFAULT = Path("occamroute-state")


@keys.command()
def add(
    name: Name,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="route, classify, feedback, read or admin; several times. By default the first three."),
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Whom to book decisions and money to; by default the name.")
    ] = None,
    cap: Annotated[str | None, typer.Option(help="A cap of the client's own in each window, below the budget.")] = None,
    state: State = DEFAULT,
    as_json: Json = False,
) -> None:
    """Make a key and show it, this once: only its digest is kept."""
    from occamroute.serving.keys import KeyFile

    token = KeyFile(state).add(name, scopes=scope or ("route", "classify", "feedback"), client=client, cap=cap)
    if as_json:
        print_json({"name": name, "key": token})
    else:
        typer.echo(token)


@keys.command("list")
def list_keys(state: State = DEFAULT, as_json: Json = False) -> None:
    """Show all keys by their names; the keys themselves are not known."""
    from occamroute.serving.keys import KeyFile

    found = KeyFile(state).keys.listed
    if as_json:
        rows = [{"name": one.name, "client": one.client, "scopes": list(one.scopes), "cap": one.cap} for one in found]
        print_json({"keys": rows})
        return
    listed = table("<name", "<client", "<scopes", "own cap")
    for one in found:
        listed.add_row(one.name, one.client, ", ".join(one.scopes), one.cap or "–")
    print_table(listed)


@keys.command()
def remove(name: Name, state: State = DEFAULT) -> None:
    """Have a key count no longer; a service that runs notices within a second."""
    from occamroute.serving.keys import KeyFile

    KeyFile(state).remove(name)
