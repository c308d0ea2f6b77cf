"""Files with one column in several types: types that can hold the values of all, and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lazyckpt as lz
from tests.io import tables
from tests.io.cases import check_reached
from tests.io.tables import FORMS


@pytest.fixture(params=FORMS)
def read(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A writer of one file per list of columns, and their reader."""
    form = request.param
    return lambda *found, **given: tables.read(tables.files_of(*found, form=form), **given)


def words(*found: Any) -> Any:
    return pa.array(found).dictionary_encode()


STRUCT = pa.struct([("u", pa.int8()), ("v", pa.string())])
COMMON: dict[str, tuple[list[Any], list[Any]]] = {
    "width": (
        [pa.array([1], pa.int8()), pa.array([300], pa.int16()), pa.array([2], pa.uint8())],
        [np.int16(1), np.int16(300), np.int16(2)],
    ),
    "sign": (
        [pa.array([1], pa.int32()), pa.array([2**31], pa.uint32())],
        [np.int64(1), np.int64(2**31)],
    ),
    "missing": ([pa.nulls(1), pa.array([7]), pa.nulls(1)], [None, np.int64(7), None]),
    "dictionary": ([words("a"), pa.array(["b"]), words("c")], ["a", "b", "c"]),
    "dictionaries": ([words(5), pa.array([6], pa.int8())], [np.int64(5), np.int64(6)]),
    "offsets": ([pa.array(["a"]), pa.array(["b"], pa.large_string())], ["a", "b"]),
    "lists": (
        [pa.array([[1]], pa.list_(pa.int8())), pa.array([[300]], pa.large_list(pa.int64()))],
        [np.array([1]), np.array([300])],
    ),
    "a size": (
        [pa.array([[1, 2]], pa.list_(pa.int8(), 2)), pa.array([[3]], pa.list_(pa.int8()))],
        [np.array([1, 2], np.int8), np.array([3], np.int8)],
    ),
    "sizes": (
        [pa.array([[1]], pa.list_(pa.int8(), 1)), pa.array([[3, 4]], pa.list_(pa.int64(), 2))],
        [np.array([1]), np.array([3, 4])],
    ),
    "empty lists": ([pa.array([[]]), pa.array([["a"]])], [[], ["a"]]),
    "structs": (
        [pa.array([{"u": 1, "v": None}], STRUCT), pa.array([{"u": 300, "v": "x"}])],
        [{"u": 1, "v": None}, {"u": 300, "v": "x"}],
    ),
}


@pytest.mark.parametrize("kind", COMMON)
def test_types_that_differ_by_no_value_are_one(kind: str, read: Callable[..., Any]) -> None:
    columns, expected = COMMON[kind]
    rows = read(*columns)
    check_reached(rows, [{"x": value} for value in expected])
    if kind in ("width", "sign"):
        dtypes = {batch["x"].dtype for batch in rows | lz.batch(1, collate=lz.stack)}
        assert dtypes == {expected[0].dtype}


def test_whether_a_column_may_miss_values_is_no_difference(read: Callable[..., Any]) -> None:
    sure = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    rows = read(pa.table({"x": [1, 2, 3]}, schema=sure), pa.array([None, 4]))
    assert [row["x"] for row in rows] == [1, 2, 3, None, 4]


@pytest.mark.parametrize(
    "columns",
    [
        [pa.array([1]), pa.array([1.5])],
        [pa.array([1]), pa.array([2**63], pa.uint64())],
        [pa.nulls(1), pa.array(["a"]), pa.array([b"a"])],
        [pa.array([1.5]), pa.array([1.5], pa.float32())],
        [words("a"), words(1)],
        [pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("us", "UTC"))],
        [pa.array([[1]]), pa.array([[1.5]])],
        [pa.array([{"u": 1}]), pa.array([{"v": 1}])],
    ],
)
def test_other_types_are_an_error_at_once(columns: Any, read: Callable[..., Any]) -> None:
    last = len(columns) - 1
    with pytest.raises(lz.ArgumentError, match=rf"'x' is .* in .*/00{last}\..*such as .*/000\.."):
        read(*columns)


def test_columns_that_are_not_read_may_be_of_any_type(read: Callable[..., Any]) -> None:
    found = pa.table({"x": [1], "y": [1]}), pa.table({"y": ["a"], "x": [2]})
    assert list(read(*found, columns=["x"])) == [{"x": 1}, {"x": 2}]


def test_a_column_that_only_some_files_have_is_an_error(read: Callable[..., Any]) -> None:
    less, more = pa.table({"x": [1]}), pa.table({"x": [2], "y": ["a"]})
    cases = ((less, more), 0, 1), ((less, less, more), 0, 2), ((more, less), 1, 0)
    for found, lacks, has in cases:
        names = rf"/00{lacks}\..* has no column 'y', which .*/00{has}\..* has"
        with pytest.raises(lz.ArgumentError, match=names):
            read(*found)
        assert len(read(*found, columns=["x"])) == len(found)


def test_two_columns_of_one_name_are_an_error_where_they_are_read(read: Callable[..., Any]) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["x", "y", "y"])
    with pytest.raises(lz.ArgumentError, match=r"/000\..* has 2 columns 'y'"):
        read(twice)
    once = pa.table({"x": [1], "y": [2]})
    with pytest.raises(lz.ArgumentError, match=r"/001\..* has 2 columns 'y'"):
        read(once, twice)
    assert list(read(once, twice, columns=["x"])) == [{"x": 1}, {"x": 1}]
