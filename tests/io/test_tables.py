"""Random tables in files of several schemas, held to what pyarrow reads of them."""

from __future__ import annotations

import io
from datetime import date
from typing import Any, NamedTuple

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import lazyckpt as lz
from lazyckpt.io.remote import FsspecStorage
from tests.io.cases import folder
from tests.io.formats import ipc
from tests.io.reached import check_reached, documented

FEW = settings(max_examples=max(10, settings.default.max_examples // 4))
WORD = pa.dictionary(pa.int8(), pa.string())


class Kind(NamedTuple):
    """A column: the types it may have in different files, and its values."""

    types: list[Any]
    values: st.SearchStrategy[Any]


_SMALL = st.integers(0, 100)
KINDS = {
    "int": Kind([pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint32()], _SMALL),
    "bool": Kind([pa.bool_()], st.booleans()),
    "float": Kind([pa.float32()], st.floats(width=32, allow_nan=False)),
    "text": Kind([pa.string(), pa.large_string(), WORD], st.text(max_size=3)),
    "bytes": Kind([pa.binary(), pa.large_binary()], st.binary(max_size=3)),
    "date": Kind([pa.date32()], st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "tokens": Kind(
        [pa.list_(pa.int8()), pa.list_(pa.uint16()), pa.large_list(pa.int64())],
        st.lists(_SMALL | st.none(), max_size=3),
    ),
    "vector": Kind([pa.list_(pa.float32(), 2)], st.lists(_SMALL, min_size=2, max_size=2)),
    "struct": Kind(
        [
            pa.struct({"u": pa.int8(), "v": pa.string()}),
            pa.struct({"u": pa.int64(), "v": pa.large_string()}),
            pa.struct({"u": pa.uint8(), "v": pa.null()}),
        ],
        st.fixed_dictionaries({"u": _SMALL, "v": st.none()}),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> list[Any]:
    """Tables whose types differ by no value."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        types = {name: draw(st.sampled_from(KINDS[name].types)) for name in kinds}
        values = {name: KINDS[name].values for name in kinds}
        for name in kinds:
            missing = draw(st.sampled_from(["none", "some", "some", "all"]))
            if missing == "some":
                values[name] = st.none() | values[name]
            elif missing == "all":
                values[name], types[name] = (
                    st.none(),
                    draw(st.sampled_from([types[name], pa.null()])),
                )
        rows = draw(st.lists(st.fixed_dictionaries(values), max_size=6))
        found.append(pa.Table.from_pylist(rows, pa.schema(types)))
    return found


def common(name: str, found: list[Any]) -> Any:
    """The type that a column has in all tables."""
    types = [table.schema.field(name).type for table in found]
    types = [kind for kind in types if kind != pa.null()] or [pa.null()]
    if name not in ("int", "tokens") or types[0] == pa.null():
        return types[0]
    numbers = [kind if name == "int" else kind.value_type for kind in types]
    schemas = [pa.schema([("x", kind)]) for kind in numbers]
    number = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    return number if name == "int" else pa.list_(number)


@FEW
@given(found=tables(), form=st.sampled_from(["parquet", "file", "stream"]), data=st.data())
def test_rows_are_those_of_pyarrow_however_they_are_reached(
    found: list[Any], form: str, data: st.DataObject
) -> None:
    place = folder()
    for number, table in enumerate(found):
        size = data.draw(st.integers(1, 4))
        codec = data.draw(st.sampled_from([None, "lz4", "zstd"]))
        path = f"{place}/{number}.{form}"
        if form == "parquet":
            how = {"compression": codec or "none", "use_dictionary": data.draw(st.booleans())}
            parquet.write_table(table, path, size, store_schema=data.draw(st.booleans()), **how)
            continue
        made = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with made(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as out:
            for batch in table.to_batches(size):
                for _ in range(data.draw(st.integers(0, 2))):
                    out.write_batch(batch.slice(0, 0))
                out.write_batch(batch)
    types = {name: common(name, found) for name in found[0].schema.names}
    rows = [row for table in found for row in table.to_pylist()]
    expected = [{name: documented(row[name], types[name]) for name in types} for row in rows]
    read = lz.io.read_parquet if form == "parquet" else lz.io.read_arrow
    cache = data.draw(st.sampled_from([0, 300, 1 << 28]))
    check_reached(read(f"{place}/*.{form}", index_dir=place, cache_bytes=cache), expected)


def elsewhere(form: str, count: int = 3, size: int = 1 << 18) -> lz.io.Files:
    """A file of so many groups of so many numbers, which fsspec has in memory."""
    out = io.BytesIO()
    table = pa.table({"n": range(count * size), "f": np.zeros(count * size)})
    if form == "parquet":
        parquet.write_table(table, out, size)
    else:
        ipc(table, out, size, pa.ipc.new_file if form == "file" else pa.ipc.new_stream)
    fsspec.filesystem("memory").pipe_file(f"/tables/a.{form}", out.getvalue())
    return lz.io.files(f"memory://tables/a.{form}")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes are read of files elsewhere; what is negative fails the next read."""
    found: list[int] = []
    read = FsspecStorage.read

    def counted(self: Any, file: Any, start: int, stop: int) -> bytes:
        if found[-1:] == [-1]:
            raise lz.errors.StorageError(f"{file.path} can't be read")
        found.append(stop - start)
        return read(self, file, start, stop)

    monkeypatch.setattr(FsspecStorage, "read", counted)
    return found


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
def test_a_file_elsewhere_is_indexed_without_its_rows(form: str, reads: list[int]) -> None:
    files = elsewhere(form)
    rows = (lz.io.read_parquet if form == "parquet" else lz.io.read_arrow)(files)
    assert sum(reads) < files[0].size / 10
    assert rows[(1 << 18) + 5]["n"] == (1 << 18) + 5
    assert [*rows.block_starts] == [0, 1 << 18, 2 << 18]
    assert len({rows.locate(start)[2:] for start in rows.block_starts.tolist()}) == 3


@pytest.mark.parametrize("form", ["file", "stream"])
def test_of_a_file_elsewhere_only_columns_are_read_that_are_asked_for(
    form: str, reads: list[int]
) -> None:
    files = elsewhere(form)
    rows = lz.io.read_arrow(files, columns=["n"])
    reads.clear()
    assert rows[5] == {"n": 5}
    assert form == "stream" or sum(reads) < files[0].size / 5


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
def test_a_failure_of_storage_is_not_kept(form: str, reads: list[int]) -> None:
    files = elsewhere(form, 3, 10)
    rows = (lz.io.read_parquet if form == "parquet" else lz.io.read_arrow)(files)
    assert rows[5]["n"] == 5
    reads.append(-1)
    for _ in range(2):
        with pytest.raises(lz.errors.StorageError, match="can't be read"):
            rows[15]
    with pytest.raises(lz.errors.StorageError, match="can't be read"):
        list(lz.run(lz.source(rows), on_error="skip"))
    reads.clear()
    assert [row["n"] for row in rows] == [*range(30)]


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
def test_many_workers_share_what_is_kept(form: str) -> None:
    place = folder()
    for number in range(6):
        table = pa.table({"n": range(100 * number, 100 * number + 100)})
        path = f"{place}/{number}.{form}"
        if form == "parquet":
            parquet.write_table(table, path, 10)
        else:
            ipc(table, path, 10, pa.ipc.new_file if form == "file" else pa.ipc.new_stream)
    read = lz.io.read_parquet if form == "parquet" else lz.io.read_arrow
    for cache in (0, 500, 1 << 20):
        rows = read(f"{place}/*.{form}", index_dir=place, cache_bytes=cache)
        for stages in (lz.skip(0), lz.shuffle(seed=1), lz.local_shuffle(3, seed=1)):
            pipeline = rows | stages | lz.map(lambda row: int(row["n"]))
            with lz.run(pipeline, executor=lz.threads(6)) as run:
                assert [*run] == [*pipeline]
