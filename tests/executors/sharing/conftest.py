"""Fixtures of these tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.helpers import until


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    ours = ("lazyckpt", "link")  # no threads of Python's own, nor of other software
    until(
        lambda: (
            not [t for t in threading.enumerate() if t not in before and t.name.startswith(ours)]
        )
    )
