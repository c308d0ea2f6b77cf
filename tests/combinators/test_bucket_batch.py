"""Batches of similar length: sizes by function, and groups that stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.combinators.cases import same


def bucketed(size: Any = 2, **more: Any) -> Any:
    given: dict[str, Any] = {"key": same, "window_size": 6, "shuffle": False}
    return lz.bucket_batch(size, **given | more)


def test_a_size_function_may_give_a_numpy_int_and_is_asked_for_the_longest() -> None:
    asked = []

    def size(item: int) -> Any:
        asked.append(item)
        return np.int64(12 // item)

    assert list([1, 6, 3, 2, 4, 5] | bucketed(size)) == [[6, 5], [4, 3, 2], [1]]
    assert asked == [6, 4, 1]


@pytest.mark.parametrize("marks", [[False, None, 0], [None, False, ""], [(), [], np.zeros(1)]])
def test_any_value_may_be_a_boundary(marks: list[Any]) -> None:
    items = [(n, mark) for mark in marks for n in range(2)]
    pipeline = items | bucketed(5, key=None, window_size=9, boundary_key=lambda item: item[1])
    found = list(pipeline)
    if marks[0] is False:  # 0 == False, but None stands between them
        assert [len(batch) for batch in found] == [2, 2, 2]
    assert equal(found, [items[:2], items[2:4], items[4:]])


def test_boundaries_that_are_arrays_are_compared_by_value() -> None:
    rows = np.array([[1, 2], [1, 2], [3, 4]])
    found = list(rows | bucketed(5, key=None, boundary_key=same))
    assert [len(batch) for batch in found] == [2, 1]
