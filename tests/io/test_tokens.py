"""Tokens: rows of a length, documents, and what holds them."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.io import tokens
from lazyckpt.io.storage import storage_of
from lazyckpt.testing import equal
from tests.io import formats
from tests.io.cases import check_reader, folder, written
from tests.io.contents import Contents
from tests.io.laws import put

FEW = settings(max_examples=max(5, settings.default.max_examples // 6))
TYPES = st.sampled_from(["u2", "u4", "i4", "u1"])


def listed(found: list[NDArray[Any]], kind: str) -> lz.io.Files:
    """Arrays as files of a kind."""
    place = folder()
    for number, values in enumerate(found):
        path = f"{place}/{number:03}.{kind}"
        if kind == "bin":
            values.tofile(path)
        elif kind == "npy":
            np.save(path, values)
        else:
            np.savez(path, tokens=values)
    return lz.io.files(f"{place}/*.{kind}")


def megatron(files: list[list[list[int]]]) -> lz.io.Files:
    """Documents of one sequence each, with an index beside them."""
    return lz.io.files(f"{put(Contents(formats.megatron(files), []))}/*.bin")


@FEW
@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    length=st.integers(1, 5),
    more=st.integers(0, 3),
    dtype=TYPES,
    kind=st.sampled_from(["bin", "npy", "npz"]),
)
def test_rows_of_a_length_keep_all_laws(
    sizes: list[int], length: int, more: int, dtype: str, kind: str
) -> None:
    found = [np.arange(size).astype(dtype) + number for number, size in enumerate(sizes)]
    given = {"dtype": dtype} if kind == "bin" else {}
    stride = length + more
    reader = lz.io.read_tokens(listed(found, kind), length=length, stride=stride, **given)
    rows = [
        values[start : start + length]
        for values in found
        for start in range(0, len(values) - length + 1, stride)
    ]
    check_reader(reader, rows)
    assert reader.lengths.tolist() == [length] * len(rows)
    place = reader.locate(len(rows) - 1) if rows else None
    assert place is None or place.stop - place.start == length * np.dtype(dtype).itemsize


@FEW
@given(st.lists(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4)), min_size=1, max_size=3))  # fmt: skip  # noqa: E501
def test_documents_keep_all_laws(found: list[list[list[int]]]) -> None:
    rows = [np.array(document, "<u2") for documents in found for document in documents]
    reader = lz.io.read_tokens(megatron(found))
    check_reader(reader, rows)
    assert reader.lengths.tolist() == [*map(len, rows)]
    plan = lz.plan_packing(reader.lengths, 4, seed=0)
    packed = [row["tokens"][row["segment_ids"] > 0] for row in reader | lz.pack_by_plan(plan)]
    assert sorted(t for row in packed for t in row) == sorted(t for row in rows for t in row)


def test_a_state_knows_the_index_of_documents() -> None:
    files = megatron([[[1, 2], [3]]])
    state = lz.init(lz.source(lz.io.read_tokens(files)))
    assert lz.init(lz.source(lz.io.read_tokens(files))) == state
    path = Path(files[0].path).with_suffix(".idx")
    content = bytearray(path.read_bytes())
    content[34:58] = np.array([1, 2], "<i4").tobytes() + np.array([0, 2], "<i8").tobytes()
    path.write_bytes(content)
    again = lz.source(lz.io.read_tokens(files))
    assert [row.tolist() for row in again] == [[1], [2, 3]]
    with pytest.raises(lz.StateMismatch, match="digest"):
        lz.run(again, state)


def test_rows_overlap_where_the_stride_is_short() -> None:
    reader = lz.io.read_tokens(listed([np.arange(10)], "npy"), length=4, stride=2)
    expected = [np.arange(start, start + 4) for start in (0, 2, 4, 6)]
    assert equal(list(reader), expected)
    assert equal([reader[i] for i in range(4)], expected)
    shuffled = reader | lz.shuffle(seed=0) | lz.batch(4, collate=lz.stack)
    assert sorted(shuffled[0][:, 0].tolist()) == [0, 2, 4, 6]


def test_rows_of_documents_of_a_length() -> None:
    reader = lz.io.read_tokens(megatron([[[1, 2, 3], [4], [5, 6, 7]]]), length=2)
    assert equal(list(reader), [np.array(r, "<u2") for r in ([1, 2], [3, 4], [5, 6])])


def test_documents_of_several_sequences() -> None:
    files = megatron([[[1, 2], [3], [4, 5, 6]]])
    path = Path(files[0].path).with_suffix(".idx")
    content = path.read_bytes()[: -4 * 8]
    header = content[:26] + struct.pack("<Q", 3) + content[34:]
    path.write_bytes(header + np.array([0, 2, 3], "<i8").tobytes())
    assert [row.tolist() for row in lz.io.read_tokens(files)] == [[1, 2, 3], [4, 5, 6]]


def test_an_array_of_rows() -> None:
    values = np.arange(12, dtype="i2").reshape(4, 3)
    assert equal(list(lz.io.read_tokens(listed([values], "npy"))), list(values))
    rows = lz.io.read_tokens(listed([values], "npz"), length=5)
    assert [row.tolist() for row in rows] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_rows_are_not_written_to() -> None:
    row = lz.io.read_tokens(listed([np.arange(4)], "npy"), length=4)[0]
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1


def test_an_npz_of_several_arrays() -> None:
    place = folder()
    np.savez(f"{place}/a.npz", x=np.arange(4), y=np.arange(5, 9))
    with pytest.raises(lz.ArgumentError, match=r"name must be .* one of \['x', 'y'\], got name=No"):
        lz.io.read_tokens(f"{place}/a.npz", length=2)
    assert lz.io.read_tokens(f"{place}/a.npz", length=2, name="y")[1].tolist() == [7, 8]
    np.savez_compressed(f"{place}/b.npz", x=np.arange(4))
    with pytest.raises(lz.ArgumentError, match=r"'x' in .*b.npz is compressed: numpy.savez makes"):
        lz.io.read_tokens(f"{place}/b.npz", length=2)


def test_a_disk_that_fails_is_no_damaged_file(monkeypatch: pytest.MonkeyPatch) -> None:
    files = listed([np.arange(4)], "npz")

    def fails(*_: object) -> bytes:
        raise lz.errors.StorageError("no answer")

    monkeypatch.setattr(type(storage_of(files[0].path)), "read", fails)
    with pytest.raises(lz.errors.StorageError, match="no answer"):
        lz.io.read_tokens(files, length=2)


def test_what_is_missing_is_asked_for() -> None:
    files = listed([np.arange(4, dtype="u2")], "bin")
    with pytest.raises(lz.ArgumentError, match=r"000\.bin doesn't say .*: give dtype="):
        lz.io.read_tokens(files, length=2)
    with pytest.raises(lz.ArgumentError, match=r"000\.bin doesn't say where documents end: give l"):
        lz.io.read_tokens(files, dtype="uint16")
    with pytest.raises(lz.ArgumentError, match="stride=2 is given, and no length"):
        lz.io.read_tokens(files, dtype="uint16", stride=2)
    for options, message in (
        ({"length": 0}, "length must be an int >= 1 or None"),
        ({"dtype": "text"}, "dtype must be a type of numbers, such as 'uint16'"),
        ({"name": 3}, "name must be a str"),
    ):
        with pytest.raises(lz.ArgumentError, match=message):
            lz.io.read_tokens(files, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values", [np.zeros((2, 2, 2)), np.array([{}]), np.asfortranarray(np.zeros((2, 3)))], ids=str
)
def test_an_array_of_another_shape_is_refused(values: Any) -> None:
    with pytest.raises(lz.ArgumentError, match=r"000\.npy must hold numbers in one dimension, or"):
        lz.io.read_tokens(listed([values], "npy"), length=2)


def test_what_is_cut_is_named() -> None:
    odd = folder() / "a.bin"
    odd.write_bytes(b"123")
    with pytest.raises(lz.io.RecordError, match=r"a\.bin: 3 bytes are no whole number of uint16"):
        lz.io.read_tokens(odd, length=1, dtype="u2")


def test_the_index_of_another_file_is_named() -> None:
    files = megatron([[[1, 2], [3]]])
    np.arange(2, dtype="u2").tofile(files[0].path)
    with pytest.raises(lz.io.RecordError, match=r"000\.idx: its sequences aren't those of .*000.b"):
        lz.io.read_tokens(f"{files.root}/*.bin")


@pytest.mark.parametrize(
    ("lengths", "documents"),
    [
        ([3, 2, 4, 5], [0, 1, 2]),  # as merged without the documents of the other file
        ([3, 2], [0, 1, 5]),
        ([3, 2], [1, 2]),
        ([3, 2], [0, -1, 2]),
        ([3, 2, 2], [0, 3, 1, 3]),
        ([3, 2], []),
        ([5, -2, 2], [0, 1, 2, 3]),
    ],
)
def test_documents_that_do_not_hold_all_sequences_are_an_error(
    lengths: list[int], documents: list[int]
) -> None:
    files = megatron([[[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]]])
    starts = np.cumsum([0, *lengths[:-1]]) * 2
    Path(files[0].path).with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, 8, len(lengths), len(documents))
        + np.array(lengths, "<i4").tobytes()
        + starts.astype("<i8").tobytes()
        + np.array(documents, "<i8").tobytes()
    )
    with pytest.raises(lz.io.RecordError, match=r"000\.idx: its (documents|sequences) "):
        lz.io.read_tokens(files)


def test_what_is_before_plain_numbers_is_left_out() -> None:
    values, header = np.arange(50, dtype="<u2"), np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(values)
    files = written([header.tobytes() + values.tobytes()] * 2, ".bin")
    with pytest.raises(lz.ArgumentError, match=r"000\.bin begins with .*llm\.c: give offset=1024"):
        lz.io.read_tokens(files, length=10, dtype="uint16")
    rows = lz.io.read_tokens(files, length=20, dtype="uint16", offset=1024)
    check_reader(rows, [values[:20], values[20:40]] * 2)
    assert rows.locate(1)[1:] == (1, 1064, 1104)
    assert "dtype='<u2', offset=1024" in repr(rows)
    with pytest.raises(lz.io.RecordError, match="no whole number of uint16"):
        lz.io.read_tokens(files, length=10, dtype="uint16", offset=5000)
    cut = written([header.tobytes() + values.tobytes()[:-2]], ".bin")
    with pytest.raises(lz.ArgumentError, match=r"000\.bin begins with .*llm\.c: give offset=1024"):
        lz.io.read_tokens(cut, length=10, dtype="uint16")
    with pytest.raises(lz.io.RecordError, match=r"000\.bin: its header says 50 tokens, and it has"):
        lz.io.read_tokens(cut, length=10, dtype="uint16", offset=1024)
    with pytest.raises(lz.ArgumentError, match=r"000\.idx says where tokens are; offset=2 too"):
        lz.io.read_tokens(megatron([[[1, 2]]]), offset=2)


@pytest.mark.parametrize("given", [{"length": 10, "stride": 10**6, "dtype": "u1"}, {}], ids=str)
def test_rows_that_are_far_apart_or_large_are_not_read_together(given: dict[str, Any]) -> None:
    """After windows of a few tokens, and a document of one."""
    place, size = folder(), 50_000_000
    with open(f"{place}/large.bin", "wb") as file:
        file.truncate(size)  # of holes, which take no place on disk
    if not given:
        lengths = [1, *[size // 10] * 9, size // 10 - 1]
        index = tokens.megatron_index(np.dtype("u1"), lengths)
        Path(f"{place}/large.idx").write_bytes(index)
    rows = lz.io.read_tokens(f"{place}/large.bin", **given)
    tracemalloc.start()
    try:
        for _ in zip(rows, range(8), strict=False):
            pass
        assert len(rows[5:3:-1]) == 2
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size


def test_an_index_may_say_of_what_mode_sequences_are() -> None:
    files = megatron([[[1, 2], [3]]])
    path = Path(files[0].path).with_suffix(".idx")
    path.write_bytes(path.read_bytes() + bytes(2))
    assert [row.tolist() for row in lz.io.read_tokens(files)] == [[1, 2], [3]]
    path.write_bytes(path.read_bytes() + bytes(1))
    with pytest.raises(lz.io.RecordError, match=r"000\.idx: it is cut, or of another format"):
        lz.io.read_tokens(files)


@pytest.mark.parametrize("code", range(1, 9))
def test_documents_are_of_any_type(code: int) -> None:
    dtype = np.dtype(["", "u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"][code])
    files = megatron([[[1, 2, 3], [4], [5]]])
    np.arange(1, 6).astype(dtype).tofile(files[0].path)
    path = Path(files[0].path).with_suffix(".idx")
    content = bytearray(path.read_bytes())
    content[17] = code
    content[46:70] = (np.array([0, 3, 4], "<i8") * dtype.itemsize).tobytes()
    path.write_bytes(content)
    rows = lz.io.read_tokens(f"{files.root}/*.bin")
    check_reader(rows, [np.array(row, dtype) for row in ([1, 2, 3], [4], [5])])


def test_tokens_that_documents_do_not_hold_are_an_error() -> None:
    files = megatron([[[1, 2], [3]]])
    with open(files[0].path, "ab") as file:
        file.write(b"xx")
    with pytest.raises(lz.io.RecordError, match=r"000\.idx: its sequences aren't those of .*000.b"):
        lz.io.read_tokens(f"{files.root}/*.bin")


@pytest.mark.parametrize("values", [np.zeros((5, 0)), np.array(["a"]), np.zeros(2, "V3")], ids=str)
def test_what_has_no_numbers_is_refused(values: Any) -> None:
    with pytest.raises(lz.ArgumentError, match=r"000\.npy must hold numbers in one dimension, or"):
        lz.io.read_tokens(listed([values], "npy"))


def test_a_file_of_20_gb_takes_no_memory() -> None:
    path = f"{folder()}/large.bin"
    size = 20 * 10**9
    with open(path, "wb") as file:
        file.truncate(size)  # of holes, which take no place on disk
    tracemalloc.start()
    try:
        rows = lz.io.read_tokens(path, length=1_000, dtype="uint16")
        pipeline = rows | lz.shuffle(seed=0) | lz.batch(4, collate=lz.stack)
        run = lz.run(pipeline, lz.state_at(pipeline, len(pipeline) // 2))
        assert all(next(run).shape == (4, 1_000) for _ in range(50))
        assert rows[len(rows) - 1].sum() == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        os.remove(path)
    assert len(rows) == size // 2_000
    assert peak < 2_000_000
