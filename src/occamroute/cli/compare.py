"""occamroute compare: every baseline beside auto, on queries whose success is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occamroute.cli._inputs import Engine, Json, ProfilePath, Seed, check_out, load_profile
from occamroute.cli._screen import print_json, print_table, progress_bar, table

if TYPE_CHECKING:
    from fractions import Fraction

    from occamroute.evaluation.labelled_folders import LabelledFolder
    from occamroute.evaluation.reports import Report
    from occamroute.profiles import Profile

__all__ = ["compare"]


def compare(
    profile: ProfilePath,
    test: Annotated[
        str | None,
        typer.Option(
            help="A saved profile to judge on, or a folder of them, which may be larger than memory; without it half "
            "of the rows are set aside."
        ),
    ] = None,
    budget: Annotated[
        list[str] | None, typer.Option(help="A total for all test queries, in the unit of the costs; may be repeated.")
    ] = None,
    share: Annotated[
        list[float] | None, typer.Option(help="A budget as a share of always using the dearest; may be repeated.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Names with commas between them; by default every baseline, auto and the oracle.")
    ] = None,
    reference: Annotated[str, typer.Option(help="The method that differences are from.")] = "mixture",
    extractor: Annotated[
        str | None, typer.Option(help="Whose features the baselines look at, where the profile has several sets.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repeat what draws with so many seeds, and average.")] = 1,
    out: Annotated[
        str | None, typer.Option(help="Where to write the report: .parquet, .csv or .svg (the chart).")
    ] = None,
    engine: Engine = "local",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare what every method really reaches at each budget, learning from one half and judged on the other."""
    from occamroute.errors import InvalidInputError
    from occamroute.evaluation.comparing import DEFAULT_METHODS
    from occamroute.evaluation.comparing import compare as compare_methods
    from occamroute.evaluation.labelled_folders import LabelledFolder
    from occamroute.storage import is_folder

    if out is not None:
        check_out(out, ".parquet", ".csv", ".svg")
    if budget and share:
        raise InvalidInputError("budgets are given with --budget or with --share, not with both.")
    named = DEFAULT_METHODS if methods is None else tuple(filter(None, map(str.strip, methods.split(","))))
    known, judged = _halves(profile, test, seed)
    if out is not None and isinstance(judged, LabelledFolder):
        judged.folder.require_apart(out)
    # Estimates for a folder are kept beside the report, so that the same command goes on after an interruption.
    beside = None if out is None or test is None or not is_folder(test) else f"{out}.estimates"
    with progress_bar(f"{len(named)} methods on {len(judged):,} queries") as progress:
        report = compare_methods(
            known, judged, budgets=_budgets(judged, budget, share), methods=named, reference=reference,
            extractor=extractor, seed=seed, seeds=seeds, executor=engine, progress=progress, out=beside,
        )  # fmt: skip
    if out is not None:
        _write(report, out)
    if as_json:
        print_json({**report.about, "rows": report.rows, "cost_reduction": report.cost_reduction()})
    else:
        _show(report, out)


def _halves(profile: str, test: str | None, seed: int) -> tuple[Profile, Profile | LabelledFolder]:
    """The rows to learn from and those to judge on."""
    from occamroute.datasets import DATASETS, load_dataset
    from occamroute.evaluation.labelled_folders import LabelledFolder
    from occamroute.storage import is_folder

    if test is not None:
        return load_profile(profile), LabelledFolder.at(test) if is_folder(test) else load_profile(test)
    if profile in DATASETS and not Path(profile).exists():
        return load_dataset(profile)
    return load_profile(profile).split(0.5, seed=seed)


def _budgets(
    test: Profile | LabelledFolder, budgets: list[str] | None, shares: list[float] | None
) -> list[Fraction] | None:
    from occamroute._money import money, money_from_text
    from occamroute.evaluation.comparing import dearest_total

    if budgets:
        return [money(money_from_text(budget)) for budget in budgets]
    if shares:
        full = dearest_total(test)
        return [money(share, "share") * full for share in shares]
    return None


def _write(report: Report, out: str) -> None:
    from occamroute.storage import save, whole_file
    from occamroute.tables import write_csv

    kind = Path(out).suffix.lower()
    if kind == ".csv":
        write_csv(report.columns(), out)
    elif kind == ".parquet":
        save(report, out)
    else:
        with whole_file(out) as temporary:
            temporary.write_text(report.chart(), encoding="utf-8")


def _show(report: Report, out: str | None) -> None:
    about = report.about
    shares = [next(row["budget_share"] for row in report.rows if row["budget"] == amount) for amount in report.budgets]
    print_table(
        f"accuracy (%) on {about['n_queries']:,} queries, learning from {about['n_profile']:,}; budgets are shares of "
        f"always using {about['dearest']} ({100 * about['dearest_accuracy']:.2f} %)"
    )
    rows = table("<method", *(f"{share:.3g}" for share in shares), "mean")
    averages = report.averages()
    for method in report.methods:
        reached = {row["budget"]: f"{100 * row['accuracy']:.2f}" for row in report.of(method)}
        mean = f"{100 * averages[method]:.2f}" if method in averages else ""
        rows.add_row(method, *(reached.get(amount, "") for amount in report.budgets), mean)
    print_table(rows)
    how = "paired, normal" if about.get("intervals") == "normal" else "paired bootstrap"
    print_table(f"difference from {about['reference']}, in points, ± half of its 90 % interval ({how})")
    rows = table("<method", *(f"{share:.3g}" for share in shares))
    for method in report.methods:
        if method != about["reference"]:
            found = {row["budget"]: _difference(row) for row in report.of(method)}
            rows.add_row(method, *(found.get(amount, "") for amount in report.budgets))
    print_table(rows)
    _show_reductions(report)
    for row in report.of("auto"):
        print_table(f"auto at {row['budget_share']:.3g}: {row['chosen']}")
    if out is not None:
        print_table(f"written: {out}")


def _show_reductions(report: Report) -> None:
    """The paper's table: accuracy lost (negative: gained) where so much of the dearest's cost is saved."""
    found = report.cost_reduction()
    reductions = sorted({row["cost_reduction"] for row in found})
    print_table("accuracy drop, % of the dearest's, at a cost reduction of (negative: a gain)")
    rows = table("<method", *(f"{100 * reduction:g} %" for reduction in reductions))
    for method in report.methods:
        drops = {row["cost_reduction"]: f"{row['accuracy_drop']:+.2f}" for row in found if row["method"] == method}
        rows.add_row(method, *(drops.get(reduction, "") for reduction in reductions))
    print_table(rows)


def _difference(row: dict[str, object]) -> str:
    difference, interval = row["difference"], row["difference_interval"]
    if not isinstance(difference, float) or not isinstance(interval, tuple):
        return ""
    low, high = interval
    return f"{100 * difference:+.2f} ±{50 * (high - low):.2f}"
