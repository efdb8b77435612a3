"""Novelty and drift: false alarms no more often than stated, real changes found, on real held-out rows.

The long study is ``benchmarks/drift.py``.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute.neighbors import PoolIndex
from occamroute.routing.drift import Alarm, FeatureWatch, FeedbackWatch
from occamroute.routing.martingales import DIRECTIONS, Betting, p_values
from occamroute.routing.novelty import Novelty, left_out_distances

Array = np.ndarray[Any, Any]


def nearest(rows: Array, queries: Array) -> Array:
    """Distances of queries to their nearest rows."""
    return np.asarray(PoolIndex(rows).search(queries, 1).distances[:, 0])


@pytest.fixture(scope="module")
def real(cifar10: tuple[oc.Profile, oc.Profile]) -> dict[str, Array]:
    """6,000 labelled rows and 10,000 other queries of CIFAR-10, with distances looked up once."""
    profile, test = cifar10
    rows, queries = np.asarray(profile.features)[:6000], np.asarray(test.features)
    labels = np.asarray(test.labels)
    return {
        "rows": rows, "left_out": left_out_distances(rows), "queries": queries, "near": nearest(rows, queries),
        "labels": labels,
    }  # fmt: skip


def watch(real: dict[str, Array], *, seed: int = 0, rate: float = 0.01) -> FeatureWatch:
    return FeatureWatch.of(real["rows"], real["left_out"], seed=seed, rate=rate)


def show(watch: FeatureWatch, real: dict[str, Array], which: Array) -> None:
    watch.update(real["queries"][which], real["near"][which])


def raised(watch: FeatureWatch | FeedbackWatch) -> Alarm:
    """The alarm, which must be up."""
    assert watch.alarm is not None
    return watch.alarm


# Bets


def test_every_bet_is_fair_whatever_came_before() -> None:
    """Capital after the next p-value, averaged over all that it may be, is the capital before."""
    random = np.random.default_rng(0)
    history = np.repeat(random.beta(0.7, 1.3, 60)[:, np.newaxis], 1, axis=1)
    grid = (np.arange(20_000) + 0.5) / 20_000
    before, after = [], []
    for p in grid[::10]:
        betting = Betting(np.ones(1))
        betting.bet(np.zeros(history.shape, np.int64), history, 0, np.inf)
        before.append(betting.evidence)
        betting.bet(np.zeros((1, 1), np.int64), np.array([[p]]), 60, np.inf)
        after.append(betting.evidence)
    assert np.mean(after) == pytest.approx(before[0], rel=2e-3)


def test_capital_that_ever_reaches_twenty_is_rarer_than_one_in_twenty() -> None:
    """Ville's inequality, on 4,000 lines of uniform p-values of 1,500 steps."""
    random, lines = np.random.default_rng(1), 4000
    betting = Betting(np.ones(lines))
    everyone = np.arange(lines)[np.newaxis]
    most = np.zeros(lines)
    for step in range(1500):
        betting.bet(everyone, random.random((1, lines)), step, np.inf)
        most = np.maximum(most, betting.asleep + betting.capital.sum(axis=1))
    assert 0.001 < (most >= 20.0).mean() <= 0.05
    assert betting.asleep.min() > 0.4  # what has not been bet yet is still there


def test_ranks_are_conformal_p_values() -> None:
    """Ranks among all scores of the stratum so far, ties shared by chance: against the definition."""
    random = np.random.default_rng(2)
    levels, strata = random.integers(0, 4, (300, 2)), random.integers(0, 3, (300, 2))
    counts, draws, found = random.integers(0, 5, (3, 4)), random.random((300, 2)), np.empty((300, 2))
    past = [np.repeat(np.arange(4), line).tolist() for line in counts]
    p_values(strata, levels, draws, counts, found)
    for here, level, draw, p in zip(strata.ravel(), levels.ravel(), draws.ravel(), found.ravel(), strict=True):
        past[here].append(int(level))
        seen = np.array(past[here])
        assert p == pytest.approx(((seen < level).sum() + draw * (seen == level).sum()) / seen.size)


def test_bets_have_names() -> None:
    """An alarm says in which direction the change went."""
    for p, direction in ((0.02, "lower"), (0.98, "higher")):
        betting = Betting(np.ones(1))
        found = betting.bet(np.zeros((50, 1), np.int64), np.full((50, 1), p), 7, 100.0)
        assert found is not None
        assert (found.direction, found.since) == (direction, 7)
    assert set(DIRECTIONS) == {"lower", "higher", "wider", "narrower", "other"}


# Features


def test_false_alarms_on_features_are_as_rare_as_stated(cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """150 streams of 2,000 real queries, labelled rows drawn anew for each: at most 5 % raise an alarm at 0.05."""
    profile, test = cifar10
    everything = np.concatenate([np.asarray(profile.features), np.asarray(test.features)])
    alarms = 0
    for seed in range(150):
        order = np.random.default_rng(seed).permutation(len(everything))
        rows, queries = everything[order[:1200]], everything[order[1200:3200]]
        made = FeatureWatch.of(rows, left_out_distances(rows), seed=seed, rate=0.05)
        made.update(queries, nearest(rows, queries))
        alarms += made.alarm is not None
    assert alarms <= 7


@pytest.mark.parametrize("quiet", [0, 3000, 100_000])
def test_missing_classes_are_found_also_after_a_long_quiet_time(real: dict[str, Array], quiet: int) -> None:
    """Half of the classes stop coming: an alarm within some hundred queries, and about when it began."""
    random = np.random.default_rng(3)
    made = watch(real)
    if quiet:  # beyond the rows at hand they repeat, which is a change too, but one too small to be seen
        show(made, real, random.permutation(5000)[:quiet] if quiet < 5000 else random.integers(0, 5000, quiet))
    assert made.alarm is None
    half = 5000 + np.flatnonzero(real["labels"][5000:] < 5)
    show(made, real, half)
    alarm = raised(made)
    assert alarm.what == "features"
    assert 0 < alarm.number - quiet < 800
    assert abs(alarm.since - quiet) < 500
    assert alarm.evidence >= 100.0
    assert alarm.sentence.endswith("label some of the recent queries and add them to the profile.")


def test_noise_is_found_within_some_queries(real: dict[str, Array]) -> None:
    """Probabilities with a little noise on them."""
    made = watch(real)
    show(made, real, np.arange(2000))
    noisy = np.clip(real["queries"][2000:2300] + np.random.default_rng(4).normal(0, 0.02, (300, 10)), 0, 1)
    made.update(noisy, nearest(real["rows"], noisy))
    assert raised(made).number < 2060


def test_wide_features_are_watched_along_principal_directions(cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """Seventy columns: the probabilities of all seven networks. A class that comes twice as often is found."""
    profile, test = cifar10
    rows, queries = (
        np.column_stack([np.asarray(table) for table in (part.probabilities or {}).values()])
        for part in (profile.take(np.arange(3000)), test)
    )
    made = FeatureWatch.of(rows, seed=0)
    ordinary = queries[:3000]
    made.update(ordinary, nearest(rows, ordinary))
    assert made.alarm is None
    labels = np.asarray(test.labels)[3000:]
    shifted = queries[3000:][(labels == 4) | (np.random.default_rng(0).random(labels.size) < 0.3)]
    made.update(shifted, nearest(rows, shifted))
    assert "principal direction" in str(raised(made))


def test_batches_and_single_queries_are_the_same_stream(real: dict[str, Array]) -> None:
    """Evidence depends on the queries, their order and the seed alone."""
    together, apart, other = watch(real), watch(real), watch(real, seed=1)
    show(together, real, np.arange(300))
    for start in range(0, 300, 7):
        show(apart, real, np.arange(start, min(start + 7, 300)))
    show(other, real, np.arange(300))
    assert together.evidence == apart.evidence != other.evidence
    assert together.seen == apart.seen == 300


def test_reset_starts_anew_from_the_profile(real: dict[str, Array]) -> None:
    """After a reset there is no alarm and nothing remembered; a change that persists is found again."""
    made = watch(real)
    half = np.flatnonzero(real["labels"] < 5)
    show(made, real, half[:2000])
    first = raised(made)
    show(made, real, np.arange(200))
    assert raised(made) is first  # it stays up
    made.reset()
    assert made.alarm is None
    assert made.evidence == watch(real).evidence
    show(made, real, half[2000:4000])
    assert raised(made).since >= 2200


def test_strange_features_do_not_break_a_watch() -> None:
    """Constant columns, huge numbers, two rows, more columns than rows: evidence stays a number."""
    random = np.random.default_rng(5)
    for table in (
        np.zeros((50, 3)),
        np.column_stack([np.full(80, 1e308), -np.full(80, 1e308), random.random(80)]),
        random.random((2, 2)),
        random.random((30, 200)),
    ):
        made = FeatureWatch.of(table, np.zeros(len(table)))
        made.update(table[:20], np.zeros(min(20, len(table))))
        assert np.isfinite(made.evidence)
        assert made.alarm is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: FeatureWatch.of([[1.0]]), "at least 2 rows that do not belong together, got 1"),
        (lambda: FeatureWatch.of(np.eye(4), groups=[1, 1, 1, 1]), "at least 2 rows that do not belong together"),
        (lambda: FeatureWatch.of(np.eye(4), [1.0]), "distances must be 4 numbers"),
        (lambda: FeatureWatch.of(np.eye(4), rate=0), "rate must be a number between 0 and 1, got 0"),
        (lambda: FeatureWatch.of(np.eye(4)).update([[1.0]], [1.0]), "features must have 4 columns, got 1"),
        (lambda: FeatureWatch.of(np.eye(4)).update(np.eye(4), [1.0, np.nan, 0, 0]), "distances must be 4 numbers"),
        (lambda: FeedbackWatch.of(["a"], [[0.5]], [[1.0, 0.0]]), r"must be of shape \(n, 1\)"),
        (lambda: FeedbackWatch.of(["a"], [[0.5]], [[1.0]]).update(1, 0.5, 1), "choice must be numbers from 0 to 0"),
        (lambda: FeedbackWatch.of(["a"], [[0.5]], [[1.0]]).update("b", 0.5, 1), "unknown classifier 'b'"),
        (lambda: FeedbackWatch.of(["a"], [[0.5]], [[1.0]]).update(0, 0.5, 2), "success must be 1 numbers in"),
        (lambda: FeedbackWatch.of(["a"], [[0.5]], [[1.0]]).update(0.5, 0.5, 1), "choice must be 1 whole numbers"),
        (lambda: Novelty.of([[1.0]]), "need at least 2 rows, got 1"),
        (lambda: Novelty.of([[1.0], [2.0]], groups=["a", "a"]), "need at least 2 groups, got 1"),
        (lambda: Novelty.of([[1.0], [2.0]]).is_new(-1.0), "must not be negative or NaN"),
        (lambda: Novelty.from_state({"distances": [2.0, 1.0], "metric": "l2", "rate": 0.1}), "must rise"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call: Any, sentence: str) -> None:
    """Every refusal says what is wrong and what would do."""
    with pytest.raises(oc.InvalidInputError, match=sentence):
        call()


# Feedback


@pytest.fixture(scope="module")
def feedback(cifar10: tuple[oc.Profile, oc.Profile]) -> dict[str, Array]:
    """Cross-fitted estimates of 8,000 real rows by their neighbours, what was true, and relative costs."""
    profile, _ = cifar10
    rows, success = np.asarray(profile.features)[:8000], np.asarray(profile.success[:8000])
    weights = np.full((1, 40), 1.0 / 40)
    estimated = PoolIndex(rows).average(rows, success, weights, exclude=np.arange(8000)).means[0]
    costs = profile.costs / profile.costs.max()
    return {"estimated": np.clip(estimated, 0, 1), "success": success, "costs": costs}


def choose(feedback: dict[str, Array], rows: Array, price: float) -> Array:
    return np.asarray((feedback["estimated"][rows] - price * feedback["costs"]).argmax(axis=1))


def answer(made: FeedbackWatch, feedback: dict[str, Array], rows: Array, choice: Array, wrong: Array) -> None:
    """Feedback on chosen classifiers, some of them made wrong."""
    reached = np.where(wrong, 0.0, feedback["success"][rows, choice])
    made.update(choice, feedback["estimated"][rows, choice], reached)


NAMES = tuple("abcdefg")


@pytest.mark.parametrize("known", [True, False])
def test_false_alarms_on_feedback_are_as_rare_as_stated(feedback: dict[str, Array], known: bool) -> None:
    """200 streams of 4,000 answers; the price changes on the way, and with it the mix of choices."""
    alarms = 0
    for seed in range(200):
        order = np.random.default_rng(seed).permutation(8000)
        rows, queries = order[:4000], order[4000:]
        made = FeedbackWatch.of(
            NAMES, feedback["estimated"][rows], feedback["success"][rows], seed=seed, rate=0.05,
            choice=choose(feedback, rows, 0.1) if known else None,
        )  # fmt: skip
        for part, price in ((queries[:2000], 0.1), (queries[2000:], 0.5)):
            answer(made, feedback, part, choose(feedback, part, price), np.zeros(2000, bool))
        alarms += made.alarm is not None
    assert alarms <= 10


def test_a_classifier_that_got_worse_is_named(feedback: dict[str, Array]) -> None:
    """A third of one classifier's answers go wrong: an alarm soon, with its name; the others are not accused."""
    random = np.random.default_rng(6)
    order = random.permutation(8000)
    rows, queries = order[:4000], order[4000:]
    made = FeedbackWatch.of(
        NAMES, feedback["estimated"][rows], feedback["success"][rows], choice=choose(feedback, rows, 0.1)
    )
    choice = choose(feedback, queries, 0.1)
    answer(made, feedback, queries[:1000], choice[:1000], np.zeros(1000, bool))
    assert made.alarm is None
    wrong = (choice[1000:] == 4) & (random.random(3000) < 0.35)
    answer(made, feedback, queries[1000:], choice[1000:], wrong)
    alarm = raised(made)
    assert alarm.what == "feedback"
    assert 1000 < alarm.number < 2000
    assert "e is right less often than estimated" in alarm.sentence


def test_success_above_the_estimates_is_a_change_too(feedback: dict[str, Array]) -> None:
    """Everything is suddenly right, one answer at a time, by name."""
    rows = np.arange(4000, 5000)
    choice = choose(feedback, rows, 0.1)
    made = FeedbackWatch.of(NAMES, feedback["estimated"][:4000], feedback["success"][:4000])
    for row, column in zip(rows, choice, strict=True):
        made.update(NAMES[column], float(feedback["estimated"][row, column]), 1)
    assert "right more often than estimated" in raised(made).sentence
    assert made.seen == 1000


def test_the_page_runs() -> None:
    """The example of docs/drift.md; the shipped test queries are no change."""
    page = (Path(__file__).parent.parent / "docs" / "drift.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "drift.md", "exec"), names)  # noqa: S102  # the project's own page
    assert names["watch"].seen == 10_000
    assert names["watch"].alarm is None


# Novelty


def test_novelty_is_called_at_the_stated_rate(cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """On 10,000 held-out queries p-values are uniform, and about one in a thousand is new."""
    profile, test = cifar10
    rows, queries = np.asarray(profile.features), np.asarray(test.features)
    novelty = Novelty.of(rows)
    near = nearest(rows, queries)
    for share in (0.01, 0.05, 0.2, 0.5, 0.9):
        assert (novelty.p_value(near) <= share).mean() == pytest.approx(share, abs=0.02 * share**0.5 + 0.003)
    assert novelty.is_new(near).mean() <= 0.003
    np.testing.assert_array_equal(novelty.is_new(near), novelty.p_value(near) <= 0.001)
    assert novelty.is_new(nearest(rows, np.full((1, 10), 0.3))).all()  # no probabilities


def test_left_out_distances_are_to_rows_of_other_groups() -> None:
    """Against all distances in one table; groups larger than the first few neighbours included."""
    random = np.random.default_rng(7)
    centres = random.random((12, 3)) * 10
    blocks = random.integers(0, 12, 300)
    rows = centres[blocks] + random.normal(0, 0.01, (300, 3))
    table = np.abs(rows[:, None] - rows[None]).max(axis=2)
    np.testing.assert_allclose(
        left_out_distances(rows, groups=blocks), np.where(blocks[:, None] == blocks, np.inf, table).min(axis=1)
    )
    np.testing.assert_allclose(left_out_distances(rows), (table + np.diag(np.full(300, np.inf))).min(axis=1))
    novelty = Novelty.of(rows, groups=blocks)
    assert novelty.distances.size == 12  # one row of each group


def test_ties_and_few_rows_make_neither_everything_nor_nothing_new() -> None:
    """Distances that are all equal or all 0, and profiles of a handful of rows."""
    equal = Novelty.of(np.arange(3000.0)[:, None], rate=0.01)
    assert not equal.is_new(1.0)
    assert equal.is_new(1.0001)
    repeated = Novelty.of(np.repeat(np.arange(50.0), 40)[:, None], rate=0.01)
    assert not repeated.is_new(0.0)
    assert repeated.is_new(0.1)
    handful = Novelty.of([[0.0], [1.0], [3.0]])
    np.testing.assert_array_equal(handful.is_new([0.5, 2.0, 3.9, 4.1]), [False, False, False, True])
    assert handful.p_value(10.0) == 0.25


def test_novelty_survives_a_file(real: dict[str, Array]) -> None:
    """Its state is numbers and arrays, which a file without pickles takes; what comes back decides alike."""
    novelty = Novelty.of(real["rows"], "l2", rate=0.01)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **novelty.state())
    file.seek(0)
    with np.load(file, allow_pickle=False) as kept:
        again = Novelty.from_state({name: kept[name].item() if kept[name].ndim == 0 else kept[name] for name in kept})
    assert (again.metric, again.rate, again.threshold) == (novelty.metric, novelty.rate, novelty.threshold)
    np.testing.assert_array_equal(again.p_value(real["near"]), novelty.p_value(real["near"]))
