"""occamroute open: look at a profile, a plan or a run in the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamroute.cli._inputs import QueryColumn, Seed, load_profile
from occamroute.cli._screen import print_json, visible

if TYPE_CHECKING:
    from occamroute.reporting.dashboard.subjects import Subject
    from occamroute.reporting.exploring.previews import Previews

__all__ = ["open_file"]


def open_file(
    file: Annotated[
        str,
        typer.Argument(
            help="A saved profile, plan or run (.parquet, or the folder of one), or a shipped profile: cifar10."
        ),
    ],
    profile: Annotated[
        str | None, typer.Option(help="With a plan: the profile it was made from, to show neighbours.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="With a plan and its profile: the queries' features, to show neighbours.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="The queries themselves, texts or images, as `occamroute profile` took them."),
    ] = None,
    query: QueryColumn = None,
    estimator: Annotated[str, typer.Option(help="With a profile: bagged, sampled (the paper), forest, mixture.")] = (
        "bagged"
    ),
    extractor: Annotated[
        str | None, typer.Option(help="With a profile: whose features are looked at, where it has several sets.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON with the address.")] = False,
) -> None:
    """Look at a profile, a plan or a run on a page of this machine: move the budget, drop a classifier, ask why."""
    import webbrowser
    from threading import Thread

    from occamroute.reporting.dashboard.server import HOME, LOOPBACK, make_server

    previews = None if data is None else _previews(data, query)
    subject = _subject(file, profile, features, previews, estimator=estimator, extractor=extractor, seed=seed)
    with make_server(subject, port=port) as server:
        address = f"http://{LOOPBACK}:{server.server_address[1]}{HOME}"
        if as_json:
            print_json({"address": address, "kind": subject.kind}, indent=None)
        else:
            typer.echo(visible(f"{subject.title} is at {address} (Ctrl-C ends)"))
        if browser:  # beside the server: one that runs in the terminal ends only when its reader leaves
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


def _previews(data: str, query: str | None) -> Previews:
    from occamroute.calls.terms import query_ids_of
    from occamroute.data_files import read_data
    from occamroute.reporting.exploring.previews import previews_of

    found = read_data(data, query=query)
    return previews_of(query_ids_of(found.ids, found.queries), found.queries)


def _subject(
    file: str,
    profile: str | None,
    features: str | None,
    previews: Previews | None,
    *,
    estimator: str,
    extractor: str | None,
    seed: int,
) -> Subject:
    import os
    from pathlib import Path

    from occamroute.datasets import DATASETS
    from occamroute.errors import InvalidInputError, StorageError
    from occamroute.execution.runs import Run
    from occamroute.planning.plans import Plan
    from occamroute.profiles import Profile
    from occamroute.reporting.dashboard.making import plan_subject, profile_subject, run_subject
    from occamroute.reporting.wholes import whole
    from occamroute.storage import load
    from occamroute.tables import read_queries

    shipped = file in DATASETS and not os.path.exists(file)
    found: Any = load_profile(file) if shipped else whole(load(file))
    title = file if shipped else Path(file).name
    if not isinstance(found, Plan) and (profile is not None or features is not None):
        raise InvalidInputError("--profile and --features go with a plan.")
    if (profile is None) != (features is None):
        raise InvalidInputError("neighbours need both --profile and --features.")
    if isinstance(found, Profile):
        return profile_subject(found, title, previews=previews, estimator=estimator, extractor=extractor, seed=seed)
    if isinstance(found, Run):
        return run_subject(found, title)
    if isinstance(found, Plan):
        known = None if profile is None else load_profile(profile)
        table = None if features is None else read_queries(features).features
        return plan_subject(found, title, profile=known, features=table, previews=previews)
    kind = type(found).__name__.lower()
    raise StorageError(
        file, f"it holds a {kind}, a profile, a plan or a run is needed; `occamroute report` has pages of the others"
    )
