"""Groups of equal keys, beyond the laws."""

from __future__ import annotations

import numpy as np

import lazyckpt as lz


def test_runs_of_array_keys_are_compared_by_value() -> None:
    rows = np.array([[1, 2], [1, 2], [3, 4]])
    assert [len(run) for _, run in rows | lz.group_by(lambda row: row)] == [2, 1]
    assert [len(run) for _, run in rows | lz.group_by(lambda row: (0, row))] == [2, 1]
    mixed = [1, 1.0, True, None, "a"] | lz.group_by(lambda x: x)
    assert [len(run) for _, run in mixed] == [3, 1, 1]
    empties = [np.empty(0), np.empty(0), np.empty((0, 2))]
    assert [len(run) for _, run in empties | lz.group_by(lambda row: row)] == [2, 1]


def test_one_object_is_equal_to_itself_whatever_its_equality_says() -> None:
    nan = float("nan")
    pipeline = lz.source([nan, nan, float("nan")]) | lz.group_by(lambda x: x)
    assert [len(run) for _, run in pipeline] == [2, 1]
    assert [len(lz.replay(pipeline, lz.state_at(pipeline, n))[1]) for n in range(2)] == [2, 1]
