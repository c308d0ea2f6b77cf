"""What is there before each of these tests, and after it."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

from tests.compat.emloop.cases import workers


@pytest.fixture(autouse=True)
def _watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(240, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    assert not workers()
