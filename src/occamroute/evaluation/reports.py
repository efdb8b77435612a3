"""Report: what each method really reached at each budget, and how sure the differences are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute.charts import Series, line_chart
from occamroute.charts.cards import card
from occamroute.charts.pictures import spread_out
from occamroute.charts.words import percent, plain_percent, short_share
from occamroute.errors import InvalidInputError
from occamroute.storage import Parts

__all__ = ["REDUCTIONS", "Report"]

# The paper's table of cost reduction against accuracy drop.
REDUCTIONS = (0.1, 0.2, 0.4)
TEXT = ("method", "exact_cost", "extractor", "chosen")
INTERVALS = (
    "accuracy_interval", "difference_interval", "accuracy_bounds", "dearest_difference_interval", "drop_interval",
    "way_interval",
)  # fmt: skip
NUMBERS = (
    "budget", "budget_share", "accuracy", "accuracy_spread", "cost", "cost_share", "difference", "way_to_oracle",
    "expected_accuracy", "gap", "dearest_difference",
)  # fmt: skip
# Columns that older files do not have.
LATER = {
    "dearest_difference",
    *(f"{name}_{end}" for name in INTERVALS[2:] for end in ("low", "high")),
}


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """One row for each method and budget.

    A row (dict) has ``method``, ``budget`` and ``budget_share`` (of always using the dearest), ``accuracy`` (the
    mean over seeds, ``accuracy_spread`` its standard deviation) with its ``accuracy_bounds`` (90 %, Wilson's),
    ``cost`` (with ``exact_cost``, a decimal, and ``cost_share``), ``usage`` by classifier, ``extractor`` and
    ``chosen`` (in words), ``difference`` from the reference at the same budget with its ``difference_interval``
    (90 %, paired bootstrap), ``dearest_difference`` from always using the dearest with its
    ``dearest_difference_interval``, ``drop_interval`` of the share of the dearest's accuracy that is lost,
    ``way_to_oracle`` (0 at the mixture, 1 at the oracle) with its ``way_interval``, and for auto the
    ``expected_accuracy`` it promised with its ``accuracy_interval``. A method has no row at a budget that it cannot
    keep. ``about`` says what was compared, and how well promises for single queries were kept (``calibration``).
    Where the queries were in a folder, ``about["intervals"]`` is "normal" (means were drawn from the normal
    distribution that resamples come to) and ``about["combined"]`` False (auto combined no answers). Reports written by
    older versions lack some of the intervals: these are None.
    """

    rows: list[dict[str, Any]]
    about: dict[str, Any]

    def __repr__(self) -> str:
        return f"Report({len(self.methods)} methods, {len(self.budgets)} budgets, {self.about['n_queries']} queries)"

    @property
    def methods(self) -> list[str]:
        """The methods, in the order of the rows."""
        return list(dict.fromkeys(row["method"] for row in self.rows))

    @property
    def budgets(self) -> list[float]:
        """The budgets, rising."""
        return sorted({row["budget"] for row in self.rows})

    def of(self, method: str) -> list[dict[str, Any]]:
        """The rows of one method, by budget."""
        return sorted((row for row in self.rows if row["method"] == method), key=lambda row: float(row["budget"]))

    def averages(self) -> dict[str, float]:
        """Each method's mean accuracy over the budgets that all methods can keep."""
        kept = [{row["budget"] for row in self.of(method)} for method in self.methods]
        shared = set.intersection(*kept) if kept else set()
        if not shared:
            return {}
        return {
            method: float(np.mean([row["accuracy"] for row in self.of(method) if row["budget"] in shared]))
            for method in self.methods
        }

    def cost_reduction(self, reductions: Sequence[float] = REDUCTIONS) -> list[dict[str, Any]]:
        """The paper's view: the accuracy lost against always using the dearest, where so much of its cost is saved.

        For each reduction a method's row at the highest budget that saves at least as much counts. The drop is
        in percent of the dearest's accuracy; a negative one is a gain.
        """
        found = []
        dearest = self.about["dearest_accuracy"]
        for reduction in reductions:
            if not (isinstance(reduction, int | float) and 0.0 <= reduction < 1.0):
                raise InvalidInputError(f"reductions must lie between 0 and 1, got {reduction!r}.")
            for method in self.methods:
                rows = [row for row in self.of(method) if row["budget_share"] <= 1.0 - reduction + 1e-9]
                if rows:
                    row = rows[-1]
                    drop = 100.0 * (dearest - row["accuracy"]) / dearest if dearest else 0.0
                    found.append(
                        {
                            "method": method, "cost_reduction": reduction, "accuracy_drop": drop,
                            "accuracy": row["accuracy"], "budget_share": row["budget_share"],
                            "cost_share": row["cost_share"], "accuracy_bounds": row["accuracy_bounds"],
                            "drop_interval": row["drop_interval"],
                        }
                    )  # fmt: skip
        return found

    def series(self, method: str, **look: Any) -> Series:
        """A method's accuracy against its share of the dearest's cost, with its band where intervals are known."""
        rows = self.of(method)
        bounds = [row["accuracy_bounds"] for row in rows]
        known = None not in bounds
        return Series(
            method,
            [row["cost_share"] for row in rows],
            [row["accuracy"] for row in rows],
            points=True,
            low=[low for low, _ in bounds] if known else (),
            high=[high for _, high in bounds] if known else (),
            tips=[
                f"{method} at {short_share(row['cost_share'])}: {percent(row['accuracy'], row['accuracy_bounds'])}"
                for row in rows
            ],
            **look,
        )

    def chart(self) -> str:
        """Accuracy against cost for every method, as SVG."""
        shares = [row["cost_share"] for row in self.rows]
        # Where auto takes part the picture is about it, and about what it is measured by.
        order = sorted(self.methods, key=lambda method: method != "auto")
        loud = {"auto", "mixture", "oracle"} if "auto" in order else set(order)
        return line_chart(
            [self.series(method, dashed=method in ("oracle", "mixture"), quiet=method not in loud) for method in order],
            title="accuracy against cost",
            x_label="cost, as a share of always using the dearest",
            y_label="accuracy",
            x_format=short_share,
            y_format=short_share,
            log_x=spread_out(shares),
        )

    def _repr_html_(self) -> str:
        about = self.about
        facts = [
            ("queries", f"{about['n_queries']:,}"),
            ("learned from", f"{about['n_profile']:,}"),
            (f"always {about['dearest']}", plain_percent(about["dearest_accuracy"])),
            ("budgets", f"{len(self.budgets)}"),
        ]
        return card(
            f"Comparison of {len(self.methods)} methods", facts, self.chart(), note="Bands are intervals of 90 %."
        )

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The rows as columns, for a table."""
        made: dict[str, npt.NDArray[Any]] = {name: self._column(name, "") for name in TEXT}
        made |= {name: self._column(name, np.nan).astype(np.float64) for name in NUMBERS}
        for name in INTERVALS:
            pairs = [row[name] or (np.nan, np.nan) for row in self.rows]
            made[f"{name}_low"], made[f"{name}_high"] = np.array(pairs, np.float64).reshape(-1, 2).T
        for name in self.about["names"]:
            made[f"usage:{name}"] = np.array([row["usage"][name] for row in self.rows], np.float64)
        return made

    def _column(self, name: str, missing: Any) -> npt.NDArray[Any]:
        return np.array([missing if row[name] is None else row[name] for row in self.rows])

    def parts(self) -> Parts:
        """The report as one table, and what was compared."""
        return Parts("report", self.columns(), {"about": self.about})

    @classmethod
    def from_parts(cls, parts: Parts) -> Report:
        """The report that ``parts`` was made of."""
        about, columns = dict(parts.metadata["about"]), parts.columns
        rows = []
        for index in range(len(columns["method"])):
            row: dict[str, Any] = {name: str(columns[name][index]) or None for name in TEXT}
            row |= {name: _known(columns, name, index) for name in NUMBERS}
            for name in INTERVALS:
                low, high = _known(columns, f"{name}_low", index), _known(columns, f"{name}_high", index)
                row[name] = None if low is None or high is None else (low, high)
            row["usage"] = {name: float(columns[f"usage:{name}"][index]) for name in about["names"]}
            rows.append(row)
        return cls(rows, about)


def _known(columns: dict[str, npt.NDArray[Any]], name: str, index: int) -> float | None:
    """A number of a row, or None where it is missing, as all of a column may be in a file of an older version."""
    if name not in columns and name in LATER:
        return None
    value = columns[name][index]
    return None if np.isnan(value) else float(value)
