"""What plan and frontier do with a folder of Parquet files: everything goes by way of the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamroute.cli._screen import progress_bar

if TYPE_CHECKING:
    from occamroute.planning.stored_estimates import StoredEstimate
    from occamroute.planning.stored_plans import StoredPlan
    from occamroute.profiles import Profile

__all__ = ["estimates_beside", "kept_folder", "planned_folder"]


@contextmanager
def kept_folder(out: str | None) -> Iterator[str]:
    """The folder to write to; where none was named, one that is gone at the end."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="occamroute-") as folder:
        yield str(Path(folder) / "made")


@contextmanager
def estimates_beside(
    place: str, profile: Profile, features: str, *, estimator: str, extractor: str | None, seed: int, engine: str
) -> Iterator[StoredEstimate]:
    """The estimates, in a folder beside ``place`` that is removed once they were used; interrupted, it stays."""
    from occamroute.planning.estimates import estimate

    folder = f"{place.rstrip('/')}.estimates"
    with progress_bar("estimating") as progress:
        made = estimate(
            profile, features, estimator=estimator, extractor=extractor, seed=seed, executor=engine, out=folder,
            progress=progress,
        )  # fmt: skip
    yield made
    made.parts.remove()


def planned_folder(
    profile: Profile,
    features: str,
    budget: Any,
    place: str,
    *,
    estimator: str,
    extractor: str | None,
    penalty: float,
    objective: str,
    seed: int,
    engine: str,
) -> StoredPlan:
    """The plan for a folder of queries, written to the folder ``place``."""
    from occamroute.planning.fitting import plan
    from occamroute.planning.from_folders import plan_with_estimator

    if estimator == "auto":
        with progress_bar("choosing, estimating and planning") as progress:
            return plan(
                profile, features if extractor is None else {extractor: features}, budget=budget, seed=seed,
                executor=engine, out=place, progress=progress,
            )  # fmt: skip
    with progress_bar("estimating and planning") as progress:
        return plan_with_estimator(
            profile, features, budget, estimator=estimator, extractor=extractor, penalty=penalty,
            objective=objective, seed=seed, out=place, executor=engine, progress=progress,  # type: ignore[arg-type]
        )  # fmt: skip
