"""Sharing: how all processes of a service stand, answered by any of them.

Receipts are in the ledger's database anyway. What each process has in its own memory (alarms, evidence, counters) it
writes there every few seconds; the others answer with their own state as it is now and with what the others wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from occamroute.errors import OccamError
from occamroute.serving.gauges import gauges
from occamroute.serving.metrics import Family
from occamroute.serving.records import Record
from occamroute.serving.service import Service

__all__ = ["COUNT", "drift", "metric_families", "others", "shared"]

# Seconds between two records of a process.
EVERY = 5.0
# The header that says how many processes an answer is about.
COUNT = "x-occam-replicas"


@asynccontextmanager
async def shared(service: Service) -> AsyncIterator[None]:
    """Write down how this process stands, every few seconds, and remove that at the end."""
    records = service.records
    if records is None:
        yield
        return
    telling = asyncio.create_task(_tell(service))
    try:
        yield
    finally:
        telling.cancel()
        with suppress(OccamError):
            await service.wait(records.remove)


async def _tell(service: Service) -> None:
    while True:
        with suppress(OccamError):  # a database that is away: the next time will do
            counters = list(service.metrics.families())  # on the loop, whose thread counts
            await service.wait(_write, service, counters)
        await asyncio.sleep(EVERY)


def _write(service: Service, counters: Sequence[Family]) -> None:
    if service.records is not None:
        service.records.write({**_own_drift(service), "metrics": [*counters, *gauges(service)]})


def others(service: Service) -> list[Record]:
    """What the other processes said of themselves; none where nothing is shared, or the database is away."""
    with suppress(OccamError):
        return [] if service.records is None else service.records.others()
    return []


def drift(service: Service, records: Iterable[Record]) -> dict[str, Any]:
    """All alarms, and the strongest evidence: each process watches its own queries."""
    found = [_own_drift(service), *(record.facts for record in records)]
    evidence: dict[str, float] = {}
    for one in found:
        for what, value in one["evidence"].items():
            evidence[what] = max(value, evidence.get(what, value))
    return {"alarms": [alarm for one in found for alarm in one["alarms"]], "evidence": evidence}


def _own_drift(service: Service) -> dict[str, Any]:
    router = service.router
    return {"alarms": [asdict(one) for one in router.alarms()], "evidence": router.evidence()}


def metric_families(name: str, own: Sequence[Family], records: Iterable[Record]) -> list[Family]:
    """The families of all processes, each sample with the name of its process in the label ``replica``."""
    merged: dict[str, Family] = {}
    for replica, families in ((name, own), *((record.replica, record.facts["metrics"]) for record in records)):
        for family, kind, words, samples in families:
            known = merged.setdefault(family, (family, kind, words, []))
            known[3].extend(({"replica": replica, **labels}, value) for labels, value in samples)
    return list(merged.values())
