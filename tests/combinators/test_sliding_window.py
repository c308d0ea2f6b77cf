"""Windows, where the laws don't look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing import equal
from lazyckpt.testing.laws import Stream


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (lambda: lz.sliding_window(0), "width must be an int >= 1, got width=0"),
        (lambda: lz.sliding_window(2, stride=0), "stride must be an int >= 1"),
        (lambda: lz.sliding_window(True), "width must be an int >= 1, got width=True"),
        (lambda: lz.group_by(3), "key must be callable, got key=3"),
        (lambda: lz.split_batch(0), "n must be an int >= 1, got n=0"),
        (lambda: lz.batch(2, drop_last=True, pad=0), "drop_last=True and pad=0"),
    ],
)
def test_bad_arguments_are_named(stage: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        stage()


@given(n=st.integers(0, 30), width=st.integers(1, 8), stride=st.integers(1, 8))
def test_windows_have_length_access_and_the_states_of_a_stream(
    n: int, width: int, stride: int
) -> None:
    indexed = lz.source(range(n)) | lz.sliding_window(width, stride=stride)
    streamed = lz.source(Stream(range(n))) | lz.sliding_window(width, stride=stride)
    found = list(indexed)
    assert [indexed[i] for i in range(len(indexed))] == found == list(streamed)
    positions = [[s.position for _, s in lz.run(p).with_state()] for p in (indexed, streamed)]
    assert positions[0] == positions[1]


def test_a_window_keeps_none_and_arrays_and_shuffles_over_indices() -> None:
    rows = np.arange(6).reshape(3, 2)
    assert equal(list(rows | lz.sliding_window(2)), [(rows[0], rows[1]), (rows[1], rows[2])])
    assert list([None, None] | lz.sliding_window(2)) == [(None, None)]
    shuffled = lz.source(range(9)) | lz.sliding_window(3) | lz.shuffle(seed=0)
    assert sorted(shuffled) == [(i, i + 1, i + 2) for i in range(7)]


def test_windows_over_a_filter_resume_in_the_middle_of_an_overlap() -> None:
    testing.check_pipeline(
        lz.source(range(40)) | lz.filter(lambda x: x % 3) | lz.sliding_window(5, stride=2),
        model=True,
    )


def test_a_window_after_a_shard_is_rank_free() -> None:
    runs = [
        lz.run(lz.source(range(20)) | lz.shard(num_shards=2, index=i) | lz.sliding_window(3))
        for i in range(2)
    ]
    assert [next(run) for run in runs] == [(0, 2, 4), (1, 3, 5)]
    assert runs[0].state == runs[1].state
