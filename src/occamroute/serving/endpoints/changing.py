"""Changing: labelled rows and classifiers come and go while the service runs, and the ledger is corrected."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from occamroute.errors import InvalidInputError, StorageError
from occamroute.ledger.base import amount_of, rounded_up
from occamroute.routing.router import Router
from occamroute.routing.snapshots import Snapshot
from occamroute.serving.admission import Caller
from occamroute.serving.bodies import (
    AddClassifierRequest,
    AddRowsRequest,
    Changed,
    CorrectAnswer,
    CorrectRequest,
    amount,
    written,
)
from occamroute.serving.operations import Operation, Uses
from occamroute.serving.parsing import parsed
from occamroute.serving.problems import ProblemError
from occamroute.serving.rows import as_profile
from occamroute.serving.service import Service

__all__ = ["OPERATIONS"]

PROBLEMS = ("conflict", "storage_unavailable")
REPLICATED = "this service has replicas that must decide alike: change the profile, and deploy the service again."


async def add_rows(service: Service, caller: Caller, content: bytes) -> bytes:
    """Add labelled rows; decisions go on with the old ones until the new are ready."""
    _check_changes(service)
    return await service.heavily(_rows_added, service.router, service.limits.rows, content)


async def remove_rows(
    service: Uses,
    id: Annotated[list[str], Query(min_length=1, max_length=1000, description="The rows' ids.")],  # noqa: A002  # the field's name
) -> Changed:
    """Leave labelled rows out from now on."""
    _check_changes(service)
    return await service.heavily(lambda: _changed(_fitting(lambda: service.router.remove_rows(id))))


async def add_classifier(service: Service, caller: Caller, content: bytes) -> bytes:
    """Add a classifier that the pool has."""
    _check_changes(service)
    return await service.heavily(_classifier_added, service, content)


async def remove_classifier(service: Uses, name: Annotated[str, Path(min_length=1, max_length=200)]) -> Changed:
    """Ask a classifier no longer."""
    _check_changes(service)
    return await service.heavily(lambda: _changed(_fitting(lambda: service.router.remove_classifier(name))))


async def correct(body: CorrectRequest, service: Uses) -> CorrectAnswer:
    """Set what was spent under a key of the ledger."""
    cost = amount_of(rounded_up(amount(body.cost)))
    await service.wait(service.router.ledger.correct, body.key, cost)
    return CorrectAnswer(key=body.key, cost=written(cost))


def _check_changes(service: Service) -> None:
    if service.replicated:
        raise ProblemError("conflict", REPLICATED)


def _rows_added(router: Router, most: int, content: bytes) -> bytes:
    rows = parsed(AddRowsRequest, content).rows
    if len(rows) > most:
        raise InvalidInputError(f"at most {most} rows can be added at a time, got {len(rows)}.")
    made = _fitting(lambda: router.add_rows(as_profile(router.snapshot.profile, rows)))
    return _changed(made).model_dump_json().encode()


def _classifier_added(service: Service, content: bytes) -> bytes:
    wish = parsed(AddClassifierRequest, content)
    if service.classes and wish.name not in service.pool_names:
        raise ProblemError("unknown_name", f"the pool has no classifier {wish.name!r:.120}.")
    made = _fitting(lambda: service.router.add_classifier(wish.name, wish.cost, wish.success))
    return _changed(made).model_dump_json().encode()


def _fitting(change: Any) -> Snapshot:
    """A change that is well put but does not fit what is there is a conflict, not an invalid request."""
    try:
        made: Snapshot = change()
    except InvalidInputError as error:
        if isinstance(error, LookupError | StorageError):
            raise
        raise ProblemError("conflict", str(error)) from None
    return made


def _changed(snapshot: Snapshot) -> Changed:
    return Changed(snapshot=snapshot.id, rows=len(snapshot.profile), classifiers=list(snapshot.names))


OPERATIONS = (
    Operation(
        "POST", "/v1/rows", "Add labelled rows, or replace those with the same ids",
        lean=add_rows, takes=AddRowsRequest, gives=Changed, scope="admin", bulk=True, family="changing",
        problems=PROBLEMS,
    ),
    Operation(
        "DELETE", "/v1/rows", "Leave labelled rows out from now on",
        endpoint=remove_rows, gives=Changed, scope="admin", family="changing",
        problems=("unknown_name", "invalid_request", *PROBLEMS),
    ),
    Operation(
        "POST", "/v1/classifiers", "Add a classifier",
        lean=add_classifier, takes=AddClassifierRequest, gives=Changed, scope="admin", bulk=True, family="changing",
        problems=("unknown_name", *PROBLEMS),
    ),
    Operation(
        "DELETE", "/v1/classifiers/{name}", "Ask a classifier no longer",
        endpoint=remove_classifier, gives=Changed, scope="admin", family="changing",
        problems=("unknown_name", "invalid_request", *PROBLEMS),
    ),
    Operation(
        "POST", "/v1/correct", "Set what was spent under a key of the ledger",
        endpoint=correct, takes=CorrectRequest, gives=CorrectAnswer, scope="admin", family="changing",
        problems=("unknown_name", "ledger_unavailable"),
    ),
)  # fmt: skip
