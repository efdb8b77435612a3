"""occamroute: which classifier should answer which query, so that a budget buys the most right answers.

The public names in the order of the pipeline::

    classifier, read_pool → Pool            the classifiers at hand: objects, functions, models, services
    profile → Profile, success, load_dataset    what each classifier did on labelled queries
    TextFeatures                            free features of texts
    SampledNeighbors, BaggedNeighbors, …    how success is estimated for new ones
    estimate → Estimate                     each classifier's probability of success, query by query
    Estimate.plan → Plan                    who answers what, within the budget, with a certificate
    Estimate.frontier → Frontier            all budgets at once
    fit → Planner, plan → Plan              the same with everything chosen on held-out rows
    solve → Solution, Problem               the bare knapsack
    verify                                  check a plan's certificate
    classify, execute → Run                 buy the answers, within a budget that cannot be passed
    open_ledger                             a cap that several runs share
    Router → Decision                       the same decision one query at a time, paced over a window
    Answerer                                buys its answer, whatever fails
    compare → Report                        against every baseline, on queries whose success is known
    doctor → Checkup                        what looks wrong with a profile, and what to do about it
    save, load                              profiles, plans, frontiers and reports as Parquet files
    StoredEstimate, StoredPlan, StoredRun   the same for folders of queries larger than memory

Importing starts nothing: each name is loaded at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from occamroute._version import __version__
from occamroute.errors import (
    BudgetExceededError,
    BudgetTooSmallError,
    CallError,
    CallLostError,
    CallRefusedError,
    CertificateError,
    ExecutorError,
    InvalidInputError,
    JournalError,
    LedgerError,
    MissingExtraError,
    NoAnswersError,
    OccamError,
    OverloadedError,
    RepeatedKeyError,
    SolverError,
    StorageError,
    UnavailableError,
    UnknownNameError,
)

if TYPE_CHECKING:
    from occamroute.adapters import classifier
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
    from occamroute.evaluation.doctor import Checkup, doctor
    from occamroute.evaluation.reports import Report
    from occamroute.execution.classifying import classify, execute
    from occamroute.execution.runs import Run
    from occamroute.execution.stored_runs import StoredRun
    from occamroute.knapsack import Problem, Solution, solve
    from occamroute.ledger import open_ledger
    from occamroute.planning.estimates import Estimate, estimate
    from occamroute.planning.fitting import Planner, fit, plan
    from occamroute.planning.frontiers import Frontier
    from occamroute.planning.plans import Plan, verify
    from occamroute.planning.stored_estimates import StoredEstimate
    from occamroute.planning.stored_plans import StoredPlan
    from occamroute.pool import Answers, Measured, PerToken, Pool
    from occamroute.pool_files.reading import read_pool
    from occamroute.profiles import Profile, success
    from occamroute.profiling.measuring import profile
    from occamroute.routing.answering import Answerer
    from occamroute.routing.decisions import Decision
    from occamroute.routing.guides import Guide
    from occamroute.routing.router import Router
    from occamroute.storage import load, save
    from occamroute.text_features import TextFeatures

__all__ = [
    "Answerer",
    "Answers",
    "BaggedNeighbors",
    "BudgetExceededError",
    "BudgetTooSmallError",
    "CallError",
    "CallLostError",
    "CallRefusedError",
    "CertificateError",
    "Checkup",
    "ContrastForest",
    "Decision",
    "Estimate",
    "ExecutorError",
    "Forest",
    "Frontier",
    "Guide",
    "InvalidInputError",
    "JournalError",
    "KernelRidge",
    "LedgerError",
    "Measured",
    "MissingExtraError",
    "Mixture",
    "NoAnswersError",
    "OccamError",
    "Ordered",
    "OverloadedError",
    "PerToken",
    "Plan",
    "Planner",
    "Pool",
    "Problem",
    "Profile",
    "RepeatedKeyError",
    "Report",
    "Router",
    "Run",
    "SampledNeighbors",
    "Solution",
    "SolverError",
    "StorageError",
    "StoredEstimate",
    "StoredPlan",
    "StoredRun",
    "TextFeatures",
    "UnavailableError",
    "UnknownNameError",
    "__version__",
    "classifier",
    "classify",
    "compare",
    "doctor",
    "estimate",
    "execute",
    "fit",
    "load",
    "load_dataset",
    "open_ledger",
    "plan",
    "profile",
    "read_pool",
    "save",
    "solve",
    "success",
    "verify",
]

_HOMES = {
    "Answerer": "routing.answering",
    "Answers": "pool",
    "BaggedNeighbors": "estimation",
    "Checkup": "evaluation.doctor",
    "ContrastForest": "estimation",
    "Decision": "routing.decisions",
    "Estimate": "planning.estimates",
    "Forest": "estimation",
    "Frontier": "planning.frontiers",
    "Guide": "routing.guides",
    "KernelRidge": "estimation",
    "Measured": "pool",
    "Mixture": "estimation",
    "Ordered": "estimation",
    "PerToken": "pool",
    "Plan": "planning.plans",
    "Planner": "planning.fitting",
    "Pool": "pool",
    "Problem": "knapsack",
    "Profile": "profiles",
    "Report": "evaluation.reports",
    "Router": "routing.router",
    "Run": "execution.runs",
    "SampledNeighbors": "estimation",
    "Solution": "knapsack",
    "StoredEstimate": "planning.stored_estimates",
    "StoredPlan": "planning.stored_plans",
    "StoredRun": "execution.stored_runs",
    "TextFeatures": "text_features",
    "classifier": "adapters",
    "classify": "execution.classifying",
    "compare": "evaluation.comparing",
    "doctor": "evaluation.doctor",
    "estimate": "planning.estimates",
    "execute": "execution.classifying",
    "fit": "planning.fitting",
    "load": "storage",
    "load_dataset": "datasets",
    "open_ledger": "ledger",
    "plan": "planning.fitting",
    "profile": "profiling.measuring",
    "read_pool": "pool_files.reading",
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
