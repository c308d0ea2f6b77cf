"""`dedupe`: nothing comes twice within a window, and nothing else is lost."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz

few = st.lists(st.integers(0, 6), max_size=80)


@given(few)
def test_a_window_of_everything_gives_each_once(items: list[int]) -> None:
    assert list(lz.source(items) | lz.dedupe(int, window=80)) == list(dict.fromkeys(items))


@given(few, st.integers(1, 9), st.data())
def test_a_resume_reads_at_most_two_windows(
    items: list[int], window: int, data: st.DataObject
) -> None:
    read: list[int] = []
    pipeline = lz.source(items) | lz.tap(read.append) | lz.dedupe(int, window=window)
    expected = list(pipeline)
    cut = data.draw(st.integers(0, len(expected)))
    state = lz.state_at(pipeline, cut)
    read.clear()
    run = lz.run(pipeline, state)
    assert list(run) == expected[cut:]
    assert len(read) < len(items) + 2 * window
    assert lz.resume_cost(pipeline, state).items < 2 * window


def test_memory_is_one_window() -> None:
    held: list[int] = []

    class Key:
        def __init__(self, number: int) -> None:
            self.number = number
            held.append(number)

        def __del__(self) -> None:
            held.remove(self.number)

    with lz.run(lz.count() | lz.dedupe(Key, window=50)) as run:
        for _ in range(500):
            next(run)
            assert len(held) <= 52


@pytest.mark.parametrize("key", [[1], {}, set[int]()])
def test_a_key_without_a_hash(key: Any) -> None:
    with pytest.raises(TypeError, match="dedupe: key must give something with a hash"):
        list(lz.source([1]) | lz.dedupe(lambda item: key, window=3))


def test_an_error_of_the_keys_own_is_kept() -> None:
    class Mine:
        def __hash__(self) -> NoReturn:
            raise TypeError("mine")

    def key(item: int) -> Hashable:
        return Mine()

    with pytest.raises(TypeError, match="mine"):
        list(lz.source([1]) | lz.dedupe(key, window=3))
