"""Who answers as the budget grows, and how far a plan is from one that knows every answer."""

from __future__ import annotations

from occamroute.charts import stacked_bars
from occamroute.evaluation.studies.base import Result, Row, Study, budget_chart, curve_rows, percent, points
from occamroute.evaluation.studies.bench import Bench
from occamroute.evaluation.studies.curves import METHODS, PAPER, accuracy_at, against_mixture

__all__ = ["ORACLE", "USAGE"]


def _usage(bench: Bench) -> Result:
    rows: list[Row] = []
    charts = {}
    stem = "figure-04a-usage"
    found = {"paper": bench.paper_rows(), "occamroute": bench.compared("auto")}
    for method, lines in found.items():
        for line in lines:
            share = {name: count / len(bench.test) for name, count in line["usage"].items()}
            rows += [
                {"method": method, "budget_share": line["budget_share"], "classifier": name, "share": part}
                for name, part in share.items()
            ]
        if lines:
            charts[stem if method == "paper" else f"{stem}-{method}"] = stacked_bars(
                [f"{100 * line['budget_share']:.3g} %" for line in lines],
                {name: [line["usage"][name] / len(bench.test) for line in lines] for name in bench.test.names},
                title=f"Who answers at which budget ({method}), {bench.subject.title}",
                x_label="budget, as a share of always using the dearest", y_label="share of the queries",
                y_format=lambda y: percent(y, 0),
            )  # fmt: skip
    return Result({stem: rows}, charts, " ".join(_most_used(bench, who, lines) for who, lines in found.items()))


def _most_used(bench: Bench, who: str, lines: list[Row]) -> str:
    who = "The paper's method" if who == "paper" else "occamroute"
    if not lines:
        return f"{who} answers everything at none of the budgets."
    words = []
    for line in (lines[0], lines[-1]):
        name = max(line["usage"], key=line["usage"].get)
        part = percent(line["usage"][name] / len(bench.test), 0)
        words.append(f"{name} ({part} of the queries) at {100 * line['budget_share']:.3g} % of the dearest's bill")
    dearest = bench.test.names[int(bench.profile.mean_costs.argmax())]
    last = percent(lines[-1]["usage"][dearest] / len(bench.test), 0)
    return f"{who} asks mostly {words[0]} and {words[1]}, where the dearest gets {last}."


def _oracle(bench: Bench) -> Result:
    labels = ("single best", "random", "best mixture", "occamroute", "oracle")
    curves = {label: accuracy_at(bench.compared(METHODS[label])) for label in labels}
    curves |= {"FrugalMCT": bench.curve(bench.forest(), bench.shares), PAPER: accuracy_at(bench.paper_rows())}
    chart = budget_chart(curves, title=f"What a perfect estimate would reach, {bench.subject.title}")
    oracle, best = curves["oracle"], float(bench.test.accuracy.max())
    above = [share for share, accuracy in oracle.items() if accuracy > best]
    missing = [oracle[share] - curves[PAPER][share] for share in curves[PAPER] if share in oracle]
    text = "The oracle is never above the best single classifier. "
    if above:
        first = min(above)
        text = (
            f"From {percent(first, 0)} of the dearest's bill on, the oracle is above the best single classifier "
            f"({percent(oracle[first], 1)} against {percent(best, 1)}). "
        )
    if missing:
        text += f"The paper's method differs from it by {points(-sum(missing) / len(missing))} on average. "
    text += against_mixture(bench.paper_rows(), "The paper's method")
    return Result({"figure-14-oracle": curve_rows(curves)}, {"figure-14-oracle": chart}, text)


USAGE = Study(
    name="usage",
    title="Classifier usage against budget",
    places="Figure 4a",
    paper="With little money the smallest network answers most queries; as the budget grows, the two largest and most "
    "accurate take over.",
    run=_usage,
)
ORACLE = Study(
    name="oracle",
    title="The upper bound: plans that know every answer",
    places="Figure 14",
    paper="With true success in place of estimates the same method is far above all others on Tiny ImageNet: much is "
    "left to gain from better estimates.",
    run=_oracle,
)
