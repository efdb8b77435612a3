"""The doctor: every check is silent on real rows, and fires on a fault planted in them."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run

import occamroute as oc
from occamroute.evaluation.doctor import CHECKS, SEVERITIES, Finding
from occamroute.evaluation.doctor.examination import Examination

PAGE = Path(__file__).parent.parent / "docs" / "doctor.md"
CODES = [check.code for check in CHECKS]


@pytest.fixture(scope="module")
def real(cifar10: tuple[oc.Profile, oc.Profile]) -> oc.Profile:
    """The first 6,000 rows of the shipped profile."""
    return cifar10[0].take(np.arange(6000))


def check(profile: oc.Profile, code: str) -> Finding:
    """What one check says, of the first feature set where it is about those."""
    wanted = next(one for one in CHECKS if one.code == code)
    examination = Examination(profile, 0)
    assert [need(examination) for need in wanted.needs] == [None] * len(wanted.needs)
    return wanted.run(examination, next(iter(profile.feature_sets)) if wanted.each_set else "")


def features(profile: oc.Profile) -> Any:
    return np.array(next(iter(profile.feature_sets.values())))


def test_the_shipped_profile_is_healthy(cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """The page's example on all of its 20,000 rows: nothing is worse than a note, after some seconds of computing."""
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    names: dict[str, Any] = {}
    started = time.process_time()
    exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  # the project's own page
    assert time.process_time() - started < 20
    checkup = names["checkup"]
    assert checkup.profile == cifar10[0].fingerprint
    assert checkup.worst == "note"
    assert {finding.code for finding in checkup.findings if finding.severity == "note"} == {"worthless_features"}
    assert set(checkup.skipped) == {"groups"}
    assert {finding.code for finding in checkup.findings} | set(checkup.skipped) == set(CODES)


@pytest.mark.parametrize("times", [1.0, 1e308])
def test_findings_are_sentences_with_facts(small: oc.Profile, times: float) -> None:
    """Of a profile of sixty made-up rows with two feature sets: each severity has its advice, all of it is JSON.

    Also where features are so large that their sums are no numbers.
    """
    table = small.feature_sets["small"] * times
    small = replace(small, features={**small.feature_sets, "small": table})
    steps: list[tuple[int, int]] = []
    checkup = oc.doctor(small, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(done, len(CHECKS)) for done in range(len(CHECKS))]
    again = json.loads(json.dumps(checkup.summary(), allow_nan=False))
    assert again["worst"] == checkup.worst
    assert len(checkup.of("separation")) == 2
    order = [SEVERITIES.index(finding.severity) for finding in checkup.findings]
    assert order == sorted(order, reverse=True)
    for finding in checkup.findings:
        assert finding.seen[0].isupper() or finding.seen[0].isdigit() or finding.seen.startswith(small.names), finding
        assert finding.seen.endswith(".")
        assert finding.advice.endswith(".") == (finding.severity != "ok")
        assert finding.facts


def test_a_bare_profile_is_examined_as_far_as_it_goes() -> None:
    """No labels, one classifier, two rows: what cannot be checked is said, nothing breaks."""
    bare = oc.Profile(("only",), (0.0,), features=[[1.0], [1.0]], success=[[1], [0]])
    checkup = oc.doctor(bare)
    assert checkup.skipped["separation"] == "the profile keeps no labels"
    assert checkup.skipped["label_noise"] == "there are neither probabilities nor two good classifiers"
    assert checkup.skipped["worthless_features"] == "there are fewer than 10 rows"
    assert checkup.of("few_rows")[0].severity == "problem"
    assert checkup.of("constant_columns")[0].severity == "problem"
    assert checkup.of("cost_units")[0].severity == "note"
    alone = oc.doctor(replace(bare, groups=np.array(["a", "a"])))
    assert alone.skipped["smoothness"] == "all rows near each other belong together"
    assert alone.of("groups")[0].severity == "problem"
    with pytest.raises(oc.InvalidInputError, match="a profile is needed to examine, got list"):
        oc.doctor([])  # type: ignore[arg-type]


# Outcomes


def mislabelled(profile: oc.Profile, share: float) -> tuple[oc.Profile, set[str]]:
    """Some labels changed to any other, success as it then is; and the ids of these rows."""
    random = np.random.default_rng(0)
    labels, wrong = np.array(profile.labels), random.random(len(profile)) < share
    labels[wrong] = (labels[wrong] + random.integers(1, 10, int(wrong.sum()))) % 10
    tables = profile.probabilities or {}
    success = np.column_stack([oc.success(tables[name], labels) for name in profile.names])
    ids = {name for name, one in zip(profile.ids, wrong, strict=True) if one}
    return replace(profile, labels=labels, success=success), ids


@pytest.mark.parametrize("kept", [True, False], ids=["probabilities", "neighbours"])
def test_wrong_labels_are_estimated_and_found(real: oc.Profile, kept: bool) -> None:
    """Six per cent of wrong labels: about as many are estimated, and the rows named are among them."""
    outputs = real if kept else replace(real, probabilities=None, features=(real.probabilities or {})["resnet18-w64"])
    assert check(outputs, "label_noise").severity == "ok"
    noisy, wrong = mislabelled(real, 0.06)
    if not kept:
        noisy = replace(noisy, probabilities=None, features=(real.probabilities or {})["resnet18-w64"])
    finding = check(noisy, "label_noise")
    assert finding.severity == ("warning" if kept else "note")
    assert finding.facts["share"] == pytest.approx(0.06, abs=0.025)
    assert finding.facts["judged_by"] == ("probabilities" if kept else "neighbours")
    assert len(wrong & set(finding.facts["ids"])) >= 8
    assert check(mislabelled(real, 0.15)[0], "label_noise").severity == "problem"


def test_success_that_contradicts_probabilities(real: oc.Profile) -> None:
    """One classifier's classes are in another order."""
    assert check(real, "contradicted_success").severity == "ok"
    tables = dict(real.probabilities or {})
    tables["wrn28-10"] = np.roll(tables["wrn28-10"], 1, axis=1)
    finding = check(replace(real, probabilities=tables), "contradicted_success")
    assert finding.severity == "problem"
    assert "wrn28-10" in finding.seen


def test_too_few_rows(real: oc.Profile) -> None:
    """Intervals against those of a textbook, and what would halve them."""
    finding = check(real, "few_rows")
    assert finding.severity == "ok"
    assert check(real.take(np.arange(100)), "few_rows").severity == "warning"
    few = check(real.take(np.arange(30)), "few_rows")
    assert few.severity in ("warning", "problem")
    assert few.facts["rows_to_halve"] == 120
    about = finding.facts["accuracy"]["resnet8-w8"]
    half = 1.96 * np.sqrt(about["mean"] * (1 - about["mean"]) / 6000)
    assert about["interval"] == pytest.approx([about["mean"] - half, about["mean"] + half], abs=2e-3)
    # Rows that are there five times do not make it better known, once it is said that they are.
    rows = np.repeat(np.arange(1200), 5)
    fivefold = oc.Profile(real.names, real.costs, features(real)[rows], real.success[rows], groups=rows)
    assert check(fivefold, "few_rows").facts["frontier_half_width"] > 2 * finding.facts["frontier_half_width"]


# Features


def test_features_that_say_nothing(real: oc.Profile) -> None:
    """Noise in place of features separates no classes and tells nothing about success."""
    random = np.random.default_rng(0)
    noise = replace(real, features=random.random((6000, 10)))
    for code in ("separation", "smoothness"):
        assert check(real, code).severity == "ok"
        assert check(noise, code).severity == "warning", code
    facts = check(real, "separation").facts
    assert 0 < facts["least_distance_to_another_class"] < facts["median_distance_to_nearest"]


def test_constant_columns_and_marks_for_missing_values(real: oc.Profile) -> None:
    """A column of zeros; one that is −999 in some rows; a switch, or a probability that is nearly 1, is neither."""
    assert check(real, "constant_columns").severity == check(real, "missing_values").severity == "ok"
    table = features(real)
    finding = check(replace(real, features=np.column_stack([table, np.zeros(6000)])), "constant_columns")
    assert (finding.severity, finding.facts["columns"]) == ("note", [10])
    missing = table.copy()
    missing[::20, 3] = -999.0
    finding = check(replace(real, features=missing), "missing_values")
    assert finding.severity == "warning"
    assert finding.facts["columns"] == {"3": {"value": -999.0, "share": 0.05}}
    switch = np.column_stack([table, np.arange(6000) % 7 == 0])
    sure = (1 - 1e-9) * np.eye(10)[np.asarray(real.labels)] + 1e-10 * np.random.default_rng(0).random((6000, 10))
    for harmless in (switch, sure):
        assert check(replace(real, features=harmless), "missing_values").severity == "ok"


def test_columns_of_other_scales(real: oc.Profile) -> None:
    """One column in thousandths decides every distance; all of them in thousandths do no harm."""
    assert check(real, "column_scales").severity == "ok"
    table = features(real)
    assert check(replace(real, features=1000 * table), "column_scales").severity == "ok"
    table[:, 4] *= 1000
    finding = check(replace(real, features=table), "column_scales")
    assert (finding.severity, finding.facts["column"]) == ("warning", 4)


def test_equal_features(real: oc.Profile) -> None:
    """Probabilities rounded to two digits, and to none: rows equal others on which other classifiers are right."""
    assert check(real, "equal_features").severity == "ok"
    assert check(replace(real, features=features(real).round(2)), "equal_features").severity == "note"
    assert check(replace(real, features=features(real).round(0)), "equal_features").severity == "warning"


def test_rows_that_are_there_twice(real: oc.Profile) -> None:
    """Two hundred rows again under other ids: a warning, unless they share a group; worse if labels differ."""
    assert check(real, "duplicates").severity == "ok"
    rows = np.concatenate([np.arange(4000), np.arange(200)])
    twice = oc.Profile(
        real.names, real.costs, features(real)[rows], real.success[rows], extractor=real.extractor,
        ids=[f"q{place}" for place in range(4200)], labels=np.asarray(real.labels)[rows], classes=real.classes,
        probabilities={name: table[rows] for name, table in (real.probabilities or {}).items()},
    )  # fmt: skip
    finding = check(twice, "duplicates")
    assert finding.severity == "warning"
    assert finding.facts["equal_to_another"] == finding.facts["across_groups"] == 400
    assert check(replace(twice, groups=rows), "duplicates").severity == "ok"
    labels = np.array(twice.labels)
    labels[4000] = (labels[4000] + 1) % 10
    finding = check(replace(twice, labels=labels, groups=rows), "duplicates")
    assert (finding.severity, finding.facts["with_other_labels"]) == ("warning", 2)


# Leaks


def test_labels_in_ids(real: oc.Profile) -> None:
    """Folders named like classes; letters that stand for them; ids that only count."""
    assert check(real, "leaking_ids").severity == "ok"
    labels, classes = np.asarray(real.labels), real.classes or ()
    folders = tuple(f"images/{classes[label]}/{row}.png" for row, label in enumerate(labels))
    letters = tuple(f"{'abcdefghij'[label]}-{row}" for row, label in enumerate(labels))
    hashed = oc.Profile(real.names, real.costs, features(real)[[*range(5990), *[0] * 10]], real.success, labels=labels)
    assert check(hashed, "leaking_ids").severity == "ok"  # ids of repeated rows are numbered
    anything = tuple(f"{'abcdefghij'[row % 10]}-{row}" for row in range(6000))
    assert check(replace(real, ids=folders), "leaking_ids").facts["ids_with_their_label"] == 1.0
    for ids, severity in ((folders, "warning"), (letters, "warning"), (anything, "ok")):
        assert check(replace(real, ids=ids), "leaking_ids").severity == severity


def test_rows_in_the_order_of_their_labels_or_success(real: oc.Profile) -> None:
    """Sorted rows are no random samples."""
    assert check(real, "ordered_rows").severity == "ok"
    by_label = real.take(np.argsort(np.asarray(real.labels), kind="stable"))
    assert "same label" in check(by_label, "ordered_rows").seen
    by_success = replace(real, labels=None).take(np.argsort(real.success[:, 0], kind="stable"))
    finding = check(by_success, "ordered_rows")
    assert finding.severity == "warning"
    assert "same success" in finding.seen


def test_families_of_ids_in_several_groups(real: oc.Profile) -> None:
    """Three crops of each image, under one name with a number: a warning until they share a group."""
    assert check(real, "related_rows").severity == "ok"
    rows = np.repeat(np.arange(1500), 3)
    noise = np.random.default_rng(0).normal(0, 1e-3, (4500, 10))
    crops = oc.Profile(
        real.names, real.costs, features(real)[rows] + noise, real.success[rows],
        ids=[f"image{row}_crop{place % 3}.png" for place, row in enumerate(rows)],
    )  # fmt: skip
    assert check(crops, "related_rows").severity == "warning"
    assert check(replace(crops, groups=rows), "related_rows").severity == "ok"


def test_groups_that_are_too_few(real: oc.Profile) -> None:
    """Hundreds of groups are fine, three are not, nor one that holds half of the rows."""
    for groups, severity in (
        (np.arange(6000) // 5, "ok"),
        (np.arange(6000) % 3, "warning"),
        (np.where(np.arange(6000) < 3000, 0, np.arange(6000)), "warning"),
        (np.zeros(6000, int), "problem"),
    ):
        assert check(replace(real, groups=groups), "groups").severity == severity


@pytest.mark.parametrize("fault", ["label", "noisy label", "success"])
def test_features_that_hold_the_label_or_success(real: oc.Profile, fault: str) -> None:
    """A column that will not be known of a new query."""
    assert check(real, "leaking_features").severity == "ok"
    random = np.random.default_rng(0)
    labels = np.asarray(real.labels, float)
    column = {
        "label": labels,
        "noisy label": labels + random.normal(0, 0.1, 6000),
        "success": real.success[:, 3] + random.random(6000) / 2,
    }[fault]
    finding = check(replace(real, features=np.column_stack([features(real), column])), "leaking_features")
    assert finding.severity == "problem"
    assert 10 in finding.facts["columns_that_tell_the_label" if "label" in fault else "columns_that_tell_success"]


def test_an_extractor_that_was_trained_on_the_rows(real: oc.Profile) -> None:
    """It is never wrong on them; or its features know the label though no classifier does."""
    assert check(real, "perfect_extractor").severity == "ok"
    success = np.array(real.success)
    success[:, 0] = 1.0
    finding = check(replace(real, success=success, probabilities=None), "perfect_extractor")
    assert finding.severity == "warning"
    assert finding.seen.startswith("resnet8-w8 is right on 100.0 %")
    random = np.random.default_rng(0)
    knowing = np.eye(10)[np.asarray(real.labels)] + random.normal(0, 0.05, (6000, 10))
    finding = check(replace(real, features=knowing), "perfect_extractor")
    assert finding.severity == "warning"
    assert finding.seen.startswith("The nearest row has the same label")


# Costs


def test_costs_in_different_units(real: oc.Profile) -> None:
    """Seconds beside microseconds; an extraction that costs thousands of its own calls; a dear service is no fault."""
    assert check(real, "cost_units").severity == "ok"
    costs = np.array(real.costs)
    assert check(replace(real, costs=np.append(costs[:-1], 1e6 * costs[-1])), "cost_units").severity == "warning"
    # A thousand times dearer: believed of the most accurate, doubted of another.
    dear = np.array(costs)
    dear[4:] *= 2000
    assert check(replace(real, costs=dear), "cost_units").severity == "ok"
    dear = np.array(costs)
    dear[5:6] *= 50_000
    assert check(replace(real, costs=dear), "cost_units").severity == "warning"
    strange = replace(real, extractor_cost={"resnet8-w8": float(5000 * costs[0])})
    assert "5e+03 times its own call" in check(strange, "cost_units").seen


def test_classifiers_that_nobody_is_sent_to(real: oc.Profile) -> None:
    """A copy of the cheapest at ten times its cost: beaten, and chosen at no price."""
    assert check(real, "dominated").severity == "ok"
    worse = oc.Profile(
        (*real.names, "useless"), np.append(real.costs, 10 * real.costs[0]), features(real),
        np.column_stack([real.success, real.success[:, 0] * (np.arange(6000) % 3 > 0)]), extractor=real.extractor,
    )  # fmt: skip
    finding = check(worse, "dominated")
    assert finding.severity == "note"
    assert finding.facts["never_chosen"] == ["useless"]
    assert "useless" in finding.facts["dominated"]


def test_features_that_are_not_worth_their_cost(real: oc.Profile) -> None:
    """Noise that costs half of an answer loses; cheap features that tell who is right gain."""
    random = np.random.default_rng(0)
    half = float(np.sort(real.costs)[4]) / 2
    noise = replace(real, features={"noise": random.random((6000, 4))}, extractor=None, extractor_cost={"noise": half})
    assert check(noise, "worthless_features").severity == "warning"
    hints = np.clip(real.success[:, [0, 2, 4]] + random.normal(0, 0.4, (6000, 3)), -1, 2)
    telling = replace(real, features={"hints": hints}, extractor=None, extractor_cost={"hints": 0.0})
    finding = check(telling, "worthless_features")
    assert finding.severity == "ok"
    assert max(one["gain"] for one in finding.facts["gains"].values()) > 0.02


# The command, and the page


def test_the_command(tmp_path: Path, real: oc.Profile) -> None:
    """A saved profile: a table, JSON with the same findings, exit code 0 whatever is found; 2 where there is none."""
    noisy = mislabelled(real, 0.15)[0].take(np.arange(1000))
    oc.save(noisy, tmp_path / "profile.parquet")
    shown = run("doctor", "profile.parquet", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "problem" in shown.stdout
    assert "not checked: groups, since the profile has no groups" in shown.stdout
    printed = run("doctor", "profile.parquet", "--json", cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert json.loads(printed.stdout) == json.loads(json.dumps(oc.doctor(noisy).summary()))
    (tmp_path / "notes.txt").write_text("no profile")
    for file in ("nothing.parquet", "notes.txt"):
        refused = run("doctor", file, cwd=tmp_path)
        assert refused.returncode == 2
        assert refused.stderr.startswith("occamroute: cannot read")


def test_the_page_names_every_check() -> None:
    """docs/doctor.md has a row for each code, and for no other."""
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == CODES
