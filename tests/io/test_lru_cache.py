"""Bounds of the memory that is kept, for any readers."""

from __future__ import annotations

import threading
from random import Random
from typing import NamedTuple

import pytest

from lazyckpt.io.cache import LRUCache
from tests.helpers import HANGS


class Value(NamedTuple):
    key: int
    size: int


def kept(cache: LRUCache[Value]) -> list[int]:
    return [value.key for value in cache.values()]


def test_the_last_used_stay_and_one_in_any_case() -> None:
    cache = LRUCache[Value](1000)
    for key in (0, 1, 0, 2):
        assert cache.get(key, lambda key=key: Value(key, 400)).key == key  # type: ignore[misc]
    assert kept(cache) == [0, 2]
    cache.get(9, lambda: Value(9, 5000))
    assert kept(cache) == [9]
    cache.get(2, lambda: Value(2, 1))
    assert kept(cache) == [2]


def test_of_values_that_are_left_the_last_two_stay() -> None:
    cache = LRUCache[Value](1000)
    for key in range(9):
        cache.get(key, lambda key=key: Value(key, 100))  # type: ignore[misc]
        cache.leave(key, 50)
    assert kept(cache) == [8]
    cache.get(9, lambda: Value(9, 100))
    assert kept(cache) == [8, 9]


def test_an_error_is_not_kept() -> None:
    cache = LRUCache[Value](1000)
    with pytest.raises(ZeroDivisionError):
        cache.get(0, lambda: Value(0, 1 // 0))
    assert cache.get(0, lambda: Value(0, 1)).size == 1


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


def test_threads_leave_it_whole() -> None:
    cache, errors = LRUCache[Value](50), []

    def work(seed: int) -> None:
        draws = Random(seed)
        try:
            for _ in range(3000):
                key = draws.randrange(40)
                assert cache.get(key, lambda key=key: Value(key, 1 + key % 9)).key == key  # type: ignore[misc]
                cache.leave(key, 1 + key % 3)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sum(value.size for value in cache.values()) <= 50
