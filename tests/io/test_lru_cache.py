"""Values that are kept in memory: one thread makes each of them."""

from __future__ import annotations

import threading
from typing import NamedTuple

from lazyckpt.io.cache import LRUCache
from tests.helpers import HANGS


class Value(NamedTuple):
    key: int
    size: int


def test_one_thread_makes_a_value() -> None:
    cache, made = LRUCache[Value](1000), []
    is_making, may_end = threading.Event(), threading.Event()

    def make() -> Value:
        made.append(0)
        is_making.set()
        assert may_end.wait(HANGS)
        return Value(0, 1)

    threads = [threading.Thread(target=cache.get, args=(0, make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert is_making.wait(HANGS)
    assert cache.get(1, lambda: Value(1, 1)).key == 1  # others wait for nothing
    may_end.set()
    for thread in threads:
        thread.join()
    assert made == [0]
