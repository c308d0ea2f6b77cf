"""What is there before each of these tests, and after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.emloop.cases import workers


@pytest.fixture(autouse=True)
def _ends_its_workers() -> Iterator[None]:
    yield
    assert not workers()
