"""The app and its verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from occamroute._version import __version__
from occamroute.cli.budget import budget
from occamroute.cli.classify import classify, execute
from occamroute.cli.compare import compare
from occamroute.cli.demo import demo
from occamroute.cli.doctor import doctor
from occamroute.cli.frontier import frontier
from occamroute.cli.keys import keys
from occamroute.cli.open import open_file
from occamroute.cli.plan import plan
from occamroute.cli.pool import pool
from occamroute.cli.profile import profile
from occamroute.cli.report import report
from occamroute.cli.serve import serve
from occamroute.cli.study import study
from occamroute.cli.verify import verify

__all__ = ["app"]

app = typer.Typer(
    name="occamroute",
    help="Decides, query by query, which classifier should answer, so that a budget buys the most right answers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"occamroute {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Options of the command itself."""


app.command()(demo)
app.add_typer(pool, name="pool")
app.command()(profile)
app.command()(doctor)
app.command()(plan)
app.command()(frontier)
app.command()(study)
app.command()(compare)
app.command()(classify)
app.command()(execute)
app.command()(verify)
app.command()(report)
app.command()(serve)
app.command("open")(open_file)
app.add_typer(budget, name="budget")
app.add_typer(keys, name="keys")
