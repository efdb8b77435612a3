"""The router at its edges: budgets to the last digit, odd arguments, restarts, forks, texts that no file can hold."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute.ledger.memory import MemoryLedger
from occamroute.routing.batching import Asked
from occamroute.routing.history import LINES, History
from occamroute.routing.receipts import Receipts

GUIDE = oc.Guide("features", "linf", 5)


def profile_of(costs: Any = (0.1, 1.0), rows: int = 60, **options: Any) -> oc.Profile:
    """Four features that say nothing, and classifiers that are right by chance."""
    random = np.random.default_rng(0)
    names = tuple(f"model {number}" for number in range(len(costs)))
    given = {
        "features": random.random((rows, 4)),
        "success": (random.random((rows, len(costs))) < 0.7).astype(float),
        "ids": [f"row {number}" for number in range(rows)],
    }
    return oc.Profile(names=names, costs=costs, **{**given, **options})


def router_of(profile: oc.Profile, **options: Any) -> oc.Router:
    return oc.Router(profile, **{"budget": 10, "arrivals": 20, "guide": GUIDE, **options})


@pytest.fixture
def router(tmp_path: Path) -> Iterator[oc.Router]:
    with router_of(profile_of(), state=tmp_path) as made:
        yield made


@pytest.mark.parametrize(("cost", "queries"), [(0.1, 3), (0.7, 9), (0.3, 11), (1e-9, 7), (123456.789, 5)])
def test_a_budget_pays_for_all_that_it_is_exactly_enough_for(cost: float, queries: int) -> None:
    """Three calls at 0.1 fit a budget of 0.3, though floats would say that 0.0999… is left for the third."""
    budget = Decimal(str(cost)) * queries
    with router_of(profile_of((cost,)), budget=budget, arrivals=queries) as router:
        for _ in range(queries):
            router.settle(router.route(np.zeros(4)))
        assert router.ledger.balance().available == 0
        with pytest.raises(oc.BudgetExceededError):
            router.route(np.zeros(4))


@pytest.mark.parametrize(("cost", "needed"), [(1 / 3, "20.00000004"), (1e-12, "0.00000006")])
def test_what_a_ledger_rounds_up_is_needed(cost: float, needed: str) -> None:
    """A budget that is enough only before amounts become whole billionths is refused, not a query in the end."""
    with pytest.raises(oc.BudgetTooSmallError) as caught:
        router_of(profile_of((cost,)), budget=Decimal(str(cost)) * 60, arrivals=60)
    assert caught.value.args[1] == Decimal(needed)
    with router_of(profile_of((cost,)), budget=Decimal(needed), arrivals=60) as router:
        for _ in range(60):
            router.settle(router.route(np.zeros(4)))


@pytest.mark.parametrize("costs", [(0.0, 1.0), (0.1, 1.0), (1.0, 2.0), (0.3, 0.7)])
@pytest.mark.parametrize("queries", [1, 2, 7, 30])
def test_whoever_can_pay_the_best_for_all_gets_it(costs: tuple[float, float], queries: int) -> None:
    """A number that was promised is not doubted: nothing is kept back for others, however few come."""
    profile = profile_of(costs, success=np.tile([0.0, 1.0], (60, 1)))
    budget = queries * Decimal(str(costs[1]))
    with router_of(profile, budget=budget, arrivals=queries) as router:
        for _ in range(queries):
            decision = router.route(np.zeros(4))
            router.settle(decision)
            assert decision.name == "model 1"
        assert router.ledger.balance().available == 0


@pytest.mark.parametrize("paid", [False, True])
def test_features_and_answer_to_the_last_digit(paid: bool) -> None:
    """0.1 for features and 0.2 for the answer are 0.3, whichever is paid first."""
    profile = profile_of((0.2,), features={"hash": np.random.default_rng(1).random((60, 4))}, extractor_cost=0.1)
    with router_of(profile, budget=0.3, arrivals=1, guide=oc.Guide("hash", "linf", 5)) as router:
        if paid:
            router.wallet.settle(router.wallet.hold(0.1, key="features"), 0.1)
        (decision,) = router.look(np.zeros((1, 4)), paid=paid)
        router.wallet.hold(Decimal("0.2") if paid else decision.cost, key="answer")
        assert router.ledger.balance().available == 0


def test_a_ledger_that_exists_knows_its_window(tmp_path: Path) -> None:
    """Neither budget nor window need be said again."""
    address = f"sqlite:///{tmp_path}/spend.db"
    oc.open_ledger(address, cap=50, window="day").close()
    said: list[dict[str, Any]] = [{}, {"budget": 50}, {"window": "day"}]
    for options in said:
        with oc.Router(profile_of(), ledger=address, guide=GUIDE, **options) as router:
            balance = router.ledger.balance()
            assert balance.cap == 50
            assert balance.until is not None
    with pytest.raises(oc.InvalidInputError, match="a window of day"):
        oc.Router(profile_of(), ledger=address, window="total", arrivals=5)


def test_what_will_not_do_is_not_written_down(tmp_path: Path) -> None:
    """After a refusal the same ledger can be begun with a better budget, number or window."""
    address = f"sqlite:///{tmp_path}/spend.db"
    features = {"model 0": np.random.default_rng(1).random((60, 4)), "dear": np.random.default_rng(2).random((60, 3))}
    profile = profile_of(features=features, extractor_cost={"dear": 0.9})
    with pytest.raises(oc.BudgetTooSmallError) as caught:
        oc.Router(profile, budget=0.01, arrivals=1000, ledger=address)
    assert caught.value.needed == 100
    with pytest.raises(oc.BudgetTooSmallError, match=r"a budget of 500 is too small.*at least 1000") as caught:
        oc.Router(profile, budget=500, arrivals=1000, extractor="dear", ledger=address)
    assert caught.value.needed == 1000
    for window in (None, "total"):
        with pytest.raises(oc.InvalidInputError, match="needs arrivals"):
            oc.Router(profile, budget=10, window=window, ledger=address)
    with oc.Router(profile, budget=20, window="day", extractor="dear", ledger=address) as router:
        # Nobody knows how many come, so that nobody can say that it is too dear.
        assert router.extractor == "dear"
        assert router.ledger.balance().cap == 20


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (np.zeros((2, 4)), "those of one query, got 2 rows"),
        (np.zeros((0, 4)), "those of one query, got 0 rows"),
        ([[1.0, 2.0], [3.0]], "ragged"),
        (np.zeros((1, 1, 4)), "of shape"),
        ("four", "must hold numbers"),
        (None, "are needed"),
    ],
)
def test_features_that_are_none(router: oc.Router, features: Any, words: str) -> None:
    """One sentence for whoever asks, and nobody else suffers for it."""
    with pytest.raises(oc.InvalidInputError, match=words):
        router.route(features)


def test_arguments_that_are_none(router: oc.Router) -> None:
    """Numbers of any library are numbers; the rest is refused in a sentence."""
    before = router.snapshot
    router_of(profile_of(), arrivals=np.int64(20)).close()
    with pytest.raises(oc.InvalidInputError, match="client must be a text"):
        router.route(np.zeros(4), client="\ud800", hold=False)
    with pytest.raises(oc.InvalidInputError, match=r"by row or by id, got 1\.0"):
        router.add_classifier("new", 1, 1.0)
    with pytest.raises(oc.InvalidInputError, match=r"probabilities of 'new' must be known.*60 are missing"):
        router.add_classifier("new", 1, np.ones(60), probabilities={"other row": [1.0]})
    with pytest.raises(oc.InvalidInputError, match="ragged"):
        router.add_classifier("new", 1, np.ones(60), probabilities=[[1.0], *[[0.5, 0.5]] * 59])
    with pytest.raises(oc.InvalidInputError, match="single string"):
        router.remove_rows("row 1")
    with pytest.raises(oc.UnknownNameError, match=r"unknown decision 'x'\.$"):
        router.feedback("x", success=1.0)
    assert router.snapshot is before


def test_all_rows_can_be_labelled_anew(router: oc.Router, tmp_path: Path) -> None:
    """Every row is replaced, and old receipts still replay."""
    old = router.route(np.zeros(4)).id
    router.add_rows(profile_of(success=np.ones((60, 2))))
    new = router.route(np.zeros(4))
    assert len(router.snapshot.profile) == 60
    np.testing.assert_allclose(new.success, 1.0)
    router.close()
    receipts = Receipts(tmp_path / "receipts.db", History(tmp_path))
    assert receipts.replay(old)
    assert receipts.replay(new.id)
    receipts.close()


def test_a_classifier_comes_back_without_probabilities(small: oc.Profile) -> None:
    """Shares that were chosen with its probabilities cannot be counted with any more: its own success is."""
    with router_of(small, guide=oc.Guide("small", "linf", 5, shares={"large": 0.4})) as router:
        router.remove_classifier("large")
        after = router.add_classifier("large", 1.0, np.ones(60))
        assert router.route(small.feature_sets["small"][0]).success[1] == pytest.approx(1.0)
        assert after.names == ("small", "large")


def test_another_budget_keeps_rows_and_classifiers(tmp_path: Path) -> None:
    """After a restart with another cap only the choice of features is made anew."""
    address = f"sqlite:///{tmp_path}/spend.db"
    options: dict[str, Any] = {"arrivals": 20, "ledger": address, "state": tmp_path, "extractor": "features"}
    with oc.Router(profile_of(), budget=10, **options) as router:
        router.remove_rows(["row 1"])
        router.add_classifier("new", 0.5, np.ones(59))
        decision = router.route(np.zeros(4))
        router.ledger.change_cap(15)
    for _ in range(2):
        with oc.Router(profile_of(), **options) as again:
            assert again.names == ("model 0", "model 1", "new")
            assert len(again.snapshot.profile) == 59
            assert again.receipts is not None
            assert again.receipts.replay(decision.id)


def test_a_change_that_was_undone_stays_undone(tmp_path: Path) -> None:
    """Back at an earlier state, also after a restart."""
    with router_of(profile_of(), state=tmp_path) as router:
        router.add_classifier("new", 0.5, np.ones(60))
        router.remove_classifier("new")
        last = router.snapshot.id
    for _ in range(2):
        with router_of(profile_of(), state=tmp_path) as again:
            assert again.names == ("model 0", "model 1")
            assert again.snapshot.id == last


def test_a_line_that_was_being_written(tmp_path: Path) -> None:
    """Stopped in the middle of a letter: the lines before it stay, and so do separators within them."""
    guide = oc.Guide("features", "linf", 5, why="größer\u2028als")
    with router_of(profile_of(), guide=guide, state=tmp_path) as router:
        decision = router.route(np.zeros(4))
    whole = (tmp_path / LINES).read_bytes()
    (tmp_path / LINES).write_bytes(whole + '{"id": "ö'.encode()[:-1])
    with router_of(profile_of(), guide=guide, state=tmp_path) as again:
        assert again.receipts is not None
        assert again.receipts.replay(decision.id)
    assert (tmp_path / LINES).read_bytes() == whole


def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """A change that cannot be written down is not made, and leaves nothing behind that would spoil the next one."""
    resource = pytest.importorskip("resource")
    with router_of(profile_of(), state=tmp_path):
        pass
    lines = tmp_path / LINES
    lines.write_bytes(200 * lines.read_bytes())  # much larger than the file of a change
    with router_of(profile_of(), state=tmp_path) as router:
        decision = router.route(np.zeros(4))
        assert router.receipts is not None
        router.receipts.flush()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (lines.stat().st_size + 20, limits[1]))
        try:
            with pytest.raises(oc.StorageError, match="cannot be written there"):
                router.add_classifier("new", 0.5, np.ones(60))
            with pytest.raises(oc.StorageError, match="cannot be written there"):
                router.remove_rows(["row 1"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (router.names, len(router.snapshot.profile)) == (("model 0", "model 1"), 60)
        router.remove_rows(["row 0"])
    with router_of(profile_of(), state=tmp_path) as again:
        assert again.receipts is not None
        assert again.receipts.replay(decision.id)
        assert len(again.snapshot.profile) == 59


def test_texts_that_no_file_can_hold(router: oc.Router) -> None:
    """What somebody's model says is kept as well as it can be; the writer lives on."""
    assert router.receipts is not None
    (strange,) = router.look(np.zeros((1, 4)), clients=["\ud800"])
    decision = router.route(np.zeros(4))
    router.receipts.outcome(decision.id, {"error": "a lone \udce4", "label": "ä"})
    assert router.receipts.get(strange.id) is None
    assert router.receipts.dropped == 1
    found = router.receipts.get(decision.id)
    assert found is not None
    assert found["outcome"] == {"error": "a lone \udce4", "label": "ä"}


def test_a_home_that_is_gone(router: oc.Router) -> None:
    """Whoever asked cannot be told: the search thread lives on."""
    called = threading.Event()

    def home(_: Any) -> None:
        called.set()
        raise RuntimeError("the event loop is closed")

    router.submit(Asked(np.zeros((1, 4)), home=home))
    assert called.wait(10.0)
    assert router.route(np.zeros(4), hold=False).name in router.names


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told() -> None:
    """It has no search thread: it hears so instead of waiting for ever."""
    with router_of(profile_of()) as router:
        child = os.fork()
        if child == 0:
            try:
                router.route(np.zeros(4))
            except oc.OccamError as error:
                os._exit(7 if "in each process" in str(error) else 8)
            os._exit(9)
        deadline = time.monotonic() + 20.0
        status = (0, 0)
        while status[0] == 0 and time.monotonic() < deadline:
            status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if status[0] == 0:
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status[1]) == 7


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_router_closes_the_ledger_that_it_opened(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Also where it could not begin; asked again, the ledger is opened again."""
    address = f"sqlite:///{tmp_path}/spend.db"
    if kind == "postgresql":
        address = str(request.getfixturevalue("database"))
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        router = router_of(profile_of(), ledger=address)
        router.settle(router.route(np.zeros(4)))
        router.close()
        assert kind == "postgresql" or os.listdir(tmp_path) == ["spend.db"]
        with pytest.raises(oc.UnknownNameError, match="extractor"):
            oc.Router(profile_of(), budget=10, arrivals=20, ledger=address, extractor="nobody")
        assert kind == "postgresql" or os.listdir(tmp_path) == ["spend.db"]
        del router
        gc.collect()
    assert [str(warning.message) for warning in told if "still open" in str(warning.message)] == []
    ledger = oc.open_ledger(address)
    assert ledger.balance().spent > 0
    ledger.close()


def test_holds_of_the_last_window_say_nothing_of_this_one() -> None:
    """Calls under way at midnight are settled below their holds: that is no sign that others spend what is spent."""

    class Simulated(MemoryLedger):
        moment = 20_000 * 86_400_000

        def _time(self) -> int:
            return self.moment

    ledger = Simulated("memory:", 1000, window="day")
    with router_of(profile_of(), budget=None, ledger=ledger, arrivals=1000) as router:
        wallet = router.wallet
        wallet.refresh_seconds = 0.0
        late = [wallet.hold(3, key=f"late {number}") for number in range(30)]
        ledger.moment += 86_400_000
        for _ in range(30):
            router.settle(router.route(np.zeros(4)))
        expected = router.route(np.zeros(4), hold=False).terms.remaining
        for hold in late:
            wallet.settle(hold, 0.5)
            wallet.release(hold)
        assert router.route(np.zeros(4), hold=False).terms.remaining == expected
        made = router.route(np.zeros(4))
        for _ in range(20):
            router.settle(made, 0)  # only the first time counts
        assert router.route(np.zeros(4), hold=False).terms.remaining == pytest.approx(expected, rel=0.1)


def test_a_disk_that_fails_keeps_nobody_waiting(router: oc.Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts that cannot be written wait; old ones are read meanwhile, and all are there when it is mended."""
    assert router.receipts is not None
    old = router.route(np.zeros(4))
    router.receipts.flush()
    database = router.receipts._database
    write = database.write

    def full(_: Any) -> None:
        raise oc.StorageError(database.place, "the disk is full")

    monkeypatch.setattr(database, "write", full)
    new = router.route(np.zeros(4))
    begun = time.monotonic()
    assert router.receipts.get(old.id) is not None
    assert router.receipts.get(new.id) is None
    assert time.monotonic() - begun < 5.0
    monkeypatch.setattr(database, "write", write)
    deadline = time.monotonic() + 20.0
    while router.receipts.get(new.id) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert router.receipts.replay(new.id)


def test_a_budget_beside_an_open_ledger_is_its_cap() -> None:
    """Another one is refused, as it would have been ignored; the same one is fine."""
    ledger = oc.open_ledger("memory:", cap=50)
    with pytest.raises(oc.InvalidInputError, match="the ledger's cap is 50, not 500"):
        oc.Router(profile_of(), budget=500, arrivals=100, ledger=ledger)
    with oc.Router(profile_of(), budget=50, arrivals=100, ledger=ledger) as router:
        assert router.ledger is ledger
