"""For authors of plug-ins: contract suites that a family's members must pass, and a brute-force solver."""

from __future__ import annotations

from occamroute.testing.classifiers import check_classifier, check_extractor
from occamroute.testing.estimators import check_estimator
from occamroute.testing.solvers import brute_force, check_solver, random_problem

__all__ = [
    "brute_force",
    "check_classifier",
    "check_estimator",
    "check_extractor",
    "check_solver",
    "random_problem",
]
