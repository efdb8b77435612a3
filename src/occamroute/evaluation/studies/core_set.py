"""The Pareto core set of a portfolio, and planning with and without the classifiers outside it."""

from __future__ import annotations

from occamroute.estimation import SampledNeighbors
from occamroute.evaluation.studies.base import Result, Row, Study, budget_chart, count_of, joined, points
from occamroute.evaluation.studies.bench import Bench

__all__ = ["CORE_SET"]


def _core_set(bench: Bench) -> Result:
    core = bench.profile.pareto()
    outside = [name for name in bench.profile.names if name not in core.names]
    rows: list[Row] = []
    curves: dict[tuple[str, str], dict[float, float]] = {}
    for which, profile in (("all", bench.profile), ("core set", core)):
        test = bench.test.select(profile.names)
        made = {
            "paper": bench.estimate(SampledNeighbors(), profile=profile),
            "mixture": bench.mixture(profile),
            "oracle": bench.oracle(test),
        }
        for method, estimate in made.items():
            curves[which, method] = bench.curve(estimate, bench.shares, test=test)
            rows += [
                {"classifiers": which, "n_classifiers": len(profile.names), "method": method, "budget_share": share,
                 "accuracy": accuracy}
                for share, accuracy in curves[which, method].items()
            ]  # fmt: skip
    shown = {f"{method}, {which}": curve for (which, method), curve in curves.items()}
    chart = budget_chart(
        shown,
        title=f"With and without the core set, {bench.subject.title}",
        dashed=[label for label in shown if label.endswith("core set")],
    )
    return Result({"figure-11-core-set": rows}, {"figure-11-core-set": chart}, _finding(core.names, outside, curves))


def _finding(core: tuple[str, ...], outside: list[str], curves: dict[tuple[str, str], dict[float, float]]) -> str:
    if not outside:
        return f"All {len(core)} classifiers are Pareto-efficient on the profile: the core set leaves nothing out."
    text = f"{joined(outside)} cost more than another that is at least as accurate; {len(core)} remain. "
    for method, words in (("paper", "the paper's method"), ("oracle", "the oracle")):
        everything, without = curves["all", method], curves["core set", method]
        gains = [without[share] - everything[share] for share in everything if share in without]
        better = count_of([gain > 0.0 for gain in gains], "budgets")
        mean = sum(gains) / max(1, len(gains))
        text += f"With the core set alone {words} is better at {better} ({points(mean)} on average). "
    return text + "What the oracle loses is what classifiers outside the core set know and the others do not."


CORE_SET = Study(
    name="core-set",
    title="The Pareto core set, with and without it",
    places="Section on 101 classifiers, Figure 11",
    paper="Most of many classifiers are beaten by others in both cost and accuracy; planning with those that are not "
    "(12 of 101) is enough. Planning with and without the others is not compared there.",
    run=_core_set,
)
