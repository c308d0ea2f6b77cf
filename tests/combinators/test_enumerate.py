"""`enumerate` and `random_map`: what the laws can't see of them."""

from __future__ import annotations

import numpy as np

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
