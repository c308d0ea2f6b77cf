"""Batches of one bucket each: which bucket, how long an item waits, the cost of a resume."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing.laws import Stream
from tests.combinators.cases import LENGTHS, same


def by_boundaries(bounds: Any = (10, 20), size: Any = 3, **more: Any) -> Any:
    return lz.bucket_by_boundaries(bounds, size, key=same, **more)


def test_a_length_at_a_boundary_is_in_the_upper_bucket() -> None:
    data = [9, 10, 19, 20, 9.5, 0, -1]
    assert list(data | by_boundaries()) == [[9, 9.5, 0], [-1], [10, 19], [20]]
    assert list(data | by_boundaries(drop_last=True)) == [[9, 9.5, 0]]
    assert list(data | by_boundaries(size=[5, 2, 1])) == [[10, 19], [20], [9, 9.5, 0, -1]]
    assert list([3, 1, 2] | by_boundaries(bounds=[], size=2)) == [[3, 1], [2]]


@pytest.mark.parametrize("length", [None, "a", float("nan"), np.zeros(2)])
def test_a_length_must_be_a_number(length: Any) -> None:
    with pytest.raises(TypeError, match="key must return a number, got"):
        list([1] | lz.bucket_by_boundaries([3], 2, key=lambda x: length))


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


def test_what_waited_and_is_gone_is_noticed() -> None:
    data = [1, 11, 2, 12, 3, 13]
    state = lz.state_at(lz.source(data) | by_boundaries(size=3), 1)
    assert state.position == ((0, 0), 5, (0, 2, 0))
    with pytest.raises(lz.SourceChanged, match="2 waited; there are now 5, of which 1"):
        list(lz.run(lz.source([1, 11, 2, 2, 3, 13]) | by_boundaries(size=3), state))


def test_many_buckets_fit_a_state() -> None:
    bounds = list(range(0, 2000, 20))
    pipeline = lz.source(range(10**6)) | lz.bucket_by_boundaries(
        bounds, 64, key=lambda x: x * 7919 % 2000
    )
    states = [s for _, s in islice(lz.run(pipeline).with_state(), 0, 400, 40)]
    assert max(len(s.to_json()) for s in states) <= 1024
    assert all(a.position != b.position for a, b in pairwise(states))
