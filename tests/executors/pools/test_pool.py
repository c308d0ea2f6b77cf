"""Wait for the outcomes of a worker."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue

from lazyckpt.executors.pools.pool import get_within


def test_a_wait_ends_however_short_it_is() -> None:
    """CPython 3.11 may wait without an end, too seldom to be seen in a run of a few items."""
    for _ in range(20_000):
        with suppress(Empty):
            get_within(SimpleQueue[int](), 1e-9)
