"""One query at a time against the plan that sees all queries at once, on the shipped CIFAR-10 profile.

    python benchmarks/reliability/online.py [--out benchmarks/reliability/online.md]

All test queries in random order, budgets of 0.1, 0.2 and 0.4 of always asking the dearest classifier; then half and
twice as many queries as expected in a day, on a ledger whose store has a simulated clock. The router chooses its
features and knobs itself, on held-out rows of the profile. Exits with 1 where a limit is not kept: within 0.3 points of
the plan and 97 % of what it spends; with twice as many queries every one answered; with half as many at most 0.5
points below the plan; never above the budget.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import occamroute as oc
from occamroute.ledger.memory import MemoryLedger
from occamroute.planning.combining import combined_success

FRACTIONS = (0.1, 0.2, 0.4)
DAY = 86_400
HEAD = "| Budget | Queries | Plan | Router | Spent of the plan's | Refused | Price, first to last fifth | Features |"
RULE = "| --- | --- | --- | --- | --- | --- | --- | --- |"


class Simulated(MemoryLedger):
    """A ledger whose store has a clock of its own."""

    moment = 0.0

    def _time(self) -> int:
        return int(1000 * (20_000 * DAY + self.moment))

    def _check_clock(self, reading: int) -> None:
        """Days pass here in moments."""


def main() -> int:
    """Run everything, write the table, and say whether all limits are kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    profile, test = oc.load_dataset("cifar10")
    rows = np.random.default_rng(11).permutation(len(test))
    lines, kept = [HEAD, RULE], True
    for fraction in FRACTIONS:
        budget = fraction * len(test) * float(profile.mean_costs.max())
        guide = None
        for what, number in (("all", 1.0), ("half", 0.5), ("twice", 2.0)):
            here = rows[: int(len(rows) * number)] if number <= 1.0 else np.concatenate([rows, rows[::-1]])
            offline, planned = planned_accuracy(profile, test, here, budget)
            ledger = Simulated("memory:", budget, window="total" if what == "all" else "day")
            router = oc.Router(profile, arrivals=len(test), ledger=ledger, guide=guide)
            guide = router.snapshot.guide
            result = streamed(router, test, here, None if what == "all" else day(len(here)))
            router.close()
            spent = float(ledger.balance().spent)
            ok = spent <= budget and result["refused"] == 0 and limits(what, offline, planned, result, spent)
            kept &= ok
            looked = f"{guide.extractor or 'none'}, {guide.metric}{'' if ok else ' **missed**'}"
            lines.append(
                f"| {fraction} | {what} | {100 * offline:.2f} % | {100 * result['accuracy']:.2f} % "
                f"| {100 * spent / planned:.1f} % | {result['refused']} | {result['prices'][0]:.3g} to "
                f"{result['prices'][-1]:.3g} | {looked} |"
            )
            print(lines[-1], flush=True)
    arguments = parser.parse_args()
    if arguments.out is not None:
        arguments.out.write_text(f"# One query at a time\n\n{__doc__.strip()}\n\n" + "\n".join(lines) + "\n")
    return 0 if kept else 1


def limits(what: str, offline: float, planned: float, result: dict[str, Any], spent: float) -> bool:
    """Whether what was promised is kept."""
    if what == "all":
        return bool(result["accuracy"] > offline - 0.003 and spent >= 0.97 * planned)
    return bool(what == "twice" or result["accuracy"] >= offline - 0.005)


def planned_accuracy(profile: Any, test: Any, rows: Any, budget: float) -> tuple[float, float]:
    """What ``oc.plan`` reaches on these queries with this budget, and what it spends."""
    features = {name: table[rows] for name, table in test.feature_sets.items()}
    plan = oc.plan(profile, features, budget=budget)
    success = test.success
    if np.any(plan.weights):
        success = combined_success(test, plan.made_from["extractor"], plan.weights)
    return float(success[rows, plan.choice].mean()), float(plan.planned_cost)


def day(count: int) -> Any:
    """Moments of a day at which so many queries come, evenly spread but for chance."""
    return np.sort(np.random.default_rng(count).random(count)) * DAY


def streamed(router: oc.Router, test: Any, rows: Any, times: Any) -> dict[str, Any]:
    """Route queries one at a time; what is refused counts as wrong."""
    if times is not None:
        router.wallet.refresh_seconds = 0.0
    features = None if router.extractor is None else test.feature_sets[router.extractor]
    shares = router.snapshot.guide.weights(router.names)
    success = combined_success(test, str(router.extractor), shares) if shares.any() else test.success
    right, refused, prices = 0.0, 0, []
    for number, row in enumerate(rows):
        if times is not None:
            router.ledger.moment = float(times[number])  # type: ignore[attr-defined]  # the simulated one
        try:
            decision = router.route(None if features is None else features[row])
        except oc.BudgetExceededError:
            refused += 1
            continue
        router.settle(decision)
        prices.append(decision.price)
        right += float(success[row, decision.choice])
    fifths = [float(np.median(part)) for part in np.array_split(prices, 5)]
    return {"accuracy": right / len(rows), "refused": refused, "prices": fifths}


if __name__ == "__main__":
    sys.exit(main())
