"""`lru_cache`: items that are read again, and items that are kept."""

from __future__ import annotations

import pickle

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream
from tests.helpers import Costly, wants


def test_a_cache_of_everything_reads_once_in_whatever_order_and_epoch() -> None:
    data = Costly(10)
    pipeline = lz.source(data) | lz.lru_cache(10) | lz.shuffle(seed=0) | lz.repeat(3) | lz.batch(4)
    assert sorted(i for b in pipeline for i in b) == sorted([i * 10 for i in range(10)] * 3)
    assert sorted(data.read) == list(range(10))


def test_a_cache_forgets_the_least_recently_used() -> None:
    data = Costly(5)
    pipeline = lz.source(data) | lz.lru_cache(2)
    for index in (0, 1, 0, 2, 0, 1):  # 2 replaces 1, and then 1 replaces 2
        assert pipeline[index] == index * 10
    assert data.read == [0, 1, 2, 1]


def test_a_cache_behind_a_batch_keeps_within_the_epoch() -> None:
    data = Costly(6)
    pipeline = lz.source(data) | lz.batch(2) | lz.lru_cache(3)
    assert [pipeline[i] for i in (0, 2, 0, 2)] == [[0, 10], [40, 50]] * 2
    assert data.read == [0, 1, 4, 5]


def test_a_cache_keeps_nothing_of_an_error_and_none_as_an_item() -> None:
    calls: list[int] = []

    def moody(item: int) -> None:
        calls.append(item)
        if len(calls) == 1:
            raise OSError("once")

    pipeline = lz.source([7]) | lz.map(moody) | lz.lru_cache(1)
    with pytest.raises(OSError, match="once"):
        pipeline[0]
    assert [pipeline[0], pipeline[0], calls] == [None, None, [7, 7]]


def test_a_cache_needs_random_access_and_pickles_empty() -> None:
    wants(
        "lru_cache: the pipeline before it has no random access",
        lambda: Stream([1]) | lz.lru_cache(2),
    )
    pipeline = pickle.loads(pickle.dumps(lz.source([1, 2]) | lz.lru_cache(2)))
    assert list(pipeline) == [1, 2]
    assert lz.run(lz.source([1, 2]) | lz.lru_cache(9), lz.init(pipeline)) is not None
