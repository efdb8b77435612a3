"""occamroute pool: look at a pool file before anything is bought."""

from __future__ import annotations

from typing import Annotated

import typer

from occamroute.cli._inputs import Json
from occamroute.cli._screen import print_json, print_table, table

__all__ = ["pool"]

pool = typer.Typer(help="Check a pool file, or print its JSON schema.", no_args_is_help=True)


@pool.command()
def check(
    file: Annotated[str, typer.Argument(help="The pool file.")] = "occamroute.toml",
    as_json: Json = False,
) -> None:
    """Load every classifier and extractor of a pool file; nothing is called."""
    from occamroute.pool_files.reading import read_pool

    found = read_pool(file)
    members = [("classifier", one) for one in found.classifiers] + [("extractor", one) for one in found.extractors]
    if as_json:
        rows = [{"role": role, "name": one.name, "cost": str(one.cost)} for role, one in members]
        print_json({"classes": list(found.classes), "members": rows})
        return
    listed = table("<name", "<role", "<cost of a query")
    for role, one in members:
        listed.add_row(one.name, role, str(one.cost))
    print_table(listed)
    print_table(
        f"{len(found.classes)} classes: {', '.join(found.classes[:12])}{' …' if len(found.classes) > 12 else ''}"
    )


@pool.command()
def schema() -> None:
    """Print the JSON schema of pool files, for editors."""
    from occamroute.pool_files.schema import pool_schema

    print_json(pool_schema())
