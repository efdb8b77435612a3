"""occamroute: which classifier should answer which query, so that a budget buys the most right answers.

The public names in the order of the pipeline::

    Profile, success, load_dataset          what each classifier did on labelled queries
    SampledNeighbors, BaggedNeighbors, …    how success is estimated for new ones
    estimate → Estimate                     each classifier's probability of success, query by query
    Estimate.plan → Plan                    who answers what, within the budget, with a certificate
    Estimate.frontier → Frontier            all budgets at once
    fit → Planner, plan → Plan              the same with everything chosen on held-out rows
    solve → Solution, Problem               the bare knapsack
    verify                                  check a plan's certificate
    compare → Report                        against every baseline, on queries whose success is known
    save, load                              profiles, plans, frontiers and reports as Parquet files

Importing starts nothing: each name is loaded at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from occamroute._version import __version__
from occamroute.errors import (
    BudgetTooSmallError,
    CertificateError,
    InvalidInputError,
    OccamError,
    SolverError,
    StorageError,
    UnknownNameError,
)

if TYPE_CHECKING:
    from occamroute.datasets import load_dataset
    from occamroute.estimation import (
        BaggedNeighbors,
        ContrastForest,
        Forest,
        KernelRidge,
        Mixture,
        Ordered,
        SampledNeighbors,
    )
    from occamroute.evaluation.comparing import compare
    from occamroute.evaluation.reports import Report
    from occamroute.knapsack import Problem, Solution, solve
    from occamroute.planning.estimates import Estimate, estimate
    from occamroute.planning.fitting import Planner, fit, plan
    from occamroute.planning.frontiers import Frontier
    from occamroute.planning.plans import Plan, verify
    from occamroute.profiles import Profile, success
    from occamroute.storage import load, save

__all__ = [
    "BaggedNeighbors",
    "BudgetTooSmallError",
    "CertificateError",
    "ContrastForest",
    "Estimate",
    "Forest",
    "Frontier",
    "InvalidInputError",
    "KernelRidge",
    "Mixture",
    "OccamError",
    "Ordered",
    "Plan",
    "Planner",
    "Problem",
    "Profile",
    "Report",
    "SampledNeighbors",
    "Solution",
    "SolverError",
    "StorageError",
    "UnknownNameError",
    "__version__",
    "compare",
    "estimate",
    "fit",
    "load",
    "load_dataset",
    "plan",
    "save",
    "solve",
    "success",
    "verify",
]

_HOMES = {
    "BaggedNeighbors": "estimation",
    "ContrastForest": "estimation",
    "Estimate": "planning.estimates",
    "Forest": "estimation",
    "Frontier": "planning.frontiers",
    "KernelRidge": "estimation",
    "Mixture": "estimation",
    "Ordered": "estimation",
    "Plan": "planning.plans",
    "Planner": "planning.fitting",
    "Problem": "knapsack",
    "Profile": "profiles",
    "Report": "evaluation.reports",
    "SampledNeighbors": "estimation",
    "Solution": "knapsack",
    "compare": "evaluation.comparing",
    "estimate": "planning.estimates",
    "fit": "planning.fitting",
    "load": "storage",
    "load_dataset": "datasets",
    "plan": "planning.fitting",
    "save": "storage",
    "solve": "knapsack",
    "success": "profiles",
    "verify": "planning.plans",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
