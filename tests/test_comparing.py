"""compare: every baseline charged what it uses, judged on what it did not see."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import occamroute as oc
from occamroute.cli._app import app
from occamroute.evaluation import baselines
from occamroute.evaluation.baselines import Penalties
from occamroute.evaluation.comparing import DEFAULT_METHODS, usual_shares

SHARES = (0.05, 0.1, 0.2, 0.4, 1.0)


@pytest.fixture(scope="module")
def report(cifar10_small: tuple[oc.Profile, oc.Profile]) -> oc.Report:
    """Every method on 2,000 rows and 1,000 queries."""
    profile, test = cifar10_small
    full = float(profile.costs.max()) * len(test)
    return oc.compare(profile, test, budgets=[share * full for share in SHARES], methods=DEFAULT_METHODS)


def row_of(report: oc.Report, method: str, share: float) -> dict[str, Any]:
    return next(row for row in report.of(method) if row["budget_share"] == pytest.approx(share))


def test_every_method_keeps_every_budget(report: oc.Report) -> None:
    """Bills are exact and never above the budget; a method has no row where it can do nothing."""
    assert report.methods[0] == "mixture"
    assert set(report.methods) == set(DEFAULT_METHODS)
    for row in report.rows:
        assert Fraction(row["exact_cost"]) <= Fraction(repr(row["budget"]))
        assert Fraction(repr(row["cost"])) <= Fraction(repr(row["budget"]))
        assert row["cost"] == pytest.approx(float(Fraction(row["exact_cost"])), rel=1e-12)
        assert sum(row["usage"].values()) == 1000
    assert len(report.of("mixture")) == len(SHARES)


def test_the_bill_is_what_was_used(report: oc.Report, cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Extraction once a query for what looks at features, then every answer but the extractor's own."""
    profile, _ = cifar10_small
    prices = [Fraction(repr(float(cost))) for cost in profile.costs]
    for row in report.rows:
        bill = prices[0] * 1000 if row["extractor"] else Fraction(0)
        for column, name in enumerate(profile.names):
            if name != row["extractor"]:
                bill += prices[column] * row["usage"][name]
        # Units are rounded up to a power of ten.
        assert float(Fraction(row["exact_cost"]) - bill) == pytest.approx(0.0, abs=1e-12)
        assert (row["extractor"] is None) or row["method"] in (
            "forest", "forest_regularized", "sampled", "bagged", "auto",
        )  # fmt: skip


def test_simple_baselines_are_what_they_say(report: oc.Report, cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """The dearest affordable, the most accurate affordable, and the oracle above everything it bounds."""
    profile, test = cifar10_small
    costs = profile.costs / profile.costs.max()
    for share in SHARES:
        affordable = [column for column in range(7) if costs[column] <= share]
        dearest = max(affordable, key=lambda column: costs[column])
        best = max(affordable, key=lambda column: profile.accuracy[column])
        assert row_of(report, "single_best", share)["accuracy"] == pytest.approx(test.accuracy[dearest])
        assert row_of(report, "best_affordable", share)["accuracy"] == pytest.approx(test.accuracy[best])
        oracle = row_of(report, "oracle", share)["accuracy"]
        for row in report.rows:
            if row["budget_share"] == pytest.approx(share) and row["method"] != "auto":
                assert row["accuracy"] <= oracle + 1e-9
    assert row_of(report, "mixture", 1.0)["way_to_oracle"] == 0.0
    assert row_of(report, "oracle", 1.0)["way_to_oracle"] == pytest.approx(1.0)


def test_the_mixture_is_scored_as_a_mixture(report: oc.Report, cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Its accuracy is that of its shares, whichever queries they fell on."""
    _, test = cifar10_small
    for row in report.of("mixture"):
        shares = np.array(list(row["usage"].values())) / 1000
        assert row["accuracy"] == pytest.approx(float(test.accuracy @ shares))


def test_differences_are_paired(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """A method differs from itself by nothing; intervals are as wide as the normal approximation says."""
    profile, test = cifar10_small
    budget = 0.2 * float(profile.costs.max()) * len(test)
    found = oc.compare(
        profile, test, budgets=[budget], reference="same",
        methods={"same": "bagged", "again": oc.BaggedNeighbors(), "single": "single_best"},
    )  # fmt: skip
    (again,), (single,) = found.of("again"), found.of("single")
    assert again["difference"] == 0.0
    assert again["difference_interval"] == (0.0, 0.0)
    estimate = oc.estimate(profile, test.features).plan(budget)
    gain = test.success[:, 4] - test.success[np.arange(1000), estimate.choice]
    assert single["difference"] == pytest.approx(gain.mean())
    error = gain.std() / np.sqrt(1000)
    low, high = single["difference_interval"]
    assert low == pytest.approx(gain.mean() - 1.645 * error, abs=0.3 * error)
    assert high == pytest.approx(gain.mean() + 1.645 * error, abs=0.3 * error)


def test_groups_widen_intervals(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Copies of a query are no evidence of their own: whole groups are drawn again."""
    profile, test = cifar10_small
    rows = np.repeat(np.arange(250), 4)
    given = test.names, test.costs, np.asarray(test.features)[rows], test.success[rows]
    loose = oc.Profile(*given, extractor="resnet8-w8")
    grouped = oc.Profile(*given, extractor="resnet8-w8", groups=rows)
    budget = float(profile.costs.max()) * 1000
    widths = []
    for one in (loose, grouped):
        (row,) = oc.compare(profile, one, budgets=[budget], methods=["single_best"]).of("single_best")
        low, high = row["difference_interval"]
        widths.append(high - low)
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.25)


def test_cost_reduction_view(report: oc.Report) -> None:
    """The paper's table: what is lost at the highest budget that saves as much."""
    found = {(row["method"], row["cost_reduction"]): row for row in report.cost_reduction((0.6, 0.9))}
    dearest = report.about["dearest_accuracy"]
    for method in ("mixture", "single_best", "oracle"):
        for reduction, share in ((0.6, 0.4), (0.9, 0.1)):
            reached = row_of(report, method, share)["accuracy"]
            drop = found[method, reduction]["accuracy_drop"]
            assert drop == pytest.approx(100 * (dearest - reached) / dearest)
    with pytest.raises(oc.InvalidInputError, match="reductions must lie between 0 and 1"):
        report.cost_reduction((1.5,))


def test_seeds_are_averaged(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """What draws is repeated; what does not draw stays what it was."""
    profile, test = cifar10_small
    budget = [0.3 * float(profile.costs.max()) * len(test)]
    methods = ["random", "single_best"]
    three = oc.compare(profile, test, budgets=budget, methods=methods, seeds=3)
    each = [oc.compare(profile, test, budgets=budget, methods=methods, seed=seed) for seed in range(3)]
    reached = [one.of("random")[0]["accuracy"] for one in each]
    assert three.of("random")[0]["accuracy"] == pytest.approx(np.mean(reached))
    assert three.of("random")[0]["accuracy_spread"] == pytest.approx(np.std(reached))
    assert three.of("single_best")[0]["accuracy_spread"] == pytest.approx(0.0, abs=1e-12)


def test_costs_by_query_are_the_test_queries_own() -> None:
    """Bills are added up from what the test queries cost, whatever the profile's rows did."""
    random = np.random.default_rng(0)

    def made(rows: int, scale: float) -> oc.Profile:
        features = random.random((rows, 2))
        success = random.random((rows, 2)) < np.stack([features[:, 0], np.full(rows, 0.8)], axis=1)
        return oc.Profile(("a", "b"), scale * random.integers(1, 5, (rows, 2)) * [0.1, 1.0], features, success)

    profile, test = made(600, 1.0), made(300, 2.0)
    found = oc.compare(profile, test, budgets=[500.0, 900.0], methods=["single_best", "bagged", "auto"])
    for row in found.rows:
        assert Fraction(row["exact_cost"]) <= row["budget"]
    alone = [row for row in found.of("single_best") if row["usage"]["b"] == 300]
    for row in alone:
        assert row["cost"] == pytest.approx(float(test.costs[:, 1].sum()))


def test_nothing_of_the_test_half_is_learned(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Shuffle the test queries' labels and success: no choice, no knob, no cost changes but the oracle's."""
    profile, test = cifar10_small
    order = np.random.default_rng(0).permutation(len(test))
    assert test.labels is not None
    shuffled = replace(test, success=test.success[order], labels=test.labels[order])
    budgets = [share * float(profile.costs.max()) * len(test) for share in (0.1, 0.3)]
    methods = ["sampled", "bagged", "forest_regularized", "auto"]
    seen, blind = (oc.compare(profile, one, budgets=budgets, methods=methods) for one in (test, shuffled))
    for first, second in zip(seen.rows, blind.rows, strict=True):
        if first["method"] != "oracle":
            for key in ("chosen", "usage", "exact_cost", "extractor", "expected_accuracy"):
                assert first[key] == second[key]


def test_wrong_input_gets_one_sentence(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Names, budgets and profiles that do not fit."""
    profile, test = cifar10_small
    with pytest.raises(oc.UnknownNameError, match="unknown method 'magic': use one of single_best"):
        oc.compare(profile, test, methods=["magic"])
    with pytest.raises(oc.UnknownNameError, match="unknown reference 'forest'"):
        oc.compare(profile, test, methods=["bagged"], reference="forest")
    with pytest.raises(oc.InvalidInputError, match="methods must be several names, or a mapping"):
        oc.compare(profile, test, methods="bagged")
    with pytest.raises(oc.InvalidInputError, match="a name or an estimator with fit and predict"):
        oc.compare(profile, test, methods={"mine": 3})
    with pytest.raises(oc.InvalidInputError, match="budgets must not be empty"):
        oc.compare(profile, test, budgets=[])
    with pytest.raises(oc.InvalidInputError, match="budget must be a finite number"):
        oc.compare(profile, test, budgets=[float("nan")])
    with pytest.raises(oc.InvalidInputError, match="the same classifiers"):
        oc.compare(profile, test.select(test.names[:3]))
    with pytest.raises(
        oc.BudgetTooSmallError, match=r"a budget of 0\.0001 is too small: answering every query takes at least"
    ):
        oc.compare(profile, test, budgets=[0.0001], methods=["bagged"])
    with pytest.raises(oc.UnknownNameError, match="unknown extractor"):
        oc.compare(profile, test, methods=["bagged"], extractor="wrn28-10")


def test_budgets_spread_with_costs() -> None:
    """Where the dearest costs a thousand times the cheapest, budgets are spread logarithmically."""
    features, success = np.zeros((4, 1)), np.ones((4, 2))
    near = usual_shares(oc.Profile(("a", "b"), (1.0, 10.0), features, success))
    far = usual_shares(oc.Profile(("a", "b"), (0.001, 10.0), features, success))
    assert near == (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0)
    assert far[-1] == 1.0
    assert far[0] < 0.001
    assert np.ptp(np.diff(np.log(far))) < 0.01


def test_reports_are_kept(report: oc.Report, tmp_path: Path) -> None:
    """Saved and loaded, a report is what it was; its chart names every method."""
    oc.save(report, tmp_path / "report.parquet")
    again = oc.load(tmp_path / "report.parquet")
    assert again.about == report.about
    assert again.rows == report.rows
    chart = report.chart()
    for method in report.methods:
        assert f">{method}<" in chart
    assert repr(report) == "Report(10 methods, 5 budgets, 1000 queries)"


def test_compare_from_the_command_line(cifar10_small: tuple[oc.Profile, oc.Profile], tmp_path: Path) -> None:
    """Two files, some shares: JSON with every row, a CSV with as many lines, a table to read."""
    for profile, name in zip(cifar10_small, ("known", "test"), strict=True):
        oc.save(profile, tmp_path / f"{name}.parquet")
    called = ["compare", str(tmp_path / "known.parquet"), "--test", str(tmp_path / "test.parquet"), "--share", "0.2",
              "--share", "0.5", "--methods", "single_best,bagged"]  # fmt: skip
    run = CliRunner().invoke(app, [*called, "--json", "--out", str(tmp_path / "rows.csv")])
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert {row["method"] for row in told["rows"]} == {"mixture", "single_best", "bagged", "oracle"}
    assert {row["cost_reduction"] for row in told["cost_reduction"]} == {0.1, 0.2, 0.4}
    assert {row["budget_share"] for row in told["cost_reduction"]} == {0.5}
    with (tmp_path / "rows.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(told["rows"])
    assert [float(line["accuracy"]) for line in lines] == [row["accuracy"] for row in told["rows"]]
    shown = CliRunner().invoke(app, [*called, "--out", str(tmp_path / "chart.svg")])
    assert shown.exit_code == 0, shown.output
    assert "difference from mixture" in shown.stdout
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")


def test_half_of_a_profile_is_set_aside(cifar10_small: tuple[oc.Profile, oc.Profile], tmp_path: Path) -> None:
    """Without a test file, one half is learned from and the other judged on."""
    oc.save(cifar10_small[0], tmp_path / "all.parquet")
    run = CliRunner().invoke(
        app, ["compare", str(tmp_path / "all.parquet"), "--methods", "best_affordable", "--share", "0.2", "--json"]
    )
    told = json.loads(run.stdout)
    assert told["n_profile"] == told["n_queries"] == 1000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--budget", "1", "--share", "0.1"], "not with both"),
        (["--out", "report.pdf"], "must end in .parquet, .csv or .svg"),
        (["--methods", "magic"], "unknown method 'magic'"),
        (["--budget", "lots"], "budget must be"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    """As everywhere: what is wrong, and what would do."""
    profile = oc.Profile(("a", "b"), (1, 2), np.random.default_rng(0).random((60, 2)), np.ones((60, 2)))
    oc.save(profile, tmp_path / "p.parquet")
    run = CliRunner().invoke(app, ["compare", str(tmp_path / "p.parquet"), *arguments])
    assert isinstance(run.exception, oc.OccamError)
    assert sentence in str(run.exception)


def test_the_bill_is_at_the_test_queries_prices() -> None:
    """Extraction, too, is charged what the test queries cost, whatever the profile's rows did."""
    random = np.random.default_rng(0)
    features, success = random.random((300, 2)), random.integers(0, 2, (300, 2))
    known = oc.Profile(("a", "b"), (1, 50), features, success, extractor="a")
    fresh = oc.Profile(("a", "b"), (30, 50), features, success, extractor="a")
    with pytest.raises(oc.BudgetTooSmallError, match=r"at least 9000\b"):
        oc.compare(known, fresh, budgets=[300.0], methods=["bagged", "auto"])
    found = oc.compare(known, fresh, budgets=[9000.0], methods=["bagged"])
    assert found.of("bagged")[0]["exact_cost"] == "9000"
    assert found.about["dearest_cost"] == 15000.0


def test_bills_have_all_their_digits() -> None:
    """Costs with long decimals are written out, not rounded."""
    profile = oc.Profile(("a", "b"), (1 / 2048, 1.0), np.zeros((3, 1)), np.ones((3, 2)))
    found = oc.compare(profile, profile, budgets=[1.0], methods=["single_best"])
    assert found.of("single_best")[0]["exact_cost"] == "0.00146484375"


def test_seeds_reach_what_draws(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Forests are grown anew with each seed."""
    profile, test = (one.take(np.arange(400)) for one in cifar10_small)
    found = oc.compare(profile, test, budgets=[0.02], methods=["forest_regularized"], seeds=np.int64(2))  # type: ignore[arg-type]
    assert found.of("forest_regularized")[0]["accuracy_spread"] > 0.0


def test_free_classifiers_and_a_single_one() -> None:
    """Where nothing costs anything there is one budget, 0; one classifier leaves nothing to choose."""
    random = np.random.default_rng(0)
    features = random.random((80, 2))
    free = oc.Profile(("a", "b"), (0, 0), features, random.integers(0, 2, (80, 2)))
    found = oc.compare(free, free)
    assert found.budgets == [0.0]
    assert len(found.of("auto")) == 1
    alone = oc.Profile(("a",), (1,), features, random.integers(0, 2, (80, 1)))
    assert len(oc.compare(alone, alone, budgets=[80.0]).methods) == 10


def test_estimators_that_return_nothing_from_fit(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Only fit and predict are asked for, not what fit gives back."""

    class Quiet(oc.Mixture):
        def fit(self, features: Any, success: Any) -> Any:
            super().fit(features, success)

    profile, test = cifar10_small
    found = oc.compare(profile, test, budgets=[1.0], methods={"quiet": Quiet()})
    assert found.of("quiet")[0]["usage"] == found.of("mixture")[0]["usage"]
    with pytest.raises(oc.InvalidInputError, match="'mixture' takes part in every comparison"):
        oc.compare(profile, test, methods={"mixture": "random"})
    with pytest.raises(oc.InvalidInputError, match="methods must be several names"):
        oc.compare(profile, test, methods=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("published", [5.0, 100.0])
def test_the_papers_method_tries_the_papers_penalties(published: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """λ is tuned over the published 5 and 100 too: whichever is best on held-out rows is used."""
    rng = np.random.default_rng(0)
    profile = oc.Profile(
        names=("cheap", "expensive"), costs=[0.1, 1.0], success=rng.random((80, 2)), features=rng.random((80, 3))
    )
    tried: list[float] = []
    real = vars(baselines)["trial"]

    def recorded(*given: Any, **options: Any) -> Any:
        made = real(*given, **options)
        tried.append(made.penalty)
        return replace(made, outcome=np.full(made.outcome.shape, float(made.penalty == published)))

    monkeypatch.setattr(baselines, "trial", recorded)
    penalties = Penalties.of(profile, next(iter(profile.feature_sets)), 0)
    assert penalties.best(Fraction(1, 2)) == published
    assert tried[0] == 0.0
    assert len(set(tried)) == len(tried)
