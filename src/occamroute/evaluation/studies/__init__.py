"""The paper's tables and figures made again, on its data sets or on any profile; one family of questions a file."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from occamroute.errors import UnknownNameError
from occamroute.evaluation.studies.base import Result, Study

__all__ = ["STUDIES", "Result", "Study", "find_studies"]

# Name → the file that holds it and what it is called there, in the order of the page.
STUDIES = {
    "classifiers": "portfolio:CLASSIFIERS",
    "agreement": "portfolio:AGREEMENT",
    "complementarity": "portfolio:COMPLEMENTARITY",
    "core-set": "core_set:CORE_SET",
    "curves-linf": "curves:CURVES_LINF",
    "curves-l1": "curves:CURVES_L1",
    "curves-l2": "curves:CURVES_L2",
    "usage": "usage:USAGE",
    "oracle": "usage:ORACLE",
    "sample-total": "samples:SAMPLE_TOTAL",
    "k-and-s": "samples:K_AND_S",
    "penalty": "penalty:PENALTY",
    "variance": "variance:VARIANCE",
    "neighbour-distance": "neighbours:NEIGHBOUR_DISTANCE",
    "estimation-error": "neighbours:ESTIMATION_ERROR",
    "lipschitz": "lipschitz:LIPSCHITZ",
    "separation": "separation:SEPARATION",
    "duplicates": "separation:DUPLICATES",
    "extractors": "extractors:EXTRACTORS",
    "many-classifiers": "many:MANY_CLASSIFIERS",
    "overhead": "overhead:OVERHEAD",
}


def find_studies(names: Iterable[str]) -> list[Study]:
    """The studies of these names in the order of the page; ``all`` means every one."""
    wanted = set(names)
    for name in sorted(wanted - {"all"}):
        if name not in STUDIES:
            raise UnknownNameError("study", name, ["all", *STUDIES])
    return [_find(place) for name, place in STUDIES.items() if name in wanted or "all" in wanted]


def _find(place: str) -> Study:
    module, _, constant = place.partition(":")
    study: Study = getattr(import_module(f"{__name__}.{module}"), constant)
    return study
