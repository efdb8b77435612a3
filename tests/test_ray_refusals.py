"""What the executor on Ray says where there is none to work on; nothing is started here."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import occamroute as oc
from occamroute.executors import ray_connection
from occamroute.executors.ray import RayExecutor


@pytest.fixture(autouse=True)
def _not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests of this process are connected to."""
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray_connection, "_shared", {})


def _attempt(address: str | None = None) -> str:
    with pytest.raises(oc.OccamError) as caught, RayExecutor(address) as executor:
        list(executor.map(max, 0, [1]))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_ray(monkeypatch: pytest.MonkeyPatch, small: oc.Profile) -> None:
    """The sentence says how to install it, before anything is computed."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(oc.MissingExtraError, match=r"pip install 'occamroute\[ray\]'"):
        oc.estimate(small, small.feature_sets["hash"], extractor="hash", executor="ray")


def test_an_old_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows no tokens is refused, and one that asks for none by itself is not started."""
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(ray, "__version__", "2.51.2")
    assert "Ray 2.51.2 is too old, 2.52 or newer is needed" in _attempt()
    monkeypatch.setattr(ray, "__version__", "2.58.0")
    assert "Ray 2.58.0 asks for no token by itself: set RAY_AUTH_MODE=token, or install 2.59" in _attempt()


def test_ctrl_c_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left behind."""
    import ray

    made: list[Path] = []

    def interrupted(**options: Any) -> None:
        made.append(Path(options["_temp_dir"]).parent)
        assert made[0].is_dir()
        raise KeyboardInterrupt

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", interrupted)
    with pytest.raises(KeyboardInterrupt), RayExecutor() as executor:
        list(executor.map(max, 0, [1]))
    assert not made[0].exists()


@pytest.mark.parametrize("address", ["192.0.2.77:6379", "ray://192.0.2.77:10001", "nowhere.invalid:6379"])
def test_clusters_elsewhere_need_a_token(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Whether the address is given or in the environment, nothing is sent there without one."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    sentence = f"set RAY_AUTH_MODE=token to use {address}."
    assert sentence in _attempt(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert sentence in _attempt()


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said at once, and so is an address that is none."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"nobody answers at {address}" in _attempt(address)
    assert "must be like host:6379, got 'somewhere'" in _attempt("somewhere")
