"""The package as others get it: the wheel holds what it needs, and other packages can add to it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import occamroute as oc

ROOT = Path(__file__).parent.parent


def test_wheel_is_whole(tmp_path: Path) -> None:
    """Built from the repository, it has the data set and the type marker, no tests, and works by itself."""
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True)
    (wheel,) = tmp_path.glob("occamroute-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert "occamroute/datasets/cifar10.parquet" in names
    assert "occamroute/py.typed" in names
    assert "occamroute/reporting/dashboard/web/main.js" in names
    assert not [name for name in names if name.startswith("tests")]
    assert wheel.stat().st_size < 8_000_000
    code = "import occamroute; print(occamroute.__file__, len(occamroute.load_dataset('cifar10')[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "site", capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "site" / "occamroute" / "__init__.py"), "10000"]


def test_other_packages_add_estimators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package registers an estimator by entry point, and its name then works."""
    (tmp_path / "flat_estimates.py").write_text(
        "from occamroute import Mixture\n\n\nclass Flat(Mixture):\n    def __repr__(self):\n        return 'Flat()'\n"
    )
    about = tmp_path / "flat_estimates-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flat-estimates\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[occamroute.estimators]\nflat = flat_estimates:Flat\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    profile = oc.Profile(("a", "b"), (1, 2), [[0.0], [1.0]], [[0, 1], [1, 1]])
    assert oc.estimate(profile, [[0.5]], estimator="flat").made_from["estimator"] == "Flat()"


def test_pins_hold_all_that_the_package_needs() -> None:
    """What it is installed with, without looking for dependencies, is all that it and its dependencies need."""
    lines = (ROOT / "scripts" / "pins-run.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if line and not line.startswith("#")}
    waiting, seen = ["occamroute", "hatchling"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        wanted = [Requirement(line) for line in distribution(name).requires or []]
        needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
        waiting += [canonicalize_name(one.name) for one in needed]
    assert seen - {"occamroute"} <= pinned
