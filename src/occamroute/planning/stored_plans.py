"""Plans larger than memory: decided a block of queries at a time, written as they are decided, checked the same way."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import Amount, from_text, money
from occamroute.errors import CertificateError, StorageError
from occamroute.knapsack import Problem
from occamroute.knapsack.certificate import Certificate, Part, bound_from, check_parts
from occamroute.knapsack.passes import Decision, Rules, decide, sums_of
from occamroute.knapsack.problem import relative_gap
from occamroute.knapsack.streamed import LargeProblem, Streamed, solve_streamed, state
from occamroute.part_folders import InParts, PartFolder, content_key, named_column, positions_in
from occamroute.planning.plans import NUMBERS, Plan, plan_card

if TYPE_CHECKING:
    from occamroute.planning.stored_estimates import StoredBlocks, StoredEstimate

__all__ = ["Expecting", "StoredPlan", "begin_plan", "make_stored_plan", "verify_stored"]

Progress = Callable[[int, int], None]
PREFIX = "value:"

Expecting = Callable[["StoredPlan"], "StoredPlan"]


@dataclass(frozen=True, eq=False, repr=False)
class StoredPlan(InParts):
    """Which classifier answers which query, as in ``Plan``, in a folder of parts.

    A part has a row for each query: ``id``, ``classifier``, ``cost``, ``success``, and the ``value:`` of each
    classifier that was chosen by. ``block(number)`` is an ordinary ``Plan`` of consecutive queries.
    """

    parts: PartFolder
    names: tuple[str, ...]
    budget: Amount
    planned_cost: float
    expected_accuracy: float
    accuracy_interval: tuple[float, float] | None
    value: float
    bound: float
    gap: float
    price: float
    mean_bound: float
    status: str
    usage: dict[str, int]
    weights: FloatArray
    problem: LargeProblem
    made_from: dict[str, Any]

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> StoredPlan:
        """The plan that a folder holds."""
        parts, about = PartFolder.opened(path)
        try:
            made = cls._from_about(parts, about)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise StorageError(path, f"part of the plan is missing or broken ({error})") from error
        if not len(set(made.names)) == len(made.names) == made.problem.cost.size == made.weights.size:
            raise StorageError(path, "it must have a cost and a weight for each classifier")
        return made

    @classmethod
    def _from_about(cls, parts: PartFolder, about: Mapping[str, Any]) -> StoredPlan:
        interval = about["accuracy_interval"]
        budget = from_text(about["budget"])
        return cls(
            parts=parts,
            names=tuple(about["names"]),
            budget=budget,
            accuracy_interval=None if interval is None else (float(interval[0]), float(interval[1])),
            status=str(about["status"]),
            usage={str(name): int(count) for name, count in about["usage"].items()},
            weights=np.array(about["weights"], np.float64),
            problem=LargeProblem(
                cost=np.array(about["costs"], np.float64),
                budget=budget,
                queries=parts.rows,
                objective=about["objective"],
                overhead=from_text(about["overhead"]),
            ),
            made_from=dict(about["made_from"]),
            **{name: float(about[name]) for name in NUMBERS},
        )

    def about(self) -> dict[str, Any]:
        """What ``about.json`` says of it."""
        problem = self.problem
        return {
            **{name: getattr(self, name) for name in NUMBERS},
            "names": list(self.names),
            "costs": problem.cost.tolist(),
            "budget": str(problem.budget),
            "overhead": str(problem.overhead),
            "objective": problem.objective,
            "weights": self.weights.tolist(),
            "accuracy_interval": self.accuracy_interval,
            "status": self.status,
            "usage": self.usage,
            "made_from": self.made_from,
        }

    def __repr__(self) -> str:
        cost = f"cost {self.planned_cost:.6g} of {float(self.budget):.6g}"
        accuracy = f"expected accuracy {self.expected_accuracy:.4f}"
        return f"StoredPlan({str(self.path)!r}, {len(self)} queries, {cost}, {accuracy}, gap {self.gap:.1e})"

    def _repr_html_(self) -> str:
        return plan_card(self)

    def block(self, number: int) -> Plan:
        """The plan of one block of queries; its budget is what it costs, so that blocks cost no more than the whole."""
        table = self.parts.read(number)
        values, choice = self._values(number), self._choice(table, number)
        problem = Problem(values, self.problem.cost, 0, self.problem.objective, self.problem.overhead)
        units = self.problem.units
        paid = sum(int(units.cost[option]) * int(count) for option, count in enumerate(np.bincount(choice)))
        exactly: Fraction = (paid + units.overhead * len(choice)) * units.size
        chosen = np.take_along_axis(values, choice[:, None], axis=1)[:, 0]
        success = np.asarray(table.column("success"))
        return Plan(
            ids=tuple(table.column("id").to_pylist()),
            names=self.names,
            choice=choice,
            budget=exactly,
            planned_cost=float(exactly),
            expected_accuracy=float(success.mean()) + float(self.made_from.get("correction", 0.0)),
            accuracy_interval=None,
            success=success,
            value=float(chosen.mean()),
            bound=self.bound,
            gap=self.gap,
            price=self.price,
            mean_bound=self.mean_bound,
            status=self.status,
            weights=self.weights,
            problem=replace(problem, budget=exactly),
            made_from=self.made_from,
        )

    def counted(self) -> IntArray:
        """How many queries each classifier answers (M,), as the parts have it, whatever is said of the whole."""
        counts = np.zeros(len(self.names), np.int64)
        for number in range(len(self.parts)):
            choice = self._choice(self.parts.read(number, ["classifier"]), number)
            counts += np.bincount(choice, minlength=counts.size)
        return counts

    def summary(self) -> dict[str, Any]:
        """What is said of the plan as a whole, for JSON."""
        about: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS}
        about |= {"status": self.status, "budget": float(self.budget), "n_queries": len(self)}
        about["accuracy_interval"] = None if self.accuracy_interval is None else list(self.accuracy_interval)
        return about | {"usage": self.usage, "made_from": self.made_from, "out": str(self.path)}

    def _values(self, number: int) -> FloatArray:
        found: FloatArray = self.parts.numbers(number, [f"{PREFIX}{name}" for name in self.names])
        return found

    def _choice(self, table: Any, number: int) -> IntArray:
        found = positions_in(table.column("classifier"), self.names)
        if found is None:
            raise StorageError(self.parts.file(number), "its column 'classifier' names one that the plan does not")
        return found

    def checked_parts(self) -> Iterator[Part]:
        """All rows in parts, to be verified."""
        for number in range(len(self.parts)):
            table = self.parts.read(number, ["classifier"])
            yield Part(self._values(number), self.problem.unit_costs, self._choice(table, number))


@dataclass(frozen=True)
class _Writing:
    estimate: StoredEstimate
    taken_off: FloatArray | None
    parts: PartFolder
    rules: Rules
    decision: Decision
    unit_floats: FloatArray  # what each classifier costs, overhead included


def begin_plan(
    out: str | os.PathLike[str], estimate: str, problem: LargeProblem, knobs: dict[str, Any], part_rows: int
) -> PartFolder:
    """The folder for a plan from the estimate of that fingerprint, new or begun before; refused where it is another."""
    key = content_key([estimate, str(money(problem.budget)), knobs])
    return PartFolder.begin(out, "plan", key, problem.queries, part_rows)


def make_stored_plan(
    blocks: StoredBlocks,
    problem: LargeProblem,
    *,
    out: str | os.PathLike[str],
    knobs: dict[str, Any],
    progress: Progress | None,
    expecting: Expecting | None = None,
    asked: str | None = None,
) -> StoredPlan:
    """The plan that solves a problem, written to a folder; ``expecting`` corrects what is said of its accuracy.

    ``asked`` is what was asked for, in short, where more than the estimates was chosen by that.
    """
    estimate = blocks.estimate
    parts = begin_plan(out, estimate.fingerprint, problem, knobs, estimate.parts.part_rows)
    if parts.complete:
        return StoredPlan.from_folder(out)
    with parts.alone():
        problem = state(problem, blocks)
        found = solve_streamed(problem, blocks, seed=knobs["plan_seed"])
        tallies = _write_all(blocks, parts, problem, found, progress)
        made = _summed_up(problem, found, tallies, parts, estimate.names, {**estimate.made_from, **knobs})
        if expecting is not None:
            made = expecting(made)
        parts.finish(made.about() if asked is None else {**made.about(), "asked": asked})
    return made


def _write_all(
    blocks: StoredBlocks, parts: PartFolder, problem: LargeProblem, found: Streamed, progress: Progress | None
) -> list[dict[str, Any]]:
    units = problem.units
    floats = units.floats(units.cost + units.overhead)
    shared = _Writing(blocks.estimate, blocks.taken_off, parts, found.rules, found.decision, floats)
    tallies = []
    for tally in blocks.executor.map(_write_part, shared, range(len(parts))):
        tallies.append(tally)
        if progress is not None:
            progress(len(tallies), len(parts))
    return tallies


def _write_part(shared: _Writing, number: int) -> dict[str, Any]:
    """Decide one part and write it; what it adds to the whole. A part that is there knows that already."""
    kept = shared.parts.kept(number)
    if kept is not None:
        return dict(kept["tally"])
    estimate, taken_off = shared.estimate, shared.taken_off
    start, _ = shared.parts.span(number)
    success = estimate.parts.numbers(number, estimate.columns)
    values = success if taken_off is None else success - taken_off
    choice = decide(values, start, shared.rules, shared.decision)
    chosen = np.take_along_axis(success, choice[:, None], axis=1)[:, 0]
    tally = {
        "sums": sums_of(values, shared.rules, choice, shared.decision.price),
        "counts": np.bincount(choice, minlength=len(estimate.names)).tolist(),
        "success": math.fsum(chosen),
        "worst": float(np.take_along_axis(values, choice[:, None], axis=1).min()),
    }
    columns = {
        "id": estimate.parts.read(number, ["id"]).column("id"),
        "classifier": named_column(choice, estimate.names),
        "cost": shared.unit_floats[choice],
        "success": chosen,
    }
    columns |= {f"{PREFIX}{name}": values[:, place] for place, name in enumerate(estimate.names)}
    shared.parts.write(number, columns, {"tally": tally})
    return tally


def _summed_up(
    problem: LargeProblem,
    found: Streamed,
    tallies: list[dict[str, Any]],
    parts: PartFolder,
    names: tuple[str, ...],
    made_from: dict[str, Any],
) -> StoredPlan:
    """The plan with its certificate."""
    totals, totals_low, bests, bests_low = zip(*(sums for one in tallies for sums in one["sums"]), strict=True)
    total, best = math.fsum(totals + totals_low), math.fsum(bests + bests_low)
    counts = np.sum([one["counts"] for one in tallies], axis=0)
    if problem.paid(counts) > problem.room:  # parts that are there were believed: never beyond the budget
        raise StorageError(parts.path, "its parts are not of one plan: remove it, and make it again")
    price = found.decision.price
    bound = total if found.proved else bound_from(problem, best, price, total)
    mean_bound, value, scale = bound / parts.rows, total, parts.rows
    if problem.objective == "min":
        value = bound = min(one["worst"] for one in tallies)
        scale = 1
    return StoredPlan(
        parts=parts,
        names=names,
        budget=problem.budget,
        planned_cost=problem.cost_of(problem.paid(counts)),
        expected_accuracy=math.fsum(one["success"] for one in tallies) / parts.rows,
        accuracy_interval=None,
        value=value / scale,
        bound=bound / scale,
        gap=relative_gap(bound, value),
        price=price / float(problem.units.size),
        mean_bound=mean_bound,
        status="optimal" if bound == value else "within gap",
        usage=dict(zip(names, counts.tolist(), strict=True)),
        weights=np.zeros(len(names)),
        problem=problem,
        made_from={"correction": 0.0, **made_from},
    )


def verify_stored(plan: StoredPlan) -> None:
    """Recompute cost, value and bound from the parts, the choices in them and the price alone, part by part."""
    problem = plan.problem
    if money(plan.budget) != money(problem.budget):
        raise CertificateError("budget", plan.budget, problem.budget)
    status = "optimal" if plan.bound == plan.value else "within gap"
    if plan.status != status:
        raise CertificateError("status", plan.status, status)
    surveyed = state(problem, _Rows(plan))
    scale = len(plan) if problem.objective == "mean" else 1
    stated = Certificate(
        plan.value * scale, plan.planned_cost, plan.bound * scale, plan.gap, plan.price, plan.mean_bound
    )
    check_parts(surveyed, plan.checked_parts, stated)
    _check_expectation(plan)


@dataclass(frozen=True)
class _Rows:
    """The values in a plan's own parts."""

    plan: StoredPlan

    def over(self, look: Callable[[FloatArray, int, Any], Any], about: Any) -> Iterator[Any]:
        for number in range(len(self.plan.parts)):
            yield look(self.plan._values(number), self.plan.rows(number)[0], about)


def _check_expectation(plan: StoredPlan) -> None:
    """The expected accuracy is the mean of the chosen estimates, corrected; those are the values without penalty.

    What is said of each query's cost is looked at too, and parts are read whole: damage is noticed wherever it is.
    """
    means, counts = [], np.zeros(len(plan.names), np.int64)
    units = plan.problem.units
    costs = units.floats(units.cost + units.overhead)
    taken_off = np.full(len(plan.names), np.nan)
    for number in range(len(plan.parts)):
        choice, success = plan._choice(plan.parts.read(number), number), plan.parts.numbers(number, ["success"])[:, 0]
        if not np.array_equal(plan.parts.numbers(number, ["cost"])[:, 0], costs[choice]):
            raise CertificateError("cost", "what queries cost", "other costs for what was chosen")
        off = success - np.take_along_axis(plan._values(number), choice[:, None], axis=1)[:, 0]
        for column in np.unique(choice):
            part = off[choice == column]
            if np.isnan(taken_off[column]):
                taken_off[column] = part[0]
            if not np.abs(part - taken_off[column]).max() <= 1e-9:
                raise CertificateError("success", "estimates", "other values for what was chosen")
        counts += np.bincount(choice, minlength=counts.size)
        means.append(math.fsum(success))
    if plan.made_from.get("penalty", 0.0) == 0.0 and not np.all(np.isnan(taken_off) | (np.abs(taken_off) <= 1e-9)):
        raise CertificateError("success", "estimates", "other values for what was chosen")
    if dict(zip(plan.names, counts.tolist(), strict=True)) != plan.usage:
        raise CertificateError("usage", plan.usage, counts.tolist())
    correction = plan.made_from.get("correction")
    if not (isinstance(correction, float) and abs(correction) <= 1.0):
        raise CertificateError("correction", correction, "a number from -1 to 1")
    expected = math.fsum(means) / len(plan) + correction
    if not (abs(expected - plan.expected_accuracy) <= 1e-9 and 0.0 <= plan.expected_accuracy <= 1.0):
        raise CertificateError("expected_accuracy", plan.expected_accuracy, expected)
