"""`uniter` and `add_cache`."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import LIBRARIES
from tests.helpers import Streamed


@given(st.data(), st.integers(0, 4), st.integers(1, 3), st.booleans())
def test_sq19_uniter(data: st.DataObject, cache: int, parallel: int, sized: bool) -> None:
    """Whatever is asked for in whatever order; theirs goes wrong past the end and in its cache."""
    items = [f"i{n}" for n in range(9)]
    mine = ours.uniter(items, cache, parallel, len(items) if sized else None)
    for index in data.draw(st.lists(st.integers(0, 11), max_size=15)):
        if index < len(items):
            assert mine[index] == items[index]
        else:
            with pytest.raises(IndexError):
                mine[index]
    assert list(mine) == items
    assert list(pickle.loads(pickle.dumps(mine))) == items
    if sized:
        assert (len(mine), mine[-1]) == (9, "i8")
        for library in LIBRARIES:
            again = library.uniter(items, cache, parallel, 9)
            assert [again[i] for i in range(9)] == items


def test_sq19_uniter_goes_back_no_more_than_it_must() -> None:
    begun: list[int] = []

    def read() -> Iterator[int]:
        mine = len(begun)
        begun.append(0)
        for item in range(20):
            begun[mine] += 1
            yield item

    near = ours.uniter(Streamed(read), cache_size=3, n_parallel=2, size=20)
    assert [near[i] for i in (9, 8, 7, 6, 2, 10, 3)] == [9, 8, 7, 6, 2, 10, 3]
    assert begun == [11, 4]
    with pytest.raises(ValueError, match="begin again"):
        ours.uniter(iter([1]))
    unsized = ours.uniter([1, 2])
    with pytest.raises(TypeError, match="len"):
        len(unsized)
    with pytest.raises(IndexError):
        unsized[-1]


def test_sq19_after_an_error_of_the_iterable_the_right_items_come() -> None:
    is_lost = [True]

    def read() -> Iterator[int]:
        for item in range(6):
            if item == 2 and is_lost:
                raise OSError(f"lost {is_lost.pop()}")
            yield item

    items = ours.uniter(Streamed(read), cache_size=3, size=6)
    assert items[1] == 1
    with pytest.raises(OSError, match="lost True"):
        items[4]
    assert [items[4], items[2], *items] == [4, 2, *range(6)]


def test_sq19_nothing_is_asked_for_before_an_item_is_read() -> None:
    opened: list[str] = []

    def begin() -> str:
        opened.append("once")
        return "abc"

    letters = ours.add_cache(ours.smap(str.upper, ours.uniter(Streamed(begin), size=3)))
    assert opened == []
    assert (letters[1], opened) == ("B", ["once"])


@given(st.integers(1, 4), st.lists(st.integers(0, 5), max_size=30))
def test_sq26_add_cache_keeps_what_was_used_last(size: int, reads: list[int]) -> None:
    made: list[int] = []
    expected: list[int] = []
    kept: OrderedDict[int, None] = OrderedDict()
    cached = ours.add_cache(ours.smap(lambda x: made.append(x) or x, range(6)), size)
    for index in reads:
        assert cached[index] == index
        if index not in kept:
            expected.append(index)
        kept[index] = None
        kept.move_to_end(index)
        while len(kept) > size:
            kept.popitem(last=False)
    assert made == expected
    with pytest.raises(ValueError, match="size"):
        ours.add_cache([1], 0)
