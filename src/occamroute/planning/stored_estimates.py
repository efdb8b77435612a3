"""Estimates larger than memory: made a block of queries at a time, kept as a folder of parts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from occamroute._arrays import FloatArray, seed_number
from occamroute._money import Amount, from_text
from occamroute.errors import InvalidInputError, StorageError, UnknownNameError
from occamroute.executors import Executor, opened
from occamroute.executors.local import LocalExecutor, thread_count
from occamroute.folders import QueryFolder
from occamroute.knapsack import Objective
from occamroute.knapsack.passes import Rules
from occamroute.knapsack.streamed import LargeProblem, state
from occamroute.part_folders import MOST_NUMBERS, MOST_ROWS, InParts, PartFolder, content_key, part_rows_for
from occamroute.planning.estimates import Estimate, checked_penalty, predicted
from occamroute.planning.frontiers import Frontier
from occamroute.planning.stored_frontiers import frontier_of
from occamroute.planning.stored_plans import StoredPlan, make_stored_plan
from occamroute.tables import feature_columns, features_in, ids_in

__all__ = ["EstimateOrder", "StoredBlocks", "StoredEstimate", "feature_sets_of", "store_estimate"]

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
PREFIX = "success:"
# Bytes of features that are looked at together; a worker needs a few times as much.
AT_ONCE = 1 << 24
# What the threads of this process may need for blocks under way, and how often each of its numbers is there.
MEMORY = 1 << 30
COPIES, FEATURE_COPIES = 8, 6
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, eq=False, repr=False)
class StoredEstimate(InParts):
    """How likely each of M classifiers is right on each of N queries, as in ``Estimate``, in a folder of parts.

    ``costs`` (M,) are the same for all queries. ``block(number)`` is an ordinary ``Estimate`` of consecutive queries.
    """

    parts: PartFolder
    names: tuple[str, ...]
    costs: FloatArray
    sigma: FloatArray
    overhead: Amount
    made_from: dict[str, Any]

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> StoredEstimate:
        """The estimate that a folder holds."""
        parts, about = PartFolder.opened(path)
        try:
            made = cls(
                parts,
                tuple(about["names"]),
                np.array(about["costs"], np.float64),
                np.array(about["sigma"], np.float64),
                from_text(about["overhead"]),
                dict(about["made_from"]),
            )
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise StorageError(path, f"part of the estimate is missing or broken ({error})") from error
        if not len(made.names) == made.costs.size == made.sigma.size:
            raise StorageError(path, "it must have a cost and a spread for each classifier")
        return made

    def __repr__(self) -> str:
        return f"StoredEstimate({str(self.path)!r}, {len(self)} queries, classifiers {', '.join(self.names)})"

    @cached_property
    def columns(self) -> list[str]:
        """The columns of the parts that hold estimates, in the order of the classifiers."""
        return [f"{PREFIX}{name}" for name in self.names]

    def block(self, number: int) -> Estimate:
        """The estimate of one block of queries."""
        table = self.parts.read(number)
        distance = np.asarray(table.column("distance")) if "distance" in table.column_names else None
        return Estimate(
            self.names,
            self.costs,
            self.parts.numbers(number, self.columns),
            self.sigma,
            self.overhead,
            distance,
            tuple(table.column("id").to_pylist()),
            self.made_from,
        )

    def plan(
        self,
        budget: Amount,
        *,
        out: str | os.PathLike[str],
        objective: Objective = "mean",
        penalty: float = 0.0,
        seed: int | np.random.Generator = 0,
        executor: str | Executor | None = None,
        progress: Progress | None = None,
    ) -> StoredPlan:
        """The best plan within a budget for all queries, written to the folder ``out`` as it is decided.

        The same plan, row for row, as ``Estimate.plan`` gives for estimates that are held. The same call goes on where
        an interrupted one stopped.
        """
        problem = LargeProblem(self.costs, budget, len(self), objective, self.overhead)
        problem.require()
        knobs = {
            "objective": problem.objective,
            "penalty": checked_penalty(penalty),
            "solver": "exact",
            "plan_seed": seed_number(seed),
        }
        with opened(executor) as workers:
            blocks = self.blocks(penalty, workers)
            return make_stored_plan(blocks, problem, out=out, knobs=knobs, progress=progress)

    def frontier(
        self, *, penalty: float = 0.0, executor: str | Executor | None = None, progress: Progress | None = None
    ) -> Frontier:
        """The highest expected accuracy at every budget at once, at some thousands of supported points."""
        with opened(executor) as workers:
            blocks = self.blocks(penalty, workers, progress)
            problem = state(LargeProblem(self.costs, 0, len(self), overhead=self.overhead), blocks)
            return frontier_of(problem, Rules(problem.extra, problem.stepped, 0), blocks, blocks.taken_off)

    def blocks(self, penalty: float, executor: Executor | None, progress: Progress | None = None) -> StoredBlocks:
        """The penalised estimates, to be looked at in passes."""
        number = checked_penalty(penalty)
        executor = within_memory(executor, len(self.names))
        return StoredBlocks(self, number * self.sigma if number else None, executor, progress)


def within_memory(executor: Executor | None, columns: int) -> Executor:
    """The executor, or threads of this process: as many as have room for their blocks of that many columns."""
    if executor is not None:
        return executor
    block = COPIES * 8 * min(MOST_NUMBERS, MOST_ROWS * columns) + FEATURE_COPIES * AT_ONCE
    return LocalExecutor(max(1, min(thread_count(), MEMORY // block)))


@dataclass(frozen=True, eq=False)
class StoredBlocks:
    """The values of a problem: estimates less what a penalty takes off each classifier (M,)."""

    estimate: StoredEstimate
    taken_off: FloatArray | None
    executor: Executor
    progress: Progress | None = None

    def over(self, look: Callable[[FloatArray, int, Any], Result], about: Any) -> Iterator[Result]:
        """``look(values, start, about)`` of every block, in order."""
        shared = _Looking(self.estimate.parts, self.estimate.columns, self.taken_off, look, about)
        total = len(self.estimate.parts)
        for number, result in enumerate(self.executor.map(_look, shared, range(total))):
            if self.progress is not None:
                self.progress(number + 1, total)
            yield result


@dataclass(frozen=True)
class _Looking:
    parts: PartFolder
    columns: list[str]
    taken_off: FloatArray | None
    look: Callable[[FloatArray, int, Any], Any]
    about: Any


def _look(shared: _Looking, number: int) -> Any:
    values = shared.parts.numbers(number, shared.columns)
    if shared.taken_off is not None:
        values = values - shared.taken_off
    return shared.look(values, shared.parts.span(number)[0], shared.about)


def feature_sets_of(folder: QueryFolder) -> dict[str, list[str]] | None:
    """Which columns hold which feature set, where the files name several or one; None where they are just features."""
    found = feature_columns(folder.columns)
    return None if list(found) == ["features"] else found


@dataclass(frozen=True, eq=False)
class EstimateOrder:
    """The estimates of a fitted estimator for all queries of a folder, to be made.

    ``knobs`` are all that the estimator was made with. It looks at the extractor's features, or at the ``columns``
    named. ``key`` is what they are made from, in short: it is known before they are made.
    """

    folder: QueryFolder
    estimator: Any
    extractor: str | None
    width: int
    names: tuple[str, ...]
    costs: FloatArray
    sigma: FloatArray
    overhead: Amount
    made_from: dict[str, Any]
    knobs: Any
    columns: list[str] | None = None

    def __post_init__(self) -> None:
        if self.costs.ndim != 1:
            raise InvalidInputError("queries in a folder have one cost for each classifier, got costs by query.")

    @cached_property
    def about(self) -> dict[str, Any]:
        """What is said of them."""
        return {
            "names": list(self.names),
            "costs": self.costs.tolist(),
            "sigma": self.sigma.tolist(),
            "overhead": str(self.overhead),
            "made_from": {**self.made_from, "queries": self.folder.fingerprint},
        }

    @property
    def part_rows(self) -> int:
        """How many rows a part has."""
        return part_rows_for(len(self.folder), len(self.names))

    @cached_property
    def key(self) -> str:
        """What they are made from; where objects happen to be in memory says nothing of them."""
        facts = json.dumps([self.about, len(self.folder), self.part_rows, self.knobs], sort_keys=True, default=str)
        return content_key(ADDRESS.sub("", facts))

    def begun(self, out: str | os.PathLike[str]) -> PartFolder:
        """The folder for them, new or begun before."""
        return PartFolder.begin(out, "estimate", self.key, len(self.folder), self.part_rows)

    def made(
        self, out: str | os.PathLike[str], executor: Executor | None, progress: Progress | None = None
    ) -> StoredEstimate:
        """The estimates in the folder ``out``: all of them, or those that are missing there."""
        parts = self.begun(out)
        if not parts.complete:
            columns = _columns_of(self.folder, self.extractor) if self.columns is None else self.columns
            shared = _Estimating(self.folder, columns, self.width, self.estimator, self.names, parts)
            with parts.alone():
                _estimate_all(shared, within_memory(executor, len(self.names)), progress)
                parts.finish(self.about)
        return StoredEstimate.from_folder(out)


def store_estimate(
    folder: QueryFolder,
    estimator: Any,
    *,
    out: str | os.PathLike[str],
    executor: Executor | None,
    progress: Progress | None = None,
    **order: Any,
) -> StoredEstimate:
    """What an order of these terms makes."""
    return EstimateOrder(folder, estimator, **order).made(out, executor, progress)


@dataclass(frozen=True)
class _Estimating:
    folder: QueryFolder
    columns: list[str]
    width: int
    estimator: Any
    names: tuple[str, ...]
    parts: PartFolder


def _columns_of(folder: QueryFolder, extractor: str | None) -> list[str]:
    if extractor is None:
        return []
    sets = feature_columns(folder.columns)
    if list(sets) == ["features"]:
        return sets["features"]
    if extractor not in sets:
        raise UnknownNameError("extractor", extractor, sets)
    return sets[extractor]


def _estimate_all(shared: _Estimating, executor: Executor, progress: Progress | None) -> None:
    """Parts in runs: a row group is gone through at most a few times, and is shared out all the same."""
    total = len(shared.parts)
    run = max(1, shared.folder.largest_group // (4 * shared.parts.part_rows))
    runs = [range(first, min(first + run, total)) for first in range(0, total, run)]
    done = 0
    for number in executor.map(_estimate_run, shared, runs):
        done += number
        if progress is not None:
            progress(done, total)


def _estimate_run(shared: _Estimating, numbers: range) -> int:
    """Estimate and write the parts of a run that are not there yet."""
    missing = [number for number in numbers if shared.parts.kept(number) is None]
    if missing:
        _estimate_missing(shared, missing)
    return len(numbers)


def _estimate_missing(shared: _Estimating, missing: list[int]) -> None:
    parts = shared.parts
    columns = [*(["id"] if "id" in shared.folder.columns else []), *shared.columns] or [shared.folder.columns[0]]
    rows = max(256, min(parts.part_rows, AT_ONCE // (8 * max(1, shared.width))))
    start, stop = parts.span(missing[0])[0], parts.span(missing[-1])[1]
    found: list[tuple[Any, FloatArray, FloatArray | None]] = []
    for first, table in _within_parts(shared.folder.batches(start, stop, columns, rows), parts.part_rows):
        number = first // parts.part_rows
        if number not in missing:
            continue
        found.append((ids_in(table, first, shared.folder.place(first)), *_estimated(shared, table, first)))
        if first + table.num_rows == parts.span(number)[1]:
            _write(shared, number, found)
            found = []


def _within_parts(batches: Iterable[tuple[int, Any]], part_rows: int) -> Iterator[tuple[int, Any]]:
    """The same tables, cut where parts begin."""
    for first, table in batches:
        while table.num_rows:
            here = min(table.num_rows, part_rows - first % part_rows)
            yield first, table.slice(0, here)
            first, table = first + here, table.slice(here)


def _estimated(shared: _Estimating, table: Any, first: int) -> tuple[FloatArray, FloatArray | None]:
    if not shared.columns:
        return predicted(shared.estimator, np.empty((table.num_rows, 0)), len(shared.names))
    features = features_in(table, shared.columns, shared.folder.place(first))
    if features.shape[1] != shared.width:
        raise InvalidInputError(f"features must have the profile's {shared.width} columns, got {features.shape[1]}.")
    return predicted(shared.estimator, features, len(shared.names))


def _write(shared: _Estimating, number: int, found: list[tuple[Any, FloatArray, FloatArray | None]]) -> None:
    ids, success, distance = zip(*found, strict=True)
    table = np.concatenate(success)
    columns: dict[str, Any] = {"id": ids}
    columns |= {f"{PREFIX}{name}": table[:, place] for place, name in enumerate(shared.names)}
    if distance[0] is not None:
        columns["distance"] = np.concatenate(distance)
    shared.parts.write(number, columns)
