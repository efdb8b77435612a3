"""What a service's dashboard shows: its router explored on held-out rows, and how things stand now."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from occamroute.errors import OccamError
from occamroute.planning.estimates import Estimate, charged
from occamroute.reporting.dashboard.making import OPTIMISTIC, REACHED, first_budget
from occamroute.reporting.dashboard.subjects import Subject, Wish
from occamroute.reporting.exploring.exploration import Exploration
from occamroute.reporting.exploring.surroundings import Surroundings, label_of
from occamroute.routing.decisions import Decision
from occamroute.routing.prices import HIGHEST
from occamroute.routing.snapshots import Snapshot
from occamroute.serving.bodies import DECISION, written
from occamroute.serving.problems import ProblemError
from occamroute.serving.service import Service
from occamroute.serving.sharing import drift, others

__all__ = ["decision", "live", "service_subject"]

# Decisions that are listed.
LATEST = 20
# Rows that are explored where no features are looked at, so that all have the same estimates.
ROWS = 5_000
HELD_OUT = (
    "The queries are labelled rows of the router's own profile, each estimated from the other folds alone; the budget "
    "is for all of them together, and at first what the service may now spend on as many queries."
)


def service_subject(service: Service) -> Subject:
    """The router as it decides now, to be explored."""
    snapshot = service.router.snapshot
    exploration = explore_snapshot(snapshot)
    exploration.scene()
    return Subject(
        "service", "Router", exploration, budget=_pace(service, exploration), live=True,
        notes=(HELD_OUT, OPTIMISTIC, REACHED),
    )  # fmt: skip


def explore_snapshot(snapshot: Snapshot) -> Exploration:
    """Held-out rows of a snapshot as queries: their estimates come from the other folds, and the truth is known."""
    profile, guide, held = snapshot.profile, snapshot.guide, snapshot.held
    success, truth, rows = held.success, held.truth, held.rows
    if guide.extractor is None:
        rows = np.arange(min(ROWS, len(profile)))
        success, truth = np.tile(held.success, (len(rows), 1)), profile.success[rows]
    costs, overhead = charged(profile, guide.extractor, None, len(rows))
    estimate = Estimate(
        names=snapshot.names,
        costs=costs,
        success=success,
        sigma=np.zeros(len(snapshot.names)),
        overhead=overhead,
        ids=tuple(profile.ids[row] for row in rows),
        made_from={"profile": profile.fingerprint, "extractor": guide.extractor},
    )
    features = None if guide.extractor is None else profile.feature_sets[guide.extractor][rows]
    return Exploration(
        estimate,
        truth=truth,
        labels=None if profile.labels is None else [label_of(profile, row) for row in rows.tolist()],
        surroundings=None if features is None
        else Surroundings(profile, str(guide.extractor), features, guide.metric, own=rows),
        seed=snapshot.seed,
        about={
            "labelled rows": len(profile),
            "profile": profile.fingerprint,
            "snapshot": snapshot.id,
            "features of": guide.extractor or "none: they are not looked at",
            "metric": guide.metric,
            "sample size": guide.sample_size,
            "belief": guide.belief,
            "chosen because": guide.why or "it was prescribed",
            "seed": snapshot.seed,
        },
    )  # fmt: skip


def live(service: Service) -> dict[str, Any]:
    """How the budget stands, what has drifted, and the latest decisions."""
    router = service.router
    balance = router.ledger.balance()
    terms = router.wallet.terms(router.snapshot)
    amounts = {name: written(getattr(balance, name)) for name in ("cap", "held", "spent", "available")}
    receipts = router.receipts
    return {
        "budget": {
            **amounts,
            "since": balance.since,
            "until": balance.until,
            "now": balance.now,
            "remaining": terms.remaining,
            "rate": terms.available / terms.remaining,
            "price": terms.price.value if terms.price.value < HIGHEST else None,
        },
        "drift": drift(service, others(service)),
        "decisions": [] if receipts is None else receipts.search(limit=LATEST),
        "snapshot": router.snapshot.id,
    }


def decision(service: Service, wish: Wish) -> dict[str, Any]:
    """A receipt, its neighbours with what is known of them."""
    name, receipts = wish.text("id"), service.router.receipts
    receipt = receipts.get(name) if receipts is not None and re.match(DECISION, name) else None
    if receipt is None or receipts is None:
        raise ProblemError("unknown_decision")
    known = receipt["snapshot"] in receipts.history
    found = receipts.decision(name) if known else None
    around = None if found is None else _around(found)
    if found is None or around is None:
        return {**receipt, "neighbours": [], "known": []}
    pairs = zip(found.rows.tolist(), found.distances.tolist(), strict=True)
    return {
        **receipt,
        "neighbours": [around.row(row, distance) for row, distance in pairs],
        "known": around.features(0) if found.features.size else [],
    }


def _around(found: Decision) -> Surroundings | None:
    guide = found.snapshot.guide
    if guide.extractor is None:
        return None
    return Surroundings(found.snapshot.profile, guide.extractor, found.features[None], guide.metric)


def _pace(service: Service, exploration: Exploration) -> str:
    """What the service may now spend on as many queries as are explored, or most of what can be bought."""
    scene = exploration.scene()
    try:
        terms = service.router.wallet.terms(service.router.snapshot)
    except OccamError:
        return first_budget(exploration)
    rate = float(f"{terms.available / terms.remaining * len(exploration.estimate):.4g}")
    return repr(rate).removesuffix(".0") if float(scene.least) < rate < scene.most else first_budget(exploration)
