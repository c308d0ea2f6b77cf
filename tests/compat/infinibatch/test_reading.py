"""Iterators at the beginning of a pipeline, compared with Infinibatch's."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infinibatch import iterators as old

from lazyckpt.compat.infinibatch import iterators
from tests.compat.infinibatch.cases import SEEDS, drawing, native, place, some, through_json
from tests.helpers import Streamed


def test_ib10_any_iterable_that_begins_anew() -> None:
    for iterable in (
        [1, None],
        (1, 2),
        "ab",
        {"a": 1},
        {3},
        range(3),
        np.arange(3),
        Streamed(lambda: [1, 2]),
        [],
        b"ab",
    ):
        found = some(iterators.NativeCheckpointableIterator(iterable))
        assert found == some(old.NativeCheckpointableIterator(iterable)) == list(iterable)
    for it in (iterators, old):
        with pytest.raises(ValueError, match="iter"):
            it.NativeCheckpointableIterator(iter([1]))


def test_ib10_an_iterable_is_asked_when_its_first_item_is() -> None:
    asked = []

    def begin() -> list[int]:
        asked.append(0)
        return [1, 2]

    it = iterators.MapIterator(iterators.NativeCheckpointableIterator(Streamed(begin)), str)
    it.setstate(None)
    assert len(asked) == 1  # to see that it is no iterator
    assert some(it) == ["1", "2"]
    assert len(asked) == 2


def test_ib11_a_source_that_became_too_short() -> None:
    for items in (
        [list(range(9)), list(range(4))],
        [dict.fromkeys("abcdefghi"), dict.fromkeys("abcd")],
    ):
        long, short = map(iterators.NativeCheckpointableIterator, items)
        some(long, 7)
        with pytest.raises(RuntimeError, match=r"7.* 4"):
            short.setstate(long.getstate())
        with pytest.raises(RuntimeError, match=r"7.* 4"):
            iterators.MapIterator(short, str).setstate(iterators.MapIterator(long, str).getstate())


def test_ib12_train_or_not() -> None:
    for it in (iterators, old):
        with pytest.raises(ValueError, match="shuffl"):
            it.create_source_iterator([1, 2], train=False)
    for args in ((True, 3), (True, 3, False), (False, None, False, 2, 1)):
        ours, theirs = (it.create_source_iterator(list(range(9)), *args) for it in (iterators, old))
        assert some(ours) == some(theirs)


@given(st.integers(0, 40), st.integers(1, 12))
def test_ib13_contiguous_parts(n: int, ranks: int) -> None:
    parts = [some(iterators.ChunkedSourceIterator(list(range(n)), ranks, r)) for r in range(ranks)]
    theirs = [some(old.ChunkedSourceIterator(list(range(n)), ranks, r)) for r in range(ranks)]
    assert parts == theirs
    assert list(chain(*parts)) == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_ib14_ranks_out_of_range() -> None:
    assert some(iterators.ChunkedSourceIterator([1, 2], 5, 4)) == []
    for rank in (2, 3, -1):
        with pytest.raises(ValueError, match="instance_rank"):
            iterators.ChunkedSourceIterator([1, 2], 2, rank)
        with pytest.raises(ValueError, match="instance_rank"):
            iterators.InfinitePermutationSourceIterator([1, 2], 0, True, 2, rank)


@given(SEEDS, st.integers(1, 30), st.integers(1, 6), st.data())
def test_ib15_ranks_by_turns(seed: Any, n: int, ranks: int, data: Any) -> None:
    rank, cut = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, 80))
    ours, theirs, resumed = (
        it.InfinitePermutationSourceIterator(list(range(n)), seed, True, ranks, rank)
        for it in (iterators, old, iterators)
    )
    assert some(ours, cut) == some(theirs, cut)
    resumed.setstate(theirs.getstate())
    rest = some(theirs, 50)
    assert some(resumed, 50) == rest
    resumed.setstate(through_json(ours.getstate()))
    assert some(resumed, 50) == rest


@given(st.integers(1, 9), st.integers(1, 25), st.integers(0, 5), st.sampled_from([None, 4]))
def test_ib16_more_ranks_than_items(n: int, ranks: int, seed: int, common: int | None) -> None:
    all_ranks = [
        iterators.InfinitePermutationSourceIterator(list(range(n)), common, True, ranks, rank)
        for rank in range(ranks)
    ]
    joined = list(chain(*zip(*(some(each, n) for each in all_ranks), strict=True)))
    for begin in range(0, len(joined), n):
        assert sorted(joined[begin : begin + n]) == list(range(n))
    assert len({place(each.getstate()) for each in all_ranks}) == 1


def test_ib17_without_shuffle_a_cycle_and_copies() -> None:
    items = [[1], [2], [3]]
    for shuffle in (True, False):
        it = iterators.InfinitePermutationSourceIterator(items, 0, shuffle)
        first = some(it, 3)
        expected = copy.deepcopy(first)
        for item in (*first, *items):
            item.append(0)
        assert sorted(some(it, 3)) == sorted(expected) == [[1], [2], [3]]
        it.setstate(None)
        assert some(it, 3) == expected
        items = [[1], [2], [3]]


@settings(max_examples=20)
@given(st.integers(2000, 9000), st.integers(0, 3), st.integers(0, 20_000))
def test_ib18_large_permutations(n: int, seed: int, cut: int) -> None:
    ours, theirs, resumed = (
        it.InfinitePermutationSourceIterator(range(n) if it is iterators else list(range(n)), seed)
        for it in (iterators, old, iterators)
    )
    assert some(ours, cut) == some(theirs, cut)
    resumed.setstate(through_json(ours.getstate()))
    assert some(resumed, 100) == some(ours, 100) == some(theirs, 100)


def test_ib19_no_items() -> None:
    for it in (iterators, old):
        with pytest.raises(ValueError, match="empty"):
            it.InfinitePermutationSourceIterator([])


def test_d_no_seed_replays() -> None:
    for make in (
        lambda: iterators.InfinitePermutationSourceIterator(list(range(50)), None),
        lambda: iterators.RandomIterator(None),
        lambda: iterators.BufferedShuffleIterator(native(iterators), 9, None),
        lambda: iterators.BlockwiseShuffleIterator(native(iterators), 9, None),
        lambda: iterators.SamplingRandomMapIterator(native(iterators), drawing, None),
        lambda: iterators.BucketedReadaheadBatchIterator(native(iterators), 9, None, 2, seed=None),
    ):
        it, other = make(), make()
        states = [it.getstate()]
        first = some(it, 10)
        other.setstate(through_json(states[0]))
        assert some(other, 10) == first
        it.setstate(None)
        assert some(it, 10) == first
