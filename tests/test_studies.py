"""The paper's tables and figures: numbers against independent ones, and the command as a user has it."""

from __future__ import annotations

import csv
import json
import re
from html import escape
from pathlib import Path

import numpy as np
import pytest
from commands import run

import occamroute as oc
from occamroute.charts import heat_map, stacked_bars
from occamroute.evaluation.studies import STUDIES, find_studies
from occamroute.evaluation.studies.base import Result, Study
from occamroute.evaluation.studies.bench import Bench
from occamroute.evaluation.studies.lipschitz import slopes
from occamroute.evaluation.studies.many import many_classifiers
from occamroute.evaluation.studies.portfolio import agreement_matrix, complementarity_matrix
from occamroute.evaluation.studies.running import run_studies
from occamroute.evaluation.studies.separation import duplicate_counts, pair_distances
from occamroute.evaluation.studies.subjects import Subject, from_folder, from_profile, shipped
from occamroute.evaluation.studies.variance import estimator_variance


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def bench() -> Bench:
    """The shipped portfolio, a part of it."""
    return Bench(shipped(), seed=0, quick=True)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder after all studies ran on the shipped profile, as a user would run them."""
    folder = tmp_path_factory.mktemp("studies")
    done = run("study", "all", "--quick", "--out", "found", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "page with all charts" in done.stdout
    return folder


def test_every_study_is_found_under_its_name() -> None:
    """The registry, the studies and their places in the paper fit together."""
    studies = find_studies(["all"])
    assert [study.name for study in studies] == list(STUDIES)
    assert [study.name for study in find_studies(["usage", "agreement"])] == ["agreement", "usage"]
    for study in studies:
        assert study.title
        assert study.paper.endswith((".", ")"))
        assert any(word in study.places for word in ("Figure", "Table", "Lemma", "Appendix"))
    with pytest.raises(oc.UnknownNameError, match="unknown study 'nothing': use one of all, classifiers"):
        find_studies(["nothing"])


def test_agreement_and_complementarity_by_hand() -> None:
    """The matrices are those of a plain count, pair by pair."""
    right = np.random.default_rng(0).random((200, 4)) < [0.9, 0.6, 0.5, 0.0]
    together, apart = agreement_matrix(right.astype(float)), complementarity_matrix(right.astype(float))
    for i in range(4):
        for j in range(4):
            both = sum(bool(row[i] and row[j]) for row in right)
            alone = sum(bool(row[i] and not row[j]) for row in right)
            assert apart[i, j] == pytest.approx(alone / 200)
            assert together[i, j] == pytest.approx(both / max(1, right[:, i].sum()))


def test_variance_falls_as_one_over_k() -> None:
    """Independent samples: the variance times K stays the same, which 1/√K would not give."""
    random = np.random.default_rng(0)
    features, queries = random.random((400, 3)), random.random((40, 3))
    success = (random.random((400, 2)) < 0.5).astype(float)
    found = estimator_variance(
        features, success, queries, counts=(1, 4, 16), size=10, repeats=60, independent=True, seed=5
    )
    assert found[0] == pytest.approx(0.25, rel=0.15)
    np.testing.assert_allclose(found * [1, 4, 16], found[0], rtol=0.15)


def test_duplicates_are_counted_with_their_labels() -> None:
    """Rows count as equal only where all tables are; only unequal labels among equals are conflicts."""
    table = np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0], [3.0, 4.0], [5.0, 6.0]])
    labels = np.array(["a", "b", "c", "c", "c", "d"])
    assert duplicate_counts([table], labels) == (5, 2)
    other = np.arange(6.0).reshape(6, 1)
    assert duplicate_counts([table, other], labels) == (0, 0)


@pytest.mark.parametrize(("metric", "order"), [("l1", 1), ("l2", 2), ("linf", np.inf)])
def test_pair_distances(metric: str, order: float) -> None:
    """Distances of pairs are those of numpy, one by one."""
    random = np.random.default_rng(0)
    table, pairs = random.random((30, 5)), random.integers(0, 30, (2, 50))
    wanted = [np.linalg.norm(table[a] - table[b], ord=order) for a, b in pairs.T]
    np.testing.assert_allclose(pair_distances(table, pairs[0], pairs[1], metric), wanted)


def test_slopes() -> None:
    """Success over distance; equal success is slope 0 and different success at distance 0 has none."""
    found = slopes(np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 0.5], [0.0, 0.0]]),
                   np.array([0.5, 0.25, 0.0]))  # fmt: skip
    np.testing.assert_array_equal(found, [[2.0, 0.0], [2.0, 0.0], [np.inf, 0.0]])


def test_many_classifiers_are_logistic_in_the_features() -> None:
    """Seeded; costs over three decades; each column's log odds are a linear function of the features."""
    features = np.random.default_rng(1).normal(size=(300, 6))
    names, costs, chance = many_classifiers(features, 101, seed=3)
    assert len(set(names)) == 101
    assert costs.max() / costs.min() == pytest.approx(1000.0)
    assert costs.argmin() == 0
    np.testing.assert_array_equal(chance, many_classifiers(features, 101, seed=3)[2])
    assert not np.array_equal(chance, many_classifiers(features, 101, seed=4)[2])
    table = np.column_stack([features, np.ones(300)])
    odds = np.log(chance / (1.0 - chance))
    left = odds - table @ np.linalg.lstsq(table, odds, rcond=None)[0]
    assert np.abs(left).max() < 1e-9


def test_all_writes_every_file_and_one_page(everything: Path) -> None:
    """Every study leaves numbers; the page has them all, in words, and loads nothing from outside."""
    folder = everything / "found"
    page = (folder / "index.html").read_text(encoding="utf-8")
    for study in find_studies(["all"]):
        record = json.loads((folder / f"{study.name}.json").read_text())
        assert record["findings"]["CIFAR-10"]
        assert record["tables"]
        assert f'<section id="{study.name}">' in page
        for table in record["tables"]:
            assert read(folder / table), table
            assert f'href="{table}"' in page
        for chart in record["charts"]:
            assert (folder / chart).read_text(encoding="utf-8").startswith("<svg")
    assert "CIFAR-100 and ImageNet-1K" in page
    assert "1/√K" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "src=" not in page
    assert not re.search(r"\b(nan|inf)\b", page)


def test_numbers_are_those_of_an_independent_computation(everything: Path, bench: Bench) -> None:
    """Costs, the core set, and accuracies at a budget, from the profile alone."""
    profile, test = bench.profile, bench.test
    rows = read(everything / "found" / "figure-01a-table-1-classifiers.csv")
    best_so_far, core = -1.0, set()
    for column in np.argsort(profile.costs):
        if profile.success[:, column].mean() > best_so_far:
            best_so_far = profile.success[:, column].mean()
            core.add(profile.names[column])
    assert {row["classifier"] for row in rows if row["pareto"] == "True"} == core | set(profile.feature_sets)
    assert float(rows[0]["accuracy"]) == pytest.approx(test.success[:, 0].mean())
    full = float(profile.costs.max()) * len(test)
    for metric, name in (("linf", "figure-03-accuracy-cost-linf"), ("l1", "figure-09-accuracy-cost-l1")):
        rows = read(everything / "found" / f"{name}.csv")
        found = {(row["method"], float(row["budget_share"])): float(row["accuracy"]) for row in rows}
        estimate = oc.estimate(
            profile, test.features, estimator=oc.SampledNeighbors(metric=metric), extractor="resnet8-w8"
        )
        for share in (0.2, 0.6):
            plan = estimate.plan(share * full, penalty=5.0)
            reached = test.success[np.arange(len(test)), plan.choice].mean()
            assert found["paper, penalty 5", share] == pytest.approx(reached)
        for method, share in found:
            # Answers that occamroute combines from two classifiers may be right where neither is.
            assert method == "occamroute" or found["oracle", share] >= found[method, share] - 1e-12
            assert ("best mixture", share) in found


def test_cost_reduction_is_relative_to_the_dearest(everything: Path, bench: Bench) -> None:
    """The table's drop is what the curve shows at that budget."""
    curve = read(everything / "found" / "figure-03-accuracy-cost-linf.csv")
    drops = read(everything / "found" / "table-2-cost-reduction-linf.csv")
    dearest = bench.test.success[:, int(bench.profile.costs.argmax())].mean()
    assert {float(row["cost_reduction"]) for row in drops} == {0.1, 0.2, 0.4}
    for row in drops:
        share = 1.0 - float(row["cost_reduction"])
        (reached,) = (
            float(line["accuracy"])
            for line in curve
            if line["method"] == row["method"] and abs(float(line["budget_share"]) - share) < 1e-9
        )
        assert float(row["accuracy_drop"]) == pytest.approx(1.0 - reached / dearest)


def test_usage_adds_up(everything: Path) -> None:
    """At every budget the shares of the classifiers add up to one."""
    totals: dict[tuple[str, str], float] = {}
    for row in read(everything / "found" / "figure-04a-usage.csv"):
        key = row["method"], row["budget_share"]
        totals[key] = totals.get(key, 0.0) + float(row["share"])
    assert len(totals) > 4
    assert list(totals.values()) == pytest.approx([1.0] * len(totals))


def test_what_is_there_is_not_done_again(everything: Path) -> None:
    """A second run keeps what is finished; another seed, --fresh or a missing file does it again."""
    words = ("study", "agreement", "duplicates", "--quick", "--out", "found", "--json")

    def kept(*more: str) -> list[bool]:
        done = run(*words, *more, cwd=everything)
        assert done.returncode == 0, done.stderr
        return [record["kept"] for record in json.loads(done.stdout)]

    assert kept() == [True, True]
    (everything / "found" / "figure-01b-agreement.csv").unlink()
    assert kept() == [False, True]
    assert kept("--fresh") == [False, False]
    assert kept("--seed", "1") == [False, False]


def test_a_profile_that_lacks_things(tmp_path: Path, bench: Bench) -> None:
    """A user's own profile, no labels, one feature set: such studies are named and left out with the reason."""
    table = bench.profile.feature_sets["resnet8-w8"]
    bare = oc.Profile(("a<b", "c"), (1.0, 4.0), table, bench.profile.success[:, [0, 4]])
    oc.save(bare, tmp_path / "mine.parquet")
    names = ("classifiers", "separation", "duplicates", "extractors", "neighbour-distance", "core-set")
    done = run("study", *names, "--profile", "mine.parquet", "--quick", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = {record["name"]: record for record in json.loads(done.stdout)}
    assert "keeps no labels" in records["separation"]["left_out"]["mine"]
    assert "keeps no labels" in records["duplicates"]["left_out"]["mine"]
    assert "one feature set" in records["extractors"]["left_out"]["mine"]
    assert records["separation"]["tables"] == []
    assert records["classifiers"]["findings"]["mine"]
    folder = tmp_path / "occamroute-study"
    assert "a&lt;b" in (folder / "figure-01a-table-1-classifiers-mine.svg").read_text(encoding="utf-8")
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "Left out: the profile keeps no labels." in page
    assert "a<b" not in page


def test_odd_profiles() -> None:
    """Costs that differ by query, a free classifier, soft success, groups; costs so alike that few budgets do."""
    random = np.random.default_rng(0)
    features, labels = random.random((500, 3)), random.choice(["u", "v"], 500)
    features[:40] = features[40:80]
    costs = np.column_stack([np.zeros(500), random.random((500, 2)) + 0.5])
    own = oc.Profile(
        ("f", "g", "h"), costs, features, random.random((500, 3)), labels=labels, groups=np.arange(500) // 2
    )
    alike = oc.Profile(("f", "g"), (0.95, 1.0), features, np.ones((500, 2)), extractor_cost=0.02, labels=labels)
    names = ("core-set", "penalty", "k-and-s", "variance", "overhead", "lipschitz", "separation", "duplicates")
    for profile in (own, alike):
        bench = Bench(from_profile(profile, None, name="odd", seed=0), seed=0, quick=True)
        for study in find_studies(names):
            found = study.run(bench)
            assert found.finding.endswith(".")
            assert not re.search(r"\b(nan|inf)\b", found.finding + "".join(found.charts.values()))


def test_committed_results_are_complete() -> None:
    """The results kept in the repository have every study, all their numbers, and none of a quick look."""
    folder = Path(__file__).parent.parent / "benchmarks" / "paper"
    words = (folder / "README.md").read_text(encoding="utf-8")
    page = (folder / "index.html").read_text(encoding="utf-8")
    for name in STUDIES:
        record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        assert record["stamp"]["quick"] is False
        assert set(record["findings"]) == {"CIFAR-10", "Tiny ImageNet"}
        assert f"`{name}`" in words
        for table in record["tables"]:
            assert f"`{table}`" in words
            assert {row["data"] for row in read(folder / table)} == {"cifar10", "tiny_imagenet"}
        for finding in record["findings"].values():
            assert escape(finding) in page


def test_an_interrupt_loses_nothing(tmp_path: Path, bench: Bench) -> None:
    """What was finished before Ctrl-C is on the disk, and a later run goes on from there."""
    calls = []

    def first(bench: Bench) -> Result:
        calls.append("first")
        return Result({"numbers": [{"x": 1}, {"x": 2, "y": None}]}, {"picture": "<svg/>"}, "Found.")

    def second(bench: Bench) -> Result:
        calls.append("second")
        if calls.count("second") == 1:
            raise KeyboardInterrupt
        return Result({}, {}, "Found too.")

    studies = [Study("one", "One", "Figure 1", "It.", first), Study("two", "Two", "Figure 2", "It.", second)]
    with pytest.raises(KeyboardInterrupt):
        run_studies(studies, [bench], tmp_path)
    assert read(tmp_path / "numbers.csv") == [
        {"data": "cifar10", "x": "1", "y": ""}, {"data": "cifar10", "x": "2", "y": ""}
    ]  # fmt: skip
    assert not (tmp_path / "two.json").exists()
    assert [record.kept for record in run_studies(studies, [bench], tmp_path)] == [True, False]
    assert calls == ["first", "second", "second"]
    assert not list(tmp_path.glob(".*"))


def test_raw_outputs_in_a_folder(tmp_path: Path) -> None:
    """Predictions, logits and hidden layers become a portfolio; success is whether the prediction is the label."""
    random = np.random.default_rng(0)
    arrays = {"names": np.array(["s", "l"]), "classes": np.array(["u", "v", "w"]), "parameters": np.array([5, 9]),
              "seconds_batch1024": np.array([0.001, 0.004])}  # fmt: skip
    for split, rows in (("val", 220), ("test", 60)):
        logits = random.normal(size=(rows, 2, 3)).astype(np.float16)
        arrays |= {f"y_{split}": random.integers(0, 3, rows).astype(np.int16), f"logits_{split}": logits,
                   f"prediction_{split}": logits.argmax(axis=2).astype(np.uint8),
                   f"embedding_s_{split}": random.normal(size=(rows, 4)).astype(np.float16)}  # fmt: skip
    np.savez(tmp_path / "cifar10.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub takes no mapping
    (subject,) = from_folder(tmp_path)
    assert isinstance(subject, Subject)
    assert (subject.title, subject.profile.names, subject.profile.extractor) == ("CIFAR-10", ("s", "l"), "s")
    right = arrays["prediction_val"] == arrays["y_val"][:, None]
    np.testing.assert_array_equal(subject.profile.success, right)
    odds = np.exp(arrays["logits_val"][:, 0].astype(float))
    np.testing.assert_allclose(subject.profile.feature_sets["s"], odds / odds.sum(axis=1, keepdims=True), rtol=1e-5)
    assert subject.embeddings["s"][1].shape == (60, 4)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nothing",), "unknown study 'nothing': use one of all, classifiers"),
        (("all", "--data", "nowhere"), "--data must be a folder, got nowhere"),
        (("all", "--data", "."), "holds neither cifar10.npz nor tiny_imagenet.npz"),
        (("all", "--data", "broken"), "no plain .npz archive"),
        (("all", "--data", "poor"), "an array is missing"),
        (("all", "--profile", "none.parquet"), "there is no such file"),
        (("all", "--profile", "tiny.parquet"), "at least 200 labelled rows and 50 queries to judge on, got 30 and 30"),
        (("all", "--profile", "free.parquet"), "a study needs a classifier that costs something"),
        (("all", "--profile", "one.parquet"), "a study needs at least 2 classifiers, got 1"),
        (("all", "--data", ".", "--profile", "tiny.parquet"), "give --data or --profile, not both"),
        (("all", "--test", "tiny.parquet"), "--test needs --profile"),
        (("classifiers", "--quick", "--out", "no/where"), "the folder no does not exist"),
        (("classifiers", "--quick", "--out", "tiny.parquet"), "cannot write tiny.parquet"),
    ],
)
def test_bad_input_gets_one_sentence(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    """No traceback, and the exit code of bad usage."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "cifar10.npz").write_text("hello")
    (tmp_path / "poor").mkdir()
    np.savez(tmp_path / "poor" / "cifar10.npz", names=np.array(["a"]))
    random = np.random.default_rng(0)
    oc.save(oc.Profile(("a", "b"), (1, 2), random.random((60, 2)), random.random((60, 2))), tmp_path / "tiny.parquet")
    oc.save(oc.Profile(("a", "b"), (0, 0), random.random((60, 2)), random.random((60, 2))), tmp_path / "free.parquet")
    oc.save(oc.Profile(("a",), (1,), random.random((60, 2)), random.random((60, 1))), tmp_path / "one.parquet")
    done = run("study", *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert done.stderr.startswith("occamroute: ")
    assert done.stderr.count("\n") == 1


def test_charts_escape_names_and_show_numbers() -> None:
    """Names with angle brackets stay text; every cell has its number; bars stand on each other."""
    picture = heat_map(
        ["<a>", "b"], ["c", "d&"], [[0.25, 0.5], [0.75, 1.0]], title="T", row_label="r", column_label="k"
    )
    assert "&lt;a&gt;" in picture
    assert "d&amp;" in picture
    for number in ("0.25", "0.5", "0.75", "1"):
        assert f">{number}</text>" in picture
    bars = stacked_bars(["x", "y"], {"<p>": [1.0, 0.0], "q": [1.0, 2.0]}, title="T", x_label="", y_label="")
    assert "&lt;p&gt;" in bars
    heights = [float(part.split('"')[1]) for part in bars.split("<rect ")[1:] for part in [part.split(" height=")[1]]]
    assert heights[0] == pytest.approx(heights[2]) == pytest.approx(heights[3] / 2)
    assert heights[1] == 0.0
