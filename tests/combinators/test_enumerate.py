"""`enumerate` and `random_map`: what the laws can't see of them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream
from tests.combinators.cases import noise


def test_random_draws_depend_on_seed_epoch_and_number_alone() -> None:
    draws = lz.random_map(noise, seed=5)
    whole = list(lz.source(range(1500)) | draws)
    greedy = lz.random_map(lambda rng, item: (rng.random(item % 3), rng.random())[1], seed=5)
    assert [item[1:] for item in lz.source(list("x" * 1500)) | draws] == [i[1:] for i in whole]
    assert list(lz.source(Stream(range(1500))) | draws) == whole
    assert [(lz.source(range(1500)) | draws)[i] for i in (0, 1, 17, 900, 1499)] == [
        whole[i] for i in (0, 1, 17, 900, 1499)
    ]
    for start in (1, 16, 17, 400, 1400):
        state = lz.state_at(lz.source(range(1500)) | draws, start)
        assert list(lz.run(lz.source(range(1500)) | draws, state)) == whole[start:]
    assert list(lz.source(range(0, 30, 3)) | greedy) == [item[1] for item in whole[:10]]


def test_random_draws_are_uniform_and_differ_by_item_epoch_and_seed() -> None:
    n = 20_000
    drawn = lz.source(range(n)) | lz.random_map(lambda rng, _: rng.random(2), seed=0)
    first, second = np.array(list(drawn | lz.repeat(2))).reshape(2, n, 2)
    other = np.array(list(lz.source(range(n)) | lz.random_map(lambda r, _: r.random(2), seed=1)))
    series = [first[:, 0], first[:, 1], second[:, 0], other[:, 0], np.roll(first[:, 0], 1)]
    for each in series:
        counts = np.histogram(each, 50, (0, 1))[0]
        assert ((counts - n / 50) ** 2 / (n / 50)).sum() < 105  # chi square, 49 degrees
    assert np.abs(np.corrcoef(series) - np.eye(5)).max() < 5 / n**0.5


def test_a_half_used_draw_does_not_reach_the_next_item() -> None:
    """A 32-bit draw leaves its other half in the bit generator."""
    halves = lz.source([1, 0, 1, 0]) | lz.random_map(
        lambda rng, odd: [int(v) for v in rng.integers(2**32, size=1 + odd, dtype=np.uint32)],
        seed=0,
    )
    whole = lz.source([1, 1, 1, 1]) | lz.random_map(
        lambda rng, odd: [int(v) for v in rng.integers(2**32, size=2, dtype=np.uint32)], seed=0
    )
    assert [item[0] for item in halves] == [item[0] for item in whole]


def test_random_maps_within_one_another_have_their_own_generators() -> None:
    inner = lz.source(range(3)) | lz.random_map(noise, seed=0)
    alone = list(inner)
    outer = lz.source(range(3)) | lz.random_map(lambda rng, i: (inner[i], rng.random()), seed=0)
    assert [item[0] for item in outer] == alone
    same = lz.source(range(3)) | lz.random_map(lambda rng, i: (list(outer), rng.random()), seed=0)
    assert [item[1] for item in same] == [item[1] for item in outer]


def test_random_map_golden() -> None:
    found = list(
        lz.source([0, 0]) | lz.random_map(lambda rng, _: rng.bit_generator.random_raw(), seed=7)
    )
    assert found == RAW


RAW = [17791763316810972009, 11663316425665377338]


def test_enumerate_numbers_each_epoch_anew_and_jumps() -> None:
    letters = lz.source(["a", "b"]) | lz.enumerate(5)
    assert list(letters | lz.repeat(2)) == [(5, "a"), (6, "b")] * 2
    assert (lz.count() | lz.enumerate(-1))[10**12] == (10**12 - 1, 10**12)
    ranks = [lz.source(range(5)) | lz.enumerate() | lz.shard(num_shards=2, index=i) for i in (0, 1)]
    assert [[n for n, _ in rank] for rank in ranks] == [[0, 2, 4], [1, 3]]


DRAWS = lz.random_map(noise, seed=3)
BEFORE: dict[str, lz.Pipeline[Any]] = {
    "indices": lz.source(range(4000)),
    "shuffled": lz.source(range(100)) | lz.shuffle(seed=1) | lz.map(str) | lz.skip(3),
    "epochs": lz.source(range(10)) | lz.shuffle(seed=1) | lz.repeat(3),
    "stream": lz.source(Stream(range(40))) | lz.filter(bool),
    "expanded": lz.source(range(5)) | lz.flat_map(range) | lz.take(9),
    "sharded": lz.source(range(60)) | lz.shard(num_shards=2, index=1),
    "part": lz.source(range(60)) | lz.shard(num_shards=2, index=1, contiguous=True),
}


@pytest.mark.parametrize("before", BEFORE)
def test_behind_shard_draws_are_those_before_it(before: str) -> None:
    whole = BEFORE[before]
    for contiguous in (False, True)[: 1 + (whole.machine.skip is not None)]:
        for rank in range(3):
            mine = lz.shard(num_shards=3, index=rank, contiguous=contiguous)
            expected = list(whole | DRAWS | mine)
            assert list(whole | mine | DRAWS) == expected
            assert list(whole | mine | lz.tap(bool) | DRAWS) == expected
            again = whole | mine | DRAWS
            assert list(lz.run(again, lz.state_at(again, 2).to_json())) == expected[2:]


@pytest.mark.parametrize("executor", [lz.threads(2), lz.processes(2)], ids=str)
def test_draws_behind_shard_by_any_executor(executor: lz.Executor) -> None:
    for name in ("shuffled", "stream"):
        sharded = BEFORE[name] | lz.shard(num_shards=3, index=2) | lz.map(str)
        for pipeline in (sharded | DRAWS, sharded | lz.shuffle(4, seed=0) | DRAWS):
            with lz.run(pipeline, executor=executor) as run:
                assert list(run) == list(pipeline)


BETWEEN: list[lz.Stage[Any, Any]] = [
    lz.batch(2), lz.shuffle(seed=0), lz.shuffle(3, seed=0), lz.block_shuffle(4, seed=0),
    lz.filter(lambda x: x % 7), lz.flat_map(lambda x: [x] * 50), lz.repeat(2), lz.cache(4),
    lz.flat_map(range) | lz.batch(3) | lz.enumerate(), lz.shard(num_shards=2, index=0),
]  # fmt: skip


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("between", BETWEEN, ids=str)
def test_no_two_ranks_draw_the_same(between: lz.Stage[Any, Any], contiguous: bool) -> None:
    draws = lz.random_map(lambda rng, _: rng.random(), seed=0)
    data = lz.source(range(36))
    shards = [lz.shard(num_shards=4, index=rank, contiguous=contiguous) for rank in range(4)]
    every = [list(data | mine | between | draws) for mine in shards]
    joined = [
        list(lz.mix([data | mine | between, lz.count()], [1, 1], seed=0) | draws) for mine in shards
    ]
    zipped = [list(lz.zip(lz.count(), data | mine | between) | draws) for mine in shards]
    for ranks in (every, joined, zipped):
        drawn = list(chain.from_iterable(ranks))
        assert len({*drawn}) == len(drawn) > 0


def test_no_two_ranks_draw_the_same_of_lanes() -> None:
    draws = lz.random_map(lambda rng, _: rng.random(), seed=0)
    lanes = [lz.source(range(5)) | lz.filter(bool)] * 4
    ranks = [list(lz.lanes(lanes, num_shards=2, index=rank) | draws) for rank in (0, 1)]
    assert len({*ranks[0], *ranks[1]}) == 16
    rows = [lz.source(range(12)) | lz.shard(num_shards=2, index=rank) for rank in (0, 1)]
    for rank in (0, 1):
        both = lz.zip(rows[rank], rows[rank]) | lz.map(lambda pair: pair[0])
        assert list(both | DRAWS) == list(rows[rank] | DRAWS)
