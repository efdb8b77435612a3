"""occamroute classify and execute: buy the answers, within a hard budget."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamroute.cli._inputs import (
    Budget,
    DataPath,
    Engine,
    Json,
    LedgerAddress,
    PoolPath,
    QueryColumn,
    Seed,
    check_out,
    load_profile,
    opened_ledger,
)
from occamroute.cli._screen import print_json, print_table, progress_bar, table

if TYPE_CHECKING:
    from occamroute.data_files import QueryFile
    from occamroute.execution.forecasting import Forecast
    from occamroute.execution.questions import FolderQuestions
    from occamroute.execution.runs import Run
    from occamroute.execution.stored_runs import StoredRun

__all__ = ["classify", "execute"]

Out = Annotated[
    str, typer.Option(help="Where to write the answers: .parquet or .csv; a folder for a folder of Parquet files.")
]
JournalPath = Annotated[
    str | None, typer.Option(help="Where to write every call, to go on after an interruption; by default OUT.journal.")
]


def classify(
    pool: PoolPath,
    profile: Annotated[str, typer.Argument(help="The pool's profile (.parquet).")],
    data: DataPath,
    budget: Budget,
    out: Out = "answers.parquet",
    query: QueryColumn = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column with true labels, if there are any: only to say how many answers are right."),
    ] = None,
    journal: JournalPath = None,
    combine: Annotated[bool, typer.Option(help="Combine answers with the extractor's where that is better.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and the bill; buy nothing.")] = False,
    ledger: LedgerAddress = None,
    engine: Engine = "local",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Extract what is worth it, plan, and buy the answers; the bill never passes the budget.

    The same command goes on where it was interrupted: no answer that came is bought twice.
    """
    from occamroute._money import money_from_text
    from occamroute.data_files import read_data
    from occamroute.errors import InvalidInputError
    from occamroute.execution.classifying import classify as buy
    from occamroute.execution.forecasting import forecast
    from occamroute.execution.questions import holds_tables
    from occamroute.pool_files.reading import read_pool

    amount = money_from_text(budget)
    if holds_tables(data):
        large = _large(data, query, out, journal)
        if dry_run:
            raise InvalidInputError("--dry-run is for queries that are in memory: try it with one of the files.")
        known = load_profile(profile)
        members = read_pool(pool, classes=known.classes)
        with opened_ledger(ledger) as shared, _stages() as progress:
            stored = buy(
                members, known, large, budget=amount, combine=combine, seed=seed, ledger=shared, executor=engine,
                out=out, progress=progress,
            )  # fmt: skip
        return _finish_stored(stored, large, label, as_json)
    if not dry_run:
        check_out(out, ".parquet", ".csv")
    found = read_data(data, query=query, label=label)
    known = load_profile(profile)
    members = read_pool(pool, classes=known.classes)
    with opened_ledger(ledger) as shared, _stages() as progress:
        if dry_run:
            expected = forecast(
                members, known, found.queries, budget=amount, ids=found.ids, combine=combine, seed=seed,
                progress=progress,
            )  # fmt: skip
        else:
            run = buy(
                members, known, found.queries, budget=amount, ids=found.ids, combine=combine, seed=seed,
                journal=journal or f"{out}.journal", ledger=shared, executor=engine, progress=progress,
            )  # fmt: skip
    if dry_run:
        print_json(expected.summary()) if as_json else _show_forecast(expected)
    else:
        _finish(run, found, out, as_json)
    return None


def execute(
    plan: Annotated[str, typer.Argument(help="A saved plan (.parquet, or a folder).")],
    pool: PoolPath,
    data: DataPath,
    out: Out = "answers.parquet",
    query: QueryColumn = None,
    label: Annotated[str | None, typer.Option(help="Column with true labels, if there are any.")] = None,
    journal: JournalPath = None,
    ledger: LedgerAddress = None,
    engine: Engine = "local",
    as_json: Json = False,
) -> None:
    """Buy what a plan asks for, within its budget; features are extracted, and paid, where it looks at them."""
    from occamroute.data_files import read_data
    from occamroute.errors import StorageError
    from occamroute.execution.classifying import execute as buy
    from occamroute.execution.questions import holds_tables
    from occamroute.planning.plans import Plan
    from occamroute.planning.stored_plans import StoredPlan
    from occamroute.pool_files.reading import read_pool
    from occamroute.storage import load

    made = load(plan)
    if not isinstance(made, Plan | StoredPlan):
        raise StorageError(plan, f"it holds a {type(made).__name__.lower()}, a plan is needed")
    if holds_tables(data):
        large = _large(data, query, out, journal)
        members = read_pool(pool)
        with opened_ledger(ledger) as shared, _stages() as progress:
            stored = buy(made, members, large, ledger=shared, executor=engine, out=out, progress=progress)
        return _finish_stored(stored, large, label, as_json)
    check_out(out, ".parquet", ".csv")
    found = read_data(data, query=query, label=label)
    members = read_pool(pool, classes=None if found.labels is None else sorted(set(found.labels)))
    with opened_ledger(ledger) as shared, _stages() as progress:
        run = buy(
            made, members, found.queries, journal=journal or f"{out}.journal", ledger=shared, executor=engine,
            progress=progress,
        )  # fmt: skip
    _finish(run, found, out, as_json)
    return None


def _large(data: str, query: str | None, out: str, journal: str | None) -> FolderQuestions:
    """The queries in a folder of Parquet files, whose answers go to a folder."""
    from occamroute.errors import InvalidInputError
    from occamroute.execution.questions import FolderQuestions
    from occamroute.folders import QueryFolder

    if Path(out).suffix.lower() in (".parquet", ".csv"):
        raise InvalidInputError(f"answers for a folder of Parquet files go to a folder: give one as --out, got {out}.")
    if journal is not None:
        raise InvalidInputError("journals of a run that is written to a folder are kept there: leave --journal out.")
    return FolderQuestions(QueryFolder(data), query)


class _stages(ExitStack):  # noqa: N801  # used like a function
    """A progress bar for each stage, one after the other."""

    def __enter__(self) -> Callable[[str, int, int], None]:  # type: ignore[override]
        super().__enter__()
        titles = {
            "choosing": "choosing on held-out rows",
            "extracting": "extracting features",
            "buying": "buying answers",
        }
        bars: dict[str, Callable[[int, int], None]] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                self.close()
                bars[stage] = self.enter_context(progress_bar(titles[stage]))
            bars[stage](done, total)

        return show


def _finish(run: Run, found: QueryFile, out: str, as_json: bool) -> None:
    import json

    import numpy as np

    from occamroute.storage import save
    from occamroute.tables import write_csv

    if out.lower().endswith(".csv"):
        columns = run.columns()
        columns["probabilities"] = np.array(
            ["" if np.isnan(row[0]) else json.dumps(row.tolist()) for row in columns["probabilities"]]
        )
        write_csv(columns, out)
    else:
        save(run, out)
    summary: dict[str, Any] = run.summary() | {"out": out}
    if found.labels is not None:
        summary["accuracy"] = float(np.mean(run.answers == np.array(found.labels)))
    print_json(summary) if as_json else _show(run, summary)


def _finish_stored(run: StoredRun, large: FolderQuestions, label: str | None, as_json: bool) -> None:
    from occamroute.data_files import label_column

    summary = run.summary()
    column = label_column(large.folder.columns, label, large.folder.path)
    if column is not None:
        right = 0
        for number in range(run.n_blocks):
            right += sum(run.block(number).answers == large.labels(*run.rows(number), column))
        summary["accuracy"] = float(right / len(run))
    print_json(summary) if as_json else _show_stored(run, summary)


def _show_stored(run: StoredRun, summary: dict[str, Any]) -> None:
    _show_usage(run.usage, len(run))
    print_table(f"answered          {run.answered:,} of {len(run):,} queries")
    print_table(f"spent             {run.spent:.12g} of {float(run.budget):.12g}")
    print_table(f"expected accuracy {100 * run.expected_accuracy:.2f} %")
    if "accuracy" in summary:
        print_table(f"accuracy          {100 * summary['accuracy']:.2f} % by the labels in the files")
    print_table(f"written           {summary['out']}")


def _show_usage(usage: dict[str, int], queries: int) -> None:
    rows = table("<classifier", "queries", "share")
    for name, count in usage.items():
        rows.add_row(name, f"{count:,}", f"{100 * count / queries:.1f} %")
    print_table(rows)


def _show(run: Run, summary: dict[str, Any]) -> None:
    _show_usage(run.usage, len(run))
    print_table(f"answered          {summary['answered']:,} of {len(run):,} queries")
    lost = f", {run.lost:.6g} of it for calls without an answer" if run.lost > 1e-9 * run.spent else ""
    print_table(f"spent             {run.spent:.12g} of {float(run.budget):.12g}{lost}")
    print_table(f"expected accuracy {100 * run.expected_accuracy:.2f} %")
    if "accuracy" in summary:
        print_table(f"accuracy          {100 * summary['accuracy']:.2f} % by the labels in the file")
    for row, reason in list(run.failures.items())[:5]:
        print_table(f"no answer         {run.ids[row]}: {reason}")
    if len(run.failures) > 5:
        print_table(f"                  … and {len(run.failures) - 5} more, each with its reason in the file")
    print_table(f"written           {summary['out']}")


def _show_forecast(expected: Forecast) -> None:
    plan = expected.plan
    _show_usage(plan.usage, len(plan))
    if expected.extractor is not None:
        print_table(f"features          {expected.extractor}, for {expected.extraction_cost:.6g}")
        print_table("                  (not bought yet: rows of the profile stand in for the queries)")
    print_table(f"answers           {expected.answers_cost:.6g}")
    print_table(f"bill              {plan.planned_cost:.6g} of {float(plan.budget) + expected.set_aside:.6g}")
    if expected.set_aside:
        print_table(f"set aside         {expected.set_aside:.6g} for the worst case of the last call")
    print_table(f"expected accuracy {100 * plan.expected_accuracy:.2f} %")
    print_table("nothing was bought")
