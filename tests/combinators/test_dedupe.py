"""`dedupe`: nothing comes twice within a window, and nothing else is lost."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


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
    with pytest.raises(TypeError, match="dedupe: key must return a hashable value"):
        list(lz.source([1]) | lz.dedupe(lambda item: key, window=3))


def test_an_error_of_the_keys_own_is_kept() -> None:
    class Mine:
        def __hash__(self) -> NoReturn:
            raise TypeError("mine")

    def key(item: int) -> Hashable:
        return Mine()

    with pytest.raises(TypeError, match="mine"):
        list(lz.source([1]) | lz.dedupe(key, window=3))


def test_a_source_that_became_shorter_is_noticed() -> None:
    long, short = (lz.source(Stream(range(n))) | lz.dedupe(int, window=4) for n in (20, 12))
    with pytest.raises(lz.SourceChanged, match=r"has read 7 items since its anchor, but now .* 4"):
        next(lz.run(short, lz.state_at(long, 15)))
