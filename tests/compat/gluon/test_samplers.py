"""`SortedSampler`, `SortedBucketSampler` and `SplitSampler`, against naive models."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat import gluon
from lazyckpt.compat.gluon import (
    FixedBucketSampler,
    ShardedDataLoader,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
)
from tests.compat.gluon.cases import TENS, cut, joined, loader

KEYS = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(KEYS, st.booleans())
def test_gl20_sorted_sampler(keys: list[int], reverse: bool) -> None:
    found = list(SortedSampler(keys, reverse))
    assert found == sorted(range(len(keys)), key=lambda i: -keys[i] if reverse else keys[i])
    assert len(SortedSampler(keys)) == len(keys)


@given(KEYS, st.integers(1, 5), st.sampled_from([1, 1.5, 2, 3, 100]), st.booleans())
def test_gl20_sorted_bucket_sampler(keys: list[int], size: int, mult: float, reverse: bool) -> None:
    naive = []
    for window in cut(list(range(len(keys))), int(mult * size)):
        naive += cut(sorted(window, key=lambda i: -keys[i] if reverse else keys[i]), size)
    sampler = SortedBucketSampler(keys, size, mult, reverse)
    assert list(sampler) == naive == list(sampler)
    assert len(sampler) == len(naive)


@given(KEYS, st.integers(1, 5), st.integers(1, 3), st.integers(0, 3))
def test_gl20_sorted_bucket_sampler_shuffled(
    keys: list[int], size: int, mult: int, seed: int
) -> None:
    def make() -> SortedBucketSampler:
        return SortedBucketSampler(keys, size, mult, True, True, seed)

    sampler, same = make(), make()
    epochs = [list(sampler) for _ in range(3)]
    assert [list(same) for _ in range(3)] == epochs
    for batches in epochs:
        assert sorted(joined(batches)) == list(range(len(keys)))
        assert len(batches) == len(sampler)
        for batch in batches:
            assert all(keys[a] >= keys[b] for a, b in pairwise(batch))
        for window in cut(batches, mult)[:-1]:  # together, they are a window, sorted
            assert sum(map(len, window)) == mult * size
            ends = sorted([(keys[b[0]], keys[b[-1]]) for b in window], reverse=True)
            assert all(first[1] >= second[0] for first, second in pairwise(ends))
    assert len({str(batches) for batches in epochs}) > 1 or len(keys) < 12


def test_gl20_keys_need_only_compare() -> None:
    assert list(SortedBucketSampler(["b", "c", "a"], 2, reverse=False)) == [[2, 0], [1]]
    for wrong in (
        lambda: SortedSampler([]),
        lambda: SortedBucketSampler([], 2),
        lambda: SortedBucketSampler([1], 0),
        lambda: SortedBucketSampler([1], 2, mult=0.5),
    ):
        with pytest.raises(ValueError, match="Sorted"):
            wrong()


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3))
def test_gl21_split_sampler(length: int, parts: int, repeat: int) -> None:
    parts = min(parts, length)
    samplers = [SplitSampler(length, parts, i, repeat=repeat, shuffle=False) for i in range(parts)]
    found = [list(sampler) for sampler in samplers]
    whole = [each[: len(each) // repeat] for each in found]
    assert found == [part * repeat for part in whole]
    assert joined(whole) == list(range(length))
    assert [len(part) for part in whole] == sorted(map(len, whole), reverse=True)
    assert len(whole[0]) - len(whole[-1]) <= 1
    assert [len(sampler) for sampler in samplers] == [len(each) for each in found]


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 3), st.booleans(), st.integers(0, 3))
def test_gl21_split_sampler_of_even_size(
    length: int, parts: int, repeat: int, shuffle: bool, seed: int
) -> None:
    parts = min(parts, length)
    each = -(-length // parts)
    for part in range(parts):
        own = set(range(length)[part * each : (part + 1) * each])
        sampler = SplitSampler(length, parts, part, True, repeat, shuffle, seed=seed)
        for _ in range(2):
            found = list(sampler)
            assert len(found) == len(sampler) == each * repeat
            for some in cut(found, each):
                assert own <= set(some) <= set(range(length))
                extra = list((Counter(some) - Counter(own)).elements())
                assert len(set(extra)) == len(extra) == each - len(own)


@given(st.integers(12, 30), st.integers(0, 3))
def test_gl21_split_sampler_shuffles_anew(length: int, seed: int) -> None:
    sampler = SplitSampler(length, 1, 0, repeat=2, seed=seed)
    orders = [tuple(part) for _ in range(2) for part in cut(list(sampler), length)]
    assert len(set(orders)) == 4
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(length))}
    same = SplitSampler(length, 1, 0, repeat=2, seed=seed)
    assert [tuple(part) for _ in range(2) for part in cut(list(same), length)] == orders


def test_gl21_part_index_is_checked() -> None:
    for wrong in ((10, 3, 3), (10, 3, -1), (2, 3, 0), (10, 0, 0)):
        with pytest.raises(ValueError, match="SplitSampler"):
            SplitSampler(*wrong)


HEAD = [
    "BaseSampler", "BoundedBudgetSampler", "BucketScheme", "ConstWidthBucket", "DatasetLoader",
    "ExpWidthBucket", "FixedBucketSampler", "LinearWidthBucket", "ShardedIterator",
    "SortedBucketSampler", "SortedSampler", "SplitSampler",
]  # fmt: skip


@pytest.mark.parametrize("name", HEAD)
def test_what_the_master_branch_has_is_here_or_said_not_to_be(name: str) -> None:
    is_here = name in gluon.__all__
    says = f"\n- `{name}`;" in (gluon.__doc__ or "")
    assert is_here is not says


@pytest.mark.parametrize("contiguous", [False, True])
def test_a_shard_of_a_pipeline_may_stand_for_a_sharded_iterator(contiguous: bool) -> None:
    def made(part: lz.Stage[Any, Any]) -> ShardedDataLoader:
        sampler = FixedBucketSampler(range(1, 12), 2, 3, shuffle=True, seed=0)
        return loader(11, batch_sampler=sampler.pipeline | part)

    parts = [lz.shard(num_shards=3, index=i, contiguous=contiguous) for i in range(3)]
    ranks = [made(part) for part in parts]
    for _ in range(2):
        assert sorted(joined(joined(ranks))) == TENS[:11]
    epoch, resumed = iter(ranks[0]), made(parts[0])
    next(epoch)
    resumed.load_state_dict(ranks[0].state_dict())
    assert list(resumed) == list(epoch)


def test_samplers_pickle() -> None:
    lengths = [3, 9, 4, 8, 2, 7]
    samplers: list[Any] = [
        SortedSampler(lengths),
        FixedBucketSampler(lengths, 2, num_buckets=2, shuffle=True, num_shards=2),
        SortedBucketSampler(lengths, 2, mult=2, shuffle=True),
        SplitSampler(7, 3, 1, even_size=True),
    ]
    for sampler in samplers:
        next(iter(sampler))
        copied = pickle.loads(pickle.dumps(sampler))
        assert [list(sampler), len(sampler)] == [list(copied), len(copied)]


def test_stages_are_placed_where_the_sampler_was_made() -> None:
    line = sys._getframe().f_lineno + 1
    sampler = SplitSampler(9, 3, seed=1)
    assert {call.site for call in sampler.pipeline.calls} == {f"{__file__}:{line}"}
