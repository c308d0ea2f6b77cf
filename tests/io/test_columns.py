"""Types of Arrow: what a reader makes of the values of each, with pandas and without."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.helpers import printed_without
from tests.io.cases import folder

NUMBERS: dict[Any, Any] = {
    pa.bool_(): np.bool_,
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
    pa.float16(): np.float16,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}
OTHERS: dict[Any, Any] = {
    pa.null(): None,
    pa.string(): "a",
    pa.large_string(): "a",
    pa.binary(): b"a",
    pa.binary(2): b"ab",
    pa.large_binary(): b"a",
    pa.date32(): date(2020, 1, 2),
    pa.date64(): date(2020, 1, 2),
    pa.time32("s"): time(1, 2),
    pa.time64("us"): time(1, 2),
    pa.timestamp("us"): datetime(2020, 1, 2),
    pa.timestamp("us", "UTC"): datetime(2020, 1, 2, tzinfo=UTC),
    pa.duration("us"): timedelta(1),
    pa.decimal128(5, 2): Decimal("1.25"),
    pa.decimal256(5, 2): Decimal("1.25"),
    pa.struct({"x": pa.int64()}): {"x": 1},
    pa.list_(pa.string()): ["a"],
    pa.map_(pa.string(), pa.int32()): [("a", 1)],
    pa.dictionary(pa.int32(), pa.string()): "a",
}


def column(kind: Any, values: Any) -> list[Any]:
    """The values of a column of an Arrow file, each read for itself, and all at once."""
    path = folder() / "a.arrow"
    table = pa.table({"x": values if isinstance(values, pa.Array) else pa.array(values, kind)})
    with pa.ipc.new_file(path, table.schema) as out:
        out.write_table(table)
    rows = lz.io.read_arrow(path, index_dir=path.parent)
    assert equal(rows[:], [rows[n] for n in range(len(values))])
    return [row["x"] for row in rows]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_numbers_are_those_of_numpy(kind: Any) -> None:
    number = NUMBERS[kind]
    one, zero = number(1), number(0)
    assert equal(column(kind, [one, zero]), [one, zero])
    assert equal(column(kind, [None, one, zero]), [None, one, zero])
    lists = [[one, zero], None, [], [one, None]]
    some = [np.array([one, zero]), None, np.array([], number), [pa.scalar(one, kind).as_py(), None]]
    assert equal(column(pa.list_(kind), lists), some)
    assert equal(column(pa.list_(kind, 2), lists[:2]), some[:2])
    for view in (pa.list_view(kind), pa.large_list_view(kind)):
        assert equal(column(view, lists), some)


def test_views_may_stand_in_any_order_and_overlap() -> None:
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 1], pa.int32()), pa.array([2, 1, 3], pa.int32()), pa.array([1, 2, 3, 4])
    )
    expected = [np.array([3, 4]), np.array([1]), np.array([2, 3, 4])]
    assert equal(column(views.type, views), expected)


@pytest.mark.parametrize("values", [[7, None], ["a", None]])
def test_runs_are_what_they_hold(values: list[Any]) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int16()), pa.array(values))
    one = np.int64(7) if values[0] == 7 else "a"
    assert equal(column(runs.type, runs), [one, one, None])


def test_tensors_are_arrays_of_their_shape() -> None:
    for permutation in (None, [1, 0]):
        kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=permutation)
        values = [[*range(6)], None, [*range(6, 12)]]
        tensors = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
        found = [np.array(v, np.int32).reshape(2, 3) if v else None for v in values]
        expected = [v.T if permutation and v is not None else v for v in found]
        assert equal(column(kind, tensors), expected)
        assert equal(column(kind, tensors.slice(2)), expected[2:])
        path = folder() / "a.parquet"
        parquet.write_table(pa.table({"x": tensors.take([0, 2])}), path)
        rows = lz.io.read_parquet(path, index_dir=path.parent)
        (batch,) = rows | lz.batch(2, collate=lz.stack)
        assert equal([*batch["x"], rows[1]["x"]], [expected[0], expected[2], expected[2]])


@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_other_values_are_those_of_python(kind: Any) -> None:
    assert equal(column(kind, [OTHERS[kind], None]), [OTHERS[kind], None])


def test_pandas_is_not_needed() -> None:
    path = folder() / "a.parquet"
    kinds = [*NUMBERS, *OTHERS]
    found = {str(kind): pa.array([None], kind) for kind in kinds if kind != pa.float16()}
    found["numbers"] = pa.array([[1, 2]], pa.list_(pa.int16()))
    parquet.write_table(pa.table(found), path)
    code = f"[row] = lz.io.read_parquet({str(path)!r}, index_dir={str(path.parent)!r}); print(row)"
    assert "'numbers': array([1, 2], dtype=int16)" in printed_without("pandas", code)
