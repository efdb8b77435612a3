"""Whatever a dashboard shows is what the solver says, to the last digit."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import occamroute as oc
from dashboard import world
from occamroute.knapsack import solve_problem
from occamroute.reporting.dashboard.making import plan_subject
from occamroute.reporting.exploring.changes import Changes, changed
from occamroute.reporting.exploring.exploration import Exploration
from occamroute.reporting.exploring.looking import Search, queries, receipt
from occamroute.reporting.exploring.openings import explore_plan, explore_profile, facts_of_plan
from occamroute.reporting.exploring.previews import png_of, previews_of
from occamroute.reporting.exploring.singles import singles

NUMBERS = ("expected_accuracy", "planned_cost", "value", "bound", "gap", "price", "status", "usage")
SMALL = world.exploration(30, 5)
UNEVEN = world.exploration(30, 4, by_query=True)
LARGE = world.exploration(10_000, 12)


def assert_same(shown: dict[str, Any], plan: oc.Plan) -> None:
    assert {name: shown[name] for name in NUMBERS} == {name: getattr(plan, name) for name in NUMBERS}


def by_hand(estimate: oc.Estimate, dropped: set[str], prices: dict[str, Decimal]) -> oc.Estimate:
    """The estimate with changes, made without the code under test; costs are by classifier."""
    kept = [column for column, name in enumerate(estimate.names) if name not in dropped]
    overhead = prices.get("model 0", Decimal(str(estimate.overhead)))
    prices = {name: price for name, price in prices.items() if name != "model 0"} | {"model 0": Decimal(0)}
    known = [Decimal(repr(cost)) for cost in estimate.costs.tolist()]
    costs = [float(prices.get(estimate.names[column], known[column])) for column in kept]
    return oc.Estimate(
        names=tuple(estimate.names[column] for column in kept),
        costs=np.array(
            [0.0 if estimate.names[column] == "model 0" else cost for column, cost in zip(kept, costs, strict=True)]
        ),
        success=estimate.success[:, kept],
        sigma=estimate.sigma[kept],
        overhead=overhead,
        ids=estimate.ids,
    )


@pytest.mark.parametrize("exploration", [SMALL, UNEVEN, LARGE], ids=["30", "30 by query", "10,000"])
def test_a_budget_gives_the_plan(exploration: Exploration) -> None:
    """At the ends, at supported points and between them."""
    front = exploration.estimate.frontier()
    scene = exploration.scene()
    between = [float(front.budgets[len(front) // 3]), float(np.mean(front.budgets[4:6])), 1.5 * scene.most]
    for budget in [scene.least, repr(scene.most), *map(repr, between)]:
        plan = exploration.estimate.plan(Decimal(budget))
        shown = exploration.at(budget)
        assert_same(shown, plan)
        rows = np.arange(len(plan))
        assert exploration.truth is not None
        assert shown["reached"] == float(exploration.truth[rows, plan.choice].mean())


@settings(max_examples=40, deadline=None)
@given(
    dropped=st.sets(st.sampled_from(SMALL.estimate.names), max_size=4),
    prices=st.dictionaries(st.sampled_from(SMALL.estimate.names), st.decimals("0.001", "3", places=3), max_size=3),
    share=st.floats(0.0, 1.2),
)
def test_changes_are_an_ordinary_estimate(dropped: set[str], prices: dict[str, Decimal], share: float) -> None:
    """With classifiers dropped and prices changed every number is that of the estimate made by hand."""
    estimate = by_hand(SMALL.estimate, dropped, prices)
    changes = Changes.of(dropped, prices)
    front = estimate.frontier()
    budget = Decimal(repr(round(float(front.budgets[0]) + share * float(front.budgets[-1] - front.budgets[0]), 6)))
    if Fraction(budget) < Fraction(front.least):
        refused = SMALL.at(str(budget), changes)
        assert "is too small" in refused["refused"]
        assert Fraction(Decimal(refused["least"])) >= Fraction(front.least)
        return
    assert_same(SMALL.at(str(budget), changes), estimate.plan(budget))
    shown = SMALL.frontier(changes)
    assert shown["budgets"] == front.budgets.tolist()
    assert shown["accuracies"] == front.accuracies.tolist()


def test_dropping_is_selecting_in_the_profile(small: oc.Profile) -> None:
    """A classifier dropped on the page is one left out of the profile; the extractor's call is still paid."""
    profile = world.profile()
    exploration = explore_profile(profile, seed=4)
    pool, asked = profile.split(0.5, seed=4)
    for name in profile.names:
        left = [other for other in profile.names if other != name]
        estimate = oc.estimate(pool.select(left), asked.features, ids=asked.ids, seed=4)
        assert_same(exploration.at("70", Changes.of([name])), estimate.plan(70, seed=4))
    alone = {one.name: float(one.cost) for one in exploration.scene().singles}
    assert alone == pytest.approx({"small": 12.0, "middle": 48.0, "large": 120.0})


def test_the_price_of_the_extractor_is_that_of_the_features() -> None:
    """It is paid for every query, whoever answers, and its own answer stays free."""
    dearer = changed(SMALL.estimate, Changes.of((), {"model 0": Decimal("0.2")}))
    assert dearer.overhead == Decimal("0.2")
    assert dearer.costs[0] == 0.0
    assert SMALL.scene(Changes.of((), {"model 0": Decimal("0.2")})).least == "6"


def test_costs_by_query_keep_their_proportions() -> None:
    """A new price is the new mean."""
    after = changed(UNEVEN.estimate, Changes.of((), {"model 2": Decimal("0.5")}))
    assert after.costs[:, 2].mean() == pytest.approx(0.5, rel=1e-3)
    ratio = after.costs[:, 2] / UNEVEN.estimate.costs[:, 2]
    assert ratio.max() - ratio.min() < 1e-12


def test_savings_are_exact() -> None:
    """Against the dearest and the best single classifier, in money and as a share."""
    shown = LARGE.at("9000")
    plan = LARGE.estimate.plan(9000)
    dearest = 10_000 * Fraction(str(LARGE.estimate.costs[-1]))
    assert shown["dearest"]["name"] == "model 11"
    assert shown["dearest"]["saved"] == float(dearest - Fraction(str(plan.planned_cost)))
    assert shown["dearest"]["share"] == float(1 - Fraction(str(plan.planned_cost)) / dearest)
    means = LARGE.estimate.success.mean(axis=0)
    assert shown["best"]["name"] == f"model {int(means.argmax())}"
    assert shown["best"]["difference"] == plan.expected_accuracy - float(means.max())
    # The first yields the features: by itself it costs what they do.
    assert float(LARGE.scene().singles[0].cost) == 1000.0


def test_wrong_budgets_are_one_sentence() -> None:
    """With the least budget, which then does."""
    for text in ("", "much", "-1", "nan", "1e999", "0", "12,5"):
        shown = SMALL.at(text)
        assert shown["refused"].endswith(".")
        assert "\n" not in shown["refused"]
        assert shown["least"] == "3"
    assert "refused" not in SMALL.at("3")
    # However digits are written, the page has the number.
    assert [SMALL.at(text)["amount"] for text in ("1_0", "\uff11\uff10", "1e1", "10.00")] == [10.0] * 4


@pytest.mark.parametrize("exploration", [SMALL, UNEVEN], ids=["by classifier", "by query"])
def test_what_budgets_share_changes_no_answer(exploration: Exploration) -> None:
    """A problem that was asked before with other budgets is solved as one that is new, bit by bit."""
    estimate = exploration.estimate
    asked = oc.Problem(estimate.success, estimate.costs, 3, overhead=estimate.overhead)
    for budget in (29, 3, Decimal("7.7"), 12.25, 3):
        asked = asked.within(budget)
        new = oc.Problem(estimate.success, estimate.costs, budget, overhead=estimate.overhead)
        for solver in ("exact", "highs"):
            one, other = (solve_problem(problem, solver=solver, seed=5) for problem in (asked, new))
            assert one.choice.tolist() == other.choice.tolist()
            assert (one.value, one.cost, one.bound, one.price) == (other.value, other.cost, other.bound, other.price)
    with pytest.raises(oc.InvalidInputError):
        asked.within(-1)
    with pytest.raises(oc.BudgetTooSmallError):
        solve_problem(asked.within(0.5))


def test_the_sweep_is_solved() -> None:
    """Every row of it is a plan, from the least budget to the most."""
    rows = SMALL.sweep()
    assert [rows[0]["budget"], rows[-1]["budget"]] == ["3", repr(SMALL.scene().most)]
    for row in rows:
        assert_same(row, SMALL.estimate.plan(Decimal(row["budget"])))
    free = replace(SMALL.estimate, costs=np.zeros(len(SMALL.estimate.names)), overhead=0)
    assert [row["budget"] for row in Exploration(free).sweep()] == ["0"]  # there is no other


def test_the_table_is_the_plan() -> None:
    """Every page of it, filtered and sorted."""
    plan = LARGE.estimate.plan(9000)
    name = plan.names[int(plan.choice[0])]
    wish = Search(classifier=name, order="success", falling=True, offset=10, limit=7)
    found = queries(LARGE, "9000", search=wish)
    mine = np.flatnonzero(plan.choice == plan.choice[0])
    assert found["total"] == mine.size
    sorted_rows = mine[np.argsort(plan.success[mine], kind="stable")][::-1][10:17]
    assert [row["row"] for row in found["rows"]] == sorted_rows.tolist()
    for row in found["rows"]:
        assert row["classifier"] == name
        assert row["success"] == plan.success[row["row"]]
        assert row["cost"] == plan.costs[row["row"]]
    assert queries(LARGE, "9000", search=Search(text="99"))["total"] == sum("99" in one for one in plan.ids)
    with pytest.raises(oc.InvalidInputError):
        Search(limit=0)
    with pytest.raises(oc.UnknownNameError):
        queries(LARGE, "9000", search=Search(classifier="nobody"))


def test_a_receipt_says_why() -> None:
    """The chosen one has the highest score, or fills the budget; a flip named is one that happens."""
    plan = SMALL.estimate.plan(10)
    flipped = 0
    for row in range(30):
        made = receipt(SMALL, row, "10")
        scores = {one["classifier"]: one["score"] for one in made["estimates"]}
        for one in made["estimates"]:  # as the page says that it is worked out
            worth = one["success"] - made["price"] * (one["cost"] - made["overhead"])
            assert one["score"] == pytest.approx(worth, abs=1e-12)
        assert made["classifier"] == plan.names[int(plan.choice[row])]
        best = scores[made["classifier"]] >= max(scores.values()) - 1e-12
        assert best or "rest of the budget" in made["sentence"]
        for flip in made["flips"]:
            if flip["kind"] == "budget" and best:
                then = SMALL.estimate.plan(flip["above"])
                assert then.names[int(then.choice[row])] == flip["classifier"]
                flipped += 1
    assert flipped > 10
    with pytest.raises(oc.InvalidInputError, match="numbered from 0 to 29"):
        receipt(SMALL, 30, "10")


def test_nobody_knows_what_would_change_a_plan_for_the_worst_query() -> None:
    """It follows no price alone, so no flips are claimed."""
    plan = SMALL.estimate.plan(10, objective="min")
    made = receipt(explore_plan(plan), 4, "10")
    assert made["flips"] is None
    assert "worst query" in made["sentence"]


def test_efficient_classifiers_are_those_of_the_definition() -> None:
    """No other is at least as good in both and better in one; of equals the first; thousands take no time."""
    random = np.random.default_rng(0)
    made = world.estimate(4, 60)
    pairs = random.integers(1, 9, (60, 2))
    success = np.tile(pairs[:, 1] / 10.0, (4, 1))
    found = singles(replace(made, costs=pairs[:, 0].astype(np.float64), success=success, overhead=0, made_from={}))
    for own, (cost, right) in enumerate(pairs.tolist()):
        others = [(other, *pair) for other, pair in enumerate(pairs.tolist()) if other != own]
        beaten = any(
            one <= cost and two >= right and ((one, two) != (cost, right) or other < own) for other, one, two in others
        )
        assert found[own].efficient is not beaten
    names, costs = tuple(map(str, range(6_000))), random.random(6_000)
    many = oc.Estimate(names, costs, random.random((4, 6_000)), sigma=np.zeros(6_000))
    began = time.perf_counter()
    singles(many)
    assert time.perf_counter() - began < 5.0


def test_combined_answers_stay_combined() -> None:
    """A plan of another budget has the weights that its estimates are those of."""
    plan = SMALL.estimate.plan(10)
    combined = replace(plan, weights=np.array([0.0, 0.1, 0.2, 0.3, 0.4]))
    exploration = explore_plan(combined)
    assert exploration.plan("12").weights.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert exploration.plan("12", Changes.of(["model 2"])).weights.tolist() == [0.0, 0.1, 0.3, 0.4]
    oc.verify(exploration.plan("12"))
    assert any("combined" in note for note in plan_subject(combined, "plan").notes)
    assert not any("combined" in note for note in plan_subject(plan, "plan").notes)


def test_neighbours_are_the_nearest_labelled_rows() -> None:
    """Of the other half, with their labels and who was right."""
    profile = world.profile()
    exploration = explore_profile(profile, seed=1)
    pool, asked = profile.split(0.5, seed=1)
    made = receipt(exploration, 7, "60")
    distances = np.abs(pool.feature_sets["small"] - asked.feature_sets["small"][7]).max(axis=1)
    nearest = np.argsort(distances, kind="stable")[:8]
    assert [one["id"] for one in made["neighbours"]] == [pool.ids[row] for row in nearest]
    assert [one["distance"] for one in made["neighbours"]] == pytest.approx(distances[nearest].tolist())
    assert made["neighbours"][0]["success"] == dict(zip(pool.names, pool.success[nearest[0]].tolist(), strict=True))
    assert {one["label"] for one in made["features"]} == {"cat", "<i>dog</i>", "eel"}
    assert not set(pool.ids) & set(exploration.estimate.ids)


@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_a_plan_gives_back_its_estimate(penalty: float) -> None:
    """At its own budget the exploration is the plan again, penalty or not; its certificate is checked."""
    plan = SMALL.estimate.plan(9.5, penalty=penalty, seed=3)
    exploration = explore_plan(plan)
    again = exploration.plan("9.5")
    assert again.choice.tolist() == plan.choice.tolist()
    for name in ("planned_cost", "value", "bound", "gap", "price"):
        assert getattr(again, name) == getattr(plan, name)
    assert facts_of_plan(plan)["broken"] is None
    assert "price" in str(facts_of_plan(replace(plan, price=plan.price * 2))["broken"]) or penalty
    front = exploration.frontier()
    assert front["least"] == "3"


def test_pictures_are_the_arrays() -> None:
    """Whatever form an image has, another program reads the same pixels from it."""
    random = np.random.default_rng(0)
    colours = random.integers(0, 256, (5, 7, 3)).astype(np.uint8)
    for image, wanted in (
        (colours, colours),
        (np.moveaxis(colours, -1, 0), colours),
        (colours[..., 0], colours[..., 0]),
        (colours[..., :1], colours[..., 0]),
        (colours / np.float32(255.0), colours),
    ):
        assert np.array_equal(np.asarray(Image.open(BytesIO(png_of(image)))), wanted)


def test_texts_and_images_are_shown_by_their_ids(tmp_path: Path) -> None:
    """Texts as they are, files as they are, arrays as pictures; numbers are neither."""
    texts = previews_of(["a", "b"], ["short", "long " * 100])
    assert texts.of("a") == {"text": "short"}
    assert len(texts.short("b")["text"]) == 161
    assert texts.of("c") == {}
    with pytest.raises(oc.InvalidInputError, match="no picture of 'a'"):
        texts.picture("a")
    (tmp_path / "cat.png").write_bytes(png_of(np.zeros((2, 2))))
    files = previews_of(["a", "b"], [str(tmp_path / "cat.png"), str(tmp_path / "gone.jpg")])
    assert files.picture("a") == ("image/png", png_of(np.zeros((2, 2))))
    with pytest.raises(oc.InvalidInputError, match="no such file"):
        files.picture("b")
    assert files.of("a") == {"picture": True}
    # What only ends like the name of an image is a text.
    for text in ("Where is logo.png", f"{'x' * 300}.png"):
        assert previews_of(["a"], [text]).of("a") == {"text": text}
    assert previews_of(["a"], np.zeros((1, 4))).of("a") == {}
    assert previews_of(["a"], np.zeros((1, 4, 4))).of("a") == {"picture": True}
