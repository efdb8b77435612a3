"""occamroute doctor: what looks wrong with a profile."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from occamroute.cli._inputs import Json, ProfilePath, Seed, load_profile
from occamroute.cli._screen import print_json, print_table, progress_bar, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from occamroute.evaluation.doctor import Checkup

__all__ = ["doctor"]

# Seconds after which there is a bar.
PATIENCE = 2.0


def doctor(profile: ProfilePath, seed: Seed = 0, as_json: Json = False) -> None:
    """Examine a profile: label noise, leaks, duplicates, odd columns and costs, too few rows, worthless features."""
    from occamroute.evaluation.doctor import doctor as examine

    known = load_profile(profile)
    with ExitStack() as stack:
        checkup = examine(known, seed=seed, progress=_late_bar(stack, f"examining {len(known):,} rows"))
    print_json(checkup.summary()) if as_json else _show(checkup)


def _late_bar(stack: ExitStack, title: str) -> Callable[[int, int], None]:
    """A bar that is not there before it is missed."""
    started = time.monotonic()
    shown: list[Callable[[int, int], None]] = []

    def move(done: int, total: int) -> None:
        if not shown and time.monotonic() - started > PATIENCE:
            shown.append(stack.enter_context(progress_bar(title)))
        for bar in shown:
            bar(done, total)

    return move


def _show(checkup: Checkup) -> None:
    rows = table("<", "<check", "<features", "<what is seen, and what to do")
    for finding in checkup.findings:
        rows.add_row(finding.severity, finding.code, finding.about, f"{finding.seen} {finding.advice}".strip())
    print_table(rows)
    for code, reason in checkup.skipped.items():
        print_table(f"not checked: {code}, since {reason}")
    counts = {kind: sum(one.severity == kind for one in checkup.findings) for kind in ("problem", "warning", "note")}
    words = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    print_table(f"{', '.join(words) or 'nothing wrong'} in {checkup.n_rows:,} rows")
