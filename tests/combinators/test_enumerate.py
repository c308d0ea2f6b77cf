"""`enumerate` and `random_map`, beyond the laws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.combinators.cases import noise
from tests.combinators.long_orders import keep_laws


def test_random_draws_keep_the_laws_over_many_items() -> None:
    keep_laws(lz.source(range(1500)) | lz.random_map(noise, seed=5))


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


DRAWS = lz.random_map(noise, seed=3)


BETWEEN: list[lz.Stage[Any, Any]] = [
    lz.batch(2), lz.shuffle(seed=0), lz.shuffle(3, seed=0), lz.block_shuffle(4, seed=0),
    lz.filter(lambda x: x % 7), lz.flat_map(lambda x: [x] * 50), lz.repeat(2), lz.lru_cache(4),
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


def test_no_two_parts_of_a_batch_draw_the_same() -> None:
    batches = lz.source(range(40)) | lz.batch(4)
    draws = lz.random_map(lambda rng, _: rng.random(), seed=0)
    parts = [batches | lz.shard_batch(num_shards=2, index=rank, key=int) | draws for rank in (0, 1)]
    assert len({*chain.from_iterable(parts)}) == 20


def test_no_two_ranks_draw_the_same_of_lanes() -> None:
    draws = lz.random_map(lambda rng, _: rng.random(), seed=0)
    lanes = [lz.source(range(5)) | lz.filter(bool)] * 4
    ranks = [list(lz.lanes(lanes, num_shards=2, index=rank) | draws) for rank in (0, 1)]
    assert len({*ranks[0], *ranks[1]}) == 16
    rows = [lz.source(range(12)) | lz.shard(num_shards=2, index=rank) for rank in (0, 1)]
    for rank in (0, 1):
        both = lz.zip(rows[rank], rows[rank]) | lz.map(lambda pair: pair[0])
        assert list(both | DRAWS) == list(rows[rank] | DRAWS)


AHEAD: list[lz.Stage[Any, Any]] = [
    lz.shuffle(seed=0), lz.filter(lambda x: x % 7), lz.flat_map(lambda x: [x] * (x % 3)),
]  # fmt: skip


@pytest.mark.parametrize("behind", [lz.tap(repr), lz.batch(2)], ids=str)
@pytest.mark.parametrize("ahead", AHEAD, ids=str)
def test_an_item_has_the_same_draws_on_any_number_of_ranks(
    ahead: lz.Stage[Any, Any], behind: lz.Stage[Any, Any]
) -> None:
    """Also on ranks that others have stopped for, at each item, and then on others again."""
    data = lz.source(range(40)) | ahead | lz.repeat(2)

    def rank(num_shards: int, index: int) -> lz.Pipeline[Any]:
        mine = data | lz.shard(num_shards=num_shards, index=index, remainder="drop")
        return mine | DRAWS | behind

    whole = [repr(item) for item in data | DRAWS]
    size = 2 if behind.calls[0].name == "batch" else 1
    for count in range(6):
        two = lz.state_at(rank(2, 0), count)
        assert two == lz.state_at(rank(2, 1), count)
        ranks = [rank(3, index) for index in range(3)]
        states = [lz.advance(each, lz.rebase(two, each), 2) for each in ranks]
        runs = [lz.run(rank(4, index), lz.rebase(states[0], rank(4, index))) for index in range(4)]
        found = [*chain.from_iterable(zip(*[flat(run) for run in runs], strict=True))]
        first = size * (2 * count + 3 * 2)
        assert found == whole[first : first + len(found)]
        assert len(whole) - first - len(found) < 4 * size


def flat(items: Iterable[Any]) -> Iterator[str]:
    for item in items:
        yield from map(repr, item if isinstance(item, list) else [item])
