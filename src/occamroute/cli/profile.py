"""occamroute profile: run a pool over labelled queries and write down what each classifier did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamroute.cli._inputs import (
    DataPath,
    Engine,
    Json,
    LabelColumn,
    LedgerAddress,
    PoolPath,
    QueryColumn,
    check_out,
    opened_ledger,
)
from occamroute.cli._screen import print_json, print_table, progress_bar, table

if TYPE_CHECKING:
    from occamroute.profiles import Profile

__all__ = ["profile"]


def profile(
    pool: PoolPath,
    data: DataPath,
    out: Annotated[str, typer.Option(help="Where to write the profile (.parquet).")] = "profile.parquet",
    extractor: Annotated[
        list[str] | None,
        typer.Option(help="Whose features to keep; may be repeated. By default extractors and the cheapest three."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Add free features of the queries' texts.")] = False,
    query: QueryColumn = None,
    label: LabelColumn = None,
    budget: Annotated[str | None, typer.Option(help="The most that all calls may cost.")] = None,
    ledger: LedgerAddress = None,
    engine: Engine = "local",
    as_json: Json = False,
) -> None:
    """Run every classifier of a pool over labelled queries: success, features, and measured cost.

    Everything is written as it comes, to OUT.journal: the same command goes on where it was interrupted.
    """
    from occamroute._money import money_from_text
    from occamroute.data_files import read_data
    from occamroute.pool_files.reading import read_pool
    from occamroute.profiling.blocks import name_of
    from occamroute.profiling.measuring import profile as run_pool
    from occamroute.storage import save

    check_out(out, ".parquet")
    amount = None if budget is None else money_from_text(budget)
    found = read_data(data, query=query, label=label, need_labels=True)
    members = read_pool(pool, classes=sorted(set(found.labels or ())))
    journal = Path(f"{out}.journal")
    what = f"{len(members.classifiers)} classifiers on {len(found):,} queries"
    with opened_ledger(ledger) as shared, progress_bar(what) as progress:
        made = run_pool(
            members, found.queries, found.labels, extractor=extractor, ids=found.ids, groups=found.groups,
            budget=amount, journal=journal, ledger=shared, executor=engine, progress=progress, text=text,
        )  # fmt: skip
    save(made, out)
    # The profile holds all of it now. The run's name goes first: without it no worker begins a journal anew.
    for leftover in (name_of(str(journal)), journal, *journal.parent.glob(f"{journal.name}-*")):
        leftover.unlink(missing_ok=True)
    print_json(_summary(made, out)) if as_json else _show(made, out)


def _summary(made: Profile, out: str) -> dict[str, Any]:
    return {
        "profile": out,
        "fingerprint": made.fingerprint,
        "n_queries": len(made),
        "classes": list(made.classes or ()),
        "feature_sets": {name: int(features.shape[1]) for name, features in made.stored_sets.items()},
        "classifiers": [
            {"name": name, "accuracy": accuracy, "cost": cost, **made.made_from["costs"][name]}
            for name, accuracy, cost in zip(made.names, made.accuracy.tolist(), made.mean_costs.tolist(), strict=True)
        ],
        "failures": made.made_from["failures"],
    }


def _show(made: Profile, out: str) -> None:
    rows = table("<classifier", "accuracy", "cost of a query", "<how known", "seconds", "± spread", "batch", "failed")
    summary = _summary(made, out)
    for one in summary["classifiers"]:
        rows.add_row(
            one["name"], f"{100 * one['accuracy']:.2f} %", f"{one['cost']:.4g}", one["kind"],
            f"{one['median_seconds']:.2e}", f"{one['spread_seconds']:.0e}", str(one["batch_size"]),
            str(len(summary["failures"].get(one["name"], {}))),
        )  # fmt: skip
    print_table(rows)
    features = ", ".join(f"{name} ({columns})" for name, columns in summary["feature_sets"].items())
    print_table(f"{len(made):,} queries, {len(summary['classes'])} classes; features of {features}")
    print_table(f"written: {out}")
