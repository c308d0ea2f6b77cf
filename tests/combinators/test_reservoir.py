"""Shuffles within a buffer, at sizes where its blocks change."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.prng import derive, draws
from lazyckpt.testing.laws import Stream
from tests.combinators.long_orders import LENGTHS, keep_laws
from tests.helpers import Costly


@pytest.mark.parametrize("kind", [range, lambda n: Stream(range(n))], ids=["indexed", "stream"])
@settings(max_examples=15)
@given(n=LENGTHS, buffer=st.sampled_from([1, 2, 5, 255, 256, 257, 300, 600]), seed=st.integers(0))
def test_the_reservoir_keeps_the_laws_across_its_blocks(
    kind: Any, n: int, buffer: int, seed: int
) -> None:
    keep_laws(lz.source(kind(n)) | lz.shuffle(buffer, seed=seed))


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


@given(st.integers(0, 2**64), st.integers(1, 40), st.integers(0, 200))
def test_a_small_reservoir_moves_items_as_its_draws_say(seed: int, buffer: int, n: int) -> None:
    found = list(lz.source(range(n)) | lz.shuffle(buffer, seed=seed))
    slots = draws(derive(seed, "shuffle", "buffer", 0), buffer, max(n, buffer), buffer)
    held = list(range(min(n, buffer)))
    for t, slot in enumerate(slots.tolist(), start=buffer):
        assert found[t - buffer] == held[slot]
        held[slot] = t
    assert sorted(found[max(0, n - buffer) :]) == sorted(held)


def test_a_buffer_over_an_endless_stream_repeated() -> None:
    for endless in (lz.count(), lz.source(range(7)) | lz.repeat()):
        pipeline = endless | lz.repeat() | lz.shuffle(5, seed=0)
        steps = list(islice(lz.run(pipeline).with_state(), 40))
        for (_, state), (item, _) in pairwise(steps):
            assert next(lz.run(pipeline, state)) == item
