"""Iterators that start anywhere and know how much is left: the interpreter's, and the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, islice
from typing import Any

import pytest

from lazyckpt.core import iterators
from lazyckpt.core.iterators import (
    ENDLESS,
    Walk,
    are_exact,
    end,
    index_reached,
    iterate,
    make_ticks,
    remaining,
)

SEQUENCES = [[7, 8, 9], (7, 8, 9), range(7, 10), range(0, 3 << 64, 1 << 64), b"abc", []]


@pytest.fixture(autouse=True, params=[iter, Walk], ids=["builtin", "plain"])
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterators, "MAKE", request.param)


def test_those_of_this_interpreter_are_exact() -> None:
    assert are_exact()
    assert are_exact(Walk)


@pytest.mark.parametrize(
    "make", [lambda items: iter(list(items) + [0]), lambda items: map(int, items)]
)
def test_others_are_not(make: Any) -> None:
    assert not are_exact(make)


@pytest.mark.parametrize("items", SEQUENCES, ids=repr)
def test_every_use_from_the_beginning_to_after_the_end(items: Sequence[int]) -> None:
    for start in range(len(items) + 2):
        found = iterate(items, start)
        for index in range(start, len(items)):
            assert remaining(found) == len(items) - index
            assert next(found) == items[index]
        for _ in range(2):
            assert remaining(found) == 0
            assert next(found, None) is None


@pytest.mark.parametrize("items", SEQUENCES, ids=repr)
def test_it_ends_where_it_is_told_to(items: Sequence[int]) -> None:
    for taken in range(len(items) + 2):
        found = iterate(items)
        list(islice(found, taken))
        end(found)
        assert remaining(found) == 0
        assert next(found, None) is None


def test_a_list_that_changes() -> None:
    items = [1, 2, 3, 4]
    found = iterate(items, 2)
    assert index_reached(found) == 2
    assert next(found) == 3
    items.append(5)
    assert (index_reached(found), remaining(found)) == (3, 2)
    del items[1:]
    assert (index_reached(found), remaining(found)) == (3, 0)
    assert next(found, None) is None
    assert index_reached(found) is None


@pytest.mark.parametrize("count", [0, 1, 5, ENDLESS])
def test_ticks_count_what_is_taken(count: int) -> None:
    ticks = make_ticks(count)
    assert remaining(ticks) == count
    assert list(compress("abc", ticks)) == list("abc"[:count])
    assert remaining(ticks) == max(0, count - 3)
