"""`gather`: the items it picks and reads, and the arguments it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing.laws import Stream
from tests.helpers import Costly, wants


@pytest.mark.parametrize("n", [9, 5000, 9000])
@pytest.mark.parametrize("step", [-1, -2, -100])
@pytest.mark.parametrize(
    "stage",
    [
        lz.shuffle(seed=0), lz.repeat(3), lz.repeat(), lz.shuffle(seed=1) | lz.repeat(2),
        lz.block_shuffle(7, seed=2), lz.shard(num_shards=2, index=1, remainder="repeat"),
        lz.shard(num_shards=2, index=1, remainder="repeat", contiguous=True) | lz.repeat(),
        lz.lru_cache(9),
        lz.skip(2), lz.map(str), lz.map(lambda x: x * 2, vectorized=True),
    ],
    ids=str,
)  # fmt: skip
def test_gather_falls_down_to_the_first_item(n: int, step: int, stage: Any) -> None:
    rising = lz.source(np.arange(n)) | stage | lz.take(n // 2)
    every = list(rising)
    falling = rising | lz.gather(range(len(every) - 1, -1, step))
    expected = every[::step]
    assert list(falling) == expected
    assert [falling[i] for i in range(0, len(falling), 500)] == expected[::500]
    batches = list(falling | lz.batch(64, collate=lz.stack))
    assert [item for batch in batches for item in batch] == expected


def test_gather_reads_what_it_gives_in_constant_memory_and_by_the_batch() -> None:
    data = Costly(10**12)
    pipeline = lz.source(data) | lz.gather(range(10**12 - 1, -1, -3))
    assert pipeline[10**11] == (10**12 - 1 - 3 * 10**11) * 10
    assert list(pipeline[5:6]) == [(10**12 - 16) * 10]
    assert len(data.read) == 2
    table = (
        lz.source(np.arange(50) * 10)
        | lz.gather(np.array([3, -1, 3]))
        | lz.batch(3, collate=lz.stack)
    )
    assert [b.tolist() for b in table] == [[30, 490, 30]]


def test_gather_over_an_endless_source() -> None:
    assert list(lz.count(5) | lz.gather([10, 0, 10]) | lz.repeat(2)) == [15, 5, 15] * 2
    testing.check_pipeline(lz.zip(lz.count(), lz.count(1)) | lz.gather([3, 0]), model=False)
    wants("index -1 is out of range for inf items", lambda: lz.count() | lz.gather([-1]))


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 4], "gather: index 4 is out of range for 4 items"),
        ([-5], "gather: index -5 is out of range for 4 items"),
        (range(2, 6), "gather: index 5 is out of range for 4 items"),
        (np.array([2**63], np.uint64), "gather: index 9223372036854775808 is out of range"),
        ([10**30], "gather: index 1000000000000000000000000000000 is out"),
        ([2**63 + 1, 3], "gather: index 9223372036854775809 is out of range"),
        ([np.uint64(2**53 + 1), 3], "gather: index 9007199254740993 is out of range"),
        ([0, -(2**63) - 1], "gather: index -9223372036854775809 is out of range"),
        (range(10**30, 10**30 + 1), "gather: index 1000000000000000000000000000000 is out"),
        (range(10**30), "gather: indices must be a range of at most 9223372036854775807 ints"),
        ([0, 1.0], "gather: indices must be ints, but index 1 is 1.0"),
        ([True], "gather: indices must be ints, but index 0 is True"),
        (np.array([0.0]), "gather: indices must be a range, list, tuple or one-dim"),
        (np.array([True]), "gather: indices must be a range, list, tuple or one-dim"),
        (np.zeros((2, 2), int), "gather: indices must be a range, list, tuple or one-dim"),
        ({0, 1}, "gather: indices must be a range, list, tuple or one-dim"),
        (3, "gather: indices must be a range, list, tuple or one-dim"),
        ("01", "gather: indices must be a range, list, tuple or one-dim"),
    ],
)
def test_gather_refuses(indices: Any, message: str) -> None:
    wants(message, lambda: lz.source(range(4)) | lz.gather(indices))


def test_a_range_of_one_index_may_have_any_step() -> None:
    found = lz.source(range(9)) | lz.gather(range(3, 8, 10**30))
    assert list(found) == [found[0]] == [3]


@pytest.mark.parametrize("kind", [list, tuple, lambda indices: np.array(indices, np.uint64)])
def test_large_indices_are_exact(kind: Any) -> None:
    exact = [np.uint64(2**53 + 1), 3, 2**60 - 1, np.uint8(7)]
    for endless in (lz.count(), lz.count() | lz.enumerate() | lz.map(lambda pair: pair[1])):
        pipeline = endless | lz.gather(kind([int(index) for index in exact]))
        assert list(pipeline) == [*map(int, exact)] == [pipeline[i] for i in range(4)]
    assert list(lz.count() | lz.gather(exact)) == [*map(int, exact)]


@pytest.mark.parametrize("index", [2**60, 2**63 - 1, 2**63 + 1])
@pytest.mark.parametrize("kind", [list, tuple, lambda indices: np.array(indices, np.uint64)])
def test_indices_too_large_to_count_are_refused(index: int, kind: Any) -> None:
    wants(f"gather: index {index} is beyond", lambda: lz.count() | lz.gather(kind([index, 5])))
    long = lz.source(range(2**40)) | lz.repeat(2**40)
    wants(f"gather: index {2**63} is beyond", lambda: long | lz.gather([2**63, 5]))
    wants(f"gather: index {2**63} is beyond", lambda: long | lz.gather(range(2**63, 5, -2)))


def test_gather_needs_something_to_index() -> None:
    wants("no random access", lambda: lz.source(Stream([1])) | lz.gather([0]))
    wants("index 0 is out of range for 0 items", lambda: lz.source([]) | lz.gather([0]))
    assert list(lz.source([]) | lz.gather([])) == []


def test_a_state_knows_which_indices_it_belongs_to() -> None:
    for one, other in (([0, 1], [0, 2]), (range(3), range(1, 4)), ([0] * 20, [0] * 19 + [1])):
        first, second = (lz.source(range(9)) | lz.gather(i) for i in (one, other))
        with pytest.raises(lz.StateMismatch, match="gather"):
            lz.run(second, lz.init(first))
