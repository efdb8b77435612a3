"""occamroute frontier: the expected accuracy at every budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occamroute.cli._folders import estimates_beside, kept_folder
from occamroute.cli._inputs import Engine, Features, Json, ProfilePath, Seed, check_out, estimated, load_profile
from occamroute.cli._screen import chart, print_json, print_table, progress_bar, table

__all__ = ["frontier"]


def frontier(
    profile: ProfilePath,
    features: Features,
    out: Annotated[str | None, typer.Option(help="Where to write all points: .parquet, .csv or .svg.")] = None,
    estimator: Annotated[str, typer.Option(help="bagged, sampled (the paper) or mixture.")] = "bagged",
    extractor: Annotated[
        str | None, typer.Option(help="Whose features these are, where the profile has several sets.")
    ] = None,
    penalty: Annotated[float, typer.Option(help="The paper's λ.")] = 0.0,
    points: Annotated[int, typer.Option(min=2, help="How many points to show; files hold all of them.")] = 12,
    engine: Engine = "local",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Show the highest expected accuracy at every budget (the plain mean of estimates, which is optimistic)."""
    from occamroute.charts.pictures import frontier_chart
    from occamroute.planning.estimates import checked_penalty
    from occamroute.storage import is_folder, save, whole_file
    from occamroute.tables import read_queries, write_csv

    suffix = None if out is None else Path(out).suffix.lower()
    if out is not None:
        check_out(out, ".parquet", ".csv", ".svg")
    checked_penalty(penalty)
    known = load_profile(profile)
    if is_folder(features):
        with kept_folder(out) as place, estimates_beside(
            place, known, features, estimator=estimator, extractor=extractor, seed=seed, engine=engine
        ) as stored, progress_bar("adding up steps") as progress:  # fmt: skip
            front = stored.frontier(penalty=penalty, executor=engine, progress=progress)
    else:
        queries = read_queries(features)
        estimate = estimated(known, queries, estimator=estimator, extractor=extractor, seed=seed, engine=engine)
        front = estimate.frontier(penalty=penalty, seed=seed)
    shown = front.spread(points)
    if out is not None and suffix == ".svg":
        picture = frontier_chart(*front.spread(400).points())
        with whole_file(out) as temporary:
            temporary.write_text(picture, encoding="utf-8")
    elif out is not None and suffix == ".csv":
        write_csv(front.parts().columns, out)
    elif out is not None:
        save(front, out)
    if as_json:
        print_json({"n_queries": front.n_queries, "n_points": len(front), "points": shown.rows()})
        return
    print_table(*chart([("•", list(zip(*front.spread(400).points(), strict=True)))]).splitlines())
    rows = table("budget", "expected accuracy", "right answers per unit more")
    for row in shown.rows():
        rows.add_row(f"{row['budget']:.6g}", f"{100 * row['accuracy']:.2f} %", f"{row['price']:.4g}")
    print_table(rows)
    print_table(f"{len(front):,} supported points for {front.n_queries:,} queries")
