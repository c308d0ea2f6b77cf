"""Batches of one bucket each: how long an item waits, and the cost of a resume."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing.laws import Stream
from tests.combinators.cases import LENGTHS, same


def by_boundaries(bounds: Any = (10, 20), size: Any = 3, **more: Any) -> Any:
    return lz.bucket_by_boundaries(bounds, size, key=same, **more)


@given(lengths=LENGTHS, wait=st.integers(2, 20))
def test_no_item_waits_for_longer_than_max_wait(lengths: list[int], wait: int) -> None:
    data = Stream(enumerate(lengths))
    pipeline = lz.source(data) | lz.bucket_by_boundaries(
        [10, 20], 7, key=lambda item: item[1], max_wait=wait
    )
    for batch, state in lz.run(pipeline).with_state():
        anchor, passed, _ = state.position
        assert passed <= wait
        assert anchor[1] + passed - batch[0][0] <= wait


def test_a_rare_bucket_is_read_again_from_its_oldest_item() -> None:
    data = [*range(10), 99, *[1] * 600, 99]
    testing.check_resume(lz.source(Stream(data)) | by_boundaries(size=2), limit=330)
    state = lz.state_at(lz.source(data) | by_boundaries(size=2), 300)
    assert state.position == ((0, 0), 601, (0, 0, 1))
    waiting = lz.state_at(lz.source(data) | by_boundaries(size=2, max_wait=100), 300)
    assert waiting.position[1] <= 100


def test_marks_are_kept_across_blocks() -> None:
    data = [(i * 7) % 25 for i in range(1200)]
    for name in ("meaning", "modes", "resume", "codec"):
        testing.LAWS[name](lz.source(Stream(data)) | by_boundaries(size=[5, 64, 11]), 200)


def test_many_buckets_fit_a_state() -> None:
    bounds = list(range(0, 2000, 20))
    pipeline = lz.source(range(10**6)) | lz.bucket_by_boundaries(
        bounds, 64, key=lambda x: x * 7919 % 2000
    )
    states = [s for _, s in islice(lz.run(pipeline).with_state(), 0, 400, 40)]
    assert max(len(s.to_json()) for s in states) <= 1024
    assert all(a.position != b.position for a, b in pairwise(states))
