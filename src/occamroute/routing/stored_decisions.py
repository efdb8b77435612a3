"""StoredDecision: a decision as a row of a table, readable where its labelled rows are not known, too."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.routing.decisions import Decision, Reason, Terms
from occamroute.routing.prices import Price
from occamroute.routing.snapshots import Snapshot

__all__ = ["COLUMNS", "TABLE", "StoredDecision", "as_row", "as_text", "from_row", "from_text"]

TABLE = "occamroute_receipts"
COLUMNS = (
    "id", "at", "client", "classifier", "choice", "reason", "snapshot", "terms", "coin", "kind", "features",
    "success", "distances", "rows", "costs", "outcome", "feedback",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class StoredDecision:
    """A decision, its ``outcome`` (the answer, the calls, what they cost) and ``feedback`` (what was true).

    ``snapshot`` is only the id of the labelled rows that decided. ``costs`` is what a query costs in all with each
    classifier, by name; it is empty where that is not known any more.
    """

    id: str
    at: float
    client: str | None
    classifier: str
    choice: int
    reason: Reason
    snapshot: str
    terms: Terms
    coin: float
    features: FloatArray
    success: FloatArray
    distances: FloatArray
    rows: IntArray
    costs: dict[str, Decimal]
    outcome: Any
    feedback: Any

    @property
    def name(self) -> str:
        """The classifier chosen."""
        return self.classifier

    @property
    def cost(self) -> Decimal | None:
        """What the query was planned to cost, features included."""
        return self.costs.get(self.classifier)

    def decision(self, snapshot: Snapshot) -> Decision:
        """The decision, by the labelled rows that decided."""
        return Decision(
            self.id, self.at, self.choice, self.reason, snapshot, self.terms, self.coin, self.features, self.success,
            self.distances, self.rows, self.client,
        )  # fmt: skip


def as_row(decision: Decision) -> tuple[Any, ...]:
    """The values of all columns but outcome and feedback."""
    return (
        decision.id, decision.at, decision.client, decision.name, decision.choice, decision.reason,
        decision.snapshot.id, _terms_text(decision.terms), decision.coin, decision.features.dtype.str,
        decision.features.tobytes(), decision.success.tobytes(), decision.distances.tobytes(), decision.rows.tobytes(),
        decision.snapshot.cost_list,
    )  # fmt: skip


def from_row(row: Sequence[Any]) -> StoredDecision:
    """A decision from the values of all columns."""
    found = dict(zip(COLUMNS, row, strict=True))
    kind = found.pop("kind")
    for name, one in (("features", kind), ("success", "<f8"), ("distances", "<f8"), ("rows", "<i8")):
        found[name] = np.frombuffer(found[name], one)
    costs = json.loads(found["costs"] or "{}")
    return StoredDecision(**{
        **found,
        "terms": _terms(found["terms"]),
        "costs": {name: Decimal(cost) for name, cost in costs.items()},
        "outcome": json.loads(found["outcome"] or "null"),
        "feedback": json.loads(found["feedback"] or "null"),
    })  # fmt: skip


def as_text(decision: Decision) -> str:
    """A decision as a text."""
    row = as_row(decision)
    return json.dumps([{"base64": b64encode(one).decode()} if isinstance(one, bytes) else one for one in row])


def from_text(text: str) -> StoredDecision:
    """A decision from a text that ``as_text`` made."""
    row = [b64decode(one["base64"]) if isinstance(one, dict) else one for one in json.loads(text)]
    return from_row([*row, None, None])


def _terms_text(terms: Terms) -> str:
    """Terms as JSON, whose numbers are read back to the last digit."""
    return json.dumps(
        [*terms.price, terms.cap, terms.available, terms.most, terms.remaining, terms.off, sorted(terms.barred)]
    )


def _terms(text: str) -> Terms:
    value, share, cap, available, most, remaining, off, barred = json.loads(text)
    return Terms(Price(value, share), cap, available, most, remaining, off, frozenset(barred))
