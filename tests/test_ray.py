"""Ray's workers give what this process gives, whatever happens to them."""

from __future__ import annotations

import collections
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

import occamroute as oc
from occamroute.executors import make_executor, ray_connection
from occamroute.executors import ray as ray_executor
from occamroute.executors.local import LocalExecutor, thread_count
from occamroute.executors.ray import RayExecutor

Profiles = tuple[oc.Profile, oc.Profile]


@pytest.fixture(scope="module")
def workers(ray_cluster: None) -> Iterator[RayExecutor]:
    """An executor whose two workers have begun."""
    with RayExecutor() as executor:
        deadline = time.monotonic() + 60
        while len({done.process for done in executor.history}) < 2 and time.monotonic() < deadline:
            assert list(executor.map(_slept, 0.1, range(8))) == list(range(8))
        executor.history.clear()
        yield executor
    assert ray.is_initialized()


def _slept(seconds: float, item: int) -> int:
    time.sleep(seconds)
    return item


def test_estimates_are_the_same_and_both_workers_make_them(workers: RayExecutor, cifar10: Profiles) -> None:
    """Every bit of success and distance; each worker does at least a quarter of the blocks, shown by task ids."""
    profile, test = cifar10
    features = np.tile(test.feature_sets["resnet8-w8"], (4, 1))
    here = oc.estimate(profile, features, estimator="sampled")
    workers.history.clear()
    there = oc.estimate(profile, features, estimator="sampled", executor=workers)
    assert here.distance is not None
    assert there.distance is not None
    assert np.array_equal(here.success, there.success)
    assert np.array_equal(here.distance, there.distance)
    assert there.success.flags.writeable == here.success.flags.writeable
    assert [done.item for done in workers.history] == list(range(20))
    assert len({done.task for done in workers.history}) == 20
    shares = collections.Counter(done.process for done in workers.history)
    assert len(shares) == 2
    assert min(shares.values()) >= 5


class Halves:
    """An estimator of the caller's own, known to no package."""

    def fit(self, features: Any, success: Any) -> Halves:
        self.mean = np.asarray(success).mean(axis=0)
        return self

    def predict(self, features: Any) -> Any:
        return np.outer(np.asarray(features)[:, 0], self.mean) / 2

    def __repr__(self) -> str:
        return "Halves()"


@pytest.mark.parametrize("estimator", ["bagged", "kernel", "mixture", oc.ContrastForest(10), Halves()], ids=repr)
def test_any_estimator_can_be_sent(
    workers: RayExecutor, cifar10_small: Profiles, cifar10: Profiles, estimator: Any
) -> None:
    """Ours and the caller's give the same bits in workers, in blocks, as here, at once."""
    profile, features = cifar10_small[0], cifar10[1].feature_sets["resnet8-w8"][:5000]
    here = oc.estimate(profile, features, estimator=estimator)
    there = oc.estimate(profile, features, estimator=estimator, executor=workers)
    assert np.array_equal(here.success, there.success)
    assert np.array_equal(here.sigma, there.sigma)


def test_many_classifiers_are_estimated_in_the_same_bits(workers: RayExecutor) -> None:
    """Forests of more classifiers than they have outputs end in linear algebra, block by block."""
    random = np.random.default_rng(0)
    features, queries = random.random((300, 5)), random.random((5000, 5))
    success = (random.random((300, 24)) < features[:, :1]).astype(float)
    profile = oc.Profile([f"c{number}" for number in range(24)], np.linspace(0.1, 1, 24), features, success)
    for estimator in (oc.ContrastForest(10), oc.Forest(10)):
        here = oc.estimate(profile, queries, estimator=estimator)
        there = oc.estimate(profile, queries, estimator=estimator, executor=workers)
        assert np.array_equal(here.success, there.success)


def test_plans_are_the_same_row_for_row(workers: RayExecutor, cifar10_small: Profiles, cifar10: Profiles) -> None:
    """What is chosen on held-out rows by workers is what is chosen here, and so is the plan."""
    profile, test = cifar10_small[0], cifar10[1].take(np.arange(5000))
    budget = 0.3 * len(test) * float(profile.mean_costs.max())
    here = oc.plan(profile, test.feature_sets, budget=budget)
    workers.history.clear()
    steps: list[tuple[int, int]] = []
    there = oc.plan(
        profile, test.feature_sets, budget=budget, executor=workers, progress=lambda *step: steps.append(step)
    )
    assert np.array_equal(here.choice, there.choice)
    assert (here.made_from, here.price, here.bound) == (there.made_from, there.price, there.bound)
    assert here.accuracy_interval == there.accuracy_interval
    assert steps[-1][0] == steps[-1][1] <= len(workers.history)


@pytest.mark.usefixtures("all_candidates")  # as Ray's workers have them
def test_comparisons_are_the_same(workers: RayExecutor, cifar10_small: Profiles) -> None:
    """Methods side by side give the report of methods one after the other, but for the seconds."""
    profile, test = (half.take(np.arange(300)) for half in cifar10_small)
    methods = {"sampled": "sampled", "random": "random", "mine": Halves(), "auto": "auto"}
    here = oc.compare(profile, test, methods=methods, budgets=[0.002, 0.004])
    there = oc.compare(profile, test, methods=methods, budgets=[0.002, 0.004], executor=workers)
    assert here.rows == there.rows
    assert {**here.about, "seconds": 0} == {**there.about, "seconds": 0}
    assert here.methods == there.methods
    drawn = {"random": "random"}
    assert (
        oc.compare(profile, test, methods=drawn, seeds=3).rows
        == oc.compare(profile, test, methods=drawn, seeds=3, executor=workers).rows
    )


class Stumbling(oc.SampledNeighbors):
    """Waits, the first time that a worker predicts, until that is killed."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.folder = folder

    def predict_with_distance(self, features: Any) -> Any:
        if self.folder is not None:
            try:
                with (self.folder / "process").open("x") as file:
                    file.write(str(os.getpid()))
                    file.flush()
                    time.sleep(60)
            except FileExistsError:
                pass
        return super().predict_with_distance(features)

    def __repr__(self) -> str:
        return "Stumbling()"


def _kill_first(folder: Path, killed: list[int]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not killed:
        time.sleep(0.02)
        found = (folder / "process").read_text() if (folder / "process").exists() else ""
        if found:
            os.kill(int(found), signal.SIGKILL)
            killed.append(int(found))


def test_killing_a_worker_changes_nothing_but_time(
    workers: RayExecutor, cifar10_small: Profiles, cifar10: Profiles, tmp_path: Path
) -> None:
    """Its block is done again by another process, and every bit is the same."""
    profile, features = cifar10_small[0], cifar10[1].feature_sets["resnet8-w8"]
    fitted = Stumbling()
    fitted.fit(profile.feature_sets["resnet8-w8"], profile.success)
    here = fitted.predict_with_distance(features)
    fitted.folder = tmp_path
    killed: list[int] = []
    watch = threading.Thread(target=_kill_first, args=(tmp_path, killed))
    watch.start()
    workers.history.clear()
    blocks = [features[start : start + 500] for start in range(0, len(features), 500)]
    there = list(workers.map(_predicted, fitted, blocks))
    watch.join()
    assert np.array_equal(here[0], np.concatenate([success for success, _ in there]))
    assert np.array_equal(here[1], np.concatenate([distance for _, distance in there]))
    assert len(killed) == 1
    assert len(workers.history) == 20
    # It was killed in its first block: all of them were done by others.
    assert {done.process for done in workers.history}.isdisjoint(killed)


def _predicted(estimator: Stumbling, features: Any) -> Any:
    return estimator.predict_with_distance(features)


def _dies(shared: None, item: int) -> int:
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def _refuses_zero(shared: None, item: object) -> None:
    if item == 0:
        raise ValueError("no zero")


def test_a_cancelled_task_leaves_a_worker_that_can_import(
    workers: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled while it imports what cannot be imported twice, as many a library cannot."""
    (tmp_path / "imported_once.py").write_text(
        "import os, time\n"
        "assert os.environ.get('IMPORTED_IN') != str(os.getpid()), 'imported twice'\n"
        "os.environ['IMPORTED_IN'] = str(os.getpid())\n"
        f"time.sleep(0 if os.getpid() == {os.getpid()} else 1.5)\n"
        "class Thing: pass\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("IMPORTED_IN", "")
    thing = importlib.import_module("imported_once").Thing()
    with pytest.raises(ValueError, match="no zero"):
        list(workers.map(_refuses_zero, None, [0, thing]))
    assert list(workers.map(_refuses_zero, None, [thing] * 4)) == [None] * 4


def test_a_worker_that_always_dies_is_one_sentence(workers: RayExecutor) -> None:
    """Beyond the retries it says what happened; the executor can be used again."""
    with RayExecutor(retries=1) as impatient, pytest.raises(oc.ExecutorError) as caught:
        list(impatient.map(_dies, None, range(3)))
    assert str(caught.value) == (
        "the executor 'ray' cannot go on: a worker died on the same item 2 times, which is as often as it is tried."
    )
    assert list(workers.map(_slept, 0.0, range(3))) == [0, 1, 2]


class OddError(Exception):
    """An error that cannot be packed."""

    def __init__(self) -> None:
        super().__init__("too odd")
        self.lock = threading.Lock()


def _fails(shared: None, item: int) -> int:
    if item == 2:
        raise oc.BudgetTooSmallError(1, 2)
    if item == 4:
        raise OddError
    return item


def test_errors_arrive_as_they_were_raised(workers: RayExecutor) -> None:
    """The first error ends the work, with its type, facts and sentence, and where it was raised as a note."""
    results = workers.map(_fails, None, range(10))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(oc.BudgetTooSmallError, match="takes at least 2") as caught:
        next(results)
    assert caught.value.needed == 2
    assert "_fails" in caught.value.__notes__[0]
    with pytest.raises(oc.ExecutorError, match="OddError: too odd"):
        list(workers.map(_fails, None, [4]))


def test_what_cannot_be_sent_is_one_sentence(workers: RayExecutor) -> None:
    """A lock has no meaning elsewhere, shared or as an item."""
    for shared, item in ((threading.Lock(), 1), (0.0, threading.Lock())):
        with pytest.raises(oc.InvalidInputError, match="cannot be sent to Ray's workers") as caught:
            list(workers.map(_slept, shared, [item]))  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


def _seen(shared: Any, item: int) -> Any:
    from threadpoolctl import threadpool_info

    blas = {pool["num_threads"] for pool in threadpool_info()}
    return id(shared), shared.flags.writeable, thread_count(), thread_count(4), blas


def test_workers_unpack_once_and_keep_to_one_thread(workers: RayExecutor) -> None:
    """What is shared lies in one place for all tasks of a process, mapped; no task uses more than its core."""
    workers.history.clear()
    seen = list(workers.map(_seen, np.zeros(1_000_000), range(12)))
    places = {(done.process, place[0]) for done, place in zip(workers.history, seen, strict=True)}
    assert len(places) == len({done.process for done in workers.history})
    assert {fact[1:4] for fact in seen} == {(False, 1, 1)}
    assert all(fact[4] <= {1} for fact in seen)


def _noted(folder: Path, item: int) -> int:
    (folder / str(item)).touch()
    time.sleep(0.1)
    return item


def test_an_interrupt_ends_the_tasks(workers: RayExecutor, tmp_path: Path) -> None:
    """After Ctrl-C nothing new begins, and the executor can be used again."""
    threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        for _ in workers.map(_noted, tmp_path, count()):
            pass
    time.sleep(0.3)
    begun = len(list(tmp_path.iterdir()))
    time.sleep(0.3)
    assert 0 < begun == len(list(tmp_path.iterdir()))
    assert list(workers.map(_slept, 0.0, range(3))) == [0, 1, 2]


def test_no_more_items_are_taken_than_can_be_under_way(workers: RayExecutor) -> None:
    """Items are drawn as results are, so that a stream of blocks is never held."""
    drawn: list[int] = []
    results = workers.map(_slept, 0.0, (drawn.append(item) or item for item in range(100)))  # type: ignore[func-returns-value]
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(drawn) <= 3 + 4
    results.close()  # type: ignore[attr-defined]


def test_workers_of_another_version_refuse(workers: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what to do."""
    monkeypatch.setattr(ray_executor, "__version__", "0.0.1")
    with pytest.raises(oc.ExecutorError, match=r"and this is 0\.0\.1: install the same everywhere"):
        list(workers.map(_slept, 0.0, [1]))


def test_machines_other_than_this_one_need_a_token(workers: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of the cluster are looked at, whatever its address is; and workers look at what their cluster asks."""
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert list(workers.map(_slept, 0.0, [1])) == [1]
    monkeypatch.delenv("RAY_AUTH_MODE")
    with pytest.raises(oc.ExecutorError, match="set RAY_AUTH_MODE=token to use machines other than this one"):
        list(workers.map(_slept, 0.0, [1]))
    monkeypatch.setattr(ray_connection, "_shared", {})
    with pytest.raises(oc.ExecutorError, match="set RAY_AUTH_MODE=token to use machines other than this one"):
        list(RayExecutor().map(_slept, 0.0, [1]))
    with pytest.raises(oc.ExecutorError, match="the cluster asks nobody for a token"):
        ray_executor._make_ready(oc.__version__, foreign=True, paths=())
    assert ray.is_initialized()


def test_a_ray_of_the_callers_is_never_stopped(workers: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that was there before, nor one that took the place of ours."""
    with RayExecutor() as passing:
        assert list(passing.map(_slept, 0.0, [1])) == [1]
    stale = ray_connection.Connection(ray, own=True)
    assert stale.holds
    monkeypatch.setattr(stale, "_identity", ("another node", "another job"))
    stale.close()
    assert ray.is_initialized()


def test_the_command_starts_its_own_ray(cifar10: Profiles, tmp_path: Path) -> None:
    """The same plan from another process, which says nothing else and leaves no folder behind."""
    profile, test = cifar10
    features = test.feature_sets["resnet8-w8"][:3000]
    np.save(tmp_path / "features.npy", features)
    folder = tempfile.mkdtemp(prefix="oc-", dir="/tmp")
    command = [sys.executable, "-m", "occamroute", "plan", "cifar10", str(tmp_path / "features.npy")]
    command += ["--budget", "0.02", "--estimator", "sampled", "--engine", "ray", "--json"]
    ran = subprocess.run(command, env={**os.environ, "TMPDIR": folder}, capture_output=True, text=True, check=True)
    here = oc.estimate(profile, features, estimator="sampled").plan(0.02)
    assert json.loads(ran.stdout) == json.loads(json.dumps(here.summary()))
    assert ran.stderr == ""
    assert os.listdir(folder) == []
    os.rmdir(folder)


def test_a_command_that_is_asked_to_end(cifar10: Profiles, tmp_path: Path) -> None:
    """In the moment in which a worker has finished a part: one sentence, the code that shells expect, no leftovers."""
    rows = pa.table({"features": list(cifar10[1].feature_sets["resnet8-w8"])})
    (tmp_path / "queries").mkdir()
    for number in range(4):
        pq.write_table(rows, tmp_path / "queries" / f"{number}.parquet")
    folder = tempfile.mkdtemp(prefix="oc-", dir="/tmp")
    command = [sys.executable, "-m", "occamroute", "plan", "cifar10", "queries", "--budget", "1", "--engine", "ray"]
    command += ["--estimator", "sampled", "--out", "plan"]
    environment = {**os.environ, "TMPDIR": folder}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("plan.estimates/part-*")) and time.monotonic() < deadline:
            time.sleep(0.002)
        process.terminate()
        _, said = process.communicate()
    assert (process.returncode, said) == (
        128 + signal.SIGTERM, "occamroute: interrupted; the same command goes on where this one stopped.\n"
    )  # fmt: skip
    assert not list(tmp_path.rglob(".*"))
    assert os.listdir(folder) == []
    os.rmdir(folder)


def test_executors_have_names() -> None:
    """One of ours by name, the caller's own as it is, and a sentence for anything else."""
    assert isinstance(make_executor(), LocalExecutor)
    assert isinstance(make_executor("ray"), RayExecutor)
    own = LocalExecutor(1)
    assert make_executor(own) is own
    for wrong in ("spark", 3):
        with pytest.raises(oc.UnknownNameError, match="use one of local, ray"):
            make_executor(wrong)  # type: ignore[arg-type]
    with pytest.raises(oc.InvalidInputError, match="retries must be a whole number"):
        RayExecutor(retries=-1)
