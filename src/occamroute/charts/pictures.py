"""The charts of this trade: classifiers by cost and accuracy, the frontier, calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.charts.bars import share_bars
from occamroute.charts.drawing import WIDE, Canvas
from occamroute.charts.lines import Numbers, Series, line_chart
from occamroute.charts.words import Interval, amount, axis_amount, percent, short_share

__all__ = [
    "calibration_chart",
    "classifier_chart",
    "frontier_chart",
    "named_points",
    "pareto_mask",
    "spread_out",
    "usage_chart",
]

# Where the dearest costs so many times the cheapest, places are spread logarithmically.
WIDE_RANGE = 30.0
# So many classifiers are all named in a chart.
NAMED = 24


def spread_out(costs: Numbers) -> bool:
    """Whether costs are so far apart that only a logarithmic axis shows them all."""
    numbers = np.asarray(costs, np.float64)
    return bool(numbers.size and numbers.min() > 0.0 and numbers.max() > WIDE_RANGE * numbers.min())


def pareto_mask(costs: Numbers, accuracies: Numbers) -> list[bool]:
    """Which classifiers no other beats in both cost and accuracy."""
    cost, right = np.asarray(costs, np.float64), np.asarray(accuracies, np.float64)
    pairs = zip(cost.tolist(), right.tolist(), strict=True)
    return [
        not bool(((cost <= own) & (right >= reached) & ((cost < own) | (right > reached))).any())
        for own, reached in pairs
    ]


def named_points(names: Sequence[str], costs: Numbers, accuracies: Numbers) -> list[str]:
    """The names beside points; of many only those that nobody beats have room for theirs."""
    if len(names) <= NAMED:
        return list(names)
    return [name if good else "" for name, good in zip(names, pareto_mask(costs, accuracies), strict=True)]


def classifier_chart(
    names: Sequence[str], costs: FloatArray, accuracies: FloatArray, bounds: FloatArray, *, canvas: Canvas = WIDE
) -> str:
    """Each classifier by its cost and accuracy, with the interval (M, 2); a line joins those that nobody beats."""
    efficient = np.flatnonzero(pareto_mask(costs, accuracies))
    order = efficient[np.argsort(costs[efficient], kind="stable")]
    labels = named_points(names, costs, accuracies)
    tips = [
        f"{name}: {percent(float(right), (float(low), float(high)))} at {amount(float(cost))}"
        for name, cost, right, (low, high) in zip(names, costs, accuracies, bounds, strict=True)
    ]
    series = [
        Series("cheapest at its accuracy", costs[order], accuracies[order], dashed=True, quiet=True),
        Series(
            "one classifier, with its 90 % interval", costs, accuracies, line=False, points=True, labels=labels,
            low=bounds[:, 0], high=bounds[:, 1], tips=tips, colour="#0072b2",
        ),
    ]  # fmt: skip
    return line_chart(
        series, title="Accuracy against cost of each classifier", x_label="cost of one call", y_label="accuracy",
        x_format=axis_amount, y_format=short_share, log_x=spread_out(costs), canvas=canvas,
    )  # fmt: skip


def frontier_chart(
    budgets: Numbers,
    accuracies: Numbers,
    *,
    plan: tuple[float, float, Interval] | None = None,
    y_label: str = "mean estimate",
    y_format: Callable[[float], str] = short_share,
    canvas: Canvas = WIDE,
) -> str:
    """Accuracy against budget; ``plan`` is the cost of a plan, what it promises and the interval of that."""
    series = [Series(f"{y_label}, best plan at each budget", budgets, accuracies)]
    if plan is not None:
        cost, promised, interval = plan
        low, high = ([interval[0]], [interval[1]]) if interval is not None else ([], [])
        series.append(
            Series(
                "this plan", [cost], [promised], line=False, points=True, low=low, high=high,
                tips=[f"{amount(cost)}: {percent(promised, interval)}"],
            )
        )  # fmt: skip
    return line_chart(
        series, title="Accuracy against budget", x_label="budget for all queries", y_label=y_label,
        x_format=axis_amount, y_format=y_format, log_x=spread_out([*budgets][:1] + [*budgets][-1:]), canvas=canvas,
    )  # fmt: skip


def usage_chart(usage: Mapping[str, int], queries: int, *, canvas: Canvas = WIDE) -> str:
    """How many of the queries each classifier answers, the busiest first; those that answer none are left out."""
    used = sorted((name for name in usage if usage[name]), key=lambda name: -usage[name])
    texts = [f"{usage[name]:,} ({100 * usage[name] / queries:.1f} %)" for name in used]
    return share_bars(used, [usage[name] for name in used], texts, title="Queries by classifier", canvas=canvas)


def calibration_chart(
    estimated: Numbers, reached: Numbers, low: Numbers, high: Numbers, *, canvas: Canvas = WIDE
) -> str:
    """What was reached where so much was estimated, with intervals; on the diagonal both are the same."""
    ends = [float(number) for part in (estimated, reached, low, high) for number in part]
    start, end = max(0.0, min(ends, default=0.0)), min(1.0, max(ends, default=1.0))
    tips = [
        f"estimated {short_share(float(one))}, reached {percent(float(other), (float(a), float(b)))}"
        for one, other, a, b in zip(estimated, reached, low, high, strict=True)
    ]
    series = [
        Series("estimated is reached", [start, end], [start, end], dashed=True, quiet=True, colour="currentColor"),
        Series(
            "tenths of the queries", estimated, reached, line=False, points=True, low=low, high=high, tips=tips,
            colour="#0072b2",
        ),
    ]  # fmt: skip
    return line_chart(
        series, title="Reached success against estimated success", x_label="estimated success",
        y_label="reached success", x_format=short_share, y_format=short_share, canvas=canvas,
    )  # fmt: skip
