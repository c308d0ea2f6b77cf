"""What is there before each of these tests, and after it."""

from __future__ import annotations

import pytest


@pytest.fixture
def patience() -> float:
    return 240.0


@pytest.fixture(autouse=True)
def _watched(watchdog: None) -> None:
    """None of them may hang."""
