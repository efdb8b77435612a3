"""Service: a router and what stands around it while it is asked over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import numpy as np

from occamroute._money import money_from_text
from occamroute.adapters._wire import close_clients, open_clients
from occamroute.calls.threads import DaemonThreads
from occamroute.errors import BudgetExceededError, OccamError
from occamroute.ledger import Hold
from occamroute.ledger.base import amount_of, rounded_up
from occamroute.pool import Pool
from occamroute.routing.repeats import Claims, Repeats
from occamroute.routing.router import Router
from occamroute.routing.stored_decisions import StoredDecision
from occamroute.serving.admission import Caller
from occamroute.serving.deciding import Decider
from occamroute.serving.keys import SCOPES, KeyFile, Keys
from occamroute.serving.limits import Limits
from occamroute.serving.metrics import Metrics
from occamroute.serving.problems import ProblemError
from occamroute.serving.queries import FORMS, Form
from occamroute.serving.records import Records

if TYPE_CHECKING:
    from occamroute.routing.answering import Answered, Answerer

__all__ = ["Service"]

Result = TypeVar("Result")

NO_SCOPES: frozenset[str] = frozenset()
# Threads that wait for the ledger or the receipts.
WAITERS = 8
# Lease of a claim on an idempotency key, in seconds.
CLAIMED = 60.0
# Seconds that the end waits for what is under way in threads.
CLOSING = 5.0
# Seconds between two looks at the file of keys.
KEYS_EVERY = 1.0


class Service:
    """Everything that endpoints use; made by ``running.service_from``, begun and ended with the server.

    ``answerer`` and ``pool`` are None where it only routes. ``loopback`` says that only this machine can reach it,
    ``replicated`` that others decide by the same rows and classifiers, which therefore stay as they are.
    ``open_to_admin`` says that while there is no key, none is needed for admin operations either. ``records`` is what
    other processes that share the ledger say of themselves, None where there can be no other.
    """

    def __init__(
        self,
        router: Router,
        *,
        answerer: Answerer | None = None,
        pool: Pool | None = None,
        forms: frozenset[Form] = frozenset(FORMS),
        key_file: KeyFile | None = None,
        loopback: bool = True,
        limits: Limits | None = None,
        replicated: bool = False,
        open_to_admin: bool = False,
        records: Records | None = None,
    ) -> None:
        self.router, self.answerer, self.forms = router, answerer, forms
        self.classes = () if pool is None else pool.classes
        self.pool_names = () if pool is None else pool.names
        self.extracts = frozenset() if pool is None else {one.name for one in (*pool.classifiers, *pool.extractors)}
        self.key_file, self.loopback, self.replicated = key_file, loopback, replicated
        self.records = records
        self._scopes_without_keys = frozenset(SCOPES) if open_to_admin else frozenset(SCOPES) - {"admin"}
        self.limits = limits or Limits()
        self.metrics = Metrics()
        # Decisions under idempotency keys.
        self.routed, self.claims = Repeats(), Claims(router.wallet.queue, lease_seconds=CLAIMED)
        self._background: set[asyncio.Task[None]] = set()
        self.in_flight = 0
        self.ready = False
        self.decider: Decider
        self._counted: WeakSet[Answered] = WeakSet()
        self._caps: dict[str, str] = {}
        self.keys = Keys() if key_file is None else key_file.keys
        self._had_keys, self._prepared = len(self.keys) > 0, False
        self._waiters = DaemonThreads(WAITERS, name="occamroute-wait")
        self._heavy = DaemonThreads(1, name="occamroute-heavy")
        self._heavy_waiting = 0
        self._watching: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """Whether anybody on this machine may ask, since there is no key; one that goes opens nothing again."""
        return self.loopback and not self._had_keys and not len(self.keys)

    @property
    def open_scopes(self) -> frozenset[str]:
        """The scopes that need no key now."""
        return self._scopes_without_keys if self.open else NO_SCOPES

    def prepare(self) -> None:
        """Have kernels compiled, and the caps of clients in the ledger."""
        if not self._prepared:
            self._warm()
            self._set_caps(self.keys)
        self._prepared = True

    async def begin(self) -> None:
        """Be ready, on the event loop that runs."""
        loop = asyncio.get_running_loop()
        self.decider = Decider(self.router, loop)
        if self.answerer is not None:
            self.answerer.use_loop(loop)
            await open_clients()
        await self.wait(self.prepare)
        self._watching = loop.create_task(self._watch_keys())
        self.ready = True

    async def end(self) -> None:
        """Finish what is under way, and let go of everything."""
        self.ready = False
        if self._watching is not None:
            self._watching.cancel()
        for task in self._background:
            task.cancel()
        if self.answerer is not None:
            await self.answerer.aclose(seconds=CLOSING)
            await close_clients()
        self._heavy.close(0.0)  # a change that is not done was not begun: its files are written last
        self._waiters.close(CLOSING)
        await asyncio.to_thread(self.router.close)
        self.router.ledger.close()

    async def wait(self, work: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """What blocking work gives, on another thread."""
        done: Result = await asyncio.wrap_future(self._waiters.submit(partial(work, *arguments, **options)))
        return done

    async def heavily(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """What long work gives: one piece at a time, and only so many may wait."""
        if self._heavy_waiting > self.limits.waiting:
            raise ProblemError("overloaded", "too many plans or changes wait already.", retry_after=10)
        self._heavy_waiting += 1
        future = asyncio.wrap_future(self._heavy.submit(partial(work, *arguments)))
        future.add_done_callback(self._heavy_done)
        # Whoever hangs up does not stop a change that has begun.
        done: Result = await asyncio.shield(future)
        return done

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Have work done that goes on when the request that began it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def owned(self, name: str, caller: Caller) -> StoredDecision:
        """A decision by its id, if it is the caller's."""
        receipts = self.router.receipts
        found = None if receipts is None else await self.wait(receipts.find, name)
        if found is None or not caller.owns(found.client):
            raise ProblemError("unknown_decision")
        return found

    async def hold(self, name: str) -> Hold | None:
        """The ledger's hold for a decision, made by this process or another."""
        if hasattr(self.router.ledger, "find"):
            return await self.router.wallet.find(name)
        # A ledger of another package that was written for occamroute 0.1.0 cannot look up a hold.
        receipts = self.router.receipts
        found = None if receipts is None else await self.wait(receipts.find, name)
        if found is None or found.cost is None:
            return None
        return Hold(name, amount_of(rounded_up(found.cost)), client=found.client)

    def count(self, answered: Answered) -> None:
        """Count the decision behind an answer, once, however often the answer is given."""
        if answered not in self._counted:
            self._counted.add(answered)
            self.metrics.decisions[answered.decision.name, answered.decision.reason] += 1

    async def exhausted(self, error: BudgetExceededError) -> ProblemError:
        """The problem, with the seconds until there is a new budget, if there will be one."""
        seconds = None
        with suppress(OccamError):
            balance = await self.router.wallet.balance()
            seconds = None if balance.until is None else balance.until - balance.now
        return ProblemError("budget_exhausted", str(error), retry_after=seconds)

    def _heavy_done(self, _: object) -> None:
        self._heavy_waiting -= 1

    def _warm(self) -> None:
        """Have every kernel compiled before somebody waits for it: features come in both widths of floats."""
        snapshot = self.router.snapshot
        for kind in (np.float64, np.float32) if snapshot.width else ():
            for queries in (1, 2):
                snapshot.guess(np.zeros((queries, snapshot.width), kind))
        self.router.wallet.terms(snapshot)

    def _set_caps(self, keys: Keys) -> None:
        """Clients have the caps in the ledger that their keys state.

        The cap of a client whose keys are gone stays: it may have others with a service that shares the ledger.
        """
        for client, cap in keys.caps.items():
            if self._caps.get(client) != cap:
                self.router.ledger.change_cap(money_from_text(cap, "cap"), client=client)
                self._caps[client] = cap
        uncapped = {key.client for key in keys.listed} - keys.caps.keys()
        for client in uncapped & self._caps.keys():
            self.router.ledger.change_cap(None, client=client)
            del self._caps[client]

    async def _watch_keys(self) -> None:
        """Keys that are added or removed count within a second, without a restart."""
        while True:
            await asyncio.sleep(KEYS_EVERY)
            with suppress(OccamError):  # a file that is being edited by hand, or no ledger: the next look will do
                await self.wait(self._look_at_keys)

    def _look_at_keys(self) -> None:
        if self.key_file is None:
            return
        self.key_file.refresh()
        found = self.key_file.keys
        self._had_keys = self._had_keys or len(found) > 0
        if found is not self.keys:
            # What was removed counts no longer; what is new only once its client's cap is in the ledger.
            self.keys = Keys(key for key in found.listed if key.cap is None or key.client in self._caps)
            self._set_caps(found)
            self.keys = found
