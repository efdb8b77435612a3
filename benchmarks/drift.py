"""How often drift alarms are false, how late true ones come, and what watching costs, on real held-out rows.

    python benchmarks/drift.py --data DIR [--streams 1000] [--out benchmarks/results/drift.md]

DIR holds ``cifar10.npz`` and ``tiny_imagenet.npz``; where it has ``language_id.tsv.gz`` too, and the detectors of
``examples/language_id`` are installed, texts are studied as well. All rows are of images that no network was trained
on. For "drawn anew" the labelled rows and the stream are drawn together from all of them, without replacement, for
every stream: that is what the promise is about. "As shipped" keeps the data set's own split, so that all streams
share labelled rows and queries: the share is that of this one split, and may be off by chance.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from occamroute.estimation.bagged import rank_weights
from occamroute.evaluation.studies.subjects import from_folder
from occamroute.neighbors import PoolIndex
from occamroute.routing.drift import FeatureWatch, FeedbackWatch
from occamroute.routing.novelty import Novelty, left_out_distances

Array = np.ndarray[Any, Any]
RATES = (0.05, 0.01)
LENGTH = 5_000  # of a stream
SEEDS = 20  # streams with a change, for each kind
QUIET = (0, 2_000, 50_000)  # queries before the change
NEIGHBOURS = 64  # of each row among all, looked up once
PRICES = (0.1, 0.5)  # what choices take off an estimate for the dearest's cost; the second comes halfway


@dataclass(frozen=True)
class Data:
    """Real rows: features and success, the first ``labelled`` of them as shipped with labels."""

    title: str
    features: Array
    success: Array
    costs: Array
    labels: Array
    labelled: int
    drawn: int  # labelled rows where they are drawn anew

    @cached_property
    def near(self) -> tuple[Array, Array]:
        """The nearest other rows of each row among all: distances and numbers, (N, k)."""
        found = PoolIndex(self.features).search(self.features, NEIGHBOURS)
        own = found.rows == np.arange(len(self.features))[:, None]
        return np.where(own, np.inf, found.distances), found.rows

    def distances(self, rows: Array, of: Array) -> Array:
        """Distances of rows ``of`` to the nearest others among ``rows``."""
        member = np.zeros(len(self.features), bool)
        member[rows] = True
        distances, numbers = self.near
        found = np.where(member[numbers[of]], distances[of], np.inf).min(axis=1)
        lost = np.flatnonzero(np.isinf(found))
        if lost.size:  # none of the neighbours looked up is labelled, or all are equal to it
            index = PoolIndex(self.features[rows])
            place = {int(row): number for number, row in enumerate(rows)}
            exclude = [place.get(int(row), -1) for row in of[lost]]
            table = np.zeros((len(rows), 1))
            found[lost] = index.average(self.features[of[lost]], table, [[1.0]], exclude=exclude).distance
        return np.asarray(found)

    @cached_property
    def estimated(self) -> Array:
        """Estimates of all rows from all others, by neighbours."""
        return left_out_estimates(self.features, self.success)

    @cached_property
    def shipped_estimates(self) -> Array:
        """Estimates as a router has them: of labelled rows from the others, of queries from all labelled rows."""
        rows, success = self.features[: self.labelled], self.success[: self.labelled]
        weights = rank_weights(len(rows), len(rows) // 40)[None]
        queries = PoolIndex(rows).average(self.features[self.labelled :], success, weights).means[0]
        return np.concatenate([left_out_estimates(rows, success), np.clip(queries, 0, 1)])

    def choices(self, estimated: Array, price: float) -> Array:
        """What a router would choose."""
        return np.asarray((estimated - price * self.costs).argmax(axis=1))


def left_out_estimates(features: Array, success: Array) -> Array:
    """Each row's estimate from all other rows."""
    count = len(features)
    weights = rank_weights(count - 1, count // 40)[None]
    found = PoolIndex(features).average(features, success, weights, exclude=np.arange(count))
    return np.asarray(np.clip(found.means[0], 0, 1))


def images(folder: Path) -> Iterator[Data]:
    """CIFAR-10 and Tiny ImageNet; features are the cheapest usable network's probabilities."""
    for subject in from_folder(folder):
        profile, test = subject.profile, subject.test
        name = str(profile.extractor)
        costs = profile.mean_costs / profile.mean_costs.max()
        costs[profile.names.index(name)] = 0.0
        yield Data(
            f"{subject.title}, {name}",
            np.concatenate([profile.feature_sets[name], test.feature_sets[name]]),
            np.concatenate([profile.success, test.success]),
            costs,
            np.concatenate([np.asarray(profile.labels), np.asarray(test.labels)]),
            len(profile),
            len(profile) // 2,
        )


# False alarms


def feature_alarms(data: Data, seed: int, *, anew: bool) -> list[bool]:
    """Whether an ordinary stream raises an alarm at each rate."""
    rows, queries = split(data, seed, anew=anew)
    left_out, near = data.distances(rows, rows), data.distances(rows, queries)

    def alarm(rate: float) -> bool:
        watch = FeatureWatch.of(data.features[rows], left_out, seed=seed, rate=rate)
        watch.update(data.features[queries], near)
        return watch.alarm is not None

    return at_each_rate(alarm)


def feedback_alarms(data: Data, seed: int, *, anew: bool, known: bool) -> list[bool]:
    """The same for the success of choices, of which the price, and so the mix, changes halfway."""
    rows, queries = split(data, seed, anew=anew)
    estimated = data.estimated if anew else data.shipped_estimates
    choice = data.choices(estimated[rows], PRICES[0]) if known else None

    def alarm(rate: float) -> bool:
        watch = FeedbackWatch.of(names(data), estimated[rows], data.success[rows], choice=choice, seed=seed, rate=rate)
        for part, price in zip(np.array_split(queries, len(PRICES)), PRICES, strict=True):
            chosen = data.choices(estimated[part], price)
            watch.update(chosen, estimated[part, chosen], data.success[part, chosen])
        return watch.alarm is not None

    return at_each_rate(alarm)


def at_each_rate(alarm: Callable[[float], bool]) -> list[bool]:
    """Whether there is an alarm, at the highest rate first: with the same seed there is none at a lower one if not."""
    found: list[bool] = []
    for rate in RATES:
        found.append(all(found) and alarm(rate))
    return found


def split(data: Data, seed: int, *, anew: bool) -> tuple[Array, Array]:
    """Labelled rows, and the queries of a stream."""
    random, count = np.random.default_rng(seed), len(data.features)
    if anew:
        order = random.permutation(count)
        return order[: data.drawn], order[data.drawn : data.drawn + LENGTH]
    return np.arange(data.labelled), data.labelled + random.permutation(count - data.labelled)[:LENGTH]


def names(data: Data) -> list[str]:
    """Names of the classifiers."""
    return [f"classifier {column}" for column in range(data.success.shape[1])]


def false_alarms(data: Data, streams: int) -> Iterator[str]:
    """Rows of the table of false alarms."""
    kinds: dict[str, Callable[[int], list[bool]]] = {
        "features, drawn anew": lambda seed: feature_alarms(data, seed, anew=True),
        "features, as shipped": lambda seed: feature_alarms(data, seed, anew=False),
        "feedback, drawn anew": lambda seed: feedback_alarms(data, seed, anew=True, known=True),
        "feedback, as shipped": lambda seed: feedback_alarms(data, seed, anew=False, known=True),
        "feedback, as shipped, choices not known": lambda seed: feedback_alarms(data, seed, anew=False, known=False),
    }
    for kind, raise_alarms in kinds.items():
        share = np.mean([raise_alarms(seed) for seed in range(streams)], axis=0)
        yield f"| {data.title} | {kind} | {' | '.join(f'{100 * one:.1f} %' for one in share)} |"


def novelty_rate(data: Data) -> str:
    """How many ordinary queries are called new."""
    rows = np.arange(data.labelled)
    novelty = Novelty.of(data.features[rows])
    near = data.distances(rows, np.arange(data.labelled, len(data.features)))
    shares = [f"{100 * float((novelty.p_value(near) <= rate).mean()):.2f} %" for rate in (0.001, 0.01, 0.05)]
    return f"| {data.title} | {' | '.join(shares)} |"


# Delays


def feature_delays(title: str, rows: Array, before: Array, after: Array) -> Iterator[str]:
    """How many changed queries pass until an alarm: the median and the most over the seeds."""
    left_out, index = left_out_distances(rows), PoolIndex(rows)
    tables = [(part, index.search(part, 1).distances[:, 0]) for part in (before, after)]
    cells = []
    for quiet in QUIET:
        found = [delay(rows, left_out, tables, quiet, seed) for seed in range(SEEDS)]
        cells.append(spread(found))
    yield f"| {title} | {' | '.join(cells)} |"


def delay(rows: Array, left_out: Array, tables: list[tuple[Array, Array]], quiet: int, seed: int) -> float:
    """Changed queries until the alarm; NaN where it was raised before, infinite where it never was."""
    random = np.random.default_rng(seed)
    watch = FeatureWatch.of(rows, left_out, seed=seed)
    (before, near_before), (after, near_after) = tables
    if quiet:
        which = draw(random, len(before), quiet)
        watch.update(before[which], near_before[which])
        if watch.alarm is not None:
            return float("nan")
    which = random.permutation(len(after))
    watch.update(after[which], near_after[which])
    return float("inf") if watch.alarm is None else watch.alarm.number - quiet + 1


def draw(random: np.random.Generator, count: int, wanted: int) -> Array:
    """So many of the rows: each once as far as they go, else with repetitions."""
    return random.permutation(count)[:wanted] if wanted <= count else random.integers(0, count, wanted)


def spread(found: list[float]) -> str:
    """Median and most; false alarms and misses are said."""
    true = [one for one in found if not np.isnan(one)]
    missed = sum(np.isinf(one) for one in true)
    heard = [one for one in true if not np.isinf(one)]
    if missed > len(true) / 2:
        text = "no alarm" if not heard else f"{missed} of {len(true)} without alarm"
    else:
        text = f"{int(np.median(true)):,}" + (f" (≤ {int(max(heard)):,})" if not missed else f" ({missed} missed)")
    return text + (f", {len(found) - len(true)} false" if len(true) < len(found) else "")


def image_delays(data: Data) -> Iterator[str]:
    """Changes of what comes in, and of the features themselves."""
    rows, queries = data.features[: data.labelled], data.features[data.labelled :]
    labels, half = data.labels[data.labelled :], len(queries) // 2
    before, after, later = queries[:half], queries[half:], labels[half:]
    random, classes = np.random.default_rng(0), int(labels.max()) + 1

    def row(title: str, changed: Array) -> Iterator[str]:
        yield from feature_delays(f"{data.title}: {title}", rows, before, changed)

    yield from row("half of the classes stop coming", after[later < classes // 2])
    some = np.isin(later, np.arange(max(1, classes // 10)))
    yield from row("a tenth of the classes comes twice as often", np.concatenate([after, after[some]]))
    for size in (0.01, 0.05):
        yield from row(
            f"noise of {size:g} on probabilities", np.clip(after + random.normal(0, size, after.shape), 0, 1)
        )
    flat = 0.9 * after + 0.1 / after.shape[1]
    yield from row("probabilities a tenth of the way to uniform", flat)
    for size in (0.3, 1.0):
        logits = np.log(np.maximum(after, 1e-9)) + random.normal(0, size, after.shape)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        yield from row(f"noise of {size:g} on logits", powers / powers.sum(axis=1, keepdims=True))
    for share in (2, 10):
        new = classes - classes // share
        known = data.features[: data.labelled][data.labels[: data.labelled] < new]
        for words, kept in ((", which come alone", later >= new), (", which come in", np.ones(later.size, bool))):
            count = "1 class" if classes == share else f"{classes // share} classes"
            title = f"{data.title}: {count} without labelled rows{words}"
            yield from feature_delays(title, known, before[labels[:half] < new], after[kept])


def feedback_delays(data: Data) -> Iterator[str]:
    """Some of the answers go wrong from some time on."""
    estimated, rows = data.shipped_estimates, np.arange(data.labelled)
    queries = np.arange(data.labelled, len(data.features))
    for share in (0.05, 0.1, 0.3):
        cells = []
        for quiet in QUIET:
            found = []
            for seed in range(SEEDS):
                random = np.random.default_rng(seed)
                watch = FeedbackWatch.of(
                    names(data), estimated[rows], data.success[rows], seed=seed,
                    choice=data.choices(estimated[rows], PRICES[0]),
                )  # fmt: skip
                stream = np.concatenate([queries[draw(random, queries.size, quiet)], random.permutation(queries)])
                chosen = data.choices(estimated[stream], PRICES[0])
                reached = data.success[stream, chosen].copy()
                reached[quiet:][random.random(queries.size) < share] = 0.0
                watch.update(chosen, estimated[stream, chosen], reached)
                number = None if watch.alarm is None else watch.alarm.number - quiet + 1
                found.append(np.inf if number is None else np.nan if number < 1 else float(number))
            cells.append(spread(found))
        yield f"| {data.title}: {100 * share:.0f} % of the answers become wrong | {' | '.join(cells)} |"


# Texts


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Rows of the two tables of delays: by features, and by feedback."""
    file = folder / "language_id.tsv.gz"
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "language_id"))
    try:
        import detectors  # type: ignore[import-not-found]  # of the example, not of a package

        with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
            table = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        detectors.cld2("some text"), detectors.heliport("some text"), detectors.py3langid("some text")
    except (ImportError, OSError):
        return
    random = np.random.default_rng(0)
    table = [table[row] for row in random.permutation(len(table))]
    languages = sorted({row["language"] for row in table})
    kept = set(languages[::5])  # every fifth language is new
    usual = [row for row in table if row["kind"] != "word" and row["language"] not in kept]
    rows, before, after = usual[:10_000], usual[10_000:15_000], usual[15_000:20_000]
    new = [row for row in table if row["kind"] != "word" and row["language"] in kept][:5_000]
    words = [row for row in table if row["kind"] == "word" and row["language"] not in kept][:5_000]
    parts = [detectors.letters([row["text"] for row in part]) for part in (rows, before, after, new, words)]
    changes = {
        "languages without labelled rows come alone": parts[3],
        "one text in ten is of a new language": np.concatenate([parts[2], parts[3][: len(parts[2]) // 9]]),
        "single words come alone": parts[4],
        "one text in ten is a single word": np.concatenate([parts[2], parts[4][: len(parts[2]) // 9]]),
    }
    for title, changed in changes.items():
        for line in feature_delays(f"texts: {title}", parts[0], parts[1], changed):
            yield "features", line
    callers = (detectors.cld2, detectors.heliport, detectors.py3langid)
    success = [right(callers, part) for part in (rows, before, words)]
    yield "feedback", text_feedback("texts: single words come alone", parts[0], parts[1], parts[4], success)


def right(callers: tuple[Callable[[str], Any], ...], rows: list[dict[str, str]]) -> Array:
    """Which detectors name the language of which text, (n, M)."""

    def best(answer: Any) -> str:
        return str(max(answer, key=lambda name: answer[name], default="") if isinstance(answer, dict) else answer)

    return np.array([[best(caller(row["text"])) == row["language"] for caller in callers] for row in rows], float)


def text_feedback(title: str, rows: Array, before: Array, after: Array, success: list[Array]) -> str:
    """The detector with the highest estimate answers; how many answers until the alarm."""
    estimated = left_out_estimates(rows, success[0])
    weights = rank_weights(len(rows), len(rows) // 40)[None]
    index = PoolIndex(rows)
    tables = [np.clip(index.average(part, success[0], weights).means[0], 0, 1) for part in (before, after)]
    cells = []
    for quiet in QUIET:
        found = []
        for seed in range(SEEDS):
            random = np.random.default_rng(seed)
            watch = FeedbackWatch.of(("a", "b", "c"), estimated, success[0], choice=estimated.argmax(1), seed=seed)
            for part, made, count in ((1, tables[0], quiet), (2, tables[1], len(after))):
                which = draw(random, len(made), count)
                chosen = made[which].argmax(axis=1)
                if count and watch.alarm is None:
                    watch.update(chosen, made[which, chosen], success[part][which, chosen])
            number = None if watch.alarm is None else watch.alarm.number - quiet + 1
            found.append(np.inf if number is None else np.nan if number < 1 else float(number))
        cells.append(spread(found))
    return f"| {title} | {' | '.join(cells)} |"


# Time


def times(data: Data) -> str:
    """Microseconds a query for watching, beside the search for its nearest labelled row."""
    rows, queries = data.features[: data.labelled], data.features[data.labelled :]
    left_out, index = data.distances(np.arange(data.labelled), np.arange(data.labelled)), PoolIndex(rows)
    near = index.search(queries, 1).distances[:, 0]
    watch = FeatureWatch.of(rows, left_out)
    watch.update(queries, near)

    def singly() -> None:
        for row in range(500):
            watch.update(queries[row : row + 1], near[row : row + 1])

    search = least(lambda: index.search(queries, 1)) / len(queries)
    batch = least(lambda: watch.update(queries, near)) / len(queries)
    one = least(singly) / 500
    started = time.perf_counter()
    Novelty.of(rows)
    novelty = time.perf_counter() - started
    return (
        f"| {data.title} | {1e6 * search:.1f} | {1e6 * batch:.1f} | {batch / search:.2f} | {1e6 * one:.0f} | "
        f"{novelty:.1f} |"
    )


def least(work: Callable[[], Any], repetitions: int = 5) -> float:
    """The shortest of several runs, in seconds."""
    found = []
    for _ in range(repetitions):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


PAGE = """# Drift alarms: how often false, how late

`python benchmarks/drift.py --data DIR` made this page. Streams of real queries whose networks never saw them.

## False alarms

{streams:,} streams of {length:,} queries for each line; an alarm at any time counts. "Drawn anew": labelled rows and
queries are drawn together for each stream, without replacement, so that they are exchangeable: what is promised is a
share of at most the rate. "As shipped": one split of the data, whose streams share their rows; a single split may be
off by chance either way. Feedback is on the classifier that a price chooses; the price changes halfway.

| Data | Stream | at a rate of 5 % | at 1 % |
| --- | --- | --- | --- |
{false}

Ordinary queries whose novelty has a p-value of at most:

| Data | 0.1 % | 1 % | 5 % |
| --- | --- | --- | --- |
{novelty}

## Delays

Changed queries until the alarm at a rate of 1 %, after so many ordinary ones: the median of {seeds} streams (and the
most). Bets and scores were designed with these changes in sight. Ordinary queries beyond those at hand, 2,500 to
10,000, repeat: in the last column that alone makes them unlike the rows, and is now and then found ("false").

| Change | from the start | after {quiet[1]:,} | after {quiet[2]:,} |
| --- | --- | --- | --- |
{delays}

By feedback:

| Change | from the start | after {quiet[1]:,} | after {quiet[2]:,} |
| --- | --- | --- | --- |
{feedback}

## Time

Microseconds a query, in one batch of all queries, beside the exact search for the nearest labelled row; then one by
one; and seconds to make a `Novelty`.

| Data | search | watch | ratio | one by one | novelty, s |
| --- | --- | --- | --- | --- | --- |
{times}
"""


def main() -> None:
    """Study everything and print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, list[str]] = {"false": [], "novelty": [], "delays": [], "feedback": [], "times": []}

    def add(part: str, line: str) -> None:
        print(line, flush=True)
        found[part].append(line)

    for data in images(options.data):
        add("times", times(data))
        add("novelty", novelty_rate(data))
        for line in false_alarms(data, options.streams):
            add("false", line)
        for line in image_delays(data):
            add("delays", line)
        for line in feedback_delays(data):
            add("feedback", line)
    for part, line in texts(options.data):
        add("delays" if part == "features" else part, line)
    page = PAGE.format(
        streams=options.streams, length=LENGTH, seeds=SEEDS, quiet=QUIET,
        **{part: "\n".join(lines) for part, lines in found.items()},
    )  # fmt: skip
    if options.out is not None:
        options.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
