"""Zarr: rows of arrays, of chunks that are kept decoded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.io.zarr import ZarrRows, _opened
from lazyckpt.testing import equal
from tests.io.cases import check_reader, folder
from tests.io.test_binary_remote import remote

FEW = settings(max_examples=max(4, settings.default.max_examples // 12))


def written(values: NDArray[Any], chunks: tuple[int, ...], version: Any = 3, **more: Any) -> Path:
    path = folder() / "a.zarr"
    array = zarr.create_array(
        path, shape=values.shape, chunks=chunks, dtype=values.dtype, zarr_format=version, **more
    )
    array[...] = values
    return path


@FEW
@given(
    size=st.integers(0, 30),
    chunk=st.integers(1, 9),
    length=st.integers(1, 12),
    stride=st.integers(1, 12),
    version=st.sampled_from([2, 3]),
)
def test_rows_of_a_length_keep_all_laws(
    size: int, chunk: int, length: int, stride: int, version: int
) -> None:
    values = np.arange(size, dtype=np.uint16)
    reader = lz.io.read_zarr(written(values, (chunk,), version), length=length, stride=stride)
    starts = range(0, size - length + 1, stride)
    check_reader(reader, [values[start : start + length] for start in starts])
    for row in reader.block_starts.tolist()[1:]:  # the first that begins in its chunk
        assert row * stride // chunk > (row - 1) * stride // chunk


@FEW
@given(
    shape=st.tuples(st.integers(0, 7), st.integers(1, 4), st.integers(1, 3)),
    chunks=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)),
)
def test_rows_of_the_first_axis_keep_all_laws(
    shape: tuple[int, ...], chunks: tuple[int, ...]
) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    reader = lz.io.read_zarr(written(values, chunks))
    check_reader(reader, list(values))
    assert reader.block_starts.tolist() == list(range(0, shape[0], chunks[0]))


def test_arrays_in_groups_and_shards() -> None:
    path = folder() / "a.zarr"
    group = zarr.create_group(path)
    array = group.create_array("x/y", shape=(20,), chunks=(3,), shards=(6,), dtype="i4")
    array[:] = np.arange(20)
    reader = lz.io.read_zarr(f"{path}/x/y", length=5)
    assert equal(list(reader), [np.arange(n, n + 5, dtype=np.int32) for n in range(0, 20, 5)])


def test_a_row_says_where_it_is() -> None:
    path = written(np.zeros((4, 2)), (2, 2))
    (found,) = lz.trace(lz.source(lz.io.read_zarr(path)), 3)
    assert found.row[:2] == (f"{path}/zarr.json", 3)


def test_a_local_shuffle_decodes_each_chunk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = lz.io.read_zarr(written(np.arange(40), (4,)), length=2, cache_bytes=4 * 32)
    decoded: list[Any] = []
    read = zarr.Array.__getitem__

    def counting(array: Any, selection: Any) -> Any:
        decoded.append(selection)
        return read(array, selection)

    monkeypatch.setattr(zarr.Array, "__getitem__", counting)
    rows = list(lz.source(reader) | lz.local_shuffle(3, seed=0))
    assert sorted(int(row[0]) for row in rows) == list(range(0, 40, 2))
    assert len(decoded) == 10


@pytest.mark.parametrize(
    ("shape", "given"), [((4,), {}), ((4, 2), {"length": 2}), ((4, 2), {"stride": 2})]
)
def test_length_goes_with_one_dimension(shape: tuple[int, ...], given: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="length"):
        lz.io.read_zarr(written(np.zeros(shape), (2,) * len(shape)), **given)


def test_what_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.zarr: no array of zarr, which has zarr\.j"):
        lz.io.read_zarr(tmp_path / "no.zarr")
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(lz.io.RecordError, match="no array of zarr: "):
        lz.io.read_zarr(tmp_path)


def test_a_chunk_that_is_damaged_is_named() -> None:
    path = written(np.arange(9), (3,))
    (path / "c" / "1").write_bytes(b"nothing")
    reader = lz.io.read_zarr(path, length=3)
    with pytest.raises(lz.io.RecordError, match=r"record 1 at byte 0 of .*zarr\.json: "):
        reader[1]
    with lz.run(lz.source(reader), on_error="skip") as run:
        assert equal(list(run), [np.arange(3), np.arange(6, 9)])


def test_an_array_that_was_resized_is_named() -> None:
    path = written(np.arange(9), (3,))
    files = lz.io.read_zarr(path, length=3).files
    zarr.open_array(path).resize((12,))
    _opened.cache_clear()
    with pytest.raises(lz.SourceChanged, match=r"zarr\.json changed since it was listed"):
        ZarrRows(files[0], 3, None, 99)
    assert len(lz.io.read_zarr(path, length=3)) == 4


@pytest.mark.parametrize("executor", [lz.threads(3), lz.processes(2)], ids=str)
def test_executors_give_the_rows(executor: Any) -> None:
    reader = lz.io.read_zarr(written(np.arange(90), (7,)), length=3)
    pipeline = reader | lz.shuffle(seed=0) | lz.map(np.ndarray.tolist)
    expected = list(pipeline)
    with lz.run(pipeline, executor=executor) as run:
        assert list(run) == expected


def test_a_fork_reads_too() -> None:
    reader = lz.io.read_zarr(written(np.arange(90), (7,)), length=1)
    assert reader[0] == [0]
    if not (child := os.fork()):
        os._exit(int(reader[70][0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70
    assert reader[80] == [80]


def test_zarr_is_read_from_fsspec(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(10,), chunks=(3,), dtype="u2")
    array[:] = np.arange(10)
    reader = lz.io.read_zarr(remote(tmp_path / "a.zarr"), length=4, stride=6)
    check_reader(reader, [np.arange(n, n + 4, dtype=np.uint16) for n in (0, 6)])
