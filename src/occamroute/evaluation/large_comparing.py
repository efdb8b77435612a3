"""compare for a folder of labelled queries, which may be larger than memory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from occamroute._money import Amount, rounded_up
from occamroute.errors import BudgetTooSmallError, InvalidInputError
from occamroute.evaluation.baselines import require_estimator
from occamroute.evaluation.comparing import Steps, Terms, dearest_of_all, described
from occamroute.evaluation.labelled_folders import LabelledFolder, store_success
from occamroute.evaluation.large_judging import judge
from occamroute.evaluation.large_methods import Decided, LargeSetting, WorkFolder, make_large_method
from occamroute.evaluation.large_scoring import planned_in, score_large
from occamroute.evaluation.large_values import StoredValues
from occamroute.evaluation.reports import Report
from occamroute.evaluation.scoring import decimal
from occamroute.executors import Executor, opened
from occamroute.executors.local import one_thread_each
from occamroute.knapsack.streamed import LargeProblem
from occamroute.part_folders import remove_folder
from occamroute.planning.fitting import Progress
from occamroute.profiles import Profile

__all__ = ["compare_folder"]

Results = dict[str, dict[Fraction, list[Decided]]]


def compare_folder(
    profile: Profile,
    test: LabelledFolder,
    *,
    budgets: Iterable[Amount] | None,
    named: Mapping[str, Any],
    reference: str,
    extractor: str | None,
    seed: int,
    seeds: int,
    executor: str | Executor | None,
    progress: Progress | None,
    out: str | os.PathLike[str] | None,
) -> Report:
    """``oc.compare`` for the queries of a folder: every method decides in passes over them, one more judges all."""
    for method in named.values():  # before hours of work, not after them
        if not isinstance(method, str):
            require_estimator(method)
    if out is not None:
        test.folder.require_apart(out)
    terms = Terms.of(profile, test.first, budgets=budgets, extractor=extractor, queries=len(test))
    steps = Steps(len(named) * seeds + 2, progress)
    # Sums of linear algebra depend on the number of its threads: here it is the same whoever works.
    with opened(executor) as workers, _work_folder(out) as work, one_thread_each():
        truth = store_success(test, work.at("success"), executor=workers, progress=steps.within)
        steps.finish()
        setting = LargeSetting(
            terms.profile, test, terms.budgets, terms.extractor, seed, terms.costs, truth, work, workers
        )
        results, seconds = _decided(named, setting, seeds, steps)
        if not any(results.values()):
            raise BudgetTooSmallError(Decimal(decimal(max(terms.budgets))), rounded_up(_least(test)))
        planned = planned_in(results)
        told_apart = [one.choice is not None and not one.mixed for one, _ in planned]
        judged = judge(StoredValues.of(truth), [plan for _, plan in planned], told_apart, workers, steps.within)
        accuracy = judged.moments.mean[: len(profile.names)]
        scores = score_large(
            results, judged, names=profile.names, full=terms.full, reference=reference, seed=seed,
            dearest=dearest_of_all(test.mean_costs, accuracy),
        )  # fmt: skip
    steps.finish()
    about = described(
        profile, test, terms, scores, accuracy=accuracy, reference=reference, seed=seed, seeds=seeds, seconds=seconds
    )
    return Report(scores.rows, about | {"combined": False, "intervals": "normal"})


def _decided(
    named: Mapping[str, Any], setting: LargeSetting, seeds: int, steps: Steps
) -> tuple[Results, dict[str, float]]:
    """What every method decides with every seed at each budget that it can keep, and how long that took."""
    results: Results = {}
    seconds = {}
    for label, method in named.items():
        started = time.perf_counter()
        results[label] = {}
        for offset in range(seeds):
            # Half of the way is what comes before the first budget.
            own = replace(
                setting, seed=setting.seed + offset, progress=lambda done, total: steps.within(done, 2 * total)
            )
            answer, number = make_large_method(method, own), len(setting.budgets)
            for done, budget in enumerate(setting.budgets):
                steps.within(number + done, 2 * number)
                with suppress(BudgetTooSmallError):
                    decided = answer(budget)
                    results[label].setdefault(budget, []).append(decided)
            steps.finish()
        seconds[label] = time.perf_counter() - started
    return results, seconds


def _least(test: LabelledFolder) -> Fraction:
    """The least that answering every query costs."""
    problem = LargeProblem(test.mean_costs, 0, len(test))
    return problem.total(problem.cheapest)


@contextmanager
def _work_folder(out: str | os.PathLike[str] | None) -> Iterator[WorkFolder]:
    """The folder for estimates. One that was named stays if the work is interrupted; at its end what it used goes."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="occamroute-") as folder:
            yield WorkFolder(Path(folder))
        return
    work = Path(out)
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"cannot write {work}: {error.strerror}.") from error
    made = WorkFolder(work)
    yield made
    for used in made.used:
        remove_folder(used)
    with suppress(OSError):  # whatever else is in it stays
        work.rmdir()
