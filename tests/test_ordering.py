"""Shuffles and repeats at sizes where their inner blocks and windows change."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, pairwise
from typing import Any

import pytest
from case_helpers import Costly
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.core.prng import derive, draws
from lazyckpt.testing.laws import Stream

LAWS = ["meaning", "lanes", "resume", "exhaustion", "codec"]
LENGTHS = st.sampled_from([0, 1, 255, 256, 257, 511, 513, 700, 1024, 1500])


def keep_laws(pipeline: lz.Pipeline[Any]) -> None:
    for name in LAWS:
        testing.LAWS[name](pipeline, 4000)


@pytest.mark.parametrize("kind", [range, lambda n: Stream(range(n))], ids=["indexed", "stream"])
@settings(max_examples=15)
@given(n=LENGTHS, buffer=st.sampled_from([1, 2, 5, 255, 256, 257, 300, 600]), seed=st.integers(0))
def test_the_reservoir_keeps_the_laws_across_its_blocks(
    kind: Any, n: int, buffer: int, seed: int
) -> None:
    keep_laws(lz.source(kind(n)) | lz.shuffle(buffer, seed=seed))


@settings(max_examples=8)
@given(n=LENGTHS, block=st.sampled_from([7, 64, 256, 2000]), shards=st.integers(1, 3))
def test_views_keep_the_laws_across_their_windows(n: int, block: int, shards: int) -> None:
    shuffled = lz.source(range(n)) | lz.shuffle(seed=1) | lz.block_shuffle(block, seed=2)
    keep_laws(shuffled | lz.repeat(2) | lz.shard(num_shards=shards, index=shards - 1))


def test_permutations_keep_the_laws_beyond_what_is_sorted() -> None:
    keep_laws(lz.source(range(20_000)) | lz.shuffle(seed=1) | lz.skip(17_000) | lz.repeat(2))


@pytest.mark.parametrize("buffer", [10, 300, 5000])
def test_a_reservoir_resumed_over_a_stream_reads_about_twelve_buffers(buffer: int) -> None:
    data = Stream(range(40 * buffer + 3000))
    pipeline = lz.source(data) | lz.shuffle(buffer, seed=0)
    states = [lz.state_at(pipeline, n) for n in range(20 * buffer, 30 * buffer, buffer)]
    for state in states:
        anchor, start, given = state.position
        assert given == state.items
        assert anchor == (0, start)
        assert given + buffer - start < 30 * buffer + 512


def test_a_reservoir_resumed_over_indices_reads_what_it_holds() -> None:
    data = Costly(5000)
    pipeline = lz.source(data) | lz.shuffle(100, seed=0)
    whole = list(pipeline)
    state = lz.state_at(pipeline, 3000)
    data.read.clear()
    assert next(lz.run(pipeline, state)) == whole[3000]
    assert len(data.read) == 101
    assert data.read[-1] == 3100


@pytest.mark.parametrize(
    "shuffle", [lz.shuffle(seed=3), lz.shuffle(50, seed=3), lz.block_shuffle(50, seed=3)]
)
def test_each_epoch_and_each_seed_has_its_own_order(shuffle: lz.Stage[int, int]) -> None:
    pipeline = lz.source(range(200)) | shuffle | lz.repeat(3)
    every = list(pipeline)
    epochs = [every[i : i + 200] for i in (0, 200, 400)]
    assert all(sorted(epoch) == list(range(200)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(sum(a == b for a, b in zip(epochs[0], e, strict=True)) < 30 for e in epochs[1:])


def test_an_endless_repeat_within_a_repeat_never_uses_an_order_twice() -> None:
    inner = lz.source(range(50)) | lz.shuffle(seed=0) | lz.repeat() | lz.take(100)
    every = list(inner | lz.repeat(2))
    assert len({tuple(every[i : i + 50]) for i in range(0, 200, 50)}) == 4


@given(st.integers(0, 2**64), st.integers(1, 40), st.integers(0, 200))
def test_a_small_reservoir_moves_items_as_its_draws_say(seed: int, buffer: int, n: int) -> None:
    found = list(lz.source(range(n)) | lz.shuffle(buffer, seed=seed))
    slots = draws(derive(seed, "shuffle", "buffer", 0), buffer, max(n, buffer), buffer)
    held = list(range(min(n, buffer)))
    for t, slot in enumerate(slots.tolist(), start=buffer):
        assert found[t - buffer] == held[slot]
        held[slot] = t
    assert sorted(found[max(0, n - buffer) :]) == sorted(held)


@pytest.mark.parametrize("pipeline", [lz.source([]), lz.source(range(9)) | lz.filter(str)])
def test_an_endless_repeat_of_nothing_is_an_error(pipeline: Iterable[Any]) -> None:
    nothing = pipeline | lz.filter(lambda item: False) | lz.repeat()  # type: ignore[operator]
    with pytest.raises(lz.PipelineError, match="empty"):
        next(iter(nothing))
    with pytest.raises(lz.PipelineError, match="empty"):
        lz.step(nothing, lz.init(nothing))


def test_golden_orders() -> None:
    """Orders are promises: these must never change."""
    twelve = lz.source(range(12))
    assert list(twelve | lz.shuffle(seed=7)) == GOLDEN["shuffle"]
    assert list(twelve | lz.shuffle(4, seed=7)) == GOLDEN["shuffle(4)"]
    assert list(twelve | lz.block_shuffle(6, seed=7)) == GOLDEN["block_shuffle(6)"]
    large = lz.source(range(10**9)) | lz.shuffle(seed=7)
    assert list(islice(large, 4)) == GOLDEN["large"]


GOLDEN = {
    "shuffle": [8, 10, 1, 5, 2, 0, 9, 6, 11, 7, 4, 3],
    "shuffle(4)": [1, 2, 4, 6, 5, 7, 9, 10, 11, 3, 8, 0],
    "block_shuffle(6)": [3, 1, 2, 5, 4, 0, 8, 11, 6, 9, 10, 7],
    "large": [811551793, 787726071, 969828139, 619405118],
}


def test_a_buffer_over_an_endless_stream_repeated() -> None:
    for endless in (lz.count(), lz.source(range(7)) | lz.repeat()):
        pipeline = endless | lz.repeat() | lz.shuffle(5, seed=0)
        steps = list(islice(lz.run(pipeline).with_state(), 40))
        for (_, state), (item, _) in pairwise(steps):
            assert next(lz.run(pipeline, state)) == item
