"""How a service stands at this moment, as numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from occamroute._version import __version__
from occamroute.errors import OccamError
from occamroute.serving.metrics import Family, Sample
from occamroute.serving.service import Service

__all__ = ["gauges"]


def gauges(service: Service) -> list[Family]:
    """Each family with its samples; what cannot be had now is left out. It asks the ledger, so not for the loop."""
    router = service.router
    snapshot = router.snapshot
    found: list[Family] = [
        _gauge("build_info", "The version that runs.", [({"version": __version__}, 1.0)]),
        _one("ready", "Whether requests may be sent.", float(service.ready)),
        _one("requests_in_flight", "Requests under way.", service.in_flight),
        _one("profile_rows", "Labelled rows that decisions rest on.", len(snapshot.profile)),
        _one("classifiers", "Classifiers to choose from.", len(snapshot.names)),
        _gauge(
            "classifier_barred", "Classifiers that are not chosen now.",
            [({"classifier": name}, float(name in router.barred)) for name in snapshot.names],
        ),
        _gauge(
            "drift_evidence", "Evidence that queries or answers have changed; 100 raises an alarm.",
            [({"what": what}, value) for what, value in router.evidence().items()],
        ),
        _one("alarms", "Alarms that are up.", len(router.alarms())),
    ]  # fmt: skip
    if router.receipts is not None:
        found.append(
            _one("receipts_dropped", "Receipts lost since the disk could not keep up.", router.receipts.dropped)
        )
    return [*found, *_money(service)]


def _money(service: Service) -> Iterable[Family]:
    with suppress(OccamError):
        balance = service.router.ledger.balance()
        amounts = ("cap", "held", "spent", "available")
        yield _gauge(
            "budget", "The budget of the present window.",
            [({"what": name}, float(getattr(balance, name))) for name in amounts],
        )  # fmt: skip
        terms = service.router.wallet.terms(service.router.snapshot)
        yield _one("price", "What a unit of money is worth in right answers.", terms.price.value)


def _gauge(name: str, words: str, samples: list[Sample]) -> Family:
    return f"occamroute_{name}", "gauge", words, samples


def _one(name: str, words: str, value: float) -> Family:
    return _gauge(name, words, [({}, value)])
