"""What stands behind the story of a comparison: every method and budget, differences, calibration, usage, data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from occamroute.charts import Canvas, interval_bars, stacked_bars
from occamroute.charts.pictures import calibration_chart
from occamroute.charts.words import between, percent, plain_percent, points, proved_gap, short_share
from occamroute.evaluation.baselines import METHODS
from occamroute.evaluation.reports import Report
from occamroute.reporting.comparison_origin import origin_sections
from occamroute.reporting.comparison_reading import Row, cost_chart
from occamroute.reporting.pieces import Cell, Section, bullets, details, facts, paragraph, shown, table
from occamroute.reporting.stories import Source

__all__ = ["comparison_sections"]

MEANING = {
    "single_best": "the dearest classifier that the budget pays, for every query",
    "best_affordable": "the most accurate classifier that the budget pays, for every query",
    "mixture": "the best mix of classifiers by overall accuracy; it looks at no features and pays for none",
    "random": "random estimates, which cost nothing, and the same solver",
    "forest": "random forests with scikit-learn's defaults (the estimator of FrugalMCT) and the same solver",
    "forest_regularized": "random forests with larger leaves and the same solver",
    "sampled": "the paper's method: nearest neighbours in samples, its penalty tuned on held-out rows",
    "bagged": "the paper's estimate with the samples integrated out, no penalty",
    "kernel": "kernel ridge regression and the same solver",
    "auto": "estimator, knobs, penalty and whether to look at features all chosen on held-out rows of the profile",
    "auto_uncombined": "auto, with no answers combined",
    "oracle": "knows every answer beforehand: no choice of one classifier for each query can be above it",
}


def comparison_sections(report: Report, method: str, row: Row, source: Source) -> tuple[Section, ...]:
    """The sections after the first screen."""
    return (
        Section("words", "Where it gains and where it loses", bullets(_findings(report, method))),
        _everything(report, method),
        *_differences(report, method, row),
        _reductions(report, method),
        _calibration(report, method, row),
        _usage(report, method),
        _methods(report, method),
        *origin_sections(report, source),
    )


def _findings(report: Report, method: str) -> list[str]:
    """What an honest reader would say of the rows."""
    reference = report.about["reference"]
    found = []
    rows = [row for row in report.of(method) if row["difference"] is not None]
    if method != reference:
        gains = [row for row in rows if row["difference_interval"] and row["difference_interval"][0] > 0.0]
        losses = [row for row in rows if row["difference_interval"] and row["difference_interval"][1] < 0.0]
        rest = [row for row in rows if row not in gains and row not in losses]
        found += _against(f"{method} gains on {reference}", gains, len(rows))
        found += _against(f"{method} loses against {reference}", losses, len(rows))
        if rest:
            places = ", ".join(short_share(row["budget_share"]) for row in rest)
            found.append(
                f"{method} cannot be told apart from {reference} at {len(rest)} of {len(rows)} budgets ({places}): the "
                "90 % intervals of the differences, below, include zero."
            )
    for other in report.methods:
        above = [
            (own, row) for own in report.of(method) for row in report.of(other)
            if row["budget"] == own["budget"] and row["accuracy"] > own["accuracy"]
        ]  # fmt: skip
        if other not in (method, reference, "oracle") and above:
            places = "; ".join(
                f"{short_share(row['budget_share'])}: {percent(row['accuracy'], row['accuracy_bounds'])} against "
                f"{percent(own['accuracy'], own['accuracy_bounds'])}"
                for own, row in above
            )
            found.append(f"{other} was right more often than {method} at a budget of {places}.")
    found += _promises(report, method)
    found.append(
        "The headline stands at the budget that these results make look best. For a budget that was fixed "
        "beforehand, read its own column."
    )
    return found


def _against(words: str, rows: Sequence[Row], of: int) -> list[str]:
    places = [
        f"{short_share(row['budget_share'])}: {points(row['difference'], row['difference_interval'])}" for row in rows
    ]
    return [f"{words} at {len(rows)} of {of} budgets, in points (90 %): {'; '.join(places)}."] if places else []


def _promises(report: Report, method: str) -> list[str]:
    rows = [row for row in report.of(method) if row["accuracy_interval"] is not None]
    if not rows:
        return []
    kept = sum(row["accuracy_interval"][0] <= row["accuracy"] <= row["accuracy_interval"][1] for row in rows)
    below = [row for row in rows if row["accuracy"] < row["accuracy_interval"][0]]
    worst = "" if not below else (
        " It promised too much at a budget of "
        + "; ".join(
            f"{short_share(row['budget_share'])}: promised "
            f"{percent(row['expected_accuracy'], row['accuracy_interval'])}, reached "
            f"{percent(row['accuracy'], row['accuracy_bounds'])}" for row in below
        ) + "."
    )  # fmt: skip
    return [
        f"What {method} reached lies within the 90 % interval that it promised at {kept} of {len(rows)} budgets.{worst}"
    ]


def _everything(report: Report, method: str) -> Section:
    order = [method, *(other for other in report.methods if other != method)]

    def draw(canvas: Canvas) -> str:
        lines = [report.series(method)]
        lines += [report.series(other, quiet=True, dashed=other == "oracle") for other in order[1:]]
        return cost_chart(lines, "Accuracy against cost, every method", canvas)

    averages = report.averages()
    bounds = report.about.get("averages", {})
    rows = []
    for other in order:
        cells: list[str | Cell] = [other, *_by_budget(report, other, _accuracy)]
        if averages:
            interval = tuple(bounds[other]) if other in bounds else None
            cells.append(Cell(plain_percent(averages[other]), between(interval)))
        rows.append(cells)
    headings = ["method", *_shares(report), *(["mean"] if averages else [])]
    full = [
        (
            row["method"], short_share(row["budget_share"]), row["exact_cost"], short_share(row["cost_share"]),
            Cell(plain_percent(row["accuracy"]), between(row["accuracy_bounds"])),
            _way(row), "" if row["gap"] is None else proved_gap(row["gap"]), row["chosen"] or "",
        )
        for other in order for row in report.of(other)
    ]  # fmt: skip
    body = (
        shown(draw, "Every method, with its 90 % band. The oracle knows every answer beforehand.")
        + table(
            headings, rows, strong=[0],
            caption="Accuracy with its 90 % interval, by method and budget (a share of always asking the dearest)",
        )
        + details(
            "Every row: exact cost, way to the oracle, certificate, what was chosen",
            table(
                ("method", "budget", "cost (exact)", "share", "accuracy (90 %)", "way to the oracle (90 %)",
                 "gap, proved", "chosen"),
                full, text=(7,), caption="Every method and budget; the gap is the most by which the estimated value of "
                "the plan can be below that of any other within the budget",
            ),
        )
    )  # fmt: skip
    return Section("methods", "Every method at every budget", body)


def _accuracy(row: Row) -> Cell:
    return Cell(plain_percent(row["accuracy"]), between(row["accuracy_bounds"]))


def _way(row: Row) -> Cell:
    return Cell("–") if row["way_to_oracle"] is None else Cell(
        f"{100 * row['way_to_oracle']:.1f} %".replace("-", "−"), between(row["way_interval"])
    )  # fmt: skip


def _shares(report: Report) -> list[str]:
    return [short_share(_share(report, budget)) for budget in report.budgets]


def _share(report: Report, budget: float) -> float:
    return float(next(row["budget_share"] for row in report.rows if row["budget"] == budget))


def _by_budget(report: Report, method: str, cell: Callable[[Row], Cell]) -> list[str | Cell]:
    """A cell for each budget, a dash where the method cannot keep it."""
    rows = {row["budget"]: row for row in report.of(method)}
    return [cell(rows[budget]) if budget in rows else "–" for budget in report.budgets]


def _differences(report: Report, method: str, row: Row) -> tuple[Section, ...]:
    reference = report.about["reference"]
    others = [other for other in report.methods if other not in (reference, "oracle")]
    if not others:
        return ()
    here = {
        one["method"]: one for one in report.rows if one["budget"] == row["budget"] and one["difference"] is not None
    }
    named = [other for other in others if other in here]
    title = f"Difference from {reference} at a budget of {short_share(row['budget_share'])}"
    how = "paired by query, normal" if _from_folder(report) else "paired bootstrap over queries"

    def draw(canvas: Canvas) -> str:
        return interval_bars(
            named, [100 * here[other]["difference"] for other in named],
            [_in_points(here[other]["difference_interval"]) for other in named],
            title=title, x_label="points of accuracy", x_format="{:+.2g}".format, canvas=canvas,
        )  # fmt: skip

    rows: list[list[str | Cell]] = [[other, *_by_budget(report, other, _difference)] for other in others]
    body = (
        shown(draw, f"{title}, with 90 % intervals ({how}). Blue: the whole interval is above "
                    "zero; orange: below.")
        + table(
            ("method", *_shares(report)), rows, strong=[others.index(method)] if method in others else [],
            caption=f"Difference from {reference} in points, with its 90 % interval, by budget",
        )
    )  # fmt: skip
    return (Section("differences", f"Differences from {reference}", body),)


def _in_points(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None else (100 * interval[0], 100 * interval[1])


def _difference(row: Row) -> Cell:
    if row["difference"] is None:
        return Cell("–")
    interval = row["difference_interval"]
    kind = "" if interval is None else "better" if interval[0] > 0.0 else "worse" if interval[1] < 0.0 else ""
    return Cell(f"{100 * row['difference']:+.2f}".replace("-", "−"), between(interval, signed=True), kind)


def _reductions(report: Report, method: str) -> Section:
    found = report.cost_reduction()
    reductions = sorted({row["cost_reduction"] for row in found})
    rows: list[list[str | Cell]] = []
    for other in report.methods:
        drops = {row["cost_reduction"]: row for row in found if row["method"] == other}
        cells = [
            Cell(
                f"{drops[one]['accuracy_drop']:+.2f} %".replace("-", "−"),
                between(drops[one]["drop_interval"], signed=True),
            ) if one in drops else Cell("–")
            for one in reductions
        ]  # fmt: skip
        rows.append([other, *cells])
    strong = [report.methods.index(method)]
    body = table(
        ("method", *(f"{100 * one:g} % less cost" for one in reductions)), rows, strong=strong,
        caption="Accuracy lost, in percent of the dearest's, where that much cost is saved (90 %); negative: a gain",
    )  # fmt: skip
    return Section("reductions", "What saving costs in accuracy", body)


def _calibration(report: Report, method: str, row: Row) -> Section:
    rows = [one for one in report.of(method) if one["expected_accuracy"] is not None]
    promises = table(
        ("budget", "promised (90 %)", "reached (90 %)", "reached lies"),
        [
            (
                short_share(one["budget_share"]),
                Cell(plain_percent(one["expected_accuracy"]), between(one["accuracy_interval"])),
                _accuracy(one), _kept(one),
            )
            for one in rows
        ],
        caption=f"What {method} promised from held-out rows of the profile, and what it reached",
    ) if rows else paragraph(f"{method} promises nothing beforehand.")  # fmt: skip
    kept = [one for one in report.about.get("calibration", []) if one["method"] == method]
    # The headline's budget, or the nearest at which something was estimated for each query.
    kept.sort(key=lambda one: abs(one["budget"] - row["budget"]))
    if not kept:
        body = promises + paragraph("Estimates for single queries are not kept in this file.")
        return Section("calibration", "Were promises kept?", body)
    one = kept[0]
    groups = [
        (f"{number + 1}", f"{count:,}", short_share(estimated), Cell(plain_percent(reached), between((low, high))))
        for number, (count, estimated, reached, low, high) in enumerate(
            zip(one["count"], one["estimated"], one["reached"], one["low"], one["high"], strict=True)
        )
    ]
    share = short_share(_share(report, one["budget"]))

    def draw(canvas: Canvas) -> str:
        return calibration_chart(one["estimated"], one["reached"], one["low"], one["high"], canvas=canvas)

    body = (
        promises
        + shown(draw, f"Queries by how likely {method} thought its answer to be right, at a budget of {share}: "
                      "on the diagonal estimates are right on average. Bars are 90 % intervals.")
        + details("The numbers", table(
            ("tenth", "queries", "estimated", "reached (90 %)"), groups, caption=f"Calibration at a budget of {share}",
        ))
    )  # fmt: skip
    return Section("calibration", "Were promises kept?", body)


def _kept(row: Row) -> str:
    """Where what was reached lies beside what was promised."""
    if row["accuracy_interval"] is None:
        return "–"
    low, high = row["accuracy_interval"]
    return "below what was promised" if row["accuracy"] < low else "above" if row["accuracy"] > high else "within"


def _usage(report: Report, method: str) -> Section:
    rows = report.of(method)
    names = report.about["names"]
    used = [name for name in names if any(row["usage"][name] for row in rows)]
    total = report.about["n_queries"]
    shares = [short_share(row["budget_share"]) for row in rows]

    def draw(canvas: Canvas) -> str:
        return stacked_bars(
            shares, {name: [row["usage"][name] / total for row in rows] for name in used},
            title=f"Who answers, by budget ({method})", x_label="budget, as a share of always asking the dearest",
            y_label="share of the queries", y_format=short_share, canvas=canvas,
        )  # fmt: skip

    numbers = [(name, *(f"{row['usage'][name]:,.6g}" for row in rows)) for name in used]
    body = shown(draw, f"Which classifiers answer under {method}.") + table(
        ("classifier", *shares), numbers, caption="Queries by classifier and budget (counted, exact)"
    )
    return Section("usage", "Who answers", body)


def _methods(report: Report, method: str) -> Section:
    rows = report.of(method)
    chosen = [(f"at {short_share(row['budget_share'])}", row["chosen"] or "–") for row in rows]
    known = [(name, MEANING[name] if name in METHODS else "a method given by the caller") for name in report.methods]
    body = (
        paragraph(f"What {method} chose, on held-out rows of the profile alone:")
        + facts(chosen)
        + paragraph("What is compared; every method is charged for the features it looks at:")
        + facts(known)
        + paragraph(
            "Intervals are of 90 %. Accuracies: Wilson's. Differences, drops and the way to the oracle: "
            f"{_drawn(report)}, the same for every method. Costs and counts are exact."
            + (" Answers were not combined: the queries were judged from a folder." if _from_folder(report) else "")
        )
    )
    return Section("method", "Method and baselines", body)


def _from_folder(report: Report) -> bool:
    """Whether the queries were judged part by part, and never held together."""
    return report.about.get("intervals") == "normal"


def _drawn(report: Report) -> str:
    if _from_folder(report):
        return "1,000 draws from the normal distribution of the means, with the covariance that was measured"
    return "1,000 resamples of the queries (of whole groups, where the data has them)"
