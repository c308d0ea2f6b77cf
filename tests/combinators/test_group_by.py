"""Groups of equal keys, beyond the laws."""

from __future__ import annotations

import numpy as np
import pytest

import lazyckpt as lz


def test_runs_are_those_of_groupby() -> None:
    data = [1, 1.0, True, None, None, "a", float("nan"), 2, 2, 1]
    assert [run for _, run in data | lz.group_by(lambda x: x)] == [
        [1, 1.0, True], [None, None], ["a"], data[6:7], [2, 2], [1],
    ]  # fmt: skip
    assert list([0, False, None] | lz.group_by(bool)) == [(False, [0, False, None])]


def test_runs_of_array_keys_are_compared_by_value() -> None:
    rows = np.array([[1, 2], [1, 2], [3, 4]])
    assert [len(run) for _, run in rows | lz.group_by(lambda row: row)] == [2, 1]
    assert [len(run) for _, run in rows | lz.group_by(lambda row: (0, row))] == [2, 1]
    empties = [np.empty(0), np.empty(0), np.empty((0, 2))]
    assert [len(run) for _, run in empties | lz.group_by(lambda row: row)] == [2, 1]


class Odd:
    def __eq__(self, other: object) -> bool:
        raise ArithmeticError("no")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "odd"


def test_keys_that_do_not_compare_are_named() -> None:
    with pytest.raises(TypeError, match="group_by: keys odd and odd can't be compared"):
        list([1, 2] | lz.group_by(lambda x: Odd()))


def test_one_object_is_equal_to_itself_whatever_its_equality_says() -> None:
    nan = float("nan")
    pipeline = lz.source([nan, nan, float("nan")]) | lz.group_by(lambda x: x)
    assert [len(run) for _, run in pipeline] == [2, 1]
    assert [len(lz.replay(pipeline, lz.state_at(pipeline, n))[1]) for n in range(2)] == [2, 1]
