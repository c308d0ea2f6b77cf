"""What is there before each of these tests, and after it."""

from __future__ import annotations

import gc
import signal
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
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert signal.SIGINT not in blocked  # later children would inherit it


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """A file that makes what is in `faults.py` misbehave, in whatever process, while it exists."""
    path = tmp_path / "flag"
    path.touch()
    return path
