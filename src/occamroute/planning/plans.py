"""Plan: which classifier answers which query, what that costs, and the proof that it is the best choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import Amount, from_text, money
from occamroute.charts.cards import card
from occamroute.charts.pictures import usage_chart
from occamroute.charts.words import brief, percent, proved_gap
from occamroute.errors import CertificateError, InvalidInputError
from occamroute.knapsack import Problem, Solution
from occamroute.knapsack.certificate import Certificate, check
from occamroute.storage import Parts

if TYPE_CHECKING:
    from occamroute.planning.stored_plans import StoredPlan

__all__ = ["Plan", "make_plan", "paid_extractor", "plan_card", "verify"]


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Which classifier answers which query.

    ``choice`` (N,) is the index into ``names``. ``planned_cost`` is everything, feature extraction included, and
    never above ``budget``. ``success`` (N,) is the estimated probability that the chosen classifier is right, and
    ``expected_accuracy`` their mean plus ``made_from["correction"]``: 0 for a plan from ``Estimate.plan`` (the mean
    of chosen estimates is optimistic), else what held-out rows say (with ``accuracy_interval``, 90 %).

    ``value``, ``bound``, ``gap`` and ``price`` are the certificate of ``problem``, the knapsack that was solved:
    ``value`` and ``bound`` are means of the (penalised) values, for the objective "min" the worst of them.
    ``weights`` (M,) is the extractor's share in the answer after classifier i (0: that classifier alone).
    """

    ids: tuple[str, ...]
    names: tuple[str, ...]
    choice: IntArray
    budget: Amount
    planned_cost: float
    expected_accuracy: float
    accuracy_interval: tuple[float, float] | None
    success: FloatArray
    value: float
    bound: float
    gap: float
    price: float
    mean_bound: float
    status: str
    weights: FloatArray
    problem: Problem
    made_from: dict[str, Any]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        cost = f"cost {self.planned_cost:.6g} of {float(self.budget):.6g}"
        return f"Plan({len(self)} queries, {cost}, expected accuracy {self.expected_accuracy:.4f}, gap {self.gap:.1e})"

    def _repr_html_(self) -> str:
        return plan_card(self)

    @property
    def usage(self) -> dict[str, int]:
        """How many queries go to each classifier."""
        counts = np.bincount(self.choice, minlength=len(self.names))
        return dict(zip(self.names, counts.tolist(), strict=True))

    @property
    def costs(self) -> FloatArray:
        """What each query costs, feature extraction included, (N,)."""
        units = self.problem.unit_costs
        chosen = units[0 if units.shape[0] == 1 else np.arange(len(self)), self.choice]
        return self.problem.units.floats(chosen + self.problem.units.overhead)

    def assignment(self) -> dict[str, npt.NDArray[Any]]:
        """Columns with a row for each query: its id, its classifier, what that costs and how sure it is."""
        return {
            "id": np.array(self.ids),
            "classifier": np.array(self.names)[self.choice],
            "cost": self.costs,
            "success": self.success,
        }

    def summary(self) -> dict[str, Any]:
        """What is said of the plan as a whole, for JSON."""
        about: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS}
        about["status"] = self.status
        about["budget"] = float(self.budget)
        about["n_queries"] = len(self)
        about["accuracy_interval"] = None if self.accuracy_interval is None else list(self.accuracy_interval)
        return about | {"usage": self.usage, "made_from": self.made_from}

    def parts(self) -> Parts:
        """The plan as one table, a row for each query, and what is said of the plan as a whole."""
        problem = self.problem
        columns = self.assignment()
        columns |= {f"value:{name}": problem.value[:, column] for column, name in enumerate(self.names)}
        if problem.cost.ndim == 2:
            columns |= {f"cost:{name}": problem.cost[:, column] for column, name in enumerate(self.names)}
        about = {
            "names": list(self.names),
            "costs": problem.cost.tolist() if problem.cost.ndim == 1 else None,
            "budget": str(problem.budget),
            "overhead": str(problem.overhead),
            "objective": problem.objective,
            "weights": self.weights.tolist(),
            "accuracy_interval": None if self.accuracy_interval is None else list(self.accuracy_interval),
            "made_from": self.made_from,
            "status": self.status,
        }
        about |= {name: getattr(self, name) for name in NUMBERS}
        return Parts("plan", columns, about)

    @classmethod
    def from_parts(cls, parts: Parts) -> Plan:
        """The plan that ``parts`` was made of."""
        about, columns = parts.metadata, parts.columns
        names = tuple(about["names"])
        cost = about["costs"]
        if cost is None:
            cost = np.column_stack([columns[f"cost:{name}"] for name in names])
        index = {name: column for column, name in enumerate(names)}
        budget = from_text(about["budget"])
        return cls(
            ids=tuple(columns["id"].tolist()),
            names=names,
            choice=np.array([index[name] for name in columns["classifier"].tolist()], np.int64),
            budget=budget,
            accuracy_interval=None if about["accuracy_interval"] is None else tuple(about["accuracy_interval"]),
            success=columns["success"],
            weights=np.array(about["weights"], np.float64),
            problem=Problem(
                value=np.column_stack([columns[f"value:{name}"] for name in names]),
                cost=np.array(cost, np.float64),
                budget=budget,
                objective=about["objective"],
                overhead=from_text(about["overhead"]),
            ),
            made_from=dict(about["made_from"]),
            status=str(about["status"]),
            **{name: float(about[name]) for name in NUMBERS},
        )


def paid_extractor(plan: Plan | StoredPlan) -> str | None:
    """Whose call yields what the plan looks at; None where it looks at nothing, or only at texts."""
    about = plan.made_from
    extractor: str | None = about.get("paid_extractor", about.get("extractor"))
    return extractor


def plan_card(plan: Plan | StoredPlan) -> str:
    """A plan in a notebook."""
    facts = [
        ("queries", f"{len(plan):,}"),
        ("cost", f"{brief(plan.planned_cost)} of {brief(float(plan.budget))}"),
        ("expected accuracy (90 %)", percent(plan.expected_accuracy, plan.accuracy_interval)),
        ("gap to the optimum", proved_gap(plan.gap)),
    ]
    note = "" if plan.accuracy_interval else "The mean of chosen estimates is optimistic; no interval is known for it."
    return card("Plan", facts, usage_chart(plan.usage, len(plan)), note=note)


NUMBERS = ("planned_cost", "expected_accuracy", "value", "bound", "gap", "price", "mean_bound")


def make_plan(
    problem: Problem, solution: Solution, *, ids: tuple[str, ...], names: tuple[str, ...], success: FloatArray,
    made_from: dict[str, Any],
) -> Plan:  # fmt: skip
    """The plan that a solution of its problem stands for; ``success`` (N, M) is never penalised."""
    scale = len(ids) if problem.objective == "mean" else 1
    chosen = np.take_along_axis(success, solution.choice[:, None], axis=1)[:, 0]
    return Plan(
        ids=ids,
        names=names,
        choice=solution.choice,
        budget=problem.budget,
        planned_cost=solution.cost,
        expected_accuracy=float(chosen.mean()),
        accuracy_interval=None,
        success=chosen,
        value=solution.value / scale,
        bound=solution.bound / scale,
        gap=solution.gap,
        price=solution.price,
        mean_bound=solution.mean_bound,
        status=solution.status,
        weights=np.zeros(len(names)),
        problem=problem,
        made_from={"correction": 0.0, **made_from},
    )


def verify(plan: Plan | StoredPlan) -> None:
    """Recompute cost, value and bound from the plan's problem, choice and price alone.

    Raises ``CertificateError`` naming the field that does not hold. No solver takes part.
    """
    from occamroute.planning.stored_plans import StoredPlan, verify_stored

    if isinstance(plan, StoredPlan):
        verify_stored(plan)
        return
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"only a plan can be verified, got {type(plan).__name__}.")
    problem = plan.problem
    _check_fields(plan)
    scale = problem.shape[0] if problem.objective == "mean" else 1
    stated = Certificate(
        value=plan.value * scale,
        cost=plan.planned_cost,
        bound=plan.bound * scale,
        gap=plan.gap,
        price=plan.price,
        mean_bound=plan.mean_bound,
    )
    check(problem, plan.choice, stated)
    _check_expectation(plan)


def _check_fields(plan: Plan) -> None:
    """Fields that go together fit together."""
    queries, options = plan.problem.shape
    for field_name, wanted in (("ids", queries), ("success", queries), ("names", options), ("weights", options)):
        found = len(getattr(plan, field_name))
        if found != wanted:
            raise CertificateError(field_name, f"{found} of them", wanted)
    try:
        same = money(plan.budget) == money(plan.problem.budget)
    except InvalidInputError:
        same = False
    if not same:
        raise CertificateError("budget", plan.budget, plan.problem.budget)
    status = "optimal" if plan.bound == plan.value else "within gap"
    if plan.status != status:
        raise CertificateError("status", plan.status, status)


def _check_expectation(plan: Plan) -> None:
    """The expected accuracy is the mean of the chosen estimates, corrected; those are the values without penalty."""
    chosen = np.take_along_axis(plan.problem.value, plan.choice[:, None], axis=1)[:, 0]
    # A penalty takes the same off every query that a classifier answers.
    taken_off = plan.success - chosen
    for column in np.unique(plan.choice):
        part = taken_off[plan.choice == column]
        penalised = plan.made_from.get("penalty", 0.0) != 0.0
        if not (part.max() - part.min() <= 1e-9 and (penalised or abs(part[0]) <= 1e-9)):
            raise CertificateError("success", "estimates", "other values for what was chosen")
    correction = plan.made_from.get("correction")
    if not (isinstance(correction, float) and abs(correction) <= 1.0):
        raise CertificateError("correction", correction, "a number from -1 to 1")
    expected = float(plan.success.mean()) + correction
    if not (abs(expected - plan.expected_accuracy) <= 1e-9 and 0.0 <= plan.expected_accuracy <= 1.0):
        raise CertificateError("expected_accuracy", plan.expected_accuracy, expected)
