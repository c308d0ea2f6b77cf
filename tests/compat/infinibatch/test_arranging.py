"""Iterators that order, group or join, compared with Infinibatch's."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infinibatch import datasets as old_datasets
from infinibatch import iterators as old

import lazyckpt as lz
from lazyckpt.compat.infinibatch import datasets, iterators
from tests.compat.infinibatch.cases import SEEDS, control, native, some, through_json


def test_ib20_multiplex_refuses() -> None:
    for indices in ([0, 0, 0], [-1], [2], ["0"], [None]):
        chosen = iterators.NativeCheckpointableIterator(indices)
        it = iterators.MultiplexIterator(chosen, [native(iterators, 2), native(iterators, 2)])
        with pytest.raises(lz.PipelineError, match="multiplex"):
            some(it)
    one = native(iterators)
    with pytest.raises(ValueError, match="twice"):
        iterators.MultiplexIterator(control(iterators), [one, one])


def test_ib21_collections_of_any_kind() -> None:
    collections = [[1, None], (), "ab", (3,), range(2), {"k": 1}, [[]]]
    for selector in (None, iter, lambda c: (x for x in c), list):
        ours, theirs = (
            some(it.SelectManyIterator(it.NativeCheckpointableIterator(collections), selector))
            for it in (iterators, old)
        )
        assert ours == theirs


def test_ib22_a_restore_reads_one_collection() -> None:
    seen: list[int] = []

    def select(x: int) -> list[int]:
        seen.append(x)
        return [x] * 5

    it = iterators.SelectManyIterator(native(iterators), select)
    some(it, 13)
    other = iterators.SelectManyIterator(native(iterators), select)
    del seen[:]
    other.setstate(it.getstate())
    assert some(other, 3) == [2, 2, 3]
    assert seen == [2, 3]


def test_ib23_a_collection_that_became_shorter() -> None:
    size = 5
    it = iterators.SelectManyIterator(native(iterators), lambda x: [x] * size)
    some(it, 14)
    state, size = it.getstate(), 3
    it.setstate(state)
    with pytest.raises(RuntimeError, match=r"4 .* 3"):
        next(it)


@given(st.integers(0, 700), st.integers(1, 40), SEEDS, st.data())
def test_ib24_buffered_shuffle(n: int, size: int, seed: Any, data: Any) -> None:
    expected = some(old.BufferedShuffleIterator(native(old, n), size, seed), n)
    it = iterators.BufferedShuffleIterator(native(iterators, n), size, seed)
    cut = data.draw(st.integers(0, n))
    assert some(it, cut) == expected[:cut]
    other = iterators.BufferedShuffleIterator(native(iterators, n), size, seed)
    other.setstate(through_json(it.getstate()))
    assert some(other, n) == some(it, n) == expected[cut:]


def test_ib25_buffered_shuffle_keeps_none() -> None:
    items = [None, 1, None, 2, None]
    for size in (1, 2, 9):
        it = iterators.BufferedShuffleIterator(iterators.NativeCheckpointableIterator(items), size)
        assert sorted(map(str, some(it))) == sorted(map(str, items))


@pytest.mark.parametrize("size", [1, 2, 4, 65])
def test_ib25_buffered_shuffle_at_every_cut_of_the_original(size: int) -> None:
    n = size + 260
    theirs = old.BufferedShuffleIterator(native(old, n), size)
    ours = iterators.BufferedShuffleIterator(native(iterators, n), size)
    for _ in range(n + 2):
        ours.setstate(theirs.getstate())
        assert some(ours, 1) == some(theirs, 1)


def test_ib28_zip() -> None:
    for lengths in ((3, 5), (5, 3), (0, 2), (4,)):
        ours, theirs = (
            some(it.ZipIterator(*(native(it, n) for n in lengths))) for it in (iterators, old)
        )
        assert ours == theirs
    one = native(iterators)
    with pytest.raises(ValueError, match="at least one"):
        iterators.ZipIterator()
    with pytest.raises(ValueError, match="twice"):
        iterators.ZipIterator(one, one)
    it = iterators.ZipIterator(one, native(iterators))
    with pytest.raises(ValueError, match="3 sources"):
        it.setstate({"input_states": [{"num_items_yielded": 1}] * 3})


@settings(max_examples=30)
@given(st.integers(0, 300), st.integers(1, 80), SEEDS, st.data())
def test_ib34_blocks(n: int, size: int, seed: Any, data: Any) -> None:
    expected = some(old.BlockwiseShuffleIterator(native(old, n), size, seed), n)
    it = iterators.BlockwiseShuffleIterator(native(iterators, n), size, seed)
    cut = data.draw(st.integers(0, n))
    assert some(it, cut) == expected[:cut]
    it.setstate(through_json(it.getstate()))
    assert some(it, n) == expected[cut:]


KEYS: list[Any] = [None, lambda x: x % 5]
SIZES: list[Any] = [1, 3, np.int64(3), lambda x: x % 4, lambda x: 2.5]
BOUNDARIES: list[Any] = [None, lambda x: x % 3 == 0, lambda x: x // 4]


@given(
    st.integers(0, 60),
    st.integers(1, 25),
    st.sampled_from(KEYS),
    st.sampled_from(SIZES),
    st.sampled_from(BOUNDARIES),
    st.booleans(),
    st.integers(0, 9),
    st.data(),
)
def test_ib41_buckets(
    n: int, ahead: int, key: Any, size: Any, boundary: Any, shuffle: bool, seed: int, data: Any
) -> None:
    def make(it: Any) -> Any:
        plain = int(size) if it is old and not callable(size) else size
        return it.BucketedReadaheadBatchIterator(
            native(it, n), ahead, key, plain, boundary, shuffle, seed
        )

    expected = some(make(old))
    cut = data.draw(st.integers(0, len(expected)))
    it = make(iterators)
    assert some(it, cut) == expected[:cut]
    other = make(iterators)
    other.setstate(through_json(it.getstate()))
    assert some(other) == some(it) == expected[cut:]


def test_ib42_a_batch_has_at_least_one_item() -> None:
    for size in (0, -3, lambda x: 0, lambda x: float("inf")):
        it = iterators.BucketedReadaheadBatchIterator(native(iterators, 4), 4, None, size)
        assert sorted(chain(*it)) == [0, 1, 2, 3]


def test_ib43_a_boundary_is_a_value() -> None:
    it = iterators.BucketedReadaheadBatchIterator(native(iterators), 6, None, 9, lambda x: None)
    with pytest.raises(ValueError, match="boundary_key"):
        next(it)


def test_ib45_bump_seed() -> None:
    for bump in (datasets.bump_seed, old_datasets.bump_seed):
        assert (bump(None), bump(4)) == (None, 5)
    assert datasets.bump_seed(4, 3) == 7


SEEDED: dict[Any, tuple[list[int], list[int]]] = {
    0: ([4, 2, 1, 0, 5, 3, 6, 7, 9, 8], [0, 1, 3, 7, 2, 9, 6, 8, 5, 4]),
    -5: ([6, 3, 1, 0, 5, 2, 4, 8, 7, 9], [1, 2, 4, 5, 7, 0, 6, 8, 9, 3]),
    2**80: ([4, 1, 5, 6, 0, 3, 2, 9, 7, 8], [0, 3, 5, 7, 9, 4, 1, 6, 8, 2]),
    1.5: ([6, 0, 5, 3, 1, 2, 4, 9, 8, 7], [0, 4, 3, 1, 7, 8, 6, 5, 2, 9]),
    "a": ([3, 5, 6, 1, 0, 4, 2, 7, 8, 9], [1, 3, 5, 4, 7, 6, 9, 0, 8, 2]),
}


@pytest.mark.parametrize("seed", SEEDED, ids=repr)
def test_orders_are_the_same_on_every_python(seed: Any) -> None:
    kinds = (iterators.BlockwiseShuffleIterator, iterators.BufferedShuffleIterator)
    assert tuple(some(kind(native(iterators, 10), 7, seed)) for kind in kinds) == SEEDED[seed]
