"""Bucket schemes and `FixedBucketSampler`, against naive models."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.compat.gluon import (
    BucketScheme,
    ConstWidthBucket,
    ExpWidthBucket,
    FixedBucketSampler,
    LinearWidthBucket,
)
from tests.compat.gluon.cases import WARNS, cut, loader

SCHEMES = [ConstWidthBucket(), LinearWidthBucket(), ExpWidthBucket(), ExpWidthBucket(2)]


def naive_keys(scheme: BucketScheme, longest: int, shortest: int, number: int) -> list[int]:
    if isinstance(scheme, ConstWidthBucket):
        width = max((1 + longest - shortest) // number, 1)
        return [max(longest - i * width, shortest) for i in range(number)]
    if isinstance(scheme, LinearWidthBucket):
        alpha = 2 * float(longest - shortest - number) / (number * (number + 1))
        widths = [sum(alpha * j for j in range(1, i + 2)) + i + 1 for i in range(number)]
    else:
        assert isinstance(scheme, ExpWidthBucket)
        step = scheme.bucket_len_step
        whole = sum(step**j for j in range(number))
        span = longest - shortest
        widths = [span * sum(step**j for j in range(i + 1)) / whole for i in range(number)]
    keys = [round(shortest + width) for width in widths]
    return [*keys[:-1], max(keys[-1], longest)]


@given(st.sampled_from(SCHEMES), st.integers(1, 60), st.integers(0, 200), st.integers(1, 15))
def test_gl17_bucket_schemes(scheme: BucketScheme, least: int, span: int, number: int) -> None:
    keys = scheme(least + span, least, number)
    naive = naive_keys(scheme, least + span, least, number)
    assert len(keys) == number
    assert all(abs(a - b) <= 1 for a, b in zip(keys, naive, strict=True))  # a tie may round
    assert sum(a != b for a, b in zip(keys, naive, strict=True)) <= 2
    assert max(keys) >= least + span
    pairs = scheme((least + span, least), (least, least), number)
    assert pairs == list(zip(keys, scheme(least, least, number), strict=True))


def test_gl17_bucket_schemes_by_hand() -> None:
    assert ConstWidthBucket()(20, 1, 4) == [20, 15, 10, 5]
    assert LinearWidthBucket()(21, 1, 4) == [4, 8, 14, 21]
    assert ExpWidthBucket(2)(31, 1, 4) == [3, 7, 15, 31]
    assert ExpWidthBucket(1)(41, 1, 4) == [11, 21, 31, 41]
    with pytest.raises(ValueError, match="bucket_len_step must be a number above 0"):
        ExpWidthBucket(0)


class Naive:
    """FixedBucketSampler, unshuffled, in loops."""

    def __init__(
        self, lengths: list[Any], size: int, keys: list[Any], ratio: float, average: bool
    ) -> None:
        def total(key: Any) -> int:
            return sum(key) if isinstance(key, tuple) else key

        def fits(length: Any, key: Any) -> bool:
            pair = [(length, key)] if isinstance(key, int) else zip(length, key, strict=True)
            return all(a <= b for a, b in pair)

        buckets: dict[Any, list[int]] = {key: [] for key in sorted(set(keys))}
        for index, length in enumerate(lengths):
            fitting = [key for key in buckets if fits(length, key)]
            buckets[min(fitting, key=lambda key: total(key) - total(length))].append(index)
        self.buckets = {key: bucket for key, bucket in buckets.items() if bucket}
        self.sizes = {}
        for key, bucket in self.buckets.items():
            if average:
                some = [x for i in bucket for x in np.atleast_1d(lengths[i]).tolist()]
                self.sizes[key] = max(int(size / (fmean(some) + pstdev(some))), 1)
            else:
                most = max(map(total, self.buckets))
                self.sizes[key] = max(int(most / float(total(key)) * ratio * size), size)
        self.batches = [
            part
            for key in reversed(self.buckets)
            for part in cut(self.buckets[key], self.sizes[key])
        ]

    def sharded(self, shards: int) -> list[Any]:
        if not shards:
            return self.batches
        found = []
        for start in range(0, len(self.batches), shards):
            begin = max(0, min(start, len(self.batches) - shards))
            found.append(self.batches[begin : begin + shards])
        return found


@st.composite
def bucketings(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    length = draw(
        st.sampled_from([st.integers(1, 40), st.tuples(st.integers(1, 20), st.integers(1, 20))])
    )
    lengths = draw(st.lists(length, min_size=1, max_size=40))
    average = draw(st.booleans())
    options = {
        "batch_size": draw(st.integers(1, 100 if average else 8)),
        "num_buckets": draw(st.integers(1, 12)),
        "ratio": 0 if average else draw(st.sampled_from([0, 0.5, 1.5])),
        "use_average_length": average,
        "bucket_scheme": draw(st.sampled_from(SCHEMES)),
    }
    return lengths, options


def naive_of(lengths: list[Any], options: dict[str, Any]) -> Naive:
    table = np.array(lengths)
    kind = (lambda row: tuple(row.tolist())) if table.ndim > 1 else int
    scheme, number = options["bucket_scheme"], options["num_buckets"]
    keys = scheme(kind(table.max(0)), kind(table.min(0)), number)
    average = options["use_average_length"]
    return Naive(lengths, options["batch_size"], keys, options["ratio"], average)


@WARNS
@given(bucketings(), st.integers(0, 9))
def test_gl17_gl18_fixed_bucket_sampler_and_its_len(case: Any, shards: int) -> None:
    lengths, options = case
    sampler = FixedBucketSampler(lengths, num_shards=shards, **options)
    naive = naive_of(lengths, options)
    assert list(sampler) == naive.sharded(shards) == list(sampler)
    assert len(sampler) == len(list(sampler)) == -(-len(naive.batches) // max(shards, 1))
    assert sampler.stats() == (
        f"FixedBucketSampler:\n  sample_num={len(lengths)}, batch_num={len(naive.batches)}\n"
        f"  key={list(naive.buckets)}\n  cnt={[len(b) for b in naive.buckets.values()]}\n"
        f"  batch_size={list(naive.sizes.values())}"
    )


@WARNS
@given(bucketings(), st.integers(0, 9), st.integers(0, 3))
def test_gl17_gl18_shuffled_buckets_are_the_same_sets(case: Any, shards: int, seed: int) -> None:
    lengths, options = case
    naive = naive_of(lengths, options)
    bucket_of = {i: key for key, bucket in naive.buckets.items() for i in bucket}

    def make() -> FixedBucketSampler:
        return FixedBucketSampler(lengths, shuffle=True, num_shards=shards, seed=seed, **options)

    sampler = make()
    epochs = [list(sampler) for _ in range(3)]
    assert {len(epoch) for epoch in epochs} == {len(sampler)}
    same = make()
    assert [list(same) for _ in range(3)] == epochs
    for epoch in epochs:
        batches = [part for group in epoch for part in group] if shards else epoch
        unique = {tuple(part) for part in batches}
        assert sorted(i for part in unique for i in part) == list(range(len(lengths)))
        sizes = Counter((bucket_of[part[0]], len(part)) for part in unique)
        assert sizes == Counter((bucket_of[part[0]], len(part)) for part in naive.batches)
        assert all(len({bucket_of[i] for i in part}) == 1 for part in unique)
    flat = [str(epoch) for epoch in epochs]
    assert len(set(flat)) == 3 or len(lengths) < 12


@WARNS
def test_gl17_bucket_keys_and_arguments() -> None:
    lengths = [1, 5, 9, 3]
    assert list(FixedBucketSampler(lengths, 2, bucket_keys=[9, 3])) == [[1, 2], [0, 3]]
    pairs = FixedBucketSampler([(1, 9), (9, 1)], 1, bucket_keys=[(9, 9), (2, 9)])
    assert list(pairs) == [[1], [0]]
    floats = FixedBucketSampler(np.array([2.0, 1.0]), 2, 1)
    assert list(floats) == [[0, 1]]
    with pytest.raises(ValueError, match=r"no bucket fits lengths\[2\]=9"):
        FixedBucketSampler(lengths, 2, bucket_keys=[5])
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "lengths must not be empty"),
        ([0, 1], {}, "lengths must be ints >= 1"),
        ([1.5], {}, "lengths must be ints >= 1"),
        (lengths, {"batch_size": 0}, "batch_size must be an int >= 1"),
        (lengths, {"ratio": -1}, "ratio must be a number >= 0"),
        (lengths, {"num_buckets": 0}, "num_buckets must be an int >= 1"),
        (lengths, {"num_shards": -1}, "num_shards must be an int >= 0"),
        (lengths, {"bucket_keys": []}, "bucket_keys must be ints"),
        (lengths, {"bucket_keys": [(1, 2)]}, "bucket_keys must be ints"),
        (lengths, {"shuffle": 1}, "shuffle must be True or False"),
    ]
    for given_lengths, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            FixedBucketSampler(given_lengths, **{"batch_size": 2, **options})


def test_gl17_what_is_left_out_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"dropped: \[4\]"):
        FixedBucketSampler([1, 9], 1, bucket_keys=[2, 4, 9])
    with pytest.warns(UserWarning, match=r"ratio=0.5 is not used"):
        FixedBucketSampler([1], 9, 1, ratio=0.5, use_average_length=True)


@pytest.mark.parametrize("shards", range(3, 12))
def test_gl19_fewer_batches_than_shards_lose_none(shards: int) -> None:
    sampler = FixedBucketSampler([1, 2, 3], 1, 1, num_shards=shards)
    assert list(sampler) == [[[0], [1], [2]]]
    assert len(sampler) == 1
    made = loader(3, batch_sampler=sampler)
    assert list(made) == [[[0], [10], [20]]]
