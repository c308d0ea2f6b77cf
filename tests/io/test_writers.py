"""Encoders: what formats are made of, and rows that don't fit into one."""

from __future__ import annotations

import datetime as dt
import enum
import tarfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.io import writers
from tests.io.cases import folder, zstd


def convert(rows: Any, form: Any, **given: Any) -> lz.io.Files:
    return lz.io.convert(rows, folder(), format=form, rows_per_file=given.pop("size", 4), **given)


def test_frames_end_where_rows_do_and_notice_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "FRAME", 64)
    (file,) = convert([f"{n:030}" for n in range(9)], "jsonl.zst", size=9)
    content = Path(file.path).read_bytes()
    info = zstd.get_frame_size(content)
    assert zstd.decompress(content[:info]).endswith(b'"\n')
    Path(file.path).write_bytes(
        content[: info - 1] + bytes([content[info - 1] ^ 1]) + content[info:]
    )
    with pytest.raises(lz.PipelineError, match="is damaged, or not zstd, from byte 0 on"):
        list(lz.io.iter_jsonl(file.path))


def test_parquet_has_groups_of_some_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "GROUP", 1000)
    files = convert([{"x": "y" * 100} for _ in range(50)], "parquet", size=40)
    found = [pyarrow.parquet.ParquetFile(file.path).metadata for file in files]
    assert [each.num_rows for each in found] == [40, 10]
    assert found[0].num_row_groups > 3
    assert found[0].row_group(0).num_rows < 10


def test_columns_are_those_of_any_row_of_the_first_file() -> None:
    rows = [{"a": 1}, {"b": "x"}, {}, {"b": "y", "a": 2}]
    files = convert([row or {"a": 9} for row in rows], "parquet", size=2)
    assert lz.io.read_parquet(files, index_dir=folder())[:] == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        {"a": 9, "b": None},
        {"a": 2, "b": "y"},
    ]


def test_texts_are_a_column_or_a_member() -> None:
    (file,) = convert(["to", "be"], "parquet")
    assert lz.io.read_parquet(file, index_dir=folder())[1] == {"text": "be"}
    (file,) = convert(["to", "be"], "tar")
    assert lz.io.read_tar(file, index_dir=folder())[1] == {"__key__": "000000001", "txt": b"be"}


def test_samples_have_their_keys_and_members_no_owner() -> None:
    (file,) = convert([{"__key__": "a/b", "txt": "ä", "x.y": b"1"}, {"n": 1}, [2]], "tar")
    assert lz.io.read_tar(file, index_dir=folder())[:] == [
        {"__key__": "a/b", "txt": "ä".encode(), "x.y": b"1"},
        {"__key__": "000000001", "json": b'{"n":1}'},
        {"__key__": "000000002", "json": b"[2]"},
    ]
    with tarfile.open(file.path) as archive:
        assert {(m.mtime, m.uid, m.uname) for m in archive} == {(0, 0, "")}


def test_values_of_numpy_are_json() -> None:
    row = {"a": np.arange(3), "b": np.float32(0.5), "c": np.bool_(True), "d": np.int64(7)}
    (file,) = convert([row], "jsonl.zst")
    assert lz.io.read_jsonl(file, index_dir=folder())[0] == {
        "a": [0, 1, 2], "b": 0.5, "c": True, "d": 7,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "int64"])
def test_tokens_are_documents_or_rows(dtype: str) -> None:
    rows: list[Any] = [[1, 2], [], np.array([3], np.uint8), range(4), []]
    files = convert(rows, "tokens", dtype=dtype, size=3)
    found = lz.io.read_tokens(files)
    assert [each.tolist() for each in found] == [[1, 2], [], [3], [0, 1, 2, 3], []]
    assert {each.dtype.name for each in found} == {dtype}
    assert [each.tolist() for each in lz.io.read_tokens(files, length=3)] == [[1, 2, 3], [0, 1, 2]]


@pytest.mark.parametrize(
    ("form", "row", "message"),
    [
        ("jsonl.zst", float("nan"), "JSON"),
        ("jsonl.zst", {"x": b"1"}, "bytes is not JSON; convert it by map"),
        ("jsonl.zst", "\ud800", "surrogates not allowed"),
        ("parquet", 3, "it must be a dict with names as keys, or a str"),
        ("parquet", {}, "it must be a dict with names as keys, or a str"),
        ("parquet", {1: 2}, "it must be a dict with names as keys, or a str"),
        ("tar", {}, "it has no values to write as members"),
        ("tar", {"__key__": "a"}, "it has no values to write as members"),
        ("tar", {"__key__": "a.b", "c": b""}, r"'a\.b\.c' would not be read as 'c' of 'a\.b'"),
        ("tar", {"JPG": b""}, "would not be read as 'JPG'"),
        ("tar", {"a\0": b""}, "would not be read as"),
        ("tar", {"__key__": "\0", "a": b""}, "would not be read as"),
        ("tar", {"__key__": "\udc80", "a": b""}, "surrogates not allowed"),
        ("tar", {"__key__": b"a", "txt": b""}, "its __key__ must be a str, got b'a'"),
        ("tar", {"__key__": "0", "txt": b""}, "it has the same key '0' as the row before it"),
        ("tokens", [1, 65536], "the token 65536 doesn't fit into uint16"),
        ("tokens", [-1], "the token -1 doesn't fit"),
        ("tokens", [[1]], "tokens must be one-dimensional ints"),
        ("tokens", [0.5], "tokens must be one-dimensional ints"),
        ("tokens", "text", "tokens must be one-dimensional ints"),
        ("tokens", np.ma.array([1, 2], mask=[0, 1]), "tokens must be one-dimensional ints"),
        ("tokens", [1, None], "tokens must be one-dimensional ints"),
        ("tokens", [True, False], "tokens must be one-dimensional ints"),
        ("tokens", [2**64], "tokens must be one-dimensional ints"),
    ],
)
def test_a_row_that_does_not_fit_is_named(form: str, row: Any, message: str) -> None:
    first: dict[str, Any] = {
        "jsonl.zst": 1,
        "parquet": {"a": 1},
        "tar": {"__key__": "0", "txt": b""},
        "tokens": [1],
    }
    with pytest.raises(lz.PipelineError, match=f"row 1 can't be written: .*{message}"):
        convert([first[form], row], form)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": 1}, {"a": "x"}], "row 1 can't be written: its 'a' is 'x': .*convert it by map"),
        ([{"a": 1, "b": 2}, {"b": {}}], "row 1 can't be written: its 'b' is {}: "),
        (
            [{"a": 1}, {"a": 1}, {"a": "x"}],
            "row 2 .* 'a' is 'x': .*; in earlier files it is int",
        ),
        ([{"a": 1}, {"a": 1}, {"b": 1}], "row 2 can't be written: it has 'b', a column that no"),
    ],
)
def test_a_column_that_does_not_fit_is_named(rows: list[Any], message: str) -> None:
    with pytest.raises(lz.PipelineError, match=message):
        convert(rows, "parquet", size=2)


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


UTC5 = dt.timezone(dt.timedelta(hours=5))
BERLIN = ZoneInfo("Europe/Berlin")
VALUES: list[Any] = [
    None, True, False, 0, 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, -0.0, 0.1, 1e308,
    float("nan"), float("inf"), "", "1", "é", "\0", "\ud800", "x" * 70_000, b"", b"1", b"\xff",
    bytearray(b"a"), *(np.dtype(each).type(1) for each in "?bhiqBHIQefdgFDSUV"),
    np.float32(0.1), np.float16("nan"), np.uint64(2**64 - 1), np.arange(2), np.array([]),
    np.array([0.1], "f4"), np.zeros((2, 2)), np.zeros((0, 2)), np.array(5), np.array(["a"]),
    np.array([None]), np.array([True]), np.ma.array([1, 2], mask=[0, 1]),
    [], [1], [0.1], [None], [None, 1], [[]], [[1], []], [True, 1], (), (1.5,), {1}, range(2),
    dt.date(2020, 1, 2), dt.date(1, 1, 1), dt.datetime(2020, 1, 2), dt.datetime.min,
    dt.datetime(2020, 1, 2, 3, 4, 5, 6), dt.datetime(2020, 1, 2, tzinfo=UTC5),
    dt.datetime.max, dt.datetime(2020, 1, 2, tzinfo=dt.UTC), dt.datetime(2020, 7, 2, tzinfo=BERLIN),
    dt.datetime(2020, 10, 25, 2, 30, tzinfo=BERLIN), dt.timedelta(seconds=1), dt.timedelta.max,
    dt.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=BERLIN), dt.time(1, 2), dt.time(1, tzinfo=UTC5),
    np.datetime64("2020-01-02"), np.datetime64("2020-01-02T00:00:00.000000001"),
    np.datetime64("NaT"), np.datetime64(1, "M"), np.timedelta64(1, "s"), np.timedelta64(1, "ns"),
    Decimal("1.5"), Decimal("12.25"), Decimal("1E+30"), Decimal("NaN"), Decimal("0." + "1" * 60),
    Fraction(1, 2), 1j, Colour.RED, Number.ONE,
    {}, {"u": 1}, {"u": 1.5}, {"u": None}, {"U": 1}, {"u": 2, "v": "x"}, {"u": {}}, {"u": []},
    {"u": [{"v": None}]}, {"": 1}, {1: 2}, {None: 1}, [{"u": 1}], [{"v": 1}], [{}], [("k", 1)],
]  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "jsonl.zst"])
def test_rows_come_back_equal_or_are_an_error(form: str) -> None:
    """Whatever came before them, and however many are in a file."""
    read = lz.io.read_parquet if form == "parquet" else lz.io.read_jsonl

    @settings(max_examples=max(50, settings.default.max_examples))
    @given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4), st.integers(1, 4))
    @example([1, 1.5], 1)
    @example([dt.date(2020, 1, 2), dt.datetime(2020, 1, 2, 3, 4)], 1)
    @example([{"u": 1}, {"u": 2, "v": "x"}], 1)
    @example(["é", b"1"], 2)
    @example([dt.time(1, 2), np.datetime64("2020-01-02T00:00:00.000000001")], 1)
    @example([np.datetime64("2020-01-02"), np.int8(3)], 2)
    def holds(values: list[Any], size: int) -> None:
        rows = [{"a": value} for value in values]
        try:
            files = convert(rows, form, size=size)
        except writers.Unwritable:
            with pytest.raises(writers.Unwritable, match=r"^row [0-3] can't be written: .*'a'"):
                convert(rows, form, size=size)
            return
        found = read(files, index_dir=folder())[:]
        assert all(_is_like(value, row["a"]) for value, row in zip(values, found, strict=True))

    holds()


def _is_like(given: Any, found: Any) -> bool:
    if isinstance(given, (np.datetime64, np.timedelta64)):
        return (
            found is None
            if np.isnat(given)
            else bool(found == given or given == type(given)(found))
        )
    given, found = (
        v.tolist() if isinstance(v, (np.generic, np.ndarray)) else v for v in (given, found)
    )
    if isinstance(given, (list, tuple)):
        return len(given) == len(found) and all(map(_is_like, given, found))
    if isinstance(given, dict):
        return all(_is_like(given.get(name), found[name]) for name in {*given, *found})
    if isinstance(given, dt.datetime) and given.utcoffset() != found.utcoffset():
        return False
    is_kind = (given is True or given is False) == (found is True or found is False)
    return is_kind and bool(given == found or (given != given and found != found))


def test_a_column_that_begins_with_nothing_has_the_type_of_what_comes() -> None:
    rows = [
        {"a": None, "b": [], "c": {"u": None}},
        {"a": None, "b": [], "c": {"u": 1}},
        {"a": "x", "b": [1.5], "c": {"u": 2}},
        {"a": "y", "b": [2.5], "c": {"u": 2.5}},
    ]
    for schema in (None, SCHEMA):
        files = convert(rows[:3], "parquet", size=1, schema=schema)
        assert all(map(_is_like, rows, lz.io.read_parquet(files, index_dir=folder())))
    with pytest.raises(
        writers.Unwritable, match=r"row 3 .*its 'c' is .*: it would be read as \{'u': 2\}"
    ):
        convert(rows, "parquet", size=1)


SCHEMA = pa.schema(
    [("a", pa.string()), ("b", pa.list_(pa.float64())), ("c", pa.struct([("u", pa.int8())]))]
)


def test_all_files_have_the_schema_that_is_given() -> None:
    files = convert([{"a": "x"}, {"b": [1]}, {"c": {"u": 1}}], "parquet", size=1, schema=SCHEMA)
    assert all(pyarrow.parquet.read_schema(file.path).equals(SCHEMA) for file in files)
    stamps = pa.schema([("t", pa.timestamp("ns"))])
    (file,) = convert([{"t": dt.datetime(1970, 1, 1, 0, 0, 0, 1)}], "parquet", schema=stamps)
    assert lz.io.read_parquet(file, index_dir=folder())[0]["t"] == dt.datetime(
        1970, 1, 1, 0, 0, 0, 1
    )
    for row, message in (
        ({"d": 1}, "it has 'd', a column that the schema doesn't have"),
        ({"c": {"u": 300}}, "in the schema it is struct<u: int8>"),
        (
            {"c": {"w": 3}},
            "its 'c' is .*: it would be read as .*in the schema it is struct<u: int8>",
        ),
    ):
        with pytest.raises(writers.Unwritable, match=message):
            convert([row], "parquet", schema=SCHEMA)


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(lz.ArgumentError, match=r"schema must be a pyarrow\.Schema, got \{'a'"):
        convert([{"a": 1}], "parquet", schema={"a": "int8"})
    with pytest.raises(lz.ArgumentError, match="schema is for Parquet only, and format is 'tar'"):
        convert([{"a": 1}], "tar", schema=SCHEMA)


def test_keys_that_json_does_not_have_are_named() -> None:
    for row in ({1: "a", "1": "b"}, {None: 1}, {"a": {True: 1}}):
        with pytest.raises(writers.Unwritable, match=r"row 0 .*it would be read as "):
            convert([row], "jsonl.zst")


UNFIT: list[tuple[Any, list[Any]]] = [  # types, and values that they don't have
    (pa.float16(), [2**31, 0.1, True]),
    (pa.float32(), [0.1, 2**24 + 1, True, Decimal("0.1")]),
    (pa.int8(), [1.5, 300, True]),
    (pa.bool_(), [1]),
    (pa.list_(pa.float32()), [[0.1], np.array([0.1]), [None, 0.1], [[0.1]]]),
    (pa.list_(pa.int8()), [bytearray(b"a"), [True], np.ma.array([1, 2], mask=[0, 1])]),
    (pa.struct([("u", pa.float32())]), [{"u": 0.1}, {"u": True}]),
    (pa.timestamp("s"), [dt.datetime(2020, 1, 2, 3, 4, 5, 6), 2**63 - 1]),
    (pa.timestamp("us", tz="UTC"), [dt.datetime(2020, 1, 2, tzinfo=UTC5), dt.datetime(2020, 1, 2)]),
    (pa.decimal128(5, 2), [Decimal("0.001"), Decimal("NaN"), 10**6]),
    (pa.map_(pa.string(), pa.int64()), [[None], [("k", 1), None], {"k": 0.5}]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), UNFIT, ids=lambda value: str(value)[:20])
def test_a_value_that_a_type_does_not_have_is_named(kind: Any, values: list[Any]) -> None:
    """Also with missing values next to it, which aren't arrays."""
    for value in values:
        for rows in ([{"a": value}], [{"a": None}, {"a": value}]):
            message = f"row {len(rows) - 1} can't be written: its 'a' is .*in the schema it is"
            with pytest.raises(writers.Unwritable, match=message):
                convert(rows, "parquet", schema=pa.schema([("a", kind)]))


def test_types_that_files_before_leave_open_fit_those_after() -> None:
    rows = [{"a": {"u": [{"v": None}]}}, {"a": []}]
    for size in (1, 2):
        with pytest.raises(writers.Unwritable, match=r"row 1 can't be written: its 'a' is \[\]"):
            convert(rows, "parquet", size=size)


def test_a_long_row_is_in_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "FRAME", 100)
    monkeypatch.setattr(writers, "LONGEST", 400)
    monkeypatch.setattr("lazyckpt.io.content.MOST", 500)
    rows = ["x" * 50, "y" * 3000, "z"]
    assert lz.io.read_jsonl(convert(rows, "jsonl.zst"), index_dir=folder())[:] == rows
