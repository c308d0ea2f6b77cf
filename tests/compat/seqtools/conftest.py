"""Fixtures of these tests."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _ends_its_threads() -> Iterator[None]:
    yield
    if any(thread.name.startswith("lazyckpt") for thread in threading.enumerate()):
        gc.collect()  # cycles of an error's traceback; with threads alive, processes start slowly
