"""Shuffles within a buffer: how well they mix, how much they hold, how much a resume reads."""

from __future__ import annotations

import gc
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream
from tests.combinators.long_orders import LENGTHS, keep_laws
from tests.helpers import Costly, Streamed


def batched(n: int) -> Any:
    """Random access without a table."""
    return lz.source(range(n)) | lz.batch(1, collate=lambda items: items[0])


def indexed(n: int) -> Any:
    return lz.source(range(n))


def stream(n: int) -> Any:
    return lz.source(Stream(range(n)))


@pytest.mark.parametrize("kind", [indexed, batched, stream])
@settings(max_examples=max(4, settings().max_examples // 4))
@given(n=LENGTHS, buffer=st.sampled_from([1, 2, 5, 33, 100, 257, 600]), seed=st.integers(0))
def test_it_keeps_the_laws_across_its_blocks(kind: Any, n: int, buffer: int, seed: int) -> None:
    keep_laws(kind(n) | lz.shuffle(buffer, seed=seed))


KINDS = (indexed, batched, stream)


class Held:
    """Items that count how many of them there are."""

    alive = most = 0

    def __init__(self, number: int) -> None:
        self.number = number
        Held.alive += 1
        Held.most = max(Held.most, Held.alive)

    def __del__(self) -> None:
        Held.alive -= 1


@pytest.mark.parametrize("buffer", [1, 17, 100, 1000])
@pytest.mark.parametrize("cut", [0, 750, 1490])
def test_it_holds_no_more_than_its_buffer(buffer: int, cut: int) -> None:
    pipeline = lz.source(Streamed(lambda: map(Held, range(1500)))) | lz.shuffle(buffer, seed=0)
    state = lz.state_at(pipeline, cut)
    gc.collect()
    before = Held.most = Held.alive
    for _ in lz.run(pipeline, state):
        pass
    assert Held.most - before <= buffer + 2  # and the item that was read last and yielded last


@pytest.mark.parametrize("buffer", [1, 10, 300, 1500])
def test_a_resume_over_a_stream_reads_two_buffers(buffer: int) -> None:
    pipeline = lz.source(Stream(range(12 * buffer + 30))) | lz.shuffle(buffer, seed=0)
    for n in range(0, 12 * buffer, max(1, buffer // 7)):
        anchor, given = lz.state_at(pipeline, n).position
        assert given == n
        assert 0 <= n - anchor[1] < buffer + max(96, buffer // 16)
        costs = lz.resume_cost(pipeline, lz.state_at(pipeline, n)).stages
        assert all(
            cost.items <= 2 * buffer + 64 * (buffer < 512)
            for cost in costs
            if cost.name == "shuffle"
        )


def test_a_resume_over_steps_reads_what_it_gives() -> None:
    data = Costly(5000)
    pipeline = lz.source(data) | lz.shuffle(100, seed=0)
    whole = list(pipeline)
    state = lz.state_at(pipeline, 3000)
    data.read.clear()
    assert list(islice(lz.run(pipeline, state), 5)) == whole[3000:3005]
    assert [10 * index for index in data.read] == whole[3000:3005]


@pytest.mark.parametrize("cut", [0, 1, 50, 99, 100, 3000, 4850, 4960])
def test_without_a_table_few_outputs_read_what_they_give(cut: int) -> None:
    """As the tasks of workers do."""
    data = Costly(5000)
    pipeline = lz.source(data) | lz.enumerate() | lz.shuffle(100, seed=0)
    whole, state = list(pipeline), lz.state_at(pipeline, cut)
    assert sorted(data.read) == [*range(5000)]
    data.read.clear()
    assert (given := list(islice(lz.run(pipeline, state), 40))) == whole[cut : cut + 40]
    assert data.read == [index for index, _ in given]


def test_items_that_take_longer_alone_are_read_in_order_from_the_start() -> None:
    data = Costly(5000)
    assert len(list(lz.source(data) | lz.sliding_window(9) | lz.shuffle(100, seed=0))) == 4992
    assert data.read == [*range(5000)]


def test_random_access_reads_what_is_asked_for() -> None:
    data = Costly(5000)
    pipeline = lz.source(data) | lz.shuffle(100, seed=0)
    whole = list(pipeline)
    data.read.clear()
    assert pipeline[4321] == whole[4321]
    assert data.read == [whole[4321] // 10]
    assert list(pipeline[100:2000:150]) == whole[100:2000:150]


def test_a_source_that_became_shorter_is_told() -> None:
    state = lz.state_at(stream(300) | lz.shuffle(20, seed=0), 250)
    with pytest.raises(lz.SourceChanged, match="after item 250 of a buffer that now has 240"):
        list(lz.run(stream(240) | lz.shuffle(20, seed=0), state))


def test_over_an_endless_stream_repeated() -> None:
    for endless in (lz.count(), lz.source(range(7)) | lz.repeat()):
        pipeline = endless | lz.repeat() | lz.shuffle(5, seed=0)
        steps = list(islice(lz.run(pipeline).with_state(), 40))
        for (_, state), (item, _) in pairwise(steps):
            assert next(lz.run(pipeline, state)) == item


def parity(x: int) -> int:
    return x % 2


@pytest.mark.parametrize("buffer_size", [1, 2, 5])
def test_a_resume_ends_where_a_straight_run_does(buffer_size: int) -> None:
    """A join notes which of its pipelines have ended, once it has asked them."""
    data = lz.source(range(4))
    joined = lz.case(data | lz.map(parity), data, data)
    pipeline = joined | lz.shuffle(buffer_size, seed=0)
    pairs = list(lz.run(pipeline).with_state())
    for cut, (_, state) in enumerate(pairs, 1):
        assert list(lz.run(pipeline, state).with_state()) == pairs[cut:]


@pytest.mark.parametrize(("buffer", "n"), [(100, 99), (512, 511), (600, 570), (1000, 960)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_near_the_end_of_a_stream_that_a_buffer_holds(
    kind: Any, buffer: int, n: int
) -> None:
    """All items are one permutation there, in which the first may come last."""
    late = []
    for seed in range(40):
        pipeline = kind(n) | lz.shuffle(buffer, seed=seed)
        whole = list(pipeline)
        late.append(n - 1 - whole.index(0))
        if min(late) == late[-1] < 40:
            for cut in (n - 40, n - late[-1] - 1, n - 1):
                assert list(lz.run(pipeline, lz.state_at(pipeline, cut))) == whole[cut:]
    assert min(late) < buffer // 16


SIZES = st.one_of(st.integers(1, 80), st.integers(1, 5000))


def order(size: int, seed: int, length: int) -> np.ndarray:
    return np.fromiter(indexed(length) | lz.shuffle(size, seed=seed), int)


@given(size=SIZES, seed=st.integers(0), buffers=st.floats(0, 8))
def test_no_item_moves_further_than_the_buffer_reaches(
    size: int, seed: int, buffers: float
) -> None:
    length = int(size * buffers)
    found = order(size, seed, length)
    assert sorted(found.tolist()) == list(range(length))
    if length > size:
        moved = found - np.arange(length)
        assert moved.max() < size
        assert -moved.min() < size + 32


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_distances_are_uniform(size: int) -> None:
    length = 60_000 + 40 * size
    moved = (order(size, 1, length) - np.arange(length))[2 * size : -2 * size]
    most = moved.std() * 3**0.5  # of a uniform distribution
    assert 0.7 * size < most < size
    assert np.abs(moved).max() < 1.25 * most
    inside = np.histogram(moved, bins=10, range=(-0.8 * most, 0.8 * most))[0]
    assert np.abs(inside / inside.mean() - 1).max() < 0.1
    assert abs(moved.mean()) < 0.02 * most


@pytest.mark.parametrize(("size", "most"), [(100, 0.15), (1000, 0.06), (10_000, 0.04)])
def test_neighbours_are_independent(size: int, most: float) -> None:
    """With one exception: no two items of a chunk move equally far, so fewer neighbours do."""
    found = order(size, 2, 60_000 + 40 * size)
    moved = (found - np.arange(len(found)))[2 * size : -2 * size].astype(float)
    for lag in (1, 2, 7):
        correlation = np.corrcoef(moved[:-lag], moved[lag:])[0, 1]
        assert abs(correlation) < most


@pytest.mark.parametrize("edge", ["begin", "end"])
def test_the_edges_are_mixed_too(edge: str) -> None:
    size, length = 200, 2000
    found = np.stack([order(size, seed, length) for seed in range(400)])
    if edge == "end":
        found = length - 1 - found[:, ::-1]
    first = found[:, 0]  # uniform over most of a buffer
    assert first.max() < size
    counts = np.histogram(first, bins=5, range=(0, 0.8 * size))[0]
    assert counts.min() > 45
    assert counts.max() < 115


def test_no_boundary_shows() -> None:
    """The mean number of the items around a place rises with it, without steps."""
    size, length = 1000, 8_000
    means = np.mean([order(size, seed, length) for seed in range(200)], axis=0)
    steps = (means - np.arange(length))[2 * size : -2 * size]
    assert np.abs(steps).max() < 0.25 * size


def test_two_epochs_are_independent() -> None:
    run = lz.run(indexed(20_000) | lz.shuffle(500, seed=0))
    one, two = (np.fromiter(run.epoch(), int) - np.arange(20_000) for _ in range(2))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.03


def test_golden_values() -> None:
    assert order(5, 0, 12).tolist() == [0, 1, 4, 2, 5, 3, 6, 8, 10, 7, 9, 11]
    assert order(64, 7, 400)[100:110].tolist() == [
        97,
        82,
        112,
        93,
        142,
        109,
        69,
        111,
        122,
        140,
    ]
