"""How many samples, how large, and the trade-off between the two when rows are scarce."""

from __future__ import annotations

from collections.abc import Sequence

from occamroute.charts import Series, line_chart
from occamroute.evaluation.studies.base import Curves, Result, Row, Study, curve_rows, percent, points
from occamroute.evaluation.studies.bench import Bench

__all__ = ["K_AND_S", "SAMPLE_TOTAL"]

PENALTIES = (0.0, 5.0)
BUDGETS = (0.2, 0.6, 0.8)
# Those in the charts: more lines cannot be told apart.
DRAWN = (0.2, 0.6)
COUNTS = (10, 20, 30, 40)
SIZES = (0.4, 0.6, 0.8, 1.0)
TRADE = (5, 10, 20, 40, 100, 200, 500, 1000)


def references(bench: Bench, shares: Sequence[float]) -> dict[str, dict[float, float]]:
    """Accuracy by budget of those who do not depend on the knob: mixture, FrugalMCT's forest, oracle."""
    made = {"best mixture": bench.mixture(), "FrugalMCT": bench.forest(), "oracle": bench.oracle()}
    return {label: bench.curve(estimate, shares) for label, estimate in made.items()}


def _paper_rows(bench: Bench, count: int, size: int, shares: Sequence[float]) -> list[Row]:
    estimate = bench.paper(n_samples=count, sample_size=size, seed=bench.seed)
    return [
        {"method": "paper", "n_samples": count, "sample_size": size, "rows_used": min(count * size, len(bench.profile)),
         "penalty": penalty, "budget_share": share, "accuracy": accuracy}
        for penalty in PENALTIES
        for share, accuracy in bench.curve(estimate, shares, penalty=penalty).items()
    ]  # fmt: skip


def _chart(bench: Bench, rows: Sequence[Row], known: Curves, knob: str, words: str) -> str:
    plain = [row for row in rows if row["penalty"] == 0.0]
    values = sorted({row[knob] for row in plain})
    series = []
    for share in DRAWN:
        mine = [row for row in plain if row["budget_share"] == share]
        if mine:
            budget = percent(share, 0)
            series.append(
                Series(
                    f"paper, budget {budget}",
                    [row[knob] for row in mine],
                    [row["accuracy"] for row in mine],
                    points=True,
                )
            )
            series += [
                Series(f"{label}, budget {budget}", values, [known[label][share]] * len(values), dashed=True)
                for label in ("best mixture", "FrugalMCT")
                if share in known[label]
            ]
    return line_chart(
        series, title=f"Accuracy against {words}, {bench.subject.title}", x_label=words, y_label="accuracy",
        y_format=lambda y: percent(y, 1), x_ticks=values, log_x=knob == "n_samples",
    )  # fmt: skip


def _gain(rows: Sequence[Row], knob: str, words: str) -> str:
    """How much the largest value of a knob gains over the smallest, penalty 0, on average over budgets."""
    plain = [row for row in rows if row["penalty"] == 0.0]
    if not plain:
        return "The paper's method answers everything at none of the budgets"
    low, high = min(row[knob] for row in plain), max(row[knob] for row in plain)
    by = {(row[knob], row["budget_share"]): row["accuracy"] for row in plain}
    gains = [by[high, share] - by[low, share] for value, share in by if value == low and (high, share) in by]
    return (
        f"From {words} = {low} to {high} the paper's method gains {points(sum(gains) / max(1, len(gains)))} on average"
    )


def _sample_total(bench: Bench) -> Result:
    size = bench.paper_size
    rows: list[Row] = []
    for count in bench.size(COUNTS, (10, 40)):
        rows += _paper_rows(bench, count, size, BUDGETS)
    known = references(bench, BUDGETS)
    few, many = ([row for row in rows if row["n_samples"] == end and row["penalty"] == 0.0] for end in (10, 40))
    text = f"{_gain(rows, 'rows_used', 'K·s')} (penalty 0). "
    for mine, words in ((few, "a quarter of the rows"), (many, "all rows")):
        for label in ("FrugalMCT", "best mixture"):
            ahead = [
                row["accuracy"] > known[label][row["budget_share"]]
                for row in mine
                if row["budget_share"] in known[label]
            ]
            text += f"With {words} it is above {label} at {sum(ahead)} of {len(ahead)} budgets. "
    stem = "figure-04b-sample-total"
    chart = _chart(bench, rows, known, "rows_used", "rows used, K · s")
    return Result({stem: rows + curve_rows(known)}, {stem: chart}, text.strip())


def _k_and_s(bench: Bench) -> Result:
    pool, size = len(bench.profile), bench.paper_size
    known = references(bench, BUDGETS)
    tables, charts = {}, {}
    counts = bench.size(COUNTS, (10, 40))
    by_count = [row for count in counts for row in _paper_rows(bench, count, size, BUDGETS)]
    sizes = [max(1, round(size * share)) for share in bench.size(SIZES, (0.4, 1.0))]
    by_size = [row for one in sizes for row in _paper_rows(bench, 40, one, BUDGETS)]
    trade = [
        row
        for count in bench.size(TRADE, (10, 40))
        if count <= pool
        for row in _paper_rows(bench, count, pool // count, BUDGETS)
    ]
    for letter, knob, rows, words in (
        ("a", "n_samples", by_count, f"number of samples K, each of {size} rows"),
        ("b", "sample_size", by_size, "size of a sample s, 40 samples"),
        ("c", "n_samples", trade, f"number of samples K when K · s = {pool} rows"),
    ):
        stem = f"figure-13{letter}-{'trade-off' if letter == 'c' else knob.replace('_', '-')}"
        tables[stem] = rows + curve_rows(known)
        charts[stem] = _chart(bench, rows, known, knob, words)
    gains = _gain(by_count, "n_samples", "K"), _gain(by_size, "sample_size", "s").replace("From", "from", 1)
    text = f"{gains[0]}; {gains[1]} (penalty 0). "
    plain = [row for row in trade if row["penalty"] == 0.0]
    best: dict[float, Row] = {}
    for row in plain:
        if row["accuracy"] > best.get(row["budget_share"], {"accuracy": -1.0})["accuracy"]:
            best[row["budget_share"]] = row
    text += "With all rows shared out, the highest accuracy is at " + ", ".join(
        f"K = {row['n_samples']}, s = {row['sample_size']} for a budget of {percent(share, 0)}"
        for share, row in best.items()
    )
    return Result(tables, charts, text + ".")


SAMPLE_TOTAL = Study(
    name="sample-total",
    title="How many labelled rows are needed",
    places="Figure 4b",
    paper="On Tiny ImageNet, with a quarter of the rows the method is level with FrugalMCT (which has all of them) at "
    "a "
    "budget of 0.8 and 0.7 points above it at 0.6; with all rows up to 1.3 points above.",
    run=_sample_total,
)
K_AND_S = Study(
    name="k-and-s",
    title="Number of samples, size of a sample, and their trade-off",
    places="Figure 13",
    paper="Accuracy rises with K and with s; with a fixed number of rows more samples mean smaller ones, and too many "
    "samples do harm. 40 samples of 1,000 rows were chosen.",
    run=_k_and_s,
)
