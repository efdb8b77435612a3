"""occamroute budget: look at the budget of a ledger, change it, and delete what is old."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamroute.cli._inputs import Json
from occamroute.cli._screen import print_json, print_table

if TYPE_CHECKING:
    from occamroute.ledger import Ledger

__all__ = ["budget"]

budget = typer.Typer(help="Show and set the budget of a ledger, and compact its history.", no_args_is_help=True)

Address = Annotated[str, typer.Argument(help="The ledger: sqlite:///FILE or postgresql://…")]
Client = Annotated[str | None, typer.Option(help="Of this client only, below everybody's budget.")]


Name = Annotated[str, typer.Option(help="The ledger's name, where several share a store.")]


@budget.command()
def show(ledger: Address, client: Client = None, name: Name = "default", as_json: Json = False) -> None:
    """Show the cap, and what is held, spent and available in the present window."""
    from occamroute.ledger import open_ledger

    with closing(open_ledger(ledger, name=name)) as opened:
        _show(opened, client, as_json)


@budget.command("set")
def set_budget(
    ledger: Address,
    amount: Annotated[str, typer.Argument(help="The cap in each window; 'none' takes a client's own cap away.")],
    window: Annotated[
        str | None,
        typer.Option(help="What the cap is for: total (the default), hour, day or month; only for a new ledger."),
    ] = None,
    client: Client = None,
    name: Name = "default",
    as_json: Json = False,
) -> None:
    """Begin a ledger with a cap, or change the cap of one that exists; what is held and spent stays."""
    from occamroute._money import money_from_text
    from occamroute.errors import InvalidInputError
    from occamroute.ledger import open_ledger

    cap = None if amount == "none" and client is not None else money_from_text(amount, "amount")
    try:
        opened = open_ledger(ledger, window=window, name=name)
    except InvalidInputError as error:
        if client is not None or "a cap is needed" not in str(error):
            raise
        opened = open_ledger(ledger, cap=cap, window=window, name=name)
    with closing(opened):
        opened.change_cap(cap, client=client)
        _show(opened, client, as_json)


@budget.command()
def compact(
    ledger: Address,
    keep_days: Annotated[
        float, typer.Option(help="Keep holds that ended, and entries that were made, within this number of days.")
    ],
    name: Name = "default",
    as_json: Json = False,
) -> None:
    """Delete holds that ended long ago, and fold their entries into one for each window and client.

    Balances stay as they are, and the ledger can be used meanwhile. Holds that have not ended are kept.
    """
    from occamroute.errors import InvalidInputError
    from occamroute.ledger import open_ledger

    with closing(open_ledger(ledger, name=name)) as opened:
        if not hasattr(opened, "compact"):  # one of another package
            raise InvalidInputError(f"a ledger at {ledger.partition(':')[0]}: cannot be compacted.")
        done = opened.compact(keep_days=keep_days)
    if as_json:
        print_json({"entries": done.entries, "holds": done.holds})
    else:
        print_table(f"{'entries':<10} {done.entries} removed")
        print_table(f"{'holds':<10} {done.holds} removed")


def _show(ledger: Ledger, client: str | None, as_json: bool) -> None:
    found = ledger.balance(client)
    facts: dict[str, Any] = {name: f"{getattr(found, name):f}" for name in ("cap", "held", "spent", "available")}
    until = None if found.until is None else datetime.fromtimestamp(found.until, UTC)
    if as_json:
        print_json({"client": client, **facts, "until": None if until is None else until.isoformat()})
        return
    for name, amount in facts.items():
        print_table(f"{name:<10} {amount}")
    print_table(f"{'until':<10} {'–' if until is None else f'{until:%Y-%m-%d %H:%M} UTC'}")
