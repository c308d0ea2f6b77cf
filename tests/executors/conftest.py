"""Fixtures of these tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import nothing_is_left


@pytest.fixture(scope="session")
def server() -> None:
    """A server whose workers need not import what tests import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.executors.table"])
    first = context.Process(target=int)
    first.start()
    first.join()


@pytest.fixture(autouse=True)
def _server_for_those_that_need_one(request: pytest.FixtureRequest) -> None:
    if "forkserver" in request.node.name:
        request.getfixturevalue("server")


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    nothing_is_left()


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """A file that makes the functions of `faults.py` misbehave, in any process, while it exists."""
    path = tmp_path / "flag"
    path.touch()
    return path
