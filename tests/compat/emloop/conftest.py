"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lazyckpt.executors.pools import threads
from tests.compat.emloop.cases import workers
from tests.helpers import HANGS


@pytest.fixture(autouse=True)
def _ends_its_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "PATIENCE", HANGS)  # on a busy machine a batch may take long
        yield
    assert not workers()
