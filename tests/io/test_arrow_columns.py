"""Types of Arrow: the values that a reader returns for each, with pandas and without."""

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
from tests.io.cases import check_good_rows, check_reached, folder
from tests.io.tables import FORMS, NUMBERS, documented, files_of, read, write

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


READ: dict[str, Callable[[Any], Any]] = {
    "parquet": parquet.read_table,
    "arrow": lambda path: pa.ipc.open_file(path).read_all(),
    "stream": lambda path: pa.ipc.open_stream(path).read_all(),
}


@pytest.mark.parametrize("kind", ODD)
def test_values_are_those_of_pyarrow_however_they_are_reached(kind: str) -> None:
    table = pa.table({"x": pa.chunked_array([ODD[kind], ODD[kind]])})
    for form in FORMS:
        try:
            files = files_of(table, form=form)
            found = READ[form](files[0].path)["x"]
            found.validate(full=True)
        except (pa.ArrowException, OSError):  # pyarrow itself doesn't write or read it
            continue
        values = [documented(value, found.type) for value in found.to_pylist()]
        check_reached(read(files), [{"x": value} for value in values])


def no_text() -> Any:
    buffers = [None, pa.py_buffer(np.arange(4, dtype="i4")), pa.py_buffer(b"a\xffc")]
    return pa.Array.from_buffers(pa.string(), 3, buffers)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("codec", [None, "zstd"])
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([0, 2**62, 0]).view(pa.duration("s")), ""),
        (pa.array([0, 2**30, 0], pa.int32()).view(pa.date32()), ""),
        (no_text(), "'utf-8' codec"),
    ],
    ids=["duration", "date", "text"],
)
def test_a_value_that_python_does_not_have_is_of_one_row(
    values: Any, reason: str, codec: str | None, form: str
) -> None:
    path = folder() / f"a.{form}"
    write(pa.table({"n": range(3), "x": values}), path, form, 3, codec)
    rows = read(lz.io.files(path))
    message = rf"record 1 at byte \d+ of {path}: {reason}"
    check_good_rows(rows, [rows[0], None, rows[2]], message)


@pytest.mark.parametrize("form", FORMS)
def test_two_fields_of_one_name_are_an_error_where_the_file_is_opened(form: str) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    table = pa.table({"a": [[1]], "s": pa.ListArray.from_arrays([0, 1], twice)})
    files = files_of(table, form=form)
    with pytest.raises(lz.ArgumentError, match=rf"'s' of {files[0].path} has two fields 'x'"):
        read(files)
    assert equal([*read(files, columns=["a"])], [{"a": np.array([1])}])


def check_column(values: Any, expected: list[Any], form: str = "arrow") -> None:
    check_reached(read(files_of(values, form=form)), [{"x": value} for value in expected])


def test_views_may_stand_in_any_order_and_overlap() -> None:
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 1], pa.int32()), pa.array([2, 1, 3], pa.int32()), pa.array([1, 2, 3, 4])
    )
    check_column(views, [np.array([3, 4]), np.array([1]), np.array([2, 3, 4])])


def test_tensors_are_arrays_of_their_shape() -> None:
    for permutation in (None, [1, 0]):
        kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=permutation)
        values = [[*range(6)], None, [*range(6, 12)]]
        tensors = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
        found = [np.array(v, np.int32).reshape(2, 3) if v else None for v in values]
        expected = [v.T if permutation and v is not None else v for v in found]
        check_column(tensors, expected)
        check_column(tensors.slice(2), expected[2:])
        check_column(tensors.take([0, 2]), [expected[0], expected[2]], "parquet")


def test_pandas_is_not_needed() -> None:
    path = folder() / "a.parquet"
    # of views and texts two each the oldest pyarrow makes no Parquet that it reads
    kinds = [k for k in [*NUMBERS, *OTHERS] if "view" not in str(k) and "[2]" not in str(k)]
    found = {str(kind): pa.array([None], kind) for kind in kinds if kind != pa.float16()}
    found["numbers"] = pa.array([[1, 2]], pa.list_(pa.int16()))
    parquet.write_table(pa.table(found), path)
    code = f"[row] = lz.io.read_parquet({str(path)!r}, index_dir={str(path.parent)!r}); print(row)"
    # pyarrow fails once if pandas isn't missing but None
    before = "import pyarrow\ntry: pyarrow.array([1])\nexcept AttributeError: pass"
    assert "'numbers': array([1, 2], dtype=int16)" in printed_without("pandas", code, before)
