"""Segment boundaries, as attention over rows end to end uses them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=20)


def runs(rows: Any) -> list[int]:
    """Lengths of runs of one segment, row by row, padding included."""
    return [
        sum(1 for each in row if each == segment)
        for row in np.atleast_2d(rows).tolist()
        for segment in [*range(1, max(row) + 1), 0]
        if segment in row
    ]


@given(sizes=SIZES, batch_size=st.integers(1, 4))
def test_they_are_the_ends_of_the_segments(sizes: list[int], batch_size: int) -> None:
    rows = lz.source([[1] * size for size in sizes]) | lz.pack_best_fit(7, num_bins=2)
    batches = rows | lz.batch(batch_size, collate=lz.stack)
    for pipeline in (rows, batches):
        for row, found in zip(pipeline, pipeline | lz.map(lz.add_cu_seqlens), strict=True):
            lengths = runs(row["segment_ids"])
            assert found["cu_seqlens"].dtype == np.int32
            assert [b - a for a, b in pairwise(found["cu_seqlens"].tolist())] == lengths
            assert found["cu_seqlens"][0] == 0
            assert found["cu_seqlens"][-1] == row["segment_ids"].size
            assert found["max_seqlen"] == max(lengths)
            assert type(found["max_seqlen"]) is int
            assert found.keys() - row.keys() == {"cu_seqlens", "max_seqlen"}


def test_segments_of_one_number_in_two_rows_are_two() -> None:
    found = lz.add_cu_seqlens({"segment_ids": np.array([[1, 1], [1, 1]])})
    assert found["cu_seqlens"].tolist() == [0, 2, 4]


@pytest.mark.parametrize("rows", [3, None, {"tokens": [1]}, [[1]]])
def test_what_has_no_segments_is_named(rows: Any) -> None:
    with pytest.raises(TypeError, match="add_cu_seqlens: expected a row of a packed pipeline"):
        lz.add_cu_seqlens(rows)
