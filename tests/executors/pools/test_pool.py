"""Waiting for what a worker gives."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue

from lazyckpt.executors.pools.pool import get_within


def test_what_comes_is_given_at_once() -> None:
    queue = SimpleQueue[int]()
    queue.put(1)
    assert get_within(queue, 0.0) == 1
    queue.put(2)
    assert get_within(queue, None) == 2


def test_a_wait_ends_however_short_it_is() -> None:
    for _ in range(20_000):
        with suppress(Empty):
            get_within(SimpleQueue[int](), 1e-9)
