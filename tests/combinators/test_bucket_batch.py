"""Batches of similar length: refused arguments, groups that stay together, the cost of a resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import equal
from lazyckpt.testing.laws import Stream
from tests.combinators.cases import same


def bucketed(size: Any = 2, **more: Any) -> Any:
    given: dict[str, Any] = {"key": same, "window_size": 6, "shuffle": False}
    return lz.bucket_batch(size, **given | more)


@pytest.mark.parametrize(
    "pipeline",
    [
        lz.source(range(9)) | bucketed(lambda x: 1 + x),
        lz.source(range(9)) | bucketed(boundary_key=same),
        lz.source(range(9)) | lz.filter(bool) | bucketed(),
        lz.count() | bucketed(),
    ],
)
def test_where_only_reading_tells_there_is_none(pipeline: lz.Pipeline[Any]) -> None:
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(pipeline)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "2"])
def test_a_size_function_must_give_a_size(size: Any) -> None:
    with pytest.raises(lz.ArgumentError, match=r"batch_size\(item\) must be an int >= 1, got"):
        list([1, 2] | bucketed(lambda x: size))


def test_a_size_function_may_give_a_numpy_int_and_is_asked_for_the_longest() -> None:
    asked = []

    def size(item: int) -> Any:
        asked.append(item)
        return np.int64(12 // item)

    assert list([1, 6, 3, 2, 4, 5] | bucketed(size)) == [[6, 5], [4, 3, 2], [1]]
    assert asked == [6, 4, 1]


@pytest.mark.parametrize("odd", [None, "a", np.zeros(2)])
def test_keys_that_do_not_compare_are_named(odd: Any) -> None:
    with pytest.raises(TypeError, match=r"bucket_batch: keys .* can't be compared"):
        list([1, odd, 2] | bucketed())


def test_an_error_in_the_key_is_the_users_own() -> None:
    with pytest.raises(TypeError, match="'int' has no len"):
        list([1, 2] | bucketed(key=_unsized))


def _unsized(x: Any) -> int:
    raise TypeError("'int' has no len")


def test_the_sort_is_stable_and_no_key_is_no_sort() -> None:
    words = ["bb", "a", "cc", "ddd", "b"]
    assert list(words | bucketed(3, key=len)) == [["ddd", "bb", "cc"], ["a", "b"]]
    assert list(words | bucketed(3, key=None)) == [words[:3], words[3:]]


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


def test_a_window_that_became_shorter_is_noticed() -> None:
    state = lz.state_at(lz.source(Stream(range(6))) | bucketed(2), 2)
    shorter = lz.source(Stream(range(2))) | bucketed(2)
    with pytest.raises(lz.SourceChanged, match="after batch 2 of a window that now has 1"):
        list(lz.run(shorter, state))
