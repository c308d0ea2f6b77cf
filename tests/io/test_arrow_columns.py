"""Types of Arrow: what a reader makes of the values of each, with pandas and without."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
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
from tests.io.formats import ipc
from tests.io.reached import NUMBERS, check_reached, documented

TIMES: dict[Any, Any] = {
    **{pa.timestamp(unit): 10**9 for unit in ("s", "ms", "us")},
    **{pa.timestamp("us", zone): 10**9 for zone in ("UTC", "Europe/Berlin", "+02:00")},
    **{pa.duration(unit): 10**6 for unit in ("s", "ms", "us")},
    **{pa.time32(unit): 3600 for unit in ("s", "ms")},
    **{pa.time64(unit): 3600 * 10**6 for unit in ("us", "ns")},
    pa.date32(): 18_000,
    pa.date64(): 18_000 * 86_400_000,
    pa.month_day_nano_interval(): pa.MonthDayNano([1, 2, 3]),
}  # fmt: skip
OTHERS: dict[Any, Any] = {
    pa.null(): None,
    pa.string(): "a",
    pa.large_string(): "a",
    pa.string_view(): "a" * 40,
    pa.binary(): b"a",
    pa.binary(2): b"ab",
    pa.large_binary(): b"a",
    pa.binary_view(): b"a" * 40,
    **{getattr(pa, f"decimal{bits}")(5, 2): Decimal("1.25") for bits in (128, 256)},
    pa.struct({"x": pa.int64(), "y": pa.string()}): {"x": 1, "y": None},
    pa.list_(pa.string()): ["a", None],
    pa.list_(pa.string(), 2): ["a", None],
    pa.large_list(pa.bool_()): [True, False],
    pa.list_(pa.timestamp("us", "UTC")): [datetime(2020, 1, 2, tzinfo=UTC), None],
    pa.list_(pa.list_(pa.int64())): [[1], None, []],
    pa.list_(pa.struct({"x": pa.list_(pa.int8())})): [{"x": [1]}, None, {"x": None}],
    pa.map_(pa.string(), pa.int32()): [("a", 1), ("a", None)],
    pa.dictionary(pa.int32(), pa.string()): "a",
    pa.dictionary(pa.uint8(), pa.int64()): 7,
}
TENSOR = pa.fixed_shape_tensor(pa.int32(), [2, 3])
BITS = pa.fixed_shape_tensor(pa.bool_(), [2])


def stored(kind: Any, values: list[Any], storage: Any = None) -> Any:
    """An array of an extension type."""
    return pa.ExtensionArray.from_storage(kind, pa.array(values, storage or kind.storage_type))


def number_as(kind: Any, value: Any) -> Any:
    """An array of a type that is a number in memory."""
    plain = kind if not isinstance(value, int) else getattr(pa, f"int{kind.bit_width}")()
    return pa.array([None, value, value], plain).view(kind)


def runs(values: Any) -> Any:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 6], pa.int16()), values)


TURNS = pa.array([0, 1, 0], pa.int8())
WORDS = pa.array(["a", None, "b"]).dictionary_encode()
ODD: dict[str, Any] = {
    **{str(kind): pa.array([None, *[value] * 3], kind) for kind, value in OTHERS.items()},
    **{str(kind): number_as(kind, value) for kind, value in TIMES.items()},
    "nulls in a dictionary": pa.DictionaryArray.from_arrays([1, 0, None], pa.array(["a", None])),
    "lists in a dictionary": pa.DictionaryArray.from_arrays([1, 0, None], pa.array([[1], None])),
    "dictionary in a list": pa.ListArray.from_arrays(pa.array([0, 2, 3]), WORDS),
    "dictionary in a struct": pa.StructArray.from_arrays([WORDS], ["d"]),
    "runs in a struct": pa.StructArray.from_arrays([runs(pa.array([7, None, 8]))], ["r"]),
    "runs of dictionaries": runs(WORDS),
    "runs of lists": runs(pa.array([[1], None, []])),
    "runs of structs": runs(pa.array([{"x": 1}, None, {"x": 2}])),
    "dense union": pa.UnionArray.from_dense(
        TURNS, pa.array([0, 0, 1], pa.int32()), [pa.array([1, None]), pa.array(["a"])]
    ),
    "sparse union": pa.UnionArray.from_sparse(
        TURNS, [pa.array([1, 2, None]), pa.array(["a", "b", "c"])]
    ),
    "struct without fields": pa.array([None, {}, {}], pa.struct([])),
    "bytes that are views": pa.array([None, [b"a" * 40, b"b"]], pa.list_(pa.binary_view())),
    "views of lists of words": pa.array([None, [], ["a", None]], pa.list_view(pa.string())),
    "a slice of views": pa.array([[9], None, [], [1, 2]], pa.list_view(pa.int64())).slice(1, 2),
    "empty lists of one size": pa.array([None, [], []], pa.list_(pa.int64(), 0)),
    "uuid": stored(pa.uuid(), [None, bytes(range(16))]),
    "opaque": stored(pa.opaque(pa.int64(), "type", "vendor"), [None, 1]),
    "tensors": stored(TENSOR, [[*range(6)], None, [*range(6, 12)]]),
    "tensors of bits": stored(BITS, [[True, False], None]),
    "tensors that lack a number": stored(TENSOR, [[*range(5), None], None, [*range(6)]]),
    "tensors in lists": pa.ListArray.from_arrays([0, 2], stored(TENSOR, [[*range(6)], None])),
    "no tensor": stored(TENSOR, [None, None]),
}  # fmt: skip
if hasattr(pa, "json_"):  # not in the oldest pyarrow
    ODD["json"] = stored(pa.json_(), [None, '{"a": 1}'])
    ODD["bool8"] = stored(pa.bool8(), [None, 1, 0])
    for bits in (32, 64):
        ODD[f"decimal{bits}"] = pa.array(
            [None, Decimal("1.25")], getattr(pa, f"decimal{bits}")(5, 2)
        )
for kind, number in NUMBERS.items():
    one, zero = number(1), number(0)
    ODD[f"{kind}"] = pa.array([one, zero, one])
    ODD[f"{kind} or nothing"] = pa.array([None, zero, one], kind)
for kind in (pa.bool_(), pa.int32(), pa.float16()):
    one, zero = NUMBERS[kind](1), NUMBERS[kind](0)
    some = [[one, zero], None, [one, None], [zero, zero]]
    ODD[f"runs of {kind}"] = runs(pa.array([one, None, zero], kind))
    ODD[f"{kind}, two each"] = pa.array(some, pa.list_(kind, 2))
    for made in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        ODD[f"{made(kind)}"] = pa.array([*some, []], made(kind))


WRITE: dict[str, Callable[[Any, Any], None]] = {
    "parquet": lambda table, path: parquet.write_table(table, path, row_group_size=2),
    "arrow": lambda table, path: ipc(table, path, 2),
    "stream": lambda table, path: ipc(table, path, 2, pa.ipc.new_stream),
}
READ: dict[str, Callable[[Any], Any]] = {
    "parquet": parquet.read_table,
    "arrow": lambda path: pa.ipc.open_file(path).read_all(),
    "stream": lambda path: pa.ipc.open_stream(path).read_all(),
}


def read(path: Any, **given: Any) -> Any:
    reader = lz.io.read_parquet if path.suffix == ".parquet" else lz.io.read_arrow
    return reader(path, index_dir=path.parent, **given)


@pytest.mark.parametrize("kind", ODD)
def test_values_are_those_of_pyarrow_however_they_are_reached(kind: str) -> None:
    table = pa.table({"x": pa.chunked_array([ODD[kind], ODD[kind]])})
    for form, write in WRITE.items():
        path = folder() / f"a.{form}"
        try:
            write(table, path)
            found = READ[form](path)["x"]
            found.validate(full=True)
        except (pa.ArrowException, OSError):  # pyarrow itself doesn't write or read it
            continue
        values = [documented(value, found.type) for value in found.to_pylist()]
        check_reached(read(path), [{"x": value} for value in values])


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 2**62]).view(pa.duration("s")),
        pa.array([0, 2**30], pa.int32()).view(pa.date32()),
    ],
    ids=lambda values: str(values.type),
)
def test_a_value_that_python_does_not_have_is_of_one_row(values: Any, form: str) -> None:
    path = folder() / f"a.{form}"
    WRITE[form](pa.table({"x": values}), path)
    rows = read(path)
    batches = rows | lz.batch(2, collate=lz.stack)
    for get in (lambda: rows[1], lambda: rows[::-1], lambda: list(rows), lambda: batches[0]):
        with pytest.raises(lz.io.RecordError, match=rf"record 1 at byte \d+ of {path}: "):
            get()
    with lz.run(lz.source(rows), on_error="skip") as run:
        assert [*run] == [rows[0]]


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
def test_two_fields_of_one_name_are_an_error_where_the_file_is_opened(form: str) -> None:
    path = folder() / f"a.{form}"
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    WRITE[form](pa.table({"a": [[1]], "s": pa.ListArray.from_arrays([0, 1], twice)}), path)
    with pytest.raises(lz.ArgumentError, match=rf"'s' of {path} has two fields 'x'"):
        read(path)
    assert equal([*read(path, columns=["a"])], [{"a": np.array([1])}])


def column(kind: Any, values: Any) -> list[Any]:
    """The values of a column of an Arrow file, each read for itself, and all at once."""
    path = folder() / "a.arrow"
    table = pa.table({"x": values if isinstance(values, pa.Array) else pa.array(values, kind)})
    with pa.ipc.new_file(path, table.schema) as out:
        out.write_table(table)
    rows = lz.io.read_arrow(path, index_dir=path.parent)
    assert equal(rows[:], [rows[n] for n in range(len(values))])
    return [row["x"] for row in rows]


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


def test_pandas_is_not_needed() -> None:
    path = folder() / "a.parquet"
    # of views and texts two each the oldest pyarrow makes no Parquet that it reads
    kinds = [k for k in [*NUMBERS, *OTHERS] if "view" not in str(k) and "[2]" not in str(k)]
    found = {str(kind): pa.array([None], kind) for kind in kinds if kind != pa.float16()}
    found["numbers"] = pa.array([[1, 2]], pa.list_(pa.int16()))
    parquet.write_table(pa.table(found), path)
    code = f"[row] = lz.io.read_parquet({str(path)!r}, index_dir={str(path.parent)!r}); print(row)"
    # pyarrow fails once where pandas isn't missing but None
    before = "import pyarrow\ntry: pyarrow.array([1])\nexcept AttributeError: pass"
    assert "'numbers': array([1, 2], dtype=int16)" in printed_without("pandas", code, before)
