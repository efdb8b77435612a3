"""Estimate: how likely each classifier is right on each query, and what asking it costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from occamroute._arrays import FloatArray, cost_array, feature_matrix, generator, name_tuple, seed_number
from occamroute._money import Amount, exact
from occamroute._version import __version__
from occamroute.charts import share_bars
from occamroute.charts.cards import card
from occamroute.charts.words import brief, plain_percent
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.estimation import make_estimator
from occamroute.executors import Executor, opened
from occamroute.knapsack import Objective, Problem, SolverName, solve_problem
from occamroute.planning.frontiers import Frontier, make_frontier
from occamroute.planning.plans import Plan, make_plan
from occamroute.profiles import Profile, exact_means

if TYPE_CHECKING:
    from occamroute.planning.stored_estimates import StoredEstimate

__all__ = ["Estimate", "SigmaKind", "charged", "estimate", "looks_at_features", "predicted"]

SigmaKind = Literal["error", "estimator"]
# Held-out rows that sigma is measured on: enough to know a standard deviation to two digits.
HELD_OUT = 2000
PARTS = 4
# Queries that are sent to a worker together: a multiple of what estimators take at once, so that all bits are the
# same, and grown with their number so that there are about so many blocks, whoever works on them.
BLOCK = 2048
BLOCKS = 64
LARGEST_BLOCK = 32 * BLOCK


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """How likely each of M classifiers is right on each of N queries.

    ``costs`` (M,) or (N, M) is what asking costs once the features are there: the extractor's own answer is then
    free. ``overhead`` is what extraction costs for one query. ``sigma`` (M,) is the spread that a penalty
    multiplies, from held-out rows. ``distance`` (N,) is that to the nearest labelled row, where it is known.
    """

    names: tuple[str, ...]
    costs: FloatArray
    success: FloatArray
    sigma: FloatArray
    overhead: Amount = 0
    distance: FloatArray | None = None
    ids: tuple[str, ...] = ()
    made_from: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.ids:
            object.__setattr__(self, "ids", tuple(map(str, range(self.success.shape[0]))))

    def __len__(self) -> int:
        return int(self.success.shape[0])

    def __repr__(self) -> str:
        return f"Estimate({len(self)} queries, classifiers {', '.join(self.names)}, overhead {self.overhead})"

    def _repr_html_(self) -> str:
        means = self.success.mean(axis=0)
        order = np.argsort(-means, kind="stable")
        names, values = [self.names[column] for column in order], [float(means[column]) for column in order]
        picture = share_bars(names, values, list(map(plain_percent, values)), title="Mean estimated success")
        facts = [
            ("queries", f"{len(self):,}"),
            ("estimator", str(self.made_from.get("estimator", "not stated"))),
            ("extraction, each query", brief(float(self.overhead))),
        ]
        return card("Estimate: mean estimated success", facts, picture, note="No interval is known for estimates.")

    def problem(self, budget: Amount, *, objective: Objective = "mean", penalty: float = 0.0) -> Problem:
        """The knapsack to solve: ``success - penalty · sigma`` within the budget."""
        wanted = (str(objective), checked_penalty(penalty))
        stated = self._stated.get(wanted)
        if stated is None:
            value = self.success if wanted[1] == 0.0 else self.success - wanted[1] * self.sigma
            stated = Problem(value, self.costs, budget, objective, self.overhead)
            self._stated.clear()
            self._stated[wanted] = stated
        return stated.within(budget)

    @cached_property
    def _stated(self) -> dict[tuple[str, float], Problem]:
        """The problem that was asked for last: for another budget most of it is the same."""
        return {}

    def plan(
        self,
        budget: Amount,
        *,
        objective: Objective = "mean",
        penalty: float = 0.0,
        solver: SolverName = "exact",
        seed: int | np.random.Generator = 0,
    ) -> Plan:
        """The best plan within a budget for all queries, feature extraction included.

        Its ``expected_accuracy`` is the mean of the chosen estimates, which is optimistic: choosing the highest
        of several estimates prefers those that happen to be too high.
        """
        problem = self.problem(budget, objective=objective, penalty=penalty)
        number = seed_number(seed)
        knobs = {"objective": objective, "penalty": float(penalty), "solver": solver, "plan_seed": number}
        return make_plan(
            problem,
            solve_problem(problem, solver=solver, seed=number),
            ids=self.ids,
            names=self.names,
            success=self.success,
            made_from={**self.made_from, **knobs},
        )

    def frontier(self, *, penalty: float = 0.0, seed: int | np.random.Generator = 0) -> Frontier:
        """The highest expected accuracy at every budget at once."""
        number = seed_number(seed)

        def plan(budget: Amount) -> Plan:
            return self.plan(budget, penalty=penalty, seed=number)

        return make_frontier(self.problem(0, penalty=penalty), self.success, plan)


@overload
def estimate(
    profile: Profile,
    features: str | os.PathLike[str],
    *,
    estimator: str | Any = "bagged",
    extractor: str | None = None,
    costs: Any = None,
    ids: None = None,
    sigma: SigmaKind = "error",
    seed: int | np.random.Generator = 0,
    executor: str | Executor | None = None,
    out: str | os.PathLike[str],
    progress: Callable[[int, int], None] | None = None,
) -> StoredEstimate: ...


@overload
def estimate(
    profile: Profile,
    features: Any,
    *,
    estimator: str | Any = "bagged",
    extractor: str | None = None,
    costs: Any = None,
    ids: Any = None,
    sigma: SigmaKind = "error",
    seed: int | np.random.Generator = 0,
    executor: str | Executor | None = None,
) -> Estimate: ...


def estimate(
    profile: Profile,
    features: Any,
    *,
    estimator: str | Any = "bagged",
    extractor: str | None = None,
    costs: Any = None,
    ids: Any = None,
    sigma: SigmaKind = "error",
    seed: int | np.random.Generator = 0,
    executor: str | Executor | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Estimate | StoredEstimate:
    """Each classifier's probability of success on new queries, from their ``features`` (N, d).

    ``estimator`` is "bagged", "sampled" (the paper), "forest", "forest_regularized", "contrast_forest", "kernel",
    "mixture", or any object with scikit-learn's ``fit`` and ``predict`` for several outputs. Where the profile has
    several feature sets, ``extractor`` names the one that ``features`` are (or ``features`` is a mapping).
    ``costs`` (M,) or (N, M) are the new queries' costs; by default the profile's, averaged by classifier where they
    differ by query. ``sigma`` is the spread of the estimate's error on held-out rows ("error", as the authors
    compute it, though they use test rows), or the standard deviation of the estimate itself over disjoint parts of
    the profile ("estimator", as the paper says). ``executor`` is where blocks of queries are worked on: "local", "ray",
    or an executor; what is estimated is the same.

    ``features`` may be a folder of Parquet files, larger than memory: the estimates are then kept in the folder
    ``out``, and the same call goes on where an interrupted one stopped.
    """
    if isinstance(features, str | os.PathLike):
        from occamroute.planning.from_folders import estimate_folder

        return estimate_folder(
            profile, features, estimator=estimator, extractor=extractor, costs=costs, sigma=sigma, seed=seed, out=out,
            executor=executor, progress=progress,
        )  # fmt: skip
    made = make_estimator(estimator)
    name = chosen_extractor(profile, extractor, features)
    queries = feature_matrix(features[name] if isinstance(features, Mapping) else features)
    pool = profile.feature_sets[name]
    if queries.shape[1] != pool.shape[1]:
        raise InvalidInputError(f"features must have the profile's {pool.shape[1]} columns, got {queries.shape[1]}.")
    with opened(executor) as workers:
        made.fit(pool, profile.success)
        spread = sigma_of(estimator, profile, name, sigma, generator(seed))
        success, distance = predicted(made, queries, len(profile.names), workers)
    own_costs, overhead = charged(profile, name if looks_at_features(made) else None, costs, queries.shape[0])
    return Estimate(
        names=profile.names,
        costs=own_costs,
        success=success,
        sigma=spread,
        overhead=overhead,
        distance=distance,
        ids=query_ids(ids, queries.shape[0]),
        made_from={
            "version": __version__,
            "profile": profile.fingerprint,
            "estimator": repr(made),
            "extractor": name if looks_at_features(made) else None,
            "sigma": sigma,
        },
    )


def query_ids(ids: Any, queries: int) -> tuple[str, ...]:
    """The ids given, one for each query, or none."""
    if ids is None:
        return ()
    names = name_tuple(map(str, ids), "ids")
    if len(names) != queries:
        raise InvalidInputError(f"ids must be of length {queries}, got {len(names)}.")
    return names


def checked_penalty(penalty: Any) -> float:
    """A finite number that is not negative."""
    try:
        number = float(penalty)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number < np.inf:
        raise InvalidInputError(f"penalty must be a finite number ≥ 0, got {penalty!r}.")
    return number


def chosen_extractor(profile: Profile, extractor: str | None, features: Any) -> str:
    """The feature set meant: the one asked for, the only one, or the profile's own default."""
    sets = profile.feature_sets
    if extractor is None and isinstance(features, Mapping) and len(features) == 1:
        extractor = next(iter(features))
    if extractor is None:
        extractor = next(iter(sets)) if len(sets) == 1 else profile.extractor
    if extractor is None and not sets:
        raise InvalidInputError("the profile has no features: give none, and mixtures are planned.")
    if extractor is None:
        raise InvalidInputError(f"the profile has several feature sets: name one of {', '.join(sets)} as extractor.")
    if extractor not in sets:
        raise UnknownNameError("extractor", extractor, sets)
    if isinstance(features, Mapping) and extractor not in features:
        raise UnknownNameError("extractor", extractor, features)
    return extractor


def charged(profile: Profile, extractor: str | None, costs: Any, queries: int) -> tuple[FloatArray, Amount]:
    """What each answer costs once the features are paid, and what the features cost for one query.

    Without an extractor nothing is looked at: nothing is charged for it, and nothing is freed. Where extraction is
    a classifier's call at its own cost, it follows the new queries' costs.
    """
    own = profile.mean_costs if costs is None else cost_array(costs, options=len(profile.names), rows=queries)
    if extractor is None:
        return own, 0
    amount, paid = profile.extraction_costs[extractor], profile.paid_extractor(extractor)
    if paid not in profile.names:
        return own, amount
    column = profile.names.index(paid)
    if costs is not None and exact(amount) == exact(float(profile.mean_costs[column])):
        # Extraction is a call of that classifier: it costs what the call costs for these queries.
        amount = float(exact_means(own[..., [column]])[0])
    own = own.copy()
    own[..., column] = 0.0
    return own, amount


def predicted(
    estimator: Any, queries: FloatArray, options: int, executor: Executor | None = None
) -> tuple[FloatArray, FloatArray | None]:
    """Estimated success (N, M) within [0, 1], and the distance to the nearest labelled row where it is known."""
    if executor is None or len(queries) <= BLOCK:
        return _predicted_block((estimator, options), queries)
    size = min(LARGEST_BLOCK, BLOCK * -(-len(queries) // (BLOCK * BLOCKS)))
    blocks = (queries[start : start + size] for start in range(0, len(queries), size))
    parts = list(executor.map(_predicted_block, (estimator, options), blocks))
    tables, distances = zip(*parts, strict=True)
    return np.concatenate(tables), None if distances[0] is None else np.concatenate(distances)


def _predicted_block(shared: tuple[Any, int], queries: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    estimator, options = shared
    distance = None
    if hasattr(estimator, "predict_with_distance"):
        table, distance = estimator.predict_with_distance(queries)
    else:
        table = estimator.predict(queries)
    table = np.asarray(table, np.float64).reshape(queries.shape[0], -1)
    if table.shape[1] != options or not np.isfinite(table).all():
        raise InvalidInputError(
            f"the estimator must predict {options} finite numbers a query, got shape {table.shape}."
        )
    return np.clip(table, 0.0, 1.0), distance


def looks_at_features(estimator: Any) -> bool:
    """Whether features must be extracted for it."""
    return bool(getattr(estimator, "looks_at_features", True))


def sigma_of(estimator: Any, profile: Profile, extractor: str, kind: str, random: np.random.Generator) -> FloatArray:
    """The spread of the estimate, measured on rows that the estimator did not see; 0 for a handful of rows."""
    pool, success = profile.feature_sets[extractor], profile.success
    if kind not in ("error", "estimator"):
        raise UnknownNameError("sigma", kind, ("error", "estimator"))
    rows = success.shape[0]
    if rows < 2 * PARTS:
        return np.zeros(success.shape[1])
    blocks = profile.blocks
    order = np.argsort(random.permutation(int(blocks.max()) + 1)[blocks], kind="stable")
    held = order[: min(HELD_OUT, max(1, rows // 5))]
    rest = order[~np.isin(blocks[order], blocks[held])]  # rows of one group stay together
    if rest.size < PARTS:
        return np.zeros(success.shape[1])
    parts = [np.sort(rest)] if kind == "error" else [np.sort(part) for part in np.array_split(rest, PARTS)]
    tables = []
    for part in parts:
        fitted = make_estimator(estimator)
        if hasattr(fitted, "shrunk"):
            fitted = fitted.shrunk(part.size / rows)
        fitted.fit(pool[part], success[part])
        tables.append(predicted(fitted, pool[held], success.shape[1])[0])
    if kind == "error":
        return np.asarray((success[held] - tables[0]).std(axis=0))
    return np.asarray(np.sqrt(np.var(tables, axis=0, ddof=1).mean(axis=0)))
