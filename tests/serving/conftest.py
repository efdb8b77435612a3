"""A service that many tests ask; those that change things or need keys start their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from serving import world


@pytest.fixture(scope="session")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service without keys, with a pool."""
    with world.served(world.service(tmp_path_factory.mktemp("state"))) as client:
        yield client
