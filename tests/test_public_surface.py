"""What users rely on keeps working: the code's surface against that of every release, and the page that lists it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import public_surface
import pytest
from public_surface import breaks

Surface = dict[str, Any]
RELEASES = sorted(public_surface.FROZEN.glob("*.json"))


def surface_of(release: Path) -> Surface:
    found: Surface = json.loads(release.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def now() -> Surface:
    """The surface of the code; names of earlier releases may live on outside ``__all__``."""
    return public_surface.surface(also=[name for release in RELEASES for name in surface_of(release)["python"]])


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.stem)
def test_what_a_release_offered_still_works(release: Path, now: Surface) -> None:
    assert breaks(surface_of(release), now) == []


def test_the_first_release_is_kept() -> None:
    assert "0.1.0" in {release.stem for release in RELEASES}


def test_the_page_lists_the_surface() -> None:
    """``python scripts/public_surface.py`` writes it."""
    assert public_surface.PAGE.read_text(encoding="utf-8") == public_surface.page(public_surface.surface())


def without(*path: str) -> Callable[[Surface], None]:
    """A change that removes the thing at this path."""

    def change(found: Surface) -> None:
        for part in path[:-1]:
            found = found[part]
        del found[path[-1]]

    return change


def function(found: Surface, name: str) -> dict[str, Any]:
    return {one["name"]: one for one in found["python"][name]["parameters"]}


def loses_a_parameter(found: Surface) -> None:
    parameters = found["python"]["classify"]["parameters"]
    found["python"]["classify"]["parameters"] = [one for one in parameters if one["name"] != "journal"]


def needs_a_parameter(found: Surface) -> None:
    found["python"]["fit"]["parameters"].append({"name": "risk", "kind": "keyword_only", "default": None})


def has_another_default(found: Surface) -> None:
    function(found, "success")["temperature"]["default"] = "1.0"


def takes_another_order(found: Surface) -> None:
    found["python"]["plan"]["parameters"][:2] = reversed(found["python"]["plan"]["parameters"][:2])


def takes_it_by_keyword_only(found: Surface) -> None:
    function(found, "estimate")["features"]["kind"] = "keyword_only"


def is_no_value_error(found: Surface) -> None:
    found["python"]["BudgetTooSmallError"]["bases"].remove("ValueError")


def needs_an_option(found: Surface) -> None:
    found["commands"]["plan"]["options"]["--budget"]["required"] = True
    found["commands"]["plan"]["options"]["--unit"] = {"required": True, "flag": False, "default": None}


def needs_a_field(found: Surface) -> None:
    found["http"]["bodies"]["RouteRequest"]["fields"].append("unit")
    found["http"]["bodies"]["RouteRequest"]["required"].append("unit")


def loses_a_field(found: Surface) -> None:
    found["http"]["bodies"]["RouteAnswer"]["fields"].remove("decision")


def needs_an_option_of_a_kind(found: Surface) -> None:
    found["pool file"]["classifiers"]["openai"]["required"].append("timeout")


def loses_a_label(found: Surface) -> None:
    found["metrics"]["occamroute_requests_total"]["labels"].remove("status")


BREAKING: dict[str, tuple[Callable[[Surface], None], str]] = {
    "a name": (without("python", "compare"), "occamroute.compare is gone"),
    "a method": (without("python", "Router", "members", "settle"), "occamroute.Router.settle is gone"),
    "a parameter": (loses_a_parameter, "the parameter journal is gone"),
    "a needed parameter": (needs_a_parameter, "the new parameter risk has no default"),
    "a default": (has_another_default, "the default of temperature was 0.001"),
    "an order": (takes_another_order, "its first parameters were ['profile', 'features']"),
    "a kind of parameter": (takes_it_by_keyword_only, "features was positional_or_keyword"),
    "a base": (is_no_value_error, "occamroute.BudgetTooSmallError is no longer a ValueError"),
    "an import path": (without("modules", "occamroute.serving.cluster.build"), "cluster.build is gone"),
    "a command": (without("commands", "keys add"), "occamroute keys add is gone"),
    "an option": (without("commands", "serve", "options", "--state"), "--state was"),
    "a needed option": (needs_an_option, "--unit is now required"),
    "an exit code": (without("exit codes", "3"), "exit codes: 3 is gone"),
    "an endpoint": (without("http", "operations", "POST /v1/settle"), "POST /v1/settle is gone"),
    "a needed field": (needs_a_field, "POST /v1/route: no longer takes"),
    "a field of an answer": (loses_a_field, "POST /v1/route: no longer gives"),
    "a problem": (without("http", "problems", "above_hold"), "problem above_hold had the status 422"),
    "a metric": (without("metrics", "occamroute_budget"), "metric occamroute_budget"),
    "a label": (loses_a_label, "metric occamroute_requests_total"),
    "a kind": (without("pool file", "classifiers", "kserve"), "classifiers: kserve is gone"),
    "an option of a kind": (needs_an_option_of_a_kind, "the option timeout is now required"),
    "a group": (without("entry points", "occamroute.ledgers"), "entry points: occamroute.ledgers is gone"),
}


@pytest.mark.parametrize("what", BREAKING)
def test_what_breaks_users_is_found(what: str, now: Surface) -> None:
    """Each kind of change is noticed, and nothing else is said."""
    change, sentence = BREAKING[what]
    after = copy.deepcopy(now)
    change(after)
    found = breaks(now, after)
    assert any(sentence in one for one in found), found
    assert len(found) <= 2


def test_what_is_added_breaks_nothing(now: Surface) -> None:
    """New names, optional parameters, options, fields, labels and codes."""
    before = copy.deepcopy(now)
    without("python", "Guide")(before)
    loses_a_parameter(before)
    without("commands", "keys add")(before)
    without("commands", "serve", "options", "--state")(before)
    without("http", "operations", "POST /v1/settle")(before)
    loses_a_field(before)
    loses_a_label(before)
    assert breaks(before, now) == []


def test_internal_and_given_names_exist(now: Surface) -> None:
    """A list of exceptions that names what is long gone hides nothing, but misleads."""
    described = [*now["python"], *(path.rpartition(".")[2] for path in now["modules"])]
    assert set(described) >= public_surface.GIVEN
    assert set(public_surface.INTERNAL) - {""} <= set(described)
