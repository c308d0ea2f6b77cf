"""What is there before each of these tests, and after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import until, workers


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    if workers():  # perhaps of a run that is part of a cycle
        gc.collect()
    until(lambda: not workers())


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """A file that makes what is in `faults.py` misbehave, in whatever process, while it exists."""
    path = tmp_path / "flag"
    path.touch()
    return path
