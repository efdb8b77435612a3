"""occamroute report: pages that say what the objects say, every number with its interval, and nothing that runs."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run
from report_reading import ReadPage
from typer.testing import CliRunner

import occamroute as oc
from occamroute._intervals import mean_bounds
from occamroute.cli._app import app
from occamroute.reporting.comparison_reading import headline_row
from occamroute.reporting.frame import POLICY
from occamroute.reporting.stories import Source, Story, story_page
from occamroute.reporting.telling import tell

METHODS = ("single_best", "best_affordable", "random", "bagged", "auto")
NASTY = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "plain & simple")
OLD = Path(__file__).parent / "old_files" / "report-without-bounds.parquet"


@pytest.fixture(scope="module")
def report(cifar10: tuple[oc.Profile, oc.Profile]) -> oc.Report:
    """Several methods at ten budgets on 10,000 queries."""
    profile, test = cifar10
    return oc.compare(profile.take(np.arange(1500)), test, methods=METHODS)


@pytest.fixture(scope="module")
def told(report: oc.Report) -> tuple[Story, ReadPage, str]:
    return page_of(report)


def page_of(noun: Any, **about: Any) -> tuple[Story, ReadPage, str]:
    source = Source("file.parquet", "report.html", datetime.now(UTC), **about)
    story = tell(noun, source)
    page = story_page(story, source)
    return story, ReadPage(page), page


def nasty_profile(rows: int = 240) -> oc.Profile:
    random = np.random.default_rng(0)
    features = random.random((rows, 2))
    chances = np.stack([features[:, 0], 0.3 + 0.6 * features[:, 1], np.full(rows, 0.9)], axis=1)
    success = (random.random((rows, 3)) < chances).astype(float)
    return oc.Profile(NASTY, (0.1, 0.4, 1.0), features, success, made_from={"by": "<b>me</b>"})


def share(value: float) -> str:
    return f"{100 * value:.2f} %"


def ends(interval: tuple[float, float], *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return " to ".join(f"{100 * end:{sign}.2f}".replace("-", "−") for end in interval)


def test_every_method_and_budget_is_there_with_its_interval(
    report: oc.Report, told: tuple[Story, ReadPage, str]
) -> None:
    """Accuracies, differences, drops and averages on the page are those of the report, to the digit shown."""
    _, page, _ = told
    accuracies = {row[0]: row[1:] for row in page.table("Accuracy with its 90 %")[1:]}
    differences = {row[0]: row[1:] for row in page.table("Difference from mixture in points")[1:]}
    assert set(accuracies) == set(report.methods)
    for method in report.methods:
        rows = {row["budget"]: row for row in report.of(method)}
        for place, budget in enumerate(report.budgets):
            if budget not in rows:
                assert accuracies[method][place] == "–"
                continue
            row = rows[budget]
            assert accuracies[method][place] == f"{share(row['accuracy'])} | {ends(row['accuracy_bounds'])}"
            if method not in ("mixture", "oracle"):
                shown = f"{100 * row['difference']:+.2f}".replace("-", "−")
                assert differences[method][place] == f"{shown} | {ends(row['difference_interval'], signed=True)}"
        mean, bounds = report.averages()[method], report.about["averages"][method]
        assert accuracies[method][-1] == f"{share(mean)} | {ends(bounds)}"
    drops = {row[0]: row[1:] for row in page.table("Accuracy lost")[1:]}
    for found in report.cost_reduction():
        place = [0.1, 0.2, 0.4].index(found["cost_reduction"])
        shown = f"{found['accuracy_drop']:+.2f} %".replace("-", "−")
        assert drops[found["method"]][place] == f"{shown} | {ends(found['drop_interval'], signed=True)}"
    costs = page.table("Every method and budget")[1:]
    assert [row[2] for row in costs if row[0] == "auto"] == [row["exact_cost"] for row in report.of("auto")]


def test_the_first_screen(report: oc.Report, told: tuple[Story, ReadPage, str]) -> None:
    """What is saved, at what accuracy, how sure: the cheapest row that is as good as the dearest, or the best."""
    story, page, _ = told
    row = headline_row(report, "auto")
    dearest = report.about["dearest_accuracy"]
    saving = [one for one in report.of("auto") if one["cost_share"] < 1.0]
    as_good = [one["cost_share"] for one in saving if one["accuracy"] >= dearest]
    alike = [one["cost_share"] for one in saving if one["dearest_difference_interval"][1] >= 0.0]
    assert alike
    assert row["cost_share"] == min(as_good or alike)
    saved, accuracy, against = story.figures
    assert saved.number == pytest.approx(1.0 - row["cost"] / report.about["dearest_cost"])
    assert (accuracy.number, accuracy.interval) == (row["accuracy"], row["accuracy_bounds"])
    assert (against.number, against.interval) == (row["dearest_difference"], row["dearest_difference_interval"])
    assert page.figures == [[one.what, one.value, one.sure] for one in story.figures]
    assert share(row["accuracy"]) in story.sentence
    assert ends(row["accuracy_bounds"]) in story.sentence


def test_intervals_are_those_of_other_computations(report: oc.Report, cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """Wilson's by hand for one classifier; paired normal intervals for differences; a way of 0 and of 1 is certain."""
    _, test = cifar10
    (row,) = [row for row in report.of("single_best") if row["budget_share"] == pytest.approx(0.1)]
    column = test.names.index(row["chosen"])
    outcome = test.success[:, column]
    share, count, z = float(outcome.mean()), len(test), 1.6448536269514722
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    assert row["accuracy_bounds"] == pytest.approx((middle - half, middle + half), abs=2e-4)
    gain = outcome - test.success[:, int(test.mean_costs.argmax())]
    error = float(gain.std()) / np.sqrt(count)
    assert row["dearest_difference"] == pytest.approx(float(gain.mean()))
    assert row["dearest_difference_interval"] == pytest.approx(
        (gain.mean() - z * error, gain.mean() + z * error), abs=0.3 * error
    )
    for one in report.rows:
        assert one["accuracy_bounds"][0] <= one["accuracy"] <= one["accuracy_bounds"][1]
        low, high = one["drop_interval"]
        drop = (report.about["dearest_accuracy"] - one["accuracy"]) / report.about["dearest_accuracy"]
        assert low - 1e-9 <= drop <= high + 1e-9
        if one["method"] in ("mixture", "oracle"):
            certain = 0.0 if one["method"] == "mixture" else 1.0
            assert one["way_interval"] == pytest.approx((certain, certain))


def test_bounds_know_groups_and_certainty() -> None:
    """Copies of a row tell nothing more; where all rows are right the interval is no point."""
    random = np.random.default_rng(1)
    rows = (random.random((500, 1)) < 0.7).astype(float)
    loose = mean_bounds(np.repeat(rows, 4, axis=0))[0]
    grouped = mean_bounds(np.repeat(rows, 4, axis=0), np.repeat(np.arange(500), 4))[0]
    np.testing.assert_allclose(grouped, mean_bounds(rows)[0], atol=1e-12)
    assert grouped[1] - grouped[0] == pytest.approx(2 * (loose[1] - loose[0]), rel=0.02)
    low, high = mean_bounds(np.ones((30, 1)))[0]
    assert low == pytest.approx(30 / (30 + 1.6448536269514722**2))
    assert high == 1.0


def test_ninety_of_a_hundred_intervals_hold_the_truth() -> None:
    """What is called 90 % is right about as often."""
    random = np.random.default_rng(2)
    table = (random.random((200, 2000)) < 0.9).astype(float)
    bounds = mean_bounds(table)
    assert 0.87 < ((bounds[:, 0] <= 0.9) & (bounds[:, 1] >= 0.9)).mean() < 0.94


def test_calibration_is_counted_right(report: oc.Report, told: tuple[Story, ReadPage, str]) -> None:
    """Tenths of the queries, together what was reached and promised; the page shows one budget of them."""
    kept = report.about["calibration"]
    reached = {row["budget"]: row for row in report.of("auto")}
    assert kept
    for one in kept:
        counts = np.array(one["count"])
        row = reached[one["budget"]]
        assert counts.sum() == 10_000
        assert counts @ np.array(one["reached"]) / 10_000 == pytest.approx(row["accuracy"], abs=1e-5)
        assert counts @ np.array(one["estimated"]) / 10_000 == pytest.approx(row["expected_accuracy"], abs=0.002)
        assert one["estimated"] == sorted(one["estimated"])
    _, page, _ = told
    rows = page.table("Calibration at a budget of")[1:]
    assert any([share(value) for value in one["reached"]] == [row[3].split(" | ")[0] for row in rows] for one in kept)
    assert len(json.dumps(kept)) < 20_000


def test_losing_is_said_in_words(report: oc.Report) -> None:
    """Where a method is below the mixture for sure, or another is above it, the page says so."""
    rows = [dict(row) for row in report.rows]
    for row in rows:
        if row["method"] == "auto":
            row |= {"difference": -0.02, "difference_interval": (-0.03, -0.01), "accuracy": row["accuracy"] - 0.03,
                    "accuracy_interval": (0.9, 0.95), "dearest_difference_interval": (-0.05, -0.01)}  # fmt: skip
    _, page, _ = page_of(oc.Report(rows, report.about))
    assert "It loses against the best mixture" in page.text
    assert f"auto loses against mixture at {len(report.of('auto'))} of" in page.text
    assert "bagged was right more often than auto" in page.text
    assert "It promised too much at a budget of" in page.text
    assert "less accurate than the dearest classifier" in page.text
    for row in rows:  # whoever cannot tell does not say that it is about the same
        row |= {"accuracy": 0.5, "dearest_difference": -0.05, "dearest_difference_interval": (-0.11, 0.01)}
    title = page_of(oc.Report(rows, report.about))[0].title
    assert title.startswith("From 11.00 points less to 1.00 more accurate than the dearest classifier, for")


def test_the_page_is_small_and_stands_alone(told: tuple[Story, ReadPage, str]) -> None:
    """Ten thousand queries in less than a megabyte, nothing to load, nothing that runs, no id twice."""
    _, read, page = told
    assert len(page.encode()) < 1_000_000
    assert f'http-equiv="Content-Security-Policy" content="{POLICY}"' in page
    assert not read.tags & {"script", "img", "link", "iframe", "object", "embed", "form", "base"}
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert not re.search(r"\b(nan|inf)\b|(?<!=)None\b", read.text)
    assert not re.search(r"url\(|@import|src=", page)
    assert len(read.ids) == len(set(read.ids))


def test_files_of_older_versions_have_a_page(tmp_path: Path) -> None:
    """A report without the newer columns loads, says what it lacks, and is kept again."""
    report = oc.load(OLD)
    assert report.of("auto")[0]["accuracy_bounds"] is None
    assert report.of("auto")[0]["accuracy_interval"] is not None
    story, page, _ = page_of(report)
    assert story.warnings == ("Made by a version that kept fewer intervals: run compare again to have them all.",)
    assert "no interval known" in page.text
    assert not re.search(r"\b(nan|inf)\b|(?<!=)None\b", page.text)
    oc.save(report, tmp_path / "again.parquet")
    again = oc.load(tmp_path / "again.parquet")
    assert again.rows == report.rows
    assert "<svg" in again._repr_html_()


def test_a_missing_old_column_is_still_an_error(report: oc.Report) -> None:
    """Only what older versions lacked may be missing."""
    parts = report.parts()
    del parts.columns["accuracy"]
    with pytest.raises(KeyError):
        oc.Report.from_parts(parts)


@pytest.fixture(scope="module")
def nouns() -> dict[str, Any]:
    """One of each, with names that would run if they could."""
    profile, test = nasty_profile().split(0.6, seed=0)
    budget = 0.4 * len(test)
    estimate = oc.estimate(profile, test.features)
    pool = oc.Pool([Steady(name, cost) for name, cost in zip(NASTY, (0.1, 0.4, 1.0), strict=True)], classes=("a", "b"))
    run = oc.classify(pool, oc.profile(pool, test.features, ["a"] * len(test)), test.features, budget=budget)
    failed = replace(run, failures={0: "it said <i>no</i>", 3: "it said <i>no</i>"}, expected_accuracy=0.5)
    return {
        "profile": profile,
        "estimate": estimate,
        "frontier": estimate.frontier(),
        "plan": oc.plan(profile, test.features, budget=budget),
        "plain plan": estimate.plan(budget, penalty=0.5),
        "worst first": estimate.plan(budget, objective="min"),
        "run": run,
        "failed run": failed,
        "comparison": oc.compare(profile, test, methods=["bagged", "auto"], seeds=2),
    }


class Steady:
    """Answers the first class, the surer the dearer it is."""

    def __init__(self, name: str, cost: float) -> None:
        self.name, self.cost = name, cost

    def predict_proba(self, queries: Any) -> Any:
        sure = 0.6 + 0.3 * self.cost
        return np.tile([sure, 1.0 - sure], (len(queries), 1))


def test_names_are_shown_as_text(nouns: dict[str, Any]) -> None:
    """Names with script and HTML in them are text on every page and in every notebook display."""
    for name, noun in nouns.items():
        shown = [noun._repr_html_()]
        if name != "estimate":
            _, page, html = page_of(noun)
            shown.append(html)
            assert not page.tags & {"script", "img", "i", "b"} - {"b"}, name
        for html in shown:
            assert "<script" not in html
            assert "<img" not in html
            assert "<i>no" not in html
            assert "<b>me" not in html
    _, page, _ = page_of(nouns["profile"])
    for name in NASTY:
        assert name in page.text


def test_a_plan_says_what_it_promises(nouns: dict[str, Any]) -> None:
    """Expected accuracy with its interval, exact costs, the certificate, budgets around it by solver calls."""
    plan = nouns["plan"]
    story, page, _ = page_of(plan)
    saved, expected, gap = story.figures
    assert (expected.number, expected.interval) == (plan.expected_accuracy, plan.accuracy_interval)
    assert expected.sure == f"90 %: {ends(plan.accuracy_interval)}"
    assert saved.number == pytest.approx(1.0 - plan.planned_cost / len(plan))
    assert gap.number == plan.gap
    assert "it holds" in page.text
    around = page.table("The optimum at budgets around this one")[1:]
    for row in around:
        budget = float(row[0].replace(",", ""))
        again = oc.solve(plan.problem.value, plan.problem.cost, budget - len(plan) * float(plan.problem.overhead))
        assert float(row[2]) == pytest.approx(again.value / len(plan), abs=1e-6)
    used = {row[0]: row[1] for row in page.table("Who answers; counts")[1:]}
    assert used == {name: f"{count:,}" for name, count in plan.usage.items()}
    assert not story.warnings


def test_an_optimistic_plan_is_called_optimistic(nouns: dict[str, Any]) -> None:
    """No interval is made up where none is known."""
    for name in ("plain plan", "worst first"):
        story, page, _ = page_of(nouns[name])
        assert "optimistic" in story.warnings[0]
        assert story.figures[1].interval is None
        assert "no interval known" in page.text


def test_a_false_certificate_gets_no_page(nouns: dict[str, Any]) -> None:
    """The certificate is recomputed when the page is made."""
    with pytest.raises(oc.CertificateError):
        page_of(replace(nouns["plan"], planned_cost=nouns["plan"].planned_cost / 2))


def test_a_run_says_what_was_bought(nouns: dict[str, Any]) -> None:
    """Spent against the budget, answers by classifier, failures by reason."""
    run = nouns["run"]
    story, page, _ = page_of(run)
    assert story.figures[0].number == run.spent
    assert (story.figures[1].number, story.figures[1].interval) == (run.expected_accuracy, run.accuracy_interval)
    assert run.accuracy_interval == tuple(run.made_from["accuracy_interval"])
    rows = {row[0]: row[1:] for row in page.table("Who answers; counts")[1:]}
    for column, name in enumerate(run.names):
        assert rows[name][0] == f"{run.usage[name]:,}"
        assert float(rows[name][2]) == pytest.approx(float(run.cost[run.choice == column].sum()))
    story, page, _ = page_of(nouns["failed run"])
    assert story.figures[1].interval is None
    assert page.table("Queries without an answer")[1] == ["2", "it said <i>no</i>", f"{run.ids[0]}, {run.ids[3]}"]


def test_labels_judge_a_run(nouns: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With labels the page says how right the answers are, with intervals, whoever gave them."""
    monkeypatch.chdir(tmp_path)
    run = nouns["run"]
    oc.save(run, "run.parquet")
    truth = ["a" if row % 4 else "b" for row in range(len(run))]
    lines = [f"{name},{label}" for name, label in zip(run.ids, truth, strict=True)]
    Path("labels.csv").write_text("\n".join(["id,label", *reversed(lines[:60])]) + "\n")
    Path("ordered.csv").write_text("\n".join(["kind", *truth]) + "\n")
    done = invoke("report", "run.parquet", "--labels", "labels.csv", "--json")
    assert done.exit_code == 0, done.exception
    right = np.array([answer == label for answer, label in zip(run.answers[:60], truth, strict=False)], float)
    reached = json.loads(done.output)["figures"][2]
    assert reached["what"] == "Right, of 60 with labels"
    assert reached["number"] == pytest.approx(right.mean()) == pytest.approx(0.75)
    assert reached["interval"] == pytest.approx(mean_bounds(right[:, None])[0])
    page = ReadPage(Path("report.html").read_text(encoding="utf-8"))
    rows = {row[0]: row[1:] for row in page.table("How right the answers are")[1:]}
    assert rows["all"] == ["60", f"75.00 % | {ends(mean_bounds(right[:, None])[0])}"]
    assert sum(int(row[0]) for name, row in rows.items() if name != "all") == 60
    assert sum(int(row[1]) for row in page.table("Answers by their probability")[1:]) == 60
    assert page.commands[0] == "occamroute report run.parquet --out report.html --labels labels.csv"
    assert invoke("report", "run.parquet", "--labels", "ordered.csv", "--label", "kind").exit_code == 0
    oc.save(nouns["plan"], "plan.parquet")
    Path("short.csv").write_text("label\na\n")
    Path("other.csv").write_text("id,label\nnobody,a\n")
    for words, sentence in (
        (["plan.parquet", "--labels", "labels.csv"], "labels are for a run, got a plan"),
        (["run.parquet", "--labels", "short.csv"], "there must be a label for each of the run's"),
        (["run.parquet", "--labels", "other.csv"], "none of the labels' ids"),
        (["run.parquet", "--labels", "ordered.csv"], "no column 'label'"),
    ):
        assert sentence in str(invoke("report", *words).exception)


def test_a_profile_and_a_frontier_have_pages(nouns: dict[str, Any]) -> None:
    """Accuracies with intervals and the doctor's notes; points of the frontier, called estimates."""
    profile = nouns["profile"]
    _, page, _ = page_of(profile)
    bounds = mean_bounds(profile.success)
    rows = {row[0]: row[2] for row in page.table("Each classifier alone")[1:]}
    for column, name in enumerate(profile.names):
        assert rows[name] == f"{share(profile.accuracy[column])} | {ends(bounds[column])}"
    assert "few_rows" in page.text
    front = nouns["frontier"]
    story, page, _ = page_of(front)
    assert "optimistic" in story.warnings[0]
    assert page.table("Some of the")[1][1] == share(front.accuracies[0])


def test_odd_cases_have_pages() -> None:
    """Nothing costs anything, one classifier alone, one query, a yardstick alone: still a page, with no odd number."""
    random = np.random.default_rng(4)
    features = random.random((40, 2))
    success = (random.random((40, 2)) < 0.7).astype(float)
    free = oc.Profile(("a", "b"), (0, 0), features, success)
    story, page, _ = page_of(oc.compare(free, free, budgets=[0], methods=["single_best"]))
    assert story.title.endswith("where nothing costs anything")
    assert story.figures[0].number == 0.0
    alone = oc.Profile(("only",), (2,), features, success[:, :1])
    estimate = oc.estimate(alone, features[:1])
    nouns: list[Any] = [alone, free, estimate.plan(2), estimate.frontier(), oc.compare(alone, alone, methods=[])]
    for noun in nouns:
        _, page, _ = page_of(noun)
        assert not re.search(r"\b(nan|inf)\b|(?<!=)None\b", page.text)
        assert "<svg" in noun._repr_html_()


def test_one_is_one() -> None:
    """One classifier, one query, one point of a frontier: said as such, with no gain where there is none."""
    features, success = np.zeros((1, 1)), np.ones((1, 1))
    alone = oc.Profile(("only",), (2,), features, success)
    estimate = oc.estimate(alone, features)
    for noun, title, words in (
        (alone, "1 classifier on 1 labelled query", "only is right most often"),
        (estimate.plan(2), "1 query, expected right on", "The plan answers 1 query for 2"),
        (estimate.frontier(), "More money is not estimated to buy more", "For 1 query, budgets from 2 to 2"),
        (oc.compare(alone, alone, methods=[]), "Nothing saved", "On 1 query that took no part"),
    ):
        story, _, _ = page_of(noun)
        assert story.title.startswith(title)
        assert story.sentence.startswith(words)
    assert "Profile of 1 classifier<" in alone._repr_html_()
    equal = oc.Profile(("worse", "better"), (2, 2), [[0.0]] * 4, [[0, 1]] * 4)
    assert "at 2 a call; no other is cheaper;" in page_of(equal)[0].sentence
    assert page_of(equal)[0].figures[1].what == "Cheapest: better"  # of equals the better
    dear = oc.Profile(("worse", "better"), (7e-9, 7e9), [[0.0]] * 4, [[0, 1]] * 4)
    assert "at 7,000,000,000 a call; the cheapest, worse, on 0.00 %" in page_of(dear)[0].sentence
    cheap = oc.estimate(dear, [[0.0]] * 4).plan(1)
    assert page_of(cheap)[0].title == "4 queries for less than 0.001 % of what always asking better costs"
    large = oc.Profile(("worse", "better"), (500, 900), [[0.0]] * 4, [[0, 1]] * 4)
    chart = oc.estimate(large, [[0.0]] * 4).frontier()._repr_html_()
    assert ">2,500<" in chart
    assert "e+0" not in chart


@pytest.mark.parametrize("path", ["MY FILE.PARQUET", "a; $(touch b)", "plain.parquet"])
def test_commands_can_be_typed_whatever_a_file_is_called(path: str, nouns: dict[str, Any]) -> None:
    """Capitals and spaces too."""
    source = Source(path, "report.html", datetime.now(UTC), profile_path=None)
    for name in ("profile", "frontier", "plan", "run", "comparison"):
        page = ReadPage(story_page(tell(nouns[name], source), source))
        assert page.commands
        for line in page.commands:
            assert path in shlex.split(line)


def test_only_nouns_have_reports() -> None:
    """Anything else is refused in one sentence."""
    with pytest.raises(oc.InvalidInputError, match="a report is made of a comparison, plan, run, frontier or profile"):
        page_of("text")


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_commands_on_a_page_make_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare and report from the command line; what the page says to type gives the same numbers again."""
    monkeypatch.chdir(tmp_path)
    oc.save(nasty_profile(), "my profile.parquet")
    made = invoke("compare", "my profile.parquet", "--methods", "bagged,auto", "--share", "0.3", "--share", "0.7",
                  "--seed", "3", "--out", "found.parquet")  # fmt: skip
    assert made.exit_code == 0, made.output
    first = oc.load("found.parquet")
    done = invoke("report", "found.parquet", "--profile", "my profile.parquet", "--out", "page.html", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    page = ReadPage(Path("page.html").read_text(encoding="utf-8"))
    assert said["kind"] == "comparison"
    assert said["figures"][1]["number"] == headline_row(first, "auto")["accuracy"]
    assert "What the doctor says" in page.text
    make_page, make_file = page.commands
    Path("found.parquet").unlink()
    for line in (make_file, make_page):
        program, *words = shlex.split(line)
        assert program == "occamroute"
        assert invoke(*words).exit_code == 0
    assert oc.load("found.parquet").rows == first.rows


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nouns: dict[str, Any]) -> None:
    """Every kind of file, a chart alone, and refusals in one sentence."""
    monkeypatch.chdir(tmp_path)
    for name in ("profile", "frontier", "plan", "run", "comparison"):
        oc.save(nouns[name], f"{name}.parquet")
        done = invoke("report", f"{name}.parquet")
        assert done.exit_code == 0, done.output
        assert Path("report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
        Path("report.html").unlink()
    assert invoke("report", "plan.parquet", "--profile", "profile.parquet", "--out", "plan.svg").exit_code == 0
    assert Path("plan.svg").read_text(encoding="utf-8").startswith("<svg")
    for words, sentence in (
        (["no.parquet"], "there is no such file"),
        (["plan.parquet", "--out", "x.pdf"], "--out must end in .html or .svg"),
        (["run.parquet", "--profile", "profile.parquet"], "is not the profile that the run was made from"),
        (["plan.parquet", "--profile", "plan.parquet"], "a profile is needed"),
    ):
        failed = invoke("report", *words).exception
        assert isinstance(failed, oc.OccamError)
        assert sentence in str(failed)
    oc.save(replace(nouns["plan"], planned_cost=nouns["plan"].planned_cost / 2), "false.parquet")
    done = run("report", "false.parquet", cwd=Path())
    assert done.returncode == 4
    assert done.stderr.startswith("occamroute: ")
    assert done.stderr.count("\n") == 1
    assert not Path("report.html").exists()
