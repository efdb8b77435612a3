"""occamroute plan: which classifier answers which query, within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from occamroute.cli._folders import kept_folder, planned_folder
from occamroute.cli._inputs import Budget, Engine, Features, Json, ProfilePath, Seed, check_out, estimated, load_profile
from occamroute.cli._screen import nearness, print_json, print_table, progress_bar, table

if TYPE_CHECKING:
    from occamroute.planning.plans import Plan
    from occamroute.planning.stored_plans import StoredPlan
    from occamroute.profiles import Profile

__all__ = ["plan"]


def plan(
    profile: ProfilePath,
    features: Features,
    budget: Budget,
    out: Annotated[
        str | None,
        typer.Option(
            help="Where to write the assignment: .parquet (with its certificate, for verify) or .csv; a folder for a "
            "folder of queries."
        ),
    ] = None,
    estimator: Annotated[
        str,
        typer.Option(help="auto chooses on held-out rows; or bagged, sampled (the paper), kernel, forest, mixture."),
    ] = "auto",
    extractor: Annotated[
        str | None, typer.Option(help="Whose features these are, where the profile has several sets.")
    ] = None,
    penalty: Annotated[float, typer.Option(help="The paper's λ; auto chooses its own.")] = 0.0,
    objective: Annotated[str, typer.Option(help="mean, or min: the worst query first.")] = "mean",
    solver: Annotated[str, typer.Option(help="exact, or highs as a cross-check.")] = "exact",
    engine: Engine = "local",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Decide which classifier answers which query, within a budget."""
    from occamroute._money import money_from_text
    from occamroute.errors import InvalidInputError
    from occamroute.planning.fitting import plan as plan_automatically
    from occamroute.storage import is_folder, save
    from occamroute.tables import read_queries, write_csv

    amount = money_from_text(budget)
    if estimator == "auto" and (penalty or objective != "mean" or solver != "exact"):
        raise InvalidInputError("auto chooses for itself: name an --estimator to set penalty, objective or solver.")
    if is_folder(features):
        if solver != "exact":
            raise InvalidInputError(f"a folder of queries is planned by the exact solver, got --solver {solver}.")
        if out is not None and out.lower().endswith(".csv"):
            raise InvalidInputError(f"a folder of queries is planned into a folder, got --out {out}.")
        with kept_folder(out) as place:
            stored = planned_folder(
                load_profile(profile), features, amount, place, estimator=estimator, extractor=extractor,
                penalty=penalty, objective=objective, seed=seed, engine=engine,
            )  # fmt: skip
            print_json(stored.summary() | {"out": out}) if as_json else _show(stored, out)
        return
    if out is not None:
        check_out(out, ".parquet", ".csv")
    known = load_profile(profile)
    queries = read_queries(features)
    if estimator == "auto":
        with progress_bar("choosing on held-out rows") as progress:
            made = plan_automatically(
                known, _offered(known, queries.features, extractor), budget=amount, ids=queries.ids, seed=seed,
                executor=engine, progress=progress,
            )  # fmt: skip
    else:
        estimate = estimated(known, queries, estimator=estimator, extractor=extractor, seed=seed, engine=engine)
        made = estimate.plan(amount, penalty=penalty, objective=objective, solver=solver, seed=seed)  # type: ignore[arg-type]
    if out is not None and out.lower().endswith(".csv"):
        write_csv(made.assignment(), out)
    elif out is not None:
        save(made, out)
    print_json(made.summary()) if as_json else _show(made, out)


def _offered(known: Profile, features: object, extractor: str | None) -> object:
    """The feature sets to choose among: those of the file that the profile knows, or the one that is named."""
    if not isinstance(features, dict):
        return features if extractor is None else {extractor: features}
    if extractor is not None:
        return {extractor: features[extractor]} if extractor in features else features
    return {name: table for name, table in features.items() if name in known.feature_sets} or features


def _show(made: Plan | StoredPlan, out: str | None) -> None:
    counts = table("<classifier", "queries", "share")
    for name, count in made.usage.items():
        counts.add_row(name, f"{count:,}", f"{100 * count / len(made):.1f} %")
    print_table(counts)
    interval = ", a plain mean of estimates, which is optimistic"
    if made.accuracy_interval is not None:
        interval = " (90 %: {:.2f} to {:.2f})".format(*(100 * end for end in made.accuracy_interval))
    print_table(f"expected accuracy {100 * made.expected_accuracy:.2f} %{interval}")
    print_table(f"planned cost      {made.planned_cost:.12g} of {float(made.budget):.12g}")
    print_table(f"proved            {nearness(made.gap)}")
    print_table(f"estimator         {made.made_from['estimator']}, penalty {made.made_from['penalty']:g}")
    if out is not None:
        print_table(f"written           {out}")
