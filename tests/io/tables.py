"""Tables of pyarrow in files: random ones, and what readers make of their values."""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

import lazyckpt as lz
from tests.io.cases import folder
from tests.io.formats import ipc

NUMBERS: dict[Any, Any] = {
    pa.bool_(): np.bool_,
    **{getattr(pa, name)(): getattr(np, name) for name in (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )},
}  # fmt: skip


def documented(value: Any, kind: Any) -> Any:
    """The value that a reader makes of pyarrow's value."""
    if pa.types.is_run_end_encoded(kind):
        return documented(value, kind.value_type)
    if pa.types.is_dictionary(kind) and kind.value_type in NUMBERS:
        return documented(value, kind.value_type)
    if value is None:
        return None
    if kind in NUMBERS:
        return NUMBERS[kind](value)
    if isinstance(kind, pa.FixedShapeTensorType) and None not in value:
        return np.array(value, NUMBERS[kind.value_type]).reshape(kind.shape)
    is_list = "list" in str(kind).partition("<")[0] and kind.value_type in NUMBERS
    return np.array(value, NUMBERS[kind.value_type]) if is_list and None not in value else value


FORMS = ["parquet", "arrow", "stream"]  # ends of names


def write(
    table: Any, out: Any, form: str, size: int = 2, codec: str | None = None, **how: Any
) -> None:
    """Write a table in groups of so many rows."""
    if form == "parquet":
        parquet.write_table(table, out, size, compression=codec or "none", **how)
    else:
        made = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        ipc(table, out, size, made, codec, **how)


def files_of(*tables: Any, form: str, size: int = 2) -> lz.io.Files:
    """A file of each table, or of a column `x`."""
    place = folder()
    for number, each in enumerate(tables):
        table = each if isinstance(each, pa.Table) else pa.table({"x": each})
        write(table, f"{place}/{number:03}.{form}", form, size)
    return lz.io.files(f"{place}/*")


def read(files: lz.io.Files, **given: Any) -> Any:
    is_parquet = files[0].path.endswith(".parquet")
    return (lz.io.read_parquet if is_parquet else lz.io.read_arrow)(files, **given)


class Kind(NamedTuple):
    """A column: the types it may have in different files, and its values."""

    types: list[Any]
    values: st.SearchStrategy[Any]


_SMALL = st.integers(0, 100)
KINDS = {
    "int": Kind([pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint32()], _SMALL),
    "bool": Kind([pa.bool_()], st.booleans()),
    "float": Kind([pa.float32()], st.floats(width=32, allow_nan=False)),
    "text": Kind(
        [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
        st.text(max_size=3),
    ),
    "bytes": Kind([pa.binary(), pa.large_binary()], st.binary(max_size=3)),
    "date": Kind([pa.date32()], st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "tokens": Kind(
        [pa.list_(pa.int8()), pa.list_(pa.uint16()), pa.large_list(pa.int64())],
        st.lists(_SMALL | st.none(), max_size=3),
    ),
    "vector": Kind([pa.list_(pa.float32(), 2)], st.lists(_SMALL, min_size=2, max_size=2)),
    "words": Kind([pa.large_list(pa.string())], st.lists(st.text(max_size=2), max_size=2)),
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
def tables(draw: st.DrawFn) -> tuple[list[Any], list[dict[str, Any]]]:
    """Tables whose types differ by no value, and their rows."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        types = {name: draw(st.sampled_from(KINDS[name].types)) for name in kinds}
        values = {name: KINDS[name].values for name in kinds}
        for name in kinds:
            missing = draw(st.sampled_from(["none", "some", "some", "all"]))
            if missing == "some":
                values[name] = st.none() | values[name]
            elif missing == "all":
                values[name] = st.none()
                types[name] = draw(st.sampled_from([types[name], pa.null()]))
        some = draw(st.lists(st.fixed_dictionaries(values), max_size=6))
        found.append(pa.Table.from_pylist(some, pa.schema(types)))
    types = {name: _common(name, found) for name in kinds}
    rows = [row for table in found for row in table.to_pylist()]
    return found, [{name: documented(row[name], types[name]) for name in kinds} for row in rows]


def _common(name: str, found: list[Any]) -> Any:
    """The type that a column has in all tables."""
    types = [table.schema.field(name).type for table in found]
    types = [kind for kind in types if kind != pa.null()] or [pa.null()]
    if name not in ("int", "tokens") or types[0] == pa.null():
        return types[0]
    numbers = [kind if name == "int" else kind.value_type for kind in types]
    schemas = [pa.schema([("x", kind)]) for kind in numbers]
    number = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    return number if name == "int" else pa.list_(number)
