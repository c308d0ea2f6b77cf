"""Random tables in files of several schemas, held to what pyarrow reads of them."""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import lazyckpt as lz
from tests.io.cases import folder
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
    check_reached(read(f"{place}/*", index_dir=place, cache_bytes=cache), expected)
