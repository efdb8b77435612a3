"""occamroute verify: check a plan's certificate."""

from __future__ import annotations

from typing import Annotated

import typer

from occamroute.cli._inputs import Json
from occamroute.cli._screen import nearness, print_json, print_table

__all__ = ["verify"]


def verify(
    plan: Annotated[str, typer.Argument(help="A plan that `occamroute plan --out` wrote: .parquet, or a folder.")],
    as_json: Json = False,
) -> None:
    """Recompute a plan's cost, value and bound from its problem, choice and price alone."""
    from occamroute.errors import StorageError
    from occamroute.planning.plans import Plan
    from occamroute.planning.plans import verify as check
    from occamroute.planning.stored_plans import StoredPlan
    from occamroute.storage import load

    found = load(plan)
    if not isinstance(found, Plan | StoredPlan):
        raise StorageError(plan, f"it holds a {type(found).__name__.lower()}, a plan is needed")
    check(found)
    if as_json:
        print_json({"verified": True, **found.summary()})
        return
    print_table(
        f"the certificate holds: {len(found):,} queries cost {found.planned_cost:.12g} of {float(found.budget):.12g}, "
        f"{nearness(found.gap)}"
    )
