"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import nothing_is_left


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
